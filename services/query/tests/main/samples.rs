//! Samples for charts, compared with a literal implementation of the published algorithm.
//!
//! Also tests which samples are refused.

use std::collections::BTreeMap;

use tideline_model::{TimeRange, Value};
use tideline_query::{Direction, PointQuery, Rows, Shape};

use crate::support::{Dice, World, rows_query};

const SECOND: i64 = 1_000_000_000;

fn query(fields: &[&str], sample: u64, order: Direction, limit: Option<u64>) -> PointQuery {
    PointQuery {
        fields: fields.iter().map(|name| (*name).into()).collect(),
        shape: Shape::Rows(Rows {
            order,
            limit,
            sample: Some(sample),
            ..Rows::default()
        }),
        ..rows_query()
    }
}

/// Returns the chosen points, bucket by bucket.
fn naive(points: &[(i64, f64)], count: usize) -> Vec<(i64, f64)> {
    if points.len() <= count {
        return points.to_vec();
    }
    let (first, last) = (points[0], points[points.len() - 1]);
    let inner = &points[1..points.len() - 1];
    let border = |bucket: usize| inner.len() * bucket / (count - 2);
    let buckets: Vec<&[(i64, f64)]> = (0..count - 2)
        .map(|at| &inner[border(at)..border(at + 1)])
        .collect();
    let mut kept = vec![first];
    for (at, bucket) in buckets.iter().enumerate() {
        let next = buckets.get(at + 1).map_or(vec![last], |next| next.to_vec());
        let share = next.len() as f64;
        let x: f64 = next.iter().map(|(time, _)| (time - first.0) as f64 / share).sum();
        let y: f64 = next.iter().map(|(_, value)| value / share).sum();
        let (a, b) = kept[kept.len() - 1];
        let a = (a - first.0) as f64;
        let area =
            |point: &(i64, f64)| ((a - x) * (point.1 - b) - (a - (point.0 - first.0) as f64) * (y - b)).abs();
        let most = bucket.iter().map(area).fold(0.0, f64::max);
        kept.extend(bucket.iter().find(|point| area(point) >= most));
    }
    kept.push(last);
    kept
}

#[test]
fn samples_agree_with_the_naive_evaluator() {
    let mut dice = Dice::new(71);
    let world = World::new();
    let mut lines: BTreeMap<(String, &str), BTreeMap<i64, f64>> = BTreeMap::new();
    for host in ["a", "b"] {
        let key = format!("m,host={host}");
        for at in 0..700 {
            let mut fields = vec![("s", Value::String("text".into()))];
            for name in ["f", "n"] {
                // The first point has both fields, so that their order is known.
                if at > 0 && dice.one_in(4) {
                    continue;
                }
                // A field can have numbers of two types; integers keep their type.
                let number = dice.below(1_000);
                let value = match (name, dice.below(3)) {
                    ("f", 0) if number < 20 => Value::Float(f64::NAN),
                    ("f", _) | (_, 0) => Value::Float(number as f64 / 7.0),
                    _ => Value::Signed(number as i64),
                };
                if let Some(number) = value.as_f64().filter(|number| number.is_finite()) {
                    lines
                        .entry((host.into(), name))
                        .or_default()
                        .insert(at * SECOND, number);
                }
                fields.push((name, value));
            }
            world.write(&[(&key, at * SECOND, fields)]);
            if dice.one_in(300) {
                world.seal();
            }
        }
    }
    for count in [3, 4, 10, 99, 500, 900] {
        for (fields, order) in [
            (&["f", "n"][..], Direction::Ascending),
            (&["n"], Direction::Descending),
            (&[], Direction::Ascending),
        ] {
            let result = world.run(&query(fields, count, order, None)).expect("answered");
            assert_eq!(result.series.len(), 2);
            for series in &result.series {
                let expected: Vec<&str> = if fields.is_empty() {
                    vec!["f", "n"]
                } else {
                    fields.to_vec()
                };
                assert_eq!(series.columns, expected, "texts have no shape");
                let falls = order == Direction::Descending;
                assert!(
                    series
                        .rows
                        .is_sorted_by(|a, b| if falls { a.0 > b.0 } else { a.0 < b.0 })
                );
                for (column, name) in expected.iter().enumerate() {
                    let mut found: Vec<(i64, f64)> = series
                        .rows
                        .iter()
                        .filter_map(|(time, values)| Some((*time, values[column].as_ref()?.as_f64()?)))
                        .collect();
                    found.sort_by_key(|(time, _)| *time);
                    let points = &lines[&(series.tags[0].1.clone(), *name)];
                    let points: Vec<(i64, f64)> =
                        points.iter().map(|(time, value)| (*time, *value)).collect();
                    assert_eq!(found, naive(&points, count as usize), "{count} of {name}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    let points: Vec<_> = (0..20)
        .map(|at| {
            let fields = vec![("n", Value::Signed(at)), ("s", Value::String("x".into()))];
            ("m,host=a", at * SECOND, fields)
        })
        .collect();
    let world = World::with(&points);
    for (fields, count, said) in [
        (&["s"][..], 10, "holds texts; only numbers can be sampled"),
        (&["n"], 2, "at least 3"),
        (&["n"], 100_001, "points of a sample"),
    ] {
        let error = world.run(&query(fields, count, Direction::Ascending, None));
        let error = error.expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    let few = world
        .run(&query(&["n"], 10, Direction::Ascending, Some(4)))
        .expect("answered");
    assert_eq!(
        (few.rows().len(), few.summary().more, &few.summary().next),
        (4, true, &None)
    );
    let mut tight = query(&["n"], 10, Direction::Ascending, None);
    tight.budget.held_bytes_max = 100;
    assert!(
        world
            .run(&tight)
            .expect_err("too much")
            .to_string()
            .contains("bytes held")
    );
    let mut past = query(&[], 10, Direction::Ascending, None);
    past.range = TimeRange::new(-5, 0);
    assert!(world.run(&past).expect("answered").series.is_empty());
}
