//! Look-up of jobs that are running, waiting or past.
//!
//! Past jobs are those that the job journal still holds.

use tideline_engine::model::Timestamp;

use crate::job::{Job, JobFilter, JobProgress, JobState};
use crate::queue::{Entry, RepeatedFailure};
use crate::runner::{Running, Shared, State};
use crate::scheduler::SchedulerError;
use crate::throttle::JobCommand;

impl Shared {
    /// Returns the jobs that pass the filter: the running job, jobs run by requests, waiting jobs, then past jobs,
    /// newest first.
    pub(crate) fn list(&self, filter: &JobFilter) -> Vec<Job> {
        let state = self.state.lock();
        let running = state.running.as_ref().map(|running| self.shown(running));
        let id = running.as_ref().map(|job| job.id);
        let now = self.clock.monotonic();
        let requested = state.requested.iter().map(|begun| begun.shown(now));
        let waiting = state.queue.by_hand.iter().chain(&state.queue.planned);
        let past = state
            .journal
            .jobs
            .values()
            .rev()
            .filter(|job| {
                Some(job.id) != id
                    && state.requested_job(job.id).is_none()
                    && !state.queue.is_requested(job.id)
            })
            .cloned();
        let waiting = waiting.map(|entry| self.waiting(&state, entry));
        let all = running.into_iter().chain(requested).chain(waiting).chain(past);
        all.filter(|job| filter.matches(job)).collect()
    }

    /// Returns a job by id, in any state; `None` if it does not exist.
    pub(crate) fn find(&self, state: &mut State, id: u64) -> Option<Job> {
        if let Some(running) = state.running.as_ref().filter(|running| running.entry.id == id) {
            return Some(self.shown(running));
        }
        if let Some(begun) = state.requested_job(id) {
            return Some(begun.shown(self.clock.monotonic()));
        }
        let entry = state.queue.find(id).cloned();
        entry.map_or_else(
            || state.journal.jobs.get(&id).cloned(),
            |entry| Some(self.waiting(state, &entry)),
        )
    }

    /// Returns the entry of a running or waiting job. Returns an error if the job is run by a request, has ended or
    /// does not exist.
    pub(crate) fn live(&self, state: &mut State, id: u64) -> Result<Entry, SchedulerError> {
        if let Some(running) = state.running.as_ref().filter(|running| running.entry.id == id) {
            return Ok(running.entry.clone());
        }
        if let Some(entry) = state.queue.find(id) {
            return Ok(entry.clone());
        }
        if state.requested_job(id).is_some() {
            return Err(SchedulerError::RequestedJob(id));
        }
        let ended = state.journal.jobs.get(&id);
        Err(
            ended.map_or(SchedulerError::NoSuchJob(id), |job| SchedulerError::Ended {
                id,
                state: job.state,
            }),
        )
    }

    /// Returns a waiting job as shown to users. After a failure, the job is due no earlier than its next attempt.
    fn waiting(&self, state: &State, entry: &Entry) -> Job {
        let mut job = entry.job(&state.journal);
        if let Some(RepeatedFailure { failures, left }) = state.queue.trouble(entry, self.clock.monotonic()) {
            let left = i64::try_from(left.as_nanos()).unwrap_or(i64::MAX);
            let again = self.database.trusted_now().now.nanos().saturating_add(left);
            job.due = job.due.max(Some(again));
            let at = Timestamp::from_nanos_clamped(again);
            let times = match failures {
                1 => "the last try failed".to_owned(),
                failures => format!("the last {failures} tries failed"),
            };
            job.reason = format!("{}; {times}, the next is at {at}", job.reason);
        }
        job
    }

    /// Returns the running job with its progress.
    pub(crate) fn shown(&self, running: &Running) -> Job {
        let (command, cost) = self.control.current();
        let lasting = self.clock.monotonic().saturating_sub(running.began);
        let mut job = running.job.clone();
        job.done = JobProgress::of(&cost, job.total.bytes, lasting);
        if command == JobCommand::Pause {
            job.state = JobState::Paused;
        }
        job
    }
}
