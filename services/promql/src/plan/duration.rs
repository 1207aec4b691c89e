//! Resolution of duration expressions, such as `offset (step() * 2)`, with the query's parameters.

use crate::ast::{BinaryOp, DurationExpr, DurationValue, TextRange};
use crate::error::{PromqlError, Result};
use crate::parse::SECONDS_MAX;

/// Query parameters that duration expressions refer to, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spans {
    pub(super) step: i64,
    pub(super) range: i64,
}

impl Spans {
    /// Resolves an offset to milliseconds of either sign.
    pub(super) fn offset(self, value: &DurationValue) -> Result<i64> {
        match value {
            DurationValue::Fixed(milliseconds) => Ok(*milliseconds),
            DurationValue::Computed(expr) => self.milliseconds(expr),
        }
    }

    /// Resolves a range or a step to milliseconds. A computed duration must be positive.
    pub(super) fn length(self, value: &DurationValue) -> Result<i64> {
        match value {
            DurationValue::Fixed(milliseconds) => Ok(*milliseconds),
            DurationValue::Computed(expr) => {
                let seconds = self.seconds(expr)?;
                if seconds <= 0.0 {
                    return Err(fault(range_of(expr), "duration must be greater than 0"));
                }
                self.milliseconds(expr)
            }
        }
    }

    fn milliseconds(self, expr: &DurationExpr) -> Result<i64> {
        let seconds = self.seconds(expr)?;
        if !seconds.is_finite() {
            return Err(fault(range_of(expr), "duration is NaN or infinite"));
        }
        if seconds.abs() > SECONDS_MAX {
            return Err(fault(range_of(expr), "duration is out of range"));
        }
        Ok((seconds * 1000.0) as i64)
    }

    fn seconds(self, expr: &DurationExpr) -> Result<f64> {
        Ok(match expr {
            DurationExpr::Number(number) => number.value,
            DurationExpr::Step(_) => self.step as f64 / 1000.0,
            DurationExpr::Range(_) => self.range as f64 / 1000.0,
            DurationExpr::Min(a, b, _) => crate::math::min(self.seconds(a)?, self.seconds(b)?),
            DurationExpr::Max(a, b, _) => crate::math::max(self.seconds(a)?, self.seconds(b)?),
            DurationExpr::Sign(is_negative, inner, _) => {
                let seconds = self.seconds(inner)?;
                if *is_negative { -seconds } else { seconds }
            }
            DurationExpr::Paren(inner, _) => self.seconds(inner)?,
            DurationExpr::Binary(op, left, right) => {
                let (left, right) = (self.seconds(left)?, self.seconds(right)?);
                match op {
                    BinaryOp::Divide if right == 0.0 => {
                        return Err(fault(range_of(expr), "division by zero"));
                    }
                    BinaryOp::Modulo if right == 0.0 => return Err(fault(range_of(expr), "modulo by zero")),
                    _ => crate::math::arithmetic(*op, left, right)
                        .ok_or_else(|| fault(range_of(expr), "unexpected duration expression operator"))?,
                }
            }
        })
    }
}

fn fault(at: TextRange, what: &str) -> PromqlError {
    PromqlError::Invalid(format!("{}:{}: {what}", at.start, at.end))
}

fn range_of(expr: &DurationExpr) -> TextRange {
    match expr {
        DurationExpr::Number(number) => number.at,
        DurationExpr::Step(at)
        | DurationExpr::Range(at)
        | DurationExpr::Min(_, _, at)
        | DurationExpr::Max(_, _, at)
        | DurationExpr::Sign(_, _, at)
        | DurationExpr::Paren(_, at) => *at,
        DurationExpr::Binary(_, left, right) => TextRange {
            start: range_of(left).start,
            end: range_of(right).end,
        },
    }
}
