//! Parser of conditions.
//!
//! `NOT` is moved into the tests, by De Morgan's laws and by the negation of each test. As in SQL, a test of a column
//! without a value is false, and so is its negation. Exceptions are `IS NULL` and `IS NOT NULL`.

use sqlparser::ast::{BinaryOperator, Expr, InTarget, Spanned, UnaryOperator, Value};

use super::cursor::Cursor;
use super::value::{literal, refused};
use crate::error::{Position, Result, SqlError};
use crate::literal::{Literal, LiteralValue};
use crate::statement::{ColumnTest, Comparison, Name, Predicate};

/// Parses the condition that follows `WHERE`.
pub(super) fn condition(cursor: &mut Cursor<'_>) -> Result<Predicate> {
    let expression = cursor.expression()?;
    predicate(cursor, expression, false)
}

/// Converts an expression, and negates it if `negated` is true. The nesting limit of the parser bounds the depth of the
/// recursion, because chains of the same operator are converted in a loop.
fn predicate(cursor: &Cursor<'_>, expression: Expr, negated: bool) -> Result<Predicate> {
    match expression {
        Expr::Nested(inner) => predicate(cursor, *inner, negated),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => predicate(cursor, *expr, !negated),
        Expr::BinaryOp {
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            left,
            right,
        } => chain(cursor, &op, *left, *right, negated),
        Expr::BinaryOp { left, op, right } => compare(cursor, &left, &op, &right, negated),
        Expr::IsNull(column) => test_null(&column, !negated),
        Expr::IsNotNull(column) => test_null(&column, negated),
        Expr::IsTrue(column) if !negated => test_truth(&column, true),
        Expr::IsFalse(column) if !negated => test_truth(&column, false),
        Expr::In {
            expr,
            target: InTarget::List(list),
            negated: not,
            global: false,
        } => {
            let values: Vec<Literal> = list
                .iter()
                .map(|value| compared(cursor, value))
                .collect::<Result<_>>()?;
            Ok(Predicate::Test(
                column(&expr)?,
                ColumnTest::In(values, not != negated),
            ))
        }
        Expr::In { expr, .. } => Err(SqlError::refused(
            expr.span(),
            "IN with a subquery is not evaluated; run the inner SELECT first, and pass its values as a list",
        )),
        Expr::Between {
            expr,
            negated: not,
            low,
            high,
        } => {
            let ends = [compared(cursor, &low)?, compared(cursor, &high)?];
            Ok(Predicate::Test(
                column(&expr)?,
                ColumnTest::Between(Box::new(ends), not != negated),
            ))
        }
        Expr::Like {
            negated: not,
            any: false,
            expr,
            pattern,
            escape_char: None,
        } => like(cursor, &expr, &pattern, not != negated),
        Expr::Like { .. } => Err(SqlError::refused(
            expression.span(),
            "LIKE with ANY or ESCAPE is not evaluated; write a backslash before a literal % or _",
        )),
        Expr::Identifier(_) => test_truth(&expression, !negated),
        other => Err(refused(&other)),
    }
}

/// Converts a chain of `AND` or `OR`, which the parser returns as a left-nested tree.
fn chain(
    cursor: &Cursor<'_>,
    op: &BinaryOperator,
    left: Expr,
    right: Expr,
    negated: bool,
) -> Result<Predicate> {
    let mut operands = vec![right];
    let mut rest = left;
    loop {
        match rest {
            Expr::BinaryOp {
                left,
                op: next,
                right,
            } if next == *op => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    let operands = operands.into_iter().rev();
    let operands: Vec<Predicate> = operands
        .map(|operand| predicate(cursor, operand, negated))
        .collect::<Result<_>>()?;
    match (*op == BinaryOperator::And) != negated {
        true => Ok(Predicate::And(operands)),
        false => Ok(one_list(operands)),
    }
}

/// Joins conditions by `OR`. If all of them are equalities of the same column, returns one list of values instead,
/// because an access path can use a list.
fn one_list(operands: Vec<Predicate>) -> Predicate {
    let list = |operand: &Predicate| match operand {
        Predicate::Test(column, ColumnTest::Compare(Comparison::Equal, value)) => {
            Some((column.clone(), vec![value.clone()]))
        }
        Predicate::Test(column, ColumnTest::In(values, false)) => Some((column.clone(), values.clone())),
        _ => None,
    };
    let lists: Option<Vec<(Name, Vec<Literal>)>> = operands.iter().map(list).collect();
    match lists {
        Some(lists) if lists.iter().all(|(column, _)| column.text == lists[0].0.text) => {
            let column = lists[0].0.clone();
            let values = lists.into_iter().flat_map(|(_, values)| values).collect();
            Predicate::Test(column, ColumnTest::In(values, false))
        }
        _ => Predicate::Or(operands),
    }
}

fn compare(
    cursor: &Cursor<'_>,
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    negated: bool,
) -> Result<Predicate> {
    let comparison = match op {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => {
            return Err(SqlError::refused(
                left.span(),
                format!(
                    "the operator {op} is not evaluated; use =, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS NULL"
                ),
            ));
        }
    };
    let is_column = |expression: &Expr| matches!(expression, Expr::Identifier(_));
    let (name, value, comparison) = match (is_column(left), is_column(right)) {
        (false, true) => (column(right)?, compared(cursor, left)?, comparison.exchanged()),
        _ => (column(left)?, compared(cursor, right)?, comparison),
    };
    let comparison = if negated { comparison.negated() } else { comparison };
    Ok(Predicate::Test(name, ColumnTest::Compare(comparison, value)))
}

/// Converts the value in a comparison.
fn compared(cursor: &Cursor<'_>, expression: &Expr) -> Result<Literal> {
    let value = literal(cursor, expression)?;
    match value.is_null() {
        true => Err(value.compared_with_null()),
        false => Ok(value),
    }
}

/// Converts an expression that must be the name of a column.
pub(super) fn column(expression: &Expr) -> Result<Name> {
    match expression {
        Expr::Identifier(name) => Ok(Name {
            text: name.value.clone(),
            at: name.span.into(),
        }),
        Expr::Nested(inner) => column(inner),
        Expr::Value(value) if !matches!(value.value, Value::Placeholder(_)) => Err(SqlError::refused(
            value.span,
            "a comparison has a column on one side; names are in backticks, texts in single quotes",
        )),
        other => Err(refused(other)),
    }
}

fn test_null(expression: &Expr, is_null: bool) -> Result<Predicate> {
    let test = if is_null {
        ColumnTest::IsNull
    } else {
        ColumnTest::IsNotNull
    };
    Ok(Predicate::Test(column(expression)?, test))
}

fn test_truth(expression: &Expr, truth: bool) -> Result<Predicate> {
    let value = Literal {
        value: LiteralValue::Boolean(truth),
        at: Position::from(expression.span()),
        is_parameter: false,
    };
    Ok(Predicate::Test(
        column(expression)?,
        ColumnTest::Compare(Comparison::Equal, value),
    ))
}

/// Converts `LIKE`. A pattern without wildcards becomes an equality of texts. A pattern with `%` only at its end
/// becomes a prefix test. Other patterns are refused.
fn like(cursor: &Cursor<'_>, expression: &Expr, pattern: &Expr, negated: bool) -> Result<Predicate> {
    let value = compared(cursor, pattern)?;
    let LiteralValue::Text(pattern) = &value.value else {
        return Err(SqlError::invalid(value.at, "LIKE needs a text"));
    };
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.push(characters.next().unwrap_or('\\')),
            '%' if characters.as_str().chars().all(|character| character == '%') => {
                return Ok(Predicate::Test(
                    column(expression)?,
                    ColumnTest::Prefix(text, negated),
                ));
            }
            '%' | '_' => {
                return Err(SqlError::refused(
                    value.at,
                    "LIKE is evaluated for a text with % at its end; other patterns would have to read and test every \
                     row. Filter in the application, or store the text reversed to search its end",
                ));
            }
            other => text.push(other),
        }
    }
    let value = Literal {
        value: LiteralValue::Text(text),
        ..value
    };
    Ok(Predicate::Test(
        column(expression)?,
        ColumnTest::SameText(value, negated),
    ))
}
