//! Removal of the observations above or below a bound: PromQL's `</` and `>/`.
//!
//! A bucket that contains the bound keeps the interpolated part of its count. The new sum is estimated from
//! the middles (arithmetic or geometric) of the remaining parts.

use crate::buckets::{Bucket, BucketIndex, Interpolation, Slot};
use crate::histogram::Histogram;

/// Side of the bound whose observations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Below,
    Above,
}

/// Remaining part of a bucket.
struct Kept {
    count: f64,
    /// Assumed average of these observations.
    middle: f64,
}

impl Histogram {
    /// Removes the observations above a bound. If any observation is removed, a new sum is estimated, and empty buckets
    /// are removed.
    pub fn trim_upper(&mut self, bound: f64) {
        self.trim(bound, Keep::Below);
    }

    /// Removes the observations below a bound; otherwise like [`Self::trim_upper`].
    pub fn trim_lower(&mut self, bound: f64) {
        self.trim(bound, Keep::Above);
    }

    fn trim(&mut self, bound: f64, keep: Keep) {
        let kept_of = |slot: Slot| self.kept(slot, bound, keep);
        let positive: Vec<_> = self.positive_slots().map(kept_of).collect();
        let negative: Vec<_> = self.negative_slots().map(kept_of).collect();
        let (mut count, mut sum, mut is_trimmed) = (0.0, 0.0, false);
        let has_any = |kept: &[Option<Kept>]| kept.iter().any(Option::is_some);
        let (has_positive, has_negative) = (has_any(&positive), has_any(&negative));
        let sides = [
            (&mut self.positive_buckets, positive),
            (&mut self.negative_buckets, negative),
        ];
        for (buckets, kept) in sides {
            for (bucket, kept) in buckets.iter_mut().zip(kept) {
                let Some(kept) = kept else { continue };
                count += kept.count;
                sum += kept.middle * kept.count;
                is_trimmed |= *bucket != kept.count;
                *bucket = kept.count;
            }
        }
        if self.zero_count > 0.0 && !self.uses_custom_buckets() {
            let kept = self.kept_of_zero_bucket(bound, keep, has_positive, has_negative);
            is_trimmed |= self.zero_count != kept.count;
            self.zero_count = kept.count;
            count += kept.count;
            sum += kept.middle * kept.count;
        }
        if is_trimmed {
            (self.count, self.sum) = (count, sum);
            self.compact(0);
        }
    }

    /// Computes the remaining part of a bucket; `None` if the bucket is empty.
    fn kept(&self, slot: Slot, bound: f64, keep: Keep) -> Option<Kept> {
        let bucket = self.uncut_bucket(slot);
        if bucket.count == 0.0 {
            return None;
        }
        let is_linear = self.uses_custom_buckets();
        let is_positive = matches!(slot.index, BucketIndex::Positive(_));
        let middle = |lower, upper| middle(lower, upper, is_positive, is_linear);
        let (is_whole, is_cut) = match keep {
            Keep::Below => (bucket.upper <= bound, bucket.lower < bound),
            Keep::Above => (bucket.lower >= bound, bucket.upper > bound),
        };
        if is_whole {
            return Some(Kept {
                count: bucket.count,
                middle: middle(bucket.lower, bucket.upper),
            });
        }
        if !is_cut {
            return Some(Kept {
                count: 0.0,
                middle: 0.0,
            });
        }
        if bucket.lower == f64::NEG_INFINITY || bucket.upper == f64::INFINITY {
            return Some(kept_of_endless(&bucket, bound, keep));
        }
        let interpolation = if is_linear {
            Interpolation::Linear
        } else {
            Interpolation::Exponential
        };
        let below = bucket.count * bucket.fraction_below(bound, interpolation);
        Some(match keep {
            Keep::Below => Kept {
                count: below,
                middle: middle(bucket.lower, bound),
            },
            Keep::Above => Kept {
                count: bucket.count - below,
                middle: middle(bound, bucket.upper),
            },
        })
    }

    /// Computes the remaining part of the zero bucket. If only one side has observations, the zero bucket is
    /// assumed to extend to that side only.
    fn kept_of_zero_bucket(&self, bound: f64, keep: Keep, has_positive: bool, has_negative: bool) -> Kept {
        let lower = if has_positive && !has_negative {
            0.0
        } else {
            -self.zero_threshold
        };
        let upper = if has_negative && !has_positive {
            0.0
        } else {
            self.zero_threshold
        };
        let (is_whole, is_gone) = match keep {
            Keep::Below => (bound > lower && bound >= upper, bound <= lower),
            Keep::Above => (bound <= lower, bound >= upper),
        };
        if is_whole {
            return Kept {
                count: self.zero_count,
                middle: (lower + upper) / 2.0,
            };
        }
        if is_gone {
            return Kept {
                count: 0.0,
                middle: 0.0,
            };
        }
        let (part, middle) = match keep {
            Keep::Below => (bound - lower, (lower + bound) / 2.0),
            Keep::Above => (upper - bound, (bound + upper) / 2.0),
        };
        Kept {
            count: self.zero_count * (part / (upper - lower)),
            middle,
        }
    }
}

/// Computes the remaining part of a bucket that has an infinite bound and contains the trim bound.
///
/// The distribution within the bucket is unknown. With a finite lower bound, the observations are assumed to be
/// above the trim bound. With an upper bound of at most 0, they are assumed to be below the trim bound. If the upper
/// bound is positive and the trim bound is not negative, they are interpolated as if the bucket began at 0. In all
/// other cases nothing remains.
fn kept_of_endless(bucket: &Bucket, bound: f64, keep: Keep) -> Kept {
    let Bucket {
        lower, upper, count, ..
    } = *bucket;
    let nothing_at = |middle: f64| Kept {
        count: 0.0,
        middle: if middle.is_infinite() { 0.0 } else { middle },
    };
    if lower > f64::NEG_INFINITY {
        return match keep {
            Keep::Below => nothing_at(lower),
            Keep::Above => Kept { count, middle: bound },
        };
    }
    let is_above_zero = upper > 0.0 && upper.is_finite();
    match keep {
        Keep::Below if bound > 0.0 && is_above_zero => Kept {
            count: count * bound / upper,
            middle: bound / 2.0,
        },
        Keep::Below if upper <= 0.0 => Kept { count, middle: bound },
        Keep::Above if bound >= 0.0 && is_above_zero => Kept {
            count: count * (1.0 - bound / upper),
            middle: (bound + upper) / 2.0,
        },
        _ => nothing_at(upper),
    }
}

/// Returns the assumed average of observations between two bounds.
fn middle(lower: f64, upper: f64, is_positive: bool, is_linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        (false, false) if is_linear => (lower + upper) / 2.0,
        (false, false) => {
            let geometric = (lower * upper).abs().sqrt();
            if is_positive { geometric } else { -geometric }
        }
    }
}
