//! Parser of values: literals and parameters.
//!
//! Every other expression, such as a function or another column, is refused. The error describes the expression.

use sqlparser::ast::{DataType, Expr, Spanned, UnaryOperator, Value, ValueWithSpan};

use super::cursor::Cursor;
use crate::error::{Position, Result, SqlError};
use crate::literal::{Literal, LiteralValue, json_number};

/// Converts an expression that must be a value.
pub(super) fn literal(cursor: &Cursor<'_>, expression: &Expr) -> Result<Literal> {
    let at = Position::from(expression.span());
    match expression {
        Expr::Value(value) => of_value(cursor, value, false),
        Expr::Nested(inner) => literal(cursor, inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match &**expr {
            Expr::Value(
                value @ ValueWithSpan {
                    value: Value::Number(..),
                    ..
                },
            ) => of_value(cursor, value, true),
            _ => Err(SqlError::invalid(
                at,
                "a minus sign precedes a number; give one number",
            )),
        },
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => literal(cursor, expr),
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::Timestamp(..) | DataType::Date) => {
            of_value(cursor, &typed.value, false)
        }
        Expr::Identifier(name) => Err(SqlError::refused(
            at,
            format!(
                "expected a value, found the name {:?}; texts are in single quotes, and a column is compared with \
                 values only",
                name.value
            ),
        )),
        other => Err(refused(other)),
    }
}

fn of_value(cursor: &Cursor<'_>, value: &ValueWithSpan, is_negative: bool) -> Result<Literal> {
    let at = Position::from(value.span);
    let value = match &value.value {
        Value::Null => LiteralValue::Null,
        Value::Boolean(value) => LiteralValue::Boolean(*value),
        Value::Number(text, false) => match json_number(text, is_negative) {
            Some(json) => LiteralValue::Number(json),
            None => return Err(SqlError::invalid(at, format!("{text} is not a decimal number"))),
        },
        Value::SingleQuotedString(text) | Value::NationalStringLiteral(text) => {
            LiteralValue::Text(text.clone())
        }
        Value::HexStringLiteral(digits) => match bytes(digits) {
            Some(bytes) => LiteralValue::Binary(bytes),
            None => {
                return Err(SqlError::invalid(
                    at,
                    "bytes have pairs of hexadecimal digits, such as X'00ff'",
                ));
            }
        },
        Value::Placeholder(name) => return cursor.parameter(name, at),
        _ => {
            return Err(SqlError::invalid(
                at,
                "this form of a value is not supported; use a number, TRUE, FALSE, NULL, a text in single quotes, \
                 X'00ff' or ?",
            ));
        }
    };
    Ok(Literal {
        value,
        at,
        is_parameter: false,
    })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let nibble = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
            _ => None,
        })
        .collect()
}

/// Returns the error of an expression that is not evaluated.
pub(super) fn refused(expression: &Expr) -> SqlError {
    let (what, advice) = match expression {
        Expr::Function(function) => {
            let name = function.name.to_string().to_ascii_uppercase();
            let short: String = name.chars().take(40).collect();
            return SqlError::refused(
                expression.span(),
                format!(
                    "the function {short} is not evaluated; select the columns and compute it in the application, or \
                     pass its value as a parameter. Result columns can have COUNT, SUM, AVG, STDDEV_POP, MIN, MAX, \
                     SPREAD, MODE, FIRST, LAST, PERCENTILE and TIME_WINDOW"
                ),
            );
        }
        Expr::Subquery(_) | Expr::Exists { .. } => (
            "subqueries are not evaluated",
            "run the inner SELECT first, and pass its result as parameters",
        ),
        Expr::Case { .. } => ("CASE is not evaluated", "compute it in the application"),
        Expr::Cast { .. } | Expr::Convert { .. } => (
            "conversions are not evaluated",
            "give a value of the type of the column",
        ),
        Expr::Tuple(_) => (
            "lists of columns are not compared",
            "compare each column, or use one IN per key column",
        ),
        Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::RLike { .. } => (
            "patterns other than LIKE are not evaluated",
            "use LIKE with a text that ends with %, or filter in the application",
        ),
        Expr::CompoundIdentifier(_) => (
            "a column name has one part",
            "omit the name of the table; put a name with a period in backticks",
        ),
        Expr::BinaryOp { .. } | Expr::UnaryOp { .. } => (
            "arithmetic is not evaluated here",
            "give one value; UPDATE can add a number to a column",
        ),
        _ => (
            "this expression is not evaluated",
            "compare a column with values by =, <>, <, <=, >, >=, IN, BETWEEN, LIKE 'text%' or IS NULL",
        ),
    };
    SqlError::refused(expression.span(), format!("{what}; {advice}"))
}
