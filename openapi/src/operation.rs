//! Health and readiness.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The process is alive. InfluxDB clients read the same body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "tideline",
    "message": "ready for queries and writes",
    "status": "pass",
    "checks": [],
    "version": "0.1.0"
}))]
pub struct Health {
    /// The product.
    pub name: String,
    /// For people.
    pub message: String,
    /// Always `pass`: a process that can answer is alive. Whether it can keep its promises says `/ready`.
    pub status: String,
    /// Always empty; InfluxDB clients expect the member.
    #[schema(value_type = Vec<Object>)]
    pub checks: Vec<serde_json::Value>,
    /// The version of the service.
    pub version: String,
}

/// Whether promises can be kept.
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
    /// All reads are answered. While a tier in `reopening` has `reads` false, those of its points are refused.
    pub reads: bool,
    /// Writes are taken.
    pub writes: bool,
    /// Why not, or what is worth knowing although all is well.
    pub reasons: Vec<String>,
    /// Tiers whose store has failed and is being reopened; empty while all is well.
    pub reopening: Vec<ReopeningTier>,
    /// When the service started, RFC 3339.
    pub started: String,
    /// How long ago that was.
    pub up: String,
    /// Names the request in the log.
    pub request_id: String,
}

/// A tier whose store has failed after an error of the disk. It is reopened again and again until that succeeds.
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
    /// `hot` or `cold`. Without the hot one no writes are taken.
    pub tier: String,
    /// The first error.
    pub reason: String,
    /// Reads of the tier are answered. They are until an attempt has failed.
    pub reads: bool,
    /// An attempt is running.
    pub is_running: bool,
    /// Attempts that have failed.
    pub attempts: u32,
    /// Error of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time until the next attempt.
    pub next_in: String,
}
