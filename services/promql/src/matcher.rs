//! A condition on one label.

use std::fmt;

use tideline_pattern::{Pattern, PatternError};

use crate::pattern;

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

/// A condition on one label. A missing label equals the empty text.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The label; `__name__` is the metric name.
    pub name: String,
    /// How it is compared.
    pub op: MatchOp,
    /// What it is compared with.
    pub value: String,
    /// The expression of the operators that have one.
    pattern: Option<Pattern>,
}

impl Matcher {
    /// A condition. An expression is checked and not compiled.
    ///
    /// # Errors
    ///
    /// If `value` should be a regular expression and is not one, or one over the limits.
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

    /// The expression of the operators that have one, in the syntax of the `regex` crate.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// The same where it is an expression of texts: others are of bytes only.
    pub fn text_pattern(&self) -> Option<&Pattern> {
        let pattern = self.pattern.as_ref();
        pattern.filter(|pattern| !pattern.as_str().contains(pattern::NO_BOUNDARY))
    }

    /// Compiles the expression, if there is one that needs it, so that [`matches`](Self::matches) is quick.
    ///
    /// # Errors
    ///
    /// If the compiler takes more memory than was estimated.
    pub fn compile(&self) -> Result<(), PatternError> {
        let pattern = self.pattern.as_ref().filter(|pattern| pattern.texts().is_none());
        pattern.map_or(Ok(()), |pattern| pattern.compile().map(|_| ()))
    }

    /// Whether a value meets it; a missing label is the empty text. The first call compiles an expression, unless the
    /// value is empty.
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

/// Equal when they are written equally.
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
