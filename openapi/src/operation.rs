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
    "started": "2026-11-20T12:00:00Z",
    "up": "1h30m",
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct Readiness {
    /// `ready` or `not ready`.
    pub status: String,
    /// Reads are answered.
    pub reads: bool,
    /// Writes are taken.
    pub writes: bool,
    /// Why not, or what is worth knowing although all is well.
    pub reasons: Vec<String>,
    /// When the service started, RFC 3339.
    pub started: String,
    /// How long ago that was.
    pub up: String,
    /// Names the request in the log.
    pub request_id: String,
}
