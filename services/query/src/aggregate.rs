//! Aggregate queries: parallel scans over shares of the timelines, merged per group.
//!
//! Every timeline belongs to at most one group. Groups are processed in result order, in batches of at most
//! [`CELLS_AT_ONCE_MAX`] cells: the timelines of a batch are scanned, its rows are passed to the sink, and its state is
//! dropped. Memory is therefore bounded for results of any size.

mod arithmetic;
mod output;
mod rank;
mod scan;

use std::collections::BTreeSet;
use std::ops::Range;

use tideline_engine::Table;
use tideline_engine::model::TimelineId;
use tideline_engine::points::ReadCost;

use self::arithmetic::Arithmetic;
use self::output::Output;
use self::rank::{Ranked, Ranking, ResultParts};
use self::scan::{AggregateScan, members};
use crate::budget::{rows_limit, within};
use crate::column_types;
use crate::compute::Stages;
use crate::cutter::AccumulatorIndices;
use crate::error::{QueryError, Result};
use crate::explain::Plan;
use crate::expression::Stack;
use crate::groups::{Group, Groups};
use crate::plan::{AggregateSource, Columns, Scope, TagBuffer, Wanted};
use crate::point_query::{Aggregate, GroupBy, PointQuery};
use crate::querier::Context;
use crate::result::{Header, QueryCost, RowSink, Summary};
use crate::window::Windows;

/// Maximum number of cells (windows × columns × groups) that each worker holds at once; one group must not need more.
/// A cell takes up to 128 bytes, a cell of a sum or an extreme up to 64. Memory that grows with the values, such as
/// the bytes of first and last strings and histograms, counts against
/// [`Budget::held_bytes_max`](crate::Budget::held_bytes_max).
pub const CELLS_AT_ONCE_MAX: u64 = 1 << 20;
/// Maximum number of functions of a query. All of them process a run before the budget is checked again.
pub const FUNCTIONS_MAX: u64 = 64;

/// Runs an aggregate query.
pub(crate) fn run(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Aggregate,
    sink: &mut dyn RowSink,
) -> Result<Summary> {
    let mut prepared = Prepared::new(context, query, shape)?;
    let ranked = prepared.arrange(context, query, shape)?;
    let Prepared {
        limit,
        windows,
        scope,
        stages,
        columns,
        arithmetic,
        ..
    } = prepared;
    let sizes = cell_counts(&windows, &columns, &ranked.groups);
    check_cells(context, &sizes)?;
    let types = sink.needs_types().then(|| {
        let (computed, fill) = (&stages.computed, shape.fill.as_ref());
        let types = column_types::of_aggregate(&scope, context.table, &columns, computed, fill);
        arithmetic.types(types)
    });
    sink.begin(&Header {
        columns: arithmetic.columns(&columns),
        types: types.unwrap_or_default(),
        ..header(&scope, context.table, shape, sink.needs_tags())
    })?;
    let by_field: Vec<AccumulatorIndices> = columns
        .by_measurement
        .iter()
        .map(AccumulatorIndices::new)
        .collect();
    let mut plan = plan(&scope, &stages, &columns, &windows);
    (plan.groups, plan.cells) = (ranked.groups.groups.len() as u64, sizes.iter().sum());
    plan.is_cold = context.is_cold();
    let scan = AggregateScan::new(context, query, windows, &stages, &columns, &by_field);
    let mut output = Output {
        scan: &scan,
        scope: &scope,
        arithmetic: &arithmetic,
        order: shape.order,
        fill: shape.fill.as_ref(),
        limit,
        rows: 0,
        more: false,
        tags: TagBuffer::default(),
        stack: Stack::default(),
        estimated: BTreeSet::new(),
        overflowed: BTreeSet::new(),
        row_overflows: Vec::new(),
    };
    let cost = write_groups(context, ranked, &sizes, &mut output, sink)?;
    Ok(Summary {
        rows: output.rows,
        more: output.more,
        next: None,
        estimated: arithmetic.made_of(&output.estimated, &columns),
        overflowed: arithmetic.made_of(&output.overflowed, &columns),
        suggestions: Vec::new(),
        cost: QueryCost::new(&cost, context.segments, context.watch.elapsed()),
        plan,
    })
}

/// Writes the groups: from the states of the first scan if `ranked` has them, otherwise by scanning batch by batch.
/// Returns the cost of all scans.
fn write_groups(
    context: &Context<'_>,
    ranked: Ranked,
    sizes: &[u64],
    output: &mut Output<'_>,
    sink: &mut dyn RowSink,
) -> Result<ReadCost> {
    let Ranked {
        groups,
        states,
        mut cost,
    } = ranked;
    let (scan, scope) = (output.scan, output.scope);
    if let Some(states) = states {
        let ids: Vec<TimelineId> = scope.timelines.iter().map(|timeline| timeline.id).collect();
        context.note_read(&ids);
        output.groups(&groups.groups, states, sink)?;
        context.watch.release();
        return Ok(cost);
    }
    for batch in batches(sizes) {
        let members = members(scope, &groups, &batch);
        let ids: Vec<TimelineId> = members.iter().map(|member| member.id).collect();
        context.note_read(&ids);
        let (states, read) = scan.run(&batch, &members)?;
        cost.add(&read);
        output.groups(&groups.groups[batch], states, sink)?;
        scan.release();
        if output.more {
            break;
        }
    }
    Ok(cost)
}

/// Validated aggregate query before its groups are determined.
struct Prepared<'a> {
    /// Maximum number of rows of the result.
    limit: u64,
    windows: Windows,
    scope: Scope,
    stages: Stages,
    columns: Columns<AggregateSource>,
    arithmetic: Arithmetic,
    ranking: Option<Ranking<'a>>,
}

impl<'a> Prepared<'a> {
    fn new(context: &Context<'_>, query: &PointQuery, shape: &'a Aggregate) -> Result<Self> {
        let Context { table, watch, .. } = context;
        let limit = rows_limit("rows asked for", watch.budget(), shape.limit)?;
        check(shape)?;
        let windows = Windows::new(query.range, shape.window)?;
        within("windows", watch.budget().cells_max, windows.count())?;
        let mut scope = Scope::select(context.engine, table, &query.timelines, watch)?;
        let stages = Stages::new(&query.compute, query.values.as_ref(), &scope, table)?;
        let computed = &stages.computed;
        let mut columns = scope.aggregate_columns(
            table,
            Wanted::of(&query.fields, query.details),
            &shape.functions,
            computed,
        )?;
        let arithmetic = Arithmetic::new(&shape.compute, &mut columns, &scope, table, computed)?;
        if let Some(fill) = &shape.fill {
            fill.check(&columns)?;
        }
        scope.retain_with_columns(&columns);
        let ranking = shape.rank.as_ref();
        let ranking = ranking.map(|rank| Ranking::new(rank, &scope, table, &stages));
        Ok(Self {
            limit,
            windows,
            ranking: ranking.transpose()?,
            scope,
            stages,
            columns,
            arithmetic,
        })
    }

    /// Determines the groups of the result. If the groups are ranked, keeps only the winners, in rank order.
    fn arrange(&mut self, context: &Context<'_>, query: &PointQuery, shape: &Aggregate) -> Result<Ranked> {
        let Some(ranking) = self.ranking.take() else {
            let groups = self.scope.groups(context.table, &shape.group_by);
            context.watch.hold_limited_elsewhere(0, groups.bytes())?;
            return Ok(Ranked {
                groups,
                states: None,
                cost: ReadCost::default(),
            });
        };
        let parts = ResultParts {
            group_by: &shape.group_by,
            stages: &self.stages,
            columns: &self.columns,
            has_windows: shape.window.is_some(),
        };
        ranking.arrange(context, query, parts, &mut self.scope)
    }
}

/// Plans an aggregate query without running it. Returns the plan, the columns of the result, and the timeline ids.
pub(crate) fn explain(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Aggregate,
) -> Result<(Plan, Vec<String>, Vec<TimelineId>)> {
    let prepared = Prepared::new(context, query, shape)?;
    let Prepared {
        windows,
        scope,
        stages,
        columns,
        arithmetic,
        ranking,
        ..
    } = &prepared;
    let groups = scope.find_groups(context.table, &shape.group_by);
    let mut sizes = cell_counts(windows, columns, &groups);
    if let Some(ranking) = ranking {
        Ranking::check(context, &groups)?;
        // The limit of the rank bounds the number of winners. Their cells are at most the cells of that many largest
        // groups.
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.truncate(ranking.limit());
    }
    check_cells(context, &sizes)?;
    let mut plan = plan(scope, stages, columns, windows);
    (plan.groups, plan.cells) = (groups.groups.len() as u64, sizes.iter().sum());
    Ok((plan, arithmetic.columns(columns), scope.ids()))
}

/// Returns the part of the plan that does not depend on the groups.
fn plan(scope: &Scope, stages: &Stages, columns: &Columns<AggregateSource>, windows: &Windows) -> Plan {
    let of_all = columns.by_measurement.iter().flat_map(|of| &of.sources);
    Plan {
        timelines: scope.timelines.len() as u64,
        measurements: scope.measurements.len() as u64,
        fields: stages.reads(of_all.map(|source| source.field)).len() as u64,
        windows: windows.count(),
        no_summaries: no_summaries(stages, columns),
        ..Plan::default()
    }
}

/// Returns the reason why points must be read for at least one column; `None` if summaries suffice.
fn no_summaries(stages: &Stages, columns: &Columns<AggregateSource>) -> Option<String> {
    if stages.filter().is_some() {
        return Some("a condition on values reads each point".into());
    }
    let mut sources = columns.by_measurement.iter().flat_map(|of| &of.sources);
    sources.find_map(|source| {
        let function = source.function;
        if let Some(name) = stages.computed.name(source.field) {
            return Some(format!("{name} is computed from each point"));
        }
        (!function.takes_summaries()).then(|| format!("{function} reads each point"))
    })
}

fn check(shape: &Aggregate) -> Result<()> {
    within("functions", FUNCTIONS_MAX, shape.functions.len() as u64)?;
    let mut functions = shape.functions.clone();
    functions.sort_unstable();
    functions.dedup();
    let is_empty = functions.is_empty() && shape.compute.is_empty();
    if is_empty || functions.len() < shape.functions.len() {
        return Err(QueryError::Invalid(
            "an aggregate needs at least one function or computed column, and each function only once".into(),
        ));
    }
    if shape.fill.is_some() && shape.window.is_none() {
        return Err(QueryError::Invalid("a fill needs windows".into()));
    }
    if let GroupBy::Tags(tags) = &shape.group_by {
        let mut sorted: Vec<&String> = tags.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < tags.len() {
            return Err(QueryError::Invalid("a tag to group by is named twice".into()));
        }
    }
    Ok(())
}

/// Returns the number of cells of each group.
fn cell_counts<C>(windows: &Windows, columns: &Columns<C>, groups: &Groups) -> Vec<u64> {
    let size = |group: &Group| {
        let columns = columns.of(group.measurement).positions.len() as u64;
        windows.count().saturating_mul(columns)
    };
    groups.groups.iter().map(size).collect()
}

/// Returns an error if one group, or all groups together, need too many cells.
fn check_cells(context: &Context<'_>, sizes: &[u64]) -> Result<()> {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    within("windows × columns of one group", CELLS_AT_ONCE_MAX, largest)?;
    let all = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    let limit = context.watch.budget().cells_max;
    within("windows × groups × columns", limit, all)
}

fn header(scope: &Scope, table: &Table, shape: &Aggregate, needs_tags: bool) -> Header {
    let tags = match &shape.group_by {
        GroupBy::Timeline if needs_tags => scope.tag_keys(table),
        GroupBy::Tags(tags) => tags.clone(),
        GroupBy::Timeline | GroupBy::Nothing => Vec::new(),
    };
    Header {
        is_by_timeline: shape.group_by == GroupBy::Timeline,
        tags,
        ..Header::default()
    }
}

/// Splits the groups into batches that are scanned together.
fn batches(sizes: &[u64]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut held) = (0, 0);
    for (at, size) in sizes.iter().enumerate() {
        if held + size > CELLS_AT_ONCE_MAX {
            batches.push(start..at);
            (start, held) = (at, 0);
        }
        held += size;
    }
    if start < sizes.len() {
        batches.push(start..sizes.len());
    }
    batches
}
