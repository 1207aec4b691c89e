//! Attributes: values that users attach to a timeline and may change later. They are not part of its identity.
//!
//! A value has one of seven types. All timelines of a table use the same type for a key (checked by
//! [`types`](crate::types)), so that a range or distance condition on a key applies to each of them.

use std::collections::BTreeMap;

use tideline_model::{GeoPoint, Timestamp};

use crate::{CatalogError, Result};

/// Maximum number of attributes per timeline.
pub const ATTRIBUTES_MAX: usize = 64;
/// Maximum length of an attribute key, in bytes.
pub const ATTRIBUTE_KEY_BYTES_MAX: usize = 256;
/// Maximum length of a text value, and of all texts of a list together, in bytes.
pub const ATTRIBUTE_TEXT_BYTES_MAX: usize = 4 << 10;
/// Maximum number of values in a list.
pub const LIST_VALUES_MAX: usize = 256;

/// The attributes of a timeline, by key.
pub type Attributes = BTreeMap<String, AttributeValue>;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Any UTF-8 text, including the empty one.
    Text(String),
    /// A finite double.
    Number(f64),
    /// Boolean.
    Boolean(bool),
    /// Timestamp.
    Time(Timestamp),
    /// Geographic position.
    Point(GeoPoint),
    /// List of at least one text, in the order in which the texts were given.
    Texts(Vec<String>),
    /// List of at least one finite double, in the order in which the numbers were given.
    Numbers(Vec<f64>),
}

/// Type of an attribute value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeType {
    /// Type of [`AttributeValue::Text`].
    Text,
    /// Type of [`AttributeValue::Number`].
    Number,
    /// Type of [`AttributeValue::Boolean`].
    Boolean,
    /// Type of [`AttributeValue::Time`].
    Time,
    /// Type of [`AttributeValue::Point`].
    Point,
    /// Type of [`AttributeValue::Texts`].
    Texts,
    /// Type of [`AttributeValue::Numbers`].
    Numbers,
}

impl AttributeType {
    /// All types.
    pub const ALL: [Self; 7] = [
        Self::Text,
        Self::Number,
        Self::Boolean,
        Self::Time,
        Self::Point,
        Self::Texts,
        Self::Numbers,
    ];

    /// Returns the name that error messages use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Time => "time",
            Self::Point => "geo point",
            Self::Texts => "list of strings",
            Self::Numbers => "list of numbers",
        }
    }
}

impl AttributeValue {
    /// Returns the type of the value.
    pub fn kind(&self) -> AttributeType {
        match self {
            Self::Text(_) => AttributeType::Text,
            Self::Number(_) => AttributeType::Number,
            Self::Boolean(_) => AttributeType::Boolean,
            Self::Time(_) => AttributeType::Time,
            Self::Point(_) => AttributeType::Point,
            Self::Texts(_) => AttributeType::Texts,
            Self::Numbers(_) => AttributeType::Numbers,
        }
    }
}

/// Applies changes to attributes: `Some` sets a value, `None` removes it. Removing a missing key is not an error.
///
/// Returns an error and changes nothing if a key or value is invalid, or if too many attributes would remain.
pub(crate) fn apply(
    attributes: &mut Attributes,
    changes: &BTreeMap<String, Option<AttributeValue>>,
) -> Result<()> {
    for (key, value) in changes {
        check(key, value.as_ref())?;
    }
    let added = changes
        .iter()
        .filter(|(key, value)| value.is_some() && !attributes.contains_key(*key));
    let removed = changes
        .iter()
        .filter(|(key, value)| value.is_none() && attributes.contains_key(*key));
    let remaining = attributes.len() + added.count() - removed.count();
    limit("number of attributes", ATTRIBUTES_MAX, remaining)?;
    for (key, value) in changes {
        match value {
            Some(value) => attributes.insert(key.clone(), value.clone()),
            None => attributes.remove(key),
        };
    }
    Ok(())
}

fn check(key: &str, value: Option<&AttributeValue>) -> Result<()> {
    let invalid = |reason| {
        let key = key.chars().take(80).collect();
        Err(CatalogError::InvalidAttribute { key, reason })
    };
    limit("bytes of an attribute key", ATTRIBUTE_KEY_BYTES_MAX, key.len())?;
    if key.is_empty() {
        return invalid("has an empty key");
    }
    let values = |count: usize| limit("values of a list", LIST_VALUES_MAX, count);
    match value {
        Some(AttributeValue::Text(text)) => {
            limit("bytes of an attribute text", ATTRIBUTE_TEXT_BYTES_MAX, text.len())
        }
        Some(AttributeValue::Number(number)) if !number.is_finite() => invalid("is not a finite number"),
        Some(AttributeValue::Texts(texts)) if texts.is_empty() => invalid(EMPTY_LIST),
        Some(AttributeValue::Numbers(numbers)) if numbers.is_empty() => invalid(EMPTY_LIST),
        Some(AttributeValue::Texts(texts)) => {
            values(texts.len())?;
            let bytes = texts.iter().map(String::len).sum();
            limit("bytes of a list of texts", ATTRIBUTE_TEXT_BYTES_MAX, bytes)
        }
        Some(AttributeValue::Numbers(numbers)) => {
            values(numbers.len())?;
            if numbers.iter().any(|number| !number.is_finite()) {
                return invalid("holds a number that is not finite");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

const EMPTY_LIST: &str = "is an empty list; remove it instead";

fn limit(what: &'static str, limit: usize, actual: usize) -> Result<()> {
    if actual > limit {
        return Err(CatalogError::OverLimit { what, limit, actual });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, value: Option<AttributeValue>) -> BTreeMap<String, Option<AttributeValue>> {
        BTreeMap::from([(key.to_owned(), value)])
    }

    #[test]
    fn limits_are_named_and_leave_the_attributes_as_they_were() {
        let mut attributes = Attributes::new();
        for n in 0..ATTRIBUTES_MAX {
            apply(
                &mut attributes,
                &change(&n.to_string(), Some(AttributeValue::Boolean(true))),
            )
            .expect("fits");
        }
        let before = attributes.clone();
        let text = |bytes| Some(AttributeValue::Text("x".repeat(bytes)));
        for (bad, said) in [
            (
                change("one more", text(1)),
                "number of attributes of 65 is over the limit of 64",
            ),
            (change("", text(1)), "empty key"),
            (
                change(&"k".repeat(257), text(1)),
                "of 257 is over the limit of 256",
            ),
            (change("0", text(4_097)), "of 4097 is over the limit of 4096"),
            (change("0", Some(AttributeValue::Number(f64::NAN))), "finite"),
            (change("0", Some(AttributeValue::Texts(Vec::new()))), "empty list"),
            (
                change("0", Some(AttributeValue::Numbers(vec![1.0; 257]))),
                "values of a list of 257 is over the limit of 256",
            ),
            (
                change("0", Some(AttributeValue::Numbers(vec![1.0, f64::INFINITY]))),
                "finite",
            ),
            (
                change("0", Some(AttributeValue::Texts(vec!["x".repeat(2_049); 2]))),
                "bytes of a list of texts of 4098 is over the limit of 4096",
            ),
        ] {
            let error = apply(&mut attributes, &bad).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!(attributes, before);
        }
        let mut swap = change("one more", text(4_096));
        swap.insert("0".into(), None);
        apply(&mut attributes, &swap).expect("one removed, one added");
        assert_eq!(attributes.len(), ATTRIBUTES_MAX);
    }
}
