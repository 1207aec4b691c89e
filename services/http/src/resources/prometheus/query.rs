//! `/api/v1/query` and `/api/v1/query_range`: expressions at an instant, and over a range in steps.

use std::io::Write as _;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use tideline_openapi::ErrorCode;
use tideline_openapi::prometheus::{Answer, QueryData, QuerySamples, QueryStatistics, QueryTimings};
use tideline_prometheus::NANOS_PER_MILLI;
use tideline_promql::ast::Expr;
use tideline_promql::{QueryValue, Question, Settings, Stats};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::{PrometheusFailures, TRUNCATED, put_notes};
use super::encode::put_result;
use super::parameters::{Parameters, wrong};
use super::reach::reach;
use super::run::{Asked, Running, parse, run};
use crate::app::App;
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::stream::{self, AnswerWriter};

/// Most steps between start and end: a minute's steps of a week, or an hour's of a year.
const STEPS_MAX: i64 = 11_000;
/// Most warnings of an evaluation, and most infos.
const NOTES_MAX: usize = 10;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(query_get, query_post))
        .routes(routes!(range_get, range_post))
}

/// Parameters of a query at an instant.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct QueryParameters {
    /// The expression.
    #[param(example = "sum by (region) (cpu_usage_user)")]
    query: String,
    /// The instant: seconds or RFC 3339. Now where it is left out.
    #[param(example = "2026-11-20T12:00:00Z")]
    time: Option<String>,
}

/// Parameters of both kinds of query.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct CommonParameters {
    /// Most series of the answer; 0 for all.
    #[param(example = 100)]
    limit: Option<u64>,
    /// How long it may take, at most what is set: seconds or `1m30s`.
    #[param(example = "30s")]
    timeout: Option<String>,
    /// How old a sample may be to count at an instant: seconds or `5m`.
    #[param(example = "5m")]
    lookback_delta: Option<String>,
    /// `true`: with what it cost; `all`: with that of each step as well.
    #[param(example = "all")]
    stats: Option<String>,
    /// Whether the metric name is taken away at the end only.
    #[param(example = false)]
    delayed_name_removal: Option<bool>,
    /// Whether, besides, aggregations by the metric name keep it.
    #[param(example = false)]
    keep_grouped_names: Option<bool>,
}

/// Parameters of a query over a range.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct RangeParameters {
    /// The expression.
    #[param(example = "avg by (region) (avg_over_time(cpu_usage_user[5m]))")]
    query: String,
    /// The first instant: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: String,
    /// The last instant.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: String,
    /// From one instant to the next: seconds or `1m`. At most 11,000 of them.
    #[param(example = "1m")]
    step: String,
}

/// Evaluate an expression at an instant
///
/// The language is that of Prometheus 3.14. Parameters may stand in the address or, by POST, in a form. The answer
/// streams; when the client leaves, the query stops.
#[utoipa::path(
    get, path = "/api/v1/query", tag = "prometheus", operation_id = "prometheus_query",
    params(QueryParameters, CommonParameters),
    responses((status = 200, description = "The result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn query_get(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    instant(&app, request_id, table, &parameters).await
}

/// Evaluate an expression at an instant, as a form
#[utoipa::path(
    post, path = "/api/v1/query", tag = "prometheus", operation_id = "prometheus_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "query=1%2B1&time=4"
    ),
    responses((status = 200, description = "The result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn query_post(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    instant(&app, request_id, table, &parameters).await
}

/// Evaluate an expression over a range
///
/// At `start`, and at every further `step` up to `end`; at most 11,000 of them.
#[utoipa::path(
    get, path = "/api/v1/query_range", tag = "prometheus", operation_id = "prometheus_query_range",
    params(RangeParameters, CommonParameters),
    responses((status = 200, description = "A matrix", body = Answer<QueryData>), PrometheusFailures)
)]
async fn range_get(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    range(&app, request_id, table, &parameters).await
}

/// Evaluate an expression over a range, as a form
#[utoipa::path(
    post, path = "/api/v1/query_range", tag = "prometheus", operation_id = "prometheus_query_range_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form",
        example = "query=sum(cpu_usage_user)&start=1795172400&end=1795176000&step=60"
    ),
    responses((status = 200, description = "A matrix", body = Answer<QueryData>), PrometheusFailures)
)]
async fn range_post(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    range(&app, request_id, table, &parameters).await
}

async fn instant(
    app: &App,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    parameters: &Parameters,
) -> Result<Response> {
    let limit = parameters.limit()?;
    let now = app.engine.now().nanos().div_euclid(NANOS_PER_MILLI);
    let time = parameters.optional_time("time")?.unwrap_or(now);
    let (start, end, step) = (time, time, 0);
    let options = Options::of(app, parameters, limit)?;
    let asked = Query::read(app, parameters, "prometheus_query", (start, end, step), options).await?;
    asked.answer(app, request_id, table).await
}

async fn range(
    app: &App,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    parameters: &Parameters,
) -> Result<Response> {
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
        return Err(Failure::invalid(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ));
    }
    let options = Options::of(app, parameters, limit)?;
    let asked = Query::read(
        app,
        parameters,
        "prometheus_query_range",
        (start, end, step),
        options,
    )
    .await?;
    asked.answer(app, request_id, table).await
}

/// What a query says beside its expression and its times.
#[derive(Debug)]
struct Options {
    limit: Option<usize>,
    time_max: Duration,
    lookback_delta: Option<i64>,
    statistics: Statistics,
    /// What is said about a value of `stats` that means nothing.
    warning: Option<String>,
    settings: Settings,
}

/// What an answer tells of its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistics {
    Nothing,
    Sums,
    Steps,
}

impl Options {
    fn of(app: &App, parameters: &Parameters, limit: Option<usize>) -> Result<Self> {
        let set = &app.settings.prometheus;
        let timeout = parameters.optional_duration("timeout")?;
        let timeout = timeout.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
        let lookback_delta = parameters.optional_duration("lookback_delta");
        let lookback_delta = lookback_delta.map_err(|_| {
            let text = parameters.text("lookback_delta");
            Failure::invalid(format!(
                "error parsing lookback delta duration: cannot parse {text:?} to a valid duration"
            ))
        })?;
        let (statistics, warning) = match parameters.text("stats") {
            "" => (Statistics::Nothing, None),
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
            limit,
            time_max: timeout.map_or(set.query_timeout, |timeout| timeout.min(set.query_timeout)),
            // As in Prometheus, none means the setting.
            lookback_delta: lookback_delta.filter(|delta| *delta > 0),
            statistics,
            warning,
            settings: Settings {
                lookback_delta: i64::try_from(set.lookback_delta.as_millis()).unwrap_or(i64::MAX),
                max_samples: set.samples_max,
                // Without delay there is no name left to keep.
                delayed_name_removal: delayed || keeps_grouped_names,
                keeps_grouped_names,
                start_timestamps: set.start_timestamps,
                ..Settings::default()
            },
        })
    }
}

/// A query that can be asked.
#[derive(Debug)]
struct Query {
    resource: &'static str,
    text: String,
    expr: Expr,
    /// First instant, last instant and step, in milliseconds; no step for an instant.
    times: (i64, i64, i64),
    options: Options,
    /// How long it took to read the expression.
    preparation: Duration,
}

impl Query {
    async fn read(
        app: &App,
        parameters: &Parameters,
        resource: &'static str,
        times: (i64, i64, i64),
        options: Options,
    ) -> Result<Self> {
        let began = Instant::now();
        let text = parameters.text("query").to_owned();
        let expr = parse(app, &text).await?;
        Ok(Self {
            resource,
            text,
            expr,
            times,
            options,
            preparation: began.elapsed(),
        })
    }

    async fn answer(self, app: &App, request_id: RequestId, table: String) -> Result<Response> {
        let (start, end, _) = self.times;
        let lookback = self
            .options
            .lookback_delta
            .unwrap_or(self.options.settings.lookback_delta);
        let asked = Asked {
            request_id,
            table,
            resource: self.resource,
            question: self.text.clone(),
            reach: reach(&self.expr, (start, end), lookback),
            time_max: self.options.time_max,
        };
        run(app, asked, "application/json", move |running, writer| {
            self.write(running, writer)
        })
        .await
    }

    fn write(self, running: &Running<'_>, writer: &mut AnswerWriter) -> Result<()> {
        let began = Instant::now();
        let source = running.view.source();
        let (start, end, step) = self.times;
        let question = Question {
            text: &self.text,
            start,
            end,
            step,
            lookback_delta: self.options.lookback_delta,
        };
        let mut answer = tideline_promql::evaluate(&source, &self.expr, &question, &self.options.settings)
            .map_err(|error| in_parameter(error.into()))?;
        let evaluation = began.elapsed();
        cut_notes(&mut answer.warnings, "warning");
        cut_notes(&mut answer.infos, "info");
        if self
            .options
            .limit
            .is_some_and(|limit| truncate(&mut answer.value, limit))
        {
            answer.warnings.push(TRUNCATED.to_owned());
        }
        answer.warnings.extend(self.options.warning.clone());
        let mut text = b"{\"status\":\"success\",\"data\":{".to_vec();
        put_result(&answer.value, &mut text, &mut |text| hand_on(writer, text))?;
        if self.options.statistics != Statistics::Nothing {
            let statistics = self.statistics(&answer.stats, evaluation, running.waited);
            text.extend_from_slice(b",\"stats\":");
            // Writing to memory cannot fail.
            let _ = serde_json::to_writer(&mut text, &statistics);
        }
        text.push(b'}');
        put_notes(&answer.warnings, &answer.infos, &mut text);
        hand_on(writer, &mut text)
    }

    fn statistics(&self, stats: &Stats, evaluation: Duration, waited: Duration) -> QueryStatistics {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let whole = evaluation + self.preparation;
        let steps: &[(i64, u64)] = match self.options.statistics {
            Statistics::Steps => &stats.samples_per_step,
            Statistics::Nothing | Statistics::Sums => &[],
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

/// A question that makes no sense is wrong in its parameter `query`; Prometheus says so.
fn in_parameter(failure: Failure) -> Failure {
    match failure.code {
        ErrorCode::Invalid => wrong("query", failure.message),
        _ => failure,
    }
}

fn hand_on(writer: &mut AnswerWriter, text: &mut Vec<u8>) -> Result<()> {
    writer.write_all(text).map_err(stream::client_left)?;
    text.clear();
    Ok(())
}

/// Cuts remarks to as many as Prometheus shows.
fn cut_notes(notes: &mut Vec<String>, kind: &str) {
    let omitted = notes.len().saturating_sub(NOTES_MAX);
    notes.truncate(NOTES_MAX);
    if omitted > 0 {
        notes.push(format!("{omitted} more {kind} annotations omitted"));
    }
}

/// Cuts a vector or matrix to `limit` series; whether there were more.
fn truncate(value: &mut QueryValue, limit: usize) -> bool {
    match value {
        QueryValue::Vector(samples) if samples.len() > limit => samples.truncate(limit),
        QueryValue::Matrix(series) if series.len() > limit => series.truncate(limit),
        _ => return false,
    }
    true
}
