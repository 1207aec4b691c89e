//! Log-linear histograms of doubles, for percentiles with a bounded relative error.
//!
//! The buckets are those of HdrHistogram (<https://github.com/HdrHistogram/HdrHistogram>), for doubles: a bucket
//! contains the doubles with the same sign, exponent and first bits of the fraction, so it is found with one shift. Only
//! buckets with values take memory. The counts depend neither on the order nor on the partition of the values. An
//! estimate is therefore the same for any distribution over tiers, segments and workers. Sketches such as t-digest and
//! KLL do not guarantee that. A sketch with a fixed number of buckets would merge the lowest of them when values differ
//! by many orders of magnitude, and would then return wrong percentiles.
//!
//! Aggregates of points and facets of search indexes use this type, each with its own number of bits.

use std::cell::OnceCell;

use hashbrown::HashMap;

/// Number of bits of the fraction of a double.
const DOUBLE_FRACTION_BITS: u32 = 52;

/// Number of values in each bucket. NaN is not a value, infinities are.
///
/// `FRACTION_BITS` is the number of bits of the fraction that buckets distinguish, at most 20. The width of a bucket of
/// normal doubles is at most 1/2^`FRACTION_BITS` of its values, so an estimate differs from them by at most half of that:
/// less than 0.8 % with 6 bits, less than 0.2 % with 8 bits. Values that differ by a factor of 1,000 take up to
/// 10 × 2^`FRACTION_BITS` buckets.
///
/// # Examples
///
/// ```
/// use tideline_model::LogLinearHistogram;
///
/// let mut histogram = LogLinearHistogram::<6>::default();
/// for value in [1.0, 250.0, 4e9] {
///     histogram.add(value);
/// }
/// let ranked = histogram.ranked().expect("values");
/// assert!((ranked.at(1) - 250.0).abs() <= 2.5);
/// assert_eq!(ranked.at(ranked.last()), 4e9);
/// ```
#[derive(Debug, Clone)]
pub struct LogLinearHistogram<const FRACTION_BITS: u32> {
    buckets: HashMap<u32, u64>,
    count: u64,
    lowest: f64,
    highest: f64,
}

/// Values of a histogram in ascending order, numbered from 0.
#[derive(Debug)]
pub struct RankedValues<'h, const FRACTION_BITS: u32> {
    histogram: &'h LogLinearHistogram<FRACTION_BITS>,
    /// Buckets in ascending order, sorted by the first call that needs them.
    sorted: OnceCell<Vec<(u32, u64)>>,
}

impl<const FRACTION_BITS: u32> Default for LogLinearHistogram<FRACTION_BITS> {
    fn default() -> Self {
        Self {
            buckets: HashMap::new(),
            count: 0,
            lowest: f64::INFINITY,
            highest: f64::NEG_INFINITY,
        }
    }
}

impl<const FRACTION_BITS: u32> LogLinearHistogram<FRACTION_BITS> {
    /// Number of low bits of a double that its bucket ignores.
    const SHIFT: u32 = {
        assert!(FRACTION_BITS <= 20, "bucket numbers have 32 bits");
        DOUBLE_FRACTION_BITS - FRACTION_BITS
    };

    /// Adds a value. Ignores NaN. Returns the number of new buckets, 0 or 1.
    pub fn add(&mut self, value: f64) -> usize {
        if value.is_nan() {
            return 0;
        }
        let before = self.buckets.len();
        *self.buckets.entry(Self::bucket(value)).or_default() += 1;
        self.count += 1;
        self.lowest = self.lowest.min(value);
        self.highest = self.highest.max(value);
        self.buckets.len() - before
    }

    /// Adds the values of another histogram. Returns the number of new buckets.
    pub fn merge(&mut self, other: &Self) -> usize {
        let before = self.buckets.len();
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
        self.lowest = self.lowest.min(other.lowest);
        self.highest = self.highest.max(other.highest);
        self.buckets.len() - before
    }

    /// Returns the number of buckets for which memory is reserved, at 20 to 40 bytes each.
    pub fn capacity(&self) -> usize {
        self.buckets.capacity()
    }

    /// Returns the values in ascending order; `None` without values.
    pub fn ranked(&self) -> Option<RankedValues<'_, FRACTION_BITS>> {
        (self.count > 0).then(|| RankedValues {
            histogram: self,
            sorted: OnceCell::new(),
        })
    }

    /// Returns the bucket of a value. Bucket numbers rise with the values.
    fn bucket(value: f64) -> u32 {
        // Adding zero removes the sign of −0.0.
        let bits = (value + 0.0).to_bits();
        let ordered = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
        (ordered >> Self::SHIFT) as u32
    }

    /// Returns the value in the middle of a bucket.
    fn middle(bucket: u32) -> f64 {
        let ordered = u64::from(bucket) << Self::SHIFT | 1 << (Self::SHIFT - 1);
        let value = f64::from_bits(if ordered >> 63 == 1 {
            ordered & !(1 << 63)
        } else {
            !ordered
        });
        // Buckets next to zero (subnormal numbers) are wide relative to their values: 0 is returned for them. The bucket
        // of an infinity contains no other number, but its middle is NaN.
        if !value.is_finite() {
            f64::INFINITY.copysign(value)
        } else if value.abs() < f64::MIN_POSITIVE {
            0.0
        } else {
            value
        }
    }
}

impl<const FRACTION_BITS: u32> RankedValues<'_, FRACTION_BITS> {
    /// Returns the rank of the highest value: the number of values less one.
    pub fn last(&self) -> u64 {
        self.histogram.count - 1
    }

    /// Returns the value at a rank. The lowest and the highest value are exact. The others have the relative error of the
    /// buckets, and numbers closer to 0 than [`f64::MIN_POSITIVE`] count as 0. A rank above [`last`](Self::last) is that
    /// of the highest value.
    pub fn at(&self, rank: u64) -> f64 {
        let histogram = self.histogram;
        if rank == 0 {
            return histogram.lowest;
        }
        if rank >= self.last() {
            return histogram.highest;
        }
        let sorted = self.sorted.get_or_init(|| {
            let buckets = histogram.buckets.iter();
            let mut sorted: Vec<(u32, u64)> = buckets.map(|(bucket, count)| (*bucket, *count)).collect();
            sorted.sort_unstable();
            sorted
        });
        let mut below = 0;
        let found = sorted.iter().find(|(_, count)| {
            below += count;
            rank < below
        });
        let value = found.map_or(histogram.highest, |(bucket, _)| {
            LogLinearHistogram::<FRACTION_BITS>::middle(*bucket)
        });
        value.clamp(histogram.lowest, histogram.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_buckets<const FRACTION_BITS: u32>(share: f64) {
        let bucket = LogLinearHistogram::<FRACTION_BITS>::bucket;
        let middle = LogLinearHistogram::<FRACTION_BITS>::middle;
        let mut value = -1e300;
        let mut before = 0;
        while value < 1e300 {
            let number = bucket(value);
            assert!(number >= before, "{value}");
            before = number;
            assert!(
                (middle(number) - value).abs() <= value.abs() * share,
                "{value} {}",
                middle(number)
            );
            value = if value.abs() < 1e-300 {
                1e-300
            } else if value < 0.0 {
                value / 1.003
            } else {
                value * 1.003
            };
        }
        assert_eq!(middle(bucket(f64::INFINITY)), f64::INFINITY);
        assert_eq!(middle(bucket(f64::NEG_INFINITY)), f64::NEG_INFINITY);
        assert_eq!((middle(bucket(0.0)), bucket(-0.0)), (0.0, bucket(0.0)));
    }

    #[test]
    fn a_bucket_holds_its_values_within_a_share_of_themselves() {
        check_buckets::<6>(1.0 / 128.0);
        check_buckets::<8>(1.0 / 512.0);
    }

    #[test]
    fn values_are_ranked_and_nan_is_not_counted() {
        let mut histogram = LogLinearHistogram::<6>::default();
        assert!(histogram.ranked().is_none());
        assert_eq!(histogram.add(f64::NAN), 0);
        assert!(histogram.ranked().is_none());
        let values = [f64::NEG_INFINITY, -3.0, 0.0, 5.0, 5.0, f64::INFINITY];
        let new: usize = values.iter().map(|value| histogram.add(*value)).sum();
        assert_eq!(new, 5);
        let mut merged = LogLinearHistogram::<6>::default();
        assert_eq!(merged.merge(&histogram), 5);
        assert_eq!(merged.merge(&LogLinearHistogram::default()), 0);
        let ranked = merged.ranked().expect("values");
        assert_eq!(ranked.last(), 5);
        for (rank, value) in values.iter().enumerate() {
            let found = ranked.at(rank as u64);
            let is_near = (found - value).abs() <= value.abs() / 100.0;
            assert!(found == *value || is_near, "{rank}: {found}");
        }
    }
}
