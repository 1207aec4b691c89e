//! Conditions on the command line, and their conversion to JSON trees of the API.
//!
//! [`tideline_condition::command_line`] parses the short syntax. A JSON tree is passed to the server unchanged,
//! because the server may support operators that this build does not. Conditions on rows are JSON text, because numbers
//! of [`Value`] do not keep all digits of decimals.

use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tideline_condition::{Domain, command_line};
use tideline_openapi::plain;

use crate::error::{CliError, Result};

/// Arguments that select timelines. A timeline must match all conditions.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WhereArguments {
    /// Condition: key=value, key!=value, key^=prefix, key=~regex, key!~regex, or a JSON tree; timelines must
    /// match all
    ///
    /// A key is a tag, `measurement`, `source`, `id`, or an attribute as @key; `last_seen>=now-1h` and
    /// `first_seen<2026-01-01T00:00:00Z` compare times. Write `tag:source` for a tag that has the same
    /// name as one of these properties.
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
    /// Returns the tree of all conditions, or `None` without conditions.
    pub(crate) fn tree(&self) -> Result<Option<Value>> {
        let measurement = self.measurement.as_ref();
        let measurement = measurement.map(|name| json!({"property": "measurement", "equals": name}));
        let mut all: Vec<Value> = measurement.into_iter().collect();
        for text in &self.conditions {
            all.push(parse(Domain::Timelines, text)?);
        }
        Ok(joined(all))
    }
}

/// Joins conditions with `and`. Returns `None` without conditions.
pub(crate) fn joined(mut all: Vec<Value>) -> Option<Value> {
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => Some(json!({"and": all})),
    }
}

/// Joins conditions in JSON text with `and`. Returns `None` without conditions.
pub(crate) fn joined_text(mut all: Vec<Box<RawValue>>) -> Option<Box<RawValue>> {
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => {
            let all: Vec<&str> = all.iter().map(|tree| tree.get()).collect();
            RawValue::from_string(format!("{{\"and\":[{}]}}", all.join(","))).ok()
        }
    }
}

/// Parses one condition of a domain.
pub(crate) fn parse(domain: Domain, text: &str) -> Result<Value> {
    if text.trim_start().starts_with('{') {
        return json_tree(text);
    }
    let condition = command_line::parse(domain, text).map_err(|error| CliError::usage(error.to_string()))?;
    serde_json::to_value(&condition).map_err(|error| CliError::usage(error.to_string()))
}

/// Parses one condition on rows. The numbers of the JSON text have all digits of `text`.
pub(crate) fn parse_rows(text: &str) -> Result<Box<RawValue>> {
    if text.trim_start().starts_with('{') {
        return json_tree(text);
    }
    let condition =
        command_line::parse(Domain::Rows, text).map_err(|error| CliError::usage(error.to_string()))?;
    to_raw_value(&condition).map_err(|error| CliError::usage(error.to_string()))
}

/// Parses a condition in JSON.
fn json_tree<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        let reason = plain::syntax(text.as_bytes(), &error);
        CliError::usage(format!("the condition {text} is not valid JSON: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_trees_of_the_api() {
        for (domain, text, tree) in [
            (
                Domain::Timelines,
                "host!~a",
                json!({"not": {"tag": "host", "regex": "a"}}),
            ),
            (
                Domain::Timelines,
                "@rack=12",
                json!({"attribute": "rack", "equals": 12}),
            ),
            (Domain::Values, "usage>90", json!({"field": "usage", "gt": 90})),
            (Domain::Values, r#"{"or": []}"#, json!({"or": []})),
            (Domain::Rows, "total>5", json!({"column": "total", "gt": 5})),
            (
                Domain::Rows,
                "note^=re",
                json!({"column": "note", "prefix": "re"}),
            ),
            (
                Domain::Timelines,
                r#"{"tag": "a", "newer_operator": 1}"#,
                json!({"tag": "a", "newer_operator": 1}),
            ),
        ] {
            assert_eq!(parse(domain, text).expect(text), tree, "{text}");
        }
    }

    #[test]
    fn conditions_on_rows_keep_all_digits() {
        for (text, tree) in [
            (
                "total<=1234567890123456.76",
                r#"{"column":"total","lte":1234567890123456.76}"#,
            ),
            (
                "total=18446744073709551616",
                r#"{"column":"total","equals":18446744073709551616}"#,
            ),
            (
                "n=18446744073709551615",
                r#"{"column":"n","equals":18446744073709551615}"#,
            ),
            (
                r#"{"column":"total","in":[1234567890123456.76]}"#,
                r#"{"column":"total","in":[1234567890123456.76]}"#,
            ),
        ] {
            assert_eq!(parse_rows(text).expect(text).get(), tree, "{text}");
        }
        let both = ["a=1", "b=2"].map(|text| parse_rows(text).expect(text));
        assert_eq!(
            joined_text(both.into()).expect("two conditions").get(),
            r#"{"and":[{"column":"a","equals":1},{"column":"b","equals":2}]}"#
        );
        assert_eq!(parse_rows("total").expect_err("no operator").exit_status(), 2);
        assert_eq!(parse_rows("{").expect_err("no JSON").exit_status(), 2);
    }

    #[test]
    fn invalid_conditions_are_usage_errors() {
        for text in ["host", "=a", "", "{", "last_seen=now", "host>=1"] {
            assert_eq!(
                parse(Domain::Timelines, text).expect_err(text).exit_status(),
                2,
                "{text}"
            );
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
