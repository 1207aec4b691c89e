//! Counts of a segment, collected while it is written.

/// Counts of a segment that is about to be published.
#[derive(Debug, Clone)]
pub struct SegmentTotals {
    /// See [`super::Segment::first`].
    pub first: i64,
    /// See [`super::Segment::last`].
    pub last: i64,
    /// See [`super::Segment::timelines`].
    pub timelines: u64,
    /// See [`super::Segment::chunks`].
    pub chunks: u64,
    /// See [`super::Segment::points`].
    pub points: u64,
    /// See [`super::Segment::values`].
    pub values: u64,
    /// See [`super::Segment::bytes`].
    pub bytes: u64,
    /// See [`super::Segment::largest_sources`].
    pub largest_sources: Vec<(String, u64)>,
}

/// Counts of an empty segment.
impl Default for SegmentTotals {
    fn default() -> Self {
        Self {
            first: i64::MAX,
            last: i64::MIN,
            timelines: 0,
            chunks: 0,
            points: 0,
            values: 0,
            bytes: 0,
            largest_sources: Vec::new(),
        }
    }
}

impl SegmentTotals {
    /// Adds points in a time span.
    pub(crate) fn count(&mut self, (first, last): (i64, i64), points: u64, values: u64) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        self.points += points;
        self.values += values;
    }
}
