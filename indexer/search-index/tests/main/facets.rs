//! Tests of facets against naive counts over the model.
//!
//! Tables and requests are random. A random number of timelines is indexed before the comparison.

use std::cmp::Ordering;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tideline_condition::operators::Exists;
use tideline_condition::{Condition, Subject};
use tideline_model::{Ordinal, TableId, Timestamp};
use tideline_search_index::{FacetGroup, FacetOrder, FacetRequest, Facets};
use tideline_timeline_catalog::AttributeValue;

use crate::exactness::condition;
use crate::harness::{Database, Modelled};
use crate::places::place;

const MEASUREMENTS: [&str; 2] = ["cpu", "disk io"];
const TAG_KEYS: [&str; 3] = ["host", "dc", "rack"];
const VALUES: [&str; 4] = ["a", "b", "web-1", "ü"];

fn value(timeline: &Modelled, subject: &Subject) -> Option<AttributeValue> {
    let text = |text: &String| AttributeValue::Text(text.clone());
    match subject {
        Subject::Measurement => Some(text(&timeline.measurement)),
        Subject::Source => timeline.source().map(text),
        Subject::Tag(key) => timeline.tags.get(key).map(text),
        Subject::Attribute(key) => timeline.attributes.get(key).cloned(),
        _ => panic!("nothing is counted by {subject:?}"),
    }
}

fn compare(one: &Option<AttributeValue>, other: &Option<AttributeValue>) -> Ordering {
    let rank = |value: &Option<AttributeValue>| match value {
        None => (0, Vec::new(), Vec::new()),
        Some(AttributeValue::Text(text)) => (1, Vec::new(), vec![text.clone()]),
        Some(AttributeValue::Number(number)) => (2, vec![*number], Vec::new()),
        Some(AttributeValue::Boolean(boolean)) => (3, vec![f64::from(u8::from(*boolean))], Vec::new()),
        Some(AttributeValue::Time(time)) => (4, vec![time.nanos() as f64], Vec::new()),
        Some(AttributeValue::Point(point)) => (5, vec![point.latitude(), point.longitude()], Vec::new()),
        Some(AttributeValue::Texts(texts)) => (6, Vec::new(), texts.clone()),
        Some(AttributeValue::Numbers(numbers)) => (7, numbers.clone(), Vec::new()),
    };
    rank(one).partial_cmp(&rank(other)).expect("no NaN")
}

fn count(timelines: &[&Modelled], by: &[Subject], request: &FacetRequest) -> Facets {
    let mut facets = Facets {
        timelines: timelines.len() as u64,
        ..Facets::default()
    };
    let Some((subject, rest)) = by.split_first() else {
        return facets;
    };
    let mut groups: Vec<(Option<AttributeValue>, Vec<&Modelled>)> = Vec::new();
    for timeline in timelines {
        let own = value(timeline, subject);
        match groups.iter_mut().find(|(value, _)| *value == own) {
            Some((_, alike)) => alike.push(timeline),
            None => groups.push((own, vec![timeline])),
        }
    }
    groups.sort_by(|(one, alike), (other, others)| {
        let by_count = others.len().cmp(&alike.len());
        match request.order {
            FacetOrder::Count => by_count.then(compare(one, other)),
            FacetOrder::Value => compare(one, other),
        }
    });
    facets.distinct = groups.len() as u64;
    groups.truncate(request.limit);
    let groups = groups.into_iter().map(|(value, alike)| FacetGroup {
        value,
        within: count(&alike, rest, request),
    });
    facets.groups = groups.collect();
    facets
}

/// Strategy for attribute values of the type with the given number.
fn attribute(kind: usize) -> BoxedStrategy<AttributeValue> {
    let number = || select(vec![0.0, 1.5, -7.0]);
    let text = || select(VALUES.to_vec()).prop_map(str::to_owned);
    match kind {
        0 => text().prop_map(AttributeValue::Text).boxed(),
        1 => number().prop_map(AttributeValue::Number).boxed(),
        2 => any::<bool>().prop_map(AttributeValue::Boolean).boxed(),
        3 => (0..3i64)
            .prop_map(|nanos| AttributeValue::Time(Timestamp::from_nanos_clamped(nanos)))
            .boxed(),
        4 => (number(), number())
            .prop_map(|(latitude, longitude)| AttributeValue::Point(place(latitude, longitude)))
            .boxed(),
        5 => prop::collection::vec(text(), 1..3)
            .prop_map(AttributeValue::Texts)
            .boxed(),
        _ => prop::collection::vec(number(), 1..3)
            .prop_map(AttributeValue::Numbers)
            .boxed(),
    }
}

fn request() -> impl Strategy<Value = FacetRequest> {
    let subjects = vec![
        Subject::Measurement,
        Subject::Source,
        Subject::Tag("dc".into()),
        Subject::Tag("rack".into()),
        Subject::Attribute("owner".into()),
    ];
    let by = subsequence(subjects, 1..=4).prop_shuffle();
    let condition = prop_oneof![1 => Just(Condition::All), 1 => condition()];
    let order = select(vec![FacetOrder::Count, FacetOrder::Value]);
    (condition, by, 1..5usize, order).prop_map(|(condition, by, limit, order)| FacetRequest {
        condition,
        by,
        limit,
        order,
    })
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(48))]

    #[test]
    fn facets_are_the_naive_counts(
        timelines in (0..7usize).prop_flat_map(|kind| prop::collection::vec(
            (
                select(MEASUREMENTS.to_vec()),
                prop::collection::btree_map(select(TAG_KEYS.to_vec()), select(VALUES.to_vec()), 0..4),
                prop::option::of(attribute(kind)),
            ),
            0..120,
        )),
        flushed in 0..120usize,
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let mut database = Database::new(TableId(5));
        for (at, (measurement, tags, owner)) in timelines.into_iter().enumerate() {
            if at == flushed {
                database.flush();
            }
            let tags: Vec<_> = tags.into_iter().collect();
            let Ordinal(ordinal) = database.add(measurement, &tags, None);
            if owner.is_some() {
                database.edit(Ordinal(ordinal), "owner", owner);
            }
        }
        for request in requests {
            let facets = database.index.facets(&database.catalog, &request, &database.model);
            let matching = database.model.matching(&request.condition);
            let matching: Vec<&Modelled> = matching.iter().map(|ordinal| &database.model.0[ordinal]).collect();
            let expected = count(&matching, &request.by, &request);
            prop_assert_eq!(facets.expect("a valid request"), expected);
        }
    }
}

#[test]
fn requests_that_cannot_be_counted_are_refused() {
    let database = Database::new(TableId(5));
    let refusal = |by: Vec<Subject>, limit| {
        let request = FacetRequest {
            condition: Condition::leaf(Subject::Measurement, Exists(true)),
            by,
            limit,
            order: FacetOrder::Count,
        };
        let refused = database
            .index
            .facets(&database.catalog, &request, &database.model);
        refused.expect_err("refused").to_string()
    };
    let tag = || Subject::Tag("host".into());
    assert!(refusal(vec![], 1).contains("at least one key"));
    assert!(refusal(vec![tag()], 0).contains("limit of at least 1"));
    assert!(refusal(vec![tag(); 5], 1).contains("facet keys of 5 is over the limit of 4"));
    assert!(refusal(vec![tag()], 10_001).contains("over the limit of 10000"));
    assert!(refusal(vec![Subject::LastSeen], 1).contains("last seen"));
}
