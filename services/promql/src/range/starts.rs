//! What start timestamps say of counter resets. All in milliseconds, 0 = unknown.

/// A sample's instant, and when what it counts began.
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

    /// Whether the counter began anew after the sample before.
    ///
    /// A start that is unknown, or not before its sample, says nothing. One at the very instant of the sample
    /// before is the next part of a series of differences, or of a counter whose start is not known: only the
    /// former had a start before.
    pub(super) fn is_reset_after(self, before: Self) -> bool {
        if self.start == 0 || self.start >= self.time || self.start < before.time {
            return false;
        }
        self.start > before.time || (before.start != 0 && before.start < before.time)
    }

    /// Whether the start lies before the sample before, but is not the start of that one.
    pub(super) fn overlaps(self, before: Self) -> bool {
        self.start != 0 && self.start < before.time && self.start != before.start
    }
}
