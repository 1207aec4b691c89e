//! Notes of functions on the samples of their arguments.
//!
//! Functions do not have access to the metric name or the position of their arguments. The evaluator adds
//! both and converts a note to an [annotation](crate::annotations).

/// Note of a function, converted by the evaluator to a warning or an info.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Note {
    /// Floats and histograms in one range; there is no result.
    MixedFloatsHistograms,
    /// Exponential histograms and histograms with custom bounds in one range; there is no result.
    MixedExponentialCustomHistograms,
    /// Gauge histogram used as a counter.
    NativeHistogramNotCounter,
    /// Counter histogram used as a gauge.
    NativeHistogramNotGauge,
    /// Start timestamp before the timestamp of the previous sample and different from that sample's start.
    StartTimeOverlap,
    /// Histograms ignored in a mixed range.
    HistogramIgnoredInMixedRange,
    /// Quantile outside 0 to 1, or NaN.
    InvalidQuantile(f64),
    /// Histograms with different custom bounds, reduced to their common bounds.
    MismatchedCustomBuckets(HistogramOperation),
    /// Contradictory reset hints: reset and no reset.
    CounterResetCollision(HistogramOperation),
    /// Quantile among NaN observations.
    QuantileNanResult,
    /// Quantile increased by NaN observations.
    QuantileNanSkew,
    /// Histogram with NaN observations, which are not part of any fraction.
    FractionNans,
    /// Cumulative counts of a classic histogram that decreased with rising bounds and were corrected.
    ForcedMonotonicity {
        /// Lowest bound with a decrease.
        bucket_min: f64,
        /// Highest bound with a decrease.
        bucket_max: f64,
        /// Largest decrease.
        difference_max: f64,
    },
}

/// Operation that combined histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistogramOperation {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Aggregation over series or over time.
    Aggregation,
}

/// Receiver of notes.
pub type Notes<'a> = dyn FnMut(Note) + 'a;
