//! The instants at which an expression is evaluated.

use crate::error::{PromqlError, Result};

/// Regular instants from `start`, at most to `end`, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Above zero.
    pub(crate) interval: i64,
    /// How many instants there are.
    pub(crate) steps: usize,
}

impl Grid {
    /// Fails where there would be more than `steps_max` instants.
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
                    "{steps} steps are more than the {steps_max} samples that a query may hold: ask for a shorter \
                     time or a longer step"
                ))
            })?;
        Ok(Self {
            start,
            end,
            interval: interval.max(1),
            steps,
        })
    }

    /// Its first instant alone.
    pub(crate) fn first_only(&self) -> Self {
        Self {
            end: self.start,
            steps: self.steps.min(1),
            ..*self
        }
    }

    /// The instant of a step.
    pub(crate) fn time(&self, step: usize) -> i64 {
        // Between the ends it is a number, even where the way there is none.
        self.start.wrapping_add(self.interval.wrapping_mul(step as i64))
    }

    /// The last instant.
    pub(crate) fn last(&self) -> i64 {
        self.time(self.steps.saturating_sub(1))
    }

    /// Whether it is one instant by its bounds: then the order of results is kept.
    pub(crate) fn is_instant(&self) -> bool {
        self.start == self.end
    }
}
