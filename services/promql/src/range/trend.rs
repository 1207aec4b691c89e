//! Linear trends of floats: `deriv`, `predict_linear`, `double_exponential_smoothing`.
//!
//! Regression lines are computed by least squares with compensated sums.

use tideline_model::CompensatedSum;

use super::Window;
use crate::error::{PromqlError, Result};
use crate::note::Notes;

/// Returns the slope of the regression line per second; `None` for fewer than two floats.
pub(super) fn deriv(window: &Window<'_>, notes: &mut Notes<'_>) -> Option<f64> {
    // Times are relative to the first sample, because large timestamps would reduce the precision of
    // differences.
    let line = Line::through(window, *window.times.first()?, notes)?;
    Some(line.slope)
}

/// Returns the value of the regression line `ahead` seconds after the evaluation timestamp; `None` for fewer
/// than two floats.
pub(super) fn predict_linear(window: &Window<'_>, ahead: f64, notes: &mut Notes<'_>) -> Option<f64> {
    let line = Line::through(window, window.at, notes)?;
    Some(line.slope * ahead + line.intercept)
}

/// Returns the difference of two timestamps; computed with floats if the integer difference
/// overflows.
fn milliseconds_between(from: i64, to: i64) -> f64 {
    match to.checked_sub(from) {
        Some(milliseconds) => milliseconds as f64,
        None => to as f64 - from as f64,
    }
}

/// Least-squares regression line.
struct Line {
    /// Slope per second.
    slope: f64,
    /// Value at the origin.
    intercept: f64,
}

impl Line {
    fn through(window: &Window<'_>, origin: i64, notes: &mut Notes<'_>) -> Option<Self> {
        if !window.has_two_numbers(notes) {
            return None;
        }
        let first = window.values[0];
        if window.values.iter().all(|value| *value == first) {
            return Some(match first.is_infinite() {
                true => Self {
                    slope: f64::NAN,
                    intercept: f64::NAN,
                },
                false => Self {
                    slope: 0.0,
                    intercept: first,
                },
            });
        }
        let [mut x, mut y, mut xy, mut xx] = [CompensatedSum::default(); 4];
        for (time, value) in window.times.iter().zip(window.values) {
            let at = milliseconds_between(origin, *time) / 1e3;
            x.add(at);
            y.add(*value);
            xy.add(at * value);
            xx.add(at * at);
        }
        let [x, y, xy, xx] = [x, y, xy, xx].map(CompensatedSum::total);
        let count = window.values.len() as f64;
        let covariance = xy - x * y / count;
        let variance = xx - x * x / count;
        let slope = covariance / variance;
        Some(Self {
            slope,
            intercept: y / count - slope * x / count,
        })
    }
}

/// Returns the last value after double exponential smoothing: the first factor smooths the level, the second
/// the trend.
///
/// Returns `Ok(None)` for fewer than two floats. Fails if a factor is at most 0 or at least 1.
pub(super) fn smoothed(
    window: &Window<'_>,
    [smoothing, trend]: [f64; 2],
    notes: &mut Notes<'_>,
) -> Result<Option<f64>> {
    for (name, factor) in [("smoothing", smoothing), ("trend", trend)] {
        if factor <= 0.0 || factor >= 1.0 {
            let symbol = if name == "smoothing" { "sf" } else { "tf" };
            let message = format!("invalid {name} factor. Expected: 0 < {symbol} < 1, got: {factor:.6}");
            return Err(PromqlError::Execution(message));
        }
    }
    if !window.has_two_numbers(notes) {
        return Ok(None);
    }
    let (mut before, mut level) = (0.0, window.values[0]);
    let mut slope = window.values[1] - window.values[0];
    for (at, value) in window.values.iter().enumerate().skip(1) {
        if at > 1 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + slope);
        (before, level) = (level, next);
    }
    Ok(Some(level))
}

impl Window<'_> {
    /// Returns true if there are at least two floats. Adds a note if there are floats and histograms are
    /// ignored.
    fn has_two_numbers(&self, notes: &mut Notes<'_>) -> bool {
        if !self.values.is_empty() {
            self.note_ignored_histograms(notes);
        }
        self.values.len() >= 2
    }
}
