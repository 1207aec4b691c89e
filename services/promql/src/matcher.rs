//! A condition on one label.

use std::fmt;

use regex::bytes::Regex;

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
    /// The expression, anchored at both ends, of the operators that have one.
    regex: Option<Regex>,
}

impl Matcher {
    /// A condition; fails where `value` should be a regular expression and is none.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Result<Self, regex::Error> {
        let value = value.into();
        let regex = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => Some(pattern::whole(&value)?),
        };
        Ok(Self {
            name: name.into(),
            op,
            value,
            regex,
        })
    }

    /// The expression in the syntax of the `regex` crate, not anchored, of the operators that have one; `None` as well
    /// where that has no such expression of texts.
    pub fn pattern(&self) -> Option<String> {
        let pattern = self.regex.as_ref().map(|_| pattern::rewritten(&self.value));
        pattern.filter(|pattern| !pattern.contains(pattern::NO_BOUNDARY))
    }

    /// Whether a value meets it; a missing label is the empty text.
    pub fn matches(&self, value: &str) -> bool {
        match (self.op, &self.regex) {
            (MatchOp::Equal, _) => value == self.value,
            (MatchOp::NotEqual, _) => value != self.value,
            (MatchOp::Regex, regex) => regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(value.as_bytes())),
            (MatchOp::NotRegex, regex) => !regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(value.as_bytes())),
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
