//! Attributes of many timelines at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attribute::AttributeValue;
use crate::job;
use crate::query::TimelineSelector;

/// Which attributes are set and removed, and of which timelines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "region", "equals": "eu-west"}},
    "set": {"owner": "team-west"},
    "remove": ["old_owner"]
}))]
pub struct ChangeAttributes {
    /// Which timelines; whoever means all says so with `{"where": {"and": []}}`.
    pub timelines: TimelineSelector,
    /// What is set, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, AttributeValue>,
    /// Keys that are removed; a missing one is no error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Whether the answer tells how far it comes, and closing it ends the job. With `false` the answer is the job, which
    /// goes on by itself. Default `true`.
    #[serde(default = "job::waits", skip_serializing_if = "job::is_waiting")]
    pub wait: bool,
}

/// How far a change of many timelines has come; the last line of the answer has `done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "job": 31, "selected": 12, "changed": 12, "unchanged": 0, "gone": 0, "refused": 0, "done": true, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct ChangeProgress {
    /// The job that does it, as `/v1/jobs` lists it.
    pub job: u64,
    /// Timelines that were selected.
    pub selected: u64,
    /// Those that were changed so far; durable and findable.
    pub changed: u64,
    /// Those that were as they should be before.
    pub unchanged: u64,
    /// Those that have gone since they were selected.
    pub gone: u64,
    /// Those that could not take the change: their key has another type, or they have too many attributes.
    pub refused: u64,
    /// Why the first of those could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_refusal: Option<String>,
    /// Whether this is the end.
    pub done: bool,
    /// Names the request in the log.
    pub request_id: String,
}
