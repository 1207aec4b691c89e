//! Rules of [`Function`], one test per rule.
//!
//! Each test writes a few points and compares the results, exactly except for sums of floats.

use tideline_model::{TimeRange, Value};
use tideline_query::{
    Aggregate, Direction, Function, GroupBy, PointQuery, QueryError, Shape, Window, WindowSpec,
};

use crate::support::{World, aggregate_query};

const SECOND: i64 = 1_000_000_000;

fn float(value: f64) -> Option<Value> {
    Some(Value::Float(value))
}

fn signed(value: i64) -> Option<Value> {
    Some(Value::Signed(value))
}

/// Returns a world with one timeline and one field. The points are one second apart; the first is at 0.
fn seconds(values: &[Value]) -> World {
    let world = World::new();
    for (value, at) in values.iter().zip(0..) {
        world.write(&[("m,host=a", at * SECOND, vec![("v", value.clone())])]);
    }
    world
}

fn range(start: i64, end: i64) -> TimeRange {
    TimeRange::new(start * SECOND, end * SECOND)
}

fn one(world: &World, function: Function) -> Option<Value> {
    let query = aggregate_query(&[function], range(0, 100), None, GroupBy::Nothing);
    let rows = world.run(&query).expect("answered").rows();
    assert!(rows.len() <= 1);
    rows.into_iter().next().and_then(|(_, values)| values[0].clone())
}

#[test]
fn windows_are_aligned_half_open_and_absent_when_empty() {
    let at = |second: i64| ("m,host=a", second * SECOND, vec![("v", Value::Signed(1))]);
    let world = World::with(&[at(-1), at(0), at(9), at(10), at(35), at(39), at(40)]);
    let query = aggregate_query(
        &[Function::Count],
        range(-5, 40),
        Some(10 * SECOND),
        GroupBy::Nothing,
    );
    let rows = world.run(&query).expect("answered").rows();
    let count = |count| vec![Some(Value::Unsigned(count))];
    let expected = [
        (-10 * SECOND, count(1)),
        (0, count(2)),
        (10 * SECOND, count(1)),
        (30 * SECOND, count(2)),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn an_offset_moves_the_windows() {
    let world = seconds(&[
        Value::Signed(1),
        Value::Signed(2),
        Value::Signed(3),
        Value::Signed(4),
    ]);
    let query = PointQuery {
        shape: Shape::Aggregate(Aggregate {
            fill: None,
            functions: vec![Function::Sum],
            window: Some(Window::Fixed(WindowSpec {
                width: 2 * SECOND,
                offset: 7 * SECOND,
            })),
            group_by: GroupBy::Nothing,
            order: Direction::Descending,
            limit: Some(2),
            ..Aggregate::default()
        }),
        ..aggregate_query(&[], range(0, 10), None, GroupBy::Nothing)
    };
    let result = world.run(&query).expect("answered");
    assert_eq!(
        result.rows(),
        [(3 * SECOND, vec![signed(4)]), (SECOND, vec![signed(5)])]
    );
    assert!(result.summary().more, "the window at -1 s has no place");
    assert_eq!(result.header.columns, ["sum(v)"]);
}

#[test]
fn integer_sums_are_exact_and_overflow_leaves_out_its_cell() {
    let most = Value::Signed(i64::MAX);
    let world = seconds(&[most.clone(), Value::Signed(-5), most, Value::Signed(i64::MIN)]);
    assert_eq!(one(&world, Function::Sum), signed(i64::MAX - 6));
    let world = seconds(&[Value::Unsigned(u64::MAX), Value::Unsigned(1)]);
    let query = aggregate_query(&[Function::Sum], range(0, 9), None, GroupBy::Nothing);
    let result = world.run(&query).expect("only one cell does not fit");
    assert_eq!(result.rows(), [(0, vec![None])]);
    assert_eq!(result.summary().overflowed, ["sum(v)"]);
    let both = aggregate_query(
        &[Function::Sum, Function::Max],
        range(0, 9),
        None,
        GroupBy::Nothing,
    );
    let result = world.run(&both).expect("the other cell fits");
    assert_eq!(result.rows(), [(0, vec![None, Some(Value::Unsigned(u64::MAX))])]);
    assert_eq!(one(&world, Function::Mean), float(9_223_372_036_854_775_808.0));
}

#[test]
fn float_sums_do_not_depend_on_order_or_tier() {
    let values: Vec<Value> = (0..40)
        .map(|at| Value::Float([1e15, 0.1, -1e15, 3.3, 1e-3][at % 5] * (1.0 + at as f64 / 7.0)))
        .collect();
    let forth = seconds(&values);
    let back = seconds(&values.iter().rev().cloned().collect::<Vec<_>>());
    forth.seal();
    let number = |value: Option<Value>| value.and_then(|value| value.as_f64()).expect("a number");
    for function in [Function::Sum, Function::Mean] {
        let (a, b) = (number(one(&forth, function)), number(one(&back, function)));
        assert!((a - b).abs() <= 1e-12 * a.abs(), "{a} {b}");
    }
}

#[test]
fn mixed_numbers_become_float_and_keep_their_type_as_extremes() {
    let world = seconds(&[Value::Signed(4), Value::Float(1.5), Value::Unsigned(9)]);
    assert_eq!(one(&world, Function::Sum), float(14.5));
    assert_eq!(one(&world, Function::Min), float(1.5));
    assert_eq!(one(&world, Function::Max), Some(Value::Unsigned(9)));
    assert_eq!(one(&world, Function::First), signed(4));
    assert_eq!(one(&world, Function::Last), Some(Value::Unsigned(9)));
}

#[test]
fn nan_is_a_value_that_extremes_pass_over() {
    let world = seconds(&[Value::Float(2.0), Value::Float(f64::NAN), Value::Float(1.0)]);
    assert_eq!(one(&world, Function::Count), Some(Value::Unsigned(3)));
    let sum = one(&world, Function::Sum);
    assert!(matches!(sum, Some(Value::Float(sum)) if sum.is_nan()));
    assert_eq!(one(&world, Function::Min), float(1.0));
    assert_eq!(one(&world, Function::Max), float(2.0));
    assert_eq!(one(&world, Function::Increase), float(1.0));
}

#[test]
fn booleans_and_texts_have_some_functions_only() {
    let flags = seconds(&[Value::Boolean(true), Value::Boolean(false)]);
    assert_eq!(one(&flags, Function::Min), Some(Value::Boolean(false)));
    assert_eq!(one(&flags, Function::Max), Some(Value::Boolean(true)));
    let texts = seconds(&[Value::String("b".into()), Value::String("a".into())]);
    assert_eq!(one(&texts, Function::First), Some(Value::String("b".into())));
    assert_eq!(one(&texts, Function::Count), Some(Value::Unsigned(2)));
    for (world, function) in [(&flags, Function::Mean), (&texts, Function::Max)] {
        let mut query = aggregate_query(&[function], range(0, 9), None, GroupBy::Nothing);
        query.fields = vec!["v".into()];
        let error = world.run(&query).expect_err("it does not suit");
        assert!(
            matches!(&error, QueryError::WrongType { field, .. } if field == "v"),
            "{error}"
        );
    }
}

#[test]
fn without_named_fields_functions_take_what_they_suit() {
    let fields = vec![("n", Value::Signed(3)), ("s", Value::String("x".into()))];
    let world = World::with(&[("m,host=a", 0, fields)]);
    let query = aggregate_query(
        &[Function::Mean, Function::Last],
        range(0, 9),
        None,
        GroupBy::Nothing,
    );
    let result = world.run(&query).expect("answered");
    assert_eq!(result.header.columns, ["mean(n)", "last(n)", "last(s)"]);
    let values = vec![float(3.0), signed(3), Some(Value::String("x".into()))];
    assert_eq!(result.rows(), [(0, values)]);
}

#[test]
fn a_counter_steps_into_the_window_of_its_later_point() {
    let counts = [10, 13, 20, 2, 5, 5].map(Value::Signed);
    let world = seconds(&counts);
    let query = aggregate_query(
        &[Function::Increase],
        range(0, 6),
        Some(2 * SECOND),
        GroupBy::Nothing,
    );
    let rows = world.run(&query).expect("answered").rows();
    let expected = [
        (0, vec![signed(3)]),
        // The step from 13 to 20 crosses the window boundary; the step from 20 to 2 is a counter reset.
        (2 * SECOND, vec![signed(7 + 2)]),
        (4 * SECOND, vec![signed(3)]),
    ];
    assert_eq!(rows, expected);
    assert_eq!(one(&world, Function::Increase), signed(3 + 7 + 2 + 3));
    // The point before the range does not count.
    let query = aggregate_query(&[Function::Increase], range(1, 3), None, GroupBy::Nothing);
    assert_eq!(
        world.run(&query).expect("answered").rows(),
        [(SECOND, vec![signed(7)])]
    );
    // A single point has no step.
    let query = aggregate_query(&[Function::Increase], range(1, 2), None, GroupBy::Nothing);
    assert!(world.run(&query).expect("answered").rows().is_empty());
}

#[test]
fn a_rate_is_over_the_requested_part_of_the_window() {
    let world = seconds(&[0, 10, 20, 30, 40, 50].map(Value::Unsigned));
    let query = aggregate_query(&[Function::Rate], range(1, 6), Some(4 * SECOND), GroupBy::Nothing);
    let rows = world.run(&query).expect("answered").rows();
    // The range starts at 1 s, so the window from 0 s to 4 s has two steps in three seconds.
    assert_eq!(
        rows,
        [
            (0, vec![float(20.0 / 3.0)]),
            (4 * SECOND, vec![float(20.0 / 2.0)])
        ]
    );
}

#[test]
fn counters_of_a_group_are_added_timeline_by_timeline() {
    let point =
        |host: &'static str, at: i64, value: i64| (host, at * SECOND, vec![("v", Value::Signed(value))]);
    let world = World::with(&[
        point("m,host=a", 0, 100),
        point("m,host=b", 1, 5),
        point("m,host=a", 2, 101),
        point("m,host=b", 3, 7),
    ]);
    assert_eq!(one(&world, Function::Increase), signed(1 + 2));
}

#[test]
fn ties_in_time_go_to_the_lowest_and_the_highest_id() {
    let keys = ["m,host=a", "m,host=b", "m,host=c", "m,host=d"];
    let points: Vec<_> = keys
        .iter()
        .zip(0..)
        .map(|(key, at)| (*key, 0, vec![("v", Value::Signed(at))]))
        .collect();
    let world = World::with(&points);
    let mut ids: Vec<_> = keys
        .iter()
        .zip(0..)
        .map(|(key, at)| (world.id(key), at))
        .collect();
    ids.sort_unstable();
    assert_eq!(one(&world, Function::First), signed(ids[0].1));
    assert_eq!(one(&world, Function::Last), signed(ids[3].1));
}

#[test]
fn groups_keep_measurements_apart_and_missing_tags_equal_the_empty_text() {
    let point = |key: &'static str, value: i64| (key, 0, vec![("v", Value::Signed(value))]);
    let world = World::with(&[
        point("cpu,dc=x,host=a", 1),
        point("cpu,dc=x,host=b", 2),
        point("cpu,host=c", 4),
        point("mem,dc=x,host=a", 8),
    ]);
    let by_dc = GroupBy::Tags(vec!["dc".into()]);
    let result = world
        .run(&aggregate_query(&[Function::Sum], range(0, 9), None, by_dc))
        .expect("answered");
    let found: Vec<_> = result
        .series
        .iter()
        .map(|series| {
            (
                series.measurement.as_str(),
                series.tags[0].1.as_str(),
                series.rows[0].1[0].clone(),
            )
        })
        .collect();
    let expected = [
        ("cpu", "", signed(4)),
        ("cpu", "x", signed(3)),
        ("mem", "x", signed(8)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_count_is_zero_where_only_another_field_has_values() {
    let world = World::with(&[
        ("m,host=a", 0, vec![("v", Value::Signed(1))]),
        ("m,host=a", SECOND, vec![("w", Value::Signed(1))]),
    ]);
    let functions = [Function::Count, Function::Max];
    let query = aggregate_query(&functions, range(0, 9), Some(SECOND), GroupBy::Nothing);
    let rows = world.run(&query).expect("answered").rows();
    let (zero, one) = (Some(Value::Unsigned(0)), Some(Value::Unsigned(1)));
    let expected = [
        (0, vec![one.clone(), signed(1), zero.clone(), None]),
        (SECOND, vec![zero, None, one, signed(1)]),
    ];
    assert_eq!(rows, expected);
}
