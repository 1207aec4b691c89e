//! Series whose labels have become equal are one series, as long as they have no value at the same step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::column::{Cell, Column, ColumnBuilder};
use super::{Scope, cost};
use crate::error::{PromqlError, Result};
use crate::labels::Labels;

impl Scope<'_> {
    /// Unites series of equal labels after something that has changed labels unless names are dropped at the end.
    pub(super) fn merged(&self, columns: Vec<Column>) -> Result<Vec<Column>> {
        if self.delays_names() {
            return Ok(columns);
        }
        self.merged_always(columns)
    }

    /// As `merged` and `merged_always`, of series that the budget holds: a gap between two that become one costs too.
    pub(super) fn merged_held(&self, columns: Vec<Column>, is_always: bool) -> Result<Vec<Column>> {
        if !is_always && self.delays_names() {
            return Ok(columns);
        }
        let before = cost(&columns);
        let columns = self.merged_always(columns)?;
        self.exchange(0, before, cost(&columns))?;
        Ok(columns)
    }

    /// Unites series of equal labels, in the place of the first; fails where two have a value at one step.
    pub(super) fn merged_always(&self, columns: Vec<Column>) -> Result<Vec<Column>> {
        let mut places: HashMap<Labels, usize> = HashMap::with_capacity(columns.len());
        let mut groups: Vec<Vec<Column>> = Vec::with_capacity(columns.len());
        for column in columns {
            match places.entry(column.labels.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(groups.len());
                    groups.push(vec![column]);
                }
                Entry::Occupied(entry) => groups[*entry.get()].push(column),
            }
        }
        groups.into_iter().map(|group| self.united(group)).collect()
    }

    fn united(&self, mut group: Vec<Column>) -> Result<Column> {
        if group.len() > 1 {
            // That whose values begin first says whether the name is to be dropped.
            group.sort_by_key(|column| column.first);
        }
        let mut columns = group.into_iter();
        let mut united = columns.next().expect("a group has a series");
        for column in columns {
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

    /// Fails if two series have equal labels, at whatever steps they have values.
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

/// What Prometheus says of two series with equal labels.
pub(super) fn same_labels() -> PromqlError {
    PromqlError::Execution("vector cannot contain metrics with the same labelset".to_owned())
}

/// Columns that grow by labels, step after step.
#[derive(Debug, Default)]
pub(super) struct ColumnsByLabels {
    places: HashMap<Labels, usize>,
    columns: Vec<(Labels, bool, ColumnBuilder)>,
}

impl ColumnsByLabels {
    /// The place of the series of these labels; it is made if there is none.
    pub(super) fn place(&mut self, labels: &Labels, drops_name: bool, steps: usize) -> usize {
        if let Some(place) = self.places.get(labels) {
            return *place;
        }
        let place = self.columns.len();
        self.places.insert(labels.clone(), place);
        self.columns
            .push((labels.clone(), drops_name, ColumnBuilder::new(steps)));
        place
    }

    /// Sets the value of a step; fails where it has one.
    pub(super) fn push(&mut self, place: usize, step: usize, cell: Cell<'_>) -> Result<()> {
        let builder = &mut self.columns[place].2;
        if builder.end() > step && !builder.is_empty() {
            return Err(same_labels());
        }
        builder.push_cell(step, cell);
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<Column> {
        self.columns
            .into_iter()
            .filter_map(|(labels, drops_name, builder)| builder.finish(labels, drops_name))
            .collect()
    }
}
