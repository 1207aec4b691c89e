//! Merging of series whose labels have become equal. Two of these series with a value at the same step are an error.
//!
//! With delayed name removal, labels become final only at the end of an evaluation, so most operations skip
//! the merge.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::budget::Making;
use super::column::{Cell, Column, ColumnBuilder};
use super::{Scope, cost};
use crate::error::{PromqlError, Result};
use crate::labels::Labels;

impl Scope<'_> {
    /// Merges series with equal labels after an operation that dropped metric names. Does nothing if name
    /// removal is delayed.
    pub(super) fn merged(&self, columns: Vec<Column>) -> Result<Vec<Column>> {
        if self.delays_names() {
            return Ok(columns);
        }
        self.merged_always(columns)
    }

    /// Merges like [`Self::merged_always`], or like [`Self::merged`] if `is_always` is false, and adjusts the budget,
    /// which already holds the columns. The steps between merged series also have a cost.
    pub(super) fn merged_held(&self, columns: Vec<Column>, is_always: bool) -> Result<Vec<Column>> {
        if !is_always && self.delays_names() {
            return Ok(columns);
        }
        let before = cost(&columns);
        let columns = self.merged_always(columns)?;
        self.exchange(0, before, cost(&columns))?;
        Ok(columns)
    }

    /// Merges each set of series with equal labels into one series at the position of the first of them. Fails if two
    /// of them have a value at the same step.
    pub(super) fn merged_always(&self, columns: Vec<Column>) -> Result<Vec<Column>> {
        let mut positions: HashMap<Labels, usize> = HashMap::with_capacity(columns.len());
        let mut groups: Vec<Vec<Column>> = Vec::with_capacity(columns.len());
        for column in columns {
            match positions.entry(column.labels.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(groups.len());
                    groups.push(vec![column]);
                }
                Entry::Occupied(entry) => groups[*entry.get()].push(column),
            }
        }
        // A merged column also takes memory for the steps between its parts.
        let mut making = Making::of(self.budget(), groups.len());
        let united = groups.into_iter().map(|group| {
            if group.len() == 1 {
                return self.united(group);
            }
            let column = self.united(group)?;
            making.take(column.cost())?;
            Ok(column)
        });
        united.collect()
    }

    fn united(&self, mut group: Vec<Column>) -> Result<Column> {
        if group.len() > 1 {
            // The series with the earliest value determines whether the name is dropped.
            group.sort_by_key(|column| column.first);
        }
        let mut columns = group.into_iter();
        let mut united = columns.next().expect("a group has a series");
        for column in columns {
            // A pair takes as long as the steps that its series span together, and there can be many pairs.
            self.check()?;
            united = self.united_pair(united, &column)?;
        }
        Ok(united)
    }

    fn united_pair(&self, a: Column, b: &Column) -> Result<Column> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        for step in a.first.min(b.first)..a.end().max(b.end()) {
            match (a.cell(step), b.cell(step)) {
                (Some(_), Some(_)) => return Err(same_labels()),
                (Some(cell), None) | (None, Some(cell)) => builder.push_cell(step, cell),
                (None, None) => {}
            }
        }
        let united = builder.finish(a.labels, a.drops_name);
        Ok(united.expect("both have values"))
    }

    /// Fails if two series have equal labels, even if their steps differ. Does nothing if name removal is
    /// delayed.
    pub(super) fn must_differ(&self, columns: &[Column]) -> Result<()> {
        if self.delays_names() {
            return Ok(());
        }
        let mut seen = std::collections::HashSet::with_capacity(columns.len());
        match columns.iter().all(|column| seen.insert(&column.labels)) {
            true => Ok(()),
            false => Err(same_labels()),
        }
    }
}

/// Creates Prometheus' error for series with equal labels.
pub(super) fn same_labels() -> PromqlError {
    PromqlError::Execution("vector cannot contain metrics with the same labelset".to_owned())
}

/// Columns that grow step by step, addressed by their labels.
pub(super) struct ColumnsByLabels<'a> {
    making: Making<'a>,
    positions: HashMap<Labels, usize>,
    columns: Vec<Growing>,
}

#[derive(Debug)]
struct Growing {
    labels: Labels,
    drops_name: bool,
    builder: ColumnBuilder,
    /// Total size of the values, in samples.
    values: usize,
}

impl Growing {
    /// Returns the cost of the finished column.
    fn cost(&self) -> usize {
        self.values.max(self.builder.len() / 2)
    }
}

impl<'a> ColumnsByLabels<'a> {
    /// Creates an empty set for an operation with `series` input series.
    pub(super) fn of(scope: &'a Scope<'_>, series: usize) -> Self {
        Self {
            making: Making::of(scope.budget(), series),
            positions: HashMap::new(),
            columns: Vec::new(),
        }
    }

    /// Returns the position of the series with these labels; creates the series if needed. Fails if the limit
    /// is exceeded.
    pub(super) fn position(&mut self, labels: &Labels, drops_name: bool) -> Result<usize> {
        if let Some(position) = self.positions.get(labels) {
            return Ok(*position);
        }
        self.making.take_series(labels)?;
        let position = self.columns.len();
        self.positions.insert(labels.clone(), position);
        self.columns.push(Growing {
            labels: labels.clone(),
            drops_name,
            // There may be as many series as steps, so capacity is not reserved.
            builder: ColumnBuilder::new(0),
            values: 0,
        });
        Ok(position)
    }

    /// Adds the value of a step. Fails if the series already has a value at this step or later, or if the limit
    /// is exceeded.
    pub(super) fn push(&mut self, position: usize, step: usize, cell: Cell<'_>) -> Result<()> {
        let column = &mut self.columns[position];
        if column.builder.end() > step && !column.builder.is_empty() {
            return Err(same_labels());
        }
        let before = column.cost();
        column.builder.push_cell(step, cell);
        column.values += cell.size();
        self.making.take(column.cost() - before)
    }

    pub(super) fn finish(self) -> Vec<Column> {
        self.columns
            .into_iter()
            .filter_map(|column| column.builder.finish(column.labels, column.drops_name))
            .collect()
    }
}
