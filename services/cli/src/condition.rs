//! Conditions as people type them, turned into the condition tree of the API.
//!
//! | typed | meaning |
//! |---|---|
//! | `host=web-1` | the tag `host` is `web-1`; a missing tag equals the empty text |
//! | `host!=web-1` | it is not |
//! | `host^=web-` | it begins with `web-` |
//! | `host=~web-[12]` | all of it fits the regular expression; `host!~…` that it does not |
//! | `measurement=cpu`, `source=web-1`, `id=3f2a…` | properties that every timeline has |
//! | `last_seen>=now-1h`, `first_seen<2026-01-01T00:00:00Z` | and two that are times |
//! | `@owner=team-a` | the attribute `owner`; numbers, `true` and `false` are compared as such |
//! | `tag:source=x` | the tag `source`, where a property has the same name |
//! | `{"or": […]}` | a tree in JSON, as the API takes it |

use clap::Args;
use serde_json::{Value, json};
use tideline_openapi::plain;

use crate::error::{CliError, Result};

/// The operators; of two that begin at the same place the first one of this list holds.
const OPERATORS: [&str; 7] = ["!=", "!~", "=~", "^=", ">=", "<", "="];

/// Which timelines, on the command line. All conditions must hold.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WhereArguments {
    /// A condition: key=value, key!=value, key^=prefix, key=~regex, key!~regex, or a tree in JSON; of several all hold
    ///
    /// A key is a tag, `measurement`, `source`, `id`, or an attribute as @key; `last_seen>=now-1h` and
    /// `first_seen<2026-01-01T00:00:00Z` compare times. `tag:source` is the tag that is called like a property.
    #[arg(
        help_heading = "Timelines",
        long = "where",
        short = 'w',
        value_name = "CONDITION"
    )]
    pub(crate) conditions: Vec<String>,
    /// Short for --where measurement=NAME
    #[arg(help_heading = "Timelines", long, short = 'm', value_name = "NAME")]
    pub(crate) measurement: Option<String>,
}

impl WhereArguments {
    /// The tree of all conditions; `None` where there are none.
    pub(crate) fn tree(&self) -> Result<Option<Value>> {
        let measurement = self.measurement.as_ref();
        let measurement = measurement.map(|name| json!({"property": "measurement", "equals": name}));
        let mut all: Vec<Value> = measurement.into_iter().collect();
        for text in &self.conditions {
            all.push(parse(text)?);
        }
        Ok(joined(all))
    }
}

/// Joins conditions by and; `None` where there are none.
pub(crate) fn joined(mut all: Vec<Value>) -> Option<Value> {
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => Some(json!({"and": all})),
    }
}

/// Splits a condition at its first operator; of two that begin there the first one of the list holds. `None` without an
/// operator or a name before it.
pub(crate) fn split<'a>(
    text: &'a str,
    operators: &[&'static str],
) -> Option<(&'a str, &'static str, &'a str)> {
    let (at, operator) = text.char_indices().find_map(|(at, _)| {
        let mut here = operators
            .iter()
            .filter(|operator| text[at..].starts_with(**operator));
        Some((at, *here.next()?))
    })?;
    (at > 0).then(|| (&text[..at], operator, &text[at + operator.len()..]))
}

/// Reads one condition.
pub(crate) fn parse(text: &str) -> Result<Value> {
    if text.trim_start().starts_with('{') {
        return json_tree(text);
    }
    let Some((key, operator, value)) = split(text, &OPERATORS) else {
        return Err(CliError::usage(format!(
            "{text:?} is no condition; write one such as host=web-1, host!=web-1, host^=web-, host=~web-[12], \
             @owner=team-a, last_seen>=now-1h or a tree in JSON"
        )));
    };
    let subject = Subject::of(key);
    let is_time = matches!(subject, Subject::Property("first_seen" | "last_seen"));
    if is_time != matches!(operator, ">=" | "<") {
        return Err(CliError::usage(format!(
            "{text:?}: first_seen and last_seen are compared by >= and <, everything else by =, !=, ^=, =~ or !~"
        )));
    }
    let (test, value) = match operator {
        "=" => ("equals", subject.value(value)),
        "!=" => ("not_equals", subject.value(value)),
        "^=" => ("prefix", value.into()),
        ">=" => ("range", json!({"start": value})),
        "<" => ("range", json!({"end": value})),
        _ => ("regex", value.into()),
    };
    let (kind, name) = match subject {
        Subject::Tag(name) => ("tag", name),
        Subject::Attribute(name) => ("attribute", name),
        Subject::Property(name) => ("property", name),
    };
    let condition = json!({kind: name, test: value});
    Ok(if operator == "!~" {
        json!({"not": condition})
    } else {
        condition
    })
}

/// Reads a condition in JSON.
pub(crate) fn json_tree(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        let reason = plain::syntax(text.as_bytes(), &error);
        CliError::usage(format!("the condition {text} is not valid JSON: {reason}"))
    })
}

/// What a key names.
enum Subject<'a> {
    Tag(&'a str),
    Attribute(&'a str),
    Property(&'a str),
}

impl<'a> Subject<'a> {
    fn of(key: &'a str) -> Self {
        match key {
            "measurement" | "source" | "id" | "first_seen" | "last_seen" => Self::Property(key),
            _ => match (key.strip_prefix('@'), key.strip_prefix("tag:")) {
                (Some(name), _) => Self::Attribute(name),
                (None, Some(name)) => Self::Tag(name),
                (None, None) => Self::Tag(key),
            },
        }
    }

    /// A value to compare with: of an attribute it may be a number or a boolean, unless it is quoted.
    fn value(&self, text: &str) -> Value {
        match self {
            Self::Attribute(_) => match serde_json::from_str(text) {
                Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => value,
                _ => text.into(),
            },
            _ => text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_trees() {
        for (text, tree) in [
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
            assert_eq!(parse(text).expect(text), tree, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_a_usage_error() {
        for text in ["host", "=a", "", "{", "last_seen=now", "host>=1"] {
            assert_eq!(parse(text).expect_err(text).exit_status(), 2, "{text}");
        }
    }

    #[test]
    fn all_conditions_hold() {
        let two = WhereArguments {
            conditions: vec!["a=b".into()],
            measurement: Some("cpu".into()),
        };
        assert_eq!(
            two.tree().expect("two conditions"),
            Some(json!({"and": [{"property": "measurement", "equals": "cpu"}, {"tag": "a", "equals": "b"}]}))
        );
        assert_eq!(WhereArguments::default().tree().expect("none"), None);
    }
}
