//! Conversion between the milliseconds of Prometheus and the nanoseconds of stored points.

use tideline_engine::model::TimeRange;
use tideline_engine::points::Seen;

/// Nanoseconds per millisecond.
pub(crate) const NANOS_PER_MILLI: i64 = 1_000_000;

/// Span of nanoseconds that belong to a range of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    first: i64,
    last: i64,
}

impl Span {
    /// Returns the span of a range of milliseconds, both ends included.
    pub(crate) fn of_millis((first, last): (i64, i64)) -> Self {
        let last = last.saturating_mul(NANOS_PER_MILLI);
        Self {
            first: first.saturating_mul(NANOS_PER_MILLI),
            last: last.saturating_add(NANOS_PER_MILLI - 1),
        }
    }

    /// Returns the span as a half-open range.
    pub(crate) fn range(self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Returns true if a timeline with this time range may have a point in the span.
    pub(crate) fn overlaps(self, seen: Option<Seen>) -> bool {
        seen.is_some_and(|seen| seen.first <= self.last && seen.last >= self.first)
    }
}

/// Converts ascending timestamps to milliseconds. Returns true if no two are in the same millisecond.
pub(crate) fn to_millis(nanos: &[i64], millis: &mut Vec<i64>) -> bool {
    millis.clear();
    millis.extend(nanos.iter().map(|nanos| nanos.div_euclid(NANOS_PER_MILLI)));
    millis.windows(2).all(|pair| pair[0] < pair[1])
}

/// Returns the millisecond of a time in nanoseconds.
pub fn millis(nanos: i64) -> i64 {
    nanos.div_euclid(NANOS_PER_MILLI)
}
