//! First and last values with their timestamps.
//!
//! Values are compared by timestamp, and at equal timestamps by timeline id. A result therefore does not depend on how
//! the timelines are divided among the workers.

use tideline_engine::model::{ColumnData, Value};
use tideline_engine::points::ValueSummary;

use super::Slice;
use super::scalar::Scalar;
use crate::result::ValueRef;
use crate::window::Segment;

/// Side of a window from which the value is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// `first`.
    First,
    /// `last`.
    Last,
}

/// First or last value of each window.
///
/// Values are added in order of timeline id. For equal timestamps `first` keeps the earlier addition and `last`
/// takes the later one.
#[derive(Debug)]
pub struct Edges {
    edge: Edge,
    windows: Vec<Option<(i64, Value)>>,
    /// Bytes of the strings and histograms among the values.
    held: u64,
}

impl Edges {
    pub(super) fn new(edge: Edge, windows: usize) -> Self {
        let windows = vec![None; windows];
        Self {
            edge,
            windows,
            held: 0,
        }
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>) {
        for segment in slice.segments {
            let at = match self.edge {
                Edge::First => segment.values.start,
                Edge::Last => segment.values.end - 1,
            };
            let time = slice.times[at];
            if self.takes(segment.window, time) {
                self.keep(segment.window, time, value_at(slice.values, at));
            }
        }
    }

    pub(super) fn add_summary(&mut self, window: usize, summary: &ValueSummary) {
        let (time, found) = match self.edge {
            Edge::First => summary.first,
            Edge::Last => summary.last,
        };
        if self.takes(window, time) {
            self.keep(window, time, Scalar::from(found).to_value());
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (window, found) in other.windows.into_iter().enumerate() {
            if let Some((time, value)) = found
                && self.takes(window, time)
            {
                self.keep(window, time, value);
            }
        }
    }

    /// Returns the bytes of the values that are strings or histograms.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn get(&self, window: usize) -> Option<ValueRef<'_>> {
        self.windows[window].as_ref().map(|(_, value)| value.into())
    }

    fn keep(&mut self, window: usize, time: i64, value: Value) {
        self.held += value.owned_bytes() as u64;
        if let Some((_, before)) = self.windows[window].replace((time, value)) {
            self.held -= before.owned_bytes() as u64;
        }
    }

    fn takes(&self, window: usize, time: i64) -> bool {
        match (&self.windows[window], self.edge) {
            (None, _) => true,
            (Some((kept, _)), Edge::First) => time < *kept,
            (Some((kept, _)), Edge::Last) => time >= *kept,
        }
    }
}

/// Returns the first and the last value of a segment with their timestamps; `None` for strings and histograms.
pub(super) fn at_edges(slice: &Slice<'_>, segment: &Segment) -> Option<((i64, Scalar), (i64, Scalar))> {
    let of = |at: usize| Some((slice.times[at], Scalar::at(slice.values, at)?));
    Some((of(segment.values.start)?, of(segment.values.end - 1)?))
}

fn value_at(values: &ColumnData, at: usize) -> Value {
    match values {
        ColumnData::Float(values) => Value::Float(values[at]),
        ColumnData::Signed(values) => Value::Signed(values[at]),
        ColumnData::Unsigned(values) => Value::Unsigned(values[at]),
        ColumnData::Boolean(values) => Value::Boolean(values[at]),
        ColumnData::String(texts) => Value::String(texts.get(at).into()),
        ColumnData::Histogram(histograms) => Value::Histogram(histograms.get(at).into()),
    }
}
