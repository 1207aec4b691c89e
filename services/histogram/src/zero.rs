//! One zero bucket for two histograms: as wide as the wider one, and never cutting through a bucket that
//! holds something.

use tideline_model::CompensatedSum;

use crate::histogram::Histogram;

impl Histogram {
    /// Widens this histogram's zero bucket as far as both need, and tells what the other's would then hold,
    /// with what rounding took from it.
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
            // Both are the same now, or one is NaN, with which nothing can be compared.
            if self.zero_threshold == threshold || self.zero_threshold.is_nan() || threshold.is_nan() {
                return (others.sum, others.compensation);
            }
        }
    }

    /// What the zero bucket would hold if it were at least so wide, and how wide it would be: up to the end
    /// of the bucket that the threshold would cut through, if that holds something.
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
            // Then more positive buckets lie within it.
            if !is_widened {
                return (sum, threshold);
            }
        }
    }

    /// Takes away the buckets that the zero bucket holds.
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

    /// How far from zero a bucket begins.
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
