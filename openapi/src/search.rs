//! Saved searches: conditions with a name.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::Condition;

/// A condition that is saved under a name. Elsewhere `{"saved": "name"}` stands for it, alone or within a tree; relative
/// times count from each use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"and": [{"tag": "region", "equals": "eu-west"}, {"attribute": "retired", "exists": false}]},
    "description": "what the team of storage looks after"
}))]
pub struct SavedSearch {
    /// The condition; it may use other saved searches, but not itself.
    #[serde(rename = "where")]
    pub condition: Condition,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A saved search with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NamedSearch {
    /// The name.
    pub name: String,
    /// The condition.
    #[serde(rename = "where")]
    pub condition: Condition,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl NamedSearch {
    /// Names a saved search.
    pub fn new(name: String, search: SavedSearch) -> Self {
        let SavedSearch {
            condition,
            description,
        } = search;
        Self {
            name,
            condition,
            description,
        }
    }
}

/// One saved search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchDetail {
    /// The search.
    #[serde(flatten)]
    pub search: NamedSearch,
    /// Names the request in the log.
    pub request_id: String,
}

/// All saved searches of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchList {
    /// The searches, by name.
    pub searches: Vec<NamedSearch>,
    /// Names the request in the log.
    pub request_id: String,
}
