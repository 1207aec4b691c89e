//! Parts of wide tables: lists, previews of age settings, drops of old parts, and restores of archived parts.
//!
//! The setting `wide.parts` of a table defines its division into parts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::JobView;
use crate::tier::Tier;
use crate::time::DurationText;
use crate::wide::{PartsChanges, PartsSettings};

/// Part of a wide table that is divided by time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "2026-11", "start": "2026-11-01T00:00:00Z", "end": "2026-12-01T00:00:00Z", "tier": "hot",
    "writable": true, "held_until": null, "visible": true, "rows": null, "bytes": null
}))]
pub struct PartView {
    /// Name of the part: its day, ISO week or month.
    pub name: String,
    /// Start of the part, inclusive, RFC 3339.
    pub start: String,
    /// End of the part, exclusive, RFC 3339.
    pub end: String,
    /// Tier that stores the part; `null` if its rows are only in the row buffer.
    pub tier: Option<Tier>,
    /// False if rows of the part cannot be written any more, because the part is too old or in the archive.
    pub writable: bool,
    /// Time until which a restored part is not archived again, RFC 3339; `null` for other parts.
    pub held_until: Option<String>,
    /// False if the part has exceeded the age `keep` of the settings: its rows are hidden, and it is dropped later.
    pub visible: bool,
    /// Number of rows in the files of a part in the archive; `null` for other parts.
    pub rows: Option<u64>,
    /// Size of the files of a part in the archive, in bytes; `null` for other parts.
    pub bytes: Option<u64>,
}

/// Parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartList {
    /// Parts with rows, oldest first.
    pub parts: Vec<PartView>,
    /// Id of the request.
    pub request_id: String,
}

/// Request to drop the old parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"before": "2026-09-01T00:00:00Z", "preview": true}))]
pub struct DropParts {
    /// Time in RFC 3339, not in the future. Parts that end at or before it are dropped.
    pub before: String,
    /// True to only return the parts that would be dropped. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
}

/// Dropped parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartsDropped {
    /// Parts that were dropped, or with `preview` would be dropped, oldest first.
    pub dropped: Vec<PartView>,
    /// Id of the request.
    pub request_id: String,
}

/// Age settings to preview.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"parts": {"hot": "30d", "keep": "365d"}}))]
pub struct PreviewParts {
    /// Changes of the age settings in `wide.parts`. Default: the current settings.
    #[serde(default)]
    pub parts: PartsChanges,
}

/// Effects of age settings on the parts of a table from now on. A part can be in several lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "now": "2026-11-20T12:00:00Z", "parts": {"by": "at", "every": "month", "hot": "30d", "keep": "365d"},
    "migrate": [], "archive": [], "close": [], "open": [], "hide": [], "show": [], "drop": [], "paused": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct PartsPreview {
    /// Time from which ages are counted, RFC 3339.
    pub now: String,
    /// Previewed settings.
    pub parts: PartsSettings,
    /// Parts that move from the hot to the cold tier.
    pub migrate: Vec<PartView>,
    /// Parts that move into files.
    pub archive: Vec<PartView>,
    /// Parts whose rows can be written now, but not under the previewed settings.
    pub close: Vec<PartView>,
    /// Parts whose rows cannot be written now, but can be written under the previewed settings.
    pub open: Vec<PartView>,
    /// Parts that are hidden immediately. A longer `keep` shows them again until they are dropped.
    pub hide: Vec<PartView>,
    /// Hidden parts that become visible again.
    pub show: Vec<PartView>,
    /// Parts that the next job `remove_expired` drops, because they have been hidden for longer than
    /// `lifecycle.purge_delay`.
    pub drop: Vec<PartView>,
    /// Reason why no part is moved or dropped currently; `null` otherwise.
    pub paused: Option<String>,
    /// Id of the request.
    pub request_id: String,
}

/// Request to restore archived parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "2026-08-01T00:00:00Z", "to": "2026-09-01T00:00:00Z", "for": "7d", "wait": true}))]
pub struct RestoreParts {
    /// Start of the range in RFC 3339, inclusive. Every part that overlaps the range is restored.
    pub from: String,
    /// End of the range in RFC 3339, exclusive.
    pub to: String,
    /// Time from now on for which the parts are not archived again.
    #[serde(rename = "for")]
    pub hold: DurationText,
    /// True if the response is sent when the job has ended. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// Response to a restore of parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartsRestored {
    /// The job; `null` if no archived part overlaps the range.
    pub job: Option<JobView>,
    /// Time until which the parts are not archived again, RFC 3339; `null` without a job.
    pub until: Option<String>,
    /// Id of the request.
    pub request_id: String,
}
