//! The buckets of a histogram in order, with their bounds.
//!
//! Bounds cost more than counts. Who looks for one bucket walks the [slots](Histogram::slots) and asks for
//! the [bucket](Histogram::bucket) of the one he found.

use std::ops::Range;
use std::{iter, slice};

use crate::histogram::{Histogram, Span};
use crate::logarithm::log2;

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Its lower bound.
    pub lower: f64,
    /// Its upper bound.
    pub upper: f64,
    /// Whether the lower bound is in it.
    pub lower_inclusive: bool,
    /// Whether the upper bound is in it.
    pub upper_inclusive: bool,
    /// Observations in it.
    pub count: f64,
}

/// Where a bucket lies, and how many observations it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// Where.
    pub place: Place,
    /// Observations.
    pub count: f64,
}

/// Where a bucket lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Below zero: the index of its mirror image.
    Negative(i32),
    /// Around zero.
    Zero,
    /// Above zero, or one of the custom buckets: its index.
    Positive(i32),
}

impl Histogram {
    /// All buckets from the lowest to the highest, empty ones among them; the zero bucket only if it holds
    /// something.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        let zero = (self.zero_count > 0.0 && !self.uses_custom_buckets()).then_some(Slot {
            place: Place::Zero,
            count: self.zero_count,
        });
        self.negative_slots()
            .rev()
            .chain(zero)
            .chain(self.positive_slots())
    }

    /// The positive or custom buckets, rising.
    pub fn positive_slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        side_slots(&self.positive_spans, &self.positive_buckets).map(|(index, count)| Slot {
            place: Place::Positive(index),
            count,
        })
    }

    /// The negative buckets, falling from zero.
    pub fn negative_slots(&self) -> impl DoubleEndedIterator<Item = Slot> + '_ {
        side_slots(&self.negative_spans, &self.negative_buckets).map(|(index, count)| Slot {
            place: Place::Negative(index),
            count,
        })
    }

    /// All buckets from the lowest to the highest. Those that reach into the zero bucket end at it.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        self.slots().map(|slot| self.bucket(slot))
    }

    /// The buckets that hold something, as Prometheus' API lists them: which bounds are in the bucket (0 the
    /// upper, 1 the lower, 2 neither, 3 both), lower bound, upper bound, count.
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

    /// The bucket of a slot, cut where it reaches into the zero bucket.
    pub fn bucket(&self, slot: Slot) -> Bucket {
        let mut bucket = self.uncut_bucket(slot);
        match slot.place {
            Place::Positive(_) if bucket.lower > 0.0 => bucket.lower = bucket.lower.max(self.zero_threshold),
            Place::Negative(_) if bucket.upper < 0.0 => bucket.upper = bucket.upper.min(-self.zero_threshold),
            _ => {}
        }
        bucket
    }

    /// The bucket of a slot, as its schema has it.
    pub(crate) fn uncut_bucket(&self, slot: Slot) -> Bucket {
        let (lower, upper) = match slot.place {
            Place::Positive(index) => (self.bound(index - 1), self.bound(index)),
            Place::Negative(index) => (-self.bound(index), -self.bound(index - 1)),
            Place::Zero => (-self.zero_threshold, self.zero_threshold),
        };
        let (lower_inclusive, upper_inclusive) = match slot.place {
            Place::Zero => (true, true),
            Place::Positive(index) if self.uses_custom_buckets() => (index == 0, true),
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
    /// Which part of the bucket's observations lies at or below a value strictly between its finite bounds.
    ///
    /// Linear in buckets whose bounds are the histogram's own and in the zero bucket; in exponential ones
    /// linear in the logarithm, so that finer buckets would be filled evenly.
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

/// How observations are thought to be spread within a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// Evenly.
    Linear,
    /// Evenly in the logarithm.
    Exponential,
}

/// The buckets of one side by rising index.
pub(crate) fn side_slots<'a>(spans: &'a [Span], buckets: &'a [f64]) -> SideSlots<'a> {
    SideSlots {
        spans: spans.iter(),
        buckets: buckets.iter(),
        front: 0..0,
        back: 0..0,
        back_end: spans.iter().map(|span| span.offset + span.length as i32).sum(),
    }
}

/// Indices and counts, from either end.
#[derive(Debug, Clone)]
pub(crate) struct SideSlots<'a> {
    spans: slice::Iter<'a, Span>,
    buckets: slice::Iter<'a, f64>,
    /// Indices left in the span that was begun at the front.
    front: Range<i32>,
    /// Indices left in the span that was begun at the back.
    back: Range<i32>,
    /// The index behind the last span that was not begun.
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
