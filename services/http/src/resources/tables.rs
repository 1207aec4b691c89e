//! `/v1/tables`: creates, lists, reads, alters and drops tables.
//!
//! The settings of a table are validated here as far as they do not depend on its data.

use axum::Json;
use axum::http::StatusCode;
use tideline_engine::model::{TableModel, TableName, TableSpec};
use tideline_engine::{Engine, Table};
use tideline_openapi::feed::FeedView;
use tideline_openapi::policy::Policy;
use tideline_openapi::table::{AlterTable, CreateTable, TableDetail, TableList, TableSettings, TableView};
use tideline_openapi::wide::WideView;
use tideline_openapi::{DurationText, ErrorBody};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, TablePath, changed_policy, instant, statistics};

/// Maximum number of source tags of a table.
const SOURCE_TAGS_MAX: usize = 16;
/// Longest source tag, in bytes.
const SOURCE_TAG_BYTES_MAX: usize = 256;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(read, alter, drop_table))
}

/// List tables
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/tables", tag = "tables", operation_id = "list_tables",
    responses((status = 200, description = "All tables, sorted by name", body = TableList), Failures)
)]
async fn list(app: Grant, id: RequestId) -> Result<Json<TableList>> {
    let tables = app
        .read(|engine| {
            let tables = engine.tables().into_iter();
            Ok(tables.map(|table| view(&table)).collect())
        })
        .await?;
    Ok(Json(TableList {
        tables,
        request_id: id.into(),
    }))
}

/// Create a table
///
/// The table `default` always exists, so the first write needs no setup.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables", tag = "tables",
    request_body = CreateTable,
    responses(
        (status = 201, description = "The new table", body = TableDetail),
        (status = 409, description = "A table of this name exists", body = ErrorBody),
        Failures
    )
)]
async fn create(
    app: Grant,
    id: RequestId,
    JsonBody(body): JsonBody<CreateTable>,
) -> Result<(StatusCode, Json<TableDetail>)> {
    let name = TableName::new(&body.name).map_err(Failure::invalid)?;
    app.note_change(format!("/v1/tables/{name}"));
    let mut spec = with_changes(TableSpec::default(), body.settings)?;
    if let Some(wide) = body.wide {
        if spec.model == TableModel::Feed {
            return Err(Failure::invalid(
                "the setting `wide` is for tables of the model wide; a table of the model feed has `feed`",
            ));
        }
        spec.wide = Some(Box::new(wide.into_spec().map_err(Failure::invalid)?));
    }
    match (spec.model, body.feed) {
        (TableModel::Feed, feed) => {
            let (feed, rows) = feed.unwrap_or_default().into_spec().map_err(Failure::invalid)?;
            spec.feed = Some(feed);
            spec.wide = Some(Box::new(rows));
        }
        (_, None) => {}
        (model, Some(_)) => {
            return Err(Failure::invalid(format!(
                "the setting `feed` is for tables of the model feed, not {model}"
            )));
        }
    }
    app.note_detail(audited(None, &spec));
    let created = app.change(move |engine| {
        let table = engine.create_table(name, spec)?;
        Ok(detail(engine, &table, id))
    });
    Ok((StatusCode::CREATED, Json(created.await?)))
}

/// Read a table with its statistics
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}", tag = "tables", operation_id = "read_table",
    params(TablePath),
    responses((status = 200, description = "The table", body = TableDetail), Failures)
)]
async fn read(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
) -> Result<Json<TableDetail>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_any_model(&table)?;
        engine.check_describable(&table)?;
        Ok(detail(engine, &table, id))
    });
    found.await.map(Json)
}

/// Alter a table
///
/// Settings that the body omits stay unchanged. The model and the key of a wide table cannot be changed.
/// `source_tags` cannot be changed after the first write.
#[utoipa::path(
    security(("token" = ["operate"])),
    patch, path = "/v1/tables/{table}", tag = "tables",
    params(TablePath),
    request_body = AlterTable,
    responses(
        (status = 200, description = "The altered table", body = TableDetail),
        (status = 409, description = "`model` or `source_tags` cannot be changed", body = ErrorBody),
        Failures
    )
)]
async fn alter(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(AlterTable { settings, wide }): JsonBody<AlterTable>,
) -> Result<Json<TableDetail>> {
    let noted = app.clone();
    let altered = app.change(move |engine| {
        let _alone = engine.lock_settings();
        let before = engine.table_of_any_model(&table)?.spec();
        let mut spec = with_changes(TableSpec::clone(&before), settings)?;
        if let Some(changes) = wide {
            let model = spec.model;
            let rows = spec.wide.as_deref_mut().ok_or_else(|| {
                Failure::invalid(format!(
                    "table {table}: the setting `wide` is for tables of the model wide, not {model}"
                ))
            })?;
            changes.apply_to(rows).map_err(Failure::invalid)?;
        }
        noted.note_detail(audited(Some(&before), &spec));
        let table = engine.alter_table(&table, spec)?;
        Ok(detail(engine, &table, id))
    });
    altered.await.map(Json)
}

/// Drop a table
///
/// The points, timelines and attributes of the table, or its rows, become inaccessible immediately. The default
/// table cannot be dropped.
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/tables/{table}", tag = "tables",
    params(("table" = String, Path, description = "Name of the table", example = "devices")),
    responses(
        (status = 204, description = "The table was dropped"),
        (status = 409, description = "The default table cannot be dropped", body = ErrorBody),
        Failures
    )
)]
async fn drop_table(app: Grant, Path(name): Path<String>) -> Result<StatusCode> {
    app.change(move |engine| Ok(engine.drop_table(&name)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns `spec` with the changes in `settings`. Fails if a setting is not valid, or does not apply to the model.
fn with_changes(mut spec: TableSpec, settings: TableSettings) -> Result<TableSpec> {
    if let Some(model) = settings.model {
        spec.model = model;
    }
    if spec.model.has_rows() {
        check_settings_of_rows(spec.model, &settings)?;
    }
    if let Some(source_tags) = settings.source_tags {
        check_source_tags(&source_tags)?;
        spec.source_tags = source_tags;
    }
    if let Some(durability) = settings.durability {
        spec.durability = durability.into();
    }
    if let Some(past) = settings.write_past {
        spec.write_past = past.map(|DurationText(nanos)| nanos);
    }
    if let Some(future) = settings.write_future {
        spec.write_future = future.map(|DurationText(nanos)| nanos);
    }
    if let Some(changes) = settings.policy {
        spec.policy = changed_policy(spec.policy, changes)?;
    }
    if let Some(analyzers) = settings.attribute_analyzers {
        spec.attribute_analyzers = analyzers;
    }
    Ok(spec)
}

/// Refuses settings that have no effect on rows.
fn check_settings_of_rows(model: TableModel, settings: &TableSettings) -> Result<()> {
    let has_timelines = model.has_timelines();
    let of_points = [
        ("source_tags", settings.source_tags.is_some() && !has_timelines),
        ("write_past", settings.write_past.is_some()),
        ("write_future", settings.write_future.is_some()),
        ("policy", settings.policy.is_some()),
        (
            "attribute_analyzers",
            settings.attribute_analyzers.is_some() && !has_timelines,
        ),
    ];
    match of_points.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::invalid(format!(
            "the setting `{name}` is for points; a table of the model {model} has `durability` and `{model}`"
        ))),
        None => Ok(()),
    }
}

fn check_source_tags(tags: &[String]) -> Result<()> {
    let over = |what, limit, actual| {
        let code = tideline_openapi::ErrorCode::OverLimit;
        Err(Failure::over(code, what, limit as u64, actual as u64))
    };
    if tags.len() > SOURCE_TAGS_MAX {
        return over("number of source_tags", SOURCE_TAGS_MAX, tags.len());
    }
    for (at, tag) in tags.iter().enumerate() {
        if tag.len() > SOURCE_TAG_BYTES_MAX {
            return over("length in bytes of a source tag", SOURCE_TAG_BYTES_MAX, tag.len());
        }
        if tag.is_empty() || tags[..at].contains(tag) {
            return Err(Failure::invalid("source_tags must not be empty or repeated"));
        }
    }
    Ok(())
}

/// Returns the changed settings of a table for its audit record. `before` is `None` for a new table, whose settings are
/// compared with the defaults.
pub(super) fn audited(before: Option<&TableSpec>, after: &TableSpec) -> String {
    let default = TableSpec {
        model: after.model,
        ..TableSpec::default()
    };
    let settings = |spec: &TableSpec| settings_view(String::new(), 0, spec);
    audit_detail::changes(&settings(before.unwrap_or(&default)), &settings(after))
}

fn view(table: &Table) -> TableView {
    settings_view(table.name().to_string(), table.created(), &table.spec())
}

fn settings_view(name: String, created: i64, spec: &TableSpec) -> TableView {
    TableView {
        name,
        model: spec.model,
        created: instant(created),
        source_tags: spec.source_tags.clone(),
        durability: spec.durability.into(),
        write_past: spec.write_past.map(DurationText),
        write_future: spec.write_future.map(DurationText),
        policy: Policy::from(&spec.policy),
        attribute_analyzers: spec.attribute_analyzers.clone(),
        wide: spec.wide.as_deref().map(WideView::from),
        feed: spec.feed.map(FeedView::from),
    }
}

fn detail(engine: &Engine, table: &Table, id: RequestId) -> TableDetail {
    TableDetail {
        table: view(table),
        statistics: statistics::of(engine, table),
        request_id: id.into(),
    }
}
