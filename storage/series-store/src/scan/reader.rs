//! One read: for each timeline, its pieces from all segments and heads, put together in time order.
//!
//! Pieces are chunks of segments, blocks of heads, and open rows, each with the rank of its source: segments
//! in id order, then heads from old to new. A source of higher rank was written later. Pieces that do not
//! overlap in time are decoded straight into one reused buffer; the others are merged first.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use tideline_chunk::{Bitmap, Chunk, ChunkError, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, TimeRange, TimelineId, ValueType};

use super::cursor::SegmentCursor;
use super::{Order, ReadCost, Selection, Snapshot};
use crate::error::{Result, StoreError};
use crate::latest::Seen;
use crate::merge::{Part, Priority, merge, slice};

/// Reads the timelines of a selection, one after another in rising order of ids.
#[derive(Debug)]
pub struct SweepReader<'a> {
    snapshot: &'a Snapshot,
    selection: Selection<'a>,
    cursors: Vec<SegmentCursor>,
    pieces: Vec<Piece>,
    buffer: Buffer,
    cost: ReadCost,
}

#[derive(Debug)]
struct Piece {
    first: i64,
    last: i64,
    rank: u64,
    data: PieceData,
}

#[derive(Debug)]
enum PieceData {
    Chunk(Bytes),
    Open(Run),
}

/// Decoding space, reused from chunk to chunk.
#[derive(Debug, Default)]
struct Buffer {
    run: Run,
    bitmap: Bitmap,
}

impl<'a> SweepReader<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, selection: Selection<'a>) -> Self {
        let page = snapshot.backend().capabilities().page_advice;
        let segments = snapshot
            .state
            .manifest
            .overlapping(selection.table, selection.range);
        let cursors = segments
            .iter()
            .map(|segment| SegmentCursor::new(segment, selection.timelines, page))
            .collect();
        Self {
            snapshot,
            selection,
            cursors,
            pieces: Vec::new(),
            buffer: Buffer::default(),
            cost: ReadCost::default(),
        }
    }

    /// Hands the points of one timeline to `visit`, run by run, until it breaks.
    ///
    /// A run holds the wanted fields only, and only instants of the range; runs do not overlap. Where a
    /// selection names fields, a row may have none of them. The run is a reused buffer: take what you need.
    pub fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.cost.timelines += 1;
        self.gather(id)?;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| (piece.first, piece.rank));
        let mut clusters = clusters(&pieces);
        if self.selection.order == Order::Descending {
            clusters.reverse();
        }
        let mut outcome = Ok(());
        for cluster in clusters {
            match self.cluster(id, &pieces[cluster], visit) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        pieces.clear();
        self.pieces = pieces;
        outcome
    }

    /// The span of a timeline's points in the range of the selection, as wide as the chunks that reach into it.
    pub(super) fn span(&mut self, id: TimelineId) -> Result<Option<Seen>> {
        self.gather(id)?;
        let spans = self.pieces.drain(..).map(|piece| Seen {
            first: piece.first,
            last: piece.last,
        });
        Ok(spans.reduce(|all, span| Seen {
            first: all.first.min(span.first),
            last: all.last.max(span.last),
        }))
    }

    /// What was read so far.
    pub fn cost(&self) -> ReadCost {
        self.cost
    }

    fn gather(&mut self, id: TimelineId) -> Result<()> {
        let (backend, range) = (self.snapshot.backend(), self.selection.range);
        let mut rank = 0;
        for cursor in &mut self.cursors {
            rank += 1;
            let pieces = &mut self.pieces;
            let mut damage = None;
            cursor.chunks(backend, id, range, &mut |bytes| match Chunk::open(&bytes) {
                Ok(chunk) => {
                    let (first, last) = (chunk.first_timestamp(), chunk.last_timestamp());
                    pieces.push(Piece {
                        first,
                        last,
                        rank,
                        data: PieceData::Chunk(bytes),
                    });
                }
                Err(cause) => damage = Some(cause),
            })?;
            if let Some(cause) = damage {
                return Err(damaged(id, cause));
            }
        }
        for head in self.snapshot.heads() {
            let Some(found) = head
                .table(self.selection.table)
                .and_then(|table| table.pieces(id))
            else {
                continue;
            };
            for block in found.blocks {
                rank += 1;
                let data = PieceData::Chunk(block.bytes);
                self.pieces.push(Piece {
                    first: block.first,
                    last: block.last,
                    rank,
                    data,
                });
            }
            if let Some(run) = found.open {
                rank += 1;
                let (first, last) = (run.timestamps[0], run.timestamps[run.rows() - 1]);
                self.pieces.push(Piece {
                    first,
                    last,
                    rank,
                    data: PieceData::Open(run),
                });
            }
        }
        self.pieces
            .retain(|piece| TimeRange::new(piece.first, piece.last + 1).overlaps(&range));
        Ok(())
    }

    fn cluster(
        &mut self,
        id: TimelineId,
        pieces: &[Piece],
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        if let [piece] = pieces {
            return match self.decode(id, piece)? {
                true => visit(&self.buffer.run),
                false => Ok(ControlFlow::Continue(())),
            };
        }
        let mut runs = Vec::with_capacity(pieces.len());
        for piece in pieces {
            if self.decode(id, piece)? {
                runs.push((piece.rank, self.buffer.run.clone()));
            }
        }
        let parts: Vec<Part<'_>> = runs
            .iter()
            .map(|(rank, run)| Part {
                run,
                priority: Priority::All(*rank),
            })
            .collect();
        let merged = merge(&parts);
        if merged.timestamps.is_empty() {
            Ok(ControlFlow::Continue(()))
        } else {
            visit(&merged)
        }
    }

    /// Decodes what is wanted of a piece into the buffer; `false` when that is nothing.
    fn decode(&mut self, id: TimelineId, piece: &Piece) -> Result<bool> {
        let Selection { fields, range, .. } = self.selection;
        let (bytes, found) = match &piece.data {
            PieceData::Chunk(bytes) => {
                let found = self
                    .buffer
                    .decode(bytes, range, fields)
                    .map_err(|cause| damaged(id, cause))?;
                (bytes.len(), found)
            }
            PieceData::Open(run) => (0, self.buffer.project(run, range, fields)),
        };
        if found {
            self.cost.chunks += 1;
            self.cost.bytes += bytes as u64;
            self.cost.points += self.buffer.run.rows() as u64;
            self.cost.values += self.buffer.run.values() as u64;
        }
        Ok(found)
    }
}

impl Buffer {
    fn decode(
        &mut self,
        bytes: &[u8],
        range: TimeRange,
        fields: Option<&[FieldId]>,
    ) -> std::result::Result<bool, ChunkError> {
        let chunk = Chunk::open_trusted(bytes)?;
        let rows = chunk.row_range(range);
        let wanted = |field| fields.is_none_or(|fields| fields.contains(&field));
        if rows.is_empty() || !chunk.columns().any(|column| wanted(column.field())) {
            return Ok(false);
        }
        let Self { run, bitmap } = self;
        run.timestamps.clear();
        chunk.timestamps().decode(rows.clone(), &mut run.timestamps);
        let mut filled = 0;
        for info in chunk.columns().filter(|column| wanted(column.field())) {
            let column = reused(&mut run.columns, filled, info.field(), info.value_type());
            chunk.decode(&info, rows.clone(), &mut column.values, bitmap)?;
            column.presence = if info.is_dense() {
                Presence::All
            } else {
                Presence::Some(std::mem::take(bitmap))
            };
            filled += 1;
        }
        run.columns.truncate(filled);
        Ok(true)
    }

    fn project(&mut self, run: &Run, range: TimeRange, fields: Option<&[FieldId]>) -> bool {
        let rows: Range<usize> = run.timestamps.partition_point(|at| *at < range.start)
            ..run.timestamps.partition_point(|at| *at < range.end);
        if rows.is_empty() {
            return false;
        }
        self.run = slice(run, rows);
        if let Some(fields) = fields {
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
fn clusters(pieces: &[Piece]) -> Vec<Range<usize>> {
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

fn damaged(id: TimelineId, cause: ChunkError) -> StoreError {
    StoreError::Chunk {
        timeline: id.to_string(),
        cause,
    }
}
