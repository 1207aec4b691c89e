//! Time bounds of a table: timestamps that its settings accept and that have not expired.

use tideline_model::reject::TimeBound;
use tideline_model::{LineReject, PointGroup, RejectReason, TableSpec, TimeRange};

use crate::line_order::keep_rows;
use crate::time::WriteClock;

/// Range of timestamps that a table accepts at one moment.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Range set by `write_past` and `write_future`.
    accepted: TimeRange,
    /// Points with an earlier timestamp have expired.
    visible_from: i64,
    /// Age at which points expire; `None` = never.
    visible_age: Option<i64>,
    /// True if the clock is in doubt, so that refused points may be within the bounds.
    is_in_doubt: bool,
}

impl Bounds {
    /// Computes the bounds for a clock. Points before `visible_from` have expired.
    pub(crate) fn new(spec: &TableSpec, clock: WriteClock, visible_from: i64) -> Self {
        let past = |past: i64| clock.earliest.saturating_sub(past);
        let past = spec.write_past.map_or(i64::MIN, past);
        let end = |future: i64| clock.latest.saturating_add(future).saturating_add(1);
        Self {
            accepted: TimeRange::new(past, spec.write_future.map_or(i64::MAX, end)),
            visible_from,
            visible_age: spec.policy.visible_age(),
            is_in_doubt: clock.is_in_doubt,
        }
    }

    /// Removes the rows outside the bounds from a group and adds a reject with its line for each.
    pub(crate) fn reject_outside(&self, group: &mut PointGroup, rejects: &mut Vec<LineReject>) {
        if group.timestamps.iter().all(|at| self.contains(*at)) {
            return;
        }
        let keep: Vec<bool> = group.timestamps.iter().map(|at| self.contains(*at)).collect();
        let outside = keep.iter().enumerate().filter(|(_, keep)| !**keep);
        rejects.extend(outside.map(|(row, _)| LineReject {
            line: group.lines[row],
            reason: self.refusal(group.timestamps[row]),
            excerpt: group.measurements.of(row).chars().take(80).collect(),
        }));
        keep_rows(group, &keep);
    }

    fn contains(&self, at: i64) -> bool {
        self.accepted.contains(at) && at >= self.visible_from
    }

    /// Returns the reason why a timestamp outside the bounds is refused.
    fn refusal(&self, at: i64) -> RejectReason {
        match self.visible_age {
            Some(age) if at < self.visible_from => RejectReason::PastRetention { at, age },
            _ => RejectReason::OutOfBounds {
                at,
                bound: match at < self.accepted.start {
                    true => TimeBound::Past,
                    false => TimeBound::Future,
                },
                is_in_doubt: self.is_in_doubt,
            },
        }
    }
}
