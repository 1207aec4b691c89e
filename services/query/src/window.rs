//! Windows of a query: aligned, half-open, and numbered from the first that overlaps the range.
//!
//! Fixed windows are pure arithmetic, so that any number of them costs no memory; calendar windows are a list of
//! bounds.

use std::ops::Range;
use std::sync::Arc;

use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::points::Grid;

use crate::error::{QueryError, Result};
use crate::point_query::{Window, WindowSpec};

/// Windows that overlap a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    range: TimeRange,
    borders: Borders,
    count: u64,
}

/// Starts of the windows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Borders {
    /// The range is the only window.
    Whole,
    /// Multiples of a width, shifted by an offset.
    Fixed {
        spec: WindowSpec,
        /// Number of window 0, counted from the offset.
        first: i64,
    },
    /// Listed timestamps, ascending; the last one is the end of the last window.
    Listed(Arc<[i64]>),
}

/// Consecutive values in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Index of the window, counted from the first window of the query.
    pub window: usize,
    /// Positions of the values.
    pub values: Range<usize>,
}

impl Windows {
    /// Returns the windows of a range, which must not be empty. Fixed windows cost only arithmetic; calendar
    /// windows are listed.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`] if the width is not positive, or if the count or the offset of calendar windows is
    /// out of range.
    pub fn new(range: TimeRange, window: Option<Window>) -> Result<Self> {
        let (borders, count) = match window {
            None => (Borders::Whole, 1),
            Some(Window::Fixed(spec)) => fixed(range, spec)?,
            Some(Window::Calendar(calendar)) => {
                calendar.check()?;
                let bounds = calendar.bounds(range);
                let count = bounds.len() as u64 - 1;
                (Borders::Listed(bounds), count)
            }
        };
        Ok(Self {
            range,
            borders,
            count,
        })
    }

    /// Returns the number of windows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the start of a window, clamped to the range of `i64`; the first may start before the range.
    pub fn start(&self, window: usize) -> i64 {
        self.bound(window as i64)
    }

    /// Returns the window that contains a timestamp of the range.
    pub fn at(&self, time: i64) -> usize {
        // Timestamps are in the range, so the result is one of these windows.
        match &self.borders {
            Borders::Whole => 0,
            Borders::Fixed { spec, first } => number(spec, time).wrapping_sub(*first) as usize,
            Borders::Listed(bounds) => {
                let after = bounds.partition_point(|bound| *bound <= time);
                after.clamp(1, bounds.len() - 1) - 1
            }
        }
    }

    /// Returns a grid for a reader; each window of the grid is inside one window of the query.
    pub fn grid(&self) -> Grid {
        match &self.borders {
            Borders::Whole => Grid::Whole,
            Borders::Fixed { spec, .. } => Grid::Windows {
                width: spec.width,
                offset: spec.offset,
            },
            Borders::Listed(bounds) => common_grid(bounds),
        }
    }

    /// Returns the seconds of a window that are in the range.
    pub fn seconds(&self, window: usize) -> f64 {
        let start = self.start(window).max(self.range.start);
        let end = match self.borders {
            Borders::Whole => self.range.end,
            _ => self.bound(window as i64 + 1).min(self.range.end),
        };
        (i128::from(end) - i128::from(start)) as f64 / NANOS_PER_SECOND as f64
    }

    /// Cuts ascending timestamps of the range at the window boundaries. Replaces the content of `segments`.
    ///
    /// A window with as many timestamps as the previous one costs two comparisons; any other window costs a galloping
    /// search.
    pub fn cut(&self, times: &[i64], segments: &mut Vec<Segment>) {
        segments.clear();
        if times.is_empty() {
            return;
        }
        match &self.borders {
            Borders::Whole => segments.push(Segment {
                window: 0,
                values: 0..times.len(),
            }),
            Borders::Fixed { spec, first } => {
                let follow = |window: i64, bound: i64, time: i64| {
                    let next_bound = bound.saturating_add(spec.width);
                    if window >= 0 && time < next_bound {
                        return (window + 1, next_bound);
                    }
                    let window = number(spec, time).wrapping_sub(*first);
                    (window, self.bound(window.saturating_add(1)))
                };
                cut(times, segments, follow);
            }
            Borders::Listed(bounds) => {
                let follow = |window: i64, _: i64, time: i64| {
                    let next = window + 1;
                    let is_next = bounds.get(next as usize + 1).is_some_and(|bound| time < *bound);
                    let window = if is_next { next } else { self.at(time) as i64 };
                    (window, bounds[window as usize + 1])
                };
                cut(times, segments, follow);
            }
        }
    }

    /// Returns the start of a window, which is the end of the previous one.
    fn bound(&self, window: i64) -> i64 {
        match &self.borders {
            Borders::Whole => self.range.start,
            Borders::Fixed { spec, first } => {
                let number = i128::from(*first) + i128::from(window);
                let at = number * i128::from(spec.width) + i128::from(spec.offset);
                at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
            }
            Borders::Listed(bounds) => bounds[window as usize],
        }
    }
}

/// Returns windows of one width, and their number.
fn fixed(range: TimeRange, mut spec: WindowSpec) -> Result<(Borders, u64)> {
    if spec.width <= 0 {
        return Err(QueryError::Invalid("a window must be wider than zero".into()));
    }
    spec.offset = spec.offset.rem_euclid(spec.width);
    let first = number(&spec, range.start);
    let last = number(&spec, range.end - 1);
    let count = u64::try_from(i128::from(last) - i128::from(first) + 1).unwrap_or(u64::MAX);
    Ok((Borders::Fixed { spec, first }, count))
}

/// Cuts timestamps into segments. `follow` receives a window (negative before the first), the end of that window and
/// the next timestamp. `follow` returns the window that contains this timestamp, and the end of the returned window.
fn cut(times: &[i64], segments: &mut Vec<Segment>, follow: impl Fn(i64, i64, i64) -> (i64, i64)) {
    let (mut start, mut guess) = (0, 1);
    let (mut window, mut bound) = (-1, i64::MIN);
    while start < times.len() {
        (window, bound) = follow(window, bound, times[start]);
        let end = end_before(times, start, guess, bound);
        guess = end - start;
        segments.push(Segment {
            // Timestamps are in the range, so the result is one of these windows.
            window: window as usize,
            values: start..end,
        });
        start = end;
    }
}

/// Returns the widest windows of equal width for which every bound is the start of a window. Bounds at the limits of
/// `i64` are ignored.
fn common_grid(bounds: &[i64]) -> Grid {
    let inner = bounds
        .iter()
        .filter(|bound| !matches!(**bound, i64::MIN | i64::MAX));
    let inner: Vec<i64> = inner.copied().collect();
    let widths = inner
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]).unsigned_abs());
    let width = widths.fold(0, common_divisor);
    match (i64::try_from(width), inner.first()) {
        (Ok(width @ 1..), Some(first)) => Grid::Windows {
            width,
            offset: first.rem_euclid(width),
        },
        // Windows of one nanosecond contain no span of time, so no summary is used.
        _ => Grid::Windows { width: 1, offset: 0 },
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns the number of the window that contains a timestamp, counted from the offset.
fn number(spec: &WindowSpec, time: i64) -> i64 {
    match time.checked_sub(spec.offset) {
        Some(time) => time.div_euclid(spec.width),
        None => {
            let wide = (i128::from(time) - i128::from(spec.offset)).div_euclid(i128::from(spec.width));
            // If the width is at least two, the number fits 64 bits. If the width is one, the offset is zero, because
            // it is less than the width, and this branch is never reached.
            wide.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
        }
    }
}

/// Returns the first position after `start` whose timestamp is not before `bound`, or the length of `times`;
/// `times[start]` is before `bound`. `guess` is the expected distance from `start`, at least 1.
fn end_before(times: &[i64], start: usize, guess: usize, bound: i64) -> usize {
    let guessed = start + guess;
    let before = |at: usize| times[at - 1] < bound;
    if guessed < times.len() && before(guessed) && times[guessed] >= bound {
        return guessed;
    }
    let mut known = start + 1;
    let mut step = 1;
    while known + step <= times.len() && before(known + step) {
        known += step;
        step *= 2;
    }
    let end = times.len().min(known + step);
    known + times[known..end].partition_point(|time| *time < bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(windows: &Windows, spec: WindowSpec, times: &[i64]) -> Vec<(usize, i64)> {
        let offset = spec.offset.rem_euclid(spec.width);
        let number = |time: i64| (time - offset).div_euclid(spec.width);
        let found = times
            .iter()
            .map(|time| ((number(*time) - number(windows.range.start)) as usize, *time));
        found.collect()
    }

    #[test]
    fn instants_fall_into_the_window_that_holds_them() {
        let mut seed = tideline_testkit::seed("windows");
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..500 {
            let spec = WindowSpec {
                width: 1 + random(50) as i64,
                offset: random(100) as i64 - 50,
            };
            let range = TimeRange::new(-100 + random(50) as i64, 100 + random(400) as i64);
            let windows = Windows::new(range, Some(spec.into())).expect("valid");
            let share = 1 + random(9);
            let times: Vec<i64> = (range.start..range.end).filter(|_| random(share) == 0).collect();
            let mut segments = Vec::new();
            windows.cut(&times, &mut segments);
            let cut: Vec<(usize, i64)> = segments
                .iter()
                .flat_map(|segment| segment.values.clone().map(|at| (segment.window, times[at])))
                .collect();
            assert_eq!(cut, naive(&windows, spec, &times), "round {round} {spec:?}");
            assert!(segments.is_sorted_by(|a, b| a.window < b.window));
            for segment in &segments {
                assert!((segment.window as u64) < windows.count());
                assert!(windows.start(segment.window) <= times[segment.values.start]);
            }
        }
    }

    #[test]
    fn a_border_belongs_to_the_window_that_begins_there() {
        let windows =
            Windows::new(TimeRange::new(-15, 20), Some(WindowSpec::aligned(10).into())).expect("valid");
        assert_eq!(windows.count(), 4);
        assert_eq!((windows.start(0), windows.start(3)), (-20, 10));
        let mut segments = Vec::new();
        windows.cut(&[-11, -10, -1, 0, 19], &mut segments);
        let windows_of: Vec<usize> = segments.iter().map(|segment| segment.window).collect();
        assert_eq!(windows_of, [0, 1, 2, 3]);
        assert_eq!(segments[1].values, 1..3);
    }

    #[test]
    fn only_the_part_of_a_window_that_was_asked_for_counts_as_time() {
        let second = NANOS_PER_SECOND;
        let range = TimeRange::new(5 * second, 25 * second);
        let windows = Windows::new(range, Some(WindowSpec::aligned(10 * second).into())).expect("valid");
        let seconds: Vec<f64> = (0..3).map(|window| windows.seconds(window)).collect();
        assert_eq!(seconds, [5.0, 10.0, 5.0]);
        assert_eq!(Windows::new(range, None).expect("valid").seconds(0), 20.0);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        let mut segments = Vec::new();
        for width in [1, 2, 3_600 * NANOS_PER_SECOND, i64::MAX] {
            for offset in [0, -1, 1, i64::MAX, i64::MIN] {
                let spec = WindowSpec { width, offset };
                let windows = Windows::new(TimeRange::ALL, Some(spec.into())).expect("valid");
                assert!(windows.count() >= 2, "{spec:?}");
                if width > 2 {
                    windows.cut(&[i64::MIN + 2, 0, i64::MAX - 1], &mut segments);
                    assert_eq!(segments.last().map(|last| last.values.end), Some(3));
                    assert!(
                        segments
                            .iter()
                            .all(|segment| (segment.window as u64) < windows.count())
                    );
                }
            }
        }
        assert!(Windows::new(TimeRange::ALL, Some(WindowSpec::aligned(0).into())).is_err());
    }
}
