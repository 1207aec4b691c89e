//! Conditions on timelines in scopes of tokens.
//!
//! A token with such a condition reads, finds, writes and deletes only timelines that match the condition. The
//! engine combines the condition of the token with the condition of each search, and tests single timelines with
//! the matcher. A condition must depend only on the identity and the attributes of a timeline. It therefore has
//! only tests for exact values, prefixes and presence.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tideline_condition::{Condition, ConditionError, Domain, Matcher, Record, Subject, Test};
use tideline_condition::{command_line, json};

/// Maximum number of operators, tests and list values of a condition.
pub const NODES_MAX: usize = 100;
/// Maximum nesting of a condition.
pub const DEPTH_MAX: usize = 8;
/// Longest JSON form of a condition, in bytes.
pub const JSON_BYTES_MAX: usize = 8 << 10;

/// Condition on the timelines that a token may use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TimelineCondition(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    condition: Condition,
    matcher: Matcher,
    /// JSON form. Equal conditions have the same form.
    json: String,
    /// Keys of the attributes that the condition tests, sorted.
    attributes: Vec<String>,
}

/// Error of a condition that cannot restrict a token.
#[derive(Debug, thiserror::Error)]
pub enum TimelineConditionError {
    /// The condition has a subject that changes with each point, or that no timeline has.
    #[error("a token cannot be restricted by {0}; use tags, attributes, the measurement or the source")]
    Subject(String),
    /// The condition has a test other than `equals`, `not_equals`, `in`, `prefix` and `exists`.
    #[error("a token can be restricted only by the tests equals, not_equals, in, prefix and exists")]
    Test,
    /// The condition refers to a saved search, which can change.
    #[error(
        "a token cannot be restricted by a saved search, because it can be changed; repeat its condition"
    )]
    Saved,
    /// The condition matches all timelines.
    #[error("the condition of a token matches every timeline; omit it")]
    Everything,
    /// The condition is too large.
    #[error(
        "the condition of a token is too large: at most {NODES_MAX} tests and values, {DEPTH_MAX} levels and {JSON_BYTES_MAX} bytes of JSON"
    )]
    TooLarge,
    /// A test does not suit its subject or its value.
    #[error("the condition of a token: {0}")]
    Invalid(#[from] ConditionError),
    /// The text is not a condition.
    #[error("the condition of a token: {0}")]
    Text(String),
}

impl TimelineCondition {
    /// Checks and compiles a condition.
    ///
    /// # Errors
    ///
    /// [`TimelineConditionError`] if the condition is not suitable for a token.
    pub fn new(condition: Condition) -> Result<Self, TimelineConditionError> {
        let mut found = Found::default();
        found.visit(&condition, 1)?;
        if found.tests == 0 {
            return Err(TimelineConditionError::Everything);
        }
        let json = serde_json::to_string(&condition)
            .map_err(|error| TimelineConditionError::Text(error.to_string()))?;
        if json.len() > JSON_BYTES_MAX {
            return Err(TimelineConditionError::TooLarge);
        }
        found.attributes.sort_unstable();
        found.attributes.dedup();
        Ok(Self(Arc::new(Compiled {
            matcher: Matcher::new(&condition)?,
            attributes: found.attributes,
            condition,
            json,
        })))
    }

    /// Reads a condition in the form of the command line, such as `team=x`, or as a JSON tree.
    ///
    /// # Errors
    ///
    /// [`TimelineConditionError`] if the text is not a condition, or the condition is not suitable for a token.
    pub fn parse(text: &str) -> Result<Self, TimelineConditionError> {
        Self::new(read(text)?)
    }

    /// Reads a condition of several texts, all of which must hold.
    ///
    /// # Errors
    ///
    /// The errors of [`parse`](Self::parse).
    pub fn parse_all(texts: &[String]) -> Result<Self, TimelineConditionError> {
        match texts {
            [one] => Self::parse(one),
            all => Self::new(Condition::And(
                all.iter().map(|text| read(text)).collect::<Result<_, _>>()?,
            )),
        }
    }

    /// Returns the condition tree.
    pub fn condition(&self) -> &Condition {
        &self.0.condition
    }

    /// Returns the JSON form. Equal conditions have the same form.
    pub fn as_json(&self) -> &str {
        &self.0.json
    }

    /// Returns true if a timeline matches.
    pub fn matches(&self, timeline: &impl Record) -> bool {
        self.0.matcher.matches(timeline)
    }

    /// Returns true if the condition tests attributes.
    pub fn tests_attributes(&self) -> bool {
        !self.0.attributes.is_empty()
    }

    /// Returns true if the condition tests the attribute with this key. A restricted token may not change it,
    /// because the change could move a timeline out of its own condition or into the condition of another token.
    pub fn tests_attribute(&self, key: &str) -> bool {
        let attributes = &self.0.attributes;
        attributes.binary_search_by(|have| have.as_str().cmp(key)).is_ok()
    }
}

fn read(text: &str) -> Result<Condition, TimelineConditionError> {
    let invalid = |error: &dyn fmt::Display| TimelineConditionError::Text(error.to_string());
    match text.trim_start().starts_with('{') {
        true => json::from_str(Domain::Timelines, text).map_err(|error| invalid(&error)),
        false => command_line::parse(Domain::Timelines, text).map_err(|error| invalid(&error)),
    }
}

/// Parts of a condition that were visited.
#[derive(Default)]
struct Found {
    nodes: usize,
    tests: usize,
    attributes: Vec<String>,
}

impl Found {
    fn visit(&mut self, condition: &Condition, depth: usize) -> Result<(), TimelineConditionError> {
        self.nodes += 1;
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(TimelineConditionError::TooLarge);
        }
        match condition {
            Condition::All => Ok(()),
            Condition::And(inner) | Condition::Or(inner) => {
                inner.iter().try_for_each(|inner| self.visit(inner, depth + 1))
            }
            Condition::Not(inner) => self.visit(inner, depth + 1),
            Condition::Saved(_) => Err(TimelineConditionError::Saved),
            Condition::Leaf { subject, test } => self.visit_test(subject, test),
        }
    }

    fn visit_test(&mut self, subject: &Subject, test: &Test) -> Result<(), TimelineConditionError> {
        self.tests += 1;
        match subject {
            Subject::Measurement | Subject::Source | Subject::Tag(_) => {}
            Subject::Attribute(key) => self.attributes.push(key.clone()),
            other => return Err(TimelineConditionError::Subject(other.describe())),
        }
        match test {
            Test::Equals(_) | Test::NotEquals(_) | Test::Prefix(_) | Test::Exists(_) => Ok(()),
            Test::In(values) if self.nodes + values.0.len() > NODES_MAX => {
                Err(TimelineConditionError::TooLarge)
            }
            Test::In(values) => {
                self.nodes += values.0.len();
                Ok(())
            }
            _ => Err(TimelineConditionError::Test),
        }
    }
}

impl PartialEq for TimelineCondition {
    fn eq(&self, other: &Self) -> bool {
        self.0.json == other.0.json
    }
}

impl Eq for TimelineCondition {}

impl fmt::Display for TimelineCondition {
    /// Writes the form of the command line if it has one, otherwise the JSON form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match command_line::render(Domain::Timelines, &self.0.condition) {
            Ok(text) => f.write_str(&text),
            Err(_) => f.write_str(&self.0.json),
        }
    }
}

impl Serialize for TimelineCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.condition.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TimelineCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let condition = json::deserialize(Domain::Timelines, deserializer)?;
        Self::new(condition).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use tideline_condition::ValueRef;

    use super::*;

    /// Timeline with one tag and one attribute.
    struct Timeline<'a>(&'a str, Option<&'a str>);

    impl Record for Timeline<'_> {
        fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
            match subject {
                Subject::Tag(key) if key == "team" => take(ValueRef::Text(self.0)),
                Subject::Attribute(key) if key == "team" => {
                    self.1.is_some_and(|value| take(ValueRef::Text(value)))
                }
                _ => false,
            }
        }
    }

    #[test]
    fn a_condition_matches_by_tags_and_attributes() {
        let by_tag = TimelineCondition::parse("team=x").expect("valid");
        assert!(by_tag.matches(&Timeline("x", None)) && !by_tag.matches(&Timeline("y", Some("x"))));
        assert!(!by_tag.tests_attribute("team"));
        assert_eq!(by_tag.to_string(), "team=x");
        let by_attribute = TimelineCondition::parse("@team=x").expect("valid");
        assert!(
            by_attribute.matches(&Timeline("y", Some("x"))) && !by_attribute.matches(&Timeline("x", None))
        );
        assert!(by_attribute.tests_attribute("team") && !by_attribute.tests_attribute("rack"));
        let both = ["team=x".to_owned(), "@team=y".to_owned()];
        let both = TimelineCondition::parse_all(&both).expect("valid");
        assert!(both.matches(&Timeline("x", Some("y"))) && !both.matches(&Timeline("x", None)));
    }

    #[test]
    fn the_stored_form_is_that_of_the_api() {
        let condition = TimelineCondition::parse("team=x").expect("valid");
        let json = serde_json::to_string(&condition).expect("serializes");
        assert_eq!(json, r#"{"tag":"team","equals":"x"}"#);
        assert_eq!(
            serde_json::from_str::<TimelineCondition>(&json).expect("reads back"),
            condition
        );
    }

    #[test]
    fn conditions_that_could_change_or_cost_much_are_refused() {
        let values = vec!["\"a\""; NODES_MAX].join(",");
        let deep = format!(
            "{}{{\"tag\":\"a\",\"equals\":\"b\"}}{}",
            "{\"not\":".repeat(8),
            "}".repeat(8)
        );
        for text in [
            r#"{"and": []}"#,
            r#"{"saved": "mine"}"#,
            r#"{"property": "id", "equals": "3f2a9c017bde45a18c40f1e29d3b6a57"}"#,
            r#"{"property": "any", "text": "web"}"#,
            "last_seen>=now-1h",
            "team=~x.*",
            "nonsense",
            r#"{"tag": "a"}"#,
            &format!(r#"{{"tag": "a", "in": [{values}]}}"#),
            &deep,
            &format!(r#"{{"tag": "a", "equals": "{}"}}"#, "x".repeat(JSON_BYTES_MAX)),
        ] {
            assert!(TimelineCondition::parse(text).is_err(), "{text}");
        }
    }
}
