//! Newest values per field, from memory and from chunks.
//!
//! Also tests the pages of these queries.

use std::collections::BTreeMap;

use tideline_condition::Condition;
use tideline_model::{TimelineId, Value};
use tideline_query::{Budget, Cancel, LatestQuery, PageToken, QueryError, Selector, Summary};

use crate::support::{CollectedResult, World};

type Newest = BTreeMap<String, (i64, Value)>;

fn all() -> LatestQuery {
    LatestQuery {
        details: false,
        timelines: Selector::Condition(Condition::All),
        fields: Vec::new(),
        tier: None,
        limit: None,
        after: None,
        budget: Budget::default(),
    }
}

fn run(world: &World, query: &LatestQuery) -> Result<(Vec<(TimelineId, Newest)>, Summary), QueryError> {
    let mut result = CollectedResult::default();
    let summary = world
        .querier
        .latest(&world.table, query, &Cancel::new(), &mut result)?;
    let mut timelines = Vec::new();
    for series in result.series {
        assert!(series.rows.is_sorted_by(|a, b| a.0 > b.0), "newest first");
        let mut newest = Newest::new();
        for (time, values) in series.rows {
            for (column, value) in series.columns.iter().zip(values) {
                let twice = value.and_then(|value| newest.insert(column.clone(), (time, value)));
                assert_eq!(twice, None);
            }
        }
        timelines.push((series.id.expect("a timeline"), newest));
    }
    Ok((timelines, summary))
}

#[test]
fn each_field_has_its_own_newest_value() {
    let world = World::with(&[
        (
            "m,host=a",
            10,
            vec![("v", Value::Signed(1)), ("w", Value::Signed(2))],
        ),
        ("m,host=a", 20, vec![("v", Value::Float(1.5))]),
        ("m,host=a", 15, vec![("v", Value::Signed(9))]),
        ("m,host=b", 5, vec![("w", Value::Signed(7))]),
    ]);
    for _ in 0..2 {
        let (kept, summary) = run(&world, &all()).expect("answered");
        let found: BTreeMap<_, _> = kept.into_iter().collect();
        let of_a = &found[&world.id("m,host=a")];
        assert_eq!(of_a["v"], (20, Value::Float(1.5)));
        assert_eq!(of_a["w"], (10, Value::Signed(2)));
        assert_eq!(found[&world.id("m,host=b")].len(), 1);
        assert_eq!(
            (summary.rows, summary.cost.timelines, summary.cost.total().values),
            (3, 2, 3)
        );
        let only_v = LatestQuery {
            fields: vec!["v".into()],
            ..all()
        };
        assert_eq!(run(&world, &only_v).expect("answered").0.len(), 1);
        world.seal();
    }
}

#[test]
fn pages_follow_the_ids() {
    let points: Vec<_> = ["m,host=a", "m,host=b", "m,host=c", "m,host=d", "m,host=e"]
        .into_iter()
        .map(|key| (key, 1, vec![("v", Value::Signed(1))]))
        .collect();
    let world = World::with(&points);
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let query = LatestQuery {
            limit: Some(2),
            after,
            ..all()
        };
        let (kept, summary) = run(&world, &query).expect("answered");
        ids.extend(kept.iter().map(|(id, _)| *id));
        match summary.next {
            Some(next) => after = Some(PageToken::parse(&next).expect("a token")),
            None => break,
        }
    }
    assert_eq!(ids.len(), 5);
    assert!(ids.is_sorted());
    let foreign = LatestQuery {
        after,
        fields: vec!["v".into()],
        ..all()
    };
    assert!(matches!(run(&world, &foreign), Err(QueryError::ForeignToken)));
}
