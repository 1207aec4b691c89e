//! Rows as CSV, Arrow streams and Parquet files.
//!
//! A request with a limit of up to 10,000 rows gets a page, which is complete before the response begins, so that
//! headers can state where the next page starts. Every other request streams its rows in bounded memory.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::{GetRows, ScanEnd, ScanRows};
use tideline_query::Cancel;
use tideline_results::ResultFormat;
use tideline_results::columnar::ColumnarForm;
use tideline_rows::read::{PAGE_BYTES_MAX, PAGE_ROWS_MAX, PAGE_SCANNED_MAX, get_stored, keys_of};
use tideline_rows::tabular::{TableColumns, TabularWriter};
use tideline_rows::{Page, PageLimits, Scan, Selection};

use super::{
    ReadQuery, RowReading, RowTier, has_cold_keys, in_tier, is_cold_scan, read, scan_terms, tier_of,
};
use crate::app::{Waiting, blocking};
use crate::context::{RequestId, current_client};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::running::Description;

const SCANNED: HeaderName = HeaderName::from_static("tideline-scanned");
const RETURNED: HeaderName = HeaderName::from_static("tideline-returned");
const NEXT: HeaderName = HeaderName::from_static("tideline-next");
const REASON: HeaderName = HeaderName::from_static("tideline-reason");

/// Memory that a page reserves, in bytes: its largest output, and one more row of the largest size.
const PAGE_MEMORY_BYTES: u64 = PAGE_BYTES_MAX + (16 << 20);

/// Format of a table; `None` for CSV.
type TableForm = Option<ColumnarForm>;

/// Returns the table form of a result format; `None` for the JSON formats, which are not tables.
pub(super) fn table_form(format: ResultFormat) -> Option<TableForm> {
    match format {
        ResultFormat::Json | ResultFormat::Ndjson => None,
        ResultFormat::Csv => Some(None),
        ResultFormat::Columnar(form) => Some(Some(form)),
    }
}

/// Returns an error if the request has a member that tables of rows cannot represent. `members` holds the names of
/// these members, each with a flag that is true if the request has the member.
fn check(members: &[(&str, bool)]) -> Result<()> {
    match members.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::invalid(format!(
            "this format contains the newest values of columns only; for {name}, use application/json or \
             application/x-ndjson"
        ))),
    }
}

/// Scans rows as a table.
pub(super) async fn scan(
    app: &Grant,
    id: RequestId,
    table: String,
    query: &ReadQuery,
    request: ScanRows,
    format: ResultFormat,
) -> Result<Response> {
    check(&[
        ("versions", request.versions.is_some()),
        ("version_range", request.version_range.is_some()),
        ("revisions", request.revisions),
        ("inline_bytes", query.inline_bytes.is_some()),
    ])?;
    if request.limit == Some(0) {
        return Err(Failure::invalid("limit is 0; it must be at least 1"));
    }
    let is_cold = |engine: &Engine, table: &WideTable, request: &ScanRows| {
        is_cold_scan(engine, table, &scan_terms(request))
    };
    let (tier, request) = tier_of(app, &table, request, is_cold).await?;
    let plan = Plan {
        id,
        table,
        decimal_scale: query.decimal_scale,
        form: table_form(format).flatten(),
        request,
    };
    let description = describe(plan.id.clone(), &plan.table, "scan", &plan.request);
    if plan.request.limit.is_some_and(|limit| limit <= PAGE_ROWS_MAX) {
        return page(app, plan, tier, description, format).await;
    }
    let task = (tier, Some(description));
    read(app, format.content_type(), task, move |app, reading, writer| {
        let limits = PageLimits {
            rows: plan.request.limit,
            scanned: None,
            bytes: None,
        };
        plan.write(app, reading, limits, writer).map(drop)
    })
    .await
}

/// Returns one page with headers that describe its end.
async fn page(
    app: &Grant,
    plan: Plan,
    tier: RowTier,
    description: Description,
    format: ResultFormat,
) -> Result<Response> {
    let permit = tier.permits(app).take(current_client()).await?;
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let running = app.clone();
    let (body, page) = blocking(move || {
        let _permit = permit;
        let listed = &running.running;
        let _listed = listed.list(&running.engine, description, cancel.clone());
        let _memory = running
            .engine
            .memory()
            .reserve("pages of rows", PAGE_MEMORY_BYTES)?;
        let limits = PageLimits {
            rows: plan.request.limit,
            scanned: Some(PAGE_SCANNED_MAX),
            bytes: Some(PAGE_BYTES_MAX),
        };
        in_tier(&running, &cancel, tier, |reading| {
            let mut body = Vec::new();
            let page = plan.write(&running, reading, limits, &mut body)?;
            Ok((body, page))
        })
    })
    .await?;
    let mut response = ([(header::CONTENT_TYPE, format.content_type())], body).into_response();
    let headers = response.headers_mut();
    headers.insert(SCANNED, page.scanned.into());
    headers.insert(RETURNED, page.returned.into());
    if let Some(next) = page.next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        headers.insert(NEXT, next);
    }
    if let Some(reason) = page.reason {
        headers.insert(REASON, HeaderValue::from_static(reason.name()));
    }
    Ok(response)
}

/// Scan whose rows are written as a table.
struct Plan {
    id: RequestId,
    table: String,
    decimal_scale: Option<u8>,
    form: TableForm,
    request: ScanRows,
}

impl Plan {
    /// Writes the rows.
    fn write<W: std::io::Write + Send>(
        self,
        app: &Grant,
        reading: &RowReading<'_>,
        limits: PageLimits,
        out: W,
    ) -> Result<Page> {
        let Self {
            id, table, request, ..
        } = self;
        let table = app.engine.table_of_rows(&table)?;
        let columns = request.columns.as_deref();
        let selection = Selection::new(columns, None, None, Default::default(), app.engine.now())?;
        let scan = Scan::new(&app.engine, &table, &scan_terms(&request), &selection)?;
        let columns = TableColumns::new(&table, columns, self.decimal_scale)?;
        let mut writer = TabularWriter::new(out, self.form, columns)?;
        let page = scan.stored_page(
            &app.engine,
            &table,
            limits,
            &|| reading.is_stopped(),
            &mut |row| writer.row(&table, row),
        )?;
        let end = ScanEnd {
            scanned: page.scanned,
            returned: page.returned,
            next: page.next.clone(),
            reason: page.reason,
            revision: None,
        };
        writer.end(&notes(id, &end))?;
        Ok(page)
    }
}

/// Returns the metadata of a Parquet file.
fn notes(id: RequestId, end: &impl serde::Serialize) -> [(&'static str, String); 2] {
    [
        ("tideline.request_id", id.into()),
        ("tideline.summary", serde_json::to_string(end).unwrap_or_default()),
    ]
}

/// Reads rows by their keys as a table. Missing rows are omitted.
pub(super) async fn get(
    app: &Grant,
    id: RequestId,
    table: String,
    query: &ReadQuery,
    request: GetRows,
    format: ResultFormat,
) -> Result<Response> {
    check(&[
        ("versions", request.versions.is_some()),
        ("version_range", request.version_range.is_some()),
        ("column_range", request.column_range.is_some()),
        ("column_limit", request.column_limit.is_some()),
        ("revisions", request.revisions),
        ("inline_bytes", query.inline_bytes.is_some()),
    ])?;
    let (form, scale) = (table_form(format).flatten(), query.decimal_scale);
    let description = describe(id.clone(), &table, "get", &request);
    let (tier, request) = tier_of(app, &table, request, has_cold_keys).await?;
    let task = (tier, Some(description));
    read(app, format.content_type(), task, move |app, reading, writer| {
        let table = app.engine.table_of_rows(&table)?;
        let keys = keys_of(&table, &request)?;
        let listed = request.columns.as_deref();
        let selection = Selection::new(listed, None, None, Default::default(), app.engine.now())?;
        let columns = TableColumns::new(&table, listed, scale)?;
        let mut rows = TabularWriter::new(writer, form, columns)?;
        let is_stopped = || reading.is_stopped();
        get_stored(&app.engine, &table, &keys, &selection, &is_stopped, &mut |row| {
            rows.row(&table, row).map(drop)
        })?;
        let found = serde_json::json!({"found": rows.rows()});
        Ok(rows.end(&notes(id, &found))?)
    })
    .await
}
