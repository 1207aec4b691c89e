//! Aggregations of floats, column by column.
//!
//! Steps are processed in blocks (except for `quantile`), so that the states of a block stay in the
//! processor cache.

use std::ops::Range;

use tideline_model::CompensatedSum;

use super::super::column::{Column, ColumnBuilder, is_absent};
use super::super::{Scalar, Scope};
use super::Group;
use crate::ast::{AggregateOp, TextRange};
use crate::error::Result;
use crate::histogram_functions;

/// Number of steps aggregated at once. The states, up to 32 bytes per step, fit in the processor cache and are
/// small compared with a long column.
const BLOCK: usize = 1 << 12;

/// Splits steps into blocks.
fn blocks(steps: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = steps.end;
    steps
        .step_by(BLOCK)
        .map(move |start| start..end.min(start + BLOCK))
}

impl Scope<'_> {
    /// Aggregates the floats of a group. The operators `count` and `group` also include the histograms.
    pub(super) fn numbers(&self, op: AggregateOp, group: &Group<'_>) -> Result<Option<Column>> {
        match op {
            AggregateOp::Sum => {
                self.folded(group, CompensatedSum::new, CompensatedSum::add, |sum| sum.total())
            }
            AggregateOp::Avg => self.folded(group, Mean::new, Mean::add, Mean::value),
            AggregateOp::Min => self.folded(
                group,
                |value| value,
                |least, value| {
                    if *least > value || least.is_nan() {
                        *least = value;
                    }
                },
                |least| *least,
            ),
            AggregateOp::Max => self.folded(
                group,
                |value| value,
                |greatest, value| {
                    if *greatest < value || greatest.is_nan() {
                        *greatest = value;
                    }
                },
                |greatest| *greatest,
            ),
            AggregateOp::Stddev => {
                self.folded(group, Spread::new, Spread::add, |spread| spread.variance().sqrt())
            }
            AggregateOp::Stdvar => self.folded(group, Spread::new, Spread::add, Spread::variance),
            _ => self.counted(op, group),
        }
    }

    /// Evaluates `count` and `group`.
    fn counted(&self, op: AggregateOp, group: &Group<'_>) -> Result<Option<Column>> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let mut counts = Vec::new();
        for block in blocks(group.steps()) {
            counts.clear();
            counts.resize(block.len(), 0_u64);
            for (position, column) in group.members.iter().enumerate() {
                self.check_now_and_then(position)?;
                for step in column.first.max(block.start)..column.end().min(block.end) {
                    counts[step - block.start] += u64::from(column.cell(step).is_some());
                }
            }
            for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let value = if op == AggregateOp::Count {
                    *count as f64
                } else {
                    1.0
                };
                builder.push_float(block.start + at, value);
            }
        }
        Ok(builder.finish(group.labels.clone(), group.drops_name()))
    }

    /// Folds the floats of a group per step: `make` creates the state from the first float, `add` adds each
    /// further one, `result` computes the value.
    fn folded<S: Clone>(
        &self,
        group: &Group<'_>,
        make: impl Fn(f64) -> S,
        add: impl Fn(&mut S, f64),
        result: impl Fn(&S) -> f64,
    ) -> Result<Option<Column>> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let mut states: Vec<Option<S>> = Vec::new();
        for block in blocks(group.steps()) {
            states.clear();
            states.resize(block.len(), None);
            for (position, column) in group.members.iter().enumerate() {
                self.check_now_and_then(position)?;
                let steps = column.first.max(block.start)..column.end().min(block.end);
                if steps.is_empty() {
                    continue;
                }
                let states = &mut states[steps.start - block.start..];
                for (state, &value) in states.iter_mut().zip(column.floats(steps)) {
                    if is_absent(value) {
                        continue;
                    }
                    match state {
                        Some(state) => add(state, value),
                        None => *state = Some(make(value)),
                    }
                }
            }
            for (at, state) in states.iter().enumerate() {
                if let Some(state) = state {
                    builder.push_float(block.start + at, result(state));
                }
            }
        }
        Ok(builder.finish(group.labels.clone(), group.drops_name()))
    }

    /// Evaluates `quantile(q, …)`.
    pub(super) fn quantiles(
        &self,
        group: &Group<'_>,
        quantile: &Scalar,
        at: TextRange,
    ) -> Result<Option<Column>> {
        self.remark_histograms(AggregateOp::Quantile, group, at);
        let mut builder = ColumnBuilder::new(self.grid.steps);
        let mut values = Vec::with_capacity(group.members.len());
        for step in group.steps() {
            self.check()?;
            values.clear();
            let floats = group.members.iter().map(|column| column.float(step));
            values.extend(floats.filter(|value| !is_absent(*value)));
            if !values.is_empty() {
                builder.push_float(
                    step,
                    histogram_functions::quantile(quantile.at(step), &mut values),
                );
            }
        }
        Ok(builder.finish(group.labels.clone(), group.drops_name()))
    }
}

/// Mean, computed from a sum, or updated incrementally once the sum would overflow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mean {
    sum: CompensatedSum,
    count: f64,
    is_incremental: bool,
}

impl Mean {
    pub(super) fn new(value: f64) -> Self {
        Self {
            sum: CompensatedSum::new(value),
            count: 1.0,
            is_incremental: false,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.is_incremental {
            let mut sum = self.sum;
            sum.add(value);
            if !sum.sum.is_infinite() {
                self.sum = sum;
                return;
            }
            self.is_incremental = true;
            self.sum.sum /= self.count - 1.0;
            self.sum.compensation /= self.count - 1.0;
        }
        let share = (self.count - 1.0) / self.count;
        self.sum = CompensatedSum {
            sum: share * self.sum.sum,
            compensation: share * self.sum.compensation,
        };
        self.sum.add(value / self.count);
    }

    pub(super) fn value(&self) -> f64 {
        match self.is_incremental {
            true => self.sum.total(),
            false => self.sum.sum / self.count + self.sum.compensation / self.count,
        }
    }
}

/// Mean and sum of squared deviations, updated incrementally (Welford).
#[derive(Debug, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn new(value: f64) -> Self {
        Self {
            count: 1.0,
            mean: value,
            squares: if value.is_finite() { 0.0 } else { f64::NAN },
        }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
    }

    fn variance(&self) -> f64 {
        self.squares / self.count
    }
}
