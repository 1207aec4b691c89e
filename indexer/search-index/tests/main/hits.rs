//! Tests of hits against the model: collapsing, highlights, relevance, and border cases of one-word values.
//!
//! Collapsing and relevance are compared over all pages of a result; highlights are compared with expected texts.

use std::cell::Cell;
use std::collections::BTreeMap;

use tideline_condition::operators::{Equals, Phrase, Prefix, Suffix, Wildcard, Words};
use tideline_condition::{Condition, Literal, Subject, Test};
use tideline_model::{Ordinal, TableId};
use tideline_search_index::{FindRequest, Hit, SearchError, Seen, SeenLookup, Sort, SortBy, SortDirection};
use tideline_timeline_catalog::AttributeValue;

use crate::harness::{Database, Model, edits, words};

const TITLES: [&str; 6] = [
    "Backup Store, hall 3",
    "backup",
    "The store of backups and other things",
    "bakcup store",
    "Über-Store",
    "nothing",
];

fn database() -> Database {
    let mut database = Database::new(TableId(1));
    for n in 0..300usize {
        let (host, dc) = (format!("h{n}"), format!("dc{}", n % 11));
        let mut tags = vec![("host", host.as_str())];
        if n % 5 != 0 {
            tags.push(("dc", dc.as_str()));
        }
        let ordinal = database.add("cpu", &tags, None);
        let title = AttributeValue::Text(TITLES[n % TITLES.len()].to_owned());
        database.edit(ordinal, "title", Some(title));
        let labels = AttributeValue::Texts(vec!["backup".to_owned(), format!("rack {n}")]);
        database.edit(ordinal, "labels", (n % 3 == 0).then_some(labels));
        if n == 200 {
            database.flush();
        }
    }
    database
}

fn text_test(text: &str, distance: u8, is_phrase: bool) -> Test {
    let text = text.to_owned();
    match is_phrase {
        true => Phrase { text, distance }.into(),
        false => Words { text, distance }.into(),
    }
}

/// Returns the hits of all pages, and the total number of hits according to the last page.
fn all_hits(database: &Database, request: &FindRequest) -> (Vec<Hit>, u64) {
    let mut request = request.clone();
    let mut hits = Vec::new();
    loop {
        let page = database.index.find(&database.catalog, &request, &database.model);
        let page = page.expect("a valid request");
        hits.extend(page.hits);
        match page.next {
            Some(token) => request.after = Some(token),
            None => return (hits, page.hits_total),
        }
    }
}

#[test]
fn a_value_is_one_hit_on_all_pages_together() {
    let database = database();
    for order in [SortDirection::Ascending, SortDirection::Descending] {
        for limit in [1, 4, 1_000] {
            let request = FindRequest {
                sort: vec![Sort {
                    by: SortBy::Subject(Subject::Source),
                    order,
                }],
                limit,
                collapse: Some("dc".to_owned()),
                ..FindRequest::default()
            };
            let mut groups: BTreeMap<Option<&String>, Vec<(&String, u32)>> = BTreeMap::new();
            for (ordinal, timeline) in &database.model.0 {
                let host = timeline.source().expect("every one has a host");
                groups
                    .entry(timeline.tags.get("dc"))
                    .or_default()
                    .push((host, *ordinal));
            }
            let mut expected: Vec<(&String, u32, u64)> = Vec::new();
            for hosts in groups.values_mut() {
                hosts.sort();
                let first = if order == SortDirection::Ascending {
                    hosts.first()
                } else {
                    hosts.last()
                };
                let (host, ordinal) = first.expect("not empty");
                expected.push((host, *ordinal, hosts.len() as u64));
            }
            expected.sort();
            if order == SortDirection::Descending {
                expected.reverse();
            }
            let (hits, total) = all_hits(&database, &request);
            let found: Vec<(u32, u64)> = hits.iter().map(|hit| (hit.ordinal.0, hit.timelines)).collect();
            let expected: Vec<(u32, u64)> = expected
                .iter()
                .map(|(_, ordinal, count)| (*ordinal, *count))
                .collect();
            assert_eq!((found, total), (expected, 12), "{order:?} {limit}");
        }
    }
}

#[test]
fn a_token_belongs_to_its_tag() {
    let database = database();
    let mut request = FindRequest {
        limit: 1,
        collapse: Some("dc".to_owned()),
        ..FindRequest::default()
    };
    let find = |request: &FindRequest| database.index.find(&database.catalog, request, &database.model);
    request.after = find(&request).expect("valid").next;
    request.collapse = Some("host".to_owned());
    assert!(matches!(find(&request), Err(SearchError::ForeignToken)));
    request.collapse = None;
    assert!(matches!(find(&request), Err(SearchError::ForeignToken)));
}

/// Computes the score as documented at `SortBy::Relevance`.
fn score(texts: &[String], asked: &str, distance: usize) -> f64 {
    let best = |word: &String| {
        let mut best = 0.0f64;
        for text in texts {
            let found = words(text);
            for other in &found {
                let edits = edits(word, other);
                if edits <= distance {
                    best = best.max((0.5 + 0.5 / found.len() as f64) / (1.0 + edits as f64));
                }
            }
        }
        best
    };
    words(asked).iter().map(best).sum()
}

#[test]
fn the_best_come_first() {
    let database = database();
    for (text, distance) in [
        ("backup", 1),
        ("store backup", 1),
        ("backup store", 0),
        ("rack backup", 2),
    ] {
        let condition = Condition::leaf(Subject::Any, text_test(text, distance, false));
        let request = FindRequest {
            condition: condition.clone(),
            sort: vec![Sort {
                by: SortBy::Relevance,
                order: SortDirection::Descending,
            }],
            limit: 7,
            ..FindRequest::default()
        };
        let mut expected: Vec<(f64, _, u32)> = Vec::new();
        for ordinal in database.model.matching(&condition) {
            let timeline = &database.model.0[&ordinal];
            let score = score(&timeline.texts(), text, distance.into());
            expected.push((-score, timeline.id, ordinal));
        }
        expected.sort_by(|one, other| one.partial_cmp(other).expect("no NaN"));
        let (hits, _) = all_hits(&database, &request);
        let found: Vec<u32> = hits.iter().map(|hit| hit.ordinal.0).collect();
        let expected: Vec<u32> = expected.iter().map(|(.., ordinal)| *ordinal).collect();
        assert!(expected.len() > 50, "{text}");
        assert_eq!(found, expected, "{text}");
    }
}

/// Times of a model, and the number of checks of the stop signal.
struct Checked<'a>(&'a Model, Cell<usize>);

impl SeenLookup for Checked<'_> {
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>> {
        self.0.seen(ordinals)
    }

    fn is_stopped(&self) -> bool {
        self.1.set(self.1.get() + 1);
        false
    }
}

/// The stop signal is checked each time before the catalog is locked.
#[test]
fn a_sort_by_relevance_for_many_words_locks_the_catalog_for_a_few_timelines_at_a_time() {
    let database = database();
    let title = |text: &str| {
        let subject = Subject::Attribute("title".to_owned());
        Condition::leaf(subject, text_test(text, 0, false))
    };
    let others = (0..500).map(|n| title(&format!("missing word{n}")));
    let condition = Condition::Or(others.chain([title("store")]).collect());
    let find = |sort: Vec<Sort>| {
        let request = FindRequest {
            condition: condition.clone(),
            sort,
            limit: 10,
            ..FindRequest::default()
        };
        let seen = Checked(&database.model, Cell::new(0));
        let page = database.index.find(&database.catalog, &request, &seen);
        (page.expect("a valid request").total, seen.1.get())
    };
    let (total, checks) = find(Vec::new());
    let by_relevance = Sort {
        by: SortBy::Relevance,
        order: SortDirection::Descending,
    };
    let (sorted, checks_of_sort) = find(vec![by_relevance]);
    assert_eq!((total, sorted), (200, 200));
    assert!(
        checks_of_sort >= checks + 40,
        "{checks} checks without the sort, {checks_of_sort} with it"
    );
}

/// Returns the highlights of the first hit of a condition: subject and text, with the matches in brackets.
fn marked(database: &Database, condition: Condition) -> Vec<String> {
    let request = FindRequest {
        condition,
        sort: vec![Sort {
            by: SortBy::Subject(Subject::Source),
            order: SortDirection::Ascending,
        }],
        limit: 1,
        highlight: true,
        ..FindRequest::default()
    };
    let page = database.index.find(&database.catalog, &request, &database.model);
    let hits = page.expect("a valid request").hits;
    let marked = hits[0].highlights.iter().map(|highlight| {
        let mut shown = format!("{:?} ", highlight.subject);
        for (at, c) in highlight.text.chars().enumerate() {
            if highlight.spans.iter().any(|span| span.start == at) {
                shown.push('[');
            }
            shown.push(c);
            if highlight.spans.iter().any(|span| span.end == at + 1) {
                shown.push(']');
            }
        }
        shown
    });
    marked.collect()
}

#[test]
fn highlights_say_which_text_matched_and_where() {
    let database = database();
    let title = || Subject::Attribute("title".to_owned());
    let leaf = Condition::leaf;
    assert_eq!(
        marked(&database, leaf(Subject::Any, text_test("backup", 1, false))),
        [
            "Attribute(\"labels\") [backup]",
            "Attribute(\"title\") [Backup] Store, hall 3"
        ]
    );
    assert_eq!(
        marked(&database, leaf(title(), text_test("STORE hall", 0, true))),
        ["Attribute(\"title\") Backup [Store, hall] 3"]
    );
    assert_eq!(
        marked(&database, leaf(title(), text_test("ober", 1, false))),
        ["Attribute(\"title\") [Über]-Store"]
    );
    let both = Condition::And(vec![
        leaf(Subject::Source, Prefix("h".into()).into()),
        leaf(Subject::Source, Suffix("0".into()).into()),
        Condition::Not(Box::new(leaf(title(), text_test("nothing", 0, false)))),
        Condition::Or(vec![
            leaf(title(), Wildcard("b*".into()).into()),
            leaf(Subject::Measurement, Equals(Literal::Text("cpu".into())).into()),
        ]),
    ]);
    assert_eq!(
        marked(&database, both),
        ["Source [h][0]", "Measurement [cpu]"].map(|shown| shown.replace("][", ""))
    );
}

/// A value that is a single lower-case word has no separate token for the word. These values are border cases of that
/// rule.
#[test]
fn values_that_are_nearly_one_word_are_found_by_their_words() {
    const VALUES: [&str; 10] = ["r12", "R12", "r12 r13", "r-12", "İ", "i̇", "i", "ß", "SS", "ﬁ"];
    let mut database = Database::new(TableId(1));
    for (n, value) in VALUES.iter().enumerate() {
        let ordinal = database.add("Cpu load", &[("host", &format!("h{n}")), ("mark", value)], None);
        let note = AttributeValue::Text((*value).to_owned());
        database.edit(ordinal, "note", Some(note));
        let list = AttributeValue::Texts(vec![(*value).to_owned(), "load".to_owned()]);
        database.edit(ordinal, "list", Some(list));
    }
    database.flush();
    let subjects = [
        Subject::Any,
        Subject::Measurement,
        Subject::Tag("mark".to_owned()),
        Subject::Attribute("note".to_owned()),
        Subject::Attribute("list".to_owned()),
    ];
    let mut found = 0;
    let asked = [
        "r12", "R12", "r12 r13", "r-12", "i", "ß", "SS", "ﬁ", "load", "r12 load", "cpu LOAD", "12",
    ];
    for text in asked {
        for (distance, is_phrase) in [(0, false), (0, true), (1, false), (1, true)] {
            for subject in &subjects {
                let condition = Condition::Leaf {
                    subject: subject.clone(),
                    test: text_test(text, distance, is_phrase),
                };
                found += database.check(&condition).len();
            }
        }
    }
    assert!(found > 300, "{found} hits");
}
