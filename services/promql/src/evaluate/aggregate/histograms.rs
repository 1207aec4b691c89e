//! `sum` and `avg` of groups that contain histograms, step by step.
//!
//! The rules follow Prometheus: a step with floats and histograms, or with exponential and custom buckets,
//! has no result.

use std::sync::Arc;

use tideline_histogram::{Histogram, ResetHint};
use tideline_model::CompensatedSum;

use super::super::Scope;
use super::super::column::{Cell, Column, ColumnBuilder};
use super::Group;
use super::numbers::Mean;
use crate::annotations::Annotation;
use crate::ast::{AggregateOp, TextRange};
use crate::error::Result;
use crate::note::HistogramOperation;
use crate::value::Point;

/// State of a group at one step.
#[derive(Debug, Default)]
struct State {
    sum: Option<CompensatedSum>,
    mean: Option<Mean>,
    histogram: Option<Histogram>,
    compensation: Option<Histogram>,
    /// Number of floats and histograms.
    count: f64,
    /// True if `histogram` is an incrementally updated mean, because the sum would overflow.
    is_incremental: bool,
    is_incompatible: bool,
    has_histogram: bool,
    saw_reset: bool,
    saw_no_reset: bool,
}

impl Scope<'_> {
    /// Aggregates floats or histograms. A step with both has no result.
    pub(super) fn with_histograms(
        &self,
        op: AggregateOp,
        group: &Group<'_>,
        at: TextRange,
    ) -> Result<Option<Column>> {
        let mut builder = ColumnBuilder::new(self.grid.steps);
        for step in group.steps() {
            self.check()?;
            let mut state = State::default();
            for column in &group.members {
                let Some(cell) = column.cell(step) else { continue };
                if state.is_incompatible {
                    break;
                }
                state.count += 1.0;
                match cell {
                    Cell::Float(value) => state.add_number(value),
                    Cell::Histogram(histogram) => {
                        let metric = column.labels.metric_name().unwrap_or_default();
                        self.add_histogram(op, &mut state, histogram, metric, at);
                    }
                }
            }
            if let Some(point) = self.total(op, state, at) {
                builder.push(step, point);
            }
        }
        Ok(builder.finish(group.labels.clone(), group.drops_name()))
    }

    fn add_histogram(
        &self,
        op: AggregateOp,
        state: &mut State,
        histogram: &Histogram,
        metric: &str,
        at: TextRange,
    ) {
        let is_first = !state.has_histogram && state.sum.is_none();
        state.has_histogram = true;
        if is_first {
            state.see_hint(histogram);
            state.histogram = Some(histogram.clone());
            return;
        }
        // After a float there is no result, so the histogram is not added.
        if state.histogram.is_none() {
            return;
        }
        state.see_hint(histogram);
        let outcome = match op {
            AggregateOp::Sum => state.add_to_sum(histogram),
            _ => state.add_to_mean(histogram),
        };
        match outcome {
            Some(true) => {
                let remark = Annotation::MismatchedCustomBuckets(HistogramOperation::Aggregation);
                self.annotate(&remark, at);
            }
            Some(false) => {}
            None => {
                state.is_incompatible = true;
                self.annotate(&Annotation::MixedExponentialCustomHistograms { metric }, at);
            }
        }
    }

    fn total(&self, op: AggregateOp, mut state: State, at: TextRange) -> Option<Point> {
        if state.sum.is_some() && state.has_histogram {
            self.annotate(&Annotation::MixedFloatsHistogramsInAggregation, at);
            return None;
        }
        if state.is_incompatible {
            return None;
        }
        if let (Some(sum), Some(mean)) = (state.sum, &state.mean) {
            return Some(Point::Float(match op {
                AggregateOp::Sum => sum.total(),
                _ => mean.value(),
            }));
        }
        let mut histogram = state.histogram.take()?;
        if op == AggregateOp::Avg && !state.is_incremental {
            histogram.div(state.count);
            if let Some(compensation) = &mut state.compensation {
                compensation.div(state.count);
            }
        }
        if let Some(compensation) = &state.compensation {
            // The compensation has the sum's layout, so the addition cannot fail.
            let _ = histogram.add(compensation);
        }
        histogram.compact(0);
        if state.saw_reset && state.saw_no_reset {
            let remark = Annotation::CounterResetCollision(HistogramOperation::Aggregation);
            self.annotate(&remark, at);
        }
        Some(Point::Histogram(Arc::new(histogram)))
    }
}

impl State {
    fn add_number(&mut self, value: f64) {
        match (&mut self.sum, &mut self.mean) {
            (Some(sum), Some(mean)) => {
                sum.add(value);
                mean.add(value);
            }
            _ => {
                self.sum = Some(CompensatedSum::new(value));
                self.mean = Some(Mean::new(value));
            }
        }
    }

    fn see_hint(&mut self, histogram: &Histogram) {
        match histogram.reset_hint {
            ResetHint::Reset => self.saw_reset = true,
            ResetHint::NotReset => self.saw_no_reset = true,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
    }

    /// Adds to the sum. Returns true if custom bounds had to be reconciled, `None` if the schemas are
    /// incompatible.
    fn add_to_sum(&mut self, histogram: &Histogram) -> Option<bool> {
        let sum = self.histogram.as_mut()?;
        let outcome = sum.kahan_add(histogram, &mut self.compensation).ok()?;
        Some(outcome.bounds_reconciled)
    }

    /// Adds to the mean; returns the same as [`Self::add_to_sum`].
    fn add_to_mean(&mut self, histogram: &Histogram) -> Option<bool> {
        if !self.is_incremental {
            let mut sum = self.histogram.clone()?;
            let mut compensation = self.compensation.clone();
            let outcome = sum.kahan_add(histogram, &mut compensation).ok()?;
            if !sum.has_overflow() {
                (self.histogram, self.compensation) = (Some(sum), compensation);
                return Some(outcome.bounds_reconciled);
            }
            self.is_incremental = true;
            let before = self.count - 1.0;
            for part in self.histogram.iter_mut().chain(&mut self.compensation) {
                part.div(before);
            }
        }
        let share = (self.count - 1.0) / self.count;
        for part in self.histogram.iter_mut().chain(&mut self.compensation) {
            part.mul(share);
        }
        let mut added = histogram.clone();
        added.div(self.count);
        self.add_to_sum(&added)
    }
}
