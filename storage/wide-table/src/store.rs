//! The store: state shared by writers, readers and the log.
//!
//! [`WideReplay`] collects the changes in the journal while the log is opened. [`WideStore::open`] creates the store
//! from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tideline_archive::Archive;
use tideline_backend::{ManifestKind, ManifestRow, PartRef};
use tideline_key_codec::parse_part_name;
use tideline_log::manifest::parse_row;
use tideline_log::{Log, LogError, Manifest, ModelError, ModelTag, Replay, ReplayedEntry};
use tideline_model::{SequenceNumber, TableId, Tier, Timestamp};

use crate::archived::ArchivedParts;
use crate::blocks::{Blocks, Joins};
use crate::buffer::Generation;
use crate::changed::SearchQueues;
use crate::dictionaries::{self, Dictionaries};
use crate::division::PartNumbers;
use crate::entry::Entry;
use crate::expiry::Expiry;
use crate::fragments::FRAGMENT_BYTES;
use crate::large::LargeUses;
use crate::moves::Moves;
use crate::mutation::Effect;
use crate::singles::AbsentSingles;
use crate::state::{PART_FORMAT, PART_FORMAT_VALUES, Part, PartDetail, PartKey, PendingRows, State};
use crate::tables::{TableRules, Tables, TablesCache, rules_of};
use crate::versions::{StoredVersions, Versions};
use crate::{codec, error};

/// Settings of the store.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Size of the active generation at which it is frozen, in bytes. Frozen generations may use twice as much memory;
    /// beyond this limit, writers wait. Default 64 MiB.
    pub buffer_bytes: usize,
    /// Age of the oldest change in the active generation at which the generation is frozen, so that the rows of small
    /// tables are flushed too. Default 2 hours.
    pub buffer_age_max: Duration,
    /// Size of a stored row, in bytes, above which it is cut into fragments of about this size. Default 256 KiB.
    pub fragment_bytes: usize,
    /// Size of a block of rows before its encoding, in bytes. Default 8 KiB.
    pub block_bytes: usize,
    /// Maximum memory for recently read groups of archived rows, in bytes. Default 32 MiB.
    pub archive_cache_bytes: usize,
    /// Maximum memory for dictionaries of compressed columns, and for values from which they are made, in bytes.
    /// Default 32 MiB.
    pub dictionary_bytes: usize,
    /// Bytes of the values of a column that are packed before its dictionary is compared with a newer one. The default
    /// is 8 MiB.
    pub dictionary_check_bytes: u64,
    /// Minimum age of the buffered changes of a table at which a garbage collection of its large values flushes the row
    /// buffer. Younger surplus versions keep their values until a later collection or flush. Default 10 minutes.
    pub surplus_age_min: Duration,
}

/// Default of [`Settings::block_bytes`].
const BLOCK_BYTES: usize = 8 << 10;

/// Default of [`Settings::dictionary_check_bytes`]. A comparison takes about as long as the compression of 1 MiB, so it
/// adds at most an eighth to the compression time. Without a better dictionary, the distance grows to 64 MiB, and the
/// share falls below 2 %.
const DICTIONARY_CHECK_BYTES: u64 = 8 << 20;

impl Default for Settings {
    fn default() -> Self {
        Self {
            buffer_bytes: 64 << 20,
            buffer_age_max: Duration::from_secs(2 * 3_600),
            fragment_bytes: FRAGMENT_BYTES,
            block_bytes: BLOCK_BYTES,
            archive_cache_bytes: 32 << 20,
            dictionary_bytes: dictionaries::MEMORY_BYTES,
            dictionary_check_bytes: DICTIONARY_CHECK_BYTES,
            surplus_age_min: Duration::from_secs(600),
        }
    }
}

/// State of the wide tables when the log is opened: their stored parts, and the changes in the journal of earlier runs.
/// Clones share one state: one clone is passed to the replay of the log, and the store is opened with another.
#[derive(Debug, Clone)]
pub struct WideReplay(Arc<Mutex<Replayed>>);

#[derive(Debug)]
struct Replayed {
    parts: BTreeMap<PartKey, Part>,
    active: Generation,
    /// Rules of the tables and indexes that exist.
    tables: Tables,
    versions: StoredVersions,
    searches: SearchQueues,
}

impl WideReplay {
    /// Reads the parts of a manifest. `rows` are all rows of this manifest, and `now` is the trusted time.
    ///
    /// # Errors
    ///
    /// [`LogError::StoredRow`] if the row of a part of a wide table cannot be read.
    pub fn new(manifest: &Manifest, rows: &[ManifestRow], now: Timestamp) -> Result<Self, LogError> {
        let tables = Tables::new(manifest, &Tables::default());
        let parts = read_parts(rows)?;
        let versions = StoredVersions::new(parts.values().map(|part| &part.detail), now.nanos());
        let replayed = Replayed {
            parts,
            active: Generation::default(),
            tables,
            versions,
            searches: SearchQueues::default(),
        };
        Ok(Self(Arc::new(Mutex::new(replayed))))
    }
}

impl Replay for WideReplay {
    fn tag(&self) -> ModelTag {
        ModelTag::WIDE
    }

    fn apply(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<ReplayedEntry, ModelError> {
        let entry = Entry::decode(entry)?;
        let replayed = &mut *self.0.lock();
        // A table without rules was dropped.
        let Some(rules) = replayed.tables.get(entry.table) else {
            return Ok(ReplayedEntry {
                table: entry.table,
                request: None,
            });
        };
        replayed.versions.add(&entry)?;
        let table = entry.table;
        let request = entry.request;
        let versions_max = rules.versions_max;
        replayed
            .searches
            .replay(&rules.searches, sequence, &entry.changes);
        replayed
            .active
            .apply(table, entry.changes, sequence, versions_max)?;
        for (index, changes) in entry.index_changes {
            // The entries of a dropped index have no readers.
            if replayed.tables.contains(index) {
                replayed.active.apply(index, changes, sequence, 1)?;
            }
        }
        Ok(ReplayedEntry { table, request })
    }
}

/// Rows of all wide tables of a shard.
#[derive(Debug)]
pub struct WideStore {
    pub(crate) log: Arc<Log>,
    pub(crate) settings: Settings,
    pub(crate) state: RwLock<Arc<State>>,
    pub(crate) pending: PendingRows,
    pub(crate) tables: TablesCache,
    /// Parts whose first flush has started and is not published yet.
    pub(crate) new_parts: Mutex<BTreeMap<PartKey, PartRef>>,
    /// Numbers of the parts that rows were written to, by table. Contains only divided tables whose parts were counted
    /// since the start.
    pub(crate) written_parts: Mutex<BTreeMap<TableId, BTreeSet<i32>>>,
    /// Versions that this process assigns.
    pub(crate) versions: Versions,
    /// Number of changes committed since the start, by table.
    pub(crate) committed: Mutex<BTreeMap<TableId, u64>>,
    /// Number of batches of single rows that were removed since the start because blocks contain these rows.
    pub(crate) packings: AtomicU64,
    /// Joins of blocks since the start.
    pub(crate) joins: Joins,
    /// Parts without single rows.
    pub(crate) singles: AbsentSingles,
    /// Held while a flush or a packing changes the stored rows of a part.
    pub(crate) part_writes: Mutex<()>,
    /// Held while rows with generated ids are numbered and sent to the committer.
    pub(crate) generated: Mutex<()>,
    /// Changes that search indexes do not hold yet.
    pub(crate) searches: SearchQueues,
    /// Parts in the archive.
    pub(crate) archived: ArchivedParts,
    /// Current move of a part, and the flushes that exclude the publication of a move.
    pub(crate) moves: Moves,
    /// Large values that are in use.
    pub(crate) large: LargeUses,
    /// Dictionaries of the parts.
    pub(crate) dictionaries: Dictionaries,
}

impl WideStore {
    /// Opens the store with the state that a replay has collected. Called once per replay. `archive` is `None` if the
    /// archive is switched off; archived rows cannot be read then.
    pub fn open(
        log: &Arc<Log>,
        replay: &WideReplay,
        archive: Option<Arc<Archive>>,
        settings: Settings,
    ) -> Self {
        let replayed = &mut *replay.0.lock();
        let state = State {
            active: Arc::new(std::mem::take(&mut replayed.active)),
            parts: std::mem::take(&mut replayed.parts),
            ..State::default()
        };
        Self {
            log: Arc::clone(log),
            settings,
            state: RwLock::new(Arc::new(state)),
            pending: PendingRows::default(),
            tables: TablesCache::default(),
            new_parts: Mutex::default(),
            written_parts: Mutex::default(),
            versions: Versions::new(&replayed.versions),
            committed: Mutex::default(),
            packings: AtomicU64::new(0),
            joins: Joins::default(),
            singles: AbsentSingles::default(),
            part_writes: Mutex::default(),
            generated: Mutex::default(),
            searches: std::mem::take(&mut replayed.searches),
            archived: ArchivedParts::new(archive, settings.archive_cache_bytes),
            moves: Moves::default(),
            large: LargeUses::default(),
            dictionaries: Dictionaries::new(settings.dictionary_bytes),
        }
    }

    /// Returns the blocks of a part.
    pub(crate) fn blocks(&self, part: PartRef) -> Blocks<'_> {
        let blocks = Blocks::new(self.log.backend().as_ref(), part, &self.dictionaries);
        // If the lease is limited, a late write of an earlier owner may still take effect.
        match self.log.has_limited_lease() {
            true => blocks,
            false => blocks.with_joins(&self.joins),
        }
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }

    /// Returns true if a reader must repeat what it has read from parts since it took `state`. This is the case if a
    /// flush was published, or if a generation was frozen, because its flush may have written into the parts.
    pub(crate) fn must_read_again(&self, state: &State) -> bool {
        let now = self.state.read();
        now.flushes != state.flushes || !Arc::ptr_eq(&now.active, &state.active)
    }

    /// Returns the current rules of all tables and indexes.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.tables.of(&self.log.manifest())
    }

    /// Returns the current rules of a table or index.
    pub(crate) fn rules(&self, table: TableId) -> error::Result<Arc<TableRules>> {
        rules_of(&self.tables(), table)
    }

    /// Returns the expiry of the data of a table or index, with the current time.
    pub(crate) fn expiry(&self, rules: &TableRules) -> Expiry {
        let now = match rules.ttl {
            Some(_) => self.log.trusted_now().now.nanos(),
            None => 0,
        };
        Expiry::new(rules.ttl, now)
    }

    /// Returns the numbers of the parts of a table or index that are visible now.
    pub(crate) fn visible_parts(&self, rules: &TableRules) -> PartNumbers {
        let is_timed = rules
            .division
            .as_ref()
            .is_some_and(|division| division.spec.keep.is_some());
        let now = match is_timed {
            true => self.log.trusted_now().now.nanos(),
            false => 0,
        };
        rules.visible_parts(now)
    }

    /// Returns the number of the first part of a table whose rows can be written now.
    pub(crate) fn writable_from(&self, rules: &TableRules) -> i32 {
        let now = match rules.depend_on_time() {
            true => self.log.trusted_now().now.nanos(),
            false => 0,
        };
        rules.writable_from(now)
    }

    /// Returns the latest time of rows that have expired; `None` if the rows of a table do not expire as a whole.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`](crate::WideError::NoTable) if the table does not exist.
    pub fn expired_at(&self, table: TableId) -> error::Result<Option<i64>> {
        Ok(self.expiry(self.rules(table)?.as_ref()).newest_expired())
    }

    /// Returns a version for a write: the trusted time in nanoseconds, or the newest version so far plus one if this is
    /// higher. Each call returns a higher number than all earlier calls, even after a restart. At the end of the
    /// supported time the last number is repeated, and writes fail with
    /// [`WideError::NoVersions`](crate::WideError::NoVersions).
    pub fn next_version(&self) -> i64 {
        self.version_at(self.log.trusted_now().now.nanos())
    }

    /// Returns a version like [`next_version`](Self::next_version), for the trusted time `now` in nanoseconds. Many
    /// versions need only one read of the clock.
    pub(crate) fn version_at(&self, now: i64) -> i64 {
        self.versions.next(now)
    }

    /// Returns the memory in bytes of the active generation and of all frozen generations.
    pub fn buffer_bytes(&self) -> (usize, usize) {
        let state = self.state();
        let frozen = state.frozen.iter().map(|generation| generation.bytes()).sum();
        (state.active.bytes(), frozen)
    }

    /// Returns true if the oldest change in the active generation has reached its maximum age.
    pub(crate) fn is_buffer_old(&self) -> bool {
        self.state().active.age() >= self.settings.buffer_age_max
    }
}

/// Reads the parts of wide tables and of their indexes from the rows of a manifest. Includes parts of dropped tables
/// and indexes: no read uses them, and the store frees them.
///
/// # Errors
///
/// [`LogError::StoredRow`] if a row cannot be read.
pub(crate) fn read_parts(rows: &[ManifestRow]) -> Result<BTreeMap<PartKey, Part>, LogError> {
    let mut parts = BTreeMap::new();
    for row in rows.iter().filter(|row| row.kind == ManifestKind::Part) {
        let detail: PartDetail = parse_row("part row", &row.detail)?;
        let table = TableId(detail.table);
        let named = parse_part_name(&row.name)
            .filter(|_| (PART_FORMAT..=PART_FORMAT_VALUES).contains(&detail.format));
        let part = named.ok_or_else(|| LogError::StoredRow {
            what: "part row",
            reason: format!(
                "its name is not an id, or its format {} is unknown",
                detail.format
            ),
        })?;
        let at = PartRef {
            part,
            table,
            // The engine keeps the locations of archived rows in its cold tier.
            tier: match detail.tier {
                Tier::Hot => Tier::Hot,
                Tier::Cold | Tier::Archive => Tier::Cold,
            },
        };
        let part = Part { at, detail };
        parts.insert(part.key(), part);
    }
    Ok(parts)
}

/// Returns true if a mutation does not depend on older state.
pub(crate) fn is_base(mutation: &[u8]) -> bool {
    !matches!(codec::effect_of(mutation), Ok(Effect::Update))
}
