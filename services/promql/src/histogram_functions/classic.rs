//! Quantiles and fractions of classic histograms: a number for each bound, of all observations at or below
//! it.

use crate::note::{Note, Notes};

use super::outside;

/// Counts that differ by less than this part of their sum are the same: rounding has come between them.
const SAME_WITHIN: f64 = 1e-12;

/// A bucket of a classic histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Its upper bound; never NaN.
    pub upper: f64,
    /// Observations at or below it.
    pub count: f64,
}

/// The quantile of a classic histogram's observations, of at least one bucket in any order; the buckets are
/// sorted.
///
/// Within a bucket the observations are thought to lie evenly. The lowest bucket begins at zero if its bound
/// lies above, else the bound itself is the answer; in the bucket up to infinity, the bound before is. NaN
/// without observations, with less than two buckets, and without one up to infinity. Counts that fall with
/// rising bounds are raised, which is noted.
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

/// Which part of a classic histogram's observations lies between two bounds, thought of as by
/// [`bucket_quantile`].
///
/// NaN without observations, for bounds that are NaN, and without a bucket up to infinity; 0 if `lower` is
/// not the lower.
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

/// Observations below a bound; `None` above all buckets.
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
            // Nothing can be said of where observations lie in a bucket without a lower end.
            return Some(match start == f64::NEG_INFINITY {
                true => bucket.count,
                false => count + (bucket.count - count) * (bound - start) / (bucket.upper - start),
            });
        }
        (start, count) = (bucket.upper, bucket.count);
    }
    None
}

/// Sorts by bounds and adds those of one bound. Whether the last goes up to infinity.
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

/// Makes every count at least that of the bucket before. Small differences, up or down, are taken for none
/// without a word.
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

/// NaN is not.
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
