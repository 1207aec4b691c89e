//! `/v1/changes`: change streams, their records and their consumer groups.
//!
//! A stream is read with a cursor that the client keeps, or through a consumer group, whose checkpoints the server keeps. A
//! read can wait for a first record. A consumer group needs access to all tables and timelines of the stream, because
//! its readers share the checkpoints.

mod webhooks;

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_access::Tenant;
use tideline_change_stream::delivery::GATHER;
use tideline_change_stream::read::RECORDS_MAX;
use tideline_change_stream::{
    ChangeStreams, ChangesError, Partition, Position, ReadLimits, STREAMS_MAX, name_in_use,
};

use tideline_openapi::change::{
    ChangePage, Checkpoint, ConfirmChanges, GroupDetail, GroupList, GroupSettings, ReadChanges,
    ReadGroupChanges, Stream, StreamDetail, StreamList, StreamSettings,
};
use tideline_openapi::{DurationText, ErrorBody, ErrorCode};
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Waiting, blocking};
use crate::audit_detail;
use crate::context::{RequestId, current_client};
use crate::extract::{Json as JsonBody, NoQuery, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::feeds::raw;
use crate::resources::{Failures, page_limit};

/// Maximum number of records of a page if the request sets no limit.
const PAGE_RECORDS: usize = 1_000;
/// Longest time that a request waits for a first record.
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, get, delete))
        .routes(routes!(records))
        .routes(routes!(list_groups))
        .routes(routes!(put_group, get_group, delete_group))
        .routes(routes!(group_records))
        .routes(routes!(confirm))
        .merge(webhooks::router())
}

/// Path parameter of routes for a stream.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct StreamPath {
    /// Name of the stream: 1 to 64 letters, digits, dots, dashes and underscores
    #[param(example = "orders")]
    stream: String,
}

/// Path parameters of routes for a consumer group.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct GroupPath {
    /// Name of the stream
    #[param(example = "orders")]
    stream: String,
    /// Name of the consumer group: 1 to 64 letters, digits, dots, dashes and underscores
    #[param(example = "billing")]
    group: String,
}

/// List change streams
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/changes", tag = "changes", operation_id = "list_change_streams",
    responses((status = 200, description = "All change streams", body = StreamList), Failures)
)]
async fn list(app: Grant, id: RequestId, _: NoQuery) -> Result<Json<StreamList>> {
    let mut streams = with_streams(&app, |streams| streams.all()).await?;
    streams.retain(|stream| app.has_names(&stream.tables));
    streams.iter_mut().for_each(|stream| hide_groups(&app, stream));
    // These figures of the whole server depend on the writes to all tables.
    let is_everything = app.access.principal().scope().is_everything();
    let kept = is_everything.then(|| app.change_streams.kept_bytes());
    Ok(Json(StreamList {
        streams,
        kept_bytes: kept.map(|(bytes, _)| bytes),
        kept_bytes_max: kept.map(|(_, bytes_max)| bytes_max),
        request_id: id.into(),
    }))
}

/// Create a change stream, or replace its settings
///
/// A new stream contains the changes after its creation. A table that is created later is included if its name
/// matches the settings. Changes of tables that were dropped meanwhile are omitted; the drop has a record of the
/// kind `table`.
#[utoipa::path(
    security(("token" = ["operate"])),
    put, path = "/v1/changes/{stream}", tag = "changes", operation_id = "put_change_stream",
    params(StreamPath), request_body = StreamSettings,
    responses(
        (status = 200, description = "The stream", body = StreamDetail),
        (status = 409, description = "A stream that the token may not use has this name", body = ErrorBody),
        Failures
    )
)]
async fn put(
    app: Grant,
    id: RequestId,
    Path(StreamPath { stream }): Path<StreamPath>,
    _: NoQuery,
    JsonBody(settings): JsonBody<StreamSettings>,
) -> Result<Json<StreamDetail>> {
    app.check_stream_tables(&settings.tables)?;
    app.note_detail(audit_detail::members(&settings));
    let tenant = app.access.principal().tenant().cloned();
    let (access, of_name) = (app.access.clone(), stream.clone());
    let stream = change(&app, move |streams| {
        streams.put_stream(&stream, &settings, &|known, others| match known {
            None => check_budget(tenant.as_deref(), others),
            // The stream can have been created while the body of the request arrived.
            Some(tables) if access.check_patterns(tables).is_ok() => Ok(()),
            Some(_) => Err(name_in_use(&of_name)),
        })
    });
    let stream = stream.await?;
    Ok(Json(StreamDetail {
        stream,
        request_id: id.into(),
    }))
}

/// Describe a change stream
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/changes/{stream}", tag = "changes", operation_id = "get_change_stream",
    params(StreamPath),
    responses((status = 200, description = "The stream", body = StreamDetail), Failures)
)]
async fn get(
    app: Grant,
    id: RequestId,
    Path(StreamPath { stream }): Path<StreamPath>,
    _: NoQuery,
) -> Result<Json<StreamDetail>> {
    let mut stream = with_streams(&app, move |streams| streams.stream(&stream)).await?;
    hide_groups(&app, &mut stream);
    Ok(Json(StreamDetail {
        stream,
        request_id: id.into(),
    }))
}

/// Delete a change stream with its consumer groups
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/changes/{stream}", tag = "changes", operation_id = "delete_change_stream",
    params(StreamPath),
    responses((status = 204, description = "The stream does not exist any more"), Failures)
)]
async fn delete(app: Grant, Path(StreamPath { stream }): Path<StreamPath>, _: NoQuery) -> Result<StatusCode> {
    change_of(&app, stream, |streams, stream| streams.delete_stream(stream)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read the changes of a stream after a cursor
///
/// Only changes on stable storage are returned. All changes of a key are in one partition, in the order of the
/// writes. A deletion of a range of keys of several partitions of rows is in every partition. A record of the kind
/// `gap` replaces changes that are not kept any more or cannot be read. A token that is restricted to models or
/// timelines gets only the changes of these; cursors also count the other changes.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/v1/changes/{stream}/records", tag = "changes", operation_id = "read_changes",
    params(StreamPath, ReadChanges),
    responses((status = 200, description = "A page of changes", body = ChangePage), Failures)
)]
async fn records(
    app: Grant,
    id: RequestId,
    Path(StreamPath { stream }): Path<StreamPath>,
    Query(query): Query<ReadChanges>,
) -> Result<Json<ChangePage>> {
    let partition = Partition::new(query.partition.unwrap_or(0), query.partitions.unwrap_or(1))?;
    let cursor = query.cursor.as_deref().map(str::parse).transpose()?;
    let is_readable = |app: &Grant, stream: &str| app.check_reads_stream(stream);
    read(
        &app,
        id,
        (stream, partition, cursor),
        (query.limit, query.wait),
        is_readable,
    )
    .await
}

/// List the consumer groups of a stream
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/changes/{stream}/groups", tag = "changes", operation_id = "list_consumer_groups",
    params(StreamPath),
    responses((status = 200, description = "All groups with their checkpoints", body = GroupList), Failures)
)]
async fn list_groups(
    app: Grant,
    id: RequestId,
    Path(StreamPath { stream }): Path<StreamPath>,
    _: NoQuery,
) -> Result<Json<GroupList>> {
    app.check_stream(&stream, false)?;
    let groups = with_streams(&app, move |streams| streams.groups(&stream)).await?;
    Ok(Json(GroupList {
        groups,
        request_id: id.into(),
    }))
}

/// Create a consumer group, or change whether it holds changes
///
/// The server keeps a checkpoint for each partition. Creating a group again does not change its checkpoints.
#[utoipa::path(
    security(("token" = ["operate"])),
    put, path = "/v1/changes/{stream}/groups/{group}", tag = "changes", operation_id = "put_consumer_group",
    params(GroupPath), request_body = GroupSettings,
    responses((status = 200, description = "The group", body = GroupDetail), Failures)
)]
async fn put_group(
    app: Grant,
    id: RequestId,
    Path(GroupPath { stream, group }): Path<GroupPath>,
    _: NoQuery,
    JsonBody(settings): JsonBody<GroupSettings>,
) -> Result<Json<GroupDetail>> {
    let group = change_of(&app, stream, move |streams, stream| {
        streams.put_group(stream, &group, &settings)
    })
    .await?;
    Ok(Json(GroupDetail {
        group,
        request_id: id.into(),
    }))
}

/// Describe a consumer group
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/changes/{stream}/groups/{group}", tag = "changes", operation_id = "get_consumer_group",
    params(GroupPath),
    responses((status = 200, description = "The group with its checkpoints", body = GroupDetail), Failures)
)]
async fn get_group(
    app: Grant,
    id: RequestId,
    Path(GroupPath { stream, group }): Path<GroupPath>,
    _: NoQuery,
) -> Result<Json<GroupDetail>> {
    let group = with_streams(&app, move |streams| streams.group(&stream, &group)).await?;
    Ok(Json(GroupDetail {
        group,
        request_id: id.into(),
    }))
}

/// Delete a consumer group
#[utoipa::path(
    security(("token" = ["operate"])),
    delete, path = "/v1/changes/{stream}/groups/{group}", tag = "changes", operation_id = "delete_consumer_group",
    params(GroupPath),
    responses((status = 204, description = "The group does not exist any more"), Failures)
)]
async fn delete_group(
    app: Grant,
    Path(GroupPath { stream, group }): Path<GroupPath>,
    _: NoQuery,
) -> Result<StatusCode> {
    change_of(&app, stream, move |streams, stream| {
        streams.delete_group(stream, &group)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read the changes of a partition of a consumer group
///
/// Without a cursor, the changes after the checkpoint are returned. Reading does not move the checkpoint: confirm
/// the changes after they are processed. To read further changes before earlier ones are confirmed, send `next` of
/// the last page as `cursor`.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/changes/{stream}/groups/{group}/records", tag = "changes", operation_id = "read_group_changes",
    params(GroupPath, ReadGroupChanges),
    responses((status = 200, description = "A page of changes", body = ChangePage), Failures)
)]
async fn group_records(
    app: Grant,
    id: RequestId,
    Path(GroupPath { stream, group }): Path<GroupPath>,
    Query(query): Query<ReadGroupChanges>,
) -> Result<Json<ChangePage>> {
    let number = query.partition.unwrap_or(0);
    let (partition, checkpoint) = app.change_streams.partition(&stream, &group, number)?;
    let cursor = query.cursor.as_deref().map(str::parse).transpose()?;
    read(
        &app,
        id,
        (stream, partition, Some(cursor.unwrap_or(checkpoint))),
        (query.limit, query.wait),
        |app, stream| app.check_stream(stream, false),
    )
    .await
}

/// Confirm the changes of a partition before a cursor
///
/// The checkpoint is on stable storage when the response is sent. Repeating the request is safe.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/changes/{stream}/groups/{group}/checkpoints", tag = "changes",
    operation_id = "confirm_changes",
    params(GroupPath), request_body = ConfirmChanges,
    responses((status = 200, description = "The checkpoint", body = Checkpoint), Failures)
)]
async fn confirm(
    app: Grant,
    Path(GroupPath { stream, group }): Path<GroupPath>,
    _: NoQuery,
    JsonBody(request): JsonBody<ConfirmChanges>,
) -> Result<Json<Checkpoint>> {
    // A missing stream is reported before an invalid cursor.
    app.check_stream(&stream, false)?;
    let position: Position = request.cursor.parse()?;
    let checkpoint = change_of(&app, stream, move |streams, stream| {
        streams.confirm(stream, &group, (request.partition, position), request.rewind)
    });
    Ok(Json(checkpoint.await?))
}

/// Removes the names of the consumer groups, unless the principal may use all models and timelines of the stream.
fn hide_groups(app: &Grant, stream: &mut Stream) {
    if app.access.check_patterns(&stream.tables).is_err() {
        stream.groups.clear();
    }
}

/// Changes an existing stream. The stream can have been replaced while the body of the request arrived or while the
/// request waited for its permit, so it is checked directly before the change.
async fn change_of<T: Send + 'static>(
    app: &Grant,
    stream: String,
    call: impl FnOnce(&ChangeStreams, &str) -> tideline_change_stream::Result<T> + Send + 'static,
) -> Result<T> {
    let (access, streams) = (app.clone(), app.change_streams.clone());
    app.change(move |_| {
        access.check_stream(&stream, false)?;
        Ok(call(&streams, &stream)?)
    })
    .await
}

/// Reads a page, and waits for a first record if the request has a time to wait. `check` is called before each attempt,
/// because the stream can have been replaced meanwhile.
async fn read(
    app: &Grant,
    id: RequestId,
    (stream, partition, mut from): (String, Partition, Option<Position>),
    (limit, wait): (Option<usize>, Option<DurationText>),
    check: impl Fn(&Grant, &str) -> Result<()>,
) -> Result<Json<ChangePage>> {
    let limits = ReadLimits {
        records: page_limit(limit, PAGE_RECORDS, RECORDS_MAX)?,
        ..ReadLimits::default()
    };
    let until = wait.map(end_of_wait).transpose()?;
    let mut news = app.change_news.subscribe();
    let _permit = match until {
        Some(_) => Some(app.feed_watches.take(current_client()).await?),
        None => None,
    };
    loop {
        // The token may have been revoked while the request waited.
        app.check_valid()?;
        check(app, &stream)?;
        news.mark_unchanged();
        let page = page(app, (stream.clone(), partition, from), limits).await?;
        if page.records.is_empty()
            && let Some(until) = until
            && !app.is_draining()
            && Instant::now() < until
        {
            from = Some(page.next);
            if page.has_more {
                continue;
            }
            tokio::select! {
                _ = news.changed() => {
                    tokio::time::sleep(GATHER).await;
                    continue;
                }
                () = tokio::time::sleep_until(until) => {}
            }
        }
        return Ok(Json(ChangePage {
            records: page.records.into_iter().map(raw).collect::<Result<_>>()?,
            next: page.next.to_string(),
            has_more: page.has_more,
            request_id: id.into(),
        }));
    }
}

/// Reads a page on a blocking thread. The read stops when the client disconnects.
async fn page(
    app: &Grant,
    (stream, partition, from): (String, Partition, Option<Position>),
    limits: ReadLimits,
) -> Result<tideline_change_stream::Page> {
    let permit = app.queries.take(current_client()).await?;
    let cancel = tideline_query::Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let app = app.clone();
    blocking(move || {
        let _permit = permit;
        // Memory of the records, and of the journal entries that are decoded for them.
        let _memory = app
            .engine
            .memory()
            .reserve("pages of changes", 4 * limits.bytes as u64)?;
        let is_stopped = || cancel.is_cancelled();
        Ok(app
            .change_streams
            .read(&app.engine, &stream, from, partition, limits, &is_stopped)?)
    })
    .await
}

fn end_of_wait(wait: DurationText) -> Result<Instant> {
    let wait = u64::try_from(wait.0).map(Duration::from_nanos).ok();
    let wait = wait.filter(|wait| *wait <= WAIT_MAX);
    wait.map(|wait| Instant::now() + wait)
        .ok_or_else(|| Failure::invalid("parameter wait: it must be from 0s to 5m"))
}

/// Checks that the budget of a tenant allows a new stream. `others` holds the tables of each existing stream.
fn check_budget(tenant: Option<&Tenant>, others: &[Vec<String>]) -> tideline_change_stream::Result<()> {
    let Some(tenant) = tenant else { return Ok(()) };
    let own = others.iter().filter(|tables| tenant.has_stream(tables));
    let allowed = tenant.check_change_streams(own.count() as u64, STREAMS_MAX as u64);
    allowed.map_err(|over| ChangesError::TooMany {
        message: over.to_string(),
        limit: over.limit,
        actual: over.actual,
    })
}

async fn with_streams<T: Send + 'static>(
    app: &Grant,
    call: impl FnOnce(&ChangeStreams) -> tideline_change_stream::Result<T> + Send + 'static,
) -> Result<T> {
    let streams = app.change_streams.clone();
    app.read(move |_| Ok(call(&streams)?)).await
}

async fn change<T: Send + 'static>(
    app: &Grant,
    call: impl FnOnce(&ChangeStreams) -> tideline_change_stream::Result<T> + Send + 'static,
) -> Result<T> {
    let streams = app.change_streams.clone();
    app.change(move |_| Ok(call(&streams)?)).await
}

impl From<ChangesError> for Failure {
    fn from(error: ChangesError) -> Self {
        let message = error.to_string();
        match error {
            ChangesError::Engine(error) => error.into(),
            ChangesError::Rows(error) => error.into(),
            ChangesError::Invalid(_) => Self::invalid(message),
            ChangesError::OverLimit { limit, actual, .. } | ChangesError::TooMany { limit, actual, .. } => {
                Self {
                    limit: Some((limit, actual)),
                    ..Self::new(ErrorCode::OverLimit, message)
                }
            }
            ChangesError::NotFound { .. } => Self::new(ErrorCode::NotFound, message),
            ChangesError::Conflict(_) => Self::new(ErrorCode::Conflict, message),
            ChangesError::Internal(_) => Self::new(ErrorCode::Internal, message),
            ChangesError::Forbidden(_) => Self::new(ErrorCode::Forbidden, message),
        }
    }
}
