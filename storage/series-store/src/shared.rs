//! State shared by writers, seals, rewrites and readers.
//!
//! A snapshot pins a [`State`]. The manifest is changed by [`Shared::edit_and`] or by a seal of the log. Both make the
//! change durable first, and then visible to readers together with the related in-memory state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use tideline_backend::{Backend, ManifestChange, SegmentRef};
use tideline_chunk::Delta;
use tideline_log::{Edit, Log, Refusal, Retired};
use tideline_model::{Durability, SegmentId, SequenceNumber, TableId, TableName, TableSpec, Tier};

use crate::compaction::{OtherObjectsOf, SettingsWritten};
use crate::deletes::{self, Deletes, TableDeletes};
use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::lists::FileLists;
use crate::manifest::{
    ManifestState, Segment, SharedRows, TableRow, put_cursor, put_table, remove_segment, remove_table,
};
use crate::retired::{FilesToRemove, InDoubt, ObjectsToRemove, RetiredSegment};
use crate::schema::TableSchema;
use crate::seal_reports::SealReports;
use crate::settings::Settings;
use crate::store::TimelineDirectory;
use crate::tables::Table;
use crate::window::Window;

/// Returns the level of the windows that groups of a tier span: the number of doublings of the base window. A wider
/// window has its own group. With the default base window, the backend handles a day of hot data or about a month of
/// cold data as one unit, and decades take a few hundred units.
const fn group_level(tier: Tier) -> u8 {
    match tier {
        Tier::Hot => 3,
        Tier::Cold | Tier::Archive => 8,
    }
}

/// Returns the size in bytes from which a segment has its own group. Segments of one group are written one after
/// another, and a seal should not wait for a long move. The threshold of the cold tier is higher because that tier
/// keeps its data for years and should have few groups.
const fn bytes_alone(tier: Tier) -> u64 {
    match tier {
        Tier::Hot => 64 << 20,
        Tier::Cold | Tier::Archive => 1 << 30,
    }
}

/// State shared by writers, seals, rewrites and readers.
pub(crate) struct Shared {
    pub(crate) log: Arc<Log>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) settings: Settings,
    pub(crate) directory: Arc<dyn TimelineDirectory>,
    pub(crate) state: RwLock<State>,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) counters: Counters,
    /// Journal entries of the pending deletes without a durable row, by sequence. The rows must be written before the
    /// journal is removed.
    pub(crate) waiting_rows: Mutex<BTreeMap<SequenceNumber, (TableId, Bytes)>>,
    /// Tables of the running attachments of segments, one entry per attachment. The deletes of these tables stay
    /// pending.
    pub(crate) attaching: Mutex<Vec<TableId>>,
    /// Segments claimed by running rewrites, drops and evictions.
    pub(crate) moving: Mutex<HashSet<SegmentId>>,
    /// Segments that were removed from the manifest and may still be read.
    pub(crate) retired: Retired<ManifestState, RetiredSegment>,
    /// Files of reclaimed segments, and of segments that were never published. They are removed on threads that may
    /// wait for the target.
    pub(crate) files_to_remove: FilesToRemove,
    /// Written segments whose edit has an unknown outcome. A later edit resolves the outcome.
    pub(crate) in_doubt: Mutex<Vec<InDoubt>>,
    /// Function that returns the objects at targets that other models use.
    pub(crate) other_objects: OnceLock<OtherObjectsOf>,
    /// Segments whose files are being written.
    pub(crate) archiving: Mutex<HashSet<SegmentId>>,
    pub(crate) file_lists: FileLists,
    /// Settings of tables as stored at targets, per folder.
    pub(crate) settings_written: Mutex<SettingsWritten>,
    pub(crate) seal_reports: SealReports,
}

/// State pinned by a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) manifest: Arc<ManifestState>,
    /// Frozen heads, oldest first.
    pub(crate) frozen: Vec<Arc<Head>>,
    pub(crate) active: Arc<Head>,
    /// Deletes that are not yet applied to all frozen heads and segments.
    pub(crate) deletes: Deletes,
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) by_id: HashMap<TableId, Arc<Table>>,
    pub(crate) by_name: HashMap<TableName, TableId>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) seals: AtomicU64,
    /// Bytes of segments written by seals, per tier.
    pub(crate) sealed_bytes: [AtomicU64; 3],
    /// Bytes of segments written by rewrites, per tier.
    pub(crate) rewritten_bytes: [AtomicU64; 3],
}

impl Shared {
    pub(crate) fn new(
        log: Arc<Log>,
        settings: Settings,
        directory: Arc<dyn TimelineDirectory>,
        state: State,
        tables: Tables,
        orphans: Vec<SegmentRef>,
    ) -> Self {
        let segments = state.manifest.segments.values().flat_map(BTreeMap::values);
        if let Some(newest) = segments.map(|segment| segment.last).max() {
            log.note_newest(newest);
        }
        let gone = |location| RetiredSegment {
            location,
            files: None,
        };
        Self {
            backend: Arc::clone(log.backend()),
            log,
            seal_reports: SealReports::default(),
            settings,
            directory,
            state: RwLock::new(state),
            tables: RwLock::new(tables),
            counters: Counters::default(),
            waiting_rows: Mutex::default(),
            attaching: Mutex::default(),
            moving: Mutex::default(),
            retired: Retired::new(orphans.into_iter().map(gone).collect()),
            files_to_remove: FilesToRemove::default(),
            in_doubt: Mutex::default(),
            other_objects: OnceLock::new(),
            archiving: Mutex::default(),
            file_lists: FileLists::default(),
            settings_written: Mutex::default(),
        }
    }

    /// Counts bytes of segments written by a seal or a rewrite.
    pub(crate) fn count_loaded(&self, counters: &[AtomicU64; 3], table: TableId, tier: Tier, bytes: u64) {
        counters[tier as usize].fetch_add(bytes, Ordering::Relaxed);
        if let Some(table) = self.tables.read().by_id.get(&table) {
            table.loaded(bytes);
        }
    }

    /// Refuses changes while the backend is read-only, which preserves a damaged database.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        Ok(self.log.check_not_read_only()?)
    }

    /// Changes the manifest. `change` alters a copy and returns the row changes of the same edit. Readers that hold
    /// the old manifest keep it.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut ManifestState) -> Vec<ManifestChange>) -> Result<()> {
        self.edit_and(|manifest| Ok(change(manifest)), |_| {})?;
        Ok(())
    }

    /// Changes the manifest like [`edit`](Self::edit), but `change` may fail. `follow` alters the other fields of the
    /// state; both changes become visible at the same moment. Returns the version of the manifest after the edit.
    pub(crate) fn edit_and(
        &self,
        change: impl FnOnce(&mut ManifestState) -> Result<Vec<ManifestChange>>,
        follow: impl FnOnce(&mut State),
    ) -> Result<u64> {
        let draft = RefCell::new(None);
        let alter = |common: &Arc<SharedRows>| {
            let current = Arc::clone(&self.state.read().manifest);
            let mut next = ManifestState {
                common: SharedRows::clone(common),
                segments: current.segments.clone(),
            };
            let changes = change(&mut next)?;
            let edit = Edit {
                manifest: next.common.clone(),
                changes,
                adds: missing_in(&next, &current).map(Segment::reference).collect(),
            };
            draft.replace(Some(next));
            Ok::<_, StoreError>(edit)
        };
        let published = |common: &Arc<SharedRows>| {
            if let Some(next) = draft.take() {
                self.publish(next, common, follow);
            }
        };
        self.log.edit(alter, published)
    }

    /// Makes a durable manifest visible to readers, together with the changes of `follow` to the other fields of the
    /// state.
    pub(crate) fn publish(
        &self,
        next: ManifestState,
        common: &Arc<SharedRows>,
        follow: impl FnOnce(&mut State),
    ) {
        let next = ManifestState {
            common: SharedRows::clone(common),
            ..next
        };
        let mut state = self.state.write();
        let before = std::mem::replace(&mut state.manifest, Arc::new(next));
        follow(&mut state);
        drop(state);
        self.retired.replaced(&before);
    }

    /// Refuses a table that was dropped, or whose drop has an unknown outcome.
    pub(crate) fn check_table(&self, table: &Table) -> std::result::Result<(), Refusal> {
        if !self.tables.read().by_id.contains_key(&table.id()) {
            return Err(Refusal::TableDropped(table.id()));
        }
        match table.is_in_doubt() {
            true => Err(Refusal::TableInDoubt(table.name().clone())),
            false => Ok(()),
        }
    }

    /// Removes from memory a table that is no longer in the manifest, and removes its delete rows from the backend.
    /// Delete rows that cannot be removed have no effect.
    pub(crate) fn forget_table(&self, table: TableId, deletes: Vec<SequenceNumber>) {
        self.tables.write().remove(table);
        self.waiting_rows.lock().retain(|_, (of, _)| *of != table);
        let rows = deletes.into_iter();
        let rows: Vec<_> = rows.map(|sequence| deletes::row(table, sequence, None)).collect();
        let (backend, stamps) = (self.backend.as_ref(), self.log.stamps());
        if let Err(error) = deletes::write_rows(backend, stamps, &rows, Durability::Synced) {
            tracing::warn!(%error, %table, "failed to remove the delete rows of a dropped table");
        }
    }

    /// Records the newest timestamp of a delta, which limits expiry; see [`Log::note_newest`].
    pub(crate) fn note_stored(&self, delta: &Delta) {
        let newest = delta
            .groups
            .iter()
            .flat_map(|group| group.timestamps.iter().max())
            .max();
        if let Some(newest) = newest {
            self.log.note_newest(*newest);
        }
    }

    /// Removes deletes that are applied to all older segments and heads. Keeps the deletes of tables to which segments
    /// are being attached, because the next of these segments may have points that the deletes hide.
    pub(crate) fn forget_done_deletes(&self) -> Result<()> {
        let done = {
            // The lock is held until the state has been read. The segments of an attachment that is not in the list
            // are then in this state, or the attachment begins after all deletes of this state.
            let attaching = self.attaching.lock();
            let state = self.state.read();
            let frozen_to = state.frozen.first().map(|head| head.end());
            let mut done = state.deletes.done(&state.manifest, frozen_to);
            done.retain(|(table, _)| !attaching.contains(table));
            done
        };
        for (table, sequences) in done {
            // Removes the rows first. Until the delete is removed from the state, the delete still masks points;
            // without its row, the delete does not return after a restart.
            let rows: Vec<_> = sequences
                .iter()
                .map(|sequence| deletes::row(table, *sequence, None))
                .collect();
            let (backend, stamps) = (self.backend.as_ref(), self.log.stamps());
            deletes::write_rows(backend, stamps, &rows, Durability::Synced)?;
            let mut waiting = self.waiting_rows.lock();
            sequences.iter().for_each(|sequence| {
                waiting.remove(sequence);
            });
            drop(waiting);
            self.state.write().deletes.remove(table, &sequences);
        }
        Ok(())
    }

    /// Writes the rows of deletes below `end` without a sync. Returns their sequences.
    pub(crate) fn write_deletes(&self, end: SequenceNumber) -> Result<Vec<SequenceNumber>> {
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
        let (backend, stamps) = (self.backend.as_ref(), self.log.stamps());
        deletes::write_rows(backend, stamps, &rows, Durability::Buffered)?;
        Ok(waiting.into_iter().map(|(sequence, ..)| sequence).collect())
    }

    /// Marks written delete rows as durable.
    pub(crate) fn deletes_synced(&self, written: &[SequenceNumber]) {
        let mut waiting = self.waiting_rows.lock();
        written.iter().for_each(|sequence| {
            waiting.remove(sequence);
        });
    }

    pub(crate) fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.log.settle()?;
        if self.tables.read().by_name.contains_key(&name) {
            return Err(StoreError::TableExists(name));
        }
        let mut made = None;
        self.edit(|manifest| {
            if manifest.common.tables.values().any(|row| row.name == name) {
                return Vec::new();
            }
            let id = TableId(manifest.common.cursor.next_table);
            let created = self.log.trusted_now().now.nanos();
            let mut row = TableRow::new(id, name.clone(), spec, created, created);
            manifest.common.cursor.next_table += 1;
            manifest.common.cursor.number_indexes(&mut row.spec);
            manifest.common.tables.insert(id, row.clone());
            let changes = vec![put_table(&row), put_cursor(&manifest.common.cursor)];
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
        let mut gone: Vec<RetiredSegment> = Vec::new();
        let deletes = self.state.read().deletes.of(id).map(TableDeletes::sequences);
        let version = self.edit_and(
            |manifest| {
                manifest.common.tables.remove(&id);
                let segments = manifest.segments.remove(&id).unwrap_or_default();
                let parts = segments.values().flat_map(|segment| segment.parts());
                gone.extend(parts.map(RetiredSegment::of));
                let removals = segments.keys().map(|segment| remove_segment(*segment));
                Ok(removals.chain([remove_table(id)]).collect())
            },
            |state| state.drop_table(id),
        )?;
        self.retired.add(version, gone);
        self.forget_table(id, deletes.unwrap_or_default());
        Ok(())
    }

    /// Reclaims segments that no reader uses any more.
    pub(crate) fn reclaim_retired(&self) {
        // In a damaged database, a lost manifest row may have referenced a segment that appears unused.
        if self.check_not_read_only().is_err() {
            return;
        }
        for RetiredSegment { location, files } in self.retired.take_free() {
            // Reads the file list first, because the list is stored in the segment, which is reclaimed below.
            let files = files.map(|files| self.files_at(location, &files));
            self.forget_lists(location.segment);
            if let Err(error) = self.backend.reclaim(location) {
                tracing::warn!(%error, ?location, "failed to reclaim a segment; the next start retries");
            }
            match files {
                // The files are not removed here, because a target may be slow and seals may wait for this thread.
                Some(Ok(files)) => self.files_to_remove.add(ObjectsToRemove::of(&files)),
                Some(Err(error)) => tracing::warn!(
                    %error, ?location,
                    "cannot read the file list of a removed segment; a later garbage collection removes its files"
                ),
                None => {}
            }
        }
    }

    /// Returns the location for a new segment of `bytes` bytes. A small segment joins the group of an existing small
    /// segment with the same table, tier and group window, if there is one. Any other segment gets a spare or new
    /// group.
    pub(crate) fn choose_location(
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
            spare.unwrap_or_else(|| self.log.next_group())
        };
        let group = known.map_or_else(new_group, |segment| segment.group);
        SegmentRef {
            segment: self.log.next_segment(),
            group,
            tier: tier.kept_in(),
        }
    }
}

/// Returns the window that determines the group: small segments of `tier` inside this window share a group.
pub(crate) fn group_window(tier: Tier, window: Window) -> Window {
    let mut wide = window;
    while wide.level < group_level(tier) {
        wide = wide.parent();
    }
    wide
}

impl State {
    /// Removes the points and deletes of a table from the state.
    pub(crate) fn drop_table(&mut self, table: TableId) {
        let heads = self.frozen.iter().chain([&self.active]);
        heads.for_each(|head| head.drop_table(table));
        self.deletes.drop_table(table);
    }
}

/// Returns the segments of `one`, including copies, that are not in `other`.
pub(crate) fn missing_in<'a>(
    one: &'a ManifestState,
    other: &ManifestState,
) -> impl Iterator<Item = &'a Segment> {
    let parts = |manifest: &'a ManifestState| {
        let segments = manifest.segments.values().flat_map(BTreeMap::values);
        segments.flat_map(|segment| segment.parts())
    };
    let named: HashSet<SegmentId> = {
        let segments = other.segments.values().flat_map(BTreeMap::values);
        segments
            .flat_map(|segment| segment.parts())
            .map(|part| part.id)
            .collect()
    };
    parts(one).filter(move |part| !named.contains(&part.id))
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
            .finish_non_exhaustive()
    }
}
