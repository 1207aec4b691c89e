//! Common zero bucket of two histograms. The common bucket is at least as wide as the wider of the two zero buckets. If
//! its edge would cut a nonempty bucket, the common bucket is widened to contain this bucket.
//!
//! Widening one histogram can require widening the other, so both are widened in turn until their thresholds
//! are equal.

use tideline_model::CompensatedSum;

use crate::histogram::Histogram;

impl Histogram {
    /// Widens this histogram's zero bucket to the common threshold. Returns the count of the zero bucket of `other`
    /// at that threshold, and the rounding error of this count.
    pub(crate) fn reconcile_zero_buckets(
        &mut self,
        other: &Self,
        mut compensation: Option<&mut Self>,
    ) -> (f64, f64) {
        let (mut others, mut threshold) = (CompensatedSum::new(other.zero_count), other.zero_threshold);
        loop {
            if self.zero_threshold > threshold {
                (others, threshold) = other.zero_count_up_to(self.zero_threshold, None);
            }
            if threshold > self.zero_threshold {
                let own;
                (own, self.zero_threshold) = self.zero_count_up_to(threshold, compensation.as_deref());
                self.zero_count = own.sum;
                if let Some(compensation) = compensation.as_deref_mut() {
                    compensation.zero_count = own.compensation;
                }
                self.empty_buckets_in_zero_bucket(compensation.as_deref_mut());
            }
            // A NaN threshold never becomes equal, so it ends the loop as well.
            if self.zero_threshold == threshold || self.zero_threshold.is_nan() || threshold.is_nan() {
                return (others.sum, others.compensation);
            }
        }
    }

    /// Computes count and threshold of the zero bucket if it is widened to at least `threshold`. A threshold that would
    /// cut a nonempty bucket moves to the far bound of that bucket.
    pub(crate) fn zero_count_up_to(
        &self,
        threshold: f64,
        compensation: Option<&Self>,
    ) -> (CompensatedSum, f64) {
        let lost = compensation.map_or(0.0, |compensation| compensation.zero_count);
        let mut threshold = threshold;
        if threshold <= self.zero_threshold {
            return (
                CompensatedSum {
                    sum: self.zero_count,
                    compensation: lost,
                },
                self.zero_threshold,
            );
        }
        loop {
            let mut sum = CompensatedSum {
                sum: self.zero_count,
                compensation: lost,
            };
            let positive = compensation.map(|compensation| compensation.positive_buckets.as_slice());
            for (at, slot) in self.positive_slots().enumerate() {
                let bucket = self.uncut_bucket(slot);
                if bucket.lower >= threshold {
                    break;
                }
                add_both(&mut sum, bucket.count, positive, at);
                if bucket.upper > threshold {
                    threshold = if bucket.count == 0.0 {
                        threshold
                    } else {
                        bucket.upper
                    };
                    break;
                }
            }
            let negative = compensation.map(|compensation| compensation.negative_buckets.as_slice());
            let mut is_widened = false;
            for (at, slot) in self.negative_slots().enumerate() {
                let bucket = self.uncut_bucket(slot);
                if bucket.upper <= -threshold {
                    break;
                }
                add_both(&mut sum, bucket.count, negative, at);
                if bucket.lower < -threshold {
                    is_widened = bucket.count != 0.0;
                    threshold = if is_widened { -bucket.lower } else { threshold };
                    break;
                }
            }
            // The wider threshold may contain more positive buckets.
            if !is_widened {
                return (sum, threshold);
            }
        }
    }

    /// Removes the buckets within the zero bucket, and empty buckets.
    fn empty_buckets_in_zero_bucket(&mut self, mut compensation: Option<&mut Self>) {
        let within = |slots: &mut dyn Iterator<Item = crate::buckets::Slot>| {
            slots
                .take_while(|slot| self.nearer_bound(*slot) < self.zero_threshold)
                .count()
        };
        let (positive, negative) = (
            within(&mut self.positive_slots()),
            within(&mut self.negative_slots()),
        );
        self.positive_buckets[..positive].fill(0.0);
        self.negative_buckets[..negative].fill(0.0);
        if let Some(compensation) = compensation.as_deref_mut() {
            compensation.positive_buckets[..positive].fill(0.0);
            compensation.negative_buckets[..negative].fill(0.0);
        }
        self.compact_with(0, compensation);
    }

    /// Returns the distance from zero at which a bucket begins.
    fn nearer_bound(&self, slot: crate::buckets::Slot) -> f64 {
        let bucket = self.uncut_bucket(slot);
        bucket.lower.abs().min(bucket.upper.abs())
    }
}

fn add_both(sum: &mut CompensatedSum, count: f64, lost: Option<&[f64]>, at: usize) {
    sum.add(count);
    if let Some(lost) = lost {
        sum.add(lost[at]);
    }
}
