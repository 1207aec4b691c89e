//! Health and readiness of the service, and the guarantees of the engine that stores the data.
//!
//! Load balancers and monitoring systems read both. InfluxDB clients read the health too.

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
    /// Status; always `pass`, because a process that responds is alive. `/ready` reports whether the service accepts
    /// reads and writes.
    pub status: String,
    /// Health checks; always empty. InfluxDB clients expect the member.
    #[schema(value_type = Vec<Object>)]
    pub checks: Vec<serde_json::Value>,
    /// Version of the service.
    pub version: String,
}

/// Readiness of the service for reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "ready",
    "role": "owner",
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
    /// `owner`: this server owns the data. `standby`: another server owns the data of the cluster, and requests are
    /// forwarded to it. `starting`: this server has taken the data of the cluster, and opens it; until then requests are
    /// refused with 503. With the embedded engine always `owner`.
    pub role: String,
    /// Address of the server that owns the data, in the response of a standby. Omitted if there is no owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
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

/// Tier whose store has failed after a disk error. The server tries to reopen the store until an attempt succeeds.
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
    /// Error of the last failed attempt. Omitted if no attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time until the next attempt; `0s` while an attempt is running or due.
    pub next_in: String,
}

/// Engine that stores the data, and what it guarantees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "engine": "cassandra",
    "acknowledged": "replicated",
    "is_shared": true,
    "medium": "cluster",
    "backup": "cluster_snapshot",
    "buffers_writes": false,
    "limits_free_space": false,
    "frees_at_once": false,
    "has_offline_check": false,
    "epoch": 7,
    "requests_in_flight": 16,
    "page_rows": 1024,
    "page_bytes": 1048576,
    "requests": [{"kind": "read", "done": 1204, "failed": 0, "repeated": 0, "seconds": 1.9}]
}))]
pub struct BackendState {
    /// `fjall`: the data folder of the server. `cassandra`: a cluster.
    pub engine: String,
    /// Durability of an acknowledged write, unless the write requested less. `synced`: on stable storage of this
    /// machine or of a quorum of nodes. `replicated`: in the memory of a quorum of nodes.
    pub acknowledged: String,
    /// True if other servers can take over the data.
    pub is_shared: bool,
    /// `folder`: the data and the journal are in a folder of this machine, and a write waits for an fsync. `cluster`: they
    /// are in a cluster, and a write waits for a quorum of nodes.
    #[serde(default)]
    pub medium: String,
    /// Method of a backup. `folder_copy`: a copy of the data folder. `cluster_snapshot`: snapshots by the cluster.
    #[serde(default)]
    pub backup: String,
    /// True if a table or request can choose that its writes are acknowledged before they are on stable storage
    /// (`buffered`).
    #[serde(default)]
    pub buffers_writes: bool,
    /// True if writes are refused while the free disk space is below `storage.free_bytes_min` or
    /// `storage.free_per_mille_min`.
    #[serde(default)]
    pub limits_free_space: bool,
    /// True if the disk space of dropped, moved and expired data is free at once. False if the cluster frees it later.
    #[serde(default)]
    pub frees_at_once: bool,
    /// True if `tideline check` can check the stored data while no server runs.
    #[serde(default)]
    pub has_offline_check: bool,
    /// Number of the current ownership of the data. Each owner has a higher number than the owner before.
    pub epoch: u64,
    /// Number of requests to the engine that one call keeps in flight. 1: the engine is in this process.
    pub requests_in_flight: u64,
    /// Maximum number of rows of a page of a long scan.
    pub page_rows: u64,
    /// Maximum size of a page of a long scan, in bytes.
    pub page_bytes: u64,
    /// Counts of requests to the cluster since the start. Empty for an engine in this process.
    pub requests: Vec<BackendRequests>,
}

/// Counts of requests of one kind to the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackendRequests {
    /// `read`, `write`, or `conditional`.
    pub kind: String,
    /// Requests that were answered.
    pub done: u64,
    /// Requests that failed after all repetitions.
    pub failed: u64,
    /// Repetitions of requests.
    pub repeated: u64,
    /// Total time of the answered requests, in seconds.
    pub seconds: f64,
}
