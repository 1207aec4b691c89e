//! Multiplication, division, equality, overflow check and size of histograms.

use crate::histogram::{Histogram, ResetHint};
use crate::spans::indices;

impl Histogram {
    /// Multiplies all counts and the sum. A negative factor makes the histogram a gauge.
    pub fn mul(&mut self, factor: f64) {
        self.map_counts(|count| count * factor);
        if factor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. Division by zero removes all buckets; a negative divisor makes the
    /// histogram a gauge.
    pub fn div(&mut self, divisor: f64) {
        if divisor == 0.0 {
            self.positive_spans.clear();
            self.negative_spans.clear();
            self.positive_buckets.clear();
            self.negative_buckets.clear();
        }
        self.map_counts(|count| count / divisor);
        if divisor < 0.0 {
            self.reset_hint = ResetHint::Gauge;
        }
    }

    /// Returns true if a count, the sum or a custom bound is infinite.
    pub fn has_overflow(&self) -> bool {
        let lists = [
            &self.positive_buckets,
            &self.negative_buckets,
            &self.custom_values,
        ];
        let numbers = [self.zero_count, self.count, self.sum];
        numbers
            .iter()
            .chain(lists.into_iter().flatten())
            .any(|number| number.is_infinite())
    }

    /// Returns true if both hold the same data: the same buckets, including empty ones, and bit-identical
    /// counts and sums. The partition into spans and the reset hints are ignored.
    pub fn same_as(&self, other: &Self) -> bool {
        let same_spans = |left, right| indices(left).eq(indices(right));
        self.schema == other.schema
            && same_bits(
                &[self.count, self.sum, self.zero_count],
                &[other.count, other.sum, other.zero_count],
            )
            && self.zero_threshold == other.zero_threshold
            && (!self.uses_custom_buckets() || self.custom_values == other.custom_values)
            && same_bits(&self.positive_buckets, &other.positive_buckets)
            && same_bits(&self.negative_buckets, &other.negative_buckets)
            && same_spans(&self.positive_spans, &other.positive_spans)
            && same_spans(&self.negative_spans, &other.negative_spans)
    }

    /// Returns the size in units of float samples (16 bytes), as Prometheus counts samples.
    pub fn sample_size(&self) -> usize {
        /// Bytes of an empty histogram and its timestamp.
        const BYTES_MIN: usize = 168 + 8;
        /// Bytes of a timestamp and a float.
        const NUMBER_BYTES: usize = 16;
        let spans = self.positive_spans.len() + self.negative_spans.len();
        let buckets = self.positive_buckets.len() + self.negative_buckets.len();
        (BYTES_MIN + 8 * (spans + buckets + self.custom_values.len())) / NUMBER_BYTES
    }

    fn map_counts(&mut self, map: impl Fn(f64) -> f64) {
        self.zero_count = map(self.zero_count);
        self.count = map(self.count);
        self.sum = map(self.sum);
        self.positive_buckets
            .iter_mut()
            .for_each(|count| *count = map(*count));
        self.negative_buckets
            .iter_mut()
            .for_each(|count| *count = map(*count));
    }
}

fn same_bits(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| left.to_bits() == right.to_bits())
}
