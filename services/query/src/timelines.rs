//! Reads the points of timelines one after another, within the budget of a query.

use std::ops::ControlFlow;

use tideline_engine::model::TimelineId;
use tideline_engine::points::{ColumnSummary, Run};
use tideline_engine::points::{Grid, Part, ZoneFilter};
use tideline_engine::points::{ReadCost, ScanReader, Selection};

use crate::error::Result;
use crate::querier::{Context, Metered};

/// Reader that charges its points to the query, run by run, and counts its cold bytes against the read-rate limit.
pub(crate) struct TimelineReader<'r> {
    context: &'r Context<'r>,
    reader: ScanReader<'r>,
    /// Cold bytes already counted against the read-rate limit.
    metered: Metered,
}

impl<'r> TimelineReader<'r> {
    /// Creates a reader of a selection. Points that `zone_filter` does not admit may be omitted.
    pub(crate) fn new(
        context: &'r Context<'r>,
        selection: Selection<'r>,
        zone_filter: Option<&'r dyn ZoneFilter>,
    ) -> Self {
        Self {
            context,
            reader: context.snapshot.reader(selection).with_zone_filter(zone_filter),
            metered: Metered::default(),
        }
    }

    /// Passes the points of one timeline to `visit`, run by run, until `visit` breaks or fails.
    pub(crate) fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let watch = self.context.watch;
        watch.check()?;
        let mut failure = None;
        self.reader.timeline(id, &mut |run| {
            let flow = watch.charge(run).and_then(|()| visit(run));
            Ok(flow.unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            }))
        })?;
        match failure {
            Some(error) => Err(error),
            None => self.context.meter(&mut self.metered, &self.reader.cost()),
        }
    }

    /// Passes the points of one timeline to `visit` like [`timeline`](Self::timeline). A stored summary may replace the
    /// points of a time span if it is exact in every window of `grid`. The order of the parts is unspecified.
    pub(crate) fn summarized(
        &mut self,
        id: TimelineId,
        grid: Grid,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let watch = self.context.watch;
        watch.check()?;
        let before = self.reader.cost().total().summaries;
        let (mut failure, mut known) = (None, 0);
        self.reader.timeline_summarized(id, grid, &mut |part| {
            let charged = match &part {
                Part::Run(run) => watch.charge(run),
                Part::Summaries(_, of_field) => {
                    let is_known = |summary: &&ColumnSummary| matches!(summary, ColumnSummary::Known(_));
                    known += of_field.iter().filter(is_known).count() as u64;
                    Ok(())
                }
            };
            let flow = charged.and_then(|()| visit(part));
            Ok(flow.unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            }))
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        let cost = self.reader.cost();
        watch.add(cost.total().summaries - before, known)?;
        self.context.meter(&mut self.metered, &cost)
    }

    /// Returns the cost of the reads so far.
    pub(crate) fn cost(&self) -> ReadCost {
        self.reader.cost()
    }
}
