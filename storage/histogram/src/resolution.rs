//! Coarser schemas: neighbouring buckets become one.

use crate::histogram::{Histogram, Span};
use crate::spans::{SpansBuilder, coarser_index, indices};

impl Histogram {
    /// Brings an exponential histogram to a coarser schema; at its own or a finer one, and with custom buckets, nothing
    /// happens.
    pub fn reduce_resolution(&mut self, schema: i32) {
        if self.uses_custom_buckets() || schema >= self.schema {
            return;
        }
        let down = self.schema.abs_diff(schema);
        reduce(&mut self.positive_spans, &mut self.positive_buckets, down);
        reduce(&mut self.negative_spans, &mut self.negative_buckets, down);
        self.schema = schema;
    }
}

/// Merges buckets so many schemas down. In place: the results never overtake what is read.
fn reduce(spans: &mut Vec<Span>, buckets: &mut Vec<f64>, down: u32) {
    let mut builder = SpansBuilder::default();
    let (mut kept, mut last) = (0, None);
    for (at, index) in indices(spans).enumerate().take(buckets.len()) {
        let index = coarser_index(index, down);
        if last != Some(index) {
            builder.push(index);
            buckets[kept] = buckets[at];
            kept += 1;
            last = Some(index);
        } else {
            buckets[kept - 1] += buckets[at];
        }
    }
    buckets.truncate(kept);
    *spans = builder.build();
}
