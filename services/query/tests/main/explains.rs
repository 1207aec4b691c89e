//! Explanations, compared with the executed queries.
//!
//! Plans must be equal, except for the number of groups of a ranked query. Estimates must be exact for a range
//! with all points and proportional for a part of it.

use tideline_condition::operators::Exists;
use tideline_condition::{Condition, Subject, Test};
use tideline_model::{Tier, TimeRange, Value};
use tideline_query::{
    Aggregate, Cancel, Function, GroupBy, PointQuery, Rank, RankOrder, Rows, Shape, WindowSpec,
};

use crate::support::{World, rows_query};

const SECOND: i64 = 1_000_000_000;
const SPAN: i64 = 400 * SECOND;

/// Returns a world of ten hosts with two fields, all sealed.
fn world() -> World {
    let world = World::new();
    for host in 0..10 {
        let key = format!("{},host=h{host}", ["cpu", "mem"][host % 2]);
        let points: Vec<_> = (0..200)
            .map(|at| {
                let fields = vec![("a", Value::Signed(at)), ("b", Value::Float(host as f64))];
                (key.as_str(), at * 2 * SECOND, fields)
            })
            .collect();
        world.write(&points);
    }
    world.seal();
    world
}

fn aggregate(functions: &[Function], window: Option<i64>, group_by: GroupBy) -> PointQuery {
    PointQuery {
        range: TimeRange::new(0, SPAN),
        shape: Shape::Aggregate(Aggregate {
            functions: functions.to_vec(),
            window: window.map(|width| WindowSpec::aligned(width).into()),
            group_by,
            ..Aggregate::default()
        }),
        ..rows_query()
    }
}

#[test]
fn a_plan_before_is_the_plan_after() {
    let world = world();
    let mut tested = aggregate(&[Function::Sum], None, GroupBy::Timeline);
    tested.fields = vec!["a".into()];
    tested.values = Some(Condition::leaf(
        Subject::Field("b".to_owned()),
        Test::from(Exists(true)),
    ));
    let rows = Shape::Rows(Rows {
        sample: Some(10),
        ..Rows::default()
    });
    for (query, fields, no_summaries) in [
        (rows_query(), 2, true),
        (
            PointQuery {
                shape: rows,
                ..rows_query()
            },
            2,
            true,
        ),
        (
            aggregate(&[Function::Mean], Some(7 * SECOND), GroupBy::Timeline),
            2,
            false,
        ),
        (
            aggregate(&[Function::Mean, Function::Mode], None, GroupBy::Nothing),
            2,
            true,
        ),
        (tested, 2, true),
    ] {
        let told = world
            .querier
            .explain(&world.table, &query, &Cancel::new())
            .expect("planned");
        let result = world.run(&query).expect("answered");
        assert_eq!(told.plan, result.summary().plan, "{query:?}");
        assert_eq!(told.columns, result.header.columns);
        assert_eq!(told.plan.fields, fields, "{query:?}");
        assert_eq!(told.plan.no_summaries.is_some(), no_summaries, "{query:?}");
        let groups: u64 = match &query.shape {
            Shape::Aggregate(_) => result.series.len() as u64,
            Shape::Rows(_) => 0,
        };
        assert_eq!(told.plan.groups, groups);
    }
}

#[test]
fn estimates_of_everything_are_exact_and_of_a_part_in_proportion() {
    let world = world();
    let all = world
        .querier
        .explain(&world.table, &rows_query(), &Cancel::new())
        .expect("planned");
    let cost = world.run(&rows_query()).expect("answered").summary().cost;
    for tier in Tier::ALL {
        let (told, read) = (all.of(tier), cost.of(tier));
        assert_eq!(
            (told.segments, told.chunks, told.points),
            (read.segments, read.chunks, read.points)
        );
    }
    let half = PointQuery {
        range: TimeRange::new(0, SPAN / 2),
        ..rows_query()
    };
    let half = world
        .querier
        .explain(&world.table, &half, &Cancel::new())
        .expect("planned");
    let points = half.of(Tier::Hot).points + half.of(Tier::Cold).points;
    assert!((950..=1_050).contains(&points), "{points}");
    let cold = PointQuery {
        tier: Some(Tier::Cold),
        ..rows_query()
    };
    let cold = world
        .querier
        .explain(&world.table, &cold, &Cancel::new())
        .expect("planned");
    assert_eq!(cold.of(Tier::Hot), Default::default());
}

#[test]
fn a_rank_is_explained_with_the_cells_of_its_winners() {
    let world = world();
    let mut ranked = aggregate(&[Function::Max], Some(SECOND), GroupBy::Timeline);
    if let Shape::Aggregate(shape) = &mut ranked.shape {
        shape.rank = Some(Rank {
            function: Function::Mean,
            field: "b".into(),
            order: RankOrder::Highest,
            limit: Some(3),
        });
    }
    let told = world
        .querier
        .explain(&world.table, &ranked, &Cancel::new())
        .expect("planned");
    assert_eq!((told.plan.groups, told.plan.cells), (10, 3 * 400 * 2));
    let after = &world.run(&ranked).expect("answered").summary().plan.clone();
    assert_eq!((after.groups, after.cells), (3, 3 * 400 * 2));
    let mut unknown = ranked.clone();
    if let Shape::Aggregate(Aggregate { rank: Some(rank), .. }) = &mut unknown.shape {
        rank.field = "nothing".into();
    }
    let error = world.querier.explain(&world.table, &unknown, &Cancel::new());
    assert!(error.expect_err("unknown").to_string().contains("nothing"));
}

#[test]
fn unsealed_points_are_estimated_from_the_heads() {
    let world = World::new();
    // Most points are in one second and one is much older, so an even spread would be a bad estimate.
    for host in 0..10 {
        let key = format!("cpu,host=h{host}");
        let points: Vec<_> = (0..200)
            .map(|at| (key.as_str(), at * SECOND / 200, vec![("a", Value::Signed(at))]))
            .collect();
        world.write(&points);
        world.write(&[(&key, -3_000_000 * SECOND, vec![("a", Value::Signed(0))])]);
    }
    // An overwritten point must not be counted twice.
    world.write(&[("cpu,host=h0", 0, vec![("a", Value::Signed(7))])]);
    let told = |range: TimeRange, tier: Option<Tier>| {
        let query = PointQuery {
            range,
            tier,
            ..rows_query()
        };
        let told = world.querier.explain(&world.table, &query, &Cancel::new());
        told.expect("planned").unsealed
    };
    let second = TimeRange::new(0, SECOND);
    let unsealed = told(second, None);
    assert_eq!((unsealed.heads, unsealed.points), (1, 2_000));
    assert_eq!(unsealed.span, Some((0, 199 * SECOND / 200)));
    assert!(unsealed.bytes > 0);
    assert_eq!(told(second, Some(Tier::Hot)), unsealed);
    assert_eq!(told(second, Some(Tier::Cold)), Default::default());
    let half = told(TimeRange::new(-SECOND, SECOND / 2), None);
    assert_eq!((half.heads, half.points), (1, 1_000));
    assert!(half.bytes < unsealed.bytes);
    assert_eq!(told(TimeRange::new(SECOND, 2 * SECOND), None), Default::default());
    world.seal();
    let sealed = told(second, None);
    assert_eq!(sealed, Default::default(), "then they are in a segment");
}
