//! Rows in the order of a value, over all timelines.
//!
//! Random sorted results are compared with sorted raw rows.

use std::cmp::Ordering;

use tideline_condition::operators::NotEquals;
use tideline_condition::{Condition, Subject, Test};
use tideline_model::{TimeRange, TimelineId, Value};
use tideline_query::{Computation, PointQuery, RankOrder, RowOrder, Rows, Shape};

use crate::naive_values::literal;
use crate::support::{CollectedResult, Dice, World, rows_query};

const SECOND: i64 = 1_000_000_000;

fn query(field: &str, order: RankOrder, limit: Option<u64>) -> PointQuery {
    PointQuery {
        shape: Shape::Rows(Rows {
            limit,
            sort: Some(RowOrder {
                field: field.into(),
                order,
            }),
            ..Rows::default()
        }),
        ..rows_query()
    }
}

type Row = (TimelineId, i64, Vec<Option<Value>>);

fn rows(result: &CollectedResult) -> Vec<Row> {
    let of_each = result.series.iter().flat_map(|series| {
        let id = series.id.expect("rows are of timelines");
        series
            .rows
            .iter()
            .map(move |(time, values)| (id, *time, values.clone()))
    });
    of_each.collect()
}

/// Sorts all rows as documented. The input is in order of timeline and time and the sort is stable, so ties keep
/// this order.
fn naive(all: &[Row], column: usize, order: RankOrder, limit: usize) -> Vec<Row> {
    let position = |value: &Value| match value {
        Value::Float(value) if value.is_nan() => 3,
        Value::Boolean(_) => 1,
        Value::String(_) => 2,
        _ => 0,
    };
    let mut sorted: Vec<Row> = all
        .iter()
        .filter(|row| row.2[column].is_some())
        .cloned()
        .collect();
    sorted.sort_by(|a, b| {
        let (a, b) = (
            a.2[column].as_ref().expect("one"),
            b.2[column].as_ref().expect("one"),
        );
        let by_value = match (a, b) {
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
            _ => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
                _ => Ordering::Equal,
            },
        };
        position(a).cmp(&position(b)).then(match order {
            RankOrder::Highest => by_value.reverse(),
            RankOrder::Lowest => by_value,
        })
    });
    sorted.truncate(limit);
    sorted
}

#[test]
fn random_rows_come_in_the_order_of_their_values() {
    for seed in [71, 72, 73] {
        let mut dice = Dice::new(seed);
        let world = World::new();
        for _ in 0..900 {
            let key = format!("m,host=h{}", dice.below(12));
            let time = dice.below(2_000) as i64 * SECOND;
            let mut fields = Vec::new();
            if !dice.one_in(6) {
                // Few distinct values of several types, so that many are equal; some are NaN.
                fields.push((
                    "v",
                    match dice.below(20) {
                        0 => Value::Float(f64::NAN),
                        1..10 => Value::Signed(dice.below(9) as i64 - 4),
                        10..15 => Value::Unsigned(dice.below(9)),
                        _ => Value::Float(dice.below(12) as f64 / 2.0 - 3.0),
                    },
                ));
            }
            fields.push(("s", Value::String(format!("t{}", dice.below(7)).into())));
            if dice.one_in(3) {
                fields.push(("b", Value::Boolean(dice.one_in(2))));
            }
            world.write(&[(&key, time, fields)]);
            if dice.one_in(200) {
                world.seal();
            }
        }
        let fields: Vec<String> = ["v", "s", "b"].map(Into::into).to_vec();
        let by_time = PointQuery {
            fields: fields.clone(),
            ..rows_query()
        };
        let all = rows(&world.run(&by_time).expect("answered"));
        for _ in 0..40 {
            let column = dice.below(3) as usize;
            let order = [RankOrder::Highest, RankOrder::Lowest][dice.below(2) as usize];
            let limit = (!dice.one_in(5)).then(|| 1 + dice.below(300));
            let requested = PointQuery {
                fields: fields.clone(),
                ..query(&fields[column], order, limit)
            };
            let result = world.run(&requested).expect("answered");
            let expected = naive(&all, column, order, limit.unwrap_or(1_000) as usize);
            assert_eq!(
                format!("{:?}", rows(&result)),
                format!("{expected:?}"),
                "seed {seed}, {requested:?}"
            );
            let with_value = all.iter().filter(|row| row.2[column].is_some()).count();
            assert_eq!(
                result.summary().more,
                expected.len() < with_value,
                "{requested:?}"
            );
            assert_eq!(result.summary().rows, expected.len() as u64);
            // A series starts exactly where the timeline changes.
            assert!(result.series.windows(2).all(|pair| pair[0].id != pair[1].id));
        }
    }
}

#[test]
fn what_is_ordered_by_need_not_be_shown_and_may_be_computed() {
    let world = World::new();
    for at in 0..100 {
        let fields = vec![("a", Value::Signed(at % 10)), ("b", Value::Signed(at))];
        world.write(&[
            ("m,host=x", at * SECOND, fields),
            ("n,host=x", at * SECOND, vec![("c", Value::Signed(1))]),
        ]);
    }
    let mut requested = query("product", RankOrder::Highest, Some(2));
    requested.fields = vec!["b".into()];
    requested.compute = vec![Computation {
        name: "product".into(),
        expression: "a * b".into(),
    }];
    requested.range = TimeRange::new(0, 99 * SECOND);
    requested.values = Some(Condition::leaf(
        Subject::Field("a".to_owned()),
        Test::from(NotEquals(literal(Value::Signed(8)))),
    ));
    let result = world.run(&requested).expect("answered");
    let shown: Vec<_> = rows(&result).into_iter().map(|row| row.2).collect();
    // The products 9 · 89 and 9 · 79; the point at 99 s is outside the range.
    assert_eq!(shown, [[Some(Value::Signed(89))], [Some(Value::Signed(79))]]);
    assert_eq!(result.series.len(), 1);
    // Kept rows count against the budget.
    let mut large = query("b", RankOrder::Lowest, Some(100_000));
    large.budget.held_bytes_max = 1_000;
    let error = world.run(&large).expect_err("too much").to_string();
    assert!(error.contains("sorted rows"), "{error}");
}

#[test]
fn kept_histograms_count_with_their_bytes() {
    let world = World::new();
    for at in 0..100 {
        let stored = Value::Histogram(vec![at as u8; 1_000].into());
        let fields = vec![("h", stored), ("v", Value::Signed(at))];
        world.write(&[("m,host=x", at * SECOND, fields)]);
    }
    let mut requested = query("v", RankOrder::Highest, Some(1_000));
    requested.fields = vec!["h".into()];
    requested.budget.held_bytes_max = 110_000;
    assert_eq!(rows(&world.run(&requested).expect("answered")).len(), 100);
    requested.budget.held_bytes_max = 90_000;
    let error = world.run(&requested).expect_err("too much").to_string();
    assert!(error.contains("sorted rows"), "{error}");
}
