//! `/v1/queries`: lists and cancels running queries.

use axum::Json;
use serde::Deserialize;
use tideline_openapi::query::{CancelledQuery, RunningQueries, RunningQuery};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::Path;
use crate::grant::Grant;
use crate::resources::Failures;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(cancel))
}

/// Path parameter of routes for a running query.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct QueryPath {
    /// Number of the query
    #[param(example = 17)]
    query: u64,
}

/// List running queries
///
/// Returns the running queries of all protocols, oldest first. Queries of cold points and requests for rows in cold
/// or archived parts are included while they wait in their queue. Each query has the number of its selected
/// timelines, and the numbers of points and values that it has read so far.
#[utoipa::path(
    security(("token" = ["operate"])),
    get, path = "/v1/queries", tag = "points", operation_id = "list_queries",
    responses((status = 200, description = "The running queries", body = RunningQueries), Failures)
)]
async fn list(app: Grant, id: RequestId) -> Json<RunningQueries> {
    let queries = app.running.all().into_iter();
    let queries = queries.filter(|(_, query)| app.sees_table(&query.table));
    let queries = queries.map(|(id, query)| {
        let progress = query.progress();
        RunningQuery {
            id,
            started: query.started.to_rfc3339(),
            elapsed_ms: query.elapsed(&app.engine).as_micros() as f64 / 1e3,
            timelines: progress.timelines,
            points: progress.points,
            values: progress.values,
            request_id: query.request_id.into(),
            table: query.table,
            resource: query.resource.into(),
            question: query.text,
        }
    });
    Json(RunningQueries {
        request_id: id.into(),
        queries: queries.collect(),
    })
}

/// Cancel a query
///
/// The query stops at the next block of points. Its client gets an error with the code `conflict`, or an aborted
/// response. Closing the connection of a query also stops it.
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/queries/{query}", tag = "points", operation_id = "cancel_query",
    params(QueryPath),
    responses((status = 200, description = "The outcome", body = CancelledQuery), Failures)
)]
async fn cancel(
    app: Grant,
    id: RequestId,
    Path(QueryPath { query }): Path<QueryPath>,
) -> Json<CancelledQuery> {
    let cancelled = app.running.cancel(query, |query| app.sees_table(&query.table));
    if !cancelled {
        app.note_change(String::new());
    }
    Json(CancelledQuery {
        request_id: id.into(),
        cancelled,
    })
}
