//! `rows/explain`: access path and estimated rows of a read, without running it.
//!
//! The request holds a query permit, because an estimate reads up to tens of thousands of rows, and a search is counted
//! for up to two seconds.

use axum::Json as JsonResponse;
use tideline_openapi::row_explain::{ExplainRows, RowsExplained};
use tideline_rows::explain::explain as explain_rows;

use super::{RowTier, answer};
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::{Failures, WideTablePath};

/// Explain a read of rows
///
/// The request contains the body of `rows/get`, `rows/scan`, `rows/count`, `rows/search`, `rows/facets` or
/// `rows/aggregate` as the member `get`, `scan`, `count`, `search`, `facets` or `aggregate`.
/// The response contains the access path, the ranges and bounds, the columns that are tested on each row, and the
/// number of rows. The number is exact if at most 2,000 rows must be read; otherwise it is estimated from at most
/// 30,000 more rows. Keys of `get` are looked up.
///
/// For a read through a search index, `search` describes how the index decides each test of the condition, the number of
/// rows that pass, the columns that are read for each row that matches, the expected number of rows that are read from
/// the table, and the changes that the index does not hold yet. Rows in the index are counted exactly, for at most two
/// seconds. The request does not wait for `at_least`.
///
/// `advice` lists the reasons why the read or the key is expensive: scans of the whole table, long keys (more than
/// 1 KiB, or most of the row), JSON in keys, a partition column with only two values, too many buckets. A read that
/// needs `allow_scan` is explained even if `allow_scan` is not set.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/explain", tag = "rows", operation_id = "explain_rows",
    params(WideTablePath),
    request_body = ExplainRows,
    responses((status = 200, description = "The explanation", body = RowsExplained), Failures)
)]
pub(super) async fn explain(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Json(request): Json<ExplainRows>,
) -> Result<JsonResponse<RowsExplained>> {
    let description = describe(id.clone(), &table, "explain", &request);
    let explained = answer(
        &app,
        description,
        RowTier::Hot,
        move |engine, table, is_stopped| {
            let explained = explain_rows(engine, table, &request, is_stopped)?;
            Ok(RowsExplained {
                request_id: id.into(),
                ..explained
            })
        },
    );
    explained.await.map(JsonResponse)
}
