//! Archives: what is brought back from them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::TimeSpan;
use crate::job::JobView;
use crate::time::DurationText;

/// Archived points that are wanted in the cold tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"range": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-08T00:00:00Z"}, "for": "7d"}))]
pub struct RestoreArchived {
    /// Of which time; whole segments that have points there come back. `{}` means all.
    pub range: TimeSpan,
    /// For how long policies leave them in the cold tier. Default 7 days.
    #[serde(rename = "for", default = "a_week")]
    #[schema(rename = "for", default = "7d")]
    pub lasting: DurationText,
    /// Whether the answer comes when it is done. Default `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

fn a_week() -> DurationText {
    DurationText(7 * tideline_model::time::NANOS_PER_DAY)
}

/// What brings archived points back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"job": null, "until": "2026-11-27T12:00:00Z", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RestoredArchive {
    /// The job that does it; `null` = no sealed point of the range lies in the archive or the cold tier.
    pub job: Option<JobView>,
    /// Until when policies leave what comes back in the cold tier, RFC 3339.
    pub until: String,
    /// Names the request in the log.
    pub request_id: String,
}
