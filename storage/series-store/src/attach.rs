//! Attaching: a segment that another database has archived becomes one of a table here.
//!
//! 1. *raise*: writes from now on have higher sequences than everything that is attached, so they win over it.
//! 2. *load*: the places of rows, as a segment that nobody sees.
//! 3. *edit*: one manifest edit adds it.
//!
//! Who the timelines are is in the journal before, since the caller commits it there; fields are made durable here. A
//! failure before 3 leaves an orphan, as that of any load; doing it again is harmless. The files are not touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;
use tideline_archive::{ArchiveCopy, Extent};
use tideline_backend::BackendError;
use tideline_log::fail_points::around;
use tideline_model::{Durability, SequenceNumber, TableId, TableName, Tier, TimelineId};

use crate::buckets::{PLACE_BYTES, bucket_bits, load_buckets};
use crate::error::{Result, StoreError};
use crate::manifest::{
    Adopted, ManifestState, Segment, SegmentFiles, SegmentTotals, put_cursor, put_segment, put_table,
};
use crate::rewrite::archive::row;
use crate::scan::cursor::holds;
use crate::shared::Shared;
use crate::store::SeriesStore;
use crate::tables::Table;
use crate::window::{COLD_LEVEL, LEVEL_MAX, Window};

/// The places of the rows of a segment, by timeline, then time.
pub type Places<'a> = dyn Iterator<Item = Result<(TimelineId, Extent)>> + 'a;

impl Segment {
    /// The first sequence that is above everything that it says.
    pub fn sequences_end(&self) -> SequenceNumber {
        SequenceNumber(self.written.newest.sequence + 1).max(self.deletes_applied)
    }

    /// The same with files that are another database's, and so its copy.
    fn disowned(&self) -> Self {
        let mut disowned = self.clone();
        disowned.archive = self.archive.as_ref().map(SegmentFiles::disowned);
        disowned.copy = self.copy.as_deref().map(|copy| Box::new(copy.disowned()));
        disowned
    }
}

impl SeriesStore {
    /// Has every write from now on behind `to`, in memory and over restarts; the sequence of the next one.
    pub fn raise_sequences(&self, table: &Table, to: SequenceNumber) -> Result<SequenceNumber> {
        self.raise(table.id(), to)
    }

    /// Refuses a described segment that would change places with what a table has: points of the same times that were
    /// written here before, or whose writes lie between its own.
    pub fn check_attach(&self, table: &Table, described: &Segment) -> Result<()> {
        let manifest = Arc::clone(&self.shared().state.read().manifest);
        check_clash(&manifest, table, described)
    }

    /// The segments of a table that are in files, those that are a copy of cold points included.
    pub fn archived(&self, table: &Table) -> Vec<Segment> {
        let manifest = Arc::clone(&self.shared().state.read().manifest);
        let parts = manifest.of_table(table.id()).flat_map(|segment| segment.parts());
        parts.filter(|part| part.archive.is_some()).cloned().collect()
    }

    /// Whether a segment has points of a timeline. Costs a look-up of a key.
    pub fn holds(&self, segment: &Segment, id: TimelineId) -> Result<bool> {
        holds(self.backend().as_ref(), segment, id)
    }

    /// What tells this database from others that keep files in the same target; `None` where it has none yet.
    pub fn origin(&self) -> Option<u64> {
        self.shared().state.read().manifest.common.cursor.origin
    }

    /// The names of all descriptions whose points a table has: attached, written here, or become part of what was.
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

    /// Everything about the files of a segment; `None` of one that has none.
    pub fn files_of(&self, segment: &Segment) -> Result<Option<Arc<ArchiveCopy>>> {
        self.shared().files_of(segment)
    }

    /// Makes a described segment one of a table; `None` where its files are attached already, or nothing is in it.
    ///
    /// `from` is what [`raise_sequences`](Self::raise_sequences) has told: deletes from there on reach it. Blocks for
    /// as long as the load takes.
    pub fn attach(
        &self,
        table: &Arc<Table>,
        described: &Segment,
        files: ArchiveCopy,
        from: SequenceNumber,
        places: &mut Places<'_>,
    ) -> Result<Option<Arc<Segment>>> {
        self.shared().attach(table, described, files, from, places)
    }

    /// Becomes another database than the one that this data is a copy of: its files are that one's from now on, and what is
    /// written has a name of its own. How many segments have such files.
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

    /// Takes objects of other databases for this one's: what no segment names is swept as its own.
    pub fn adopt(&self, table: &Table, adopted: &[Adopted]) -> Result<()> {
        let mut all = table.adopted();
        all.extend(adopted.iter().filter(|of| !table.adopted().contains(of)).cloned());
        let row = table
            .row(table.spec().as_ref().clone(), table.policy_changed())
            .with_adopted(all.clone());
        self.shared().edit_and(
            |manifest| {
                if !manifest.common.tables.contains_key(&table.id()) {
                    return Err(StoreError::TableDropped(table.id()));
                }
                manifest.common.tables.insert(table.id(), row.clone());
                Ok(vec![put_table(&row)])
            },
            |_| {},
        )?;
        table.set_adopted(all);
        Ok(())
    }
}

/// What was loaded, counted on its way.
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
        places: &mut Places<'_>,
    ) -> Result<Option<Arc<Segment>>> {
        let manifest = Arc::clone(&self.state.read().manifest);
        if is_attached(&manifest, table.id(), &files) {
            return Ok(None);
        }
        check_clash(&manifest, table, described)?;
        let window = self.attached_window(described)?;
        let place = self.place(&manifest, table.id(), Tier::Archive, window, files.bytes());
        drop(manifest);
        let mut loaded = Loaded {
            totals: SegmentTotals::default(),
            timeline: None,
        };
        let bits = bucket_bits(described.chunks * PLACE_BYTES, self.settings.bucket_bytes);
        let made = around("attach", "load", || {
            let mut rows = places.map(|next| {
                let (id, extent) = next.map_err(|error| BackendError::corrupt(error.to_string()))?;
                loaded.count(id, &extent);
                Ok(row(id, &extent, &[]))
            });
            load_buckets(self.backend.as_ref(), place, bits, &mut rows)?;
            let (backend, stamps) = (self.backend.as_ref(), self.log.stamps());
            let rows = table.schema().write_rows(backend, stamps, Durability::Synced)?;
            table.schema().synced(&rows);
            Ok(())
        });
        let mut totals = loaded.totals;
        if made.is_err() || totals.chunks == 0 {
            self.reclaim_abandoned(place);
            return made.map(|()| None);
        }
        totals.bytes = files.bytes();
        let newest = totals.last;
        let deletes_applied = described.deletes_from().max(from);
        let segment = Segment::new(
            place,
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
                self.reclaim_abandoned(place);
                return Err(error);
            }
        };
        let edited = around("attach", "edit", || self.add_attached(table, &segment));
        if let Err(error) = edited {
            // After an unknown outcome it may be in the manifest: only a start can tell orphans then.
            if matches!(error, StoreError::Clash { .. } | StoreError::TableDropped(_)) {
                self.reclaim_abandoned(place);
            }
            return Err(error);
        }
        self.log.note_newest(newest);
        // Of its timelines more is stored now than was remembered.
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

    /// The described window, where it holds the points by the width of windows here; else the narrowest one that does.
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

/// Whether a table has the files of a segment.
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
