//! `rate`, `increase` and `delta` of `anchored` and `smoothed` ranges, the floats of such ranges, and interpolated
//! instant values.
//!
//! *Anchored*: the value at the start is the value of the last sample at or before the start, otherwise of the first
//! sample. The value at the end is the value of the last sample. *Smoothed*: the values at both ends are interpolated
//! linearly between the adjacent samples. If one of these samples is missing, the value of the other is used. Nothing
//! is extrapolated.

use std::sync::Arc;

use tideline_histogram::{Histogram, ResetHint};

use super::rate::{Kind, add, subtract};
use super::{Extent, Window};
use crate::note::{Note, Notes};
use crate::value::Point;

/// Indices of the first and last sample used for a range.
#[derive(Debug, Clone, Copy)]
struct Ends {
    first: usize,
    last: usize,
}

impl Window<'_> {
    /// Finds the samples used for the range. `first` is the last sample at or before the start, otherwise the first
    /// sample. `last` is the last sample; in a smoothed range, the first sample at or after the end, if any. Returns
    /// `None` if there are no samples, if all samples are at or before the start, or if a smoothed range ends before
    /// the first sample.
    fn ends(&self, times: &[i64]) -> Option<Ends> {
        let last = times.len().checked_sub(1)?;
        let first = times[..last]
            .partition_point(|time| *time <= self.start())
            .saturating_sub(1);
        let is_smoothed = self.extent == Extent::Smoothed;
        let last = match is_smoothed {
            true => times[..last].partition_point(|time| *time < self.end),
            false => last,
        };
        let is_outside = times[last] <= self.start() || (is_smoothed && times[first] > self.end);
        (!is_outside).then_some(Ends { first, last })
    }

    /// Returns true if the value at the start is interpolated.
    fn is_left_between(&self, times: &[i64], ends: Ends) -> bool {
        self.extent == Extent::Smoothed && times[ends.first] < self.start()
    }

    /// Returns true if the value at the end is interpolated.
    fn is_right_between(&self, times: &[i64], ends: Ends) -> bool {
        self.extent == Extent::Smoothed && ends.last > 0 && times[ends.last] > self.end
    }

    fn left(&self, ends: Ends, is_counter: bool) -> f64 {
        match self.is_left_between(self.times, ends) {
            true => self.between(ends.first, self.start(), is_counter),
            false => self.values[ends.first],
        }
    }

    fn right(&self, ends: Ends, is_counter: bool) -> f64 {
        match self.is_right_between(self.times, ends) {
            true => self.between(ends.last - 1, self.end, is_counter),
            false => self.values[ends.last],
        }
    }

    /// Interpolates between a float and the next one. If a counter was reset in between, the interpolation starts
    /// from zero.
    fn between(&self, at: usize, time: i64, is_counter: bool) -> f64 {
        let (mut from, to) = (self.values[at], self.values[at + 1]);
        if is_counter && to < from {
            from = 0.0;
        }
        from + (to - from) * (time - self.times[at]) as f64 / (self.times[at + 1] - self.times[at]) as f64
    }

    /// Returns the indices of the floats strictly within the range.
    fn inner(&self, ends: Ends) -> std::ops::Range<usize> {
        let from = ends.first + usize::from(self.times[ends.first] <= self.start());
        let to = ends.last + usize::from(self.times[ends.last] < self.end);
        from..to.max(from)
    }
}

pub(super) fn float_rate(window: &Window<'_>, kind: Kind) -> Option<f64> {
    let ends = window.ends(window.times)?;
    let (left, right) = (
        window.left(ends, kind.is_counter),
        window.right(ends, kind.is_counter),
    );
    let mut increase = right - left;
    if kind.is_counter {
        let mut before = left;
        let mut lost = 0.0;
        for value in window.values[window.inner(ends)].iter().copied().chain([right]) {
            if value < before {
                lost += before;
            }
            before = value;
        }
        increase += lost;
    }
    Some(if kind.by_second {
        increase / window.width_seconds()
    } else {
        increase
    })
}

pub(super) fn histogram_rate(window: &Window<'_>, kind: Kind, notes: &mut Notes<'_>) -> Option<Point> {
    let (times, all) = (window.histogram_times, window.histograms);
    let ends = window.ends(times)?;
    if !go_together(&all[ends.first..=ends.last], kind, notes) {
        return None;
    }
    let left = match window.is_left_between(times, ends) {
        true => interpolate(window, ends.first, window.start(), kind.is_counter, notes)?,
        false => Histogram::clone(&all[ends.first]),
    };
    let right = match window.is_right_between(times, ends) {
        true => interpolate(window, ends.last - 1, window.end, kind.is_counter, notes)?,
        false => Histogram::clone(&all[ends.last]),
    };
    let are_gauges = [&left, &right]
        .into_iter()
        .all(|histogram| histogram.reset_hint == ResetHint::Gauge);
    if !kind.is_counter && !are_gauges {
        notes(Note::NativeHistogramNotGauge);
    }
    let mut increase = right.clone();
    subtract(&mut increase, &left, notes)?;
    if kind.is_counter
        && let Some(lost) = lost_at_resets(window, ends, &left, &right, notes)?
    {
        add(&mut increase, &lost, notes)?;
    }
    if kind.by_second {
        increase.div(window.width_seconds());
    }
    increase.reset_hint = ResetHint::Gauge;
    increase.compact(0);
    Some(Point::Histogram(Arc::new(increase)))
}

/// Returns true if all histograms are exponential or all have custom bounds. Adds a note if they are mixed, and a
/// note for each gauge used as a counter.
fn go_together(histograms: &[Arc<Histogram>], kind: Kind, notes: &mut Notes<'_>) -> bool {
    let is_custom = histograms[0].uses_custom_buckets();
    for histogram in histograms {
        if histogram.uses_custom_buckets() != is_custom {
            notes(Note::MixedExponentialCustomHistograms);
            return false;
        }
        if kind.is_counter && histogram.reset_hint == ResetHint::Gauge {
            notes(Note::NativeHistogramNotCounter);
        }
    }
    true
}

/// Interpolates between a histogram and the next one. If a counter was reset in between, the interpolation starts
/// from zero.
fn interpolate(
    window: &Window<'_>,
    at: usize,
    time: i64,
    is_counter: bool,
    notes: &mut Notes<'_>,
) -> Option<Histogram> {
    let (from, to) = (&window.histograms[at], &window.histograms[at + 1]);
    let (from_time, to_time) = (window.histogram_times[at], window.histogram_times[at + 1]);
    if time == from_time {
        return Some(Histogram::clone(from));
    }
    let mut between = Histogram::clone(to);
    if time == to_time {
        return Some(between);
    }
    let part = (time - from_time) as f64 / (to_time - from_time) as f64;
    if is_counter && to.detect_reset(from) {
        between.mul(part);
        return Some(between);
    }
    subtract(&mut between, from, notes)?;
    between.mul(part);
    add(&mut between, from, notes)?;
    Some(between)
}

/// Returns the sum of the counter's values before each reset in the range; `Some(None)` without a reset,
/// `None` if the histograms are incompatible.
fn lost_at_resets(
    window: &Window<'_>,
    ends: Ends,
    left: &Histogram,
    right: &Histogram,
    notes: &mut Notes<'_>,
) -> Option<Option<Histogram>> {
    let all = window.histograms;
    let (mut from, mut before) = (ends.first + 1, left);
    let is_between = window.is_left_between(window.histogram_times, ends);
    if is_between && all[from].detect_reset(&all[ends.first]) {
        // The interpolated value at the start already includes this reset.
        before = &all[from];
        from += 1;
    }
    // Either both ends are the same sample, or the reset above is between the only two samples. In the second case, the
    // value at the end includes this reset too.
    if from > ends.last {
        return Some(None);
    }
    let mut lost: Option<Histogram> = None;
    // The last value is the right end: a sample or an interpolated value.
    for histogram in all[from..ends.last].iter().map(AsRef::as_ref).chain([right]) {
        if histogram.detect_reset(before) {
            match &mut lost {
                Some(lost) => add(lost, before, notes)?,
                None => lost = Some(before.clone()),
            }
        }
        before = histogram;
    }
    Some(lost)
}

/// Returns the value at the end of the range: the value of a sample at this time, or the value interpolated between the
/// adjacent samples, or the value of the last sample if no sample follows. Returns `None` if all samples are after the
/// end, and for mixed or incompatible samples.
pub fn smooth_at(window: &Window<'_>, notes: &mut Notes<'_>) -> Option<Point> {
    if window.is_mixed(notes) {
        return None;
    }
    let is_float = window.histograms.is_empty();
    let times = if is_float {
        window.times
    } else {
        window.histogram_times
    };
    let next = times.partition_point(|time| *time < window.end);
    if times.get(next) == Some(&window.end) {
        return Some(match is_float {
            true => Point::Float(window.values[next]),
            false => Point::Histogram(Arc::clone(&window.histograms[next])),
        });
    }
    let before = next.checked_sub(1)?;
    let is_last = next == times.len();
    if is_float {
        return Some(Point::Float(match is_last {
            true => window.values[before],
            false => window.between(before, window.end, false),
        }));
    }
    let at_end = match is_last {
        // The reset hint describes the change between two samples. It does not apply to a value at another time.
        true => Histogram {
            reset_hint: ResetHint::Unknown,
            ..Histogram::clone(&window.histograms[before])
        },
        false => {
            let around = &window.histograms[before..=next];
            if around[0].uses_custom_buckets() != around[1].uses_custom_buckets() {
                notes(Note::MixedExponentialCustomHistograms);
                return None;
            }
            let is_counter = around
                .iter()
                .any(|histogram| histogram.reset_hint != ResetHint::Gauge);
            interpolate(window, before, window.end, is_counter, notes)?
        }
    };
    Some(Point::Histogram(Arc::new(at_end)))
}

/// Returns the floats of an anchored or smoothed range: the values at both ends and the samples in between.
/// Returns an empty list without samples, and if all samples are at or before the start.
pub fn extend_floats(window: &Window<'_>) -> Vec<(i64, f64)> {
    let Some(ends) = window.ends(window.times) else {
        // If a smoothed range is before all samples, the first sample's value is used at both ends.
        let first = window.times.iter().zip(window.values).next();
        let behind = first.filter(|(time, _)| window.extent == Extent::Smoothed && **time > window.end);
        return behind.map_or(Vec::new(), |(_, value)| {
            vec![(window.start(), *value), (window.end, *value)]
        });
    };
    let inner = window.inner(ends);
    let mut extended = Vec::with_capacity(inner.len() + 2);
    extended.push((window.start(), window.left(ends, false)));
    extended.extend(inner.map(|at| (window.times[at], window.values[at])));
    extended.push((window.end, window.right(ends, false)));
    extended
}
