//! Attribute changes of many timelines by one request.
//!
//! The request starts a job of kind `set_attributes`. By default, the progress of the job is streamed as NDJSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attribute::AttributeValue;
use crate::job;
use crate::query::TimelineSelector;
use crate::unique;

/// Attribute changes, and the timelines that they apply to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "region", "equals": "eu-west"}},
    "set": {"owner": "team-west"},
    "remove": ["old_owner"]
}))]
pub struct ChangeAttributes {
    /// Timelines to change. `{"where": {"and": []}}` selects all.
    pub timelines: TimelineSelector,
    /// Values to set, by attribute key.
    #[serde(
        default,
        deserialize_with = "unique::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub set: BTreeMap<String, AttributeValue>,
    /// Attribute keys to remove. Keys that a timeline does not have are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// True if the response streams the progress and closing the connection cancels the job. With `false` the
    /// response is the job, which continues in the background. Default `true`.
    #[serde(default = "job::yes", skip_serializing_if = "job::is_yes")]
    pub wait: bool,
}

/// Progress of the change, as one line of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "job": 31, "selected": 12, "changed": 12, "unchanged": 0, "gone": 0, "refused": 0, "done": true, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct ChangeProgress {
    /// Id of the job in `/v1/jobs`.
    pub job: u64,
    /// Selected timelines.
    pub selected: u64,
    /// Timelines changed so far. The changes are durable and visible to searches.
    pub changed: u64,
    /// Timelines that already had these attributes.
    pub unchanged: u64,
    /// Timelines that were removed after they had been selected.
    pub gone: u64,
    /// Timelines that were not changed, because an attribute key has another type or they would have too many
    /// attributes.
    pub refused: u64,
    /// Reason of the first refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_refusal: Option<String>,
    /// True on the last line, unless the job ended early.
    pub done: bool,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
