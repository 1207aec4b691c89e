//! Label matchers: a condition on the value of one label.
//!
//! Regular expressions are validated when a matcher is created and compiled on first use, so parsing stays
//! cheap.

use std::fmt;

use tideline_pattern::{Pattern, PatternError};

use crate::pattern;

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// Equality, `=`.
    Equal,
    /// Inequality, `!=`.
    NotEqual,
    /// Match of the whole value against a regular expression, `=~`.
    Regex,
    /// Negated match against a regular expression, `!~`.
    NotRegex,
}

/// Condition on the value of one label. A missing label has the empty value.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// Name of the label; `__name__` is the metric name.
    pub name: String,
    /// Comparison operator.
    pub op: MatchOp,
    /// Value or regular expression as written.
    pub value: String,
    /// Regular expression, for the operators that have one.
    pattern: Option<Pattern>,
}

impl Matcher {
    /// Creates a matcher. A regular expression is validated, but not compiled.
    ///
    /// # Errors
    ///
    /// Returns an error if the operator takes a regular expression and `value` is not a valid one or exceeds
    /// the limits.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self, PatternError> {
        let value = value.into();
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(pattern::whole(&value)?),
        };
        Ok(Self {
            name: name.into(),
            op,
            value,
            pattern,
        })
    }

    /// Returns the regular expression, if any, in the syntax of the `regex` crate.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// Returns the regular expression if it can be applied to text; some can be applied only to bytes.
    pub fn text_pattern(&self) -> Option<&Pattern> {
        let pattern = self.pattern.as_ref();
        pattern.filter(|pattern| !pattern.as_str().contains(pattern::NO_BOUNDARY))
    }

    /// Compiles the regular expression, so that later calls of [`matches`](Self::matches) are fast. Does nothing if the
    /// expression is only a list of texts.
    ///
    /// # Errors
    ///
    /// Returns an error if the compiled size of the expression exceeds twice the estimate.
    pub fn compile(&self) -> Result<(), PatternError> {
        let pattern = self.pattern.as_ref().filter(|pattern| pattern.texts().is_none());
        pattern.map_or(Ok(()), |pattern| pattern.compile().map(|_| ()))
    }

    /// Returns true if a value satisfies the condition; pass the empty text for a missing label. The first call
    /// with a nonempty value compiles a regular expression, unless the expression is only a list of texts.
    pub fn matches(&self, value: &str) -> bool {
        let fits = || {
            let pattern = self.pattern.as_ref();
            pattern.is_some_and(|pattern| pattern.matches(value.as_bytes()))
        };
        match self.op {
            MatchOp::Equal => value == self.value,
            MatchOp::NotEqual => value != self.value,
            MatchOp::Regex => fits(),
            MatchOp::NotRegex => !fits(),
        }
    }
}

/// Compares label name, operator and value as written.
impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (self.op, &self.name, &self.value) == (other.op, &other.name, &other.value)
    }
}

impl Eq for Matcher {}

impl fmt::Display for MatchOp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        })
    }
}
