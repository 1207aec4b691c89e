//! Annotations and their texts, which equal those of Prometheus.
//!
//! The texts must not be reworded: Prometheus' test scripts compare them literally.

use std::fmt;

use crate::note::HistogramOperation;
use crate::number::general;
use crate::quote::quote;

/// Annotation of a query result.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "each is displayed in words")]
pub enum Annotation<'a> {
    InvalidQuantile(f64),
    InvalidRatio {
        given: f64,
        used: f64,
    },
    BadBucketLabel {
        metric: &'a str,
        label: &'a str,
    },
    MixedFloatsHistograms {
        metric: &'a str,
    },
    MixedFloatsHistogramsInAggregation,
    MixedClassicNativeHistograms {
        metric: &'a str,
    },
    MixedExponentialCustomHistograms {
        metric: &'a str,
    },
    NativeHistogramNotCounter {
        metric: &'a str,
    },
    NativeHistogramNotGauge {
        metric: &'a str,
    },
    IncompatibleBuckets {
        operator: &'a str,
    },
    CounterResetCollision(HistogramOperation),
    StartTimeOverlap {
        metric: &'a str,
    },
    SortInRangeQuery,
    PossibleNonCounter {
        metric: &'a str,
    },
    ForcedMonotonicity {
        metric: &'a str,
        time: i64,
        bucket_min: f64,
        bucket_max: f64,
        difference_max: f64,
    },
    IncompatibleTypes {
        left: &'a str,
        operator: &'a str,
        right: &'a str,
    },
    HistogramIgnoredInAggregation {
        aggregation: &'a str,
    },
    HistogramIgnoredInMixedRange {
        metric: &'a str,
    },
    QuantileNanResult {
        metric: &'a str,
    },
    QuantileNanSkew {
        metric: &'a str,
    },
    FractionNans {
        metric: &'a str,
    },
    MismatchedCustomBuckets(HistogramOperation),
}

impl Annotation<'_> {
    /// Returns true for an info, false for a warning.
    pub fn is_info(&self) -> bool {
        matches!(
            self,
            Self::PossibleNonCounter { .. }
                | Self::ForcedMonotonicity { .. }
                | Self::IncompatibleTypes { .. }
                | Self::HistogramIgnoredInAggregation { .. }
                | Self::HistogramIgnoredInMixedRange { .. }
                | Self::QuantileNanResult { .. }
                | Self::QuantileNanSkew { .. }
                | Self::FractionNans { .. }
                | Self::MismatchedCustomBuckets(_)
        )
    }
}

/// Writes the text without the position.
impl fmt::Display for Annotation<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_info() {
            out.write_str("PromQL info: ")?;
            return self.write_info(out);
        }
        out.write_str("PromQL warning: ")?;
        self.write_warning(out)
    }
}

impl Annotation<'_> {
    fn write_warning(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InvalidQuantile(quantile) => write!(
                out,
                "quantile value should be between 0 and 1, got {}",
                general(quantile)
            ),
            Self::InvalidRatio { given, used } => write!(
                out,
                "ratio value should be between -1 and 1, got {}, capping to {}",
                general(given),
                general(used)
            ),
            Self::BadBucketLabel { metric, label } => write!(
                out,
                "bucket label \"le\" is missing or has a malformed value of {}{}",
                quote(label),
                OfMetric(metric)
            ),
            Self::MixedFloatsHistograms { metric } => write!(
                out,
                "encountered a mix of histograms and floats for metric name {}",
                quote(metric)
            ),
            Self::MixedFloatsHistogramsInAggregation => {
                out.write_str("encountered a mix of histograms and floats for aggregation")
            }
            Self::StartTimeOverlap { metric } => write!(
                out,
                "sample has start time that overlaps with previous sample timestamp for metric {}",
                quote(metric)
            ),
            Self::SortInRangeQuery => out.write_str(
                "sort is ineffective for range queries since results are always ordered by labels",
            ),
            _ => self.write_histogram_warning(out),
        }
    }

    fn write_histogram_warning(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MixedClassicNativeHistograms { metric } => write!(
                out,
                "vector contains a mix of classic and native histograms{}",
                OfMetric(metric)
            ),
            Self::MixedExponentialCustomHistograms { metric } => write!(
                out,
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {}",
                quote(metric)
            ),
            Self::NativeHistogramNotCounter { metric } => {
                write!(
                    out,
                    "this native histogram metric is not a counter: {}",
                    quote(metric)
                )
            }
            Self::NativeHistogramNotGauge { metric } => {
                write!(
                    out,
                    "this native histogram metric is not a gauge: {}",
                    quote(metric)
                )
            }
            Self::IncompatibleBuckets { operator } => write!(
                out,
                "incompatible bucket layout encountered for binary operator {operator}"
            ),
            Self::CounterResetCollision(operation) => write!(
                out,
                "conflicting counter resets during histogram {}",
                operation_name(operation)
            ),
            _ => Ok(()),
        }
    }

    fn write_info(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PossibleNonCounter { metric } => write!(
                out,
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {}",
                quote(metric)
            ),
            Self::ForcedMonotonicity { metric, .. } => write!(
                out,
                "input to histogram_quantile needed to be fixed for monotonicity (see \
                 https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){}",
                OfMetric(metric)
            ),
            Self::IncompatibleTypes {
                left,
                operator,
                right,
            } => write!(
                out,
                "incompatible sample types encountered for binary operator {}: {left} {operator} {right}",
                quote(operator)
            ),
            Self::HistogramIgnoredInAggregation { aggregation } => {
                write!(out, "ignored histogram in {aggregation} aggregation")
            }
            Self::HistogramIgnoredInMixedRange { metric } => write!(
                out,
                "ignored histograms in a range containing both floats and histograms for metric name {}",
                quote(metric)
            ),
            Self::QuantileNanResult { metric } => write!(
                out,
                "input to histogram_quantile has NaN observations, result is NaN{}",
                OfMetric(metric)
            ),
            Self::QuantileNanSkew { metric } => write!(
                out,
                "input to histogram_quantile has NaN observations, result is skewed higher{}",
                OfMetric(metric)
            ),
            Self::FractionNans { metric } => write!(
                out,
                "input to histogram_fraction has NaN observations, which are excluded from all fractions{}",
                OfMetric(metric)
            ),
            Self::MismatchedCustomBuckets(operation) => write!(
                out,
                "mismatched custom buckets were reconciled during {}",
                operation_name(operation)
            ),
            _ => Ok(()),
        }
    }
}

/// Suffix ` for metric name "…"`; empty if the name is unknown.
struct OfMetric<'a>(&'a str);

impl fmt::Display for OfMetric<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            name => write!(out, " for metric name {}", quote(name)),
        }
    }
}

fn operation_name(operation: HistogramOperation) -> &'static str {
    match operation {
        HistogramOperation::Add => "addition",
        HistogramOperation::Sub => "subtraction",
        HistogramOperation::Aggregation => "aggregation",
    }
}
