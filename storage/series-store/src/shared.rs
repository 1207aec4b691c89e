//! What committer, sealer and readers share: the state that a snapshot pins, and the one way to change it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use tideline_backend::{
    Backend, BackendError, EditOutcome, Epoch, ErrorKind, ManifestChange, SegmentRef, Shard, Stamp,
};
use tideline_model::{Clock, GroupId, SegmentId, SequenceNumber, TableId, TableName, TableSpec, Tier};

use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::manifest::{Cursor, ManifestState, TableRow, put_cursor, put_table, remove_segment, remove_table};
use crate::requests::Requests;
use crate::schema::TableSchema;
use crate::settings::Settings;
use crate::store::TimelineDirectory;
use crate::tables::Table;
use crate::window::Window;

/// The one shard of a single process.
pub(crate) const SHARD: Shard = Shard(0);
/// Doublings of the base window after which windows have a group of their own; narrower ones share the group
/// of the wider window around them, so that a day of hot data is one unit to the backend.
const GROUP_LEVEL: u8 = 3;

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
        let wide = group_window(window);
        let mut segments = manifest
            .segments
            .get(&table)
            .into_iter()
            .flat_map(|segments| segments.values());
        let known = segments.find(|segment| group_window(segment.window) == wide);
        let group = known.map_or_else(|| GroupId(self.next_id()), |segment| segment.group);
        SegmentRef {
            segment: SegmentId(self.next_id()),
            group,
            tier: Tier::Hot,
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
