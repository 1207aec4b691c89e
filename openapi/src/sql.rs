//! SQL statements on wide tables, and their results.
//!
//! Parameters are kept as unparsed JSON, because the columns determine their types.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::row::{PageEnd, RowsReport};

/// SQL statement with its parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "statement": "SELECT placed, total FROM orders WHERE customer = ? AND placed >= ? LIMIT 10",
    "params": ["acme", "2026-11-20T00:00:00Z"]
}))]
pub struct SqlRequest {
    /// One statement, at most 1 MiB.
    pub statement: String,
    /// Values of the placeholders `?`, in their order; at most 100,000. A value has the JSON form of the type of its
    /// column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<serde_json::Value>)]
    pub params: Vec<Box<RawValue>>,
    /// Token `next` of the previous page. Statement and parameters must be unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Result of a statement: rows, outcomes of written rows, or the effect of the statement.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(example = json!({
    "rows": [{"placed": "2026-11-20T12:00:00Z", "total": "5.32"}],
    "scanned": 1, "returned": 1, "next": null, "request_id": "01jd3k5w8v-000002a1"
}))]
pub enum SqlResult {
    /// Result of `SELECT`, `EXPLAIN`, `SHOW` and `DESCRIBE`.
    Rows(SqlRows),
    /// Result of `UPSERT`, `INSERT`, `UPDATE`, and of `DELETE` by whole keys.
    Written(RowsReport),
    /// Result of other statements.
    Done(SqlDone),
}

/// Page of the rows of a result.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SqlRows {
    /// Rows: names and values of the result columns. A value has the JSON form of its type; `null` if the row does not
    /// have the column.
    #[schema(value_type = Vec<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub rows: Vec<Box<RawValue>>,
    /// Row counts of the page, and the token of the next page.
    #[serde(flatten)]
    pub end: SqlEnd,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Row counts of a returned page or result, and the token of the next page. In NDJSON, this is the last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SqlEnd {
    /// Number of rows and deletions that were read.
    pub scanned: u64,
    /// Number of rows in the response.
    pub returned: u64,
    /// Token of the next page; `null` at the end. The last page of `COUNT(*)` has the whole count.
    pub next: Option<String>,
    /// Reason why the page ended before the end of the result. Omitted at the end of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<PageEnd>,
}

/// Result of a statement that returns no rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"done": "created", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct SqlDone {
    /// Effect of the statement.
    pub done: SqlAction,
    /// Position of a delete of ranges. A search with this value as `at_least` does not find the deleted rows. Omitted for
    /// other statements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Effect of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SqlAction {
    /// The table was created.
    Created,
    /// The table exists already; nothing was changed.
    Exists,
    /// The table was altered.
    Altered,
    /// The table was dropped.
    Dropped,
    /// The table does not exist; nothing was changed.
    Missing,
    /// All rows of the ranges were deleted.
    Deleted,
}
