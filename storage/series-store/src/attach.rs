//! Attachment of archived segments of another database to a table of this store. Also adopts objects of other
//! databases, and turns a copied data folder into a separate database.
//!
//! The attachment has three steps:
//!
//! 1. *raise*: later writes get higher sequences than all attached points, so the later writes win.
//! 2. *load*: the extents, which locate rows in the files, are written as a segment that is not visible yet.
//! 3. *edit*: one manifest edit adds the segment.
//!
//! Step 1 begins an [`Attachment`], and steps 2 and 3 are repeated for each of its segments. The deletes of the table
//! stay pending until the attachment ends, so that they are also applied to segments that are attached later.
//!
//! The caller commits the timelines to the journal first; step 2 makes the fields durable. A failure before step 3
//! leaves an orphaned segment, which is reclaimed immediately or by the next start. Repeating the attach is safe. The
//! files are not changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;
use tideline_archive::{ArchiveCopy, Extent};
use tideline_backend::BackendError;
use tideline_log::fail_points::around;
use tideline_model::{Durability, SequenceNumber, TableId, TableName, Tier, TimelineId};

use crate::buckets::{EXTENT_BYTES, bucket_bits, load_buckets};
use crate::compaction::archive::row;
use crate::error::{Result, StoreError};
use crate::manifest::{
    Adopted, ManifestState, Segment, SegmentFiles, SegmentTotals, put_cursor, put_segment, put_table,
};
use crate::scan::cursor::holds;
use crate::shared::Shared;
use crate::store::SeriesStore;
use crate::tables::Table;
use crate::window::{COLD_LEVEL, LEVEL_MAX, Window};

/// Extents of the rows of a segment, sorted by timeline, then by time.
pub type TimelineSlots<'a> = dyn Iterator<Item = Result<(TimelineId, Extent)>> + 'a;

/// Running attachment of segments to a table, begun by [`SeriesStore::begin_attach`].
#[derive(Debug)]
pub struct Attachment<'s> {
    shared: &'s Shared,
    table: Arc<Table>,
    /// Deletes from this sequence on apply to the attached segments.
    from: SequenceNumber,
}

impl Attachment<'_> {
    /// Attaches a described segment. Returns `None` if the files of the segment are already attached or `slots` is
    /// empty. Blocks until the segment is published.
    ///
    /// # Errors
    ///
    /// [`StoreError::Clash`] as in [`SeriesStore::check_attach`]; [`StoreError::NoCommonWindow`] if no window contains
    /// the points of the segment; [`StoreError::TableDropped`]; the errors of the backend and of
    /// [`tideline_log::Log::edit`]. An error of `slots` is returned as [`StoreError::Backend`].
    pub fn attach(
        &self,
        described: &Segment,
        files: ArchiveCopy,
        slots: &mut TimelineSlots<'_>,
    ) -> Result<Option<Arc<Segment>>> {
        self.shared
            .attach(&self.table, described, files, self.from, slots)
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        let mut attaching = self.shared.attaching.lock();
        if let Some(at) = attaching.iter().position(|table| *table == self.table.id()) {
            attaching.swap_remove(at);
        }
    }
}

impl Segment {
    /// Returns the first sequence above all sequences of the segment.
    pub fn sequences_end(&self) -> SequenceNumber {
        SequenceNumber(self.written.newest.sequence + 1).max(self.deletes_applied)
    }

    /// Returns the segment with its files and the files of its copy marked as owned by another database.
    fn disowned(&self) -> Self {
        let mut disowned = self.clone();
        disowned.archive = self.archive.as_ref().map(SegmentFiles::disowned);
        disowned.copy = self.copy.as_deref().map(|copy| Box::new(copy.disowned()));
        disowned
    }
}

impl SeriesStore {
    /// Begins to attach segments to a table. Raises the sequences of all later writes to at least `to`, in memory and
    /// across restarts. Later deletes apply to the attached segments.
    ///
    /// # Errors
    ///
    /// The errors of the log: the entry that raises the sequences was not written, or its outcome is unknown.
    pub fn begin_attach(&self, table: &Arc<Table>, to: SequenceNumber) -> Result<Attachment<'_>> {
        let shared: &Shared = self.shared();
        // The table is listed before the first delete that applies to the segments can be committed.
        shared.attaching.lock().push(table.id());
        let mut attachment = Attachment {
            shared,
            table: Arc::clone(table),
            from: to,
        };
        attachment.from = self.raise(table.id(), to)?;
        Ok(attachment)
    }

    /// Checks that a described segment can be attached without changing which write wins.
    ///
    /// # Errors
    ///
    /// [`StoreError::Clash`] if a segment of the table overlaps the time range of `described`, and either this database
    /// wrote that segment before `described`, or the writes of both interleave.
    pub fn check_attach(&self, table: &Table, described: &Segment) -> Result<()> {
        let manifest = Arc::clone(&self.shared().state.read().manifest);
        check_clash(&manifest, table, described)
    }

    /// Returns the segments of a table that are stored in archive files, including the archived copies of cold
    /// segments.
    pub fn archived(&self, table: &Table) -> Vec<Segment> {
        let manifest = Arc::clone(&self.shared().state.read().manifest);
        let parts = manifest.of_table(table.id()).flat_map(|segment| segment.parts());
        parts.filter(|part| part.archive.is_some()).cloned().collect()
    }

    /// Returns true if a segment has points of a timeline. Reads at most one chunk.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] if the read fails.
    pub fn holds(&self, segment: &Segment, id: TimelineId) -> Result<bool> {
        holds(self.backend().as_ref(), segment, id)
    }

    /// Returns the id that distinguishes this database from others in the same archive target; `None` if the id has
    /// not been generated yet.
    pub fn origin(&self) -> Option<u64> {
        self.shared().state.read().manifest.common.cursor.origin
    }

    /// Returns the names of the descriptions of all archived segments whose points are in a table. A description is a
    /// file that describes one archived segment. The list includes attached segments, segments that this database
    /// archived, and segments that were merged into other segments.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] or [`StoreError::StoredRow`] if a stored list cannot be read.
    pub fn descriptions_of(&self, table: &Table) -> Result<HashSet<String>> {
        let shared = self.shared();
        let manifest = Arc::clone(&shared.state.read().manifest);
        let mut names = HashSet::new();
        for part in manifest.of_table(table.id()).flat_map(|segment| segment.parts()) {
            names.extend(shared.replaces_of(part)?);
            names.extend(part.archive.as_ref().map(|files| files.sidecar().to_owned()));
        }
        Ok(names)
    }

    /// Returns the complete description of the files of a segment; `None` if it has no files.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] or [`StoreError::StoredRow`] if a stored list cannot be read.
    pub fn files_of(&self, segment: &Segment) -> Result<Option<Arc<ArchiveCopy>>> {
        self.shared().files_of(segment)
    }

    /// Turns a copied data folder into a separate database. Existing files at targets remain owned by the original
    /// database, and new files get a new origin. The lists of adopted objects are cleared. Returns the number of
    /// segments with existing files.
    ///
    /// # Errors
    ///
    /// [`StoreError::Archive`] if no new origin can be generated; the errors of [`tideline_log::Log::edit`].
    pub fn become_another(&self) -> Result<usize> {
        let origin = tideline_archive::new_origin()?;
        let shared = self.shared();
        let mut count = 0;
        shared.edit(|manifest| {
            let all = manifest.segments.values().flat_map(BTreeMap::values);
            let mut segments: Vec<Segment> = Vec::new();
            for segment in all.filter(|segment| segment.parts().any(|part| part.archive.is_some())) {
                segments.push(segment.disowned());
            }
            count = segments.len();
            let mut changes: Vec<_> = segments.iter().map(put_segment).collect();
            segments.into_iter().for_each(|segment| manifest.add(segment));
            for row in manifest
                .common
                .tables
                .values_mut()
                .filter(|row| !row.adopted.is_empty())
            {
                *row = row.clone().with_adopted(Vec::new());
                changes.push(put_table(row));
            }
            manifest.common.cursor = shared
                .log
                .cursor(manifest.common.cursor, manifest.common.cursor.sealed_to);
            manifest.common.cursor.origin = Some(origin);
            changes.push(put_cursor(&manifest.common.cursor));
            changes
        })?;
        let tables: Vec<_> = shared.tables.read().by_id.values().cloned().collect();
        tables.iter().for_each(|table| table.set_adopted(Vec::new()));
        Ok(count)
    }

    /// Adopts objects of other databases. Adopted objects that are unreferenced are removed like objects of this
    /// database.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableDropped`] if the table no longer exists; the errors of [`tideline_log::Log::edit`].
    pub fn adopt(&self, table: &Table, adopted: &[Adopted]) -> Result<()> {
        let mut all = Vec::new();
        self.shared().edit_and(
            |manifest| {
                let row = manifest.common.tables.get_mut(&table.id());
                let row = row.ok_or(StoreError::TableDropped(table.id()))?;
                for object in adopted {
                    if !row.adopted.contains(object) {
                        row.adopted.push(object.clone());
                    }
                }
                all.clone_from(&row.adopted);
                Ok(vec![put_table(row)])
            },
            |_| {},
        )?;
        table.set_adopted(all);
        Ok(())
    }
}

/// Counts of the written rows.
struct Loaded {
    totals: SegmentTotals,
    timeline: Option<TimelineId>,
}

impl Loaded {
    fn count(&mut self, id: TimelineId, extent: &Extent) {
        let totals = &mut self.totals;
        totals.count(
            (extent.first, extent.last),
            u64::from(extent.points),
            u64::from(extent.values),
        );
        totals.chunks += 1;
        if self.timeline.replace(id) != Some(id) {
            totals.timelines += 1;
        }
    }
}

impl Shared {
    fn attach(
        &self,
        table: &Arc<Table>,
        described: &Segment,
        files: ArchiveCopy,
        from: SequenceNumber,
        slots: &mut TimelineSlots<'_>,
    ) -> Result<Option<Arc<Segment>>> {
        let manifest = Arc::clone(&self.state.read().manifest);
        if is_attached(&manifest, table.id(), &files) {
            return Ok(None);
        }
        check_clash(&manifest, table, described)?;
        let window = self.attached_window(described)?;
        let location = self.choose_location(&manifest, table.id(), Tier::Archive, window, files.bytes());
        drop(manifest);
        let mut loaded = Loaded {
            totals: SegmentTotals::default(),
            timeline: None,
        };
        let bits = bucket_bits(described.chunks * EXTENT_BYTES, self.settings.bucket_bytes);
        let made = around("attach", "load", || {
            let mut rows = slots.map(|next| {
                let (id, extent) = next.map_err(|error| BackendError::corrupt(error.to_string()))?;
                loaded.count(id, &extent);
                Ok(row(id, &extent, &[]))
            });
            load_buckets(self.backend.as_ref(), location, bits, &mut rows)?;
            let (backend, stamps) = (self.backend.as_ref(), self.log.stamps());
            let rows = table.schema().write_rows(backend, stamps, Durability::Synced)?;
            table.schema().synced(&rows);
            Ok(())
        });
        let mut totals = loaded.totals;
        if made.is_err() || totals.chunks == 0 {
            self.reclaim_abandoned(location);
            return made.map(|()| None);
        }
        totals.bytes = files.bytes();
        let newest = totals.last;
        let deletes_applied = described.deletes_from().max(from);
        let segment = Segment::new(
            location,
            table.id(),
            window,
            described.written,
            deletes_applied,
            totals,
        )
        .in_buckets(bits);
        let listed = self.load_lists(segment, Some((files, self.log.trusted_now().now.nanos())));
        let segment = match listed {
            Ok(segment) => segment,
            Err(error) => {
                self.reclaim_abandoned(location);
                return Err(error);
            }
        };
        let edited = around("attach", "edit", || self.add_attached(table, &segment));
        if let Err(error) = edited {
            // After an unknown outcome the manifest may reference the segment. Then only the next start can identify
            // orphans.
            if matches!(error, StoreError::Clash { .. } | StoreError::TableDropped(_)) {
                self.reclaim_abandoned(location);
            }
            return Err(error);
        }
        self.log.note_newest(newest);
        // The cached latest values do not include the attached points.
        table.latest().forget_all();
        Ok(Some(Arc::new(segment)))
    }

    fn add_attached(&self, table: &Table, segment: &Segment) -> Result<()> {
        self.edit_and(
            |manifest| {
                if !manifest.common.tables.contains_key(&table.id()) {
                    return Err(StoreError::TableDropped(table.id()));
                }
                check_clash(manifest, table, segment)?;
                manifest.add(segment.clone());
                manifest.common.cursor = self
                    .log
                    .cursor(manifest.common.cursor, manifest.common.cursor.sealed_to);
                Ok(vec![put_segment(segment), put_cursor(&manifest.common.cursor)])
            },
            |_| {},
        )
        .map(drop)
    }

    /// Returns a cold window that contains the points, with the base width of this store: the described window if it is
    /// cold and contains the points, otherwise the narrowest one. Fails if no window contains the points.
    fn attached_window(&self, described: &Segment) -> Result<Window> {
        let base = self.settings.window_nanos;
        let holds = |window: Window| {
            let range = window.range(base);
            range.contains(described.first) && range.contains(described.last)
        };
        if described.window.level >= COLD_LEVEL && holds(described.window) {
            return Ok(described.window);
        }
        let mut window = Window::of(described.first, base, COLD_LEVEL);
        while !holds(window) {
            if window.level == LEVEL_MAX {
                return Err(StoreError::NoCommonWindow);
            }
            window = window.parent();
        }
        Ok(window)
    }
}

/// Returns true if a segment of the table, or its copy, already references these files.
fn is_attached(manifest: &ManifestState, table: TableId, files: &ArchiveCopy) -> bool {
    let parts = manifest.of_table(table).flat_map(|segment| segment.parts());
    let mut have = parts.filter_map(|part| part.archive.as_ref());
    have.any(|have| have.sidecar() == files.sidecar)
}

fn check_clash(manifest: &ManifestState, table: &Table, described: &Segment) -> Result<()> {
    let clashes = |other: &&Arc<Segment>| {
        let is_attached = other
            .archive
            .as_ref()
            .is_some_and(|files| files.attached().is_some());
        other.range().overlaps(&described.range())
            && (other.written.interleaves(&described.written)
                || (!is_attached && other.written.newest < described.written.oldest))
    };
    match manifest.of_table(table.id()).find(clashes) {
        Some(other) => Err(clash(table.name(), other)),
        None => Ok(()),
    }
}

fn clash(table: &TableName, other: &Segment) -> StoreError {
    StoreError::Clash {
        table: table.clone(),
        segment: other.id,
    }
}
