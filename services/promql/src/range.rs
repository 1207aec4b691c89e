//! Functions over a range of samples of one series: rates, trends, and the functions named `*_over_time`.
//!
//! | module | content |
//! |---|---|
//! | `rate` | `rate`, `increase`, `delta`: extrapolated to the ends of the range |
//! | `anchored` | `rate`, `increase`, `delta` for `anchored` and `smoothed` ranges; interpolated values |
//! | `instant` | `irate`, `idelta`: the last two samples |
//! | `changes` | `changes`, `resets` |
//! | `trend` | `deriv`, `predict_linear`, `double_exponential_smoothing` |
//! | `numbers`, `histograms` | aggregations over time |
//! | `stamped_sample` | common representation of float and histogram samples |
//! | `starts` | reset detection by start timestamps |
//!
//! Each function maps a window of samples to an optional value and to notes, without other effects. Windows are slices
//! of the samples of a series. Functions over floats allocate nothing, except a reusable buffer for sorted values.

mod anchored;
mod changes;
mod histograms;
mod instant;
mod numbers;
mod rate;
mod stamped_sample;
mod starts;
mod trend;

use std::sync::Arc;

use tideline_histogram::Histogram;

use crate::error::Result;
use crate::note::{Note, Notes};
use crate::value::Point;

pub use anchored::{extend_floats, smooth_at};

/// Samples of one series in a range, without stale markers. Floats and histograms are separate lists with
/// rising timestamps.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// Timestamp of the evaluation, in milliseconds.
    pub at: i64,
    /// End of the range (inclusive), in milliseconds.
    pub end: i64,
    /// Width of the range, in milliseconds. The start is excluded.
    pub width: i64,
    /// Samples outside the range that the window contains in addition.
    pub extent: Extent,
    /// Timestamps of the floats, in milliseconds.
    pub times: &'a [i64],
    /// Floats.
    pub values: &'a [f64],
    /// Start timestamps of the floats, in milliseconds, 0 if unknown; empty if all are unknown.
    pub starts: &'a [i64],
    /// Timestamps of the histograms, in milliseconds.
    pub histogram_times: &'a [i64],
    /// Histograms.
    pub histograms: &'a [Arc<Histogram>],
    /// Start timestamps of the histograms, in the form of `starts`.
    pub histogram_starts: &'a [i64],
}

/// Samples outside a range that a window contains in addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// No samples outside the range.
    #[default]
    Plain,
    /// Samples within the lookback before the range. The last one is used as the value at the start of the
    /// range.
    Anchored,
    /// Samples within the lookback before and after the range. The values at both ends of the range are
    /// interpolated.
    Smoothed,
}

/// Function over a range. `absent_over_time` is not included, because it depends on all series together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum RangeFunction {
    Rate,
    Increase,
    Delta,
    Irate,
    Idelta,
    Deriv,
    PredictLinear,
    DoubleExponentialSmoothing,
    Changes,
    Resets,
    AvgOverTime,
    SumOverTime,
    MinOverTime,
    MaxOverTime,
    CountOverTime,
    FirstOverTime,
    LastOverTime,
    PresentOverTime,
    StddevOverTime,
    StdvarOverTime,
    QuantileOverTime,
    MadOverTime,
    TsOfFirstOverTime,
    TsOfLastOverTime,
    TsOfMinOverTime,
    TsOfMaxOverTime,
}

impl RangeFunction {
    /// Looks up a function by name; `None` if it is not a function over a range.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "rate" => Self::Rate,
            "increase" => Self::Increase,
            "delta" => Self::Delta,
            "irate" => Self::Irate,
            "idelta" => Self::Idelta,
            "deriv" => Self::Deriv,
            "predict_linear" => Self::PredictLinear,
            "double_exponential_smoothing" => Self::DoubleExponentialSmoothing,
            "changes" => Self::Changes,
            "resets" => Self::Resets,
            "avg_over_time" => Self::AvgOverTime,
            "sum_over_time" => Self::SumOverTime,
            "min_over_time" => Self::MinOverTime,
            "max_over_time" => Self::MaxOverTime,
            "count_over_time" => Self::CountOverTime,
            "first_over_time" => Self::FirstOverTime,
            "last_over_time" => Self::LastOverTime,
            "present_over_time" => Self::PresentOverTime,
            "stddev_over_time" => Self::StddevOverTime,
            "stdvar_over_time" => Self::StdvarOverTime,
            "quantile_over_time" => Self::QuantileOverTime,
            "mad_over_time" => Self::MadOverTime,
            "ts_of_first_over_time" => Self::TsOfFirstOverTime,
            "ts_of_last_over_time" => Self::TsOfLastOverTime,
            "ts_of_min_over_time" => Self::TsOfMinOverTime,
            "ts_of_max_over_time" => Self::TsOfMaxOverTime,
            _ => return None,
        })
    }

    /// Returns true if the result is an unchanged sample and therefore keeps the metric name.
    pub fn keeps_name(self) -> bool {
        matches!(self, Self::FirstOverTime | Self::LastOverTime)
    }

    /// Returns true if the function uses start timestamps.
    pub fn uses_starts(self) -> bool {
        matches!(self, Self::Rate | Self::Irate | Self::Increase | Self::Resets)
    }

    /// Returns true if the function supports [`Extent::Anchored`].
    pub fn may_be_anchored(self) -> bool {
        self.may_be_smoothed() || matches!(self, Self::Changes | Self::Resets)
    }

    /// Returns true if the function supports [`Extent::Smoothed`].
    pub fn may_be_smoothed(self) -> bool {
        matches!(self, Self::Rate | Self::Increase | Self::Delta)
    }

    /// Computes the function over a window with at least one sample; `None` if there is no result.
    ///
    /// `parameters` are the scalar arguments in order: the quantile, or the seconds to predict ahead, or the
    /// smoothing and the trend factor. `scratch` is a reusable buffer.
    ///
    /// # Errors
    ///
    /// Returns [`PromqlError::Execution`](crate::PromqlError::Execution) if a smoothing or trend factor is at
    /// most 0 or at least 1.
    pub fn apply(
        self,
        window: &Window<'_>,
        parameters: [f64; 2],
        scratch: &mut Vec<f64>,
        notes: &mut Notes<'_>,
    ) -> Result<Option<Point>> {
        let number = match self {
            Self::Rate | Self::Increase | Self::Delta => return Ok(rate::rate(self, window, notes)),
            Self::Irate => return Ok(instant::last_two(window, instant::Two::Rate, notes)),
            Self::Idelta => return Ok(instant::last_two(window, instant::Two::Difference, notes)),
            Self::AvgOverTime | Self::SumOverTime => return Ok(self.sum_or_average(window, notes)),
            Self::FirstOverTime => return Ok(window.first()),
            Self::LastOverTime => return Ok(window.last()),
            Self::Deriv => trend::deriv(window, notes),
            Self::PredictLinear => trend::predict_linear(window, parameters[0], notes),
            Self::DoubleExponentialSmoothing => trend::smoothed(window, parameters, notes)?,
            Self::Changes => changes::changes(window),
            Self::Resets => changes::resets(window),
            Self::CountOverTime => Some((window.times.len() + window.histogram_times.len()) as f64),
            Self::PresentOverTime => Some(1.0),
            Self::TsOfFirstOverTime => window.first_time().map(seconds),
            Self::TsOfLastOverTime => window.last_time().map(seconds),
            Self::MinOverTime => window.numbers_only(notes).map(numbers::min),
            Self::MaxOverTime => window.numbers_only(notes).map(numbers::max),
            Self::TsOfMinOverTime => window
                .numbers_only(notes)
                .map(|values| seconds(window.times[numbers::last_min(values)])),
            Self::TsOfMaxOverTime => window
                .numbers_only(notes)
                .map(|values| seconds(window.times[numbers::last_max(values)])),
            Self::StddevOverTime => window.numbers_only(notes).map(numbers::variance).map(f64::sqrt),
            Self::StdvarOverTime => window.numbers_only(notes).map(numbers::variance),
            Self::MadOverTime => window
                .numbers_only(notes)
                .map(|values| numbers::mad(values, scratch)),
            Self::QuantileOverTime => window
                .numbers_only(notes)
                .map(|values| numbers::quantile(parameters[0], values, scratch, notes)),
        };
        Ok(number.map(Point::Float))
    }

    fn sum_or_average(self, window: &Window<'_>, notes: &mut Notes<'_>) -> Option<Point> {
        if window.is_mixed(notes) {
            return None;
        }
        let is_average = self == Self::AvgOverTime;
        if window.values.is_empty() {
            let combine = if is_average {
                histograms::average
            } else {
                histograms::sum
            };
            return combine(window.histograms, notes).map(|sum| Point::Histogram(Arc::new(sum)));
        }
        let combine = if is_average {
            numbers::average
        } else {
            numbers::sum
        };
        Some(Point::Float(combine(window.values)))
    }
}

impl Window<'_> {
    /// Returns the start of the range, which is excluded.
    fn start(&self) -> i64 {
        self.end.saturating_sub(self.width)
    }

    /// Returns the width in seconds.
    fn width_seconds(&self) -> f64 {
        (self.width / 1000) as f64 + (self.width % 1000) as f64 / 1000.0
    }

    /// Adds a note and returns true if the window contains both floats and histograms.
    fn is_mixed(&self, notes: &mut Notes<'_>) -> bool {
        let is_mixed = !self.values.is_empty() && !self.histograms.is_empty();
        if is_mixed {
            notes(Note::MixedFloatsHistograms);
        }
        is_mixed
    }

    /// Returns the floats, if any. Adds a note if histograms are ignored.
    fn numbers_only(&self, notes: &mut Notes<'_>) -> Option<&[f64]> {
        if self.values.is_empty() {
            return None;
        }
        self.note_ignored_histograms(notes);
        Some(self.values)
    }

    fn note_ignored_histograms(&self, notes: &mut Notes<'_>) {
        if !self.histograms.is_empty() {
            notes(Note::HistogramIgnoredInMixedRange);
        }
    }

    fn first_time(&self) -> Option<i64> {
        self.times
            .first()
            .into_iter()
            .chain(self.histogram_times.first())
            .min()
            .copied()
    }

    fn last_time(&self) -> Option<i64> {
        self.times
            .last()
            .into_iter()
            .chain(self.histogram_times.last())
            .max()
            .copied()
    }

    /// Returns the first sample; of two with equal timestamps, the histogram.
    fn first(&self) -> Option<Point> {
        match (self.times.first(), self.histogram_times.first()) {
            (Some(time), Some(histogram_time)) if time < histogram_time => self.values.first().map(number),
            (_, Some(_)) => self.histograms.first().map(histogram),
            (_, None) => self.values.first().map(number),
        }
    }

    /// Returns the last sample; of two with equal timestamps, the histogram.
    fn last(&self) -> Option<Point> {
        match (self.times.last(), self.histogram_times.last()) {
            (Some(time), Some(histogram_time)) if time > histogram_time => self.values.last().map(number),
            (_, Some(_)) => self.histograms.last().map(histogram),
            (_, None) => self.values.last().map(number),
        }
    }
}

fn number(value: &f64) -> Point {
    Point::Float(*value)
}

fn histogram(value: &Arc<Histogram>) -> Point {
    Point::Histogram(Arc::clone(value))
}

fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}
