//! Buckets of a histogram in order, with their bounds.
//!
//! Computing bounds costs more than reading counts. To find one bucket, walk the [slots](Histogram::slots)
//! and compute the [bucket](Histogram::bucket) only for the match.

use std::ops::Range;
use std::{iter, slice};

use crate::histogram::{Histogram, Span};
use crate::logarithm::log2;

/// Bucket with its bounds and count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// True if the bucket includes its lower bound.
    pub lower_inclusive: bool,
    /// True if the bucket includes its upper bound.
    pub upper_inclusive: bool,
    /// Number of observations.
    pub count: f64,
}

/// Position of a bucket and the number of its observations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// Position within the histogram.
    pub index: BucketIndex,
    /// Number of observations.
    pub count: f64,
}

/// Position of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketIndex {
    /// Index of a negative bucket, counted away from zero: the index of its positive mirror image.
    Negative(i32),
    /// Zero bucket.
    Zero,
    /// Index of a positive or a custom bucket.
    Positive(i32),
}

impl Histogram {
    /// Iterates over all buckets from the lowest to the highest, including empty ones. The zero bucket is
    /// included only if its count is positive and the buckets are not custom.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        let zero = (self.zero_count > 0.0 && !self.uses_custom_buckets()).then_some(Slot {
            index: BucketIndex::Zero,
            count: self.zero_count,
        });
        self.negative_slots()
            .rev()
            .chain(zero)
            .chain(self.positive_slots())
    }

    /// Iterates over the positive or custom buckets in rising order.
    pub fn positive_slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        side_slots(&self.positive_spans, &self.positive_buckets).map(|(index, count)| Slot {
            index: BucketIndex::Positive(index),
            count,
        })
    }

    /// Iterates over the negative buckets, from zero outward.
    pub fn negative_slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        side_slots(&self.negative_spans, &self.negative_buckets).map(|(index, count)| Slot {
            index: BucketIndex::Negative(index),
            count,
        })
    }

    /// Iterates over all buckets from the lowest to the highest, cut at the zero bucket as in
    /// [`Self::bucket`].
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        self.slots().map(|slot| self.bucket(slot))
    }

    /// Iterates over the nonempty buckets in the form of Prometheus' API: (boundary rule, lower bound, upper
    /// bound, count). The boundary rule is 0 if only the upper bound is included, 1 if only the lower, 2 if
    /// neither, 3 if both.
    pub fn listed_buckets(&self) -> impl Iterator<Item = (u8, f64, f64, f64)> + '_ {
        self.buckets().filter(|bucket| bucket.count != 0.0).map(|bucket| {
            let boundaries = match (bucket.lower_inclusive, bucket.upper_inclusive) {
                (false, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (true, true) => 3,
            };
            (boundaries, bucket.lower, bucket.upper, bucket.count)
        })
    }

    /// Computes the bounds of a slot. A bucket that overlaps the zero bucket is cut at the edge of the zero
    /// bucket.
    pub fn bucket(&self, slot: Slot) -> Bucket {
        let mut bucket = self.uncut_bucket(slot);
        match slot.index {
            BucketIndex::Positive(_) if bucket.lower > 0.0 => {
                bucket.lower = bucket.lower.max(self.zero_threshold);
            }
            BucketIndex::Negative(_) if bucket.upper < 0.0 => {
                bucket.upper = bucket.upper.min(-self.zero_threshold);
            }
            _ => {}
        }
        bucket
    }

    /// Computes the bounds of a slot by the schema alone, without the cut at the zero bucket.
    pub(crate) fn uncut_bucket(&self, slot: Slot) -> Bucket {
        let (lower, upper) = match slot.index {
            BucketIndex::Positive(index) => (self.bound(index - 1), self.bound(index)),
            BucketIndex::Negative(index) => (-self.bound(index), -self.bound(index - 1)),
            BucketIndex::Zero => (-self.zero_threshold, self.zero_threshold),
        };
        let (lower_inclusive, upper_inclusive) = match slot.index {
            BucketIndex::Zero => (true, true),
            BucketIndex::Positive(index) if self.uses_custom_buckets() => (index == 0, true),
            _ => (lower < 0.0, upper > 0.0),
        };
        Bucket {
            lower,
            upper,
            lower_inclusive,
            upper_inclusive,
            count: slot.count,
        }
    }
}

impl Bucket {
    /// Returns the fraction of the bucket's observations at or below `value`, which must be strictly between
    /// the finite bounds.
    ///
    /// [`Interpolation::Linear`] applies to custom buckets and to the zero bucket.
    /// [`Interpolation::Exponential`] applies to exponential buckets: it is linear in the logarithm, as if
    /// finer buckets were filled evenly.
    pub fn fraction_below(&self, value: f64, interpolation: Interpolation) -> f64 {
        if interpolation == Interpolation::Linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, at] = [self.lower, self.upper, value].map(|bound| log2(bound.abs()));
        match value > 0.0 {
            true => (at - lower) / (upper - lower),
            false => 1.0 - (at - upper) / (lower - upper),
        }
    }
}

/// Assumed distribution of the observations within a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// Uniform.
    Linear,
    /// Uniform in the logarithm.
    Exponential,
}

/// Iterates over (index, count) of one side by rising index.
pub(crate) fn side_slots<'a>(spans: &'a [Span], buckets: &'a [f64]) -> SideSlots<'a> {
    SideSlots {
        spans: spans.iter(),
        buckets: buckets.iter(),
        front: 0..0,
        back: 0..0,
        back_end: spans.iter().map(|span| span.offset + span.length as i32).sum(),
    }
}

/// Double-ended iterator over (index, count).
#[derive(Debug, Clone)]
pub(crate) struct SideSlots<'a> {
    spans: slice::Iter<'a, Span>,
    buckets: slice::Iter<'a, f64>,
    /// Remaining indices of the span that was entered from the front.
    front: Range<i32>,
    /// Remaining indices of the span that was entered from the back.
    back: Range<i32>,
    /// End (exclusive) of the last span that was not yet entered.
    back_end: i32,
}

impl Iterator for SideSlots<'_> {
    type Item = (i32, f64);

    fn next(&mut self) -> Option<Self::Item> {
        let count = *self.buckets.next()?;
        loop {
            if let Some(index) = self.front.next() {
                return Some((index, count));
            }
            let Some(span) = self.spans.next() else {
                return self.back.next().map(|index| (index, count));
            };
            let first = self.front.end + span.offset;
            self.front = first..first + span.length as i32;
        }
    }
}

impl DoubleEndedIterator for SideSlots<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let count = *self.buckets.next_back()?;
        loop {
            if let Some(index) = self.back.next_back() {
                return Some((index, count));
            }
            let Some(span) = self.spans.next_back() else {
                return self.front.next_back().map(|index| (index, count));
            };
            self.back = self.back_end - span.length as i32..self.back_end;
            self.back_end = self.back.start - span.offset;
        }
    }
}

impl iter::FusedIterator for SideSlots<'_> {}
