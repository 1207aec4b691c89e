//! Naive evaluator of conditions on values, and random conditions.
//!
//! Conditions are evaluated point by point.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use tideline_condition::operators::{Compare, Equals, Exists, In, NotEquals};
use tideline_condition::{Condition, Literal, Subject, Test};
use tideline_model::{Value, ValueType};

use crate::support::Dice;

/// Returns true if a point matches a condition.
pub(crate) fn matches(condition: &Condition, point: &BTreeMap<String, Value>) -> bool {
    match condition {
        Condition::All => true,
        Condition::And(all) => all.iter().all(|inner| matches(inner, point)),
        Condition::Or(any) => any.iter().any(|inner| matches(inner, point)),
        Condition::Not(inner) => !matches(inner, point),
        Condition::Leaf {
            subject: Subject::Field(field),
            test,
        } => point
            .get(field)
            .is_some_and(|value| passes(test, &literal(value.clone()))),
        other => panic!("not on values: {other:?}"),
    }
}

fn passes(test: &Test, value: &Literal) -> bool {
    let equals = |other: &Literal| order(value, other) == Some(Ordering::Equal);
    match test {
        Test::Equals(Equals(other)) => equals(other),
        Test::NotEquals(NotEquals(other)) => !equals(other),
        Test::In(In(others)) => others.iter().any(equals),
        Test::Exists(Exists(exists)) => *exists,
        Test::Compare(Compare { low, high }) => {
            let is_above = match low {
                Bound::Included(low) => order(value, low).is_some_and(Ordering::is_ge),
                Bound::Excluded(low) => order(value, low).is_some_and(Ordering::is_gt),
                Bound::Unbounded => true,
            };
            let is_below = match high {
                Bound::Included(high) => order(value, high).is_some_and(Ordering::is_le),
                Bound::Excluded(high) => order(value, high).is_some_and(Ordering::is_lt),
                Bound::Unbounded => true,
            };
            is_above && is_below
        }
        other => panic!("not on values: {other:?}"),
    }
}

/// Returns the value as a literal. A histogram, which can only be tested for presence, becomes an empty list.
pub(crate) fn literal(value: Value) -> Literal {
    match value {
        Value::Float(value) => Literal::Float(value),
        Value::Signed(value) => Literal::Signed(value),
        Value::Unsigned(value) => Literal::Unsigned(value),
        Value::Boolean(value) => Literal::Boolean(value),
        Value::String(value) => Literal::Text(value.into()),
        Value::Histogram(_) => Literal::Texts(Vec::new()),
    }
}

/// Returns the test that a value is in an interval.
pub(crate) fn between(low: Bound<Value>, high: Bound<Value>) -> Test {
    Compare {
        low: low.map(literal),
        high: high.map(literal),
    }
    .into()
}

/// Compares two literals. The tests keep integers small enough to be exact as doubles.
fn order(a: &Literal, b: &Literal) -> Option<Ordering> {
    match (a, b) {
        (Literal::Text(a), Literal::Text(b)) => Some(a.cmp(b)),
        (Literal::Boolean(a), Literal::Boolean(b)) => Some(a.cmp(b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// Returns a random condition over fields of some types; `value` returns a random value of a type.
pub(crate) fn condition(
    dice: &mut Dice,
    fields: &[(&str, &[ValueType])],
    value: &impl Fn(&mut Dice, ValueType) -> Value,
    depth: u64,
) -> Condition {
    let branch = if depth == 0 { 9 } else { dice.below(9) };
    if branch < 2 {
        let count = dice.below(4);
        let inner = (0..count)
            .map(|_| condition(dice, fields, value, depth - 1))
            .collect();
        return if branch == 0 {
            Condition::And(inner)
        } else {
            Condition::Or(inner)
        };
    }
    if branch == 2 {
        return Condition::Not(Box::new(condition(dice, fields, value, depth - 1)));
    }
    let (field, types) = fields[dice.below(fields.len() as u64) as usize];
    let one = |dice: &mut Dice| loop {
        // Numbers of any type can be compared with numbers of any type.
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
        return Condition::leaf(Subject::Field(field.to_owned()), Test::from(Exists(true)));
    }
    let has_order = types[0] != ValueType::Boolean;
    let test = match dice.below(7) {
        0 => Test::from(Equals(literal(one(dice)))),
        1 => Test::from(NotEquals(literal(one(dice)))),
        2 => Test::from(In((0..dice.below(30)).map(|_| one(dice)).map(literal).collect())),
        3 => Test::from(Exists(true)),
        4 if has_order => between(Bound::Excluded(one(dice)), Bound::Unbounded),
        5 if has_order => between(Bound::Unbounded, Bound::Included(one(dice))),
        _ if has_order => between(Bound::Included(one(dice)), Bound::Excluded(one(dice))),
        _ => Test::from(Equals(literal(one(dice)))),
    };
    Condition::leaf(Subject::Field(field.to_owned()), test)
}
