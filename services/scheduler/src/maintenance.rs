//! Maintenance of tables: one trait, implemented by each table model, and the values exchanged with the runner.
//!
//! A model takes a [`Survey`] of its tables, plans from it without I/O, and performs one unit of work at a time. The
//! runner provides queue, schedules, pauses, retries, throttle, history and metrics, the same for all models.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tideline_engine::model::{JobKind, Schedule, SegmentId, TableId, TableModel, Tier, TimeRange};

use crate::job::JobTable;
use crate::run::Run;
use crate::throttle::JobCost;

/// Maintenance of the tables of one model.
///
/// Calls block and may be made from several threads; [`perform`](Self::perform) is called by one thread at a time.
/// Every unit of work can be repeated: a crash or an error between two steps leaves no state that the next survey
/// misses.
pub trait Maintenance: Send + Sync + 'static {
    /// Returns the model of the tables.
    fn model(&self) -> TableModel;

    /// Surveys all tables of the model at one moment.
    fn survey(&self) -> Arc<dyn Survey>;

    /// Performs one unit of work of a plan.
    ///
    /// Long work calls [`Run::step`] every few milliseconds. A step waits while the job is paused or reads too fast for
    /// its table.
    ///
    /// # Errors
    ///
    /// Returns [`WorkError::GivenUp`] if [`Run::step`] breaks, [`WorkError::Overtaken`] if the plan does not apply
    /// any more, and [`WorkError::Failed`] if the work may be retried.
    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError>;

    /// Returns completed work that was in no plan and ended since the last call, oldest first.
    fn take_unplanned(&self) -> Vec<Unplanned> {
        Vec::new()
    }

    /// Returns a text for users: the condition that holds until a failed job of this kind is retried. The error of such
    /// a job contains the text and the time of the next attempt. `None` = the error contains neither.
    fn while_failing(&self, _kind: JobKind) -> Option<&'static str> {
        None
    }

    /// Returns a text for users: the effects of cancelled work that remain. `completed` is the cost of its completed
    /// parts.
    fn after_cancel(&self, _work: &Planned, _completed: &JobCost) -> &'static str {
        NOTHING_CHANGED
    }
}

/// Text for users: cancelled work has no effects.
pub const NOTHING_CHANGED: &str = "nothing was changed";

/// Point-in-time statistics of all tables of one model.
pub trait Survey: Send + Sync {
    /// Returns the state of each table.
    fn tables(&self) -> &[TableState];

    /// Counts the segments of the tables.
    fn segments(&self) -> SegmentCounts;

    /// Plans all pending work, without I/O. Work that waits for a schedule is included.
    fn plan(&self, served: &Served, settings: &PlanSettings) -> Vec<Planned>;
}

/// State of a table for queue and schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableState {
    /// Number of the table, unique among the tables of all models.
    pub id: TableId,
    /// Name of the table, unique among the tables of all models.
    pub name: String,
    /// Time of creation, nanoseconds since the epoch.
    pub created: i64,
    /// Time of the last policy change, nanoseconds since the epoch.
    pub policy_changed: i64,
    /// Schedules by job kind. A kind without a schedule starts as soon as there is work.
    pub schedules: Vec<(JobKind, Schedule)>,
    /// Maximum number of bytes that jobs of the table read per second; `None` = no limit.
    pub bytes_per_second: Option<u64>,
}

/// Segments of all tables of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Number of published segments.
    pub published: u64,
    /// Number of dropped segments whose bytes are freed after their last reader has ended.
    pub retired: u64,
}

/// Timestamps up to which the schedules of (table, job kind) pairs were served, by the trusted clock, in nanoseconds
/// since the epoch.
pub type Served = HashMap<(TableId, JobKind), i64>;

/// Settings of plans.
#[derive(Debug, Clone, Copy)]
pub struct PlanSettings {
    /// Time for which hidden points are kept before their bytes are freed, nanoseconds.
    pub purge_delay: i64,
}

/// Unit of planned work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Model whose maintenance performs the work.
    pub model: TableModel,
    /// Kind of the work.
    pub kind: JobKind,
    /// Table of the work; `None` = the whole store.
    pub table: Option<TableId>,
    /// Input segments, in the order of their writes.
    pub inputs: Vec<SegmentId>,
    /// Tier of the output.
    pub tier: Tier,
    /// Part of the table that the work concerns; `None` = no specific part. After a failure, work of the same model,
    /// kind, table and slot waits.
    pub slot: Option<Slot>,
    /// Time range of the work; [`TimeRange::ALL`] = no specific range.
    pub range: TimeRange,
    /// Amount of data.
    pub amount: Amount,
    /// Reason for the work, for users.
    pub reason: String,
    /// Trusted timestamp of the earliest start, nanoseconds since the epoch; `None` = only on request.
    pub at: Option<i64>,
    /// Priority among work that may start.
    pub urgency: Urgency,
    /// Details beyond the kind, used only by the model.
    pub mode: Mode,
}

/// Aligned part of a table, such as a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Width, as a number of doublings of the narrowest slot.
    pub level: u8,
    /// Index among the slots of this width.
    pub index: i64,
}

/// Details of a unit of work beyond its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// No details.
    #[default]
    Plain,
    /// The points are written to files and also stay in the cold tier.
    Copied {
        /// True if the segments must first become one segment without deleted points.
        folded: bool,
    },
    /// The points stay in their new tier until this trusted timestamp, nanoseconds since the epoch.
    Held(i64),
    /// Only points before this timestamp, nanoseconds since the epoch, move. Later points stay in their tier.
    Cut(i64),
}

/// Priority of work that may start, among the tables of all models; the first variant is the most urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// The work costs nothing and frees space.
    Free,
    /// Reads are slower until the work is done.
    Reads,
    /// The work is small and regular.
    Regular,
    /// Data should have left its tier.
    Moves,
    /// Deleted points wait to be freed.
    Space,
    /// The store holds too many segments.
    Crowded,
}

/// Amount of data of a plan or a preview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of distinct windows.
    pub windows: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of timelines: a lower bound, the largest number in one segment.
    pub timelines: u64,
    /// Number of points.
    pub points: u64,
    /// Number of field values.
    pub values: u64,
    /// Number of encoded bytes.
    pub bytes: u64,
}

/// Result of completed work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Description of the completed work, for users.
    pub text: String,
    /// False if there was nothing to do. A round (a job kind that usually finds nothing) is then recorded only if it
    /// was requested.
    pub is_news: bool,
}

/// Completed work that was in no plan.
#[derive(Debug, Clone)]
pub struct Unplanned {
    /// Kind of the work.
    pub kind: JobKind,
    /// Table of the work; `None` = the whole store.
    pub table: Option<JobTable>,
    /// Tier of the output.
    pub tier: Tier,
    /// Time of the start by the trusted clock, in nanoseconds since the epoch.
    pub started: i64,
    /// Duration of the work.
    pub lasting: Duration,
    /// Time range of the data, nanoseconds since the epoch, half-open; `None` without data.
    pub span: Option<(i64, i64)>,
    /// Amount of data.
    pub amount: Amount,
    /// Data read and written.
    pub cost: JobCost,
    /// Reason for the work, for users.
    pub reason: &'static str,
    /// Description of the completed work, for users.
    pub outcome: String,
}

/// Reason why work was not completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// [`Run::step`] ended the work.
    #[error("given up")]
    GivenUp,
    /// The store has changed, so the plan does not apply any more; a new plan is made.
    #[error("overtaken: {0}")]
    Overtaken(String),
    /// The work failed and may be retried.
    #[error("{0}")]
    Failed(String),
}

impl Planned {
    /// Creates work without inputs that starts only on request.
    pub fn new(model: TableModel, kind: JobKind, table: Option<TableId>, reason: impl Into<String>) -> Self {
        Self {
            model,
            kind,
            table,
            inputs: Vec::new(),
            tier: Tier::default(),
            slot: None,
            range: TimeRange::ALL,
            amount: Amount::default(),
            reason: reason.into(),
            at: None,
            urgency: Urgency::Regular,
            mode: Mode::Plain,
        }
    }

    /// Returns true if the earliest start of the work is at or before `now`.
    pub fn is_due(&self, now: i64) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Returns true if the work has this kind, and this table if one is given.
    pub fn is_of(&self, kind: JobKind, table: Option<TableId>) -> bool {
        self.kind == kind && (table.is_none() || self.table == table)
    }
}

/// Sorts a plan: due work before other work, then by urgency, then by the age of the data.
pub(crate) fn sort(plan: &mut [Planned], now: i64) {
    plan.sort_by_key(|work| (!work.is_due(now), work.urgency, work.range.start));
}

impl TableState {
    /// Returns the schedule of a kind of jobs; continuous if it has none.
    pub fn schedule(&self, kind: JobKind) -> &Schedule {
        let found = self.schedules.iter().find(|(of, _)| *of == kind);
        found.map_or(&Schedule::Continuous, |(_, schedule)| schedule)
    }

    /// Returns the id and the name of the table, as stored in jobs.
    pub(crate) fn named(&self) -> JobTable {
        JobTable {
            id: self.id,
            name: self.name.clone(),
        }
    }
}

impl Outcome {
    /// Creates the outcome of work that was done.
    pub fn done(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_news: true,
        }
    }

    /// Creates the outcome of a round that found `count` things to do.
    pub fn round(count: u64, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_news: count > 0,
        }
    }
}
