//! Pages, put together, are the full sort.

use std::cmp::Ordering;

use tideline_model::TableId;
use tideline_search_index::{Condition, FindRequest, Order, SearchError, Sort, Subject};
use tideline_timeline_catalog::AttributeValue;

use crate::harness::{Database, Modelled};

fn sort(subject: Subject, order: Order) -> Sort {
    Sort { subject, order }
}

fn database() -> Database {
    let mut database = Database::new(TableId(1));
    for n in 0..500i64 {
        let (host, dc) = (format!("h{}", n * 7 % 500), format!("dc{}", n % 3));
        let mut tags = vec![("host", host.as_str())];
        if n % 5 != 0 {
            tags.push(("dc", dc.as_str()));
        }
        let ordinal = database.add("cpu", &tags, (n % 4 != 0).then_some((n % 10, 100 - n % 17)));
        let value = match n % 6 {
            0 => AttributeValue::Boolean(n % 4 == 0),
            1 => AttributeValue::Number(-(n as f64)),
            2 => AttributeValue::Text(format!("t{}", n % 8)),
            _ => continue,
        };
        database.edit(ordinal, "owner", Some(value));
        if n == 250 {
            database.flush();
        }
    }
    database
}

/// The order of missing, booleans, numbers and texts, in text that sorts that way.
fn key(timeline: &Modelled, subject: &Subject) -> String {
    let text = |text: Option<&String>| text.map_or_else(|| "0".to_owned(), |text| format!("5{text}"));
    match subject {
        Subject::Source => text(timeline.source()),
        Subject::Tag(key) => text(timeline.tags.get(key)),
        Subject::Attribute(key) => match timeline.attributes.get(key) {
            None => "0".to_owned(),
            Some(AttributeValue::Boolean(value)) => format!("1{value}"),
            Some(AttributeValue::Number(value)) => format!("2{:09}", 1_000_000.0 + value),
            Some(AttributeValue::Text(value)) => format!("5{value}"),
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
    let owner = || Subject::Attribute("owner".to_owned());
    let sorts = [
        vec![],
        vec![sort(Subject::Source, Order::Descending)],
        vec![
            sort(tag("dc"), Order::Ascending),
            sort(Subject::Source, Order::Descending),
        ],
        vec![sort(owner(), Order::Descending)],
        vec![
            sort(Subject::LastSeen, Order::Ascending),
            sort(tag("dc"), Order::Descending),
        ],
    ];
    for sort in sorts {
        let condition = Condition::Not(Box::new(Condition::tag("dc", "dc1")));
        let mut expected: Vec<(&u32, &Modelled)> = database.model.0.iter().collect();
        let hits = database.model.matching(&condition);
        expected.retain(|(ordinal, _)| hits.contains(ordinal));
        expected.sort_by(|(_, a), (_, b)| {
            let by_keys = sort.iter().map(|sort| {
                let ordering = key(a, &sort.subject).cmp(&key(b, &sort.subject));
                if sort.order == Order::Descending {
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
                after: None,
                limit,
            };
            loop {
                let page = database
                    .index
                    .find(&database.catalog, &request, &database.model)
                    .expect("valid");
                assert_eq!(page.total, expected.len() as u64);
                assert!(page.ordinals.len() <= limit);
                found.extend(page.ordinals.iter().map(|ordinal| ordinal.0));
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
        sort: vec![sort(Subject::Source, Order::Ascending)],
        after: None,
        limit: 10,
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
