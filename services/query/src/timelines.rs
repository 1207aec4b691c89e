//! Reading the points of timelines one after another, within the budget of a query.

use std::ops::ControlFlow;

use tideline_engine::model::TimelineId;
use tideline_engine::points::{ColumnSummary, Run};
use tideline_engine::points::{Grid, Part, Screen};
use tideline_engine::points::{ReadCost, Selection, SweepReader};

use crate::error::Result;
use crate::querier::Context;

/// A reader whose points are charged to the query, run by run, and whose cold bytes to the rate of cold reads.
pub(crate) struct TimelineReader<'r> {
    context: &'r Context<'r>,
    reader: SweepReader<'r>,
    /// Bytes that the rate has been charged.
    metered: u64,
}

impl<'r> TimelineReader<'r> {
    /// Reads a selection. What `screen` does not admit may be left out.
    pub(crate) fn new(
        context: &'r Context<'r>,
        selection: Selection<'r>,
        screen: Option<&'r dyn Screen>,
    ) -> Self {
        Self {
            context,
            reader: context.snapshot.reader(selection).screened(screen),
            metered: 0,
        }
    }

    /// Hands the points of one timeline to `visit`, run by run, until it breaks or fails.
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

    /// As [`timeline`](Self::timeline), but what stretches of time come to may take the place of their points, wherever that
    /// is stored and exact in every window of `grid`. Parts come in no order.
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

    /// What was read so far.
    pub(crate) fn cost(&self) -> ReadCost {
        self.reader.cost()
    }
}
