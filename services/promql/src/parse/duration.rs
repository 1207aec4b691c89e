//! Parser of durations and duration expressions.
//!
//! A literal is resolved immediately. Other duration expressions may depend on the query's parameters and
//! are resolved by the plan.

use super::{DEPTH_MAX, Fault, Parsed, Parser};
use crate::ast::{BinaryOp, DurationExpr, DurationValue, NumberLiteral, TextRange};
use crate::lex::{Keyword, TokenKind};
use crate::quote::quote;

/// Binding strength of a sign, the same as that of `*`.
const SIGN: u8 = 2;

/// Maximum duration in seconds: Prometheus counts durations in 64 bits of nanoseconds.
pub(crate) const SECONDS_MAX: f64 = 9_223_372_036.854_776;

/// Reason why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DurationError(String);

/// Parses a duration such as `1h30m` to milliseconds. Units range from years (`y`) to milliseconds (`ms`), in
/// falling order, each at most once. Only `0` needs no unit.
///
/// # Errors
///
/// Returns an error for an empty or malformed text, an unknown unit and units out of order. A duration that exceeds 64
/// bits of nanoseconds is an error as well.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    /// Units in falling order, with their milliseconds.
    const UNITS: [(&str, u64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    /// Maximum milliseconds in 64 bits of nanoseconds.
    const MAX: u64 = i64::MAX as u64 / 1_000_000;
    let invalid = || DurationError(format!("not a valid duration string: {}", quote(text)));
    match text {
        "0" => return Ok(0),
        "" => return Err(DurationError("empty duration string".to_owned())),
        _ => {}
    }
    let (mut rest, mut sum, mut next_unit) = (text, 0_u64, 0);
    while !rest.is_empty() {
        let digits = rest.find(|at: char| !at.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, after) = rest.split_at(digits);
        let count: u64 = number.parse().map_err(|_| invalid())?;
        let letters = after.find(|at: char| at.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let Some(index) = UNITS.iter().position(|(name, _)| *name == unit) else {
            let (unit, text) = (quote(unit), quote(text));
            return Err(DurationError(format!("unknown unit {unit} in duration {text}")));
        };
        if index < next_unit {
            return Err(invalid());
        }
        next_unit = index + 1;
        let added = count.checked_mul(UNITS[index].1).filter(|added| *added <= MAX);
        sum += added.ok_or_else(out_of_range)?;
        rest = after;
    }
    if sum > MAX {
        Err(out_of_range())
    } else {
        Ok(sum as i64)
    }
}

fn out_of_range() -> DurationError {
    DurationError("duration out of range".to_owned())
}

/// Resolves a literal. Other expressions are resolved by the plan.
pub(super) fn as_value(duration: DurationExpr) -> DurationValue {
    match duration {
        // Prometheus rounds to nanoseconds and truncates to milliseconds.
        DurationExpr::Number(number) => DurationValue::Fixed((number.value * 1e9).round() as i64 / 1_000_000),
        other => DurationValue::Computed(Box::new(other)),
    }
}

/// Returns the operator of a duration expression and its binding strength.
fn duration_op(kind: TokenKind) -> Option<(BinaryOp, u8)> {
    Some(match kind {
        TokenKind::Add => (BinaryOp::Add, 1),
        TokenKind::Subtract => (BinaryOp::Subtract, 1),
        TokenKind::Multiply => (BinaryOp::Multiply, 2),
        TokenKind::Divide => (BinaryOp::Divide, 2),
        TokenKind::Modulo => (BinaryOp::Modulo, 2),
        TokenKind::Power => (BinaryOp::Power, 3),
        _ => return None,
    })
}

impl Parser<'_> {
    /// Parses the range or the step in brackets. A literal must be positive.
    pub(super) fn positive_duration(&mut self) -> Parsed<DurationValue> {
        let depth = self.depth;
        let duration = self.duration(0)?;
        self.depth = depth;
        match duration {
            DurationExpr::Number(number) if number.value <= 0.0 => {
                self.no_fault()?;
                Err(self.error(number.at, "duration must be greater than 0"))
            }
            duration => Ok(as_value(duration)),
        }
    }

    /// Parses the duration after `offset`.
    ///
    /// A literal, a call, or a signed parenthesized expression ends the offset, so `a offset 5m + b` is a
    /// sum. A duration that begins with a parenthesis or two signs extends as far as possible.
    pub(super) fn offset_duration(&mut self) -> Parsed<DurationExpr> {
        let depth = self.depth;
        let offset = self.bare_offset()?;
        self.depth = depth;
        Ok(offset)
    }

    fn bare_offset(&mut self) -> Parsed<DurationExpr> {
        let (sign, is_negative) = match self.kind() {
            TokenKind::LeftParen => return self.duration(0),
            TokenKind::Add => (Some(self.token.at), false),
            TokenKind::Subtract => (Some(self.token.at), true),
            _ => (None, false),
        };
        let Some(sign) = sign else {
            return self.duration_operand();
        };
        // An offset that begins with two signs is a whole duration expression and may contain operators.
        if self.is_before_sign() {
            return self.duration(0);
        }
        self.advance();
        let operand = self.duration_operand()?;
        match operand {
            DurationExpr::Number(_) => self.with_sign(is_negative, sign, operand),
            // A plus is kept as well: it prevents the operators that follow from becoming part of the
            // duration.
            operand => {
                let at = self.since(sign.start);
                Ok(DurationExpr::Sign(is_negative, Box::new(operand), at))
            }
        }
    }

    /// Returns true if a sign follows the next token.
    fn is_before_sign(&self) -> bool {
        let next = self.lexer.clone().next();
        next.is_ok_and(|next| matches!(next.kind, TokenKind::Add | TokenKind::Subtract))
    }

    /// Parses an expression of operators that bind at least as tightly as `min`. The depth counter is incremented for
    /// each operand and reset only after the whole duration, so the number of operands limits the depth of the tree.
    fn duration(&mut self, min: u8) -> Parsed<DurationExpr> {
        let mut left = self.signed_duration()?;
        while let Some((op, binding)) = duration_op(self.kind()).filter(|(_, binding)| *binding >= min) {
            let at = self.advance().at;
            let right = self.duration(if op == BinaryOp::Power {
                binding
            } else {
                binding + 1
            })?;
            let is_zero = matches!(&right, DurationExpr::Number(number) if number.value == 0.0);
            if is_zero {
                self.no_fault()?;
            }
            match op {
                BinaryOp::Divide if is_zero => return Err(self.error(at, "division by zero")),
                BinaryOp::Modulo if is_zero => return Err(self.error(at, "modulo by zero")),
                _ => {}
            }
            left = DurationExpr::Binary(op, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn signed_duration(&mut self) -> Parsed<DurationExpr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.too_deep(self.token.at));
        }
        let is_negative = match self.kind() {
            TokenKind::Add => false,
            TokenKind::Subtract => true,
            _ => return self.duration_operand(),
        };
        let sign = self.advance().at;
        let operand = self.duration(SIGN + 1)?;
        self.with_sign(is_negative, sign, operand)
    }

    fn with_sign(&self, is_negative: bool, sign: TextRange, operand: DurationExpr) -> Parsed<DurationExpr> {
        let at = self.since(sign.start);
        match operand {
            DurationExpr::Number(number) => Ok(DurationExpr::Number(NumberLiteral {
                value: if is_negative { -number.value } else { number.value },
                at,
                ..number
            })),
            operand if is_negative => Ok(DurationExpr::Sign(true, Box::new(operand), at)),
            operand => Ok(operand),
        }
    }

    /// Parses a literal, a call, or a parenthesized expression.
    fn duration_operand(&mut self) -> Parsed<DurationExpr> {
        let start = self.token.at.start;
        match self.kind() {
            TokenKind::Number | TokenKind::Duration => {
                let number = self.literal()?;
                if number.value.abs() > SECONDS_MAX {
                    return Err(self.error(number.at, "duration out of range"));
                }
                Ok(DurationExpr::Number(number))
            }
            TokenKind::LeftParen => {
                self.advance();
                let inner = self.duration(0)?;
                self.expect(TokenKind::RightParen)?;
                Ok(match inner {
                    DurationExpr::Paren(inner, _) => DurationExpr::Paren(inner, self.since(start)),
                    inner => DurationExpr::Paren(Box::new(inner), self.since(start)),
                })
            }
            TokenKind::Keyword(word @ (Keyword::Step | Keyword::Range)) => {
                self.advance();
                self.expect(TokenKind::LeftParen)?;
                self.expect(TokenKind::RightParen)?;
                let at = self.since(start);
                Ok(match word {
                    Keyword::Step => DurationExpr::Step(at),
                    _ => DurationExpr::Range(at),
                })
            }
            TokenKind::Keyword(word @ (Keyword::MaxOf | Keyword::MinOf)) => {
                self.advance();
                self.expect(TokenKind::LeftParen)?;
                let left = Box::new(self.duration(0)?);
                self.expect(TokenKind::Comma)?;
                let right = Box::new(self.duration(0)?);
                self.expect(TokenKind::RightParen)?;
                let at = self.since(start);
                Ok(match word {
                    Keyword::MaxOf => DurationExpr::Max(left, right, at),
                    _ => DurationExpr::Min(left, right, at),
                })
            }
            _ => Err(Fault::Unexpected),
        }
    }

    /// Parses a number or a duration.
    pub(super) fn literal(&mut self) -> Parsed<NumberLiteral> {
        let token = match self.kind() {
            TokenKind::Number | TokenKind::Duration => self.advance(),
            _ => return Err(Fault::Unexpected),
        };
        let text = self.text_of(token);
        let is_duration = token.kind == TokenKind::Duration;
        let value = if is_duration {
            let milliseconds = parse_duration(text);
            milliseconds.map_or_else(|DurationError(why)| Err(why), |at| Ok(at as f64 / 1000.0))
        } else {
            super::number::parse(text)
        };
        Ok(NumberLiteral {
            value: value.map_err(|why| self.error(token.at, why))?,
            is_duration,
            at: token.at,
        })
    }

    /// Parses a literal with an optional sign.
    pub(super) fn signed_literal(&mut self) -> Parsed<NumberLiteral> {
        let start = self.token.at.start;
        let is_negative = self.kind() == TokenKind::Subtract;
        if is_negative || self.kind() == TokenKind::Add {
            self.advance();
        }
        let number = self.literal()?;
        Ok(NumberLiteral {
            value: if is_negative { -number.value } else { number.value },
            at: self.since(start),
            ..number
        })
    }
}
