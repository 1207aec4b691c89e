//! Series as columns: one place for each step, between the first and the last step that have a value.
//!
//! A missing number is a NaN with all bits set, which is what a source hands out as well; arithmetic meets it nowhere,
//! and [`present`] keeps results off it. Histograms stand beside the numbers, only where a series has any.

use std::sync::Arc;

use tideline_histogram::Histogram;

use crate::labels::{Labels, METRIC_NAME};
use crate::source::NO_RESULT_BITS;
use crate::value::Point;

/// What stands for a missing number.
pub(crate) const ABSENT: f64 = f64::from_bits(NO_RESULT_BITS);

/// Whether a number is missing.
#[inline]
pub(crate) fn is_absent(value: f64) -> bool {
    value.to_bits() == NO_RESULT_BITS
}

/// The number, or another NaN if it has the bits of the missing one.
#[inline]
pub(crate) fn present(value: f64) -> f64 {
    if is_absent(value) { f64::NAN } else { value }
}

/// A series over the steps of a grid.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) labels: Labels,
    /// Whether the metric name is to be dropped at the end of the evaluation.
    pub(crate) drops_name: bool,
    /// The step of the first value.
    pub(crate) first: usize,
    pub(crate) values: Vec<f64>,
    /// Empty, or as long as `values`.
    pub(crate) histograms: Vec<Option<Arc<Histogram>>>,
}

/// A value at a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cell<'a> {
    Float(f64),
    Histogram(&'a Arc<Histogram>),
}

impl Cell<'_> {
    /// What it counts as: one sample, or, of a histogram, several.
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
    /// The same number at every step.
    pub(crate) fn constant(labels: Labels, value: f64, steps: usize) -> Self {
        Self {
            labels,
            drops_name: false,
            first: 0,
            values: vec![present(value); steps],
            histograms: Vec::new(),
        }
    }

    /// The step behind its last value.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// The numbers at steps between its ends.
    pub(crate) fn floats(&self, steps: std::ops::Range<usize>) -> &[f64] {
        &self.values[steps.start - self.first..steps.end - self.first]
    }

    /// The number at a step.
    #[inline]
    pub(crate) fn float(&self, step: usize) -> f64 {
        match step.checked_sub(self.first) {
            Some(at) => self.values.get(at).copied().unwrap_or(ABSENT),
            None => ABSENT,
        }
    }

    /// The histogram at a step.
    #[inline]
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        let at = step.checked_sub(self.first)?;
        self.histograms.get(at)?.as_ref()
    }

    /// The value at a step.
    #[inline]
    pub(crate) fn cell(&self, step: usize) -> Option<Cell<'_>> {
        let value = self.float(step);
        if !is_absent(value) {
            return Some(Cell::Float(value));
        }
        self.histogram(step).map(Cell::Histogram)
    }

    /// The values with their steps.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (usize, Cell<'_>)> {
        (self.first..self.end()).filter_map(|step| Some((step, self.cell(step)?)))
    }

    pub(crate) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// What it counts as against the limit of samples: its values, histograms by their size; a place without a value
    /// costs half of one.
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

    /// Takes the metric name and the labels of type and unit from the labels.
    pub(crate) fn drop_name(&mut self) {
        self.labels = without_metadata(&self.labels);
    }

    /// Changes each number and leaves out histograms; `None` = nothing is left.
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

/// The labels without the metric name, and those that say type and unit of a metric.
pub(crate) fn without_metadata(labels: &Labels) -> Labels {
    labels.filtered(|name| !matches!(name, METRIC_NAME | "__type__" | "__unit__"))
}

/// Makes a column by rising steps.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    /// Up to here room is taken with the first value.
    steps: usize,
    first: usize,
    values: Vec<f64>,
    histograms: Vec<Option<Arc<Histogram>>>,
}

impl ColumnBuilder {
    /// Room is taken with the first value for all steps to `steps`: where columns are made one after another. Where many
    /// grow beside each other, `steps` is zero, and each takes room as it grows.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            steps,
            first: 0,
            values: Vec::new(),
            histograms: Vec::new(),
        }
    }

    /// Sets the number of a step behind those set before.
    #[inline]
    pub(crate) fn push_float(&mut self, step: usize, value: f64) {
        self.fill_to(step);
        self.values.push(present(value));
        if !self.histograms.is_empty() {
            self.histograms.push(None);
        }
    }

    /// Sets the histogram of a step behind those set before.
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

    /// The step behind the last that is set.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many places there are from the first value to the last.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The column; `None` = it has no value.
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
