//! Raw rows in the order of a value. All rows are read; only the first rows of the order are kept.
//!
//! Timelines are read one after another, as for rows in time order. When twice as many rows as the limit are kept,
//! they are sorted, and the rows beyond the limit are dropped. From then on, only rows whose value sorts before the
//! last value within the limit are kept. Memory is thus bounded by the limit, and most rows cost one comparison.

use std::ops::ControlFlow;

use tideline_engine::Table;
use tideline_engine::model::{FieldId, TimelineId, Value};
use tideline_engine::points::Run;
use tideline_engine::points::{Order, ReadCost, Selection};

use crate::budget::within;
use crate::compute::{Stages, no_such_field};
use crate::error::{QueryError, Result};
use crate::plan::{Selected, TagBuffer};
use crate::point_query::{PointQuery, RankOrder, RowOrder, Rows};
use crate::querier::Context;
use crate::result::{QueryCost, RowSink, Summary, ValueRef};
use crate::rows::{Prepared, Source, sources};
use crate::timelines::TimelineReader;
use crate::value_order::{compare, compare_values};

/// Maximum number of rows of a result if the query has no limit.
pub const LIMIT_DEFAULT: u64 = 1_000;
/// Maximum number of rows of a result.
pub const LIMIT_MAX: u64 = 100_000;
/// Number of written rows between two checks of time limit and cancellation.
const ROWS_PER_CHECK: usize = 128;

/// Returns an error if the query has samples, a page token, or too high a limit.
pub(crate) fn check(shape: &Rows) -> Result<()> {
    if shape.sample.is_some() || shape.after.is_some() {
        return Err(QueryError::Invalid(
            "rows in the order of a value have neither samples nor pages; raise limit, or narrow range"
                .into(),
        ));
    }
    within(
        "rows in the order of a value",
        LIMIT_MAX,
        shape.limit.unwrap_or(LIMIT_DEFAULT),
    )
}

/// Returns the field that rows are ordered by.
pub(crate) fn field(order: &RowOrder, table: &Table, stages: &Stages) -> Result<FieldId> {
    let stored = || table.field(&order.field);
    let field = stages.computed.field(&order.field).or_else(stored);
    field.ok_or_else(|| no_such_field(&order.field, table))
}

/// Runs a query for rows in the order of a value. A series starts wherever the timeline changes.
pub(crate) fn run(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Rows,
    order: &RowOrder,
    sink: &mut dyn RowSink,
) -> Result<Summary> {
    let prepared = Prepared::new(context, query, shape)?;
    let field = field(order, context.table, &prepared.stages)?;
    sink.begin(&prepared.header(context, sink))?;
    let mut first = First {
        order: order.order,
        limit: prepared.limit as usize,
        rows: Vec::new(),
        bytes: 0,
        last: None,
        is_more: false,
    };
    let cost = read(context, query, &prepared, field, &mut first)?;
    first.cut();
    write(context, &prepared, &first.rows, sink)?;
    context.watch.release();
    Ok(Summary {
        rows: first.rows.len() as u64,
        more: first.is_more,
        next: None,
        estimated: Vec::new(),
        overflowed: Vec::new(),
        suggestions: Vec::new(),
        cost: QueryCost::new(&cost, context.segments, context.watch.elapsed()),
        plan: prepared.plan(context),
    })
}

/// Kept row.
#[derive(Debug)]
struct Kept {
    key: Value,
    /// Index of its timeline in the scope.
    timeline: usize,
    time: i64,
    values: Vec<Option<Value>>,
}

/// First rows, in the requested order, of all rows read so far.
struct First {
    order: RankOrder,
    limit: usize,
    rows: Vec<Kept>,
    /// Bytes of the rows.
    bytes: u64,
    /// Last value within the limit when rows were last dropped; rows that do not sort before it are dropped.
    last: Option<Value>,
    /// True if a row was dropped.
    is_more: bool,
}

impl First {
    /// Returns true if a row with this value must be kept; otherwise records that a row was dropped. Rows must be
    /// offered in order of timeline and time: rows of equal values keep this order.
    fn takes(&mut self, key: ValueRef<'_>) -> bool {
        let last = self.last.as_ref().map(ValueRef::from);
        let takes = last.is_none_or(|last| compare(Some(key), Some(last), self.order).is_lt());
        self.is_more |= !takes;
        takes
    }

    fn push(&mut self, row: Kept) {
        self.bytes += bytes(&row);
        self.rows.push(row);
        if self.rows.len() >= 2 * self.limit {
            self.cut();
        }
    }

    /// Sorts the rows and drops those beyond the limit.
    fn cut(&mut self) {
        let order = self.order;
        self.rows.sort_by(|a, b| {
            let by_value = compare_values(Some(&a.key), Some(&b.key), order);
            by_value.then((a.timeline, a.time).cmp(&(b.timeline, b.time)))
        });
        if self.rows.len() > self.limit {
            self.is_more = true;
            self.rows.truncate(self.limit);
        }
        if self.rows.len() == self.limit {
            self.last = self.rows.last().map(|row| row.key.clone());
        }
        self.bytes = self.rows.iter().map(bytes).sum();
    }
}

fn bytes(row: &Kept) -> u64 {
    let owned: usize = row.values.iter().flatten().map(Value::owned_bytes).sum();
    (size_of::<Kept>() + size_of_val(&row.values[..]) + owned + row.key.owned_bytes()) as u64
}

fn read(
    context: &Context<'_>,
    query: &PointQuery,
    prepared: &Prepared,
    field: FieldId,
    first: &mut First,
) -> Result<ReadCost> {
    let timelines = &prepared.scope.timelines;
    let ids: Vec<TimelineId> = timelines.iter().map(|timeline| timeline.id).collect();
    context.note_read(&ids);
    let of_all = prepared.columns.by_measurement.iter().flat_map(|of| &of.sources);
    let fields = prepared.stages.reads(of_all.copied().chain([field]));
    let mut stages = prepared.stages.clone();
    let selection = Selection {
        table: context.table.points().id(),
        timelines: &ids,
        range: query.range,
        fields: Some(&fields),
        order: Order::Ascending,
        tier: query.tier,
    };
    let mut reader = TimelineReader::new(context, selection, prepared.stages.zone_filter());
    for (at, timeline) in timelines.iter().enumerate() {
        reader.timeline(timeline.id, &mut |run| {
            let before = first.bytes;
            if let Some(run) = stages.apply(run) {
                take(prepared, field, (at, timeline), run, first);
            }
            context.watch.hold(before, first.bytes)?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(reader.cost())
}

/// Keeps the rows of a run that can be in the result. Such a row has a value of the field that rows are ordered by, and
/// at least one shown value.
fn take(prepared: &Prepared, field: FieldId, of: (usize, &Selected), run: &Run, first: &mut First) {
    let (at, timeline) = of;
    let columns = prepared.columns.of(timeline.measurement);
    let by_value = run.columns.iter().filter(|column| column.field == field);
    let keys: Vec<Source<'_>> = by_value
        .map(|column| Source::new(0, column, run.rows()))
        .collect();
    if keys.is_empty() {
        return;
    }
    let sources = sources(run, columns);
    for row in 0..run.rows() {
        let Some(key) = keys.iter().find_map(|column| column.get(row)) else {
            continue;
        };
        let mut shown = sources
            .iter()
            .filter_map(|source| Some((source.position, source.get(row)?)));
        let Some(one) = shown.next() else { continue };
        if !first.takes(key) {
            continue;
        }
        let mut values = vec![None; columns.positions.len()];
        for (position, value) in std::iter::once(one).chain(shown) {
            values[position] = Some(value.to_value());
        }
        first.push(Kept {
            key: key.to_value(),
            timeline: at,
            time: run.timestamps[row],
            values,
        });
    }
}

fn write(context: &Context<'_>, prepared: &Prepared, rows: &[Kept], sink: &mut dyn RowSink) -> Result<()> {
    let scope = &prepared.scope;
    let mut tags = TagBuffer::default();
    let mut open = None;
    for (number, row) in rows.iter().enumerate() {
        if number.is_multiple_of(ROWS_PER_CHECK) {
            context.watch.check()?;
        }
        if open.replace(row.timeline) != Some(row.timeline) {
            let timeline = &scope.timelines[row.timeline];
            let columns = &prepared.columns.of(timeline.measurement).positions;
            tags.begin_series(context.table, &scope.measurements, timeline, columns, sink)?;
        }
        let values: Vec<Option<ValueRef<'_>>> = row
            .values
            .iter()
            .map(|value| value.as_ref().map(ValueRef::from))
            .collect();
        sink.row(row.time, &values)?;
    }
    Ok(())
}
