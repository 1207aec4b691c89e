//! `rows/aggregate`: functions of the values of rows, by groups and time windows.
//!
//! The rows are read before the response begins, so that every failure becomes an error status; the groups are then
//! streamed.

use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_aggregate::{AggregateEnd, AggregateRows, RowAggregates};
use tideline_results::ResultFormat;
use tideline_rows::RowsError;
use tideline_rows::aggregate::{AggregateWriter, Aggregation};
use tideline_rows::search::finds_only_cold;
use utoipa::IntoParams;

use super::{put, put_end, put_line, read, tier_of};
use crate::context::RequestId;
use crate::extract::{Json, Path, Query};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query::{accepted_format, describe};
use crate::resources::{QueryFailures, WideTablePath};
use crate::stream;

/// Options of aggregates of rows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AggregateQuery {
    /// Form of integers beyond ±2⁵³ in JSON. Default `number`.
    integers: Option<RowIntegers>,
}

/// Aggregate rows
///
/// Computes functions of the values of columns, grouped by up to 8 columns and time windows. The rows are selected by a
/// key prefix and bounds on the key column after it, by listed keys, or by a search index; `where` selects among these
/// rows. All of them are read, whatever their number, in bounded memory; the request ends when its client disconnects.
/// A request can have at most 100,000 groups, and at most 256 MiB of groups and distinct values.
///
/// The result has no pages. With `Accept: application/x-ndjson`, each group is a line, and the last line is the
/// summary. CSV, Arrow and Parquet are tables with the columns of `by`, then `rows`, then one column per function, such
/// as `sum(total)`; decimals are text.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/aggregate", tag = "rows", operation_id = "aggregate_rows",
    params(WideTablePath, AggregateQuery),
    request_body = AggregateRows,
    responses(
        (status = 200, description = "The groups", content(
            (RowAggregates = "application/json"),
            (String = "application/x-ndjson", example = groups_example),
            (String = "text/csv", example = csv_example),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )),
        QueryFailures
    )
)]
pub(super) async fn aggregate(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Query(query): Query<AggregateQuery>,
    headers: HeaderMap,
    Json(request): Json<AggregateRows>,
) -> Result<Response> {
    let format = accepted_format(&headers)?;
    let description = describe(id.clone(), &table, "aggregate", &request);
    let (tier, request) = tier_of(&app, &table, request, is_cold).await?;
    let task = (tier, Some(description));
    read(&app, format.content_type(), task, move |app, reading, writer| {
        let table = app.engine.table_of_rows(&table)?;
        let aggregation = Aggregation::new(&app.engine, &table, &request)?;
        let (shape, groups) = aggregation.run(&app.engine, &table, &|| reading.is_stopped())?;
        let integers = query.integers.unwrap_or_default();
        let output = AggregateWriter::new(&shape, &groups, format, integers)?;
        match format {
            ResultFormat::Json => {
                put(writer, b"{\"groups\":[")?;
                output.write(&mut *writer, &[])?;
                #[derive(Serialize)]
                struct End<'e> {
                    #[serde(flatten)]
                    end: &'e AggregateEnd,
                    request_id: String,
                }
                put_end(
                    writer,
                    &End {
                        end: &groups.end,
                        request_id: id.into(),
                    },
                )
            }
            ResultFormat::Ndjson => {
                output.write(&mut *writer, &[])?;
                put_line(writer, &groups.end).map_err(stream::client_left)
            }
            ResultFormat::Csv | ResultFormat::Columnar(_) => {
                let summary = serde_json::to_string(&groups.end).unwrap_or_default();
                let notes = [("tideline.request_id", id.into()), ("tideline.summary", summary)];
                Ok(output.write(writer, &notes)?)
            }
        }
    })
    .await
}

/// Returns true if an aggregate reads rows in cold or archived parts. For a search, returns true only if it can find no
/// other rows, because the tiers of the found rows are known only after the search.
fn is_cold(
    engine: &Engine,
    table: &WideTable,
    request: &AggregateRows,
) -> std::result::Result<bool, RowsError> {
    match &request.search {
        Some(search) => Ok(finds_only_cold(table, search.index.as_deref(), request.tier)),
        None => Aggregation::new(engine, table, request)?.reaches_cold(engine, table),
    }
}

fn groups_example() -> &'static str {
    "{\"key\":{\"state\":\"paid\"},\"rows\":2,\"metrics\":{\"total\":{\"sum\":\"60.4\"}}}\n{\"rows\":2,\"scanned\":2,\"other_types\":0,\"estimated\":[]}\n"
}

fn csv_example() -> &'static str {
    "state,rows,sum(total)\r\npaid,2,60.4\r\n"
}

fn columnar_example() -> &'static str {
    "state: string, rows: uint64, sum(total): string"
}
