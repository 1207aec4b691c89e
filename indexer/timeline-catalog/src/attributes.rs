//! Attributes: what people add to a timeline and change later. They are not part of its identity.

use std::collections::BTreeMap;

use crate::{CatalogError, Result};

/// Most attributes of one timeline.
pub const ATTRIBUTES_MAX: usize = 64;
/// Longest attribute key, in bytes.
pub const ATTRIBUTE_KEY_BYTES_MAX: usize = 256;
/// Longest text value, in bytes.
pub const ATTRIBUTE_TEXT_BYTES_MAX: usize = 4 << 10;

/// The attributes of a timeline, by key.
pub type Attributes = BTreeMap<String, AttributeValue>;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Any UTF-8 text, also an empty one.
    Text(String),
    /// A finite double.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

/// Applies changes to attributes: `Some` sets, `None` removes; a missing key to remove is no error.
///
/// Fails without a change when a key or value breaks a limit, or too many attributes would remain.
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
    match value {
        Some(AttributeValue::Text(text)) => {
            limit("bytes of an attribute text", ATTRIBUTE_TEXT_BYTES_MAX, text.len())
        }
        Some(AttributeValue::Number(number)) if !number.is_finite() => invalid("is not a finite number"),
        _ => Ok(()),
    }
}

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
        ] {
            let error = apply(&mut attributes, &bad).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!(attributes, before);
        }
        let mut swap = change("one more", text(4_096));
        swap.insert("0".into(), None);
        apply(&mut attributes, &swap).expect("one goes, one comes");
        assert_eq!(attributes.len(), ATTRIBUTES_MAX);
    }
}
