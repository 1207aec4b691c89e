//! The windows of a query: aligned, half-open, numbered from the first that the range touches.

use std::ops::Range;
use std::sync::Arc;

use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::points::Grid;

use crate::error::{QueryError, Result};
use crate::question::{Window, WindowSpec};

/// The windows that a range touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    range: TimeRange,
    borders: Borders,
    count: u64,
}

/// Where windows begin.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Borders {
    /// The range is the one window.
    Whole,
    /// At multiples of a width.
    Fixed {
        spec: WindowSpec,
        /// Number, counted from the offset, of window 0.
        first: i64,
    },
    /// At these instants, rising; at the last one the last window ends.
    Listed(Arc<[i64]>),
}

/// Consecutive values that lie in one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The window, counted from the first of the query.
    pub window: usize,
    /// Positions of the values.
    pub values: Range<usize>,
}

impl Windows {
    /// The windows of a range that is not empty. Pure arithmetic, whatever their number; those of the calendar are listed.
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

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where a window begins, clamped to what can be told; the first may begin before the range.
    pub fn start(&self, window: usize) -> i64 {
        self.bound(window as i64)
    }

    /// The window of an instant of the range.
    pub fn at(&self, time: i64) -> usize {
        // Instants lie in the range, so this is one of its windows.
        match &self.borders {
            Borders::Whole => 0,
            Borders::Fixed { spec, first } => number(spec, time).wrapping_sub(*first) as usize,
            Borders::Listed(bounds) => {
                let behind = bounds.partition_point(|bound| *bound <= time);
                behind.clamp(1, bounds.len() - 1) - 1
            }
        }
    }

    /// Windows for a reader, each of which lies in one of these.
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

    /// Seconds of a window that lie in the range.
    pub fn seconds(&self, window: usize) -> f64 {
        let start = self.start(window).max(self.range.start);
        let end = match self.borders {
            Borders::Whole => self.range.end,
            _ => self.bound(window as i64 + 1).min(self.range.end),
        };
        (i128::from(end) - i128::from(start)) as f64 / NANOS_PER_SECOND as f64
    }

    /// Cuts rising instants of the range at the windows. Replaces the content of `segments`.
    ///
    /// A window as full as the one before it costs two comparisons, any other a galloping search.
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

    /// Where window `window` begins; the end of the one before it.
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

/// Windows of one width, and how many.
fn fixed(range: TimeRange, mut spec: WindowSpec) -> Result<(Borders, u64)> {
    if spec.width <= 0 {
        return Err(QueryError::Invalid("a window is wider than zero".into()));
    }
    spec.offset = spec.offset.rem_euclid(spec.width);
    let first = number(&spec, range.start);
    let last = number(&spec, range.end - 1);
    let count = u64::try_from(i128::from(last) - i128::from(first) + 1).unwrap_or(u64::MAX);
    Ok((Borders::Fixed { spec, first }, count))
}

/// Cuts instants where `follow` says: from a window (below zero before the first) and its end to the window of the next
/// instant and its end.
fn cut(times: &[i64], segments: &mut Vec<Segment>, follow: impl Fn(i64, i64, i64) -> (i64, i64)) {
    let (mut start, mut guess) = (0, 1);
    let (mut window, mut bound) = (-1, i64::MIN);
    while start < times.len() {
        (window, bound) = follow(window, bound, times[start]);
        let end = end_before(times, start, guess, bound);
        guess = end - start;
        segments.push(Segment {
            // Instants lie in the range, so this is one of its windows.
            window: window as usize,
            values: start..end,
        });
        start = end;
    }
}

/// The widest windows of one width that begin at all of some instants, the ends of time left out.
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
        // Nothing that has a length lies in one of these.
        _ => Grid::Windows { width: 1, offset: 0 },
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The number of the window, counted from the offset, that holds an instant.
fn number(spec: &WindowSpec, time: i64) -> i64 {
    match time.checked_sub(spec.offset) {
        Some(time) => time.div_euclid(spec.width),
        None => {
            let wide = (i128::from(time) - i128::from(spec.offset)).div_euclid(i128::from(spec.width));
            // A width of at least one nanosecond and an offset below it: the number is at most 64 bits, but for
            // a width of one, whose offset is zero and never comes here.
            wide.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
        }
    }
}

/// The first position from `start` on whose instant is not before `bound`; `times[start]` is.
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
