//! Aggregates: sweeps of workers over shares of the timelines, then the groups one after another.
//!
//! Every timeline belongs to one group. Groups are taken in the order of the answer, as many at once as
//! [`CELLS_AT_ONCE_MAX`] allows; their timelines are swept, their rows go to the sink, their state goes. Memory
//! is so bounded whatever the size of the answer.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use rayon::prelude::*;
use tideline_model::{FieldId, TimelineId};
use tideline_series_store::scan::{Grid, Part};
use tideline_series_store::{Order, ReadCost, Selection};

use crate::accumulate::{Accumulator, Overflow};
use crate::answer::{AnswerSink, Header, QueryCost, Series, Summary, ValueRef};
use crate::budget::{rows_limit, within};
use crate::cutter::{Cutter, GroupState, Lanes};
use crate::error::{QueryError, Result};
use crate::fill::Fill;
use crate::filter::Filter;
use crate::plan::{AggregateSource, Columns, Group, Groups, MeasurementColumns, Scope, TagBuffer};
use crate::querier::Context;
use crate::question::{Aggregate, Direction, GroupBy, PointQuery};
use crate::window::Windows;

/// Most windows × columns × groups that are held at once, by each worker; a cell takes up to 128 bytes, those of sums and
/// extremes up to 64. What grows with the values is in [`Budget::held_bytes_max`](crate::Budget::held_bytes_max). One
/// group alone may not need more.
pub const CELLS_AT_ONCE_MAX: u64 = 1 << 20;
/// Most functions of a query: each takes in every run before the budget is asked again.
pub const FUNCTIONS_MAX: u64 = 64;
/// Fewer timelines than this are not shared out: waking a worker costs as much as reading some.
const SHARE_TIMELINES_MIN: usize = 8;
/// Rows between two looks at the clock.
const ROWS_PER_CHECK: u64 = 128;

/// Answers a query for aggregates.
pub(crate) fn run(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Aggregate,
    sink: &mut dyn AnswerSink,
) -> Result<Summary> {
    let Context { table, watch, .. } = context;
    check(shape)?;
    let windows = Windows::new(query.range, shape.window)?;
    within("windows", watch.budget().cells_max, windows.count())?;
    let limit = rows_limit("rows asked for", watch.budget(), shape.limit)?;
    let mut scope = Scope::select(context.engine, table, &query.timelines, watch)?;
    let columns = scope.aggregate_columns(table, &query.fields, &shape.functions)?;
    if let Some(fill) = &shape.fill {
        fill.check(&columns)?;
    }
    let filter = query.values.as_ref();
    let filter = filter
        .map(|values| Filter::new(values, &scope, table))
        .transpose()?;
    scope.retain_with_columns(&columns);
    let groups = scope.groups(table, &shape.group_by);
    let sizes = cells(context, &windows, &columns, &groups)?;
    sink.begin(&header(&scope, table, shape, &columns, sink.needs_tags()))?;

    let by_field: Vec<Lanes> = columns.by_measurement.iter().map(Lanes::new).collect();
    let takes_summaries =
        filter.is_none() && shape.functions.iter().all(|function| function.takes_summaries());
    let sweep = Sweep {
        context,
        query,
        windows,
        filter: filter.as_ref(),
        grid: takes_summaries.then(|| windows.grid()),
        columns: &columns,
        by_field: &by_field,
    };
    let mut output = Output {
        sweep: &sweep,
        scope: &scope,
        order: shape.order,
        fill: shape.fill.as_ref(),
        limit,
        rows: 0,
        more: false,
        tags: TagBuffer::default(),
        estimated: BTreeSet::new(),
    };
    let mut cost = ReadCost::default();
    for batch in batches(&sizes) {
        let members = members(&scope, &groups, &batch);
        context.note_read(&members.iter().map(|member| member.id).collect::<Vec<_>>());
        let (states, read) = sweep.run(&batch, &members)?;
        cost.add(&read);
        for (group, state) in groups.groups[batch].iter().zip(states) {
            if let Some(state) = state.filter(|_| !output.more) {
                output.group(group, &state, sink)?;
            }
        }
        watch.release();
        if output.more {
            break;
        }
    }
    let names = output.estimated.iter();
    let estimated = names.map(|position| columns.names[*position].clone()).collect();
    Ok(Summary {
        rows: output.rows,
        more: output.more,
        next: None,
        estimated,
        cost: QueryCost::new(&cost, context.segments, watch.elapsed()),
    })
}

fn check(shape: &Aggregate) -> Result<()> {
    within("functions", FUNCTIONS_MAX, shape.functions.len() as u64)?;
    let mut functions = shape.functions.clone();
    functions.sort_unstable();
    functions.dedup();
    if functions.is_empty() || functions.len() < shape.functions.len() {
        return Err(QueryError::Invalid(
            "an aggregate names at least one function, and none twice".into(),
        ));
    }
    if shape.fill.is_some() && shape.window.is_none() {
        return Err(QueryError::Invalid("a fill needs windows that it fills".into()));
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

/// The cells that each group needs, once it is known that neither one nor all are too many.
fn cells<C>(
    context: &Context<'_>,
    windows: &Windows,
    columns: &Columns<C>,
    groups: &Groups,
) -> Result<Vec<u64>> {
    let size = |group: &Group| {
        let columns = columns.of(group.measurement).positions.len() as u64;
        windows.count().saturating_mul(columns)
    };
    let sizes: Vec<u64> = groups.groups.iter().map(size).collect();
    let largest = sizes.iter().copied().max().unwrap_or(0);
    within("windows × columns of one group", CELLS_AT_ONCE_MAX, largest)?;
    let all = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    let limit = context.watch.budget().cells_max;
    within("windows × groups × columns", limit, all)?;
    Ok(sizes)
}

fn header<C>(
    scope: &Scope,
    table: &tideline_engine::Table,
    shape: &Aggregate,
    columns: &Columns<C>,
    needs_tags: bool,
) -> Header {
    let tags = match &shape.group_by {
        GroupBy::Timeline if needs_tags => scope.tag_keys(table),
        GroupBy::Tags(tags) => tags.clone(),
        GroupBy::Timeline | GroupBy::Nothing => Vec::new(),
    };
    Header {
        is_by_timeline: shape.group_by == GroupBy::Timeline,
        tags,
        columns: columns.names.clone(),
    }
}

/// Cuts the groups into stretches that are swept together.
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

/// A timeline in a sweep.
#[derive(Debug, Clone, Copy)]
struct Member {
    id: TimelineId,
    measurement: u32,
    /// Its group, counted from the first of the batch.
    group: u32,
}

/// The timelines of a batch of groups, in the order of their ids.
fn members(scope: &Scope, groups: &Groups, batch: &Range<usize>) -> Vec<Member> {
    let all = scope.timelines.iter().zip(&groups.of);
    let inside = all.filter(|(_, group)| batch.contains(&(**group as usize)));
    inside
        .map(|(timeline, group)| Member {
            id: timeline.id,
            measurement: timeline.measurement,
            group: *group - batch.start as u32,
        })
        .collect()
}

/// What a worker has gathered: the state of each group of the batch that it met, and the cost.
type Gathered = (Vec<Option<GroupState>>, ReadCost);

/// What the workers of a query share.
struct Sweep<'a> {
    context: &'a Context<'a>,
    query: &'a PointQuery,
    /// Which points count; each worker has its own copy.
    filter: Option<&'a Filter>,
    windows: Windows,
    /// The same windows, where summaries may take the place of points.
    grid: Option<Grid>,
    columns: &'a Columns<AggregateSource>,
    by_field: &'a [Lanes],
}

impl Sweep<'_> {
    /// Reads the members and puts the shares together in the order of their ids.
    fn run(&self, batch: &Range<usize>, members: &[Member]) -> Result<Gathered> {
        let threads = self.context.pool.current_num_threads();
        let shares = (members.len() / SHARE_TIMELINES_MIN).clamp(1, threads);
        if shares == 1 {
            return self.share(batch.len(), members);
        }
        let parts: Vec<&[Member]> = members.chunks(members.len().div_ceil(shares)).collect();
        let gathered: Vec<Gathered> = self.context.pool.install(|| {
            let parts = parts.into_par_iter();
            parts
                .map(|part| self.share(batch.len(), part))
                .collect::<Result<_>>()
        })?;
        let mut gathered = gathered.into_iter();
        let (mut states, mut cost) = gathered.next().unwrap_or_default();
        for (others, read) in gathered {
            cost.add(&read);
            for (state, other) in states.iter_mut().zip(others) {
                match (state.as_mut(), other) {
                    (Some(state), Some(other)) => {
                        let pairs = state.iter_mut().zip(other);
                        pairs.for_each(|(lane, other)| lane.merge(other));
                    }
                    (None, Some(other)) => *state = Some(other),
                    (_, None) => {}
                }
            }
        }
        Ok((states, cost))
    }

    /// Reads one worker's share.
    fn share(&self, groups: usize, members: &[Member]) -> Result<Gathered> {
        let Context {
            table,
            snapshot,
            watch,
            ..
        } = self.context;
        let ids: Vec<TimelineId> = members.iter().map(|member| member.id).collect();
        let mut fields: Vec<FieldId> = self.by_field.iter().flat_map(Lanes::fields).collect();
        fields.extend(self.filter.iter().flat_map(|filter| filter.fields()));
        fields.sort_unstable();
        fields.dedup();
        let mut filter = self.filter.cloned();
        let mut reader = snapshot.reader(Selection {
            table: table.points().id(),
            timelines: &ids,
            range: self.query.range,
            fields: Some(&fields),
            order: Order::Ascending,
            tier: self.query.tier,
        });
        let mut states: Vec<Option<GroupState>> = Vec::new();
        states.resize_with(groups, || None);
        let mut cutter = Cutter::new(self.windows);
        let mut metered = 0;
        for member in members {
            watch.check()?;
            let lanes = &self.by_field[member.measurement as usize];
            let state = &mut states[member.group as usize];
            let mut failure = None;
            let mut summaries = 0;
            let mut take = |part: Part<'_>| {
                let empty = || self.empty(member.measurement);
                match part {
                    Part::Run(run) => {
                        let taken = watch.charge(run).and_then(|()| {
                            let run = match &mut filter {
                                Some(filter) => filter.select(run),
                                None => Some(run),
                            };
                            let Some(run) = run else { return Ok(()) };
                            let state = state.get_or_insert_with(empty);
                            let before = held(state);
                            cutter.take(run, lanes, state);
                            watch.hold(before, held(state))
                        });
                        if let Err(error) = taken {
                            failure = Some(error);
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    Part::Summaries(field, of_field) => {
                        let state = state.get_or_insert_with(empty);
                        summaries += cutter.take_summaries(field, of_field, lanes, state);
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            let before = reader.cost().total().summaries;
            match self.grid {
                Some(grid) => reader.timeline_summarized(member.id, grid, &mut take)?,
                None => reader.timeline(member.id, &mut |run| take(Part::Run(run)))?,
            }
            if let Some(error) = failure {
                return Err(error);
            }
            state.iter_mut().flatten().for_each(Accumulator::end_timeline);
            let cost = reader.cost();
            watch.add(cost.total().summaries - before, summaries)?;
            self.context.meter(&mut metered, &cost)?;
        }
        Ok((states, reader.cost()))
    }

    fn empty(&self, measurement: u32) -> GroupState {
        // The number of windows was checked against the limits of cells before.
        let sources = self.columns.of(measurement).sources.iter();
        sources
            .map(|source| Accumulator::new(source.function, &self.windows))
            .collect()
    }
}

/// Bytes that a group holds of its values.
fn held(state: &GroupState) -> u64 {
    state.iter().map(Accumulator::held).sum()
}

/// The rows of an answer while they are written.
struct Output<'a> {
    sweep: &'a Sweep<'a>,
    scope: &'a Scope,
    order: Direction,
    fill: Option<&'a Fill>,
    limit: u64,
    rows: u64,
    /// Whether a row was met beyond the limit.
    more: bool,
    tags: TagBuffer,
    /// Positions of the columns in which a value was an estimate.
    estimated: BTreeSet<usize>,
}

impl Output<'_> {
    fn group(&mut self, group: &Group, state: &GroupState, sink: &mut dyn AnswerSink) -> Result<()> {
        let columns = self.sweep.columns.of(group.measurement);
        let filled = match self.fill {
            Some(fill) => Some(self.filled(fill, columns, state)?),
            None => None,
        };
        if filled.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let mut is_open = false;
        let mut windows = 0..self.sweep.windows.count() as usize;
        let mut values = Vec::with_capacity(state.len());
        while let Some(window) = match self.order {
            Direction::Ascending => windows.next(),
            Direction::Descending => windows.next_back(),
        } {
            if let Some(filled) = &filled {
                values.clear();
                values.extend(filled.iter().map(|column| column[window]));
            } else if !self.values(columns, state, window, &mut values)? {
                continue;
            }
            if self.rows == self.limit {
                self.more = true;
                return Ok(());
            }
            if self.rows.is_multiple_of(ROWS_PER_CHECK) {
                self.sweep.context.watch.check()?;
            }
            if !is_open {
                is_open = true;
                self.open(group, columns, sink)?;
            }
            sink.row(self.sweep.windows.start(window), &values)?;
            self.rows += 1;
        }
        Ok(())
    }

    /// The values of every window, column by column; nothing where no window has one.
    fn filled<'s>(
        &mut self,
        fill: &'s Fill,
        columns: &MeasurementColumns<AggregateSource>,
        state: &'s GroupState,
    ) -> Result<Vec<Vec<Option<ValueRef<'s>>>>> {
        let windows = self.sweep.windows;
        let count = windows.count() as usize;
        let mut filled: Vec<Vec<_>> = state.iter().map(|_| Vec::with_capacity(count)).collect();
        let mut values = Vec::with_capacity(state.len());
        let mut is_empty = true;
        for window in 0..count {
            is_empty &= !self.values(columns, state, window, &mut values)?;
            let cells = filled.iter_mut().zip(&values);
            cells.for_each(|(column, value)| column.push(*value));
        }
        if is_empty {
            return Ok(Vec::new());
        }
        for (source, column) in columns.sources.iter().zip(&mut filled) {
            fill.apply(source.function, &windows, column);
        }
        self.sweep.context.watch.check()?;
        Ok(filled)
    }

    /// Replaces `values` by the columns of a window; `false` where nothing lies in it.
    fn values<'s>(
        &mut self,
        columns: &MeasurementColumns<AggregateSource>,
        state: &'s GroupState,
        window: usize,
        values: &mut Vec<Option<ValueRef<'s>>>,
    ) -> Result<bool> {
        values.clear();
        for (lane, position) in state.iter().zip(&columns.positions) {
            let value = lane.finish(window, &self.sweep.windows);
            values.push(value.map_err(|Overflow(value_type)| QueryError::Overflow {
                column: self.sweep.columns.names[*position].clone(),
                window: self.sweep.windows.start(window),
                value_type,
            })?);
            if lane.is_estimate(window) {
                self.estimated.insert(*position);
            }
        }
        if values.iter().all(Option::is_none) {
            return Ok(false);
        }
        for (value, source) in values.iter_mut().zip(&columns.sources) {
            if source.function.counts() {
                value.get_or_insert(ValueRef::Unsigned(0));
            }
        }
        Ok(true)
    }

    fn open(
        &mut self,
        group: &Group,
        columns: &MeasurementColumns<AggregateSource>,
        sink: &mut dyn AnswerSink,
    ) -> Result<()> {
        let tags = match &group.timeline {
            Some(timeline) => {
                self.tags.fill(self.sweep.context.table, timeline);
                self.tags.tags()
            }
            None => &group.tags,
        };
        sink.series(&Series {
            id: group.timeline.map(|timeline| timeline.id),
            measurement: &self.scope.measurements[group.measurement as usize],
            tags,
            columns: &columns.positions,
        })?;
        Ok(())
    }
}
