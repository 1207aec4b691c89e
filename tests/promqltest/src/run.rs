//! Execution of scripts against a target, and the report of failures.
//!
//! A failed command does not end the script, so one run reports all failures.

use std::fmt;

use tideline_promql::{QueryValue, Sample, Series};

use crate::expect::{Expectation, Expected};
use crate::invariant;
use crate::load::LoadedSeries;
use crate::script::{Action, Eval, Script, When};

/// Implementation under test.
///
/// Prometheus' scripts require experimental functions, delayed name removal, start timestamps, a lookback of
/// five minutes, and a default subquery step of one minute.
///
/// Errors must be the plain messages of the query language, because scripts compare them.
pub trait Target {
    /// Removes all series.
    ///
    /// # Errors
    ///
    /// Returns a message if the target fails.
    fn clear(&mut self) -> Result<(), String>;

    /// Adds samples. All must be visible when the function returns.
    ///
    /// # Errors
    ///
    /// Returns a message if the target fails.
    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String>;

    /// Evaluates an instant query at a timestamp in milliseconds since the epoch.
    ///
    /// # Errors
    ///
    /// Returns the error message of the query.
    fn instant(&mut self, query: &str, time: i64) -> Result<QueryResult, String>;

    /// Evaluates a range query from `start` to `end` (both inclusive) with a step, in milliseconds.
    ///
    /// # Errors
    ///
    /// Returns the error message of the query.
    fn range(&mut self, query: &str, start: i64, end: i64, step: i64) -> Result<QueryResult, String>;
}

/// Result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    /// Value.
    pub value: QueryValue,
    /// Warnings with their positions, as displayed.
    pub warnings: Vec<String>,
    /// Infos with their positions, as displayed.
    pub infos: Vec<String>,
}

/// Options for evaluating queries and comparing results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// True if instant queries are also evaluated in step-invariant form at other timestamps.
    pub is_fixed_too: bool,
    /// True if instant queries are also evaluated as the middle of a range query.
    pub as_range_too: bool,
    /// True if histograms in results are [listed](crate::api::listed), so that only count, sum and buckets
    /// are compared.
    pub has_listed_histograms: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_fixed_too: true,
            as_range_too: true,
            has_listed_histograms: false,
        }
    }
}

/// Outcome of a script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Number of `eval` commands that were run.
    pub evals: usize,
    /// Failed commands, of any kind.
    pub failures: Vec<Failure>,
}

/// Failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Line number, from 1; 0 for the initial clear.
    pub line: usize,
    /// Evaluated query; empty for other commands.
    pub query: String,
    /// Difference from the expectation, or the error.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}\n    {}", self.line, self.query, self.reason)
    }
}

/// Clears the target and runs a whole script, even after failures.
pub fn run(script: &Script, target: &mut dyn Target, options: Options) -> Report {
    let mut report = Report::default();
    let cleared = target.clear().map_err(|reason| (String::new(), reason));
    report.note(0, cleared);
    for command in &script.commands {
        let outcome = match &command.action {
            Action::Clear => target.clear().map_err(|reason| (String::new(), reason)),
            Action::Load(series) => target.load(series).map_err(|reason| (String::new(), reason)),
            Action::Eval(eval) => {
                report.evals += 1;
                evaluate(eval, target, options)
            }
        };
        report.note(command.line, outcome);
    }
    report
}

/// Result of a command; the error holds query and reason.
type Outcome = Result<(), (String, String)>;

impl Report {
    fn note(&mut self, line: usize, outcome: Outcome) {
        if let Err((query, reason)) = outcome {
            self.failures.push(Failure { line, query, reason });
        }
    }
}

fn evaluate(eval: &Eval, target: &mut dyn Target, options: Options) -> Outcome {
    let query = &eval.query;
    match eval.when {
        When::Range { start, end, step } => {
            let outcome = range(query, (start, end, step), &eval.expectation, target, options);
            outcome.map_err(|reason| (query.clone(), reason))
        }
        When::Instant(time) => {
            let mut asked = vec![(query.clone(), time)];
            if options.is_fixed_too
                && let Some((fixed, times)) = invariant::fixed(query, time)
            {
                asked.extend(times.into_iter().map(|time| (fixed.clone(), time)));
            }
            for (query, time) in asked {
                instant(&query, time, &eval.expectation, target, options)
                    .map_err(|reason| (query, format!("at {time} ms: {reason}")))?;
            }
            Ok(())
        }
    }
}

fn range(
    query: &str,
    times: (i64, i64, i64),
    expectation: &Expectation,
    target: &mut dyn Target,
    options: Options,
) -> Result<(), String> {
    let (start, end, step) = times;
    match target.range(query, start, end, step) {
        Err(message) => expectation.check_failure(&message),
        Ok(_) if expectation.fail.is_some() => Err("should fail, but does not".to_owned()),
        Ok(result) => {
            expectation.check_annotations(&result)?;
            expectation.check_value(&result.value, times, options)
        }
    }
}

fn instant(
    query: &str,
    time: i64,
    expectation: &Expectation,
    target: &mut dyn Target,
    options: Options,
) -> Result<(), String> {
    let result = match target.instant(query, time) {
        Err(message) => return expectation.check_failure(&message),
        Ok(_) if expectation.fail.is_some() => return Err("should fail, but does not".to_owned()),
        Ok(result) => result,
    };
    expectation.check_annotations(&result)?;
    expectation.check_value(&result.value, expectation.samples_at.unwrap_or_default(), options)?;
    let may_be_range =
        expectation.samples_at.is_none() && !matches!(expectation.expected, Expected::String(_));
    if !options.as_range_too || !may_be_range || requests_times(query) {
        return Ok(());
    }
    as_range(query, time, expectation, target, options).map_err(|reason| format!("as a range: {reason}"))
}

/// Returns true if the query calls a function whose result depends on the query's time range.
fn requests_times(query: &str) -> bool {
    ["start()", "end()", "range()", "step()"]
        .iter()
        .any(|function| query.contains(function))
}

/// Evaluates a range query from one minute before to one minute after `time`. The values at `time` must be as expected
/// and the series ordered by labels. If the script expects an order of the instant query, only success is checked.
fn as_range(
    query: &str,
    time: i64,
    expectation: &Expectation,
    target: &mut dyn Target,
    options: Options,
) -> Result<(), String> {
    const MINUTE: i64 = 60_000;
    let result = target.range(query, time - MINUTE, time + MINUTE, MINUTE)?;
    if expectation.is_ordered {
        // Not comparable: results of range queries are always ordered by labels.
        return Ok(());
    }
    let QueryValue::Matrix(series) = result.value else {
        return Err(format!("is {:?}", result.value));
    };
    if let Some(pair) = series.windows(2).find(|pair| pair[0].labels > pair[1].labels) {
        return Err(format!("has {} before {}", pair[0].labels, pair[1].labels));
    }
    let middle: Vec<Sample> = series
        .iter()
        .filter_map(|series| sample_at(series, time))
        .collect();
    let value = match (&expectation.expected, middle.as_slice()) {
        (Expected::Scalar(_), [sample]) => match sample.value {
            tideline_promql::Point::Float(value) => QueryValue::Scalar { time, value },
            tideline_promql::Point::Histogram(_) => return Err("is a histogram".to_owned()),
        },
        _ => QueryValue::Vector(middle),
    };
    expectation.check_value(&value, (0, 0, 0), options)
}

fn sample_at(series: &Series, time: i64) -> Option<Sample> {
    let float = series.floats.iter().find(|(at, _)| *at == time);
    let histogram = series.histograms.iter().find(|(at, _)| *at == time);
    let value = match (float, histogram) {
        (Some((_, value)), _) => tideline_promql::Point::Float(*value),
        (None, Some((_, histogram))) => tideline_promql::Point::Histogram(histogram.clone()),
        (None, None) => return None,
    };
    Some(Sample {
        labels: series.labels.clone(),
        time,
        value,
    })
}
