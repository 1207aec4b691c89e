//! Aggregations that pick series: `topk`, `bottomk`, `limitk`, `limit_ratio`.

use super::super::column::{Cell, Column, ColumnBuilder};
use super::super::sort::by_falling_value;
use super::super::{Scalar, Scope};
use super::Group;
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
            let mut builders: Vec<ColumnBuilder> = group
                .members
                .iter()
                .map(|_| ColumnBuilder::new(self.grid.steps))
                .collect();
            let offsets: Vec<f64> = match op {
                AggregateOp::LimitRatio => group.members.iter().map(|column| offset(column)).collect(),
                _ => Vec::new(),
            };
            let mut picked = Vec::new();
            for step in group.steps() {
                self.check()?;
                picked.clear();
                let parameter = parameter.at(step);
                match op {
                    AggregateOp::TopK => {
                        pick_greatest(group, step, wanted(parameter, series), &mut picked, 1.0);
                    }
                    AggregateOp::BottomK => {
                        pick_greatest(group, step, wanted(parameter, series), &mut picked, -1.0);
                    }
                    AggregateOp::LimitK => {
                        let there =
                            (0..group.members.len()).filter(|at| group.members[*at].cell(step).is_some());
                        picked.extend(there.take(wanted(parameter, series)));
                    }
                    _ => {
                        let there =
                            (0..group.members.len()).filter(|at| group.members[*at].cell(step).is_some());
                        picked.extend(there.filter(|at| is_in_ratio(offsets[*at], parameter)));
                    }
                }
                for at in &picked {
                    if let Some(cell) = group.members[*at].cell(step) {
                        builders[*at].push_cell(step, cell);
                    }
                }
            }
            // Of an instant the last picks are all picks, in their order.
            if self.grid.is_instant() {
                for at in &picked {
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

/// How many are wanted; no more than there are.
fn wanted(parameter: f64, series: usize) -> usize {
    (parameter as i64).clamp(0, series as i64) as usize
}

/// The members with the greatest numbers times `sign`, the greatest first, NaN last; of equal ones the first come.
fn pick_greatest(group: &Group<'_>, step: usize, count: usize, picked: &mut Vec<usize>, sign: f64) {
    if count == 0 {
        return;
    }
    let value = |at: usize| match group.members[at].cell(step) {
        Some(Cell::Float(value)) => Some(value * sign),
        _ => None,
    };
    picked.extend((0..group.members.len()).filter(|at| value(*at).is_some()));
    let key = |at: usize| value(at).unwrap_or(f64::NAN);
    let order = |a: &usize, b: &usize| by_falling_value(key(*a), key(*b)).then(a.cmp(b));
    if count < picked.len() {
        picked.select_nth_unstable_by(count - 1, order);
        picked.truncate(count);
    }
    picked.sort_unstable_by(order);
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
