//! Seals as jobs. The store seals without being asked; its reports become past jobs here, and those of a seal that was asked
//! for become one job.

use tideline_model::{JobKind, Tier};
use tideline_series_store::{RewriteCost, SealReport};

use crate::job::{Job, JobProgress, JobState};
use crate::journal::Edit;
use crate::plan::Amount;
use crate::runner::{Shared, State};
use crate::scheduler::Scheduler;

/// Reason of a seal that the store began.
const BY_ITSELF: &str = "unsealed points are sealed by size and age";
/// Reason of a seal that a request waits for.
const ASKED: &str = "asked for by a request that waits for it";

impl Scheduler {
    /// Seals on the calling thread by `seal`, beside planned work, and returns the job that lists it. Its amounts are those of
    /// all seals that have ended meanwhile.
    ///
    /// # Errors
    ///
    /// Those of `seal`; the job is listed as failed then.
    pub fn seal<E: std::fmt::Display>(&self, seal: impl FnOnce() -> Result<(), E>) -> Result<Job, E> {
        let shared = self.shared();
        shared.note_seals();
        let started = shared.work.trusted_now().now.nanos();
        let begun = shared.clock.monotonic();
        let waiting = Waiting::new(shared);
        let sealed = seal();
        let reports = shared.work.take_seal_reports();
        drop(waiting);
        let sum = SealSum::of(&reports);
        let mut job = sum.job(started, ASKED);
        job.by_hand = true;
        job.finished = Some(shared.work.trusted_now().now.nanos());
        let lasting = shared.clock.monotonic().saturating_sub(begun);
        job.done = JobProgress::of(&sum.cost(), job.total.bytes, lasting);
        if let Err(error) = &sealed {
            (job.state, job.outcome, job.error) = (JobState::Failed, None, Some(error.to_string()));
        }
        let edit = {
            let mut state = shared.state.lock();
            state.list_past(&mut job, shared.settings.history)
        };
        shared.write(edit);
        sealed.map(|()| job)
    }
}

/// A request that waits for a seal: meanwhile reports belong to its job.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.state.lock().seals_awaited += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().seals_awaited -= 1;
    }
}

impl Shared {
    /// Lists the seals that the store has done since the last call. Their rows are written with the next ones.
    pub(crate) fn note_seals(&self) {
        let mut state = self.state.lock();
        let is_sealing = state
            .running
            .as_ref()
            .is_some_and(|running| running.entry.work.kind == JobKind::Seal);
        if is_sealing || state.seals_awaited > 0 {
            return;
        }
        for report in self.work.take_seal_reports() {
            let sum = SealSum::of(&[report]);
            let mut job = sum.job(report.started, BY_ITSELF);
            let lasting = i64::try_from(report.duration.as_nanos()).unwrap_or(i64::MAX);
            job.finished = Some(report.started.saturating_add(lasting));
            job.done = JobProgress::of(&sum.cost(), job.total.bytes, report.duration);
            let edit = state.list_past(&mut job, self.settings.history);
            state.unwritten.add(edit);
        }
    }

    /// The sum of the seals since the running seal began.
    pub(crate) fn sum_seals(&self) -> SealSum {
        let sum = SealSum::of(&self.work.take_seal_reports());
        if let Some(running) = &mut self.state.lock().running {
            (running.job.total, running.job.from, running.job.to) = (sum.amount, sum.from, sum.to);
        }
        sum
    }
}

impl State {
    /// Gives a job that has ended its number, and remembers it; the rows to store.
    fn list_past(&mut self, job: &mut Job, history: usize) -> Edit {
        job.id = self.journal.next_id();
        job.done.seconds_left = None;
        self.totals.ended(job);
        let mut edit = Edit::put(self.journal.ids_to_set_aside());
        edit.add(self.journal.keep(job.clone(), history));
        edit
    }
}

/// Several seals as one.
#[derive(Debug, Default)]
pub(crate) struct SealSum {
    amount: Amount,
    from: Option<i64>,
    to: Option<i64>,
}

impl SealSum {
    fn of(reports: &[SealReport]) -> Self {
        let mut sum = Self::default();
        for report in reports {
            let amount = &mut sum.amount;
            amount.windows = amount.windows.max(report.windows);
            amount.segments += report.segments;
            amount.timelines = amount.timelines.max(report.timelines);
            amount.points += report.points;
            amount.values += report.values;
            amount.bytes += report.bytes;
            if let Some(range) = report.range {
                sum.from = Some(sum.from.map_or(range.start, |from| from.min(range.start)));
                sum.to = Some(sum.to.map_or(range.end, |to| to.max(range.end)));
            }
        }
        sum
    }

    /// Cost of the seal, in the form of a rewrite.
    pub(crate) fn cost(&self) -> RewriteCost {
        RewriteCost {
            timelines: self.amount.timelines,
            points_read: self.amount.points,
            values_read: self.amount.values,
            bytes_read: self.amount.bytes,
            points_written: self.amount.points,
            values_written: self.amount.values,
            bytes_written: self.amount.bytes,
        }
    }

    /// For people.
    pub(crate) fn outcome(&self) -> String {
        match self.amount.segments {
            0 => "there was nothing to seal".to_owned(),
            segments => format!(
                "{} points are in {segments} segments, {} bytes",
                self.amount.points, self.amount.bytes
            ),
        }
    }

    /// A job without a number yet.
    fn job(&self, started: i64, reason: &str) -> Job {
        Job {
            id: 0,
            kind: JobKind::Seal,
            table: None,
            state: JobState::Done,
            by_hand: false,
            reason: reason.to_owned(),
            created: started,
            due: Some(started),
            started: Some(started),
            finished: None,
            from: self.from,
            to: self.to,
            tier: Tier::Hot,
            total: self.amount,
            done: JobProgress::default(),
            outcome: Some(self.outcome()),
            error: None,
        }
    }
}
