//! Statistics of a table: stored points per tier, hot key ranges, largest machines.
//!
//! Sizes are totals: on disk for sealed points, in memory for unsealed ones. The lists of key ranges and machines hold
//! only the busiest ranges and the largest machines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Time range from `start` (inclusive) to `end` (exclusive), RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"start": "2026-11-20T00:00:00Z", "end": "2026-11-21T00:00:00Z"}))]
pub struct Span {
    /// Start, inclusive.
    pub start: String,
    /// End, exclusive.
    pub end: String,
}

/// Statistics of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": 36_000,
    "segments": 12,
    "sealed_points": 38_880_000,
    "sealed_values": 388_800_000,
    "sealed_bytes": 197_320_000,
    "sealed_from": "2026-11-10T00:00:00Z",
    "sealed_to": "2026-11-20T11:59:50Z",
    "tiers": {
        "head": {"points": 360_000, "bytes": 8_640_000, "oldest": "2026-11-20T12:00:00Z", "newest": "2026-11-20T12:01:40Z"},
        "hot": {
            "segments": 8, "windows": 8, "points": 25_920_000, "values": 259_200_000, "bytes": 155_520_000,
            "oldest": "2026-11-13T00:00:00Z", "newest": "2026-11-20T11:59:50Z"
        },
        "cold": {
            "segments": 4, "windows": 3, "points": 12_960_000, "values": 129_600_000, "bytes": 41_800_000,
            "oldest": "2026-11-10T00:00:00Z", "newest": "2026-11-12T23:59:50Z"
        },
        "archive": {
            "segments": 0, "windows": 0, "points": 0, "values": 0, "bytes": 0, "oldest": null, "newest": null
        }
    },
    "visible_from": null,
    "deletes_waiting": 1,
    "bytes_with_deletes": 10_450_000,
    "expired_bytes": 0,
    "loaded_bytes": 394_640_000,
    "write_amplification": 2.0,
    "rows": null
}))]
pub struct TableStatistics {
    /// Number of timelines.
    pub timelines: u64,
    /// Number of published segments.
    pub segments: u64,
    /// Sealed points.
    pub sealed_points: u64,
    /// Field values of the sealed points.
    pub sealed_values: u64,
    /// Bytes of the chunks and keys of the sealed points, and of the archive files.
    pub sealed_bytes: u64,
    /// Oldest sealed timestamp, RFC 3339; `null` if nothing is sealed.
    pub sealed_from: Option<String>,
    /// Newest sealed timestamp, RFC 3339; `null` if nothing is sealed.
    pub sealed_to: Option<String>,
    /// Stored points per tier.
    pub tiers: TierStatistics,
    /// Oldest timestamp visible under the policy, RFC 3339; `null` = no limit.
    pub visible_from: Option<String>,
    /// Deletes that have not yet been applied to all segments.
    pub deletes_waiting: u64,
    /// Bytes of the segments to which the waiting deletes apply: an upper bound of the bytes to rewrite.
    pub bytes_with_deletes: u64,
    /// Bytes of segments whose points have all expired. They are freed later.
    pub expired_bytes: u64,
    /// Bytes written by seals and moves since the start of the service, without the journal.
    pub loaded_bytes: u64,
    /// `loaded_bytes` divided by the currently stored sealed bytes; `null` if nothing is sealed. It is too low while
    /// most of the stored bytes were written before the start of the service.
    pub write_amplification: Option<f64>,
    /// Stored rows of a wide table or feed table by its last survey; `null` for a series table, and until the first
    /// survey since the start of the server. The members about points are 0 for tables with rows.
    #[serde(default)]
    pub rows: Option<SurveyedRows>,
}

/// Stored rows of a wide table or feed table by its last survey. `GET …/rows/stats` has more figures, and the job
/// `survey_rows` makes a survey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"surveyed": "2026-11-20T12:00:00Z", "changed": false, "rows": 1_000, "bytes": 31_000}))]
pub struct SurveyedRows {
    /// Time of the survey, RFC 3339.
    pub surveyed: String,
    /// True if the survey does not count all rows: rows have changed since, or were in the row buffer and have been
    /// flushed.
    pub changed: bool,
    /// Rows, without those in the row buffer.
    pub rows: u64,
    /// Bytes of the rows after packing, without indexes and large values.
    pub bytes: u64,
}

/// Stored points per tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierStatistics {
    /// Unsealed points in memory. Queries count them as hot.
    pub head: UnsealedPoints,
    /// Sealed points of the hot tier.
    pub hot: HeldPoints,
    /// Points of the cold tier.
    pub cold: HeldPoints,
    /// Points in archive files. `bytes` is the size of the files.
    pub archive: HeldPoints,
}

/// Unsealed points in memory. Overwritten and deleted points are counted until they are sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsealedPoints {
    /// Points.
    pub points: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Oldest timestamp, RFC 3339; `null` without points.
    pub oldest: Option<String>,
    /// Newest timestamp, RFC 3339; `null` without points.
    pub newest: Option<String>,
}

/// Sealed points of a tier. Deleted and expired points are counted until their bytes are freed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldPoints {
    /// Published segments.
    pub segments: u64,
    /// Time windows of the published segments.
    pub windows: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of chunks and keys; in the archive tier, of files.
    pub bytes: u64,
    /// Oldest timestamp, RFC 3339; `null` without points.
    pub oldest: Option<String>,
    /// Newest timestamp, RFC 3339; `null` without points.
    pub newest: Option<String>,
}

/// Key ranges with much more load than other ranges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "hot_ranges": [{
        "from": "3f00", "to": "3fff", "share_of_writes": 0.61, "share_of_reads": 0.02, "sources": ["build-server-7"]
    }],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct HotRangeList {
    /// Ranges in key order. Empty if the load is even or low.
    pub hot_ranges: Vec<HotRange>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Key range with more than four times its fair share, or more than half, of the writes or reads of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotRange {
    /// First key prefix: the first four hexadecimal digits of timeline ids.
    pub from: String,
    /// Last key prefix, inclusive.
    pub to: String,
    /// Share of the points written, 0 to 1.
    pub share_of_writes: f64,
    /// Share of the timelines read, 0 to 1.
    pub share_of_reads: f64,
    /// Busiest machines of the range, busiest first, at most 3. Machines are counted only while their keys are busy, so
    /// the list may be incomplete.
    pub sources: Vec<String>,
}

/// Largest machines of a table. All points of a machine are stored and moved together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "partitions": [{
        "source": "build-server-7", "prefix": "3f2a9c017bde45a1", "bytes": 9_663_676_416_u64,
        "warning": "build-server-7 holds 9.0 GiB, over the mark of 8 GiB: all points of a machine are stored together. Split it by a tag that distinguishes its parts, placed first in the source_tags of a new table, or shorten its retention"
    }],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct PartitionList {
    /// Machines, largest first, at most 20.
    pub partitions: Vec<Partition>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Points of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// Source (machine); without a source, the measurement of one of the timelines. `null` if all timelines were
    /// removed.
    pub source: Option<String>,
    /// Prefix of the timeline ids: 16 hexadecimal digits.
    pub prefix: String,
    /// Sealed bytes in all tiers, as a lower bound.
    pub bytes: u64,
    /// Advice if the machine is too large; `null` otherwise.
    pub warning: Option<String>,
}
