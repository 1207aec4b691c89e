//! The rules of queries, evaluated value by value over a map. Slow and plain on purpose.

use std::collections::BTreeMap;

use tideline_model::{TimeRange, TimelineId, Value, ValueKind};
use tideline_query::{Function, GroupBy, WindowSpec};

/// Every point there is: timeline, then time, then field.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) timelines: BTreeMap<TimelineId, Timeline>,
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) measurement: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) points: BTreeMap<i64, BTreeMap<String, Value>>,
}

/// Measurement, then timeline id or tag values.
pub(crate) type GroupKey = (String, Option<TimelineId>, Vec<(String, String)>);
/// Window start, then one value a column.
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

    pub(crate) fn delete(&mut self, id: TimelineId, range: TimeRange) {
        if let Some(timeline) = self.timelines.get_mut(&id) {
            timeline.points.retain(|time, _| !range.contains(*time));
        }
    }

    /// Columns are (function, field) of those fields that the group's measurement has.
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
        let mut answer = BTreeMap::new();
        for (key, members) in groups {
            let rows = group_rows(&members, columns, range, window);
            if !rows.is_empty() {
                answer.insert(key, rows);
            }
        }
        answer
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
        let mut cells: BTreeMap<i64, Vec<Seen>> = BTreeMap::new();
        for timeline in members {
            let mut before: Option<Value> = None;
            for (time, point) in timeline.points.range(range.start..range.end) {
                let Some(value) = point.get(field) else { continue };
                cells.entry(start_of(*time)).or_default().push(Seen {
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
            if *function == Function::Count {
                value.get_or_insert(Value::Unsigned(0));
            }
        }
    }
    rows
}

struct Seen {
    time: i64,
    value: Value,
    /// The value before it of the same timeline in the range, NaN left out.
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
        Function::Increase => increase(seen),
        Function::Rate => {
            let total = increase(seen)?.as_f64()?;
            Some(Value::Float(total / seconds))
        }
    }
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

/// Sums in the type of the values, float where there are several.
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
