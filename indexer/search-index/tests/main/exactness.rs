//! Tests that search results equal the results of the model, regardless of the progress of the index.
//!
//! Random sequences of edits, removals, flushes, restarts and deletions of the index folder are interleaved with
//! searches.

use std::ops::Bound;

use proptest::prelude::*;
use proptest::sample::select;
use tideline_condition::operators::{
    Compare, Equals, Exists, Fuzzy, In, NotEquals, NumberRange, Phrase, Prefix, Regex, Suffix, Wildcard,
    Within, Words,
};
use tideline_condition::{Condition, Literal, Subject, Test};
use tideline_model::{Ordinal, SearchAnalyzer, SearchLanguage, TableId, TimeRange, TimelineId, Timestamp};
use tideline_timeline_catalog::AttributeValue;

use crate::harness::{Database, literal};
use crate::places::{areas, place, within};

const MEASUREMENTS: [&str; 3] = ["cpu", "mem", "disk io"];
const TAG_KEYS: [&str; 5] = ["host", "dc", "rack", "a", "a\0b"];
const VALUES: [&str; 14] = [
    "a",
    "b",
    "ab",
    "b\0c",
    "web-1",
    "web-2",
    "web-10",
    "ü",
    "x\ny",
    "*",
    "1.5",
    "-7",
    "Web 1 Über",
    "nan",
];
const ATTRIBUTE_KEYS: [&str; 7] = ["owner", "rack", "on", "born", "site", "labels", "ports"];
const WILDCARDS: [&str; 8] = ["*", "web-*", "*b*", "?", "w?b-1*", "", "ü*", "x?y"];
const REGEXES: [&str; 12] = [
    "web-.*",
    "a|b",
    "(a|b)+",
    ".*",
    "",
    "web-[0-9]",
    "x.y",
    "[^a]*",
    "web-1|ü|",
    "wx?eb-1?",
    "b\\x00c",
    "ü+",
];

const FUZZY: [&str; 9] = ["", "a", "ba", "wbe-1", "web-1", "we-10", "Ü", "1.6", "web1"];
const WORDS: [&str; 10] = [
    "web", "1 web", "WEB 1", "wbe 1", "über", "uber web", "b c", "10", "cpu web", "disk io",
];

const ANALYZERS: [Option<SearchAnalyzer>; 5] = [
    None,
    Some(SearchAnalyzer::Ngram(2)),
    Some(SearchAnalyzer::Ngram(3)),
    Some(SearchAnalyzer::Cjk),
    Some(SearchAnalyzer::Language(SearchLanguage::English)),
];

#[derive(Debug, Clone)]
enum Step {
    Add(
        &'static str,
        Vec<(&'static str, &'static str)>,
        Option<(i64, i64)>,
    ),
    Edit(usize, &'static str, Option<AttributeValue>),
    Remove(usize),
    Analyze(&'static str, Option<SearchAnalyzer>),
    Flush,
    ReopenIndex,
    Restart,
    DeleteFolder,
    Search(Condition),
}

fn number() -> impl Strategy<Value = f64> {
    select(vec![0.0, -0.0, 1.0, 1.5, -7.0, 12.0])
}

/// Strategy for points. No point is on the border of a test area, except the center of the circle with radius zero.
fn point() -> impl Strategy<Value = AttributeValue> {
    let between = (-8..8i32, -17..17i32);
    let anywhere = between
        .prop_map(|(row, column)| place(f64::from(row) * 10.0 + 2.25, f64::from(column) * 10.0 + 3.25));
    let special = select(vec![
        (12.25, 13.25),
        (90.0, 7.0),
        (-90.0, 7.0),
        (0.25, 180.0),
        (0.25, -180.0),
    ]);
    prop_oneof![4 => anywhere, 1 => special.prop_map(|(latitude, longitude)| place(latitude, longitude))]
        .prop_map(AttributeValue::Point)
}

fn time() -> impl Strategy<Value = AttributeValue> {
    (-3..100i64).prop_map(|nanos| AttributeValue::Time(Timestamp::from_nanos_clamped(nanos)))
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![9 => select(VALUES.to_vec()), 1 => Just("")].prop_map(str::to_owned)
}

/// Strategy for a value that is not a list.
fn attribute() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        3 => words().prop_map(AttributeValue::Text),
        2 => number().prop_map(AttributeValue::Number),
        1 => any::<bool>().prop_map(AttributeValue::Boolean),
        2 => point(),
        2 => time(),
    ]
}

pub(crate) fn list() -> impl Strategy<Value = AttributeValue> {
    prop_oneof![
        prop::collection::vec(words(), 1..4).prop_map(AttributeValue::Texts),
        prop::collection::vec(number(), 1..4).prop_map(AttributeValue::Numbers),
    ]
}

/// Strategy for a key and a value, mostly of the key's usual type.
fn edit() -> impl Strategy<Value = (&'static str, AttributeValue)> {
    prop_oneof![
        3 => words().prop_map(|text| ("owner", AttributeValue::Text(text))),
        2 => number().prop_map(|number| ("rack", AttributeValue::Number(number))),
        1 => any::<bool>().prop_map(|boolean| ("on", AttributeValue::Boolean(boolean))),
        2 => time().prop_map(|time| ("born", time)),
        3 => point().prop_map(|point| ("site", point)),
        2 => prop::collection::vec(words(), 1..4).prop_map(|texts| ("labels", AttributeValue::Texts(texts))),
        2 => prop::collection::vec(number(), 1..4).prop_map(|numbers| ("ports", AttributeValue::Numbers(numbers))),
        1 => (select(ATTRIBUTE_KEYS.to_vec()), prop_oneof![3 => attribute(), 1 => list()]),
    ]
}

fn text() -> impl Strategy<Value = Literal> {
    let text = prop_oneof![9 => select(VALUES.to_vec()), 1 => Just(""), 1 => Just("cpu")];
    text.prop_map(|text| Literal::Text(text.to_owned()))
}

fn range() -> impl Strategy<Value = TimeRange> {
    (0..100i64, 0..100i64).prop_map(|(start, end)| TimeRange::new(start, end))
}

fn numbers() -> impl Strategy<Value = NumberRange> {
    let bound = || {
        let number = select(vec![-7.0, -0.0, 0.0, 1.0, 1.5, 12.0]);
        prop_oneof![
            1 => Just(Bound::Unbounded),
            2 => number.clone().prop_map(Bound::Included),
            2 => number.prop_map(Bound::Excluded),
        ]
    };
    (bound(), bound()).prop_map(|(low, high)| NumberRange { low, high })
}

fn leaf() -> impl Strategy<Value = Condition> {
    let tag = select(TAG_KEYS.to_vec()).prop_map(|key| Subject::Tag(key.to_owned()));
    let attribute_key = select(ATTRIBUTE_KEYS.to_vec()).prop_map(|key| Subject::Attribute(key.to_owned()));
    let subject = prop_oneof![
        1 => Just(Subject::Measurement),
        2 => Just(Subject::Source),
        5 => tag,
        4 => attribute_key.clone(),
    ];
    let test = prop_oneof![
        4 => text().prop_map(|value| Test::from(Equals(value))),
        2 => text().prop_map(|value| NotEquals(value).into()),
        2 => prop::collection::vec(text(), 0..4).prop_map(|values| In(values).into()),
        2 => select(vec!["", "w", "web-1", "a", "ü"]).prop_map(|text| Prefix(text.to_owned()).into()),
        2 => select(WILDCARDS.to_vec()).prop_map(|text| Wildcard(text.to_owned()).into()),
        2 => select(REGEXES.to_vec()).prop_map(|text| Regex(text.to_owned()).into()),
        2 => Just(Exists(true).into()),
        2 => select(vec!["", "1", "-1", "b", "ü"]).prop_map(|text| Suffix(text.to_owned()).into()),
        3 => (select(FUZZY.to_vec()), 0..=2u8).prop_map(|(text, distance)| Fuzzy { text: text.to_owned(), distance }.into()),
        3 => text_test(),
        2 => numbers().prop_map(|range| Compare::from(range).into()),
    ];
    let typed = prop_oneof![
        attribute().prop_map(|value| Test::from(Equals(literal(value)))),
        attribute().prop_map(|value| NotEquals(literal(value)).into()),
        prop::collection::vec(attribute(), 0..4).prop_map(|values| In(values
            .into_iter()
            .map(literal)
            .collect())
        .into()),
        numbers().prop_map(|range| Compare::from(range).into()),
        range().prop_map(|range| Within::from(range).into()),
        select(areas()).prop_map(|area| within(&area)),
        select(areas()).prop_map(|area| within(&area)),
    ];
    let time = prop_oneof![Just(Subject::FirstSeen), Just(Subject::LastSeen)];
    prop_oneof![
        8 => (subject, test).prop_map(|(subject, test)| Condition::leaf(subject, test)),
        5 => (attribute_key, typed).prop_map(|(subject, test)| Condition::leaf(subject, test)),
        3 => text_test().prop_map(|text_test| Condition::leaf(Subject::Any, text_test)),
        2 => (time, range()).prop_map(|(subject, range)| Condition::leaf(subject, Within::from(range))),
        1 => Just(Condition::All),
    ]
}

fn text_test() -> impl Strategy<Value = Test> {
    (select(WORDS.to_vec()), 0..=2u8, any::<bool>()).prop_map(|(text, distance, is_phrase)| {
        let text = text.to_owned();
        match is_phrase {
            true => Phrase { text, distance }.into(),
            false => Words { text, distance }.into(),
        }
    })
}

pub(crate) fn condition() -> impl Strategy<Value = Condition> {
    leaf().prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Condition::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Condition::Or),
            inner.prop_map(|condition| Condition::Not(Box::new(condition))),
        ]
    })
}

fn step() -> impl Strategy<Value = Step> {
    let tags = prop::collection::btree_map(select(TAG_KEYS.to_vec()), select(VALUES.to_vec()), 0..5);
    let seen = prop::option::of((0..100i64, 0..100i64));
    prop_oneof![
        40 => (select(MEASUREMENTS.to_vec()), tags, seen)
            .prop_map(|(measurement, tags, seen)| Step::Add(measurement, tags.into_iter().collect(), seen)),
        20 => (any::<usize>(), edit(), any::<u8>())
            .prop_map(|(which, (key, value), keep)| Step::Edit(which, key, (keep > 40).then_some(value))),
        8 => any::<usize>().prop_map(Step::Remove),
        2 => (select(vec!["owner", "labels"]), select(ANALYZERS.to_vec()))
            .prop_map(|(key, analyzer)| Step::Analyze(key, analyzer)),
        2 => Just(Step::Flush),
        1 => Just(Step::ReopenIndex),
        1 => Just(Step::Restart),
        1 => Just(Step::DeleteFolder),
        40 => condition().prop_map(Step::Search),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..tideline_testkit::proptest_config(24) })]

    #[test]
    fn a_search_is_the_naive_filter(steps in prop::collection::vec(step(), 50..300)) {
        let mut database = Database::new(TableId(5));
        for step in steps {
            match step {
                Step::Add(measurement, tags, seen) => {
                    database.add(measurement, &tags, seen);
                }
                Step::Edit(which, key, value) if !database.model.0.is_empty() => {
                    let ordinals: Vec<u32> = database.model.0.keys().copied().collect();
                    database.edit(Ordinal(ordinals[which % ordinals.len()]), key, value);
                }
                Step::Remove(which) if !database.model.0.is_empty() => {
                    let ordinals: Vec<u32> = database.model.0.keys().copied().collect();
                    database.remove(Ordinal(ordinals[which % ordinals.len()]));
                }
                Step::Edit(..) | Step::Remove(_) => {}
                Step::Analyze(key, analyzer) => database.analyze(key, analyzer),
                Step::Flush => database.flush(),
                Step::ReopenIndex => database.reopen_index(),
                Step::Restart => database.restart(),
                Step::DeleteFolder => database.delete_folder(),
                Step::Search(condition) => {
                    database.check(&condition);
                }
            }
        }
        database.flush();
    }
}

/// Uses so many timelines that evaluation of an `And` stops early, posting lists are decoded, bounds are verified,
/// and sets of documents exceed 65,536.
#[test]
fn large_tables_are_searched_exactly() {
    let mut database = Database::new(TableId(u32::MAX));
    let add = |database: &mut Database, numbers: std::ops::Range<i64>| {
        for n in numbers {
            let host = format!("host-{n}");
            let rack = (n % 300).to_string();
            let dc = if n % 2 == 0 { "even" } else { "odd" };
            let mut tags = vec![("host", host.as_str()), ("rack", rack.as_str()), ("dc", dc)];
            if n % 7 == 0 {
                tags.push(("spare", "yes"));
            }
            database.add("cpu", &tags, (n % 3 != 0).then_some((n, n + 10)));
        }
    };
    add(&mut database, 0..68_000);
    database.flush();
    add(&mut database, 68_000..72_000);
    database.flush();
    add(&mut database, 72_000..72_500);
    for n in (0..72_500).step_by(49) {
        database.edit(
            Ordinal(n),
            "owner",
            Some(AttributeValue::Number(f64::from(n % 2))),
        );
    }
    let tag = |key: &str, value: &str| Condition::tag(key, value);
    fn of(subject: Subject, test: impl Into<Test>) -> Condition {
        Condition::leaf(subject, test)
    }
    let not = |condition| Condition::Not(Box::new(condition));
    let late = of(Subject::LastSeen, Within::from(TimeRange::new(6_000, i64::MAX)));
    let owner = Subject::Attribute("owner".into());
    let ids: Vec<Literal> = [3u32, 70_500, 72_400]
        .iter()
        .map(|ordinal| Literal::Text(database.model.0[ordinal].id.to_string()))
        .chain([Literal::Text(TimelineId::MAX.to_string())])
        .collect();
    let named = of(Subject::Id, In(ids));
    let conditions = [
        Condition::And(vec![tag("dc", "even"), tag("rack", "6")]),
        Condition::And(vec![tag("dc", "even"), tag("rack", "7")]),
        Condition::And(vec![not(tag("spare", "yes")), tag("rack", "14")]),
        not(Condition::And(vec![tag("dc", "even"), tag("rack", "6")])),
        Condition::And(vec![late.clone(), tag("dc", "odd")]),
        not(Condition::And(vec![late.clone(), tag("dc", "odd")])),
        Condition::Or(vec![not(late.clone()), tag("rack", "1")]),
        of(Subject::Source, Regex("host-1.*9".into())),
        of(Subject::Source, Wildcard("*99".into())),
        Condition::And(vec![
            of(Subject::Source, Prefix("host-72".into())),
            tag("dc", "odd"),
        ]),
        of(owner.clone(), Equals(Literal::Float(1.0))),
        of(
            owner.clone(),
            Compare::from(NumberRange {
                low: Bound::Excluded(0.0),
                high: Bound::Unbounded,
            }),
        ),
        of(
            Subject::Tag("rack".into()),
            Compare::from(NumberRange {
                low: Bound::Included(17.0),
                high: Bound::Excluded(19.0),
            }),
        ),
        of(
            Subject::Source,
            Fuzzy {
                text: "hots-7".into(),
                distance: 2,
            },
        ),
        of(
            Subject::Any,
            Words {
                text: "evne 7000".into(),
                distance: 1,
            },
        ),
        of(
            Subject::Source,
            Phrase {
                text: "host 70000".into(),
                distance: 1,
            },
        ),
        of(
            Subject::Any,
            Phrase {
                text: "host 70001".into(),
                distance: 0,
            },
        ),
        not(of(owner, Exists(true))),
        Condition::And(vec![
            tag("dc", "odd"),
            Condition::Or(vec![
                late.clone(),
                of(Subject::FirstSeen, Within::from(TimeRange::new(0, 9))),
                of(Subject::Source, Suffix("-7".into())),
            ]),
        ]),
        named.clone(),
        not(named.clone()),
        Condition::Or(vec![named.clone(), tag("rack", "2")]),
        Condition::And(vec![named, tag("dc", "odd")]),
        tag("spare", ""),
        Condition::All,
        Condition::Or(vec![]),
    ];
    let check_all = |database: &Database| {
        let found: Vec<u64> = conditions
            .iter()
            .map(|condition| database.check(condition).len())
            .collect();
        assert!(found[0] > 0 && found[1] == 0 && found[4] > 1_000, "{found:?}");
    };
    check_all(&database);
    database.flush();
    check_all(&database);
    database.restart();
    check_all(&database);
}
