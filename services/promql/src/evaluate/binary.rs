//! Binary operators between scalars and vectors.
//!
//! `matching` groups the series of two vectors, `pairing` joins the series of a group, `operate` applies the operator
//! to two values. `marks` is the set of steps that `pairing` uses.

mod marks;
mod operate;
mod pairing;

use self::operate::{Outcome, operate};
use self::pairing::Pairing;
use super::budget::Making;
use super::column::{Cell, Column, ColumnBuilder};
use super::matching::match_groups;
use super::{Scalar, Scope, Value, cost};
use crate::ast::{BinaryOp, Cardinality, TextRange, VectorMatching};
use crate::error::{PromqlError, Result};
use crate::math;
use crate::plan::Binary;
use crate::quote::quote;

/// Binary operator with the options that change its result.
#[derive(Debug, Clone, Copy)]
struct Operation {
    op: BinaryOp,
    return_bool: bool,
    at: TextRange,
}

impl Operation {
    /// Returns true for arithmetic operators: the result is not a value of the metric, so the metric name is
    /// dropped.
    fn changes_meaning(self) -> bool {
        math::arithmetic(self.op, 0.0, 0.0).is_some()
    }
}

impl Scope<'_> {
    /// Evaluates a binary operator.
    pub(super) fn binary(&self, binary: &Binary<'_>, at: TextRange) -> Result<Value> {
        let operation = Operation {
            op: binary.op,
            return_bool: binary.return_bool,
            at,
        };
        let (left, right) = (self.value(&binary.left)?, self.value(&binary.right)?);
        match (left, right) {
            (Value::Scalar(left), Value::Scalar(right)) => {
                let scalar = scalars(operation.op, self.grid.steps, &left, &right)?;
                self.exchange(2, 2 * self.grid.steps, self.grid.steps)?;
                Ok(Value::Scalar(scalar))
            }
            (Value::Vector(columns), Value::Scalar(scalar)) => {
                self.with_scalar(operation, &columns, &scalar, false)
            }
            (Value::Scalar(scalar), Value::Vector(columns)) => {
                self.with_scalar(operation, &columns, &scalar, true)
            }
            (Value::Vector(left), Value::Vector(right)) => {
                let default = VectorMatching::default();
                let matching = binary.matching.unwrap_or(&default);
                let before = cost(&left) + cost(&right);
                let looked_at = left.len() + right.len();
                let columns = match operation.op {
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Unless => {
                        self.set(binary.op, left, right, matching)?
                    }
                    _ => self.vectors(operation, &left, &right, matching)?,
                };
                self.exchange(looked_at, before, cost(&columns))?;
                Ok(Value::Vector(columns))
            }
            (Value::Text(_), _) | (_, Value::Text(_)) => {
                Err(PromqlError::Execution("operators do not take strings".to_owned()))
            }
        }
    }

    fn with_scalar(
        &self,
        operation: Operation,
        columns: &[Column],
        scalar: &Scalar,
        is_scalar_left: bool,
    ) -> Result<Value> {
        let before = cost(columns) + self.grid.steps;
        let mut result = Vec::with_capacity(columns.len());
        let mut making = Making::of(self.budget(), columns.len());
        for (position, column) in columns.iter().enumerate() {
            self.check_now_and_then(position)?;
            let mut builder = ColumnBuilder::new(self.grid.steps);
            for (number, (step, cell)) in column.cells().enumerate() {
                self.check_now_and_then(number)?;
                let number = Cell::Float(scalar.at(step));
                let outcome = match is_scalar_left {
                    true => operate(operation.op, number, cell),
                    false => operate(operation.op, cell, number),
                };
                self.remark(operation, &outcome);
                let holds = match outcome {
                    Outcome::Value(point) => {
                        builder.push(step, point);
                        continue;
                    }
                    Outcome::Noted(point, _) => {
                        builder.push(step, point);
                        continue;
                    }
                    Outcome::Holds(holds) => holds,
                    Outcome::Refused(_) => continue,
                };
                if operation.return_bool {
                    builder.push_float(step, f64::from(u8::from(holds)));
                } else if holds {
                    // A filter keeps the value of the series, whether the series is the left or the right
                    // operand.
                    builder.push_cell(step, cell);
                }
            }
            let drops = operation.changes_meaning() || operation.return_bool;
            if let Some(mut column) = builder.finish(column.labels.clone(), column.drops_name) {
                if drops {
                    self.drop_name(&mut column);
                }
                making.take(column.cost())?;
                result.push(column);
            }
        }
        drop(making);
        let result = self.merged(result)?;
        self.exchange(columns.len() + 1, before, cost(&result))?;
        Ok(Value::Vector(result))
    }

    fn remark(&self, operation: Operation, outcome: &Outcome) {
        let (Outcome::Noted(_, remarks) | Outcome::Refused(remarks)) = outcome else {
            return;
        };
        for remark in remarks {
            self.annotate(remark, operation.at);
        }
    }

    /// Evaluates an operator between two vectors.
    fn vectors(
        &self,
        operation: Operation,
        left: &[Column],
        right: &[Column],
        matching: &VectorMatching,
    ) -> Result<Vec<Column>> {
        let groups = match_groups(self, left, right, matching)?;
        let swaps = matching.cardinality == Cardinality::OneToMany;
        let has_rivals = groups.iter().any(|group| {
            if swaps {
                group.left.len() > 1
            } else {
                group.right.len() > 1
            }
        });
        let has_fill = matching.fill_left.is_some() || matching.fill_right.is_some();
        let mut pairing = Pairing {
            scope: self,
            operation,
            matching,
            many: if swaps { right } else { left },
            one: if swaps { left } else { right },
            swaps,
            shared_steps: (has_rivals && !has_fill).then(|| self.steps_with_both(left, right)),
            result: Vec::with_capacity(groups.len()),
            making: Making::of(self.budget(), left.len() + right.len()),
            unchecked: 0,
        };
        for group in groups.iter().filter(|_| has_rivals) {
            pairing.check_rivals(if swaps { &group.left } else { &group.right })?;
        }
        for (number, group) in groups.iter().enumerate() {
            self.check_now_and_then(number)?;
            match swaps {
                true => pairing.group(&group.right, &group.left)?,
                false => pairing.group(&group.left, &group.right)?,
            }
        }
        // The result is in the order of the "many" side.
        let mut result = pairing.result;
        result.sort_by_key(|(position, _)| *position);
        self.merged_always(result.into_iter().map(|(_, column)| column).collect())
    }

    /// Returns a flag per step: true if both sides have at least one series there. Duplicates matter only at
    /// these steps.
    fn steps_with_both(&self, left: &[Column], right: &[Column]) -> Vec<bool> {
        let (left, right) = (self.steps_with_any(left), self.steps_with_any(right));
        left.into_iter()
            .zip(right)
            .map(|(left, right)| left && right)
            .collect()
    }
}

/// Applies an operator to two scalars at each step.
fn scalars(op: BinaryOp, steps: usize, left: &Scalar, right: &Scalar) -> Result<Scalar> {
    let result = |left: f64, right: f64| {
        let value = math::arithmetic(op, left, right);
        let value =
            value.or_else(|| math::comparison(op, left, right).map(|holds| f64::from(u8::from(holds))));
        value.ok_or_else(|| {
            let operator = quote(op.name());
            PromqlError::Execution(format!("operator {operator} not allowed for Scalar operations"))
        })
    };
    Ok(match (left, right) {
        (Scalar::Constant(left), Scalar::Constant(right)) => Scalar::Constant(result(*left, *right)?),
        _ => {
            let values = (0..steps).map(|step| result(left.at(step), right.at(step)));
            Scalar::Steps(values.collect::<Result<_>>()?)
        }
    })
}
