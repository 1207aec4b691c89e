//! The time that points age by.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::DurationText;

/// What time it is, and whether anything may expire by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "wall": "2026-11-20T12:00:00Z",
    "trusted": "2026-11-20T12:00:00Z",
    "expires_by": "2026-11-20T12:00:00Z",
    "doubt": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct ClockView {
    /// The clock of the machine, RFC 3339.
    pub wall: String,
    /// The time that ages are counted from, RFC 3339: the machine's, believed as far as it agrees with time passing.
    pub trusted: String,
    /// The time that bytes are freed by, RFC 3339: never far beyond the newest point. `null` while the clock is in doubt
    /// or nothing is stored; then nothing is freed.
    pub expires_by: Option<String>,
    /// Why the machine's clock is not believed; `null` while it is.
    pub doubt: Option<ClockDoubt>,
    /// Names the request in the log.
    pub request_id: String,
}

/// The machine's clock and the time that should have come disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "reason": "the wall clock is 365d ahead of the time that should have come; nothing expires until it is back, is confirmed, or has been steady for another 19h",
    "since": "5h",
    "steady_for": "5h"
}))]
pub struct ClockDoubt {
    /// For people.
    pub reason: String,
    /// How long ago it began.
    pub since: DurationText,
    /// How long the machine's clock has kept its distance; after a day it is believed.
    pub steady_for: DurationText,
}
