//! Explanations of reads of rows: access paths, estimated rows, advice on keys.
//!
//! A request for an explanation contains the unchanged body of the read, so that a read can be explained before it is
//! sent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::row::{CountRows, GetRows, ScanRows};
use crate::row_aggregate::AggregateRows;
use crate::row_search::{FacetRows, SearchColumnForm, SearchRows, ShardsRead};
use crate::tier::RowTiers;
use crate::timeline::SortOrder;

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
    /// Body of `rows/search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRows>,
    /// Body of `rows/facets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facets: Option<FacetRows>,
    /// Body of `rows/aggregate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateRows>,
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
    /// Rows that a search index finds.
    Search,
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

/// Way in which a search index decides a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestAccess {
    /// Texts or words, looked up in the dictionary of the column. The dictionary has a list of rows for each of them.
    Terms,
    /// Texts in a range of the dictionary, such as those with a common beginning.
    TermRange,
    /// All texts of the dictionary, each of which is tested.
    TermScan,
    /// Texts or words within the edit distance, found in the dictionary.
    FuzzyTerms,
    /// Values of the column in the index: of all rows, or only of the rows that the other tests of the same `and` leave
    /// if these are few.
    Values,
    /// Cells that overlap the area, and the exact geo points of the rows in these cells.
    Area,
    /// Lists of the rows that have a value.
    Presence,
    /// The test needs no data, because no row can pass.
    Nothing,
}

/// Test of a condition, as a search index decides it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "test": "{\"column\":\"title\",\"text\":\"Red wine\"}", "column": "title", "form": "text", "access": "terms",
    "words": ["red", "wine"], "terms": 2, "entries": 5, "rows": 3
}))]
pub struct ExplainedTest {
    /// Test, as JSON.
    pub test: String,
    /// Tested column.
    pub column: String,
    /// Form of the column that decides the test; `null` if any form does.
    pub form: Option<SearchColumnForm>,
    /// Way in which the index decides the test.
    pub access: TestAccess,
    /// Searched words after their analysis, for `text` and `phrase`. Omitted for other tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<String>>,
    /// Number of texts or words of the dictionary whose lists of rows are read, in all segments of the index.
    pub terms: u64,
    /// Number of entries of these lists, or number of rows whose values are read.
    pub entries: u64,
    /// Number of rows that pass the test alone, in the shards that the search reads; `null` if they were not counted in
    /// time. `terms` and `entries` are then lower bounds.
    pub rows: Option<u64>,
}

/// Purpose for which a search reads the values of a column in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnPurpose {
    /// Sort key.
    Sort,
    /// Key to group by.
    Group,
    /// Metric.
    Metric,
}

/// Column whose values in the index are read for each row that matches the condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"column": "placed", "form": "time", "purpose": "sort", "order": "descending"}))]
pub struct ExplainedColumn {
    /// Column.
    pub column: String,
    /// Form whose values are read.
    pub form: SearchColumnForm,
    /// Purpose.
    pub purpose: ColumnPurpose,
    /// Direction of a sort key; omitted for other purposes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SortOrder>,
}

/// Explanation of the use of a search index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "documents": 10000, "segments": 2, "tests": [], "columns": [{"column": "placed", "form": "time", "purpose": "sort",
    "order": "descending"}], "row_reads": 20, "waiting": 0, "lag_ms": 0, "position": "4711"
}))]
pub struct ExplainedSearch {
    /// Number of rows in the index, or in the shards that the search reads.
    pub documents: u64,
    /// Shards of the index that the search reads. Absent if the index has one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardsRead>,
    /// Number of segments of the index or of these shards, each of which is searched separately.
    pub segments: u64,
    /// Tests of the condition, in their order. In an `and`, tests of values and areas are evaluated last.
    pub tests: Vec<ExplainedTest>,
    /// Columns whose values are read for each row that matches: sort keys, groups, metrics. Empty for an order by key.
    pub columns: Vec<ExplainedColumn>,
    /// Expected number of rows that are read from the table: those of a page of a search, all rows of an aggregate, and
    /// none for facets. Each of them is tested again.
    pub row_reads: u64,
    /// Number of changes that the index does not hold yet.
    pub waiting: u64,
    /// Time in milliseconds since the oldest change in `waiting`; 0 without changes.
    pub lag_ms: u64,
    /// `position` up to which the index holds all writes of the table; `null` if it has seen none since it was opened.
    pub position: Option<String>,
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
    /// Name of the secondary index or search index that is read; omitted for the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// True if the entries of the index hold all columns that are read; false if the row of each entry is read as well.
    /// Omitted for the primary key and for a search index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_covered: Option<bool>,
    /// Tiers that the secondary index covers, or whose rows the search finds; omitted for the primary key, and for all
    /// tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_tier: Option<RowTiers>,
    /// Parts of the table that are read or searched; omitted for a table that is not divided into parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ExplainedParts>,
    /// Use of a search index; omitted for other reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<ExplainedSearch>,
    /// Restrictions of the key columns, in the order of the key.
    pub bounds: Vec<String>,
    /// Columns that the condition tests in each row of the ranges, or in each row that a search finds.
    pub filter_columns: Vec<String>,
    /// True if all rows of the table are read.
    pub is_table_scan: bool,
    /// False if the read is refused: it needs `allow_scan`, or the index does not cover the tiers of the parts to read.
    /// `advice` has the reason.
    pub is_allowed: bool,
    /// True if rows are returned in the order of the key columns; false if a hash, a reversed text or a sort key
    /// determines the order, and for facets and aggregates.
    pub is_ordered: bool,
    /// Number of rows that are found: exact, or estimated if there is an `interval`.
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
