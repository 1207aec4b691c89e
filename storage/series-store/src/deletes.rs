//! Pending deletes: deletes that are not yet applied to all older segments and heads.
//!
//! A delete is a journal entry with timelines, a time range, and a sequence. It hides the points of these timelines in
//! this range that have a lower sequence. The committer removes these points from the active head immediately. Frozen
//! heads and segments are immutable, so readers mask the points, and compactions omit them. A segment stores the
//! sequence below which all deletes are applied to it. A delete is removed when it is applied to every older segment
//! and head, and no segments are being attached to its table.
//!
//! Before the journal that carries a delete is removed, the delete is written as a row of the `DELETES` space.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use tideline_backend::{Backend, Direction, PageLimit, RowChange};
use tideline_chunk::{DeleteRecord, Delta, Run};
use tideline_key_codec::{delete_key, parse_delete_key, space, table_rows};
use tideline_log::Stamps;
use tideline_model::{Durability, SequenceNumber, TableId, TimeRange, TimelineId};

use crate::error::{Result, StoreError};
use crate::manifest::{ManifestState, Segment};
use crate::merge::{concat, slice};

/// Pending deletes of all tables at one moment. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletes(HashMap<TableId, Arc<TableDeletes>>);

/// Pending deletes of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableDeletes {
    /// Deletes, sorted by sequence.
    entries: Vec<Entry>,
    /// Hidden time ranges, sorted by timeline and then by sequence.
    masks: Vec<Mask>,
}

#[derive(Debug, Clone)]
struct Entry {
    sequence: SequenceNumber,
    range: TimeRange,
}

/// Delete of points of one timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mask {
    timeline: TimelineId,
    /// Points with lower sequences are hidden.
    pub(crate) sequence: SequenceNumber,
    /// Time range of the hidden points.
    pub(crate) range: TimeRange,
}

impl Deletes {
    /// Returns the pending deletes of a table; `None` if it has no pending delete.
    pub(crate) fn of(&self, table: TableId) -> Option<&TableDeletes> {
        self.0.get(&table).map(Arc::as_ref)
    }

    /// Adds a delete. Adding the same delete again has no effect.
    pub(crate) fn add(&mut self, table: TableId, sequence: SequenceNumber, record: &DeleteRecord) {
        let of_table = self.0.entry(table).or_default();
        let known = of_table
            .entries
            .binary_search_by_key(&sequence, |entry| entry.sequence);
        if let Err(at) = known {
            let of_table = Arc::make_mut(of_table);
            let entry = Entry {
                sequence,
                range: record.range,
            };
            of_table.entries.insert(at, entry);
            let added = record.timelines.iter().map(|timeline| Mask {
                timeline: *timeline,
                sequence,
                range: record.range,
            });
            of_table.masks.extend(added);
            of_table.masks.sort_by_key(|mask| (mask.timeline, mask.sequence));
        }
    }

    /// Removes the deletes of a table that have these sequences. `sequences` must be sorted.
    pub(crate) fn remove(&mut self, table: TableId, sequences: &[SequenceNumber]) {
        if let Some(of_table) = self.0.get_mut(&table) {
            let of_table = Arc::make_mut(of_table);
            let goes = |sequence: &SequenceNumber| sequences.binary_search(sequence).is_ok();
            of_table.entries.retain(|entry| !goes(&entry.sequence));
            of_table.masks.retain(|mask| !goes(&mask.sequence));
            if of_table.entries.is_empty() {
                self.0.remove(&table);
            }
        }
    }

    /// Removes all deletes of a table.
    pub(crate) fn drop_table(&mut self, table: TableId) {
        self.0.remove(&table);
    }

    /// Returns the sequences of the deletes that are applied to all older segments and heads, by table. `frozen_to` is
    /// the end of the oldest frozen head; `None` without frozen heads.
    pub(crate) fn done(
        &self,
        manifest: &ManifestState,
        frozen_to: Option<SequenceNumber>,
    ) -> Vec<(TableId, Vec<SequenceNumber>)> {
        let of_table = |(table, deletes): (&TableId, &Arc<TableDeletes>)| {
            let is_done = |entry: &&Entry| {
                frozen_to.is_none_or(|end| end > entry.sequence)
                    && !manifest.of_table(*table).any(|segment| entry.concerns(segment))
            };
            let done = deletes.entries.iter().filter(is_done);
            (*table, done.map(|entry| entry.sequence).collect::<Vec<_>>())
        };
        let all = self.0.iter().map(of_table);
        all.filter(|(_, sequences)| !sequences.is_empty()).collect()
    }

    /// Loads the delete rows of a table.
    pub(crate) fn load(&mut self, backend: &dyn Backend, table: TableId) -> Result<()> {
        let (partition, mut range) = table_rows(space::DELETES, table);
        let limit = PageLimit {
            rows_max: 64,
            bytes_max: 4 << 20,
        };
        loop {
            let page = backend.scan(partition, &range, Direction::Ascending, limit)?;
            for row in page.rows {
                let damaged = |reason: String| StoreError::StoredRow {
                    what: "delete row",
                    reason,
                };
                let (_, sequence) =
                    parse_delete_key(&row.key).ok_or_else(|| damaged("key of a wrong length".into()))?;
                let delta = Delta::decode(&row.value).map_err(|cause| damaged(cause.to_string()))?;
                let record = delta.delete.ok_or_else(|| damaged("it deletes nothing".into()))?;
                self.add(table, sequence, &record);
            }
            match page.next {
                Some(next) => range = next,
                None => return Ok(()),
            }
        }
    }
}

impl TableDeletes {
    /// Returns the number of pending deletes.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the sequences of the deletes in increasing order.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.entries.iter().map(|entry| entry.sequence).collect()
    }

    /// Returns the masks of a timeline, sorted by sequence.
    pub(crate) fn masks(&self, id: TimelineId) -> &[Mask] {
        let start = self.masks.partition_point(|mask| mask.timeline < id);
        let length = self.masks[start..].partition_point(|mask| mask.timeline == id);
        &self.masks[start..start + length]
    }

    /// Returns the timelines with a delete that overlaps a segment and is not yet applied to it, in increasing order.
    pub(crate) fn timelines_in(&self, segment: &Segment) -> Vec<TimelineId> {
        let concerned =
            |mask: &&Mask| mask.sequence >= segment.deletes_from() && mask.range.overlaps(&segment.range());
        let mut ids: Vec<_> = self
            .masks
            .iter()
            .filter(concerned)
            .map(|mask| mask.timeline)
            .collect();
        ids.dedup();
        ids
    }

    /// Returns true if a delete may hide points of a segment.
    pub(crate) fn concern(&self, segment: &Segment) -> bool {
        self.entries.iter().any(|entry| entry.concerns(segment))
    }

    /// Returns the sequence after the last delete; `0` without deletes.
    pub(crate) fn end(&self) -> SequenceNumber {
        let last = self.entries.last();
        last.map_or(SequenceNumber(0), |entry| SequenceNumber(entry.sequence.0 + 1))
    }
}

impl Entry {
    fn concerns(&self, segment: &Segment) -> bool {
        self.sequence >= segment.deletes_from() && self.range.overlaps(&segment.range())
    }
}

/// Returns the row change for a delete. `delta` is its journal entry, or `None` to remove the row.
pub(crate) fn row(table: TableId, sequence: SequenceNumber, delta: Option<Bytes>) -> RowChange {
    RowChange {
        key: Bytes::copy_from_slice(&delete_key(table, sequence)),
        value: delta,
    }
}

/// Writes rows in small batches, because each row holds up to a megabyte of ids.
pub(crate) fn write_rows(
    backend: &dyn Backend,
    stamps: &Stamps,
    changes: &[RowChange],
    durability: Durability,
) -> Result<()> {
    let (partition, _) = table_rows(space::DELETES, TableId(0));
    for few in changes.chunks(2) {
        backend.write(partition, few, stamps.next()?, durability)?;
    }
    Ok(())
}

/// Removes the masked rows from a run. Masks with sequences below `from` are already applied to the source of the run.
/// Returns false if a mask would leave no row; the caller must then discard the run.
pub(crate) fn apply(run: &mut Run, masks: &[Mask], from: SequenceNumber) -> bool {
    for mask in masks.iter().filter(|mask| mask.sequence >= from) {
        if !remove_rows(run, mask.range) {
            return false;
        }
    }
    true
}

/// Removes the rows of a time range from a run. Returns false, and leaves the run unchanged, if no row would be left.
pub(crate) fn remove_rows(run: &mut Run, range: TimeRange) -> bool {
    let gone = rows_in(run, range);
    if gone.is_empty() {
        return run.rows() > 0;
    }
    if gone == (0..run.rows()) {
        return false;
    }
    let mut kept = slice(run, 0..gone.start);
    concat(&mut kept, &slice(run, gone.end..run.rows()));
    *run = kept;
    true
}

/// Returns the rows of a run in a time range.
pub(crate) fn rows_in(run: &Run, range: TimeRange) -> Range<usize> {
    run.timestamps.partition_point(|at| *at < range.start)
        ..run.timestamps.partition_point(|at| *at < range.end)
}
