//! `/api/v1/query` and `/api/v1/query_range`: expressions at an instant, and over a range in steps.

use std::time::Instant;

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, QueryData};
use tideline_prometheus::{Parameters, QueryOptions, millis};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::PrometheusFailures;
use super::format::parse;
use super::run::{Caller, JSON};
use crate::app::App;
use crate::failure::Result;

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
async fn query_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    instant(caller, &parameters).await
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
async fn query_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    instant(caller, &parameters).await
}

/// Evaluate an expression over a range
///
/// At `start`, and at every further `step` up to `end`; at most 11,000 of them.
#[utoipa::path(
    get, path = "/api/v1/query_range", tag = "prometheus", operation_id = "prometheus_query_range",
    params(RangeParameters, CommonParameters),
    responses((status = 200, description = "A matrix", body = Answer<QueryData>), PrometheusFailures)
)]
async fn range_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    range(caller, &parameters).await
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
async fn range_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    range(caller, &parameters).await
}

async fn instant(caller: Caller, parameters: &Parameters) -> Result<Response> {
    let now = millis(caller.app.engine.now().nanos());
    let options = QueryOptions::instant(parameters, &caller.app.settings.prometheus, now)?;
    answer(caller, "prometheus_query", parameters, options).await
}

async fn range(caller: Caller, parameters: &Parameters) -> Result<Response> {
    let options = QueryOptions::range(parameters, &caller.app.settings.prometheus)?;
    answer(caller, "prometheus_query_range", parameters, options).await
}

async fn answer(
    caller: Caller,
    resource: &'static str,
    parameters: &Parameters,
    options: QueryOptions,
) -> Result<Response> {
    let began = Instant::now();
    let text = parameters.text("query").to_owned();
    let expr = parse(&caller.app, &text).await?;
    let query = options.query(text, expr, began.elapsed());
    caller.answer(resource, query.time_max(), JSON, query).await
}
