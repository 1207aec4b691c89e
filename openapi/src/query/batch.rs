//! Batches: several point queries in one request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PointAnswer, PointQuery, QueryBudget};
use crate::error::ErrorBody;

/// Several queries of the points of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "queries": {
        "busy": {
            "fields": ["usage_user"], "range": {"start": "now-1h"},
            "aggregate": {"functions": ["mean"], "window": "5m", "group_by": ["host"]}
        },
        "latest_rows": {"range": {"start": "now-1m"}, "limit": 10}
    },
    "budget": {"time": "20s"}
}))]
pub struct BatchQuery {
    /// Queries by name, at most 64. They run one after another, ordered by name.
    pub queries: BTreeMap<String, PointQuery>,
    /// Limits of all queries together. Each query can use the part that the previous queries have not used.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
}

/// Results of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "request_id": "01jd3k5w8v-000002a1",
    "answers": {
        "busy": {"error": {
            "code": "over_budget", "message": "points read: 1001 is over the limit of 1000; narrow the query", "limit": 1000,
            "actual": 1001, "retryable": false, "request_id": "01jd3k5w8v-000002a1"
        }}
    }
}))]
pub struct BatchAnswer {
    /// Id of the request, as in the server log.
    pub request_id: String,
    /// Results by the name of their query.
    pub answers: BTreeMap<String, BatchPart>,
}

/// Result of one query of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchPart {
    /// Result, as for a single query; at most 16 MiB of JSON.
    Answer(Box<PointAnswer>),
    /// Failure of this query. The other queries still run.
    Failed {
        /// Error, as for a single query.
        error: ErrorBody,
    },
}
