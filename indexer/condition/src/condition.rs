//! The condition tree as supplied by a caller, and the limits of conditions.
//!
//! [`crate::Matcher::new`] enforces the limits. They bound the memory and time that a single request can consume.

use serde::{Deserialize, Serialize};
use tideline_model::Timestamp;

use crate::literal::Literal;
use crate::operators::{Equals, Test};

/// Maximum nesting of a tree; a leaf has depth 1.
pub const DEPTH_MAX: usize = 64;
/// Maximum number of nodes of a tree. Each value of an `In` counts as one node.
pub const NODES_MAX: usize = 10_000;
/// Maximum length of a prefix, suffix, wildcard pattern, regular expression or text search, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Maximum number of words of a text search. Does not apply to analyzers that split words into grams.
pub const WORDS_MAX: usize = 32;
/// Maximum number of edits of a fuzzy search, per text or word.
pub const DISTANCE_MAX: u8 = 2;
/// Maximum length of a text or word of a fuzzy search, in bytes. With two edits, 96 one-byte characters result in an
/// automaton of 2,679 states, and 24 distinct four-byte characters in one of 10,257.
pub const FUZZY_BYTES_MAX: usize = 96;
/// Maximum number of states of all automata of a condition. A state takes [`STATE_BYTES`].
pub const FUZZY_STATES_MAX: usize = 16_384;
/// Size of an automaton state in bytes: one transition per byte value.
pub const STATE_BYTES: u64 = 1_024;
/// Maximum estimated size of one automaton of a regular expression, in bytes. All expressions of a condition together
/// may take [`tideline_pattern::REQUEST_BYTES_MAX`].
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Selection of records: timelines, points by their values, or rows. [`crate::Matcher::new`] checks it.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Condition {
    /// Matches every record. Its JSON form is an empty `and`.
    #[default]
    All,
    /// Matches records that match all conditions; an empty list matches every record.
    And(Vec<Condition>),
    /// Matches records that match at least one condition; an empty list matches no record.
    Or(Vec<Condition>),
    /// Matches records that do not match the condition.
    Not(Box<Condition>),
    /// The saved search with this name. It must be expanded before evaluation.
    Saved(String),
    /// Matches records whose subject passes the test.
    Leaf {
        /// Tested subject.
        subject: Subject,
        /// Applied test.
        test: Test,
    },
}

/// A named property of a record. A missing source, tag or attribute equals the empty text. A missing field or column
/// passes neither an equality nor an inequality test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The measurement.
    Measurement,
    /// The machine: the value of the first source tag that is present.
    Source,
    /// The value of a tag.
    Tag(String),
    /// The value of an attribute.
    Attribute(String),
    /// Measurement, tags and text attributes together; supports only words and phrases. Words may be spread over
    /// several properties; a phrase must be within one property.
    Any,
    /// Timeline id as 32 hexadecimal digits; supports only `Equals`, `NotEquals` and `In`.
    Id,
    /// Time of the oldest point; supports only `Within`.
    FirstSeen,
    /// Time of the newest point; supports only `Within`.
    LastSeen,
    /// Value of a field of a point.
    Field(String),
    /// Value of a column of a row. A list has several values. Timestamps of declared columns are
    /// [`Signed`](crate::ValueRef::Signed) nanoseconds.
    Column(String),
}

/// Property that every timeline has, named as in JSON. The command line accepts the same names, except `any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// [`Subject::Measurement`].
    Measurement,
    /// [`Subject::Source`].
    Source,
    /// [`Subject::Any`].
    Any,
    /// [`Subject::Id`].
    Id,
    /// [`Subject::FirstSeen`].
    FirstSeen,
    /// [`Subject::LastSeen`].
    LastSeen,
}

impl Condition {
    /// Creates a leaf.
    pub fn leaf(subject: Subject, test: impl Into<Test>) -> Self {
        let test = test.into();
        Self::Leaf { subject, test }
    }

    /// Creates the condition that the tag `key` has the value `value`.
    pub fn tag(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::leaf(Subject::Tag(key.into()), Equals(Literal::Text(value.into())))
    }

    /// Replaces times that are relative to `now` with absolute times.
    #[must_use]
    pub fn resolve(mut self, now: Timestamp) -> Self {
        self.resolve_in_place(now);
        self
    }

    fn resolve_in_place(&mut self, now: Timestamp) {
        match self {
            Self::All | Self::Saved(_) => {}
            Self::And(conditions) | Self::Or(conditions) => {
                conditions
                    .iter_mut()
                    .for_each(|inner| inner.resolve_in_place(now));
            }
            Self::Not(inner) => inner.resolve_in_place(now),
            Self::Leaf { test, .. } => test.resolve(now),
        }
    }

    /// Returns true if the condition contains a saved search.
    pub fn uses_saved(&self) -> bool {
        match self {
            Self::And(conditions) | Self::Or(conditions) => conditions.iter().any(Self::uses_saved),
            Self::Not(inner) => inner.uses_saved(),
            Self::Saved(_) => true,
            Self::All | Self::Leaf { .. } => false,
        }
    }
}

impl Subject {
    /// Returns the name of the subject in messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Measurement => "the measurement".to_owned(),
            Self::Source => "the source".to_owned(),
            Self::Tag(key) => format!("tag {key:?}"),
            Self::Attribute(key) => format!("attribute {key:?}"),
            Self::Any => "all properties together".to_owned(),
            Self::Id => "the timeline id".to_owned(),
            Self::FirstSeen => "first seen".to_owned(),
            Self::LastSeen => "last seen".to_owned(),
            Self::Field(name) => format!("field {name:?}"),
            Self::Column(name) => format!("column {name:?}"),
        }
    }

    /// Returns the property of the subject; `None` for tags, attributes, fields and columns.
    pub fn property(&self) -> Option<Property> {
        match self {
            Self::Measurement => Some(Property::Measurement),
            Self::Source => Some(Property::Source),
            Self::Any => Some(Property::Any),
            Self::Id => Some(Property::Id),
            Self::FirstSeen => Some(Property::FirstSeen),
            Self::LastSeen => Some(Property::LastSeen),
            Self::Tag(_) | Self::Attribute(_) | Self::Field(_) | Self::Column(_) => None,
        }
    }

    /// Returns true if all text tests can be applied to the subject.
    pub(crate) fn is_text(&self) -> bool {
        matches!(
            self,
            Self::Measurement | Self::Source | Self::Tag(_) | Self::Attribute(_) | Self::Column(_)
        )
    }
}

impl From<Property> for Subject {
    fn from(property: Property) -> Self {
        match property {
            Property::Measurement => Self::Measurement,
            Property::Source => Self::Source,
            Property::Any => Self::Any,
            Property::Id => Self::Id,
            Property::FirstSeen => Self::FirstSeen,
            Property::LastSeen => Self::LastSeen,
        }
    }
}
