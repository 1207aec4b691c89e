//! Metrics of background work.

use std::collections::BTreeMap;

use tideline_engine::model::JobKind;

use crate::job::{Job, JobState};
use crate::runner::State;
use crate::throttle::JobCost;

/// Metrics at one moment. `ended` and `moved` count since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Number of waiting units of work that are due or requested, by kind. Paused work and work that waits after a
    /// failure are included.
    pub due: BTreeMap<JobKind, u64>,
    /// Number of units of work that wait for their schedule or a request, by kind.
    pub waiting: BTreeMap<JobKind, u64>,
    /// Kind of the running job.
    pub running: Option<JobKind>,
    /// Number of paused kinds of jobs, in the whole store and per table.
    pub kinds_paused: u64,
    /// Number of ended jobs, by kind and final state.
    pub ended: BTreeMap<(JobKind, JobState), u64>,
    /// Amounts of data that jobs read and wrote, by kind.
    pub moved: BTreeMap<JobKind, JobCost>,
    /// Number of published segments of all tables.
    pub segments: u64,
    /// Number of dropped segments whose bytes are freed after their last reader has ended.
    pub segments_retired: u64,
    /// Deviation of the wall clock in nanoseconds; `None` unless the clock is in doubt.
    pub clock_off_by: Option<i64>,
    /// Reason why the clock is in doubt; `None` unless it is.
    pub clock_doubt: Option<String>,
}

impl Metrics {
    /// Collects the metrics of a state.
    pub(crate) fn of(state: &State) -> Self {
        let mut metrics = Self {
            running: state.running.as_ref().map(|running| running.entry.work.kind),
            kinds_paused: state.journal.paused_count() as u64,
            ended: state.totals.ended.clone(),
            moved: state.totals.moved.clone(),
            ..Self::default()
        };
        let Some(overview) = &state.overview else {
            return metrics;
        };
        for entry in state.queue.by_hand.iter().chain(&state.queue.planned) {
            let is_due = entry.by_hand || entry.work.is_due(overview.now());
            let counts = if is_due {
                &mut metrics.due
            } else {
                &mut metrics.waiting
            };
            *counts.entry(entry.work.kind).or_default() += 1;
        }
        let segments = overview.segments();
        (metrics.segments, metrics.segments_retired) = (segments.published, segments.retired);
        metrics.clock_off_by = overview.clock.doubt.map(|doubt| doubt.off_by);
        metrics.clock_doubt = overview.clock.doubt.map(|doubt| doubt.reason());
        metrics
    }
}

/// Counters that only increase.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) ended: BTreeMap<(JobKind, JobState), u64>,
    pub(crate) moved: BTreeMap<JobKind, JobCost>,
}

impl Totals {
    pub(crate) fn ended(&mut self, job: &Job) {
        *self.ended.entry((job.kind, job.state)).or_default() += 1;
    }

    pub(crate) fn moved(&mut self, kind: JobKind, cost: &JobCost) {
        *self.moved.entry(kind).or_default() += *cost;
    }
}
