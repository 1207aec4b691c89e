//! Audit records of changes, and counts of refused requests.
//!
//! The records are rows of the table `tideline-audit`, which admins read like any wide table.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DurationText;

/// New retention time of audit records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"retention": "90d"}))]
pub struct PutAuditRetention {
    /// Time for which records are kept, at least `1d`. Older records expire immediately.
    pub retention: DurationText,
}

/// Retention time of audit records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRetention {
    /// Time for which records are kept.
    pub retention: DurationText,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
