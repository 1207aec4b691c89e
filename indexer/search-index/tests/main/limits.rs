//! Conditions that are refused, and what the caller is told.

use tideline_search_index::condition::{DEPTH_MAX, NODES_MAX, PATTERN_BYTES_MAX};
use tideline_search_index::{Area, Condition, Matcher, Subject, Test};
use tideline_timeline_catalog::AttributeValue;

use crate::places::place;

fn refusal(condition: &Condition) -> String {
    Matcher::new(condition).expect_err("over a limit").to_string()
}

fn host(test: Test) -> Condition {
    Condition::leaf(Subject::Tag("host".to_owned()), test)
}

fn nested(depth: usize) -> Condition {
    (1..depth).fold(Condition::All, |inner, _| Condition::Not(Box::new(inner)))
}

#[test]
fn limits_name_the_limit_and_what_was_given() {
    assert!(Matcher::new(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(
        refusal(&nested(65)),
        "depth of the condition of 65 is over the limit of 64"
    );
    assert!(refusal(&nested(20_000)).contains("over the limit of 64"));
    let wide = Condition::Or(vec![Condition::All; NODES_MAX]);
    assert!(
        refusal(&wide).contains("10001 is over the limit of 10000"),
        "{}",
        refusal(&wide)
    );
    let values = vec![AttributeValue::Text("x".to_owned()); NODES_MAX];
    assert!(refusal(&host(Test::In(values))).contains("10001 is over the limit of 10000"));
    let long = "x".repeat(PATTERN_BYTES_MAX + 1);
    for test in [
        Test::Prefix(long.clone()),
        Test::Wildcard(long.clone()),
        Test::Regex(long),
    ] {
        let refusal = refusal(&host(test));
        assert!(refusal.contains("1025") && refusal.contains("1024"), "{refusal}");
    }
    let bomb = host(Test::Regex("((a{100}){100}){100}".to_owned()));
    assert!(
        refusal(&bomb).contains("compiled regular expression"),
        "{}",
        refusal(&bomb)
    );
}

#[test]
fn fuzzy_and_word_searches_are_bounded() {
    let fuzzy = |text: String, distance| host(Test::Fuzzy { text, distance });
    let words = |text: String| {
        host(Test::Words {
            text,
            distance: 0,
            is_phrase: false,
        })
    };
    for (condition, said) in [
        (
            fuzzy("a".into(), 3),
            "distance of a fuzzy search of 3 is over the limit of 2",
        ),
        (
            fuzzy("a".repeat(97), 1),
            "bytes of a fuzzy search of 97 is over the limit of 96",
        ),
        (
            Condition::Or(vec![fuzzy("backup store of hall seven".into(), 2); 100]),
            "is over the limit of 16384",
        ),
        (words("a ".repeat(33)), "words of a text search of 33"),
        (words("- /".into()), "at least one word"),
    ] {
        let refusal = refusal(&condition);
        assert!(refusal.contains(said), "{refusal}");
    }
}

#[test]
fn broken_patterns_are_refused() {
    for pattern in ["(", "a)|(b", "[z-a]", "(?x)a # comment", "\\"] {
        assert!(
            refusal(&host(Test::Regex(pattern.to_owned()))).starts_with("regular expression"),
            "{pattern}"
        );
    }
}

#[test]
fn tests_that_a_subject_does_not_have_are_refused() {
    let number = || AttributeValue::Number(1.0);
    let range = || Test::TimeRange(tideline_model::TimeRange::ALL);
    let cases = [
        (
            Subject::Tag("host".to_owned()),
            Test::Equals(number()),
            "tag \"host\"",
        ),
        (Subject::Measurement, Test::In(vec![number()]), "the measurement"),
        (Subject::Id, Test::Exists, "the timeline id"),
        (Subject::LastSeen, Test::Exists, "last seen"),
        (Subject::Source, range(), "the source"),
        (
            Subject::Any,
            Test::Prefix("a".to_owned()),
            "all properties together",
        ),
        (
            Subject::Tag("site".to_owned()),
            Test::Within(Area::Circle {
                center: place(1.0, 2.0),
                meters: 3.0,
            }),
            "tag \"site\"",
        ),
    ];
    for (subject, test, named) in cases {
        let refusal = refusal(&Condition::leaf(subject, test));
        assert!(refusal.ends_with(named), "{refusal}");
    }
    let id = Condition::leaf(Subject::Id, Test::Equals(AttributeValue::Text("30".to_owned())));
    assert!(refusal(&id).contains("32 hexadecimal digits"));
    let site = |test| Condition::leaf(Subject::Attribute("site".to_owned()), test);
    let list = site(Test::Equals(AttributeValue::Numbers(vec![1.0])));
    assert!(refusal(&list).contains("ask for one of its values"));
    let line = site(Test::Within(Area::Polygon(vec![place(1.0, 2.0); 9])));
    assert!(refusal(&line).contains("three different corners"));
}
