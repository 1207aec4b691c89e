//! Several questions in one request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PointAnswer, PointQuery, QueryBudget};
use crate::error::ErrorBody;

/// Several questions about the points of a table.
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
    /// The questions by name, at most 64; they are answered one after another, in the order of their names.
    pub queries: BTreeMap<String, PointQuery>,
    /// The most that all of them together may take. What one has taken is missing for the next.
    #[serde(default, skip_serializing_if = "QueryBudget::is_empty")]
    pub budget: QueryBudget,
}

/// The answers by the names of their questions.
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
    /// Names the request in the log.
    pub request_id: String,
    /// One for each question.
    pub answers: BTreeMap<String, BatchPart>,
}

/// The answer to one question of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchPart {
    /// What a query by itself is answered; at most 16 MiB of JSON.
    Answer(Box<PointAnswer>),
    /// Why it failed; the others are answered all the same.
    Failed {
        /// What a query by itself would be answered.
        error: ErrorBody,
    },
}
