//! The runner: looks, takes the next piece of work, does it, writes down what came of it.
//!
//! One thread does one job at a time. It looks every few seconds, and again after each job, so a plan is never older
//! than the job before it. Whoever asks or tells the runner something does so under a lock that is never held while
//! work is done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use tideline_model::{Clock, JobKind, TableId, Timestamp};
use tideline_series_store::RewriteCause;

use crate::agenda::{Agenda, Entry};
use crate::errand::Begun;
use crate::job::{Job, JobProgress, JobState};
use crate::journal::{Edit, Journal};
use crate::metrics::Totals;
use crate::pace::{Budget, Control, JobPace, Wish};
use crate::plan::{Facts, Past, PlanSettings, Planned, plan};
use crate::scheduler::{Settings, THREAD};
use crate::work::{Work, WorkError};

/// What the runner's thread and its callers share.
pub(crate) struct Shared {
    pub(crate) work: Arc<dyn Work>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) state: Mutex<State>,
    pub(crate) control: Control,
    /// Signalled when there may be work.
    pub(crate) wake: Condvar,
    /// Signalled when a job ends, and at the end.
    pub(crate) ended: Condvar,
    /// Held while one job is chosen and done.
    turn: Mutex<()>,
}

/// What changes under the lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) journal: Journal,
    pub(crate) agenda: Agenda,
    pub(crate) running: Option<Running>,
    pub(crate) errands: Vec<Arc<Begun>>,
    /// Requests that wait for a seal.
    pub(crate) seals_awaited: usize,
    /// Rows of jobs that were listed without being written.
    pub(crate) unwritten: Edit,
    /// The latest facts; `None` before the first look.
    pub(crate) facts: Option<Arc<Facts>>,
    pub(crate) totals: Totals,
    budgets: HashMap<TableId, Budget>,
    pub(crate) is_stopping: bool,
    is_woken: bool,
}

/// The job that runs.
pub(crate) struct Running {
    pub(crate) entry: Entry,
    pub(crate) job: Job,
    pub(crate) began: Duration,
}

/// How a job ended.
enum Ended {
    Done { outcome: String, is_news: bool },
    GivenUp(Wish),
    Overtaken(String),
    Failed(String),
}

/// One look at the store.
struct Look {
    facts: Arc<Facts>,
    past: Past,
    planned: Vec<Planned>,
}

impl Shared {
    pub(crate) fn new(work: Arc<dyn Work>, settings: Settings) -> Self {
        let (journal, interrupted) = Journal::read(&work.job_rows());
        let shared = Self {
            clock: work.clock(),
            state: Mutex::new(State {
                journal,
                ..State::default()
            }),
            control: Control::default(),
            wake: Condvar::new(),
            ended: Condvar::new(),
            turn: Mutex::default(),
            work,
            settings,
        };
        shared.write(interrupted);
        shared
    }

    /// The thread: works until it is stopped.
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

    /// Looks, and does the most urgent piece of work that may begin; whether there was one.
    pub(crate) fn tick(&self) -> bool {
        let _one_at_a_time = self.turn.lock();
        if self.work.is_read_only() {
            return false;
        }
        let mut look = self.look();
        self.note_seals();
        let mut edit = Edit::default();
        let begun = {
            let mut state = self.state.lock();
            edit.add(std::mem::take(&mut state.unwritten));
            if state.is_stopping {
                return false;
            }
            state.renew(&mut look);
            let State { agenda, journal, .. } = &mut *state;
            edit.add(agenda.serve(&look.facts, &look.past, journal));
            edit.put.extend(journal.ids_to_set_aside());
            let monotonic = self.clock.monotonic();
            let next = agenda.next(&look.facts, journal, monotonic);
            next.map(|entry| {
                self.control.reset();
                edit.add(state.begin(&entry, &look.facts, monotonic, self.settings.history));
                let budget = state.budget(&entry, &look.facts, monotonic);
                (entry, budget)
            })
        };
        self.write(edit);
        let Some((entry, budget)) = begun else {
            return false;
        };
        self.execute(entry, &look.facts, budget);
        true
    }

    /// Looks and plans, and takes over the plan without doing anything.
    pub(crate) fn refresh(&self) -> Arc<Facts> {
        let mut look = self.look();
        let row = {
            let mut state = self.state.lock();
            state.renew(&mut look);
            state.journal.ids_to_set_aside()
        };
        self.write(Edit::put(row));
        look.facts
    }

    /// Makes the thread look at once.
    pub(crate) fn wake_up(&self) {
        self.state.lock().is_woken = true;
        self.wake.notify_all();
    }

    /// Settings of plans.
    pub(crate) fn plan_settings(&self) -> PlanSettings {
        PlanSettings {
            purge_delay: i64::try_from(self.settings.purge_delay.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    fn look(&self) -> Look {
        let facts = Arc::new(self.work.facts());
        let past = {
            let State { agenda, journal, .. } = &mut *self.state.lock();
            agenda.past(&facts, journal)
        };
        let planned = plan(&facts, &past, &self.plan_settings());
        Look { facts, past, planned }
    }

    /// Writes rows about jobs. They are only a record: work goes on without them.
    pub(crate) fn write(&self, edit: Edit) {
        if (edit.put.is_empty() && edit.remove.is_empty()) || self.work.is_read_only() {
            return;
        }
        if let Err(error) = self.work.edit_job_rows(edit.put, edit.remove) {
            tracing::warn!(%error, "rows about jobs could not be written");
        }
    }

    fn execute(&self, entry: Entry, facts: &Facts, budget: Option<Budget>) {
        let mut pace = JobPace::new(&self.control, self.clock.as_ref(), budget);
        let done = catch_unwind(AssertUnwindSafe(|| self.perform(&entry, &mut pace)));
        let ended = match done {
            Ok(Ok(ended)) => ended,
            Ok(Err(WorkError::GivenUp)) => Ended::GivenUp(pace.ended_by.unwrap_or(Wish::Cancel)),
            Ok(Err(WorkError::Overtaken(reason))) => Ended::Overtaken(reason),
            Ok(Err(WorkError::Failed(reason))) => Ended::Failed(reason),
            Err(_) => Ended::Failed("it panicked; the log says where".into()),
        };
        let budget = pace.budget;
        self.finish(entry, facts, ended, budget);
    }

    /// Does the work itself.
    fn perform(&self, entry: &Entry, pace: &mut JobPace<'_>) -> Result<Ended, WorkError> {
        let work = &entry.work;
        let done = |outcome: String| Ended::Done {
            outcome,
            is_news: true,
        };
        match (work.kind, work.table) {
            (JobKind::Fold, Some(table)) => self.rewrite(work, table, RewriteCause::Fold, pace).map(done),
            (JobKind::Migrate, Some(table)) => {
                self.rewrite(work, table, RewriteCause::Migrate, pace).map(done)
            }
            (JobKind::Archive, Some(table)) => self.archive(work, table, pace).map(done),
            (JobKind::Evict, Some(table)) => self.evict(work, table).map(done),
            (JobKind::Restore, Some(table)) => self.restore(work, table, pace).map(done),
            (JobKind::Purge, Some(table)) => self.rewrite(work, table, RewriteCause::Purge, pace).map(done),
            (JobKind::Expire, Some(table)) => {
                let dropped = self.work.drop_segments(table, &work.inputs)?;
                Ok(done(format!("{dropped} segments dropped")))
            }
            (JobKind::CleanCatalog, Some(table)) => {
                let removed = self.work.clean_catalog(table, self.work.trusted_now())?;
                Ok(Ended::Done {
                    outcome: format!("{removed} timelines removed"),
                    is_news: removed > 0,
                })
            }
            (JobKind::SweepArchive, Some(table)) => {
                let removed = self.work.sweep_archive(table)?;
                Ok(Ended::Done {
                    outcome: format!("{removed} files removed"),
                    is_news: removed > 0,
                })
            }
            (JobKind::WriteSettings, Some(table)) => {
                let written = self.work.write_settings(table)?;
                Ok(Ended::Done {
                    outcome: format!("the table's settings are beside its files in {written} more places"),
                    is_news: written > 0,
                })
            }
            (JobKind::Seal, _) => {
                self.work.seal()?;
                let sum = self.sum_seals();
                pace.part_done(&sum.cost());
                Ok(done(sum.outcome()))
            }
            (kind, _) => Err(WorkError::Overtaken(format!("{kind} cannot be planned"))),
        }
    }

    fn finish(&self, entry: Entry, facts: &Facts, ended: Ended, budget: Option<Budget>) {
        let monotonic = self.clock.monotonic();
        let mut state = self.state.lock();
        let Some(Running { mut job, began, .. }) = state.running.take() else {
            return;
        };
        let lasting = monotonic.saturating_sub(began);
        job.done = JobProgress::of(&self.control.current().1, job.total.bytes, lasting);
        job.done.seconds_left = None;
        job.finished = Some(self.work.trusted_now().now.nanos());
        state.budgets.extend(entry.work.table.zip(budget));
        let edit = state.end(entry, job, facts, ended, monotonic, self.settings.history);
        drop(state);
        self.ended.notify_all();
        self.write(edit);
    }
}

impl State {
    /// Puts work of a kind in front; the ids of all that there is of it.
    pub(crate) fn ask_for(&mut self, kind: JobKind, table: Option<TableId>) -> Vec<u64> {
        // A seal that runs does not hold what was written since it began.
        let running = self.running.as_ref().map(|running| &running.entry);
        let is_meant = |entry: &&Entry| kind != JobKind::Seal && entry.work.is_of(kind, table);
        let mut ids: Vec<u64> = running
            .filter(is_meant)
            .map(|entry| entry.id)
            .into_iter()
            .collect();
        ids.extend(self.agenda.ask_for(kind, table));
        ids
    }

    fn renew(&mut self, look: &mut Look) {
        let running = self.running.as_ref().map(|running| &running.entry);
        let planned = std::mem::take(&mut look.planned);
        self.agenda
            .renew(&look.facts, planned, running, &mut self.journal);
        self.facts = Some(Arc::clone(&look.facts));
    }

    /// Writes down that a job begins; the rows to store.
    fn begin(&mut self, entry: &Entry, facts: &Facts, monotonic: Duration, history: usize) -> Edit {
        let mut job = entry.job(&self.journal);
        job.state = JobState::Running;
        job.started = Some(facts.now());
        self.running = Some(Running {
            entry: entry.clone(),
            job: job.clone(),
            began: monotonic,
        });
        // What finds nothing to do most times is only worth a row when it did something.
        let is_quiet = job.kind.is_round() && !job.by_hand;
        if is_quiet {
            Edit::default()
        } else {
            self.journal.keep(job, history)
        }
    }

    /// The read budget of a job's table, where it has a rate.
    fn budget(&mut self, entry: &Entry, facts: &Facts, now: Duration) -> Option<Budget> {
        let table = facts
            .tables
            .iter()
            .find(|table| Some(table.id) == entry.work.table)?;
        let rate = table.policy.move_bytes_per_second?;
        let kept = self.budgets.remove(&table.id);
        Some(kept.map_or_else(|| Budget::new(rate, now), |budget| budget.at_rate(rate, now)))
    }

    /// Writes down how a job ended; the rows to store.
    fn end(
        &mut self,
        entry: Entry,
        mut job: Job,
        facts: &Facts,
        ended: Ended,
        monotonic: Duration,
        history: usize,
    ) -> Edit {
        let is_kept = job.by_hand || !job.kind.is_round();
        let mut is_news = true;
        match ended {
            Ended::Done {
                outcome,
                is_news: new,
            } => {
                job.state = JobState::Done;
                job.outcome = Some(outcome);
                is_news = new;
                self.agenda.succeeded(&entry);
                if let Some(table) = entry.work.table.filter(|_| job.kind.is_round()) {
                    self.journal.serve(table, job.kind, facts.now());
                }
            }
            Ended::GivenUp(Wish::Pause) => {
                let is_planned = entry.work.kind.is_planned();
                self.agenda.put_back(entry);
                if is_planned {
                    return self.journal.forget(job.id);
                }
                job.state = JobState::Paused;
                return self.journal.keep(job, history);
            }
            Ended::GivenUp(wish) => {
                job.state = JobState::Cancelled;
                job.outcome = Some(match wish {
                    Wish::Stop if job.kind.is_planned() => {
                        "interrupted by the end of the process; the same work is planned again".into()
                    }
                    Wish::Stop => {
                        "interrupted by the end of the process; what came back stays; ask again for the rest"
                            .into()
                    }
                    _ if job.kind.is_planned() => "cancelled; everything is as it was".into(),
                    _ => "cancelled; what came back stays".into(),
                });
                self.agenda.cancelled(&entry, facts, monotonic);
            }
            Ended::Overtaken(reason) => {
                job.state = JobState::Cancelled;
                job.outcome = Some(format!("overtaken: {reason}"));
                // Should a new plan be overtaken again, it is not at once.
                self.agenda.failed(&entry, monotonic);
            }
            Ended::Failed(reason) => {
                let then = match job.kind.is_planned() {
                    true => "its work is planned again",
                    false => "what it has done stays",
                };
                tracing::warn!(job = job.id, kind = %job.kind, reason, then, "a job failed");
                job.state = JobState::Failed;
                let wait = self.agenda.failed(&entry, monotonic);
                job.error = Some(match job.kind {
                    JobKind::Archive | JobKind::Evict => {
                        let wait = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
                        let again = job.finished.unwrap_or(facts.now()).saturating_add(wait);
                        let again = Timestamp::from_nanos_clamped(again);
                        format!("{reason}; the cold tier keeps the points, and it is tried again at {again}")
                    }
                    _ => reason,
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
