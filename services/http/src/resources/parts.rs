//! `/v1/tables/{table}/parts`: lists the parts of a wide table, previews the effects of its age settings, drops old
//! parts, and restores archived parts.
//!
//! A restore runs in the background as a job, which holds a permit for requested jobs.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use tideline_engine::WideTable;
use tideline_engine::model::{JobKind, TableSpec, Tier as ModelTier, Timestamp};
use tideline_engine::parts::TablePart;
use tideline_engine::rows::MoveProgress;
use tideline_openapi::ErrorCode;
use tideline_openapi::part::{
    DropParts, PartList, PartView, PartsDropped, PartsPreview, PartsRestored, PreviewParts, RestoreParts,
};
use tideline_openapi::tier::Tier;
use tideline_openapi::wide::PartsSettings;
use tideline_scheduler::requested::{JobEnding, RequestedJob};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::requested;
use crate::resources::jobs::{awaited, view};
use crate::resources::{Failures, WideTablePath};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(preview_parts))
        .routes(routes!(drop_parts))
        .routes(routes!(restore_parts))
}

/// List the parts of a wide table
///
/// Returns the parts that have rows. The setting `wide.parts` divides a new table into parts; the list is empty for
/// other tables.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/parts", tag = "rows", operation_id = "list_parts",
    params(WideTablePath),
    responses((status = 200, description = "All parts with rows", body = PartList), Failures)
)]
async fn list(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
) -> Result<Json<PartList>> {
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        Ok(engine.table_parts(&table)?)
    });
    Ok(Json(PartList {
        parts: views(&found.await?),
        request_id: id.into(),
    }))
}

/// Preview the age settings of a wide table
///
/// Returns the parts that the age settings of the table would move to the cold tier, archive, close for writes,
/// hide and drop from now on. Changes in the request are applied to the age settings first. The table itself is not
/// changed; use `PATCH /v1/tables/{table}` to apply the changes.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/parts/preview", tag = "rows", operation_id = "preview_parts",
    params(WideTablePath),
    request_body = PreviewParts,
    responses((status = 200, description = "The effects of the ages", body = PartsPreview), Failures)
)]
async fn preview_parts(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(PreviewParts { parts }): JsonBody<PreviewParts>,
) -> Result<Json<PartsPreview>> {
    let preview = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        let change = |spec: &mut TableSpec| parts.applied_to(spec);
        Ok(engine.preview_parts(&table, change)?)
    });
    let preview = preview.await?;
    Ok(Json(PartsPreview {
        now: preview.now.to_rfc3339(),
        parts: PartsSettings::from(&preview.parts),
        migrate: views(&preview.migrate),
        archive: views(&preview.archive),
        close: views(&preview.close),
        open: views(&preview.open),
        hide: views(&preview.hide),
        show: views(&preview.show),
        drop: views(&preview.drop),
        paused: preview.paused,
        request_id: id.into(),
    }))
}

/// Drop old parts of a wide table
///
/// Drops all parts that end at or before a time. Their rows and the entries of these rows in all indexes become
/// invisible immediately. Their bytes are freed within seconds, without reading the rows. Later writes to these parts
/// are refused, and this cannot be undone. With `preview`, nothing is dropped.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/parts/drop", tag = "rows", operation_id = "drop_parts",
    params(WideTablePath),
    request_body = DropParts,
    responses((status = 200, description = "The dropped parts", body = PartsDropped), Failures)
)]
async fn drop_parts(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(body): JsonBody<DropParts>,
) -> Result<Json<PartsDropped>> {
    app.note_detail(audit_detail::members(&body));
    let before = time("before", &body.before)?;
    let dropped = app.change(move |engine| Ok(engine.drop_parts(&table, before, body.preview)?));
    Ok(Json(PartsDropped {
        dropped: views(&dropped.await?),
        request_id: id.into(),
    }))
}

/// Restore archived parts of a wide table
///
/// Starts the job `restore`, which copies the rows of archived parts into the cold tier. Reads of these parts then need
/// no files, and their rows can be written and deleted. After the time `for` the parts are archived again, into new
/// files. Parts that are already restored stay at least as long. `job` is `null` if no part overlaps the range.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/parts/restore", tag = "rows", operation_id = "restore_parts",
    params(WideTablePath),
    request_body = RestoreParts,
    responses(
        (status = 200, description = "The job, which has ended, or no job", body = PartsRestored),
        (status = 202, description = "The job, which is running", body = PartsRestored),
        Failures
    )
)]
async fn restore_parts(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    JsonBody(body): JsonBody<RestoreParts>,
) -> Result<(StatusCode, Json<PartsRestored>)> {
    app.note_detail(audit_detail::members(&body));
    let (from, to) = (time("from", &body.from)?, time("to", &body.to)?);
    if from >= to {
        return Err(Failure::new(ErrorCode::Invalid, "`from` must be before `to`"));
    }
    let hold = body.hold.0;
    if hold <= 0 {
        return Err(Failure::new(ErrorCode::Invalid, "for must be longer than 0s"));
    }
    let found = app.read(move |engine| {
        let table = engine.table_of_rows(&table)?;
        let mut parts = engine.table_parts(&table)?;
        parts.retain(|part| {
            let is_restorable = part.tier == Some(ModelTier::Archive) || part.held_until.is_some();
            is_restorable && part.start < to && from < part.end
        });
        let until = Timestamp::from_nanos_clamped(engine.now().nanos().saturating_add(hold));
        Ok((table, parts, until))
    });
    let (table, parts, until) = found.await?;
    let mut restored = PartsRestored {
        job: None,
        until: None,
        request_id: id.into(),
    };
    if parts.is_empty() {
        return Ok((StatusCode::OK, Json(restored)));
    }
    let permit = app.permit(&app.requested_jobs).await?;
    let (running, begun) = (app.clone(), app.clone());
    let begin = move || {
        let of = (table.table().points().id(), table.table().name().as_str());
        let reason = format!("requested restoring of {} parts until {until}", parts.len());
        let job = begun.scheduler.begin(JobKind::Restore, Some(of), reason, 0);
        Ok((job, table, parts))
    };
    let shown = |work: &Restoring| work.0.job();
    let started = requested::in_background(permit, begin, shown, move |(job, table, parts)| {
        restore(&running, job, &table, (&parts, until));
    });
    let (status, job) = awaited(&app, started.await?, body.wait).await?;
    restored.until = Some(until.to_rfc3339());
    restored.job = Some(view(job));
    Ok((status, Json(restored)))
}

/// Restore job, with its table and its parts.
type Restoring = (RequestedJob, Arc<WideTable>, Vec<TablePart>);

/// Restores parts and records how the job ended.
fn restore(app: &Grant, job: RequestedJob, table: &WideTable, (parts, until): (&[TablePart], Timestamp)) {
    let mut step = |work: &MoveProgress| match job.step(work.values) && !app.is_draining() {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let ending = match app.engine.restore_parts(table, parts, until, &mut step) {
        Ok(Some((count, work))) => JobEnding::Done(format!(
            "{count} parts restored: {} rows with {} bytes",
            work.values, work.bytes
        )),
        Ok(None) => job.cut_short("the other parts stay in the archive", app.is_draining()),
        Err(error) => JobEnding::Failed(error.to_string()),
    };
    job.end(ending);
}

/// Parses a time of a request.
fn time(member: &str, text: &str) -> Result<Timestamp> {
    Timestamp::parse_rfc3339(text).ok_or_else(|| {
        Failure::new(
            ErrorCode::Invalid,
            format!(
                "{member}: expected a time in RFC 3339 between 1677-09-21 and 2262-04-11, such as \
                 2026-09-01T00:00:00Z, found {text:?}"
            ),
        )
    })
}

fn views(parts: &[TablePart]) -> Vec<PartView> {
    let view = |part: &TablePart| PartView {
        name: part.name.clone(),
        start: part.start.to_rfc3339(),
        end: part.end.to_rfc3339(),
        tier: part.tier.map(Tier::from),
        writable: part.is_writable,
        held_until: part.held_until.map(Timestamp::to_rfc3339),
        visible: part.is_visible,
        rows: part.archived.as_ref().map(|archived| archived.rows),
        bytes: part.archived.as_ref().map(|archived| archived.bytes),
    };
    parts.iter().map(view).collect()
}
