//! Facets: how many timelines have which values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attribute::AttributeValue;
use crate::condition::{Condition, Property};
use crate::timeline::Suggestion;

/// Which timelines are counted, by which keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"property": "measurement", "equals": "cpu"},
    "by": [{"tag": "region"}, {"tag": "host"}],
    "limit": 5
}))]
pub struct FacetSearch {
    /// The condition; without it every timeline is meant.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// The keys, 1 to 4: groups by the first, within them groups by the second, and so on.
    pub by: Vec<FacetKey>,
    /// Most groups of each level, 1 to 10,000, and 100,000 in all. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Which groups come first.
    #[serde(default)]
    pub order: FacetOrder,
}

/// What timelines are counted by: exactly one of `tag`, `attribute` and `property`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tag": "region"}))]
pub struct FacetKey {
    /// By the value of this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// By the value of this attribute; a list is one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// By this property: `measurement` or `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
}

/// The order of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FacetOrder {
    /// Most timelines first; equal ones by value.
    #[default]
    Count,
    /// By value: missing, texts by bytes, numbers, booleans, times, places, lists.
    Value,
}

/// How many timelines have which values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": 12, "distinct": 2,
    "groups": [
        {"value": "eu-west", "timelines": 8, "distinct": 8, "groups": [{"value": "sim-001", "timelines": 1}]},
        {"value": null, "timelines": 4, "distinct": 1, "groups": [{"value": "sim-009", "timelines": 4}]}
    ],
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FacetList {
    /// Timelines that meet the condition.
    pub timelines: u64,
    /// How many groups there are, also beyond the limit.
    pub distinct: u64,
    /// The groups, in order, up to the limit.
    pub groups: Vec<FacetGroup>,
    /// Names in the request that the table does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Names the request in the log.
    pub request_id: String,
}

/// The timelines with one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FacetGroup {
    /// The value; `null` where timelines have none.
    #[schema(required)]
    pub value: Option<AttributeValue>,
    /// Timelines with it.
    pub timelines: u64,
    /// How many groups are within, also beyond the limit; absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// The groups within, by the next key; absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub groups: Option<Vec<FacetGroup>>,
}
