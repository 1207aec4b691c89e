//! Fragments: points of one timeline in one source, and their decoding.
//!
//! A fragment is a chunk of a segment, rows of an archive file, a block of a head, or the open rows of a head. The
//! fragments of one timeline come from many sources. Each fragment has the rank of its source (a source of higher rank
//! was written later) and the sequence below which all deletes are applied to it. Readers and compactions share this
//! code.

use std::ops::Range;

use bytes::Bytes;
use tideline_archive::Extent;
use tideline_chunk::{Bitmap, Chunk, ChunkError, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, SequenceNumber, Tier, TimeRange, ValueType};
use tideline_runtime::background;

use crate::deletes::{Mask, apply, rows_in};
use crate::merge::{Part, Priority, merge, slice};

/// Points of a timeline in one source, or a part of them.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rank: u64,
    pub(crate) tier: Tier,
    /// First sequence of deletes that may still have to be applied.
    pub(crate) deletes_from: SequenceNumber,
    pub(crate) data: FragmentData,
}

/// Data of a fragment.
#[derive(Debug)]
pub(crate) enum FragmentData {
    Chunk(Bytes),
    Open(Run),
    /// Rows in a file. They must be read before use.
    Archived(ArchivedRows),
    /// Rows read from a file, and their approximate bytes in the file.
    Read(Run, u64),
}

/// Location of rows in a file, and their summaries.
#[derive(Debug)]
pub(crate) struct ArchivedRows {
    pub(crate) extent: Extent,
    /// Approximate bytes of the rows in the file.
    pub(crate) bytes: u64,
    /// Encoded [`LoneSummaries`](tideline_chunk::LoneSummaries) of the rows; may be empty.
    pub(crate) summaries: Bytes,
}

/// Decoding buffer, reused for each chunk.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) run: Run,
    bitmap: Bitmap,
}

/// Part of the fragments to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) range: TimeRange,
    /// Fields; `None` = all.
    pub(crate) fields: Option<&'a [FieldId]>,
    /// Deletes of the timeline.
    pub(crate) masks: &'a [Mask],
}

impl Fragment {
    /// Returns the half-open time range.
    pub(crate) fn range(&self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Returns true if deletes may hide points of the fragment.
    pub(crate) fn is_masked(&self, masks: &[Mask]) -> bool {
        self.is_masked_in(masks, self.range())
    }

    /// Returns true if deletes may hide points of the fragment in a time range.
    pub(crate) fn is_masked_in(&self, masks: &[Mask], range: TimeRange) -> bool {
        masks
            .iter()
            .any(|mask| mask.sequence >= self.deletes_from && mask.range.overlaps(&range))
    }

    /// Returns the encoded size in bytes: of a chunk, of the summaries of unread archived rows, or of read rows in
    /// their file; 0 for open rows.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.data {
            FragmentData::Chunk(bytes) => bytes.len() as u64,
            FragmentData::Open(_) => 0,
            FragmentData::Archived(rows) => rows.summaries.len() as u64,
            FragmentData::Read(_, bytes) => *bytes,
        }
    }
}

impl Buffer {
    /// Decodes the wanted part of a fragment. Returns false if that part is empty.
    pub(crate) fn take(&mut self, fragment: &Fragment, wanted: Wanted<'_>) -> Result<bool, ChunkError> {
        let found = match &fragment.data {
            FragmentData::Chunk(bytes) => self.decode(bytes, wanted)?,
            FragmentData::Open(run) | FragmentData::Read(run, _) => self.project(run, wanted),
            FragmentData::Archived(..) if !fragment.range().overlaps(&wanted.range) => false,
            // Archived fragments must be read from their files before this call.
            FragmentData::Archived(..) => return Err(ChunkError::Malformed("its file was not read")),
        };
        Ok(found
            && (!fragment.is_masked(wanted.masks)
                || apply(&mut self.run, wanted.masks, fragment.deletes_from)))
    }

    /// Decodes the wanted parts of overlapping fragments and merges them by rank.
    ///
    /// Calls `decoded` with the index and the decoded run of every fragment that has wanted rows.
    pub(crate) fn merge(
        &mut self,
        fragments: &[Fragment],
        wanted: Wanted<'_>,
        mut decoded: impl FnMut(usize, &Run),
    ) -> Result<Run, ChunkError> {
        let mut runs = Vec::with_capacity(fragments.len());
        for (at, fragment) in fragments.iter().enumerate() {
            if self.take(fragment, wanted)? {
                decoded(at, &self.run);
                runs.push((fragment.rank, std::mem::take(&mut self.run)));
            }
        }
        if runs.len() == 1 {
            return Ok(runs.pop().map(|(_, run)| run).unwrap_or_default());
        }
        let parts: Vec<Part<'_>> = runs
            .iter()
            .map(|(rank, run)| Part {
                run,
                priority: Priority::All(*rank),
            })
            .collect();
        Ok(merge(&parts))
    }

    fn decode(&mut self, bytes: &[u8], wanted: Wanted<'_>) -> Result<bool, ChunkError> {
        let chunk = Chunk::open_trusted(bytes)?;
        let rows = chunk.row_range(wanted.range);
        let mut columns = chunk.columns_of(wanted.fields).peekable();
        if rows.is_empty() || columns.peek().is_none() {
            return Ok(false);
        }
        let Self { run, bitmap } = self;
        run.timestamps.clear();
        chunk.timestamps().decode(rows.clone(), &mut run.timestamps);
        let mut filled = 0;
        for info in columns {
            let column = reused(&mut run.columns, filled, info.field(), info.value_type());
            chunk.decode(&info, rows.clone(), &mut column.values, bitmap)?;
            column.presence = if info.is_dense() {
                Presence::All
            } else {
                Presence::Some(std::mem::take(bitmap))
            };
            filled += 1;
            background::yield_core_after(rows.len());
        }
        run.columns.truncate(filled);
        Ok(true)
    }

    fn project(&mut self, run: &Run, wanted: Wanted<'_>) -> bool {
        let rows = rows_in(run, wanted.range);
        if rows.is_empty() {
            return false;
        }
        self.run = slice(run, rows);
        if let Some(fields) = wanted.fields {
            self.run.columns.retain(|column| fields.contains(&column.field));
        }
        !self.run.columns.is_empty()
    }
}

/// Returns the column at an index of the buffer, with storage for the given type.
fn reused(columns: &mut Vec<RunColumn>, at: usize, field: FieldId, value_type: ValueType) -> &mut RunColumn {
    if at == columns.len() {
        columns.push(RunColumn {
            field,
            presence: Presence::All,
            values: ColumnData::new(value_type),
        });
    }
    let column = &mut columns[at];
    column.field = field;
    if column.values.value_type() != value_type {
        column.values = ColumnData::new(value_type);
    }
    column
}

/// Divides fragments, which must be sorted by first timestamp, into groups that do not overlap each other in time.
pub(crate) fn overlap_groups(fragments: &[Fragment]) -> Vec<Range<usize>> {
    let mut overlap_groups: Vec<Range<usize>> = Vec::new();
    let mut reach = i64::MIN;
    for (at, fragment) in fragments.iter().enumerate() {
        match overlap_groups.last_mut() {
            Some(open) if fragment.first <= reach => open.end = at + 1,
            _ => overlap_groups.push(at..at + 1),
        }
        reach = reach.max(fragment.last);
    }
    overlap_groups
}
