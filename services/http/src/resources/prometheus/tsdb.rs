//! `/api/v1/status/tsdb`: how many series and labels there are, and what brings them.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use tideline_openapi::prometheus::{Answer, HeadStats, TsdbStat, TsdbStatus};
use tideline_prometheus::{Cardinality, SeriesView};
use tideline_query::{Budget, Cancel};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::PrometheusFailures;
use super::parameters::Parameters;
use crate::app::App;
use crate::failure::{Failure, Result};

/// Entries of each list where the request does not say.
const LIMIT_DEFAULT: usize = 10;
/// Most entries of each list.
const LIMIT_MAX: usize = 10_000;

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
    let limit = match parameters.text("limit") {
        "" => LIMIT_DEFAULT,
        text => match text.parse() {
            Ok(0) | Err(_) => return Err(Failure::invalid("limit must be a positive number")),
            Ok(limit) if limit > LIMIT_MAX => {
                return Err(Failure::invalid(format!("limit must not exceed {LIMIT_MAX}")));
            }
            Ok(limit) => limit,
        },
    };
    let running = app.clone();
    let status = app
        .read(move |engine| {
            let table = engine.table(&table)?;
            let view = SeriesView::new(&running.querier, &table, Budget::default(), &Cancel::new());
            let chunks = engine.table_stats(&table).segments;
            Ok(status(view.cardinality(limit)?, chunks))
        })
        .await?;
    Ok(Json(Answer::new(status)).into_response())
}

fn status(found: Cardinality, chunk_count: u64) -> TsdbStatus {
    let list = |counts: Vec<(String, u64)>| {
        let stat = |(name, value)| TsdbStat { name, value };
        counts.into_iter().map(stat).collect()
    };
    // Prometheus' ends of an empty head.
    let (min_time, max_time) = found.span.unwrap_or((i64::MAX, i64::MIN));
    TsdbStatus {
        head_stats: HeadStats {
            num_series: found.series,
            num_label_pairs: found.label_pairs,
            chunk_count,
            min_time,
            max_time,
        },
        series_count_by_metric_name: list(found.by_metric_name),
        label_value_count_by_label_name: list(found.values_by_label),
        memory_in_bytes_by_label_name: list(found.bytes_by_label),
        series_count_by_label_value_pair: list(found.by_label_pair),
    }
}
