//! The condition tree, as a caller states it.

use std::ops::Bound;

use tideline_model::TimeRange;
use tideline_timeline_catalog::AttributeValue;

use crate::geo::Area;

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

/// Which timelines are meant. [`crate::Matcher::new`] checks it.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Condition {
    /// Every timeline.
    #[default]
    All,
    /// Those that meet all; an empty list means every timeline.
    And(Vec<Condition>),
    /// Those that meet at least one; an empty list means none.
    Or(Vec<Condition>),
    /// Those that do not meet it.
    Not(Box<Condition>),
    /// Those whose subject passes the test.
    Leaf {
        /// What is looked at.
        subject: Subject,
        /// What must hold.
        test: Test,
    },
}

/// A property of a timeline. A missing source, tag or attribute equals the empty text.
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
    /// Measurement, tags and attributes that are text, all together: `Words` only. Words may be said by different ones, a
    /// phrase by one.
    Any,
    /// The timeline id, as 32 hexadecimal digits: `Equals`, `NotEquals` and `In` only.
    Id,
    /// The time of the oldest point: `TimeRange` only.
    FirstSeen,
    /// The time of the newest point: `TimeRange` only.
    LastSeen,
}

/// What must hold of a subject; of a list, what must hold of one of its values. Texts are compared byte by byte.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// It is this value, or a list that holds it. What is not text is for attributes; one of another type is not equal.
    /// Lists cannot be asked for as a whole.
    Equals(AttributeValue),
    /// It is not this value.
    NotEquals(AttributeValue),
    /// It is one of these.
    In(Vec<AttributeValue>),
    /// It begins with this.
    Prefix(String),
    /// It ends with this.
    Suffix(String),
    /// All of it fits the pattern: `*` stands for any text, `?` for any one character.
    Wildcard(String),
    /// All of it fits the regular expression (syntax of the `regex` crate; a dot also takes a line break).
    Regex(String),
    /// It is not empty, and few edits make it of `text`: characters inserted, removed or replaced, or neighbours swapped.
    Fuzzy {
        /// What it is close to.
        text: String,
        /// Most edits, at most [`DISTANCE_MAX`].
        distance: u8,
    },
    /// It says all the words of `text`. Words are letters and digits without a break; capital or small is the same. The
    /// texts of a list say words together, and a phrase alone.
    Words {
        /// The words.
        text: String,
        /// Most edits in each, at most [`DISTANCE_MAX`].
        distance: u8,
        /// Whether they must follow each other in this order.
        is_phrase: bool,
    },
    /// It is a number in the range: an attribute that is a number, or another text that reads as one.
    Number(NumberRange),
    /// It is there.
    Exists,
    /// It lies in the range: first or last seen, or an attribute that is a time. A timeline without points lies in none.
    TimeRange(TimeRange),
    /// It is a place in the area: an attribute that is a geo point.
    Within(Area),
}

/// A range of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRange {
    /// Where it begins.
    pub low: Bound<f64>,
    /// Where it ends.
    pub high: Bound<f64>,
}

impl Condition {
    /// A leaf.
    pub fn leaf(subject: Subject, test: Test) -> Self {
        Self::Leaf { subject, test }
    }

    /// The tag `key` has the value `value`.
    pub fn tag(key: impl Into<String>, value: impl Into<String>) -> Self {
        let equals = Test::Equals(AttributeValue::Text(value.into()));
        Self::leaf(Subject::Tag(key.into()), equals)
    }
}
