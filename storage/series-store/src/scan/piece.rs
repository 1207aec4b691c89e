//! Pieces: what a source has of one timeline, and decoding them.
//!
//! A piece is a chunk of a segment, a block of a head, or open rows. Pieces of one timeline come from many sources;
//! each carries the rank of its source (a higher one was written later) and how far deletes have been applied to
//! it. Readers and rewrites share them.

use std::ops::Range;

use bytes::Bytes;
use tideline_archive::Extent;
use tideline_chunk::{Bitmap, Chunk, ChunkError, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, SequenceNumber, Tier, TimeRange, ValueType};
use tideline_runtime::background;

use crate::deletes::{Mask, apply, rows_in};
use crate::merge::{Part, Priority, merge, slice};

/// What one source has of a timeline, or a part of it.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rank: u64,
    pub(crate) tier: Tier,
    /// The first delete that may still have to be applied to it.
    pub(crate) deletes_from: SequenceNumber,
    pub(crate) data: PieceData,
}

/// The points of a piece.
#[derive(Debug)]
pub(crate) enum PieceData {
    Chunk(Bytes),
    Open(Run),
    /// Rows in a file, to be read before they are taken from.
    Archived(ArchivedRows),
    /// The rows of a file, read; and their bytes there.
    Read(Run, u64),
}

/// Where rows are in a file, and what is known of them without reading it.
#[derive(Debug)]
pub(crate) struct ArchivedRows {
    pub(crate) extent: Extent,
    /// About the bytes that they take there.
    pub(crate) bytes: u64,
    /// What their numbers come to, as [`LoneSummaries`](tideline_chunk::LoneSummaries) reads it; may be empty.
    pub(crate) summaries: Bytes,
}

/// Decoding space, reused from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) run: Run,
    bitmap: Bitmap,
}

/// What is wanted of pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) range: TimeRange,
    /// `None` = all.
    pub(crate) fields: Option<&'a [FieldId]>,
    /// What is hidden of the timeline.
    pub(crate) masks: &'a [Mask],
}

impl Piece {
    /// Its span, half-open.
    pub(crate) fn range(&self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Whether deletes may hide points of it.
    pub(crate) fn is_masked(&self, masks: &[Mask]) -> bool {
        self.is_masked_in(masks, self.range())
    }

    /// Whether deletes may hide points of it in a range.
    pub(crate) fn is_masked_in(&self, masks: &[Mask], range: TimeRange) -> bool {
        masks
            .iter()
            .any(|mask| mask.sequence >= self.deletes_from && mask.range.overlaps(&range))
    }

    /// Encoded bytes at hand; open rows have none.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.data {
            PieceData::Chunk(bytes) => bytes.len() as u64,
            PieceData::Open(_) => 0,
            PieceData::Archived(rows) => rows.summaries.len() as u64,
            PieceData::Read(_, bytes) => *bytes,
        }
    }
}

impl Buffer {
    /// Decodes what is wanted of a piece; `false` when that is nothing.
    pub(crate) fn take(&mut self, piece: &Piece, wanted: Wanted<'_>) -> Result<bool, ChunkError> {
        let found = match &piece.data {
            PieceData::Chunk(bytes) => self.decode(bytes, wanted)?,
            PieceData::Open(run) | PieceData::Read(run, _) => self.project(run, wanted),
            PieceData::Archived(..) if !piece.range().overlaps(&wanted.range) => false,
            // Whoever gathers pieces reads them first.
            PieceData::Archived(..) => return Err(ChunkError::Malformed("its file was not read")),
        };
        Ok(found
            && (!piece.is_masked(wanted.masks) || apply(&mut self.run, wanted.masks, piece.deletes_from)))
    }

    /// Decodes what is wanted of pieces that overlap, oldest write first, and merges it.
    ///
    /// `decoded` hears of every piece, by its place, that something was taken from.
    pub(crate) fn merge(
        &mut self,
        pieces: &[Piece],
        wanted: Wanted<'_>,
        mut decoded: impl FnMut(usize, &Run),
    ) -> Result<Run, ChunkError> {
        let mut runs = Vec::with_capacity(pieces.len());
        for (at, piece) in pieces.iter().enumerate() {
            if self.take(piece, wanted)? {
                decoded(at, &self.run);
                runs.push((piece.rank, std::mem::take(&mut self.run)));
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
            background::give_way_after(rows.len());
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

/// The column at a position of a buffer, with space that fits the type.
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

/// Groups pieces, sorted by their first instant, into stretches that do not overlap each other.
pub(crate) fn clusters(pieces: &[Piece]) -> Vec<Range<usize>> {
    let mut clusters: Vec<Range<usize>> = Vec::new();
    let mut reach = i64::MIN;
    for (at, piece) in pieces.iter().enumerate() {
        match clusters.last_mut() {
            Some(open) if piece.first <= reach => open.end = at + 1,
            _ => clusters.push(at..at + 1),
        }
        reach = reach.max(piece.last);
    }
    clusters
}
