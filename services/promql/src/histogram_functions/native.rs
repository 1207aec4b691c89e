//! Quantiles and fractions of native histograms.
//!
//! Observations are assumed to be distributed exponentially within an exponential bucket, as if finer buckets were
//! filled evenly. Observations are assumed to be uniform within a custom bucket and within the zero bucket. If only one
//! side of zero has buckets, the zero bucket extends only to that side. NaN observations are included in the count but
//! not in any bucket, and make the sum NaN.

use tideline_histogram::logarithm::{exp2, log2};
use tideline_histogram::{Bucket, Histogram, Interpolation, Slot};

use super::outside;
use crate::note::{Note, Notes};

/// Returns the quantile of a histogram's observations. The result is −∞ for `phi` below 0, +∞ for `phi` above
/// 1, and NaN for a NaN `phi` or without observations. If the quantile falls among NaN observations, the result
/// is NaN and a note is added. A note is also added if NaN observations raise the quantile.
pub fn histogram_quantile(phi: f64, histogram: &Histogram, notes: &mut Notes<'_>) -> f64 {
    if let Some(outside) = outside(phi) {
        return outside;
    }
    if histogram.count == 0.0 || phi.is_nan() {
        return f64::NAN;
    }
    let has_nan_sum = histogram.sum.is_nan();
    // The search starts at the nearer end. NaN observations count as the largest values but are not in the buckets,
    // so a histogram with NaN observations is searched forward.
    let is_forward = has_nan_sum || phi < 0.5;
    let rank = if is_forward {
        phi * histogram.count
    } else {
        (1.0 - phi) * histogram.count
    };
    let (slot, count) = match is_forward {
        true => slot_of_rank(histogram.slots(), rank),
        false => slot_of_rank(histogram.slots().rev(), rank),
    };
    let bucket = match slot {
        Some(slot) => histogram.bucket(slot),
        None => Bucket {
            lower: 0.0,
            upper: 0.0,
            lower_inclusive: false,
            upper_inclusive: false,
            count: 0.0,
        },
    };
    let bucket = match open_ended(bucket, histogram) {
        Ok(bucket) => bucket,
        Err(quantile) => return quantile,
    };
    let count = if count > histogram.count {
        histogram.count
    } else {
        count
    };
    if count < rank {
        if has_nan_sum {
            notes(Note::QuantileNanResult);
            return f64::NAN;
        }
        // The rank exceeds the sum of the buckets because of rounding.
        return bucket.upper;
    }
    // Prometheus 3.14 overwrites the bucket found here while it counts the remaining buckets, and so
    // interpolates in the last bucket. This code interpolates in the bucket found.
    if has_nan_sum && histogram.slots().map(|slot| slot.count).sum::<f64>() < histogram.count {
        notes(Note::QuantileNanSkew);
    }
    let rank = if is_forward {
        rank - (count - bucket.count)
    } else {
        count - rank
    };
    within(&bucket, rank / bucket.count, histogram)
}

/// Returns the first nonempty bucket whose cumulative count reaches the rank, otherwise the last bucket. Also
/// returns the cumulative count up to and including this bucket. The bucket is `None` if there are no
/// buckets.
fn slot_of_rank(slots: impl Iterator<Item = Slot>, rank: f64) -> (Option<Slot>, f64) {
    let (mut found, mut count) = (None, 0.0);
    for slot in slots {
        found = Some(slot);
        count += slot.count;
        if slot.count != 0.0 && count >= rank {
            break;
        }
    }
    (found, count)
}

/// Limits a bucket to the assumed range of its observations. An exponential bucket around zero is limited by
/// [`cut_at_zero`]. In a custom bucket, an infinite lower bound is replaced by zero if the upper bound is
/// positive. For other custom buckets with an infinite bound, returns `Err` with the finite bound, which is the
/// quantile.
fn open_ended(mut bucket: Bucket, histogram: &Histogram) -> Result<Bucket, f64> {
    if !histogram.uses_custom_buckets() {
        if bucket.lower < 0.0 && bucket.upper > 0.0 {
            cut_at_zero(&mut bucket, histogram);
        }
        return Ok(bucket);
    }
    if bucket.lower == f64::NEG_INFINITY {
        if bucket.upper <= 0.0 {
            return Err(bucket.upper);
        }
        bucket.lower = 0.0;
        return Ok(bucket);
    }
    if bucket.upper == f64::INFINITY {
        Err(bucket.lower)
    } else {
        Ok(bucket)
    }
}

/// Limits the bucket around zero to one side if only that side has buckets.
fn cut_at_zero(bucket: &mut Bucket, histogram: &Histogram) {
    match (
        histogram.negative_buckets.is_empty(),
        histogram.positive_buckets.is_empty(),
    ) {
        (true, false) => bucket.lower = 0.0,
        (false, true) => bucket.upper = 0.0,
        _ => {}
    }
}

/// Returns the value below which the fraction `part` of a bucket's observations is assumed.
fn within(bucket: &Bucket, part: f64, histogram: &Histogram) -> f64 {
    if histogram.uses_custom_buckets() || (bucket.lower <= 0.0 && bucket.upper >= 0.0) {
        return bucket.lower + (bucket.upper - bucket.lower) * part;
    }
    let (lower, upper) = (log2(bucket.lower.abs()), log2(bucket.upper.abs()));
    match bucket.lower > 0.0 {
        true => exp2(lower + (upper - lower) * part),
        false => -exp2(upper + (lower - upper) * (1.0 - part)),
    }
}

/// Returns the fraction of a histogram's observations between two bounds.
///
/// The result is NaN without observations and for NaN bounds. It is 0 if `lower` is not less than `upper`.
/// NaN observations are not between any bounds, and a note reports them.
pub fn histogram_fraction(lower: f64, upper: f64, histogram: &Histogram, notes: &mut Notes<'_>) -> f64 {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let mut count = histogram.count;
    if histogram.sum.is_nan() {
        count = histogram.slots().map(|slot| slot.count).sum();
        if count < histogram.count {
            notes(Note::FractionNans);
        }
    }
    let below = |bound: f64| {
        let below = count_below(bound, histogram).unwrap_or(count);
        if below > count { count } else { below }
    };
    (below(upper) - below(lower)) / histogram.count
}

/// Returns the number of observations below a bound; `None` if no bucket has an upper bound above `bound`.
fn count_below(bound: f64, histogram: &Histogram) -> Option<f64> {
    let mut count = 0.0;
    for mut bucket in histogram.buckets() {
        let is_around_zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
        if is_around_zero {
            cut_at_zero(&mut bucket, histogram);
        }
        if bucket.lower >= bound {
            return Some(count);
        }
        if bucket.upper > bound {
            let is_linear = histogram.uses_custom_buckets() || is_around_zero;
            let interpolation = if is_linear {
                Interpolation::Linear
            } else {
                Interpolation::Exponential
            };
            // The distribution in a bucket without a lower bound is unknown, so all its observations count.
            return Some(match bucket.lower == f64::NEG_INFINITY {
                true => bucket.count,
                false => count + bucket.count * bucket.fraction_below(bound, interpolation),
            });
        }
        count += bucket.count;
    }
    None
}
