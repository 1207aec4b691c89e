//! The store itself: what its parts share, and what others may ask of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use tideline_backend::{
    Backend, BackendError, EditOutcome, Epoch, ErrorKind, Health, ManifestChange, SegmentRef, Shard, Stamp,
    Usage,
};
use tideline_chunk::{Delta, NewTimeline};
use tideline_model::{
    Clock, Durability, FieldId, GroupId, SegmentId, SequenceNumber, TableId, TableName, TableSpec, TimelineId,
};

use crate::committer::Committer;
use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::latest::{LatestRow, Seen};
use crate::manifest::{Cursor, ManifestState, put_cursor, put_table, remove_segment, remove_table};
use crate::requests::{RequestKey, Requests};
use crate::scan::Snapshot;
use crate::schema::{Shape, TableSchema};
use crate::seal::Sealer;
use crate::settings::Settings;
use crate::tables::Table;
use crate::window::Window;

/// The one shard of a single process.
pub(crate) const SHARD: Shard = Shard(0);
/// Doublings of the base window after which windows have a group of their own; narrower ones share the group
/// of the wider window around them, so that a day of hot data is one unit to the backend.
const GROUP_LEVEL: u8 = 3;

/// Keeps what the store must not know: the identities behind timeline ids.
pub trait TimelineDirectory: Send + Sync {
    /// Takes in a timeline that a replayed journal entry introduces. The same one again is no error.
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> std::result::Result<(), String>;

    /// Takes note that the identities of these timelines are now in the journal. Called before the write that
    /// introduces them is answered.
    fn announced(&self, table: TableId, timelines: &[NewTimeline]);

    /// Makes everything adopted or announced so far durable: the journal that carried it is about to go.
    fn save(&self) -> std::result::Result<(), StoreError>;
}

/// An embedded store of series points.
#[derive(Debug)]
pub struct SeriesStore {
    shared: Arc<Shared>,
    committer: Committer,
    sealer: Sealer,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the journal.
    pub sequence: SequenceNumber,
}

/// Sizes and counts, for `/metrics` and table statistics.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Bytes of unsealed points in memory, frozen heads included.
    pub head_bytes: usize,
    /// Unsealed points in memory.
    pub head_points: u64,
    /// Heads waiting to be sealed or being sealed.
    pub frozen_heads: usize,
    /// Published segments.
    pub segments: usize,
    /// Points in them.
    pub segment_points: u64,
    /// Field values in them.
    pub segment_values: u64,
    /// Bytes of their keys and chunks.
    pub segment_bytes: u64,
    /// Deltas committed since the start.
    pub commits: u64,
    /// Journal appends since the start: `commits` over this is the size of a group.
    pub appends: u64,
    /// Seals done since the start.
    pub seals: u64,
    /// Why the last seal failed, until one succeeds.
    pub seal_error: Option<String>,
    /// The backend's own sizes.
    pub usage: Usage,
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
    /// Held while a manifest edit is made and taken into `state`.
    edit: Mutex<()>,
    next_id: AtomicU64,
    /// Segments out of the manifest, with the manifest that last named them: reclaimed when nobody reads it.
    retired: Mutex<Vec<(Weak<ManifestState>, Vec<SegmentRef>)>>,
    pub(crate) sealing: Mutex<SealProgress>,
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

impl SeriesStore {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let sealer = Sealer::start(Arc::clone(&shared));
        let committer = Committer::start(Arc::clone(&shared));
        Self {
            shared,
            committer,
            sealer,
        }
    }

    // --- tables ----------------------------------------------------------------------------------------

    /// A table by name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        let missing = || StoreError::NoSuchTable(name.chars().take(80).collect());
        let name = TableName::new(name).map_err(|_| missing())?;
        let tables = self.shared.tables.read();
        let id = tables.by_name.get(&name).ok_or_else(missing)?;
        tables.by_id.get(id).cloned().ok_or_else(missing)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.shared.tables.read().by_id.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Makes a table.
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.shared.create_table(name, spec)
    }

    /// Changes a table's settings. Source tags are fixed once the table has a point.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Arc<Table>> {
        let table = self.table(name)?;
        if table.spec().source_tags != spec.source_tags && self.has_points(table.id()) {
            return Err(StoreError::SourceTagsFixed(table.name().clone()));
        }
        self.shared.edit(|manifest| {
            let row = table.row(spec.clone());
            manifest.tables.insert(table.id(), row.clone());
            vec![put_table(&row)]
        })?;
        table.set_spec(spec);
        Ok(table)
    }

    /// Drops a table with all its points: invisible at once, bytes freed when its last reader is done.
    ///
    /// Catalog rows and index entries are the caller's to remove.
    pub fn drop_table(&self, name: &str) -> Result<TableId> {
        let table = self.table(name)?;
        if name == TableName::DEFAULT {
            return Err(StoreError::DefaultTable(table.name().clone()));
        }
        self.shared.drop_table(&table)?;
        self.sealer.wake();
        Ok(table.id())
    }

    fn has_points(&self, table: TableId) -> bool {
        let state = self.shared.state.read();
        let in_heads = state
            .frozen
            .iter()
            .chain([&state.active])
            .any(|head| head.table(table).is_some());
        in_heads
            || state
                .manifest
                .segments
                .get(&table)
                .is_some_and(|segments| !segments.is_empty())
    }

    // --- writing ---------------------------------------------------------------------------------------

    /// Commits a delta and waits for its acknowledgement.
    ///
    /// `shapes` holds the table's shape of each group of the delta. After `Ok` with [`Durability::Synced`] the
    /// points are on stable storage, and every later read sees them. After an error the outcome is unknown
    /// unless the error says otherwise; the same delta may be sent again. Blocks for a group commit.
    pub fn commit(
        &self,
        table: &Arc<Table>,
        delta: Delta,
        shapes: Vec<Arc<Shape>>,
        durability: Durability,
    ) -> Result<Committed> {
        self.committer
            .commit(Arc::clone(table), delta, shapes, durability)
    }

    /// The outcome of an earlier request with this idempotency key.
    pub fn request_outcome(&self, table: &Table, key: RequestKey) -> Option<Bytes> {
        self.shared.requests.outcome(table.id(), key)
    }

    /// Seals everything that was committed before the call, and waits for it.
    pub fn seal(&self) -> Result<()> {
        let end = self.committer.freeze()?;
        self.sealer.wait(end)
    }

    // --- reading ---------------------------------------------------------------------------------------

    /// The points of this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.shared.backend), self.shared.state.read().clone())
    }

    /// The newest value of every field of a timeline.
    ///
    /// From memory, but for a timeline that was last written before the start: then its newest chunks are read
    /// once. `expected` names the fields of its measurement: reading stops when all are found.
    pub fn latest(&self, table: &Table, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        match table.latest().known(id) {
            Some(known) if known.complete => Ok(known.row),
            _ => {
                self.complete(table, id, expected)?;
                Ok(table
                    .latest()
                    .known(id)
                    .map(|known| known.row)
                    .unwrap_or_default())
            }
        }
    }

    /// The span of a timeline's points; `None` when it has none. Costs as [`latest`](Self::latest).
    pub fn seen(&self, table: &Table, id: TimelineId) -> Result<Option<Seen>> {
        if let Some(seen) = table.latest().seen(id) {
            return Ok(Some(seen));
        }
        self.complete(table, id, &[])?;
        Ok(table.latest().seen(id))
    }

    fn complete(&self, table: &Table, id: TimelineId, expected: &[FieldId]) -> Result<()> {
        let (stored, seen) = self.snapshot().newest(table.id(), id, expected)?;
        table.latest().complete(id, stored, seen);
        Ok(())
    }

    // --- operation -------------------------------------------------------------------------------------

    /// The backend, for the rows of others: catalog and the like.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Rising stamps for such rows.
    pub fn stamps(&self) -> &Stamps {
        &self.shared.stamps
    }

    /// Whether promises can be kept now.
    pub fn health(&self) -> Health {
        self.shared.backend.health()
    }

    /// Why the last seal failed, until one succeeds.
    pub fn seal_error(&self) -> Option<String> {
        self.shared.sealing.lock().error.clone()
    }

    /// Sizes and counts.
    pub fn stats(&self) -> StoreStats {
        let state = self.shared.state.read().clone();
        let heads = || state.frozen.iter().chain([&state.active]);
        let segments = || {
            state
                .manifest
                .segments
                .values()
                .flat_map(|segments| segments.values())
        };
        StoreStats {
            head_bytes: heads().map(|head| head.bytes()).sum(),
            head_points: heads().map(|head| head.points()).sum(),
            frozen_heads: state.frozen.len(),
            segments: segments().count(),
            segment_points: segments().map(|segment| segment.points).sum(),
            segment_values: segments().map(|segment| segment.values).sum(),
            segment_bytes: segments().map(|segment| segment.bytes).sum(),
            commits: self.shared.counters.commits.load(Ordering::Relaxed),
            appends: self.shared.counters.appends.load(Ordering::Relaxed),
            seals: self.shared.counters.seals.load(Ordering::Relaxed),
            seal_error: self.seal_error(),
            usage: self.shared.backend.usage(),
        }
    }

    /// Stops taking writes, answers those that wait, syncs and closes the backend. Unsealed points stay in the
    /// journal and are there again after the next start.
    pub fn close(&self) -> Result<()> {
        self.committer.stop();
        self.sealer.stop();
        Ok(self.shared.backend.close()?)
    }
}

impl Drop for SeriesStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the store failed");
        }
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
    ) -> Self {
        let next_id = AtomicU64::new(state.manifest.cursor.next_segment);
        Self {
            stamps: Stamps::new(Arc::clone(&clock)),
            sealing: Mutex::default(),
            backend,
            epoch,
            clock,
            settings,
            directory,
            state: RwLock::new(state),
            tables: RwLock::new(tables),
            requests,
            counters: Counters::default(),
            edit: Mutex::default(),
            next_id,
            retired: Mutex::default(),
            sealing_changed: Condvar::new(),
        }
    }

    /// Changes the manifest: `change` alters a copy and says the same as rows. Readers that hold the old one
    /// keep it.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut ManifestState) -> Vec<ManifestChange>) -> Result<()> {
        self.edit_and(change, |_| {})
    }

    /// As [`edit`](Self::edit); `follow` alters the rest of the state in the same instant for readers.
    pub(crate) fn edit_and(
        &self,
        change: impl FnOnce(&mut ManifestState) -> Vec<ManifestChange>,
        follow: impl FnOnce(&mut State),
    ) -> Result<()> {
        let _one_at_a_time = self.edit.lock();
        let current = Arc::clone(&self.state.read().manifest);
        let mut next = ManifestState::clone(&current);
        let changes = change(&mut next);
        next.version = self.applied_version(&current, &changes)?;
        let mut state = self.state.write();
        state.manifest = Arc::new(next);
        follow(&mut state);
        Ok(())
    }

    /// Submits an edit and finds out what became of it; the version after it.
    ///
    /// Only this owner can have moved the version, so a read tells whether an edit of unknown outcome is in.
    /// Where even that fails, the next edit is refused at our own epoch: then the manifest is read anew, and
    /// the caller does its work again on what it says.
    fn applied_version(&self, current: &ManifestState, changes: &[ManifestChange]) -> Result<u64> {
        match self.backend.edit(SHARD, self.epoch, current.version, changes) {
            Ok(EditOutcome::Applied { version }) => Ok(version),
            Ok(EditOutcome::Refused { epoch, version }) if epoch == self.epoch => {
                let manifest = ManifestState::read(&self.backend.manifest(SHARD)?)?;
                self.state.write().manifest = Arc::new(manifest);
                let reason = format!("an earlier edit had moved the manifest to version {version}");
                Err(BackendError::Unavailable {
                    reason,
                    retry_after: Duration::ZERO,
                }
                .into())
            }
            Ok(EditOutcome::Refused { epoch, .. }) => {
                tracing::error!(?epoch, ours = ?self.epoch, "manifest edit refused: the shard has another owner");
                Err(StoreError::Closed)
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Timeout) => {
                let manifest = self.backend.manifest(SHARD)?;
                if manifest.epoch == self.epoch && manifest.version == current.version + 1 {
                    return Ok(manifest.version);
                }
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        if self.tables.read().by_name.contains_key(&name) {
            return Err(StoreError::TableExists(name));
        }
        let mut made = None;
        self.edit(|manifest| {
            if manifest.tables.values().any(|row| row.name == name) {
                return Vec::new();
            }
            let id = TableId(manifest.cursor.next_table);
            let created = self.clock.now().nanos();
            let row = crate::manifest::TableRow::new(id, name.clone(), spec, created);
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

    fn drop_table(&self, table: &Table) -> Result<()> {
        let id = table.id();
        let before = Arc::clone(&self.state.read().manifest);
        let mut gone: Vec<SegmentRef> = Vec::new();
        self.edit_and(
            |manifest| {
                manifest.tables.remove(&id);
                let segments = manifest.segments.remove(&id).unwrap_or_default();
                gone.extend(segments.values().map(|segment| segment.reference()));
                let removals = segments.keys().map(|segment| remove_segment(*segment));
                removals.chain([remove_table(id)]).collect()
            },
            |state| {
                state
                    .frozen
                    .iter()
                    .chain([&state.active])
                    .for_each(|head| head.drop_table(id));
            },
        )?;
        self.tables.write().remove(table);
        self.retired.lock().push((Arc::downgrade(&before), gone));
        Ok(())
    }

    /// Reclaims segments that nobody can be reading any more.
    pub(crate) fn reclaim_retired(&self) {
        let ready: Vec<SegmentRef> = {
            let mut retired = self.retired.lock();
            let (done, waiting) = std::mem::take(&mut *retired)
                .into_iter()
                .partition(|(last, _)| last.strong_count() == 0);
            *retired = waiting;
            let done: Vec<(Weak<ManifestState>, Vec<SegmentRef>)> = done;
            done.into_iter().flat_map(|(_, segments)| segments).collect()
        };
        for segment in ready {
            if let Err(error) = self.backend.reclaim(segment) {
                tracing::warn!(%error, ?segment, "reclaiming a dropped segment failed; the next start sweeps it");
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
        cursor
    }

    /// A place for a new segment: the group of its table's day, or of its own window where that is wider.
    pub(crate) fn place(&self, manifest: &ManifestState, table: TableId, window: Window) -> SegmentRef {
        let group_window = group_window(window);
        let mut segments = manifest
            .segments
            .get(&table)
            .into_iter()
            .flat_map(|segments| segments.values());
        let known = segments.find(|segment| crate::store::group_window(segment.window) == group_window);
        let group = known.map_or_else(|| GroupId(self.next_id()), |segment| segment.group);
        SegmentRef {
            segment: SegmentId(self.next_id()),
            group,
        }
    }
}

/// The window whose segments share a group with those of `window`.
pub(crate) fn group_window(window: Window) -> Window {
    let mut wide = window;
    while wide.level < GROUP_LEVEL {
        wide = wide.parent();
    }
    wide
}

impl Tables {
    pub(crate) fn insert(&mut self, table: Arc<Table>) {
        self.by_name.insert(table.name().clone(), table.id());
        self.by_id.insert(table.id(), table);
    }

    fn remove(&mut self, table: &Table) {
        self.by_name.remove(table.name());
        self.by_id.remove(&table.id());
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
