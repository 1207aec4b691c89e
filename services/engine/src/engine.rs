//! The open database: opening, closing, readiness and statistics.
//!
//! [`Engine`] combines the store, the catalogs and the search index. The other modules add its operations. An engine is
//! a handle, which is cheap to clone. A handle with an [`Access`] serves one request with the rights of its principal.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tideline_access::Access;
use tideline_backend::{Acknowledged, Backend, Health, Reopening};
use tideline_log::{Log, LogError, LogModel, Refusal, Replay};
use tideline_model::{Clock, TableId, TableName, Tier};
use tideline_runtime::{Helpers, MemoryAccount};
use tideline_search_index::{IndexOptions, IndexStatus, SearchIndex};
use tideline_series_store::{OtherObjects, Recovery, Replayed, SeriesStore, StoreError, StoreStats};
use tideline_timeline_catalog::{Catalog, CatalogChange, CatalogOptions, CommitError, TimelinesAhead};
use tideline_wide_table::WideStats;
use tideline_wide_table::{WideModel, WideReplay, WideStore};

use crate::directory::{CatalogEntry, CatalogModel, CatalogReplay, Catalogs, TableState};
use crate::error::Result;
use crate::fan_outs::FanOuts;
use crate::feeds::FeedClaims;
use crate::growth::TableLimits;
use crate::index_growth::GrowthLog;
use crate::indexes::IndexReads;
use crate::large::LargeProgress;
use crate::row_search::RowSearches;
use crate::row_surveys::RowSurveys;
use crate::watch::DecodedDeltas;
use crate::wide_table::WideTable;

/// Open database.
///
/// Clones share the database. A handle without an [`Access`] is for the work of the server itself and reaches every
/// table. A handle with an [`Access`] resolves only the names of tables that its principal may use; see
/// [`with_access`](Self::with_access).
#[derive(Debug, Clone)]
pub struct Engine {
    core: Arc<Core>,
    /// Access of the request that this handle serves; `None` for the server itself.
    pub(crate) access: Option<Access>,
}

impl Deref for Engine {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// State that all handles of an open database share.
#[derive(Debug)]
pub struct Core {
    pub(crate) store: SeriesStore,
    /// Rows of wide tables.
    pub(crate) rows: Arc<WideStore>,
    /// Compiled settings of wide tables, by table.
    pub(crate) row_tables: Mutex<HashMap<TableId, Arc<WideTable>>>,
    /// Counts of the last complete removal of large values, by table.
    pub(crate) large_counts: Mutex<BTreeMap<TableId, LargeProgress>>,
    pub(crate) catalogs: Arc<Catalogs>,
    /// True until the rows of tables that were dropped before the start are removed.
    pub(crate) may_have_dropped_rows: AtomicBool,
    pub(crate) index: SearchIndex,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// Idempotency keys of running requests.
    pub(crate) running_requests: Mutex<HashSet<(TableId, [u8; 16])>>,
    /// Feeds and message ids that running requests use.
    pub(crate) feed_claims: Arc<FeedClaims>,
    pub(crate) fan_outs: FanOuts,
    /// Recently decoded deltas, shared by watchers.
    pub(crate) decoded: DecodedDeltas,
    /// Open search indexes over rows.
    pub(crate) row_searches: RowSearches,
    /// Sizes of wide tables and their indexes over time.
    pub(crate) growth_log: GrowthLog,
    /// Last surveys of wide tables.
    pub(crate) row_surveys: RowSurveys,
    /// Reads of secondary indexes since the start.
    pub(crate) index_reads: IndexReads,
    /// Held while the settings of a table are read, changed and stored.
    pub(crate) altering: Mutex<()>,
    /// Held while a table is created or dropped. A feed table and its table of users are two edits of the list of
    /// tables, and no other creation or drop may take place between these edits.
    pub(crate) table_list: Mutex<()>,
    /// Held while an archive is attached. Two concurrent runs would attach everything twice.
    pub(crate) attaching: Mutex<()>,
    /// Names of wide tables to which parts are being attached. Their indexes are built afterwards.
    pub(crate) unbuilt: Mutex<HashSet<TableName>>,
    /// Number of attachments of parts to each wide table that have begun, plus the number of those that have ended.
    pub(crate) row_attachments: Mutex<HashMap<TableName, u64>>,
    replayed: Replayed,
}

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the search index of timelines; subdirectories hold the search indexes over rows. All of them are
    /// rebuilt if the directory is lost.
    pub index_dir: PathBuf,
    /// Settings of the store.
    pub store: tideline_series_store::Settings,
    /// Settings of the rows of wide tables.
    pub rows: tideline_wide_table::Settings,
    /// Size of the caches of raw series keys of all tables together, in bytes.
    pub raw_key_cache_bytes: usize,
    /// Limits per table, and the maximum number of tables.
    pub tables: TableLimits,
    /// True if the data is a copy of a database that stays in use. Archived files then belong to the original database
    /// and are not deleted.
    pub is_copy: bool,
    /// Time for which expired rows and parts are kept after they were hidden, and timelines after their last point was
    /// hidden, so that a mistake can be corrected. After a policy change or a clock jump, no timeline is removed
    /// because of its age until this time has passed.
    pub purge_delay: Duration,
    /// Memory account that all requests share. Default: unlimited.
    pub memory: MemoryAccount,
    /// Threads that help to read the first pages of many key ranges. Default: none.
    pub helpers: Arc<Helpers>,
}

impl Settings {
    /// Returns the defaults with the index in `index_dir`.
    pub fn new(index_dir: PathBuf) -> Self {
        Self {
            index_dir,
            store: tideline_series_store::Settings::default(),
            rows: tideline_wide_table::Settings::default(),
            raw_key_cache_bytes: 256 << 20,
            tables: TableLimits::default(),
            is_copy: false,
            purge_delay: Duration::from_secs(24 * 3_600),
            memory: MemoryAccount::default(),
            helpers: Arc::default(),
        }
    }
}

/// Availability of reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// True if all reads are served. Reads can be refused while the store of a tier is reopened or after the lease is
    /// lost.
    pub reads: bool,
    /// True if writes are accepted.
    pub writes: bool,
    /// Reasons for refusals, and warnings about conditions that cause no refusal.
    pub reasons: Vec<String>,
    /// Warnings that name tables.
    pub table_warnings: Vec<String>,
    /// Tiers whose store has failed and is being reopened.
    pub reopening: Vec<FailedTier>,
}

/// Tier whose store has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTier {
    /// The tier. The journal, and rows outside of cold parts, are stored with the hot tier.
    pub tier: Tier,
    /// First error of the store.
    pub reason: String,
    /// State of the attempts to reopen the store.
    pub reopening: Reopening,
}

impl FailedTier {
    /// Describes the failure in one sentence.
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
            false => format!("the next attempt starts in {:.0} s", next_in.as_secs_f64().ceil()),
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

/// Counts and sizes of the whole database.
#[derive(Debug, Clone)]
pub struct EngineStats {
    /// Statistics of the store.
    pub store: StoreStats,
    /// Statistics of the rows of wide tables.
    pub rows: WideStats,
    /// Status of the search index.
    pub index: IndexStatus,
    /// Visible timelines of all tables.
    pub timelines: u64,
    /// New timelines refused since the start because of the per-minute limit of their table.
    pub timelines_refused: u64,
    /// New timelines refused since the start because the identities of their table have reached their memory limit.
    pub timelines_oversized: u64,
    /// Resident bytes of all catalogs.
    pub catalog_bytes: usize,
    /// Number of tables.
    pub tables: usize,
    /// Counts of the journal entries replayed at the start.
    pub replayed: Replayed,
}

impl Engine {
    /// Opens the database stored in `backend`: reads the catalogs, replays the journal and opens the search index,
    /// which catches up in the background.
    ///
    /// # Errors
    ///
    /// Returns the error of reading the backend, a catalog or the index.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
    /// use tideline_engine::model::{SystemClock, TableName};
    /// use tideline_engine::{Engine, Settings};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
    /// let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
    /// assert!(engine.readiness().writes);
    /// assert_eq!(engine.default_table()?.name().as_str(), TableName::DEFAULT);
    /// engine.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Self> {
        Self::open_ahead(backend, clock, settings, None)
    }

    /// Opens a database like [`open`](Self::open). The timelines that `ahead` holds are not read again, if the process
    /// that owned the data before has written down all changes since.
    ///
    /// # Errors
    ///
    /// The errors of `open`.
    pub fn open_ahead(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        ahead: Option<TimelinesAhead>,
    ) -> Result<Self> {
        let recovery = Recovery::begin(backend, Arc::clone(&clock), settings.store.clone())?;
        let catalogs = Arc::new(Catalogs::new(settings.raw_key_cache_bytes));
        let backend = recovery.backend();
        catalogs.use_backend(Arc::clone(backend));
        let ahead = load_catalogs(&catalogs, &recovery, ahead)?;
        let mut replay = CatalogReplay(Arc::clone(&catalogs));
        let opening = recovery.opening();
        let rows_replay = WideReplay::new(opening.manifest(), opening.rows(), opening.trusted_now());
        let rows_replay = rows_replay.map_err(StoreError::Log)?;
        // A freeze applies to the points and to the rows, so both have the same maximum age.
        let of_rows = tideline_wide_table::Settings {
            buffer_age_max: settings.store.head_age_max,
            ..settings.rows
        };
        let rows = OnceLock::new();
        // The log calls this after the replay, and before it writes anything.
        let model = |log: &Arc<Log>| -> Vec<Arc<dyn LogModel>> {
            begin_changes(&catalogs, log, ahead.as_ref());
            let archive = settings.store.archive.clone();
            let open = || Arc::new(WideStore::open(log, &rows_replay, archive, of_rows));
            let store = rows.get_or_init(open);
            let rows_model = WideModel(Arc::clone(store));
            let (catalogs, log) = (Arc::clone(&catalogs), Arc::clone(log));
            vec![Arc::new(CatalogModel { catalogs, log }), Arc::new(rows_model)]
        };
        let directory = Arc::clone(&catalogs);
        let replays: &mut [&mut dyn Replay] = &mut [&mut replay, &mut rows_replay.clone()];
        let (store, replayed) = recovery.finish_beside(directory, replays, model)?;
        let rows = rows
            .into_inner()
            .expect("the log creates its models when it opens");
        let archived = Arc::downgrade(&rows);
        store.set_other_objects(Box::new(move || objects_of_rows(&archived)));
        catalogs.replayed(store.stamps());
        if settings.is_copy {
            let segments = store.become_another()?;
            tracing::info!(
                segments,
                "this database is a copy: archived files belong to the original and are not deleted"
            );
        }
        let index_options = IndexOptions {
            supervisor: settings.store.log.supervisor.clone(),
            memory: settings.memory.clone(),
            ..IndexOptions::default()
        };
        let index = SearchIndex::open(&settings.index_dir, index_options)?;
        let running_requests = Mutex::default();
        let core = Core {
            store,
            rows,
            row_tables: Mutex::default(),
            large_counts: Mutex::default(),
            row_searches: RowSearches::default(),
            growth_log: GrowthLog::default(),
            row_surveys: RowSurveys::default(),
            index_reads: IndexReads::default(),
            altering: Mutex::default(),
            table_list: Mutex::default(),
            catalogs,
            may_have_dropped_rows: AtomicBool::new(true),
            index,
            clock,
            settings,
            running_requests,
            feed_claims: Arc::default(),
            fan_outs: FanOuts::default(),
            decoded: DecodedDeltas::default(),
            attaching: Mutex::default(),
            unbuilt: Mutex::default(),
            row_attachments: Mutex::default(),
            replayed,
        };
        let engine = Self {
            core: Arc::new(core),
            access: None,
        };
        for table in engine.store.tables() {
            match engine.catalogs.get(table.id()) {
                Some(table_state) => engine.index.attach(table_state.catalog),
                None => drop(engine.table_state(&table)),
            }
        }
        // A table dropped just before a crash may still be in the index.
        engine.index.detach_others();
        engine.follow_searches();
        Ok(engine)
    }

    /// Writes down that changes of timelines are logged, so that standbys can read timelines ahead. Does nothing if no
    /// other process can take over the data. To be called once after a start, when requests are served.
    ///
    /// # Errors
    ///
    /// Returns the error of the backend. Standbys then read timelines ahead after the next flush.
    pub fn announce_changes(&self) -> Result<()> {
        let stamps = self.store.stamps();
        let log = self.catalogs.change_log();
        Ok(log.announce(self.store.backend().as_ref(), &mut || stamps.next())?)
    }

    /// Returns a handle for one request, restricted to the rights of its principal: every function that finds a table
    /// by its name or lists tables checks the access. Functions that take a [`Table`](crate::Table) need no check,
    /// because such a value was found with a check.
    #[must_use]
    pub fn with_access(&self, access: Access) -> Self {
        Self {
            core: Arc::clone(&self.core),
            access: Some(access),
        }
    }

    /// Returns a handle for the work of the server itself, which is charged to no tenant.
    #[must_use]
    pub(crate) fn as_server(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            access: None,
        }
    }

    /// Returns true if the token of the request was revoked, or if its tenant has lost tables. Long work stops then.
    pub fn is_revoked(&self) -> bool {
        self.access
            .as_ref()
            .is_some_and(|access| access.principal().is_revoked())
    }

    /// Returns an error unless this process owns the data now. Without the ownership, lists in memory, such as those of
    /// tables and tokens, may be outdated. Costs one atomic load with an embedded backend.
    ///
    /// # Errors
    ///
    /// A store error of the kind [`Unavailable`](crate::ErrorKind::Unavailable).
    pub fn check_lease(&self) -> Result<()> {
        Ok(self.store.log().check_lease().map_err(StoreError::from)?)
    }

    /// Reports whether reads and writes are served now, with reasons. The call is cheap.
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
                     writes resume automatically when space returns"
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
            Health::Unreachable { reason, since } => {
                reads = false;
                let seconds = since.as_secs();
                reasons.push(format!("the cluster has not answered for {seconds} s: {reason}"));
                false
            }
            Health::WritesRefused { reason } => {
                reasons.push(format!("writes are refused: {reason}"));
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
        if self.store.backend().capabilities().acknowledged == Acknowledged::Replicated {
            reasons.push(
                "acknowledged writes are replicated: they are in the memory of a quorum of nodes, and not yet on a disk"
                    .into(),
            );
        }
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
            reasons.push(format!("sealing failed and is retried: {error}"));
        }
        let index = self.index.status();
        if index.rebuilding {
            reasons.push("the search index is being rebuilt; results are complete, some are slower".into());
        }
        let mut table_warnings = self.search_warnings();
        table_warnings.extend(self.fan_out_warnings());
        Readiness {
            reads,
            writes,
            reasons,
            table_warnings,
            reopening: failed,
        }
    }

    /// Returns counts and sizes.
    pub fn stats(&self) -> EngineStats {
        let tables = self.store.tables();
        let states: Vec<TableState> = tables
            .iter()
            .filter_map(|table| self.catalogs.get(table.id()))
            .collect();
        EngineStats {
            store: self.store.stats(),
            rows: self.rows.stats(),
            index: self.index.status(),
            timelines: states.iter().map(|table_state| table_state.catalog.len()).sum(),
            timelines_refused: states
                .iter()
                .map(|table_state| table_state.activity.growth.refused())
                .sum(),
            timelines_oversized: states
                .iter()
                .map(|table_state| table_state.activity.growth.oversized())
                .sum(),
            catalog_bytes: states
                .iter()
                .map(|table_state| table_state.catalog.memory_bytes())
                .sum(),
            tables: tables.len(),
            replayed: self.replayed,
        }
    }

    /// Returns the store, for reading points.
    pub fn store(&self) -> &SeriesStore {
        &self.store
    }

    /// Returns the clock of the engine.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the memory account from which requests of this handle reserve memory: the account of the tenant if the
    /// tenant has a memory budget, otherwise the account of the process.
    pub fn memory(&self) -> &MemoryAccount {
        let process = &self.settings.memory;
        let of_tenant = self.tenant().and_then(|tenant| tenant.memory(process));
        of_tenant.unwrap_or(process)
    }

    /// Seals all points written so far and brings the search index of timelines up to date. Returns when both are
    /// done.
    ///
    /// # Errors
    ///
    /// Returns the error of the store or of the index.
    pub fn seal(&self) -> Result<()> {
        self.store.seal()?;
        self.index.flush()?;
        Ok(())
    }

    /// Completes running work, syncs and closes. No acknowledged point is lost; unsealed points stay in the journal.
    ///
    /// Closing the store gives up the data, or releases the lock of the data folder. If other processes can take over
    /// the data, the store is closed before the index: a process that waits for the data must not wait for a commit of
    /// the index. Otherwise the index is closed first: the next process that opens the folder also opens the index.
    ///
    /// # Errors
    ///
    /// Returns the error of closing the store.
    pub fn close(&self) -> Result<()> {
        self.close_searches();
        if !self.store.backend().capabilities().is_shared {
            self.index.close();
        }
        let closed = self.store.close();
        // Has no effect if the index is closed.
        self.index.close();
        Ok(closed?)
    }

    /// Commits a change of a catalog to the log.
    pub(crate) fn commit_change(&self, change: CatalogChange) -> std::result::Result<(), CommitError> {
        let committed = self.store.threads().commit(Box::new(CatalogEntry(change)));
        committed.map(|_| ()).map_err(|error| CommitError {
            is_not_written: error.is_not_written(),
            is_outdated: matches!(error, LogError::Refused(Refusal::Outdated)),
            cause: Box::new(error),
        })
    }

    /// Returns the state of a table. If the table has no catalog, creates one and adds it to the search index.
    pub(crate) fn table_state(&self, table: &tideline_series_store::Table) -> TableState {
        let mut is_new = false;
        let table_state = self.catalogs.get_or_insert(table.id(), || {
            is_new = true;
            let source_tags = table.spec().source_tags.clone();
            let options = catalog_options(&self.catalogs, source_tags);
            let catalog = Catalog::new(table.id(), options);
            catalog.set_analyzers(table.spec().attribute_analyzers.clone());
            catalog
        });
        if is_new {
            self.index.attach(Arc::clone(&table_state.catalog));
        }
        table_state
    }
}

/// Loads the catalogs of all tables. Returns the timelines that were read ahead if they were used.
fn load_catalogs(
    catalogs: &Catalogs,
    recovery: &Recovery,
    ahead: Option<TimelinesAhead>,
) -> Result<Option<TimelinesAhead>> {
    let backend = recovery.backend().as_ref();
    let mut ahead = ahead.and_then(|ahead| completed(ahead, recovery));
    for table in recovery.tables() {
        let options = catalog_options(catalogs, table.spec().source_tags.clone());
        let catalog = match &mut ahead {
            Some(ahead) => Catalog::load_ahead(backend, table.id(), options, ahead)?,
            None => Catalog::load(backend, table.id(), options)?,
        };
        catalog.set_analyzers(table.spec().attribute_analyzers.clone());
        catalogs.get_or_insert(table.id(), || catalog);
    }
    Ok(ahead)
}

/// Switches the log of changed catalog rows on if other processes can take over the data, and marks the rows that are in
/// doubt. Called before the first write of rows.
fn begin_changes(catalogs: &Catalogs, log: &Log, ahead: Option<&TimelinesAhead>) {
    if log.backend().capabilities().is_shared {
        catalogs.change_log().begin(log.epoch());
    }
    for (table, ids) in ahead.into_iter().flat_map(TimelinesAhead::in_doubt) {
        if let Some(table_state) = catalogs.get(table) {
            table_state.catalog.doubt_rows(ids);
        }
    }
}

/// Returns the timelines that were read ahead, completed; `None` if all timelines must be read again.
fn completed(ahead: TimelinesAhead, recovery: &Recovery) -> Option<TimelinesAhead> {
    let begun = Instant::now();
    if !ahead.is_followed_by(recovery.opening().epoch()) {
        return None;
    }
    match ahead.complete(recovery.backend().as_ref()) {
        Ok(Some(ahead)) => {
            let timelines = ahead.timelines();
            tracing::info!(took = ?begun.elapsed(), timelines, "the timelines that were read ahead are complete");
            Some(ahead)
        }
        Ok(None) => {
            tracing::info!("the timelines that were read ahead cannot be completed; all timelines are read");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the timelines that were read ahead cannot be completed; all timelines are read");
            None
        }
    }
}

/// Returns the archived objects that rows of wide tables use.
fn objects_of_rows(rows: &Weak<WideStore>) -> std::result::Result<OtherObjects, String> {
    let rows = rows.upgrade().ok_or("the database is closed")?;
    let objects = rows.archived_objects().map_err(|error| error.to_string())?;
    Ok(OtherObjects {
        targets: objects.targets.into_iter().collect(),
        keys: objects.keys.into_iter().collect(),
        writing: objects.writing.into_iter().collect(),
    })
}

fn catalog_options(catalogs: &Catalogs, source_tags: Vec<String>) -> CatalogOptions {
    CatalogOptions {
        source_tags,
        raw_key_budget: Arc::clone(catalogs.raw_key_budget()),
        unflushed: Arc::clone(catalogs.unflushed()),
    }
}
