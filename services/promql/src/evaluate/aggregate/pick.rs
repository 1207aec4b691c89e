//! Aggregations that select series: `topk`, `bottomk`, `limitk`, `limit_ratio`.
//!
//! The selection is made step by step. The result contains input series with unchanged labels.

use super::super::column::{Cell, Column, ColumnBuilder};
use super::super::{Scalar, Scope};
use super::Group;
use super::heap::Heap;
use crate::ast::{AggregateOp, TextRange};
use crate::error::Result;
use crate::hash;

impl Scope<'_> {
    /// Selects series at each step. The result of an instant query is ordered by the selection.
    pub(super) fn picked(
        &self,
        op: AggregateOp,
        groups: &[Group<'_>],
        series: usize,
        parameter: &Scalar,
        at: TextRange,
    ) -> Result<Vec<Column>> {
        let mut result = Vec::new();
        for group in groups {
            self.check()?;
            if op == AggregateOp::LimitRatio
                || group.steps().any(|step| wanted(parameter.at(step), series) > 0)
            {
                self.remark_histograms(op, group, at);
            }
            // No builder exceeds its source column, so each reserves no more than the length of that column.
            let builder_of = |column: &&Column| ColumnBuilder::new(column.end());
            let mut builders: Vec<ColumnBuilder> = group.members.iter().map(builder_of).collect();
            let mut picker = Picker::of(op, group, series);
            for step in group.steps() {
                self.check()?;
                picker.pick(group, step, parameter.at(step));
                for at in &picker.picked {
                    if let Some(cell) = group.members[*at].cell(step) {
                        builders[*at].push_cell(step, cell);
                    }
                }
            }
            // An instant query has one step, so the last selection is the whole result, in its order.
            if self.grid.is_instant() {
                for at in &picker.picked {
                    let builder = std::mem::replace(&mut builders[*at], ColumnBuilder::new(0));
                    let column = group.members[*at];
                    result.extend(builder.finish(column.labels.clone(), column.drops_name));
                }
                continue;
            }
            for (column, builder) in group.members.iter().zip(builders) {
                result.extend(builder.finish(column.labels.clone(), column.drops_name));
            }
        }
        Ok(result)
    }
}

/// Step-by-step selection of a group's members.
struct Picker {
    op: AggregateOp,
    /// Number of series in all groups together.
    series: usize,
    /// Position of each member between 0 and 1; empty except for `limit_ratio`.
    offsets: Vec<f64>,
    heap: Heap,
    /// Members of the last selection, in order.
    picked: Vec<usize>,
}

impl Picker {
    fn of(op: AggregateOp, group: &Group<'_>, series: usize) -> Self {
        let offsets = match op {
            AggregateOp::LimitRatio => group.members.iter().map(|column| offset(column)).collect(),
            _ => Vec::new(),
        };
        Self {
            op,
            series,
            offsets,
            heap: Heap::default(),
            picked: Vec::new(),
        }
    }

    fn pick(&mut self, group: &Group<'_>, step: usize, parameter: f64) {
        self.picked.clear();
        let count = wanted(parameter, self.series);
        let there = (0..group.members.len()).filter(|at| group.members[*at].cell(step).is_some());
        match self.op {
            AggregateOp::TopK => self.pick_greatest(group, step, count, 1.0),
            AggregateOp::BottomK => self.pick_greatest(group, step, count, -1.0),
            AggregateOp::LimitK => self.picked.extend(there.take(count)),
            _ => {
                let offsets = &self.offsets;
                self.picked
                    .extend(there.filter(|at| is_in_ratio(offsets[*at], parameter)));
            }
        }
    }

    /// Selects up to `count` members with the largest `sign` · value, in falling order, NaN last. Histograms
    /// are ignored.
    fn pick_greatest(&mut self, group: &Group<'_>, step: usize, count: usize, sign: f64) {
        if count == 0 {
            return;
        }
        self.heap.clear();
        for (position, column) in group.members.iter().enumerate() {
            if let Some(Cell::Float(value)) = column.cell(step) {
                self.heap.offer(value * sign, position, count);
            }
        }
        self.picked.extend(self.heap.sorted());
    }
}

/// Converts the parameter to a number of series, from 0 to the number of available series.
fn wanted(parameter: f64, series: usize) -> usize {
    (parameter as i64).clamp(0, series as i64) as usize
}

/// Maps a series to a position between 0 and 1 by the hash of its labels. The position is the same in every
/// query.
fn offset(column: &Column) -> f64 {
    hash::of_labels(&column.labels) as f64 / u64::MAX as f64
}

/// Returns true if a ratio selects a position. Positive ratios select from the start, negative ones from the
/// end, so that `r` and `r - 1` together select all series.
fn is_in_ratio(offset: f64, ratio: f64) -> bool {
    let ratio = ratio.clamp(-1.0, 1.0);
    (ratio > 0.0 && offset < ratio) || (ratio < 0.0 && offset >= 1.0 + ratio)
}
