//! Server clock used for expiry.
//!
//! A wrong wall clock must not expire points, so the server compares it with the passage of monotonic time and with
//! the newest points.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::DurationText;

/// Current time of the server, and the time used for expiry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "wall": "2026-11-20T12:00:00Z",
    "trusted": "2026-11-20T12:00:00Z",
    "expires_by": "2026-11-20T12:00:00Z",
    "doubt": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct ClockView {
    /// Wall clock of the machine, RFC 3339.
    pub wall: String,
    /// Trusted time, from which ages are counted, RFC 3339. It equals the wall clock as long as the wall clock
    /// agrees with the passage of monotonic time.
    pub trusted: String,
    /// Time from which ages are counted when expired bytes are freed, RFC 3339. It is never far beyond the newest
    /// point. `null` while the clock is in doubt or nothing is stored; then nothing is freed.
    pub expires_by: Option<String>,
    /// Reason why the wall clock is not trusted; `null` while it is trusted.
    pub doubt: Option<ClockDoubt>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Disagreement between the wall clock and the expected time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "reason": "the wall clock is 365d ahead of the expected time; nothing expires until it is back, is confirmed, or has been steady for another 19h",
    "since": "5h",
    "steady_for": "5h"
}))]
pub struct ClockDoubt {
    /// Human-readable description.
    pub reason: String,
    /// Time since the disagreement began.
    pub since: DurationText,
    /// Time for which the wall clock has differed from the expected time by the same amount. After one day the wall
    /// clock is trusted, unless it shows a time before 2026.
    pub steady_for: DurationText,
}
