//! Histograms of whole counts, each bucket given as the difference from the one before: the form of the wire.

use crate::histogram::{Histogram, ResetHint, Span};
use crate::validate::{HistogramError, Side};

/// A histogram of whole counts, as protocols carry it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IntegerHistogram {
    /// As [`Histogram::reset_hint`].
    pub reset_hint: ResetHint,
    /// As [`Histogram::schema`]; also finer schemas, up to 52.
    pub schema: i32,
    /// As [`Histogram::zero_threshold`].
    pub zero_threshold: f64,
    /// Observations in the zero bucket.
    pub zero_count: u64,
    /// All observations.
    pub count: u64,
    /// Their sum. The stale marker here makes the whole histogram one.
    pub sum: f64,
    /// Where the positive buckets lie.
    pub positive_spans: Vec<Span>,
    /// Where the negative buckets lie.
    pub negative_spans: Vec<Span>,
    /// Observations in each positive bucket less those of the one before; in the first, all.
    pub positive_deltas: Vec<i64>,
    /// As `positive_deltas`, of the negative buckets.
    pub negative_deltas: Vec<i64>,
    /// As [`Histogram::custom_values`].
    pub custom_values: Vec<f64>,
}

impl Histogram {
    /// The histogram of whole counts, [checked](Self::checked), and its count compared with its buckets: they
    /// are equal, unless observations were NaN, which only the count knows.
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
