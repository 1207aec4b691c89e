//! Conversion of classic histograms (one series per bucket) to native histograms with custom bounds.
//!
//! The builder takes bucket, count and sum series of one timestamp in any order. The builder keeps the first
//! error, and the conversion returns this error.

use thiserror::Error;

use crate::histogram::{Histogram, Span};
use crate::schema::CUSTOM_BUCKETS_SCHEMA;
use crate::validate::HistogramError;

/// Classic histogram at one timestamp, built from its series.
///
/// # Examples
///
/// ```
/// use tideline_histogram::ClassicHistogram;
///
/// let mut classic = ClassicHistogram::default();
/// classic.set_bucket(0.1, 3.0);
/// classic.set_bucket(0.5, 5.0);
/// classic.set_count(6.0);
/// classic.set_sum(1.5);
///
/// let histogram = classic.to_histogram()?;
/// assert_eq!(histogram.custom_values, [0.1, 0.5]);
/// assert_eq!(histogram.positive_buckets, [3.0, 2.0, 1.0], "counts per bucket");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassicHistogram {
    /// Rising upper bounds with cumulative counts.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
    error: Option<ClassicError>,
}

/// Reason why series do not form a classic histogram.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ClassicError {
    /// Bucket with a lower cumulative count than the bucket below it.
    #[error("bucket counts are not cumulative: {upper} has {count}, less than the bucket below, {below}")]
    LessThanBelow {
        /// Upper bound of the bucket.
        upper: f64,
        /// Cumulative count of the bucket.
        count: f64,
        /// Cumulative count of the next lower bucket.
        below: f64,
    },
    /// Bucket with a higher cumulative count than the bucket above it.
    #[error("bucket counts are not cumulative: {upper} has {count}, more than the bucket above, {above}")]
    MoreThanAbove {
        /// Upper bound of the bucket.
        upper: f64,
        /// Cumulative count of the bucket.
        count: f64,
        /// Cumulative count of the next higher bucket.
        above: f64,
    },
    /// Count below zero, of a bucket or in total.
    #[error("the count {0} is negative")]
    NegativeCount(f64),
    /// Bucket bound that is NaN.
    #[error("a bucket's bound is NaN")]
    NanBound,
    /// Count that differs from the cumulative count of the `+Inf` bucket.
    #[error("the count {count} differs from the count of the last bucket, {observed}")]
    CountMismatch {
        /// Value of the count series.
        count: f64,
        /// Cumulative count of the last bucket.
        observed: f64,
    },
    /// Invalid resulting histogram.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
}

impl ClassicHistogram {
    /// Sets the number of observations at or below a bound. If a bound occurs twice, the first count is kept.
    /// An invalid bucket makes [`Self::to_histogram`] fail.
    pub fn set_bucket(&mut self, upper: f64, count: f64) {
        if upper.is_nan() {
            self.fail(ClassicError::NanBound);
            return;
        }
        if count < 0.0 {
            self.fail(ClassicError::NegativeCount(count));
            return;
        }
        let at = self.buckets.partition_point(|(bound, _)| *bound < upper);
        let next = self.buckets.get(at).copied();
        if next.is_some_and(|(bound, _)| bound == upper) {
            return;
        }
        let above = next.map(|(_, above)| above).filter(|above| count > *above);
        let below = at.checked_sub(1).map(|before| self.buckets[before].1);
        let below = below.filter(|below| count < *below);
        match (below, above) {
            (Some(below), _) => self.fail(ClassicError::LessThanBelow { upper, count, below }),
            (None, Some(above)) => self.fail(ClassicError::MoreThanAbove { upper, count, above }),
            (None, None) => self.buckets.insert(at, (upper, count)),
        }
    }

    /// Sets the total number of observations. A negative count makes [`Self::to_histogram`] fail.
    pub fn set_count(&mut self, count: f64) {
        match count < 0.0 {
            true => self.fail(ClassicError::NegativeCount(count)),
            false => self.count = Some(count),
        }
    }

    /// Sets the sum of the observations.
    pub fn set_sum(&mut self, sum: f64) {
        self.sum = sum;
    }

    /// Builds the native histogram with these bounds. If no count is set, the count of the last bucket is the total
    /// count. If there is no bucket for `+Inf`, a bucket with the total count is added.
    ///
    /// # Errors
    ///
    /// Returns the first error of a setter, [`ClassicError::CountMismatch`] if count and `+Inf` bucket
    /// differ, and [`ClassicError::Histogram`] if the result fails [`Histogram::validate`].
    pub fn to_histogram(mut self) -> Result<Histogram, ClassicError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let observed = self.buckets.last().map_or(0.0, |(_, count)| *count);
        let count = self.count.unwrap_or(observed);
        if self
            .buckets
            .last()
            .is_none_or(|(upper, _)| *upper != f64::INFINITY)
        {
            self.buckets.push((f64::INFINITY, count));
        } else if observed != count {
            return Err(ClassicError::CountMismatch { count, observed });
        }
        let mut before = 0.0;
        let positive_buckets = self.buckets.iter().map(|(_, cumulative)| {
            let own = cumulative - before;
            before = *cumulative;
            own
        });
        let mut histogram = Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            count,
            sum: self.sum,
            positive_spans: vec![Span {
                offset: 0,
                length: self.buckets.len() as u32,
            }],
            positive_buckets: positive_buckets.collect(),
            custom_values: self
                .buckets
                .iter()
                .map(|(upper, _)| *upper)
                .filter(|upper| *upper != f64::INFINITY)
                .collect(),
            ..Histogram::default()
        };
        // For whole counts, gaps of up to two empty buckets stay within a span, as client libraries write
        // them.
        let is_whole = self.buckets.iter().all(|(_, count)| count.fract() == 0.0) && count.fract() == 0.0;
        histogram.compact(if is_whole { 2 } else { 0 });
        histogram.validate()?;
        Ok(histogram)
    }

    fn fail(&mut self, error: ClassicError) {
        self.error.get_or_insert(error);
    }
}
