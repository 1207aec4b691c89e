//! The windows of a query: aligned, half-open, numbered from the first that the range touches.

use std::ops::Range;

use tideline_model::TimeRange;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_series_store::scan::Grid;

use crate::error::{QueryError, Result};
use crate::question::WindowSpec;

/// The windows that a range touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    range: TimeRange,
    /// `None` = the range is the one window.
    spec: Option<WindowSpec>,
    /// Number, counted from the offset, of window 0.
    first: i64,
    count: u64,
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
    /// The windows of a range that is not empty. Pure arithmetic, whatever their number.
    pub fn new(range: TimeRange, spec: Option<WindowSpec>) -> Result<Self> {
        let Some(mut spec) = spec else {
            return Ok(Self {
                range,
                spec: None,
                first: 0,
                count: 1,
            });
        };
        if spec.width <= 0 {
            return Err(QueryError::Invalid("a window is wider than zero".into()));
        }
        spec.offset = spec.offset.rem_euclid(spec.width);
        let first = number(&spec, range.start);
        let last = number(&spec, range.end - 1);
        Ok(Self {
            range,
            spec: Some(spec),
            first,
            count: u64::try_from(i128::from(last) - i128::from(first) + 1).unwrap_or(u64::MAX),
        })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where a window begins, clamped to what can be told; the first may begin before the range.
    pub fn start(&self, window: usize) -> i64 {
        self.bound(window as i128)
    }

    /// The window of an instant of the range.
    pub fn at(&self, time: i64) -> usize {
        // Instants lie in the range, so this is one of its windows.
        self.spec
            .map_or(0, |spec| number(&spec, time).wrapping_sub(self.first) as usize)
    }

    /// The same windows, for a reader.
    pub fn grid(&self) -> Grid {
        match self.spec {
            None => Grid::Whole,
            Some(WindowSpec { width, offset }) => Grid::Windows { width, offset },
        }
    }

    /// Seconds of a window that lie in the range.
    pub fn seconds(&self, window: usize) -> f64 {
        let start = self.start(window).max(self.range.start);
        let end = match self.spec {
            Some(_) => self.bound(window as i128 + 1).min(self.range.end),
            None => self.range.end,
        };
        (i128::from(end) - i128::from(start)) as f64 / NANOS_PER_SECOND as f64
    }

    /// Cuts rising instants of the range at the windows. Replaces the content of `segments`.
    ///
    /// A window as full as the one before it costs two comparisons, any other a galloping search.
    pub fn cut(&self, times: &[i64], segments: &mut Vec<Segment>) {
        segments.clear();
        let Some(spec) = self.spec else {
            if !times.is_empty() {
                segments.push(Segment {
                    window: 0,
                    values: 0..times.len(),
                });
            }
            return;
        };
        let mut start = 0;
        let mut guess = 1;
        let mut window = -1;
        let mut bound = i64::MIN;
        while start < times.len() {
            let time = times[start];
            let next_bound = bound.saturating_add(spec.width);
            if window >= 0 && time < next_bound {
                window += 1;
                bound = next_bound;
            } else {
                window = number(&spec, time).wrapping_sub(self.first);
                bound = self.bound(i128::from(window) + 1);
            }
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

    /// Where window `window` begins; the end of the one before it.
    fn bound(&self, window: i128) -> i64 {
        match self.spec {
            Some(spec) => {
                let at = (i128::from(self.first) + window) * i128::from(spec.width) + i128::from(spec.offset);
                at.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
            }
            None => self.range.start,
        }
    }
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
        let mut seed = 7u64;
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
            let windows = Windows::new(range, Some(spec)).expect("valid");
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
        let windows = Windows::new(TimeRange::new(-15, 20), Some(WindowSpec::aligned(10))).expect("valid");
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
        let windows = Windows::new(range, Some(WindowSpec::aligned(10 * second))).expect("valid");
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
                let windows = Windows::new(TimeRange::ALL, Some(spec)).expect("valid");
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
        assert!(Windows::new(TimeRange::ALL, Some(WindowSpec::aligned(0))).is_err());
    }
}
