//! Segments that may be merged: a merge must preserve the write order of segments that overlap in time.
//!
//! The output of a rewrite has one position in the write order of a table. A segment that overlaps the inputs in time
//! and was written between the oldest and the newest of them has no valid position relative to the output. Such a
//! segment must be an input too, or the inputs must be split.

use tideline_engine::model::{SegmentId, TimeRange};
use tideline_engine::moves::manifest::{WriteRank, WriteSpan};

use super::facts::SegmentFacts;

/// Maximum number of inputs of one rewrite. Each costs a cursor and a page of memory.
pub(super) const INPUTS_MAX: usize = 256;

/// Segments to merge, in write order.
#[derive(Debug, Clone)]
pub(super) struct Inputs<'a> {
    pub(super) segments: Vec<&'a SegmentFacts>,
    written: WriteSpan,
    range: TimeRange,
}

impl<'a> Inputs<'a> {
    pub(super) fn of(first: &'a SegmentFacts) -> Self {
        Self {
            segments: vec![first],
            written: first.written,
            range: first.range(),
        }
    }

    fn add(&mut self, segment: &'a SegmentFacts) {
        let range = segment.range();
        self.written = self.written.union(segment.written);
        self.range = TimeRange::new(self.range.start.min(range.start), self.range.end.max(range.end));
        let at = self
            .segments
            .partition_point(|other| order(other) < order(segment));
        self.segments.insert(at, segment);
    }

    fn holds(&self, segment: &SegmentFacts) -> bool {
        self.segments
            .binary_search_by_key(&order(segment), |input| order(input))
            .is_ok()
    }

    /// Returns a further segment that overlaps the inputs in time and was written between the oldest and the newest of
    /// them; `None` without such a segment.
    pub(super) fn between(&self, all: &'a [SegmentFacts]) -> Option<&'a SegmentFacts> {
        all.iter().find(|other| {
            other.written.interleaves(&self.written)
                && other.range().overlaps(&self.range)
                && !self.holds(other)
        })
    }

    /// Adds all segments that [`between`](Self::between) finds. Returns `None` if `may_join` refuses one of them, or if
    /// the inputs would exceed [`INPUTS_MAX`].
    pub(super) fn closed(
        mut self,
        all: &'a [SegmentFacts],
        may_join: impl Fn(&SegmentFacts) -> bool,
    ) -> Option<Self> {
        while let Some(other) = self.between(all) {
            if !may_join(other) || self.segments.len() == INPUTS_MAX {
                return None;
            }
            self.add(other);
        }
        Some(self)
    }

    pub(super) fn from_slice(segments: &[&'a SegmentFacts]) -> Option<Self> {
        let (first, rest) = segments.split_first()?;
        let mut inputs = Self::of(first);
        rest.iter().for_each(|segment| inputs.add(segment));
        Some(inputs)
    }
}

/// Sorts segments in ascending order of their newest write.
pub(super) fn sort(segments: &mut [&SegmentFacts]) {
    segments.sort_unstable_by_key(|segment| order(segment));
}

fn order(segment: &SegmentFacts) -> (WriteRank, SegmentId) {
    (segment.written.newest, segment.id)
}

/// Splits segments into the longest runs that can be merged without breaking the write order, at most [`INPUTS_MAX`]
/// segments each. A segment that may not be rewritten even alone is omitted.
pub(super) fn runs<'a>(mut segments: Vec<&'a SegmentFacts>, all: &'a [SegmentFacts]) -> Vec<Inputs<'a>> {
    sort(&mut segments);
    let mut runs = Vec::new();
    let mut rest = &segments[..];
    while let Some((first, others)) = rest.split_first() {
        let mut inputs = Inputs::of(first);
        let mut longest = inputs.between(all).is_none().then(|| inputs.clone());
        for segment in others.iter().take(INPUTS_MAX - 1) {
            inputs.add(segment);
            if inputs.between(all).is_none() {
                longest = Some(inputs.clone());
            }
        }
        rest = &rest[longest.as_ref().map_or(1, |run| run.segments.len())..];
        runs.extend(longest);
    }
    runs
}
