//! From values and conditions on them, as people write them, to those of a question.

use std::ops::Bound;

use tideline_model::Value;
use tideline_openapi::Scalar;
use tideline_openapi::query::Fill;
use tideline_openapi::value_condition::{FieldValue, ValueCondition, ValueTest};
use tideline_query as query;

/// Doubles below this stand for one whole number alone.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// A condition on values. Limits and fitness are the query's to check.
pub(super) fn to_condition(condition: ValueCondition) -> query::ValueCondition {
    let all = |conditions: Vec<ValueCondition>| conditions.into_iter().map(to_condition).collect();
    match condition {
        ValueCondition::And(conditions) => query::ValueCondition::And(all(conditions)),
        ValueCondition::Or(conditions) => query::ValueCondition::Or(all(conditions)),
        ValueCondition::Not(inner) => query::ValueCondition::Not(Box::new(to_condition(*inner))),
        ValueCondition::Field(field, test) => {
            let is_absent = test == ValueTest::Exists(false);
            let test = to_test(test);
            let leaf = query::ValueCondition::Field { field, test };
            if is_absent {
                query::ValueCondition::Not(Box::new(leaf))
            } else {
                leaf
            }
        }
    }
}

/// What stands in windows without a value; `None` = nothing does.
pub(super) fn to_fill(fill: Fill) -> Option<query::Fill> {
    Some(match fill {
        Fill::None => return None,
        Fill::Null => query::Fill::Null,
        Fill::Linear => query::Fill::Linear,
        Fill::Previous(reach) => query::Fill::Previous { reach: reach.0 },
        Fill::Value(value) => query::Fill::Value(match value {
            Scalar::Text(text) => Value::String(text.into()),
            Scalar::Boolean(boolean) => Value::Boolean(boolean),
            // A whole number fills columns of integers as one of them.
            Scalar::Number(number) if number.fract() == 0.0 && number.abs() < EXACT_INTEGERS => {
                Value::Signed(number as i64)
            }
            Scalar::Number(number) => Value::Float(number),
        }),
    })
}

fn to_test(test: ValueTest) -> query::ValueTest {
    use query::ValueTest as To;
    match test {
        ValueTest::Equals(value) => To::Equals(to_value(value)),
        ValueTest::NotEquals(value) => To::NotEquals(to_value(value)),
        ValueTest::In(values) => To::In(values.into_iter().map(to_value).collect()),
        ValueTest::Gt(value) => To::Between(Bound::Excluded(to_value(value)), Bound::Unbounded),
        ValueTest::Gte(value) => To::Between(Bound::Included(to_value(value)), Bound::Unbounded),
        ValueTest::Lt(value) => To::Between(Bound::Unbounded, Bound::Excluded(to_value(value))),
        ValueTest::Lte(value) => To::Between(Bound::Unbounded, Bound::Included(to_value(value))),
        ValueTest::Between([from, to]) => {
            To::Between(Bound::Included(to_value(from)), Bound::Included(to_value(to)))
        }
        ValueTest::Exists(_) => To::Exists,
    }
}

fn to_value(value: FieldValue) -> Value {
    match value {
        FieldValue::Boolean(value) => Value::Boolean(value),
        FieldValue::Signed(value) => Value::Signed(value),
        FieldValue::Unsigned(value) => Value::Unsigned(value),
        FieldValue::Float(value) => Value::Float(value),
        FieldValue::Text(value) => Value::String(value.into()),
    }
}
