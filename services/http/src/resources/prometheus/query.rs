//! `/api/v1/query` and `/api/v1/query_range`: PromQL instant queries and range queries.
//!
//! The evaluation is in `tideline_prometheus`; this module reads the parameters and streams the response.

use std::time::Instant;

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, QueryData};
use tideline_prometheus::{Parameters, QueryOptions, millis};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::format::parse;
use super::response::PrometheusFailures;
use super::run::{Caller, JSON};
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(query_get, query_post))
        .routes(routes!(range_get, range_post))
}

/// Parameters of an instant query.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct QueryParameters {
    /// PromQL expression.
    #[param(example = "sum by (region) (cpu_usage_user)")]
    query: String,
    /// Evaluation timestamp: seconds or RFC 3339. Default: the current time.
    #[param(example = "2026-11-20T12:00:00Z")]
    time: Option<String>,
}

/// Parameters of instant and range queries.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct CommonParameters {
    /// Maximum number of series in the response; 0 for no limit.
    #[param(example = 100)]
    limit: Option<u64>,
    /// Time limit of the query: seconds or a duration such as `1m30s`. It cannot exceed the configured limit.
    #[param(example = "30s")]
    timeout: Option<String>,
    /// Longest age of a sample that counts at an evaluation timestamp: seconds or a duration such as `5m`.
    #[param(example = "5m")]
    lookback_delta: Option<String>,
    /// `true` adds statistics of the query to the response; `all` also adds statistics of each step.
    #[param(example = "all")]
    stats: Option<String>,
    /// If true, the metric name is removed only at the end of the evaluation.
    #[param(example = false)]
    delayed_name_removal: Option<bool>,
    /// If true, aggregations that group by the metric name keep it.
    #[param(example = false)]
    keep_grouped_names: Option<bool>,
}

/// Parameters of a range query.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct RangeParameters {
    /// PromQL expression.
    #[param(example = "avg by (region) (avg_over_time(cpu_usage_user[5m]))")]
    query: String,
    /// First evaluation timestamp: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: String,
    /// Last possible evaluation timestamp, inclusive.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: String,
    /// Distance between evaluation timestamps: seconds or a duration such as `1m`. At most 11,000 steps.
    #[param(example = "1m")]
    step: String,
}

/// Evaluate an instant query
///
/// The language is PromQL as in Prometheus 3.14. Parameters can be sent in the URL or, with POST, as a form. The
/// response is streamed; if the client disconnects, the query stops.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/query", tag = "prometheus", operation_id = "prometheus_query",
    params(QueryParameters, CommonParameters),
    responses((status = 200, description = "The query result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn query_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    instant(caller, &parameters).await
}

/// Evaluate an instant query, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/query", tag = "prometheus", operation_id = "prometheus_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "query=1%2B1&time=4"
    ),
    responses((status = 200, description = "The query result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn query_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    instant(caller, &parameters).await
}

/// Evaluate a range query
///
/// Evaluates the expression at `start` and at every further `step` up to and including `end`. The range must
/// not be longer than 11,000 steps.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/query_range", tag = "prometheus", operation_id = "prometheus_query_range",
    params(RangeParameters, CommonParameters),
    responses((status = 200, description = "The query result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn range_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    range(caller, &parameters).await
}

/// Evaluate a range query, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/query_range", tag = "prometheus", operation_id = "prometheus_query_range_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form",
        example = "query=sum(cpu_usage_user)&start=1795172400&end=1795176000&step=60"
    ),
    responses((status = 200, description = "The query result", body = Answer<QueryData>), PrometheusFailures)
)]
async fn range_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    range(caller, &parameters).await
}

async fn instant(caller: Caller, parameters: &Parameters) -> Result<Response> {
    let now = millis(caller.app.engine.now().nanos());
    let options = QueryOptions::instant(parameters, &caller.app.settings.prometheus, now)?;
    respond(caller, "prometheus_query", parameters, options).await
}

async fn range(caller: Caller, parameters: &Parameters) -> Result<Response> {
    let options = QueryOptions::range(parameters, &caller.app.settings.prometheus)?;
    respond(caller, "prometheus_query_range", parameters, options).await
}

async fn respond(
    caller: Caller,
    resource: &'static str,
    parameters: &Parameters,
    options: QueryOptions,
) -> Result<Response> {
    let began = Instant::now();
    let text = parameters.text("query").to_owned();
    let expr = parse(&caller.app, &text).await?;
    let query = options.query(text, expr, began.elapsed());
    caller.respond(resource, query.time_max(), JSON, query).await
}
