//! Differences: highest minus lowest, and last minus first.
//!
//! `spread` uses the extremes of a window, `delta` the first and last value of each timeline in the window. Differences
//! of integers are exact if they fit 64 bits.

use tideline_engine::model::ValueType;
use tideline_engine::points::ValueSummary;

use super::edge::at_edges;
use super::extreme::{Extreme, Extremes};
use super::scalar::Scalar;
use super::sum::Sum;
use super::{Overflow, Slice};
use crate::result::ValueRef;

/// `spread`: difference between the extremes of each window.
#[derive(Debug)]
pub struct Spread {
    lowest: Extremes,
    highest: Extremes,
}

impl Spread {
    pub(super) fn new(windows: usize) -> Self {
        Self {
            lowest: Extremes::new(Extreme::Lowest, windows),
            highest: Extremes::new(Extreme::Highest, windows),
        }
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        self.lowest.add(slice);
        self.highest.add(slice);
    }

    pub(super) fn add_summary(&mut self, window: usize, summary: &ValueSummary) {
        self.lowest.add_summary(window, summary);
        self.highest.add_summary(window, summary);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.lowest.merge(&other.lowest);
        self.highest.merge(&other.highest);
    }

    /// Returns highest minus lowest. The difference of integers is exact if it fits an unsigned 64-bit integer.
    pub(super) fn get(&self, window: usize) -> Option<ValueRef<'static>> {
        let (lowest, highest) = (self.lowest.scalar(window)?, self.highest.scalar(window)?);
        Some(match (lowest.as_integer(), highest.as_integer()) {
            (Some(from), Some(to)) => match u64::try_from(to - from) {
                Ok(spread) => ValueRef::Unsigned(spread),
                // The difference of a negative signed and a large unsigned integer may need more than 64 bits.
                Err(_) => ValueRef::Float((to - from) as f64),
            },
            _ => ValueRef::Float(highest.as_f64() - lowest.as_f64()),
        })
    }
}

/// `delta`: last minus first value of each timeline in a window, summed over timelines.
#[derive(Debug)]
pub struct Delta {
    windows: Vec<Sum>,
    /// First and last value of the current timeline in each of its windows.
    open: Vec<Option<Ends>>,
    /// Windows in which the current timeline has values.
    met: Vec<usize>,
}

/// Earliest and latest value with their timestamps.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: (i64, Scalar),
    last: (i64, Scalar),
}

impl Delta {
    pub(super) fn new(windows: usize) -> Self {
        Self {
            windows: vec![Sum::default(); windows],
            open: vec![None; windows],
            met: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            if let Some((first, last)) = at_edges(slice, segment) {
                self.offer(segment.window, Ends { first, last });
            }
        }
    }

    pub(super) fn add_summary(&mut self, window: usize, summary: &ValueSummary) {
        let of = |(time, number)| (time, Scalar::from(number));
        let (first, last) = (of(summary.first), of(summary.last));
        self.offer(window, Ends { first, last });
    }

    pub(super) fn end_timeline(&mut self) {
        for window in self.met.drain(..) {
            let Some(Ends { first, last }) = self.open[window].take() else {
                continue;
            };
            let sum = &mut self.windows[window];
            match (first.1.as_integer(), last.1.as_integer()) {
                (Some(from), Some(to)) => {
                    sum.mark(ValueType::Signed);
                    sum.add_integer(to - from);
                }
                _ => sum.add(Scalar::Float(last.1.as_f64() - first.1.as_f64())),
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = self.windows.iter_mut().zip(&other.windows);
        pairs.for_each(|(sum, other)| sum.merge(other));
    }

    pub(super) fn total(&self, window: usize) -> Result<Option<ValueRef<'static>>, Overflow> {
        self.windows[window].total()
    }

    fn offer(&mut self, window: usize, found: Ends) {
        match &mut self.open[window] {
            Some(ends) => {
                if found.first.0 < ends.first.0 {
                    ends.first = found.first;
                }
                if found.last.0 > ends.last.0 {
                    ends.last = found.last;
                }
            }
            open @ None => {
                *open = Some(found);
                self.met.push(window);
            }
        }
    }
}
