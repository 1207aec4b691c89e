//! Areas under the straight lines between consecutive points of a timeline, cut at the window boundaries.
//!
//! The rules are documented on [`Function`](crate::Function).

use tideline_engine::model::time::NANOS_PER_SECOND;

use super::Slice;
use super::scalar::Scalar;
use super::sum::Sum;
use crate::result::ValueRef;
use crate::window::Windows;

/// Sums of each window, and the state of the current timeline.
#[derive(Debug)]
pub struct Areas {
    grid: Windows,
    windows: Vec<Area>,
    /// Last point of the current timeline.
    before: Option<WindowPoint>,
}

/// Point and the window that contains it.
#[derive(Debug, Clone, Copy)]
struct WindowPoint {
    window: usize,
    time: i64,
    value: f64,
}

/// Sums over the lines and points of one window.
#[derive(Debug, Clone, Copy, Default)]
struct Area {
    /// Area in value × seconds.
    area: Sum,
    /// Nanoseconds of the window that are covered by a line, summed over timelines.
    crossed: i128,
    points: Sum,
    count: u64,
}

impl Areas {
    pub(super) fn new(grid: Windows) -> Self {
        // The caller has checked the number of windows against the cell limit.
        let windows = vec![Area::default(); grid.count() as usize];
        Self {
            grid,
            windows,
            before: None,
        }
    }

    pub(super) fn end_timeline(&mut self) {
        self.before = None;
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            for at in segment.values.clone() {
                if let Some(value) = Scalar::at(slice.values, at) {
                    self.add_one(segment.window, slice.times[at], value);
                }
            }
        }
    }

    /// Adds the next point of the timeline.
    pub(super) fn add_one(&mut self, window: usize, time: i64, value: Scalar) {
        if value.is_nan() {
            return;
        }
        let after = WindowPoint {
            window,
            time,
            value: value.as_f64(),
        };
        let cell = &mut self.windows[window];
        cell.points.add(Scalar::Float(after.value));
        cell.count += 1;
        let Some(before) = self.before.replace(after) else {
            return;
        };
        if before.window == window {
            cell.add_line(before.time, before.value, time, after.value);
            return;
        }
        let length = i128::from(time) - i128::from(before.time);
        let at = |border: i64| {
            let share = (i128::from(border) - i128::from(before.time)) as f64 / length as f64;
            before.value * (1.0 - share) + after.value * share
        };
        let (mut from, mut height) = (before.time, before.value);
        for crossed in before.window..window {
            let border = self.grid.start(crossed + 1);
            let next = at(border);
            self.windows[crossed].add_line(from, height, border, next);
            (from, height) = (border, next);
        }
        self.windows[window].add_line(from, height, time, after.value);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (area, other) in self.windows.iter_mut().zip(&other.windows) {
            area.area.merge(&other.area);
            area.crossed += other.crossed;
            area.points.merge(&other.points);
            area.count += other.count;
        }
    }

    /// Returns the value of `integral`; `None` if no line covers any part of the window.
    pub(super) fn integral(&self, window: usize) -> Option<ValueRef<'static>> {
        let area = &self.windows[window];
        (area.crossed > 0).then(|| ValueRef::Float(area.area.as_f64()))
    }

    /// Returns the value of `time_weighted_mean`. If no line covers any part of the window, returns the mean of the
    /// window's points; `None` without points.
    pub(super) fn mean(&self, window: usize) -> Option<ValueRef<'static>> {
        let area = &self.windows[window];
        if area.crossed > 0 {
            return Some(ValueRef::Float(area.area.as_f64() / seconds(area.crossed)));
        }
        (area.count > 0).then(|| ValueRef::Float(area.points.as_f64() / area.count as f64))
    }
}

impl Area {
    fn add_line(&mut self, from: i64, low: f64, to: i64, high: f64) {
        let length = i128::from(to) - i128::from(from);
        if length > 0 {
            self.crossed += length;
            self.area
                .add(Scalar::Float((low / 2.0 + high / 2.0) * seconds(length)));
        }
    }
}

fn seconds(nanos: i128) -> f64 {
    nanos as f64 / NANOS_PER_SECOND as f64
}
