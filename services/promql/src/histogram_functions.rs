//! Functions on distributions: quantiles, fractions, averages, variances. The functions take floats, classic histograms
//! or native histograms.

mod classic;
mod native;

use std::cmp::Ordering;

use tideline_histogram::{BucketIndex, Histogram};
use tideline_model::CompensatedSum;

pub use classic::{Bucket, bucket_fraction, bucket_quantile};
pub use native::{histogram_fraction, histogram_quantile};

/// Returns the quantile of floats, interpolated linearly between the two values next to its rank. NaN is smaller
/// than all numbers. Reorders `values`; linear cost.
///
/// The result is NaN if `values` is empty or `phi` is NaN, and infinite if `phi` is outside 0 to 1.
pub fn quantile(phi: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || phi.is_nan() {
        return f64::NAN;
    }
    if let Some(outside) = outside(phi) {
        return outside;
    }
    let rank = phi * (values.len() - 1) as f64;
    let (_, lower, above) = values.select_nth_unstable_by(rank.floor() as usize, nan_first);
    let lower = *lower;
    let upper = above.iter().copied().min_by(nan_first).unwrap_or(lower);
    let weight = rank - rank.floor();
    lower * (1.0 - weight) + upper * weight
}

/// Returns the infinite result of a quantile outside 0 to 1.
fn outside(phi: f64) -> Option<f64> {
    match phi {
        phi if phi < 0.0 => Some(f64::NEG_INFINITY),
        phi if phi > 1.0 => Some(f64::INFINITY),
        _ => None,
    }
}

fn nan_first(left: &f64, right: &f64) -> Ordering {
    left.partial_cmp(right)
        .unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

/// Returns the average of a histogram's observations.
pub fn average(histogram: &Histogram) -> f64 {
    histogram.sum / histogram.count
}

/// Returns the variance of a histogram's observations, as if all observations of a bucket were at its middle.
/// The middle is the arithmetic mean of the bounds for custom buckets, the geometric mean for exponential
/// buckets, and zero for the zero bucket.
pub fn variance(histogram: &Histogram) -> f64 {
    let mean = average(histogram);
    let mut squares = CompensatedSum::default();
    for slot in histogram.slots().filter(|slot| slot.count != 0.0) {
        let bucket = histogram.bucket(slot);
        let middle = match slot.index {
            _ if histogram.uses_custom_buckets() => (bucket.upper + bucket.lower) / 2.0,
            _ if bucket.lower <= 0.0 && bucket.upper >= 0.0 => 0.0,
            BucketIndex::Negative(_) => -(bucket.upper * bucket.lower).sqrt(),
            BucketIndex::Zero | BucketIndex::Positive(_) => (bucket.upper * bucket.lower).sqrt(),
        };
        let distance = middle - mean;
        squares.add(bucket.count * distance * distance);
    }
    squares.total() / histogram.count
}
