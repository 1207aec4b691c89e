//! Facets: numbers of timelines by tag, attribute or property values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attribute::AttributeValue;
use crate::condition::{Condition, Property};
use crate::timeline::Suggestion;

/// Timelines to count, and the keys to count by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"property": "measurement", "equals": "cpu"},
    "by": [{"tag": "region"}, {"tag": "host"}],
    "limit": 5
}))]
pub struct FacetSearch {
    /// Condition on timelines. Default: all timelines.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// Keys, 1 to 4. Groups of the first key contain groups of the second, and so on.
    pub by: Vec<FacetKey>,
    /// Maximum number of groups in each list, 1 to 10,000. Default 10. A result with more than 100,000 groups in all
    /// lists together is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Order of groups.
    #[serde(default)]
    pub order: FacetOrder,
}

/// Key to count by: exactly one of `tag`, `attribute` and `property`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tag": "region"}))]
pub struct FacetKey {
    /// Tag key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Attribute key. A list counts as one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// Property: `measurement` or `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<Property>,
}

/// Order of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FacetOrder {
    /// Largest groups first; groups of equal size by value.
    #[default]
    Count,
    /// Order by value: first missing values, then texts by bytes, numbers, booleans, times, geo points, lists.
    Value,
}

/// Facets of timelines.
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
    /// Number of timelines that match the condition.
    pub timelines: u64,
    /// Number of groups of the first key, including those beyond the limit.
    pub distinct: u64,
    /// Groups of the first key in order, up to the limit.
    pub groups: Vec<FacetGroup>,
    /// Names in the request that the table does not have, with similar names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Timelines with one value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FacetGroup {
    /// Value; `null` for timelines without a value.
    #[schema(required)]
    pub value: Option<AttributeValue>,
    /// Number of timelines with this value.
    pub timelines: u64,
    /// Number of groups inside this one, including those beyond the limit. Absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// Groups inside this one by the next key. Absent on the last level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub groups: Option<Vec<FacetGroup>>,
}
