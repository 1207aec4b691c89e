//! The condition tree as people write it in JSON.
//!
//! ```json
//! {"and": [
//!   {"property": "measurement", "equals": "cpu"},
//!   {"tag": "host", "prefix": "web-"},
//!   {"attribute": "cores", "gte": 8, "lt": 64},
//!   {"attribute": "site", "near": {"lat": 52.52, "lon": 13.405, "meters": 5000}},
//!   {"attribute": "title", "text": "backup store", "distance": 1},
//!   {"or": [{"tag": "dc", "in": ["fra", "ams"]}, {"attribute": "owner", "equals": "team-storage"}]},
//!   {"not": {"property": "last_seen", "range": {"end": "now-1d"}}}
//! ]}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attribute::AttributeValue;
use crate::geo::{Circle, GeoBox, Place};
use crate::time::TimeInput;

/// Which timelines are meant: `{"and": […]}`, `{"or": […]}`, `{"not": …}`, `{"saved": "name"}`, or one test of one subject.
///
/// A test names its subject (`tag`, `attribute` or `property`) and exactly one of `equals`, `not_equals`, `in`,
/// `prefix`, `suffix`, `wildcard`, `regex`, `fuzzy`, `text`, `phrase`, `exists`, `range`, `near`, `box`, `polygon`, or
/// bounds of a number (`gt` or `gte`, `lt` or `lte`). A list passes if one of its values does. A missing tag or attribute
/// equals the empty text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ConditionForm", into = "ConditionForm")]
pub enum Condition {
    /// All hold; an empty list holds always.
    And(Vec<Condition>),
    /// At least one holds; an empty list never does.
    Or(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// The saved search of this name holds.
    Saved(String),
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
    /// Measurement, tags and attributes that are text, all together: `text` and `phrase` only. Words may be said by
    /// different ones, a phrase by one.
    Any,
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
    Equals(AttributeValue),
    /// It is not this value.
    NotEquals(AttributeValue),
    /// It is one of these.
    In(Vec<AttributeValue>),
    /// It begins with this.
    Prefix(String),
    /// It ends with this.
    Suffix(String),
    /// All of it fits; `*` stands for any text, `?` for any one character.
    Wildcard(String),
    /// All of it fits the regular expression.
    Regex(String),
    /// Few edits make it of this text.
    Fuzzy {
        /// What it is close to.
        text: String,
        /// Most edits.
        distance: u8,
    },
    /// It says all of these words, in any order.
    Text {
        /// The words.
        text: String,
        /// Most edits in each.
        distance: u8,
    },
    /// It says these words one after the other.
    Phrase {
        /// The words.
        text: String,
        /// Most edits in each.
        distance: u8,
    },
    /// It is a number within the bounds.
    Number(NumberBounds),
    /// It is there, or not.
    Exists(bool),
    /// It is a time in the range.
    Range(TimeSpan),
    /// It is a geo point in the circle.
    Near(Circle),
    /// It is a geo point in the box.
    Box(GeoBox),
    /// It is a geo point within the ring.
    Polygon(Vec<Place>),
}

/// Bounds of a number: at most one on each side, at least one in all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NumberBounds {
    /// It is above this.
    pub gt: Option<f64>,
    /// It is this or above.
    pub gte: Option<f64>,
    /// It is below this.
    pub lt: Option<f64>,
    /// It is this or below.
    pub lte: Option<f64>,
}

/// A value that points are compared with: text, number or boolean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, true, false or a number")]
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

/// Which timelines are meant: exactly one of `and`, `or`, `not`, `saved`, or a subject (`tag`, `attribute` or `property`) with
/// exactly one test (`equals`, `not_equals`, `in`, `prefix`, `suffix`, `wildcard`, `regex`, `fuzzy`, `text`, `phrase`,
/// `exists`, `range`, `near`, `box`, `polygon`, or bounds of a number: `gt` or `gte`, `lt` or `lte`).
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
    /// The saved search of this name holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<String>,
    /// Subject: the value of this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// Subject: the value of this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
    /// Subject: this property.
    #[serde(skip_serializing_if = "Option::is_none")]
    property: Option<Property>,
    /// Test: it is this value, or a list that holds it. What is no text is for attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    equals: Option<AttributeValue>,
    /// Test: it is not this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_equals: Option<AttributeValue>,
    /// Test: it is one of these.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<AttributeValue>>,
    /// Test: it begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    /// Test: it ends with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix: Option<String>,
    /// Test: all of it fits; `*` stands for any text, `?` for any one character.
    #[serde(skip_serializing_if = "Option::is_none")]
    wildcard: Option<String>,
    /// Test: all of it fits this regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
    /// Test: it is not empty, and at most `distance` edits make it of this text of at most 96 bytes. An edit inserts,
    /// removes or replaces a character, or swaps two neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    fuzzy: Option<String>,
    /// Test: it says all of these words, at most 32, in any order. Words are letters and digits without a break, capital
    /// or small.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Test: it says these words one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    phrase: Option<String>,
    /// Beside `fuzzy`, `text` or `phrase`: most edits, 0 to 2, in the latter two in each word. Default 1 for `fuzzy`, else
    /// 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<u8>,
    /// Test: it is a number above this. An attribute that is a number, or a tag that reads as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gt: Option<f64>,
    /// Test: it is this number or above.
    #[serde(skip_serializing_if = "Option::is_none")]
    gte: Option<f64>,
    /// Test: it is a number below this. May stand beside `gt` or `gte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lt: Option<f64>,
    /// Test: it is this number or below. May stand beside `gt` or `gte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lte: Option<f64>,
    /// Test: it is there (`true`) or not (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    /// Test: `first_seen`, `last_seen` or an attribute that is a time lies in this span.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<TimeSpan>,
    /// Test: an attribute that is a geo point lies at most so far from a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    near: Option<Circle>,
    /// Test: an attribute that is a geo point lies between these parallels and meridians.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    #[schema(rename = "box")]
    within_box: Option<GeoBox>,
    /// Test: an attribute that is a geo point lies within the ring of these 3 to 1,000 corners, in either direction. Its
    /// sides are straight in degrees and go the short way round; a ring round the globe holds the pole of its hemisphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    polygon: Option<Vec<Place>>,
}

/// A node that is not exactly one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionError {
    Kinds,
    Subjects,
    Tests,
    Bounds,
    Distance,
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kinds => {
                "a condition is exactly one of: and, or, not, saved, or a subject (tag, attribute or property) with a test"
            }
            Self::Subjects => "a test has exactly one subject: tag, attribute or property",
            Self::Tests => {
                "a subject has exactly one test: equals, not_equals, in, prefix, suffix, wildcard, regex, fuzzy, text, \
                 phrase, exists, range, near, box, polygon or bounds of a number"
            }
            Self::Bounds => "a number has at most one bound on each side: gt or gte, lt or lte",
            Self::Distance => "distance belongs to fuzzy, text or phrase",
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
        let bounds = NumberBounds {
            gt: form.gt,
            gte: form.gte,
            lt: form.lt,
            lte: form.lte,
        };
        let words = form.text.is_some() || form.phrase.is_some();
        if form.distance.is_some() && !words && form.fuzzy.is_none() {
            return Err(ConditionError::Distance);
        }
        let distance = form.distance.unwrap_or(0);
        let tests = [
            form.equals.map(Test::Equals),
            form.not_equals.map(Test::NotEquals),
            form.one_of.map(Test::In),
            form.prefix.map(Test::Prefix),
            form.suffix.map(Test::Suffix),
            form.wildcard.map(Test::Wildcard),
            form.regex.map(Test::Regex),
            form.fuzzy.map(|text| Test::Fuzzy {
                text,
                distance: form.distance.unwrap_or(1),
            }),
            form.text.map(|text| Test::Text { text, distance }),
            form.phrase.map(|text| Test::Phrase { text, distance }),
            bounds.read()?.map(Test::Number),
            form.exists.map(Test::Exists),
            form.range.map(Test::Range),
            form.near.map(Test::Near),
            form.within_box.map(Test::Box),
            form.polygon.map(Test::Polygon),
        ];
        let is_test = subjects.iter().any(Option::is_some) || tests.iter().any(Option::is_some);
        let branches = [
            form.and.map(Condition::And),
            form.or.map(Condition::Or),
            form.not.map(Condition::Not),
            form.saved.map(Condition::Saved),
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

impl NumberBounds {
    /// Itself, if it has a bound.
    fn read(self) -> Result<Option<Self>, ConditionError> {
        if self.gt.is_some() && self.gte.is_some() || self.lt.is_some() && self.lte.is_some() {
            return Err(ConditionError::Bounds);
        }
        Ok((self != Self::default()).then_some(self))
    }
}

/// The one that is there, if it is one.
pub(crate) fn only<T, const N: usize>(choices: [Option<T>; N]) -> Option<T> {
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
            Condition::Saved(name) => form.saved = Some(name),
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
                    Test::Suffix(text) => form.suffix = Some(text),
                    Test::Wildcard(text) => form.wildcard = Some(text),
                    Test::Regex(text) => form.regex = Some(text),
                    Test::Fuzzy { text, distance } => {
                        (form.fuzzy, form.distance) = (Some(text), Some(distance));
                    }
                    Test::Text { text, distance } => {
                        (form.text, form.distance) = (Some(text), Some(distance));
                    }
                    Test::Phrase { text, distance } => {
                        (form.phrase, form.distance) = (Some(text), Some(distance));
                    }
                    Test::Number(bounds) => {
                        (form.gt, form.gte) = (bounds.gt, bounds.gte);
                        (form.lt, form.lte) = (bounds.lt, bounds.lte);
                    }
                    Test::Exists(exists) => form.exists = Some(exists),
                    Test::Range(span) => form.range = Some(span),
                    Test::Near(circle) => form.near = Some(circle),
                    Test::Box(sides) => form.within_box = Some(sides),
                    Test::Polygon(corners) => form.polygon = Some(corners),
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
            r#"{"property":"any","text":"backup fra","distance":1}"#,
            r#"{"property":"last_seen","range":{"start":"now-1h"}}"#,
            r#"{"tag":"dc","exists":false}"#,
            r#"{"and":[{"saved":"mine"}]}"#,
            r#"{"tag":"host","suffix":"-1"}"#,
            r#"{"tag":"host","fuzzy":"wbe-1","distance":2}"#,
            r#"{"attribute":"title","text":"backup store","distance":0}"#,
            r#"{"attribute":"title","phrase":"backup store","distance":1}"#,
            r#"{"attribute":"cores","gte":8.0,"lt":64.0}"#,
            r#"{"attribute":"site","near":{"lat":52.5,"lon":13.4,"meters":500.0}}"#,
            r#"{"attribute":"site","box":{"south":1.0,"west":2.0,"north":3.0,"east":4.0}}"#,
            r#"{"attribute":"site","polygon":[{"lat":1.0,"lon":2.0},{"lat":3.0,"lon":4.0}]}"#,
            r#"{"attribute":"site","equals":{"lat":1.0,"lon":2.0}}"#,
            r#"{"attribute":"bought","in":[{"time":"2026-11-20T12:00:00Z"}]}"#,
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
            (r#"{"tag":"a","gt":1,"gte":2}"#, "at most one bound on each side"),
            (r#"{"tag":"a","gt":1,"equals":"b"}"#, "exactly one test"),
            (r#"{"tag":"a","equals":"b","distance":1}"#, "distance belongs to"),
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
