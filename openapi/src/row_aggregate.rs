//! Aggregates over rows of wide tables: the rows of a range, of listed keys or of a search, by groups and time windows.
//!
//! The functions have the same names and rules as for points. Functions of a value over time, such as `rate`, are
//! missing, because rows are not points of one timeline.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::RowFilter;
use crate::query::WindowWidth;
use crate::row::{KeyBounds, Members};
use crate::row_search::{Metrics, ShardsRead};
use crate::tier::RowTiers;
use crate::time::DurationText;

/// Aggregates of rows. The rows are selected by a key prefix and bounds of the next key column as in a scan, by a list
/// of keys, or by a search index.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "prefix": {"customer": "acme"},
    "where": {"column": "state", "not_equals": "open"},
    "by": [{"column": "state"}, {"column": "placed", "window": "1mo", "zone": "Europe/Berlin"}],
    "metrics": [{"column": "total", "functions": ["count", "sum", {"percentile": 95}]}]
}))]
pub struct AggregateRows {
    /// Name of the secondary index to whose key `prefix` and `range` apply. Default: the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Values of the first key columns.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub prefix: Members,
    /// Bounds of the next key column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyBounds>,
    /// Tiers of the parts that are read. Cannot be combined with `keys`. Default `all`.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// True to read all rows of the table, without `prefix`, `range`, `keys` and `search`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_scan: bool,
    /// Keys of the rows, at most 2,000, instead of `prefix` and `range`. Rows that do not exist are skipped, and a key
    /// that is listed twice counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<BTreeMap<String, serde_json::Value>>>)]
    pub keys: Option<Vec<Members>>,
    /// Search index that finds the rows that match `where`, instead of `prefix` and `range`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<AggregatedSearch>,
    /// Condition on rows. Default: all rows.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Keys to group by, at most 8. Default: one group of all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<AggregateKey>,
    /// Columns whose values are aggregated, at most 32, each listed once. The number of rows is always returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<AggregateMetric>,
}

/// Search index that finds the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"index": "all"}))]
pub struct AggregatedSearch {
    /// Name of the search index. Optional if the table has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// `position` of a write that the search must find. Waits up to 10 seconds for the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<String>,
}

/// Key to group by: the values of a column, or windows of its times. Rows without a value form one group with the value
/// `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "placed", "window": "1d", "zone": "Europe/Berlin"}))]
pub struct AggregateKey {
    /// Column of the key, or declared column of any type except json; each at most once.
    pub column: String,
    /// Width of windows, for columns with times. The value of a group is the start of its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowWidth>,
    /// Time zone of windows of days, weeks, months or years: an IANA name such as `Europe/Berlin`. Default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Shift of the windows: one window starts at this time after the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<DurationText>,
}

/// Column and the functions of its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "total", "functions": ["sum", {"percentile": 95}]}))]
pub struct AggregateMetric {
    /// Column of the key, or declared column.
    pub column: String,
    /// Functions, at least 1 and at most 16, each once.
    pub functions: Vec<AggregateFunction>,
}

/// Function of the values of a column: a word, or `{"percentile": 95}`. Rows without a value are skipped. `NaN` counts
/// as a value, except for `percentile`, which ignores it, and for `min`, `max` and `spread`, which ignore it unless all
/// values are NaN. A column of json has only `count`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AggregateFunction {
    /// Number of values, of any type.
    Count,
    /// Number of distinct values, exact.
    CountDistinct,
    /// Sum of numbers, in the type of the column: exact for integers and decimals, compensated for doubles. A sum that
    /// does not fit the type is an error.
    Sum,
    /// Arithmetic mean: a double, or a timestamp for a column of timestamps.
    Mean,
    /// Standard deviation of the population of numbers.
    Stddev,
    /// Lowest value.
    Min,
    /// Highest value. Texts and bytes are compared byte by byte.
    Max,
    /// Highest minus lowest number; exact for integers and decimals.
    Spread,
    /// Most frequent value. If several values are equally frequent, the lowest of them.
    Mode,
    /// Value of the row with the lowest key.
    First,
    /// Value of the row with the highest key.
    Last,
    /// Percentile of numbers, 0 to 100: of n sorted values, the value at index (n − 1)·p/100, counted from 0,
    /// interpolated between neighbors. Exact up to 4,096 values per group. Beyond that each neighbor has a relative
    /// error of at most 1/512, and the result lists the function in `estimated`.
    #[schema(example = 95)]
    Percentile(f64),
}

/// Aggregates of rows by group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "groups": [
        {"key": {"state": "paid", "placed": "2026-10-31T23:00:00Z"}, "rows": 2, "metrics": {"total": {"sum": "60.4"}}},
        {"key": {"state": null, "placed": "2026-10-31T23:00:00Z"}, "rows": 1, "metrics": {"total": {"sum": null}}}
    ],
    "rows": 3, "scanned": 12, "other_types": 0, "estimated": [],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowAggregates {
    /// Groups in the order of their values; the value `null` comes last.
    pub groups: Vec<RowAggregateGroup>,
    /// Summary.
    #[serde(flatten)]
    pub end: AggregateEnd,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Rows with the same values of the keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowAggregateGroup {
    /// Values of the keys by column. For a window, its start.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub key: BTreeMap<String, serde_json::Value>,
    /// Number of rows.
    pub rows: u64,
    /// Values by column and function. A function without values is `null`, except for counts, which are 0.
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, serde_json::Value>>)]
    pub metrics: Metrics,
}

/// Summary of aggregates of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AggregateEnd {
    /// Number of rows that were aggregated.
    pub rows: u64,
    /// Number of rows and deletions that were read.
    pub scanned: u64,
    /// Number of values that count as missing because they do not have the type of their column. They were written
    /// before the column was declared.
    pub other_types: u64,
    /// Functions whose result is an estimate in at least one group, such as `percentile_95(total)`.
    pub estimated: Vec<String>,
    /// Number of changes that the search index did not include yet. Absent without `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Time in milliseconds since the oldest change in `waiting`; 0 without changes. Absent without `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    /// Tiers that the search covered. Absent without `search`, and if it covered all tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<RowTiers>,
    /// Shards of the search index that the search read. Absent without `search`, and if the index has one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardsRead>,
}
