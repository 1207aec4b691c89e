//! The life of data, by itself: what is sealed, folded, migrated, purged and dropped, and when.
//!
//! Two halves. The planner ([`plan`]) is pure: from facts about segments, policies and time it says what is to be
//! done, why, and from when on. The runner does it: one thread, one job at a time, at a pace that leaves the machine
//! to writers and readers, with jobs that people can list, run, pause, resume and cancel.
//!
//! Every move is the store's: load, edit, drop. The scheduler only chooses; what it is told by an old plan the store
//! refuses, and a job that ends early leaves everything as it was.
//!
//! | module | holds |
//! |---|---|
//! | [`scheduler`] | [`Scheduler`]: what services use |
//! | [`plan`] | facts → work; one file for each kind of jobs; the preview of a policy |
//! | [`schedule`] | cron expressions with time zones |
//! | [`job`] | jobs as people see them |
//! | `agenda` | what is next: ids, what was asked for, what waits after a failure |
//! | `runner` | the thread |
//! | `moves` | what it does where segments move |
//! | [`errand`] | work that a request begins and does itself |
//! | `seals` | seals that the store does, as jobs |
//! | `lookup` | finding jobs |
//! | [`archives`] | how archives stand |
//! | [`pace`] | rate, pause and cancel of a running rewrite |
//! | `journal` | what survives a restart |
//! | `stored_kind` | names of job kinds in stored rows |
//! | [`work`] | the trait behind which the database is; `database` implements it for the engine |
//! | [`metrics`] | figures |

mod agenda;
pub mod archives;
mod database;
pub mod errand;
pub mod job;
mod journal;
mod lookup;
pub mod metrics;
mod moves;
pub mod pace;
pub mod plan;
mod runner;
pub mod schedule;
pub mod scheduler;
mod seals;
mod stored_kind;
pub mod work;

pub use archives::ArchiveState;
pub use errand::{Ending, Errand};
pub use job::{Job, JobFilter, JobProgress, JobState, JobTable};
pub use metrics::Metrics;
pub use plan::Preview;
pub use schedule::{ScheduleError, Timetable};
pub use scheduler::{Scheduler, SchedulerError, Settings};
pub use work::{Work, WorkError};
