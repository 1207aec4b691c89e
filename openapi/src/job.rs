//! Jobs: planned, running and past background work, and requests that control it.
//!
//! [`JobKind`] of `tideline-model` defines the names of job kinds, so that API, metrics and command line use the same
//! names.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tideline_model::JobKind;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::named::named;
use crate::preview::Amount;
use crate::statistics::Span;
use crate::tier::Tier;
use crate::time::DurationText;

/// Request to run a kind of job now, regardless of its schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "migrate", "table": "default"}))]
pub struct StartJobs {
    /// Kind of job. Kinds that need parameters, such as `restore`, have their own routes.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// Only jobs of this table. Default: all tables. Not allowed with `seal`, which applies to all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// True if the response is sent when the jobs have ended. Default `true` for `seal`, `false` for all other
    /// kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

/// Schema of [`JobKind`], with the names that `tideline-model` defines.
pub struct JobKindSchema;

impl PartialSchema for JobKindSchema {
    fn schema() -> RefOr<Schema> {
        named("Kinds of jobs.", JobKind::ALL.map(JobKind::name))
    }
}

impl ToSchema for JobKindSchema {
    fn name() -> Cow<'static, str> {
        "JobKind".into()
    }
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits for other jobs, for its schedule, or for a request.
    Planned,
    /// The job is running.
    Running,
    /// The job is paused, alone or with all jobs of its kind and table.
    Paused,
    /// The job succeeded.
    Done,
    /// The job failed. Work that the planner has scheduled is scheduled again after a wait.
    Failed,
    /// The job ended early: it was cancelled, interrupted by the end of the process, or made obsolete by other work.
    Cancelled,
}

/// Started jobs and their state at the time of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "kind": "seal",
    "state": "done",
    "duration_ms": 412,
    "jobs": [],
    "head_points": 0,
    "segments": 4,
    "segment_bytes": 77_760_000,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct StartedJobs {
    /// Requested kind.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// Combined state of the jobs; `done` also if there was nothing to do.
    pub state: JobState,
    /// Time from the request to the response, milliseconds.
    pub duration_ms: u64,
    /// Started jobs. Empty if there was nothing to do. A `seal` that the request waits for runs immediately, without
    /// waiting for other jobs.
    pub jobs: Vec<JobView>,
    /// Number of unsealed points of all tables. After a seal, only the points that have arrived since its start
    /// remain. `null` for a token with a scope.
    pub head_points: Option<u64>,
    /// Number of segments of all tables. `null` for a token with a scope.
    pub segments: Option<u64>,
    /// Bytes of the chunks and keys of the segments of all tables. `null` for a token with a scope.
    pub segment_bytes: Option<u64>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Background job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": 17,
    "kind": "migrate",
    "table": "default",
    "state": "running",
    "by_hand": false,
    "reason": "8 hot segments are in a window that ended more than 7d ago",
    "created": "2026-11-20T12:00:00Z",
    "due": "2026-11-20T12:00:00Z",
    "started": "2026-11-20T12:00:05Z",
    "finished": null,
    "span": {"start": "2026-11-12T00:00:00Z", "end": "2026-11-13T00:00:00Z"},
    "tier": "cold",
    "total": {
        "windows": 1, "segments": 8, "timelines": 36_000, "points": 12_960_000, "values": 129_600_000,
        "bytes": 77_760_000
    },
    "done": {
        "timelines": 9_000, "points": 3_240_000, "values": 32_400_000, "bytes": 19_440_000, "bytes_written": 9_720_000
    },
    "bytes_per_second": 9_720_000,
    "time_left": "6s",
    "outcome": null,
    "error": null
}))]
pub struct JobView {
    /// Number of the job. It increases from job to job.
    pub id: u64,
    /// Kind of job.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// Table of the job; `null` = all tables.
    pub table: Option<String>,
    /// Table into which the job copies. Omitted for other jobs, and for a token whose scope does not include it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// State of the job.
    pub state: JobState,
    /// True if the job was requested, regardless of its schedule.
    pub by_hand: bool,
    /// Reason for the job.
    pub reason: String,
    /// Time when the job was planned, RFC 3339.
    pub created: String,
    /// Earliest start, RFC 3339; `null` = only on request.
    pub due: Option<String>,
    /// Start, RFC 3339; `null` = not started.
    pub started: Option<String>,
    /// End, RFC 3339; `null` = not ended.
    pub finished: Option<String>,
    /// Time windows that the job processes; `null` if the job is not limited to time windows.
    pub span: Option<Span>,
    /// Tier of the output.
    pub tier: Tier,
    /// Planned amount of data. If no amount can be planned, this becomes the actual amount at the end of the
    /// job. For jobs of the kind `fan_out`, `points` is the number of inbox entries of the messages that the job
    /// has read so far.
    pub total: Amount,
    /// Progress.
    pub done: JobProgress,
    /// Bytes read per second, averaged over the whole run; `null` = nothing was read yet.
    pub bytes_per_second: Option<u64>,
    /// Estimated remaining time; `null` = unknown, or the job has ended.
    pub time_left: Option<DurationText>,
    /// Human-readable outcome; `null` = the job has not ended, or it failed.
    pub outcome: Option<String>,
    /// Reason of the failure; `null` = the job has not failed.
    pub error: Option<String>,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// Timelines processed; for jobs of the kind `fan_out`, feeds, and interrupted joins that are complete.
    pub timelines: u64,
    /// Points read; for jobs of the kind `fan_out`, inbox entries written.
    pub points: u64,
    /// Field values read.
    pub values: u64,
    /// Bytes of chunks and keys read.
    pub bytes: u64,
    /// Bytes of chunks and keys written.
    pub bytes_written: u64,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// Job.
    #[serde(flatten)]
    pub job: JobView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Filters of the list of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// Only jobs in this state.
    #[serde(default)]
    pub state: Option<JobState>,
    /// Only jobs of this table.
    #[serde(default)]
    #[param(example = "default")]
    pub table: Option<String>,
    /// Only jobs of this kind.
    #[serde(default)]
    #[param(value_type = Option<JobKindSchema>)]
    pub kind: Option<JobKind>,
    /// Maximum number of jobs per page, 1 to 1,000. Default 100.
    #[serde(default)]
    #[param(example = 10)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[serde(default)]
    pub page: Option<String>,
}

/// Page of jobs: running jobs, then waiting jobs from old to new, then past jobs from new to old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// Jobs.
    pub jobs: Vec<JobView>,
    /// Token of the next page, sent as `page`; `null` on the last page.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Default of members that are true unless a request states otherwise.
pub(crate) fn yes() -> bool {
    true
}

/// Returns true if a member has the default of [`yes`]. Serialization then omits it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_yes(member: &bool) -> bool {
    *member
}
