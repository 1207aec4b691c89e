//! `rate`, `increase` and `delta`, extrapolated to the ends of the range.
//!
//! 1. The increase is the difference between the last and the first sample. For a counter, the value before
//!    each reset is added.
//! 2. Samples are rarely exactly at the ends of the range. If the outermost sample is less than 1.1 average sample
//!    intervals away from an end of the range, the increase is extrapolated to that end. Otherwise the series is
//!    assumed to begin or end in between, and half an interval is extrapolated.
//! 3. A counter is not extrapolated below zero. If its start timestamp is known and in the range, its value is
//!    zero there.

use std::borrow::Cow;
use std::sync::Arc;

use tideline_histogram::{Histogram, HistogramError, ResetHint};

use super::starts::Stamp;
use super::{Extent, RangeFunction, Window, anchored};
use crate::note::{HistogramOperation, Note, Notes};
use crate::value::Point;

/// Options that distinguish `rate`, `increase` and `delta`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// True for a counter, which only increases, except at resets.
    pub(super) is_counter: bool,
    /// True if the result is per second.
    pub(super) by_second: bool,
}

#[inline]
pub(super) fn rate(function: RangeFunction, window: &Window<'_>, notes: &mut Notes<'_>) -> Option<Point> {
    let kind = Kind {
        is_counter: function != RangeFunction::Delta,
        by_second: function == RangeFunction::Rate,
    };
    if window.is_mixed(notes) {
        return None;
    }
    match (window.extent, window.histograms.is_empty()) {
        (Extent::Plain, true) => float_rate(window, kind, notes).map(Point::Float),
        (Extent::Plain, false) => histogram_rate(window, kind, notes),
        (_, true) => anchored::float_rate(window, kind).map(Point::Float),
        (_, false) => anchored::histogram_rate(window, kind, notes),
    }
}

#[inline]
fn float_rate(window: &Window<'_>, kind: Kind, notes: &mut Notes<'_>) -> Option<f64> {
    let (first, last) = (*window.values.first()?, *window.values.last()?);
    let mut increase = last - first;
    if kind.is_counter {
        increase = match window.starts.is_empty() {
            true => with_resets(increase, window.values),
            false => with_resets_and_starts(increase, window, notes),
        };
    }
    let sampled = Sampled::of(window, window.times, kind, window.starts)?;
    if sampled.has_start {
        increase += first;
    }
    Some(increase * sampled.factor(window, kind, first, increase))
}

/// Adds the value before each reset to the increase.
fn with_resets(mut increase: f64, values: &[f64]) -> f64 {
    /// Number of adjacent pairs compared together, without a branch per pair. Most blocks contain no reset.
    const TOGETHER: usize = 64;
    let mut rest = values;
    while rest.len() > 1 {
        // Blocks overlap by one sample.
        let part = &rest[..rest.len().min(TOGETHER + 1)];
        let pairs = || part.iter().zip(&part[1..]);
        // The results are combined as 64-bit integers, because processors compare doubles into masks of that
        // width.
        if pairs().fold(0, |any, (before, value)| any | u64::from(value < before)) != 0 {
            let lost = pairs().filter(|(before, value)| value < before);
            increase = lost.fold(increase, |increase, (before, _)| increase + before);
        }
        rest = &rest[part.len() - 1..];
    }
    increase
}

fn with_resets_and_starts(mut increase: f64, window: &Window<'_>, notes: &mut Notes<'_>) -> f64 {
    let mut overlaps = false;
    for at in 1..window.values.len() {
        let stamps = [at - 1, at].map(|at| Stamp::at(window.times, window.starts, at));
        overlaps |= stamps[1].overlaps(stamps[0]);
        let before = window.values[at - 1];
        if window.values[at] < before || stamps[1].is_reset_after(stamps[0]) {
            increase += before;
        }
    }
    if overlaps {
        notes(Note::StartTimeOverlap);
    }
    increase
}

/// Distances between the samples and the ends of a range, in seconds.
struct Sampled {
    to_start: f64,
    to_end: f64,
    /// Distance from the first sample, or from the start of the counter, to the last sample.
    interval: f64,
    /// Average distance between adjacent samples; 0 for a single sample.
    distance: f64,
    /// True if the start timestamp of the first sample is within the range. The counter is zero at that time, and
    /// `interval` begins at that time.
    has_start: bool,
}

impl Sampled {
    /// Computes the distances. Returns `None` for fewer than two samples, unless the counter started in the
    /// range.
    fn of(window: &Window<'_>, times: &[i64], kind: Kind, starts: &[i64]) -> Option<Self> {
        let (first, last) = (*times.first()?, *times.last()?);
        let start = starts.first().copied().unwrap_or(0);
        let has_start = kind.is_counter && start != 0 && start > window.start() && start < first;
        if times.len() < 2 && !has_start {
            return None;
        }
        let distances = (times.len() - 1) as f64;
        let sampled = seconds_between(first, last);
        let distance = if times.len() > 1 { sampled / distances } else { 0.0 };
        Some(Self {
            to_start: if has_start {
                0.0
            } else {
                seconds_between(window.start(), first)
            },
            to_end: seconds_between(last, window.end),
            interval: if has_start {
                seconds_between(start, last)
            } else {
                sampled
            },
            distance,
            has_start,
        })
    }

    /// Returns the factor that extrapolates the increase and, for a result per second, divides it by the width. `first`
    /// is the first float, or the count of the first histogram.
    fn factor(&self, window: &Window<'_>, kind: Kind, first: f64, increase: f64) -> f64 {
        let threshold = self.distance * 1.1;
        let mut to_start = self.to_start;
        if !self.has_start {
            if to_start >= threshold {
                to_start = self.distance / 2.0;
            }
            if kind.is_counter && increase > 0.0 && first >= 0.0 {
                let to_zero = self.interval * (first / increase);
                to_start = if to_zero < to_start { to_zero } else { to_start };
            }
        }
        let to_end = if self.to_end >= threshold {
            self.distance / 2.0
        } else {
            self.to_end
        };
        let factor = match self.interval {
            0.0 => 1.0,
            interval => (interval + to_start + to_end) / interval,
        };
        if kind.by_second {
            factor / window.width_seconds()
        } else {
            factor
        }
    }
}

fn seconds_between(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

fn histogram_rate(window: &Window<'_>, kind: Kind, notes: &mut Notes<'_>) -> Option<Point> {
    let first = window.histograms.first()?;
    let mut increase = match window.histograms.len() {
        1 => None,
        _ => Some(histogram_increase(window, kind, notes)?),
    };
    let sampled = Sampled::of(window, window.histogram_times, kind, window.histogram_starts)?;
    if sampled.has_start {
        match &mut increase {
            Some(increase) => add(increase, first, notes)?,
            None => increase = Some(Histogram::clone(first)),
        }
    }
    let mut increase = increase?;
    increase.mul(sampled.factor(window, kind, first.count, increase.count));
    Some(Point::Histogram(Arc::new(increase)))
}

/// Returns the increase between the first and the last histogram, as a gauge; `None` for fewer than two histograms and,
/// with a note, for incompatible ones.
fn histogram_increase(window: &Window<'_>, kind: Kind, notes: &mut Notes<'_>) -> Option<Histogram> {
    let [first, between @ .., last] = window.histograms else {
        return None;
    };
    let is_gauge = |histogram: &Arc<Histogram>| histogram.reset_hint == ResetHint::Gauge;
    // Notes are collected first, because they are dropped if `difference_with_resets` fails.
    let mut found = Vec::new();
    if kind.is_counter && (is_gauge(first) || is_gauge(last)) {
        found.push(Note::NativeHistogramNotCounter);
    }
    let mut before = Cow::Borrowed(first.as_ref());
    if kind.is_counter && window.is_reset(1, first) {
        // The counter was reset between the first two histograms, so the first counts as empty, regardless of its
        // buckets.
        let second = &window.histograms[1];
        let (schema, custom_values) = (second.schema, second.custom_values.clone());
        before = Cow::Owned(Histogram {
            schema,
            custom_values,
            ..Histogram::default()
        });
    }
    if last.uses_custom_buckets() != before.uses_custom_buckets() {
        found.push(Note::MixedExponentialCustomHistograms);
        found.into_iter().for_each(notes);
        return None;
    }
    if kind.is_counter && between.iter().any(is_gauge) {
        found.push(Note::NativeHistogramNotCounter);
    }
    let are_gauges = is_gauge(first) && is_gauge(last);
    if !kind.is_counter && !are_gauges {
        found.push(Note::NativeHistogramNotGauge);
    }
    match difference_with_resets(window, kind, before, &mut |note| found.push(note)) {
        Ok(increase) => {
            found.into_iter().for_each(notes);
            Some(increase)
        }
        Err(_) => {
            notes(Note::MixedExponentialCustomHistograms);
            None
        }
    }
}

/// Returns the last histogram minus the first, plus the value of the counter before each reset.
fn difference_with_resets<'a>(
    window: &Window<'a>,
    kind: Kind,
    mut before: Cow<'a, Histogram>,
    notes: &mut Notes<'_>,
) -> Result<Histogram, HistogramError> {
    let [_, between @ .., last] = window.histograms else {
        return Err(HistogramError::IncompatibleSchema);
    };
    let mut schema = last.schema.min(before.schema);
    if kind.is_counter {
        let is_custom = before.uses_custom_buckets();
        if between
            .iter()
            .any(|histogram| histogram.uses_custom_buckets() != is_custom)
        {
            return Err(HistogramError::IncompatibleSchema);
        }
        schema = between
            .iter()
            .map(|histogram| histogram.schema)
            .fold(schema, i32::min);
    }
    let mut increase = Histogram::clone(last);
    increase.reduce_resolution(schema);
    let outcome = increase.sub(&before)?;
    note_bounds(outcome.bounds_reconciled, HistogramOperation::Sub, notes);
    if kind.is_counter {
        let mut overlaps = false;
        for at in 1..window.histograms.len() {
            overlaps |= window
                .histogram_stamp(at)
                .overlaps(window.histogram_stamp(at - 1));
            if window.is_reset(at, &before) {
                let outcome = increase.add(&before)?;
                note_bounds(outcome.bounds_reconciled, HistogramOperation::Add, notes);
            }
            before = Cow::Borrowed(window.histograms[at].as_ref());
        }
        if overlaps {
            notes(Note::StartTimeOverlap);
        }
    }
    increase.reset_hint = ResetHint::Gauge;
    increase.compact(0);
    Ok(increase)
}

impl Window<'_> {
    fn histogram_stamp(&self, at: usize) -> Stamp {
        Stamp::at(self.histogram_times, self.histogram_starts, at)
    }

    /// Returns true if the counter was reset between the previous histogram and this one.
    fn is_reset(&self, at: usize, before: &Histogram) -> bool {
        self.histogram_stamp(at)
            .is_reset_after(self.histogram_stamp(at - 1))
            || self.histograms[at].detect_reset(before)
    }
}

/// Adds a histogram; returns `None`, with a note, if the histograms are incompatible.
pub(super) fn add(sum: &mut Histogram, other: &Histogram, notes: &mut Notes<'_>) -> Option<()> {
    match sum.add(other) {
        Ok(outcome) => {
            note_bounds(outcome.bounds_reconciled, HistogramOperation::Add, notes);
            Some(())
        }
        Err(_) => {
            notes(Note::MixedExponentialCustomHistograms);
            None
        }
    }
}

/// Subtracts a histogram; returns `None`, with a note, if the histograms are incompatible.
pub(super) fn subtract(difference: &mut Histogram, other: &Histogram, notes: &mut Notes<'_>) -> Option<()> {
    match difference.sub(other) {
        Ok(outcome) => {
            note_bounds(outcome.bounds_reconciled, HistogramOperation::Sub, notes);
            Some(())
        }
        Err(_) => {
            notes(Note::MixedExponentialCustomHistograms);
            None
        }
    }
}

pub(super) fn note_bounds(reconciled: bool, operation: HistogramOperation, notes: &mut Notes<'_>) {
    if reconciled {
        notes(Note::MismatchedCustomBuckets(operation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_found_where_parts_of_a_window_join() {
        let rising: Vec<f64> = (0..200).map(f64::from).collect();
        for count in 0..rising.len() {
            assert_eq!(with_resets(1.0, &rising[..count]).to_bits(), 1.0_f64.to_bits());
        }
        for reset in 1..rising.len() {
            let mut values = rising.clone();
            values[reset..].iter_mut().for_each(|value| *value -= 150.5);
            let expected = 1.0 + rising[reset - 1];
            assert_eq!(with_resets(1.0, &values).to_bits(), expected.to_bits(), "{reset}");
        }
        let gaps = [5.0, f64::NAN, 3.0, 7.0, 2.0];
        assert_eq!(with_resets(0.0, &gaps).to_bits(), 7.0_f64.to_bits());
    }
}
