//! Naive model: points in a map; every query scans all of them.
//!
//! The scans are slow and simple, so that their results are evidently correct.

use std::collections::{BTreeMap, BTreeSet};

use crate::reading::{Fields, Row};
use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::{Timestamp, Value};

use super::place;

const SECOND: i64 = 1_000_000_000;
/// Maximum number of windows of a query; the range is cut accordingly.
const WINDOWS_MAX: i64 = 2_000;
/// Tolerance relative to the sum of absolute values: the possible effect of the order of additions.
const SUM_TOLERANCE: f64 = 1e-12;

/// All points that were written and neither deleted nor purged.
#[derive(Debug)]
pub(super) struct Model {
    timelines: BTreeMap<(String, String), BTreeMap<i64, Fields>>,
    /// All fields that were ever written, by measurement.
    fields: BTreeSet<(String, String)>,
    /// Points before this timestamp are stored but hidden.
    visible_from: i64,
}

/// Timelines of a measurement and a half-open time range.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) measurement: String,
    hosts: Option<BTreeSet<String>>,
    start: i64,
    end: i64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            timelines: BTreeMap::new(),
            fields: BTreeSet::new(),
            visible_from: i64::MIN,
        }
    }
}

impl Model {
    /// Writes a point; fields of the same point merge, and the newest value wins.
    pub(super) fn write(&mut self, measurement: &str, host: &str, time: i64, fields: Fields) {
        let named = fields.keys().map(|name| (measurement.to_owned(), name.clone()));
        self.fields.extend(named);
        let timeline = self.timelines.entry((measurement.to_owned(), host.to_owned()));
        timeline.or_default().entry(time).or_default().extend(fields);
    }

    pub(super) fn points(&self) -> usize {
        self.timelines.values().map(BTreeMap::len).sum()
    }

    /// Deletes the points of these timelines in this range.
    pub(super) fn delete(&mut self, span: &Span) {
        let timelines = self.timelines.iter_mut();
        for (_, points) in timelines.filter(|(timeline, _)| span.means(timeline)) {
            points.retain(|time, _| !(span.start..span.end).contains(time));
        }
    }

    /// Removes these timelines with all their points.
    pub(super) fn remove_timelines(&mut self, span: &Span) {
        self.timelines.retain(|timeline, _| !span.means(timeline));
    }

    /// Sets the first visible timestamp; returns the previous one.
    pub(super) fn show_from(&mut self, instant: i64) -> i64 {
        std::mem::replace(&mut self.visible_from, instant)
    }

    /// Aligns the hidden points of a range with the service, which may have purged some of them. `rows` are
    /// the points that the service still returns: points in `rows` take their fields, all other points of the
    /// range are removed. Panics if `rows` has a point in the range that the model lacks.
    pub(super) fn keep_of_hidden(&mut self, measurement: &str, (start, end): (i64, i64), rows: Vec<Row>) {
        let mut left: BTreeMap<_, Fields> = rows
            .into_iter()
            .map(|row| {
                let (_, host, time) = place(&row);
                ((host, time), row.fields)
            })
            .collect();
        for ((name, host), points) in &mut self.timelines {
            if name == measurement {
                points.retain(|time, fields| {
                    let was_hidden = (start..end).contains(time);
                    let kept = left.remove(&(host.clone(), *time)).filter(|_| was_hidden);
                    kept.map(|kept| *fields = kept).is_some() || !was_hidden
                });
            }
        }
        left.retain(|(_, time), _| (start..end).contains(time));
        assert!(left.is_empty(), "never written or deleted, but found: {left:?}");
    }

    /// Returns true if a point of this timestamp can be written.
    pub(super) fn takes(&self, time: i64) -> bool {
        time >= self.visible_from
    }

    /// Returns true if a field was ever written.
    pub(super) fn knows(&self, measurement: &str, field: &str) -> bool {
        self.fields.contains(&(measurement.to_owned(), field.to_owned()))
    }

    /// Returns the machines of a measurement that were written and not removed, each with true if any of its
    /// points is visible.
    pub(super) fn hosts(&self, measurement: &str) -> BTreeMap<String, bool> {
        let span = Span::all(measurement);
        let is_seen =
            |points: &BTreeMap<i64, Fields>| self.visible(points, i64::MIN, i64::MAX).next().is_some();
        self.within(&span)
            .map(|(host, points)| (host.to_owned(), is_seen(points)))
            .collect()
    }

    pub(super) fn rows(&self, span: &Span) -> Vec<Row> {
        self.within(span)
            .flat_map(|(host, points)| {
                self.visible(points, span.start, span.end)
                    .map(|(time, fields)| Row {
                        measurement: span.measurement.clone(),
                        tags: [("host".to_owned(), host.to_owned())].into(),
                        time: *time,
                        fields: fields.clone(),
                    })
            })
            .collect()
    }

    /// Compares a result by machine and window with a scan of all points.
    pub(super) fn compare_windows(
        &self,
        span: &Span,
        field: &str,
        seconds: i64,
        (start, end): (i64, i64),
        actual: &[Row],
        context: &str,
    ) {
        let width = seconds * SECOND;
        let mut expected: BTreeMap<(String, i64), Vec<(i64, Value)>> = BTreeMap::new();
        for (host, points) in self.within(span) {
            for (time, fields) in self.visible(points, start, end) {
                if let Some(value) = fields.get(field) {
                    let window = time.div_euclid(width) * width;
                    let values = expected.entry((host.to_owned(), window)).or_default();
                    values.push((*time, value.clone()));
                }
            }
        }
        for row in actual {
            let (_, host, window) = place(row);
            let Some(values) = expected.remove(&(host.clone(), window)) else {
                panic!("{context}: {row:?} where there is no value");
            };
            compare_window(&values, row, field, &format!("{context}, {host} at {window}"));
        }
        assert!(
            expected.is_empty(),
            "{context}: windows are missing: {expected:?}"
        );
    }

    /// Compares newest values: each field of each timeline must occur in one row, with its newest timestamp.
    pub(super) fn compare_latest(&self, span: &Span, actual: &[Row], context: &str) {
        let mut expected: BTreeMap<(String, String), (i64, Value)> = BTreeMap::new();
        for (host, points) in self.within(span) {
            for (time, fields) in self.visible(points, i64::MIN, i64::MAX) {
                for (field, value) in fields {
                    expected.insert((host.to_owned(), field.clone()), (*time, value.clone()));
                }
            }
        }
        for row in actual {
            let (_, host, _) = place(row);
            for (field, value) in &row.fields {
                let Some((time, known)) = expected.remove(&(host.clone(), field.clone())) else {
                    panic!("{context}: {host} {field} is duplicated or was never written");
                };
                let same = row.time == time && same_value(&known, value);
                assert!(
                    same,
                    "{context}: {host} {field}: {row:?}, expected {known:?} at {time}"
                );
            }
        }
        assert!(expected.is_empty(), "{context}: missing {expected:?}");
    }

    fn within<'m>(&'m self, span: &'m Span) -> impl Iterator<Item = (&'m str, &'m BTreeMap<i64, Fields>)> {
        self.timelines
            .iter()
            .filter(|(timeline, _)| span.means(timeline))
            .map(|((_, host), points)| (host.as_str(), points))
    }

    fn visible<'m>(
        &self,
        points: &'m BTreeMap<i64, Fields>,
        start: i64,
        end: i64,
    ) -> impl Iterator<Item = (&'m i64, &'m Fields)> + use<'m> {
        let start = start.max(self.visible_from);
        points.range(start..end.max(start))
    }
}

impl Span {
    /// Returns a span of all timelines and points of a measurement.
    pub(super) fn all(measurement: &str) -> Self {
        Self {
            measurement: measurement.to_owned(),
            hosts: None,
            start: i64::MIN,
            end: i64::MAX,
        }
    }

    /// Draws random timelines of a random measurement, and in 3 of 4 cases a range between visible points.
    /// Returns `None` if the model has no timelines, or if a range is drawn but no point is visible.
    pub(super) fn draw(model: &Model, random: &mut Random) -> Option<Self> {
        let measurements: BTreeSet<&String> = model.timelines.keys().map(|(name, _)| name).collect();
        let measurement = *measurements.iter().nth(random.index(measurements.len()))?;
        let mut span = Self::all(measurement);
        if random.index(2) == 0 {
            let hosts: Vec<String> = model.within(&span).map(|(host, _)| host.to_owned()).collect();
            let count = 1 + random.index(hosts.len());
            span.hosts = Some(
                (0..count)
                    .map(|_| hosts[random.index(hosts.len())].clone())
                    .collect(),
            );
        }
        if random.index(4) > 0 {
            let instants: Vec<i64> = model.rows(&span).iter().map(|row| row.time).collect();
            if instants.is_empty() {
                return None;
            }
            let mut ends = [0, 0].map(|_| instants[random.index(instants.len())]);
            ends.sort_unstable();
            (span.start, span.end) = (ends[0], ends[1].max(ends[0] + 1));
        }
        Some(span)
    }

    /// Restricts the span to one of its machines, if it lists machines.
    pub(super) fn keep_one_host(&mut self, random: &mut Random) {
        if let Some(hosts) = &mut self.hosts {
            let kept = hosts.iter().nth(random.index(hosts.len())).cloned();
            hosts.retain(|host| Some(host) == kept.as_ref());
        }
    }

    /// Returns the start and the exclusive end, clamped to valid timestamps.
    pub(super) fn range(&self) -> (i64, i64) {
        (
            self.start.max(Timestamp::MIN.nanos()),
            self.end.min(Timestamp::MAX.nanos()),
        )
    }

    fn means(&self, (measurement, host): &(String, String)) -> bool {
        *measurement == self.measurement && self.hosts.as_ref().is_none_or(|hosts| hosts.contains(host))
    }

    pub(super) fn condition(&self) -> Json {
        let measurement = json!({"property": "measurement", "equals": self.measurement});
        match &self.hosts {
            None => measurement,
            Some(hosts) => json!({"and": [measurement, {"tag": "host", "in": hosts}]}),
        }
    }

    /// Returns the request for raw rows.
    pub(super) fn query(&self) -> Json {
        let mut query = json!({"timelines": {"where": self.condition()}});
        if self.start > i64::MIN {
            query["range"] = json!({"start": self.start, "end": self.end});
        }
        query
    }

    /// Returns the range with a finite end, cut to its last [`WINDOWS_MAX`] windows and never empty.
    pub(super) fn bounded(&self, seconds: i64) -> (i64, i64) {
        let end = self.end.min(1_700_000_400 * SECOND);
        let start = self.start.max(end - WINDOWS_MAX * seconds * SECOND);
        (start.min(end - 1), end)
    }

    pub(super) fn aggregate_query(&self, field: &str, seconds: i64, start: i64, end: i64) -> Json {
        json!({
            "timelines": {"where": self.condition()},
            "range": {"start": start, "end": end},
            "fields": [field],
            "aggregate": {
                "functions": ["count", "sum", "mean", "min", "max", "first", "last"],
                "window": format!("{seconds}s"),
                "group_by": ["host"],
            },
        })
    }
}

/// Asserts that both lists have the same rows, in any order.
pub(super) fn same_rows(expected: &[Row], actual: &[Row], context: &str) {
    let mut known: BTreeMap<_, &Row> = expected.iter().map(|row| (place(row), row)).collect();
    for row in actual {
        let Some(wanted) = known.remove(&place(row)) else {
            panic!("{context}: {row:?} is duplicated or was never written");
        };
        let same = wanted.fields.len() == row.fields.len()
            && wanted.fields.iter().all(|(name, value)| {
                row.fields
                    .get(name)
                    .is_some_and(|actual| same_value(value, actual))
            });
        assert!(same, "{context}: {row:?}, expected {wanted:?}");
    }
    let lost: Vec<_> = known.values().take(5).collect();
    assert!(
        lost.is_empty(),
        "{context}: {} of {} rows are lost: {lost:?}",
        known.len(),
        expected.len()
    );
}

/// Compares a value with its form in a response: non-finite floats are texts there, and unsigned values that
/// fit `i64` are signed.
fn same_value(wanted: &Value, actual: &Value) -> bool {
    match (wanted, actual) {
        (Value::Float(float), Value::String(text)) => match text.as_ref() {
            "NaN" => float.is_nan(),
            "Inf" => *float == f64::INFINITY,
            "-Inf" => *float == f64::NEG_INFINITY,
            _ => false,
        },
        (Value::Unsigned(wanted), Value::Signed(actual)) => i64::try_from(*wanted) == Ok(*actual),
        _ => wanted == actual,
    }
}

fn compare_window(values: &[(i64, Value)], row: &Row, field: &str, context: &str) {
    let cell = |function: &str| {
        let column = format!("{function}({field})");
        row.fields
            .get(&column)
            .unwrap_or_else(|| panic!("{context}: no {column} in {row:?}"))
    };
    let numbers: Vec<f64> = values.iter().filter_map(|(_, value)| value.as_f64()).collect();
    let near = |function: &str, wanted: f64, scale: f64| {
        let actual = cell(function).as_f64().unwrap_or(f64::NAN);
        let close = (actual - wanted).abs() <= SUM_TOLERANCE * scale.max(f64::MIN_POSITIVE);
        assert!(close, "{context}: {function} is {actual}, expected {wanted}");
    };
    let scale: f64 = numbers.iter().map(|number| number.abs()).sum();
    let sum: f64 = numbers.iter().sum();
    assert_eq!(
        *cell("count"),
        Value::Signed(values.len() as i64),
        "{context}: count"
    );
    near("sum", sum, scale);
    near("mean", sum / numbers.len() as f64, scale);
    near("min", numbers.iter().copied().fold(f64::INFINITY, f64::min), 0.0);
    near(
        "max",
        numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        0.0,
    );
    for (function, wanted) in [("first", values.first()), ("last", values.last())] {
        let wanted = wanted.map(|(_, value)| value);
        assert!(
            wanted.is_some_and(|wanted| same_value(wanted, cell(function))),
            "{context}: {function} is {:?}, expected {wanted:?}",
            cell(function)
        );
    }
}
