//! A page token is valid for one query only, and pages include points that are written after the token was issued.

use tideline_condition::Condition;
use tideline_model::{Tier, TimeRange, Value};
use tideline_query::{Direction, PageToken, PointQuery, QueryError, Rows, Selector, Shape};

use crate::support::{World, rows_query};

fn page(order: Direction, limit: u64, after: Option<PageToken>) -> PointQuery {
    let limit = Some(limit);
    PointQuery {
        shape: Shape::Rows(Rows {
            order,
            limit,
            after,
            sample: None,
            sort: None,
        }),
        range: TimeRange::new(0, 100),
        ..rows_query()
    }
}

#[test]
fn a_token_of_another_query_is_refused() {
    let points: Vec<_> = (0..10)
        .map(|at| ("m,host=a", at, vec![("v", Value::Signed(at))]))
        .collect();
    let world = World::with(&points);
    let first = world.run(&page(Direction::Ascending, 4, None)).expect("answered");
    let next = first.summary().next.clone().expect("there is more");
    let token = Some(PageToken::parse(&next).expect("a token"));
    let same = page(Direction::Ascending, 100, token);
    let rest = world.run(&same).expect("answered");
    assert_eq!(rest.rows().len(), 6);
    assert_eq!(token.map(|token| token.range()), Some(TimeRange::new(0, 100)));
    let others = [
        page(Direction::Descending, 4, token),
        PointQuery {
            range: TimeRange::new(0, 101),
            ..same.clone()
        },
        PointQuery {
            fields: vec!["v".into()],
            ..same.clone()
        },
        PointQuery {
            values: Some(Condition::And(Vec::new())),
            ..same.clone()
        },
        PointQuery {
            tier: Some(Tier::Hot),
            ..same.clone()
        },
        PointQuery {
            timelines: Selector::Condition(Condition::tag("host", "a")),
            ..same
        },
    ];
    for query in &others {
        assert!(
            matches!(world.run(query), Err(QueryError::ForeignToken)),
            "{query:?}"
        );
    }
}

#[test]
fn what_was_written_behind_the_token_is_on_the_next_page() {
    let world = World::with(&[
        ("m,host=a", 10, vec![("v", Value::Signed(1))]),
        ("m,host=a", 20, vec![("v", Value::Signed(2))]),
    ]);
    let first = world.run(&page(Direction::Ascending, 1, None)).expect("answered");
    let token = first
        .summary()
        .next
        .as_deref()
        .map(|next| PageToken::parse(next).expect("a token"));
    world.write(&[
        ("m,host=a", 15, vec![("v", Value::Signed(3))]),
        ("m,host=a", 5, vec![("v", Value::Signed(4))]),
    ]);
    let rest = world
        .run(&page(Direction::Ascending, 10, token))
        .expect("answered");
    let times: Vec<i64> = rest.rows().iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [15, 20]);
}
