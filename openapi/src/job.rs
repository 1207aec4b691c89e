//! Jobs: work in the background, planned, running and past, and what an operator asks of it.

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

/// Work to be done now, whatever its schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "migrate", "table": "default"}))]
pub struct StartJobs {
    /// What to do.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// Of this table only; without it of all. A seal is always of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Whether the answer comes when the work is done. Default `true` for `seal`, `false` for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

/// Schema of [`JobKind`]: its names are those of the model.
pub struct JobKindSchema;

impl PartialSchema for JobKindSchema {
    fn schema() -> RefOr<Schema> {
        named("Kinds of work.", JobKind::ALL.map(JobKind::name))
    }
}

impl ToSchema for JobKindSchema {
    fn name() -> Cow<'static, str> {
        "JobKind".into()
    }
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for its turn, for its schedule, or to be asked for.
    Planned,
    /// It runs.
    Running,
    /// Somebody paused it, or all work of its kind and table.
    Paused,
    /// Finished, and well.
    Done,
    /// It failed; the same work is planned again after a while.
    Failed,
    /// It ended before its end: by somebody's wish, by the end of the process, or overtaken by other work.
    Cancelled,
}

/// What was begun, and what holds at the time of the answer.
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
    /// What was asked for.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// How the jobs stand together; `done` also where there was nothing to do.
    pub state: JobState,
    /// Milliseconds from the request to the answer.
    pub duration_ms: u64,
    /// The jobs. None where there was nothing to do, and for a seal that was waited for: it is done at once, beside
    /// whatever job runs.
    pub jobs: Vec<JobView>,
    /// Unsealed points; after a seal those that arrived meanwhile.
    pub head_points: u64,
    /// Segments of all tables.
    pub segments: u64,
    /// Bytes of their chunks and keys.
    pub segment_bytes: u64,
    /// Names the request in the log.
    pub request_id: String,
}

/// A piece of work in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": 17,
    "kind": "migrate",
    "table": "default",
    "state": "running",
    "by_hand": false,
    "reason": "8 hot segments lie in a window that ended more than 7d ago",
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
    /// Rises from job to job.
    pub id: u64,
    /// What kind of work.
    #[schema(value_type = JobKindSchema)]
    pub kind: JobKind,
    /// The table that it is about; `null` = all.
    pub table: Option<String>,
    /// How it stands.
    pub state: JobState,
    /// Whether somebody asked for it, whatever its schedule.
    pub by_hand: bool,
    /// Why there is such work.
    pub reason: String,
    /// When it was planned, RFC 3339.
    pub created: String,
    /// When it may begin, RFC 3339; `null` = when somebody asks for it.
    pub due: Option<String>,
    /// When it began, RFC 3339.
    pub started: Option<String>,
    /// When it ended, RFC 3339.
    pub finished: Option<String>,
    /// The windows that it is about; `null` = none in particular.
    pub span: Option<Span>,
    /// The tier of what it makes.
    pub tier: Tier,
    /// How much there is to do.
    pub total: Amount,
    /// How much of it is done.
    pub done: JobProgress,
    /// Bytes that it reads in a second, over all of its time.
    pub bytes_per_second: Option<u64>,
    /// How long the rest takes at this rate.
    pub time_left: Option<DurationText>,
    /// What came of it, for people.
    pub outcome: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// Timelines gone through.
    pub timelines: u64,
    /// Points read.
    pub points: u64,
    /// Field values read.
    pub values: u64,
    /// Bytes of chunks and keys read.
    pub bytes: u64,
    /// Bytes of chunks and keys written.
    pub bytes_written: u64,
}

/// One job, described.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// The job.
    #[serde(flatten)]
    pub job: JobView,
    /// Names the request in the log.
    pub request_id: String,
}

/// Which jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// In this state.
    #[serde(default)]
    pub state: Option<JobState>,
    /// About this table.
    #[serde(default)]
    #[param(example = "default")]
    pub table: Option<String>,
    /// Of this kind.
    #[serde(default)]
    #[param(value_type = Option<JobKindSchema>)]
    pub kind: Option<JobKind>,
    /// Most jobs of the page, 1 to 1,000. Default 100.
    #[serde(default)]
    #[param(example = 10)]
    pub limit: Option<usize>,
    /// `next` of the page before.
    #[serde(default)]
    pub page: Option<String>,
}

/// A page of jobs: the running ones, then waiting ones from old to new, then past ones from new to old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Pass it as `page` to get what follows; `null` after the last page.
    pub next: Option<String>,
    /// Names the request in the log.
    pub request_id: String,
}

/// The default of requests whose work is a job: their answer tells how far it comes.
pub(crate) fn waits() -> bool {
    true
}

/// Whether that default need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
pub(crate) fn is_waiting(wait: &bool) -> bool {
    *wait
}
