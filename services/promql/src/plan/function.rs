//! Mapping of function names to implementations.
//!
//! Functions that map a single value are held as function pointers, and functions over ranges as [`RangeFunction`].
//! Each other function is a variant of [`Function`].

use tideline_histogram::{Histogram, logarithm};

use crate::calendar::Date;
use crate::histogram_functions;
use crate::range::RangeFunction;

/// Implementation of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    /// Applied to windows of samples.
    Range(RangeFunction),
    AbsentOverTime,
    /// Applied to each float sample.
    Math(fn(f64) -> f64),
    /// Applied to each float sample as a timestamp, or to the timestamp of the step if there is no argument.
    Date(fn(&Date) -> i64),
    /// Applied to each histogram sample.
    OfHistogram(fn(&Histogram) -> f64),
    Absent,
    Clamp,
    ClampMax,
    ClampMin,
    Round,
    Scalar,
    Vector,
    Time,
    Pi,
    MaxOf,
    MinOf,
    Timestamp,
    StartTimestamp,
    Sort,
    SortDescending,
    SortByLabel,
    SortByLabelDescending,
    LabelReplace,
    LabelJoin,
    Info,
    HistogramQuantile,
    HistogramQuantiles,
    HistogramFraction,
}

impl Function {
    /// Looks up a function; `None` for query constants such as `start()` and for unknown names.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if let Some(function) = RangeFunction::of(name) {
            return Some(Self::Range(function));
        }
        Some(match name {
            "absent" => Self::Absent,
            "absent_over_time" => Self::AbsentOverTime,
            "clamp" => Self::Clamp,
            "clamp_max" => Self::ClampMax,
            "clamp_min" => Self::ClampMin,
            "round" => Self::Round,
            "scalar" => Self::Scalar,
            "vector" => Self::Vector,
            "time" => Self::Time,
            "pi" => Self::Pi,
            "max_of" => Self::MaxOf,
            "min_of" => Self::MinOf,
            "timestamp" => Self::Timestamp,
            "start_timestamp" => Self::StartTimestamp,
            "sort" => Self::Sort,
            "sort_desc" => Self::SortDescending,
            "sort_by_label" => Self::SortByLabel,
            "sort_by_label_desc" => Self::SortByLabelDescending,
            "label_replace" => Self::LabelReplace,
            "label_join" => Self::LabelJoin,
            "info" => Self::Info,
            "histogram_quantile" => Self::HistogramQuantile,
            "histogram_quantiles" => Self::HistogramQuantiles,
            "histogram_fraction" => Self::HistogramFraction,
            _ => {
                return math(name)
                    .map(Self::Math)
                    .or_else(|| date(name).map(Self::Date))
                    .or_else(|| of_histogram(name).map(Self::OfHistogram));
            }
        })
    }

    /// Returns true if the result may vary by step even if the arguments do not.
    pub(crate) fn depends_on_step(self) -> bool {
        matches!(
            self,
            Self::Date(_) | Self::Time | Self::Timestamp | Self::Range(RangeFunction::PredictLinear)
        )
    }
}

fn math(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "abs" => f64::abs,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "exp" => f64::exp,
        "sqrt" => f64::sqrt,
        "ln" => logarithm::ln,
        "log2" => logarithm::log2,
        "log10" => f64::log10,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tan" => f64::tan,
        "asin" => f64::asin,
        "acos" => f64::acos,
        "atan" => f64::atan,
        "sinh" => f64::sinh,
        "cosh" => f64::cosh,
        "tanh" => f64::tanh,
        "asinh" => f64::asinh,
        "acosh" => f64::acosh,
        "atanh" => f64::atanh,
        "rad" => |degrees| degrees * std::f64::consts::PI / 180.0,
        "deg" => |radians| radians * 180.0 / std::f64::consts::PI,
        "sgn" => |value| {
            if value < 0.0 {
                -1.0
            } else if value > 0.0 {
                1.0
            } else {
                value
            }
        },
        _ => return None,
    })
}

fn date(name: &str) -> Option<fn(&Date) -> i64> {
    Some(match name {
        "days_in_month" => Date::days_in_month,
        "day_of_month" => |date| date.day,
        "day_of_week" => |date| date.day_of_week,
        "day_of_year" => |date| date.day_of_year,
        "hour" => |date| date.hour,
        "minute" => |date| date.minute,
        "month" => |date| date.month,
        "year" => |date| date.year,
        _ => return None,
    })
}

fn of_histogram(name: &str) -> Option<fn(&Histogram) -> f64> {
    Some(match name {
        "histogram_count" => |histogram| histogram.count,
        "histogram_sum" => |histogram| histogram.sum,
        "histogram_avg" => histogram_functions::average,
        "histogram_stdvar" => histogram_functions::variance,
        "histogram_stddev" => |histogram| histogram_functions::variance(histogram).sqrt(),
        _ => return None,
    })
}
