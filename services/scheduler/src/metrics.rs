//! Figures about background work, for `/metrics`.

use std::collections::BTreeMap;

use tideline_series_store::RewriteCost;

use crate::chore::Chore;
use crate::job::{Job, JobState};

/// Figures of one moment; counts are since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Waiting work that may begin, by kind.
    pub due: BTreeMap<Chore, u64>,
    /// Waiting work that waits for its schedule or to be asked for, by kind.
    pub waiting: BTreeMap<Chore, u64>,
    /// The kind of the job that runs.
    pub running: Option<Chore>,
    /// Chores of tables that are paused.
    pub chores_paused: u64,
    /// Jobs that ended, by kind and outcome.
    pub ended: BTreeMap<(Chore, JobState), u64>,
    /// What rewrites moved, by kind.
    pub moved: BTreeMap<Chore, RewriteCost>,
    /// Segments of the store.
    pub segments: u64,
    /// Segments that wait for their last reader to be freed.
    pub segments_retired: u64,
    /// Nanoseconds that the wall clock is off by, while it is in doubt.
    pub clock_off_by: Option<i64>,
    /// Why the clock is in doubt.
    pub clock_doubt: Option<String>,
}

/// Counts that only grow.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) ended: BTreeMap<(Chore, JobState), u64>,
    pub(crate) moved: BTreeMap<Chore, RewriteCost>,
}

impl Totals {
    pub(crate) fn ended(&mut self, job: &Job) {
        *self.ended.entry((job.kind, job.state)).or_default() += 1;
    }

    pub(crate) fn moved(&mut self, chore: Chore, cost: &RewriteCost) {
        let sum = self.moved.entry(chore).or_default();
        sum.timelines += cost.timelines;
        sum.points_read += cost.points_read;
        sum.values_read += cost.values_read;
        sum.bytes_read += cost.bytes_read;
        sum.points_written += cost.points_written;
        sum.values_written += cost.values_written;
        sum.bytes_written += cost.bytes_written;
    }
}
