//! Raw rows: streamed timeline by timeline, with one run in memory at a time.
//!
//! A page continues after the last row of the previous page. A [`PageToken`] identifies this row by timeline and
//! time.

use std::ops::ControlFlow;

use tideline_engine::Table;
use tideline_engine::model::{ColumnData, FieldId, Tier, TimeRange, TimelineId};
use tideline_engine::points::{Order, ReadCost, Selection};
use tideline_engine::points::{Presence, Run, RunColumn};

use crate::budget::rows_limit;
use crate::column_types;
use crate::compute::{Computed, Stages};
use crate::error::{QueryError, Result};
use crate::explain::Plan;
use crate::plan::{Columns, MeasurementColumns, Scope, Selected, TagBuffer, Wanted};
use crate::point_query::{Direction, PointQuery, Rows};
use crate::querier::Context;
use crate::result::{Header, QueryCost, RowSink, Summary, ValueRef};
use crate::terms::{Terms, TermsOf};
use crate::timelines::TimelineReader;
use crate::token::PageToken;
use crate::{sample, sorted};

/// Validated query for rows, samples or sorted rows.
pub(crate) struct Prepared {
    /// Maximum number of rows of the result.
    pub(crate) limit: u64,
    pub(crate) scope: Scope,
    pub(crate) stages: Stages,
    pub(crate) columns: Columns<FieldId>,
}

impl Prepared {
    /// Validates a query. Returns any error that can be detected before a point is read.
    pub(crate) fn new(context: &Context<'_>, query: &PointQuery, shape: &Rows) -> Result<Self> {
        let Context { table, watch, .. } = context;
        match shape.sample {
            _ if shape.sort.is_some() => sorted::check(shape)?,
            Some(points) => sample::check(shape, points)?,
            None if shape
                .after
                .is_some_and(|after| after.terms != terms(table, query, shape)) =>
            {
                return Err(QueryError::ForeignToken);
            }
            None => {}
        }
        let mut limit = rows_limit("rows asked for", watch.budget(), shape.limit)?;
        if shape.sort.is_some() {
            limit = shape.limit.unwrap_or(sorted::LIMIT_DEFAULT).min(limit);
        }
        let mut scope = Scope::select(context.engine, table, &query.timelines, watch)?;
        let stages = Stages::new(&query.compute, query.values.as_ref(), &scope, table)?;
        let columns = match shape.sample {
            Some(_) => sample::columns(&scope, context, query, &stages)?,
            None => {
                let wanted = Wanted::of(&query.fields, query.details);
                scope.row_columns(table, wanted, &stages.computed)?
            }
        };
        scope.retain_with_columns(&columns);
        if let Some(order) = &shape.sort {
            sorted::field(order, table, &stages)?;
        }
        Ok(Self {
            limit,
            scope,
            stages,
            columns,
        })
    }

    /// Returns the header of the result.
    pub(crate) fn header(&self, context: &Context<'_>, sink: &dyn RowSink) -> Header {
        header(context, &self.scope, &self.columns, &self.stages.computed, sink)
    }

    /// Returns the plan of the query.
    pub(crate) fn plan(&self, context: &Context<'_>) -> Plan {
        let of_all = self.columns.by_measurement.iter().flat_map(|of| &of.sources);
        Plan {
            timelines: self.scope.timelines.len() as u64,
            measurements: self.scope.measurements.len() as u64,
            fields: self.stages.reads(of_all.copied()).len() as u64,
            no_summaries: Some("rows are the points themselves".into()),
            is_cold: context.is_cold(),
            ..Plan::default()
        }
    }
}

/// Returns the header of a result whose series are timelines.
pub(crate) fn header(
    context: &Context<'_>,
    scope: &Scope,
    columns: &Columns<FieldId>,
    computed: &Computed,
    sink: &dyn RowSink,
) -> Header {
    let table = context.table;
    let tags = sink.needs_tags().then(|| scope.tag_keys(table));
    let types = sink
        .needs_types()
        .then(|| column_types::of_rows(scope, table, columns, computed));
    Header {
        is_by_timeline: true,
        tags: tags.unwrap_or_default(),
        columns: columns.names.clone(),
        types: types.unwrap_or_default(),
    }
}

/// Returns a hash that identifies a query for rows, for the tokens of its pages.
fn terms(table: &Table, query: &PointQuery, shape: &Rows) -> u64 {
    Terms::new(TermsOf::Rows, table, &query.timelines, &query.fields, query.tier)
        .range(query.range)
        .direction(shape.order)
        .values(query.values.as_ref())
        .computations(&query.compute)
        .hash()
}

/// Runs a query for raw rows.
///
/// A page that ends at its limit returns the token of the next page. Each page reads its own snapshot: points that were
/// written after the previous page are included if they follow the position of the token.
pub(crate) fn run(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Rows,
    sink: &mut dyn RowSink,
) -> Result<Summary> {
    let prepared = Prepared::new(context, query, shape)?;
    sink.begin(&prepared.header(context, sink))?;
    let mut page = Page::new(context, query, shape, &prepared);
    page.read_all(&prepared.scope.timelines, query.range, shape.after, sink)?;
    let next = page.last.filter(|_| page.is_full);
    let token = |(id, time)| PageToken::new(id, time, query.range, terms(context.table, query, shape));
    Ok(Summary {
        rows: page.rows,
        more: page.is_full,
        next: next.map(|last| token(last).to_string()),
        estimated: Vec::new(),
        overflowed: Vec::new(),
        suggestions: Vec::new(),
        cost: QueryCost::new(&page.cost, context.segments, context.watch.elapsed()),
        plan: prepared.plan(context),
    })
}

/// Writer of one page.
struct Page<'a> {
    context: &'a Context<'a>,
    measurements: &'a [Box<str>],
    columns: &'a Columns<FieldId>,
    order: Direction,
    /// Fields to read; `None` = all.
    fields: Option<Vec<FieldId>>,
    /// Filter and computed fields; each reader has its own copy.
    stages: &'a Stages,
    limit: u64,
    rows: u64,
    /// Timeline and time of the last row written.
    last: Option<(TimelineId, i64)>,
    /// True if there was a row beyond the limit of the page.
    is_full: bool,
    tags: TagBuffer,
    tier: Option<Tier>,
    cost: ReadCost,
}

impl<'a> Page<'a> {
    fn new(context: &'a Context<'a>, query: &PointQuery, shape: &Rows, prepared: &'a Prepared) -> Self {
        let Prepared {
            limit,
            scope,
            stages,
            columns,
        } = prepared;
        let wanted = Wanted::of(&query.fields, query.details);
        Self {
            context,
            measurements: &scope.measurements,
            columns,
            order: shape.order,
            fields: (!wanted.is_everything(context.table, &scope.measurements)).then(|| {
                let of_all = columns.by_measurement.iter().flat_map(|of| &of.sources);
                stages.reads(of_all.copied())
            }),
            stages,
            limit: *limit,
            rows: 0,
            last: None,
            is_full: false,
            tags: TagBuffer::default(),
            tier: query.tier,
            cost: ReadCost::default(),
        }
    }

    /// Reads the timelines, starting after the last row of the previous page.
    fn read_all(
        &mut self,
        mut timelines: &[Selected],
        range: TimeRange,
        after: Option<PageToken>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        if let Some(after) = after {
            let done = timelines.partition_point(|timeline| timeline.id < after.id);
            timelines = &timelines[done..];
            if timelines.first().is_some_and(|timeline| timeline.id == after.id) {
                let rest = behind(range, after.time, self.order);
                self.read(&timelines[..1], rest, sink)?;
                timelines = &timelines[1..];
            }
        }
        self.read(timelines, range, sink)
    }

    fn read(&mut self, timelines: &[Selected], range: TimeRange, sink: &mut dyn RowSink) -> Result<()> {
        if range.is_empty() || self.is_full {
            return Ok(());
        }
        let context = self.context;
        let ids: Vec<TimelineId> = timelines.iter().map(|timeline| timeline.id).collect();
        let fields = self.fields.take();
        let mut stages = self.stages.clone();
        let selection = Selection {
            table: context.table.points().id(),
            timelines: &ids,
            range,
            fields: fields.as_deref(),
            order: match self.order {
                Direction::Ascending => Order::Ascending,
                Direction::Descending => Order::Descending,
            },
            tier: self.tier,
        };
        let mut reader = TimelineReader::new(context, selection, self.stages.zone_filter());
        let mut looked = 0;
        for timeline in timelines {
            looked += 1;
            let mut is_open = false;
            reader.timeline(timeline.id, &mut |run| match stages.apply(run) {
                Some(run) => self.write(timeline, run, &mut is_open, sink),
                None => Ok(ControlFlow::Continue(())),
            })?;
            if self.is_full {
                break;
            }
        }
        self.cost.add(&reader.cost());
        context.note_read(&ids[..looked]);
        self.fields = fields;
        Ok(())
    }

    fn write(
        &mut self,
        timeline: &Selected,
        run: &Run,
        is_open: &mut bool,
        sink: &mut dyn RowSink,
    ) -> Result<ControlFlow<()>> {
        let columns = self.columns.of(timeline.measurement);
        let sources = sources(run, columns);
        let mut values = vec![None; columns.positions.len()];
        let mut rows = 0..run.rows();
        while let Some(row) = match self.order {
            Direction::Ascending => rows.next(),
            Direction::Descending => rows.next_back(),
        } {
            values.fill(None);
            for source in &sources {
                if let Some(value) = source.get(row) {
                    values[source.position] = Some(value);
                }
            }
            if values.iter().all(Option::is_none) {
                continue;
            }
            if self.rows == self.limit {
                self.is_full = true;
                return Ok(ControlFlow::Break(()));
            }
            if !*is_open {
                *is_open = true;
                let (table, columns) = (self.context.table, &columns.positions);
                self.tags
                    .begin_series(table, self.measurements, timeline, columns, sink)?;
            }
            let time = run.timestamps[row];
            sink.row(time, &values)?;
            self.rows += 1;
            self.last = Some((timeline.id, time));
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Column of a run with its position in the result.
pub(crate) struct Source<'a> {
    pub(crate) position: usize,
    values: &'a ColumnData,
    /// For each row the index of its value, `u32::MAX` without a value; `None` if every row has a value.
    positions: Option<Vec<u32>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(position: usize, column: &'a RunColumn, rows: usize) -> Self {
        let positions = match &column.presence {
            Presence::All => None,
            Presence::Some(bitmap) => {
                let mut positions = vec![u32::MAX; rows];
                for (position, row) in (0..).zip(bitmap.iter_ones()) {
                    positions[row] = position;
                }
                Some(positions)
            }
        };
        Self {
            position,
            values: &column.values,
            positions,
        }
    }

    /// Returns the value of a row.
    pub(crate) fn get(&self, row: usize) -> Option<ValueRef<'a>> {
        let at = match &self.positions {
            None => row,
            Some(positions) if positions[row] == u32::MAX => return None,
            Some(positions) => positions[row] as usize,
        };
        Some(ValueRef::at(self.values, at))
    }
}

/// Returns the wanted columns of a run.
pub(crate) fn sources<'a>(run: &'a Run, columns: &MeasurementColumns<FieldId>) -> Vec<Source<'a>> {
    let position = |field: FieldId| columns.sources.iter().position(|source| *source == field);
    let found = run.columns.iter().filter_map(|column| {
        let position = position(column.field)?;
        Some(Source::new(position, column, run.rows()))
    });
    found.collect()
}

/// Returns the part of a range that follows a row in reading order.
fn behind(range: TimeRange, time: i64, order: Direction) -> TimeRange {
    match order {
        Direction::Ascending => TimeRange::new(range.start.max(time.saturating_add(1)), range.end),
        Direction::Descending => TimeRange::new(range.start, range.end.min(time)),
    }
}
