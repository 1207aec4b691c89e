//! `/v1/tables/{table}/advice`: advice on a wide table, and on a sample of queries.
//!
//! Advice on a table is computed from figures in memory. Advice on queries also estimates numbers of rows, like
//! `rows/explain`. Both hold a query permit.

use axum::Json as JsonResponse;
use serde::Deserialize;
use tideline_openapi::row_advice::{AdviseQueries, QueriesAdvised, TableAdvice};
use tideline_rows::advice::advice;
use tideline_rows::advise_queries::advise_queries;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::rows::{RowTier, answer};
use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json, Path, Query};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::{Failures, WideTablePath};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_table))
        .routes(routes!(of_queries))
}

/// Options of advice.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AdviceQuery {
    /// True to return the advice also if the table is small. Default false.
    all: Option<bool>,
}

/// Return advice on a wide table
///
/// Checks the settings, the figures of the last survey (job `survey_rows`), the load of the last minute and the use of
/// the indexes since the start of the server. Each piece of advice has a code, a measured figure and a recommended
/// change. A table with less than 1,000 requests per second and less than 10 GB needs no tuning: its advice is
/// only counted, unless `all` is true, for example to check the design of a new table.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/advice", tag = "rows", operation_id = "table_advice",
    params(WideTablePath, AdviceQuery),
    responses((status = 200, description = "The advice", body = TableAdvice), Failures)
)]
async fn of_table(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<AdviceQuery>,
) -> Result<JsonResponse<TableAdvice>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(advice(engine, &table, query.all.unwrap_or_default()))
    });
    Ok(JsonResponse(TableAdvice {
        request_id: id.into(),
        ..found.await?
    }))
}

/// Return the access paths that fit a sample of queries
///
/// Returns for each query the cheapest path: the whole key, a range of the primary key, a small range with tests, a
/// secondary index for a fixed combination of columns, or a search index for free combinations, alternatives, words and
/// areas. `create_indexes` and `create_search_indexes` are the bodies of the requests that create the missing indexes.
/// Nothing is created.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/advice", tag = "rows", operation_id = "query_advice",
    params(WideTablePath),
    request_body = AdviseQueries,
    responses((status = 200, description = "The access paths", body = QueriesAdvised), Failures)
)]
async fn of_queries(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Json(request): Json<AdviseQueries>,
) -> Result<JsonResponse<QueriesAdvised>> {
    let description = describe(id.clone(), &table, "advice", &request);
    let advised = answer(
        &app,
        description,
        RowTier::Hot,
        move |engine, table, is_stopped| {
            let advised = advise_queries(engine, table, &request, is_stopped)?;
            Ok(QueriesAdvised {
                request_id: id.into(),
                ..advised
            })
        },
    );
    advised.await.map(JsonResponse)
}
