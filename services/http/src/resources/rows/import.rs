//! `rows/import`: writes the rows of a file.
//!
//! The body is read while it arrives, and each entry is written as soon as it is complete, so memory does not depend
//! on the size of the file. Only Parquet files are held as a whole, within the limits of bodies. The response is sent
//! at the end, because many clients read it only after they have sent the whole body.

use std::collections::BTreeMap;

use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use tideline_connections::BodyBytes;
use tideline_openapi::row::{ImportEnd, RowOperation};
use tideline_openapi::table::Durability;
use tideline_openapi::unique::UniqueMap;
use tideline_openapi::{ErrorBody, ErrorCode};
use tideline_query::Cancel;
use tideline_rows::WriteSettings;
use tideline_rows::import::{
    COLUMNAR_MEMORY_BYTES, ImportSettings, ImportSource, TEXT_MEMORY_BYTES, import as import_rows,
};
use utoipa::IntoParams;

use super::{NDJSON, columnar_example};
use crate::app::{Waiting, blocking};
use crate::body;
use crate::context::{RequestId, current_client};
use crate::extract::{Path, Query, content_type};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::ingest::request_key;
use crate::resources::{Failures, WideTablePath};

/// Maximum number of unwritten records that a response lists.
const LISTED_MAX: u64 = 10_000;
/// Size in bytes at which the list of unwritten records ends; further records are only counted. The list is held in
/// memory until the end of the import.
const LISTED_BYTES_MAX: usize = 3 << 20;

/// Options of an import of rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ImportQuery {
    /// JSON object that maps the names of file columns to the names of table columns; `null` ignores a column. Other
    /// columns keep their names.
    #[param(example = "{\"Customer No\":\"customer\",\"internal\":null}")]
    map: Option<String>,
    /// `put` replaces rows, `update` changes the columns that a record has. Default `put`.
    op: Option<RowOperation>,
    /// Durability of the acknowledgement. Default: the setting of the table.
    durability: Option<Durability>,
}

/// Format of a file, by its content type.
#[derive(Debug, Clone, Copy)]
enum FileFormat {
    Csv,
    Lines,
    Arrow,
    Parquet,
}

/// Body that is held in memory as a whole.
struct Whole(BodyBytes);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Import rows
///
/// Writes the records of a file as rows: CSV with a header line, NDJSON, an Arrow stream, or a Parquet file. A
/// column of the file is mapped to the key column or column of the same name, or to the column that `map`
/// specifies; values have the declared types. A column whose name ends with `*` holds JSON objects whose members
/// are columns, so that exported tables can be imported. Lines of NDJSON have the form of rows,
/// `{"key": {…}, "columns": {…}}`, or are flat objects. In CSV, an empty cell without quotes is a missing value,
/// and `""` is an empty text. A text in an undeclared column becomes a `string`.
///
/// The body may have any size, except for Parquet: a Parquet file has its directory at the end, so it is limited like
/// other bodies, and each of its row groups is limited to 256 MiB. A text record has at most 16 MiB, and an Arrow batch
/// at most 32 MiB. The server cuts the records into entries of 1,000 rows or 1 MiB. A record that is not valid is
/// refused individually.
///
/// The response is sent after the whole file was read: one line per record that was not written, at most 10,000 lines
/// and 3 MiB, with the number of the record from 0, and a last line with the counts. If the import stops after rows
/// were written, `stopped` contains the error; if it stops before any row was written, the response is the error. With
/// an `Idempotency-Key`, a repeated import writes each entry once.
#[utoipa::path(
    security(("token" = ["write"])),
    post, path = "/v1/tables/{table}/rows/import", tag = "rows", operation_id = "import_rows",
    params(
        WideTablePath,
        ImportQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Key for safe retries; at most 240 bytes")
    ),
    request_body(
        description = "File",
        content(
            (String = "text/csv", example = "customer,placed,total\r\nacme,2026-11-20T12:00:00Z,5.32\r\n"),
            (String = "application/x-ndjson", example = "{\"customer\":\"acme\",\"placed\":\"2026-11-20T12:00:00Z\",\"total\":\"5.32\"}\n"),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )
    ),
    responses(
        (status = 200, description = "Records that were not written, then the counts", content(
            (String = "application/x-ndjson", example = import_example)
        )),
        (status = 409, description = "The same request is still running", body = ErrorBody),
        (status = 413, description = "The Parquet file is too large", body = ErrorBody),
        (status = 415, description = "The content type or encoding is not supported", body = ErrorBody),
        (status = 422, description = "The `Idempotency-Key` was used before with another body", body = ErrorBody),
        (status = 507, description = "The disk is nearly full", body = ErrorBody),
        Failures
    )
)]
pub(super) async fn import(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<ImportQuery>,
    request: Request,
) -> Result<Response> {
    let (format, settings) = match settings(&request, &query) {
        Ok(found) => found,
        Err(failure) => {
            app.bodies.discard(request).await;
            return Err(failure);
        }
    };
    let permit = app.imports.take(current_client()).await?;
    let held = match format {
        FileFormat::Csv | FileFormat::Lines => TEXT_MEMORY_BYTES,
        FileFormat::Arrow | FileFormat::Parquet => COLUMNAR_MEMORY_BYTES,
    };
    let memory = app.engine.memory().reserve("imports of rows", held)?;
    let source = receive(&app, format, request).await?;
    let cancel = Cancel::new();
    let _waiting = Waiting(Some(cancel.clone()));
    let (engine, importing) = (app.engine.clone(), app.clone());
    let body = blocking(move || {
        let _held = (permit, memory);
        let table = engine.wide_table(&table)?;
        let (mut lines, mut listed, mut omitted) = (Vec::new(), 0, 0);
        let imported = import_rows(
            &engine,
            &table,
            source.open()?,
            &settings,
            &|| cancel.is_cancelled() || !importing.is_valid(),
            &mut |outcome| {
                if listed == LISTED_MAX || lines.len() >= LISTED_BYTES_MAX {
                    omitted += 1;
                    return Ok(());
                }
                listed += 1;
                serde_json::to_writer(&mut lines, outcome)?;
                lines.push(b'\n');
                Ok(())
            },
        )?;
        let stopped = imported.stopped.map(Failure::from);
        let end = ImportEnd {
            counts: imported.counts,
            omitted,
            retryable: stopped.as_ref().is_some_and(Failure::is_retryable),
            stopped: stopped.map(|failure| failure.message),
            position: imported.position.map(|position| position.0.to_string()),
            request_id: id.into(),
        };
        serde_json::to_writer(&mut lines, &end).map_err(Failure::invalid)?;
        lines.push(b'\n');
        Ok(lines)
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], body.await?).into_response())
}

fn import_example() -> &'static str {
    "{\"index\":1,\"status\":\"refused\",\"reason\":\"column \\\"total\\\" has the type decimal; found the text \\\"much\\\"\"}\n{\"written\":1,\"condition_failed\":0,\"not_applied\":0,\"refused\":1,\"omitted\":0,\"stopped\":null,\"retryable\":false,\"position\":\"4711\",\"request_id\":\"01jd3k5w8v-000002a1\"}\n"
}

fn settings(request: &Request, query: &ImportQuery) -> Result<(FileFormat, ImportSettings)> {
    let content_type = content_type(request.headers());
    let format = match content_type.as_str() {
        "text/csv" | "application/csv" => FileFormat::Csv,
        NDJSON | "application/ndjson" | "application/jsonl" => FileFormat::Lines,
        "application/vnd.apache.arrow.stream" => FileFormat::Arrow,
        "application/vnd.apache.parquet" => FileFormat::Parquet,
        other => {
            return Err(Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!(
                    "content type {other:?} is not supported; use text/csv, {NDJSON}, \
                     application/vnd.apache.arrow.stream or application/vnd.apache.parquet"
                ),
            ));
        }
    };
    let map = match query.map.as_deref() {
        None => BTreeMap::new(),
        Some(map) => {
            let map: UniqueMap<Option<String>> = serde_json::from_str(map).map_err(|error| {
                Failure::invalid(format!(
                    "map is not a JSON object from names to names or null: {error}"
                ))
            })?;
            map.0
        }
    };
    let is_update = match query.op.unwrap_or(RowOperation::Put) {
        RowOperation::Put => false,
        RowOperation::Update => true,
        RowOperation::Delete => return Err(Failure::invalid("op is delete; it must be put or update")),
    };
    let write = WriteSettings {
        durability: query.durability.map(Into::into),
        key: request_key(request.headers())?,
        ..WriteSettings::default()
    };
    Ok((
        format,
        ImportSettings {
            write,
            map,
            is_update,
        },
    ))
}

/// Body of an import.
enum Received {
    Stream(FileFormat, Box<dyn std::io::Read + Send>),
    Whole(tideline_connections::ReceivedBody),
}

async fn receive(app: &Grant, format: FileFormat, request: Request) -> Result<Received> {
    match format {
        FileFormat::Parquet => {
            let limits = body::write_limits(&app.settings);
            Ok(Received::Whole(body::receive(request, app, limits).await?))
        }
        _ => Ok(Received::Stream(format, app.bodies.stream(request).await?)),
    }
}

impl Received {
    fn open(self) -> Result<ImportSource> {
        Ok(match self {
            Self::Stream(FileFormat::Csv, input) => ImportSource::Csv(input),
            Self::Stream(FileFormat::Arrow, input) => ImportSource::Arrow(input),
            Self::Stream(_, input) => ImportSource::Lines(input),
            Self::Whole(body) => ImportSource::Parquet(Bytes::from_owner(Whole(body.decode()?))),
        })
    }
}
