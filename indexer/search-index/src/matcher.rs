//! The condition tree, checked and compiled, and its evaluation on one timeline.
//!
//! This evaluation is the meaning of a condition: it serves fresh timelines and verifies candidates, and what
//! `segment` finds in the index must be the same.

use regex::bytes::{Regex, RegexBuilder};
use tideline_model::{Ordinal, TimeRange, TimelineId, Timestamp};
use tideline_timeline_catalog::{AttributeValue, Entry};

use crate::condition::{Condition, DEPTH_MAX, NODES_MAX, PATTERN_BYTES_MAX, REGEX_BYTES_MAX, Subject, Test};
use crate::{Result, SearchError};

/// A checked condition.
#[derive(Debug, Clone)]
pub struct Matcher {
    pub(crate) root: Node,
}

/// When the points of a timeline begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The time of the oldest point.
    pub first: Timestamp,
    /// The time of the newest point.
    pub last: Timestamp,
}

/// Tells when timelines have points. Asked for candidates only, in groups; no catalog lock is held then.
pub trait SeenLookup {
    /// One answer for each ordinal, in order; `None` where there is no point.
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>>;
}

/// A node of the checked tree. Negated tests are `Not` of the test.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    All,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Text(TextSubject, TextTest),
    /// An attribute that is one of these numbers or booleans.
    Value(String, Vec<AttributeValue>),
    Exists(TextSubject),
    /// Sorted.
    Ids(Vec<TimelineId>),
    Seen(SeenSubject, TimeRange),
}

/// A subject that is text, and empty where it is missing.
#[derive(Debug, Clone)]
pub(crate) enum TextSubject {
    Measurement,
    Source,
    Tag(String),
    Attribute(String),
}

/// A test of a text.
#[derive(Debug, Clone)]
pub(crate) enum TextTest {
    /// Sorted, without repetition.
    OneOf(Vec<String>),
    Prefix(String),
    /// The whole text fits; every text that does begins with `prefix`.
    Pattern {
        regex: Regex,
        prefix: String,
    },
}

/// One end of a timeline.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeenSubject {
    First,
    Last,
}

impl Matcher {
    /// Checks the limits of a condition, and compiles its patterns.
    pub fn new(condition: &Condition) -> Result<Self> {
        let mut nodes = 0;
        let root = compile(condition, 1, &mut nodes)?;
        Ok(Self { root })
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
                Found::NoText => false,
            },
            Self::Value(key, values) => {
                let value = entry.attributes().and_then(|attributes| attributes.get(key));
                value.is_some_and(|value| values.contains(value))
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
    /// An attribute that is a number or boolean.
    NoText,
}

impl TextSubject {
    fn text<'a>(&self, entry: &Entry<'a>) -> Found<'a> {
        let text = match self {
            Self::Measurement => Some(entry.measurement()),
            Self::Source => entry.source(),
            Self::Tag(key) => entry.tag(key),
            Self::Attribute(key) => match entry.attributes().and_then(|attributes| attributes.get(key)) {
                Some(AttributeValue::Text(text)) => Some(text.as_str()),
                Some(_) => return Found::NoText,
                None => None,
            },
        };
        text.map_or(Found::Missing, Found::Text)
    }
}

impl TextTest {
    /// Whether a text passes.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.matches_bytes(text.as_bytes())
    }

    /// As `matches`, for the bytes of a text.
    pub(crate) fn matches_bytes(&self, text: &[u8]) -> bool {
        match self {
            Self::OneOf(values) => values
                .binary_search_by(|value| value.as_bytes().cmp(text))
                .is_ok(),
            Self::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
            Self::Pattern { regex, prefix } => text.starts_with(prefix.as_bytes()) && regex.is_match(text),
        }
    }
}

fn compile(condition: &Condition, depth: usize, nodes: &mut usize) -> Result<Node> {
    limit("depth of the condition", DEPTH_MAX, depth)?;
    count(nodes, 1)?;
    let mut all = |conditions: &[Condition]| -> Result<Vec<Node>> {
        // A wide list is refused before any of it is compiled.
        limit("number of conditions", NODES_MAX, conditions.len())?;
        let compiled = conditions
            .iter()
            .map(|condition| compile(condition, depth + 1, nodes));
        compiled.collect()
    };
    Ok(match condition {
        Condition::All => Node::All,
        Condition::And(conditions) => Node::And(all(conditions)?),
        Condition::Or(conditions) => Node::Or(all(conditions)?),
        Condition::Not(condition) => Node::Not(Box::new(compile(condition, depth + 1, nodes)?)),
        Condition::Leaf { subject, test } => leaf(subject, test, nodes)?,
    })
}

fn leaf(subject: &Subject, test: &Test, nodes: &mut usize) -> Result<Node> {
    let text_subject = match subject {
        Subject::Measurement => TextSubject::Measurement,
        Subject::Source => TextSubject::Source,
        Subject::Tag(key) => TextSubject::Tag(key.clone()),
        Subject::Attribute(key) => TextSubject::Attribute(key.clone()),
        Subject::Id => return id_leaf(test, nodes),
        Subject::FirstSeen => return seen_leaf(SeenSubject::First, subject, test),
        Subject::LastSeen => return seen_leaf(SeenSubject::Last, subject, test),
    };
    let text = |test| Node::Text(text_subject.clone(), test);
    Ok(match test {
        Test::Equals(value) => one_of(subject, text_subject, std::slice::from_ref(value), test)?,
        Test::NotEquals(value) => {
            let equal = one_of(subject, text_subject, std::slice::from_ref(value), test)?;
            Node::Not(Box::new(equal))
        }
        Test::In(values) => {
            count(nodes, values.len())?;
            one_of(subject, text_subject, values, test)?
        }
        Test::Prefix(prefix) => {
            limit("bytes of a prefix", PATTERN_BYTES_MAX, prefix.len())?;
            text(TextTest::Prefix(prefix.clone()))
        }
        Test::Wildcard(pattern) => text(wildcard(pattern)?),
        Test::Regex(pattern) => text(regular_expression(pattern)?),
        Test::Exists => Node::Exists(text_subject),
        Test::TimeRange(_) => return Err(unsupported(subject, test)),
    })
}

/// The subject is one of `values`: texts as terms, numbers and booleans beside them.
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

fn id_leaf(test: &Test, nodes: &mut usize) -> Result<Node> {
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
            count(nodes, values.len())?;
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

fn wildcard(pattern: &str) -> Result<TextTest> {
    limit("bytes of a wildcard pattern", PATTERN_BYTES_MAX, pattern.len())?;
    let prefix = pattern.split(['*', '?']).next().unwrap_or_default();
    let mut expression = String::new();
    for part in pattern.split_inclusive(['*', '?']) {
        match part.strip_suffix(['*', '?']) {
            Some(literal) => {
                expression.push_str(&regex::escape(literal));
                expression.push_str(if part.ends_with('*') { ".*" } else { "." });
            }
            None => expression.push_str(&regex::escape(part)),
        }
    }
    whole(&expression, prefix.to_owned())
}

fn regular_expression(pattern: &str) -> Result<TextTest> {
    limit("bytes of a regular expression", PATTERN_BYTES_MAX, pattern.len())?;
    let is_plain = |c: char| c.is_alphanumeric() || "_-:/ @,;=%~\"'!<>".contains(c);
    if pattern.chars().all(|c| is_plain(c) || c == '|') {
        // Dashboards spell lists like this; terms are found faster than patterns.
        let mut values: Vec<String> = pattern.split('|').map(str::to_owned).collect();
        values.sort_unstable();
        values.dedup();
        return Ok(TextTest::OneOf(values));
    }
    let mut prefix = String::new();
    if !pattern.contains('|') {
        let rest = pattern.trim_start_matches(is_plain);
        prefix.push_str(&pattern[..pattern.len() - rest.len()]);
        if rest.starts_with(['*', '?', '{']) {
            // The last character is repeated, perhaps zero times.
            prefix.pop();
        }
    }
    whole(pattern, prefix)
}

/// A regular expression that must take the whole text.
fn whole(expression: &str, prefix: String) -> Result<TextTest> {
    // Alone first: an unbalanced bracket must not pair with one of the frame.
    build(expression)?;
    let regex = build(&format!(r"\A(?:{expression})\z"))?;
    Ok(TextTest::Pattern { regex, prefix })
}

fn build(expression: &str) -> Result<Regex> {
    let built = RegexBuilder::new(expression)
        .dot_matches_new_line(true)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => SearchError::OverLimit {
            what: "bytes of a compiled regular expression",
            limit,
            actual: limit + 1,
        },
        other => SearchError::InvalidRegex(Box::new(other)),
    })
}

fn count(nodes: &mut usize, more: usize) -> Result<()> {
    *nodes += more;
    limit("number of conditions and values", NODES_MAX, *nodes)
}

fn limit(what: &'static str, limit: usize, actual: usize) -> Result<()> {
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
        Test::Regex(_) => "a regular expression",
        Test::Exists => "existence",
        Test::TimeRange(_) => "a time range",
    };
    let subject = match subject {
        Subject::Measurement => "the measurement".to_owned(),
        Subject::Source => "the source".to_owned(),
        Subject::Tag(key) => format!("tag {key:?}"),
        Subject::Attribute(key) => format!("attribute {key:?}"),
        Subject::Id => "the timeline id".to_owned(),
        Subject::FirstSeen => "first seen".to_owned(),
        Subject::LastSeen => "last seen".to_owned(),
    };
    SearchError::Unsupported { test, subject }
}
