//! Instant and range queries: the value of an expression at one time, or at the steps of a range.
//!
//! Parameters and expression are validated before the query waits for a permit; the response is written while it is
//! encoded.

use std::io::Write;
use std::time::{Duration, Instant};

use tideline_openapi::prometheus::{QuerySamples, QueryStatistics, QueryTimings};
use tideline_promql::ast::Expr;
use tideline_promql::{PromqlError, QueryParameters, QueryValue, Result, Stats};

use crate::error::{self, RequestError};
use crate::json::{SUCCESS, TRUNCATED, pass, put_notes, put_result};
use crate::parameters::{Parameters, wrong};
use crate::read_range::read_range;
use crate::request::SeriesRequest;
use crate::settings::Settings;
use crate::view::SeriesView;

/// Maximum of range ÷ step: enough for the minutes of a week or the hours of a year.
const STEPS_MAX: i64 = 11_000;
/// Maximum number of warnings of an evaluation that a response lists. The same maximum applies to infos.
const NOTES_MAX: usize = 10;

/// Parameters of a query, except for its expression.
#[derive(Debug)]
pub struct QueryOptions {
    /// First time, last time and step in milliseconds; the step of an instant query is 0.
    times: (i64, i64, i64),
    limit: Option<usize>,
    time_max: Duration,
    lookback_delta: Option<i64>,
    statistics: Statistics,
    /// Warning about an unknown value of `stats`.
    warning: Option<String>,
    settings: tideline_promql::Settings,
}

/// Statistics that a response includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistics {
    None,
    Sums,
    Steps,
}

/// Query that is ready to run.
#[derive(Debug)]
pub struct Query {
    text: String,
    expr: Expr,
    options: QueryOptions,
    /// Time that parsing the expression took.
    preparation: Duration,
}

impl QueryOptions {
    /// Reads the parameters of an instant query. `now` is its default time in milliseconds.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] if a parameter is not valid.
    pub fn instant(parameters: &Parameters, settings: &Settings, now: i64) -> error::Result<Self> {
        let limit = parameters.limit()?;
        let time = parameters.optional_time("time")?.unwrap_or(now);
        Self::read(parameters, settings, (time, time, 0), limit)
    }

    /// Reads the parameters of a range query.
    ///
    /// # Errors
    ///
    /// [`RequestError::Invalid`] if a parameter is missing or not valid, or if range ÷ step exceeds 11,000.
    pub fn range(parameters: &Parameters, settings: &Settings) -> error::Result<Self> {
        let limit = parameters.limit()?;
        let start = parameters.time("start")?;
        let end = parameters.time("end")?;
        if end < start {
            return Err(wrong("end", "end timestamp must not be before start time"));
        }
        let step = parameters.duration("step")?;
        if step <= 0 {
            let problem =
                "zero or negative query resolution step widths are not accepted. Try a positive integer";
            return Err(wrong("step", problem));
        }
        if end.saturating_sub(start) / step > STEPS_MAX {
            return Err(RequestError::invalid(
                "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
            ));
        }
        Self::read(parameters, settings, (start, end, step), limit)
    }

    fn read(
        parameters: &Parameters,
        set: &Settings,
        times: (i64, i64, i64),
        limit: Option<usize>,
    ) -> error::Result<Self> {
        let timeout = parameters.optional_duration("timeout")?;
        let timeout = timeout.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
        let lookback_delta = parameters.optional_duration("lookback_delta");
        let lookback_delta = lookback_delta.map_err(|_| {
            let text = parameters.text("lookback_delta");
            RequestError::Invalid(format!(
                "error parsing lookback delta duration: cannot parse {text:?} to a valid duration"
            ))
        })?;
        let (statistics, warning) = match parameters.text("stats") {
            "" => (Statistics::None, None),
            "true" => (Statistics::Sums, None),
            "all" => (Statistics::Steps, None),
            other => {
                let warning = format!(
                    "value {other:?} for parameter \"stats\" is deprecated and will be rejected in the next major \
                     release, use \"true\" or \"all\""
                );
                (Statistics::Sums, Some(warning))
            }
        };
        let delayed = parameters
            .switch("delayed_name_removal")?
            .unwrap_or(set.delayed_name_removal);
        let keeps_grouped_names = parameters
            .switch("keep_grouped_names")?
            .unwrap_or(set.keep_grouped_names);
        Ok(Self {
            times,
            limit,
            time_max: timeout.map_or(set.query_timeout, |timeout| timeout.min(set.query_timeout)),
            // As in Prometheus, 0 or a negative duration selects the value of the settings.
            lookback_delta: lookback_delta.filter(|delta| *delta > 0),
            statistics,
            warning,
            settings: tideline_promql::Settings {
                lookback_delta: set.lookback_millis(),
                max_samples: set.samples_max,
                // Grouped names can be kept only if functions do not drop names immediately.
                delayed_name_removal: delayed || keeps_grouped_names,
                keeps_grouped_names,
                start_timestamps: set.start_timestamps,
                ..tideline_promql::Settings::default()
            },
        })
    }

    /// Returns the query of an expression. `preparation` is the time that parsing the expression took.
    pub fn query(self, text: String, expr: Expr, preparation: Duration) -> Query {
        Query {
            text,
            expr,
            options: self,
            preparation,
        }
    }
}

impl Query {
    /// Returns the maximum duration of the query, including the wait for a permit.
    pub fn time_max(&self) -> Duration {
        self.options.time_max
    }

    fn statistics(&self, stats: &Stats, evaluation: Duration, waited: Duration) -> QueryStatistics {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let whole = evaluation + self.preparation;
        let steps: &[(i64, u64)] = match self.options.statistics {
            Statistics::Steps => &stats.samples_per_step,
            Statistics::None | Statistics::Sums => &[],
        };
        QueryStatistics {
            timings: QueryTimings {
                eval_total_time: seconds(whole),
                result_sort_time: 0.0,
                query_preparation_time: seconds(self.preparation),
                inner_eval_time: seconds(evaluation),
                exec_queue_time: seconds(waited),
                exec_total_time: seconds(whole + waited),
            },
            samples: QuerySamples {
                total_queryable_samples_per_step: steps
                    .iter()
                    .map(|(time, samples)| (*time as f64 / 1e3, *samples))
                    .collect(),
                total_queryable_samples: stats.samples_total,
                samples_read: stats.samples_total,
                peak_samples: stats.samples_peak,
            },
        }
    }
}

impl SeriesRequest for Query {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        let (start, end, _) = self.options.times;
        let lookback = self.options.lookback_delta;
        let lookback = lookback.unwrap_or(self.options.settings.lookback_delta);
        read_range(&self.expr, (start, end), lookback)
    }

    fn write(&self, view: &SeriesView<'_>, waited: Duration, out: &mut dyn Write) -> Result<()> {
        let began = Instant::now();
        let options = &self.options;
        let (start, end, step) = options.times;
        let parameters = QueryParameters {
            text: &self.text,
            start,
            end,
            step,
            lookback_delta: options.lookback_delta,
        };
        let mut answer =
            tideline_promql::evaluate(&view.source(), &self.expr, &parameters, &options.settings)
                .map_err(in_parameter)?;
        let evaluation = began.elapsed();
        cut_notes(&mut answer.warnings, "warning");
        cut_notes(&mut answer.infos, "info");
        if options
            .limit
            .is_some_and(|limit| truncate(&mut answer.value, limit))
        {
            answer.warnings.push(TRUNCATED.to_owned());
        }
        answer.warnings.extend(options.warning.clone());
        let mut text = SUCCESS.to_vec();
        text.push(b'{');
        put_result(&answer.value, &mut text, out)?;
        if options.statistics != Statistics::None {
            text.extend_from_slice(b",\"stats\":");
            // Writing to memory cannot fail.
            let _ = serde_json::to_writer(&mut text, &self.statistics(&answer.stats, evaluation, waited));
        }
        text.push(b'}');
        put_notes(&answer.warnings, &answer.infos, &mut text);
        pass(&mut text, out)
    }
}

/// Adds the name of the parameter `query` to the error of an invalid expression, as Prometheus does.
fn in_parameter(error: PromqlError) -> PromqlError {
    match error {
        PromqlError::Parse(_) | PromqlError::Invalid(_) => {
            PromqlError::Invalid(wrong("query", error).to_string())
        }
        error => error,
    }
}

/// Truncates notes to the number that Prometheus shows, and appends a note with the number of
/// omitted notes.
fn cut_notes(notes: &mut Vec<String>, kind: &str) {
    let omitted = notes.len().saturating_sub(NOTES_MAX);
    notes.truncate(NOTES_MAX);
    if omitted > 0 {
        notes.push(format!("{omitted} more {kind} annotations omitted"));
    }
}

/// Truncates a vector or matrix to `limit` series. Returns true if there were more.
fn truncate(value: &mut QueryValue, limit: usize) -> bool {
    match value {
        QueryValue::Vector(samples) if samples.len() > limit => samples.truncate(limit),
        QueryValue::Matrix(series) if series.len() > limit => series.truncate(limit),
        _ => return false,
    }
    true
}
