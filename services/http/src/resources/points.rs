//! `/v1/tables/{table}/points`: write and delete points.

use axum::extract::{Request, State};
use serde::Deserialize;
use tideline_engine::WriteOutcome;
use tideline_engine::model::{Precision, RejectReason, Timestamp};
use tideline_ingest::{Decoder, Target, WriteRequest};
use tideline_openapi::delete::{DeletePoints, DeleteReport};
use tideline_openapi::points::{PointsBody, Reject, WriteReport};
use tideline_openapi::table::Durability;
use tideline_openapi::{ErrorBody, ErrorCode, plain};
use tideline_results::suggestion_view;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::body;
use crate::condition::{resolve_surely, to_range, to_selector};
use crate::context::RequestId;
use crate::extract::{Json, Path, Query, content_type};
use crate::failure::{Failure, Result};
use crate::ingest;
use crate::resources::{Failures, TablePath};
use crate::saved::expand_selector;

/// Rejects that an answer names; the count is always exact.
const REJECTS_SHOWN_MAX: usize = 1_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(delete))
}

/// How a write is to be read and kept.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// The unit of integer times: `ns` (default), `us`, `ms`, `s`, `m`, `h`.
    #[param(example = "ns")]
    precision: Option<String>,
    /// The time of points that have none, in nanoseconds since 1970; without it, that of their arrival. Whoever sends
    /// such points again gives the time of the first attempt, so that they overwrite themselves.
    #[param(example = 1_795_176_000_000_000_000_i64)]
    time: Option<i64>,
    /// What the acknowledgement promises; without it the table's setting holds.
    durability: Option<Durability>,
}

/// Write points
///
/// Good points are stored, bad ones reported by line, so the answer is 200 as soon as one point is stored or the body
/// holds none; look at `rejected`. It is 422 when every point was bad. An answer comes after the points are durable as
/// asked; newest wins on the same timeline and time, and fields merge.
///
/// The content type chooses the format: `application/json`, `application/x-ndjson`, or line protocol for `text/*` and
/// for requests without one (also `application/x-www-form-urlencoded`, which curl sends by itself).
/// `Content-Encoding` may be `gzip`, `deflate` or `zstd`.
///
/// While the clock of the server is in doubt (`/v1/clock`), points without a time are refused as retryable, and so are those
/// that are out of the table's bounds by it; a request of which nothing is stored is answered 503.
///
/// Sending again is safe where points carry their time. Where they do not, send an `Idempotency-Key`: the same key
/// within a day is answered with the first outcome and stores nothing. The key with another body is 422.
#[utoipa::path(
    post, path = "/v1/tables/{table}/points", tag = "points", operation_id = "write_points",
    params(
        TablePath,
        WriteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Names the request; at most 255 bytes")
    ),
    request_body(
        description = "Points",
        content(
            (PointsBody = "application/json"),
            (String = "application/x-ndjson", example = "{\"measurement\":\"cpu\",\"tags\":{\"host\":\"web-1\"},\"fields\":{\"usage_user\":12.5}}\n"),
            (String = "text/plain", example = "cpu,host=web-1 usage_user=12.5,processes=210i 1795176000000000000\n")
        )
    ),
    responses(
        (status = 200, description = "Stored; `rejected` counts what was not", body = WriteReport),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "Content type or encoding is not read here", body = ErrorBody),
        (status = 422, description = "Every point was bad, or the `Idempotency-Key` was used before with another body", body = ErrorBody),
        (status = 429, description = "Every point is of a new timeline, of which the table takes no more just now", body = ErrorBody),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn write(
    State(app): State<App>,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Query(query): Query<WriteQuery>,
    request: Request,
) -> Result<axum::Json<WriteReport>> {
    let content_type = content_type(request.headers());
    let Some((decoder_of, protocol)) = decoder_for(&content_type) else {
        app.bodies.discard(request).await;
        return Err(Failure::new(
            ErrorCode::UnsupportedMediaType,
            format!(
                "content type {content_type:?} is not read here; send application/json, application/x-ndjson or \
                 text/plain (line protocol)"
            ),
        ));
    };
    let precision = query.precision.as_deref().map(parse_precision).transpose()?;
    let default_time = query.time.map(Timestamp::from_nanos).transpose();
    let default_time = default_time.map_err(|error| Failure::invalid(format!("time: {error}")))?;
    let request_key = ingest::request_key(request.headers())?;
    let received = body::receive(request, &app, body::write_limits(&app.settings)).await?;
    let decoder = decoder_of(precision.unwrap_or_default());
    let write = WriteRequest {
        default_time,
        durability: query.durability.map(Into::into),
        key: request_key,
        ..WriteRequest::new(Target::Table(table), decoder.clone())
    };
    let outcome = ingest::write(&app, protocol, received, write).await?;
    report(&outcome.written, &decoder, id).map(axum::Json)
}

/// Delete points
///
/// Of the timelines that are selected at that moment, in a range. Whoever means everything says so: the condition
/// `{"and": []}`, and `null` for both ends.
///
/// After the answer no read sees them, in whatever tier they lie; their bytes are freed in time. Timelines stay, also
/// without points. A point that is written afterwards is visible. Deleting twice harms nothing.
#[utoipa::path(
    post, path = "/v1/tables/{table}/points/delete", tag = "points", operation_id = "delete_points",
    params(TablePath),
    request_body = DeletePoints,
    responses((status = 200, description = "They are gone", body = DeleteReport), Failures)
)]
async fn delete(
    State(app): State<App>,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(DeletePoints { timelines, range }): Json<DeletePoints>,
) -> Result<axum::Json<DeleteReport>> {
    let timelines = expand_selector(&app, &table, timelines)?;
    let (selector, range) = resolve_surely(&app.engine, |now| {
        Ok((to_selector(timelines.clone(), now)?, to_range(range.into(), now)))
    })?;
    let deleted = app.search(&app.changes, table, move |engine, table, stop| {
        let unknown = selector.unknown_names(table);
        Ok((engine.delete_points(table, &selector, range, stop)?, unknown))
    });
    let (deleted, unknown) = deleted.await?;
    Ok(axum::Json(DeleteReport {
        timelines: deleted.timelines,
        suggestions: unknown.into_iter().map(suggestion_view).collect(),
        request_id: id.into(),
    }))
}

/// Makes the decoder of a format for a unit of integer times.
type DecoderOf = fn(Precision) -> Decoder;

/// The decoder of a content type, and the protocol's label.
fn decoder_for(content_type: &str) -> Option<(DecoderOf, &'static str)> {
    match content_type {
        "application/json" => Some((Decoder::Json, "json")),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            Some((Decoder::Ndjson, "ndjson"))
        }
        "" | "application/x-www-form-urlencoded" => Some((Decoder::LineProtocol, "line_protocol")),
        text if text.starts_with("text/") => Some((Decoder::LineProtocol, "line_protocol")),
        _ => None,
    }
}

fn parse_precision(name: &str) -> Result<Precision> {
    Precision::parse(name).ok_or_else(|| {
        Failure::invalid(format!(
            "precision {name:?} is unknown; use ns, us, ms, s, m or h"
        ))
    })
}

fn report(outcome: &WriteOutcome, decoder: &Decoder, id: RequestId) -> Result<WriteReport> {
    let shown = outcome.rejects.iter().take(REJECTS_SHOWN_MAX);
    let rejects: Vec<Reject> = shown
        .map(|reject| Reject {
            line: reject.line,
            retryable: reject.reason.is_retryable(),
            reason: worded(&reject.reason, decoder),
            excerpt: reject.excerpt.clone(),
        })
        .collect();
    if let (0, Some(first)) = (outcome.points, rejects.first()) {
        let (rejected, line, reason) = (outcome.rejected, first.line, &first.reason);
        let message = format!("none of {rejected} points could be stored; the first, line {line}: {reason}");
        return Err(Failure::none_stored(message, outcome, rejects));
    }
    Ok(WriteReport {
        points: outcome.points,
        values: outcome.values,
        rejected: outcome.rejected,
        rejects,
        retryable: outcome.retryable,
        repeated: outcome.repeated,
        request_id: id.into(),
    })
}

/// Words a reason. Errors of the JSON reader are put in plain words.
fn worded(reason: &RejectReason, decoder: &Decoder) -> String {
    let text = reason.to_string();
    let is_of_reader = matches!(reason, RejectReason::Unreadable(_) | RejectReason::Remembered(_));
    match decoder {
        Decoder::Json(_) | Decoder::Ndjson(_) if is_of_reader => plain::message(&text),
        _ => text,
    }
}
