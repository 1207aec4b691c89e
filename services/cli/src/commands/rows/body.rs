//! Body of a request on rows.
//!
//! Conditions and keys are kept as JSON text, because numbers of [`Value`] are integers of 64 bits or doubles, and
//! decimals have more digits.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Members of the body of a request.
#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct Body {
    /// Members without decimals.
    pub(in crate::commands) members: Map<String, Value>,
    /// Members that keep all digits of their numbers.
    texts: BTreeMap<String, Box<RawValue>>,
}

impl Body {
    /// Returns true if there are no members.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.texts.is_empty()
    }

    /// Sets a member without decimals.
    pub(in crate::commands) fn insert(&mut self, name: String, value: Value) {
        self.members.insert(name, value);
    }

    /// Removes a member without decimals.
    pub(in crate::commands) fn remove(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Sets a member that keeps all digits of its numbers.
    pub(in crate::commands) fn insert_text(&mut self, name: &str, text: Box<RawValue>) {
        self.texts.insert(name.to_owned(), text);
    }

    /// Returns the body as the value of a member of another body.
    pub(super) fn to_text(&self) -> Box<RawValue> {
        RawValue::from_string(self.to_string()).unwrap_or_default()
    }

    /// Returns a value that equals that of another body only if all members are equal, with all digits of their
    /// numbers.
    pub(super) fn to_comparable(&self) -> Value {
        let mut members = self.members.clone();
        for (name, text) in &self.texts {
            members.insert(name.clone(), text.get().into());
        }
        members.into()
    }
}

impl From<Map<String, Value>> for Body {
    fn from(members: Map<String, Value>) -> Self {
        let texts = BTreeMap::new();
        Self { members, texts }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.iter();
        let members = members.map(|(name, value)| format!("{}:{value}", json!(name)));
        let texts = self.texts.iter();
        let texts = texts.map(|(name, text)| format!("{}:{text}", json!(name)));
        let all: Vec<String> = members.chain(texts).collect();
        write!(f, "{{{}}}", all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_the_digits_of_their_numbers() {
        let mut body = Body::default();
        body.insert("limit".into(), 5.into());
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        body.insert_text("where", raw(r#"{"column":"total","gt":1234567890123456.76}"#));
        assert_eq!(
            body.to_string(),
            r#"{"limit":5,"where":{"column":"total","gt":1234567890123456.76}}"#
        );
        let mut other = body.clone();
        other.insert_text("where", raw(r#"{"column":"total","gt":1234567890123456.77}"#));
        assert_ne!(body.to_comparable(), other.to_comparable());
        assert_eq!(Body::default().to_string(), "{}");
    }
}
