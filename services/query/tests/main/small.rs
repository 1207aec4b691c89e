//! Small queries: which queries are small, and their results.
//!
//! Small queries must return the same rows as the original queries, or fail because they exceed
//! their budget.

use tideline_condition::Condition;
use tideline_engine::ErrorKind;
use tideline_model::{TimeRange, Value};
use tideline_query::{Function, GroupBy, PointQuery, QueryError, Rows, Selector, Shape};

use crate::support::{World, aggregate_query, rows_query};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Returns a world of a hundred hosts with one point each, and a host `a` with a cold day and a hot day.
fn world() -> World {
    let world = World::new();
    let point = |at: i64| ("m,host=a", at * 60 * SECOND, vec![("v", Value::Signed(at))]);
    world.write(&(0..2 * 1_440).map(point).collect::<Vec<_>>());
    let keys: Vec<String> = (0..100).map(|n| format!("m,host=h{n},dc=x")).collect();
    let others = keys
        .iter()
        .map(|key| (key.as_str(), DAY, vec![("v", Value::Signed(1))]));
    world.write(&others.collect::<Vec<_>>());
    world.seal_and_move(|day| day == 0);
    world
}

fn of(condition: Condition) -> PointQuery {
    PointQuery {
        timelines: Selector::Condition(condition),
        ..aggregate_query(
            &[Function::Mean],
            TimeRange::new(DAY, 2 * DAY),
            Some(60 * SECOND),
            GroupBy::Timeline,
        )
    }
}

fn limited(limit: Option<u64>) -> PointQuery {
    let query = of(Condition::tag("host", "a"));
    let Shape::Rows(rows) = rows_query().shape else {
        panic!("a question for rows");
    };
    PointQuery {
        shape: Shape::Rows(Rows { limit, ..rows }),
        ..query
    }
}

#[test]
fn queries_that_may_take_long_are_not_small() {
    let world = world();
    let is_small = |query: &PointQuery| world.querier.as_small(&world.table, query).is_some();
    let narrow = of(Condition::tag("host", "a"));
    assert!(is_small(&narrow));
    let both = Condition::And(vec![Condition::tag("dc", "x"), Condition::tag("host", "h7")]);
    assert!(is_small(&of(both)), "its rarest tag decides");
    assert!(is_small(&PointQuery {
        timelines: Selector::Ids(vec![world.id("m,host=a")]),
        ..narrow.clone()
    }));
    assert!(is_small(&limited(Some(500))));
    for (what, query) in [
        ("all timelines", of(Condition::All)),
        ("a common tag", of(Condition::tag("dc", "x"))),
        ("no value", of(Condition::tag("host", ""))),
        (
            "another test",
            of(Condition::Not(Box::new(Condition::tag("host", "a")))),
        ),
        (
            "an alternative",
            of(Condition::Or(vec![Condition::tag("host", "a")])),
        ),
        (
            "many ids",
            PointQuery {
                timelines: Selector::Ids(vec![world.id("m,host=a"); 5]),
                ..narrow.clone()
            },
        ),
        (
            "cold points",
            PointQuery {
                range: TimeRange::ALL,
                ..narrow.clone()
            },
        ),
        ("as many rows as there are", limited(None)),
        ("many rows", limited(Some(501))),
    ] {
        assert!(!is_small(&query), "{what}");
    }
}

#[test]
fn a_small_query_has_the_same_result() {
    let world = world();
    for query in [
        of(Condition::tag("host", "a")),
        limited(Some(100)),
        of(Condition::tag("host", "gone")),
    ] {
        let small = world.querier.as_small(&world.table, &query).expect("it is small");
        let (small, usual) = (
            world.run(&small).expect("an answer"),
            world.run(&query).expect("an answer"),
        );
        assert_eq!(small.series, usual.series);
        assert_eq!(small.header.columns, usual.header.columns);
        assert_eq!(
            (small.summary().rows, small.summary().more),
            (usual.summary().rows, usual.summary().more)
        );
    }
}

#[test]
fn what_costs_more_than_it_seems_runs_out_of_its_budget() {
    let world = World::new();
    let points: Vec<_> = (0..30_000)
        .map(|at| ("m,host=a", at * SECOND / 100, vec![("v", Value::Signed(at))]))
        .collect();
    world.write(&points);
    let query = PointQuery {
        timelines: Selector::Condition(Condition::tag("host", "a")),
        ..aggregate_query(
            &[Function::Mean],
            TimeRange::new(0, DAY),
            Some(DAY),
            GroupBy::Timeline,
        )
    };
    let small = world.querier.as_small(&world.table, &query).expect("by its form");
    let error = world.run(&small).expect_err("30,000 points are too many");
    assert!(
        matches!(error, QueryError::OverBudget { .. } | QueryError::TimedOut { .. }),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::OverLimit);
    assert_eq!(world.run(&query).expect("an answer").summary().rows, 1);
}

#[test]
fn no_query_is_small_where_requests_travel() {
    let query = of(Condition::tag("host", "a"));
    for (world, is_small) in [(World::new(), true), (World::distributed(), false)] {
        world.write(&[("m,host=a", DAY, vec![("v", Value::Signed(1))])]);
        assert_eq!(world.querier.as_small(&world.table, &query).is_some(), is_small);
        assert_eq!(world.run(&query).expect("an answer").summary().rows, 1);
    }
}
