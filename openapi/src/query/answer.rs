//! Results of point queries in JSON.
//!
//! These types describe results for the OpenAPI document and for clients; the server streams results without them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explain::QueryPlan;
use crate::tier::TierCosts;
use crate::timeline::Suggestion;

/// Result of a point query in JSON. The response is streamed: if the query fails after the start of the response, the
/// response is cut off.
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
    /// Id of the request, as in the server log.
    pub request_id: String,
    /// Series: timelines ordered by id, or groups ordered by measurement and tags, unless the query has `rank`
    /// or `sort`. Series without rows are omitted.
    pub series: Vec<Series>,
    /// True if `limit` or the row limit of a response cut off rows.
    pub more: bool,
    /// Token of the next page, sent as `page`; `null` on the last page and for results without pages, such as
    /// aggregates.
    pub next: Option<String>,
    /// Columns that contain estimated values. Omitted if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<String>,
    /// Columns in which a sum or difference of integers is `null` because it exceeds 64 bits. Omitted if empty. Sum the
    /// values as floats, or use shorter windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflowed: Vec<String>,
    /// Unknown names in the query, with similar names. Omitted if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Cost of the query.
    pub cost: QueryCost,
}

/// Rows of a timeline or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// Timeline id. Omitted for groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Measurement.
    pub measurement: String,
    /// Tags of the timeline, or the tags of the group.
    pub tags: BTreeMap<String, String>,
    /// `time`, then fields or functions.
    pub columns: Vec<String>,
    /// Rows, each an array with one value per column; `null` = no value. Floats have a decimal point or an exponent.
    /// Values that are not finite are the strings `NaN`, `Inf` and `-Inf`.
    #[schema(value_type = Vec<Vec<serde_json::Value>>)]
    pub points: Vec<Vec<serde_json::Value>>,
}

/// Cost of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryCost {
    /// Timelines processed.
    pub timelines: u64,
    /// Chunks, blocks and unsealed rows that were read at least in part.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of the chunks that were read.
    pub bytes: u64,
    /// Time from the start of planning to the last row, milliseconds.
    pub elapsed_ms: f64,
    /// Cost per tier.
    pub tiers: TierCosts,
    /// Query plan, if the query has `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<QueryPlan>,
}
