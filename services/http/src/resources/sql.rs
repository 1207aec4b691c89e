//! `/v1/sql`: statements on wide tables.
//!
//! `tideline_sql` parses, plans and executes. A statement is parsed on a blocking thread; its kind then determines
//! the permit that it needs: a permit for queries, for writes or for changes.

use std::io::Write;

use axum::Json as JsonResponse;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tideline_access::Action;
use tideline_engine::model::TableSpec;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::{RowIntegers, RowsNotWritten};
use tideline_openapi::sql::{SqlAction, SqlDone, SqlEnd, SqlRequest, SqlResult};
use tideline_openapi::table::Durability;
use tideline_openapi::{ErrorBody, ErrorCode, plain};
use tideline_query::Cancel;
use tideline_results::ResultFormat;
use tideline_rows::RowsError;
use tideline_sql::plan::ReadPlan;
use tideline_sql::run::read::{self as reading, Extent};
use tideline_sql::run::table::{self as tables, TableChange};
use tideline_sql::run::write::{WritePlan, WriteResult};
use tideline_sql::statement::{Predicate, Select, TableStatement, WriteStatement};
use tideline_sql::{SqlError, Statement};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Waiting, blocking};
use crate::audit_detail;
use crate::body;
use crate::context::{RequestId, current_client};
use crate::extract::{Query, content_type, unreadable};
use crate::failure::{Failure, Result};
use crate::grant::{Grant, Requester};
use crate::ingest::request_key;
use crate::resources::Failures;
use crate::resources::query::{accepted_format, describe};
use crate::resources::rows::{
    NDJSON, RowReading, RowTier, put, put_end, put_line, read, report, tier_of, wait_for_searches,
};
use crate::running::Description;
use crate::stream::{self, ResponseWriter};

/// Size of a statement, in bytes, up to which the memory to parse it is not reserved.
const SMALL_STATEMENT_BYTES: usize = 4 << 10;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(run))
}

/// Options of a statement.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SqlQuery {
    /// Durability of the acknowledgement of a write. Default: the setting of the table.
    durability: Option<Durability>,
    /// Form of integers beyond ±2⁵³. Default `number`.
    integers: Option<RowIntegers>,
}

/// Parsed request.
struct Parsed {
    statement: Statement,
    /// Body of the request, which identifies the request if it has an idempotency key.
    body: Vec<u8>,
    text: String,
    page_token: Option<String>,
    /// Reserved memory of the parsed statement; `None` for a small statement.
    memory: Option<tideline_engine::runtime::Reservation>,
}

/// Run an SQL statement
///
/// Runs one statement on wide tables: `SELECT`, `EXPLAIN SELECT`, `UPSERT`, `INSERT`, `UPDATE`, `DELETE`, `CREATE
/// TABLE`, `ALTER TABLE`, `DROP TABLE`, `CREATE INDEX`, `DROP INDEX`, `SHOW TABLES`, `SHOW CREATE TABLE`, `SHOW
/// INDEX` or `DESCRIBE`. The values of the placeholders `?` are in `params`.
///
/// A statement is executed by one access path: rows by whole keys, ranges of keys, or the whole table if the hint
/// `/*+ ALLOW_SCAN */` allows it. Rows are returned in the order of the key or in the opposite order. A statement that
/// requires anything else is refused with 422 `plan_refused` and the reason. A `SELECT` with functions or `GROUP BY`
/// returns the aggregates of these rows, in the order of the keys of the groups and in one page.
///
/// Rows are returned in pages, and rows by whole keys in one page. A page ends after 1,000 rows, 4 MiB, or 100,000
/// rows read, and `next` continues. With `Accept: application/x-ndjson`, all rows are streamed, one per line, and the
/// last line has the members `scanned`, `returned` and `next`. If the client disconnects, the read stops.
///
/// Writes of rows return the outcome of each row, as in `/rows`. With an `Idempotency-Key`, a repeated write of rows
/// returns the outcomes of the first one.
#[utoipa::path(
    security(("token" = [])),
    post, path = "/v1/sql", tag = "rows", operation_id = "run_sql",
    params(
        SqlQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Key for safe retries of writes of rows; at most 255 bytes; for an `UPDATE`, a `DELETE` or `ON DUPLICATE KEY IGNORE` of several rows, at most 252 bytes")
    ),
    request_body = SqlRequest,
    responses(
        (status = 200, description = "The result", content(
            (SqlResult = "application/json"),
            (String = "application/x-ndjson", example = rows_example)
        )),
        (status = 406, description = "None of the accepted content types is supported", body = ErrorBody),
        (status = 409, description = "No row was written, and at least one condition was not met; or the table exists", body = RowsNotWritten),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The content type or encoding is not supported", body = ErrorBody),
        (status = 422, description = "No access path serves the statement; or every row was refused", body = RowsNotWritten),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
async fn run(
    requester: Requester,
    id: RequestId,
    Query(query): Query<SqlQuery>,
    request: Request,
) -> Result<Response> {
    let is_lines = match accepted_format(request.headers())? {
        ResultFormat::Json => false,
        ResultFormat::Ndjson => true,
        _ => {
            return Err(Failure::new(
                ErrorCode::NotAcceptable,
                format!("none of the accepted content types is supported; use application/json or {NDJSON}"),
            ));
        }
    };
    let key = request_key(request.headers())?;
    let parsed = parse(&requester, request).await?;
    let app = match &parsed.statement {
        Statement::Select(_) | Statement::Explain(_) | Statement::Show(_) => requester.grant(Action::Read)?,
        Statement::Write(write) => {
            requester.grant_in_budget(Action::Write, matches!(write, WriteStatement::Delete(_)))?
        }
        Statement::Change(change) if matches!(**change, TableStatement::CreateIndex(_)) => {
            requester.grant_in_budget(Action::Operate, false)?
        }
        Statement::Change(_) => requester.grant(Action::Operate)?,
    };
    let integers = query.integers.unwrap_or_default();
    match parsed.statement {
        Statement::Select(select) => {
            let token = parsed.page_token;
            let memory = parsed.memory;
            let table = select.table.text.clone();
            let description = describe(id.clone(), &table, "sql", &parsed.text);
            let (tier, select) = tier_of(&app, &table, select, is_cold).await?;
            let task = (tier, Some(description));
            respond(&app, task, is_lines, id, move |app, reading, rows| {
                select_rows(app, select, token.as_deref(), integers, reading, rows, memory)
            })
            .await
        }
        Statement::Explain(select) => {
            let task = (RowTier::Hot, None);
            respond(&app, task, is_lines, id, move |app, _, rows| {
                let plan = ReadPlan::new(&app.engine, &select)?;
                rows.all(&[reading::explain(&plan)])
            })
            .await
        }
        Statement::Show(show) => {
            let task = (RowTier::Hot, None);
            respond(&app, task, is_lines, id, move |app, _, rows| {
                rows.all(&tables::show(&app.engine, &show)?)
            })
            .await
        }
        Statement::Write(write) => {
            let detail = match &write {
                WriteStatement::Delete(delete) => deleted(delete.condition.as_ref()),
                _ => String::new(),
            };
            wait_for_searches(&app.engine, &write.table().text).await;
            let permit = app.permit(&app.writes).await?;
            let (engine, noted) = (app.engine.clone(), app.clone());
            let (body, memory) = (parsed.body, parsed.memory);
            let cancel = Cancel::new();
            let _waiting = Waiting(Some(cancel.clone()));
            let written = blocking(move || {
                let (_permit, _memory) = (permit, memory);
                let plan = WritePlan::new(&engine, write)?;
                if plan.deletes_ranges() {
                    let table = plan.table().table().name();
                    noted.note_detail(detail);
                    noted.note_change(change_text(&format!("DELETE FROM {table}")));
                    // If the client disconnected before the change was noted, the request has ended without an
                    // audit record. The delete is then not executed.
                    if cancel.is_cancelled() {
                        return Err(RowsError::Cancelled.into());
                    }
                }
                let durability = query.durability.map(Into::into);
                let is_stopped = || cancel.is_cancelled();
                let result = plan.run(&engine, &body, durability, integers, key, &is_stopped)?;
                Ok((result, plan))
            });
            Ok(match written.await? {
                (WriteResult::Rows(outcomes), plan) => report(outcomes, None, id, plan.ignores_existing),
                (WriteResult::RangesDeleted(position), _) => {
                    done(SqlAction::Deleted, Some(position.0.to_string()), id)
                }
            })
        }
        Statement::Change(change) => change_table(&app, *change, id).await,
    }
}

fn rows_example() -> &'static str {
    "{\"placed\":\"2026-11-20T12:00:00Z\",\"total\":\"5.32\"}\n{\"scanned\":1,\"returned\":1,\"next\":null}\n"
}

/// Reads the body and parses the statement. Refuses a page token for a statement other than `SELECT`.
async fn parse(app: &Requester, request: Request) -> Result<Parsed> {
    let content_type = content_type(request.headers());
    if !matches!(
        content_type.as_str(),
        "" | "application/json" | "application/x-www-form-urlencoded"
    ) {
        app.bodies.discard(request).await;
        return Err(Failure::new(
            ErrorCode::UnsupportedMediaType,
            format!("content type {content_type:?} is not supported; use application/json"),
        ));
    }
    let received = body::receive(request, app, body::write_limits(&app.settings)).await?;
    // Parsing takes memory and time, so it is limited like queries.
    let permit = app.queries.take(current_client()).await?;
    let memory = app.memory();
    blocking(move || {
        let _permit = permit;
        let body = received.decode()?;
        let request: SqlRequest = plain::read(&body).map_err(unreadable)?;
        let reserved = (request.statement.len() > SMALL_STATEMENT_BYTES).then(|| {
            let bytes = tideline_sql::parse::memory_bytes(request.statement.len());
            memory.reserve("SQL statements", bytes)
        });
        let memory = reserved.transpose()?;
        let statement = tideline_sql::parse(&request.statement, &request.params)?;
        if request.page_token.is_some() && !matches!(statement, Statement::Select(_)) {
            return Err(Failure::invalid("page_token is for SELECT; omit it"));
        }
        Ok(Parsed {
            statement,
            body: body.to_vec(),
            text: request.statement,
            page_token: request.page_token,
            memory,
        })
    })
    .await
}

/// Writes the rows of a `SELECT`: all rows for NDJSON, otherwise one page. NDJSON with a page token is refused.
fn select_rows(
    app: &Grant,
    select: Select,
    token: Option<&str>,
    integers: RowIntegers,
    reading: &RowReading<'_>,
    rows: &mut RowsWriter<'_>,
    memory: Option<tideline_engine::runtime::Reservation>,
) -> Result<()> {
    let extent = match (rows.is_lines, token) {
        (true, Some(_)) => {
            return Err(Failure::invalid(
                "page_token continues a result in pages; omit it, because NDJSON has all rows",
            ));
        }
        (true, None) => Extent::All,
        (false, token) => Extent::Page(token),
    };
    let plan = ReadPlan::new(&app.engine, &select)?;
    drop((select, memory));
    rows.begin()?;
    let end = reading::select(
        &app.engine,
        &plan,
        extent,
        integers,
        &|| reading.is_stopped(),
        &mut |row| Ok(rows.row(row)?),
    )?;
    rows.end(&SqlEnd {
        scanned: end.scanned,
        returned: end.returned,
        next: end.next,
        reason: end.reason,
    })
}

/// Returns true if a `SELECT` reads rows of parts in the cold tier or in the archive.
fn is_cold(engine: &Engine, _: &WideTable, select: &Select) -> std::result::Result<bool, RowsError> {
    let reaches_cold = ReadPlan::new(engine, select).and_then(|plan| plan.reaches_cold(engine));
    // Errors of a plan are reported by the statement itself.
    Ok(reaches_cold.unwrap_or(false))
}

/// Streams rows as one JSON document or as NDJSON lines. A request with a description is listed among the running
/// queries.
async fn respond<F>(
    app: &Grant,
    task: (RowTier, Option<Description>),
    is_lines: bool,
    id: RequestId,
    write: F,
) -> Result<Response>
where
    F: FnOnce(&Grant, &RowReading<'_>, &mut RowsWriter<'_>) -> Result<()> + Send + 'static,
{
    let content_type = if is_lines { NDJSON } else { "application/json" };
    read(app, content_type, task, move |app, reading, writer| {
        let mut rows = RowsWriter {
            writer,
            is_lines,
            separator: b"",
            id,
        };
        write(app, reading, &mut rows)
    })
    .await
}

/// Writer of the rows of a result.
struct RowsWriter<'w> {
    writer: &'w mut ResponseWriter,
    is_lines: bool,
    separator: &'static [u8],
    id: RequestId,
}

impl RowsWriter<'_> {
    fn begin(&mut self) -> Result<()> {
        match self.is_lines {
            true => Ok(()),
            false => put(self.writer, b"{\"rows\":["),
        }
    }

    fn row(&mut self, row: &[u8]) -> std::io::Result<()> {
        if self.is_lines {
            self.writer.write_all(row)?;
            return self.writer.write_all(b"\n");
        }
        self.writer
            .write_all(std::mem::replace(&mut self.separator, b","))?;
        self.writer.write_all(row)
    }

    fn end(&mut self, end: &SqlEnd) -> Result<()> {
        if self.is_lines {
            return put_line(self.writer, end).map_err(stream::client_left);
        }
        #[derive(Serialize)]
        struct End<'e> {
            #[serde(flatten)]
            end: &'e SqlEnd,
            request_id: String,
        }
        let request_id = self.id.clone().into();
        put_end(self.writer, &End { end, request_id })
    }

    /// Writes a result that is in memory.
    fn all(&mut self, rows: &[String]) -> Result<()> {
        self.begin()?;
        for row in rows {
            self.row(row.as_bytes()).map_err(stream::client_left)?;
        }
        self.end(&SqlEnd {
            scanned: 0,
            returned: rows.len() as u64,
            next: None,
            reason: None,
        })
    }
}

/// Runs a statement that changes tables or indexes.
async fn change_table(app: &Grant, statement: TableStatement, id: RequestId) -> Result<Response> {
    let text = match &statement {
        TableStatement::Create(create) => format!("CREATE TABLE {}", create.table.text),
        TableStatement::Alter(alter) => format!("ALTER TABLE {}", alter.table.text),
        TableStatement::Drop { table, .. } => format!("DROP TABLE {}", table.text),
        TableStatement::CreateIndex(create) => {
            format!("CREATE INDEX {} ON {}", create.index.text, create.table.text)
        }
        TableStatement::DropIndex { index, table, .. } => {
            format!("DROP INDEX {} ON {}", index.text, table.text)
        }
    };
    app.note_change(change_text(&text));
    let noted = app.clone();
    let change = app.change(move |engine| {
        let note = |before: Option<&TableSpec>, after: &TableSpec| {
            noted.note_detail(super::tables::audited(before, after));
        };
        Ok(tables::change(engine, statement, &note)?)
    });
    let changed = change.await?;
    // A new index is built by a job.
    app.scheduler.plan_soon();
    let action = match changed {
        TableChange::Created => SqlAction::Created,
        TableChange::Exists => SqlAction::Exists,
        TableChange::Altered => SqlAction::Altered,
        TableChange::Dropped => SqlAction::Dropped,
        TableChange::Missing => SqlAction::Missing,
    };
    if matches!(action, SqlAction::Exists | SqlAction::Missing) {
        app.note_change(String::new());
    }
    Ok(done(action, None, id))
}

/// Returns the description of a change for its audit record.
fn change_text(statement: &str) -> String {
    format!("/v1/sql {statement}")
}

/// Returns the description of a delete of rows for its audit record.
fn deleted(condition: Option<&Predicate>) -> String {
    match condition {
        Some(condition) => audit_detail::beginning(&format_args!("condition: {condition}")),
        None => "all rows".to_owned(),
    }
}

/// Returns the response to a statement that returns no rows, with the position of its changes of rows.
fn done(action: SqlAction, position: Option<String>, id: RequestId) -> Response {
    JsonResponse(SqlDone {
        done: action,
        position,
        request_id: id.into(),
    })
    .into_response()
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        let message = error.to_string();
        match error {
            SqlError::Rows(error) => error.into(),
            SqlError::Invalid { .. } => Self::invalid(message),
            SqlError::Refused { .. } => Self::new(ErrorCode::PlanRefused, message),
            SqlError::OverLimit { limit, actual, .. } => Self {
                limit: Some((limit, actual)),
                ..Self::new(ErrorCode::OverLimit, message)
            },
        }
    }
}
