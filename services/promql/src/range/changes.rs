//! `changes` and `resets`: counts of adjacent samples that differ, or between which a counter was
//! reset.

use std::cmp::Ordering;

use super::stamped_sample::{Either, StampedSample};
use super::{Extent, Window};

pub(super) fn changes(window: &Window<'_>) -> Option<f64> {
    let (floats, histograms) = window.anchors()?;
    let is_change = |before: f64, last: f64| before != last && !(before.is_nan() && last.is_nan());
    if window.histograms.is_empty() {
        let pairs = window.values[floats..].windows(2);
        return Some(pairs.filter(|pair| is_change(pair[0], pair[1])).count() as f64);
    }
    Some(window.count_pairs(floats, histograms, |before, last| {
        match (before.value, last.value) {
            (Either::Float(before), Either::Float(last)) => is_change(before, last),
            (Either::Histogram(before), Either::Histogram(last)) => !last.same_as(before),
            _ => true,
        }
    }))
}

pub(super) fn resets(window: &Window<'_>) -> Option<f64> {
    let (floats, histograms) = window.anchors()?;
    if window.histograms.is_empty() && window.starts.is_empty() {
        let pairs = window.values[floats..].windows(2);
        return Some(pairs.filter(|pair| pair[1] < pair[0]).count() as f64);
    }
    Some(window.count_pairs(floats, histograms, |before, last| {
        last.stamp.is_reset_after(before.stamp)
            || match (before.value, last.value) {
                (Either::Float(before), Either::Float(last)) => last < before,
                (Either::Histogram(before), Either::Histogram(last)) => last.detect_reset(before),
                _ => true,
            }
    }))
}

impl Window<'_> {
    /// Returns the indices of the first float and the first histogram to use. An anchored range begins with the last
    /// sample at or before its start. The result is `None` if an anchored range has no sample after its start.
    fn anchors(&self) -> Option<(usize, usize)> {
        if self.extent != Extent::Anchored {
            return Some((0, 0));
        }
        let up_to_start = |times: &[i64]| times.partition_point(|time| *time <= self.start());
        let (floats, histograms) = (up_to_start(self.times), up_to_start(self.histogram_times));
        if floats == self.times.len() && histograms == self.histogram_times.len() {
            return None;
        }
        let float = floats.checked_sub(1).map(|at| self.times[at]);
        let histogram = histograms.checked_sub(1).map(|at| self.histogram_times[at]);
        // `None` is less than any timestamp.
        Some(match float.cmp(&histogram) {
            _ if float.is_none() && histogram.is_none() => (0, 0),
            Ordering::Less => (floats, histograms - 1),
            Ordering::Equal | Ordering::Greater => (floats - 1, histograms),
        })
    }

    /// Counts the pairs of adjacent samples for which `differs` returns true.
    fn count_pairs(
        &self,
        mut floats: usize,
        mut histograms: usize,
        differs: impl Fn(StampedSample<'_>, StampedSample<'_>) -> bool,
    ) -> f64 {
        let mut count = 0;
        let mut before = None;
        loop {
            let is_float = match (self.times.get(floats), self.histogram_times.get(histograms)) {
                (Some(float), Some(histogram)) => float < histogram,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return f64::from(count),
            };
            let sample = match is_float {
                true => {
                    floats += 1;
                    self.float_sample(floats - 1)
                }
                false => {
                    histograms += 1;
                    self.histogram_sample(histograms - 1)
                }
            };
            if let Some(before) = before.replace(sample) {
                count += u32::from(differs(before, sample));
            }
        }
    }
}
