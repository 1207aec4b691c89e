//! `count_values`: one series for each distinct value of a group.

use std::collections::BTreeMap;

use super::super::column::{Cell, Column};
use super::super::labels_call::with_label;
use super::super::merge::ColumnsByLabels;
use super::super::{Scope, cost};
use super::keeps_label;
use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::number;
use crate::plan::{Aggregate, Kind, Node};
use crate::quote::quote_bytes;

impl Scope<'_> {
    /// Counts equal values.
    pub(super) fn count_values(&self, aggregate: &Aggregate<'_>) -> Result<Vec<Column>> {
        let Some(Node {
            kind: Kind::Text(text),
            ..
        }) = &aggregate.parameter
        else {
            return Err(PromqlError::Execution(
                "count_values takes a label name".to_owned(),
            ));
        };
        let label = text.value.as_str();
        if label.is_empty() || text.invalid.is_some() {
            let written = quote_bytes(text.invalid.as_deref().unwrap_or(label.as_bytes()));
            return Err(PromqlError::Execution(format!("invalid label name {written}")));
        }
        let columns = self.vector(&aggregate.inner)?;
        let keeps = |name: &str| match aggregate.is_without {
            true => keeps_label(aggregate, name),
            false => name == label || keeps_label(aggregate, name),
        };
        // At each step, all series that result in the same labels (those of the group and the value) are counted
        // together.
        let bases: Vec<Labels> = columns.iter().map(|column| column.labels.clone()).collect();
        let mut result = ColumnsByLabels::of(self, columns.len());
        let mut known: Vec<Option<(String, usize)>> = vec![None; columns.len()];
        for step in 0..self.grid.steps {
            self.check()?;
            let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
            for (at, column) in columns.iter().enumerate() {
                self.check_now_and_then(at)?;
                let Some(cell) = column.cell(step) else { continue };
                let value = match cell {
                    Cell::Float(value) => number::plain(value),
                    Cell::Histogram(histogram) => histogram.to_string(),
                };
                let position = match &known[at] {
                    Some((before, position)) if *before == value => *position,
                    _ => {
                        let labels = with_label(&bases[at], label, &value).filtered(keeps);
                        let position = result.position(&labels, false)?;
                        known[at] = Some((value, position));
                        position
                    }
                };
                *counts.entry(position).or_default() += 1;
            }
            for (position, count) in counts {
                result.push(position, step, Cell::Float(count as f64))?;
            }
        }
        let result = result.finish();
        self.exchange(columns.len(), cost(&columns), cost(&result))?;
        Ok(result)
    }
}
