//! Conditions on the values of points as people write them in JSON.
//!
//! ```json
//! {"and": [{"field": "usage_user", "gt": 90}, {"not": {"field": "state", "in": ["idle", "off"]}}]}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::only;

/// Which points count: `{"and": […]}`, `{"or": […]}`, `{"not": …}`, or one test of one field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ValueConditionForm", into = "ValueConditionForm")]
pub enum ValueCondition {
    /// All hold; an empty list holds always.
    And(Vec<ValueCondition>),
    /// At least one holds; an empty list never does.
    Or(Vec<ValueCondition>),
    /// It does not hold.
    Not(Box<ValueCondition>),
    /// The value of the field passes the test.
    Field(String, ValueTest),
}

/// What must hold of the value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTest {
    /// It is this value.
    Equals(FieldValue),
    /// There is a value, and it is not this one.
    NotEquals(FieldValue),
    /// It is one of these.
    In(Vec<FieldValue>),
    /// It is above this.
    Gt(FieldValue),
    /// It is this or above.
    Gte(FieldValue),
    /// It is below this.
    Lt(FieldValue),
    /// It is this or below.
    Lte(FieldValue),
    /// It is one of these two or between them.
    Between([FieldValue; 2]),
    /// There is a value, or there is none.
    Exists(bool),
}

/// A value to compare with: a number, text, or a boolean. Integers are exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, true, false or a number")]
pub enum FieldValue {
    /// True or false.
    Boolean(bool),
    /// An integer of 64 bits.
    Signed(i64),
    /// An unsigned integer beyond those.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
}

/// Which points count: exactly one of `and`, `or`, `not`, or a `field` with exactly one test (`equals`, `not_equals`, `in`,
/// `gt`, `gte`, `lt`, `lte`, `between`, `exists`). A point without the field passes no test but `"exists": false`; NaN
/// equals nothing. Numbers of all types are compared exactly, texts byte by byte; booleans are equal or not.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ValueCondition, example = json!({"field": "usage_user", "gt": 90}))]
struct ValueConditionForm {
    /// All hold; an empty list holds always.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    and: Option<Vec<ValueCondition>>,
    /// At least one holds; an empty list never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    or: Option<Vec<ValueCondition>>,
    /// It does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    not: Option<Box<ValueCondition>>,
    /// The field; it need not be among those asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Test: it is this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    equals: Option<FieldValue>,
    /// Test: there is a value, and it is not this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_equals: Option<FieldValue>,
    /// Test: it is one of these, which are of one kind.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<FieldValue>>,
    /// Test: it is above this.
    #[serde(skip_serializing_if = "Option::is_none")]
    gt: Option<FieldValue>,
    /// Test: it is this or above.
    #[serde(skip_serializing_if = "Option::is_none")]
    gte: Option<FieldValue>,
    /// Test: it is below this.
    #[serde(skip_serializing_if = "Option::is_none")]
    lt: Option<FieldValue>,
    /// Test: it is this or below.
    #[serde(skip_serializing_if = "Option::is_none")]
    lte: Option<FieldValue>,
    /// Test: it is one of these two, lower first, or between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<[FieldValue; 2]>,
    /// Test: there is a value (`true`) or none (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
}

/// A node that is not exactly one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueConditionError {
    Kinds,
    Tests,
}

impl fmt::Display for ValueConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kinds => "a condition on values is exactly one of: and, or, not, or a field with a test",
            Self::Tests => {
                "a field has exactly one test: equals, not_equals, in, gt, gte, lt, lte, between or exists"
            }
        })
    }
}

impl TryFrom<ValueConditionForm> for ValueCondition {
    type Error = ValueConditionError;

    fn try_from(form: ValueConditionForm) -> Result<Self, ValueConditionError> {
        let tests = [
            form.equals.map(ValueTest::Equals),
            form.not_equals.map(ValueTest::NotEquals),
            form.one_of.map(ValueTest::In),
            form.gt.map(ValueTest::Gt),
            form.gte.map(ValueTest::Gte),
            form.lt.map(ValueTest::Lt),
            form.lte.map(ValueTest::Lte),
            form.between.map(ValueTest::Between),
            form.exists.map(ValueTest::Exists),
        ];
        let branches = [
            form.and.map(Self::And),
            form.or.map(Self::Or),
            form.not.map(Self::Not),
        ];
        let has_branch = branches.iter().any(Option::is_some);
        let has_test = tests.iter().any(Option::is_some);
        match (only(branches), form.field) {
            (Some(branch), None) if !has_test => Ok(branch),
            (None, Some(field)) if !has_branch => {
                let test = only(tests).ok_or(ValueConditionError::Tests)?;
                Ok(Self::Field(field, test))
            }
            _ => Err(ValueConditionError::Kinds),
        }
    }
}

impl From<ValueCondition> for ValueConditionForm {
    fn from(condition: ValueCondition) -> Self {
        let mut form = Self::default();
        match condition {
            ValueCondition::And(all) => form.and = Some(all),
            ValueCondition::Or(any) => form.or = Some(any),
            ValueCondition::Not(inner) => form.not = Some(inner),
            ValueCondition::Field(field, test) => {
                form.field = Some(field);
                match test {
                    ValueTest::Equals(value) => form.equals = Some(value),
                    ValueTest::NotEquals(value) => form.not_equals = Some(value),
                    ValueTest::In(values) => form.one_of = Some(values),
                    ValueTest::Gt(value) => form.gt = Some(value),
                    ValueTest::Gte(value) => form.gte = Some(value),
                    ValueTest::Lt(value) => form.lt = Some(value),
                    ValueTest::Lte(value) => form.lte = Some(value),
                    ValueTest::Between(ends) => form.between = Some(ends),
                    ValueTest::Exists(exists) => form.exists = Some(exists),
                }
            }
        }
        form
    }
}

impl utoipa::PartialSchema for ValueCondition {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        ValueConditionForm::schema()
    }
}

impl ToSchema for ValueCondition {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        ValueConditionForm::schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_read_back() {
        for json in [
            r#"{"and":[]}"#,
            r#"{"or":[{"field":"a","gt":9007199254740993},{"not":{"field":"b","in":["x","y"]}}]}"#,
            r#"{"field":"a","between":[-1.5,18446744073709551615]}"#,
            r#"{"field":"a","exists":false}"#,
            r#"{"field":"a","not_equals":true}"#,
        ] {
            let read: ValueCondition = serde_json::from_str(json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
        }
    }

    #[test]
    fn what_is_not_exactly_one_thing_is_refused() {
        for (json, said) in [
            ("{}", "exactly one of: and"),
            (r#"{"and":[],"or":[]}"#, "exactly one of: and"),
            (r#"{"and":[],"field":"a","gt":1}"#, "exactly one of: and"),
            (r#"{"gt":1}"#, "exactly one of: and"),
            (r#"{"field":"a"}"#, "exactly one test"),
            (r#"{"field":"a","gt":1,"lt":2}"#, "exactly one test"),
            (r#"{"field":"a","greater":1}"#, "unknown field `greater`"),
            (r#"{"field":"a","between":[1]}"#, "invalid length"),
        ] {
            let error = serde_json::from_str::<ValueCondition>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
