//! The scheduler as used by services: list, run, pause, resume and cancel jobs.
//!
//! [`Scheduler`] owns the thread of the runner. Requests change the state shared with this thread.

use std::sync::Arc;
use std::time::Duration;

use tideline_engine::model::JobKind;
use tideline_engine::runtime::{SupervisedThread, Supervisor, background};

use crate::database::Database;
use crate::job::{Job, JobFilter, JobState};
use crate::journal::Edit;
use crate::maintenance::WorkError;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::runner::{Shared, State};
use crate::throttle::JobCommand;

/// Settings of the scheduler.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time for which hidden points are kept before their bytes are freed. Default 24 hours.
    pub purge_delay: Duration,
    /// Interval between searches for work. Default 5 seconds.
    pub tick_interval: Duration,
    /// Maximum number of recorded jobs; jobs that have not ended are always kept. Default 200.
    pub history: usize,
    /// Supervisor that starts the thread and records a panic outside of a job.
    pub supervisor: Supervisor,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            purge_delay: Duration::from_secs(24 * 3_600),
            tick_interval: Duration::from_secs(5),
            history: 200,
            supervisor: Supervisor::default(),
        }
    }
}

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerError {
    /// The job does not exist, or does not exist any more.
    #[error("job {0} does not exist")]
    NoSuchJob(u64),
    /// The job has ended.
    #[error("job {id} is {} already", .state.name())]
    Ended {
        /// Number of the job.
        id: u64,
        /// Final state of the job.
        state: JobState,
    },
    /// The job is not paused, so it cannot be resumed.
    #[error("job {0} is not paused")]
    NotPaused(u64),
    /// The job is run by a request and can only be cancelled.
    #[error(
        "job {0} is run by the request that started it and cannot be paused; cancel it, and send the request \
         again later to do the rest"
    )]
    RequestedJob(u64),
    /// The table does not exist.
    #[error("table {0} does not exist")]
    NoSuchTable(String),
    /// The unsealed points of a table could not be read.
    #[error("unsealed points could not be counted: {0}")]
    Unsealed(#[from] WorkError),
}

/// Name of the runner's thread.
pub(crate) const THREAD: &str = "scheduler";
/// Maximum time that a stop waits for jobs run by requests. A step of such a job takes a fraction of a second.
const REQUESTED_JOBS_WAIT: Duration = Duration::from_secs(5);

/// Background work of one database: one thread, one job at a time.
pub struct Scheduler {
    shared: Arc<Shared>,
    thread: SupervisedThread,
}

impl Scheduler {
    /// Starts the thread, which searches for work at once.
    ///
    /// # Panics
    ///
    /// Panics if `models` lacks a model for which tables can be created, or if the thread cannot be started.
    pub fn start(database: Arc<dyn Database>, models: Models, settings: Settings) -> Self {
        let supervisor = settings.supervisor.clone();
        let mut scheduler = Self::without_thread(database, models, settings);
        let shared = Arc::clone(&scheduler.shared);
        // Callers that wait for a job must not wait for a thread that has ended.
        let waited_for = Arc::downgrade(&shared);
        supervisor.on_failure(move |_| {
            if let Some(shared) = waited_for.upgrade() {
                shared.state.lock().is_stopping = true;
                shared.control.command(JobCommand::Stop);
                shared.wake_up();
                shared.ended.notify_all();
            }
        });
        let thread = supervisor.spawn(THREAD, move || {
            background::enter();
            shared.run();
        });
        scheduler.thread = thread.expect("the system has a thread left at start");
        scheduler
    }

    /// Creates a scheduler that runs planned work only in [`tick`](Self::tick) and [`run_due`](Self::run_due).
    ///
    /// # Panics
    ///
    /// Panics if `models` lacks a model for which tables can be created.
    pub fn without_thread(database: Arc<dyn Database>, models: Models, settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared::new(database, models, settings)),
            thread: SupervisedThread::default(),
        }
    }

    /// Runs the most urgent work that may start, on the calling thread. Returns true if a job was run.
    pub fn tick(&self) -> bool {
        self.shared.tick()
    }

    /// Runs all work that may start, on the calling thread. Returns the number of jobs.
    pub fn run_due(&self) -> usize {
        std::iter::repeat_with(|| self.tick())
            .take_while(|worked| *worked)
            .count()
    }

    /// Returns the jobs that pass the filter: the running job, jobs run by requests, waiting jobs in their order, then
    /// past jobs, newest first.
    pub fn jobs(&self, filter: &JobFilter) -> Vec<Job> {
        self.shared.note_unplanned();
        self.shared.list(filter)
    }

    /// Returns a job by number; `None` if it does not exist.
    pub fn job(&self, id: u64) -> Option<Job> {
        self.shared.find(&mut self.shared.state.lock(), id)
    }

    /// Plans work of a kind and runs it before other planned work, regardless of its schedule and pauses; `table` =
    /// `None` means all tables. Returns the ids of the jobs, including a running one unless it is a seal. The list is
    /// empty if there is no work of this kind.
    ///
    /// # Errors
    ///
    /// Returns [`SchedulerError::NoSuchTable`] if the table does not exist.
    pub fn run(&self, kind: JobKind, table: Option<&str>) -> Result<Vec<u64>, SchedulerError> {
        let overview = self.shared.refresh();
        let table = table.map(|name| overview.named(name)).transpose()?;
        let ids = {
            let mut state = self.shared.state.lock();
            state.request(kind, table.map(|table| table.id))
        };
        self.shared.wake_up();
        Ok(ids)
    }

    /// Plans soon instead of at the next regular time, for callers that have created work.
    pub fn plan_soon(&self) {
        self.shared.wake_up();
    }

    /// Pauses a job. For a planned job, all jobs of its kind and table are paused, across restarts, until they are
    /// resumed. A job requested by [`run`](Self::run) is paused alone. A running rewrite waits; after a minute the
    /// rewrite ends and other work runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the job does not exist, has ended, or is run by a request.
    pub fn pause(&self, id: u64) -> Result<Job, SchedulerError> {
        let mut state = self.shared.state.lock();
        let entry = self.shared.live(&mut state, id)?;
        let is_running = state
            .running
            .as_ref()
            .is_some_and(|running| running.entry.id == id);
        if is_running {
            self.shared.control.command(JobCommand::Pause);
        }
        let mut row = None;
        if !entry.by_hand {
            row = state.journal.set_paused(entry.work.table, entry.work.kind, true);
        } else if let Some(waiting) = state.queue.find(id) {
            waiting.is_paused = true;
        }
        self.finish_request(state, id, row)
    }

    /// Resumes a paused job, and the kind that was paused with it.
    ///
    /// # Errors
    ///
    /// Returns an error if the job does not exist, has ended, or is not paused.
    pub fn resume(&self, id: u64) -> Result<Job, SchedulerError> {
        let mut state = self.shared.state.lock();
        if state.requested_job(id).is_some() {
            return Err(SchedulerError::NotPaused(id));
        }
        let entry = self.shared.live(&mut state, id)?;
        let shown = self.shared.find(&mut state, id);
        if shown.is_none_or(|job| job.state != JobState::Paused) {
            return Err(SchedulerError::NotPaused(id));
        }
        if state
            .running
            .as_ref()
            .is_some_and(|running| running.entry.id == id)
        {
            self.shared.control.command(JobCommand::Continue);
        }
        if let Some(waiting) = state.queue.find(id) {
            waiting.is_paused = false;
        }
        let row =
            (!entry.by_hand).then(|| state.journal.set_paused(entry.work.table, entry.work.kind, false));
        let job = self.finish_request(state, id, row.flatten());
        self.shared.wake_up();
        job
    }

    /// Cancels a job. A job run by a request stops between two steps; its completed steps remain in effect. A running
    /// rewrite ends and leaves everything unchanged. Other running work ends at its next step, or runs to its end if it
    /// has no steps. The same work does not start again before the next time of its schedule; without a schedule, it
    /// does not start again for an hour.
    ///
    /// # Errors
    ///
    /// Returns an error if the job does not exist or has ended.
    pub fn cancel(&self, id: u64) -> Result<Job, SchedulerError> {
        let mut state = self.shared.state.lock();
        if state.cancel_requested(id) {
            return self.finish_request(state, id, None);
        }
        self.shared.live(&mut state, id)?;
        let Some(entry) = state.queue.remove(id) else {
            self.shared.control.command(JobCommand::Cancel);
            return self.finish_request(state, id, None);
        };
        let overview = state.overview.clone();
        if let Some(overview) = &overview {
            state
                .queue
                .cancelled(&entry, overview, self.shared.clock.monotonic());
        }
        let mut job = entry.job(&state.journal);
        job.state = JobState::Cancelled;
        job.finished = overview.map(|overview| overview.now());
        job.outcome = Some("cancelled before it began".into());
        state.totals.ended(&job);
        let edit = state.journal.keep(job.clone(), self.shared.settings.history);
        drop(state);
        self.shared.ended.notify_all();
        self.shared.write(edit);
        Ok(job)
    }

    /// Pauses a kind of jobs of one table, across restarts, until the kind is resumed. With `None`, pauses jobs of this
    /// kind that concern the whole store. A running job continues.
    ///
    /// # Errors
    ///
    /// Returns [`SchedulerError::NoSuchTable`] if the table does not exist.
    pub fn pause_kind(&self, kind: JobKind, table: Option<&str>) -> Result<(), SchedulerError> {
        self.set_paused(kind, table, true)
    }

    /// Resumes a paused kind of jobs.
    ///
    /// # Errors
    ///
    /// Returns [`SchedulerError::NoSuchTable`] if the table does not exist.
    pub fn resume_kind(&self, kind: JobKind, table: Option<&str>) -> Result<(), SchedulerError> {
        self.set_paused(kind, table, false)
    }

    fn set_paused(&self, kind: JobKind, table: Option<&str>, is_paused: bool) -> Result<(), SchedulerError> {
        let table = match table {
            Some(name) => Some(self.shared.overview().named(name)?.id),
            None => None,
        };
        let row = self
            .shared
            .state
            .lock()
            .journal
            .set_paused(table, kind, is_paused);
        self.shared.write(Edit::put(row));
        self.shared.wake_up();
        Ok(())
    }

    /// Waits until a job has ended, the scheduler is stopped or `timeout` has passed. Returns the job in its current
    /// state; `None` if it does not exist.
    pub fn wait(&self, id: u64, timeout: Duration) -> Option<Job> {
        let deadline = std::time::Instant::now().checked_add(timeout);
        let mut state = self.shared.state.lock();
        loop {
            let job = self.shared.find(&mut state, id)?;
            if job.state.is_final() || state.is_stopping {
                return Some(job);
            }
            let is_late = match deadline {
                Some(deadline) => self.shared.ended.wait_until(&mut state, deadline).timed_out(),
                None => {
                    self.shared.ended.wait(&mut state);
                    false
                }
            };
            if is_late {
                return self.shared.find(&mut state, id);
            }
        }
    }

    /// Accepts the machine's clock as correct, on behalf of an operator.
    pub fn confirm_clock(&self) {
        self.shared.database.confirm_clock();
        self.shared.wake_up();
    }

    /// Returns the current metrics.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.shared.state.lock())
    }

    /// Ends the running job if it has steps, the jobs run by requests, and the thread. Waits for all of them, but at
    /// most 5 seconds for the jobs run by requests. The scheduler can be stopped several times.
    pub fn stop(&self) {
        {
            let mut state = self.shared.state.lock();
            state.is_stopping = true;
            state.stop_requested();
        }
        self.shared.control.command(JobCommand::Stop);
        self.shared.wake_up();
        self.shared.ended.notify_all();
        self.thread.join();
        self.shared.note_unplanned();
        let unwritten = std::mem::take(&mut self.shared.state.lock().unwritten);
        self.shared.write(unwritten);
        let deadline = std::time::Instant::now() + REQUESTED_JOBS_WAIT;
        let mut state = self.shared.state.lock();
        while !state.requested.is_empty() {
            if self.shared.ended.wait_until(&mut state, deadline).timed_out() {
                tracing::warn!("requested jobs did not end in time");
                return;
            }
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Completes a request about a job: stores the changed row and returns the job in its current state.
    fn finish_request(
        &self,
        mut state: parking_lot::MutexGuard<'_, State>,
        id: u64,
        row: Option<(bytes::Bytes, bytes::Bytes)>,
    ) -> Result<Job, SchedulerError> {
        let job = self
            .shared
            .find(&mut state, id)
            .ok_or(SchedulerError::NoSuchJob(id));
        drop(state);
        self.shared.write(Edit::put(row));
        job
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop();
    }
}
