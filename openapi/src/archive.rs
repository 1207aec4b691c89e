//! Archives: targets, archived points per table, restore, and unused objects.
//!
//! The types are bodies of `/v1/archive` and `/v1/tables/{table}/archive`. A restore runs as a job and is shown as a
//! [`JobView`]. The *description* of an archived segment is an object that lists the files of the segment and is
//! stored next to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::TimeSpan;
use crate::job::JobView;
use crate::policy::ArchivePolicy;
use crate::preview::Amount;
use crate::time::DurationText;
use crate::wide::PartsArchive;

/// Request to restore archived points, either to the cold tier for a limited time or as a copy in another table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"range": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-08T00:00:00Z"}, "for": "7d"}))]
pub struct RestoreArchived {
    /// Time range; `{}` selects all points. A restore to the cold tier moves whole segments that have points in the
    /// range. A copy contains only points inside the range.
    pub range: TimeSpan,
    /// Time for which policies keep the points in the cold tier. Default `7d`. Not allowed with `into`.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    #[schema(rename = "for", example = "7d")]
    pub lasting: Option<DurationText>,
    /// Name of another, existing table. The points of the range in all tiers are copied into that table, with the
    /// values that queries return now and with the identities and attributes of their timelines. The originals stay
    /// where they are. A repeated request overwrites the same points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// True if the response is sent when the job has ended. Default `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// Response to a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"job": null, "until": "2026-11-27T12:00:00Z", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RestoredArchive {
    /// Job of the restore or copy. `null` for a restore to the cold tier if no archived or cold segment has visible
    /// points in the range.
    pub job: Option<JobView>,
    /// Time until which policies keep the restored points in the cold tier, RFC 3339; `null` for a copy.
    pub until: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// State of all archives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"targets": [], "tables": [], "wide_tables": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct ArchiveOverview {
    /// Targets named by the configuration, by settings of tables, or by archived points or rows.
    pub targets: Vec<ArchiveTarget>,
    /// Tables of the model `series` that have an archive policy or archived points.
    pub tables: Vec<TableArchive>,
    /// Tables of the model `wide` that have an archive in their settings or archived parts.
    pub wide_tables: Vec<WideTableArchive>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Archive target, without its credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "default", "address": "s3://bucket/prefix", "tables": ["metrics"], "failures": 0, "error": null,
    "gets": 120, "bytes_got": 7_340_032, "puts": 31, "bytes_put": 104_857_600
}))]
pub struct ArchiveTarget {
    /// Name of the target in policies.
    pub name: String,
    /// Address of the target; `null` if it cannot be determined, for the reason in `error`.
    pub address: Option<String>,
    /// Tables that archive to the target.
    pub tables: Vec<String>,
    /// Largest number of consecutive failed moves of one table to this target; 0 = the last move of every table
    /// succeeded.
    pub failures: u32,
    /// Reason why the target cannot be opened or is not allowed, or why the last move failed; `null` otherwise.
    pub error: Option<String>,
    /// Read requests since the start of the service, one per byte range.
    pub gets: u64,
    /// Bytes read since the start of the service.
    pub bytes_got: u64,
    /// Objects written since the start of the service.
    pub puts: u64,
    /// Bytes written since the start of the service.
    pub bytes_put: u64,
}

/// Archive of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "table": "metrics",
    "archive": {"target": "default", "after": "90d", "schedule": "continuous", "keep_cold": null, "keep": null},
    "files": 62,
    "file_bytes": 104_857_600,
    "oldest": "2025-11-20T00:00:00Z",
    "newest": "2026-08-20T23:59:50Z",
    "archived": {"windows": 31, "segments": 31, "timelines": 400, "points": 9_000_000, "values": 90_000_000, "bytes": 104_857_600},
    "copied": {"windows": 0, "segments": 0, "timelines": 0, "points": 0, "values": 0, "bytes": 0},
    "waiting": {"windows": 1, "segments": 1, "timelines": 400, "points": 300_000, "values": 3_000_000, "bytes": 6_291_456},
    "late": {"windows": 0, "segments": 0, "timelines": 0, "points": 0, "values": 0, "bytes": 0},
    "waiting_since": "2026-11-20T00:00:00Z",
    "behind": "12h",
    "failures": 0,
    "tried_again": null,
    "last_job": null,
    "stalled": null
}))]
pub struct TableArchive {
    /// Name of the table.
    pub table: String,
    /// Archive policy of the table; `null` if the table has no archive policy any more.
    pub archive: Option<ArchivePolicy>,
    /// Number of files at targets, without descriptions.
    pub files: u64,
    /// Bytes of the files at targets, without descriptions.
    pub file_bytes: u64,
    /// Oldest timestamp in the files, RFC 3339; `null` without files.
    pub oldest: Option<String>,
    /// Newest timestamp in the files, RFC 3339; `null` without files.
    pub newest: Option<String>,
    /// Points that are only in files.
    pub archived: Amount,
    /// Points that are in files and, for a limited time, also in the cold tier.
    pub copied: Amount,
    /// Points that are old enough for the archive but not in files yet.
    pub waiting: Amount,
    /// Late points of archived windows. They stay in the cold tier until enough late points have arrived or
    /// enough time has passed.
    pub late: Amount,
    /// Time when the first of the waiting points became old enough, RFC 3339; `null` = no points wait.
    pub waiting_since: Option<String>,
    /// Time for which the oldest waiting points have been old enough; `0s` = no points wait. Points wait for the
    /// schedule of the policy, for other jobs, or because moves fail.
    pub behind: DurationText,
    /// Number of consecutive failed moves into files. The cold tier keeps the points until a move succeeds.
    pub failures: u32,
    /// Time of the next attempt while moves fail, RFC 3339; `null` otherwise.
    pub tried_again: Option<String>,
    /// Last job of kind `archive` that has ended, whatever its outcome.
    pub last_job: Option<JobView>,
    /// Reason why the archive makes no progress: three moves in a row have failed, or due points have waited for two
    /// days without a successful move. `null` otherwise. `/ready` reports it too.
    pub stalled: Option<String>,
}

/// Archive of one wide table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "table": "readings", "archive": {"target": "default", "after": "90d"},
    "parts": 12, "rows": 9_000_000, "files": 14, "file_bytes": 104_857_600,
    "targets": [{"name": "default", "parts": 12, "rows": 9_000_000, "files": 14, "file_bytes": 104_857_600}],
    "oldest": "2025-08-01T00:00:00Z", "newest": "2026-08-01T00:00:00Z", "waiting": 1,
    "waiting_since": "2026-11-29T00:00:00Z", "behind": "2h", "failures": 0, "tried_again": null, "last_job": null,
    "stalled": null
}))]
pub struct WideTableArchive {
    /// Name of the table.
    pub table: String,
    /// Archive in the settings of the table; `null` = none, and no further parts are archived.
    pub archive: Option<PartsArchive>,
    /// Number of parts in the archive.
    pub parts: u64,
    /// Number of rows in the archived parts.
    pub rows: u64,
    /// Number of files of the archived parts, without descriptions.
    pub files: u64,
    /// Bytes of the files of the archived parts, without descriptions.
    pub file_bytes: u64,
    /// Archived parts per target, sorted by the name of the target.
    pub targets: Vec<PartsAtTarget>,
    /// Start of the oldest part in the archive, RFC 3339; `null` without parts.
    pub oldest: Option<String>,
    /// End of the newest part in the archive, RFC 3339; `null` without parts.
    pub newest: Option<String>,
    /// Number of parts that are old enough for the archive and not archived yet.
    pub waiting: u64,
    /// Time when the first of the waiting parts became old enough, RFC 3339; `null` = no part waits.
    pub waiting_since: Option<String>,
    /// Time for which the oldest waiting part has been old enough; `0s` = no part waits.
    pub behind: DurationText,
    /// Number of consecutive failed moves into files. The rows stay in their tier until a move succeeds.
    pub failures: u32,
    /// Time of the next attempt while moves fail, RFC 3339; `null` otherwise.
    pub tried_again: Option<String>,
    /// Last job of kind `archive` that has ended, whatever its outcome.
    pub last_job: Option<JobView>,
    /// Reason why the archive makes no progress: three moves in a row have failed, or due parts have waited for two
    /// days without a successful move. `null` otherwise. `/ready` reports it too.
    pub stalled: Option<String>,
}

/// Archived parts of a wide table at one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartsAtTarget {
    /// Name or address of the target.
    pub name: String,
    /// Number of parts.
    pub parts: u64,
    /// Number of rows in the archived parts.
    pub rows: u64,
    /// Number of files of the archived parts, without descriptions.
    pub files: u64,
    /// Bytes of the files of the archived parts, without descriptions.
    pub file_bytes: u64,
}

/// Search for unused objects at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "default"}))]
pub struct SearchOrphans {
    /// Target, as in policies.
    pub target: String,
    /// Origin of the database whose objects are checked; object names start with it. An object of another database
    /// counts as unused if it is older than a day and no complete description refers to it. Default: only objects
    /// that this database has written or taken ownership of are checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// True to remove the unused objects. Default `false`: they are only listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}

/// Unused objects at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "target": "default", "objects": 0, "bytes": 0, "listed": [], "named": 93, "others": {}, "young": 0, "broken": [],
    "removed": 0, "removed_bytes": 0, "error": null, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FoundOrphans {
    /// Target that was searched.
    pub target: String,
    /// Number of unused objects.
    pub objects: u64,
    /// Bytes of the unused objects.
    pub bytes: u64,
    /// First 1,000 unused objects, descriptions first.
    pub listed: Vec<OrphanObject>,
    /// Number of objects in use by a segment, a running query, a job or a complete description. They stay.
    pub named: u64,
    /// Number of objects of other databases, by origin. They were not checked.
    pub others: std::collections::BTreeMap<String, u64>,
    /// Number of unreferenced objects of the database in `origin` that are less than a day old. They stay, because
    /// that database can still be writing them.
    pub young: u64,
    /// Unreadable descriptions of other databases, with the reason. They and the files of their segments stay.
    pub broken: Vec<String>,
    /// Number of removed objects.
    pub removed: u64,
    /// Bytes of the removed objects.
    pub removed_bytes: u64,
    /// Reason why the removal ended early. A repeated request removes the remaining objects.
    pub error: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Unused object at a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanObject {
    /// Name of the object below the target.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change of the object, RFC 3339, as reported by the target.
    pub modified: String,
    /// Content: `points`, `timelines`, `description`, `settings`, `rows`, `values` or `part_description`.
    pub content: String,
    /// Origin of the database that wrote the object.
    pub origin: String,
    /// Id of the segment for which the object was written.
    pub segment: u64,
    /// Reason why the object is unused.
    pub reason: String,
}
