//! Jobs: planned, running and past work as people see it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tideline_engine::model::{JobKind, TableId, Tier, TimeRange};

use crate::maintenance::{Amount, Planned};
use crate::pace::JobCost;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Rises from job to job, and across restarts.
    pub id: u64,
    /// What kind of work.
    #[serde(with = "crate::stored_kind")]
    pub kind: JobKind,
    /// Whose; `None` = the whole store.
    pub table: Option<JobTable>,
    /// How far it is.
    pub state: JobState,
    /// Whether somebody asked for it, whatever its schedule.
    pub by_hand: bool,
    /// Why there is such work.
    pub reason: String,
    /// When it was first planned, trusted nanoseconds since the epoch.
    pub created: i64,
    /// When it may begin, or might have begun; `None` = by hand only.
    pub due: Option<i64>,
    /// When it began.
    pub started: Option<i64>,
    /// When it ended.
    pub finished: Option<i64>,
    /// First instant of the windows that it is about; `None` = it is about no window.
    pub from: Option<i64>,
    /// The first instant after them.
    pub to: Option<i64>,
    /// The tier of what it makes.
    pub tier: Tier,
    /// How much it takes.
    pub total: Amount,
    /// What it has done so far.
    pub done: JobProgress,
    /// What came of it, for people.
    pub outcome: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The table of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTable {
    /// Its number.
    #[serde(with = "table_number")]
    pub id: TableId,
    /// Its name when the job was planned.
    pub name: String,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for its turn, for its schedule, or to be asked for.
    Planned,
    /// It runs.
    Running,
    /// A user paused it, or all jobs of its kind and table.
    Paused,
    /// It is done.
    Done,
    /// It failed; the same work is planned again after a while.
    Failed,
    /// It ended early: it was cancelled or overtaken, or the process ended.
    Cancelled,
}

/// What a job has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Timelines done.
    pub timelines: u64,
    /// Points read.
    pub points: u64,
    /// Field values read.
    pub values: u64,
    /// Encoded bytes read.
    pub bytes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read in a second, over all of its time.
    pub bytes_per_second: Option<u64>,
    /// What is left at this rate.
    pub seconds_left: Option<u64>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Of this kind.
    pub kind: Option<JobKind>,
    /// Of the table with this name.
    pub table: Option<String>,
    /// In this state.
    pub state: Option<JobState>,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Planned,
        Self::Running,
        Self::Paused,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Its name on the wire.
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

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing more will happen.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl Job {
    /// A job for planned work.
    pub(crate) fn planned(id: u64, work: &Planned, table: Option<JobTable>, created: i64) -> Self {
        let bounds = Some(work.range).filter(|range| *range != TimeRange::ALL);
        Self {
            id,
            kind: work.kind,
            table,
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
    /// Progress of a job of `total` bytes after some time.
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
    /// Whether a job is wanted.
    pub fn wants(&self, job: &Job) -> bool {
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
