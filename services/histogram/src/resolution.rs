//! Reduction to coarser schemas by merging adjacent buckets.

use crate::histogram::{Histogram, Span};
use crate::merge::add_compensated;
use crate::spans::{SpansBuilder, coarser_index, indices};

impl Histogram {
    /// Reduces an exponential histogram to a coarser schema. Does nothing if `schema` is not coarser or the
    /// histogram has custom bounds.
    pub fn reduce_resolution(&mut self, schema: i32) {
        if self.uses_custom_buckets() || schema >= self.schema {
            return;
        }
        let down = self.schema.abs_diff(schema);
        reduce(&mut self.positive_spans, &mut self.positive_buckets, None, down);
        reduce(&mut self.negative_spans, &mut self.negative_buckets, None, down);
        self.schema = schema;
    }

    /// Reduces like [`Self::reduce_resolution`], together with the compensation, which has the same spans.
    pub(crate) fn reduce_compensated(&mut self, compensation: &mut Self, schema: i32) {
        if schema >= self.schema {
            return;
        }
        let down = self.schema.abs_diff(schema);
        let (positive, negative) = (
            &mut compensation.positive_buckets,
            &mut compensation.negative_buckets,
        );
        reduce(
            &mut self.positive_spans,
            &mut self.positive_buckets,
            Some(positive),
            down,
        );
        reduce(
            &mut self.negative_spans,
            &mut self.negative_buckets,
            Some(negative),
            down,
        );
        self.schema = schema;
        compensation.schema = schema;
    }
}

/// Merges buckets to a schema that is `down` steps coarser, in place: the write position never passes the
/// read position.
fn reduce(spans: &mut Vec<Span>, buckets: &mut Vec<f64>, compensation: Option<&mut Vec<f64>>, down: u32) {
    let mut builder = SpansBuilder::default();
    let (mut kept, mut last) = (0, None);
    let mut none = Vec::new();
    let compensation = compensation.unwrap_or(&mut none);
    let is_compensated = !compensation.is_empty();
    for (at, index) in indices(spans).enumerate().take(buckets.len()) {
        let index = coarser_index(index, down);
        if last != Some(index) {
            builder.push(index);
            buckets[kept] = buckets[at];
            if is_compensated {
                compensation[kept] = compensation[at];
            }
            kept += 1;
            last = Some(index);
        } else if is_compensated {
            let added = add_compensated(buckets[at], buckets[kept - 1], compensation[kept - 1]);
            let added = add_compensated(compensation[at], added.0, added.1);
            (buckets[kept - 1], compensation[kept - 1]) = added;
        } else {
            buckets[kept - 1] += buckets[at];
        }
    }
    buckets.truncate(kept);
    compensation.truncate(kept);
    *spans = builder.build();
}
