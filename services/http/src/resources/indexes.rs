//! `/v1/tables/{table}/indexes`: creates, lists, reads and drops secondary indexes of wide tables.
//!
//! To read through an index, a request to scan or count rows names it in the member `index`.

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_engine::model::{IndexSpec, TableId};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::ErrorBody;
use tideline_openapi::index::{CreateIndex, IndexDetail, IndexList, IndexView};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, WideTablePath};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, drop_index))
}

/// Path parameters of the routes for one index.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct IndexPath {
    /// Name of the table, which has the model `wide`
    #[param(example = "orders")]
    table: String,
    /// Name of the index
    #[param(example = "by_total")]
    index: String,
}

/// List the indexes of a table
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/indexes", tag = "rows", operation_id = "list_indexes",
    params(WideTablePath),
    responses((status = 200, description = "All indexes, in the order of their creation", body = IndexList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<Json<IndexList>> {
    let indexes = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(views(engine, &table))
    });
    Ok(Json(IndexList {
        indexes: indexes.await?,
        request_id: id.into(),
    }))
}

/// Create an index
///
/// An index sorts the rows by a separate key. Its key columns are columns of the rows or of the primary key. They
/// can have all forms of the key columns of a table. A row has an entry if it has a value in every column of the
/// index. Every write maintains the entries of its rows in the same journal entry, so a read through the index
/// reflects every earlier write.
///
/// The job `build_index` adds the entries of the existing rows while writes continue; it resumes after a restart. Until
/// it has ended, reads of the index are refused with status 503. Each index makes each write more expensive: a change
/// of an indexed value removes an entry and writes another.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/indexes", tag = "rows", operation_id = "create_index",
    params(WideTablePath),
    request_body = CreateIndex,
    responses(
        (status = 201, description = "The new index", body = IndexDetail),
        (status = 409, description = "The table has an index of this name", body = ErrorBody),
        Failures
    )
)]
async fn create(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(body): JsonBody<CreateIndex>,
) -> Result<(StatusCode, Json<IndexDetail>)> {
    app.note_change(format!("/v1/tables/{table}/indexes/{}", body.name));
    app.note_detail(audit_detail::members(&body));
    let created = app.change(move |engine| {
        let wide = engine.table_of_rows(&table)?;
        let name = body.name.clone();
        let index = body.into_spec(|column| wide.type_of(column));
        let wide = engine.create_index(&table, index.map_err(Failure::invalid)?)?;
        detail(engine, &wide, &name, id)
    });
    let created = created.await?;
    app.scheduler.plan_soon();
    Ok((StatusCode::CREATED, Json(created)))
}

/// Read an index with its state and usage counters
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/indexes/{index}", tag = "rows", operation_id = "read_index",
    params(IndexPath),
    responses((status = 200, description = "The index", body = IndexDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(IndexPath { table, index }): Path<IndexPath>,
) -> Result<Json<IndexDetail>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        detail(engine, &table, &index, id)
    });
    found.await.map(Json)
}

/// Drop an index
///
/// Its entries become inaccessible immediately, and their bytes are freed soon after. The rows stay.
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/tables/{table}/indexes/{index}", tag = "rows", operation_id = "drop_index",
    params(IndexPath),
    responses((status = 204, description = "The index was dropped"), Failures)
)]
async fn drop_index(app: Grant, Path(IndexPath { table, index }): Path<IndexPath>) -> Result<StatusCode> {
    app.change(move |engine| Ok(engine.drop_index(&table, &index)?))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the indexes of a table with their use.
fn views(engine: &Engine, table: &WideTable) -> Vec<IndexView> {
    let view = |spec: &IndexSpec| {
        let used = engine.index_use(TableId(spec.id));
        IndexView {
            scans: used.scans,
            entries_read: used.entries_read,
            entries_written: used.entries_written,
            ..IndexView::new(spec)
        }
    };
    table.settings().indexes.iter().map(view).collect()
}

fn detail(engine: &Engine, table: &WideTable, name: &str, id: RequestId) -> Result<IndexDetail> {
    let mut indexes = views(engine, table).into_iter();
    let found = indexes.find(|index| index.name == name);
    Ok(IndexDetail {
        index: found.ok_or_else(|| table.no_such_index(name))?,
        request_id: id.into(),
    })
}
