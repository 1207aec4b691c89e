//! Translation of attribute names to label names, with the rules of Prometheus' `otlptranslator`.
//!
//! If the strategy keeps all characters, a name is unchanged. Otherwise invalid characters become underscores, and a
//! name that begins with a digit or, by a setting, with one underscore gets a prefix.

use super::settings::OtlpSettings;
use crate::reject::{Reason, quote};

/// Returns the label name of an attribute.
///
/// # Errors
///
/// Returns a reason if the name is empty or not UTF-8, or if the label name would consist of underscores only.
pub(super) fn translate(attribute: &[u8], settings: &OtlpSettings) -> Result<String, Reason> {
    let Ok(name) = std::str::from_utf8(attribute) else {
        return Err(format!("invalid UTF-8 in attribute name {}", quote(attribute)).into());
    };
    if name.is_empty() {
        return Err("an attribute has no name".into());
    }
    let label = match settings.translation_strategy.escapes() {
        true => escape(name, settings),
        false => name.to_owned(),
    };
    match label.bytes().all(|byte| byte == b'_') {
        true => Err(format!("the attribute name {} has no valid character", quote(attribute)).into()),
        false => Ok(label),
    }
}

fn escape(name: &str, settings: &OtlpSettings) -> String {
    let mut label = match settings.label_name_preserve_multiple_underscores {
        true => name.chars().map(valid).collect(),
        false => collapse(name),
    };
    if label.starts_with(|c: char| c.is_ascii_digit()) {
        label.insert_str(0, "key_");
    } else if settings.label_name_underscore_sanitization
        && label.starts_with('_')
        && !label.starts_with("__")
    {
        label.insert_str(0, "key");
    }
    label
}

fn valid(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '_' }
}

/// Replaces each run of invalid characters and underscores by one underscore. A name with `__` at both ends keeps them.
fn collapse(name: &str) -> String {
    let inner = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    let mut label = String::with_capacity(name.len());
    let mut is_run = false;
    for c in inner.unwrap_or(name).chars().map(valid) {
        if c != '_' || !is_run {
            label.push(c);
        }
        is_run = c == '_';
    }
    match inner {
        Some(_) => format!("__{label}__"),
        None => label,
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::TranslationStrategy;
    use super::*;

    /// Attribute name and its labels with four settings: underscores collapsed; kept; collapsed, with prefix; kept,
    /// with prefix. An empty label means an error.
    const CASES: [(&str, [&str; 4]); 14] = [
        ("label:with:colons", ["label_with_colons"; 4]),
        ("LabelWithCapitalLetters", ["LabelWithCapitalLetters"; 4]),
        ("label!with&special$chars)", ["label_with_special_chars_"; 4]),
        (
            "label_with_foreign_characters_字符",
            [
                "label_with_foreign_characters_",
                "label_with_foreign_characters___",
                "label_with_foreign_characters_",
                "label_with_foreign_characters___",
            ],
        ),
        (".foo", ["_foo", "_foo", "key_foo", "key_foo"]),
        ("123label", ["key_123label"; 4]),
        ("_one", ["_one", "_one", "key_one", "key_one"]),
        ("__two", ["_two", "__two", "key_two", "__two"]),
        ("ようこそ", ["", "", "key_", ""]),
        ("a__b", ["a_b", "a__b", "a_b", "a__b"]),
        (
            "__reserved__name__",
            [
                "__reserved_name__",
                "__reserved__name__",
                "__reserved_name__",
                "__reserved__name__",
            ],
        ),
        ("end___", ["end_", "end___", "end_", "end___"]),
        ("", [""; 4]),
        ("__", ["", "", "key_", ""]),
    ];

    #[test]
    fn labels_are_escaped_as_in_prometheus() {
        for (attribute, expected) in CASES {
            for (at, expected) in expected.into_iter().enumerate() {
                let settings = OtlpSettings {
                    label_name_preserve_multiple_underscores: at % 2 == 1,
                    label_name_underscore_sanitization: at > 1,
                    ..OtlpSettings::default()
                };
                let found = translate(attribute.as_bytes(), &settings).unwrap_or_default();
                assert_eq!(found, expected, "{attribute} {at}");
            }
        }
    }

    #[test]
    fn labels_can_keep_their_characters() {
        let settings = OtlpSettings {
            translation_strategy: TranslationStrategy::NoTranslation,
            ..OtlpSettings::default()
        };
        for attribute in ["service.name", "ようこそ", "123", "_a"] {
            assert_eq!(
                translate(attribute.as_bytes(), &settings).as_deref(),
                Ok(attribute)
            );
        }
        for attribute in [&b""[..], b"__", b"\xff"] {
            assert!(translate(attribute, &settings).is_err());
        }
    }
}
