//! Merges fragments of one timeline that overlap in time: as rows, or as summaries where summaries are exact.
//!
//! A single fragment is decoded directly into one reused buffer. Several fragments are decoded one by one and merged.

use std::ops::ControlFlow;

use tideline_chunk::{Chunk, ColumnSummary, LoneSummaries, Run, Summaries};
use tideline_model::{FieldId, TimeRange, TimelineId, ValueType};

use super::Order;
use super::cost::ReadCost;
use super::fragment::{Buffer, Fragment, FragmentData, Wanted};
use super::summary_push_down::{Grid, SummaryPushDown};
use super::zone_filter::{ZoneFilter, ZoneFilterReader};
use crate::error::{Result, StoreError};

/// Part of the result of a read for aggregates.
#[derive(Debug, Clone, Copy)]
pub enum Part<'r> {
    /// Points.
    Run(&'r Run),
    /// Summaries of one field and type, one per time bucket, instead of the points. The points of each summary are in
    /// one window of the grid. [`ColumnSummary::Empty`]: the bucket has no values, or its values are passed as points.
    Summaries(FieldId, &'r [ColumnSummary]),
}

/// Callback for points. `Break` ends the read.
pub(super) type VisitRun<'v> = &'v mut dyn FnMut(&Run) -> Result<ControlFlow<()>>;
/// Callback for points or summaries. `Break` ends the read.
pub(super) type VisitPart<'v> = &'v mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>;

/// Access to rows in archive files.
pub(super) trait ReadFiles {
    /// Reads the rows of the fragments that overlap a time range, unless they are already read.
    fn read(&mut self, fragments: &mut [Fragment], range: TimeRange) -> Result<()>;
}

/// Reader of overlap groups of fragments.
#[derive(Debug, Default)]
pub(super) struct OverlapGroupReader {
    buffer: Buffer,
    push_down: SummaryPushDown,
    zone_filter_reader: ZoneFilterReader,
    /// Summaries of the columns of one field.
    columns: Vec<Vec<ColumnSummary>>,
    /// True for each fragment of the overlap group from which rows or summaries were read.
    was_read: Vec<bool>,
    pub(super) cost: ReadCost,
}

impl OverlapGroupReader {
    /// Passes the rows of an overlap group to `visit` as at most one run.
    pub(super) fn rows(
        &mut self,
        id: TimelineId,
        fragments: &[Fragment],
        wanted: Wanted<'_>,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(fragments.len());
        self.span(id, fragments, wanted, visit)
    }

    /// Passes to `visit` all rows of an overlap group that the summaries cannot exclude for a zone filter, in runs in
    /// the given order. The rows include all rows that match the filter.
    pub(super) fn filtered(
        &mut self,
        id: TimelineId,
        fragments: &[Fragment],
        wanted: Wanted<'_>,
        zone_filter: &dyn ZoneFilter,
        order: Order,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(fragments.len());
        let mut reader = std::mem::take(&mut self.zone_filter_reader);
        let admitted = match fragments {
            [fragment] => match &fragment.data {
                FragmentData::Chunk(bytes) => {
                    let chunk = Chunk::open_trusted(bytes).map_err(|cause| StoreError::chunk(id, cause))?;
                    reader.admitted(&chunk, wanted.range, zone_filter)
                }
                FragmentData::Open(_) | FragmentData::Archived(..) | FragmentData::Read(..) => None,
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
            flow = self.span(id, fragments, Wanted { range, ..wanted }, visit)?;
            if flow.is_break() {
                break;
            }
        }
        self.zone_filter_reader = reader;
        Ok(flow)
    }

    /// Passes summaries to `visit` where they are exact, and rows elsewhere, in unspecified time order. Reads a
    /// fragment from `files` only if its rows are needed.
    pub(super) fn summarized(
        &mut self,
        id: TimelineId,
        fragments: &mut [Fragment],
        files: &mut dyn ReadFiles,
        (wanted, grid): (Wanted<'_>, Grid),
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin(fragments.len());
        let damaged = |cause| StoreError::chunk(id, cause);
        self.push_down.begin();
        for at in 0..fragments.len() {
            let flow = match &fragments[at].data {
                FragmentData::Chunk(bytes) => {
                    let chunk = Chunk::open_trusted(bytes).map_err(damaged)?;
                    let Some(summaries) = chunk.summaries() else {
                        continue;
                    };
                    let columns = chunk.columns_of(wanted.fields);
                    let columns = columns.map(|column| (column.field(), column.value_type()));
                    self.offered(fragments, at, (&summaries, columns), wanted, grid, visit)?
                }
                FragmentData::Archived(rows) if !rows.summaries.is_empty() => {
                    let lone = LoneSummaries::open(&rows.summaries).map_err(damaged)?;
                    let is_wanted =
                        |field: FieldId| wanted.fields.is_none_or(|fields| fields.contains(&field));
                    let columns = lone.columns().filter(|(field, _)| is_wanted(*field));
                    self.offered(fragments, at, (lone.summaries(), columns), wanted, grid, visit)?
                }
                FragmentData::Open(_) | FragmentData::Archived(_) | FragmentData::Read(..) => continue,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        let mut rest = std::mem::take(&mut self.push_down);
        let mut flow = ControlFlow::Continue(());
        for span in rest.rest(fragments, wanted.range) {
            files.read(fragments, span.range)?;
            let wanted = Wanted {
                range: span.range,
                fields: span.fields.as_deref().or(wanted.fields),
                ..wanted
            };
            flow = self.span(id, fragments, wanted, &mut |run| visit(Part::Run(run)))?;
            if flow.is_break() {
                break;
            }
        }
        self.push_down = rest;
        Ok(flow)
    }

    /// Passes the summaries of a fragment to `visit` where they can replace its rows.
    fn offered(
        &mut self,
        fragments: &[Fragment],
        at: usize,
        (summaries, columns): (&Summaries<'_>, impl Iterator<Item = (FieldId, ValueType)>),
        wanted: Wanted<'_>,
        grid: Grid,
        visit: VisitPart<'_>,
    ) -> Result<ControlFlow<()>> {
        if self
            .push_down
            .offer(fragments, at, summaries.buckets(), wanted, grid)
            && self.columns(columns, summaries, visit)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        self.count_summaries(fragments, at);
        Ok(ControlFlow::Continue(()))
    }

    /// Decodes one fragment alone, without counting its cost; `None` if the fragment has no wanted rows.
    pub(super) fn take(
        &mut self,
        id: TimelineId,
        fragment: &Fragment,
        wanted: Wanted<'_>,
    ) -> Result<Option<&Run>> {
        let found = self.buffer.take(fragment, wanted);
        let found = found.map_err(|cause| StoreError::chunk(id, cause))?;
        Ok(found.then_some(&self.buffer.run))
    }

    fn begin(&mut self, fragments: usize) {
        self.was_read.clear();
        self.was_read.resize(fragments, false);
    }

    /// Passes the rows of a time range of the overlap group to `visit`.
    fn span(
        &mut self,
        id: TimelineId,
        fragments: &[Fragment],
        wanted: Wanted<'_>,
        visit: VisitRun<'_>,
    ) -> Result<ControlFlow<()>> {
        let Self {
            buffer,
            was_read,
            cost,
            ..
        } = self;
        let damaged = |cause| StoreError::chunk(id, cause);
        let mut count = |at: usize, run: &Run| {
            if !std::mem::replace(&mut was_read[at], true) {
                cost.count_fragment(&fragments[at]);
            }
            cost.count_rows(fragments[at].tier, run);
        };
        if let [fragment] = fragments {
            if !buffer.take(fragment, wanted).map_err(damaged)? {
                return Ok(ControlFlow::Continue(()));
            }
            count(0, &buffer.run);
            return visit(&buffer.run);
        }
        let merged = buffer.merge(fragments, wanted, count).map_err(damaged)?;
        if merged.timestamps.is_empty() {
            Ok(ControlFlow::Continue(()))
        } else {
            visit(&merged)
        }
    }

    /// Passes the summaries of wanted columns to `visit`, field by field.
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
            self.push_down.settle(field, columns);
            for column in columns.iter().filter(|column| !column.is_empty()) {
                if visit(Part::Summaries(field, column))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Counts the buckets of a fragment whose summaries replace rows.
    fn count_summaries(&mut self, fragments: &[Fragment], at: usize) {
        for points in self.push_down.summarized() {
            if !std::mem::replace(&mut self.was_read[at], true) {
                self.cost.count_fragment(&fragments[at]);
            }
            self.cost.count_summary(fragments[at].tier, points);
        }
    }
}
