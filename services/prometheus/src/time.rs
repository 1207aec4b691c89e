//! Milliseconds, in which Prometheus asks, and nanoseconds, in which points are stored.

use tideline_series_store::Seen;

const NANOS_PER_MILLI: i64 = 1_000_000;

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

    /// Whether a timeline that was seen so may have a point in it.
    pub(crate) fn meets(self, seen: Option<Seen>) -> bool {
        seen.is_some_and(|seen| seen.first <= self.last && seen.last >= self.first)
    }
}

/// The millisecond that an instant belongs to.
pub(crate) fn millis(nanos: i64) -> i64 {
    nanos.div_euclid(NANOS_PER_MILLI)
}
