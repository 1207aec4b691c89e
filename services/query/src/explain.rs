//! What a query would do, told before it reads a point; and what one has done.

use tideline_engine::Suggestion;
use tideline_engine::model::{Tier, TimeRange};
use tideline_engine::moves::manifest::Segment;
use tideline_engine::points::UnsealedEstimate;

use crate::aggregate;
use crate::error::Result;
use crate::querier::Context;
use crate::question::{PointQuery, Shape};
use crate::rows;

/// How a query is answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Timelines that are read.
    pub timelines: u64,
    /// Their measurements.
    pub measurements: u64,
    /// Stored fields that are read, of whichever measurement.
    pub fields: u64,
    /// Groups of an aggregate; where they are ranked, of a plan before all of them, and of one after those that stayed.
    pub groups: u64,
    /// Windows of an aggregate.
    pub windows: u64,
    /// Windows × groups × columns, empty ones included.
    pub cells: u64,
    /// Why summaries cannot stand for points; `None` = they do, wherever they are exact.
    pub no_summaries: Option<String>,
    /// Whether it reaches into cold segments, and so runs among the queries that do.
    pub is_cold: bool,
}

/// What a query would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// How it would be answered.
    pub plan: Plan,
    /// The columns of the answer.
    pub columns: Vec<String>,
    /// Names in the query that the table does not have.
    pub suggestions: Vec<Suggestion>,
    tiers: [Estimate; 3],
    /// The unsealed points that would be read, which are hot; exact where the query is about at most 1,000 timelines.
    pub unsealed: UnsealedEstimate,
}

/// What a tier would be asked for. Estimates: as if the points of a segment were spread evenly over its time and timelines,
/// and no summaries were used. What is not sealed yet is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// Segments with points in the range, of whichever timelines; exact.
    pub segments: u64,
    /// Chunks in the range.
    pub chunks: u64,
    /// Points in the range.
    pub points: u64,
    /// Bytes of those chunks.
    pub bytes: u64,
}

impl Explanation {
    /// What one tier would be asked for.
    pub fn of(&self, tier: Tier) -> Estimate {
        self.tiers[tier as usize]
    }
}

/// Plans a query, and refuses what would be refused.
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
    let tiers = Tier::ALL.map(|tier| estimate(context, query, tier, plan.timelines));
    let unsealed = match query.tier {
        None | Some(Tier::Hot) => {
            let table = context.table.points().id();
            let range = context.snapshot.visible(table, query.range);
            context.snapshot.unsealed(table, &timelines, range)?
        }
        Some(Tier::Cold | Tier::Archive) => UnsealedEstimate::default(),
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
    let all = context.table.catalog().len().max(1);
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

/// The share of a segment's time that lies in a range.
fn of_time(segment: &Segment, range: TimeRange) -> f64 {
    let length = |range: TimeRange| (i128::from(range.end) - i128::from(range.start)) as f64;
    let whole = segment.range();
    length(whole.intersect(&range)) / length(whole).max(1.0)
}
