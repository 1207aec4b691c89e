//! `/v1/tables/{table}/blobs/{column}`: values of any size, streamed in both directions.
//!
//! An upload is written while it arrives, and a value is read piece by piece, so memory does not depend on the size.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use axum::Json as JsonResponse;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tideline_connections::Permit;
use tideline_engine::large::{UPLOAD_MEMORY_BYTES, ValueBytes};
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::blob::BlobWritten;
use tideline_openapi::row::Members;
use tideline_openapi::table::Durability;
use tideline_openapi::{ErrorBody, ErrorCode, plain};
use tideline_query::Cancel;
use tideline_rows::RowsError;
use tideline_rows::large::{
    PutOutcome, PutSettings, ValueCell, ValueCondition, checksum_text, put as put_value,
};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Waiting, blocking};
use crate::context::{RequestId, current_client};
use crate::extract::{Path, Query, content_type, unreadable};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::rows::{RowReading, RowTier, in_tier, tier_of};
use crate::resources::{Failures, QueryFailures};
use crate::stream::{self, WriteContext};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(write, read))
}

/// Path parameters of a value.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct BlobPath {
    /// Name of the table, which has the model `wide`
    #[param(example = "orders")]
    table: String,
    /// Name of the column, which is not part of the key
    #[param(example = "invoice")]
    column: String,
}

/// Options of a write of a value.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BlobWriteQuery {
    /// Key of the row, as a JSON object with all key columns.
    #[param(example = "{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"}")]
    key: String,
    /// `true`: write only if the row has no value in the column. `false`: write only if it has one.
    if_absent: Option<bool>,
    /// Write only if the current value has this checksum.
    if_checksum: Option<String>,
    /// Durability of the acknowledgement. Default: the setting of the table. The content itself is always durable.
    durability: Option<Durability>,
}

/// Options of a read of a value.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BlobReadQuery {
    /// Key of the row, as a JSON object with all key columns.
    #[param(example = "{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"}")]
    key: String,
    /// Timestamp of a version, in RFC 3339. Default: the newest version.
    version: Option<String>,
}

/// Write a value of any size
///
/// Sets a column of a row to the body, and creates the row if it does not exist. Other columns are unchanged. The body
/// is text for a column of the type `string`, and bytes for a column of the type `binary`. For a column that is not
/// declared, the body is text if the content type begins with `text/`, and bytes otherwise. The body may be compressed.
///
/// A value of more than 64 KiB is stored apart from its row, in pieces with checksums, and appears in rows as an object
/// with its type, size, checksum and address. The row changes when all pieces are durable, so a reader sees either the
/// old value or the whole new value. An upload that ends early changes nothing. A value has at most 1 GiB. A text of up
/// to 2 MiB is stored like a text that is written with its row: rows contain the text itself, and conditions, searches
/// and aggregates read it.
///
/// The headers `If-Match` and `If-None-Match: *` are conditions too; if one is not met, the status is 412.
///
/// To remove a value, clear the column by an update of the row.
#[utoipa::path(
    security(("token" = ["write"])),
    put, path = "/v1/tables/{table}/blobs/{column}", tag = "rows", operation_id = "write_blob",
    params(
        BlobPath,
        BlobWriteQuery,
        ("If-Match" = Option<String>, Header,
            description = "Write only if the current value has this `ETag`, or, for `*`, if there is a value"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: write only if the row has no value in the column")
    ),
    request_body(
        description = "The value",
        content(
            (Vec<u8> = "application/octet-stream", example = content_example),
            (String = "text/plain", example = content_example)
        )
    ),
    responses(
        (status = 200, description = "The value was written", body = BlobWritten),
        (status = 409, description = "The condition was not met; nothing was written", body = ErrorBody),
        (status = 410, description = "The part of the row was dropped", body = ErrorBody),
        (status = 412, description = "A condition of a header was not met; nothing was written", body = ErrorBody),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn write(
    app: Grant,
    id: RequestId,
    Path(BlobPath { table, column }): Path<BlobPath>,
    Query(query): Query<BlobWriteQuery>,
    request: Request,
) -> Result<Response> {
    let (key, settings, unmet) = match settings(&request, &query) {
        Ok(found) => found,
        Err(failure) => {
            app.bodies.discard(request).await;
            return Err(failure);
        }
    };
    let permit = app.uploads.take(current_client()).await?;
    let memory = app
        .engine
        .memory()
        .reserve("uploads of values", UPLOAD_MEMORY_BYTES)?;
    let mut body = app.bodies.stream(request).await?;
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let (engine, writing) = (app.engine.clone(), app.clone());
    let written = blocking(move || {
        let _held = (permit, memory);
        let table = engine.wide_table(&table)?;
        let cell = ValueCell::new(&table, &key, &column)?;
        let is_stopped = || cancel.is_cancelled() || !writing.is_valid();
        Ok(put_value(
            &engine,
            &table,
            &cell,
            &settings,
            &mut *body,
            &is_stopped,
        )?)
    });
    match written.await? {
        PutOutcome::Written(value) => Ok(JsonResponse(BlobWritten {
            column_type: value.column_type.name().to_owned(),
            bytes: value.bytes,
            checksum: checksum_text(value.checksum),
            large: value.is_large,
            position: value.position.map(|position| position.0.to_string()),
            request_id: id.into(),
        })
        .into_response()),
        PutOutcome::ConditionFailed => {
            let failure = Failure::new(
                ErrorCode::ConditionFailed,
                "the current value does not meet the condition; nothing was written",
            );
            let mut response = failure.into_response();
            *response.status_mut() = unmet;
            Ok(response)
        }
    }
}

fn content_example() -> &'static str {
    "Invoice 4711: 5.32 EUR"
}

/// Returns the key of the row, the settings of the write, and the status of the response if the condition is not met.
fn settings(request: &Request, query: &BlobWriteQuery) -> Result<(Members, PutSettings, StatusCode)> {
    let headers = request.headers();
    let (condition, unmet) = match (condition_of(query)?, condition_of_headers(headers)?) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid(
                "a parameter and a header give a condition; give one of them",
            ));
        }
        (None, Some(by_header)) => (Some(by_header), StatusCode::PRECONDITION_FAILED),
        (by_parameter, None) => (by_parameter, StatusCode::CONFLICT),
    };
    // The length of a compressed body is not the length of the value.
    let is_plain = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|encoding| encoding == "identity");
    let length = headers.get(header::CONTENT_LENGTH).filter(|_| is_plain);
    let settings = PutSettings {
        is_text: content_type(headers).starts_with("text/"),
        condition,
        durability: query.durability.map(Into::into),
        declared_bytes: length.and_then(|length| length.to_str().ok()?.parse().ok()),
    };
    Ok((key_of(&query.key)?, settings, unmet))
}

/// Returns the condition in the query parameters of a write, if they contain one.
fn condition_of(query: &BlobWriteQuery) -> Result<Option<ValueCondition>> {
    Ok(match (query.if_absent, query.if_checksum.as_deref()) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid(
                "if_absent and if_checksum exclude each other; give one of them",
            ));
        }
        (Some(true), None) => Some(ValueCondition::Absent),
        (Some(false), None) => Some(ValueCondition::Present),
        (None, Some(checksum)) => Some(ValueCondition::Checksum(checksum_of(checksum).ok_or_else(
            || {
                Failure::invalid(format!(
                    "parameter if_checksum: expected 16 hexadecimal digits, found {checksum:?}"
                ))
            },
        )?)),
        (None, None) => None,
    })
}

/// Returns the condition in the headers of a write, if they contain one.
fn condition_of_headers(headers: &HeaderMap) -> Result<Option<ValueCondition>> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    let (matched, unmatched) = (
        headers.get(header::IF_MATCH).map(text),
        headers.get(header::IF_NONE_MATCH).map(text),
    );
    match (matched.as_deref(), unmatched.as_deref()) {
        (None, None) => Ok(None),
        (Some("*"), None) => Ok(Some(ValueCondition::Present)),
        (None, Some("*")) => Ok(Some(ValueCondition::Absent)),
        (Some(tag), None) => match checksum_of(tag) {
            Some(checksum) => Ok(Some(ValueCondition::Checksum(checksum))),
            None => Err(Failure::invalid(format!(
                "header If-Match: expected * or one ETag of a value, found {tag:?}"
            ))),
        },
        (None, Some(tag)) => Err(Failure::invalid(format!(
            "header If-None-Match: a write supports only *, found {tag:?}"
        ))),
        (Some(_), Some(_)) => Err(Failure::invalid(
            "If-Match and If-None-Match exclude each other; give one of them",
        )),
    }
}

fn key_of(key: &str) -> Result<Members> {
    plain::read(key.as_bytes()).map_err(|fault| {
        let mut failure = unreadable(fault);
        failure.message = format!("parameter key: {}", failure.message);
        failure
    })
}

/// Parses a checksum of 16 hexadecimal digits, which may be in quotes like an `ETag`; `None` for other texts.
fn checksum_of(text: &str) -> Option<u64> {
    let digits = text.trim_matches('"');
    let checksum = u64::from_str_radix(digits, 16).ok();
    checksum.filter(|_| digits.len() == 16)
}

/// Read a value of any size
///
/// Returns the content of a text, binary or JSON value of a row, as it was written. The header `Range` selects bytes,
/// such as `bytes=0-1023` or `bytes=-1024`; a request for several ranges returns the whole value. The `ETag` is the
/// checksum of the value; `If-None-Match` and `If-Range` are compared with it. `HEAD` returns only the headers.
///
/// Each piece of a large value is compared with its checksum before it is sent. If stored bytes are damaged, the
/// response ends before its `Content-Length`.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/tables/{table}/blobs/{column}", tag = "rows", operation_id = "read_blob",
    params(
        BlobPath,
        BlobReadQuery,
        ("Range" = Option<String>, Header, description = "Bytes to return"),
        ("If-None-Match" = Option<String>, Header, description = "`ETag` of a known value")
    ),
    responses(
        (status = 200, description = "The value", content(
            (Vec<u8> = "application/octet-stream", example = content_example),
            (String = "text/plain", example = content_example),
            (String = "application/json", example = content_example)
        )),
        (status = 206, description = "A range of the value", content(
            (Vec<u8> = "application/octet-stream", example = content_example)
        )),
        (status = 304, description = "The value has the `ETag` of the request"),
        (
            status = 410,
            description = "The part of the row was dropped, or the archive from which the row was attached did not \
                           contain the value",
            body = ErrorBody
        ),
        (status = 416, description = "The value has no bytes in the range", body = ErrorBody),
        QueryFailures
    )
)]
async fn read(
    app: Grant,
    method: Method,
    Path(BlobPath { table, column }): Path<BlobPath>,
    Query(query): Query<BlobReadQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let key = key_of(&query.key)?;
    let version = query.version.as_deref().map(|version| {
        Timestamp::parse_rfc3339(version).ok_or_else(|| {
            Failure::invalid(format!(
                "parameter version: expected a time in RFC 3339 between 1677-09-21 and 2262-04-11, found {version:?}"
            ))
        })
    });
    let version = version.transpose()?.map(Timestamp::nanos);
    let (tier, (key, column)) = tier_of(&app, &table, (key, column), is_cold).await?;
    let permit = tier.permits(&app).take(current_client()).await?;
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let reading = app.clone();
    let opened = blocking(move || {
        let engine = &reading.engine;
        let table = engine.table_of_rows(&table)?;
        let cell = ValueCell::new(&table, &key, &column)?;
        let value = in_tier(&reading, &cancel, tier, |_| {
            Ok(engine.open_value(&table, &cell.key, &cell.column, version)?)
        })?;
        value.ok_or_else(|| {
            Failure::new(
                ErrorCode::NotFound,
                format!("the row does not exist, or has no such value in the column {column:?}"),
            )
        })
    });
    respond(&app, opened.await?, (tier, permit), (&method, &headers)).await
}

/// Sends a value, or the range of it that the headers request. The status is 304 if the client already has the
/// value.
async fn respond(
    app: &Grant,
    value: ValueBytes,
    (tier, permit): (RowTier, Permit),
    (method, headers): (&Method, &HeaderMap),
) -> Result<Response> {
    let tag = format!("\"{}\"", checksum_text(value.checksum));
    let named = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_known = named(header::IF_NONE_MATCH).is_some_and(|known| {
        let mut known = known
            .split(',')
            .map(|known| known.trim().trim_start_matches("W/"));
        known.any(|known| known == "*" || known == tag)
    });
    if is_known {
        let headers = of_value(&tag, value.version);
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let is_current = named(header::IF_RANGE).is_none_or(|known| known == tag);
    let range = named(header::RANGE).filter(|_| is_current && *method == Method::GET);
    let range = match range.map_or(Requested::Whole, |range| requested(range, value.bytes)) {
        Requested::Whole => None,
        Requested::Bytes(range) => Some(range),
        Requested::Nothing => return Ok(outside(value.bytes)),
    };
    let sent = range.clone().unwrap_or(0..value.bytes);
    let content_type = match value.column_type {
        ColumnType::String => "text/plain; charset=utf-8",
        ColumnType::Json => "application/json",
        _ => "application/octet-stream",
    };
    let mut headers = of_value(&tag, value.version);
    headers.insert(
        header::CONTENT_LENGTH,
        header_of((sent.end - sent.start).to_string()),
    );
    if let Some(range) = &range {
        let (last, all) = (range.end - 1, value.bytes);
        let range = header_of(format!("bytes {}-{last}/{all}", range.start));
        headers.insert(header::CONTENT_RANGE, range);
    }
    let mut response = match *method == Method::HEAD {
        true => ([(header::CONTENT_TYPE, content_type)], Body::empty()).into_response(),
        false => {
            let work = WriteContext {
                permit: Some(permit),
                cancel: Cancel::new(),
            };
            let (reading, cancel) = (app.clone(), work.cancel.clone());
            stream::respond(app, content_type, work, move |writer| {
                let engine = Arc::clone(&reading.engine);
                in_tier(&reading, &cancel, tier, move |row| {
                    send(&engine, row, &value, sent, writer)
                })
            })
            .await?
        }
    };
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response.headers_mut().extend(headers);
    Ok(response)
}

/// Returns the refusal of a range that has no byte of a value.
fn outside(bytes: u64) -> Response {
    let failure = Failure::over(
        ErrorCode::RangeNotSatisfiable,
        "the first byte of the range",
        bytes,
        bytes,
    );
    let failure = Failure {
        message: format!("the value has {bytes} bytes, and none of them is in the range"),
        ..failure
    };
    let mut response = failure.into_response();
    let all = header_of(format!("bytes */{bytes}"));
    response.headers_mut().insert(header::CONTENT_RANGE, all);
    response
}

/// Returns true if a request reads a value of an old row.
fn is_cold(
    engine: &Engine,
    table: &WideTable,
    (key, column): &(Members, String),
) -> std::result::Result<bool, RowsError> {
    let cell = ValueCell::new(table, key, column)?;
    Ok(engine.has_cold_keys(table, &[cell.key.to_vec()])?)
}

/// Sends a range of a value.
fn send(
    engine: &Engine,
    row: &RowReading<'_>,
    value: &ValueBytes,
    range: Range<u64>,
    writer: &mut dyn Write,
) -> Result<()> {
    let mut offset = range.start;
    while offset < range.end {
        if row.is_stopped() {
            return Err(RowsError::Cancelled.into());
        }
        let bytes = value.at(offset)?;
        if value.is_large() {
            engine.charge_tenant_read(bytes.len() as u64);
        }
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(left)];
        writer.write_all(bytes).map_err(stream::client_left)?;
        offset += bytes.len() as u64;
    }
    Ok(())
}

/// Returns the headers that describe a value.
fn of_value(tag: &str, version: i64) -> HeaderMap {
    let version = Timestamp::from_nanos_clamped(version).to_rfc3339();
    HeaderMap::from_iter([
        (header::ETAG, header_of(tag.to_owned())),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (VERSION, header_of(version)),
    ])
}

/// Header with the timestamp of the version.
const VERSION: header::HeaderName = header::HeaderName::from_static("tideline-version");

/// Returns a header value of digits, letters and punctuation.
fn header_of(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Bytes that a request selects.
#[derive(Debug, PartialEq, Eq)]
enum Requested {
    Whole,
    Bytes(Range<u64>),
    /// The value has no bytes in the range.
    Nothing,
}

/// Parses the header `Range`. Forms that are not supported select the whole value.
fn requested(range: &str, bytes: u64) -> Requested {
    let Some((first, last)) = range
        .strip_prefix("bytes=")
        .filter(|range| !range.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Requested::Whole;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let selected = match (first, last) {
        ("", last) => match number(last) {
            None => return Requested::Whole,
            Some(count) => bytes.saturating_sub(count)..bytes,
        },
        (first, "") => match number(first) {
            None => return Requested::Whole,
            Some(first) => first..bytes,
        },
        (first, last) => match number(first).zip(number(last)) {
            Some((first, last)) if first <= last => first..bytes.min(last.saturating_add(1)),
            _ => return Requested::Whole,
        },
    };
    match selected.is_empty() {
        true => Requested::Nothing,
        false => Requested::Bytes(selected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_select_bytes_of_the_value() {
        for (range, expected) in [
            ("bytes=0-0", Requested::Bytes(0..1)),
            ("bytes=2-4", Requested::Bytes(2..5)),
            ("bytes=2-400", Requested::Bytes(2..10)),
            ("bytes=9-", Requested::Bytes(9..10)),
            ("bytes=-3", Requested::Bytes(7..10)),
            ("bytes=-30", Requested::Bytes(0..10)),
            ("bytes=10-", Requested::Nothing),
            ("bytes=10-12", Requested::Nothing),
            ("bytes=-0", Requested::Nothing),
            ("bytes=4-2", Requested::Whole),
            ("bytes=0-1,4-5", Requested::Whole),
            ("bytes=a-", Requested::Whole),
            ("bytes=-", Requested::Whole),
            ("rows=0-1", Requested::Whole),
            ("bytes=0-18446744073709551615", Requested::Bytes(0..10)),
        ] {
            assert_eq!(requested(range, 10), expected, "{range}");
        }
        assert_eq!(requested("bytes=0-", 0), Requested::Nothing);
    }
}
