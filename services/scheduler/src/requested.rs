//! Jobs that a request begins at once and whose work the thread of the request does.
//!
//! The list of jobs shows, cancels and remembers them like planned ones. After each step the work asks whether to continue, and
//! at its end reports the outcome. Several may run at a time, and no move waits for them.
//!
//! | module | job |
//! |---|---|
//! | [`attributes`] | attributes of many timelines are set and removed |
//! | [`attach`] | tables are made of what another database has archived |
//! | [`copy`] | points of a table are copied into another |

pub mod attach;
pub mod attributes;
pub mod copy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_engine::model::{JobKind, TableId, Tier};

use crate::job::{Job, JobProgress, JobState, JobTable};
use crate::journal::Edit;
use crate::maintenance::Amount;
use crate::pace::JobCommand;
use crate::runner::{Shared, State};
use crate::scheduler::Scheduler;

/// A requested job that runs. Dropped without an end, it was interrupted.
pub struct RequestedJob {
    shared: Arc<Shared>,
    begun: Arc<RunningRequest>,
    is_ended: bool,
}

/// Entry of a running requested job in the list of jobs.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    job: Job,
    /// Monotonic.
    at: Duration,
    timelines: AtomicU64,
    /// Command to the job: continue, end, or end because the process does.
    command: Mutex<JobCommand>,
}

/// Outcome of a requested job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnding {
    /// All of it is done; what came of it, for people.
    Done(String),
    /// It ended before its end; why, and what holds then.
    Cancelled(String),
    /// It failed; why.
    Failed(String),
}

impl Scheduler {
    /// Begins work of a request on so many timelines of a table, or of several.
    pub fn begin(
        &self,
        kind: JobKind,
        table: Option<(TableId, &str)>,
        reason: String,
        timelines: u64,
    ) -> RequestedJob {
        let shared = Arc::clone(self.shared());
        let now = shared.database.trusted_now().now.nanos();
        let mut edit = Edit::default();
        let begun = {
            let mut state = shared.state.lock();
            let id = state.journal.next_id();
            let job = Job {
                id,
                kind,
                table: table.map(|(id, name)| JobTable {
                    id,
                    name: name.to_owned(),
                }),
                state: JobState::Running,
                by_hand: true,
                reason,
                created: now,
                due: Some(now),
                started: Some(now),
                finished: None,
                from: None,
                to: None,
                tier: Tier::default(),
                total: Amount {
                    timelines,
                    ..Amount::default()
                },
                done: JobProgress::default(),
                outcome: None,
                error: None,
            };
            let command = if state.is_stopping {
                JobCommand::Stop
            } else {
                JobCommand::GoOn
            };
            let begun = Arc::new(RunningRequest {
                job: job.clone(),
                at: shared.clock.monotonic(),
                timelines: AtomicU64::new(0),
                command: Mutex::new(command),
            });
            state.requested.push(Arc::clone(&begun));
            edit.put.extend(state.journal.ids_to_set_aside());
            edit.add(state.journal.keep(job, shared.settings.history));
            begun
        };
        shared.write(edit);
        RequestedJob {
            shared,
            begun,
            is_ended: false,
        }
    }
}

impl RequestedJob {
    /// The number of its job.
    pub fn id(&self) -> u64 {
        self.begun.job.id
    }

    /// The job as it is now.
    pub fn job(&self) -> Job {
        self.begun.shown(self.shared.clock.monotonic())
    }

    /// Says how many timelines are done; `false` = it should end.
    pub fn step(&self, timelines: u64) -> bool {
        self.begun.timelines.store(timelines, Ordering::Relaxed);
        *self.begun.command.lock() == JobCommand::GoOn
    }

    /// How it ends before its end: what came of it so far, and why; `is_stopping` where the process is about to end.
    pub fn cut_short(&self, came: &str, is_stopping: bool) -> JobEnding {
        let command = *self.begun.command.lock();
        JobEnding::Cancelled(match command {
            JobCommand::Cancel => format!("cancelled: {came}; that stays"),
            JobCommand::GoOn if !is_stopping => format!("its client left: {came}; that stays"),
            _ => format!("the service stopped: {came}; sent again, it does what is left"),
        })
    }

    /// Writes down what came of it.
    pub fn end(mut self, ending: JobEnding) {
        self.finish(ending);
    }

    fn finish(&mut self, ending: JobEnding) {
        self.is_ended = true;
        let mut job = self.job();
        job.done.seconds_left = None;
        job.finished = Some(self.shared.database.trusted_now().now.nanos());
        match ending {
            JobEnding::Done(outcome) => (job.state, job.outcome) = (JobState::Done, Some(outcome)),
            JobEnding::Cancelled(outcome) => (job.state, job.outcome) = (JobState::Cancelled, Some(outcome)),
            JobEnding::Failed(error) => (job.state, job.error) = (JobState::Failed, Some(error)),
        }
        let edit = {
            let mut state = self.shared.state.lock();
            state.requested.retain(|begun| begun.job.id != job.id);
            state.totals.ended(&job);
            state.journal.keep(job, self.shared.settings.history)
        };
        self.shared.ended.notify_all();
        self.shared.write(edit);
    }
}

impl Drop for RequestedJob {
    fn drop(&mut self) {
        if !self.is_ended {
            self.finish(JobEnding::Failed(
                "it ended without saying how; the log says more".into(),
            ));
        }
    }
}

impl RunningRequest {
    /// The job with its progress.
    pub(crate) fn shown(&self, monotonic: Duration) -> Job {
        let mut job = self.job.clone();
        let timelines = self.timelines.load(Ordering::Relaxed);
        let seconds = monotonic.saturating_sub(self.at).as_secs_f64();
        let left = job.total.timelines.saturating_sub(timelines) as f64;
        job.done.timelines = timelines;
        job.done.seconds_left = (timelines > 0).then(|| (seconds * left / timelines as f64).ceil() as u64);
        job
    }

    /// Nothing overrides a stop.
    fn command(&self, command: JobCommand) {
        let mut current = self.command.lock();
        if *current != JobCommand::Stop {
            *current = command;
        }
    }
}

impl State {
    /// The requested job with this number.
    pub(crate) fn requested_job(&self, id: u64) -> Option<&Arc<RunningRequest>> {
        self.requested.iter().find(|begun| begun.job.id == id)
    }

    /// Tells a requested job to end; whether there is one.
    pub(crate) fn cancel_requested(&self, id: u64) -> bool {
        let found = self.requested_job(id);
        if let Some(begun) = found {
            begun.command(JobCommand::Cancel);
        }
        found.is_some()
    }

    /// Tells all requested jobs that the process ends.
    pub(crate) fn stop_requested(&self) {
        self.requested
            .iter()
            .for_each(|begun| begun.command(JobCommand::Stop));
    }
}
