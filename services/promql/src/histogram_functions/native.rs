//! Quantiles and fractions of native histograms.
//!
//! Within an exponential bucket observations are thought to fill finer buckets evenly; within one with bounds
//! of its own, and within the zero bucket, to lie evenly. The zero bucket reaches only to the sides where
//! there are buckets. Observations of NaN are in no bucket: only the count knows them, and the sum is NaN
//! then.

use tideline_histogram::logarithm::{exp2, log2};
use tideline_histogram::{Bucket, Histogram, Interpolation, Slot};

use super::outside;
use crate::note::{Note, Notes};

/// The quantile of a histogram's observations. NaN without observations, and where it lies among those of
/// NaN, which is noted, as is that they push it up.
pub fn histogram_quantile(phi: f64, histogram: &Histogram, notes: &mut Notes<'_>) -> f64 {
    if let Some(outside) = outside(phi) {
        return outside;
    }
    if histogram.count == 0.0 || phi.is_nan() {
        return f64::NAN;
    }
    let has_nan_sum = histogram.sum.is_nan();
    // From the nearer end; but NaNs, which are not in the buckets, count as the greatest.
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
        // Rounding has come between the count and the buckets.
        return bucket.upper;
    }
    // Prometheus 3.14 counts the buckets behind the one that was found in its place, and so interpolates in the last of all;
    // ours stays with the one that was found.
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

/// The first bucket up to which so many observations lie, or the last of all; and how many do.
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

/// The bucket cut to where observations may lie, or the answer if it has no end on one side.
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

/// The bucket around zero reaches only to the sides where there are others.
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

/// What lies at a part of a bucket's observations.
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

/// Which part of a histogram's observations lies between two bounds.
///
/// NaN without observations and for bounds that are NaN; 0 if `lower` is not the lower. Observations of NaN
/// lie between no bounds, which is noted.
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

/// Observations below a bound; `None` above all buckets.
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
            // Nothing can be said of where observations lie in a bucket without a lower end.
            return Some(match bucket.lower == f64::NEG_INFINITY {
                true => bucket.count,
                false => count + bucket.count * bucket.fraction_below(bound, interpolation),
            });
        }
        count += bucket.count;
    }
    None
}
