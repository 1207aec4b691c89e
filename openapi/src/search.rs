//! Saved searches: conditions with a name.
//!
//! Saved searches are stored per table and expanded each time a request uses them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::Condition;

/// Condition to save under a name. Other conditions can contain it as `{"saved": "name"}`, alone or inside a tree.
/// Relative times are resolved at each use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "where": {"and": [{"tag": "region", "equals": "eu-west"}, {"attribute": "retired", "exists": false}]},
    "description": "machines of the storage team"
}))]
pub struct SavedSearch {
    /// Condition. It can use other saved searches, but not itself.
    #[serde(rename = "where")]
    pub condition: Condition,
    /// Human-readable description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Saved search with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NamedSearch {
    /// Name.
    pub name: String,
    /// Condition.
    #[serde(rename = "where")]
    pub condition: Condition,
    /// Human-readable description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl NamedSearch {
    /// Adds a name to a saved search.
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
    /// Saved search.
    #[serde(flatten)]
    pub search: NamedSearch,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// All saved searches of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SearchList {
    /// Saved searches, ordered by name.
    pub searches: Vec<NamedSearch>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
