//! Jobs that a request starts at once and performs on its own thread.
//!
//! Such jobs are listed, cancelled and recorded like planned jobs. After each step, the request checks whether to
//! continue; at the end, it reports the outcome. Several such jobs may run at a time, even while the runner performs a
//! job. A copy of rows into a table with another key is started by `services/http`; the other jobs are here:
//!
//! | module | job |
//! |---|---|
//! | [`attributes`] | sets and removes attributes of many timelines |
//! | [`attach`] | attaches the archive of another database |
//! | [`copy`] | copies points of a table into another one |

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
use crate::runner::{Shared, State};
use crate::scheduler::Scheduler;
use crate::throttle::JobCommand;

/// Running requested job. If the value is dropped before [`end`](Self::end) is called, the job is recorded as failed.
pub struct RequestedJob {
    shared: Arc<Shared>,
    begun: Arc<RunningRequest>,
    is_ended: bool,
}

/// Entry of a running requested job in the list of jobs.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    job: Job,
    /// Monotonic time of the start.
    at: Duration,
    timelines: AtomicU64,
    /// Command to the job: continue, end, or end because the process ends.
    command: Mutex<JobCommand>,
}

/// Outcome of a requested job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnding {
    /// The job completed. Holds the outcome, for users.
    Done(String),
    /// The job ended early. Holds the reason and the state that remains.
    Cancelled(String),
    /// The job failed. Holds the reason.
    Failed(String),
}

impl Scheduler {
    /// Registers a job that the caller performs, on `timelines` timelines of a table, or of several tables if `table`
    /// is `None`.
    pub fn begin(
        &self,
        kind: JobKind,
        table: Option<(TableId, &str)>,
        reason: String,
        timelines: u64,
    ) -> RequestedJob {
        self.begin_into(kind, (table, None), reason, timelines)
    }

    /// Registers a job like [`begin`](Self::begin) that copies a table into another one. `table` and `into` are the
    /// source and the name of the target. The reason must not contain this name, because users of the source read the
    /// reason.
    pub fn begin_into(
        &self,
        kind: JobKind,
        (table, into): (Option<(TableId, &str)>, Option<&str>),
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
                into: into.map(str::to_owned),
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
                JobCommand::Continue
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
    /// Returns the number of the job.
    pub fn id(&self) -> u64 {
        self.begun.job.id
    }

    /// Returns the job with its progress.
    pub fn job(&self) -> Job {
        self.begun.shown(self.shared.clock.monotonic())
    }

    /// Reports the number of timelines done. Returns false if the job must end.
    pub fn step(&self, timelines: u64) -> bool {
        self.begun.timelines.store(timelines, Ordering::Relaxed);
        *self.begun.command.lock() == JobCommand::Continue
    }

    /// Returns the ending of a job that ends early. `came` describes the completed work; `is_stopping` is true if the
    /// process is about to end.
    pub fn cut_short(&self, came: &str, is_stopping: bool) -> JobEnding {
        let command = *self.begun.command.lock();
        JobEnding::Cancelled(match command {
            JobCommand::Cancel => format!("cancelled: {came}; completed work stays"),
            JobCommand::Continue if !is_stopping => {
                format!("client disconnected: {came}; completed work stays")
            }
            _ => format!("service stopped: {came}; send the request again to do the rest"),
        })
    }

    /// Ends the job and records its ending.
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
                "it ended without a result; see the server log".into(),
            ));
        }
    }
}

impl RunningRequest {
    /// Returns the job with its progress.
    pub(crate) fn shown(&self, monotonic: Duration) -> Job {
        let mut job = self.job.clone();
        let timelines = self.timelines.load(Ordering::Relaxed);
        let seconds = monotonic.saturating_sub(self.at).as_secs_f64();
        let left = job.total.timelines.saturating_sub(timelines) as f64;
        job.done.timelines = timelines;
        job.done.seconds_left = (timelines > 0).then(|| (seconds * left / timelines as f64).ceil() as u64);
        job
    }

    /// Sets the command. A stop is never overridden.
    fn command(&self, command: JobCommand) {
        let mut current = self.command.lock();
        if *current != JobCommand::Stop {
            *current = command;
        }
    }
}

impl State {
    /// Returns the running requested job with this number; `None` if no requested job has this number.
    pub(crate) fn requested_job(&self, id: u64) -> Option<&Arc<RunningRequest>> {
        self.requested.iter().find(|begun| begun.job.id == id)
    }

    /// Cancels a requested job. Returns false if no requested job has this number.
    pub(crate) fn cancel_requested(&self, id: u64) -> bool {
        let found = self.requested_job(id);
        if let Some(begun) = found {
            begun.command(JobCommand::Cancel);
        }
        found.is_some()
    }

    /// Stops all requested jobs, because the process ends.
    pub(crate) fn stop_requested(&self) {
        self.requested
            .iter()
            .for_each(|begun| begun.command(JobCommand::Stop));
    }
}
