//! Answers about points, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explain::QueryPlan;
use crate::tier::TierCosts;
use crate::timeline::Suggestion;

/// The answer to a question about points, as JSON. It is streamed: a failure after its beginning cuts it off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "request_id": "01jd3k5w8v-000002a1",
    "series": [{
        "measurement": "cpu",
        "tags": {"host": "sim-001"},
        "columns": ["time", "mean(usage_user)", "max(usage_user)"],
        "points": [["2026-11-20T12:00:00Z", 41.5, 58], ["2026-11-20T12:01:00Z", 43.25, 61]]
    }],
    "more": false,
    "next": null,
    "cost": {
        "timelines": 1, "chunks": 1, "points": 12, "values": 12, "bytes": 75, "elapsed_ms": 0.21,
        "tiers": {
            "hot": {
                "segments": 1, "chunks": 1, "points": 12, "values": 12, "bytes": 75, "summaries": 0,
                "summarized_points": 0
            },
            "cold": {
                "segments": 0, "chunks": 0, "points": 0, "values": 0, "bytes": 0, "summaries": 0, "summarized_points": 0
            },
            "archive": {
                "segments": 0, "chunks": 0, "points": 0, "values": 0, "bytes": 0, "summaries": 0, "summarized_points": 0
            }
        }
    }
}))]
pub struct PointAnswer {
    /// Names the request in the log.
    pub request_id: String,
    /// Timelines by id, or groups by measurement and tags; those without a row are left out.
    pub series: Vec<Series>,
    /// Whether `limit` left rows out.
    pub more: bool,
    /// Pass it as `page` to get what follows; `null` after the last page, and for aggregates.
    pub next: Option<String>,
    /// Columns in which some value is an estimate; missing where none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<String>,
    /// Columns in which some sum of integers is `null` because it is beyond the range of 64 bits; missing where none is. Sum
    /// them as floats, or over shorter windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflowed: Vec<String>,
    /// Names in the question that the table does not have, with similar ones; missing where all are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// What was read.
    pub cost: QueryCost,
}

/// The rows of one timeline or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// The timeline, where the series is one; missing for groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The measurement.
    pub measurement: String,
    /// The tags of the timeline, or those that the group was made by.
    pub tags: BTreeMap<String, String>,
    /// `time`, then the fields or functions.
    pub columns: Vec<String>,
    /// One array a row with one value a column, `null` where there is none. Floats have a point or an exponent;
    /// those that are no numbers are the texts `NaN`, `Inf` and `-Inf`.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub points: Vec<Vec<serde_json::Value>>,
}

/// What a query has read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryCost {
    /// Timelines looked at.
    pub timelines: u64,
    /// Chunks and blocks decoded.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
    /// Milliseconds from the start of planning to the last row.
    pub elapsed_ms: f64,
    /// The same of each tier.
    pub tiers: TierCosts,
    /// How it was answered, where the question asks with `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<QueryPlan>,
}
