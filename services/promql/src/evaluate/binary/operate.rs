//! Application of a binary operator to two values.
//!
//! Arithmetic on floats is in `math`, on histograms in the histogram crate. This module selects the operation
//! by the types of both values.

use std::sync::Arc;

use tideline_histogram::{Histogram, ResetHint};

use super::super::column::Cell;
use crate::annotations::Annotation;
use crate::ast::BinaryOp;
use crate::math;
use crate::note::HistogramOperation;
use crate::value::Point;

/// Result of a binary operator.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Value.
    Value(Point),
    /// Value with annotations.
    Noted(Point, Vec<Annotation<'static>>),
    /// Result of a comparison.
    Holds(bool),
    /// No value, with the annotations that explain why.
    Refused(Vec<Annotation<'static>>),
}

/// Applies an arithmetic, comparison or trim operator.
pub(super) fn operate(op: BinaryOp, left: Cell<'_>, right: Cell<'_>) -> Outcome {
    match (left, right) {
        (Cell::Float(left), Cell::Float(right)) => {
            if let Some(value) = math::arithmetic(op, left, right) {
                return Outcome::Value(Point::Float(value));
            }
            match math::comparison(op, left, right) {
                Some(holds) => Outcome::Holds(holds),
                None => refused("float", op, "float"),
            }
        }
        (Cell::Float(left), Cell::Histogram(right)) => match op {
            BinaryOp::Multiply => changed(right, |histogram| {
                histogram.mul(left);
                histogram.compact(0);
            }),
            _ => refused("float", op, "histogram"),
        },
        (Cell::Histogram(left), Cell::Float(right)) => match op {
            BinaryOp::Multiply => changed(left, |histogram| {
                histogram.mul(right);
                histogram.compact(0);
            }),
            BinaryOp::Divide => changed(left, |histogram| {
                histogram.div(right);
                histogram.compact(0);
            }),
            BinaryOp::TrimUpper => changed(left, |histogram| histogram.trim_upper(right)),
            BinaryOp::TrimLower => changed(left, |histogram| histogram.trim_lower(right)),
            _ => refused("histogram", op, "float"),
        },
        (Cell::Histogram(left), Cell::Histogram(right)) => match op {
            BinaryOp::Add | BinaryOp::Subtract => combined(op, left, right),
            BinaryOp::Equal => Outcome::Holds(left.same_as(right)),
            BinaryOp::NotEqual => Outcome::Holds(!left.same_as(right)),
            _ => refused("histogram", op, "histogram"),
        },
    }
}

fn changed(histogram: &Histogram, change: impl FnOnce(&mut Histogram)) -> Outcome {
    let mut changed = histogram.clone();
    change(&mut changed);
    Outcome::Value(Point::Histogram(Arc::new(changed)))
}

fn combined(op: BinaryOp, left: &Histogram, right: &Histogram) -> Outcome {
    let mut result = left.clone();
    let (outcome, operation) = match op {
        BinaryOp::Add => (result.add(right), HistogramOperation::Add),
        _ => (result.sub(right), HistogramOperation::Sub),
    };
    let Ok(outcome) = outcome else {
        return Outcome::Refused(vec![Annotation::IncompatibleBuckets { operator: op.name() }]);
    };
    if op == BinaryOp::Subtract {
        result.reset_hint = ResetHint::Gauge;
    }
    if outcome.counter_reset_collision {
        // As in Prometheus, an addition or subtraction of two histograms has no result if their
        // counter resets conflict.
        return Outcome::Refused(vec![Annotation::CounterResetCollision(operation)]);
    }
    result.compact(0);
    let point = Point::Histogram(Arc::new(result));
    match outcome.bounds_reconciled {
        true => Outcome::Noted(point, vec![Annotation::MismatchedCustomBuckets(operation)]),
        false => Outcome::Value(point),
    }
}

fn refused(left: &'static str, op: BinaryOp, right: &'static str) -> Outcome {
    let operator = op.name();
    Outcome::Refused(vec![Annotation::IncompatibleTypes {
        left,
        operator,
        right,
    }])
}
