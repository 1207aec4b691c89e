//! `irate` and `idelta`: functions of the last two samples.

use std::sync::Arc;

use tideline_histogram::ResetHint;

use super::Window;
use super::rate::subtract;
use super::stamped_sample::{Either, StampedSample};
use crate::note::{Note, Notes};
use crate::value::Point;

/// Function of two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Two {
    /// Increase of a counter per second.
    Rate,
    /// Difference.
    Difference,
}

pub(super) fn last_two(window: &Window<'_>, two: Two, notes: &mut Notes<'_>) -> Option<Point> {
    let (before, last) = window.last_two()?;
    let seconds = (last.stamp.time - before.stamp.time) as f64 / 1000.0;
    if seconds == 0.0 {
        return None;
    }
    let is_reset = two == Two::Rate && last.stamp.is_reset_after(before.stamp);
    match (before.value, last.value) {
        (Either::Float(before), Either::Float(last)) => {
            let is_reset = is_reset || (two == Two::Rate && last < before);
            let difference = if is_reset { last } else { last - before };
            Some(Point::Float(if two == Two::Rate {
                difference / seconds
            } else {
                difference
            }))
        }
        (Either::Histogram(before), Either::Histogram(last)) => {
            let are_gauges = [before, last].map(|histogram| histogram.reset_hint == ResetHint::Gauge);
            match two {
                Two::Rate if are_gauges.contains(&true) => notes(Note::NativeHistogramNotCounter),
                Two::Difference if are_gauges.contains(&false) => notes(Note::NativeHistogramNotGauge),
                _ => {}
            }
            let mut difference = last.clone();
            let is_reset = is_reset || (two == Two::Rate && last.detect_reset(before));
            if !is_reset {
                subtract(&mut difference, before, notes)?;
            }
            difference.reset_hint = ResetHint::Gauge;
            difference.compact(0);
            if two == Two::Rate {
                difference.div(seconds);
            }
            Some(Point::Histogram(Arc::new(difference)))
        }
        _ => {
            notes(Note::MixedFloatsHistograms);
            None
        }
    }
}

impl Window<'_> {
    /// Returns the last two samples, floats and histograms together. At equal timestamps, the histogram is the
    /// later sample.
    fn last_two(&self) -> Option<(StampedSample<'_>, StampedSample<'_>)> {
        let float = |back: usize| Some(self.float_sample(self.times.len().checked_sub(back)?));
        let histogram =
            |back: usize| Some(self.histogram_sample(self.histogram_times.len().checked_sub(back)?));
        let (mut floats, mut histograms) = (1, 1);
        let mut take_last = || {
            let (number, distribution) = (float(floats), histogram(histograms));
            let is_float = match (&number, &distribution) {
                (Some(number), Some(distribution)) => number.stamp.time > distribution.stamp.time,
                (number, _) => number.is_some(),
            };
            match is_float {
                true => floats += 1,
                false => histograms += 1,
            }
            if is_float { number } else { distribution }
        };
        let last = take_last()?;
        Some((take_last()?, last))
    }
}
