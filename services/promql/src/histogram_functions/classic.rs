//! Quantiles and fractions of classic histograms, which hold one cumulative count per bound.
//!
//! The results equal those of Prometheus, including its treatment of counts that are not monotonic.

use crate::note::{Note, Notes};

use super::outside;

/// Relative difference below which two counts are considered equal, to tolerate rounding errors.
const SAME_WITHIN: f64 = 1e-12;

/// Bucket of a classic histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Upper bound; never NaN.
    pub upper: f64,
    /// Number of observations at or below the bound.
    pub count: f64,
}

/// Returns the quantile of a classic histogram's observations. `buckets` may be in any order; they are sorted
/// in place, and equal bounds are merged.
///
/// Observations are assumed to be uniform within a bucket. If the lowest bound is positive, the lowest bucket begins at
/// zero; otherwise a quantile in this bucket is the bound itself. A quantile in the `+Inf` bucket is the highest finite
/// bound.
///
/// The result is −∞ for `phi` below 0 and +∞ for `phi` above 1. The result is NaN for a NaN `phi`, without
/// observations, with fewer than two buckets, and without a `+Inf` bucket. Counts that decrease with rising bounds are
/// raised, and a note is added.
pub fn bucket_quantile(phi: f64, buckets: &mut Vec<Bucket>, notes: &mut Notes<'_>) -> f64 {
    if phi.is_nan() {
        return f64::NAN;
    }
    if let Some(outside) = outside(phi) {
        return outside;
    }
    if !sort(buckets) {
        return f64::NAN;
    }
    make_monotonic(buckets, notes);
    let [.., before_last, last] = buckets.as_slice() else {
        return f64::NAN;
    };
    if last.count == 0.0 {
        return f64::NAN;
    }
    let rank = phi * last.count;
    let finite = &buckets[..buckets.len() - 1];
    let at = finite.partition_point(|bucket| !is_at_least(bucket.count, rank));
    let Some(Bucket { upper, count }) = finite.get(at).copied() else {
        return before_last.upper;
    };
    let below = match at.checked_sub(1) {
        None if upper <= 0.0 => return upper,
        None => Bucket {
            upper: 0.0,
            count: 0.0,
        },
        Some(below) => finite[below],
    };
    below.upper + (upper - below.upper) * ((rank - below.count) / (count - below.count))
}

/// Returns the fraction of a classic histogram's observations between two bounds, with the assumptions of
/// [`bucket_quantile`]. `buckets` may be in any order; they are sorted in place, and equal bounds are
/// merged. Counts that decrease with rising bounds are not raised.
///
/// The result is NaN without observations, for NaN bounds, and without a `+Inf` bucket. It is 0 if `lower` is
/// not less than `upper`.
pub fn bucket_fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if !sort(buckets) {
        return f64::NAN;
    }
    let count = buckets.last().map_or(0.0, |bucket| bucket.count);
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let below = |bound: f64| {
        let below = count_below(bound, buckets).unwrap_or(count);
        if below > count { count } else { below }
    };
    (below(upper) - below(lower)) / count
}

/// Returns the number of observations below a bound; `None` if no bucket has an upper bound above `bound`.
fn count_below(bound: f64, buckets: &[Bucket]) -> Option<f64> {
    let mut start = if buckets[0].upper <= 0.0 {
        f64::NEG_INFINITY
    } else {
        0.0
    };
    let mut count = 0.0;
    for bucket in buckets {
        if start >= bound {
            return Some(count);
        }
        if bucket.upper > bound {
            // The distribution in a bucket without a lower bound is unknown, so all its observations count.
            return Some(match start == f64::NEG_INFINITY {
                true => bucket.count,
                false => count + (bucket.count - count) * (bound - start) / (bucket.upper - start),
            });
        }
        (start, count) = (bucket.upper, bucket.count);
    }
    None
}

/// Sorts by bound and merges equal bounds. Returns true if the last bound is `+Inf`.
fn sort(buckets: &mut Vec<Bucket>) -> bool {
    buckets.sort_by(|left, right| left.upper.total_cmp(&right.upper));
    buckets.dedup_by(|next, kept| {
        let is_same = next.upper == kept.upper;
        if is_same {
            kept.count += next.count;
        }
        is_same
    });
    buckets.last().is_some_and(|last| last.upper == f64::INFINITY)
}

/// Raises each count to at least the previous one. Differences within rounding error are removed without a
/// note.
fn make_monotonic(buckets: &mut [Bucket], notes: &mut Notes<'_>) {
    let Some((first, rest)) = buckets.split_first_mut() else {
        return;
    };
    let (mut before, mut is_forced) = (first.count, false);
    let (mut bucket_min, mut bucket_max, mut difference_max) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
    for bucket in rest {
        if bucket.count == before {
            continue;
        }
        if are_almost_equal(before, bucket.count) {
            bucket.count = before;
        } else if bucket.count < before {
            is_forced = true;
            bucket_min = bucket_min.min(bucket.upper);
            bucket_max = bucket_max.max(bucket.upper);
            difference_max = difference_max.max(before - bucket.count);
            bucket.count = before;
        } else {
            before = bucket.count;
        }
    }
    if is_forced {
        notes(Note::ForcedMonotonicity {
            bucket_min,
            bucket_max,
            difference_max,
        });
    }
}

/// Returns true if the count is at least the rank; false for NaN.
fn is_at_least(count: f64, rank: f64) -> bool {
    count >= rank
}

fn are_almost_equal(left: f64, right: f64) -> bool {
    if left.is_nan() && right.is_nan() {
        return true;
    }
    let (sum, difference) = (left.abs() + right.abs(), (left - right).abs());
    if left == 0.0 || right == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < SAME_WITHIN * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < SAME_WITHIN
}
