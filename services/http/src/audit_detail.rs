//! Details of audit records: texts that describe what a request changes.
//!
//! A detail is a list of members, as in JSON, separated by semicolons. It contains no secrets. [`audit_log`] cuts it
//! like the other texts of a record.
//!
//! [`audit_log`]: crate::audit_log

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;
use tideline_access::TokenRecord;
use tideline_engine::model::Timestamp;

use crate::audit_log::TEXT_BYTES_MAX;

/// Longest value of a changed member, in bytes. A longer value is cut, so that the detail also contains the members after
/// it.
const VALUE_BYTES_MAX: usize = 200;
/// Length of the common text before the first difference of two long values, in bytes.
const COMMON_BYTES_MAX: usize = VALUE_BYTES_MAX / 4;
/// Maximum number of bytes of a character in UTF-8.
const CHARACTER_BYTES_MAX: usize = 4;

/// Returns the members that differ between two states of an object, such as `policy.hot_ttl: "7d" → "3d"`. Empty if
/// nothing differs.
pub(crate) fn changes(before: &impl Serialize, after: &impl Serialize) -> String {
    let (before, after) = (members_of(before), members_of(after));
    let null = || "null".to_owned();
    let mut changed: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (name, value) in &before {
        match after.get(name) {
            Some(new) if new == value => {}
            Some(new) => {
                changed.insert(name, shown_pair(value, new));
            }
            None => {
                changed.insert(name, (shown(value), null()));
            }
        }
    }
    for (name, value) in &after {
        if !before.contains_key(name) {
            changed.insert(name, (null(), shown(value)));
        }
    }
    let texts = changed
        .into_iter()
        .map(|(name, (old, new))| format!("{name}: {old} → {new}"));
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns the members of an object that are not null, such as `budgets.queries: 8; tables: ["acme-*"]`.
pub(crate) fn members(object: &impl Serialize) -> String {
    let members = members_of(object).into_iter();
    let texts = members.map(|(name, value)| format!("{name}: {}", shown(&value)));
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns the JSON form of a value.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns name, roles, expiry and scope of a token. The record contains hashes, but this text does not.
pub(crate) fn token(token: &TokenRecord) -> String {
    let roles: Vec<&str> = token.roles.iter().map(|role| role.name()).collect();
    let expires = token.expires.map_or_else(
        || "never".to_owned(),
        |nanos| Timestamp::from_nanos_clamped(nanos).to_rfc3339(),
    );
    format!(
        "name: {}; roles: {}; expires: {expires}; scope: {}",
        Value::from(token.name.as_str()),
        roles.join(", "),
        token.scope
    )
}

/// Returns the text of a value, up to a length at which it is cut in any case. The text of a condition can have
/// megabytes.
pub(crate) fn beginning(value: &impl fmt::Display) -> String {
    let mut text = Beginning(String::new());
    // An error means that the text is long enough.
    let _ = fmt::write(&mut text, format_args!("{value}"));
    text.0
}

/// Text that accepts slightly more bytes than a record keeps.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (TEXT_BYTES_MAX + CHARACTER_BYTES_MAX).saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        match text.len() > room {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}

/// Returns the members of an object that are not null, by their paths.
fn members_of(object: &impl Serialize) -> BTreeMap<String, Value> {
    let mut members = BTreeMap::new();
    flatten("", serde_json::to_value(object).unwrap_or_default(), &mut members);
    members
}

fn flatten(path: &str, value: Value, members: &mut BTreeMap<String, Value>) {
    match value {
        Value::Null => {}
        Value::Object(inner) => {
            for (name, value) in inner {
                let path = match path {
                    "" => name,
                    path => format!("{path}.{name}"),
                };
                flatten(&path, value, members);
            }
        }
        value => {
            members.insert(path.to_owned(), value);
        }
    }
}

fn shown(value: &Value) -> String {
    cut(value.to_string())
}

/// Returns the texts of two different values. If one of them is cut, both omit most of their common beginning, so that
/// they contain the first difference.
fn shown_pair(old: &Value, new: &Value) -> (String, String) {
    let (old, new) = (old.to_string(), new.to_string());
    let common = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let skipped = old.floor_char_boundary(common.saturating_sub(COMMON_BYTES_MAX));
    if skipped == 0 || old.len().max(new.len()) <= VALUE_BYTES_MAX {
        return (cut(old), cut(new));
    }
    let rest = |text: &str| format!("…{}", cut(text[skipped..].to_owned()));
    (rest(&old), rest(&new))
}

/// Cuts a text after [`VALUE_BYTES_MAX`] bytes.
fn cut(mut text: String) -> String {
    if text.len() > VALUE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_different_members_are_listed() {
        let before = json!({"a": 1, "policy": {"hot_ttl": "7d", "archive": null, "keep": "1d"}, "gone": [1]});
        let after = json!({"a": 1, "policy": {"hot_ttl": "3d", "archive": {"target": "x"}, "keep": "1d"}, "gone": null});
        assert_eq!(
            changes(&before, &after),
            r#"gone: [1] → null; policy.archive.target: null → "x"; policy.hot_ttl: "7d" → "3d""#
        );
        assert_eq!(changes(&before, &before), "");
        assert_eq!(
            members(&before),
            r#"a: 1; gone: [1]; policy.hot_ttl: "7d"; policy.keep: "1d""#
        );
    }

    #[test]
    fn long_values_are_shown_from_their_difference_on() {
        for name in ["host", "é", "短い"] {
            let names: Vec<String> = (0..100).map(|at| format!("{name}-{at}")).collect();
            let mut more = names.clone();
            more.push("added".to_owned());
            let text = changes(&json!({"tables": names, "z": 1}), &json!({"tables": more}));
            let old_end = format!(r#"{name}-99"] → …"#);
            let new_end = format!(r#"{name}-99","added"]; z: 1 → null"#);
            assert!(
                text.starts_with("tables: …") && text.contains(&old_end) && text.ends_with(&new_end),
                "{text}"
            );
            // A value that loses its end is shown in the same way.
            let text = changes(&json!({"tables": more}), &json!({"tables": names}));
            assert!(text.contains(r#""added"] → …"#) && text.len() < 300, "{text}");
        }
        // The first characters differ only in their last byte.
        let long = "x".repeat(500);
        let (old, new) = (format!("{long}é{long}"), format!("{long}è{long}"));
        let text = changes(&json!({"a": old}), &json!({"a": new}));
        assert!(
            text.contains("xé") && text.contains("xè") && text.len() < 500,
            "{text}"
        );
        // Only the end of one of them is cut if they differ at the beginning.
        let text = changes(&json!({"a": "b"}), &json!({"a": long}));
        assert!(
            text.starts_with(r#"a: "b" → "xxx"#) && text.ends_with('…'),
            "{text}"
        );
    }

    #[test]
    fn long_values_and_conditions_are_cut() {
        let long = json!({"a": "é".repeat(1_000), "b": 1});
        let text = changes(&long, &json!({}));
        assert!(text.len() < 300 && text.ends_with("b: 1 → null"), "{text}");
        for text in ["x".repeat(5_000), "é".repeat(5_000), "短い".repeat(5_000)] {
            let begun = beginning(&format_args!("a = '{text}' AND {text}"));
            assert!(
                begun.len() > TEXT_BYTES_MAX && begun.len() <= TEXT_BYTES_MAX + CHARACTER_BYTES_MAX,
                "{}",
                begun.len()
            );
        }
        assert_eq!(beginning(&"a = 1"), "a = 1");
    }
}
