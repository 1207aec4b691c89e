//! `rows/why`: data that is stored for a key, and the reasons why reads do not return it.
//!
//! Reads one key and its entries in the indexes, and holds a query permit like other reads.

use axum::Json as JsonResponse;
use tideline_openapi::row_why::{RowWhy, WhyRow};
use tideline_rows::why::why as explain_key;

use super::{RowTier, answer};
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::query::describe;
use crate::resources::{Failures, WideTablePath};

/// Explain a key
///
/// Returns everything that is stored for a key: the layers (row buffer, single row, row in a block), the versions
/// of its columns, its part, and its entries in the secondary and search indexes. Data that reads do not return has
/// `hidden`: the `code` of the rule, the time from which the rule applies, and the rule in words. With `where`,
/// each test of the condition is evaluated on the row.
///
/// At most 1,000 columns and 10,000 versions are listed; `columns_total` and `versions_total` count all. A condition
/// has at most 100 tests. Data that a flush has removed, such as replaced rows, cannot be explained any more.
#[utoipa::path(
    security(("token" = ["read"])),
    post, path = "/v1/tables/{table}/rows/why", tag = "rows", operation_id = "why_row",
    params(WideTablePath),
    request_body = WhyRow,
    responses((status = 200, description = "The explanation", body = RowWhy), Failures)
)]
pub(super) async fn why(
    app: Grant,
    id: RequestId,
    Path(WideTablePath { table }): Path<WideTablePath>,
    Json(request): Json<WhyRow>,
) -> Result<JsonResponse<RowWhy>> {
    let description = describe(id.clone(), &table, "why", &request);
    let explained = answer(
        &app,
        description,
        RowTier::Hot,
        move |engine, table, is_stopped| {
            let explained = explain_key(engine, table, &request, is_stopped)?;
            Ok(RowWhy {
                request_id: id.into(),
                ..explained
            })
        },
    );
    explained.await.map(JsonResponse)
}
