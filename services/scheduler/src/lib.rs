//! Background work: what is sealed, folded, migrated, purged and dropped, and when.
//!
//! Each table model has a [`Maintenance`]: it surveys its tables, plans from the survey without I/O, and performs one unit of
//! work at a time. The runner does the rest, the same for all models: one thread, one job at a time, at a rate that leaves the
//! machine to writers and readers, with jobs that can be listed, run, paused, resumed and cancelled.
//!
//! | module | holds |
//! |---|---|
//! | [`scheduler`] | [`Scheduler`]: what services use |
//! | [`maintenance`] | [`Maintenance`]: the trait of a model, and the values that pass between it and the runner |
//! | [`models`] | [`Models`]: the registry of models |
//! | [`series`] | maintenance of series tables |
//! | `overview` | the tables and the plan of all models |
//! | [`schedule`] | cron expressions with time zones |
//! | [`job`] | jobs as services see them |
//! | `agenda` | the queue: ids, requested work, waits after failures |
//! | `runner` | the thread |
//! | [`run`] | the running job, as its model reports progress and is held back |
//! | [`policy`] | checks of a table's policy |
//! | [`requested`] | work that a request begins and does itself |
//! | `unplanned` | work that was in no plan, as jobs |
//! | `lookup` | finding jobs |
//! | [`pace`] | rate, pause and cancel of the running job |
//! | `journal` | what survives a restart |
//! | `stored_kind` | names of job kinds in stored rows |
//! | [`database`] | the trait behind which the database is, and the engine behind it |
//! | [`metrics`] | figures |

mod agenda;
pub mod database;
pub mod job;
mod journal;
mod lookup;
pub mod maintenance;
pub mod metrics;
pub mod models;
mod overview;
pub mod pace;
pub mod policy;
pub mod requested;
pub mod run;
mod runner;
pub mod schedule;
pub mod scheduler;
pub mod series;
mod stored_kind;
mod unplanned;

pub use database::Database;
pub use job::{Job, JobFilter, JobProgress, JobState, JobTable};
pub use maintenance::{
    Amount, Maintenance, Outcome, PlanSettings, Planned, SegmentCounts, Served, Survey, TableState, Urgency,
    WorkError,
};
pub use metrics::Metrics;
pub use models::Models;
pub use pace::JobCost;
pub use requested::{JobEnding, RequestedJob};
pub use run::Run;
pub use schedule::{ScheduleError, Timetable};
pub use scheduler::{Scheduler, SchedulerError, Settings};
pub use series::SeriesWork;
pub use series::archives::ArchiveState;
pub use series::plan::Preview;
