//! Runs the commands of a script against a target, and reports what is not as expected.

use std::fmt;

use tideline_promql::{QueryValue, Sample, Series};

use crate::expect::{Expectation, Expected};
use crate::invariant;
use crate::load::LoadedSeries;
use crate::script::{Action, Eval, Script, When};

/// What scripts are run against. Prometheus runs its own with experimental functions, delayed removal of names, start
/// times, a lookback of five minutes and a step of a minute for subqueries that have none.
///
/// Errors are the messages of the query language alone: scripts compare them.
pub trait Target {
    /// Forgets all series.
    fn clear(&mut self) -> Result<(), String>;

    /// Adds samples, all visible when it returns.
    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String>;

    /// Evaluates at an instant, in milliseconds since the epoch.
    fn instant(&mut self, query: &str, time: i64) -> Result<Answer, String>;

    /// Evaluates at instants from `start` to `end`, both inclusive, with a step between them, in milliseconds.
    fn range(&mut self, query: &str, start: i64, end: i64, step: i64) -> Result<Answer, String>;
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The result.
    pub value: QueryValue,
    /// As displayed, with their places.
    pub warnings: Vec<String>,
    /// As displayed, with their places.
    pub infos: Vec<String>,
}

/// How a target is asked, and its answers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether they are also asked fixed to their instant at others.
    pub is_fixed_too: bool,
    /// Whether they are also asked as the middle of a range.
    pub as_range_too: bool,
    /// Whether histograms in answers are [listed](crate::api::listed), so that only count, sum and buckets are
    /// compared.
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

/// What came of a script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// How many `eval` commands were run.
    pub evals: usize,
    /// Those, and those of `load`, that were not as expected.
    pub failures: Vec<Failure>,
}

/// A command that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its line, from 1.
    pub line: usize,
    /// The query as it was asked; empty for other commands.
    pub query: String,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}\n    {}", self.line, self.query, self.reason)
    }
}

/// Runs a script to its end, whatever fails. The target is cleared before.
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

/// What is wrong, with the query that it is wrong with.
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
        Ok(answer) => {
            expectation.check_annotations(&answer)?;
            expectation.check_value(&answer.value, times, options)
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
    let answer = match target.instant(query, time) {
        Err(message) => return expectation.check_failure(&message),
        Ok(_) if expectation.fail.is_some() => return Err("should fail, but does not".to_owned()),
        Ok(answer) => answer,
    };
    expectation.check_annotations(&answer)?;
    expectation.check_value(&answer.value, expectation.samples_at.unwrap_or_default(), options)?;
    let may_be_range =
        expectation.samples_at.is_none() && !matches!(expectation.expected, Expected::String(_));
    if !options.as_range_too || !may_be_range || asks_for_times(query) {
        return Ok(());
    }
    as_range(query, time, expectation, target, options).map_err(|reason| format!("as a range: {reason}"))
}

/// Whether a query has a function whose result is that of the question's times.
fn asks_for_times(query: &str) -> bool {
    ["start()", "end()", "range()", "step()"]
        .iter()
        .any(|function| query.contains(function))
}

/// Asks for a minute before and behind too; what is in the middle must be as expected.
fn as_range(
    query: &str,
    time: i64,
    expectation: &Expectation,
    target: &mut dyn Target,
    options: Options,
) -> Result<(), String> {
    const MINUTE: i64 = 60_000;
    let answer = target.range(query, time - MINUTE, time + MINUTE, MINUTE)?;
    if expectation.is_ordered {
        // A range has no order of its own.
        return Ok(());
    }
    let QueryValue::Matrix(series) = answer.value else {
        return Err(format!("is {:?}", answer.value));
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
