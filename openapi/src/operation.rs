//! Health and readiness of the service.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Liveness of the process. The body has the form that InfluxDB clients read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "tideline",
    "message": "ready for queries and writes",
    "status": "pass",
    "checks": [],
    "version": "0.1.0"
}))]
pub struct Health {
    /// Product name.
    pub name: String,
    /// Human-readable message.
    pub message: String,
    /// Always `pass`, because a process that responds is alive. `/ready` reports whether it can serve reads and
    /// writes.
    pub status: String,
    /// Always empty. InfluxDB clients expect the member.
    #[schema(value_type = Vec<Object>)]
    pub checks: Vec<serde_json::Value>,
    /// Version of the service.
    pub version: String,
}

/// Readiness of the service for reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "ready",
    "reads": true,
    "writes": true,
    "reasons": [],
    "reopening": [],
    "started": "2026-11-20T12:00:00Z",
    "up": "1h30m",
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct Readiness {
    /// `ready` or `not ready`.
    pub status: String,
    /// True if all reads are served. While a tier in `reopening` has `reads` false, reads of its points are refused.
    pub reads: bool,
    /// True if writes are accepted.
    pub writes: bool,
    /// Reasons why the service is not ready, and warnings.
    pub reasons: Vec<String>,
    /// Tiers whose store has failed and is being reopened. Empty while all stores work.
    pub reopening: Vec<ReopeningTier>,
    /// Start of the service, RFC 3339.
    pub started: String,
    /// Time since the start.
    pub up: String,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Tier whose store has failed after a disk error. The store is reopened repeatedly until that succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "tier": "hot",
    "reason": "Input/output error (os error 5)",
    "reads": false,
    "is_running": false,
    "attempts": 3,
    "last_error": "store/0.jnl: No space left on device (os error 28)",
    "next_in": "4s"
}))]
pub struct ReopeningTier {
    /// `hot` or `cold`. Without the hot tier no writes are accepted.
    pub tier: String,
    /// First error.
    pub reason: String,
    /// True if reads of the tier are served. Reads are refused after the first failed attempt.
    pub reads: bool,
    /// True while an attempt is running.
    pub is_running: bool,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Error of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time until the next attempt.
    pub next_in: String,
}
