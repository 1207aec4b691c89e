//! Archives: how they stand, and what is brought back from them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::TimeSpan;
use crate::job::JobView;
use crate::policy::ArchivePolicy;
use crate::preview::Amount;
use crate::time::DurationText;

/// Archived points that are wanted back: in the cold tier for a while, or as a copy in another table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"range": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-08T00:00:00Z"}, "for": "7d"}))]
pub struct RestoreArchived {
    /// Of which time. `{}` means all. Into the cold tier whole segments come back that have points there; a copy has the
    /// points of the range alone.
    pub range: TimeSpan,
    /// For how long policies leave them in the cold tier. Default 7 days.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    #[schema(rename = "for", example = "7d")]
    pub lasting: Option<DurationText>,
    /// Another table, into which the points are copied as they answer now, whatever their tier, with identities and
    /// attributes; nothing moves then. Sent again, the same points take the same places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Whether the answer comes when it is done. Default `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

/// What brings archived points back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"job": null, "until": "2026-11-27T12:00:00Z", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RestoredArchive {
    /// The job that does it; `null` = no sealed point of the range lies in the archive or the cold tier.
    pub job: Option<JobView>,
    /// Until when policies leave what comes back in the cold tier, RFC 3339; `null` for a copy.
    pub until: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// How archives stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"targets": [], "tables": [], "request_id": "01jd3k5w8v-000002a1"}))]
pub struct ArchiveOverview {
    /// The targets that the configuration, policies and archived points name.
    pub targets: Vec<ArchiveTarget>,
    /// The tables that have an archive, or archived points.
    pub tables: Vec<TableArchive>,
    /// Names the request in the log.
    pub request_id: String,
}

/// A target, without its credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "default", "address": "s3://bucket/prefix", "tables": ["metrics"], "failures": 0, "error": null,
    "gets": 120, "bytes_got": 7_340_032, "puts": 31, "bytes_put": 104_857_600
}))]
pub struct ArchiveTarget {
    /// As policies name it.
    pub name: String,
    /// Where it is; `null` where that cannot be told, as `error` says.
    pub address: Option<String>,
    /// The tables that archive to it.
    pub tables: Vec<String>,
    /// The most failures in a row of a table's moves to it; 0 = it answered when it was last needed for them.
    pub failures: u32,
    /// Why the last of them failed, while they fail.
    pub error: Option<String>,
    /// Reads since the start, one for each range.
    pub gets: u64,
    /// Bytes that came back.
    pub bytes_got: u64,
    /// Objects written since the start.
    pub puts: u64,
    /// Bytes sent.
    pub bytes_put: u64,
}

/// The archive of a table.
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
    /// Whose.
    pub table: String,
    /// Its policy; `null` where it has none any more.
    pub archive: Option<ArchivePolicy>,
    /// Files at targets, descriptions left out.
    pub files: u64,
    /// Their size.
    pub file_bytes: u64,
    /// The first instant in them, RFC 3339.
    pub oldest: Option<String>,
    /// The last one.
    pub newest: Option<String>,
    /// What is in files only.
    pub archived: Amount,
    /// What is in files, and stays in the cold tier for a while.
    pub copied: Amount,
    /// What is old enough for files and not in any.
    pub waiting: Amount,
    /// A few late points beside files, which wait for more of them.
    pub late: Amount,
    /// When the first of what waits became old enough, RFC 3339.
    pub waiting_since: Option<String>,
    /// For how long it has waited: by its schedule, since it is not its turn yet, or since moves fail. `0s` = nothing waits.
    pub behind: DurationText,
    /// How often moves into files have failed in a row. Until one succeeds the cold tier keeps the points.
    pub failures: u32,
    /// When the next try is, RFC 3339, while they fail.
    pub tried_again: Option<String>,
    /// The last job that moved points into files, however it ended.
    pub last_job: Option<JobView>,
    /// Why the archive makes no progress: three moves in a row have failed, or points that are due have waited for two days
    /// without any move. `null` while it goes on. `/ready` repeats it.
    pub stalled: Option<String>,
}

/// A search for objects at a target that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "default"}))]
pub struct SearchOrphans {
    /// The target, as in policies.
    pub target: String,
    /// Only objects of this database: the first part of their names. Without it those that this database wrote or has
    /// adopted. Objects of another database are found where no finished description names them and they are a day old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether what is found is removed. Default `false`: nothing is changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}

/// Objects at a target that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "target": "default", "objects": 0, "bytes": 0, "listed": [], "named": 93, "others": {}, "young": 0, "broken": [],
    "removed": 0, "removed_bytes": 0, "error": null, "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct FoundOrphans {
    /// The target.
    pub target: String,
    /// How many were found.
    pub objects: u64,
    /// Their size.
    pub bytes: u64,
    /// The first 1,000 of them, descriptions first.
    pub listed: Vec<OrphanObject>,
    /// Objects that a segment, a reader, a job or a finished description names: they stay.
    pub named: u64,
    /// Objects of other databases, which were not looked at, by database.
    pub others: std::collections::BTreeMap<String, u64>,
    /// Objects of the other database that nothing names and that are less than a day old: it may be archiving.
    pub young: u64,
    /// Descriptions of other databases that cannot be read, and why. They and the files of their segments stay.
    pub broken: Vec<String>,
    /// How many were removed.
    pub removed: u64,
    /// Their size.
    pub removed_bytes: u64,
    /// Why the removal ended early; sent again, it goes on.
    pub error: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// An object that nothing names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanObject {
    /// Its name below the target.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the target's clock, RFC 3339.
    pub modified: String,
    /// `points`, `timelines`, `description` or `settings`.
    pub content: String,
    /// The database that wrote it.
    pub origin: String,
    /// The segment that it was written for.
    pub segment: u64,
    /// Why nothing names it.
    pub reason: String,
}
