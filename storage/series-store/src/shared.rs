//! What committer, sealer and readers share: the state that a snapshot pins, and the one way to change it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex, RwLock};
use tideline_backend::{Backend, BackendError, Epoch, Health, SegmentRef, Shard, Stamp};
use tideline_chunk::Delta;
use tideline_model::{
    Clock, GroupId, SegmentId, SequenceNumber, StoredClock, TableId, TableName, TableSpec, Tier, Timestamp,
    TrustedClock, TrustedNow,
};

use crate::deletes::{self, Deletes, TableDeletes};
use crate::edits::OpenEdit;
use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::lists::FileLists;
use crate::manifest::{Cursor, ManifestState, TableRow, put_cursor, put_table, remove_segment, remove_table};
use crate::requests::Requests;
use crate::retired::{FilesToRemove, Gone, InDoubt, ObjectsToRemove, Retired};
use crate::rewrite::SettingsWritten;
use crate::schema::TableSchema;
use crate::seal_reports::SealReports;
use crate::settings::Settings;
use crate::store::TimelineDirectory;
use crate::tables::Table;
use crate::tail::Tail;
use crate::window::Window;

/// The one shard of a single process.
pub(crate) const SHARD: Shard = Shard(0);
/// Doublings of the base window that a group of a tier spans; wider windows have one of their own. A day of hot data
/// is one unit to the backend, and about a month of cold data: decades are a few hundred units.
const fn group_level(tier: Tier) -> u8 {
    match tier {
        Tier::Hot => 3,
        Tier::Cold | Tier::Archive => 8,
    }
}

/// Bytes from which a segment has a group of its own. Loads of a group take turns, and a seal should not have to wait
/// for a long move; the cold tier keeps for years what it has, so its groups are fewer.
const fn bytes_alone(tier: Tier) -> u64 {
    match tier {
        Tier::Hot => 64 << 20,
        Tier::Cold | Tier::Archive => 1 << 30,
    }
}

/// What committer, sealer and readers share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) epoch: Epoch,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) directory: Arc<dyn TimelineDirectory>,
    pub(crate) state: RwLock<State>,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) requests: Requests,
    pub(crate) stamps: Stamps,
    pub(crate) counters: Counters,
    /// Deletes whose rows are to be written before their journal goes, with their journal entries.
    pub(crate) waiting_rows: Mutex<BTreeMap<SequenceNumber, (TableId, Bytes)>>,
    /// Inputs of rewrites that run.
    pub(crate) moving: Mutex<HashSet<SegmentId>>,
    trusted: Mutex<TrustedClock>,
    clock_turns: AtomicU64,
    /// Held while a manifest edit is made and taken into `state`; the edit whose outcome is open.
    pub(crate) edit: Mutex<Option<OpenEdit>>,
    /// Whether there is one.
    pub(crate) has_open_edit: AtomicBool,
    next_id: AtomicU64,
    /// Segments out of the manifest, until nobody reads them.
    pub(crate) retired: Retired,
    /// Files of such segments, to be removed by whoever may wait for their target.
    pub(crate) files_to_remove: FilesToRemove,
    /// Loads whose edit had an unknown outcome, until a later edit shows it.
    pub(crate) in_doubt: Mutex<Vec<InDoubt>>,
    /// Segments whose files are being written.
    pub(crate) archiving: Mutex<HashSet<SegmentId>>,
    pub(crate) file_lists: FileLists,
    /// Settings of tables as targets have them, for each folder.
    pub(crate) settings_written: Mutex<SettingsWritten>,
    pub(crate) tail: Tail,
    pub(crate) sealing: Mutex<SealProgress>,
    pub(crate) seal_reports: SealReports,
    /// Signalled when a head is frozen or sealed, when a seal fails, and at the end.
    pub(crate) sealing_changed: Condvar,
}

/// What a snapshot pins.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) manifest: Arc<ManifestState>,
    /// Oldest first.
    pub(crate) frozen: Vec<Arc<Head>>,
    pub(crate) active: Arc<Head>,
    /// Deletes that frozen heads and segments still have to be cleared of.
    pub(crate) deletes: Deletes,
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) by_id: HashMap<TableId, Arc<Table>>,
    pub(crate) by_name: HashMap<TableName, TableId>,
}

#[derive(Debug, Default)]
pub(crate) struct SealProgress {
    /// Why the last seal failed, until one succeeds.
    pub(crate) error: Option<String>,
    pub(crate) stopping: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) appends: AtomicU64,
    pub(crate) seals: AtomicU64,
    /// Bytes loaded by seals, into each tier.
    pub(crate) sealed_bytes: [AtomicU64; 3],
    /// Bytes loaded by rewrites, into each tier.
    pub(crate) rewritten_bytes: [AtomicU64; 3],
}

/// Gives rising stamps for rows that are changed in place: wall-clock microseconds, never twice the same.
#[derive(Debug)]
pub struct Stamps {
    last: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Stamps {
    /// Stamps after now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            last: AtomicU64::new(0),
            clock,
        }
    }

    /// The next stamp.
    pub fn next(&self) -> Stamp {
        let now = u64::try_from(self.clock.now().nanos() / 1_000).unwrap_or(0);
        let bump = |last: u64| Some(now.max(last + 1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, bump)
            .unwrap_or_else(|last| last);
        Stamp(now.max(last + 1))
    }
}

impl Shared {
    #[expect(
        clippy::too_many_arguments,
        reason = "called once, by recovery, with everything it gathered"
    )]
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        settings: Settings,
        directory: Arc<dyn TimelineDirectory>,
        state: State,
        tables: Tables,
        requests: Requests,
        orphans: Vec<SegmentRef>,
        tail: Tail,
    ) -> Self {
        let stored = state.manifest.cursor.stored_clock();
        let mut trusted = TrustedClock::new(stored, settings.clock_floor, clock.now(), clock.monotonic());
        let segments = state.manifest.segments.values().flat_map(BTreeMap::values);
        if let Some(newest) = segments.map(|segment| segment.last).max() {
            trusted.note_stored(newest);
        }
        let next_id = AtomicU64::new(state.manifest.cursor.next_segment);
        Self {
            stamps: Stamps::new(Arc::clone(&clock)),
            sealing: Mutex::default(),
            seal_reports: SealReports::default(),
            backend,
            epoch,
            clock,
            settings,
            directory,
            state: RwLock::new(state),
            tables: RwLock::new(tables),
            requests,
            counters: Counters::default(),
            waiting_rows: Mutex::default(),
            moving: Mutex::default(),
            trusted: Mutex::new(trusted),
            clock_turns: AtomicU64::new(0),
            edit: Mutex::default(),
            has_open_edit: AtomicBool::new(false),
            next_id,
            retired: Retired::new(orphans),
            files_to_remove: FilesToRemove::default(),
            in_doubt: Mutex::default(),
            archiving: Mutex::default(),
            file_lists: FileLists::default(),
            settings_written: Mutex::default(),
            tail,
            sealing_changed: Condvar::new(),
        }
    }

    /// Fails once a thread that the store depends upon has panicked: nothing is committed or sealed from then on.
    pub(crate) fn check_threads(&self) -> Result<()> {
        match self.settings.supervisor.failure() {
            Some(failure) => Err(StoreError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// The error of a call that a thread of the store has left without a reply.
    pub(crate) fn ended(&self) -> StoreError {
        self.check_threads().err().unwrap_or(StoreError::Closed)
    }

    /// Counts what a seal or a rewrite has loaded.
    pub(crate) fn count_loaded(&self, counters: &[AtomicU64; 3], table: TableId, tier: Tier, bytes: u64) {
        counters[tier as usize].fetch_add(bytes, Ordering::Relaxed);
        if let Some(table) = self.tables.read().by_id.get(&table) {
            table.loaded(bytes);
        }
    }

    /// What time it is, as far as it can be trusted.
    pub(crate) fn trusted_now(&self) -> TrustedNow {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut trusted = self.trusted.lock();
        let before = trusted.now();
        let shown = trusted.observe(wall, monotonic);
        self.count_turn(before, &trusted);
        shown
    }

    /// An operator says that the wall clock is right. That is stored at once: else a crash would bring the doubt back.
    pub(crate) fn confirm_clock(&self) {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut trusted = self.trusted.lock();
        let before = trusted.now();
        trusted.confirm(wall, monotonic);
        self.count_turn(before, &trusted);
        drop(trusted);
        self.store_trusted();
    }

    /// How often the trusted time went back since the start: points that had been hidden were visible again after it.
    pub(crate) fn clock_turns(&self) -> u64 {
        self.clock_turns.load(Ordering::SeqCst)
    }

    fn count_turn(&self, before: Timestamp, trusted: &TrustedClock) {
        if trusted.now() < before {
            self.clock_turns.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Refuses what would change something while the backend keeps a damaged database as it is.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match self.backend.health() {
            Health::ReadOnly { reason } => Err(BackendError::Misconfigured {
                reason: format!("read-only, because something acknowledged is missing: {reason}"),
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Stores the trusted time, for the next start to compare the wall clock with.
    pub(crate) fn store_trusted(&self) {
        if self.check_not_read_only().is_err() {
            return;
        }
        let stored = self.edit(|manifest| {
            manifest.cursor = self.cursor(manifest.cursor, manifest.cursor.sealed_to);
            vec![put_cursor(&manifest.cursor)]
        });
        if let Err(error) = stored {
            tracing::warn!(%error, "the trusted time could not be stored; it is tried again");
        }
    }

    /// Takes note of the newest point of a delta: expiry never goes beyond what the points themselves say.
    pub(crate) fn note_stored(&self, delta: &Delta) {
        let newest = delta
            .groups
            .iter()
            .flat_map(|group| group.timestamps.iter().max())
            .max();
        if let Some(newest) = newest {
            self.note_newest(*newest);
        }
    }

    pub(crate) fn note_newest(&self, instant: i64) {
        self.trusted.lock().note_stored(instant);
    }

    /// Forgets deletes that nothing older is left of.
    pub(crate) fn forget_done_deletes(&self) -> Result<()> {
        let done = {
            let state = self.state.read();
            let frozen_to = state.frozen.first().map(|head| head.end());
            state.deletes.done(&state.manifest, frozen_to)
        };
        for (table, sequences) in done {
            // The rows go first: what is in the state still masks, what is in neither does not come back.
            let rows: Vec<_> = sequences
                .iter()
                .map(|sequence| deletes::row(table, *sequence, None))
                .collect();
            deletes::write_rows(self.backend.as_ref(), &self.stamps, &rows)?;
            let mut waiting = self.waiting_rows.lock();
            sequences.iter().for_each(|sequence| {
                waiting.remove(sequence);
            });
            drop(waiting);
            self.state.write().deletes.remove(table, &sequences);
        }
        Ok(())
    }

    /// Writes the rows of deletes below `end`.
    pub(crate) fn save_deletes(&self, end: SequenceNumber) -> Result<()> {
        let waiting: Vec<_> = {
            let waiting = self.waiting_rows.lock();
            let before = waiting.range(..end);
            before
                .map(|(sequence, (table, delta))| (*sequence, *table, delta.clone()))
                .collect()
        };
        let row = |(sequence, table, delta): &(SequenceNumber, TableId, Bytes)| {
            deletes::row(*table, *sequence, Some(delta.clone()))
        };
        let rows: Vec<_> = waiting.iter().map(row).collect();
        deletes::write_rows(self.backend.as_ref(), &self.stamps, &rows)?;
        let mut kept = self.waiting_rows.lock();
        waiting.iter().for_each(|(sequence, ..)| {
            kept.remove(sequence);
        });
        Ok(())
    }

    pub(crate) fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.settle()?;
        if self.tables.read().by_name.contains_key(&name) {
            return Err(StoreError::TableExists(name));
        }
        let mut made = None;
        self.edit(|manifest| {
            if manifest.tables.values().any(|row| row.name == name) {
                return Vec::new();
            }
            let id = TableId(manifest.cursor.next_table);
            let created = self.trusted_now().now.nanos();
            let row = TableRow::new(id, name.clone(), spec, created, created);
            manifest.tables.insert(id, row.clone());
            manifest.cursor.next_table += 1;
            let changes = vec![put_table(&row), put_cursor(&manifest.cursor)];
            made = Some(row);
            changes
        })?;
        let Some(row) = made else {
            return Err(StoreError::TableExists(name));
        };
        let table = Arc::new(Table::new(&row, TableSchema::new(row.id)));
        self.tables.write().insert(Arc::clone(&table));
        Ok(table)
    }

    pub(crate) fn drop_table(&self, table: &Table) -> Result<()> {
        let id = table.id();
        let mut gone: Vec<Gone> = Vec::new();
        let deletes = self.state.read().deletes.of(id).map(TableDeletes::sequences);
        let version = self.edit_and(
            |manifest| {
                manifest.tables.remove(&id);
                let segments = manifest.segments.remove(&id).unwrap_or_default();
                let parts = segments.values().flat_map(|segment| segment.parts());
                gone.extend(parts.map(Gone::of));
                let removals = segments.keys().map(|segment| remove_segment(*segment));
                Ok(removals.chain([remove_table(id)]).collect())
            },
            |state| state.drop_table(id),
        )?;
        self.retired.add(version, gone);
        self.forget_table(id, deletes.unwrap_or_default());
        Ok(())
    }

    /// Reclaims segments that nobody can be reading any more.
    pub(crate) fn reclaim_retired(&self) {
        // What looks unused may have been named by what is missing.
        if self.check_not_read_only().is_err() {
            return;
        }
        for Gone { place, files } in self.retired.take_free() {
            // The list of its files goes with it.
            let files = files.map(|files| self.files_at(place, &files));
            self.forget_lists(place.segment);
            if let Err(error) = self.backend.reclaim(place) {
                tracing::warn!(%error, ?place, "reclaiming a segment failed; the next start tries again");
            }
            match files {
                // A target may be slow: not here, where seals wait.
                Some(Ok(files)) => self.files_to_remove.add(ObjectsToRemove::of(&files)),
                Some(Err(error)) => tracing::warn!(
                    %error, ?place,
                    "the list of files of a segment that is gone cannot be read; they are swept later"
                ),
                None => {}
            }
        }
    }

    /// An id for a segment or a group that was never used.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The cursor to publish together with what uses the ids given out so far.
    pub(crate) fn cursor(&self, current: Cursor, sealed_to: SequenceNumber) -> Cursor {
        let mut cursor = current;
        cursor.sealed_to = sealed_to;
        cursor.next_segment = self.next_id.load(Ordering::Relaxed);
        let StoredClock { now, settled } = self.trusted_now().stored();
        cursor.trusted_now = now;
        cursor.trusted_settled = settled;
        cursor
    }

    /// A place for a new segment of so many bytes: the group of its table and tier around its window, if it is small.
    pub(crate) fn place(
        &self,
        manifest: &ManifestState,
        table: TableId,
        tier: Tier,
        window: Window,
        bytes: u64,
    ) -> SegmentRef {
        let is_small = |bytes| bytes < bytes_alone(tier);
        let wide = group_window(tier, window);
        let mut parts = manifest.of_table(table).flat_map(|segment| segment.parts());
        let known = parts.find(|segment| {
            segment.tier == tier && is_small(segment.bytes) && group_window(tier, segment.window) == wide
        });
        let known = known.filter(|_| is_small(bytes));
        let new_group = || {
            let spare = self.backend.spare_group(tier.kept_in());
            spare.unwrap_or_else(|| GroupId(self.next_id()))
        };
        let group = known.map_or_else(new_group, |segment| segment.group);
        SegmentRef {
            segment: SegmentId(self.next_id()),
            group,
            tier: tier.kept_in(),
        }
    }
}

/// The window whose segments share a group with those of `window`.
pub(crate) fn group_window(tier: Tier, window: Window) -> Window {
    let mut wide = window;
    while wide.level < group_level(tier) {
        wide = wide.parent();
    }
    wide
}

impl Tables {
    pub(crate) fn insert(&mut self, table: Arc<Table>) {
        self.by_name.insert(table.name().clone(), table.id());
        self.by_id.insert(table.id(), table);
    }

    pub(crate) fn named(&self, name: &TableName) -> Option<Arc<Table>> {
        self.by_id.get(self.by_name.get(name)?).cloned()
    }

    pub(crate) fn remove(&mut self, table: TableId) {
        if let Some(table) = self.by_id.remove(&table)
            && self.by_name.get(table.name()) == Some(&table.id())
        {
            self.by_name.remove(table.name());
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("backend", &self.backend)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
