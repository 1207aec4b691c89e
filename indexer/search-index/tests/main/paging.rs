//! Tests that concatenated pages equal the full sort, and that page tokens are bound to their search.
//!
//! The page size varies. The sort keys cover booleans, numbers, times, texts, points, distances and lists of numbers.

use std::cmp::Ordering;

use tideline_condition::{Condition, Subject};
use tideline_model::TableId;
use tideline_search_index::{FindRequest, SearchError, Sort, SortBy, SortDirection};
use tideline_timeline_catalog::AttributeValue;

use crate::harness::{Database, Modelled};
use crate::places::place;

fn sort(subject: Subject, order: SortDirection) -> Sort {
    Sort {
        by: SortBy::Subject(subject),
        order,
    }
}

const KEYS: [&str; 5] = ["on", "rack", "owner", "site", "ports"];

fn database() -> Database {
    let mut database = Database::new(TableId(1));
    for n in 0..500i64 {
        let (host, dc) = (format!("h{}", n * 7 % 500), format!("dc{}", n % 3));
        let mut tags = vec![("host", host.as_str())];
        if n % 5 != 0 {
            tags.push(("dc", dc.as_str()));
        }
        let ordinal = database.add("cpu", &tags, (n % 4 != 0).then_some((n % 10, 100 - n % 17)));
        let values = [
            AttributeValue::Boolean(n % 4 == 0),
            AttributeValue::Number(-(n as f64)),
            AttributeValue::Text(format!("t{}", n % 8)),
            AttributeValue::Point(place((n % 90) as f64, (n % 180) as f64)),
            AttributeValue::Numbers(vec![(n % 7) as f64, (n % 5) as f64]),
        ];
        for (at, (key, value)) in KEYS.into_iter().zip(values).enumerate() {
            if n as usize % 6 != at {
                database.edit(ordinal, key, Some(value));
            }
        }
        if n == 250 {
            database.flush();
        }
    }
    database
}

/// Returns a text that sorts like the sort key: missing, booleans, numbers, times, texts, points. A missing distance
/// sorts last.
fn key(timeline: &Modelled, by: &SortBy) -> String {
    let subject = match by {
        SortBy::Subject(subject) => subject,
        SortBy::Relevance => panic!("this test does not sort by relevance"),
        SortBy::Distance { key, from } => {
            // Distance from a point on the equator: one minus the cosine of the angle grows with the distance.
            return match timeline.attributes.get(key) {
                Some(AttributeValue::Point(point)) => {
                    let (up, aside) = (
                        point.latitude() - from.latitude(),
                        point.longitude() - from.longitude(),
                    );
                    let (up, aside) = (up.to_radians(), aside.to_radians());
                    let cosine = up.cos() * aside.cos();
                    format!("{:.9}", 1.0 - cosine)
                }
                _ => "9".to_owned(),
            };
        }
    };
    let text = |text: Option<&String>| text.map_or_else(|| "0".to_owned(), |text| format!("5{text}"));
    match subject {
        Subject::Source => text(timeline.source()),
        Subject::Tag(key) => text(timeline.tags.get(key)),
        Subject::Attribute(key) => match timeline.attributes.get(key) {
            None => "0".to_owned(),
            Some(AttributeValue::Boolean(value)) => format!("1{value}"),
            Some(AttributeValue::Number(value)) => format!("2{:09}", 1_000_000.0 + value),
            Some(AttributeValue::Text(value)) => format!("5{value}"),
            Some(AttributeValue::Point(value)) => format!("6{:03}{:03}", value.latitude(), value.longitude()),
            Some(AttributeValue::Numbers(values)) => {
                let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
                format!("2{:09}", 1_000_000.0 + lowest)
            }
            other => panic!("no key for {other:?}"),
        },
        Subject::LastSeen => timeline
            .seen
            .map_or_else(|| "0".to_owned(), |seen| format!("3{:09}", seen.last.nanos())),
        other => panic!("no key for {other:?}"),
    }
}

#[test]
fn pages_put_together_are_the_full_sort() {
    let database = database();
    let tag = |key: &str| Subject::Tag(key.to_owned());
    let attribute = |key: &str| Subject::Attribute(key.to_owned());
    let sorts = [
        vec![],
        vec![sort(Subject::Source, SortDirection::Descending)],
        vec![
            sort(tag("dc"), SortDirection::Ascending),
            sort(Subject::Source, SortDirection::Descending),
        ],
        vec![
            sort(attribute("on"), SortDirection::Ascending),
            sort(attribute("owner"), SortDirection::Descending),
            sort(attribute("rack"), SortDirection::Descending),
        ],
        vec![sort(attribute("site"), SortDirection::Descending)],
        vec![sort(attribute("ports"), SortDirection::Ascending)],
        vec![Sort {
            by: SortBy::Distance {
                key: "site".into(),
                from: place(0.0, 20.5),
            },
            order: SortDirection::Ascending,
        }],
        vec![
            sort(Subject::LastSeen, SortDirection::Ascending),
            sort(tag("dc"), SortDirection::Descending),
        ],
    ];
    for sort in sorts {
        let condition = Condition::Not(Box::new(Condition::tag("dc", "dc1")));
        let mut expected: Vec<(&u32, &Modelled)> = database.model.0.iter().collect();
        let hits = database.model.matching(&condition);
        expected.retain(|(ordinal, _)| hits.contains(ordinal));
        expected.sort_by(|(_, a), (_, b)| {
            let by_keys = sort.iter().map(|sort| {
                let ordering = key(a, &sort.by).cmp(&key(b, &sort.by));
                if sort.order == SortDirection::Descending {
                    ordering.reverse()
                } else {
                    ordering
                }
            });
            by_keys
                .fold(Ordering::Equal, Ordering::then)
                .then(a.id.cmp(&b.id))
        });
        let expected: Vec<u32> = expected.into_iter().map(|(ordinal, _)| *ordinal).collect();
        for limit in [1_000, 37, 1] {
            let mut found = Vec::new();
            let mut request = FindRequest {
                condition: condition.clone(),
                sort: sort.clone(),
                limit,
                ..FindRequest::default()
            };
            loop {
                let page = database
                    .index
                    .find(&database.catalog, &request, &database.model)
                    .expect("valid");
                assert_eq!(page.total, expected.len() as u64);
                assert!(page.hits.len() <= limit);
                found.extend(page.hits.iter().map(|hit| hit.ordinal.0));
                match page.next {
                    Some(token) => request.after = Some(token),
                    None => break,
                }
            }
            assert_eq!(found, expected, "{sort:?} by {limit}");
        }
    }
}

#[test]
fn a_token_is_good_for_its_own_search_only() {
    let database = database();
    let find = |request: &FindRequest| database.index.find(&database.catalog, request, &database.model);
    let request = FindRequest {
        condition: Condition::All,
        sort: vec![sort(Subject::Source, SortDirection::Ascending)],
        limit: 10,
        ..FindRequest::default()
    };
    let token = find(&request).expect("valid").next.expect("more than ten");
    let with = |after: &str, request: &FindRequest| {
        let after = Some(after.to_owned());
        find(&FindRequest {
            after,
            ..request.clone()
        })
    };
    assert!(
        with(
            &token,
            &FindRequest {
                limit: 20,
                ..request.clone()
            }
        )
        .is_ok(),
        "the limit may change"
    );
    let other = FindRequest {
        sort: Vec::new(),
        ..request.clone()
    };
    assert!(matches!(with(&token, &other), Err(SearchError::ForeignToken)));
    let other = FindRequest {
        condition: Condition::tag("dc", "x"),
        ..request.clone()
    };
    assert!(matches!(with(&token, &other), Err(SearchError::ForeignToken)));
    for at in 0..token.len() {
        let mut damaged = token.clone().into_bytes();
        damaged[at] = if damaged[at] == b'0' { b'1' } else { b'0' };
        let damaged = String::from_utf8(damaged).expect("ASCII");
        assert!(
            matches!(with(&damaged, &request), Err(SearchError::DamagedToken)),
            "digit {at}"
        );
    }
    for bad in ["", "0", "zz", "00ff", &token[2..], "ü"] {
        assert!(
            matches!(with(bad, &request), Err(SearchError::DamagedToken)),
            "{bad:?}"
        );
    }
    assert!(matches!(
        find(&FindRequest {
            limit: 0,
            ..request.clone()
        }),
        Err(SearchError::EmptyPage)
    ));
    let over = find(&FindRequest {
        limit: 10_001,
        ..request
    });
    assert!(matches!(
        over,
        Err(SearchError::OverLimit {
            limit: 10_000,
            actual: 10_001,
            ..
        })
    ));
}
