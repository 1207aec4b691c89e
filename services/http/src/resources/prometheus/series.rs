//! `/api/v1/series`, `/api/v1/labels`, `/api/v1/label/{name}/values`: which series there are, and what they are called.

use axum::response::Response;
use serde::Deserialize;
use tideline_openapi::prometheus::Answer;
use tideline_prometheus::{ListRequest, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::PrometheusFailures;
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

/// Parameters of a look at series.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct SeriesParameters {
    /// A selector; may stand several times, and then one of them has to be met. `/series` needs one.
    #[param(rename = "match[]", example = "cpu_usage_user{region=~\"eu-.*\"}")]
    selectors: Option<String>,
    /// Only series with samples from here: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// Only series with samples up to here.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Most entries of the answer; 0 for all.
    #[param(example = 100)]
    limit: Option<u64>,
}

/// Find series
#[utoipa::path(
    get, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series",
    params(SeriesParameters),
    responses(
        (status = 200, description = "Labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    list(caller, "prometheus_series", ListRequest::series(&parameters)?).await
}

/// Find series, as a form
#[utoipa::path(
    post, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user&limit=10"
    ),
    responses(
        (status = 200, description = "Labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    series_get(caller, parameters).await
}

/// List label names
#[utoipa::path(
    get, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels",
    params(SeriesParameters),
    responses((status = 200, description = "Names, sorted", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    list(
        caller,
        "prometheus_labels",
        ListRequest::label_names(&parameters)?,
    )
    .await
}

/// List label names, as a form
#[utoipa::path(
    post, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses((status = 200, description = "Names, sorted", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    labels_get(caller, parameters).await
}

/// The path of the route about a label.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct LabelPath {
    /// The label; a name that is no plain word may be escaped, as `U__…`.
    #[param(example = "region")]
    name: String,
}

/// List values of a label
///
/// A label that no series has gives an empty list.
#[utoipa::path(
    get, path = "/api/v1/label/{name}/values", tag = "prometheus",
    params(LabelPath, SeriesParameters),
    responses((status = 200, description = "Values, sorted", body = Answer<Vec<String>>), PrometheusFailures)
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
    caller.answer(resource, time_max, JSON, request).await
}
