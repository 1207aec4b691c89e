//! Pieces of one timeline that overlap in time, put together: as rows, or as summaries where those are exact.
//!
//! A piece that stands alone is decoded straight into one reused buffer; several are merged first.

use std::ops::ControlFlow;

use tideline_chunk::{Chunk, ColumnSummary, Run, Summaries};
use tideline_model::{FieldId, TimelineId};

use super::Order;
use super::cost::ReadCost;
use super::cover::{Cover, Grid};
use super::piece::{Buffer, Piece, PieceData, Wanted};
use super::screen::{Screen, ScreenReader};
use crate::error::{Result, StoreError};

/// What a read for aggregates hands out.
#[derive(Debug, Clone, Copy)]
pub enum Part<'r> {
    /// Points.
    Run(&'r Run),
    /// What values of one field and type come to, one stretch of time after another, instead of their points. The
    /// instants of each known one lie in one window of the grid; the others stand for nothing.
    Summaries(FieldId, &'r [ColumnSummary]),
}

/// Takes points; `Break` ends the read.
pub(super) type VisitRun<'v> = &'v mut dyn FnMut(&Run) -> Result<ControlFlow<()>>;
/// Takes points or summaries; `Break` ends the read.
pub(super) type VisitPart<'v> = &'v mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>;

/// Reads clusters of pieces, one after another.
#[derive(Debug, Default)]
pub(super) struct ClusterReader {
    buffer: Buffer,
    cover: Cover,
    screen: ScreenReader,
    /// The summaries of the columns of one field.
    columns: Vec<Vec<ColumnSummary>>,
    /// Which pieces of the cluster something was taken from.
    taken: Vec<bool>,
    pub(super) cost: ReadCost,
}

impl ClusterReader {
    /// Hands out the rows of a cluster as at most one run.
    pub(super) fn rows(
        &mut self,
        id: TimelineId,
        pieces: &[Piece],
        wanted: Wanted<'_>,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(pieces.len());
        self.stretch(id, pieces, wanted, visit)
    }

    /// Hands out the rows of a cluster that a screen admits, as far as it can tell, in runs by the order of time.
    pub(super) fn screened(
        &mut self,
        id: TimelineId,
        pieces: &[Piece],
        wanted: Wanted<'_>,
        screen: &dyn Screen,
        order: Order,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(pieces.len());
        let mut reader = std::mem::take(&mut self.screen);
        let admitted = match pieces {
            [piece] => match &piece.data {
                PieceData::Chunk(bytes) => {
                    let chunk = Chunk::open_trusted(bytes).map_err(|cause| StoreError::chunk(id, cause))?;
                    reader.admitted(&chunk, wanted.range, screen)
                }
                PieceData::Open(_) | PieceData::Archived(..) | PieceData::Read(..) => None,
            },
            _ => None,
        };
        let admitted = admitted.unwrap_or(std::slice::from_ref(&wanted.range));
        let mut flow = ControlFlow::Continue(());
        for at in 0..admitted.len() {
            let range = admitted[match order {
                Order::Ascending => at,
                Order::Descending => admitted.len() - 1 - at,
            }];
            flow = self.stretch(id, pieces, Wanted { range, ..wanted }, visit)?;
            if flow.is_break() {
                break;
            }
        }
        self.screen = reader;
        Ok(flow)
    }

    /// Hands out summaries wherever they are exact, and the rows of everything else; in no order of time.
    pub(super) fn summarized(
        &mut self,
        id: TimelineId,
        pieces: &[Piece],
        wanted: Wanted<'_>,
        grid: Grid,
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(pieces.len());
        let damaged = |cause| StoreError::chunk(id, cause);
        self.cover.begin();
        for (at, piece) in pieces.iter().enumerate() {
            let PieceData::Chunk(bytes) = &piece.data else {
                continue;
            };
            let chunk = Chunk::open_trusted(bytes).map_err(damaged)?;
            let Some(summaries) = chunk.summaries() else {
                continue;
            };
            if self.cover.offer(pieces, at, summaries.buckets(), wanted, grid)
                && self.columns(&chunk, &summaries, wanted, visit)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            self.count_summaries(pieces, at);
        }
        let mut rest = std::mem::take(&mut self.cover);
        let mut flow = ControlFlow::Continue(());
        for stretch in rest.rest(pieces, wanted.range) {
            let wanted = Wanted {
                range: stretch.range,
                fields: stretch.fields.as_deref().or(wanted.fields),
                ..wanted
            };
            flow = self.stretch(id, pieces, wanted, &mut |run| visit(Part::Run(run)))?;
            if flow.is_break() {
                break;
            }
        }
        self.cover = rest;
        Ok(flow)
    }

    /// Decodes one piece by itself; `None` where nothing of it is wanted. Costs nothing.
    pub(super) fn take(&mut self, id: TimelineId, piece: &Piece, wanted: Wanted<'_>) -> Result<Option<&Run>> {
        let found = self.buffer.take(piece, wanted);
        let found = found.map_err(|cause| StoreError::chunk(id, cause))?;
        Ok(found.then_some(&self.buffer.run))
    }

    fn begin(&mut self, pieces: usize) {
        self.taken.clear();
        self.taken.resize(pieces, false);
    }

    /// Hands out the rows of a stretch of the cluster.
    fn stretch(
        &mut self,
        id: TimelineId,
        pieces: &[Piece],
        wanted: Wanted<'_>,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        let Self {
            buffer, taken, cost, ..
        } = self;
        let damaged = |cause| StoreError::chunk(id, cause);
        let mut count = |at: usize, run: &Run| {
            if !std::mem::replace(&mut taken[at], true) {
                cost.count_piece(&pieces[at]);
            }
            cost.count_rows(pieces[at].tier, run);
        };
        if let [piece] = pieces {
            if !buffer.take(piece, wanted).map_err(damaged)? {
                return Ok(ControlFlow::Continue(()));
            }
            count(0, &buffer.run);
            return visit(&buffer.run);
        }
        let merged = buffer.merge(pieces, wanted, count).map_err(damaged)?;
        if merged.timestamps.is_empty() {
            Ok(ControlFlow::Continue(()))
        } else {
            visit(&merged)
        }
    }

    /// Hands out the summaries of the wanted columns of a chunk, field by field.
    fn columns(
        &mut self,
        chunk: &Chunk<'_>,
        summaries: &Summaries<'_>,
        wanted: Wanted<'_>,
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut columns = chunk.columns_of(wanted.fields).peekable();
        while let Some(column) = columns.next() {
            let field = column.field();
            let mut count = 0;
            let mut next = Some(column);
            while let Some(column) = next {
                if count == self.columns.len() {
                    self.columns.push(Vec::new());
                }
                summaries.column(field, column.value_type(), &mut self.columns[count]);
                count += 1;
                next = columns.next_if(|column| column.field() == field);
            }
            let columns = &mut self.columns[..count];
            self.cover.settle(field, columns);
            for column in columns.iter().filter(|column| !column.is_empty()) {
                if visit(Part::Summaries(field, column))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts the stretches of a piece that summaries stand for.
    fn count_summaries(&mut self, pieces: &[Piece], at: usize) {
        for points in self.cover.summarized() {
            if !std::mem::replace(&mut self.taken[at], true) {
                self.cost.count_piece(&pieces[at]);
            }
            self.cost.count_summary(pieces[at].tier, points);
        }
    }
}
