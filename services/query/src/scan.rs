//! Parallel raw scan of points for other evaluators, such as PromQL.
//!
//! The scan runs in the thread pools and within the budgets of queries.

use std::ops::ControlFlow;

use rayon::prelude::*;
use tideline_engine::model::{FieldId, TimeRange, TimelineId};
use tideline_engine::points::Run;
use tideline_engine::points::{Grid, Part};
use tideline_engine::points::{Order, Selection};

use crate::error::Result;
use crate::querier::Context;
use crate::timelines::TimelineReader;

/// Minimum number of timelines per share: waking a worker costs as much as reading a few timelines.
const SHARE_TIMELINES_MIN: usize = 8;
/// Number of timelines from which on each worker gets several shares. Shares differ in cost, and smaller shares balance
/// the workers.
const FINE_TIMELINES_MIN: usize = 1_024;
/// Number of shares per worker for at least [`FINE_TIMELINES_MIN`] timelines.
const FINE_SHARES: usize = 4;

/// Parallel scan of the points of a range in one snapshot.
pub struct Scan<'a> {
    context: &'a Context<'a>,
    range: TimeRange,
}

/// Reader of the points of timelines, one after another in ascending order of id.
pub struct PointReader<'r> {
    reader: TimelineReader<'r>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(context: &'a Context<'a>, range: TimeRange) -> Self {
        Self { context, range }
    }

    /// Splits `items` into shares and calls `work` for each share, with a reader of its timelines. Several shares run
    /// on the worker threads, a single share on the calling thread.
    ///
    /// `items` must be in ascending order of the ids that `id` returns. Only values of `fields` are read.
    ///
    /// # Errors
    ///
    /// Returns the error of a failed call of `work`. Shares that have not started by then are skipped.
    pub fn shares<I: Sync>(
        &self,
        items: &[I],
        id: impl Fn(&I) -> TimelineId + Sync,
        fields: &[FieldId],
        work: impl Fn(&[I], &mut PointReader<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let ids: Vec<TimelineId> = items.iter().map(&id).collect();
        self.context.note_read(&ids);
        let share = |items: &[I]| {
            let ids: Vec<TimelineId> = items.iter().map(&id).collect();
            let selection = Selection {
                table: self.context.table.points().id(),
                timelines: &ids,
                range: self.range,
                fields: Some(fields),
                order: Order::Ascending,
                tier: None,
            };
            let reader = TimelineReader::new(self.context, selection, None);
            work(items, &mut PointReader { reader })
        };
        let threads = self.context.pool.current_num_threads();
        let shares = match items.len() {
            few if few < FINE_TIMELINES_MIN => (few / SHARE_TIMELINES_MIN).clamp(1, threads),
            _ => threads * FINE_SHARES,
        };
        if shares == 1 {
            return share(items);
        }
        let parts: Vec<&[I]> = items.chunks(items.len().div_ceil(shares)).collect();
        self.context
            .pool
            .install(|| parts.into_par_iter().try_for_each(share))
    }
}

impl PointReader<'_> {
    /// Passes the points of one timeline to `visit`, run by run in ascending time order, until `visit` breaks or fails.
    /// The run is a reused buffer; it may have rows without any of the wanted fields.
    ///
    /// # Errors
    ///
    /// Errors of `visit`, of storage, and of the budget of the query.
    pub fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.reader.timeline(id, visit)
    }

    /// Passes the points of one timeline to `visit`, as [`timeline`](Self::timeline) does. A stored summary may replace
    /// the points of a time span if it is exact in every window of `grid`. The order of the parts is unspecified.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`timeline`](Self::timeline).
    pub fn timeline_summarized(
        &mut self,
        id: TimelineId,
        grid: Grid,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.reader.summarized(id, grid, visit)
    }
}
