//! Detection of counter resets and of overlaps by start timestamps. All timestamps are in milliseconds; 0 means
//! unknown.

/// Timestamp of a sample, and start timestamp of its counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) time: i64,
    pub(super) start: i64,
}

impl Stamp {
    pub(super) fn at(times: &[i64], starts: &[i64], at: usize) -> Self {
        Self {
            time: times[at],
            start: starts.get(at).copied().unwrap_or(0),
        }
    }

    /// Returns true if the counter was reset after the previous sample.
    ///
    /// A start after the previous sample is a reset, a start before it is not. A start that is unknown, or not before
    /// its sample, is ignored. A start equal to the previous sample's timestamp is a reset only if the previous sample
    /// itself has an earlier start. A series of deltas satisfies this condition, but a counter with unknown start does
    /// not.
    pub(super) fn is_reset_after(self, before: Self) -> bool {
        if self.start == 0 || self.start >= self.time || self.start < before.time {
            return false;
        }
        self.start > before.time || (before.start != 0 && before.start < before.time)
    }

    /// Returns true if the start is known, is before the previous sample and differs from that sample's start.
    pub(super) fn overlaps(self, before: Self) -> bool {
        self.start != 0 && self.start < before.time && self.start != before.start
    }
}
