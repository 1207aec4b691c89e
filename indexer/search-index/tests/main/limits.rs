//! Tests of rejected conditions and their error messages.
//!
//! A message must contain the limit and the actual value, or the unsupported subject, or the reason.

use tideline_condition::condition::{DEPTH_MAX, NODES_MAX, PATTERN_BYTES_MAX};
use tideline_condition::json::Circle;
use tideline_condition::literal::LatLon;
use tideline_condition::operators::{
    Equals, Exists, Fuzzy, In, Near, Polygon, Prefix, Regex, Wildcard, Within, Words,
};
use tideline_condition::{Condition, Literal, Matcher, Subject, Test};

fn refusal(condition: &Condition) -> String {
    Matcher::new(condition).expect_err("over a limit").to_string()
}

fn host(test: impl Into<Test>) -> Condition {
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
    let values = vec![Literal::Text("x".to_owned()); NODES_MAX];
    assert!(refusal(&host(In(values))).contains("10001 is over the limit of 10000"));
    let long = "x".repeat(PATTERN_BYTES_MAX + 1);
    for test in [
        Test::from(Prefix(long.clone())),
        Wildcard(long.clone()).into(),
        Regex(long).into(),
    ] {
        let refusal = refusal(&host(test));
        assert!(refusal.contains("1025") && refusal.contains("1024"), "{refusal}");
    }
    let bomb = host(Regex("((a{100}){100}){100}".to_owned()));
    assert!(
        refusal(&bomb).contains("compiled regular expression"),
        "{}",
        refusal(&bomb)
    );
}

#[test]
fn fuzzy_and_word_searches_are_bounded() {
    let fuzzy = |text: String, distance| host(Fuzzy { text, distance });
    let words = |text: String| host(Words { text, distance: 0 });
    for (condition, reason) in [
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
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[test]
fn broken_patterns_are_refused() {
    for pattern in ["(", "a)|(b", "[z-a]", "(?x)a # comment", "\\"] {
        assert!(
            refusal(&host(Regex(pattern.to_owned()))).starts_with("regular expression"),
            "{pattern}"
        );
    }
}

#[test]
fn tests_that_a_subject_does_not_have_are_refused() {
    let number = || Literal::Float(1.0);
    let range = || Within::from(tideline_model::TimeRange::ALL).into();
    let cases = [
        (
            Subject::Tag("host".to_owned()),
            Test::from(Equals(number())),
            "tag \"host\"",
        ),
        (Subject::Measurement, In(vec![number()]).into(), "the measurement"),
        (Subject::Id, Exists(true).into(), "the timeline id"),
        (Subject::LastSeen, Exists(true).into(), "last seen"),
        (Subject::Source, range(), "the source"),
        (
            Subject::Any,
            Prefix("a".to_owned()).into(),
            "all properties together",
        ),
        (
            Subject::Tag("site".to_owned()),
            Near(Circle {
                lat: 1.0,
                lon: 2.0,
                meters: 3.0,
            })
            .into(),
            "tag \"site\"",
        ),
    ];
    for (subject, test, named) in cases {
        let refusal = refusal(&Condition::leaf(subject, test));
        assert!(refusal.ends_with(named), "{refusal}");
    }
    let id = Condition::leaf(Subject::Id, Equals(Literal::Text("30".to_owned())));
    assert!(refusal(&id).contains("32 hexadecimal digits"));
    let site = |test: Test| Condition::leaf(Subject::Attribute("site".to_owned()), test);
    let list = site(Equals(Literal::Numbers(vec![1.0])).into());
    assert!(refusal(&list).contains("test for one of its values"));
    let line = site(Polygon(vec![LatLon { lat: 1.0, lon: 2.0 }; 9]).into());
    assert!(refusal(&line).contains("three different corners"));
}
