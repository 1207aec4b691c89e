//! Jobs: planned, running and past work as shown to users.
//!
//! The serialized form of [`Job`] is stored in the journal of jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tideline_engine::model::{JobKind, TableId, Tier, TimeRange};

use crate::maintenance::{Amount, Planned};
use crate::throttle::JobCost;

/// Unit of background work: planned, running or past.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job. Later jobs have larger numbers, even after a restart.
    pub id: u64,
    /// Kind of work.
    #[serde(with = "crate::stored_kind")]
    pub kind: JobKind,
    /// Table of the job; `None` = the whole store.
    pub table: Option<JobTable>,
    /// Name of the table into which the job copies; `None` for other jobs. Earlier builds named it only in the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// State of the job.
    pub state: JobState,
    /// True if the job was requested; it then ignores its schedule.
    pub by_hand: bool,
    /// Reason for the work, for users.
    pub reason: String,
    /// Time when the work was first planned or requested, by the trusted clock, in nanoseconds since the epoch.
    pub created: i64,
    /// Earliest start by the trusted clock, in nanoseconds since the epoch; `None` = only on request.
    pub due: Option<i64>,
    /// Time of the start by the trusted clock, in nanoseconds since the epoch; `None` = not started.
    pub started: Option<i64>,
    /// Time of the end by the trusted clock, in nanoseconds since the epoch; `None` = not ended.
    pub finished: Option<i64>,
    /// Start of the time range of the job, nanoseconds since the epoch; `None` = no specific range.
    pub from: Option<i64>,
    /// End of the time range, nanoseconds since the epoch, exclusive; `None` = no specific range.
    pub to: Option<i64>,
    /// Tier of the output.
    pub tier: Tier,
    /// Planned amount of data. If the amount is known only when the job ends, it is then replaced by the actual amount.
    pub total: Amount,
    /// Progress so far.
    pub done: JobProgress,
    /// Outcome, for users; `None` = the job has not ended, or it has failed.
    pub outcome: Option<String>,
    /// Reason of the failure; `None` = not failed.
    pub error: Option<String>,
}

/// The table of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTable {
    /// Number of the table.
    #[serde(with = "table_number")]
    pub id: TableId,
    /// Name of the table when the job was planned.
    pub name: String,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// The job waits for other jobs, its schedule, its next attempt or a request.
    Planned,
    /// The job is running.
    Running,
    /// A user paused the job, alone or with all jobs of its kind and table.
    Paused,
    /// The job completed.
    Done,
    /// The job failed. Planned work is planned again and waits before its next attempt.
    Failed,
    /// The job ended early: it was cancelled, made obsolete by other changes, or interrupted by the end of the process.
    Cancelled,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Number of timelines that are completed.
    pub timelines: u64,
    /// Number of points read.
    pub points: u64,
    /// Number of field values read.
    pub values: u64,
    /// Number of encoded bytes read.
    pub bytes: u64,
    /// Number of bytes written.
    pub bytes_written: u64,
    /// Average number of bytes read per second; `None` = nothing read yet.
    pub bytes_per_second: Option<u64>,
    /// Estimated time until the end, in seconds; `None` = unknown, or the job has ended.
    pub seconds_left: Option<u64>,
}

/// Filter of the list of jobs.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs of this kind.
    pub kind: Option<JobKind>,
    /// Only jobs of the table with this name.
    pub table: Option<String>,
    /// Only jobs in this state.
    pub state: Option<JobState>,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Planned,
        Self::Running,
        Self::Paused,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the name of the state on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this name; `None` for an unknown name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns true if the job has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl Job {
    /// Creates the job of planned work.
    pub(crate) fn planned(id: u64, work: &Planned, table: Option<JobTable>, created: i64) -> Self {
        let bounds = Some(work.range).filter(|range| *range != TimeRange::ALL);
        Self {
            id,
            kind: work.kind,
            table,
            into: None,
            state: JobState::Planned,
            by_hand: false,
            reason: work.reason.clone(),
            created,
            due: work.at,
            started: None,
            finished: None,
            from: bounds.map(|range| range.start),
            to: bounds.map(|range| range.end),
            tier: work.tier,
            total: work.amount,
            done: JobProgress::default(),
            outcome: None,
            error: None,
        }
    }
}

impl JobProgress {
    /// Computes the progress of a job of `total` bytes that has run for `lasting`.
    pub(crate) fn of(cost: &JobCost, total: u64, lasting: Duration) -> Self {
        let seconds = lasting.as_secs_f64();
        let rate = (seconds > 0.0 && cost.bytes_read > 0).then(|| cost.bytes_read as f64 / seconds);
        let left = |rate: f64| (total.saturating_sub(cost.bytes_read) as f64 / rate).ceil() as u64;
        Self {
            timelines: cost.timelines,
            points: cost.points_read,
            values: cost.values_read,
            bytes: cost.bytes_read,
            bytes_written: cost.bytes_written,
            bytes_per_second: rate.map(|rate| rate as u64),
            seconds_left: rate.map(left),
        }
    }
}

impl JobFilter {
    /// Returns true if a job passes the filter.
    pub fn matches(&self, job: &Job) -> bool {
        let of_table = |name: &String| job.table.as_ref().is_some_and(|table| table.name == *name);
        self.kind.is_none_or(|kind| kind == job.kind)
            && self.state.is_none_or(|state| state == job.state)
            && self.table.as_ref().is_none_or(of_table)
    }
}

mod table_number {
    use serde::{Deserialize, Deserializer, Serializer};
    use tideline_engine::model::TableId;

    pub(super) fn serialize<S: Serializer>(id: &TableId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(id.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TableId, D::Error> {
        u32::deserialize(from).map(TableId)
    }
}
