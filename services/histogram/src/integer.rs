//! Histograms with integer counts in delta form, as network protocols transmit them.

use crate::histogram::{Histogram, ResetHint, Span};
use crate::validate::{HistogramError, Side};

/// Histogram with integer counts in delta form.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IntegerHistogram {
    /// Same as [`Histogram::reset_hint`].
    pub reset_hint: ResetHint,
    /// Same as [`Histogram::schema`]; schemas up to 52 are also accepted and reduced to 8.
    pub schema: i32,
    /// Same as [`Histogram::zero_threshold`].
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: u64,
    /// Total number of observations.
    pub count: u64,
    /// Sum of all observations. The stale marker in this field makes the histogram a stale marker.
    pub sum: f64,
    /// Index ranges of the positive buckets.
    pub positive_spans: Vec<Span>,
    /// Index ranges of the negative buckets.
    pub negative_spans: Vec<Span>,
    /// Count of each positive bucket minus the count of the previous one; the first is absolute.
    pub positive_deltas: Vec<i64>,
    /// Deltas of the negative buckets, in the form of `positive_deltas`.
    pub negative_deltas: Vec<i64>,
    /// Same as [`Histogram::custom_values`].
    pub custom_values: Vec<f64>,
}

impl Histogram {
    /// Converts to absolute counts and applies [`Self::checked`]. The total count must equal the sum of all
    /// bucket counts. If the sum of the observations is NaN, the total may be larger, because no bucket
    /// contains NaN observations.
    ///
    /// # Errors
    ///
    /// Returns [`HistogramError::NegativeBucketCount`] or [`HistogramError::CountTooLarge`] if deltas do not
    /// add up to counts, [`HistogramError::CountMismatch`] if the total differs from the buckets,
    /// [`HistogramError::CountNotBigEnough`] if the sum is NaN and the total is smaller than the buckets, and
    /// the errors of [`Self::checked`].
    pub fn from_integer_deltas(integers: IntegerHistogram) -> Result<Self, HistogramError> {
        let positive_buckets = counts_of(Side::Positive, &integers.positive_deltas)?;
        let negative_buckets = counts_of(Side::Negative, &integers.negative_deltas)?;
        let buckets = positive_buckets.iter().chain(&negative_buckets);
        let observed = buckets.fold(integers.zero_count, |all, count| all.saturating_add(*count));
        let histogram = Self {
            reset_hint: integers.reset_hint,
            schema: integers.schema,
            zero_threshold: integers.zero_threshold,
            zero_count: integers.zero_count as f64,
            count: integers.count as f64,
            sum: integers.sum,
            positive_spans: integers.positive_spans,
            negative_spans: integers.negative_spans,
            positive_buckets: positive_buckets.iter().map(|count| *count as f64).collect(),
            negative_buckets: negative_buckets.iter().map(|count| *count as f64).collect(),
            custom_values: integers.custom_values,
        };
        let histogram = histogram.checked()?;
        let count = integers.count;
        match histogram.sum.is_nan() {
            true if observed > count => Err(HistogramError::CountNotBigEnough { observed, count }),
            false if observed != count => Err(HistogramError::CountMismatch { observed, count }),
            _ => Ok(histogram),
        }
    }
}

fn counts_of(side: Side, deltas: &[i64]) -> Result<Vec<u64>, HistogramError> {
    let mut before = 0_i64;
    let counts = deltas.iter().enumerate().map(|(at, delta)| {
        let number = at + 1;
        before = before
            .checked_add(*delta)
            .ok_or(HistogramError::CountTooLarge { side, number })?;
        u64::try_from(before).map_err(|_| HistogramError::NegativeBucketCount {
            side,
            number,
            count: before as f64,
        })
    });
    counts.collect()
}
