//! Columns: a series over the steps of a grid, with one entry per step from its first to its last value.
//!
//! A missing float is a NaN with all bits set, the same marker as in the data of a source. Operations skip
//! missing floats. [`present`] replaces a computed result that has these bits. Histograms are in a parallel
//! list, which is empty for series without histograms.

use std::sync::Arc;

use tideline_histogram::Histogram;

use crate::labels::{Labels, METRIC_NAME};
use crate::source::NO_RESULT_BITS;
use crate::value::Point;

/// Marker of a missing float.
pub(crate) const ABSENT: f64 = f64::from_bits(NO_RESULT_BITS);

/// Returns true if a float is missing.
#[inline]
pub(crate) fn is_absent(value: f64) -> bool {
    value.to_bits() == NO_RESULT_BITS
}

/// Returns the number; a NaN with the bits of [`ABSENT`] is replaced by another NaN.
#[inline]
pub(crate) fn present(value: f64) -> f64 {
    if is_absent(value) { f64::NAN } else { value }
}

/// Series over the steps of a grid.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) labels: Labels,
    /// True if the metric name is dropped at the end of the evaluation.
    pub(crate) drops_name: bool,
    /// Step of the first value.
    pub(crate) first: usize,
    pub(crate) values: Vec<f64>,
    /// Empty, or as long as `values`.
    pub(crate) histograms: Vec<Option<Arc<Histogram>>>,
}

/// Value at a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    Float(f64),
    Histogram(&'a Arc<Histogram>),
}

impl Cell<'_> {
    /// Returns the size in samples: 1, or more for a histogram.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Float(_) => 1,
            Self::Histogram(histogram) => histogram.sample_size(),
        }
    }

    pub(crate) fn to_point(self) -> Point {
        match self {
            Self::Float(value) => Point::Float(value),
            Self::Histogram(histogram) => Point::Histogram(Arc::clone(histogram)),
        }
    }
}

impl Column {
    /// Creates a column with the same number at every step.
    pub(crate) fn constant(labels: Labels, value: f64, steps: usize) -> Self {
        Self {
            labels,
            drops_name: false,
            first: 0,
            values: vec![present(value); steps],
            histograms: Vec::new(),
        }
    }

    /// Returns the step after the last value.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// Returns the floats of a range of steps within the column.
    pub(crate) fn floats(&self, steps: std::ops::Range<usize>) -> &[f64] {
        &self.values[steps.start - self.first..steps.end - self.first]
    }

    /// Returns the float at a step, or [`ABSENT`].
    #[inline]
    pub(crate) fn float(&self, step: usize) -> f64 {
        match step.checked_sub(self.first) {
            Some(at) => self.values.get(at).copied().unwrap_or(ABSENT),
            None => ABSENT,
        }
    }

    /// Returns the histogram at a step.
    #[inline]
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        let at = step.checked_sub(self.first)?;
        self.histograms.get(at)?.as_ref()
    }

    /// Returns the value at a step.
    #[inline]
    pub(crate) fn cell(&self, step: usize) -> Option<Cell<'_>> {
        let value = self.float(step);
        if !is_absent(value) {
            return Some(Cell::Float(value));
        }
        self.histogram(step).map(Cell::Histogram)
    }

    /// Iterates over the steps with a value.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (usize, Cell<'_>)> {
        (self.first..self.end()).filter_map(|step| Some((step, self.cell(step)?)))
    }

    pub(crate) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// Returns the cost against the limit of samples: the number of values, with histograms by their size,
    /// but at least half the number of steps from the first value to the last.
    pub(crate) fn cost(&self) -> usize {
        let floats = self.values.iter().filter(|value| !is_absent(**value)).count();
        let histograms: usize = self
            .histograms
            .iter()
            .flatten()
            .map(|histogram| histogram.sample_size())
            .sum();
        (floats + histograms).max(self.values.len() / 2)
    }

    /// Removes the metric name, `__type__` and `__unit__` from the labels.
    pub(crate) fn drop_name(&mut self) {
        self.labels = without_metadata(&self.labels);
    }

    /// Transforms each float and drops histograms. Returns `None` if no value is left.
    pub(crate) fn map_floats(mut self, function: impl Fn(f64) -> f64) -> Option<Self> {
        let mut is_empty = true;
        for value in &mut self.values {
            if !is_absent(*value) {
                *value = present(function(*value));
                is_empty = false;
            }
        }
        self.histograms = Vec::new();
        (!is_empty).then_some(self)
    }
}

/// Returns the labels without the metric name, `__type__` and `__unit__`.
pub(crate) fn without_metadata(labels: &Labels) -> Labels {
    labels.filtered(|name| !matches!(name, METRIC_NAME | "__type__" | "__unit__"))
}

/// Builder of a column. Values are added in order of step.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    /// End of the steps for which the first value reserves capacity.
    steps: usize,
    first: usize,
    values: Vec<f64>,
    histograms: Vec<Option<Arc<Histogram>>>,
}

impl ColumnBuilder {
    /// Creates a builder. The first added value reserves capacity for the steps from its own step to `steps`
    /// (exclusive). If many builders grow at the same time, pass 0: each then allocates as it grows.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            steps,
            first: 0,
            values: Vec::new(),
            histograms: Vec::new(),
        }
    }

    /// Adds a float at a step after all previous ones.
    #[inline]
    pub(crate) fn push_float(&mut self, step: usize, value: f64) {
        self.fill_to(step);
        self.values.push(present(value));
        if !self.histograms.is_empty() {
            self.histograms.push(None);
        }
    }

    /// Adds a histogram at a step after all previous ones.
    pub(crate) fn push_histogram(&mut self, step: usize, histogram: Arc<Histogram>) {
        self.fill_to(step);
        self.histograms.resize(self.values.len(), None);
        self.values.push(ABSENT);
        self.histograms.push(Some(histogram));
    }

    pub(crate) fn push(&mut self, step: usize, point: Point) {
        match point {
            Point::Float(value) => self.push_float(step, value),
            Point::Histogram(histogram) => self.push_histogram(step, histogram),
        }
    }

    pub(crate) fn push_cell(&mut self, step: usize, cell: Cell<'_>) {
        match cell {
            Cell::Float(value) => self.push_float(step, value),
            Cell::Histogram(histogram) => self.push_histogram(step, Arc::clone(histogram)),
        }
    }

    /// Returns the step after the last value.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of steps from the first value to the last.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Builds the column; `None` if it has no value.
    pub(crate) fn finish(mut self, labels: Labels, drops_name: bool) -> Option<Column> {
        if self.values.is_empty() {
            return None;
        }
        if self.values.len() < self.values.capacity() / 2 {
            self.values.shrink_to_fit();
        }
        Some(Column {
            labels,
            drops_name,
            first: self.first,
            values: self.values,
            histograms: self.histograms,
        })
    }

    fn fill_to(&mut self, step: usize) {
        if self.values.is_empty() {
            self.first = step;
            self.values.reserve_exact(self.steps.saturating_sub(step));
            return;
        }
        let length = step - self.first;
        if self.values.len() < length {
            self.values.resize(length, ABSENT);
            if !self.histograms.is_empty() {
                self.histograms.resize(length, None);
            }
        }
    }
}
