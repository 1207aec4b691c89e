//! Aggregations that pick series: `topk`, `bottomk`, `limitk`, `limit_ratio`.

use super::super::column::{Cell, Column, ColumnBuilder};
use super::super::{Scalar, Scope};
use super::Group;
use super::heap::Heap;
use crate::ast::{AggregateOp, TextRange};
use crate::error::Result;
use crate::hash;

impl Scope<'_> {
    /// The series that are picked at each step; at an instant in the order of their values.
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
            // They grow beside each other, none further than what it is picked from.
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
            // Of an instant the last picks are all picks, in their order.
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

/// Picks members of a group, step by step.
struct Picker {
    op: AggregateOp,
    /// How many series the aggregation is given, in all groups.
    series: usize,
    /// Where each member lies between 0 and 1; empty unless a ratio is asked for.
    offsets: Vec<f64>,
    heap: Heap,
    /// Places of the members that were picked last, in their order.
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

    /// The members with the greatest numbers times `sign`, the greatest first, NaN last.
    fn pick_greatest(&mut self, group: &Group<'_>, step: usize, count: usize, sign: f64) {
        if count == 0 {
            return;
        }
        self.heap.clear();
        for (place, column) in group.members.iter().enumerate() {
            if let Some(Cell::Float(value)) = column.cell(step) {
                self.heap.offer(value * sign, place, count);
            }
        }
        self.picked.extend(self.heap.sorted());
    }
}

/// How many are wanted; no more than there are.
fn wanted(parameter: f64, series: usize) -> usize {
    (parameter as i64).clamp(0, series as i64) as usize
}

/// Where a series lies between 0 and 1, the same in every question.
fn offset(column: &Column) -> f64 {
    hash::of_labels(&column.labels) as f64 / u64::MAX as f64
}

/// A ratio above zero takes series from the front, one below zero from the back, so that the two add up to all.
fn is_in_ratio(offset: f64, ratio: f64) -> bool {
    let ratio = ratio.clamp(-1.0, 1.0);
    (ratio > 0.0 && offset < ratio) || (ratio < 0.0 && offset >= 1.0 + ratio)
}
