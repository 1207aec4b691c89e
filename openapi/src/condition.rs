//! The condition tree as people write it in JSON.
//!
//! ```json
//! {"and": [
//!   {"property": "measurement", "equals": "cpu"},
//!   {"tag": "host", "prefix": "web-"},
//!   {"or": [{"tag": "dc", "in": ["fra", "ams"]}, {"attribute": "owner", "equals": "team-storage"}]},
//!   {"not": {"property": "last_seen", "range": {"end": "now-1d"}}}
//! ]}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::TimeInput;

/// Which timelines are meant: `{"and": […]}`, `{"or": […]}`, `{"not": …}`, or one test of one subject.
///
/// A test names its subject (`tag`, `attribute` or `property`) and exactly one of `equals`, `not_equals`, `in`,
/// `prefix`, `wildcard`, `regex`, `exists`, `range`. A missing tag or attribute equals the empty text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ConditionForm", into = "ConditionForm")]
pub enum Condition {
    /// All hold; an empty list holds always.
    And(Vec<Condition>),
    /// At least one holds; an empty list never does.
    Or(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// The subject passes the test.
    Test(Subject, Test),
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The value of a tag.
    Tag(String),
    /// The value of an attribute.
    Attribute(String),
    /// A property that every timeline has.
    Property(Property),
}

/// A property that every timeline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// The measurement.
    Measurement,
    /// The machine: the value of the first source tag present.
    Source,
    /// The timeline id, as 32 hexadecimal digits: `equals`, `not_equals` and `in` only.
    Id,
    /// The instant of the oldest point: `range` only.
    FirstSeen,
    /// The instant of the newest point: `range` only.
    LastSeen,
}

/// What must hold of a subject. Texts are compared byte by byte.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// It is this value.
    Equals(Scalar),
    /// It is not this value.
    NotEquals(Scalar),
    /// It is one of these.
    In(Vec<Scalar>),
    /// It begins with this.
    Prefix(String),
    /// All of it fits; `*` stands for any text, `?` for any one character.
    Wildcard(String),
    /// All of it fits the regular expression.
    Regex(String),
    /// It is there, or not.
    Exists(bool),
    /// It lies in the range.
    Range(TimeSpan),
}

/// The value of an attribute, or of a comparison: text, number or boolean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// A finite number.
    Number(f64),
}

/// A span of time: `start` belongs to it, `end` does not. What is left away is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "now-1h", "end": "now"}))]
pub struct TimeSpan {
    /// The first instant inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TimeInput>,
    /// The first instant after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TimeInput>,
}

/// Which timelines are meant: exactly one of `and`, `or`, `not`, or a subject (`tag`, `attribute` or `property`) with
/// exactly one test (`equals`, `not_equals`, `in`, `prefix`, `wildcard`, `regex`, `exists`, `range`).
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Condition, example = json!({"and": [
    {"property": "measurement", "equals": "cpu"},
    {"tag": "host", "in": ["sim-001", "sim-002"]}
]}))]
struct ConditionForm {
    /// All hold; an empty list holds always.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    and: Option<Vec<Condition>>,
    /// At least one holds; an empty list never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    or: Option<Vec<Condition>>,
    /// It does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    not: Option<Box<Condition>>,
    /// Subject: the value of this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// Subject: the value of this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
    /// Subject: this property.
    #[serde(skip_serializing_if = "Option::is_none")]
    property: Option<Property>,
    /// Test: it is this value. Numbers and booleans are for attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    equals: Option<Scalar>,
    /// Test: it is not this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_equals: Option<Scalar>,
    /// Test: it is one of these.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<Scalar>>,
    /// Test: it begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Test: all of it fits; `*` stands for any text, `?` for any one character.
    #[serde(skip_serializing_if = "Option::is_none")]
    wildcard: Option<String>,
    /// Test: all of it fits this regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
    /// Test: it is there (`true`) or not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    /// Test: `first_seen` or `last_seen` lies in this span.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<TimeSpan>,
}

/// A node that is not exactly one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionError {
    Kinds,
    Subjects,
    Tests,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kinds => {
                "a condition is exactly one of: and, or, not, or a subject (tag, attribute or property) with a test"
            }
            Self::Subjects => "a test has exactly one subject: tag, attribute or property",
            Self::Tests => {
                "a subject has exactly one test: equals, not_equals, in, prefix, wildcard, regex, exists or range"
            }
        })
    }
}

impl TryFrom<ConditionForm> for Condition {
    type Error = ConditionError;

    fn try_from(form: ConditionForm) -> Result<Self, ConditionError> {
        let subjects = [
            form.tag.map(Subject::Tag),
            form.attribute.map(Subject::Attribute),
            form.property.map(Subject::Property),
        ];
        let tests = [
            form.equals.map(Test::Equals),
            form.not_equals.map(Test::NotEquals),
            form.one_of.map(Test::In),
            form.prefix.map(Test::Prefix),
            form.wildcard.map(Test::Wildcard),
            form.regex.map(Test::Regex),
            form.exists.map(Test::Exists),
            form.range.map(Test::Range),
        ];
        let is_test = subjects.iter().any(Option::is_some) || tests.iter().any(Option::is_some);
        let branches = [
            form.and.map(Condition::And),
            form.or.map(Condition::Or),
            form.not.map(Condition::Not),
        ];
        match (only(branches), is_test) {
            (Some(branch), false) => Ok(branch),
            (None, true) => {
                let subject = only(subjects).ok_or(ConditionError::Subjects)?;
                let test = only(tests).ok_or(ConditionError::Tests)?;
                Ok(Condition::Test(subject, test))
            }
            _ => Err(ConditionError::Kinds),
        }
    }
}

/// The one that is there, if it is one.
fn only<T, const N: usize>(choices: [Option<T>; N]) -> Option<T> {
    let mut present = choices.into_iter().flatten();
    present.next().filter(|_| present.next().is_none())
}

impl From<Condition> for ConditionForm {
    fn from(condition: Condition) -> Self {
        let mut form = Self::default();
        match condition {
            Condition::And(all) => form.and = Some(all),
            Condition::Or(any) => form.or = Some(any),
            Condition::Not(inner) => form.not = Some(inner),
            Condition::Test(subject, test) => {
                match subject {
                    Subject::Tag(key) => form.tag = Some(key),
                    Subject::Attribute(key) => form.attribute = Some(key),
                    Subject::Property(property) => form.property = Some(property),
                }
                match test {
                    Test::Equals(value) => form.equals = Some(value),
                    Test::NotEquals(value) => form.not_equals = Some(value),
                    Test::In(values) => form.one_of = Some(values),
                    Test::Prefix(text) => form.prefix = Some(text),
                    Test::Wildcard(text) => form.wildcard = Some(text),
                    Test::Regex(text) => form.regex = Some(text),
                    Test::Exists(exists) => form.exists = Some(exists),
                    Test::Range(span) => form.range = Some(span),
                }
            }
        }
        form
    }
}

impl utoipa::PartialSchema for Condition {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        ConditionForm::schema()
    }
}

impl ToSchema for Condition {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        ConditionForm::schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_read_back() {
        for json in [
            r#"{"and":[]}"#,
            r#"{"or":[{"tag":"host","equals":"a"},{"not":{"attribute":"n","in":["x",1.5,true]}}]}"#,
            r#"{"property":"measurement","wildcard":"cpu*"}"#,
            r#"{"property":"last_seen","range":{"start":"now-1h"}}"#,
            r#"{"tag":"dc","exists":false}"#,
        ] {
            let read: Condition = serde_json::from_str(json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
        }
    }

    #[test]
    fn what_is_not_exactly_one_thing_is_refused() {
        for (json, said) in [
            ("{}", "exactly one of: and"),
            (r#"{"and":[],"or":[]}"#, "exactly one of: and"),
            (r#"{"and":[],"tag":"a","equals":"b"}"#, "exactly one of: and"),
            (r#"{"tag":"a"}"#, "exactly one test"),
            (r#"{"tag":"a","equals":"b","prefix":"c"}"#, "exactly one test"),
            (r#"{"equals":"b"}"#, "exactly one subject"),
            (
                r#"{"tag":"a","property":"id","equals":"b"}"#,
                "exactly one subject",
            ),
            (r#"{"tag":"a","equalz":"b"}"#, "unknown field `equalz`"),
            (
                r#"{"property":"colour","equals":"b"}"#,
                "unknown variant `colour`",
            ),
        ] {
            let error = serde_json::from_str::<Condition>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
        let deep = format!(
            "{}{{\"and\":[]}}{}",
            "{\"not\":".repeat(100_000),
            "}".repeat(100_000)
        );
        assert!(serde_json::from_str::<Condition>(&deep).is_err());
    }
}
