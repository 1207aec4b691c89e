//! Explanations of reads of rows: access paths, estimated rows, advice on keys.
//!
//! A request for an explanation contains the unchanged body of the read, so that a read can be explained before it is
//! sent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::row::{CountRows, GetRows, ScanRows};
use crate::tier::RowTiers;

/// Interval of an estimated number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"low": 950_000, "high": 1_050_000}))]
pub struct CountInterval {
    /// Lower end: the estimate minus three standard errors of the sample, but at least the number of rows that were
    /// counted.
    pub low: u64,
    /// Upper end: the estimate plus three standard errors of the sample.
    pub high: u64,
}

/// Read of rows to explain. Exactly one member is required.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"scan": {"prefix": {"customer": "acme"}, "where": {"column": "total", "gt": 5}}}))]
pub struct ExplainRows {
    /// Body of `rows/get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub get: Option<GetRows>,
    /// Body of `rows/scan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanRows>,
    /// Body of `rows/count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<CountRows>,
}

/// Way in which rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessPath {
    /// Each row by its key.
    Keys,
    /// Rows whose first key columns have the requested values.
    Prefix,
    /// Rows whose first key columns have the requested values, and whose next key column is within bounds.
    Range,
    /// All rows of the table.
    TableScan,
    /// No rows: no value is within the bounds.
    Nothing,
}

/// Key column of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedKeyColumn {
    /// Name.
    pub name: String,
    /// Origin of the stored values: `column`, `hash_prefix`, `bucket`, `reverse` or `splice`.
    pub stored: String,
    /// Order in a forward scan: `asc` or `desc`.
    pub order: String,
}

/// Parts of a table that a read accesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"read": 1, "of": 12, "first": "2026-11", "last": "2026-11"}))]
pub struct ExplainedParts {
    /// Number of parts that are read.
    pub read: u64,
    /// Number of visible parts of the table.
    pub of: u64,
    /// Name of the first part that is read; `null` if no part is read.
    pub first: Option<String>,
    /// Name of the last part that is read; `null` if no part is read.
    pub last: Option<String>,
}

/// Explanation of a read of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "access": "prefix", "keys": null, "ranges": 1, "buckets": null, "bounds": ["customer = \"acme\""],
    "filter_columns": ["total"], "is_table_scan": false, "is_allowed": true, "is_ordered": true,
    "estimated_rows": 42, "interval": null, "key": [{"name": "customer", "stored": "column", "order": "asc"}],
    "key_bytes": 18.0, "row_bytes": 96.5, "advice": [], "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowsExplained {
    /// Way in which rows are found.
    pub access: AccessPath,
    /// Number of keys of a read by keys; `null` for other reads.
    pub keys: Option<u64>,
    /// Number of ranges of stored keys that are read.
    pub ranges: u64,
    /// Number of buckets of the key; `null` without a bucket. A scan that does not fix the hashed columns reads one
    /// range in each bucket and merges them.
    pub buckets: Option<u16>,
    /// Name of the secondary index that is read; omitted for the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// True if the entries of the index hold all columns that are read; false if the row of each entry is read as well.
    /// Omitted for the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_covered: Option<bool>,
    /// Tiers that the index covers; omitted for the primary key, and for an index of all tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_tier: Option<RowTiers>,
    /// Parts of the table that are read; omitted for a table that is not divided into parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ExplainedParts>,
    /// Restrictions of the key columns, in the order of the key.
    pub bounds: Vec<String>,
    /// Columns that the condition tests in each row of the ranges.
    pub filter_columns: Vec<String>,
    /// True if all rows of the table are read.
    pub is_table_scan: bool,
    /// False if the read is refused: it needs `allow_scan`, or the index does not cover the tiers of the parts to read.
    /// `advice` has the reason.
    pub is_allowed: bool,
    /// True if rows are returned in the order of the key columns; false if a hash or a reversed text determines the
    /// order.
    pub is_ordered: bool,
    /// Number of rows of the result: exact, or estimated if there is an `interval`.
    pub estimated_rows: u64,
    /// Interval of an estimate; `null` if the number is exact.
    pub interval: Option<CountInterval>,
    /// Stored key columns, in the order in which rows are sorted.
    pub key: Vec<ExplainedKeyColumn>,
    /// Average size of the keys of the first rows, in bytes; 0 without rows.
    pub key_bytes: f64,
    /// Average size of the first rows with their keys, in bytes; 0 without rows.
    pub row_bytes: f64,
    /// Advice on the request and the key.
    pub advice: Vec<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
