//! Pieces of one timeline that overlap in time, put together: as rows, or as summaries where those are exact.
//!
//! A piece that stands alone is decoded straight into one reused buffer; several are merged first.

use std::ops::ControlFlow;

use tideline_chunk::{Chunk, ColumnSummary, LoneSummaries, Run, Summaries};
use tideline_model::{FieldId, TimeRange, TimelineId, ValueType};

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

/// Reads rows that are in files.
pub(super) trait ReadFiles {
    /// Reads those of pieces that reach into a range, if that was not done yet.
    fn read(&mut self, pieces: &mut [Piece], range: TimeRange) -> Result<()>;
}

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

    /// Hands out summaries wherever they are exact, and the rows of everything else; in no order of time. Of `files` only
    /// those rows are read.
    pub(super) fn summarized(
        &mut self,
        id: TimelineId,
        pieces: &mut [Piece],
        files: &mut dyn ReadFiles,
        (wanted, grid): (Wanted<'_>, Grid),
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(pieces.len());
        let damaged = |cause| StoreError::chunk(id, cause);
        self.cover.begin();
        for at in 0..pieces.len() {
            let flow = match &pieces[at].data {
                PieceData::Chunk(bytes) => {
                    let chunk = Chunk::open_trusted(bytes).map_err(damaged)?;
                    let Some(summaries) = chunk.summaries() else {
                        continue;
                    };
                    let columns = chunk.columns_of(wanted.fields);
                    let columns = columns.map(|column| (column.field(), column.value_type()));
                    self.offered(pieces, at, (&summaries, columns), wanted, grid, visit)?
                }
                PieceData::Archived(rows) if !rows.summaries.is_empty() => {
                    let lone = LoneSummaries::open(&rows.summaries).map_err(damaged)?;
                    let is_wanted =
                        |field: FieldId| wanted.fields.is_none_or(|fields| fields.contains(&field));
                    let columns = lone.columns().filter(|(field, _)| is_wanted(*field));
                    self.offered(pieces, at, (lone.summaries(), columns), wanted, grid, visit)?
                }
                PieceData::Open(_) | PieceData::Archived(_) | PieceData::Read(..) => continue,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        let mut rest = std::mem::take(&mut self.cover);
        let mut flow = ControlFlow::Continue(());
        for stretch in rest.rest(pieces, wanted.range) {
            files.read(pieces, stretch.range)?;
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

    /// Takes the summaries of a piece where they may stand for its rows.
    fn offered(
        &mut self,
        pieces: &[Piece],
        at: usize,
        (summaries, columns): (&Summaries<'_>, impl Iterator<Item = (FieldId, ValueType)>),
        wanted: Wanted<'_>,
        grid: Grid,
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        if self.cover.offer(pieces, at, summaries.buckets(), wanted, grid)
            && self.columns(columns, summaries, visit)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        self.count_summaries(pieces, at);
        Ok(ControlFlow::Continue(()))
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

    /// Hands out the summaries of wanted columns, field by field.
    fn columns(
        &mut self,
        columns: impl Iterator<Item = (FieldId, ValueType)>,
        summaries: &Summaries<'_>,
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut columns = columns.peekable();
        while let Some((field, value_type)) = columns.next() {
            let mut count = 0;
            let mut next = Some((field, value_type));
            while let Some((_, value_type)) = next {
                if count == self.columns.len() {
                    self.columns.push(Vec::new());
                }
                summaries.column(field, value_type, &mut self.columns[count]);
                count += 1;
                next = columns.next_if(|(other, _)| *other == field);
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
