//! What a policy would do, without doing it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::{Policy, PolicyChanges};
use crate::statistics::Span;

/// A policy to try out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"table": "default", "policy": {"hot_ttl": "3d", "retention": "90d"}}))]
pub struct PreviewPolicy {
    /// The table whose policy it would be.
    pub table: String,
    /// Changes of the table's policy; without them it is tried as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChanges>,
}

/// Effects of a policy if it held from now on: points moved, hidden and freed. Points, values and timelines include what is not sealed yet;
/// windows, segments and bytes are those of sealed points.
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
    /// The instant that ages are counted from, RFC 3339.
    pub now: String,
    /// The policy that it is about.
    pub policy: Policy,
    /// What moves from the hot to the cold tier.
    pub migrate: PlannedMove,
    /// What leaves the cold tier for files: `null` where the policy has no archive. What has to become cold for it is in
    /// `migrate` too.
    pub archive: Option<PlannedMove>,
    /// What is hidden at once, and for as long as the policy stays. Where a window is cut, its part is estimated as if
    /// its points were spread evenly.
    pub hide: Amount,
    /// What of that lies in segments that hold nothing else, whose bytes are freed. Until then a longer policy shows its
    /// points again.
    pub free: PlannedMove,
    /// How many of these points are not sealed yet. They move with the seal, which writes them where they belong.
    pub unsealed: UnsealedPoints,
    /// The first instant that is visible, RFC 3339; `null` = everything is.
    pub visible_from: Option<String>,
    /// Why nothing is freed just now, where that is so.
    pub paused: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// Points that are not sealed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsealedPoints {
    /// Those that are old enough for the cold tier.
    pub migrate: u64,
    /// Those that are old enough for files.
    pub archive: u64,
    /// Those that are hidden.
    pub hide: u64,
    /// Those that are hidden and freed with what they are sealed into.
    pub free: u64,
}

/// How much is moved, hidden or freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Windows.
    pub windows: u64,
    /// Segments.
    pub segments: u64,
    /// Timelines: at least so many, as many as the segment with the most of them has.
    pub timelines: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of chunks and keys.
    pub bytes: u64,
}

/// A move that a policy brings about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedMove {
    /// How much.
    #[serde(flatten)]
    pub amount: Amount,
    /// When it begins, RFC 3339; `null` = there is nothing to move, or not while it is paused.
    pub begins: Option<String>,
    /// The windows, oldest first, at most the first thousand.
    pub first_windows: Vec<Span>,
}
