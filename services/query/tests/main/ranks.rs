//! Ranks: order of groups by a value, and the limit of groups.
//!
//! Random ranked results are compared with sorted unranked results.

use std::cmp::Ordering;

use tideline_model::{TimeRange, Value};
use tideline_query::{Aggregate, Function, GroupBy, PointQuery, Rank, RankOrder, Shape, WindowSpec};

use crate::support::{Dice, KeptSeries, World, rows_query};

const SECOND: i64 = 1_000_000_000;

fn query(functions: &[Function], group_by: GroupBy, window: Option<i64>, rank: Option<Rank>) -> PointQuery {
    PointQuery {
        fields: vec!["v".into()],
        range: TimeRange::new(-1_000 * SECOND, 1_000 * SECOND),
        shape: Shape::Aggregate(Aggregate {
            functions: functions.to_vec(),
            window: window.map(|width| WindowSpec::aligned(width).into()),
            group_by,
            rank,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

fn rank(function: Function, order: RankOrder, limit: Option<u64>) -> Option<Rank> {
    Some(Rank {
        function,
        field: "v".into(),
        order,
        limit,
    })
}

/// Sorts an unranked result as documented: numbers, NaN, no value. The sort is stable, so ties keep their order.
fn naive(series: &[KeptSeries], order: RankOrder) -> Vec<KeptSeries> {
    let key = |series: &KeptSeries| series.rows[0].1[0].as_ref().and_then(Value::as_f64);
    let position = |key: Option<f64>| key.map_or(2, |key| u8::from(key.is_nan()));
    let mut sorted = series.to_vec();
    sorted.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        let by_value = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        position(a).cmp(&position(b)).then(match order {
            RankOrder::Highest => by_value.reverse(),
            RankOrder::Lowest => by_value,
        })
    });
    sorted
}

#[test]
fn random_groups_come_in_the_order_of_their_values_sealed_or_not() {
    for seed in [41, 42, 43] {
        let mut dice = Dice::new(seed);
        let world = World::new();
        for _ in 0..600 {
            let key = format!(
                "{},host=h{},dc=d{}",
                ["a", "b"][dice.below(2) as usize],
                dice.below(40),
                dice.below(5)
            );
            // Few distinct values, so that many are equal; some are NaN.
            let value = match dice.below(12) {
                0 => Value::Float(f64::NAN),
                1..6 => Value::Signed(dice.below(7) as i64 - 3),
                _ => Value::Float(dice.below(6) as f64 / 2.0),
            };
            let time = (dice.below(2_000) as i64 - 1_000) * SECOND;
            let field = if dice.one_in(9) { "w" } else { "v" };
            world.write(&[(&key, time, vec![(field, value)])]);
            if dice.one_in(100) {
                world.seal();
            }
        }
        for _ in 0..40 {
            let all = [
                Function::Sum,
                Function::Mean,
                Function::Max,
                Function::Min,
                Function::Last,
            ];
            let function = all[dice.below(5) as usize];
            let order = [RankOrder::Highest, RankOrder::Lowest][dice.below(2) as usize];
            let group_by = || match function {
                Function::Sum | Function::Last => GroupBy::Timeline,
                _ => GroupBy::Tags(vec!["host".into()]),
            };
            let limit = (!dice.one_in(3)).then(|| 1 + dice.below(30));
            let run = |functions: &[Function], window, rank| {
                let result = world.run(&query(functions, group_by(), window, rank));
                result.expect("answered").series
            };
            let mut expected = naive(&run(&[function], None, None), order);
            expected.truncate(limit.unwrap_or(u64::MAX) as usize);
            let ranked = run(&[function], None, rank(function, order, limit));
            // NaN is not equal to itself, so the texts are compared.
            assert_eq!(
                format!("{ranked:?}"),
                format!("{expected:?}"),
                "{function} {order:?} {limit:?}"
            );
            // Additional functions change neither the order nor the values.
            let beside = run(&[Function::Count, function], None, rank(function, order, limit));
            let unranked = run(&[Function::Count, function], None, None);
            assert_eq!(beside.len(), expected.len());
            for (found, winner) in beside.iter().zip(&expected) {
                assert_eq!((found.id, &found.tags), (winner.id, &winner.tags));
                let found = format!("{found:?}");
                assert!(
                    unranked.iter().any(|series| format!("{series:?}") == found),
                    "{found}"
                );
            }
            // The windows of the winners are the same as without a rank.
            let width = Some(300 * SECOND);
            let windows = run(&[Function::Count], width, rank(function, order, limit));
            let unranked = run(&[Function::Count], width, None);
            assert_eq!(windows.len(), expected.len());
            for (found, winner) in windows.iter().zip(&expected) {
                assert_eq!((found.id, &found.tags), (winner.id, &winner.tags));
                assert!(unranked.contains(found));
            }
        }
    }
}

#[test]
fn what_has_no_value_comes_last_and_texts_have_an_order() {
    let world = World::with(&[
        (
            "m,host=a",
            1,
            vec![("v", Value::Signed(1)), ("s", Value::String("b".into()))],
        ),
        (
            "m,host=b",
            1,
            vec![("w", Value::Signed(1)), ("s", Value::String("c".into()))],
        ),
        (
            "m,host=c",
            1,
            vec![("v", Value::Float(f64::NAN)), ("s", Value::String("a".into()))],
        ),
        ("n,host=d", 1, vec![("v", Value::Unsigned(7))]),
    ]);
    let hosts = |field: &str, function, order| {
        let mut query = query(&[Function::Count], GroupBy::Tags(vec!["host".into()]), None, None);
        query.fields.clear();
        if let Shape::Aggregate(shape) = &mut query.shape {
            let field = field.into();
            let limit = None;
            shape.rank = Some(Rank {
                function,
                field,
                order,
                limit,
            });
        }
        let result = world.run(&query).expect("answered");
        let hosts = result
            .series
            .into_iter()
            .map(|mut series| series.tags.remove(0).1);
        hosts.collect::<Vec<_>>()
    };
    assert_eq!(
        hosts("v", Function::Max, RankOrder::Highest),
        ["d", "a", "c", "b"]
    );
    assert_eq!(hosts("v", Function::Max, RankOrder::Lowest), ["a", "d", "c", "b"]);
    assert_eq!(
        hosts("s", Function::Last, RankOrder::Lowest),
        ["c", "a", "b", "d"]
    );
}

#[test]
fn a_rank_reads_windows_of_its_winners_only() {
    let world = World::new();
    for host in 0..50 {
        let key = format!("m,host=h{host:02}");
        let points: Vec<_> = (0..20)
            .map(|at| (key.as_str(), at * SECOND, vec![("v", Value::Signed(host))]))
            .collect();
        world.write(&points);
    }
    let mut top = query(
        &[Function::Mean],
        GroupBy::Timeline,
        Some(SECOND),
        rank(Function::Mean, RankOrder::Highest, Some(3)),
    );
    // All windows of all hosts would need 50 × 2,000 cells.
    top.budget.cells_max = 3 * 2_000;
    let result = world.run(&top).expect("within the budget");
    let tags: Vec<_> = result
        .series
        .iter()
        .map(|series| series.tags[0].1.as_str())
        .collect();
    assert_eq!(tags, ["h49", "h48", "h47"]);
    assert_eq!(result.summary().rows, 60);
    assert_eq!(result.summary().cost.total().points, 50 * 20 + 3 * 20);
    // Without windows the first scan has the result if all functions use the same field.
    let limited = rank(Function::Mean, RankOrder::Highest, Some(3));
    let once = query(
        &[Function::Max, Function::Mean],
        GroupBy::Timeline,
        None,
        limited.clone(),
    );
    let result = world.run(&once).expect("within the budget");
    let rows: Vec<_> = result
        .series
        .iter()
        .map(|series| series.rows[0].1.clone())
        .collect();
    let row = |host: i64| vec![Some(Value::Signed(host)), Some(Value::Float(host as f64))];
    assert_eq!(rows, [row(49), row(48), row(47)]);
    assert_eq!(result.summary().cost.total().points, 50 * 20);
    assert_eq!(result.summary().plan.timelines, 3);
    // A second scan is needed if the rank value is not a column, or if a function cannot use summaries.
    let other = query(&[Function::Max], GroupBy::Timeline, None, limited.clone());
    assert_eq!(
        world.run(&other).expect("answered").summary().cost.total().points,
        50 * 20 + 3 * 20
    );
    let costly = [Function::Mean, Function::Mode];
    let costly = query(&costly, GroupBy::Timeline, None, limited);
    assert_eq!(
        world
            .run(&costly)
            .expect("answered")
            .summary()
            .cost
            .total()
            .points,
        50 * 20 + 3 * 20
    );
    let zero = query(
        &[Function::Mean],
        GroupBy::Timeline,
        None,
        rank(Function::Mean, RankOrder::Highest, Some(0)),
    );
    assert!(
        world
            .run(&zero)
            .expect_err("nothing is asked")
            .to_string()
            .contains("at least 1")
    );
}
