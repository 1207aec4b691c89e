//! Conversion of conditions to the form that the rows crate evaluates.
//!
//! If a column has no value, every test of the column except `IS NULL` is false. `LIKE` compares only texts, also in
//! columns that are not declared.

use std::ops::Bound;

use tideline_engine::WideTable;
use tideline_engine::condition::literal::TypedLiteral;
use tideline_engine::condition::operators::{Compare, Equals, Exists, In, NotEquals};
use tideline_engine::condition::{Condition, Literal as Value, Subject, Test};
use tideline_engine::model::ColumnType;
use tideline_rows::value::type_of;

use super::keys::{after_prefix, text_literal};
use crate::error::{Result, SqlError};
use crate::literal::Literal;
use crate::statement::{ColumnTest, Comparison, Name, Predicate};

/// Converts a condition.
///
/// # Errors
///
/// [`SqlError::Invalid`] for values that cannot be compared with their column, and [`SqlError::Refused`] for `LIKE` on
/// a column whose values are not texts.
pub fn condition(table: &WideTable, predicate: &Predicate) -> Result<Condition> {
    let all = |predicates: &[Predicate]| -> Result<Vec<Condition>> {
        predicates.iter().map(|inner| condition(table, inner)).collect()
    };
    Ok(match predicate {
        Predicate::And(predicates) => Condition::And(all(predicates)?),
        Predicate::Or(predicates) => Condition::Or(all(predicates)?),
        Predicate::Test(column, test) => converted(column, declared(table, &column.text), test)?,
    })
}

/// Returns the declared type of a column; `None` for an undeclared column.
pub(crate) fn declared(table: &WideTable, name: &str) -> Option<ColumnType> {
    match table.layout().logical_number(name) {
        Ok(number) => Some(type_of(table.layout().logical()[number].kind)),
        Err(_) => table.column(name).1,
    }
}

/// Returns the error of `LIKE` on a column whose values are not texts.
pub(super) fn like_refused(column: &Name, declared: ColumnType) -> SqlError {
    SqlError::refused(
        column.at,
        format!(
            "column {:?} has the type {declared}, and LIKE tests texts; use =, <>, <, <=, >, >=, IN or BETWEEN",
            column.text
        ),
    )
}

fn converted(column: &Name, declared: Option<ColumnType>, test: &ColumnTest) -> Result<Condition> {
    let value = |literal: &Literal| literal.to_condition(declared);
    let text = |literal: &Literal| -> Result<Value> {
        let value = value(literal)?;
        Ok(match declared {
            Some(_) => value,
            None => Value::Typed(Box::new(TypedLiteral {
                column_type: ColumnType::String,
                value,
            })),
        })
    };
    let leaf = |test: Test| Condition::leaf(Subject::Column(column.text.clone()), test);
    let between = |low: Bound<Value>, high: Bound<Value>| leaf(Compare { low, high }.into());
    let outside = |below: Value, above: Bound<Value>| {
        let below = between(Bound::Unbounded, Bound::Excluded(below));
        match above {
            Bound::Unbounded => below,
            above => Condition::Or(vec![below, between(above, Bound::Unbounded)]),
        }
    };
    if let (ColumnTest::Prefix(..) | ColumnTest::SameText(..), Some(declared)) = (test, declared)
        && !matches!(declared, ColumnType::String | ColumnType::Json)
    {
        return Err(like_refused(column, declared));
    }
    Ok(match test {
        ColumnTest::IsNull => leaf(Exists(false).into()),
        ColumnTest::IsNotNull => leaf(Exists(true).into()),
        ColumnTest::Compare(comparison, literal) => {
            let value = value(literal)?;
            match comparison {
                Comparison::Equal => leaf(Equals(value).into()),
                Comparison::NotEqual => leaf(NotEquals(value).into()),
                Comparison::Less => between(Bound::Unbounded, Bound::Excluded(value)),
                Comparison::LessOrEqual => between(Bound::Unbounded, Bound::Included(value)),
                Comparison::Greater => between(Bound::Excluded(value), Bound::Unbounded),
                Comparison::GreaterOrEqual => between(Bound::Included(value), Bound::Unbounded),
            }
        }
        ColumnTest::SameText(same, false) => leaf(Equals(text(same)?).into()),
        ColumnTest::SameText(same, true) => leaf(NotEquals(text(same)?).into()),
        ColumnTest::In(literals, negated) => {
            let values: Vec<Value> = literals.iter().map(value).collect::<Result<_>>()?;
            match negated {
                false => leaf(In(values).into()),
                true => Condition::And(
                    values
                        .into_iter()
                        .map(|value| leaf(NotEquals(value).into()))
                        .collect(),
                ),
            }
        }
        ColumnTest::Between(ends, negated) => {
            let [low, high] = [value(&ends[0])?, value(&ends[1])?];
            match negated {
                false => between(Bound::Included(low), Bound::Included(high)),
                true => outside(low, Bound::Excluded(high)),
            }
        }
        ColumnTest::Prefix(prefix, negated) => {
            let text_of = |prefix: String| text(&text_literal(prefix, column));
            let low = text_of(prefix.clone())?;
            let above = after_prefix(prefix).map(text_of).transpose()?;
            match (negated, above) {
                (false, Some(above)) => between(Bound::Included(low), Bound::Excluded(above)),
                (false, None) => between(Bound::Included(low), Bound::Unbounded),
                (true, Some(above)) => outside(low, Bound::Included(above)),
                (true, None) => outside(low, Bound::Unbounded),
            }
        }
    })
}
