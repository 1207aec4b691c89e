//! Expected results, and their comparison with actual results.
//!
//! Numbers may differ by less than one millionth of the sum of their absolute values. Stale markers equal only
//! each other.

mod histogram;

use regex::Regex;
use tideline_promql::{Labels, Point, QueryValue, Sample, Series};

use crate::run::{Options, QueryResult};
use crate::series::Value;

/// Exclusive bound of the difference of numbers that count as equal, relative to the sum of their
/// absolute values.
const TOLERANCE: f64 = 1e-6;

/// Expected outcome of one evaluation: result, error, warnings and infos.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expectation {
    /// Expected result.
    pub expected: Expected,
    /// True if the order of the series is compared.
    pub is_ordered: bool,
    /// Expected error; `None` if the evaluation must succeed.
    pub fail: Option<Message>,
    /// True if at least one warning must occur.
    pub has_warnings: bool,
    /// True if at least one info must occur.
    pub has_infos: bool,
    /// Expected warnings. Each must occur. Unless the list is empty, no other warnings may occur.
    pub warnings: Vec<Message>,
    /// Expected infos, compared like `warnings`.
    pub infos: Vec<Message>,
    /// True if warnings are not allowed.
    pub no_warnings: bool,
    /// True if infos are not allowed.
    pub no_infos: bool,
    /// First timestamp, last timestamp and step of the samples, for an instant query that returns a range
    /// vector.
    pub samples_at: Option<(i64, i64, i64)>,
}

/// Expected result.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// Number.
    Scalar(f64),
    /// String.
    String(String),
    /// Series; no other series may occur.
    Series(Vec<ExpectedSeries>),
}

impl Default for Expected {
    fn default() -> Self {
        Self::Series(Vec::new())
    }
}

/// Expected series.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedSeries {
    /// Labels.
    pub labels: Labels,
    /// Values, one per timestamp.
    pub values: Vec<Value>,
}

/// Expected message.
#[derive(Debug, Clone)]
pub enum Message {
    /// Any message.
    Any,
    /// Exactly this message.
    Exact(String),
    /// Message that contains a match of this pattern.
    Pattern(Regex),
}

/// Compares patterns by their text.
impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any) => true,
            (Self::Exact(a), Self::Exact(b)) => a == b,
            (Self::Pattern(a), Self::Pattern(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Message {
    pub(crate) fn pattern(pattern: &str) -> Result<Self, String> {
        let regex = Regex::new(pattern).map_err(|error| format!("{pattern}: {error}"))?;
        Ok(Self::Pattern(regex))
    }

    fn matches(&self, message: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == message,
            Self::Pattern(pattern) => pattern.is_match(message),
        }
    }
}

impl Expectation {
    /// Adds the expectation of a line, without the word `expect`.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), String> {
        let (kind, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let message = match rest.trim().split_once(':') {
            Some(("msg", exact)) => Message::Exact(exact.trim().to_owned()),
            Some(("regex", pattern)) => Message::pattern(pattern.trim())?,
            None if rest.trim().is_empty() => Message::Any,
            _ => return Err(format!("unknown expectation: {line}")),
        };
        match kind {
            "ordered" => self.is_ordered = true,
            "fail" => self.fail = Some(message),
            "warn" => self.warnings.push(message),
            "info" => self.infos.push(message),
            "no_warn" => self.no_warnings = true,
            "no_info" => self.no_infos = true,
            _ => return Err(format!("unknown expectation: {line}")),
        }
        Ok(())
    }

    /// Adds an expected series, which replaces an earlier series with equal labels.
    pub(crate) fn expect_series(&mut self, series: ExpectedSeries) {
        let Expected::Series(all) = &mut self.expected else {
            self.expected = Expected::Series(vec![series]);
            return;
        };
        match all.iter_mut().find(|other| other.labels == series.labels) {
            Some(other) => *other = series,
            None => all.push(series),
        }
    }

    /// Compares a failure with the expectation.
    pub(crate) fn check_failure(&self, message: &str) -> Result<(), String> {
        match &self.fail {
            None => Err(format!("failed: {message}")),
            Some(expected) if expected.matches(message) => Ok(()),
            Some(expected) => Err(format!(
                "should fail with {expected:?}, but failed with: {message}"
            )),
        }
    }

    /// Compares warnings and infos with the expectation.
    pub(crate) fn check_annotations(&self, result: &QueryResult) -> Result<(), String> {
        let kinds = [
            (
                "warning",
                self.has_warnings,
                &self.warnings,
                self.no_warnings,
                &result.warnings,
            ),
            ("info", self.has_infos, &self.infos, self.no_infos, &result.infos),
        ];
        for (kind, has_any, expected, none, got) in kinds {
            if (has_any || !expected.is_empty()) && got.is_empty() {
                return Err(format!("has no {kind}, expected {expected:?}"));
            }
            if none && !got.is_empty() {
                return Err(format!("has a {kind}: {got:?}"));
            }
            if let Some(missing) = expected
                .iter()
                .find(|message| !got.iter().any(|got| message.matches(got)))
            {
                return Err(format!("has no {kind} {missing:?}, but {got:?}"));
            }
            let unexpected = got
                .iter()
                .find(|got| !expected.is_empty() && !expected.iter().any(|message| message.matches(got)));
            if let Some(unexpected) = unexpected {
                return Err(format!("has the unexpected {kind} {unexpected}"));
            }
        }
        Ok(())
    }

    /// Checks that a result is the expected one. `times` holds first timestamp, last timestamp and step of
    /// range vectors.
    pub(crate) fn check_value(
        &self,
        value: &QueryValue,
        times: (i64, i64, i64),
        options: Options,
    ) -> Result<(), String> {
        match (&self.expected, value) {
            (Expected::Scalar(expected), QueryValue::Scalar { value, .. }) => {
                if almost_equal(*expected, *value) {
                    Ok(())
                } else {
                    Err(format!("is {value}, expected {expected}"))
                }
            }
            (Expected::String(expected), QueryValue::String { value, .. }) => {
                if expected == value {
                    Ok(())
                } else {
                    Err(format!("is {value:?}, expected {expected:?}"))
                }
            }
            (Expected::Series(expected), QueryValue::Vector(samples)) => {
                self.check_vector(expected, samples, options)
            }
            (Expected::Series(_), QueryValue::Matrix(_)) if self.is_ordered => {
                Err("is a range vector, which is always ordered by labels".to_owned())
            }
            (Expected::Series(expected), QueryValue::Matrix(series)) => {
                check_matrix(expected, series, times, options)
            }
            (expected, got) => Err(format!("is {got:?}, expected {expected:?}")),
        }
    }

    fn check_vector(
        &self,
        expected: &[ExpectedSeries],
        samples: &[Sample],
        options: Options,
    ) -> Result<(), String> {
        for (at, sample) in samples.iter().enumerate() {
            let labels = &sample.labels;
            let got = show(&sample.value);
            let place = expected.iter().position(|series| series.labels == *labels);
            let place = place.ok_or_else(|| format!("has the unexpected series {labels} with {got}"))?;
            if self.is_ordered && place != at {
                return Err(format!("has {labels} at position {at}, expected at {place}"));
            }
            match expected[place].values.first() {
                Some(value) if equal(value, &sample.value, options) => {}
                value => return Err(format!("has {labels} {got}, expected {}", show_expected(value))),
            }
        }
        let found: Vec<_> = samples.iter().map(|sample| &sample.labels).collect();
        all_found(expected, &found)
    }
}

fn check_matrix(
    expected: &[ExpectedSeries],
    series: &[Series],
    (start, end, step): (i64, i64, i64),
    options: Options,
) -> Result<(), String> {
    if let Some(pair) = series.windows(2).find(|pair| pair[0].labels > pair[1].labels) {
        return Err(format!("has {} before {}", pair[0].labels, pair[1].labels));
    }
    for got in series {
        let labels = &got.labels;
        let found = expected.iter().find(|series| series.labels == *labels);
        let found =
            found.ok_or_else(|| format!("has the unexpected series {labels} {}", show_series(got)))?;
        let mut floats = got.floats.iter();
        let mut histograms = got.histograms.iter();
        for (at, value) in found.values.iter().enumerate() {
            let time = start + at as i64 * step;
            if time > end {
                return Err(format!("cannot have {} values of {labels}", found.values.len()));
            }
            let sample = match value {
                Value::Omitted => continue,
                Value::Float(_) => floats.next().map(|(at, value)| (*at, Point::Float(*value))),
                Value::Histogram { .. } => histograms
                    .next()
                    .map(|(at, histogram)| (*at, Point::Histogram(histogram.clone()))),
            };
            if !sample.is_some_and(|(at, got)| at == time && equal(value, &got, options)) {
                let expected = show_expected(Some(value));
                return Err(format!(
                    "at {time} {labels} should be {expected}, it is {}",
                    show_series(got)
                ));
            }
        }
        if floats.next().is_some() || histograms.next().is_some() {
            return Err(format!("has too many samples of {labels}: {}", show_series(got)));
        }
    }
    let found: Vec<_> = series.iter().map(|series| &series.labels).collect();
    all_found(expected, &found)
}

fn all_found(expected: &[ExpectedSeries], got: &[&Labels]) -> Result<(), String> {
    match expected.iter().find(|series| !got.contains(&&series.labels)) {
        None => Ok(()),
        Some(series) => {
            let value = show_expected(series.values.first());
            Err(format!("lacks {} with {value}", series.labels))
        }
    }
}

fn equal(expected: &Value, got: &Point, options: Options) -> bool {
    match (expected, got) {
        (Value::Float(expected), Point::Float(got)) => almost_equal(*expected, *got),
        (Value::Histogram { histogram, .. }, Point::Histogram(got)) if options.has_listed_histograms => {
            histogram::equal_as_listed(histogram, got)
        }
        (Value::Histogram { histogram, has_hint }, Point::Histogram(got)) => {
            histogram::equal(histogram, got, *has_hint)
        }
        _ => false,
    }
}

/// Returns true if two numbers are equal within the tolerance. NaN equals NaN; a stale marker equals only
/// itself.
pub(crate) fn almost_equal(a: f64, b: f64) -> bool {
    if tideline_promql::histogram::is_stale(a) || tideline_promql::histogram::is_stale(b) {
        return a.to_bits() == b.to_bits();
    }
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

fn show(point: &Point) -> String {
    match point {
        Point::Float(value) => value.to_string(),
        Point::Histogram(histogram) => histogram.notation(),
    }
}

fn show_expected(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Omitted) => "nothing".to_owned(),
        Some(Value::Float(value)) => value.to_string(),
        Some(Value::Histogram { histogram, .. }) => histogram.notation(),
    }
}

fn show_series(series: &Series) -> String {
    let floats = series
        .floats
        .iter()
        .map(|(time, value)| format!("{value} @{time}"));
    let histograms = series
        .histograms
        .iter()
        .map(|(time, histogram)| format!("{} @{time}", histogram.notation()));
    let all: Vec<String> = floats.chain(histograms).collect();
    all.join(", ")
}
