//! Conditions on a column without a declared type must equal a naive comparison. The column holds values of all types.
//!
//! The naive comparison parses the literal again for each stored value, according to the type of the stored value.

use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tideline_engine::backend::memory::Character;
use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::Timestamp;
use tideline_testkit::{Random, rounds, seeds};

use crate::database::{Database, memory};

/// Value of the column, or literal of a condition, with its JSON form.
#[derive(Debug, Clone, Copy)]
enum Typed {
    Text(&'static str),
    Boolean(bool),
    /// Number in JSON syntax.
    Number(&'static str),
    Decimal(&'static str),
    Time(&'static str),
    /// Base64.
    Bytes(&'static str),
}

const TEXTS: [Typed; 10] = [
    Typed::Text(""),
    Typed::Text("abc"),
    Typed::Text("1.5"),
    Typed::Text("-1"),
    Typed::Text("1e2"),
    Typed::Text("AAE="),
    Typed::Text("AAEC"),
    Typed::Text("zzzz"),
    Typed::Text("2026-11-20T12:00:00Z"),
    Typed::Text("2026-11-20"),
];
/// Numbers that all types of stored values can hold.
const NUMBERS: [Typed; 7] = [
    Typed::Number("-1"),
    Typed::Number("0"),
    Typed::Number("0.1"),
    Typed::Number("1.5"),
    Typed::Number("7"),
    Typed::Number("100"),
    Typed::Number("1795176000000000000"),
];
/// Numbers that only literals have. No double is equal to the first two, and no decimal to the others.
const OTHER_NUMBERS: [Typed; 6] = [
    Typed::Number("1234567890123456.76"),
    Typed::Number("1234567890123456.77"),
    Typed::Number("1e300"),
    Typed::Number("-1e300"),
    Typed::Number("1e-50"),
    Typed::Number("-1e-50"),
];
const OTHERS: [Typed; 16] = [
    Typed::Decimal("-1"),
    Typed::Decimal("0"),
    Typed::Decimal("0.1"),
    Typed::Decimal("1.5"),
    Typed::Decimal("100"),
    Typed::Decimal("1234567890123456.76"),
    Typed::Decimal("170141183460469231731687303715884105727"),
    Typed::Time("1969-12-31T23:59:59.9Z"),
    Typed::Time("2026-11-20T00:00:00Z"),
    Typed::Time("2026-11-20T12:00:00Z"),
    Typed::Time("2026-11-20T13:00:00.5+01:00"),
    Typed::Bytes(""),
    Typed::Bytes("AAE="),
    Typed::Bytes("AAEC"),
    Typed::Bytes("abcd"),
    Typed::Bytes("zzzz"),
];

/// Operator and the orders for which it holds.
type Bound = (&'static str, fn(Ordering) -> bool);

const BOUNDS: [Bound; 4] = [
    ("gt", Ordering::is_gt),
    ("gte", Ordering::is_ge),
    ("lt", Ordering::is_lt),
    ("lte", Ordering::is_le),
];

impl Typed {
    fn json(self) -> String {
        let typed = |name: &str, text: &str| json!({"type": name, "value": text}).to_string();
        match self {
            Self::Text(text) => json!(text).to_string(),
            Self::Boolean(value) => value.to_string(),
            Self::Number(digits) => digits.to_owned(),
            Self::Decimal(digits) => typed("decimal", digits),
            Self::Time(text) => typed("timestamp", text),
            Self::Bytes(text) => typed("binary", text),
        }
    }
}

fn nanos(text: &str) -> Option<i64> {
    let text = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        _ => text.to_owned(),
    };
    Timestamp::parse_rfc3339(&text).map(Timestamp::nanos)
}

fn double(digits: &str) -> f64 {
    digits.parse().expect("a number")
}

/// Compares a stored value with a literal; `None` if they cannot be compared.
fn compare(stored: Typed, literal: Typed) -> Option<Ordering> {
    match (stored, literal) {
        (Typed::Text(stored), Typed::Text(text)) => Some(stored.cmp(text)),
        (Typed::Boolean(stored), Typed::Boolean(value)) => Some(stored.cmp(&value)),
        (Typed::Number(stored), Typed::Number(digits)) => double(stored).partial_cmp(&double(digits)),
        (Typed::Decimal(stored), Typed::Number(digits)) => {
            match (Decimal::parse(stored)?, Decimal::parse(digits)) {
                (stored, Some(number)) => Some(stored.cmp(&number)),
                (stored, None) => stored.to_f64().partial_cmp(&double(digits)),
            }
        }
        (Typed::Decimal(stored), Typed::Text(digits) | Typed::Decimal(digits)) => {
            Some(Decimal::parse(stored)?.cmp(&Decimal::parse(digits)?))
        }
        (Typed::Time(stored), Typed::Text(text) | Typed::Time(text)) => {
            Some(nanos(stored)?.cmp(&nanos(text)?))
        }
        (Typed::Time(stored), Typed::Number(digits)) => Some(nanos(stored)?.cmp(&digits.parse().ok()?)),
        (Typed::Bytes(stored), Typed::Text(text) | Typed::Bytes(text)) => {
            Some(STANDARD.decode(stored).ok()?.cmp(&STANDARD.decode(text).ok()?))
        }
        _ => None,
    }
}

fn stored(random: &mut Random) -> Option<Typed> {
    Some(match random.below(9) {
        0 => return None,
        1 => random.of(&TEXTS),
        2 => random.of(&NUMBERS),
        3 => Typed::Boolean(random.is(50)),
        _ => random.of(&OTHERS),
    })
}

/// Returns a literal. The literals of one test are texts or numbers, and others with their types.
fn literal(random: &mut Random, of_texts: bool) -> Typed {
    match random.below(3) {
        0 => random.of(&OTHERS),
        _ if of_texts => random.of(&TEXTS),
        1 => random.of(&NUMBERS),
        _ => random.of(&OTHER_NUMBERS),
    }
}

/// Test of a stored value.
type Passes = Box<dyn Fn(Typed) -> bool>;

/// Returns the members of a random test, and the naive test.
fn test(random: &mut Random) -> (String, Passes) {
    let of_texts = random.is(50);
    let one = literal(random, of_texts);
    let other = literal(random, of_texts);
    match random.below(7) {
        0 => {
            let one = if random.is(20) { Typed::Boolean(true) } else { one };
            let json = format!(r#""equals":{}"#, one.json());
            (
                json,
                Box::new(move |stored| compare(stored, one) == Some(Ordering::Equal)),
            )
        }
        1 => {
            let json = format!(r#""not_equals":{}"#, one.json());
            (
                json,
                Box::new(move |stored| compare(stored, one) != Some(Ordering::Equal)),
            )
        }
        2 => {
            let json = format!(r#""in":[{},{}]"#, one.json(), other.json());
            let is = |stored, literal| compare(stored, literal) == Some(Ordering::Equal);
            (json, Box::new(move |stored| is(stored, one) || is(stored, other)))
        }
        3 => {
            let json = format!(r#""between":[{},{}]"#, one.json(), other.json());
            let passes = move |stored| {
                compare(stored, one).is_some_and(Ordering::is_ge)
                    && compare(stored, other).is_some_and(Ordering::is_le)
            };
            (json, Box::new(passes))
        }
        4 => {
            let (name, holds) = random.of(&BOUNDS);
            let json = format!(r#""{name}":{}"#, one.json());
            (
                json,
                Box::new(move |stored| compare(stored, one).is_some_and(holds)),
            )
        }
        5 => {
            let json = format!(r#""gt":{},"lt":{}"#, one.json(), other.json());
            let passes = move |stored| {
                compare(stored, one).is_some_and(Ordering::is_gt)
                    && compare(stored, other).is_some_and(Ordering::is_lt)
            };
            (json, Box::new(passes))
        }
        _ => {
            let start = "2026-11-20T00:00:00Z";
            let end = random.of(&["2026-11-20T12:00:00Z", "2026-11-20T12:00:01Z"]);
            let json = format!(r#""range":{{"start":"{start}","end":"{end}"}}"#);
            let within = nanos(start).expect("a time")..nanos(end).expect("a time");
            let passes = move |stored| match stored {
                Typed::Time(text) => nanos(text).is_some_and(|time| within.contains(&time)),
                Typed::Number(digits) => digits.parse::<i64>().is_ok_and(|number| within.contains(&number)),
                _ => false,
            };
            (json, Box::new(passes))
        }
    }
}

#[test]
fn random_conditions_on_an_undeclared_column_equal_a_naive_comparison() {
    for seed in seeds(
        "random_conditions_on_an_undeclared_column_equal_a_naive_comparison",
        2,
    ) {
        let mut random = Random::new(seed);
        let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [], "version_guard": null});
        let database = Database::new(memory(Character::Embedded), &wide);
        let values: Vec<Option<Typed>> = (0..120).map(|_| stored(&mut random)).collect();
        let rows = values.iter().enumerate().map(|(number, value)| {
            let mut columns = json!({"n": number});
            if let Some(value) = value {
                columns["v"] = serde_json::from_str(&value.json()).expect("JSON");
            }
            json!({"op": "put", "key": {"id": format!("{number:03}")}, "columns": columns})
        });
        database.write(&rows.collect());
        for round in 0..rounds("TIDELINE_CONDITIONS", 600, 20_000) {
            if round == 300 {
                database.engine().seal().expect("the rows are flushed");
            }
            let (test, passes) = test(&mut random);
            let is_negated = random.is(20);
            let leaf = format!(r#"{{"column":"v",{test}}}"#);
            let condition = if is_negated {
                format!(r#"{{"not":{leaf}}}"#)
            } else {
                leaf
            };
            let filter = serde_json::from_str(&condition).expect("a condition");
            let found = database.matching(Some(&filter));
            let found: Vec<u64> = found
                .iter()
                .filter_map(|row| row["columns"]["n"].as_u64())
                .collect();
            let expected = values.iter().zip(0..);
            let expected = expected.filter(|(value, _)| value.is_some_and(&passes) != is_negated);
            let expected: Vec<u64> = expected.map(|(_, number)| number).collect();
            assert_eq!(found, expected, "{condition}");
        }
    }
}

#[test]
fn conditions_on_an_undeclared_column_have_the_limits_of_declared_columns() {
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [], "version_guard": null});
    let database = Database::new(memory(Character::Embedded), &wide);
    let value = json!({"type": "decimal", "value": "9997"});
    database.write(&json!([{"op": "put", "key": {"id": "a"}, "columns": {"v": value}}]));
    let texts: Vec<String> = (0..9_999).map(|number| number.to_string()).collect();
    let mut condition = json!({"column": "v", "in": texts});
    assert_eq!(database.naive(Some(&condition)).len(), 1);
    condition = json!({"column": "v", "equals": "9997"});
    for _ in 1..64 {
        condition = json!({"and": [condition]});
    }
    assert_eq!(database.naive(Some(&condition)).len(), 1);
}
