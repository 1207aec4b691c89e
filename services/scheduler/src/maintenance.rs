//! Maintenance of tables: one trait for each table model, and the values that pass between a model and the runner.
//!
//! A model takes a [`Survey`] of its tables, plans from it without I/O, and performs one unit of work at a time. Queue,
//! schedules, pauses, retries, throttle, history and metrics are the runner's and the same for all models.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tideline_engine::model::{JobKind, Schedule, SegmentId, TableId, TableModel, Tier, TimeRange};

use crate::job::JobTable;
use crate::pace::JobCost;
use crate::run::Run;

/// Maintenance of the tables of one model.
///
/// Calls block and may come from several threads; [`perform`](Self::perform) is called by one at a time. Every unit of work
/// can be repeated: a crash or an error between two steps leaves nothing that the next survey does not show.
pub trait Maintenance: Send + Sync + 'static {
    /// Model of the tables.
    fn model(&self) -> TableModel;

    /// Surveys all tables of the model at one moment.
    fn survey(&self) -> Arc<dyn Survey>;

    /// Performs one unit of work of a plan.
    ///
    /// Long work calls [`Run::step`] every few milliseconds, which waits while the job is paused or reads too fast for its
    /// table, and returns [`WorkError::GivenUp`] when it breaks.
    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError>;

    /// Returns work that has ended since the last call without a plan, oldest first.
    fn take_unplanned(&self) -> Vec<Unplanned> {
        Vec::new()
    }

    /// States what holds between a failed job of a kind and the next try. The error of the job then names the time of that
    /// try.
    fn while_failing(&self, _kind: JobKind) -> Option<&'static str> {
        None
    }
}

/// Point-in-time statistics of all tables of one model.
pub trait Survey: Send + Sync {
    /// The tables.
    fn tables(&self) -> &[TableState];

    /// Segments of the tables.
    fn segments(&self) -> SegmentCounts;

    /// Plans all work that there is, without I/O. Work that waits for a schedule is part of the plan.
    fn plan(&self, served: &Served, settings: &PlanSettings) -> Vec<Planned>;
}

/// A table as queue and schedules need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableState {
    /// Its number, unique among the tables of all models.
    pub id: TableId,
    /// Its name, unique among the tables of all models.
    pub name: String,
    /// When it was created, nanoseconds since the epoch.
    pub created: i64,
    /// When its policy was last changed, nanoseconds since the epoch.
    pub policy_changed: i64,
    /// Schedules of kinds of jobs; a kind without one begins as soon as there is work.
    pub schedules: Vec<(JobKind, Schedule)>,
    /// Most bytes that jobs of the table read in a second; `None` = no limit.
    pub bytes_per_second: Option<u64>,
}

/// Segments of all tables of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Published segments.
    pub published: u64,
    /// Dropped segments that wait for their last reader to be freed.
    pub retired: u64,
}

/// Timestamps up to which the schedule of a (table, job kind) pair has been served, trusted nanoseconds since the epoch.
pub type Served = HashMap<(TableId, JobKind), i64>;

/// Settings of plans.
#[derive(Debug, Clone, Copy)]
pub struct PlanSettings {
    /// How long hidden points are kept before their bytes are freed, nanoseconds.
    pub purge_delay: i64,
}

/// A unit of planned work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Model whose maintenance performs it.
    pub model: TableModel,
    /// Its kind.
    pub kind: JobKind,
    /// Its table; `None` = the whole store.
    pub table: Option<TableId>,
    /// The segments that it takes, in the order of their writes.
    pub inputs: Vec<SegmentId>,
    /// The tier of what they become.
    pub tier: Tier,
    /// The part of its table that it is about. After a failure, work of the same kind, table and slot waits.
    pub slot: Option<Slot>,
    /// The time that it spans; [`TimeRange::ALL`] = it is about no time in particular.
    pub range: TimeRange,
    /// How much it takes.
    pub amount: Amount,
    /// Why there is such work, for people.
    pub reason: String,
    /// The trusted timestamp from which it may begin, nanoseconds since the epoch; `None` = only on request.
    pub at: Option<i64>,
    /// How soon it should come among work that may begin.
    pub urgency: Urgency,
    /// Details that its kind does not state; read by its model only.
    pub mode: Mode,
}

/// An aligned part of a table, such as a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Width, as doublings of the narrowest one.
    pub level: u8,
    /// Position among those of this width.
    pub index: i64,
}

/// Details of a unit of work that its kind does not state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// None.
    #[default]
    Plain,
    /// The points stay in the cold tier beside their files.
    Copied {
        /// Whether they have to become one segment first, without what was deleted.
        folded: bool,
    },
    /// The points stay in the tier that they come to until this trusted timestamp, nanoseconds since the epoch.
    Held(i64),
    /// Points before this timestamp, nanoseconds since the epoch, go their way; the others stay in their tier.
    Cut(i64),
}

/// The order in which work that may begin is done, among the tables of all models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Costs nothing and frees space.
    Free,
    /// Reads suffer.
    Reads,
    /// Small and regular.
    Regular,
    /// Data is where it should not be any more.
    Moves,
    /// Deleted points wait to be freed.
    Space,
    /// The store holds too many segments.
    Crowded,
}

/// How much a plan or a preview is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Different windows.
    pub windows: u64,
    /// Segments.
    pub segments: u64,
    /// Timelines: at least so many, as many as the segment with the most of them has.
    pub timelines: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Encoded bytes.
    pub bytes: u64,
}

/// Result of a unit of work that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was done, for people.
    pub text: String,
    /// False if there was nothing to do. A job of a kind that usually finds nothing is then not recorded.
    pub is_news: bool,
}

/// Work that has ended and was in no plan.
#[derive(Debug, Clone)]
pub struct Unplanned {
    /// Its kind.
    pub kind: JobKind,
    /// Its table; `None` = the whole store.
    pub table: Option<JobTable>,
    /// The tier of what it made.
    pub tier: Tier,
    /// When it began, trusted nanoseconds since the epoch.
    pub started: i64,
    /// How long it took.
    pub lasting: Duration,
    /// The time that it spans, from its first to after its last timestamp.
    pub span: Option<(i64, i64)>,
    /// How much it took.
    pub amount: Amount,
    /// What it read and wrote.
    pub cost: JobCost,
    /// Why it was done, for people.
    pub reason: &'static str,
    /// What was done, for people.
    pub outcome: String,
}

/// Why work was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// [`Run::step`] has ended it.
    #[error("given up")]
    GivenUp,
    /// The plan does not fit the store any more; a new one will.
    #[error("overtaken: {0}")]
    Overtaken(String),
    /// It failed, and may be tried again.
    #[error("{0}")]
    Failed(String),
}

impl Planned {
    /// Work without inputs that begins only on request.
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

    /// Whether it may begin.
    pub fn is_due(&self, now: i64) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Whether it is work of a kind, and of a table where one is given.
    pub fn is_of(&self, kind: JobKind, table: Option<TableId>) -> bool {
        self.kind == kind && (table.is_none() || self.table == table)
    }
}

/// Sorts a plan: work that may begin first, then by urgency, then by age of the data.
pub(crate) fn sort(plan: &mut [Planned], now: i64) {
    plan.sort_by_key(|work| (!work.is_due(now), work.urgency, work.range.start));
}

impl TableState {
    /// The schedule of a kind of jobs.
    pub fn schedule(&self, kind: JobKind) -> &Schedule {
        let found = self.schedules.iter().find(|(of, _)| *of == kind);
        found.map_or(&Schedule::Continuous, |(_, schedule)| schedule)
    }

    /// The table as jobs name it.
    pub(crate) fn named(&self) -> JobTable {
        JobTable {
            id: self.id,
            name: self.name.clone(),
        }
    }
}

impl Outcome {
    /// Work that was done.
    pub fn done(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_news: true,
        }
    }

    /// A round that has found `count` things to do.
    pub fn round(count: u64, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_news: count > 0,
        }
    }
}
