//! The runner: collects statistics of the tables, plans, selects the next job, runs it through the maintenance of its
//! table model, and records the result.
//!
//! One thread runs one job at a time, for tables of all models. The thread plans every few seconds and again after
//! each job, so each job is selected from a plan made after the previous job. Requests change the state under a lock
//! that is never held while work is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use tideline_engine::model::{Clock, JobKind, TableId, Timestamp};

use crate::database::Database;
use crate::job::{Job, JobProgress, JobState};
use crate::journal::{Edit, Journal};
use crate::maintenance::{NOTHING_CHANGED, Outcome, PlanSettings, Planned, Served, WorkError};
use crate::metrics::Totals;
use crate::models::Models;
use crate::overview::Overview;
use crate::queue::{Entry, JobQueue};
use crate::requested::RunningRequest;
use crate::run::Run;
use crate::scheduler::{Settings, THREAD};
use crate::throttle::{Budget, Control, JobCommand, JobThrottle};

/// State shared by the runner's thread and its callers.
pub(crate) struct Shared {
    pub(crate) database: Arc<dyn Database>,
    pub(crate) models: Models,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) state: Mutex<State>,
    pub(crate) control: Control,
    /// Signalled when there may be work.
    pub(crate) wake: Condvar,
    /// Signalled when a job ends, and when the scheduler stops.
    pub(crate) ended: Condvar,
    /// Held while one job is selected and run.
    job_lock: Mutex<()>,
}

/// State under the lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) journal: Journal,
    pub(crate) queue: JobQueue,
    pub(crate) running: Option<Running>,
    pub(crate) requested: Vec<Arc<RunningRequest>>,
    /// Number of requests that wait for a seal.
    pub(crate) seals_awaited: usize,
    /// Rows of jobs that are listed but not written yet.
    pub(crate) unwritten: Edit,
    /// The latest surveys; `None` before the first ones.
    pub(crate) overview: Option<Arc<Overview>>,
    pub(crate) totals: Totals,
    budgets: HashMap<TableId, Budget>,
    pub(crate) is_stopping: bool,
    is_woken: bool,
}

/// Running job.
pub(crate) struct Running {
    pub(crate) entry: Entry,
    pub(crate) job: Job,
    pub(crate) began: Duration,
}

/// Ending of a job.
enum Ended {
    Done(Outcome),
    GivenUp {
        command: JobCommand,
        /// Text for users: the effects that remain after the cancellation.
        left: &'static str,
    },
    Overtaken(String),
    Failed {
        reason: String,
        /// Text for users: the state until the next attempt. The error of the job then contains this text and the time
        /// of the next attempt.
        meanwhile: Option<&'static str>,
    },
}

/// Surveys and the plan made from them.
struct SurveyedPlan {
    overview: Arc<Overview>,
    served: Served,
    planned: Vec<Planned>,
}

impl Shared {
    pub(crate) fn new(database: Arc<dyn Database>, models: Models, settings: Settings) -> Self {
        for model in database.models() {
            assert!(
                models.of(*model).is_some(),
                "tables of the model {model} have no maintenance"
            );
        }
        let (journal, interrupted) = Journal::read(&database.job_rows());
        let shared = Self {
            clock: database.clock(),
            state: Mutex::new(State {
                journal,
                ..State::default()
            }),
            control: Control::default(),
            wake: Condvar::new(),
            ended: Condvar::new(),
            job_lock: Mutex::default(),
            database,
            models,
            settings,
        };
        shared.write(interrupted);
        shared
    }

    /// Runs jobs until the scheduler is stopped; the body of the thread.
    pub(crate) fn run(&self) {
        loop {
            self.settings.supervisor.round(THREAD);
            while self.tick() {}
            let mut state = self.state.lock();
            if state.is_stopping {
                return;
            }
            if !std::mem::take(&mut state.is_woken) {
                self.wake.wait_for(&mut state, self.settings.tick_interval);
            }
        }
    }

    /// Surveys, plans and runs the most urgent work that may start. Returns true if a job was run.
    pub(crate) fn tick(&self) -> bool {
        let _one_at_a_time = self.job_lock.lock();
        if self.database.is_read_only() {
            return false;
        }
        let mut survey = self.survey();
        self.note_unplanned();
        let mut edit = Edit::default();
        let begun = {
            let mut state = self.state.lock();
            // The stop writes the unwritten rows.
            if state.is_stopping {
                return false;
            }
            edit.add(std::mem::take(&mut state.unwritten));
            let monotonic = self.clock.monotonic();
            state.renew(&mut survey, monotonic);
            let State { queue, journal, .. } = &mut *state;
            edit.add(queue.serve(&survey.overview, &survey.served, journal));
            edit.put.extend(journal.ids_to_set_aside());
            let next = queue.next(survey.overview.now(), journal, monotonic);
            next.map(|entry| {
                self.control.reset();
                edit.add(state.begin(&entry, survey.overview.now(), monotonic, self.settings.history));
                let budget = state.budget(&entry, &survey.overview, monotonic);
                (entry, budget)
            })
        };
        self.write(edit);
        let Some((entry, budget)) = begun else {
            return false;
        };
        self.execute(entry, &survey.overview, budget);
        true
    }

    /// Surveys and plans without running anything.
    pub(crate) fn refresh(&self) -> Arc<Overview> {
        let mut survey = self.survey();
        let row = {
            let mut state = self.state.lock();
            state.renew(&mut survey, self.clock.monotonic());
            state.journal.ids_to_set_aside()
        };
        self.write(Edit::put(row));
        survey.overview
    }

    /// Wakes the thread.
    pub(crate) fn wake_up(&self) {
        self.state.lock().is_woken = true;
        self.wake.notify_all();
    }

    /// Returns the settings of the planner.
    pub(crate) fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            purge_delay: i64::try_from(self.settings.purge_delay.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    fn survey(&self) -> SurveyedPlan {
        let overview = Arc::new(self.overview());
        let served = self.state.lock().journal.served();
        let planned = overview.plan(&served, &self.plan_settings());
        SurveyedPlan {
            overview,
            served,
            planned,
        }
    }

    /// Collects the statistics of the tables of all models.
    pub(crate) fn overview(&self) -> Overview {
        Overview::take(self.database.as_ref(), &self.models)
    }

    /// Writes rows about jobs. Does nothing while the database is read-only. An error is logged, and work continues,
    /// because the rows are only a record.
    pub(crate) fn write(&self, edit: Edit) {
        if (edit.put.is_empty() && edit.remove.is_empty()) || self.database.is_read_only() {
            return;
        }
        if let Err(error) = self.database.edit_job_rows(edit.put, edit.remove) {
            tracing::warn!(%error, "failed to write job rows");
        }
    }

    fn execute(&self, entry: Entry, overview: &Overview, budget: Option<Budget>) {
        let throttle = JobThrottle::new(&self.control, self.clock.as_ref(), budget);
        let mut run = Run::new(self, entry.work.kind, throttle);
        let done = catch_unwind(AssertUnwindSafe(|| self.perform(&entry.work, &mut run)));
        let failed = |reason| Ended::Failed {
            reason,
            meanwhile: self
                .models
                .of(entry.work.model)
                .and_then(|model| model.while_failing(entry.work.kind)),
        };
        let ended = match done {
            Ok(Ok(outcome)) => Ended::Done(outcome),
            Ok(Err(WorkError::GivenUp)) => Ended::GivenUp {
                command: run.throttle.ended_by.unwrap_or(JobCommand::Cancel),
                left: self.models.of(entry.work.model).map_or(NOTHING_CHANGED, |model| {
                    model.after_cancel(&entry.work, &run.cost())
                }),
            },
            Ok(Err(WorkError::Overtaken(reason))) => Ended::Overtaken(reason),
            Ok(Err(WorkError::Failed(reason))) => failed(reason),
            Err(_) => failed("it panicked; see the log".into()),
        };
        let budget = run.throttle.budget;
        self.finish(entry, overview, ended, budget);
    }

    /// Performs work through the maintenance of its table model.
    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let maintenance = self.models.of(work.model);
        let maintenance = maintenance.ok_or_else(|| {
            WorkError::Overtaken(format!("this build does not maintain the model {}", work.model))
        })?;
        maintenance.perform(work, run)
    }

    fn finish(&self, entry: Entry, overview: &Overview, ended: Ended, budget: Option<Budget>) {
        let monotonic = self.clock.monotonic();
        let mut state = self.state.lock();
        let Some(Running { mut job, began, .. }) = state.running.take() else {
            return;
        };
        let lasting = monotonic.saturating_sub(began);
        let (command, cost) = self.control.current();
        job.done = JobProgress::of(&cost, job.total.bytes, lasting);
        job.done.seconds_left = None;
        job.finished = Some(self.database.trusted_now().now.nanos());
        state.budgets.extend(entry.work.table.zip(budget));
        let ended = ended.with_latest(command);
        let edit = state.end(entry, job, overview, ended, monotonic, self.settings.history);
        drop(state);
        self.ended.notify_all();
        self.write(edit);
    }
}

impl Ended {
    /// If a pause has ended the job, replaces the pause by the latest command, because the job can be resumed or
    /// cancelled after its last step.
    fn with_latest(self, latest: JobCommand) -> Self {
        match self {
            Self::GivenUp {
                command: JobCommand::Pause,
                left,
            } => Self::GivenUp {
                command: latest,
                left,
            },
            ended => ended,
        }
    }
}

impl State {
    /// Marks planned work of a kind as requested. Returns the ids of all such work, including a running job unless it
    /// is a seal.
    pub(crate) fn request(&mut self, kind: JobKind, table: Option<TableId>) -> Vec<u64> {
        // A running seal does not include later writes.
        let running = self.running.as_ref().map(|running| &running.entry);
        let is_meant = |entry: &&Entry| kind != JobKind::Seal && entry.work.is_of(kind, table);
        let mut ids: Vec<u64> = running
            .filter(is_meant)
            .map(|entry| entry.id)
            .into_iter()
            .collect();
        ids.extend(self.queue.request(kind, table));
        ids
    }

    fn renew(&mut self, survey: &mut SurveyedPlan, monotonic: Duration) {
        let running = self.running.as_ref().map(|running| &running.entry);
        let planned = std::mem::take(&mut survey.planned);
        self.queue
            .renew(&survey.overview, planned, running, &mut self.journal, monotonic);
        self.overview = Some(Arc::clone(&survey.overview));
    }

    /// Records that a job starts. Returns the rows to store and to remove; nothing for a job that was not requested and
    /// whose kind usually finds nothing to do ([`JobKind::is_round`]).
    fn begin(&mut self, entry: &Entry, now: i64, monotonic: Duration, history: usize) -> Edit {
        let mut job = entry.job(&self.journal);
        job.state = JobState::Running;
        job.started = Some(now);
        self.running = Some(Running {
            entry: entry.clone(),
            job: job.clone(),
            began: monotonic,
        });
        // Such a job usually finds nothing to do, so a row is written only at its end, and only if it did something or
        // failed.
        let is_quiet = job.kind.is_round() && !job.by_hand;
        if is_quiet {
            Edit::default()
        } else {
            self.journal.keep(job, history)
        }
    }

    /// Returns the read budget of a job's table; `None` if the table has no rate, or if the job has no table.
    fn budget(&mut self, entry: &Entry, overview: &Overview, now: Duration) -> Option<Budget> {
        let table = overview.table(entry.work.table?)?;
        let rate = table.bytes_per_second?;
        let kept = self.budgets.remove(&table.id);
        Some(kept.map_or_else(|| Budget::new(rate, now), |budget| budget.at_rate(rate, now)))
    }

    /// Records the end of a job. Returns the rows to store and to remove.
    fn end(
        &mut self,
        entry: Entry,
        mut job: Job,
        overview: &Overview,
        ended: Ended,
        monotonic: Duration,
        history: usize,
    ) -> Edit {
        let is_kept = job.by_hand || !job.kind.is_round();
        let mut is_news = true;
        match ended {
            Ended::Done(outcome) => {
                job.state = JobState::Done;
                job.outcome = Some(outcome.text);
                is_news = outcome.is_news;
                self.queue.succeeded(&entry);
                if let Some(table) = entry.work.table.filter(|_| job.kind.is_round()) {
                    self.journal.serve(table, job.kind, overview.now());
                }
            }
            Ended::GivenUp {
                command: command @ (JobCommand::Pause | JobCommand::Continue),
                ..
            } => {
                let is_planned = entry.work.kind.is_planned();
                let is_paused = command == JobCommand::Pause;
                self.queue.put_back(entry, is_paused);
                if is_planned {
                    return self.journal.forget(job.id);
                }
                job.state = match is_paused {
                    true => JobState::Paused,
                    false => JobState::Planned,
                };
                return self.journal.keep(job, history);
            }
            Ended::GivenUp { command, left } => {
                job.state = JobState::Cancelled;
                job.outcome = Some(match command {
                    JobCommand::Stop if job.kind.is_planned() => {
                        "interrupted by the end of the process; the same work is planned again".into()
                    }
                    JobCommand::Stop => {
                        "interrupted by the end of the process; restored points stay; request the rest again"
                            .into()
                    }
                    _ => format!("cancelled; {left}"),
                });
                self.queue.cancelled(&entry, overview, monotonic);
            }
            Ended::Overtaken(reason) => {
                job.state = JobState::Cancelled;
                job.outcome = Some(format!("overtaken: {reason}"));
                // The plan of the work is outdated. The work waits as after a failure, because a new plan could be
                // outdated at once, too.
                self.queue.failed(&entry, monotonic);
            }
            Ended::Failed { reason, meanwhile } => {
                let then = match job.kind.is_planned() {
                    true => "its work is planned again",
                    false => "completed work stays",
                };
                tracing::warn!(job = job.id, kind = %job.kind, reason, then, "a job failed");
                job.state = JobState::Failed;
                let wait = self.queue.failed(&entry, monotonic);
                job.error = Some(match meanwhile {
                    Some(meanwhile) => {
                        let wait = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
                        let again = job.finished.unwrap_or(overview.now()).saturating_add(wait);
                        let again = Timestamp::from_nanos_clamped(again);
                        format!("{reason}; {meanwhile}, and it is tried again at {again}")
                    }
                    None => reason,
                });
            }
        }
        self.totals.ended(&job);
        if is_kept || is_news {
            self.journal.keep(job, history)
        } else {
            Edit::default()
        }
    }
}
