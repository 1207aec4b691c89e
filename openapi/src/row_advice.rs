//! Advice on wide tables: design of keys, columns and indexes, and access paths of queries.
//!
//! Each piece of advice has a code, which is stable across versions, a measured figure and a recommended change.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::RowFilter;

/// Code of a piece of advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdviceCode {
    /// The first key column rises, so all writes go to the end of the table.
    RisingKey,
    /// All rows belong to few partitions.
    FewPartitions,
    /// A partition has more than 8 GiB.
    LargePartition,
    /// A partition has a large share of the load of the last minute.
    HotPartition,
    /// Keys are longer than 1 KiB.
    LongKeys,
    /// The key has more than 64 buckets.
    ManyBuckets,
    /// A column of the type `f64` is named like an amount of money.
    FloatMoney,
    /// Rows have more than 10,000 columns.
    WideRows,
    /// Large columns are stored with the row, although few reads and updates need them.
    ColumnGroup,
    /// Most reads need the columns of a group, so they read the group in addition to the row.
    GroupAlwaysRead,
    /// Reads go through many delete markers.
    DeleteMarkers,
    /// A secondary index is written and never read.
    UnusedIndex,
    /// Reads of a secondary index read the row of each entry, because it covers no columns.
    IndexCoversNothing,
    /// A column of a search index is never searched.
    UnsearchedColumn,
    /// Rows expire one by one, although their key has a time by which the table could be divided.
    TtlWithoutParts,
    /// The number of documents of a search index approaches the recommended maximum.
    LargeSearchIndex,
}

/// Advice on a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"code": "float_money", "subject": "price", "measured": "the column \"price\" has the type f64",
    "advice": "declare amounts of money as decimal, which is exact"}))]
pub struct Advice {
    /// The code.
    pub code: AdviceCode,
    /// Column, index or partition; `null` for the table.
    pub subject: Option<String>,
    /// Measured figure or setting.
    pub measured: String,
    /// Recommended change.
    pub advice: String,
}

/// Advice on a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"is_small": true, "requests_per_second": 12.0, "bytes": 96_000, "surveyed": null, "withheld": 1,
    "advice": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct TableAdvice {
    /// True if the table has less than 1,000 requests per second and less than 10 GB: such a table needs no tuning, so
    /// its advice is withheld unless the request has `all=true`.
    pub is_small: bool,
    /// Requests per second in the last minute.
    pub requests_per_second: f64,
    /// Bytes of the rows according to the last survey, plus the bytes of the row buffer.
    pub bytes: u64,
    /// Time of the last survey, on which sizes are based; `null` if there was none since the start of the server.
    pub surveyed: Option<String>,
    /// Number of pieces of advice that are withheld because the table is small.
    pub withheld: u64,
    /// The advice, by code.
    pub advice: Vec<Advice>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Query of a sample.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"where": {"column": "state", "equals": "paid"}, "sort": ["placed"]}))]
pub struct SampleQuery {
    /// Condition on columns of the rows and of the key.
    #[serde(rename = "where")]
    pub filter: RowFilter,
    /// Columns by which the result is sorted. Default: any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<String>,
}

/// Sample of queries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"queries": [{"where": {"column": "state", "equals": "paid"}, "sort": ["placed"]}]}))]
pub struct AdviseQueries {
    /// The queries, at most 100.
    pub queries: Vec<SampleQuery>,
}

/// Access path that fits a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueryPath {
    /// One row by its key.
    Key,
    /// A range of the primary key, without further tests.
    KeyRange,
    /// A small range of the primary key, whose rows are tested.
    SmallRange,
    /// A range of a secondary index: for a fixed combination of columns.
    SecondaryIndex,
    /// A search index: for free combinations, alternatives, words, patterns and areas.
    SearchIndex,
}

/// Advice on a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"path": "secondary_index", "index": "by_state", "exists": true, "estimated_rows": 1_000,
    "reason": "the first columns of the index are tested for equality"}))]
pub struct QueryAdvice {
    /// The path.
    pub path: QueryPath,
    /// Name of the index of the path, or of the first definition in `create_indexes` or `create_search_indexes` that
    /// serves the query. Omitted for paths of the primary key, and if the table has the maximum number of such indexes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// True if the path can be used now; false if the index must be created.
    pub exists: bool,
    /// Estimated number of rows or entries that the path reads; `null` if it does not exist.
    pub estimated_rows: Option<u64>,
    /// Reason for the choice.
    pub reason: String,
}

/// Advice on a sample of queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"queries": [{"path": "key_range", "exists": true, "estimated_rows": 42,
    "reason": "the condition is a range of the primary key"}], "create_indexes": [], "create_search_indexes": [],
    "undeclared": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct QueriesAdvised {
    /// Advice on each query, in the order of the sample.
    pub queries: Vec<QueryAdvice>,
    /// Bodies of `POST /v1/tables/{table}/indexes` that create the missing secondary indexes.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub create_indexes: Vec<serde_json::Value>,
    /// Bodies of `POST /v1/tables/{table}/search-indexes` that create the missing search index, or that replace an
    /// existing one by an index with more columns (`replace`).
    #[schema(value_type = Vec<serde_json::Value>)]
    pub create_search_indexes: Vec<serde_json::Value>,
    /// Columns that must be declared with a type before an index can hold them.
    pub undeclared: Vec<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
