//! What functions remark about the samples that they were given.

/// A remark. The evaluator makes a warning or an info of it: it knows the metric's name and where the
/// argument stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Note {
    /// Numbers and histograms stand in one range: no result.
    MixedFloatsHistograms,
    /// Exponential histograms and such with bounds of their own do not go together: no result.
    MixedExponentialCustomHistograms,
    /// Treated as a counter, but it is a gauge.
    NativeHistogramNotCounter,
    /// Treated as a gauge, but it is a counter.
    NativeHistogramNotGauge,
    /// A sample's start lies before the sample in front of it.
    StartTimeOverlap,
    /// Only the range's numbers were looked at.
    HistogramIgnoredInMixedRange,
    /// A quantile lies outside of 0 to 1, or is NaN.
    InvalidQuantile(f64),
    /// Histograms with different bounds of their own were brought to the bounds that they share.
    MismatchedCustomBuckets(HistogramOperation),
    /// One histogram says that there was a reset, another that there was none.
    CounterResetCollision(HistogramOperation),
    /// A quantile lies among observations of NaN.
    QuantileNanResult,
    /// Observations of NaN push a quantile up.
    QuantileNanSkew,
    /// Observations of NaN are in no fraction.
    FractionNans,
    /// Counts of a classic histogram's buckets fell with rising bounds.
    ForcedMonotonicity {
        /// The lowest bound at which they fell.
        bucket_min: f64,
        /// The highest bound at which they fell.
        bucket_max: f64,
        /// By how much at most.
        difference_max: f64,
    },
}

/// Where histograms met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistogramOperation {
    /// In an addition.
    Add,
    /// In a subtraction.
    Sub,
    /// In an aggregation over series or over time.
    Aggregation,
}

/// Takes remarks.
pub type Notes<'a> = dyn FnMut(Note) + 'a;
