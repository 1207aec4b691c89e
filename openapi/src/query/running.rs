//! Queries while they run, and what a query may take.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::DurationText;

/// The most that a query may take. Each is at most, and without it, what the service allows. What passes one is refused with
/// the code `over_budget`, before anything is read where that can be foreseen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"time": "10s", "timelines": 10000, "points": 100000000, "memory": 67108864}))]
pub struct QueryBudget {
    /// Time from the start to the last row, waiting for a slow reader included; at most `2m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<DurationText>,
    /// Timelines selected; at most 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<u64>,
    /// Points decoded, a stored summary of many counting as one; at most 1,000,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u64>,
    /// Windows × groups × columns of an aggregate, empty ones included; at most 20,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<u64>,
    /// Bytes of values that percentiles, distinct counts, modes, samples and sorted rows hold at once; at most 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl QueryBudget {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The queries that run now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "request_id": "01jd3k5w8v-000002a1",
    "queries": [{
        "id": 17, "request_id": "01jd3k5w8v-0000029f", "table": "default", "resource": "query",
        "question": "{\"fields\":[\"usage_user\"]}", "started": "2026-11-20T12:00:00Z", "elapsed_ms": 812.5,
        "timelines": 1000, "points": 4320000, "values": 4320000
    }]
}))]
pub struct RunningQueries {
    /// Names the request in the log.
    pub request_id: String,
    /// Oldest first.
    pub queries: Vec<RunningQuery>,
}

/// A query that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningQuery {
    /// What it is cancelled by.
    pub id: u64,
    /// The request that asks it.
    pub request_id: String,
    /// The table.
    pub table: String,
    /// The last part of the path: `query`, `latest`.
    pub resource: String,
    /// The question as JSON, cut off where it is long.
    pub question: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// For how many milliseconds it has run.
    pub elapsed_ms: f64,
    /// Timelines selected.
    pub timelines: u64,
    /// Points decoded so far.
    pub points: u64,
    /// Field values decoded so far.
    pub values: u64,
}

/// What became of the wish to cancel a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"request_id": "01jd3k5w8v-000002a1", "cancelled": true}))]
pub struct CancelledQuery {
    /// Names the request in the log.
    pub request_id: String,
    /// Whether a query with this id ran; it stops at its next run of points.
    pub cancelled: bool,
}
