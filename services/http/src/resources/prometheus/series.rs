//! `/api/v1/series`, `/api/v1/labels`, `/api/v1/label/{name}/values`: lists of series, label names and label values.
//!
//! [`ListRequest`] evaluates all of these requests; this module reads the parameters.

use axum::response::Response;
use serde::Deserialize;
use tideline_openapi::prometheus::Answer;
use tideline_prometheus::{ListRequest, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::PrometheusFailures;
use super::run::{Caller, JSON};
use crate::app::App;
use crate::extract::Path;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(series_get, series_post))
        .routes(routes!(labels_get, labels_post))
        .routes(routes!(label_values))
}

/// Parameters of lists of series and labels.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct SeriesParameters {
    /// Selector of series. The parameter can be repeated; a series must match at least one selector. Required
    /// for `/series`.
    #[param(rename = "match[]", example = "cpu_usage_user{region=~\"eu-.*\"}")]
    selectors: Option<String>,
    /// Start of the time range: only series with samples from this time on. Seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// End of the time range: only series with samples up to this time.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Maximum number of entries in the response; 0 for no limit.
    #[param(example = 100)]
    limit: Option<u64>,
}

/// List series
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series",
    params(SeriesParameters),
    responses(
        (status = 200, description = "The labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    list(caller, "prometheus_series", ListRequest::series(&parameters)?).await
}

/// List series, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user&limit=10"
    ),
    responses(
        (status = 200, description = "The labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    series_get(caller, parameters).await
}

/// List label names
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels",
    params(SeriesParameters),
    responses((status = 200, description = "Sorted names", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    list(
        caller,
        "prometheus_labels",
        ListRequest::label_names(&parameters)?,
    )
    .await
}

/// List label names, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses((status = 200, description = "Sorted names", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    labels_get(caller, parameters).await
}

/// Path parameter of the route for a label.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct LabelPath {
    /// Name of the label. A name with special characters can be escaped as `U__…`.
    #[param(example = "region")]
    name: String,
}

/// List values of a label
///
/// If no series has the label, the list is empty.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/label/{name}/values", tag = "prometheus",
    params(LabelPath, SeriesParameters),
    responses((status = 200, description = "Sorted values", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn label_values(
    caller: Caller,
    Path(LabelPath { name }): Path<LabelPath>,
    parameters: Parameters,
) -> Result<Response> {
    let request = ListRequest::label_values(&parameters, name)?;
    list(caller, "prometheus_label_values", request).await
}

async fn list(caller: Caller, resource: &'static str, request: ListRequest) -> Result<Response> {
    let time_max = caller.app.settings.prometheus.query_timeout;
    caller.respond(resource, time_max, JSON, request).await
}
