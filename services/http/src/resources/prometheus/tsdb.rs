//! `/api/v1/status/tsdb`: how many series and labels there are, and what brings them.

use axum::extract::State;
use axum::response::Response;
use tideline_openapi::prometheus::{Answer, TsdbStatus};
use tideline_prometheus::cardinality::read_limit;
use tideline_prometheus::{Parameters, SeriesView};
use tideline_query::{Budget, Cancel};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::{PrometheusFailures, success};
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(tsdb))
}

/// The parameter of a look at cardinality.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is described here and read by name")]
struct TsdbParameters {
    /// Entries of each list, at most 10,000.
    #[param(example = 10)]
    limit: Option<u64>,
}

/// What makes a table large
///
/// Of the whole table, whatever its tier. A timeline counts once for each of its metrics.
#[utoipa::path(
    get, path = "/api/v1/status/tsdb", tag = "prometheus",
    params(TsdbParameters),
    responses((status = 200, description = "Counts", body = Answer<TsdbStatus>), PrometheusFailures)
)]
async fn tsdb(
    State(app): State<App>,
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
