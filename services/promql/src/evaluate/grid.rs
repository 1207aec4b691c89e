//! Timestamps at which an expression is evaluated.

use crate::error::{PromqlError, Result};

/// Regular timestamps from `start` to at most `end`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Distance between two timestamps, above zero.
    pub(crate) interval: i64,
    /// Number of timestamps.
    pub(crate) steps: usize,
}

impl Grid {
    /// Creates a grid; empty if `end` is before `start`. Fails if the grid has more than
    /// `steps_max` timestamps.
    pub(crate) fn new(start: i64, end: i64, interval: i64, steps_max: usize) -> Result<Self> {
        let steps = match i128::from(end) - i128::from(start) {
            span if span < 0 => 0,
            span => span / i128::from(interval.max(1)) + 1,
        };
        let steps = usize::try_from(steps)
            .ok()
            .filter(|steps| *steps <= steps_max)
            .ok_or_else(|| {
                PromqlError::TooMany(format!(
                    "{steps} steps exceed the limit of {steps_max} samples per query: shorten the time range \
                     or increase the step"
                ))
            })?;
        Ok(Self {
            start,
            end,
            interval: interval.max(1),
            steps,
        })
    }

    /// Returns a grid of the first timestamp only.
    pub(crate) fn first_only(&self) -> Self {
        Self {
            end: self.start,
            steps: self.steps.min(1),
            ..*self
        }
    }

    /// Returns the timestamp of a step.
    pub(crate) fn time(&self, step: usize) -> i64 {
        // The result is within the grid. Wrapping arithmetic is exact even if the product overflows on the
        // way.
        self.start.wrapping_add(self.interval.wrapping_mul(step as i64))
    }

    /// Returns the last timestamp; `start` if the grid is empty.
    pub(crate) fn last(&self) -> i64 {
        self.time(self.steps.saturating_sub(1))
    }

    /// Returns true if start and end are equal. Only then can functions such as `sort` determine the order of series.
    pub(crate) fn is_instant(&self) -> bool {
        self.start == self.end
    }
}
