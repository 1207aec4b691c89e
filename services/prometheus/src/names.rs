//! Metric names: which fields of which measurements each stands for.
//!
//! Names are derived from the fields that a table knows, and kept nowhere: whoever asks for one name finds its fields by
//! a look-up for each place at which the name can be cut, and whoever asks for many looks at all fields once.

use tideline_engine::Table;
use tideline_engine::model::{FieldId, ValueKind};
use tideline_promql::{MatchOp, Matcher};

/// The field whose numbers are named as the measurement.
pub const VALUE_FIELD: &str = "value";
/// The field whose histograms are named as the measurement.
pub const HISTOGRAM_FIELD: &str = "histogram";
/// The field that says when what is counted began: milliseconds since the epoch, at the instant of the sample.
pub const START_FIELD: &str = "_start";
/// The field of exemplars: JSON, at the exemplar's own instant.
pub const EXEMPLAR_FIELD: &str = "_exemplar";

/// What a field is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Number,
    Histogram,
}

/// A metric of one measurement: a name, and the fields that have its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Its name.
    pub(crate) name: Box<str>,
    /// The field of its numbers.
    pub(crate) number: Option<FieldId>,
    /// The field of its histograms.
    pub(crate) histogram: Option<FieldId>,
}

/// The metrics of one measurement that a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// Its name in the table.
    pub(crate) name: Box<str>,
    /// At least one, by name.
    pub(crate) metrics: Vec<Metric>,
}

impl Metric {
    /// The fields that its samples are in.
    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> {
        self.number.into_iter().chain(self.histogram)
    }
}

/// The measurements with a metric whose name meets all matchers, by name.
///
/// Costs a few look-ups where a matcher names the metric, else a look at each field of the table: about 100 ns.
pub(crate) fn measurements(table: &Table, matchers: &[&Matcher]) -> Vec<Measurement> {
    let exact = matchers.iter().find(|matcher| matcher.op == MatchOp::Equal);
    let mut found = match exact {
        Some(exact) => named(table, &exact.value, matchers),
        None => searched(table, matchers),
    };
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The measurements that have a metric of this name, if it meets all matchers.
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
                // `histogram` is named as the measurement with histograms only, and by its own name with numbers.
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

/// All measurements with the metrics whose names meet all matchers.
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

/// What a field is to Prometheus; `None` for texts, and for fields that only tell more about others.
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

/// Whether a field is named as its measurement.
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
