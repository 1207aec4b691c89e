//! `/api/v1/query_exemplars`: exemplars of the series of an expression.

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, SeriesExemplars};
use tideline_prometheus::{ExemplarRequest, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::PrometheusFailures;
use super::run::{Caller, JSON};
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(exemplars_get, exemplars_post))
}

/// Parameters of a query for exemplars.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct ExemplarParameters {
    /// Expression that selects the series.
    #[param(example = "rate(cpu_usage_user[5m])")]
    query: String,
    /// Start of the time range, inclusive: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// End of the time range, inclusive.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
}

/// Query exemplars
///
/// Returns the exemplars of every series that the expression selects. If it selects no series, the result is
/// empty.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/query_exemplars", tag = "prometheus", operation_id = "prometheus_query_exemplars",
    params(ExemplarParameters),
    responses(
        (status = 200, description = "Exemplars of each series that has any", body = Answer<Vec<SeriesExemplars>>),
        PrometheusFailures
    )
)]
async fn exemplars_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    let request = ExemplarRequest::read(&parameters)?;
    let time_max = caller.app.settings.prometheus.query_timeout;
    caller
        .respond("prometheus_query_exemplars", time_max, JSON, request)
        .await
}

/// Query exemplars, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/query_exemplars", tag = "prometheus", operation_id = "prometheus_query_exemplars_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "query=cpu_usage_user&start=1795172400&end=1795176000"
    ),
    responses(
        (status = 200, description = "Exemplars of each series that has any", body = Answer<Vec<SeriesExemplars>>),
        PrometheusFailures
    )
)]
async fn exemplars_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    exemplars_get(caller, parameters).await
}
