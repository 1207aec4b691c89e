//! Windows that slide over the samples of one series: two indices move forward, and each window is a slice.
//!
//! Stale markers are removed first. Floats are copied only if they contain such markers; histograms are always
//! copied.

use std::sync::Arc;

use tideline_histogram::{Histogram, ResetHint, is_stale};

use super::Scope;
use super::grid::Grid;
use crate::ast::{Bounds, TextRange};
use crate::error::Result;
use crate::matcher::Matcher;
use crate::note::{Note, Notes};
use crate::plan::{RangeSelector, Reference};
use crate::range::{Extent, Window};
use crate::source::{Samples, Select};

/// Number of samples in windows between two checks for timeout and cancellation: some milliseconds of work, or
/// tens of milliseconds if each window is sorted. Wide windows at many steps of one series can take minutes.
const UNCHECKED_MAX: usize = 1 << 20;

/// Window of a step: the samples in `(t - before, t + after]`, in milliseconds. `t` is the step's timestamp
/// after the time shift.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) reference: Reference,
    /// Width of the range as written.
    pub(super) width: i64,
    /// Distance from the shifted timestamp back to the start of the window (exclusive).
    pub(super) before: i64,
    /// Distance from the shifted timestamp forward to the end of the window (inclusive).
    pub(super) after: i64,
    pub(super) extent: Extent,
    /// True if the samples of each window count as processed.
    pub(super) is_counted: bool,
}

impl Spec {
    /// Creates the windows of a range selector. `anchored` extends the windows by the lookback at the
    /// start, `smoothed` at both ends.
    pub(super) fn of(range: &RangeSelector<'_>, lookback: i64) -> Self {
        let (extent, before, after) = match range.selector.bounds {
            Bounds::Plain => (Extent::Plain, 0, 0),
            Bounds::Anchored => (Extent::Anchored, lookback, 0),
            Bounds::Smoothed => (Extent::Smoothed, lookback, lookback),
        };
        Self {
            reference: range.selector.reference,
            width: range.width,
            before: range.width.saturating_add(before),
            after,
            extent,
            is_counted: true,
        }
    }

    /// Builds the request to the source.
    pub(super) fn select<'a>(&self, matchers: &'a [Matcher], grid: Grid) -> Select<'a> {
        Select {
            matchers,
            start: self.reference.at(grid.start).saturating_sub(self.before - 1),
            end: self.reference.at(grid.last()).saturating_add(self.after),
            over_time: None,
            with_starts: false,
        }
    }
}

/// Samples of a series without stale markers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) times: &'a [i64],
    pub(super) values: &'a [f64],
    pub(super) starts: &'a [i64],
    pub(super) histogram_times: &'a [i64],
    pub(super) histograms: &'a [Arc<Histogram>],
    pub(super) histogram_starts: &'a [i64],
}

/// Copied samples of a series without stale markers. Floats are copied only if they contain a stale marker.
#[derive(Debug, Default)]
pub(super) struct CopiedSamples {
    floats: Option<(Vec<i64>, Vec<f64>, Vec<i64>)>,
    histogram_times: Vec<i64>,
    histograms: Vec<Arc<Histogram>>,
    histogram_starts: Vec<i64>,
}

impl CopiedSamples {
    pub(super) fn of(samples: &Samples<'_>, skips_buckets: bool) -> Self {
        let mut copied = Self::default();
        if samples.values.iter().any(|value| is_stale(*value)) {
            let kept = |at: &usize| !is_stale(samples.values[*at]);
            let kept = || (0..samples.values.len()).filter(kept);
            copied.floats = Some((
                kept().map(|at| samples.times[at]).collect(),
                kept().map(|at| samples.values[at]).collect(),
                kept().filter_map(|at| samples.starts.get(at).copied()).collect(),
            ));
        }
        let mut before: Option<&Histogram> = None;
        for (at, histogram) in samples.histograms.iter().enumerate() {
            if is_stale(histogram.sum) {
                continue;
            }
            copied.histogram_times.push(samples.histogram_times[at]);
            if let Some(start) = samples.histogram_starts.get(at) {
                copied.histogram_starts.push(*start);
            }
            copied.histograms.push(Arc::new(match skips_buckets {
                true => with_found_reset(histogram, before),
                false => histogram.clone(),
            }));
            before = Some(histogram);
        }
        copied
    }

    pub(super) fn slice<'a>(&'a self, samples: &Samples<'a>) -> Slice<'a> {
        let (times, values, starts) = match &self.floats {
            Some((times, values, starts)) => (times.as_slice(), values.as_slice(), starts.as_slice()),
            None => (samples.times, samples.values, samples.starts),
        };
        Slice {
            times,
            values,
            starts,
            histogram_times: &self.histogram_times,
            histograms: &self.histograms,
            histogram_starts: &self.histogram_starts,
        }
    }
}

/// Copies a histogram without its buckets. If the previous histogram `before` is given, an unknown reset hint is
/// replaced by the result of reset detection, because functions cannot detect a reset without buckets.
pub(super) fn with_found_reset(histogram: &Histogram, before: Option<&Histogram>) -> Histogram {
    let mut stripped = Histogram {
        reset_hint: histogram.reset_hint,
        schema: histogram.schema,
        count: histogram.count,
        sum: histogram.sum,
        ..Histogram::default()
    };
    if let (ResetHint::Unknown, Some(before)) = (histogram.reset_hint, before) {
        stripped.reset_hint = match histogram.detect_reset(before) {
            true => ResetHint::Reset,
            false => ResetHint::NotReset,
        };
    }
    stripped
}

/// Index range of the samples in a window.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    first: usize,
    end: usize,
}

impl Ends {
    /// Advances to the samples after `after` up to `until` (inclusive).
    #[inline]
    fn advance(&mut self, times: &[i64], after: i64, until: i64) {
        while self.end < times.len() && times[self.end] <= until {
            self.end += 1;
        }
        while self.first < self.end && times[self.first] <= after {
            self.first += 1;
        }
    }

    fn of<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        match all.is_empty() {
            true => all,
            false => &all[self.first..self.end],
        }
    }
}

/// Notes on one series, each with its number of occurrences.
#[derive(Debug, Default)]
struct Noted(Vec<(Note, u64)>);

impl Noted {
    fn add(&mut self, note: Note) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == note) {
            *count += 1;
            return;
        }
        // Notes that contain NaN never compare equal, so their number must be limited.
        if self.0.len() < 64 {
            self.0.push((note, 1));
        }
    }
}

impl Scope<'_> {
    /// Calls `visit` for each step whose window contains a sample. Adds the notes of `visit` as annotations. Returns
    /// the sizes of the windows.
    pub(super) fn slide(
        &self,
        slice: &Slice<'_>,
        spec: Spec,
        metric: &str,
        at: TextRange,
        mut visit: impl FnMut(usize, &Window<'_>, &mut Notes<'_>) -> Result<()>,
    ) -> Result<WindowSizes> {
        let (mut floats, mut histograms) = (Ends::default(), Ends::default());
        let sizes = sizes(slice.histograms);
        let mut noted = Noted::default();
        let mut tally = Tally::of(self, spec.is_counted);
        let (mut widest, mut last) = (0, 0);
        let mut unchecked = 0;
        for step in 0..self.grid.steps {
            let time = self.grid.time(step);
            let end = spec.reference.at(time);
            let (after, until) = (end.saturating_sub(spec.before), end.saturating_add(spec.after));
            floats.advance(slice.times, after, until);
            histograms.advance(slice.histogram_times, after, until);
            let count = floats.end - floats.first + sizes[histograms.end] - sizes[histograms.first];
            tally.push(count as u64);
            (widest, last) = (widest.max(count), count);
            unchecked += count + 1;
            if unchecked > UNCHECKED_MAX {
                unchecked = 0;
                self.check()?;
            }
            if floats.first == floats.end && histograms.first == histograms.end {
                continue;
            }
            let window = Window {
                at: time,
                end,
                width: spec.width,
                extent: spec.extent,
                times: floats.of(slice.times),
                values: floats.of(slice.values),
                starts: floats.of(slice.starts),
                histogram_times: histograms.of(slice.histogram_times),
                histograms: histograms.of(slice.histograms),
                histogram_starts: histograms.of(slice.histogram_starts),
            };
            visit(step, &window, &mut |note| noted.add(note))?;
        }
        tally.hand_over();
        self.annotate_notes(&noted, metric, at);
        Ok(WindowSizes { widest, last })
    }

    fn annotate_notes(&self, noted: &Noted, metric: &str, at: TextRange) {
        if noted.0.is_empty() {
            return;
        }
        self.annotations(|annotations| {
            for (note, count) in &noted.0 {
                annotations.add_note_times(*note, *count, metric, at);
            }
        });
    }
}

/// Number of steps counted locally before the shared counters are updated.
const TALLY: usize = 1 << 12;

/// Local counter of the samples in the windows of consecutive steps.
struct Tally<'a> {
    scope: &'a Scope<'a>,
    is_counted: bool,
    /// Step of the first count.
    first: usize,
    counts: Vec<u64>,
}

impl<'a> Tally<'a> {
    fn of(scope: &'a Scope<'a>, is_counted: bool) -> Self {
        Self {
            scope,
            is_counted,
            first: 0,
            counts: Vec::with_capacity(scope.grid.steps.min(TALLY)),
        }
    }

    fn push(&mut self, count: u64) {
        self.counts.push(count);
        if self.counts.len() == TALLY {
            self.hand_over();
        }
    }

    /// Adds the counts to the evaluation's processed samples.
    fn hand_over(&mut self) {
        if self.is_counted {
            let counts = self.counts.iter().enumerate();
            self.scope
                .count(counts.map(|(at, count)| (self.first + at, *count)));
        }
        self.first += self.counts.len();
        self.counts.clear();
    }
}

/// Sizes of windows, in samples. One window of one series is held at a time.
#[derive(Debug)]
pub(super) struct WindowSizes {
    pub(super) widest: usize,
    /// Size of the window of the last step, which is held until the next series.
    pub(super) last: usize,
}

/// Returns prefix sums of the histograms' sizes in samples, one entry more than there are histograms.
fn sizes(histograms: &[Arc<Histogram>]) -> Vec<usize> {
    let mut sizes = Vec::with_capacity(histograms.len() + 1);
    let mut sum = 0;
    sizes.push(sum);
    for histogram in histograms {
        sum += histogram.sample_size();
        sizes.push(sum);
    }
    sizes
}
