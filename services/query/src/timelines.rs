//! Reading the points of timelines one after another, within the budget of a query.

use std::ops::ControlFlow;

use tideline_chunk::Run;
use tideline_model::TimelineId;
use tideline_series_store::scan::Screen;
use tideline_series_store::{ReadCost, Selection, SweepReader};

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

    /// What was read so far.
    pub(crate) fn cost(&self) -> ReadCost {
        self.reader.cost()
    }
}
