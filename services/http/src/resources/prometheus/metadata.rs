//! `/api/v1/metadata`: metadata of metrics.

use std::collections::BTreeMap;

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, Metadata};
use tideline_prometheus::{MetadataRequest, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::response::{PrometheusFailures, success};
use crate::app::App;
use crate::failure::Result;
use crate::grant::Grant;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metadata))
}

/// Parameters of a query for metadata.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct MetadataParameters {
    /// Maximum number of metrics in the response.
    #[param(example = 100)]
    limit: Option<u64>,
    /// Maximum number of entries per metric; 0 for no limit.
    #[param(example = 1)]
    limit_per_metric: Option<u64>,
    /// Name of the only metric to return.
    #[param(example = "requests_total")]
    metric: Option<String>,
}

/// Read metadata of metrics
///
/// Returns type, help text and unit, as sent by remote write, OTLP or an import. Metrics without metadata are not
/// listed.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/metadata", tag = "prometheus",
    params(MetadataParameters),
    responses(
        (status = 200, description = "Metadata by metric name", body = Answer<BTreeMap<String, Vec<Metadata>>>), PrometheusFailures
    )
)]
async fn metadata(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    let request = MetadataRequest::read(&parameters)?;
    let found = app.read_table(table, move |engine, table| Ok(request.find(engine, table)));
    Ok(success(found.await?))
}
