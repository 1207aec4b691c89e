//! Rules of percentiles, distinct counts, modes, differences (`spread`, `delta`) and areas (`integral`,
//! `time_weighted_mean`).
//!
//! Also tests column names, the memory limits of functions that hold values, and the maximum number of functions.

use tideline_model::{TimeRange, Value};
use tideline_query::{Budget, Function, GroupBy, Percentile, PointQuery, QueryError};

use crate::support::{World, aggregate_query};

const SECOND: i64 = 1_000_000_000;

fn world(values: &[Value]) -> World {
    let world = World::new();
    let points: Vec<_> = values
        .iter()
        .zip(0..)
        .map(|(value, at)| ("m,host=a", at * SECOND, vec![("v", value.clone())]))
        .collect();
    world.write(&points);
    world
}

fn percentile(percent: f64) -> Function {
    Function::Percentile(Percentile::new(percent).expect("a share"))
}

fn run(world: &World, functions: &[Function]) -> Vec<Option<Value>> {
    let range = TimeRange::new(0, 100_000 * SECOND);
    let query = aggregate_query(functions, range, None, GroupBy::Nothing);
    let mut rows = world.run(&query).expect("answered").rows();
    rows.pop().map(|(_, values)| values).unwrap_or_default()
}

fn float(value: f64) -> Option<Value> {
    Some(Value::Float(value))
}

#[test]
fn columns_bear_the_parameter() {
    let world = world(&[Value::Signed(1)]);
    let functions = [percentile(95.0), percentile(99.9), Function::TimeWeightedMean];
    let query = aggregate_query(&functions, TimeRange::new(0, SECOND), None, GroupBy::Nothing);
    let columns = world.run(&query).expect("answered").header.columns;
    assert_eq!(
        columns,
        ["percentile_95(v)", "percentile_99.9(v)", "time_weighted_mean(v)"]
    );
}

#[test]
fn differences_of_integers_are_exact_at_the_ends_of_their_types() {
    let far = world(&[Value::Signed(i64::MIN), Value::Signed(i64::MAX)]);
    assert_eq!(run(&far, &[Function::Spread]), [Some(Value::Unsigned(u64::MAX))]);
    let range = TimeRange::new(0, 9 * SECOND);
    let query = aggregate_query(&[Function::Delta], range, None, GroupBy::Nothing);
    let result = far.run(&query).expect("only one cell does not fit");
    assert_eq!(
        (result.rows().len(), result.summary().overflowed.as_slice()),
        (1, &["delta(v)".to_owned()][..])
    );
    let falling = world(&[Value::Unsigned(9), Value::Unsigned(20), Value::Unsigned(4)]);
    assert_eq!(
        run(&falling, &[Function::Delta, Function::Spread]),
        [Some(Value::Signed(-5)), Some(Value::Unsigned(16))]
    );
    let nan = world(&[Value::Float(1.0), Value::Float(f64::NAN), Value::Float(3.0)]);
    assert_eq!(
        run(&nan, &[Function::Delta, Function::Spread]),
        [float(2.0), float(2.0)]
    );
}

#[test]
fn deltas_of_a_group_are_added_timeline_by_timeline() {
    let point = |host, at: i64, value| (host, at * SECOND, vec![("v", Value::Signed(value))]);
    let world = World::with(&[
        point("m,host=a", 0, 100),
        point("m,host=b", 1, 5),
        point("m,host=a", 2, 90),
        point("m,host=b", 3, 7),
    ]);
    assert_eq!(run(&world, &[Function::Delta]), [Some(Value::Signed(-10 + 2))]);
}

#[test]
fn many_values_make_an_estimate_that_is_named() {
    let values: Vec<Value> = (0..4_096).map(|at| Value::Signed(at * 37 % 4_096)).collect();
    let functions = [
        percentile(0.0),
        percentile(90.0),
        percentile(100.0),
        Function::StdDev,
    ];
    let range = TimeRange::new(0, 100_000 * SECOND);
    let query = aggregate_query(&functions, range, None, GroupBy::Nothing);
    let exact = world(&values);
    let result = exact.run(&query).expect("answered");
    assert_eq!(
        result.rows()[0].1[..3],
        [float(0.0), float(3_685.5), float(4_095.0)]
    );
    assert_eq!(result.summary().estimated, Vec::<String>::new());
    exact.write(&[("m,host=a", 50_000 * SECOND, vec![("v", Value::Signed(4_096))])]);
    let result = exact.run(&query).expect("answered");
    let named = ["percentile_0(v)", "percentile_90(v)", "percentile_100(v)"];
    assert_eq!(result.summary().estimated, named);
    let found = result.rows()[0].1.clone();
    assert_eq!((&found[0], &found[2]), (&float(0.0), &float(4_096.0)));
    let near = found[1].as_ref().and_then(Value::as_f64).expect("a number");
    assert!((near - 3_686.4).abs() <= 3_686.4 / 512.0, "{near}");
}

#[test]
fn tallies_take_numbers_of_any_type_as_one_and_the_lowest_of_several() {
    let mixed = world(&[
        Value::Float(4.0),
        Value::Signed(4),
        Value::Float(2.5),
        Value::Unsigned(4),
        Value::Float(2.5),
        Value::Float(2.5),
    ]);
    assert_eq!(
        run(&mixed, &[Function::CountDistinct, Function::Mode]),
        [Some(Value::Unsigned(2)), float(2.5)]
    );
    let texts = ["b", "a", "b", "a", "c"].map(|text| Value::String(text.into()));
    assert_eq!(
        run(&world(&texts), &[Function::CountDistinct, Function::Mode]),
        [Some(Value::Unsigned(3)), Some(Value::String("a".into()))]
    );
}

#[test]
fn what_is_held_of_values_is_bounded() {
    let world = world(&(0..3_000).map(Value::Signed).collect::<Vec<_>>());
    for function in [Function::CountDistinct, Function::Mode, percentile(50.0)] {
        let query = PointQuery {
            budget: Budget {
                held_bytes_max: 10_000,
                ..Budget::default()
            },
            ..aggregate_query(&[function], TimeRange::ALL, None, GroupBy::Nothing)
        };
        let error = world.run(&query).expect_err("too much");
        assert!(
            matches!(&error, QueryError::OverBudget { what, limit: 10_000, .. } if what.starts_with("bytes held")),
            "{error}"
        );
        world
            .run(&aggregate_query(
                &[function],
                TimeRange::ALL,
                None,
                GroupBy::Nothing,
            ))
            .expect("answered");
    }
}

#[test]
fn texts_and_histograms_at_the_ends_of_windows_are_held_within_the_budget() {
    let texts = |at: usize| Value::String(format!("{at:0>100}").into());
    let histograms = |at: usize| Value::Histogram(vec![at as u8; 100].into());
    for values in [
        (0..3_000).map(texts).collect::<Vec<_>>(),
        (0..3_000).map(histograms).collect(),
    ] {
        let world = world(&values);
        for (function, at) in [(Function::First, 0), (Function::Last, 2_999)] {
            let requested = |window: i64| {
                let range = TimeRange::new(0, 3_000 * SECOND);
                PointQuery {
                    budget: Budget {
                        held_bytes_max: 10_000,
                        ..Budget::default()
                    },
                    ..aggregate_query(&[function], range, Some(window * SECOND), GroupBy::Nothing)
                }
            };
            // A replaced value must not count as held.
            let rows = world.run(&requested(3_000)).expect("answered").rows();
            assert_eq!(rows[0].1, [Some(values[at].clone())]);
            let error = world.run(&requested(1)).expect_err("too much").to_string();
            assert!(error.contains("first and last texts"), "{error}");
        }
    }
}

#[test]
fn an_estimate_may_hold_less_than_the_values_did() {
    let value = |at: i64| Value::Signed(at % 101);
    let world = World::new();
    for part in 0..8 {
        let points: Vec<_> = (part * 1_000..(part + 1) * 1_000)
            .map(|at| ("m,host=a", at * SECOND, vec![("v", value(at))]))
            .collect();
        world.write(&points);
        world.seal();
    }
    let median = run(&world, &[percentile(50.0)]);
    assert!(
        matches!(median[..], [Some(Value::Float(median))] if (49.8..50.2).contains(&median)),
        "{median:?}"
    );
}

#[test]
fn functions_are_limited_in_number() {
    let world = world(&[Value::Signed(1)]);
    let functions: Vec<Function> = (0..65).map(|percent| percentile(f64::from(percent))).collect();
    let query = aggregate_query(&functions, TimeRange::ALL, None, GroupBy::Nothing);
    let error = world.run(&query).expect_err("too many").to_string();
    assert!(error.contains("64"), "{error}");
}

#[test]
fn areas_are_cut_at_the_windows_and_add_up() {
    let point = |at: i64, value| ("m,host=a", at * SECOND, vec![("v", Value::Float(value))]);
    // The value rises from 0 to 40 in 40 s and falls back to 0 in another 40 s.
    let world = World::with(&[point(0, 0.0), point(40, 40.0), point(80, 0.0)]);
    let functions = [Function::Integral, Function::TimeWeightedMean, Function::Count];
    let range = TimeRange::new(0, 90 * SECOND);
    let whole = aggregate_query(&functions, range, None, GroupBy::Nothing);
    let rows = world.run(&whole).expect("answered").rows();
    let count = |count| Some(Value::Unsigned(count));
    assert_eq!(rows, [(0, vec![float(1_600.0), float(20.0), count(3)])]);
    let by_window = aggregate_query(&functions, range, Some(20 * SECOND), GroupBy::Nothing);
    let rows = world.run(&by_window).expect("answered").rows();
    let expected = [
        (0, vec![float(200.0), float(10.0), count(1)]),
        // The window contains a part of a line, but no point.
        (20 * SECOND, vec![float(600.0), float(30.0), count(0)]),
        (40 * SECOND, vec![float(600.0), float(30.0), count(1)]),
        (60 * SECOND, vec![float(200.0), float(10.0), count(0)]),
        // The window contains a point, but no part of a line: it has a mean, but no area.
        (80 * SECOND, vec![None, float(0.0), count(1)]),
    ];
    assert_eq!(rows, expected);
}
