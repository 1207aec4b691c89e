//! What a table holds, where its load lies, and which of its machines are large.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A span of time: `start` belongs to it, `end` does not; RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"start": "2026-11-20T00:00:00Z", "end": "2026-11-21T00:00:00Z"}))]
pub struct Span {
    /// The first instant inside.
    pub start: String,
    /// The first instant after.
    pub end: String,
}

/// What a table holds.
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
    "write_amplification": 2.0
}))]
pub struct TableStatistics {
    /// Timelines.
    pub timelines: u64,
    /// Published segments.
    pub segments: u64,
    /// Sealed points.
    pub sealed_points: u64,
    /// Field values in them.
    pub sealed_values: u64,
    /// Bytes of their chunks and keys.
    pub sealed_bytes: u64,
    /// Oldest sealed instant, RFC 3339.
    pub sealed_from: Option<String>,
    /// Newest sealed instant, RFC 3339.
    pub sealed_to: Option<String>,
    /// What lies where, by age.
    pub tiers: TierStatistics,
    /// The first instant that is visible by the policy, RFC 3339; `null` = everything is.
    pub visible_from: Option<String>,
    /// Deletes that some segment still has to be cleared of.
    pub deletes_waiting: u64,
    /// Bytes of the segments that they concern: at most so many are rewritten to free what was deleted.
    pub bytes_with_deletes: u64,
    /// Bytes of segments whose points have all expired: they are freed some time after.
    pub expired_bytes: u64,
    /// Bytes that seals and moves have loaded since the service started; the journal is not among them.
    pub loaded_bytes: u64,
    /// The same for each sealed byte that is stored now; `null` where none is. It counts from the start of the service,
    /// so it is too low while much was stored before.
    pub write_amplification: Option<f64>,
}

/// What each tier of a table holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierStatistics {
    /// Points that are not sealed yet. Reads count them as hot.
    pub head: UnsealedPoints,
    /// Young points.
    pub hot: HeldPoints,
    /// Old points.
    pub cold: HeldPoints,
    /// The oldest points, in files; `bytes` are those of the files.
    pub archive: HeldPoints,
}

/// Points in memory; overwritten and deleted ones are counted until they are sealed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsealedPoints {
    /// Points.
    pub points: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Oldest instant, RFC 3339.
    pub oldest: Option<String>,
    /// Newest instant, RFC 3339.
    pub newest: Option<String>,
}

/// Sealed points; deleted and expired ones are counted while their bytes are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldPoints {
    /// Published segments.
    pub segments: u64,
    /// Windows that they lie in.
    pub windows: u64,
    /// Points.
    pub points: u64,
    /// Field values in them.
    pub values: u64,
    /// Bytes of their chunks and keys.
    pub bytes: u64,
    /// Oldest instant, RFC 3339.
    pub oldest: Option<String>,
    /// Newest instant, RFC 3339.
    pub newest: Option<String>,
}

/// The ranges of keys that take far more than their share of the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "hot_ranges": [{
        "from": "3f00", "to": "3fff", "share_of_writes": 0.61, "share_of_reads": 0.02, "sources": ["build-server-7"]
    }],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct HotRangeList {
    /// In the order of keys; none where load is even or low.
    pub hot_ranges: Vec<HotRange>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A range of keys that took far more than its share of the last minute's writes or reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotRange {
    /// Its first prefix: the first four hexadecimal digits of timeline ids.
    pub from: String,
    /// Its last prefix.
    pub to: String,
    /// Its share of the points written, 0 to 1.
    pub share_of_writes: f64,
    /// Its share of the timelines read, 0 to 1.
    pub share_of_reads: f64,
    /// The busiest machines in it as far as they are known, the busiest first.
    pub sources: Vec<String>,
}

/// The largest machines of a table: all points of a machine lie together and move together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "partitions": [{
        "source": "build-server-7", "prefix": "3f2a9c017bde45a1", "bytes": 9_663_676_416_u64,
        "warning": "build-server-7 holds 9.0 GiB, over the mark of 8 GiB: all points of a machine lie together. Split it by a tag that tells its parts apart, first in the source_tags of a new table, or shorten its retention"
    }],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct PartitionList {
    /// The largest first, at most twenty.
    pub partitions: Vec<Partition>,
    /// Names the request in the log.
    pub request_id: String,
}

/// All points of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// The machine; of timelines without one the measurement. `null` when its timelines were removed.
    pub source: Option<String>,
    /// What its timeline ids begin with: 16 hexadecimal digits.
    pub prefix: String,
    /// Sealed bytes in all tiers: at least so many.
    pub bytes: u64,
    /// What to do about it, where it is too large.
    pub warning: Option<String>,
}
