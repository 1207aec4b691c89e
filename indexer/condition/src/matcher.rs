//! The condition tree, checked and compiled, and its evaluation on one record.
//!
//! This evaluation is the meaning of a condition. Whatever else evaluates the compiled tree, an index or a filter of
//! columns, must agree with it.

use std::sync::Arc;

use tideline_model::{TimeRange, TimelineId};
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

/// A checked condition. Its compiled patterns are reserved from the memory account while any clone lives.
#[derive(Debug, Clone)]
pub struct Matcher {
    root: Node,
    _memory: Arc<Reservation>,
}

/// A node of the compiled tree.
#[derive(Debug, Clone)]
pub enum Node {
    /// Matches every record.
    All,
    /// Matches where all nodes do.
    And(Vec<Node>),
    /// Matches where one node does.
    Or(Vec<Node>),
    /// Matches where the node does not.
    Not(Box<Node>),
    /// One of the texts passes; a missing subject is the empty text.
    Text(Subject, TextTest),
    /// One of the values is one of these, none of which is text or a list.
    OneOf(Subject, Vec<Literal>),
    /// One of the values is a double in the range.
    Number(Subject, NumberRange),
    /// One of the values is a time in the range.
    Time(Subject, TimeRange),
    /// One of the values is a geo point in the region.
    Area(Subject, Box<Region>),
    /// There is a value.
    Exists(Subject),
    /// The timeline id is one of these, in rising order.
    Ids(Vec<TimelineId>),
    /// One of the values lies in the intervals, or outside of all.
    Intervals {
        /// The subject.
        subject: Subject,
        /// The intervals.
        intervals: Intervals,
        /// Whether values outside pass instead.
        is_outside: bool,
    },
}

impl Matcher {
    /// Checks the limits of a condition, and compiles its patterns: at most a second's work, for a thread that may be busy
    /// for so long.
    pub fn new(condition: &Condition) -> Result<Self> {
        Self::compile(condition, &MemoryAccount::unlimited(), &|| false)
    }

    /// Compiles with patterns reserved from `memory`, until `is_stopped`.
    ///
    /// # Errors
    ///
    /// A limit that was passed, an account without room, [`ConditionError::Stopped`], and whatever a test refuses.
    pub fn compile(
        condition: &Condition,
        memory: &MemoryAccount,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut compiler = Compiler {
            nodes: 0,
            states: 0,
            patterns: PatternBudget::default(),
            memory: memory.reserve("patterns of conditions", 0)?,
            is_stopped,
        };
        let root = compiler.node(condition, 1)?;
        Ok(Self {
            root,
            _memory: Arc::new(compiler.memory),
        })
    }

    /// Returns the compiled tree.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Whether a record matches. Times of first and last points matter only where [`needs_seen`](Self::needs_seen).
    pub fn matches(&self, record: &impl Record) -> bool {
        self.root.matches(record)
    }

    /// Whether the condition tests the time of first or last points.
    pub fn needs_seen(&self) -> bool {
        self.root.needs_seen()
    }
}

impl Node {
    /// Whether a record matches.
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

    /// Whether it tests the time of first or last points.
    pub fn needs_seen(&self) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(Self::needs_seen),
            Self::Not(node) => node.needs_seen(),
            Self::Time(subject, _) => matches!(subject, Subject::FirstSeen | Subject::LastSeen),
            _ => false,
        }
    }

    /// Returns ids outside of which nothing can match, where the condition names them.
    pub fn required_ids(&self) -> Option<&[TimelineId]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::And(nodes) => nodes.iter().find_map(Self::required_ids),
            _ => None,
        }
    }
}

/// Whether one of the texts of a subject passes; of words, whether all texts together say them.
fn has_text(record: &impl Record, subject: &Subject, test: &TextTest) -> bool {
    let mut is_missing = true;
    let passes = match test {
        TextTest::Words(asked) => {
            let mut missing = asked.iter().collect();
            record.any_value(subject, |value| {
                is_missing = false;
                matches!(value, ValueRef::Text(text) if test.says(&mut missing, text))
            })
        }
        test => record.any_value(subject, |value| {
            is_missing = false;
            matches!(value, ValueRef::Text(text) if test.matches(text))
        }),
    };
    passes || is_missing && test.matches("")
}

/// Compiles a condition and counts what has a limit.
pub struct Compiler<'a> {
    nodes: usize,
    /// States of the automata of fuzzy texts and words.
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
            // A wide list is refused before any of it is compiled.
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

    /// Counts nodes or values.
    pub(crate) fn count(&mut self, more: usize) -> Result<()> {
        self.nodes += more;
        limit("number of conditions and values", NODES_MAX, self.nodes)
    }

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
            true => Err(ConditionError::Stopped),
            false => Ok(()),
        }
    }
}
