//! Conditions on the command line.
//!
//! | typed | meaning |
//! |---|---|
//! | `host=web-1` | the tag `host` equals `web-1`; a missing tag equals the empty text |
//! | `host!=web-1` | the tag does not equal `web-1` |
//! | `host^=web-` | the tag begins with `web-` |
//! | `host=~web-[12]` | the whole tag matches the regular expression; `host!~…` negates it |
//! | `measurement=cpu`, `source=web-1`, `id=3f2a…` | properties of every timeline |
//! | `last_seen>=now-1h`, `first_seen<2026-01-01T00:00:00Z` | time properties of every timeline |
//! | `@owner=team-a` | the attribute `owner`; values such as `7` and `true` are parsed as a number or a boolean |
//! | `tag:source=x` | the tag `source`; the prefix is needed because a property has the same name |
//! | `usage>90`, `>=`, `<`, `<=`, `=`, `!=` | conditions on values: the field `usage` |
//! | `total>5`, `note^=re`, `note=~r.*`, and all other symbols | conditions on rows: the column `total` or `note` |
//! | `state="12"` | quotes force text if the value would parse as a number or boolean |
//! | `{"or": […]}` | a tree in JSON, as in the HTTP API |

use crate::condition::{Condition, Subject};
use crate::domain::Domain;
use crate::json;
use crate::operators::{SYMBOLS, Symbol, Test};

/// Error message for a text that is not a valid condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypedError(String);

/// Parses a condition.
///
/// # Errors
///
/// Returns [`TypedError`] if the text has no operator or no name before the operator, if the subject does not support
/// the operator, if the value is invalid, or if a tree in JSON is invalid.
///
/// # Examples
///
/// ```
/// use tideline_condition::command_line::{parse, render};
/// use tideline_condition::Domain;
///
/// let condition = parse(Domain::Timelines, "host!=web-1")?;
/// assert_eq!(serde_json::to_string(&condition)?, r#"{"tag":"host","not_equals":"web-1"}"#);
/// assert_eq!(render(Domain::Timelines, &condition)?, "host!=web-1");
///
/// // The same text has another meaning for values of points.
/// assert_ne!(parse(Domain::Values, "host!=web-1")?, condition);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse(domain: Domain, text: &str) -> Result<Condition, TypedError> {
    if text.trim_start().starts_with('{') {
        return json::from_str(domain, text).map_err(|error| TypedError(error.to_string()));
    }
    let Some((key, symbol, value)) = split(domain, text) else {
        return Err(TypedError(match domain {
            Domain::Timelines => format!(
                "{text:?} is not a condition; write one such as host=web-1, host!=web-1, host^=web-, host=~web-[12], \
                 @owner=team-a, last_seen>=now-1h or a tree in JSON"
            ),
            Domain::Values => format!(
                "{text:?} is not a condition on values; write one such as usage>90, state=idle, state!=idle or a tree in \
                 JSON"
            ),
            Domain::Rows => format!(
                "{text:?} is not a condition on rows; write one such as total>5, state!=open, note^=re, note=~r.* or a \
                 tree in JSON"
            ),
        }));
    };
    let subject = domain.typed_subject(key);
    let test = Test::parse_typed(symbol.text, &subject, value)
        .map_err(|error| TypedError(format!("{text:?}: {error}")))?;
    let Some(test) = test else {
        return Err(TypedError(format!(
            "{text:?}: use >= or < with first_seen and last_seen, and =, !=, ^=, =~ or !~ with everything else"
        )));
    };
    let leaf = Condition::Leaf { subject, test };
    Ok(match symbol.is_not {
        true => Condition::Not(Box::new(leaf)),
        false => leaf,
    })
}

/// Writes a condition so that [`parse`] returns it again: in the short form if possible, otherwise in JSON.
///
/// # Errors
///
/// Returns an error if a number has no JSON form.
pub fn render(domain: Domain, condition: &Condition) -> Result<String, serde_json::Error> {
    match typed(domain, condition) {
        Some(text) if parse(domain, &text).as_ref() == Ok(condition) => Ok(text),
        _ => serde_json::to_string(condition),
    }
}

fn typed(domain: Domain, condition: &Condition) -> Option<String> {
    let (leaf, is_not) = match condition {
        Condition::Not(inner) => (&**inner, true),
        leaf => (leaf, false),
    };
    let Condition::Leaf { subject, test } = leaf else {
        return None;
    };
    let key = match subject {
        Subject::Attribute(name) => format!("@{name}"),
        Subject::Tag(name) if domain.typed_subject(name) == *subject => name.clone(),
        Subject::Tag(name) => format!("tag:{name}"),
        Subject::Field(name) | Subject::Column(name) => name.clone(),
        property => serde_json::to_value(property.property()?)
            .ok()?
            .as_str()?
            .to_owned(),
    };
    let (symbol, value) = test.typed(subject)?;
    let symbol = match is_not {
        true if symbol == "=~" => "!~",
        true => return None,
        false => symbol,
    };
    Some(format!("{key}{symbol}{value}"))
}

/// Splits a condition at its first symbol, or at the longest one if several begin there. Returns `None` if there is no
/// symbol, or no name before the symbol.
fn split(domain: Domain, text: &str) -> Option<(&str, &'static Symbol, &str)> {
    let all = || SYMBOLS.iter().flat_map(|symbols| symbols.iter());
    let (at, symbol) = text.char_indices().find_map(|(at, _)| {
        let here = all().filter(|symbol| symbol.is_of(domain) && text[at..].starts_with(symbol.text));
        Some((at, here.max_by_key(|symbol| symbol.text.len())?))
    })?;
    (at > 0).then(|| (&text[..at], symbol, &text[at + symbol.text.len()..]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tree(domain: Domain, text: &str) -> Value {
        let condition = parse(domain, text).unwrap_or_else(|error| panic!("{error}"));
        serde_json::to_value(&condition).expect("plain data")
    }

    #[test]
    fn conditions_on_timelines_become_trees() {
        for (text, expected) in [
            ("host=web-1", json!({"tag": "host", "equals": "web-1"})),
            ("host=", json!({"tag": "host", "equals": ""})),
            ("host=a=b", json!({"tag": "host", "equals": "a=b"})),
            ("host!=a", json!({"tag": "host", "not_equals": "a"})),
            ("host^=we", json!({"tag": "host", "prefix": "we"})),
            ("host=~a|b", json!({"tag": "host", "regex": "a|b"})),
            ("host!~a", json!({"not": {"tag": "host", "regex": "a"}})),
            (
                "measurement=cpu",
                json!({"property": "measurement", "equals": "cpu"}),
            ),
            ("tag:source=x", json!({"tag": "source", "equals": "x"})),
            ("@rack=12", json!({"attribute": "rack", "equals": 12})),
            ("@rack=\"12\"", json!({"attribute": "rack", "equals": "12"})),
            (
                "@owner!=team a",
                json!({"attribute": "owner", "not_equals": "team a"}),
            ),
            (
                "last_seen>=now-1h",
                json!({"property": "last_seen", "range": {"start": "now-1h"}}),
            ),
            (
                "first_seen<now",
                json!({"property": "first_seen", "range": {"end": "now"}}),
            ),
            (r#"{"or": []}"#, json!({"or": []})),
        ] {
            assert_eq!(tree(Domain::Timelines, text), expected, "{text}");
        }
        for text in [
            "host",
            "=a",
            "",
            "{",
            "last_seen=now",
            "host>=1",
            "last_seen<then",
        ] {
            assert!(parse(Domain::Timelines, text).is_err(), "{text}");
        }
    }

    #[test]
    fn conditions_on_values_become_trees() {
        for (text, expected) in [
            ("usage>90", json!({"field": "usage", "gt": 90})),
            ("usage>=9.5", json!({"field": "usage", "gte": 9.5})),
            ("usage<=-1", json!({"field": "usage", "lte": -1})),
            ("n<18446744073709551615", json!({"field": "n", "lt": u64::MAX})),
            ("state=idle", json!({"field": "state", "equals": "idle"})),
            ("state!=a=b", json!({"field": "state", "not_equals": "a=b"})),
            ("state=\"12\"", json!({"field": "state", "equals": "12"})),
            ("open=true", json!({"field": "open", "equals": true})),
            (
                r#"{"field": "a", "exists": true}"#,
                json!({"field": "a", "exists": true}),
            ),
        ] {
            assert_eq!(tree(Domain::Values, text), expected, "{text}");
        }
        for wrong in ["usage", ">1", "", "{"] {
            assert!(parse(Domain::Values, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn conditions_on_rows_become_trees() {
        for (text, expected) in [
            ("total>5.5", json!({"column": "total", "gt": 5.5})),
            (
                "placed>=2026-01-01T00:00:00Z",
                json!({"column": "placed", "gte": "2026-01-01T00:00:00Z"}),
            ),
            ("state!=open", json!({"column": "state", "not_equals": "open"})),
            ("open=true", json!({"column": "open", "equals": true})),
            ("note^=re", json!({"column": "note", "prefix": "re"})),
            ("note=~r.*", json!({"column": "note", "regex": "r.*"})),
            ("note!~r.*", json!({"not": {"column": "note", "regex": "r.*"}})),
            ("id=x", json!({"column": "id", "equals": "x"})),
            ("@a=x", json!({"column": "@a", "equals": "x"})),
            (
                r#"{"field": "a", "text": "b"}"#,
                json!({"column": "a", "text": "b", "distance": 0}),
            ),
        ] {
            assert_eq!(tree(Domain::Rows, text), expected, "{text}");
        }
        for wrong in ["total", ">1", "", "{"] {
            assert!(parse(Domain::Rows, wrong).is_err(), "{wrong}");
        }
    }
}
