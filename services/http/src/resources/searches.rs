//! `/v1/tables/{table}/searches`: conditions saved under a name.
//!
//! A search is stored as JSON in the catalog of its table. [`crate::saved_search`] expands it where it is used.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_engine::find::NEVER;
use tideline_openapi::search::{NamedSearch, SavedSearch, SearchDetail, SearchList};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath};
use crate::saved_search;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read, save, delete))
}

/// Path parameters of routes for a saved search.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct SearchPath {
    /// Name of the table
    #[param(example = "default")]
    table: String,
    /// Name of the search: 1 to 128 letters, digits, dots, dashes and underscores
    #[param(example = "west")]
    name: String,
}

/// List saved searches
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/searches", tag = "timelines", operation_id = "list_searches",
    params(TablePath),
    responses((status = 200, description = "All saved searches of the table", body = SearchList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
) -> Result<Json<SearchList>> {
    let all = app.read_table(table, |_, table| Ok(table.searches().all()));
    let named = |(name, text): (String, std::sync::Arc<str>)| {
        let search = saved_search::read(&name, &text)?;
        Ok(NamedSearch::new(name, search))
    };
    Ok(Json(SearchList {
        searches: all.await?.into_iter().map(named).collect::<Result<_>>()?,
        request_id: id.into(),
    }))
}

/// Read a saved search
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/searches/{name}", tag = "timelines", operation_id = "read_search",
    params(SearchPath),
    responses((status = 200, description = "The search", body = SearchDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(SearchPath { table, name }): Path<SearchPath>,
) -> Result<Json<SearchDetail>> {
    let found = app.read_table(table, move |_, table| {
        let text = table
            .searches()
            .get(&name)
            .ok_or_else(|| saved_search::unknown(table, &name))?;
        let search = saved_search::read(&name, &text)?;
        Ok(NamedSearch::new(name, search))
    });
    Ok(Json(SearchDetail {
        search: found.await?,
        request_id: id.into(),
    }))
}

/// Save a search
///
/// Saves a condition under a name and replaces an existing search of this name. Searches, facets, queries,
/// changes and deletes can then use `{"saved": "west"}` instead of the condition. A condition that is not valid
/// or uses itself is refused.
#[utoipa::path(
    security(("token" = ["operate"])),
    put, path = "/v1/tables/{table}/searches/{name}", tag = "timelines",
    params(SearchPath),
    request_body = SavedSearch,
    responses((status = 200, description = "The saved search", body = SearchDetail), Failures)
)]
async fn save(
    app: Grant,
    id: RequestId,
    Path(SearchPath { table, name }): Path<SearchPath>,
    JsonBody(search): JsonBody<SavedSearch>,
) -> Result<Json<SearchDetail>> {
    let saved = app.change(move |engine| {
        let table = engine.table(&table)?;
        let condition = saved_search::expand_new(&table, &name, &search.condition.0)?;
        let condition = condition.resolve(engine.now());
        engine.compile(&table, &condition, NEVER)?;
        let text = serde_json::to_string(&search).map_err(Failure::invalid)?;
        engine.save_search(&table, &name, &text)?;
        Ok(NamedSearch::new(name, search))
    });
    Ok(Json(SearchDetail {
        search: saved.await?,
        request_id: id.into(),
    }))
}

/// Delete a saved search
///
/// Requests that use the search are refused from then on.
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/tables/{table}/searches/{name}", tag = "timelines", operation_id = "delete_search",
    params(SearchPath),
    responses((status = 204, description = "The search is deleted"), Failures)
)]
async fn delete(app: Grant, Path(SearchPath { table, name }): Path<SearchPath>) -> Result<StatusCode> {
    let deleted = app.change(move |engine| {
        let table = engine.table(&table)?;
        match engine.delete_search(&table, &name)? {
            true => Ok(StatusCode::NO_CONTENT),
            false => Err(saved_search::unknown(&table, &name)),
        }
    });
    deleted.await
}
