//! Conversion of an evaluated plan to the query result, with annotations and statistics.
//!
//! Range vectors at the root of a plan are evaluated here, because `Value` has no variant for them.

use std::sync::PoisonError;

use super::column::{Cell, Column};
use super::grid::Grid;
use super::{QueryParameters, QueryResult, Scalar, Scope, Shared, Stats, Value};
use crate::ast::ValueType;
use crate::error::Result;
use crate::labels::Labels;
use crate::plan::{Kind, Node};
use crate::value::{QueryValue, Sample, Series};

/// Evaluates the root of a plan and builds the query result.
pub(super) fn result_of(
    shared: &Shared<'_>,
    root: &Node<'_>,
    grid: Grid,
    parameters: &QueryParameters<'_>,
) -> Result<QueryResult> {
    let scope = Scope::new(shared, grid)?;
    let value = match &root.kind {
        _ if grid.steps == 0 => QueryValue::Matrix(Vec::new()),
        Kind::Range(range) => QueryValue::Matrix(sorted(scope.range_series(range, root.at)?)),
        Kind::Subquery(subquery) => {
            let (columns, inner, count) = scope.subquery(subquery)?;
            scope.count(std::iter::once((grid.steps - 1, count)));
            let columns = scope.cleaned(columns)?;
            QueryValue::Matrix(sorted(
                columns.into_iter().map(|column| series(column, inner)).collect(),
            ))
        }
        _ => match scope.held_value(root)? {
            Value::Text(value) => QueryValue::String {
                time: grid.start,
                value,
            },
            Value::Scalar(scalar) if parameters.step == 0 => QueryValue::Scalar {
                time: grid.start,
                value: scalar.at(0),
            },
            Value::Scalar(scalar) => QueryValue::Matrix(vec![scalar_series(&scalar, grid)]),
            Value::Vector(columns) => vector(scope.cleaned(columns)?, grid, parameters.step == 0),
        },
    };
    scope.check()?;
    debug_assert!(parameters.step == 0 || root.value_type != ValueType::Matrix);
    let samples = scope.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    let annotations = shared.annotations.lock().unwrap_or_else(PoisonError::into_inner);
    let (warnings, infos) = annotations.texts(parameters.text);
    Ok(QueryResult {
        value,
        warnings,
        infos,
        stats: Stats {
            samples_total: samples.iter().sum(),
            samples_peak: shared.budget.peak() as u64,
            samples_per_step: samples
                .iter()
                .enumerate()
                .map(|(step, count)| (grid.time(step), *count))
                .collect(),
        },
    })
}

impl Scope<'_> {
    /// Evaluates the root. Afterwards the budget holds exactly the cost of its value.
    fn held_value(&self, root: &Node<'_>) -> Result<Value> {
        let value = self.value(root)?;
        debug_assert_eq!(
            self.budget().held(),
            match &value {
                Value::Scalar(_) => self.grid.steps,
                Value::Vector(columns) => super::cost(columns),
                Value::Text(_) => 0,
            }
        );
        Ok(value)
    }

    /// Drops the metric names whose removal was delayed.
    fn cleaned(&self, mut columns: Vec<Column>) -> Result<Vec<Column>> {
        if !self.delays_names() {
            return Ok(columns);
        }
        for column in columns.iter_mut().filter(|column| column.drops_name) {
            column.drop_name();
        }
        self.merged_always(columns)
    }
}

fn vector(columns: Vec<Column>, grid: Grid, is_instant: bool) -> QueryValue {
    if !is_instant {
        return QueryValue::Matrix(sorted(
            columns.into_iter().map(|column| series(column, grid)).collect(),
        ));
    }
    let samples = columns.into_iter().filter_map(|column| {
        let value = column.cell(0)?.to_point();
        Some(Sample {
            time: grid.start,
            value,
            labels: column.labels,
        })
    });
    QueryValue::Vector(samples.collect())
}

fn series(column: Column, grid: Grid) -> Series {
    let (mut floats, mut histograms) = (Vec::new(), Vec::new());
    floats.reserve_exact(column.values.len());
    for (step, cell) in column.cells() {
        match cell {
            Cell::Float(value) => floats.push((grid.time(step), value)),
            Cell::Histogram(histogram) => histograms.push((grid.time(step), histogram.clone())),
        }
    }
    Series {
        labels: column.labels,
        floats,
        histograms,
    }
}

fn scalar_series(scalar: &Scalar, grid: Grid) -> Series {
    Series {
        labels: Labels::empty(),
        floats: (0..grid.steps)
            .map(|step| (grid.time(step), scalar.at(step)))
            .collect(),
        histograms: Vec::new(),
    }
}

fn sorted(mut series: Vec<Series>) -> Vec<Series> {
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    series
}
