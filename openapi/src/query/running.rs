//! Running queries and the budget of a query.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::DurationText;

/// Limits of a query. The default of each limit is also its maximum. A query that exceeds a limit fails with the
/// code `over_budget`. If this can be predicted, the query fails before anything is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"time": "10s", "timelines": 10000, "points": 100000000, "memory": 67108864}))]
pub struct QueryBudget {
    /// Time from the start to the last row, including waits for a slow client; at most `2m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<DurationText>,
    /// Selected timelines; at most 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<u64>,
    /// Decoded points; a stored summary of many points counts as one. At most 1,000,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u64>,
    /// Windows × groups × columns of an aggregate, including empty ones; at most 20,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<u64>,
    /// Bytes of values held at the same time for percentiles, distinct counts, modes, first and last texts and
    /// histograms, samples and sorted rows; at most 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl QueryBudget {
    /// Returns true if no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Running queries.
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
    /// Id of the request, as in the server log.
    pub request_id: String,
    /// Queries, oldest first.
    pub queries: Vec<RunningQuery>,
}

/// Running query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningQuery {
    /// Id, used to cancel the query.
    pub id: u64,
    /// Id of the request that runs the query, as in the server log.
    pub request_id: String,
    /// Table.
    pub table: String,
    /// Resource of the request, in most cases the last part of its path, such as `query` or `latest`.
    pub resource: String,
    /// Query in JSON, PromQL or SQL, truncated if it is long.
    pub question: String,
    /// Start, RFC 3339.
    pub started: String,
    /// Time since the start, milliseconds.
    pub elapsed_ms: f64,
    /// Selected timelines.
    pub timelines: u64,
    /// Points decoded so far.
    pub points: u64,
    /// Field values decoded so far.
    pub values: u64,
}

/// Result of a request to cancel a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"request_id": "01jd3k5w8v-000002a1", "cancelled": true}))]
pub struct CancelledQuery {
    /// Id of the request, as in the server log.
    pub request_id: String,
    /// True if a query with this id was running. It stops before the next block of points.
    pub cancelled: bool,
}
