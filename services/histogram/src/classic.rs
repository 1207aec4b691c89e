//! Classic histograms, a series for each bucket, as one histogram with bounds of its own.

use thiserror::Error;

use crate::histogram::{Histogram, Span};
use crate::schema::CUSTOM_BUCKETS_SCHEMA;
use crate::validate::HistogramError;

/// What the series of a classic histogram have at one instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassicHistogram {
    /// Upper bounds, with the observations at or below them; rising.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
    error: Option<ClassicError>,
}

/// Why series are not a classic histogram.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ClassicError {
    /// A bucket holds less than the one below.
    #[error("bucket counts are not cumulative: {upper} has {count}, less than the bucket below")]
    NotCumulative {
        /// Its bound.
        upper: f64,
        /// What it holds.
        count: f64,
    },
    /// A count is below zero.
    #[error("the count {0} is negative")]
    NegativeCount(f64),
    /// A bound is NaN.
    #[error("a bucket's bound is NaN")]
    NanBound,
    /// The count is not that of the last bucket.
    #[error("the count {count} is not that of the buckets, {observed}")]
    CountMismatch {
        /// The count.
        count: f64,
        /// What the last bucket holds.
        observed: f64,
    },
    /// What comes out breaks a rule.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
}

impl ClassicHistogram {
    /// Sets how many observations lie at or below a bound. Of equal bounds the first counts.
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
        if self.buckets.get(at).is_some_and(|(bound, _)| *bound == upper) {
            return;
        }
        let is_above_next = self.buckets.get(at).is_some_and(|(_, next)| *next < count);
        let is_below_last = at
            .checked_sub(1)
            .is_some_and(|before| count < self.buckets[before].1);
        if is_above_next || is_below_last {
            self.fail(ClassicError::NotCumulative { upper, count });
        } else {
            self.buckets.insert(at, (upper, count));
        }
    }

    /// Sets how many observations there are.
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

    /// The histogram with these bounds. Without a count, the last bucket's; without a bucket up to infinity,
    /// one with the count.
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
        // Whole counts are kept together across gaps of up to two, as clients write them.
        let is_whole = self.buckets.iter().all(|(_, count)| count.fract() == 0.0) && count.fract() == 0.0;
        histogram.compact(if is_whole { 2 } else { 0 });
        histogram.validate()?;
        Ok(histogram)
    }

    fn fail(&mut self, error: ClassicError) {
        self.error.get_or_insert(error);
    }
}
