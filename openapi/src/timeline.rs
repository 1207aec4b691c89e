//! Timelines: search, description, attributes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::condition::{Condition, Property, Scalar};

/// Which timelines, in which order, how many.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"and": [
        {"property": "measurement", "equals": "cpu"},
        {"tag": "host", "prefix": "sim-"},
        {"not": {"attribute": "owner", "exists": true}}
    ]},
    "sort": [{"tag": "host"}],
    "limit": 10
}))]
pub struct TimelineSearch {
    /// The condition; without it every timeline is meant.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Sort keys, the first one first, at most 8; timelines equal in all of them come by id.
    #[serde(default)]
    pub sort: Vec<SortKey>,
    /// Most timelines of the page, 1 to 10,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next` of the page before, with the same `where` and `sort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// One sort key: exactly one of `tag`, `attribute` and `property`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"property": "last_seen", "order": "descending"}))]
pub struct SortKey {
    /// By the value of this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// By the value of this attribute: missing ones first, then booleans, numbers, texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// By this property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
    /// Which end comes first.
    #[serde(default)]
    pub order: SortOrder,
}

/// The direction of a sort key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    /// Lowest first.
    #[default]
    Ascending,
    /// Highest first.
    Descending,
}

/// A short search in the query string. All conditions given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TimelineQuery {
    /// The measurement is this.
    #[serde(default)]
    #[param(example = "cpu")]
    pub measurement: Option<String>,
    /// The source (the machine) is this.
    #[serde(default)]
    pub source: Option<String>,
    /// Most timelines of the page, 1 to 10,000. Default 100.
    #[serde(default)]
    #[param(example = 10)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    #[serde(default)]
    pub page: Option<String>,
}

/// A page of timelines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineList {
    /// In the order asked for.
    pub timelines: Vec<TimelineView>,
    /// How many meet the condition, on all pages together.
    pub total: u64,
    /// Pass it as `page` to get what follows; `null` after the last page.
    pub next: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "3f2a9c017bde45a18c40f1e29d3b6a57",
    "measurement": "cpu",
    "source": "sim-001",
    "tags": {"host": "sim-001", "region": "eu-west"},
    "attributes": {"owner": "team-storage"},
    "first_seen": "2026-11-20T12:00:00Z",
    "last_seen": "2026-11-20T12:59:50Z"
}))]
pub struct TimelineView {
    /// 32 hexadecimal digits; stays the same for ever.
    pub id: String,
    /// What is measured.
    pub measurement: String,
    /// The machine that it belongs to: the value of the first source tag present.
    pub source: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// What people have added.
    pub attributes: BTreeMap<String, Scalar>,
    /// The instant of its oldest point, RFC 3339.
    pub first_seen: Option<String>,
    /// The instant of its newest point, RFC 3339.
    pub last_seen: Option<String>,
}

/// One timeline, described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineDetail {
    /// The timeline.
    #[serde(flatten)]
    pub timeline: TimelineView,
    /// Names the request in the log.
    pub request_id: String,
}

/// Changes of attributes: a value sets, `null` removes; what is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, serde_json::Value>, example = json!({"owner": "team-storage", "rack": 12, "retired": null}))]
pub struct AttributeChanges(
    /// By attribute key.
    pub BTreeMap<String, Option<Scalar>>,
);
