//! `/api/v1/status/tsdb`: cardinality of series and labels.

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, TsdbStatus};
use tideline_prometheus::cardinality::read_limit;
use tideline_prometheus::{Parameters, SeriesView};
use tideline_query::{Budget, Cancel};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::response::{PrometheusFailures, success};
use crate::app::App;
use crate::failure::Result;
use crate::grant::Grant;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(tsdb))
}

/// Parameter of the cardinality statistics.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads it by name")]
struct TsdbParameters {
    /// Maximum number of entries per list, 1 to 10,000. Default 10.
    #[param(example = 10)]
    limit: Option<u64>,
}

/// Read cardinality statistics
///
/// The counts cover the whole table and all tiers. A timeline counts once for each of its metrics.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/status/tsdb", tag = "prometheus",
    params(TsdbParameters),
    responses((status = 200, description = "The counts", body = Answer<TsdbStatus>), PrometheusFailures)
)]
async fn tsdb(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    let limit = read_limit(&parameters)?;
    let running = app.clone();
    let status = app.read(move |engine| {
        let table = engine.table(&table)?;
        let view = SeriesView::new(&running.querier, &table, Budget::default(), &Cancel::new());
        Ok(view.tsdb_status(limit)?)
    });
    Ok(success(status.await?))
}
