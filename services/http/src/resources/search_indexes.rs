//! `/v1/tables/{table}/search-indexes`, `/v1/tables/{table}/rows/search` and `…/facets`: search over rows of wide
//! tables.
//!
//! `tideline_rows` plans searches and counts; the indexers of the engine keep the indexes up to date.

use std::io::Write as _;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tideline_engine::model::{SearchIndexSpec, TableId};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::ErrorBody;
use tideline_openapi::row::{Refresh, RowIntegers};
use tideline_openapi::row_search::{
    CreateSearchIndex, FacetRows, RowFacetList, RowsSearched, SearchEnd, SearchIndexDetail, SearchIndexList,
    SearchIndexState, SearchIndexView, SearchRows,
};
use tideline_rows::Selection;
use tideline_rows::facets::Facets;
use tideline_rows::search::{Search, finds_only_cold};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path, Query};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query::{check_accepts_json, describe};
use crate::resources::rows::{answer, put, put_end, read as read_rows, tier_of, wait_searches};
use crate::resources::{Failures, QueryFailures, WideTablePath};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, drop_index))
        .routes(routes!(search))
        .routes(routes!(facets))
}

/// Path parameters of the routes for one search index.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct IndexPath {
    /// Name of the table, which has the model `wide` or `feed`
    #[param(example = "orders")]
    table: String,
    /// Name of the search index
    #[param(example = "all")]
    index: String,
}

/// Options of a search over rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// Form of integers beyond ±2⁵³ in the response. Default `number`.
    integers: Option<RowIntegers>,
}

/// Options of the creation of a search index.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CreateQuery {
    /// `wait` to send the response when the index is built, at most 10 seconds later. Default: the response does not
    /// wait.
    refresh: Option<Refresh>,
}

/// List the search indexes of a table
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/search-indexes", tag = "rows", operation_id = "list_search_indexes",
    params(WideTablePath),
    responses((status = 200, description = "All search indexes", body = SearchIndexList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<Json<SearchIndexList>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(views(engine, &table))
    });
    Ok(Json(SearchIndexList {
        search_indexes: found.await?,
        request_id: id.into(),
    }))
}

/// Create a search index
///
/// A search index finds rows by any combination of conditions on its columns, and sorts them by any of these columns.
/// Existing rows are indexed in the background while writes continue; the indexing resumes after a restart. Until the
/// index is complete, searches are refused with status 503. The index follows the writes within about a second, and
/// each search reports how many changes the index does not contain yet. Writes to the table wait while the index is
/// more than 0.7 seconds behind. A write with `refresh=wait`, or a search with `at_least`, waits for the index.
///
/// An index of a very large table can be divided into shards (`shards`, `routing`), so that a search with the value of the
/// routing columns reads only one of them.
///
/// To change the columns or the shards of an index, create it again with `replace`. The existing index serves searches
/// until the new one is complete.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/search-indexes", tag = "rows", operation_id = "create_search_index",
    params(WideTablePath, CreateQuery),
    request_body = CreateSearchIndex,
    responses(
        (status = 201, description = "The new search index", body = SearchIndexDetail),
        (status = 409, description = "The table has a search index of this name", body = ErrorBody),
        Failures
    )
)]
async fn create(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<CreateQuery>,
    JsonBody(body): JsonBody<CreateSearchIndex>,
) -> Result<(StatusCode, Json<SearchIndexDetail>)> {
    app.note_change(format!("/v1/tables/{table}/search-indexes/{}", body.name));
    app.note_detail(audit_detail::members(&body));
    let (name, replace) = (body.name.clone(), body.replace);
    let created = {
        let table = table.clone();
        app.change(move |engine| Ok(engine.create_search_index(&table, body.into(), replace)?))
    };
    let mut wide = created.await?;
    let is_built = match query.refresh {
        Some(Refresh::Wait) => wait_searches(&app.engine, app.engine.await_builds(&wide)).await,
        None => false,
    };
    let engine = app.engine.clone();
    let created = blocking(move || {
        if is_built {
            // If the new index replaces an earlier index of the same name, this call completes the replacement.
            engine.follow_searches();
            wide = engine.table_of_rows(&table)?;
        }
        let newest = views(&engine, &wide)
            .into_iter()
            .rfind(|index| index.name == name);
        Ok(SearchIndexDetail {
            index: newest.ok_or_else(|| wide.no_such_search_index(&name))?,
            request_id: id.into(),
        })
    });
    Ok((StatusCode::CREATED, Json(created.await?)))
}

/// Read a search index with its state
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/search-indexes/{index}", tag = "rows", operation_id = "read_search_index",
    params(IndexPath),
    responses((status = 200, description = "The search index", body = SearchIndexDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(IndexPath { table, index }): Path<IndexPath>,
) -> Result<Json<SearchIndexDetail>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        let first = views(engine, &table).into_iter().find(|view| view.name == index);
        Ok(SearchIndexDetail {
            index: first.ok_or_else(|| table.no_such_search_index(&index))?,
            request_id: id.into(),
        })
    });
    found.await.map(Json)
}

/// Drop a search index
///
/// The files of the index are deleted. The rows stay.
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/tables/{table}/search-indexes/{index}", tag = "rows", operation_id = "drop_search_index",
    params(IndexPath),
    responses((status = 204, description = "The search index was dropped"), Failures)
)]
async fn drop_index(app: Grant, Path(IndexPath { table, index }): Path<IndexPath>) -> Result<StatusCode> {
    app.change(move |engine| Ok(engine.drop_search_index(&table, &index)?))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Search rows
///
/// Finds rows by a condition on the columns of a search index, in any order. Page tokens stay valid after a restart.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/search", tag = "rows", operation_id = "search_rows",
    params(WideTablePath, SearchQuery),
    request_body = SearchRows,
    responses((status = 200, description = "A page of rows", body = RowsSearched), QueryFailures)
)]
async fn search(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<SearchQuery>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<SearchRows>,
) -> Result<Response> {
    check_accepts_json(&headers)?;
    let description = describe(id.clone(), &table, "search_rows", &request);
    // The tiers of the found rows are known only after the search, so a search of all tiers takes an ordinary query
    // permit.
    let is_cold = |_: &Engine, table: &WideTable, request: &SearchRows| {
        Ok(finds_only_cold(table, request.index.as_deref(), request.tier))
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let task = (tier, Some(description));
    read_rows(&app, "application/json", task, move |app, reading, writer| {
        let table = app.engine.table_of_rows(&table)?;
        let selection = Selection::new(
            request.columns.as_deref(),
            None,
            None,
            query.integers.unwrap_or_default(),
            app.engine.now(),
        )?;
        let search = Search::new(&app.engine, &table, &request, &selection)?;
        put(writer, b"{\"rows\":[")?;
        let mut separator: &[u8] = b"";
        let end = search.page(
            &app.engine,
            &table,
            &selection,
            &|| reading.is_stopped(),
            &mut |row| {
                writer.write_all(std::mem::replace(&mut separator, b","))?;
                Ok(writer.write_all(row)?)
            },
        )?;
        #[derive(Serialize)]
        struct End {
            #[serde(flatten)]
            end: SearchEnd,
            request_id: String,
        }
        put_end(
            writer,
            &End {
                end,
                request_id: id.into(),
            },
        )
    })
    .await
}

/// Count rows by values
///
/// Counts the rows that match a condition, grouped by up to four keys, with metrics of the rows of each group. Each
/// group can be divided further by the next key.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/facets", tag = "rows", operation_id = "facet_rows",
    params(WideTablePath),
    request_body = FacetRows,
    responses((status = 200, description = "The counts", body = RowFacetList), Failures)
)]
async fn facets(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(request): JsonBody<FacetRows>,
) -> Result<Json<RowFacetList>> {
    let description = describe(id.clone(), &table, "facet_rows", &request);
    let is_cold = |_: &Engine, table: &WideTable, request: &FacetRows| {
        Ok(finds_only_cold(table, request.index.as_deref(), request.tier))
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let counted = answer(&app, description, tier, move |engine, table, is_stopped| {
        let facets = Facets::new(engine, table, &request)?;
        Ok(RowFacetList {
            request_id: id.into(),
            ..facets.count(engine, table, is_stopped)?
        })
    });
    counted.await.map(Json)
}

/// Returns the search indexes of a table with their state.
fn views(engine: &Engine, table: &WideTable) -> Vec<SearchIndexView> {
    let view = |spec: &SearchIndexSpec| {
        let (status, backlog) = engine.search_index_status(TableId(spec.id)).unwrap_or_default();
        SearchIndexView {
            name: spec.name.clone(),
            columns: spec.columns.iter().map(Into::into).collect(),
            tier: spec.tier.into(),
            shards: spec.shards,
            routing: spec.routing.clone(),
            status: match status.is_built() {
                true => SearchIndexState::Ready,
                false => SearchIndexState::Building,
            },
            documents: status.documents,
            rows_read: status.rows_read,
            waiting: backlog.changes,
            lag_ms: backlog.age.map_or(0, |age| age.as_millis() as u64),
            error: status.last_error,
        }
    };
    table.settings().search_indexes.iter().map(view).collect()
}
