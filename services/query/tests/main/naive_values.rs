//! Conditions on values, point by point; and random ones.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use tideline_model::{Value, ValueType};
use tideline_query::{ValueCondition, ValueTest};

use crate::support::Dice;

/// Whether a point counts.
pub(crate) fn meets(condition: &ValueCondition, point: &BTreeMap<String, Value>) -> bool {
    match condition {
        ValueCondition::And(all) => all.iter().all(|inner| meets(inner, point)),
        ValueCondition::Or(any) => any.iter().any(|inner| meets(inner, point)),
        ValueCondition::Not(inner) => !meets(inner, point),
        ValueCondition::Field { field, test } => point.get(field).is_some_and(|value| passes(test, value)),
    }
}

fn passes(test: &ValueTest, value: &Value) -> bool {
    let equals = |other: &Value| order(value, other) == Some(Ordering::Equal);
    match test {
        ValueTest::Equals(other) => equals(other),
        ValueTest::NotEquals(other) => !equals(other),
        ValueTest::In(others) => others.iter().any(equals),
        ValueTest::Exists => true,
        ValueTest::Between(from, to) => {
            let is_above = match from {
                Bound::Included(from) => order(value, from).is_some_and(Ordering::is_ge),
                Bound::Excluded(from) => order(value, from).is_some_and(Ordering::is_gt),
                Bound::Unbounded => true,
            };
            let is_below = match to {
                Bound::Included(to) => order(value, to).is_some_and(Ordering::is_le),
                Bound::Excluded(to) => order(value, to).is_some_and(Ordering::is_lt),
                Bound::Unbounded => true,
            };
            is_above && is_below
        }
    }
}

/// The tests keep integers small enough to be exact as doubles.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::String(_), _) | (_, Value::String(_)) => None,
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// A random tree over fields of some types; `value` makes values of a type.
pub(crate) fn condition(
    dice: &mut Dice,
    fields: &[(&str, &[ValueType])],
    value: &impl Fn(&mut Dice, ValueType) -> Value,
    depth: u64,
) -> ValueCondition {
    let branch = if depth == 0 { 9 } else { dice.below(9) };
    if branch < 2 {
        let count = dice.below(4);
        let inner = (0..count)
            .map(|_| condition(dice, fields, value, depth - 1))
            .collect();
        return if branch == 0 {
            ValueCondition::And(inner)
        } else {
            ValueCondition::Or(inner)
        };
    }
    if branch == 2 {
        return ValueCondition::Not(Box::new(condition(dice, fields, value, depth - 1)));
    }
    let (field, types) = fields[dice.below(fields.len() as u64) as usize];
    let one = |dice: &mut Dice| loop {
        // Numbers of any type are compared with numbers of any type.
        let numbers = [ValueType::Signed, ValueType::Unsigned, ValueType::Float];
        let value_type = if numbers.contains(&types[0]) {
            numbers[dice.below(3) as usize]
        } else {
            types[0]
        };
        let value = value(dice, value_type);
        if !matches!(value, Value::Float(value) if value.is_nan()) {
            return value;
        }
    };
    if types[0] == ValueType::Histogram {
        return ValueCondition::Field {
            field: field.into(),
            test: ValueTest::Exists,
        };
    }
    let has_order = types[0] != ValueType::Boolean;
    let test = match dice.below(7) {
        0 => ValueTest::Equals(one(dice)),
        1 => ValueTest::NotEquals(one(dice)),
        2 => ValueTest::In((0..dice.below(30)).map(|_| one(dice)).collect()),
        3 => ValueTest::Exists,
        4 if has_order => ValueTest::Between(Bound::Excluded(one(dice)), Bound::Unbounded),
        5 if has_order => ValueTest::Between(Bound::Unbounded, Bound::Included(one(dice))),
        _ if has_order => ValueTest::Between(Bound::Included(one(dice)), Bound::Excluded(one(dice))),
        _ => ValueTest::Equals(one(dice)),
    };
    ValueCondition::Field {
        field: field.into(),
        test,
    }
}
