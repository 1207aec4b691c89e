//! Copy of the rows of a table into a table with another key.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Copy of the rows of a table into another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"into": "orders_by_time"}))]
pub struct RekeyRows {
    /// Name of the target: an existing table of the model `wide`.
    pub into: String,
    /// True to accept a target whose key lacks columns of the source key. Rows with equal values of the target key then
    /// become one row. Default false.
    #[serde(default)]
    pub merge: bool,
    /// True to wait for the end of the job. Default false.
    #[serde(default)]
    pub wait: bool,
}
