//! Background work on tables: seals, folds, moves between tiers, purges and expiry, with their schedules.
//!
//! Each table model has a [`Maintenance`], which surveys the tables, plans from the survey without I/O, and performs
//! one unit of work at a time. The runner is the same for all models: it provides queue, schedules, throttle and
//! history. The runner has one thread and runs one job at a time, at a rate that leaves resources to writers and
//! readers. Jobs can be listed, run, paused, resumed and cancelled.
//!
//! *Trusted* times are readings of the store's trusted clock, which follows the wall clock as long as the wall clock
//! agrees with monotonic time. While the wall clock deviates too far, the clock is *in doubt* and nothing expires.
//!
//! | module | holds |
//! |---|---|
//! | [`scheduler`] | [`Scheduler`]: the interface for services |
//! | [`maintenance`] | [`Maintenance`]: the trait of a model, and the values exchanged with the runner |
//! | [`models`] | [`Models`]: the registry of models |
//! | [`series`] | maintenance of series tables |
//! | [`rows`] | maintenance of wide tables |
//! | `overview` | tables and plan of all models |
//! | `schedule` | start of planned work by its schedule |
//! | [`job`] | jobs as shown to users |
//! | `queue` | queue: ids, requested work, waits after failures |
//! | `runner` | the thread that runs jobs |
//! | [`run`] | [`Run`]: handle through which the work of a running job reports cost and progress |
//! | [`policy`] | checks of a table's policy |
//! | [`archive_moves`] | delays and failures of moves into archives |
//! | [`requested`] | jobs that a request starts and performs itself |
//! | `unplanned` | history entries of unplanned work, such as seals by size and age |
//! | `lookup` | look-up of jobs |
//! | [`throttle`] | throttle, pause and cancel of the running job |
//! | `journal` | state that survives a restart |
//! | `stored_kind` | names of job kinds in stored rows |
//! | [`database`] | trait of the database, implemented by the engine |
//! | [`metrics`] | metrics of background work |

pub mod archive_moves;
pub mod database;
pub mod job;
mod journal;
mod lookup;
pub mod maintenance;
pub mod metrics;
pub mod models;
mod overview;
pub mod policy;
mod queue;
pub mod requested;
pub mod rows;
pub mod run;
mod runner;
mod schedule;
pub mod scheduler;
pub mod series;
mod stored_kind;
pub mod throttle;
mod unplanned;

pub use archive_moves::ArchiveMoves;
pub use database::Database;
pub use job::{Job, JobFilter, JobProgress, JobState, JobTable};
pub use maintenance::{
    Amount, Maintenance, Outcome, PlanSettings, Planned, SegmentCounts, Served, Survey, TableState,
    Unplanned, Urgency, WorkError,
};
pub use metrics::Metrics;
pub use models::Models;
pub use requested::{JobEnding, RequestedJob};
pub use rows::Rows;
pub use rows::archives::RowArchiveState;
pub use run::Run;
pub use scheduler::{Scheduler, SchedulerError, Settings};
pub use series::SeriesWork;
pub use series::archives::ArchiveState;
pub use series::plan::Preview;
pub use throttle::JobCost;
