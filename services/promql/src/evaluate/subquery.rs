//! Evaluation of subqueries, each on a separate grid, and conversion of the results to samples.
//!
//! The grid consists of multiples of the step, so its timestamps do not move with the query's time range.

use std::sync::{Arc, PoisonError};

use tideline_histogram::{Histogram, ResetHint};

use super::Scope;
use super::column::{Cell, Column, is_absent};
use super::grid::Grid;
use super::window::Slice;
use crate::error::Result;
use crate::plan::Subquery;

impl Scope<'_> {
    /// Evaluates a subquery. Returns its series, its grid, and the number of processed samples.
    pub(super) fn subquery(&self, subquery: &Subquery<'_>) -> Result<(Vec<Column>, Grid, u64)> {
        let interval = subquery
            .interval
            .unwrap_or(self.shared.settings.default_subquery_step)
            .max(1);
        let end = subquery.reference.at(self.grid.last());
        // Timestamps are multiples of the step, so that they stay the same when the query's range moves.
        let after = subquery
            .reference
            .at(self.grid.start)
            .saturating_sub(subquery.width);
        let start = after
            .div_euclid(interval)
            .saturating_add(1)
            .saturating_mul(interval);
        let grid = Grid::new(start, end, interval, self.shared.settings.max_samples)?;
        if grid.steps == 0 {
            return Ok((Vec::new(), grid, 0));
        }
        let scope = Scope::new(self.shared, grid)?;
        let columns = scope.vector(&subquery.inner)?;
        let samples = scope.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((columns, grid, samples.iter().sum()))
    }
}

/// Samples of a column.
pub(super) struct SubquerySamples {
    times: Vec<i64>,
    values: Vec<f64>,
    histogram_times: Vec<i64>,
    histograms: Vec<Arc<Histogram>>,
}

impl SubquerySamples {
    /// Returns the bytes reserved for the timestamps and floats of a column. Histograms are not counted.
    pub(super) fn bytes(column: &Column) -> usize {
        column.values.len() * (size_of::<i64>() + size_of::<f64>())
    }

    pub(super) fn of(column: &Column, grid: Grid) -> Self {
        let mut samples = Self {
            times: Vec::with_capacity(column.values.len()),
            values: Vec::with_capacity(column.values.len()),
            histogram_times: Vec::new(),
            histograms: Vec::new(),
        };
        if !column.has_histograms() {
            for (at, value) in column
                .values
                .iter()
                .enumerate()
                .filter(|(_, value)| !is_absent(**value))
            {
                samples.times.push(grid.time(column.first + at));
                samples.values.push(*value);
            }
            return samples;
        }
        for (step, cell) in column.cells() {
            match cell {
                Cell::Float(value) => {
                    samples.times.push(grid.time(step));
                    samples.values.push(value);
                }
                Cell::Histogram(histogram) => {
                    samples.histogram_times.push(grid.time(step));
                    samples.histograms.push(without_hint(histogram));
                }
            }
        }
        samples
    }

    pub(super) fn slice(&self) -> Slice<'_> {
        Slice {
            times: &self.times,
            values: &self.values,
            starts: &[],
            histogram_times: &self.histogram_times,
            histograms: &self.histograms,
            histogram_starts: &[],
        }
    }
}

/// Removes a hint about a reset; a gauge hint stays. Hints about resets are valid only between adjacent stored
/// samples, and a subquery may skip or repeat samples.
fn without_hint(histogram: &Arc<Histogram>) -> Arc<Histogram> {
    match histogram.reset_hint {
        ResetHint::Unknown | ResetHint::Gauge => Arc::clone(histogram),
        ResetHint::Reset | ResetHint::NotReset => Arc::new(Histogram {
            reset_hint: ResetHint::Unknown,
            ..Histogram::clone(histogram)
        }),
    }
}
