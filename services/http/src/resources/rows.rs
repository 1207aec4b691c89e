//! `/v1/tables/{table}/rows`: writes, reads, scans, counts and deletes rows of wide tables.
//!
//! `tideline_rows` converts requests to engine calls, and rows to JSON, CSV, Arrow and Parquet. Reads are streamed, so
//! their memory does not depend on their size.

mod aggregate;
mod explain;
mod formats;
mod import;
mod refresh;
mod rekey;
mod statistics;
mod tier;
mod why;

use std::io::{self, Write};
use std::sync::Arc;

use axum::Json as JsonResponse;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_connections::{BodyError, Permit, ReceivedBody};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::{
    CountRows, DeleteRows, GetRows, Refresh, RowIntegers, RowWrite, RowsBody, RowsCounted, RowsDeleted,
    RowsEnd, RowsFound, RowsNotWritten, RowsPage, RowsReport, ScanEnd, ScanRows,
};
use tideline_openapi::row_explain::CountInterval;
use tideline_openapi::table::Durability;
use tideline_openapi::{ErrorBody, ErrorCode};
use tideline_query::Cancel;
use tideline_results::ResultFormat;
use tideline_rows::estimate::EstimateEffort;
use tideline_rows::read::{
    PAGE_BYTES_MAX, PAGE_ROWS, PAGE_ROWS_MAX, PAGE_SCANNED_MAX, ScanTerms, delete as delete_range,
    get as get_rows, keys_of,
};
use tideline_rows::write::{
    Begun, OutcomeSink, begin, read_body, reads_nothing, reads_only_hot_rows, write as write_rows,
    write_lines,
};
use tideline_rows::{
    ColumnPages, Outcomes, PageLimits, RowsError, Scan, Selection, Transaction, WriteSettings,
};
use tokio::sync::oneshot;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Waiting, blocking};
use crate::audit_detail;
use crate::body;
use crate::context::{RequestId, current_client};
use crate::extract::{Json, Path, Query, content_type, unreadable};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::ingest::request_key;
use crate::inline_reads::InlineReads;
use crate::resources::query::{accepted_format, describe};
use crate::resources::{Failures, QueryFailures, WideTablePath, page_limit};
use crate::running::Description;
use crate::stream::{self, ResponseWriter, WriteContext};
use refresh::wait_with_outcomes;
pub(crate) use refresh::{wait_for_searches, wait_searches};
pub(crate) use tier::{RowReading, RowTier, in_tier, tier_of};
use tier::{has_cold_keys, is_cold_scan};

/// Maximum size of an uncompressed body, in bytes, that is parsed without switching to a blocking thread. Parsing it
/// takes some tens of microseconds.
const SMALL_BYTES: usize = 8 << 10;

/// Maximum number of rows that a write may read on a thread of the runtime.
const INLINE_ROWS_MAX: usize = 4;

/// Media type of a body or response with one JSON value per line.
pub(crate) const NDJSON: &str = "application/x-ndjson";

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(get))
        .routes(routes!(scan))
        .routes(routes!(count))
        .routes(routes!(aggregate::aggregate))
        .routes(routes!(explain::explain))
        .routes(routes!(why::why))
        .routes(routes!(statistics::stats))
        .routes(routes!(statistics::load))
        .routes(routes!(statistics::growth))
        .routes(routes!(import::import))
        .routes(routes!(rekey::rekey))
        .routes(routes!(delete))
}

/// Options of a write of rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// Durability of the acknowledgement. Default: the setting of the table.
    durability: Option<Durability>,
    /// Form of integers beyond ±2⁵³ in the response. Default `number`.
    integers: Option<RowIntegers>,
    /// `wait` to send the response when searches over the rows find the write. Default: the response does not wait.
    refresh: Option<Refresh>,
}

/// Options of a read of rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// Form of integers beyond ±2⁵³ in JSON. Default `number`.
    integers: Option<RowIntegers>,
    /// Number of digits after the decimal point, 0 to 38. If it is given, Arrow and Parquet contain decimals as numbers
    /// of up to 38 digits; a value that cannot be represented exactly is an error. Default: decimals are text.
    decimal_scale: Option<u8>,
    /// Large values up to this size, in bytes, are returned like other values of their type. At most 2 MiB; only in
    /// JSON and NDJSON, without `versions`. A row returns at most 8 MiB of such values. Default: large values are
    /// objects with their size, checksum and address.
    inline_bytes: Option<u64>,
}

/// Options of a delete of rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    /// Durability of the acknowledgement. Default: the setting of the table.
    durability: Option<Durability>,
}

/// Write rows
///
/// Puts, updates and deletes rows. A row with a condition is written only if the condition is met. Either all
/// writes of a partition are applied or none of them; partitions are independent of each other. The first key
/// column that is neither a hash prefix nor a bucket, together with the hash prefixes and buckets before it, determines
/// the partition of a row. If the partition of a row that is not valid cannot be determined, no row of the request is
/// written. Rows that are written become visible and durable together. Writes are applied in their order; each write
/// applies to the result of the writes before it.
///
/// The response is 200 if at least one row was written or the request has no rows; check the outcomes. If no
/// row was written, the response is an error that contains the outcomes: 409 `condition_failed` if a condition
/// was not met, otherwise 422 `all_rejected`. A request has at most 10,000 rows, and at most 100 of them have
/// `return`. All changes together have at most 4 MiB; a row has at most 8 MiB, a column with its versions 2 MiB.
///
/// In `application/x-ndjson`, each line of the body is one write. The server cuts the lines into entries of up to 1,000
/// lines or 1 MiB, and the lines of an entry are handled like a request. The response has status 200 and one line per
/// outcome, followed by a line with the counts. A line that is not valid is refused, with the other lines of its partition
/// in its entry; if its partition cannot be determined, it is refused alone. If the first entry cannot be stored, the
/// response is an error. If a later entry cannot be stored, its lines and all lines after it are `not_applied`;
/// `retryable` states whether to send them again.
///
/// `unchanged` makes the request an optimistic transaction of one partition: it lists rows and ranges with the
/// revisions that earlier reads with `revisions` have returned. If a listed row or range has changed since, nothing is
/// written, and the response is 409 `condition_failed`; read again, and repeat.
///
/// With an `Idempotency-Key`, a request with the same key within a day returns the outcomes of the first
/// request and writes nothing; returned rows are omitted if they exceed 1 MiB, and the token needs a role that reads if
/// the outcomes contain rows. The same key with another body returns 422. For NDJSON the key covers each entry, so a
/// repeated request continues where the first request ended.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/rows", tag = "rows", operation_id = "write_rows",
    params(
        WideTablePath,
        WriteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Key for safe retries; at most 255 bytes")
    ),
    request_body(
        description = "Writes",
        content(
            (RowsBody = "application/json"),
            (String = "application/x-ndjson", example = "{\"op\":\"put\",\"key\":{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"},\"columns\":{\"total\":\"5.32\"}}\n")
        )
    ),
    responses(
        (status = 200, description = "The outcome of each row", content(
            (RowsReport = "application/json"),
            (String = "application/x-ndjson", example = outcomes_example)
        )),
        (status = 409, description = "No row was written, and at least one condition was not met; or the same request is still running", body = RowsNotWritten),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The content type or encoding is not supported", body = ErrorBody),
        (status = 422, description = "Every row was refused, or the `Idempotency-Key` was used before with another body", body = RowsNotWritten),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn write(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<WriteQuery>,
    request: Request,
) -> Result<Response> {
    let content_type = content_type(request.headers());
    let is_lines = match content_type.as_str() {
        "" | "application/json" | "application/x-www-form-urlencoded" => false,
        NDJSON | "application/ndjson" | "application/jsonl" => true,
        other => {
            app.bodies.discard(request).await;
            return Err(Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!("content type {other:?} is not supported; use application/json or {NDJSON}"),
            ));
        }
    };
    let mut settings = WriteSettings {
        durability: query.durability.map(Into::into),
        integers: query.integers.unwrap_or_default(),
        key: request_key(request.headers())?,
        is_independent: false,
        transaction: None,
    };
    let received = body::receive(request, &app, body::write_limits(&app.settings)).await?;
    wait_for_searches(&app.engine, &table).await;
    let permit = app.permit(&app.writes).await?;
    if is_lines {
        let lines = (received, permit);
        return answer_lines(&app, table, lines, settings, query.refresh).await;
    }
    let engine = app.engine.clone();
    let is_small = !received.is_compressed() && received.sent_bytes() <= SMALL_BYTES;
    let body = body::decode(received).await?;
    let table = engine.wide_table(&table)?;
    let mut permit = Some(permit);
    if is_small && settings.key.is_none() && query.refresh.is_none() {
        let RowsBody { rows, unchanged } = read_body(&body).map_err(unreadable)?;
        if unchanged.is_empty()
            && let Some(outcomes) = write_small(&app, &table, rows, &settings, &mut permit).await?
        {
            return Ok(report(outcomes, None, id, false));
        }
    }
    let permit = match permit {
        Some(permit) => permit,
        None => app.permit(&app.writes).await?,
    };
    let written = blocking(move || {
        let _permit = permit;
        let RowsBody { rows, unchanged } = read_body(&body).map_err(unreadable)?;
        settings.transaction = Transaction::new(&table, &unchanged)?;
        let outcomes = write_rows(&engine, &table, &rows, &body, &settings)?;
        let awaited = query.refresh.map(|Refresh::Wait| engine.await_writes(&table));
        Ok((outcomes, awaited))
    });
    let (outcomes, awaited) = written.await?;
    let searchable = match awaited {
        Some(awaited) => Some(wait_with_outcomes(&app, &outcomes, awaited).await),
        None => None,
    };
    Ok(report(outcomes, searchable, id, false))
}

/// Writes the lines of a body, and returns the response with a line for each of them. With `refresh`, the last line of
/// the response follows when searches find the write.
async fn answer_lines(
    app: &Grant,
    table: String,
    (received, permit): (ReceivedBody, Permit),
    settings: WriteSettings,
    refresh: Option<Refresh>,
) -> Result<Response> {
    let work = WriteContext {
        permit: Some(permit),
        cancel: Cancel::new(),
    };
    let (sender, written) = oneshot::channel();
    let engine = app.engine.clone();
    let response = stream::respond(app, NDJSON, work, move |writer| {
        let body = received.decode()?;
        let table = engine.wide_table(&table)?;
        let mut sink = OutcomeLines(writer);
        let written = write_lines(&engine, &table, &body, &settings, &mut sink)?;
        let end = RowsEnd {
            counts: written.counts,
            position: written.position.map(|position| position.0.to_string()),
            searchable: None,
        };
        let Some(Refresh::Wait) = refresh else {
            return put_line(writer, &end).map_err(stream::client_left);
        };
        // Fails only if the client has disconnected.
        let _ = sender.send((end, engine.await_writes(&table)));
        Ok(())
    })
    .await?;
    if refresh.is_none() {
        return Ok(response);
    }
    let engine = app.engine.clone();
    Ok(stream::followed_by(response, async move {
        let (mut end, awaited) = written.await.map_err(io::Error::other)?;
        end.searchable = Some(wait_searches(&engine, awaited).await);
        let mut line = serde_json::to_vec(&end)?;
        line.push(b'\n');
        io::Result::Ok(Bytes::from(line))
    }))
}

/// Outcomes of a write as lines of its response.
struct OutcomeLines<'w>(&'w mut ResponseWriter);

impl OutcomeSink for OutcomeLines<'_> {
    fn outcomes(&mut self, lines: &[u8]) -> std::io::Result<()> {
        self.0.write_all(lines)
    }

    fn while_waiting(&mut self, wait: &mut dyn FnMut()) {
        self.0.while_waiting(wait);
    }
}

/// Writes the rows of a small request, and waits for the commit without occupying a thread: switching threads would
/// be most of the cost of a small write. Returns `None`, with nothing written, if the request must be executed in
/// the usual way.
///
/// Releases the permit before the wait, so that a commit group can contain more writes than there are permits. The
/// committer limits the bytes of the writes that wait for it.
async fn write_small(
    app: &Grant,
    table: &Arc<WideTable>,
    rows: Vec<RowWrite>,
    settings: &WriteSettings,
    permit: &mut Option<Permit>,
) -> Result<Option<Outcomes>> {
    let begin_here = || begin(&app.engine, table, &rows, settings);
    let begun = match (reads_nothing(table, &rows), &app.inline_reads) {
        (true, _) => Some(begin_here()),
        (false, Some(reads))
            if rows.len() <= INLINE_ROWS_MAX && reads_only_hot_rows(&app.engine, table, &rows) =>
        {
            reads.run(&**app.engine.clock(), begin_here)
        }
        _ => None,
    };
    let begun = match begun {
        Some(begun) => begun?,
        None => {
            let (engine, table, settings) = (Arc::clone(&app.engine), Arc::clone(table), settings.clone());
            blocking(move || Ok(begin(&engine, &table, &rows, &settings)?)).await?
        }
    };
    let Some(Begun { outcomes, commit }) = begun else {
        return Ok(None);
    };
    let Some(commit) = commit else {
        return Ok(Some(outcomes));
    };
    *permit = None;
    let position = commit.await.map_err(RowsError::from)?;
    Ok(position.map(|position| Outcomes {
        position: Some(position),
        ..outcomes
    }))
}

fn outcomes_example() -> &'static str {
    "{\"index\":0,\"status\":\"written\",\"key\":{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"}}\n{\"written\":1,\"condition_failed\":0,\"not_applied\":0,\"refused\":0}\n"
}

/// Returns the response to a write, with the state of the search indexes if the write has waited for them. The response
/// is an error if the request has rows and no row was written. With `expects_failed`, a write in which all conditions
/// failed is not an error.
pub(crate) fn report(
    outcomes: Outcomes,
    searchable: Option<bool>,
    id: RequestId,
    expects_failed: bool,
) -> Response {
    let Outcomes {
        counts,
        rows,
        repeated,
        position,
    } = outcomes;
    let is_expected = expects_failed && counts.condition_failed as usize == rows.len();
    if counts.written > 0 || rows.is_empty() || is_expected {
        return JsonResponse(RowsReport {
            counts,
            rows,
            repeated,
            position: position.map(|position| position.0.to_string()),
            searchable,
            request_id: id.into(),
        })
        .into_response();
    }
    let code = match counts.condition_failed {
        0 => ErrorCode::AllRejected,
        _ => ErrorCode::ConditionFailed,
    };
    let first = rows.iter().find(|row| match code {
        ErrorCode::AllRejected => row.status == tideline_openapi::row::RowStatus::Refused,
        _ => row.status == tideline_openapi::row::RowStatus::ConditionFailed,
    });
    let first = first.map_or_else(String::new, |row| {
        let reason = row.reason.as_deref().unwrap_or_default();
        format!("; the first, row {}: {reason}", row.index)
    });
    let failure = Failure::new(code, format!("none of {} rows was written{first}", rows.len()));
    failure.with_body(|failure| RowsNotWritten {
        error: failure.into_body(id),
        counts,
        rows,
        repeated,
    })
}

/// Read rows by their keys
///
/// Returns rows in the order of the keys. `keys` is a list of keys. `in` lists values of each key column, and all
/// combinations of these values are read. A row that does not exist is `null`.
///
/// With `Accept: application/x-ndjson`, each row is a line, and the last line has the member `found`. CSV, Arrow and
/// Parquet are tables with the columns of a scan. All four formats omit rows that do not exist.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/get", tag = "rows", operation_id = "get_rows",
    params(WideTablePath, ReadQuery),
    request_body = GetRows,
    responses(
        (status = 200, description = "The rows", content(
            (RowsFound = "application/json"),
            (String = "application/x-ndjson", example = found_example),
            (String = "text/csv", example = csv_example),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )),
        QueryFailures
    )
)]
async fn get(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
    Json(request): Json<GetRows>,
) -> Result<Response> {
    let format = accepted_format(&headers)?;
    if formats::table_form(format).is_some() {
        return formats::get(&app, id, table, &query, request, format).await;
    }
    let is_lines = format == ResultFormat::Ndjson;
    let description = describe(id.clone(), &table, "get", &request);
    let (tier, request) = tier_of(&app, &table, request, has_cold_keys).await?;
    let task = (tier, Some(description));
    read(&app, format.content_type(), task, move |app, reading, writer| {
        let table = app.engine.table_of_rows(&table)?;
        let selection = Selection::new(
            request.columns.as_deref(),
            request.versions,
            request.version_range,
            query.integers.unwrap_or_default(),
            app.engine.now(),
        )?
        .with_revisions(request.revisions)
        .with_inline(&app.engine, query.inline_bytes)?;
        let keys = keys_of(&table, &request)?;
        let pages = ColumnPages::new(&request)?;
        if !is_lines {
            put(writer, b"{\"rows\":[")?;
        }
        let mut separator: &[u8] = b"";
        let mut take = |row: Option<&[u8]>| match (is_lines, row) {
            (true, None) => Ok(()),
            (true, Some(row)) => {
                writer.write_all(row)?;
                Ok(writer.write_all(b"\n")?)
            }
            (false, row) => {
                writer.write_all(std::mem::replace(&mut separator, b","))?;
                Ok(writer.write_all(row.unwrap_or(b"null"))?)
            }
        };
        let is_stopped = || reading.is_stopped();
        let engine = &app.engine;
        let found = match pages {
            None => get_rows(engine, &table, &keys, &selection, &is_stopped, &mut take)?,
            Some(pages) => pages.get(engine, &table, &keys, &selection, &is_stopped, &mut take)?,
        };
        if is_lines {
            let end = serde_json::json!({"found": found});
            return put_line(writer, &end).map_err(stream::client_left);
        }
        #[derive(Serialize)]
        struct End {
            found: u64,
            request_id: String,
        }
        put_end(
            writer,
            &End {
                found,
                request_id: id.into(),
            },
        )
    })
    .await
}

/// Scan rows
///
/// Returns the rows of a key prefix, and of bounds on the key column after it, in the order of their keys or in
/// the opposite order. The rows of buckets are merged. A page ends after `limit` rows, 4 MiB, or 100,000 rows and
/// deletions read; `reason` states which limit was reached, and `next` continues the scan. A page can be empty
/// although more rows follow if a condition rejects most rows. Each row is returned in a state that it had during
/// the scan; pages are not a snapshot.
///
/// With `Accept: application/x-ndjson`, all rows are streamed, one per line, with bounded memory and no limit
/// except `limit`. The last line has the members `scanned`, `returned` and `next`. If the client disconnects,
/// the scan stops.
///
/// CSV, Arrow and Parquet are tables with the key columns, then the requested columns. A requested prefix such as
/// `seen_*` is one column of this name with a JSON object of all columns that begin with the prefix. Without
/// `columns`, the table has all declared columns, and the column `*` for other columns. Columns have their declared
/// types. In Arrow and Parquet, decimals are text unless `decimal_scale` is given, and columns that are not
/// declared are text.
///
/// These formats stream all rows. With a `limit` of up to 10,000 they return a page, whose end is described by the
/// headers `Tideline-Scanned`, `Tideline-Returned`, `Tideline-Next` (the page token; missing at the end of the
/// scan) and `Tideline-Reason`. The metadata `tideline.summary` of a Parquet file has the same members as the last
/// line of NDJSON.
///
/// A scan of the whole table, without `prefix` and `range`, needs `allow_scan`.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/scan", tag = "rows", operation_id = "scan_rows",
    params(WideTablePath, ReadQuery),
    request_body = ScanRows,
    responses(
        (status = 200, description = "A page of rows", content(
            (RowsPage = "application/json"),
            (String = "application/x-ndjson", example = rows_example),
            (String = "text/csv", example = csv_example),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )),
        QueryFailures
    )
)]
async fn scan(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
    Json(request): Json<ScanRows>,
) -> Result<Response> {
    let format = accepted_format(&headers)?;
    if formats::table_form(format).is_some() {
        return formats::scan(&app, id, table, &query, request, format).await;
    }
    let is_lines = format == ResultFormat::Ndjson;
    let limits = match is_lines {
        true => PageLimits {
            rows: request.limit,
            scanned: None,
            bytes: None,
        },
        false => {
            let limit = request.limit.and_then(|limit| usize::try_from(limit).ok());
            let limit = page_limit(limit, PAGE_ROWS as usize, PAGE_ROWS_MAX as usize)?;
            PageLimits {
                rows: Some(limit as u64),
                scanned: Some(PAGE_SCANNED_MAX),
                bytes: Some(PAGE_BYTES_MAX),
            }
        }
    };
    let description = describe(id.clone(), &table, "scan", &request);
    let is_cold = |engine: &Engine, table: &WideTable, request: &ScanRows| {
        is_cold_scan(engine, table, &scan_terms(request))
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let task = (tier, Some(description));
    read(&app, format.content_type(), task, move |app, reading, writer| {
        let table = app.engine.table_of_rows(&table)?;
        let selection = Selection::new(
            request.columns.as_deref(),
            request.versions,
            request.version_range,
            query.integers.unwrap_or_default(),
            app.engine.now(),
        )?
        .with_revisions(request.revisions)
        .with_inline(&app.engine, query.inline_bytes)?;
        let scan = Scan::new(&app.engine, &table, &scan_terms(&request), &selection)?;
        if !is_lines {
            put(writer, b"{\"rows\":[")?;
        }
        let mut separator: &[u8] = b"";
        let page = scan.page(
            &app.engine,
            &table,
            &selection,
            limits,
            &|| reading.is_stopped(),
            &mut |row| {
                if is_lines {
                    writer.write_all(row)?;
                    return Ok(writer.write_all(b"\n")?);
                }
                writer.write_all(std::mem::replace(&mut separator, b","))?;
                Ok(writer.write_all(row)?)
            },
        )?;
        let end = ScanEnd {
            scanned: page.scanned,
            returned: page.returned,
            next: page.next,
            reason: page.reason,
            revision: page.revision,
        };
        if is_lines {
            return put_line(writer, &end).map_err(stream::client_left);
        }
        #[derive(Serialize)]
        struct End {
            #[serde(flatten)]
            end: ScanEnd,
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

/// Returns the parameters of a scan.
fn scan_terms(request: &ScanRows) -> ScanTerms<'_> {
    ScanTerms {
        index: request.index.as_deref(),
        prefix: &request.prefix,
        range: request.range.as_ref(),
        direction: request.direction,
        filter: request.filter.as_ref(),
        tier: request.tier,
        page_token: request.page_token.as_deref(),
        allow_scan: request.allow_scan,
    }
}

/// Returns the parameters of the scan of a count.
fn count_terms(request: &CountRows) -> ScanTerms<'_> {
    ScanTerms {
        index: request.index.as_deref(),
        prefix: &request.prefix,
        range: request.range.as_ref(),
        direction: Default::default(),
        filter: request.filter.as_ref(),
        tier: request.tier,
        page_token: request.page_token.as_deref(),
        allow_scan: request.allow_scan,
    }
}

fn found_example() -> &'static str {
    "{\"key\":{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"},\"columns\":{\"total\":\"5.32\"}}\n{\"found\":1}\n"
}

fn csv_example() -> &'static str {
    "customer,placed,total,*\r\nacme,2026-11-20T12:00:00Z,5.32,\"{\"\"color\"\":\"\"red\"\"}\"\r\n"
}

fn columnar_example() -> &'static str {
    "customer: string, placed: timestamp[ns, UTC], total: string, *: string"
}

fn rows_example() -> &'static str {
    "{\"key\":{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\"},\"columns\":{\"total\":\"5.32\"}}\n{\"scanned\":1,\"returned\":1,\"next\":null}\n"
}

/// Count rows
///
/// Counts the rows of a key prefix and of bounds on the key column after it, exactly. A request reads up to 1,000,000
/// rows and deletions; `next` continues the count. A count of the whole table, without `prefix` and `range`, needs
/// `allow_scan`.
///
/// With `estimate`, the count is exact if at most 200,000 rows must be read. Otherwise it is estimated from a sample
/// of at most 200,000 more rows, and `interval` is the estimate ± 3 standard errors of the sample, not below the
/// number of rows counted. The interval describes the spread of the sample; if the keys are very unevenly
/// distributed, the true count can be outside the interval. The same request on the same rows returns the same
/// estimate.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/count", tag = "rows", operation_id = "count_rows",
    params(WideTablePath),
    request_body = CountRows,
    responses((status = 200, description = "The number of rows", body = RowsCounted), Failures)
)]
async fn count(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Json(request): Json<CountRows>,
) -> Result<JsonResponse<RowsCounted>> {
    let description = describe(id.clone(), &table, "count", &request);
    let is_cold = |engine: &Engine, table: &WideTable, request: &CountRows| {
        is_cold_scan(engine, table, &count_terms(request))
    };
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let counted = answer(&app, description, tier, move |engine, table, is_stopped| {
        let terms = count_terms(&request);
        if request.estimate && request.page_token.is_some() {
            return Err(Failure::invalid("an estimate has no pages; omit page_token"));
        }
        let scan = Scan::new(engine, table, &terms, &Selection::of_nothing())?;
        if request.estimate {
            let estimate = scan.estimate(engine, table, EstimateEffort::COUNT, is_stopped)?;
            return Ok(RowsCounted {
                count: estimate.count,
                interval: (!estimate.is_exact).then_some(CountInterval {
                    low: estimate.low,
                    high: estimate.high,
                }),
                scanned: estimate.scanned,
                next: None,
                request_id: id.into(),
            });
        }
        let counted = scan.count(engine, table, is_stopped)?;
        Ok(RowsCounted {
            count: counted.count,
            interval: None,
            scanned: counted.scanned,
            next: counted.next,
            request_id: id.into(),
        })
    });
    counted.await.map(JsonResponse)
}

/// Delete rows
///
/// Deletes all rows of a key prefix and of bounds on the key column after it, whatever their number. The rows are
/// deleted in one journal entry, or in pages if the table has secondary indexes. If a delete in pages fails, some rows
/// may already be deleted. To delete all rows of the table, omit `prefix` and `range`, and set `allow_all`. Repeating a
/// delete is safe.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/rows/delete", tag = "rows", operation_id = "delete_rows",
    params(WideTablePath, DeleteQuery),
    request_body = DeleteRows,
    responses((status = 200, description = "The rows are deleted", body = RowsDeleted), Failures)
)]
async fn delete(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<DeleteQuery>,
    Json(request): Json<DeleteRows>,
) -> Result<JsonResponse<RowsDeleted>> {
    app.note_detail(format!("rows: {}", audit_detail::json(&request)));
    wait_for_searches(&app.engine, &table).await;
    let permit = app.permit(&app.writes).await?;
    let engine = app.engine.clone();
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let position = blocking(move || {
        let _permit = permit;
        let table = engine.wide_table(&table)?;
        Ok(delete_range(
            &engine,
            &table,
            &request,
            query.durability.map(Into::into),
            &|| cancel.is_cancelled(),
        )?)
    })
    .await?;
    Ok(JsonResponse(RowsDeleted {
        position: position.0.to_string(),
        request_id: id.into(),
    }))
}

/// Waits for a query permit, and runs a listed query of a wide table on a blocking thread. The query stops if the
/// client disconnects or an operator cancels it.
pub(crate) async fn answer<T, F>(app: &Grant, description: Description, tier: RowTier, query: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Engine, &Arc<WideTable>, &dyn Fn() -> bool) -> Result<T> + Send + 'static,
{
    answer_inline(app, description, tier, || None, query).await
}

/// Returns the result of a request like [`answer`], but can run a short request on the current thread of the runtime.
/// `inline` is called when the request has its permit. It returns `None` for a request that is not short, and otherwise
/// the state of short reads and the table. A read of this table must not wait for limits of the table.
pub(crate) async fn answer_inline<'r, T, F>(
    app: &Grant,
    description: Description,
    tier: RowTier,
    inline: impl FnOnce() -> Option<(&'r InlineReads, Arc<WideTable>)> + Send,
    query: F,
) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Engine, &Arc<WideTable>, &dyn Fn() -> bool) -> Result<T> + Send + 'static,
{
    let permit = tier.permits(app).take(current_client()).await?;
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let reader = app.clone();
    let mut work = Some(move |table: Option<Arc<WideTable>>| -> Result<T> {
        let _permit = permit;
        let table = match table {
            Some(table) => table,
            None => reader.engine.table_of_rows(&description.table)?,
        };
        let _listed = reader.running.list(&reader.engine, description, cancel.clone());
        in_tier(&reader, &cancel, tier, |reading| {
            query(&reader.engine, &table, &|| reading.is_stopped())
        })
    });
    if let Some((reads, table)) = inline() {
        let here = || work.take().map(|work| work(Some(table)));
        if let Some(Some(answer)) = reads.run(&**app.engine.clock(), here) {
            return answer;
        }
    }
    let work = work.expect("a request runs only once");
    blocking(move || work(None)).await
}

/// Waits for a query permit, runs `write` on a blocking thread, and streams its output. The request is listed with its
/// description, also while it waits for a permit of the querier; without a description, it is not listed.
pub(crate) async fn read<F>(
    app: &Grant,
    content_type: &'static str,
    (tier, description): (RowTier, Option<Description>),
    write: F,
) -> Result<Response>
where
    F: FnOnce(&Grant, &RowReading<'_>, &mut ResponseWriter) -> Result<()> + Send + 'static,
{
    let work = WriteContext {
        permit: Some(tier.permits(app).take(current_client()).await?),
        cancel: Cancel::new(),
    };
    let (reading, cancel) = (app.clone(), work.cancel.clone());
    stream::respond(app, content_type, work, move |writer| {
        let list = |description| reading.running.list(&reading.engine, description, cancel.clone());
        let _listed = description.map(list);
        in_tier(&reading, &cancel, tier, |rows| write(&reading, rows, writer))
    })
    .await
}

pub(crate) fn put(writer: &mut ResponseWriter, bytes: &[u8]) -> Result<()> {
    writer.write_all(bytes).map_err(stream::client_left)
}

/// Writes a line of JSON. The line is sent when the chunk is full or the response ends.
pub(crate) fn put_line(writer: &mut ResponseWriter, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}

/// Ends the list of rows and appends the members of an object.
pub(crate) fn put_end(writer: &mut ResponseWriter, end: &impl Serialize) -> Result<()> {
    let members = serde_json::to_vec(end).unwrap_or_default();
    put(writer, b"],")?;
    put(writer, members.strip_prefix(b"{").unwrap_or(b"}"))
}

impl From<RowsError> for Failure {
    fn from(error: RowsError) -> Self {
        let message = error.to_string();
        match error {
            RowsError::Engine(error) => error.into(),
            RowsError::Invalid(_) => Self::invalid(message),
            RowsError::OverLimit { limit, actual, .. } => Self {
                limit: Some((limit, actual)),
                ..Self::new(ErrorCode::OverLimit, message)
            },
            RowsError::Changed(_) | RowsError::ConditionFailed(_) => {
                Self::new(ErrorCode::ConditionFailed, message)
            }
            RowsError::Damaged { .. } => Self::new(ErrorCode::Internal, message),
            RowsError::Cancelled => Self::new(ErrorCode::Conflict, message),
            RowsError::Input(error) => match error.downcast::<BodyError>() {
                Ok(error) => error.into(),
                Err(_) => Self::invalid(message),
            },
            RowsError::Output(error) => stream::client_left(error),
        }
    }
}
