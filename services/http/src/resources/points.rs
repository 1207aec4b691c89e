//! `/v1/tables/{table}/points`: writes and deletes points.
//!
//! The content type of a write selects the decoder. All formats share the write pipeline of `tideline-ingest`.

use axum::extract::Request;
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
use crate::audit_detail;
use crate::body;
use crate::condition::{resolve_surely, to_range, to_selector};
use crate::context::RequestId;
use crate::extract::{Json, Path, Query, content_type};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::ingest;
use crate::resources::{Failures, TablePath};
use crate::saved_search::expand_selector;

/// Maximum number of rejects that a response lists. The count of rejects is always exact.
const REJECTS_SHOWN_MAX: usize = 1_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(delete))
}

/// Options of a write.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// Unit of integer timestamps: `ns` (default), `us`, `ms`, `s`, `m`, `h`.
    #[param(example = "ns")]
    precision: Option<String>,
    /// Timestamp of points that have none, in nanoseconds since 1970. Default: the time of arrival. To retry a write of
    /// points without a timestamp, send the time of the first attempt, so that the retry overwrites the same points.
    #[param(example = 1_795_176_000_000_000_000_i64)]
    time: Option<i64>,
    /// Durability of the acknowledgement. Default: the setting of the table.
    durability: Option<Durability>,
}

/// Write points
///
/// Valid points are stored; invalid ones are reported by line. The response is therefore 200 if at least one point
/// was stored or the body contains no points; check `rejected`. If every point was rejected, the response is an
/// error, in general 422. The response is sent when the points are durable as requested. Points with the same
/// timeline and timestamp are merged; of each field, the value that was written last is kept.
///
/// The content type selects the format: `application/json`, `application/x-ndjson`, or line protocol for `text/*` and
/// for requests without a content type (also `application/x-www-form-urlencoded`, the default of curl).
/// `Content-Encoding` can be `gzip`, `deflate` or `zstd`.
///
/// While the clock of the server is in doubt (`/v1/clock`), the trusted time and the wall clock differ. Points
/// without a timestamp are then rejected as retryable. Other points are accepted from `write_past` before the
/// earlier of the two times to `write_future` after the later one; points outside these bounds are rejected as
/// retryable too. If no point of a request is stored and at least one point was rejected for one of these reasons,
/// the response is 503.
///
/// A write can be repeated safely if its points have timestamps. Otherwise send an `Idempotency-Key`: a request
/// with the same key within a day returns the first outcome and stores nothing. The same key with another body
/// returns 422.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/v1/tables/{table}/points", tag = "points", operation_id = "write_points",
    params(
        TablePath,
        WriteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Key for safe retries; at most 255 bytes")
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
        (status = 200, description = "The points were stored; `rejected` counts those that were not", body = WriteReport),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The content type or encoding is not supported", body = ErrorBody),
        (status = 422, description = "Every point was rejected, or the `Idempotency-Key` was used before with another body", body = ErrorBody),
        (status = 429, description = "Every point belongs to a new timeline, and the table has reached its limit of new timelines; retry later", body = ErrorBody),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn write(
    app: Grant,
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
                "content type {content_type:?} is not supported; use application/json, application/x-ndjson \
                 or text/plain (line protocol)"
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
/// Deletes the points in a time range of the timelines that the selector selects at the time of the request. To
/// delete all points, send the condition `{"and": []}` and `null` for both bounds.
///
/// After the response, no query returns the points, regardless of their tier; their storage is freed later. Timelines
/// stay, even without points. Points written afterwards are visible. Repeating a delete is safe.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/v1/tables/{table}/points/delete", tag = "points", operation_id = "delete_points",
    params(TablePath),
    request_body = DeletePoints,
    responses((status = 200, description = "The points are deleted", body = DeleteReport), Failures)
)]
async fn delete(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    Json(DeletePoints { timelines, range }): Json<DeletePoints>,
) -> Result<axum::Json<DeleteReport>> {
    let timelines = expand_selector(&app, &table, timelines)?;
    app.note_detail(format!(
        "range: {}; timelines: {}",
        audit_detail::json(&range),
        audit_detail::json(&timelines)
    ));
    let (selector, range) = resolve_surely(&app.engine, |now| {
        Ok((to_selector(timelines.clone(), now)?, to_range(range.into(), now)))
    })?;
    let deleted = app.search(&app.changes, table, move |engine, table, stop| {
        let unknown = selector.unknown_names(table);
        Ok((engine.delete_points(table, &selector, range, stop)?, unknown))
    });
    let (deleted, unknown) = deleted.await?;
    // Suggestions are names of the table, which a token that only writes must not see.
    let reads = app.engine.check_reads().is_ok();
    Ok(axum::Json(DeleteReport {
        timelines: deleted.timelines,
        suggestions: match reads {
            true => unknown.into_iter().map(suggestion_view).collect(),
            false => Vec::new(),
        },
        request_id: id.into(),
    }))
}

/// Constructor of a decoder for a unit of integer timestamps.
type DecoderOf = fn(Precision) -> Decoder;

/// Returns the decoder of a content type, and the value of its metric label; `None` for an unsupported content
/// type.
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
            "precision {name:?} is not valid; use ns, us, ms, s, m or h"
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

/// Returns the text of a reason. Errors of the JSON parser are translated to terms of JSON.
fn worded(reason: &RejectReason, decoder: &Decoder) -> String {
    let text = reason.to_string();
    let is_of_reader = matches!(reason, RejectReason::Unreadable(_) | RejectReason::Remembered(_));
    match decoder {
        Decoder::Json(_) | Decoder::Ndjson(_) if is_of_reader => plain::message(&text),
        _ => text,
    }
}
