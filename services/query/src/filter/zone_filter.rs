//! Zone filter: excludes a bucket if its summaries show that no row can match the condition. A bucket is a group of
//! rows with stored summaries of their columns.

use tideline_engine::condition::intervals::Intervals;
use tideline_engine::model::FieldId;
use tideline_engine::points::{Bucket, ZoneFilter};
use tideline_engine::points::{ColumnSummary, Number};

use super::{Filter, Leaf, Node};

impl ZoneFilter for Filter {
    fn filtered_fields(&self) -> &[FieldId] {
        &self.stored
    }

    fn admits(&self, bucket: Bucket<'_>) -> bool {
        self.root.may_match(bucket)
    }
}

impl Node {
    /// Returns true if some row may match. False positives are possible, false negatives are not.
    fn may_match(&self, bucket: Bucket<'_>) -> bool {
        match self {
            Self::And(all) => all.iter().all(|node| node.may_match(bucket)),
            Self::Or(any) => any.iter().any(|node| node.may_match(bucket)),
            // The summaries show that rows may match the inner condition, never that all of them do.
            Self::Not(_) => true,
            Self::Leaf(leaf) => leaf.is_computed || leaf.may_match(bucket),
        }
    }
}

impl Leaf {
    fn may_match(&self, bucket: Bucket<'_>) -> bool {
        bucket.of(self.field).any(|summary| match summary {
            ColumnSummary::Empty => false,
            ColumnSummary::Unknown => true,
            ColumnSummary::Known(values) => match &self.intervals {
                None => true,
                Some(intervals) if self.is_outside => !is_all_of_one(intervals, values.min, values.max),
                Some(intervals) => overlaps(intervals, values.min, values.max),
            },
        })
    }
}

/// Returns true if an interval overlaps the inclusive range `min` to `max`, or if `min` and `max` differ in type.
fn overlaps(intervals: &Intervals, min: Number, max: Number) -> bool {
    match (min, max) {
        (Number::Float(min), Number::Float(max)) => intervals.overlaps_floats(min, max),
        (Number::Signed(min), Number::Signed(max)) => intervals.overlaps_signed(min, max),
        (Number::Unsigned(min), Number::Unsigned(max)) => intervals.overlaps_unsigned(min, max),
        _ => true,
    }
}

/// Returns true if both bounds are equal and the intervals contain them.
fn is_all_of_one(intervals: &Intervals, min: Number, max: Number) -> bool {
    match (min, max) {
        (Number::Float(min), Number::Float(max)) => min == max && intervals.has_float(min),
        (Number::Signed(min), Number::Signed(max)) => min == max && intervals.has_signed(min),
        (Number::Unsigned(min), Number::Unsigned(max)) => min == max && intervals.has_unsigned(min),
        _ => false,
    }
}
