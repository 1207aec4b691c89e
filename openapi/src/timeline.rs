//! Timelines: search, description, attributes.
//!
//! Attributes have types; a key has one type per table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::attribute::AttributeValue;
use crate::condition::{Condition, Property};
use crate::geo::LatLon;

/// Search for timelines: condition, order and page.
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
    /// Condition on timelines. Default: all timelines.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Sort keys by decreasing priority, at most 8. Timelines with equal values of all keys are ordered by id.
    #[serde(default)]
    pub sort: Vec<SortKey>,
    /// Tag to collapse by. Of all timelines with the same value, only the first in the order is returned;
    /// timelines without the tag count as one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse: Option<CollapseKey>,
    /// True to return the texts that matched conditions outside of `not`, with the matching parts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub highlight: bool,
    /// Maximum number of timelines per page, 1 to 10,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next` of the previous page, with the same `where`, `sort` and `collapse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// Key to collapse timelines by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tag": "host"}))]
pub struct CollapseKey {
    /// Tag key. It may have at most 250,000 values among the matching timelines.
    pub tag: String,
}

/// Sort key: exactly one of `tag`, `attribute`, `property` and `relevance`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"property": "last_seen", "order": "descending"}))]
pub struct SortKey {
    /// Tag key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Attribute key. A missing value is lower than all values; a list is ordered by its lowest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// With `attribute`: order by the distance from this geo point. Timelines whose attribute is missing or not a geo
    /// point are farthest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<LatLon>,
    /// Property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
    /// True to order by relevance for the words of `text` and `phrase` outside of `not`: `{"relevance": true}`. Each
    /// word adds the score of its best value: (1/2 + 1/(2n)) / (1 + e) for a value of n words that contains the word
    /// with e edits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relevance: bool,
    /// Direction. Default: lowest first, for `relevance` best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SortOrder>,
}

/// Direction of a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    /// Lowest first.
    Ascending,
    /// Highest first.
    Descending,
}

/// Short search in the query string. All given conditions must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TimelineQuery {
    /// Measurement.
    #[serde(default)]
    #[param(example = "cpu")]
    pub measurement: Option<String>,
    /// Source (machine).
    #[serde(default)]
    pub source: Option<String>,
    /// Maximum number of timelines per page, 1 to 10,000. Default 100.
    #[serde(default)]
    #[param(example = 10)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(default)]
    pub page: Option<String>,
}

/// Page of timelines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineList {
    /// Timelines in the requested order.
    pub timelines: Vec<FoundTimeline>,
    /// Number of matching timelines on all pages.
    pub total: u64,
    /// With `collapse`: number of returned timelines on all pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Names in the request that the table does not have, with similar names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Token of the next page, sent as `page`; `null` on the last page.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Timeline of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundTimeline {
    /// Timeline.
    #[serde(flatten)]
    pub timeline: TimelineView,
    /// With `collapse`: number of matching timelines with the same value of the tag, including this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapsed: Option<u64>,
    /// With `highlight`: texts that matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<Highlight>,
}

/// Text that matched. Exactly one of `tag`, `attribute` and `property` is present and identifies the origin of the
/// text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"attribute": "title", "text": "Backup Store", "spans": [{"start": 0, "end": 6}]}))]
pub struct Highlight {
    /// Tag key, if the text is the value of a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Attribute key, if the text is the value of an attribute or an element of its list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// `measurement` or `source`, if the text is this property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
    /// Text.
    pub text: String,
    /// Matching parts of the text, in increasing order.
    pub spans: Vec<TextSpan>,
}

/// Part of a text, in Unicode characters counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextSpan {
    /// Index of the first character.
    pub start: usize,
    /// Index after the last character.
    pub end: usize,
}

/// Unknown name: a measurement, tag key or attribute key that the table does not have, or a field that none of the
/// requested measurements has. Exactly one of `measurement`, `tag`, `attribute` and `field` is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"tag": "hots", "did_you_mean": ["host"]}))]
pub struct Suggestion {
    /// Unknown measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<String>,
    /// Unknown tag key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Unknown attribute key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// Field that none of the requested measurements has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Similar known names, most similar first, at most 3.
    pub did_you_mean: Vec<String>,
}

/// Timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "3f2a9c017bde45a18c40f1e29d3b6a57",
    "measurement": "cpu",
    "source": "sim-001",
    "tags": {"host": "sim-001", "region": "eu-west"},
    "attributes": {"owner": "team-storage", "site": {"lat": 52.52, "lon": 13.405}},
    "first_seen": "2026-11-20T12:00:00Z",
    "last_seen": "2026-11-20T12:59:50Z"
}))]
pub struct TimelineView {
    /// Id: 32 hexadecimal digits. It never changes.
    pub id: String,
    /// Measurement.
    pub measurement: String,
    /// Source (machine): value of the first source tag present; `null` without such a tag.
    pub source: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Attributes.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Timestamp of the oldest point, RFC 3339; `null` without points.
    pub first_seen: Option<String>,
    /// Timestamp of the newest point, RFC 3339; `null` without points.
    pub last_seen: Option<String>,
}

/// One timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineDetail {
    /// Timeline.
    #[serde(flatten)]
    pub timeline: TimelineView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Response to a change of the attributes of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(example = json!({
    "id": "7d5f6f5bdc4ab1a1b86df3a1a2f9cc10",
    "measurement": "cpu",
    "source": "sim-001",
    "tags": {"host": "sim-001", "region": "eu-west"},
    "attributes": {"owner": "team-storage"},
    "first_seen": "2026-11-20T12:00:00Z",
    "last_seen": "2026-11-20T12:59:50Z",
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub enum TimelineWritten {
    /// The timeline after the change.
    Timeline(TimelineDetail),
    /// The change, for a token without a role that reads.
    Changed(TimelineChanged),
}

/// Changed timeline, without stored data that the request did not contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineChanged {
    /// Id: 32 hexadecimal digits.
    pub id: String,
    /// Attributes that the request has set.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Attribute changes: a value sets an attribute, `null` removes it; other attributes stay unchanged. A value is a text,
/// number, boolean, time (`{"time": "2026-01-31T00:00:00Z"}`), geo point (`{"lat": 52.52, "lon": 13.405}`), or list of
/// texts or numbers. A value is refused if its type differs from the type that the key has on other timelines of the
/// table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, serde_json::Value>, example = json!({
    "owner": "team-storage", "rack": 12, "retired": null, "bought": {"time": "2026-01-31T00:00:00Z"},
    "site": {"lat": 52.52, "lon": 13.405}, "labels": ["backup", "ssd"]
}))]
pub struct AttributeChanges(
    /// Changes by attribute key.
    pub BTreeMap<String, Option<AttributeValue>>,
);
