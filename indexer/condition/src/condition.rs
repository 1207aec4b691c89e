//! The condition tree, as a caller states it.

use serde::{Deserialize, Serialize};
use tideline_model::Timestamp;

use crate::literal::Literal;
use crate::operators::{Equals, Test};

/// Deepest nesting of a tree; a leaf has depth 1.
pub const DEPTH_MAX: usize = 64;
/// Most nodes of a tree, each value of an `In` counted as one.
pub const NODES_MAX: usize = 10_000;
/// Longest prefix, wildcard or regular expression, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Most words of a text search.
pub const WORDS_MAX: usize = 32;
/// Most edits of a fuzzy search.
pub const DISTANCE_MAX: u8 = 2;
/// Longest text or word of a fuzzy search, in bytes. With two edits, 96 letters of one byte make an automaton of 2,679
/// states, and 24 different ones of four bytes one of 10,257.
pub const FUZZY_BYTES_MAX: usize = 96;
/// Most states of all automata of a condition, each of [`STATE_BYTES`].
pub const FUZZY_STATES_MAX: usize = 16_384;
/// Bytes of a state: where each byte of a text leads.
pub const STATE_BYTES: u64 = 1_024;
/// Most memory that a compiled regular expression may take, in bytes; it is estimated before. All of a condition together
/// may take [`tideline_pattern::REQUEST_BYTES_MAX`].
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Selects records: timelines, or points by their values. [`crate::Matcher::new`] checks it.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Condition {
    /// Every record. JSON has no form of its own for it and writes an empty `and`.
    #[default]
    All,
    /// Records that match all; an empty list selects every record.
    And(Vec<Condition>),
    /// Records that match at least one; an empty list selects none.
    Or(Vec<Condition>),
    /// Records that do not match it.
    Not(Box<Condition>),
    /// The saved search of this name, which has to be expanded before evaluation.
    Saved(String),
    /// Records whose subject passes the test.
    Leaf {
        /// The subject.
        subject: Subject,
        /// The test.
        test: Test,
    },
}

/// A named property of a record. A missing source, tag or attribute equals the empty text; a missing field equals
/// nothing and differs from nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The measurement.
    Measurement,
    /// The machine: the value of the first source tag present.
    Source,
    /// The value of a tag.
    Tag(String),
    /// The value of an attribute.
    Attribute(String),
    /// Measurement, tags and attributes that are text, all together: words and phrases only. Words may be said by different
    /// ones, a phrase by one.
    Any,
    /// The timeline id, as 32 hexadecimal digits: `Equals`, `NotEquals` and `In` only.
    Id,
    /// The time of the oldest point: `Within` only.
    FirstSeen,
    /// The time of the newest point: `Within` only.
    LastSeen,
    /// The value of a field of a point.
    Field(String),
}

/// A property that every timeline has, by its name in JSON and on the command line.
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
    /// Returns a leaf.
    pub fn leaf(subject: Subject, test: impl Into<Test>) -> Self {
        let test = test.into();
        Self::Leaf { subject, test }
    }

    /// Returns the condition that the tag `key` has the value `value`.
    pub fn tag(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::leaf(Subject::Tag(key.into()), Equals(Literal::Text(value.into())))
    }

    /// Resolves times that are relative to `now`.
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

    /// Whether it uses a saved search.
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
        }
    }

    /// Returns the property, where it is one that every timeline has.
    pub fn property(&self) -> Option<Property> {
        match self {
            Self::Measurement => Some(Property::Measurement),
            Self::Source => Some(Property::Source),
            Self::Any => Some(Property::Any),
            Self::Id => Some(Property::Id),
            Self::FirstSeen => Some(Property::FirstSeen),
            Self::LastSeen => Some(Property::LastSeen),
            Self::Tag(_) | Self::Attribute(_) | Self::Field(_) => None,
        }
    }

    /// Whether it is a text on which any test of a text may be used.
    pub(crate) fn is_text(&self) -> bool {
        matches!(
            self,
            Self::Measurement | Self::Source | Self::Tag(_) | Self::Attribute(_)
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
