//! Timelines: search, description, attributes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::attribute::AttributeValue;
use crate::condition::{Condition, Property};
use crate::geo::Place;

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
    /// Collapses timelines with the same value of a tag, or without one, into one hit: the first in the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapse: Option<CollapseKey>,
    /// Whether to say which texts the conditions outside of a `not` matched, and where.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub highlight: bool,
    /// Most timelines of the page, 1 to 10,000. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next` of the page before, with the same `where`, `sort` and `collapse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
}

/// What timelines are collapsed by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tag": "host"}))]
pub struct CollapseKey {
    /// A tag with at most 250,000 values among the timelines that meet the condition.
    pub tag: String,
}

/// One sort key: exactly one of `tag`, `attribute`, `property` and `relevance`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"property": "last_seen", "order": "descending"}))]
pub struct SortKey {
    /// By the value of this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// By the value of this attribute, missing ones first; a list stands where its lowest value would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// Beside `attribute`: by its distance from this place; what is no geo point is farthest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Place>,
    /// By this property.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
    /// By how well the words of `text` and `phrase` are said, those below a `not` left aside: `{"relevance": true}`. Each
    /// word adds, for the value that says it best, (1/2 + 1/2n) / (1 + e), where the value has n words and e edits make the
    /// word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relevance: bool,
    /// Which end comes first; the lowest, but the best of `relevance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SortOrder>,
}

/// The direction of a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    /// Lowest first.
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
    pub timelines: Vec<FoundTimeline>,
    /// How many meet the condition, on all pages together.
    pub total: u64,
    /// With `collapse`: how many hits there are, on all pages together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Names in the request that the table does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Pass it as `page` to get what follows; `null` after the last page.
    pub next: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A timeline of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundTimeline {
    /// The timeline.
    #[serde(flatten)]
    pub timeline: TimelineView,
    /// With `collapse`: how many timelines this one stands for, itself among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collapsed: Option<u64>,
    /// With `highlight`: the texts that matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlights: Vec<Highlight>,
}

/// A text that matched; exactly one of `tag`, `attribute` and `property` says what it is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"attribute": "title", "text": "Backup Store", "spans": [{"start": 0, "end": 6}]}))]
pub struct Highlight {
    /// It is the value of this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// It is the value of this attribute, or one of its list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// It is the `measurement` or the `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
    /// The text.
    pub text: String,
    /// Which parts of it matched, in rising order.
    pub spans: Vec<TextSpan>,
}

/// A part of a text, in Unicode characters counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextSpan {
    /// The first character.
    pub start: usize,
    /// The character after the last.
    pub end: usize,
}

/// A name that the table does not have; exactly one of `measurement`, `tag`, `attribute` and `field` is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"tag": "hots", "did_you_mean": ["host"]}))]
pub struct Suggestion {
    /// A measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<String>,
    /// A tag key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// An attribute key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// A field that none of the requested measurements has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Names that the table has, the most alike first, at most 3.
    pub did_you_mean: Vec<String>,
}

/// A timeline.
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
    /// 32 hexadecimal digits; stays the same for ever.
    pub id: String,
    /// What is measured.
    pub measurement: String,
    /// The machine that it belongs to: the value of the first source tag present.
    pub source: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// What people have added.
    pub attributes: BTreeMap<String, AttributeValue>,
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

/// Changes of attributes: a value sets, `null` removes; what is not named stays. A value is text, a number, a boolean, a
/// time (`{"time": "2026-01-31T00:00:00Z"}`), a geo point (`{"lat": 52.52, "lon": 13.405}`) or a list of texts or numbers.
/// One of another type than the key has on other timelines of the table is refused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, serde_json::Value>, example = json!({
    "owner": "team-storage", "rack": 12, "retired": null, "bought": {"time": "2026-01-31T00:00:00Z"},
    "site": {"lat": 52.52, "lon": 13.405}, "labels": ["backup", "ssd"]
}))]
pub struct AttributeChanges(
    /// By attribute key.
    pub BTreeMap<String, Option<AttributeValue>>,
);
