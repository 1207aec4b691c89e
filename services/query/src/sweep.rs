//! Points for whoever makes something of them that no question here asks for: read in the lane of a query, on its worker
//! threads, within its budget.

use std::ops::ControlFlow;

use rayon::prelude::*;
use tideline_engine::model::{FieldId, TimeRange, TimelineId};
use tideline_engine::points::Run;
use tideline_engine::points::{Grid, Part};
use tideline_engine::points::{Order, Selection};

use crate::error::Result;
use crate::querier::Context;
use crate::timelines::TimelineReader;

/// Fewer timelines than this are not shared out: waking a worker costs as much as reading some.
const SHARE_TIMELINES_MIN: usize = 8;
/// From so many timelines on, a worker has several shares: what they cost differs.
const FINE_TIMELINES_MIN: usize = 1_024;
/// Shares of a worker then.
const FINE_SHARES: usize = 4;

/// The points of a range, at one moment.
pub struct Sweep<'a> {
    context: &'a Context<'a>,
    range: TimeRange,
}

/// Reads timelines one after another, in rising order of ids.
pub struct PointReader<'r> {
    reader: TimelineReader<'r>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(context: &'a Context<'a>, range: TimeRange) -> Self {
        Self { context, range }
    }

    /// Hands shares of `items` to `work`, each with a reader of its timelines, on as many threads as there are workers.
    ///
    /// `items` are in rising order of the ids that `id` says. Read are those of `fields` only. The first failure ends all.
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
    /// Hands the points of one timeline to `visit`, run by run by rising time, until it breaks or fails. The run is a reused
    /// buffer; it may have rows without any of the wanted fields.
    pub fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.reader.timeline(id, visit)
    }

    /// The same where what stretches of time come to may take the place of their points, wherever that is stored and exact
    /// in every window of `grid`. Parts come in no order.
    pub fn timeline_summarized(
        &mut self,
        id: TimelineId,
        grid: Grid,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.reader.summarized(id, grid, visit)
    }
}
