//! Tests that conditions survive a round trip through JSON and command line, that simple conditions have a short form,
//! and that evaluation agrees with a simple model.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use tideline_condition::json::{self, Circle, Sides};
use tideline_condition::literal::{LatLon, TimeSpan};
use tideline_condition::operators::{
    Between, Compare, Equals, Exists, Fuzzy, In, Near, NotEquals, Phrase, Polygon, Prefix, Regex, Suffix,
    Wildcard, Within, WithinBox, Words,
};
use tideline_condition::{
    Condition, Domain, Literal, Matcher, Record, Subject, Test, ValueRef, command_line,
};
use tideline_model::{TimeExpression, Timestamp};

/// Strategy for doubles that JSON represents exactly.
fn number() -> impl Strategy<Value = f64> {
    (-40i32..40).prop_map(|quarters| f64::from(quarters) / 4.0)
}

/// Strategy for names and texts that may contain separators.
fn text() -> impl Strategy<Value = String> {
    "[a-c0-9=!~^<>@:{}\" é-]{0,6}"
}

fn time() -> impl Strategy<Value = TimeExpression> {
    prop_oneof![
        (-9i64..9).prop_map(|seconds| TimeExpression::FromNow(seconds * 1_000_000_000)),
        (0i64..9_000_000_000).prop_map(|nanos| TimeExpression::At(Timestamp::from_nanos_clamped(nanos))),
    ]
}

fn lat_lon() -> impl Strategy<Value = LatLon> {
    (number(), number()).prop_map(|(lat, lon)| LatLon { lat, lon })
}

fn attribute() -> impl Strategy<Value = Literal> {
    prop_oneof![
        text().prop_map(Literal::Text),
        any::<bool>().prop_map(Literal::Boolean),
        number().prop_map(Literal::Float),
        time().prop_map(|time| Literal::Time { time }),
        lat_lon().prop_map(Literal::Point),
        prop::collection::vec(text(), 1..3).prop_map(Literal::Texts),
        prop::collection::vec(number(), 1..3).prop_map(Literal::Numbers),
    ]
}

fn value() -> impl Strategy<Value = Literal> {
    prop_oneof![
        text().prop_map(Literal::Text),
        any::<bool>().prop_map(Literal::Boolean),
        any::<i64>().prop_map(Literal::Signed),
        (1u64 << 63..=u64::MAX).prop_map(Literal::Unsigned),
        number().prop_map(Literal::Float),
    ]
}

fn bound(of: impl Strategy<Value = Literal>) -> impl Strategy<Value = Bound<Literal>> {
    (of, any::<bool>()).prop_map(|(literal, is_included)| match is_included {
        true => Bound::Included(literal),
        false => Bound::Excluded(literal),
    })
}

fn timeline_test() -> BoxedStrategy<Test> {
    let low = || bound(number().prop_map(Literal::Float));
    let open = || Just(Bound::Unbounded);
    let words = || (text(), 0u8..4);
    prop_oneof![
        attribute().prop_map(|literal| Equals(literal).into()),
        attribute().prop_map(|literal| NotEquals(literal).into()),
        prop::collection::vec(attribute(), 0..3).prop_map(|literals| In(literals).into()),
        text().prop_map(|text| Prefix(text).into()),
        text().prop_map(|text| Suffix(text).into()),
        text().prop_map(|text| Wildcard(text).into()),
        text().prop_map(|text| Regex(text).into()),
        words().prop_map(|(text, distance)| Fuzzy { text, distance }.into()),
        words().prop_map(|(text, distance)| Words { text, distance }.into()),
        words().prop_map(|(text, distance)| Phrase { text, distance }.into()),
        prop_oneof![(low(), low()), (open(), low()), (low(), open())].prop_map(|(low, high)| Compare {
            low,
            high
        }
        .into()),
        any::<bool>().prop_map(|exists| Exists(exists).into()),
        (prop::option::of(time()), prop::option::of(time())).prop_map(|(start, end)| Within(TimeSpan {
            start,
            end
        })
        .into()),
        (lat_lon(), number())
            .prop_map(|(LatLon { lat, lon }, meters)| Near(Circle { lat, lon, meters }).into()),
        (lat_lon(), lat_lon()).prop_map(|(one, other)| {
            let sides = Sides {
                south: one.lat,
                west: one.lon,
                north: other.lat,
                east: other.lon,
            };
            WithinBox(sides).into()
        }),
        prop::collection::vec(lat_lon(), 0..4).prop_map(|corners| Polygon(corners).into()),
    ]
    .boxed()
}

fn value_test() -> BoxedStrategy<Test> {
    let open = || Just(Bound::Unbounded);
    prop_oneof![
        value().prop_map(|literal| Equals(literal).into()),
        value().prop_map(|literal| NotEquals(literal).into()),
        prop::collection::vec(value(), 0..3).prop_map(|literals| In(literals).into()),
        (bound(value()), open()).prop_map(|(low, high)| Compare { low, high }.into()),
        (open(), bound(value())).prop_map(|(low, high)| Compare { low, high }.into()),
        (value(), value()).prop_map(|(from, to)| Between(Box::new([from, to])).into()),
        any::<bool>().prop_map(|exists| Exists(exists).into()),
    ]
    .boxed()
}

fn timeline_subject() -> BoxedStrategy<Subject> {
    prop_oneof![
        Just(Subject::Measurement),
        Just(Subject::Source),
        Just(Subject::Any),
        Just(Subject::Id),
        Just(Subject::FirstSeen),
        Just(Subject::LastSeen),
        Just(Subject::Tag("source".into())),
        text().prop_map(Subject::Tag),
        text().prop_map(Subject::Attribute),
    ]
    .boxed()
}

fn tree(leaf: BoxedStrategy<Condition>) -> impl Strategy<Value = Condition> {
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Condition::And),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Condition::Or),
            inner.prop_map(|inner| Condition::Not(Box::new(inner))),
        ]
    })
}

fn on_timelines() -> impl Strategy<Value = Condition> {
    let leaf = (timeline_subject(), timeline_test());
    let leaf = leaf.prop_map(|(subject, test)| Condition::Leaf { subject, test });
    tree(prop_oneof![4 => leaf, 1 => text().prop_map(Condition::Saved)].boxed())
}

fn on_values() -> impl Strategy<Value = Condition> {
    let leaf = (text(), value_test());
    let leaf = leaf.prop_map(|(name, test)| Condition::leaf(Subject::Field(name), test));
    tree(leaf.boxed())
}

fn on_rows() -> impl Strategy<Value = Condition> {
    // Values of columns have the form of field values.
    let has_attribute = |test: &Test| {
        matches!(
            test,
            Test::Equals(_) | Test::NotEquals(_) | Test::In(_) | Test::Compare(_)
        )
    };
    let other = timeline_test().prop_filter("no attribute", move |test| !has_attribute(test));
    let bounds = (bound(value()), bound(value())).prop_map(|(low, high)| Compare { low, high }.into());
    let leaf = (text(), prop_oneof![value_test(), other, bounds]);
    let leaf = leaf.prop_map(|(name, test)| Condition::leaf(Subject::Column(name), test));
    tree(leaf.boxed())
}

/// Values by name: tags are texts, fields and columns are any literals.
#[derive(Debug)]
struct Plain(BTreeMap<String, Literal>);

impl Record for Plain {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let (Subject::Tag(name) | Subject::Field(name) | Subject::Column(name)) = subject else {
            return false;
        };
        self.0.get(name).is_some_and(|literal| {
            take(match literal {
                Literal::Text(text) => ValueRef::Text(text),
                Literal::Boolean(boolean) => ValueRef::Boolean(*boolean),
                Literal::Signed(number) => ValueRef::Signed(*number),
                Literal::Unsigned(number) => ValueRef::Unsigned(*number),
                Literal::Float(number) => ValueRef::Float(*number),
                _ => ValueRef::Opaque,
            })
        })
    }
}

/// Compares two values; `None` if they have different kinds or are different booleans.
fn order(one: &Literal, other: &Literal) -> Option<Ordering> {
    match (one, other) {
        (Literal::Text(one), Literal::Text(other)) => Some(one.cmp(other)),
        (Literal::Boolean(one), Literal::Boolean(other)) => (one == other).then_some(Ordering::Equal),
        // The numbers of this test are small, so doubles represent them exactly.
        (one, other) => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn is_inside(value: &Literal, low: &Bound<Literal>, high: &Bound<Literal>) -> bool {
    let above = match low {
        Bound::Included(low) => order(value, low).is_some_and(Ordering::is_ge),
        Bound::Excluded(low) => order(value, low).is_some_and(Ordering::is_gt),
        Bound::Unbounded => true,
    };
    let below = match high {
        Bound::Included(high) => order(value, high).is_some_and(Ordering::is_le),
        Bound::Excluded(high) => order(value, high).is_some_and(Ordering::is_lt),
        Bound::Unbounded => true,
    };
    above && below
}

/// Evaluates a condition without compilation, one value at a time.
fn model(condition: &Condition, record: &Plain) -> bool {
    let (subject, test) = match condition {
        Condition::All => return true,
        Condition::And(all) => return all.iter().all(|inner| model(inner, record)),
        Condition::Or(any) => return any.iter().any(|inner| model(inner, record)),
        Condition::Not(inner) => return !model(inner, record),
        Condition::Saved(_) => return false,
        Condition::Leaf { subject, test } => (subject, test),
    };
    let (Subject::Tag(name) | Subject::Field(name) | Subject::Column(name)) = subject else {
        panic!("no such subject here")
    };
    let found = record.0.get(name).cloned();
    if let Test::Exists(Exists(exists)) = test {
        return found.is_some() == *exists;
    }
    let empty = matches!(subject, Subject::Tag(_)).then(|| Literal::Text(String::new()));
    let Some(value) = found.or(empty) else {
        return false;
    };
    let equals = |literal: &Literal| order(&value, literal).is_some_and(Ordering::is_eq);
    match (test, &value) {
        (Test::Equals(Equals(literal)), _) => equals(literal),
        (Test::NotEquals(NotEquals(literal)), _) => !equals(literal),
        (Test::In(In(literals)), _) => literals.iter().any(equals),
        (Test::Between(Between(ends)), value) => {
            let [from, to] = &**ends;
            is_inside(
                value,
                &Bound::Included(from.clone()),
                &Bound::Included(to.clone()),
            )
        }
        (Test::Prefix(Prefix(prefix)), Literal::Text(text)) => text.starts_with(prefix),
        (Test::Suffix(Suffix(suffix)), Literal::Text(text)) => text.ends_with(suffix),
        (Test::Prefix(_) | Test::Suffix(_), _) if matches!(subject, Subject::Column(_)) => false,
        (Test::Compare(Compare { low, high }), Literal::Text(text)) if matches!(subject, Subject::Tag(_)) => {
            let number = text.parse().map(Literal::Float);
            number.is_ok_and(|number| is_inside(&number, low, high))
        }
        (Test::Compare(Compare { low, high }), value) => is_inside(value, low, high),
        other => panic!("not generated: {other:?}"),
    }
}

fn small() -> BoxedStrategy<Literal> {
    prop_oneof![
        "[ab1]{0,2}".prop_map(Literal::Text),
        (-2i64..3).prop_map(Literal::Signed),
        (0u64..3).prop_map(Literal::Unsigned),
        number().prop_map(Literal::Float),
    ]
    .boxed()
}

/// Strategy for literals of one kind, as tests of fields require.
fn of_one_kind() -> BoxedStrategy<Vec<Literal>> {
    let texts = "[ab1]{0,2}".prop_map(Literal::Text).boxed();
    let numbers = small().prop_filter("a number", |literal| literal.as_f64().is_some());
    prop_oneof![
        prop::collection::vec(texts, 2..4),
        prop::collection::vec(numbers, 2..4),
    ]
    .boxed()
}

fn model_leaf() -> BoxedStrategy<Condition> {
    let name = || prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned);
    let field = || {
        (of_one_kind(), 0..6).prop_map(|(mut literals, which)| -> Test {
            match which {
                0 => Equals(literals.swap_remove(0)).into(),
                1 => NotEquals(literals.swap_remove(0)).into(),
                2 => In(literals).into(),
                3 => Between(Box::new([literals[0].clone(), literals[1].clone()])).into(),
                4 => Compare {
                    low: Bound::Excluded(literals.swap_remove(0)),
                    high: Bound::Unbounded,
                }
                .into(),
                _ => Compare {
                    low: Bound::Unbounded,
                    high: Bound::Included(literals.swap_remove(0)),
                }
                .into(),
            }
        })
    };
    let short = || "[ab1]{0,2}";
    let column = prop_oneof![
        4 => field(),
        1 => short().prop_map(|text| Prefix(text).into()),
        1 => short().prop_map(|text| Suffix(text).into()),
        1 => any::<bool>().prop_map(|exists| Exists(exists).into()),
    ];
    let tag = prop_oneof![
        short().prop_map(|text| Test::from(Equals(Literal::Text(text)))),
        short().prop_map(|text| NotEquals(Literal::Text(text)).into()),
        short().prop_map(|text| Prefix(text).into()),
        short().prop_map(|text| Suffix(text).into()),
        number().prop_map(|number| {
            Compare {
                low: Bound::Included(Literal::Float(number)),
                high: Bound::Unbounded,
            }
            .into()
        }),
        any::<bool>().prop_map(|exists| Exists(exists).into()),
    ];
    prop_oneof![
        (name(), field()).prop_map(|(name, test)| Condition::leaf(Subject::Field(name), test)),
        (name(), column).prop_map(|(name, test)| Condition::leaf(Subject::Column(name), test)),
        (name(), tag).prop_map(|(name, test)| Condition::leaf(Subject::Tag(name), test)),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(512))]

    #[test]
    fn conditions_on_timelines_read_back(condition in on_timelines()) {
        let text = serde_json::to_string(&condition).expect("plain data");
        prop_assert_eq!(json::from_str(Domain::Timelines, &text).expect(&text), condition.clone());
        let typed = command_line::render(Domain::Timelines, &condition).expect("plain data");
        prop_assert_eq!(command_line::parse(Domain::Timelines, &typed).expect(&typed), condition);
    }

    #[test]
    fn conditions_on_values_read_back(condition in on_values()) {
        let text = serde_json::to_string(&condition).expect("plain data");
        prop_assert_eq!(json::from_str(Domain::Values, &text).expect(&text), condition.clone());
        let typed = command_line::render(Domain::Values, &condition).expect("plain data");
        prop_assert_eq!(command_line::parse(Domain::Values, &typed).expect(&typed), condition);
    }

    #[test]
    fn conditions_on_rows_read_back(condition in on_rows()) {
        let text = serde_json::to_string(&condition).expect("plain data");
        prop_assert_eq!(json::from_str(Domain::Rows, &text).expect(&text), condition.clone());
        let typed = command_line::render(Domain::Rows, &condition).expect("plain data");
        prop_assert_eq!(command_line::parse(Domain::Rows, &typed).expect(&typed), condition);
    }

    #[test]
    fn what_can_be_typed_is_typed(key in "[a-z]{1,6}", text in "[a-z]{1,6}") {
        for test in [
            Test::from(Equals(Literal::Text(text.clone()))),
            NotEquals(Literal::Text(text.clone())).into(),
            Prefix(text.clone()).into(),
            Regex(text.clone()).into(),
        ] {
            let condition = Condition::leaf(Subject::Tag(key.clone()), test);
            let typed = command_line::render(Domain::Timelines, &condition).expect("plain data");
            prop_assert!(!typed.starts_with('{'), "{}", typed);
        }
    }

    #[test]
    fn evaluation_agrees_with_a_plain_model(
        condition in tree(model_leaf()),
        values in prop::collection::btree_map("[ab]", small(), 0..3),
    ) {
        // Tags are texts, so records with other values are tested only with conditions on fields and columns.
        let record = Plain(values);
        let has_numbers = record.0.values().any(|literal| literal.as_f64().is_some());
        prop_assume!(!(has_numbers && names_a_tag(&condition)));
        let matcher = Matcher::new(&condition).expect("a sound condition");
        prop_assert_eq!(matcher.matches(&record), model(&condition, &record));
    }
}

fn names_a_tag(condition: &Condition) -> bool {
    match condition {
        Condition::And(inner) | Condition::Or(inner) => inner.iter().any(names_a_tag),
        Condition::Not(inner) => names_a_tag(inner),
        Condition::Leaf { subject, .. } => matches!(subject, Subject::Tag(_)),
        Condition::All | Condition::Saved(_) => false,
    }
}
