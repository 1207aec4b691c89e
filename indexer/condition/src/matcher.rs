//! The checked and compiled condition tree, and its evaluation on one record.
//!
//! This evaluation defines the meaning of a condition. Other evaluators of the compiled tree, such as an index or a
//! column filter, must produce the same result.

use std::sync::Arc;

use tideline_model::{SearchAnalyzer, TimeRange, TimelineId};
use tideline_pattern::{Pattern, PatternBudget};
use tideline_runtime::{MemoryAccount, Reservation};

use crate::condition::{Condition, DEPTH_MAX, FUZZY_STATES_MAX, NODES_MAX, STATE_BYTES, Subject};
use crate::error::limit;
use crate::geo::Region;
use crate::intervals::Intervals;
use crate::literal::Literal;
use crate::operators::{NumberRange, Test};
use crate::record::{Record, ValueRef};
use crate::text::TextTest;
use crate::{ConditionError, Result};

/// A checked condition. Memory for its compiled patterns stays reserved in the memory account until the last clone is
/// dropped.
///
/// # Examples
///
/// ```
/// use tideline_condition::record::{Record, ValueRef};
/// use tideline_condition::{Domain, Matcher, Subject, command_line};
///
/// /// A point with one field.
/// struct Usage(f64);
///
/// impl Record for Usage {
///     fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
///         *subject == Subject::Field("usage".to_owned()) && take(ValueRef::Float(self.0))
///     }
/// }
///
/// let condition = command_line::parse(Domain::Values, "usage>90")?;
/// let matcher = Matcher::new(&condition)?;
/// assert!(matcher.matches(&Usage(95.5)));
/// assert!(!matcher.matches(&Usage(90.0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Matcher {
    root: Node,
    memory: Arc<Reservation>,
}

/// A node of the compiled tree.
#[derive(Debug, Clone)]
pub enum Node {
    /// Matches every record.
    All,
    /// Matches if all nodes match.
    And(Vec<Node>),
    /// Matches if at least one node matches.
    Or(Vec<Node>),
    /// Matches if the node does not match.
    Not(Box<Node>),
    /// Matches if one of the texts passes; a test for words matches if all texts together contain the words. A missing
    /// subject counts as the empty text; a missing column never passes.
    Text(Subject, TextTest),
    /// Matches if one of the values equals a literal; the literals are neither texts nor lists.
    OneOf(Subject, Vec<Literal>),
    /// Matches if one of the values is a double in the range.
    Number(Subject, NumberRange),
    /// Matches if one of the values is a time in the range.
    Time(Subject, TimeRange),
    /// Matches if one of the values is a geo point in the region.
    Area(Subject, Box<Region>),
    /// Matches if the subject has a value.
    Exists(Subject),
    /// Matches if the timeline id is in the list, which is sorted.
    Ids(Vec<TimelineId>),
    /// Matches if one of the values is in an interval or, with `is_outside`, if one of the values is in no interval.
    Intervals {
        /// Tested subject.
        subject: Subject,
        /// Intervals of values.
        intervals: Intervals,
        /// True if values outside the intervals pass instead.
        is_outside: bool,
    },
}

impl Matcher {
    /// Checks the limits of a condition and compiles its patterns without a memory account. Takes up to a second, so
    /// do not call this on an async thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`compile`](Self::compile), except [`ConditionError::Memory`] and
    /// [`ConditionError::Stopped`].
    pub fn new(condition: &Condition) -> Result<Self> {
        Self::compile(condition, &MemoryAccount::unlimited(), &|| false)
    }

    /// Checks a condition and compiles its patterns. Reserves the memory of the patterns from `memory`, and stops when
    /// `is_stopped` returns true.
    ///
    /// # Errors
    ///
    /// [`ConditionError::OverLimit`] or [`ConditionError::Pattern`] if a limit is exceeded,
    /// [`ConditionError::Memory`] if no memory is left, [`ConditionError::Stopped`] if stopped, and the error of any
    /// invalid test.
    pub fn compile(
        condition: &Condition,
        memory: &MemoryAccount,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        Self::compile_analyzed(condition, &|_| SearchAnalyzer::Words, memory, is_stopped)
    }

    /// Compiles a condition like [`compile`](Self::compile). `analyzer_of` returns the analyzer of the texts of a
    /// subject.
    ///
    /// # Errors
    ///
    /// The errors of [`compile`](Self::compile).
    pub fn compile_analyzed(
        condition: &Condition,
        analyzer_of: &dyn Fn(&Subject) -> SearchAnalyzer,
        memory: &MemoryAccount,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut compiler = Compiler {
            analyzer_of,
            nodes: 0,
            states: 0,
            patterns: PatternBudget::default(),
            memory: memory.reserve("patterns of conditions", 0)?,
            is_stopped,
        };
        let root = compiler.node(condition, 1)?;
        Ok(Self {
            root,
            memory: Arc::new(compiler.memory),
        })
    }

    /// Returns the reserved memory of the compiled patterns, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Returns the compiled tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Returns true if a record matches. Reads the times of the first and last points only if
    /// [`needs_seen`](Self::needs_seen) returns true.
    pub fn matches(&self, record: &impl Record) -> bool {
        self.root.matches(record)
    }

    /// Returns true if the condition tests the time of the first or last point.
    pub fn needs_seen(&self) -> bool {
        self.root.needs_seen()
    }
}

impl Node {
    /// Returns true if a record matches.
    pub fn matches(&self, record: &impl Record) -> bool {
        match self {
            Self::All => true,
            Self::And(nodes) => nodes.iter().all(|node| node.matches(record)),
            Self::Or(nodes) => nodes.iter().any(|node| node.matches(record)),
            Self::Not(node) => !node.matches(record),
            Self::Text(subject, test) => has_text(record, subject, test),
            Self::OneOf(subject, literals) => {
                record.any_value(subject, |value| literals.iter().any(|literal| value.is(literal)))
            }
            Self::Number(subject, range) => record.any_value(
                subject,
                |value| matches!(value, ValueRef::Float(number) if range.contains(number)),
            ),
            Self::Time(subject, range) => record.any_value(
                subject,
                |value| matches!(value, ValueRef::Time(time) if range.contains(time.nanos())),
            ),
            Self::Area(subject, region) => record.any_value(
                subject,
                |value| matches!(value, ValueRef::Point(point) if region.contains(point)),
            ),
            Self::Exists(subject) => record.any_value(subject, |_| true),
            Self::Ids(ids) => record.any_value(
                &Subject::Id,
                |value| matches!(value, ValueRef::Id(id) if ids.binary_search(&id).is_ok()),
            ),
            Self::Intervals {
                subject,
                intervals,
                is_outside,
            } => record.any_value(subject, |value| intervals.has(value) != *is_outside),
        }
    }

    /// Returns true if the node tests the time of the first or last point.
    pub fn needs_seen(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(Self::needs_seen),
            Self::Not(node) => node.needs_seen(),
            Self::Time(subject, _) => matches!(subject, Subject::FirstSeen | Subject::LastSeen),
            _ => false,
        }
    }

    /// Returns a list of ids that includes every matching timeline. `None` if the root is neither a list of ids nor
    /// an `And` that contains one, directly or in a nested `And`.
    pub fn required_ids(&self) -> Option<&[TimelineId]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::And(nodes) => nodes.iter().find_map(Self::required_ids),
            _ => None,
        }
    }
}

/// Returns true if one of the texts of a subject passes. For a test for words, all texts together must contain the
/// words. A missing subject is the empty text; a missing column does not pass.
fn has_text(record: &impl Record, subject: &Subject, test: &TextTest) -> bool {
    let mut is_missing = true;
    let passes = match test {
        TextTest::Words(query) => {
            let mut missing = query.iter().collect();
            record.any_value(subject, |value| {
                is_missing = false;
                matches!(value, ValueRef::Text(text) if query.remove(&mut missing, text))
            })
        }
        test => record.any_value(subject, |value| {
            is_missing = false;
            matches!(value, ValueRef::Text(text) if test.matches(text))
        }),
    };
    let is_empty_text = is_missing && !matches!(subject, Subject::Column(_));
    passes || is_empty_text && test.matches("")
}

/// Compiler of a condition; enforces the limits on nodes, automaton states and patterns.
pub struct Compiler<'a> {
    analyzer_of: &'a dyn Fn(&Subject) -> SearchAnalyzer,
    nodes: usize,
    /// Automaton states of fuzzy texts and words.
    states: usize,
    patterns: PatternBudget,
    memory: Reservation,
    is_stopped: &'a dyn Fn() -> bool,
}

impl Compiler<'_> {
    fn node(&mut self, condition: &Condition, depth: usize) -> Result<Node> {
        limit("depth of the condition", DEPTH_MAX, depth)?;
        self.count(1)?;
        let mut all = |conditions: &[Condition]| -> Result<Vec<Node>> {
            // A wide list is rejected before any part of it is compiled.
            limit("number of conditions", NODES_MAX, conditions.len())?;
            let compiled = conditions.iter().map(|inner| self.node(inner, depth + 1));
            compiled.collect()
        };
        Ok(match condition {
            Condition::All => Node::All,
            Condition::And(conditions) => Node::And(all(conditions)?),
            Condition::Or(conditions) => Node::Or(all(conditions)?),
            Condition::Not(inner) => Node::Not(Box::new(self.node(inner, depth + 1)?)),
            Condition::Saved(name) => return Err(ConditionError::Saved(name.clone())),
            Condition::Leaf { subject, test } => self.leaf(subject, test)?,
        })
    }

    fn leaf(&mut self, subject: &Subject, test: &Test) -> Result<Node> {
        test.compile(subject, self)?
            .ok_or_else(|| ConditionError::Unsupported {
                test: test.described(),
                subject: subject.describe(),
            })
    }

    /// Returns the analyzer of the texts of a subject.
    pub(crate) fn analyzer_of(&self, subject: &Subject) -> SearchAnalyzer {
        (self.analyzer_of)(subject)
    }

    /// Adds to the number of nodes and values.
    pub(crate) fn count(&mut self, more: usize) -> Result<()> {
        self.nodes += more;
        limit("number of conditions and values", NODES_MAX, self.nodes)
    }

    /// Accounts for a regular expression before it is compiled.
    pub(crate) fn take_pattern(&mut self, pattern: &Pattern) -> Result<()> {
        self.go_on()?;
        self.patterns.take(pattern.as_str(), pattern.bytes())?;
        Ok(self.memory.grow(pattern.bytes())?)
    }

    /// Accounts for the automaton states of a fuzzy text or word.
    pub(crate) fn take_states(&mut self, states: usize) -> Result<()> {
        self.go_on()?;
        self.states += states;
        limit(
            "number of automaton states of all fuzzy searches",
            FUZZY_STATES_MAX,
            self.states,
        )?;
        Ok(self.memory.grow(states as u64 * STATE_BYTES)?)
    }

    fn go_on(&self) -> Result<()> {
        match (self.is_stopped)() {
            true => Err(ConditionError::Stopped),
            false => Ok(()),
        }
    }
}
