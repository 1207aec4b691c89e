//! Jobs that an operator starts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A job to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "seal"}))]
pub struct StartJob {
    /// What to do.
    pub kind: JobKind,
}

/// Kinds of job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Moves every unsealed point into segments and brings the search index up to date.
    Seal,
}

/// A job that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "kind": "seal",
    "state": "done",
    "duration_ms": 412,
    "head_points": 0,
    "segments": 4,
    "segment_bytes": 77_760_000,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct JobView {
    /// What was done.
    pub kind: JobKind,
    /// How it stands.
    pub state: JobState,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// Points that arrived meanwhile and wait for the next seal.
    pub head_points: u64,
    /// Segments of all tables.
    pub segments: u64,
    /// Bytes of their chunks and keys.
    pub segment_bytes: u64,
    /// Names the request in the log.
    pub request_id: String,
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Finished, and well.
    Done,
}
