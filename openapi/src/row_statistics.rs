//! Statistics of the stored rows of a wide table, and the load of its key ranges.
//!
//! Statistics come from the last survey, which is the background job `survey_rows`. The load is measured over the
//! last minute.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Partition of a table or index.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"partition": {"customer": "acme"}, "rows": 1_000, "bytes": 96_000}))]
pub struct RowPartition {
    /// Values of the key columns that determine the partition.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub partition: Box<RawValue>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
    /// Warning for a partition of more than 8 GiB, with a remedy. Omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Size of a column of the stored rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"name": "description", "bytes": 512_000, "share": 0.83, "stored_bytes": 166_000}))]
pub struct RowColumnSize {
    /// Name of the column; `#` and its number if its declaration was removed.
    pub name: String,
    /// Bytes of the versions of the column before packing, in the measured rows.
    pub bytes: u64,
    /// Share in the bytes of all columns, 0 to 1.
    pub share: f64,
    /// Bytes of the same values after packing and compression. If columns are compressed together, the bytes of
    /// each column are estimated. Values in rows that are not packed count with their unpacked size.
    pub stored_bytes: u64,
}

/// Key range of the stored rows of a part.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"from": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "rows": 64, "single_rows": 2,
    "delete_markers": 1, "marker_ratio": 0.015, "bytes": 6_144}))]
pub struct RowRange {
    /// First key of the range. The range ends where the next range of the same part begins.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub from: Box<RawValue>,
    /// Name of the part. Omitted if the table is not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that are not packed into blocks.
    pub single_rows: u64,
    /// Number of delete markers.
    pub delete_markers: u64,
    /// Share of delete markers among the entries that a read of the range processes, 0 to 1. Ranges above 0.05 are
    /// packed.
    pub marker_ratio: f64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
}

/// Statistics of the stored rows of a table, of the columns of a group, or of the entries of an index.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StoredRows {
    /// Name of the secondary index. Omitted for the rows of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Name of the column group. Omitted for the other columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Number of rows, without the rows in the row buffer. A packed row that a later write replaces or deletes
    /// counts until its block is packed again.
    pub rows: u64,
    /// Number of rows that are not packed into blocks.
    pub single_rows: u64,
    /// Number of rows that are stored in fragments because of their size.
    pub large_rows: u64,
    /// Number of delete markers.
    pub delete_markers: u64,
    /// Share of delete markers among the entries that a read of all rows processes, 0 to 1.
    pub marker_ratio: f64,
    /// Bytes of keys and rows before packing.
    pub bytes: u64,
    /// Bytes after packing, as they are passed to the storage engine.
    pub stored_bytes: u64,
    /// Mean size of a key in bytes, from a sample.
    pub key_bytes_mean: f64,
    /// Largest key in bytes, from a sample.
    pub key_bytes_max: u64,
    /// Median number of columns, from a sample.
    pub columns_median: u64,
    /// Largest number of columns, from a sample that contains all rows of more than 256 KiB; for these rows the number
    /// is estimated.
    pub columns_max: u64,
    /// Largest columns, at most 20, largest first; from a sample without rows of more than 256 KiB. Omitted for
    /// indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<RowColumnSize>,
    /// Number of partitions; in a divided table, a partition counts once per part.
    pub partition_count: u64,
    /// Largest partitions, at most 100, largest first.
    pub partitions: Vec<RowPartition>,
    /// Consecutive key ranges of about equal numbers of rows, at most 128 per part.
    pub ranges: Vec<RowRange>,
}

/// Statistics of a wide table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "surveyed": "2026-11-20T12:00:00Z", "took_ms": 12, "changed": false, "buffered_bytes": 0, "markers_packed": 0,
    "rows": {"rows": 1_000, "single_rows": 20, "large_rows": 0, "delete_markers": 3, "marker_ratio": 0.003, "bytes": 96_000,
        "stored_bytes": 31_000, "key_bytes_mean": 18.5, "key_bytes_max": 22, "columns_median": 4, "columns_max": 9,
        "partition_count": 12, "partitions": [], "ranges": []},
    "indexes": [], "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowStatistics {
    /// Time of the last survey; `null` if there was none since the start of the server. The job `survey_rows` makes a
    /// survey.
    pub surveyed: Option<String>,
    /// Duration of the last survey, in milliseconds.
    pub took_ms: u64,
    /// True if rows have changed since the last survey began, or were in the row buffer then and have been flushed.
    pub changed: bool,
    /// Bytes in the row buffer, which are not part of the statistics.
    pub buffered_bytes: u64,
    /// Number of delete markers that packing has removed since the start of the server.
    pub markers_packed: u64,
    /// Rows of the table, without the columns of groups; `null` without a survey.
    pub rows: Option<StoredRows>,
    /// Columns of the groups, in the order of the settings. Omitted without groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<StoredRows>,
    /// Entries of the secondary indexes.
    pub indexes: Vec<StoredRows>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Growth of a table or index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"kind": "search", "name": "all", "rows": 1_000_000, "bytes": 60_000_000, "since": "2026-11-01T00:00:00Z",
    "samples": 40, "rows_per_day": 50_000.0, "bytes_per_day": 3_000_000.0, "rows_mark": 20_000_000_000_u64,
    "rows_mark_reached": null, "bytes_mark": null, "bytes_mark_reached": null}))]
pub struct RowGrowth {
    /// `table`, `secondary` or `search`.
    pub kind: String,
    /// Name of the index, or of the table for its rows.
    pub name: String,
    /// Number of rows, entries or documents by the last sample; `null` without samples.
    pub rows: Option<u64>,
    /// Stored bytes by the last sample; `null` without samples.
    pub bytes: Option<u64>,
    /// Time of the first sample.
    pub since: Option<String>,
    /// Number of samples, at most 128. Each survey adds a sample. Beyond 128, every second sample is removed.
    pub samples: usize,
    /// Rows, entries or documents per day, in the last 30 days; `null` if the samples are less than an hour apart.
    pub rows_per_day: Option<f64>,
    /// Bytes per day, in the last 30 days; `null` if the samples are less than an hour apart.
    pub bytes_per_day: Option<f64>,
    /// Threshold for the number of rows, entries or documents, from the request; `null` = none. Default for a search
    /// index: 20,000,000,000.
    pub rows_mark: Option<u64>,
    /// Time when `rows_mark` is reached at the current growth; `null` without growth, or if that takes more than 100
    /// years.
    pub rows_mark_reached: Option<String>,
    /// Threshold for the stored bytes, from the request; `null` = none.
    pub bytes_mark: Option<u64>,
    /// Time when `bytes_mark` is reached, as for `rows_mark_reached`.
    pub bytes_mark_reached: Option<String>,
}

/// Growth of a wide table and of its indexes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"growth": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowGrowthList {
    /// The table, its secondary indexes, and its search indexes.
    pub growth: Vec<RowGrowth>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Key range with a large share of the load of the last minute.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"from": {"customer": "acme"}, "to": {"customer": "acme"}, "kind": "partition",
    "share_of_writes": 0.92, "share_of_reads": 0.0}))]
pub struct HotRowRange {
    /// Lowest sampled key of the range. If `kind` is `partition`, only the columns of the partition.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub from: Box<RawValue>,
    /// Highest sampled key of the range, as for `from`.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub to: Box<RawValue>,
    /// `partition`: one partition has the load; `end`: each write has a higher key than earlier writes, so that all
    /// writes go to the end of the table.
    pub kind: String,
    /// Share of the written rows, 0 to 1.
    pub share_of_writes: f64,
    /// Share of the rows read, 0 to 1.
    pub share_of_reads: f64,
}

/// Load of a wide table in the last minute.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"writes_per_second": 2_000.0, "reads_per_second": 10.0, "rows_written": 120_000, "rows_read": 600,
    "hot_ranges": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowLoad {
    /// Write requests per second.
    pub writes_per_second: f64,
    /// Read requests per second: reads by key, and pages of scans.
    pub reads_per_second: f64,
    /// Rows written in the last minute.
    pub rows_written: u64,
    /// Rows read in the last minute.
    pub rows_read: u64,
    /// Ranges with more than four times their fair share, or more than half, of the rows written or read. Empty if the
    /// load is evenly distributed, or is below 1,000 rows in the last minute.
    pub hot_ranges: Vec<HotRowRange>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
