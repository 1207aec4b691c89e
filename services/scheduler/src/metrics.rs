//! Figures about background work, for `/metrics`.

use std::collections::BTreeMap;

use tideline_engine::model::JobKind;

use crate::job::{Job, JobState};
use crate::pace::JobCost;
use crate::runner::State;

/// Figures of one moment; counts are since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Waiting work that may begin, by kind.
    pub due: BTreeMap<JobKind, u64>,
    /// Waiting work that waits for its schedule or to be asked for, by kind.
    pub waiting: BTreeMap<JobKind, u64>,
    /// The kind of the job that runs.
    pub running: Option<JobKind>,
    /// Kinds of jobs that are paused, in the whole store and per table.
    pub kinds_paused: u64,
    /// Jobs that ended, by kind and outcome.
    pub ended: BTreeMap<(JobKind, JobState), u64>,
    /// What jobs read and wrote, by kind.
    pub moved: BTreeMap<JobKind, JobCost>,
    /// Segments of the store.
    pub segments: u64,
    /// Segments that wait for their last reader to be freed.
    pub segments_retired: u64,
    /// Nanoseconds that the wall clock is off by, while it is in doubt.
    pub clock_off_by: Option<i64>,
    /// Why the clock is in doubt.
    pub clock_doubt: Option<String>,
}

impl Metrics {
    /// Figures of a state.
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
        for entry in state.agenda.by_hand.iter().chain(&state.agenda.planned) {
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

/// Counts that only grow.
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
