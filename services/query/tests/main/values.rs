//! Conditions on values: their rules, and the conditions that are refused.
//!
//! All conditions are tested on one small set of points.

use std::ops::Bound;

use tideline_condition::operators::{Equals, Exists, In, NotEquals};
use tideline_condition::{Condition, Subject, Test};
use tideline_model::{TimeRange, Value};
use tideline_query::{Function, GroupBy, PointQuery};

use crate::naive_values::{between, literal};
use crate::support::{World, aggregate_query, rows_query};

fn world() -> World {
    let point = |at: i64, fields| ("m,host=a", at, fields);
    World::with(&[
        point(0, vec![("n", Value::Signed(5)), ("s", Value::String("x".into()))]),
        point(1, vec![("n", Value::Float(90.5)), ("w", Value::Signed(1))]),
        point(2, vec![("n", Value::Float(f64::NAN)), ("w", Value::Signed(2))]),
        point(3, vec![("w", Value::Signed(3)), ("on", Value::Boolean(true))]),
        point(4, vec![("n", Value::Unsigned(100)), ("w", Value::Signed(4))]),
    ])
}

fn field(field: &str, test: Test) -> Condition {
    Condition::leaf(Subject::Field(field.to_owned()), test)
}

fn above(field_name: &str, value: Value) -> Condition {
    field(field_name, between(Bound::Excluded(value), Bound::Unbounded))
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn run(world: &World, values: Condition, fields: &[&str]) -> tideline_query::Result<Vec<i64>> {
    let query = PointQuery {
        values: Some(values),
        fields: fields.iter().map(|name| (*name).into()).collect(),
        ..rows_query()
    };
    let rows = world.run(&query)?.rows();
    Ok(rows.into_iter().map(|(time, _)| time).collect())
}

#[test]
fn tests_see_points_that_have_the_field() {
    let world = world();
    let n = || above("n", Value::Signed(90));
    let equals = |value| field("n", Test::from(Equals(literal(value))));
    for (condition, times) in [
        (n(), vec![1, 4]),
        // Missing values and NaN are not above the bound.
        (not(n()), vec![0, 2, 3]),
        (equals(Value::Float(100.0)), vec![4]),
        (
            field("n", Test::from(NotEquals(literal(Value::Signed(5))))),
            vec![1, 2, 4],
        ),
        (field("n", Test::from(Exists(true))), vec![0, 1, 2, 4]),
        (not(field("n", Test::from(Exists(true)))), vec![3]),
        (field("n", Test::from(In(Vec::new()))), vec![]),
        (
            field(
                "s",
                Test::from(In(Vec::from([Value::String("x".into())])
                    .into_iter()
                    .map(literal)
                    .collect())),
            ),
            vec![0],
        ),
        (
            field("on", Test::from(Equals(literal(Value::Boolean(true))))),
            vec![3],
        ),
        (Condition::And(vec![n(), above("w", Value::Signed(3))]), vec![4]),
        (
            Condition::Or(vec![equals(Value::Signed(5)), above("w", Value::Signed(3))]),
            vec![0, 4],
        ),
        (Condition::And(vec![]), vec![0, 1, 2, 3, 4]),
        (Condition::Or(vec![]), vec![]),
    ] {
        assert_eq!(
            run(&world, condition.clone(), &[]).expect("answered"),
            times,
            "{condition:?}"
        );
        world.seal();
    }
}

#[test]
fn the_fields_of_a_condition_need_not_be_wanted() {
    let world = world();
    let n = above("n", Value::Signed(50));
    // Only the points at 1 and 4 have `n` above 50.
    assert_eq!(run(&world, n.clone(), &["w"]).expect("answered"), [1, 4]);
    let query = PointQuery {
        values: Some(n),
        fields: vec!["w".into()],
        ..aggregate_query(
            &[Function::Sum, Function::Count],
            TimeRange::new(0, 9),
            None,
            GroupBy::Nothing,
        )
    };
    let result = world.run(&query).expect("answered");
    assert_eq!(result.header.columns, ["sum(w)", "count(w)"]);
    assert_eq!(
        result.rows(),
        [(0, vec![Some(Value::Signed(5)), Some(Value::Unsigned(2))])]
    );
}

#[test]
fn what_cannot_be_met_is_refused_by_name() {
    let world = world();
    let text = || Value::String("x".into());
    let mut deep = Condition::And(Vec::new());
    for _ in 0..64 {
        deep = not(deep);
    }
    let many = field(
        "n",
        Test::from(In((0..10_000).map(Value::Signed).map(literal).collect())),
    );
    let booleans = between(Bound::Included(Value::Boolean(false)), Bound::Unbounded);
    for (condition, said) in [
        (above("nothing", Value::Signed(1)), "\"nothing\" does not exist"),
        (
            above("s", Value::Signed(1)),
            "\"s\" holds texts, and is compared with numbers",
        ),
        (
            field("n", Test::from(Equals(literal(text())))),
            "\"n\" holds numbers, and is compared with texts",
        ),
        (field("on", booleans), "equal or not"),
        (
            field(
                "n",
                Test::from(In(Vec::from([text(), Value::Signed(1)])
                    .into_iter()
                    .map(literal)
                    .collect())),
            ),
            "of one kind",
        ),
        (above("n", Value::Float(f64::NAN)), "finite"),
        (deep, "depth of the condition"),
        (many, "number of conditions"),
    ] {
        let error = run(&world, condition, &[]).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}
