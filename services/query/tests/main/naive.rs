//! Naive evaluator of queries: evaluates the rules value by value over a map.
//!
//! The evaluator is slow and simple on purpose; the tests compare the engine with it.

use std::collections::BTreeMap;

use tideline_condition::Condition;
use tideline_model::{TimeRange, TimelineId, Value, ValueKind};
use tideline_query::{Function, GroupBy, WindowSpec};

use crate::{naive_areas, naive_values};

/// All points: timeline, then timestamp, then field.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) timelines: BTreeMap<TimelineId, Timeline>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) measurement: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) points: BTreeMap<i64, BTreeMap<String, Value>>,
}

/// Measurement, timeline id (if grouped by timeline), tags.
pub(crate) type GroupKey = (String, Option<TimelineId>, Vec<(String, String)>);
/// Start of the window, then one value per column.
pub(crate) type GroupRows = BTreeMap<i64, Vec<Option<Value>>>;

impl Model {
    pub(crate) fn write(&mut self, id: TimelineId, key: &str, time: i64, fields: &[(&str, Value)]) {
        let timeline = self.timelines.entry(id).or_default();
        let mut parts = key.split(',');
        timeline.measurement = parts.next().expect("a measurement").into();
        let tags = parts.map(|part| part.split_once('=').expect("a tag"));
        timeline.tags = tags.map(|(key, value)| (key.into(), value.into())).collect();
        let point = timeline.points.entry(time).or_default();
        for (field, value) in fields {
            point.insert((*field).into(), value.clone());
        }
    }

    /// Returns the points that match a condition; all points without a condition.
    pub(crate) fn filtered(&self, condition: Option<&Condition>) -> Self {
        let mut timelines = self.timelines.clone();
        for timeline in timelines.values_mut() {
            timeline
                .points
                .retain(|_, point| condition.is_none_or(|condition| naive_values::matches(condition, point)));
        }
        Self { timelines }
    }

    pub(crate) fn delete(&mut self, id: TimelineId, range: TimeRange) {
        if let Some(timeline) = self.timelines.get_mut(&id) {
            timeline.points.retain(|time, _| !range.contains(*time));
        }
    }

    /// Computes an aggregate with one column for each pair of function and field.
    pub(crate) fn aggregate(
        &self,
        columns: &[(Function, String)],
        range: TimeRange,
        window: Option<WindowSpec>,
        group_by: &GroupBy,
    ) -> BTreeMap<GroupKey, GroupRows> {
        let mut groups: BTreeMap<GroupKey, Vec<&Timeline>> = BTreeMap::new();
        for (id, timeline) in &self.timelines {
            let tag = |key: &String| {
                let value = timeline.tags.get(key).cloned().unwrap_or_default();
                (key.clone(), value)
            };
            let (id, tags) = match group_by {
                GroupBy::Timeline => (Some(*id), timeline.tags.clone().into_iter().collect()),
                GroupBy::Tags(keys) => (None, keys.iter().map(tag).collect()),
                GroupBy::Nothing => (None, Vec::new()),
            };
            let key = (timeline.measurement.clone(), id, tags);
            groups.entry(key).or_default().push(timeline);
        }
        let mut result = BTreeMap::new();
        for (key, members) in groups {
            let rows = group_rows(&members, columns, range, window);
            if !rows.is_empty() {
                result.insert(key, rows);
            }
        }
        result
    }
}

fn group_rows(
    members: &[&Timeline],
    columns: &[(Function, String)],
    range: TimeRange,
    window: Option<WindowSpec>,
) -> GroupRows {
    let start_of = |time: i64| match window {
        Some(spec) => time - (time - spec.offset).rem_euclid(spec.width),
        None => range.start,
    };
    let mut rows = GroupRows::new();
    for (column, (function, field)) in columns.iter().enumerate() {
        if matches!(function, Function::Integral | Function::TimeWeightedMean) {
            for (start, value) in naive_areas::areas(members, field, *function, range, window) {
                let row = rows.entry(start).or_insert_with(|| vec![None; columns.len()]);
                row[column] = value;
            }
            continue;
        }
        let mut cells: BTreeMap<i64, Vec<Seen>> = BTreeMap::new();
        for (number, timeline) in members.iter().enumerate() {
            let mut before: Option<Value> = None;
            for (time, point) in timeline.points.range(range.start..range.end) {
                let Some(value) = point.get(field) else { continue };
                cells.entry(start_of(*time)).or_default().push(Seen {
                    timeline: number,
                    time: *time,
                    value: value.clone(),
                    before: before.clone(),
                });
                if !matches!(value, Value::Float(value) if value.is_nan()) {
                    before = Some(value.clone());
                }
            }
        }
        for (start, seen) in cells {
            let end = window.map_or(range.end, |spec| start + spec.width);
            let seconds = (end.min(range.end) - start.max(range.start)) as f64 / 1e9;
            let row = rows.entry(start).or_insert_with(|| vec![None; columns.len()]);
            row[column] = evaluate(*function, &seen, seconds);
        }
    }
    rows.retain(|_, row| row.iter().any(Option::is_some));
    for row in rows.values_mut() {
        for (value, (function, _)) in row.iter_mut().zip(columns) {
            if function.counts() {
                value.get_or_insert(Value::Unsigned(0));
            }
        }
    }
    rows
}

struct Seen {
    timeline: usize,
    time: i64,
    value: Value,
    /// Preceding value of the same timeline in the range; NaN values are skipped.
    before: Option<Value>,
}

fn evaluate(function: Function, seen: &[Seen], seconds: f64) -> Option<Value> {
    let values: Vec<&Value> = seen.iter().map(|seen| &seen.value).collect();
    let is_nan = |value: &Value| matches!(value, Value::Float(value) if value.is_nan());
    match function {
        Function::Count => Some(Value::Unsigned(values.len() as u64)),
        Function::Sum => add(&values),
        Function::Mean => {
            let total = add(&values)?.as_f64()?;
            Some(Value::Float(total / values.len() as f64))
        }
        Function::Min | Function::Max => {
            let numbers: Vec<&Value> = values.iter().copied().filter(|value| !is_nan(value)).collect();
            let best = numbers.iter().copied().reduce(|kept, value| {
                // The tests keep integers small enough to be exact as doubles.
                let (a, b) = (
                    kept.as_f64().expect("a number"),
                    value.as_f64().expect("a number"),
                );
                let order = b.total_cmp(&a).then(value.value_type().cmp(&kept.value_type()));
                let wins = if function == Function::Min {
                    order.is_lt()
                } else {
                    order.is_gt()
                };
                if wins { value } else { kept }
            });
            best.or_else(|| values.first().copied()).cloned()
        }
        Function::First => {
            let first = seen.iter().map(|seen| seen.time).min()?;
            seen.iter()
                .find(|seen| seen.time == first)
                .map(|seen| seen.value.clone())
        }
        Function::Last => {
            let last = seen.iter().map(|seen| seen.time).max()?;
            let newest = seen.iter().rfind(|seen| seen.time == last);
            newest.map(|seen| seen.value.clone())
        }
        Function::CountDistinct => Some(Value::Unsigned(tally(&values).len() as u64)),
        Function::Mode => {
            let tally = tally(&values);
            let most = tally.values().map(Vec::len).max()?;
            let candidates = tally.values().filter(|equal| equal.len() == most);
            let lowest = candidates.map(|equal| equal.iter().copied().min_by(|a, b| order(a, b)));
            lowest.flatten().min_by(|a, b| order(a, b)).cloned()
        }
        Function::StdDev => {
            let numbers: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
            Some(Value::Float((squares / numbers.len() as f64).sqrt()))
        }
        Function::Spread => {
            let lowest = evaluate(Function::Min, seen, seconds)?;
            let highest = evaluate(Function::Max, seen, seconds)?;
            let spread = highest.as_f64()? - lowest.as_f64()?;
            Some(match (lowest, highest) {
                (Value::Float(_), _) | (_, Value::Float(_)) => Value::Float(spread),
                _ => Value::Unsigned(spread as u64),
            })
        }
        Function::Delta => delta(seen),
        Function::Percentile(percentile) => {
            let mut numbers: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
            numbers.retain(|number| !number.is_nan());
            numbers.sort_by(f64::total_cmp);
            let last = numbers.len().checked_sub(1)?;
            let position = last as f64 * percentile.percent() / 100.0;
            let (low, high) = (
                numbers[position.floor() as usize],
                numbers[position.ceil() as usize],
            );
            Some(Value::Float(low + (high - low) * position.fract()))
        }
        Function::Integral | Function::TimeWeightedMean => unreachable!("areas are of whole timelines"),
        Function::Increase => increase(seen),
        Function::Rate => {
            let total = increase(seen)?.as_f64()?;
            Some(Value::Float(total / seconds))
        }
    }
}

/// Groups equal values.
fn tally<'a>(values: &[&'a Value]) -> BTreeMap<String, Vec<&'a Value>> {
    let mut tally: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for value in values {
        let key = match value {
            Value::String(text) => text.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            // The tests keep integers small enough to be exact as doubles; adding zero removes the sign of −0.0.
            number => format!("{}", number.as_f64().expect("a number") + 0.0),
        };
        tally.entry(key).or_default().push(value);
    }
    tally
}

fn order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        _ => {
            let (x, y) = (a.as_f64().expect("no text"), b.as_f64().expect("no text"));
            x.total_cmp(&y).then(a.value_type().cmp(&b.value_type()))
        }
    }
}

fn delta(seen: &[Seen]) -> Option<Value> {
    let mut timelines: BTreeMap<usize, Vec<&Seen>> = BTreeMap::new();
    for seen in seen {
        timelines.entry(seen.timeline).or_default().push(seen);
    }
    let deltas = timelines.values().map(|of_timeline| {
        // The points of a timeline are in time order.
        let (first, last) = (&of_timeline[0].value, &of_timeline[of_timeline.len() - 1].value);
        let delta = last.as_f64().expect("a number") - first.as_f64().expect("a number");
        let is_float = matches!(first, Value::Float(_)) || matches!(last, Value::Float(_));
        if is_float {
            Value::Float(delta)
        } else {
            Value::Signed(delta as i64)
        }
    });
    let deltas: Vec<Value> = deltas.collect();
    add(&deltas.iter().collect::<Vec<_>>())
}

fn increase(seen: &[Seen]) -> Option<Value> {
    let mut steps: Vec<Value> = Vec::new();
    for seen in seen
        .iter()
        .filter(|seen| seen.value.value_type().kind() == ValueKind::Number)
    {
        let (Some(from), to) = (&seen.before, &seen.value) else {
            continue;
        };
        let (a, b) = (from.as_f64().expect("a number"), to.as_f64().expect("a number"));
        if b.is_nan() {
            continue;
        }
        let step = if b >= a { b - a } else { b.max(0.0) };
        let is_one_type = from.value_type() == to.value_type();
        steps.push(match to {
            Value::Signed(_) if is_one_type => Value::Signed(step as i64),
            Value::Unsigned(_) if is_one_type => Value::Unsigned(step as u64),
            _ => Value::Float(step),
        });
    }
    add(&steps.iter().collect::<Vec<_>>())
}

/// Returns the sum in the type of the values, as float for several types.
fn add(values: &[&Value]) -> Option<Value> {
    let first = values.first()?.value_type();
    let exact: i128 = values
        .iter()
        .map(|value| match value {
            Value::Signed(value) => i128::from(*value),
            Value::Unsigned(value) => i128::from(*value),
            _ => 0,
        })
        .sum();
    let is_one_type = values.iter().all(|value| value.value_type() == first);
    Some(match first {
        tideline_model::ValueType::Signed if is_one_type => Value::Signed(exact.try_into().expect("small")),
        tideline_model::ValueType::Unsigned if is_one_type => {
            Value::Unsigned(exact.try_into().expect("small"))
        }
        _ => Value::Float(values.iter().filter_map(|value| value.as_f64()).sum()),
    })
}
