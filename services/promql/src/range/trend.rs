//! Lines through numbers: `deriv`, `predict_linear`, `double_exponential_smoothing`.

use tideline_model::CompensatedSum;

use super::Window;
use crate::error::{PromqlError, Result};
use crate::note::Notes;

/// The slope of the line through the numbers, by second.
pub(super) fn deriv(window: &Window<'_>, notes: &mut Notes<'_>) -> Option<f64> {
    // Instants are counted from near the samples, so that precision is left for their differences.
    let line = Line::through(window, *window.times.first()?, notes)?;
    Some(line.slope)
}

/// Where the line through the numbers will be so many seconds after the evaluation's instant.
pub(super) fn predict_linear(window: &Window<'_>, ahead: f64, notes: &mut Notes<'_>) -> Option<f64> {
    let line = Line::through(window, window.at, notes)?;
    Some(line.slope * ahead + line.intercept)
}

/// From one instant to another; instants at both ends of time are further apart than a whole number can say.
fn milliseconds_between(from: i64, to: i64) -> f64 {
    match to.checked_sub(from) {
        Some(milliseconds) => milliseconds as f64,
        None => to as f64 - from as f64,
    }
}

/// A line by least squares.
struct Line {
    /// By second.
    slope: f64,
    /// At the origin.
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

/// The last number of the series smoothed twice: its level by the first factor, its trend by the second.
///
/// Fails when a factor is not between 0 and 1.
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
    /// Whether a line can be drawn. That histograms are passed over is noted if there is any number.
    fn has_two_numbers(&self, notes: &mut Notes<'_>) -> bool {
        if !self.values.is_empty() {
            self.note_ignored_histograms(notes);
        }
        self.values.len() >= 2
    }
}
