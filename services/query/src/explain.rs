//! Query plans: the work that a query would do, estimated without reading a point.
//!
//! A [`Plan`] is also part of the summary of an executed query.

use tideline_engine::Suggestion;
use tideline_engine::model::{Tier, TimeRange};
use tideline_engine::moves::manifest::Segment;
use tideline_engine::points::UnsealedEstimate;

use crate::aggregate;
use crate::error::Result;
use crate::point_query::{PointQuery, Shape};
use crate::querier::Context;
use crate::rows;

/// Plan of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Timelines to read.
    pub timelines: u64,
    /// Measurements of these timelines.
    pub measurements: u64,
    /// Stored fields to read, of all measurements.
    pub fields: u64,
    /// Groups of an aggregate. If they are ranked: all groups in an explanation, only the winners in a summary.
    pub groups: u64,
    /// Windows of an aggregate.
    pub windows: u64,
    /// Number of cells: windows × groups × columns, including empty cells.
    pub cells: u64,
    /// Reason why summaries cannot replace points; `None` if summaries are used wherever they are exact.
    pub no_summaries: Option<String>,
    /// True if the query reads cold or archived segments and therefore runs in the cold thread pool.
    pub is_cold: bool,
}

/// Explanation of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Plan that the query would follow.
    pub plan: Plan,
    /// Names of the columns of the result.
    pub columns: Vec<String>,
    /// Suggestions for names in the query that the table does not have.
    pub suggestions: Vec<Suggestion>,
    tiers: [Estimate; 3],
    /// Unsealed points to read; they are hot. Their number is exact for queries of at most 1,000 timelines.
    pub unsealed: UnsealedEstimate,
}

/// Estimated reads of one tier. Assumes that the points of a segment are spread evenly over its time range and its
/// timelines, and that no summaries are used. Unsealed points are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// Segments whose time range overlaps the queried range; exact.
    pub segments: u64,
    /// Chunks in the range.
    pub chunks: u64,
    /// Points in the range.
    pub points: u64,
    /// Encoded bytes of the chunks in the range.
    pub bytes: u64,
}

impl Explanation {
    /// Returns the estimate for one tier.
    pub fn of(&self, tier: Tier) -> Estimate {
        self.tiers[tier as usize]
    }
}

/// Plans a query. Returns the errors that the query would return before it reads points.
pub(crate) fn run(context: &Context<'_>, query: &PointQuery) -> Result<Explanation> {
    let (mut plan, columns, timelines) = match &query.shape {
        Shape::Rows(shape) => {
            let prepared = rows::Prepared::new(context, query, shape)?;
            let ids = prepared.scope.ids();
            (prepared.plan(context), prepared.columns.names, ids)
        }
        Shape::Aggregate(shape) => aggregate::explain(context, query, shape)?,
    };
    plan.is_cold = context.is_cold();
    // The estimates are derived from segments, which contain all timelines. A handle that is restricted to some
    // timelines therefore gets no estimates.
    let has_all = context.table.condition().is_none();
    let tiers = Tier::ALL.map(|tier| match has_all {
        true => estimate(context, query, tier, plan.timelines),
        false => Estimate::default(),
    });
    let unsealed = match query.tier {
        None | Some(Tier::Hot) if has_all => {
            let table = context.table.points().id();
            let range = context.snapshot.visible(table, query.range);
            context.snapshot.unsealed(table, &timelines, range)?
        }
        _ => UnsealedEstimate::default(),
    };
    Ok(Explanation {
        plan,
        columns,
        suggestions: Vec::new(),
        tiers,
        unsealed,
    })
}

fn estimate(context: &Context<'_>, query: &PointQuery, tier: Tier, timelines: u64) -> Estimate {
    let mut estimate = Estimate::default();
    if query.tier.is_some_and(|wanted| wanted != tier) {
        return estimate;
    }
    let range = context.snapshot.visible(context.table.points().id(), query.range);
    let all = context.table.reader().visible().len().max(1);
    let of_timelines = (timelines as f64 / all as f64).min(1.0);
    let table = context.table.points().id();
    for segment in context.snapshot.manifest().of_table(table) {
        if segment.tier != tier || !segment.range().overlaps(&range) {
            continue;
        }
        let share = of_timelines * of_time(segment, range);
        let part = |whole: u64| (whole as f64 * share).ceil() as u64;
        estimate.segments += 1;
        estimate.chunks += part(segment.chunks);
        estimate.points += part(segment.points);
        estimate.bytes += part(segment.bytes);
    }
    estimate
}

/// Returns the share of a segment's time range that is inside a range.
fn of_time(segment: &Segment, range: TimeRange) -> f64 {
    let length = |range: TimeRange| (i128::from(range.end) - i128::from(range.start)) as f64;
    let whole = segment.range();
    length(whole.intersect(&range)) / length(whole).max(1.0)
}
