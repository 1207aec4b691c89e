//! Metric names: resolution of a name to fields of measurements.
//!
//! Names are derived from the fields of a table and are not stored. The fields of one name are found by a lookup for
//! each position at which the name can be split. A search for many names visits all fields once.

use tideline_engine::Table;
use tideline_engine::model::{FieldId, ValueKind};
use tideline_promql::{MatchOp, Matcher};

/// Field whose metric has the name of the measurement, if the field holds numbers or booleans.
pub const VALUE_FIELD: &str = "value";
/// Field whose metric has the name of the measurement, if the field holds histograms.
pub const HISTOGRAM_FIELD: &str = "histogram";
/// Field of start timestamps of counters, in milliseconds since the epoch, stored at the timestamp of the sample.
pub const START_FIELD: &str = "_start";
/// Field of exemplars, as JSON, stored at the timestamp of the exemplar.
pub const EXEMPLAR_FIELD: &str = "_exemplar";

/// Kind of samples that a field has for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Number,
    Histogram,
}

/// Metric of one measurement: a name, and the fields that have its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Metric name.
    pub(crate) name: Box<str>,
    /// Field of its numbers.
    pub(crate) number: Option<FieldId>,
    /// Field of its histograms.
    pub(crate) histogram: Option<FieldId>,
}

/// Selected metrics of one measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// Name of the measurement.
    pub(crate) name: Box<str>,
    /// Metrics, sorted by name; at least one.
    pub(crate) metrics: Vec<Metric>,
}

impl Metric {
    /// Returns the fields that have the samples of the metric.
    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> {
        self.number.into_iter().chain(self.histogram)
    }
}

/// Returns the measurements, sorted by name, that have a metric whose name matches all matchers.
///
/// Costs a few lookups if a matcher requires one exact name, otherwise about 100 ns per field of the table.
pub(crate) fn measurements(table: &Table, matchers: &[&Matcher]) -> Vec<Measurement> {
    let exact = matchers.iter().find(|matcher| matcher.op == MatchOp::Equal);
    let mut found = match exact {
        Some(exact) => named(table, &exact.value, matchers),
        None => searched(table, matchers),
    };
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the measurements that have a metric of this name; the list is empty if the name is empty or does not match
/// all matchers.
fn named(table: &Table, name: &str, matchers: &[&Matcher]) -> Vec<Measurement> {
    if name.is_empty() || !matchers.iter().all(|matcher| matcher.matches(name)) {
        return Vec::new();
    }
    let schema = table.points().schema();
    let mut found = Vec::new();
    let mut add = |measurement: &str, fields: &[&str]| {
        let mut metric = Metric::empty(name);
        for field in fields {
            if let Some((id, kind)) = schema.field_of(measurement, field)
                && let Some(part) = part_of(field, kind)
                // The metric of a field `histogram` has the name of the measurement only if the field holds histograms.
                // If the field holds numbers, its metric is named like the metrics of other fields.
                && is_named(name, measurement, field, kind)
            {
                metric.take(part, id);
            }
        }
        if !metric.is_empty() {
            found.push(Measurement {
                name: measurement.into(),
                metrics: vec![metric],
            });
        }
    };
    add(name, &[VALUE_FIELD, HISTOGRAM_FIELD]);
    for (cut, _) in name.match_indices('_') {
        add(&name[..cut], &[&name[cut + 1..]]);
    }
    found
}

/// Returns all measurements with the metrics whose names match all matchers.
fn searched(table: &Table, matchers: &[&Matcher]) -> Vec<Measurement> {
    let mut found = Vec::new();
    let mut text = String::new();
    table
        .points()
        .schema()
        .for_each_measurement(|measurement, fields| {
            let mut metrics: Vec<Metric> = Vec::new();
            for (field, id, kind) in fields {
                let Some(part) = part_of(field, kind) else {
                    continue;
                };
                write_name(&mut text, measurement, field, kind);
                if !matchers.iter().all(|matcher| matcher.matches(&text)) {
                    continue;
                }
                match metrics.iter_mut().find(|metric| *metric.name == *text) {
                    Some(metric) => metric.take(part, id),
                    None => {
                        let mut metric = Metric::empty(&text);
                        metric.take(part, id);
                        metrics.push(metric);
                    }
                }
            }
            if !metrics.is_empty() {
                metrics.sort_by(|a, b| a.name.cmp(&b.name));
                found.push(Measurement {
                    name: measurement.into(),
                    metrics,
                });
            }
        });
    found
}

impl Metric {
    fn empty(name: &str) -> Self {
        Self {
            name: name.into(),
            number: None,
            histogram: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.number.is_none() && self.histogram.is_none()
    }

    fn take(&mut self, part: Part, field: FieldId) {
        match part {
            Part::Number => self.number = Some(field),
            Part::Histogram => self.histogram = Some(field),
        }
    }
}

/// Returns the kind of samples of a field; `None` for strings and for fields that begin with `_`.
fn part_of(field: &str, kind: ValueKind) -> Option<Part> {
    if field.starts_with('_') {
        return None;
    }
    match kind {
        ValueKind::Number | ValueKind::Boolean => Some(Part::Number),
        ValueKind::Histogram => Some(Part::Histogram),
        ValueKind::String => None,
    }
}

/// Returns true if the metric of a field has the name of the measurement.
fn is_the_measurement(field: &str, kind: ValueKind) -> bool {
    match kind {
        ValueKind::Histogram => field == HISTOGRAM_FIELD,
        _ => field == VALUE_FIELD,
    }
}

fn is_named(name: &str, measurement: &str, field: &str, kind: ValueKind) -> bool {
    match is_the_measurement(field, kind) {
        true => name == measurement,
        false => name.len() > measurement.len(),
    }
}

fn write_name(text: &mut String, measurement: &str, field: &str, kind: ValueKind) {
    text.clear();
    text.push_str(measurement);
    if !is_the_measurement(field, kind) {
        text.push('_');
        text.push_str(field);
    }
}
