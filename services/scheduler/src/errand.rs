//! Errands: work that a request begins at once, beside the planned work. It is listed, watched and cancelled as jobs are,
//! and remembered when it has ended.
//!
//! The scheduler does not do it: the request's own thread does, asks after each step whether to go on, and says what
//! came of it. There may be several, and no move waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_engine::model::{JobKind, TableId, Tier};

use crate::job::{Job, JobProgress, JobState, JobTable};
use crate::journal::Edit;
use crate::maintenance::Amount;
use crate::pace::Wish;
use crate::runner::{Shared, State};
use crate::scheduler::Scheduler;

/// An errand that runs. Dropped without an end, it was interrupted.
pub struct Errand {
    shared: Arc<Shared>,
    begun: Arc<Begun>,
    is_ended: bool,
}

/// What the list of jobs knows of an errand that runs.
#[derive(Debug)]
pub(crate) struct Begun {
    job: Job,
    /// Monotonic.
    at: Duration,
    timelines: AtomicU64,
    /// What the errand is told: to go on, to end, or to end because the process does.
    wish: Mutex<Wish>,
}

/// How an errand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
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
    ) -> Errand {
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
            let wish = if state.is_stopping { Wish::Stop } else { Wish::GoOn };
            let begun = Arc::new(Begun {
                job: job.clone(),
                at: shared.clock.monotonic(),
                timelines: AtomicU64::new(0),
                wish: Mutex::new(wish),
            });
            state.errands.push(Arc::clone(&begun));
            edit.put.extend(state.journal.ids_to_set_aside());
            edit.add(state.journal.keep(job, shared.settings.history));
            begun
        };
        shared.write(edit);
        Errand {
            shared,
            begun,
            is_ended: false,
        }
    }
}

impl Errand {
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
        *self.begun.wish.lock() == Wish::GoOn
    }

    /// How it ends before its end: what came of it so far, and why; `is_stopping` where the process is about to end.
    pub fn cut_short(&self, came: &str, is_stopping: bool) -> Ending {
        let wish = *self.begun.wish.lock();
        Ending::Cancelled(match wish {
            Wish::Cancel => format!("cancelled: {came}; that stays"),
            Wish::GoOn if !is_stopping => format!("its client left: {came}; that stays"),
            _ => format!("the service stopped: {came}; sent again, it does what is left"),
        })
    }

    /// Writes down what came of it.
    pub fn end(mut self, ending: Ending) {
        self.finish(ending);
    }

    fn finish(&mut self, ending: Ending) {
        self.is_ended = true;
        let mut job = self.job();
        job.done.seconds_left = None;
        job.finished = Some(self.shared.database.trusted_now().now.nanos());
        match ending {
            Ending::Done(outcome) => (job.state, job.outcome) = (JobState::Done, Some(outcome)),
            Ending::Cancelled(outcome) => (job.state, job.outcome) = (JobState::Cancelled, Some(outcome)),
            Ending::Failed(error) => (job.state, job.error) = (JobState::Failed, Some(error)),
        }
        let edit = {
            let mut state = self.shared.state.lock();
            state.errands.retain(|begun| begun.job.id != job.id);
            state.totals.ended(&job);
            state.journal.keep(job, self.shared.settings.history)
        };
        self.shared.ended.notify_all();
        self.shared.write(edit);
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if !self.is_ended {
            self.finish(Ending::Failed(
                "it ended without saying how; the log says more".into(),
            ));
        }
    }
}

impl Begun {
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
    fn wish(&self, wish: Wish) {
        let mut current = self.wish.lock();
        if *current != Wish::Stop {
            *current = wish;
        }
    }
}

impl State {
    /// The errand with this number.
    pub(crate) fn errand(&self, id: u64) -> Option<&Arc<Begun>> {
        self.errands.iter().find(|begun| begun.job.id == id)
    }

    /// Tells an errand to end; whether there is one.
    pub(crate) fn end_errand(&self, id: u64) -> bool {
        let found = self.errand(id);
        if let Some(begun) = found {
            begun.wish(Wish::Cancel);
        }
        found.is_some()
    }

    /// Tells all errands that the process ends.
    pub(crate) fn stop_errands(&self) {
        self.errands.iter().for_each(|begun| begun.wish(Wish::Stop));
    }
}
