//! Conditions on the values of fields as people type them, turned into the tree of the API.
//!
//! | typed | meaning |
//! |---|---|
//! | `usage>90`, `>=`, `<`, `<=` | the number is above, at least, below, at most |
//! | `state=idle`, `state!=idle` | the value is this one, or another; numbers, `true` and `false` are compared as such |
//! | `state="12"` | the value is this text |
//! | `{"or": […]}` | a tree in JSON, as the API takes it |

use serde_json::{Value, json};

use crate::condition::{json_tree, split};
use crate::error::{CliError, Result};

/// Operators and the tests of the API; of two that begin at the same place the first one of this list holds.
const OPERATORS: [(&str, &str); 6] = [
    ("!=", "not_equals"),
    (">=", "gte"),
    ("<=", "lte"),
    (">", "gt"),
    ("<", "lt"),
    ("=", "equals"),
];

/// Reads one condition.
pub(crate) fn parse(text: &str) -> Result<Value> {
    if text.trim_start().starts_with('{') {
        return json_tree(text);
    }
    let Some((field, operator, value)) = split(text, &OPERATORS.map(|(operator, _)| operator)) else {
        return Err(CliError::usage(format!(
            "{text:?} is not a condition on values; write one such as usage>90, state=idle, state!=idle or a tree in JSON"
        )));
    };
    let known = OPERATORS.iter().find(|(known, _)| *known == operator);
    let test = known.map_or(operator, |(_, test)| *test);
    let value = match serde_json::from_str(value) {
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => value,
        _ => value.into(),
    };
    Ok(json!({"field": field, test: value}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_trees() {
        for (text, tree) in [
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
            assert_eq!(parse(text).expect(text), tree, "{text}");
        }
        for wrong in ["usage", ">1", "", "{"] {
            assert_eq!(parse(wrong).expect_err(wrong).exit_status(), 2, "{wrong}");
        }
    }
}
