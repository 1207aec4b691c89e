//! `/v1/tables/{table}/parts`: lists the parts of a wide table, and drops old ones.

use axum::Json;
use axum::extract::State;
use tideline_engine::model::Timestamp;
use tideline_engine::parts::TablePart;
use tideline_openapi::ErrorCode;
use tideline_openapi::part::{DropParts, PartList, PartView, PartsDropped};
use tideline_openapi::tier::Tier;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::resources::{Failures, WideTablePath};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(drop_parts))
}

/// List the parts of a wide table
///
/// Returns the parts that have rows. The setting `wide.parts` divides a new table into parts; the list is empty for other
/// tables.
#[utoipa::path(
    get, path = "/v1/tables/{table}/parts", tag = "rows", operation_id = "list_parts",
    params(WideTablePath),
    responses((status = 200, description = "All parts with rows", body = PartList), Failures)
)]
async fn list(
    State(app): State<App>,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<Json<PartList>> {
    let found = app.read(move |engine| {
        let table = engine.wide_table(&table)?;
        Ok(engine.table_parts(&table)?)
    });
    Ok(Json(PartList {
        parts: views(&found.await?),
        request_id: id.into(),
    }))
}

/// Drop old parts of a wide table
///
/// Drops all parts that end at or before a time. Their rows are invisible at once, with their entries in all indexes, and
/// their bytes are freed within seconds, without reading the rows. Later writes to these parts are refused, and this
/// cannot be undone. With `preview`, nothing is dropped.
#[utoipa::path(
    post, path = "/v1/tables/{table}/parts/drop", tag = "rows", operation_id = "drop_parts",
    params(WideTablePath),
    request_body = DropParts,
    responses((status = 200, description = "The dropped parts", body = PartsDropped), Failures)
)]
async fn drop_parts(
    State(app): State<App>,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(body): JsonBody<DropParts>,
) -> Result<Json<PartsDropped>> {
    let before = Timestamp::parse_rfc3339(&body.before).ok_or_else(|| {
        Failure::new(
            ErrorCode::Invalid,
            format!(
                "before: expected a time in RFC 3339 such as 2026-09-01T00:00:00Z, found {:?}",
                body.before
            ),
        )
    })?;
    let dropped = app.change(move |engine| Ok(engine.drop_parts(&table, before, body.preview)?));
    Ok(Json(PartsDropped {
        dropped: views(&dropped.await?),
        request_id: id.into(),
    }))
}

fn views(parts: &[TablePart]) -> Vec<PartView> {
    let view = |part: &TablePart| PartView {
        name: part.name.clone(),
        start: part.start.to_rfc3339(),
        end: part.end.to_rfc3339(),
        tier: part.tier.map(Tier::from),
        writable: part.is_writable,
        visible: part.is_visible,
    };
    parts.iter().map(view).collect()
}
