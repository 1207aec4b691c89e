//! A condition as a screen: which buckets of summaries may hold a row that meets it.

use tideline_engine::condition::intervals::Intervals;
use tideline_engine::model::FieldId;
use tideline_engine::points::{Bucket, Screen};
use tideline_engine::points::{ColumnSummary, Number};

use super::{Filter, Leaf, Node};

impl Screen for Filter {
    fn looks_at(&self) -> &[FieldId] {
        &self.stored
    }

    fn admits(&self, bucket: Bucket<'_>) -> bool {
        self.root.may_hold(bucket)
    }
}

impl Node {
    /// Whether it may hold for a row. Wrong only in that it may say so where it does not.
    fn may_hold(&self, bucket: Bucket<'_>) -> bool {
        match self {
            Self::And(all) => all.iter().all(|node| node.may_hold(bucket)),
            Self::Or(any) => any.iter().any(|node| node.may_hold(bucket)),
            // That it may not hold does not follow from that it may.
            Self::Not(_) => true,
            Self::Leaf(leaf) => leaf.is_computed || leaf.may_hold(bucket),
        }
    }
}

impl Leaf {
    fn may_hold(&self, bucket: Bucket<'_>) -> bool {
        bucket.of(self.field).any(|summary| match summary {
            ColumnSummary::Empty => false,
            ColumnSummary::Unknown => true,
            ColumnSummary::Known(values) => match &self.intervals {
                None => true,
                Some(intervals) if self.is_outside => !is_all_of_one(intervals, values.min, values.max),
                Some(intervals) => meets(intervals, values.min, values.max),
            },
        })
    }
}

/// Whether one of the intervals has a number between two of one type, these included; `true` between two types.
fn meets(intervals: &Intervals, min: Number, max: Number) -> bool {
    match (min, max) {
        (Number::Float(min), Number::Float(max)) => intervals.meets_floats(min, max),
        (Number::Signed(min), Number::Signed(max)) => intervals.meets_signed(min, max),
        (Number::Unsigned(min), Number::Unsigned(max)) => intervals.meets_unsigned(min, max),
        _ => true,
    }
}

/// Whether all values between two are one, and it lies in the intervals.
fn is_all_of_one(intervals: &Intervals, min: Number, max: Number) -> bool {
    match (min, max) {
        (Number::Float(min), Number::Float(max)) => min == max && intervals.has_float(min),
        (Number::Signed(min), Number::Signed(max)) => min == max && intervals.has_signed(min),
        (Number::Unsigned(min), Number::Unsigned(max)) => min == max && intervals.has_unsigned(min),
        _ => false,
    }
}
