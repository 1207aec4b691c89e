//! Handle of a running unit of work: reports its progress, and applies throttling, pauses and cancels.

use std::ops::ControlFlow;

use tideline_engine::model::JobKind;

use crate::maintenance::Amount;
use crate::runner::Shared;
use crate::throttle::{JobCost, JobThrottle};

/// Running job. See [`Maintenance::perform`](crate::Maintenance::perform).
pub struct Run<'a> {
    shared: &'a Shared,
    kind: JobKind,
    pub(crate) throttle: JobThrottle<'a>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(shared: &'a Shared, kind: JobKind, throttle: JobThrottle<'a>) -> Self {
        Self {
            shared,
            kind,
            throttle,
        }
    }

    /// Reports the cost of the running part so far. Waits while the job is paused or has read faster than the rate of
    /// its table allows. Breaks if the job must end.
    pub fn step(&mut self, cost: &JobCost) -> ControlFlow<()> {
        self.throttle.step(cost)
    }

    /// Completes a part of the work; the cost of later parts is added to its cost. Returns the cost of all completed
    /// parts.
    pub fn part_done(&mut self, cost: &JobCost) -> JobCost {
        self.shared.state.lock().totals.moved(self.kind, cost);
        self.throttle.part_done(cost)
    }

    /// Returns the cost of all completed parts.
    pub fn cost(&self) -> JobCost {
        self.throttle.cost()
    }

    /// Replaces the planned extent of the job, for work whose extent is known only at its end.
    pub fn set_extent(&mut self, amount: Amount, span: Option<(i64, i64)>) {
        if let Some(running) = &mut self.shared.state.lock().running {
            let job = &mut running.job;
            job.total = amount;
            (job.from, job.to) = span.unzip();
        }
    }
}
