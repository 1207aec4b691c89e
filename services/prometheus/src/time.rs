//! Milliseconds, in which Prometheus asks, and nanoseconds, in which points are stored.

use tideline_engine::model::TimeRange;
use tideline_engine::points::Seen;

/// Nanoseconds of a millisecond.
pub(crate) const NANOS_PER_MILLI: i64 = 1_000_000;

/// The nanoseconds that belong to some milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    first: i64,
    last: i64,
}

impl Span {
    /// Of milliseconds, both ends included.
    pub(crate) fn of_millis((first, last): (i64, i64)) -> Self {
        let last = last.saturating_mul(NANOS_PER_MILLI);
        Self {
            first: first.saturating_mul(NANOS_PER_MILLI),
            last: last.saturating_add(NANOS_PER_MILLI - 1),
        }
    }

    /// The same with its end left out.
    pub(crate) fn range(self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Whether a timeline that was seen so may have a point in it.
    pub(crate) fn meets(self, seen: Option<Seen>) -> bool {
        seen.is_some_and(|seen| seen.first <= self.last && seen.last >= self.first)
    }
}

/// Writes the millisecond of each instant; whether no two are in one. Instants rise.
pub(crate) fn to_millis(nanos: &[i64], millis: &mut Vec<i64>) -> bool {
    millis.clear();
    millis.extend(nanos.iter().map(|nanos| nanos.div_euclid(NANOS_PER_MILLI)));
    millis.windows(2).all(|pair| pair[0] < pair[1])
}

/// Returns the millisecond of a time in nanoseconds.
pub fn millis(nanos: i64) -> i64 {
    nanos.div_euclid(NANOS_PER_MILLI)
}
