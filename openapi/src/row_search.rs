//! Search over rows of wide tables: search indexes, searches, facets, and their results.
//!
//! A definition names columns of the table and the form in which each is indexed. Conditions have the same form as in
//! reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tideline_model::{SearchAnalyzer, SearchColumnSpec, SearchForm, SearchIndexSpec};
use utoipa::ToSchema;

use crate::condition::RowFilter;
use crate::facet::FacetOrder;
use crate::geo::LatLon;
use crate::row::Row;
use crate::tier::RowTiers;
use crate::timeline::{SortOrder, TextSpan};

/// Definition of a search index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "all",
    "columns": [
        {"column": "title", "as": "text"}, {"column": "state", "as": "keyword"}, {"column": "total", "as": "keyword"},
        {"column": "total", "as": "number"}, {"column": "placed", "as": "time"}
    ],
    "replace": true
}))]
pub struct CreateSearchIndex {
    /// Name, unique within the table; 1 to 255 bytes.
    pub name: String,
    /// Indexed columns, 1 to 1,000: declared columns of the rows and columns of the key. A column can be listed with
    /// several forms.
    pub columns: Vec<SearchColumn>,
    /// Tiers of the parts whose rows searches find; only for tables that are divided into parts. Default `all`.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// Number of shards over which the rows are divided, 1 to 16. Default 1.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    #[schema(default = 1, minimum = 1, maximum = 16)]
    pub shards: u16,
    /// Columns of the key whose values determine the shard of a row. A search whose condition tests all of them for
    /// `equals` or `in` reads only the shards of these values. Default with several shards: the columns of the
    /// partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing: Vec<String>,
    /// True to replace an index of the same name. The existing index serves searches until the new one is built.
    /// Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// Column of a search index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "title", "as": "text"}))]
pub struct SearchColumn {
    /// Name of the column.
    pub column: String,
    /// Form in which the values are indexed.
    #[serde(rename = "as")]
    pub form: SearchColumnForm,
    /// Way in which texts are split into words; only for `text`: `"words"` (runs of letters and digits), `"cjk"` (pairs
    /// of adjacent characters in Chinese, Japanese and Korean text), `{"language": "english"}` (words reduced to their
    /// stems; also `danish`, `dutch`, `finnish`, `french`, `german`, `italian`, `norwegian`, `portuguese`, `russian`,
    /// `spanish`, `swedish`), or `{"ngram": 3}` (overlapping parts of words with 2 to 4 characters, which find parts of
    /// words; a searched word with fewer characters finds only whole words). Searches for words and phrases are split in
    /// the same way. Default `"words"`.
    #[serde(default, skip_serializing_if = "is_words")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub analyzer: SearchAnalyzer,
}

const fn one_shard() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_one_shard(shards: &u16) -> bool {
    *shards == one_shard()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_words(analyzer: &SearchAnalyzer) -> bool {
    *analyzer == SearchAnalyzer::Words
}

/// Form in which a search index holds the values of a column. A JSON column that holds a list has one value per
/// element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchColumnForm {
    /// Whole texts, decimals or bytes, up to 32 KiB: equality, ranges, patterns, order. Longer values are not found.
    Keyword,
    /// Words of texts: `text` and `phrase`.
    Text,
    /// Integers and doubles: equality, ranges, order.
    Number,
    /// Timestamps: equality, ranges, order.
    Time,
    /// Booleans.
    Bool,
    /// Geo points, as JSON objects with `lat` and `lon`: areas, order by distance.
    Geo,
}

/// State of a search index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchIndexState {
    /// The rows of the table are being indexed. Searches are refused with status 503, or served by the index that this
    /// one replaces.
    Building,
    /// The index is complete.
    Ready,
}

/// Search index of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "all",
    "columns": [{"column": "title", "as": "text"}],
    "tier": "all",
    "shards": 1,
    "routing": [],
    "status": "ready",
    "documents": 10000,
    "rows_read": 10000,
    "waiting": 12,
    "lag_ms": 340,
    "error": null
}))]
pub struct SearchIndexView {
    /// Name.
    pub name: String,
    /// Indexed columns.
    pub columns: Vec<SearchColumn>,
    /// Tiers of the parts whose rows searches find.
    pub tier: RowTiers,
    /// Number of shards over which the rows are divided.
    pub shards: u16,
    /// Columns of the key whose values determine the shard of a row. Empty if the index has one shard.
    pub routing: Vec<String>,
    /// State.
    pub status: SearchIndexState,
    /// Number of rows in the index.
    pub documents: u64,
    /// Number of rows that the running or last build has read since the start of the server.
    pub rows_read: u64,
    /// Number of changes that searches do not find yet.
    pub waiting: u64,
    /// Time in milliseconds since the oldest change in `waiting`; 0 without changes.
    pub lag_ms: u64,
    /// Error of the last update of the index; `null` after a success. After an error, the index is built again. If the
    /// build cannot read rows, for example because the archive is not reachable, it continues when it can.
    pub error: Option<String>,
}

/// Search indexes of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchIndexList {
    /// The search indexes, in the order of their creation. A replacement that is being built follows the index that it
    /// replaces.
    pub search_indexes: Vec<SearchIndexView>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Response with one search index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchIndexDetail {
    /// The search index.
    #[serde(flatten)]
    pub index: SearchIndexView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Search over rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"and": [{"column": "title", "text": "red wine"}, {"column": "total", "gt": 5}]},
    "sort": [{"column": "placed", "order": "descending"}],
    "limit": 20
}))]
pub struct SearchRows {
    /// Name of the search index. May be omitted if the table has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Condition. All tested columns must be in the index, in a form that supports the test. Default: all rows.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Order of the rows, at most 8 keys. Rows with equal values are ordered by their keys. Default: by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<RowSortKey>,
    /// Maximum number of rows, 1 to 1,000. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// True to return the texts that matched, with the positions of the matches. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub highlight: bool,
    /// Tiers of the parts whose rows are found. Default: the tiers that the index covers.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// `position` of a write. The search waits up to 10 seconds until it finds this write; after that, the response is
    /// 503 `unavailable`. A position that no write has returned is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<String>,
    /// `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Sort key of a search over rows. Rows without a value come last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "placed", "order": "descending"}))]
pub struct RowSortKey {
    /// Column, indexed as `keyword`, `number`, `time` or `bool`, or as `geo` with `near`. A row with several values
    /// is ordered by the value that comes first in the order.
    pub column: String,
    /// Form whose values determine the order, for a column that is indexed in several forms. Rows without a value in
    /// this form come last. Default: `keyword` if the column is indexed as `keyword`, otherwise `number`, `time` or
    /// `bool`, in the order of the index.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SearchColumnForm>,
    /// Order by the distance from this geo point to the nearest geo point in the column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<LatLon>,
    /// Direction. Default: lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SortOrder>,
}

/// Row that a search found.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FoundRow {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// Distances in meters, for sort keys with `near`, in their order; `null` for a row without a geo point. Omitted
    /// without such keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Option<f64>>,
    /// With `highlight`: texts that matched. Omitted otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<RowHighlight>,
}

/// Text of a row that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"column": "title", "text": "Red wine", "spans": [{"start": 0, "end": 3}]}))]
pub struct RowHighlight {
    /// Column that contains the text, alone or as an element of a list.
    pub column: String,
    /// Text.
    pub text: String,
    /// Matching parts of the text, in increasing order.
    pub spans: Vec<TextSpan>,
}

/// Page of a search over rows.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({
    "rows": [{"key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "columns": {"total": "5.32"}}],
    "total": 1,
    "waiting": 0,
    "lag_ms": 0,
    "next": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowsSearched {
    /// Rows in the order of the search, each in its current state. A row that no longer matches is omitted, so a
    /// page can have fewer rows than its limit although more follow.
    pub rows: Vec<FoundRow>,
    /// Summary.
    #[serde(flatten)]
    pub end: SearchEnd,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Summary of a page of a search over rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchEnd {
    /// Number of rows in the index that match, on all pages.
    pub total: u64,
    /// Number of changes that the search did not include yet.
    pub waiting: u64,
    /// Time in milliseconds since the oldest change in `waiting`; 0 without changes.
    pub lag_ms: u64,
    /// Tiers that the search covered: those that both the request and the index include. Absent if it covered all
    /// tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<RowTiers>,
    /// Shards of the index that the search read. Absent if the index has one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardsRead>,
    /// Token of the next page; `null` at the end.
    pub next: Option<String>,
}

/// Shards of a search index that a search read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"read": 1, "total": 4}))]
pub struct ShardsRead {
    /// Number of shards that were read: those that can have rows that match the condition.
    pub read: u64,
    /// Number of shards of the index.
    pub total: u64,
}

/// Counts of rows by values of a search index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"column": "title", "text": "wine"},
    "by": [{"column": "state"}, {"column": "placed", "interval": "1d"}],
    "metrics": [{"column": "total", "functions": ["sum", "mean", {"percentile": 95}]}],
    "limit": 10
}))]
pub struct FacetRows {
    /// Name of the search index. May be omitted if the table has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Condition. All tested columns must be in the index, in a form that supports the test. Default: all rows.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Keys, at most 4. Groups of the first key contain groups of the second, and so on. Without keys, all rows are one
    /// group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<RowFacetKey>,
    /// Metrics of each group, for at most 16 columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<RowMetric>,
    /// Maximum number of groups in each list, 1 to 10,000. Default 10. A result with more than 100,000 groups in all
    /// lists together is an error. It is also an error if more than 1,000,000 groups must be counted, or 20,000 with
    /// percentiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Order of groups.
    #[serde(default)]
    pub order: FacetOrder,
    /// Tiers of the parts whose rows are found. Default: the tiers that the index covers.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// `position` of a write. The count waits up to 10 seconds until it includes this write; after that, the response
    /// is 503 `unavailable`. A position that no write has returned is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<String>,
}

/// Key to group rows by. A row with several values is counted in the group of each of these values. A row without a
/// value is counted in the group `null`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "state"}))]
pub struct RowFacetKey {
    /// Column of the index. Without `interval`, `near` and `grid`: the values of a column indexed as `keyword`, `number`,
    /// `time` or `bool`.
    pub column: String,
    /// Form whose values are counted, for a column that is indexed in several forms. Rows without a value in this form
    /// are counted in the group `null`. Default: `keyword` if the column is indexed as `keyword`, otherwise `number`,
    /// `time` or `bool`, in the order of the index.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SearchColumnForm>,
    /// Width of intervals: a number for a column indexed as `number`. For `time`, a duration such as `"15m"`, or a
    /// number of calendar days, weeks (from Monday), months or years: `"1d"`, `"1w"`, `"1mo"`, `"1y"`. The value of a
    /// group is the start of its interval; intervals of numbers and durations start at multiples of the width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub interval: Option<serde_json::Value>,
    /// Time zone of intervals of days, weeks, months or years: an IANA name such as `Europe/Berlin`. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Center of rings, for a column indexed as `geo`, with `meters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<LatLon>,
    /// Radii of the rings in meters, 1 to 100, in increasing order. A row is in the first ring that reaches its nearest
    /// geo point. The value of a group is the radius, or `"beyond"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<f64>,
    /// Width of grid cells in degrees, 0.0001 to 90, for a column indexed as `geo`. The value of a group is the
    /// south-west corner of its cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<f64>,
}

/// Metrics of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "total", "functions": ["sum", "mean", {"percentile": 95}]}))]
pub struct RowMetric {
    /// Column indexed as `number` or `time`.
    pub column: String,
    /// Functions of the values of the column, 1 to 16.
    pub functions: Vec<RowFunction>,
}

/// Function of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowFunction {
    /// Number of values.
    Count,
    /// Sum. Not for times.
    Sum,
    /// Mean.
    Mean,
    /// Lowest value.
    Min,
    /// Highest value.
    Max,
    /// Percentile, 0 to 100: a value that is greater than this percentage of the values, with a relative error
    /// of at most 1 %. Not for times.
    Percentile(f64),
}

/// Facets of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "rows": 12, "metrics": {"total": {"sum": 80.5}}, "distinct": 2,
    "groups": [
        {"value": "open", "rows": 8, "metrics": {"total": {"sum": 60.25}}},
        {"value": "paid", "rows": 4, "metrics": {"total": {"sum": 20.25}}}
    ],
    "waiting": 0, "lag_ms": 0,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowFacetList {
    /// Number of rows that match.
    pub rows: u64,
    /// Metrics of all rows that match: column, function, value. A function without values is `null`; a value that is not
    /// finite is `"NaN"`, `"Infinity"` or `"-Infinity"`.
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, serde_json::Value>>)]
    pub metrics: Metrics,
    /// Number of groups of the first key, including those beyond the limit.
    pub distinct: u64,
    /// Groups of the first key in order, up to the limit.
    pub groups: Vec<RowFacetGroup>,
    /// Number of changes that the count did not include yet.
    pub waiting: u64,
    /// Time in milliseconds since the oldest change in `waiting`; 0 without changes.
    pub lag_ms: u64,
    /// Tiers that the count covered: those that both the request and the index include. Absent if it covered all tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<RowTiers>,
    /// Shards of the index that the count read. Absent if the index has one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardsRead>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Metrics by column and function.
pub type Metrics = BTreeMap<String, BTreeMap<String, serde_json::Value>>;

/// Rows with one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowFacetGroup {
    /// Value; `null` for rows without a value. Doubles that are not finite are `"NaN"`, `"Infinity"` and `"-Infinity"`.
    #[schema(value_type = Option<serde_json::Value>)]
    pub value: serde_json::Value,
    /// Number of rows.
    pub rows: u64,
    /// Metrics of the rows.
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, serde_json::Value>>)]
    pub metrics: Metrics,
    /// Number of groups inside this one, including those beyond the limit. Absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// Groups inside this one by the next key. Absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub groups: Option<Vec<RowFacetGroup>>,
}

impl From<SearchColumn> for SearchColumnSpec {
    fn from(column: SearchColumn) -> Self {
        Self {
            column: column.column,
            form: column.form.into(),
            analyzer: column.analyzer,
        }
    }
}

impl From<&SearchColumnSpec> for SearchColumn {
    fn from(column: &SearchColumnSpec) -> Self {
        Self {
            column: column.column.clone(),
            form: column.form.into(),
            analyzer: column.analyzer,
        }
    }
}

impl From<CreateSearchIndex> for SearchIndexSpec {
    fn from(index: CreateSearchIndex) -> Self {
        Self {
            id: 0,
            name: index.name,
            columns: index.columns.into_iter().map(Into::into).collect(),
            tier: index.tier.into(),
            shards: index.shards,
            routing: index.routing,
        }
    }
}

impl From<SearchColumnForm> for SearchForm {
    fn from(form: SearchColumnForm) -> Self {
        match form {
            SearchColumnForm::Keyword => Self::Keyword,
            SearchColumnForm::Text => Self::Text,
            SearchColumnForm::Number => Self::Number,
            SearchColumnForm::Time => Self::Time,
            SearchColumnForm::Bool => Self::Bool,
            SearchColumnForm::Geo => Self::Geo,
        }
    }
}

impl From<SearchForm> for SearchColumnForm {
    fn from(form: SearchForm) -> Self {
        match form {
            SearchForm::Keyword => Self::Keyword,
            SearchForm::Text => Self::Text,
            SearchForm::Number => Self::Number,
            SearchForm::Time => Self::Time,
            SearchForm::Bool => Self::Bool,
            SearchForm::Geo => Self::Geo,
        }
    }
}
