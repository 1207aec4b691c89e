//! Seals as jobs.
//!
//! The store seals by size and age, and each of its reports becomes a past job. The reports of a requested seal
//! become one job.

use std::time::Duration;

use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::SealReport;

use super::Series;
use crate::job::{Job, JobState};
use crate::maintenance::{Amount, Outcome, Unplanned, WorkError};
use crate::run::Run;
use crate::runner::Shared;
use crate::scheduler::Scheduler;
use crate::throttle::JobCost;

/// Reason of a seal that the store started.
const BY_ITSELF: &str = "unsealed points are sealed by size and age";
/// Reason of a seal that a request waits for.
const ASKED: &str = "requested by a call that waits for it";

impl Scheduler {
    /// Calls `seal` on the calling thread, concurrently with planned work, and returns the job that records the call.
    /// The amounts of the job are the totals of all seals that ended during the call.
    ///
    /// # Errors
    ///
    /// Returns the error of `seal`. The job is recorded as failed then.
    pub fn seal<E: std::fmt::Display>(&self, seal: impl FnOnce() -> Result<(), E>) -> Result<Job, E> {
        let shared = self.shared();
        shared.note_unplanned();
        let started = shared.database.trusted_now().now.nanos();
        let begun = shared.clock.monotonic();
        let waiting = Waiting::new(shared);
        let sealed = seal();
        let reports = shared.models.series().work.take_seal_reports();
        drop(waiting);
        let lasting = shared.clock.monotonic().saturating_sub(begun);
        let mut job = SealSum::of(&reports)
            .unplanned(started, lasting, ASKED)
            .into_job();
        job.by_hand = true;
        job.finished = Some(shared.database.trusted_now().now.nanos());
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

/// Marker of a request that waits for a seal. While the marker exists, seal reports belong to the job of the request.
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

impl Series {
    /// Returns the seals that the store has completed since the last call.
    pub(super) fn unplanned_seals(&self) -> Vec<Unplanned> {
        let reports = self.work.take_seal_reports();
        let unplanned = |report: SealReport| {
            let (started, lasting) = (report.started, report.duration);
            SealSum::of(&[report]).unplanned(started, lasting, BY_ITSELF)
        };
        reports.into_iter().map(unplanned).collect()
    }

    /// Seals all points. The amounts and the time range of the job cover all seals since the job began.
    pub(super) fn perform_seal(&self, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        self.work.seal()?;
        let sum = SealSum::of(&self.work.take_seal_reports());
        run.set_extent(sum.amount, sum.span);
        run.part_done(&sum.cost());
        Ok(Outcome::done(sum.outcome()))
    }
}

/// Total of several seals; for windows and timelines, the maximum over the seals.
#[derive(Debug, Default)]
struct SealSum {
    amount: Amount,
    /// First timestamp, and the end after the last one; `None` without points.
    span: Option<(i64, i64)>,
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
                let (from, to) = sum.span.unwrap_or((range.start, range.end));
                sum.span = Some((from.min(range.start), to.max(range.end)));
            }
        }
        sum
    }

    /// Returns the data that the seals have read and written.
    fn cost(&self) -> JobCost {
        JobCost {
            timelines: self.amount.timelines,
            points_read: self.amount.points,
            values_read: self.amount.values,
            bytes_read: self.amount.bytes,
            points_written: self.amount.points,
            values_written: self.amount.values,
            bytes_written: self.amount.bytes,
        }
    }

    /// Describes the seals for users.
    fn outcome(&self) -> String {
        match self.amount.segments {
            0 => "there was nothing to seal".to_owned(),
            segments => format!(
                "{} points are in {segments} segments, {} bytes",
                self.amount.points, self.amount.bytes
            ),
        }
    }

    /// Converts the seals to unplanned work.
    fn unplanned(&self, started: i64, lasting: Duration, reason: &'static str) -> Unplanned {
        Unplanned {
            kind: JobKind::Seal,
            table: None,
            tier: Tier::Hot,
            started,
            lasting,
            span: self.span,
            amount: self.amount,
            cost: self.cost(),
            reason,
            outcome: self.outcome(),
        }
    }
}
