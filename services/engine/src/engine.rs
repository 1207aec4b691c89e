//! Opening, closing and watching the database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tideline_backend::{Backend, Health, Reopening};
use tideline_log::{Log, LogEntry, LogModel};
use tideline_model::{Clock, SequenceNumber, TableId, Tier};
use tideline_runtime::MemoryAccount;
use tideline_search_index::{IndexOptions, IndexStatus, SearchIndex};
use tideline_series_store::{Recovery, Replayed, SeriesStore, StoreStats};
use tideline_timeline_catalog::{Catalog, CatalogOptions};

use crate::directory::{CatalogModel, CatalogReplay, Catalogs, Member};
use crate::error::Result;
use crate::growth::TableLimits;
use crate::models::check_served;
use crate::watch::DecodedDeltas;

/// The open database.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: SeriesStore,
    pub(crate) catalogs: Arc<Catalogs>,
    pub(crate) index: SearchIndex,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// Idempotency keys of requests that are running.
    pub(crate) running_requests: Mutex<HashSet<(TableId, [u8; 16])>>,
    /// Deltas that watchers have decoded lately.
    pub(crate) decoded: DecodedDeltas,
    /// Held while an archive is attached: two at once would attach everything twice.
    pub(crate) attaching: Mutex<()>,
    replayed: Replayed,
}

/// What can be set about the engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of the search index; it may vanish at any time and is rebuilt.
    pub index_dir: PathBuf,
    /// Settings of the store.
    pub store: tideline_series_store::Settings,
    /// Budget of each table's cache of raw series keys, in bytes.
    pub raw_key_cache_bytes: usize,
    /// Limits of tables and of their number.
    pub tables: TableLimits,
    /// Whether the data is a copy of another database's that goes on: archived files are that one's then.
    pub is_copy: bool,
    /// How long after a change of its policy, or after a jump of the clock, no timeline of a table is removed by its
    /// age: the time in which a mistake can be taken back.
    pub purge_delay: Duration,
    /// Memory that requests hold together. Default: unlimited.
    pub memory: MemoryAccount,
}

impl Settings {
    /// Defaults, with the index in `index_dir`.
    pub fn new(index_dir: PathBuf) -> Self {
        Self {
            index_dir,
            store: tideline_series_store::Settings::default(),
            raw_key_cache_bytes: 256 << 20,
            tables: TableLimits::default(),
            is_copy: false,
            purge_delay: Duration::from_secs(24 * 3_600),
            memory: MemoryAccount::default(),
        }
    }
}

/// Whether promises can be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// All reads are answered. While the store of a tier cannot be reopened, those of its points are refused.
    pub reads: bool,
    /// Writes are taken.
    pub writes: bool,
    /// Why not, or what is worth knowing although all is well.
    pub reasons: Vec<String>,
    /// Tiers whose store has failed and is being reopened.
    pub reopening: Vec<FailedTier>,
}

/// A tier whose store has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTier {
    /// The tier. Rows and the journal are stored with the hot one.
    pub tier: Tier,
    /// The first error.
    pub reason: String,
    /// The attempts to reopen it.
    pub reopening: Reopening,
}

impl FailedTier {
    /// The same in one sentence.
    fn describe(&self) -> String {
        let Reopening {
            reads,
            is_running,
            attempts,
            last_error,
            next_in,
        } = &self.reopening;
        let what = match self.tier {
            Tier::Hot => "the storage engine",
            Tier::Cold | Tier::Archive => "the store of the cold tier",
        };
        let refused = match (self.tier, reads) {
            (_, true) => "",
            (Tier::Hot, false) => "; reads are refused",
            (Tier::Cold | Tier::Archive, false) => "; reads of cold points are refused",
        };
        let next = match is_running {
            true => "an attempt is running".to_owned(),
            false => format!("the next attempt comes in {:.0} s", next_in.as_secs_f64().ceil()),
        };
        let past = last_error.as_ref().map_or_else(String::new, |error| {
            format!(" after {attempts} failed ones, the last with: {error}")
        });
        format!(
            "{what} failed and is being reopened{refused}; {next}{past}; it failed with: {}",
            self.reason
        )
    }
}

/// Counts and sizes of everything.
#[derive(Debug, Clone)]
pub struct EngineStats {
    /// The store.
    pub store: StoreStats,
    /// The index.
    pub index: IndexStatus,
    /// Visible timelines of all tables.
    pub timelines: u64,
    /// New timelines refused since the start, because their table takes only so many a minute.
    pub timelines_refused: u64,
    /// New timelines refused since the start, because the identities of their table take all the memory that they may.
    pub timelines_oversized: u64,
    /// Resident bytes of all catalogs.
    pub catalog_bytes: usize,
    /// Tables.
    pub tables: usize,
    /// What the start replayed from the journal.
    pub replayed: Replayed,
}

impl Engine {
    /// Opens the database that `backend` keeps: reads catalogs, replays the journal, lets the index catch up in
    /// the background.
    pub fn open(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self> {
        let recovery = Recovery::begin(backend, Arc::clone(&clock), settings.store.clone())?;
        let catalogs = Arc::new(Catalogs::default());
        let backend = recovery.backend();
        catalogs.use_backend(Arc::clone(backend));
        for table in recovery.tables() {
            check_served(table.name(), table.spec().model)?;
            let options = catalog_options(&settings, &catalogs, table.spec().source_tags.clone());
            let catalog = Catalog::load(backend.as_ref(), table.id(), options)?;
            catalogs.get_or_insert(table.id(), || catalog);
        }
        let mut replay = CatalogReplay(Arc::clone(&catalogs));
        let model = |log: &Arc<Log>| -> Vec<Arc<dyn LogModel>> {
            let (catalogs, log) = (Arc::clone(&catalogs), Arc::clone(log));
            vec![Arc::new(CatalogModel { catalogs, log })]
        };
        let directory = Arc::clone(&catalogs);
        let (store, replayed) = recovery.finish_beside(directory, &mut [&mut replay], model)?;
        catalogs.replayed(store.stamps());
        if settings.is_copy {
            let segments = store.become_another()?;
            tracing::info!(
                segments,
                "archived files are left to the database that this one is a copy of"
            );
        }
        let index_options = IndexOptions {
            supervisor: settings.store.log.supervisor.clone(),
            memory: settings.memory.clone(),
            ..IndexOptions::default()
        };
        let index = SearchIndex::open(&settings.index_dir, index_options)?;
        let running_requests = Mutex::default();
        let engine = Self {
            store,
            catalogs,
            index,
            clock,
            settings,
            running_requests,
            decoded: DecodedDeltas::default(),
            attaching: Mutex::default(),
            replayed,
        };
        for table in engine.store.tables() {
            match engine.catalogs.get(table.id()) {
                Some(member) => engine.index.attach(member.catalog),
                None => drop(engine.member(&table)),
            }
        }
        // A table dropped just before a crash may still be in the index.
        engine.index.detach_others();
        Ok(engine)
    }

    /// Whether promises can be kept now. Cheap.
    pub fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        let mut failed = Vec::new();
        let mut reads = true;
        let mut writes = match self.store.health() {
            Health::Ready => true,
            Health::DiskLow {
                free_bytes,
                watermark_bytes,
            } => {
                reasons.push(format!(
                    "disk is nearly full: {free_bytes} bytes are free, {watermark_bytes} must be; \
                     writes resume by themselves when space returns"
                ));
                false
            }
            Health::Poisoned { reason, reopening } => {
                reads = reopening.reads;
                failed.push(FailedTier {
                    tier: Tier::Hot,
                    reason,
                    reopening,
                });
                false
            }
            Health::ReadOnly { reason } => {
                reasons.push(format!("read-only until an operator decides: {reason}"));
                false
            }
        };
        if let Health::Poisoned { reason, reopening } = self.store.backend().tier_health(Tier::Cold) {
            reads &= reopening.reads;
            failed.push(FailedTier {
                tier: Tier::Cold,
                reason,
                reopening,
            });
        }
        reasons.extend(failed.iter().map(FailedTier::describe));
        if let Err(error) = self.store.log().check_lease() {
            (reads, writes) = (false, false);
            reasons.push(error.to_string());
        }
        if let Some(failure) = self.store.thread_failure() {
            writes = false;
            reasons.push(format!("{failure}; the process ends"));
        }
        if let Some(doubt) = self.store.trusted_now().doubt {
            reasons.push(format!("the clock is in doubt: {}", doubt.reason()));
        }
        if let Some(error) = self.store.seal_error() {
            reasons.push(format!("sealing fails and is tried again: {error}"));
        }
        let index = self.index.status();
        if index.rebuilding {
            reasons.push("the search index is being rebuilt; answers are complete, some are slower".into());
        }
        Readiness {
            reads,
            writes,
            reasons,
            reopening: failed,
        }
    }

    /// Counts and sizes.
    pub fn stats(&self) -> EngineStats {
        let tables = self.store.tables();
        let members: Vec<Member> = tables
            .iter()
            .filter_map(|table| self.catalogs.get(table.id()))
            .collect();
        EngineStats {
            store: self.store.stats(),
            index: self.index.status(),
            timelines: members.iter().map(|member| member.catalog.len()).sum(),
            timelines_refused: members
                .iter()
                .map(|member| member.activity.growth.refused())
                .sum(),
            timelines_oversized: members
                .iter()
                .map(|member| member.activity.growth.oversized())
                .sum(),
            catalog_bytes: members.iter().map(|member| member.catalog.memory_bytes()).sum(),
            tables: tables.len(),
            replayed: self.replayed,
        }
    }

    /// The store, for reading points.
    pub fn store(&self) -> &SeriesStore {
        &self.store
    }

    /// The clock that everything here goes by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The memory account of the process, from which requests reserve what they hold.
    pub fn memory(&self) -> &MemoryAccount {
        &self.settings.memory
    }

    /// Seals everything written so far and waits for it; also brings the index up to date.
    pub fn seal(&self) -> Result<()> {
        self.store.seal()?;
        self.index.flush()?;
        Ok(())
    }

    /// Answers what runs, syncs, and closes. Nothing acknowledged is lost; unsealed points wait in the journal.
    pub fn close(&self) -> Result<()> {
        self.index.close();
        Ok(self.store.close()?)
    }

    /// Commits a change of a catalog.
    pub(crate) fn commit_change(&self, entry: Box<dyn LogEntry>) -> tideline_log::Result<SequenceNumber> {
        self.store.threads().commit(entry)
    }

    /// Returns the member of a table; creates and indexes it when the table is new.
    pub(crate) fn member(&self, table: &tideline_series_store::Table) -> Member {
        let mut is_new = false;
        let member = self.catalogs.get_or_insert(table.id(), || {
            is_new = true;
            let source_tags = table.spec().source_tags.clone();
            let options = catalog_options(&self.settings, &self.catalogs, source_tags);
            Catalog::new(table.id(), options)
        });
        if is_new {
            self.index.attach(Arc::clone(&member.catalog));
        }
        member
    }
}

fn catalog_options(settings: &Settings, catalogs: &Catalogs, source_tags: Vec<String>) -> CatalogOptions {
    CatalogOptions {
        source_tags,
        raw_key_cache_bytes: settings.raw_key_cache_bytes,
        unflushed: Arc::clone(catalogs.unflushed()),
    }
}
