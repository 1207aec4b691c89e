//! The condition tree, checked and compiled, and its evaluation on one timeline.
//!
//! This evaluation is the meaning of a condition: it serves fresh timelines and verifies candidates, and what
//! `segment` finds in the index must be the same.

use std::sync::Arc;

use tideline_model::{MemoryAccount, Ordinal, Reservation, TimeRange, TimelineId, Timestamp};
use tideline_pattern::{Pattern, PatternBudget};
use tideline_timeline_catalog::{AttributeRef, AttributeValue, Entry};

use crate::condition::{
    Condition, DEPTH_MAX, FUZZY_STATES_MAX, NODES_MAX, NumberRange, PATTERN_BYTES_MAX, STATE_BYTES, Subject,
    Test,
};
use crate::geo::Region;
use crate::text::{TextTest, regular_expression, say_all, wildcard};
use crate::{Result, SearchError};

/// A checked condition. Its compiled patterns are reserved from the memory account while any clone lives.
#[derive(Debug, Clone)]
pub struct Matcher {
    pub(crate) root: Node,
    _memory: Arc<Reservation>,
}

/// When the points of a timeline begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The time of the oldest point.
    pub first: Timestamp,
    /// The time of the newest point.
    pub last: Timestamp,
}

/// Serves a search with what the index does not hold: when timelines have points, and whether the search goes on.
/// Called for candidates only, in groups; no catalog lock is held then.
pub trait SeenLookup {
    /// One answer for each ordinal, in order; `None` where there is no point.
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>>;

    /// Whether the search should end, because its client has left or its time is over. Once true, it stays true. Checked
    /// after some thousand timelines or values, and before each pattern is compiled.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A node of the checked tree. Negated tests are `Not` of the test.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    All,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Text(TextSubject, TextTest),
    /// An attribute that is one of these, none of which is text or a list.
    Value(String, Vec<AttributeValue>),
    /// An attribute that is a number in the range.
    Number(String, NumberRange),
    /// An attribute that is a time in the range.
    Time(String, TimeRange),
    /// An attribute that is a place in the region.
    Within(String, Box<Region>),
    Exists(TextSubject),
    /// Sorted.
    Ids(Vec<TimelineId>),
    Seen(SeenSubject, TimeRange),
}

/// A subject that is text, and empty where it is missing.
#[derive(Debug, Clone)]
pub(crate) enum TextSubject {
    /// Everything that is text, asked for words only.
    Any,
    Measurement,
    Source,
    Tag(String),
    Attribute(String),
}

/// A property that says words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property<'a> {
    Measurement,
    Tag(&'a str),
    Attribute(&'a str),
}

/// One end of a timeline.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeenSubject {
    First,
    Last,
}

impl Matcher {
    /// Checks the limits of a condition, and compiles its patterns: at most a second's work, for a thread that may be busy
    /// for so long.
    pub fn new(condition: &Condition) -> Result<Self> {
        Self::compile(condition, &MemoryAccount::unlimited(), &|| false)
    }

    /// The same with patterns reserved from `memory`, until `is_stopped`.
    ///
    /// # Errors
    ///
    /// A limit that was passed, an account without room, [`SearchError::Stopped`].
    pub fn compile(
        condition: &Condition,
        memory: &MemoryAccount,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut size = Size {
            nodes: 0,
            states: 0,
            patterns: PatternBudget::default(),
            memory: memory.reserve("patterns of conditions", 0)?,
            is_stopped,
        };
        let root = compile(condition, 1, &mut size)?;
        Ok(Self {
            root,
            _memory: Arc::new(size.memory),
        })
    }

    /// Whether a timeline meets the condition. `seen` matters only where [`needs_seen`](Self::needs_seen).
    pub fn matches(&self, entry: &Entry<'_>, seen: Option<Seen>) -> bool {
        self.root.matches(entry, seen)
    }

    /// Whether the condition asks for the time of first or last points.
    pub fn needs_seen(&self) -> bool {
        self.root.needs_seen()
    }
}

impl Node {
    fn matches(&self, entry: &Entry<'_>, seen: Option<Seen>) -> bool {
        match self {
            Self::All => true,
            Self::And(nodes) => nodes.iter().all(|node| node.matches(entry, seen)),
            Self::Or(nodes) => nodes.iter().any(|node| node.matches(entry, seen)),
            Self::Not(node) => !node.matches(entry, seen),
            Self::Text(subject, test) => match subject.text(entry) {
                Found::Text(text) => test.matches(text),
                Found::Missing => test.matches(""),
                Found::Other(AttributeRef::Texts(texts)) => any_says(texts.iter(), test),
                Found::Other(_) => false,
                Found::All => any_says(texts_of(entry).map(|(_, text)| text), test),
            },
            Self::Value(key, values) => match entry.attribute(key) {
                Some(AttributeRef::Numbers(numbers)) => numbers
                    .iter()
                    .any(|number| values.contains(&AttributeValue::Number(number))),
                Some(AttributeRef::Text(_) | AttributeRef::Texts(_)) | None => false,
                Some(value) => values.contains(&value.to_value()),
            },
            Self::Number(key, range) => match entry.attribute(key) {
                Some(AttributeRef::Number(number)) => range.contains(number),
                Some(AttributeRef::Numbers(numbers)) => numbers.iter().any(|number| range.contains(number)),
                _ => false,
            },
            Self::Time(key, range) => {
                matches!(entry.attribute(key), Some(AttributeRef::Time(time)) if range.contains(time.nanos()))
            }
            Self::Within(key, region) => {
                matches!(entry.attribute(key), Some(AttributeRef::Point(point)) if region.contains(point))
            }
            Self::Exists(subject) => !matches!(subject.text(entry), Found::Missing),
            Self::Ids(ids) => ids.binary_search(&entry.id()).is_ok(),
            Self::Seen(subject, range) => seen.is_some_and(|seen| {
                let time = match subject {
                    SeenSubject::First => seen.first,
                    SeenSubject::Last => seen.last,
                };
                range.contains(time.nanos())
            }),
        }
    }

    fn needs_seen(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(Self::needs_seen),
            Self::Not(node) => node.needs_seen(),
            Self::Seen(..) => true,
            _ => false,
        }
    }

    /// Ids outside of which nothing can match, when the condition names them.
    pub(crate) fn required_ids(&self) -> Option<&[TimelineId]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::And(nodes) => nodes.iter().find_map(Self::required_ids),
            _ => None,
        }
    }
}

/// What a text subject is on one timeline.
enum Found<'a> {
    Text(&'a str),
    Missing,
    /// An attribute that is not one text.
    Other(AttributeRef<'a>),
    /// All texts of the timeline.
    All,
}

impl TextSubject {
    fn text<'a>(&self, entry: &Entry<'a>) -> Found<'a> {
        let text = match self {
            Self::Any => return Found::All,
            Self::Measurement => Some(entry.measurement()),
            Self::Source => entry.source(),
            Self::Tag(key) => entry.tag(key),
            Self::Attribute(key) => match entry.attribute(key) {
                Some(AttributeRef::Text(text)) => Some(text),
                Some(other) => return Found::Other(other),
                None => None,
            },
        };
        text.map_or(Found::Missing, Found::Text)
    }
}

/// Whether one of several texts passes; words may be said by different ones.
fn any_says<'a>(mut texts: impl Iterator<Item = &'a str>, test: &TextTest) -> bool {
    match test {
        TextTest::Words(asked) => say_all(asked, texts),
        test => texts.any(|text| test.matches(text)),
    }
}

/// Everything of a timeline that says words.
pub(crate) fn texts_of<'a>(entry: &Entry<'a>) -> impl Iterator<Item = (Property<'a>, &'a str)> + use<'a> {
    let measurement = std::iter::once((Property::Measurement, entry.measurement()));
    let tags = entry.tags().map(|(key, value)| (Property::Tag(key), value));
    let attributes = entry.attributes().flat_map(|(key, value)| {
        let (one, several) = match value {
            AttributeRef::Text(text) => (Some(text), None),
            AttributeRef::Texts(texts) => (None, Some(texts.iter())),
            _ => (None, None),
        };
        let texts = one.into_iter().chain(several.into_iter().flatten());
        texts.map(move |text| (Property::Attribute(key), text))
    });
    measurement.chain(tags).chain(attributes)
}

/// How large a condition is, in what has a limit.
pub(crate) struct Size<'a> {
    nodes: usize,
    /// States of the automata of fuzzy texts and words.
    states: usize,
    patterns: PatternBudget,
    memory: Reservation,
    is_stopped: &'a dyn Fn() -> bool,
}

impl Size<'_> {
    /// Takes a regular expression that is compiled next.
    pub(crate) fn take_pattern(&mut self, pattern: &Pattern) -> Result<()> {
        self.go_on()?;
        self.patterns.take(pattern.as_str(), pattern.bytes())?;
        Ok(self.memory.grow(pattern.bytes())?)
    }

    /// Takes the states of a fuzzy text or word.
    pub(crate) fn take_states(&mut self, states: usize) -> Result<()> {
        self.go_on()?;
        self.states += states;
        limit(
            "size of all fuzzy searches together, in states,",
            FUZZY_STATES_MAX,
            self.states,
        )?;
        Ok(self.memory.grow(states as u64 * STATE_BYTES)?)
    }

    fn go_on(&self) -> Result<()> {
        match (self.is_stopped)() {
            true => Err(SearchError::Stopped),
            false => Ok(()),
        }
    }
}

fn compile(condition: &Condition, depth: usize, size: &mut Size<'_>) -> Result<Node> {
    limit("depth of the condition", DEPTH_MAX, depth)?;
    count(size, 1)?;
    let mut all = |conditions: &[Condition]| -> Result<Vec<Node>> {
        // A wide list is refused before any of it is compiled.
        limit("number of conditions", NODES_MAX, conditions.len())?;
        let compiled = conditions
            .iter()
            .map(|condition| compile(condition, depth + 1, size));
        compiled.collect()
    };
    Ok(match condition {
        Condition::All => Node::All,
        Condition::And(conditions) => Node::And(all(conditions)?),
        Condition::Or(conditions) => Node::Or(all(conditions)?),
        Condition::Not(condition) => Node::Not(Box::new(compile(condition, depth + 1, size)?)),
        Condition::Leaf { subject, test } => leaf(subject, test, size)?,
    })
}

fn leaf(subject: &Subject, test: &Test, size: &mut Size<'_>) -> Result<Node> {
    let text_subject = match subject {
        Subject::Measurement => TextSubject::Measurement,
        Subject::Source => TextSubject::Source,
        Subject::Tag(key) => TextSubject::Tag(key.clone()),
        Subject::Attribute(key) => TextSubject::Attribute(key.clone()),
        Subject::Any => TextSubject::Any,
        Subject::Id => return id_leaf(test, size),
        Subject::FirstSeen => return seen_leaf(SeenSubject::First, subject, test),
        Subject::LastSeen => return seen_leaf(SeenSubject::Last, subject, test),
    };
    if matches!(text_subject, TextSubject::Any) && !matches!(test, Test::Words { .. }) {
        return Err(unsupported(subject, test));
    }
    let text = |test| Node::Text(text_subject.clone(), test);
    Ok(match test {
        Test::Equals(value) => one_of(subject, text_subject, std::slice::from_ref(value), test)?,
        Test::NotEquals(value) => {
            let equal = one_of(subject, text_subject, std::slice::from_ref(value), test)?;
            Node::Not(Box::new(equal))
        }
        Test::In(values) => {
            count(size, values.len())?;
            one_of(subject, text_subject, values, test)?
        }
        Test::Prefix(prefix) => {
            limit("bytes of a prefix", PATTERN_BYTES_MAX, prefix.len())?;
            text(TextTest::Prefix(prefix.clone()))
        }
        Test::Suffix(suffix) => {
            limit("bytes of a suffix", PATTERN_BYTES_MAX, suffix.len())?;
            text(TextTest::Suffix(suffix.clone()))
        }
        Test::Wildcard(pattern) => text(wildcard(pattern)?),
        Test::Regex(pattern) => text(regular_expression(pattern, size)?),
        Test::Fuzzy {
            text: close,
            distance,
        } => text(TextTest::close(close, *distance, size)?),
        Test::Words {
            text: words,
            distance,
            is_phrase,
        } => text(TextTest::words(words, *distance, *is_phrase, size)?),
        Test::Number(range) => match text_subject {
            TextSubject::Attribute(key) => Node::Number(key, *range),
            text_subject => Node::Text(text_subject, TextTest::Number(*range)),
        },
        Test::Exists => Node::Exists(text_subject),
        Test::TimeRange(range) => match text_subject {
            TextSubject::Attribute(key) => Node::Time(key, *range),
            _ => return Err(unsupported(subject, test)),
        },
        Test::Within(area) => match text_subject {
            TextSubject::Attribute(key) => Node::Within(key, Box::new(Region::new(area)?)),
            _ => return Err(unsupported(subject, test)),
        },
    })
}

/// The subject is one of `values`: texts as terms, what is no text beside them.
fn one_of(
    subject: &Subject,
    text_subject: TextSubject,
    values: &[AttributeValue],
    test: &Test,
) -> Result<Node> {
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for value in values {
        match value {
            AttributeValue::Text(text) => texts.push(text.clone()),
            AttributeValue::Texts(_) | AttributeValue::Numbers(_) => return Err(SearchError::List),
            other => others.push(other.clone()),
        }
    }
    texts.sort_unstable();
    texts.dedup();
    let texts = Node::Text(text_subject, TextTest::OneOf(texts));
    match subject {
        _ if others.is_empty() => Ok(texts),
        Subject::Attribute(key) => Ok(Node::Or(vec![texts, Node::Value(key.clone(), others)])),
        _ => Err(unsupported(subject, test)),
    }
}

fn id_leaf(test: &Test, size: &mut Size<'_>) -> Result<Node> {
    let parse = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => text.parse().map_err(|_| {
            let shown = text.chars().take(80).collect();
            SearchError::InvalidId(shown)
        }),
        _ => Err(unsupported(&Subject::Id, test)),
    };
    Ok(match test {
        Test::Equals(value) => Node::Ids(vec![parse(value)?]),
        Test::NotEquals(value) => Node::Not(Box::new(Node::Ids(vec![parse(value)?]))),
        Test::In(values) => {
            count(size, values.len())?;
            let mut ids = values.iter().map(parse).collect::<Result<Vec<_>>>()?;
            ids.sort_unstable();
            Node::Ids(ids)
        }
        _ => return Err(unsupported(&Subject::Id, test)),
    })
}

fn seen_leaf(seen: SeenSubject, subject: &Subject, test: &Test) -> Result<Node> {
    match test {
        Test::TimeRange(range) => Ok(Node::Seen(seen, *range)),
        _ => Err(unsupported(subject, test)),
    }
}

fn count(size: &mut Size<'_>, more: usize) -> Result<()> {
    size.nodes += more;
    limit("number of conditions and values", NODES_MAX, size.nodes)
}

pub(crate) fn limit(what: &'static str, limit: usize, actual: usize) -> Result<()> {
    if actual > limit {
        return Err(SearchError::OverLimit { what, limit, actual });
    }
    Ok(())
}

fn unsupported(subject: &Subject, test: &Test) -> SearchError {
    let test = match test {
        Test::Equals(_) | Test::NotEquals(_) | Test::In(_) => "equality with this kind of value",
        Test::Prefix(_) => "a prefix",
        Test::Wildcard(_) => "a wildcard pattern",
        Test::Suffix(_) => "a suffix",
        Test::Regex(_) => "a regular expression",
        Test::Fuzzy { .. } => "closeness",
        Test::Words { .. } => "words",
        Test::Number(_) => "a range of numbers",
        Test::Exists => "existence",
        Test::TimeRange(_) => "a time range",
        Test::Within(_) => "an area",
    };
    let subject = name_of(subject);
    SearchError::Unsupported { test, subject }
}

/// What messages call a subject.
pub(crate) fn name_of(subject: &Subject) -> String {
    match subject {
        Subject::Measurement => "the measurement".to_owned(),
        Subject::Source => "the source".to_owned(),
        Subject::Tag(key) => format!("tag {key:?}"),
        Subject::Attribute(key) => format!("attribute {key:?}"),
        Subject::Any => "all properties together".to_owned(),
        Subject::Id => "the timeline id".to_owned(),
        Subject::FirstSeen => "first seen".to_owned(),
        Subject::LastSeen => "last seen".to_owned(),
    }
}
