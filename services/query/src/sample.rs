//! Downsampling of raw rows for charts: a limited number of points per field and timeline that preserves the
//! shape of the curve.
//!
//! Points are chosen by largest-triangle-three-buckets (S. Steinarsson, 2013). The first and the last point are
//! kept. The points between them are split into buckets of equal size. From each bucket, the point that forms the
//! largest triangle with the previously chosen point and the mean of the next bucket is kept. Peaks are preserved
//! for any number of points.

use std::ops::ControlFlow;

use tideline_engine::model::{FieldId, TimelineId, ValueKind};
use tideline_engine::points::Run;
use tideline_engine::points::{Order, ReadCost, Selection};

use crate::accumulate::scalar::Scalar;
use crate::budget::within;
use crate::compute::Stages;
use crate::error::{QueryError, Result};
use crate::filter::plural;
use crate::plan::{Columns, Scope, Selected, TagBuffer, Wanted};
use crate::point_query::{Direction, PointQuery, Rows};
use crate::querier::Context;
use crate::result::{QueryCost, RowSink, Summary, ValueRef};
use crate::rows::Prepared;
use crate::timelines::TimelineReader;

/// Minimum number of points of a sample.
pub const SAMPLE_MIN: u64 = 3;
/// Maximum number of points of a sample.
pub const SAMPLE_MAX: u64 = 100_000;

/// Points of one field of one timeline.
#[derive(Debug, Default)]
struct Line {
    times: Vec<i64>,
    values: Vec<Scalar>,
}

/// Returns an error if the number of points is out of range, or if the query has a page token.
pub(crate) fn check(shape: &Rows, points: u64) -> Result<()> {
    if points < SAMPLE_MIN {
        return Err(QueryError::Invalid(format!(
            "a sample must have at least {SAMPLE_MIN} points, not {points}"
        )));
    }
    within("points of a sample", SAMPLE_MAX, points)?;
    if shape.after.is_some() {
        return Err(QueryError::Invalid(
            "samples have no pages; raise limit or narrow range".into(),
        ));
    }
    Ok(())
}

/// Returns the columns of a sample: the wanted fields, which must hold numbers.
pub(crate) fn columns(
    scope: &Scope,
    context: &Context<'_>,
    query: &PointQuery,
    stages: &Stages,
) -> Result<Columns<FieldId>> {
    let fields = number_fields(scope, context, query, stages)?;
    match fields.is_empty() {
        true => Ok(Columns::none(scope.measurements.len())),
        false => scope.row_columns(context.table, Wanted::named(&fields), &stages.computed),
    }
}

/// Runs a query for samples of `points` points.
pub(crate) fn run(
    context: &Context<'_>,
    query: &PointQuery,
    shape: &Rows,
    points: u64,
    sink: &mut dyn RowSink,
) -> Result<Summary> {
    let prepared = Prepared::new(context, query, shape)?;
    sink.begin(&prepared.header(context, sink))?;
    let mut sampler = Sampler {
        context,
        query,
        scope: &prepared.scope,
        columns: &prepared.columns,
        points: points as usize,
        order: shape.order,
        limit: prepared.limit,
        rows: 0,
        more: false,
        tags: TagBuffer::default(),
    };
    let cost = sampler.read(&prepared.stages, sink)?;
    Ok(Summary {
        rows: sampler.rows,
        more: sampler.more,
        next: None,
        estimated: Vec::new(),
        overflowed: Vec::new(),
        suggestions: Vec::new(),
        cost: QueryCost::new(&cost, context.segments, context.watch.elapsed()),
        plan: prepared.plan(context),
    })
}

/// Returns the names of the wanted fields, all of which must hold numbers. If the query names no fields,
/// returns all fields that hold numbers.
fn number_fields(
    scope: &Scope,
    context: &Context<'_>,
    query: &PointQuery,
    stages: &Stages,
) -> Result<Vec<String>> {
    let kinds = scope.kinds(context.table);
    let wanted = Wanted::of(&query.fields, query.details);
    let columns = scope.row_columns(context.table, wanted, &stages.computed)?;
    let mut fields = Vec::new();
    for (position, name) in columns.names.iter().enumerate() {
        let of_each = columns.by_measurement.iter().filter_map(|of| {
            let position = of.positions.binary_search(&position).ok()?;
            Some(of.sources[position])
        });
        let of_each: Vec<FieldId> = of_each.collect();
        let other = kinds
            .iter()
            .find(|(field, kind)| of_each.contains(field) && *kind != ValueKind::Number);
        match other {
            Some((_, kind)) if !query.fields.is_empty() => {
                return Err(QueryError::Invalid(format!(
                    "field {name:?} holds {}; only numbers can be sampled",
                    plural(*kind)
                )));
            }
            Some(_) => {}
            None => fields.push(name.clone()),
        }
    }
    Ok(fields)
}

/// Writer of a sample.
struct Sampler<'a> {
    context: &'a Context<'a>,
    query: &'a PointQuery,
    scope: &'a Scope,
    columns: &'a Columns<FieldId>,
    points: usize,
    order: Direction,
    limit: u64,
    rows: u64,
    /// True if there was a row beyond the limit.
    more: bool,
    tags: TagBuffer,
}

impl Sampler<'_> {
    fn read(&mut self, prepared: &Stages, sink: &mut dyn RowSink) -> Result<ReadCost> {
        let context = self.context;
        let mut stages = prepared.clone();
        let timelines = &self.scope.timelines;
        let ids: Vec<TimelineId> = timelines.iter().map(|timeline| timeline.id).collect();
        context.note_read(&ids);
        let of_all = self.columns.by_measurement.iter().flat_map(|of| &of.sources);
        let fields = stages.reads(of_all.copied());
        let selection = Selection {
            table: context.table.points().id(),
            timelines: &ids,
            range: self.query.range,
            fields: Some(&fields),
            order: Order::Ascending,
            tier: self.query.tier,
        };
        let mut reader = TimelineReader::new(context, selection, prepared.zone_filter());
        for timeline in timelines {
            let sources = &self.columns.of(timeline.measurement).sources;
            let mut lines: Vec<Line> = sources.iter().map(|_| Line::default()).collect();
            reader.timeline(timeline.id, &mut |run| {
                let before = held(&lines);
                if let Some(run) = stages.apply(run) {
                    let of_each = sources.iter().zip(&mut lines);
                    of_each.for_each(|(field, line)| line.take(run, *field));
                }
                context.watch.hold(before, held(&lines))?;
                Ok(ControlFlow::Continue(()))
            })?;
            self.write(timeline, &lines, sink)?;
            context.watch.release();
            if self.more {
                break;
            }
        }
        Ok(reader.cost())
    }

    fn write(&mut self, timeline: &Selected, lines: &[Line], sink: &mut dyn RowSink) -> Result<()> {
        let mut chosen: Vec<(i64, usize, Scalar)> = Vec::new();
        for (column, line) in lines.iter().enumerate() {
            let positions = line.sample(self.points).into_iter();
            chosen.extend(positions.map(|at| (line.times[at], column, line.values[at])));
        }
        chosen.sort_by_key(|(time, column, _)| (*time, *column));
        let rows: Vec<&[(i64, usize, Scalar)]> = chosen.chunk_by(|a, b| a.0 == b.0).collect();
        let columns = self.columns.of(timeline.measurement);
        let mut values: Vec<Option<ValueRef<'_>>> = vec![None; lines.len()];
        for at in 0..rows.len() {
            let row = rows[match self.order {
                Direction::Ascending => at,
                Direction::Descending => rows.len() - 1 - at,
            }];
            if self.rows == self.limit {
                self.more = true;
                return Ok(());
            }
            if at == 0 {
                let (table, measurements) = (self.context.table, &self.scope.measurements);
                self.tags
                    .begin_series(table, measurements, timeline, &columns.positions, sink)?;
            }
            values.fill(None);
            row.iter()
                .for_each(|(_, column, value)| values[*column] = Some((*value).into()));
            sink.row(row[0].0, &values)?;
            self.rows += 1;
        }
        Ok(())
    }
}

/// Returns the bytes that lines hold.
fn held(lines: &[Line]) -> u64 {
    let each = (size_of::<i64>() + size_of::<Scalar>()) as u64;
    lines.iter().map(|line| line.times.len() as u64 * each).sum()
}

impl Line {
    /// Adds the finite numbers of a field.
    fn take(&mut self, run: &Run, field: FieldId) {
        let before = self.times.len();
        let mut columns = 0;
        for column in run.columns.iter().filter(|column| column.field == field) {
            let rows = (0..run.rows()).filter(|row| column.presence.contains(*row));
            for (at, row) in rows.enumerate() {
                let number = Scalar::at(&column.values, at);
                let number = number
                    .filter(|number| !matches!(number, Scalar::Boolean(_)) && number.as_f64().is_finite());
                if let Some(number) = number {
                    self.times.push(run.timestamps[row]);
                    self.values.push(number);
                }
            }
            columns += 1;
        }
        if columns > 1 {
            // Values of several types are in time order per type, but not overall.
            let mut points: Vec<(i64, Scalar)> = self
                .times
                .drain(before..)
                .zip(self.values.drain(before..))
                .collect();
            points.sort_by_key(|(time, _)| *time);
            self.times.extend(points.iter().map(|(time, _)| *time));
            self.values.extend(points.iter().map(|(_, value)| *value));
        }
    }

    /// Returns the indexes of the chosen points, ascending.
    fn sample(&self, points: usize) -> Vec<usize> {
        let length = self.times.len();
        if length <= points {
            return (0..length).collect();
        }
        let origin = self.times[0];
        let point = |at: usize| {
            let x = (i128::from(self.times[at]) - i128::from(origin)) as f64;
            (x, self.values[at].as_f64())
        };
        // Start of a bucket of the inner points, in integer arithmetic.
        let inner = (length - 2) as u128;
        let begin = |bucket: usize| 1 + (inner * bucket as u128 / (points - 2) as u128) as usize;
        let mut kept = vec![0];
        let mut before = point(0);
        for bucket in 0..points - 2 {
            let next = begin(bucket + 1)..begin(bucket + 2).min(length).max(begin(bucket + 1) + 1);
            let count = next.len() as f64;
            let (x, y) = next
                .map(point)
                .fold((0.0, 0.0), |(x, y), (px, py)| (x + px / count, y + py / count));
            let area = |at: usize| {
                let (px, py) = point(at);
                ((before.0 - x) * (py - before.1) - (before.0 - px) * (y - before.1)).abs()
            };
            let first = begin(bucket);
            let mut best = (first, area(first));
            for at in first + 1..begin(bucket + 1) {
                let area = area(at);
                if area > best.1 {
                    best = (at, area);
                }
            }
            kept.push(best.0);
            before = point(best.0);
        }
        kept.push(length - 1);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: impl Iterator<Item = f64>) -> Line {
        let values: Vec<Scalar> = values.map(Scalar::Float).collect();
        Line {
            times: (0..values.len() as i64).map(|at| at * 1_000_000_000).collect(),
            values,
        }
    }

    #[test]
    fn a_peak_stays_however_few_points_there_are() {
        for peak in [1, 250, 777, 998] {
            let line = line((0..1_000).map(|at| if at == peak { 50.0 } else { f64::from(at % 3) }));
            for points in [3, 10, 400, 999] {
                let kept = line.sample(points);
                assert_eq!(kept.len(), points);
                assert!(kept.is_sorted_by(|a, b| a < b), "{kept:?}");
                assert_eq!((kept[0], kept[points - 1]), (0, 999));
                assert!(kept.contains(&(peak as usize)), "{points}");
            }
        }
    }

    #[test]
    fn few_points_stay_all() {
        for length in 0..5 {
            let line = line((0..length).map(f64::from));
            assert_eq!(line.sample(4).len(), length as usize);
        }
    }
}
