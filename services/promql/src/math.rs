//! Float arithmetic and comparisons, with Go's results where they differ from Rust's.

use crate::ast::BinaryOp;

/// Returns the larger number. Positive infinity takes precedence over NaN, and NaN over all other values.
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// Returns the smaller number. Negative infinity takes precedence over NaN, and NaN over all other values.
pub(crate) fn min(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

/// Applies an arithmetic operator; `None` for other operators.
#[inline]
pub(crate) fn arithmetic(op: BinaryOp, left: f64, right: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => left + right,
        BinaryOp::Subtract => left - right,
        BinaryOp::Multiply => left * right,
        BinaryOp::Divide => left / right,
        BinaryOp::Modulo => left % right,
        BinaryOp::Power => left.powf(right),
        BinaryOp::Atan2 => left.atan2(right),
        _ => return None,
    })
}

/// Applies a comparison operator; `None` for other operators.
#[inline]
pub(crate) fn comparison(op: BinaryOp, left: f64, right: f64) -> Option<bool> {
    Some(match op {
        BinaryOp::Equal => left == right,
        BinaryOp::NotEqual => left != right,
        BinaryOp::Less => left < right,
        BinaryOp::LessEqual => left <= right,
        BinaryOp::Greater => left > right,
        BinaryOp::GreaterEqual => left >= right,
        _ => return None,
    })
}
