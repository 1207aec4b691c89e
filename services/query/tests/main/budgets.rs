//! Tests of limits: a query over a limit is refused, if possible before it reads a point. A cancelled query stops.
//!
//! Also tests invalid queries, the read cost in summaries, and that the engine receives the timelines that are read.

use std::time::Duration;

use tideline_model::{Tier, TimeRange, TimelineId, Value};
use tideline_query::{
    Budget, Cancel, Function, GroupBy, PointQuery, QueryError, Rows, Selector, Shape, TierCost,
};

use crate::support::{CollectedResult, World, aggregate_query, rows_query};

fn world() -> World {
    let world = World::new();
    for at in 0..50 {
        world.write(&[
            (
                "m,host=a",
                at,
                vec![("v", Value::Signed(at)), ("w", Value::Signed(at))],
            ),
            ("m,host=b", at, vec![("v", Value::Signed(at))]),
        ]);
    }
    world
}

fn over(world: &World, query: &PointQuery) -> (&'static str, u64, u64) {
    let mut result = CollectedResult::default();
    let requested = world
        .querier
        .points(&world.table, query, &Cancel::new(), &mut result);
    match requested.expect_err("too much") {
        QueryError::OverBudget { what, limit, actual } => (what, limit, actual),
        other => panic!("{other}"),
    }
}

fn with(budget: Budget) -> PointQuery {
    PointQuery {
        budget,
        ..rows_query()
    }
}

#[test]
fn each_part_of_the_budget_names_itself() {
    let world = world();
    let timelines = with(Budget {
        timelines_max: 1,
        ..Budget::default()
    });
    assert_eq!(over(&world, &timelines), ("timelines selected", 1, 2));
    let points = with(Budget {
        points_max: 60,
        ..Budget::default()
    });
    assert_eq!(over(&world, &points).0, "points read");
    let values = with(Budget {
        values_max: 99,
        ..Budget::default()
    });
    assert_eq!(over(&world, &values).0, "values read");
    let rows = PointQuery {
        shape: Shape::Rows(Rows {
            limit: Some(1 << 40),
            ..Rows::default()
        }),
        ..rows_query()
    };
    assert_eq!(over(&world, &rows), ("rows asked for", 50_000_000, 1 << 40));
}

#[test]
fn a_billion_windows_are_refused_by_arithmetic() {
    let world = world();
    let functions = [Function::Mean];
    let billion = aggregate_query(
        &functions,
        TimeRange::new(0, 1 << 40),
        Some(1_000),
        GroupBy::Nothing,
    );
    assert_eq!(
        over(&world, &billion),
        ("windows", 20_000_000, (1 << 40) / 1_000 + 1)
    );
    let ever = aggregate_query(&functions, TimeRange::ALL, Some(1), GroupBy::Timeline);
    assert_eq!(over(&world, &ever).0, "windows");
    let one_group = aggregate_query(&functions, TimeRange::new(0, 3 << 20), Some(2), GroupBy::Timeline);
    assert_eq!(over(&world, &one_group).0, "windows × columns of one group");
    let mut all_groups = aggregate_query(&functions, TimeRange::new(0, 1_000), Some(1), GroupBy::Timeline);
    all_groups.budget.cells_max = 3_999;
    assert_eq!(
        over(&world, &all_groups),
        ("windows × groups × columns", 3_999, 4_000)
    );
}

#[test]
fn a_result_larger_than_memory_allows_comes_in_batches_of_groups() {
    let world = world();
    // Each of the two groups needs more than half of the cells that may be held at once.
    let range = TimeRange::new(0, 200_000);
    let query = aggregate_query(
        &[Function::Sum, Function::Count],
        range,
        Some(1),
        GroupBy::Timeline,
    );
    let result = world.run(&query).expect("answered");
    assert_eq!(result.series.len(), 2);
    assert!(result.series.iter().all(|series| series.rows.len() == 50));
    assert_eq!(result.summary().cost.total().points, 100);
}

#[test]
fn time_ends_and_clients_leave() {
    let world = world();
    let late = with(Budget {
        time_max: Duration::ZERO,
        ..Budget::default()
    });
    assert!(matches!(world.run(&late), Err(QueryError::TimedOut { .. })));
    let cancel = Cancel::new();
    cancel.cancel();
    let requested = world.querier.points(
        &world.table,
        &rows_query(),
        &cancel,
        &mut CollectedResult::default(),
    );
    assert!(matches!(requested, Err(QueryError::Cancelled)));
    let mut narrow = CollectedResult {
        rows_max: Some(3),
        ..CollectedResult::default()
    };
    let requested = world
        .querier
        .points(&world.table, &rows_query(), &Cancel::new(), &mut narrow);
    assert!(matches!(requested, Err(QueryError::Cancelled)));
}

#[test]
fn what_cannot_be_right_is_said_before_the_sink_hears_anything() {
    let world = world();
    let range = |start, end| PointQuery {
        range: TimeRange::new(start, end),
        ..rows_query()
    };
    let field = PointQuery {
        fields: vec!["nothing".into()],
        ..rows_query()
    };
    let id = PointQuery {
        timelines: Selector::Ids(vec![TimelineId([7; 16])]),
        ..rows_query()
    };
    let nothing = PointQuery {
        shape: Shape::Rows(Rows {
            limit: Some(0),
            ..Rows::default()
        }),
        ..rows_query()
    };
    let no_function = aggregate_query(&[], TimeRange::ALL, None, GroupBy::Nothing);
    let twice = aggregate_query(
        &[Function::Sum, Function::Sum],
        TimeRange::ALL,
        None,
        GroupBy::Nothing,
    );
    let negative = aggregate_query(&[Function::Sum], TimeRange::ALL, Some(-1), GroupBy::Nothing);
    let tags = GroupBy::Tags(vec!["a".into(), "a".into()]);
    let tag_twice = aggregate_query(&[Function::Sum], TimeRange::ALL, None, tags);
    for (query, said) in [
        (range(5, 5), "range is empty"),
        (range(6, 5), "range is empty"),
        (field, "\"nothing\" does not exist"),
        (id, "0707"),
        (nothing, "at least 1"),
        (no_function, "at least one function"),
        (twice, "each function only once"),
        (negative, "wider than zero"),
        (tag_twice, "named twice"),
    ] {
        let mut result = CollectedResult::default();
        let requested = world
            .querier
            .points(&world.table, &query, &Cancel::new(), &mut result);
        let error = requested.expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(result.header.columns, Vec::<String>::new());
    }
}

#[test]
fn the_cost_counts_what_was_read() {
    let world = world();
    world.seal();
    let query = PointQuery {
        fields: vec!["w".into()],
        ..rows_query()
    };
    let cost = world.run(&query).expect("answered").summary().cost;
    assert_eq!(cost.of(Tier::Hot), cost.total());
    assert_eq!(cost.of(Tier::Cold), TierCost::default());
    let TierCost {
        segments,
        chunks,
        points,
        values,
        bytes,
        ..
    } = cost.total();
    assert_eq!((cost.timelines, points, values), (2, 50, 50));
    assert!(segments == 1 && chunks == 1 && bytes > 0 && cost.elapsed > Duration::ZERO);
}

#[test]
fn the_engine_receives_the_timelines_that_are_read() {
    let world = world();
    let query = PointQuery {
        timelines: Selector::Ids(vec![world.id("m,host=a")]),
        ..rows_query()
    };
    assert_eq!(world.engine.hot_ranges(&world.table), []);
    for _ in 0..1_100 {
        world.run(&query).expect("answered");
    }
    let hot = world.engine.hot_ranges(&world.table);
    assert_eq!((hot.len(), hot[0].share_of_reads), (1, 1.0));
}
