//! Preview of a policy: its effects, without applying it.
//!
//! Counts apply to the time of the request. They include unsealed points, whose numbers are also listed separately.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::{Policy, PolicyChanges};
use crate::statistics::Span;

/// Policy to preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"table": "default", "policy": {"hot_ttl": "3d", "retention": "90d"}}))]
pub struct PreviewPolicy {
    /// Name of the table.
    pub table: String,
    /// Changes of the table's policy. Default: the current policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChanges>,
}

/// Effects of a policy from now on: points moved, hidden and freed. Points, values and timelines include
/// unsealed data. Windows, segments and bytes count only sealed points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "now": "2026-11-20T12:00:00Z",
    "policy": {
        "hot_ttl": "3d", "cold_ttl": null, "retention": "90d", "archive": null, "timeline_ttl": null,
        "migrate": "continuous", "expire": "continuous", "move_bytes_per_second": null, "timelines_per_minute": null
    },
    "migrate": {
        "windows": 12, "segments": 96, "timelines": 36_000, "points": 12_960_000, "values": 129_600_000,
        "bytes": 77_760_000, "begins": "2026-11-20T12:00:00Z",
        "first_windows": [{"start": "2026-11-05T00:00:00Z", "end": "2026-11-06T00:00:00Z"}]
    },
    "archive": null,
    "hide": {
        "windows": 2, "segments": 2, "timelines": 36_000, "points": 1_080_000, "values": 10_800_000, "bytes": 6_480_000
    },
    "free": {
        "windows": 1, "segments": 1, "timelines": 36_000, "points": 864_000, "values": 8_640_000, "bytes": 5_184_000,
        "begins": "2026-11-21T12:00:00Z",
        "first_windows": [{"start": "2026-08-21T00:00:00Z", "end": "2026-08-22T00:00:00Z"}]
    },
    "unsealed": {"migrate": 0, "archive": 0, "hide": 1200, "free": 0},
    "visible_from": "2026-08-22T12:00:00Z",
    "paused": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct PolicyPreview {
    /// Time from which ages are counted, RFC 3339.
    pub now: String,
    /// Previewed policy.
    pub policy: Policy,
    /// Moves from the hot to the cold tier.
    pub migrate: PlannedMove,
    /// Moves into files; `null` if the policy has no archive. Points that must first become cold are also counted in
    /// `migrate`.
    pub archive: Option<PlannedMove>,
    /// Points that the policy hides immediately, for as long as the policy applies to the table. If only a part of a
    /// window is hidden, its points are estimated as if the points of the window were evenly distributed.
    pub hide: Amount,
    /// Hidden points of segments that contain only hidden points; the bytes of these segments are freed. Before the
    /// bytes are freed, a policy with longer ages makes the points visible again.
    pub free: PlannedMove,
    /// Unsealed points that are included in `migrate`, `archive`, `hide` and `free`. A seal writes them directly to
    /// their tier.
    pub unsealed: UnsealedPoints,
    /// Oldest visible timestamp, RFC 3339; `null` = no limit.
    pub visible_from: Option<String>,
    /// Reason why no bytes are freed currently; `null` otherwise.
    pub paused: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Unsealed points affected by a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UnsealedEffects)]
pub struct UnsealedPoints {
    /// Points old enough for the cold tier.
    pub migrate: u64,
    /// Points old enough for files.
    pub archive: u64,
    /// Hidden points.
    pub hide: u64,
    /// Hidden points whose bytes are freed together with the segments that they are sealed into.
    pub free: u64,
}

/// Amount of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Time windows.
    pub windows: u64,
    /// Segments.
    pub segments: u64,
    /// Timelines, as a lower bound: the largest number of timelines in one segment.
    pub timelines: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of chunks and keys.
    pub bytes: u64,
}

/// Planned move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedMove {
    /// Amount of data.
    #[serde(flatten)]
    pub amount: Amount,
    /// Start, RFC 3339; `null` = there is nothing to move, or moves are paused.
    pub begins: Option<String>,
    /// Time windows, oldest first, at most the first 1,000.
    pub first_windows: Vec<Span>,
}
