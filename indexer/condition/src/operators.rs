//! The operators: one file each, registered by one line in the list below.
//!
//! To add an operator, write its file with [`Operator`] and tests, and add its line to the list. Parsers, the OpenAPI
//! document, limits, page tokens and messages are derived from the list. The OpenAPI document lists the operators in
//! the same order.

use std::fmt;

use tideline_model::Timestamp;

use crate::Result;
use crate::condition::Subject;
use crate::domain::Domain;
use crate::json::{Content, Fault, Member, Members};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Interface of an operator. The file of an operator contains its type, its implementation of this trait, and the
/// tests.
pub trait Operator: Clone + fmt::Debug + PartialEq + Sized {
    /// Names of the operator in messages that list all operators.
    const LISTED: &'static [&'static str];
    /// JSON members.
    const MEMBERS: &'static [Member];
    /// Command-line symbols.
    const SYMBOLS: &'static [Symbol] = &[];
    /// Codes of the operator in stable bytes, for timelines and for values. An operator without a code is written as
    /// JSON, and so is every operator in a condition on rows. New operators need no code.
    const CODES: [Option<u8>; 2] = [None, None];
    /// Name in the message that a subject does not support the operator.
    const DESCRIBED: &'static str;

    /// Reads the operator from its JSON members; `None` if they are absent.
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the members contradict each other.
    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault>;

    /// Returns the JSON members with their values.
    fn write(&self) -> Vec<(&'static str, Content)>;

    /// Compiles the operator; `None` if the subject does not support it.
    ///
    /// # Errors
    ///
    /// An error if a limit is exceeded or a value is invalid.
    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>>;

    /// Appends the values to stable bytes. Operators without a code do not need this.
    fn encode(&self, _to: &mut StableBytes) {}

    /// Replaces times relative to `now` with absolute times.
    fn resolve(&mut self, _now: Timestamp) {}

    /// Parses the text after a symbol of the operator; `None` if the symbol is not supported for the subject.
    ///
    /// # Errors
    ///
    /// A message if the text is invalid.
    fn parse_typed(
        _symbol: &str,
        _subject: &Subject,
        _text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        Ok(None)
    }

    /// Returns the symbol and the text after it; `None` if only the JSON form can represent the operator.
    fn typed(&self, _subject: &Subject) -> Option<(&'static str, String)> {
        None
    }
}

/// Symbol on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Characters of the symbol.
    pub text: &'static str,
    /// True if the symbol negates the test.
    pub is_not: bool,
    /// True if conditions on timelines support the symbol.
    pub timelines: bool,
    /// True if conditions on values support the symbol.
    pub values: bool,
}

impl Symbol {
    /// Returns true if a domain supports the symbol.
    pub fn is_of(&self, domain: Domain) -> bool {
        match domain {
            Domain::Timelines => self.timelines,
            Domain::Values => self.values,
            Domain::Rows => self.values || self.timelines,
        }
    }
}

macro_rules! operators {
    ($($(#[$doc:meta])* $module:ident :: $operator:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$operator;)*

        /// Test of a subject. A list passes if one of its values passes. Exceptions: words may be spread over the list,
        /// and inequality passes only if no value is equal. Texts are compared byte by byte, words without
        /// regard to case.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Test {
            $($(#[$doc])* $operator($operator),)*
        }

        $(impl From<$operator> for Test {
            fn from(operator: $operator) -> Self {
                Self::$operator(operator)
            }
        })*

        /// JSON members of all operators, in order.
        pub const MEMBERS: &[&[Member]] = &[$($operator::MEMBERS,)*];

        /// Names of all operators with their members, in order.
        const LISTED: &[(&[&str], &[Member])] = &[$(($operator::LISTED, $operator::MEMBERS),)*];

        /// Symbols of all operators.
        pub const SYMBOLS: &[&[Symbol]] = &[$($operator::SYMBOLS,)*];

        impl Test {
            /// Reads the tests of all operators whose members are present.
            pub(crate) fn read_all(
                members: &mut Members,
                tests: &mut Vec<Self>,
            ) -> std::result::Result<(), Fault> {
                $(tests.extend($operator::read(members)?.map(Self::$operator));)*
                Ok(())
            }

            /// Returns the JSON members.
            pub(crate) fn write(&self) -> Vec<(&'static str, Content)> {
                match self {
                    $(Self::$operator(operator) => operator.write(),)*
                }
            }

            /// Compiles the test of a subject; `None` if the subject does not support it.
            pub(crate) fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
                match self {
                    $(Self::$operator(operator) => operator.compile(subject, compiler),)*
                }
            }

            /// Returns the name of the operator in messages.
            pub(crate) fn described(&self) -> &'static str {
                match self {
                    $(Self::$operator(_) => $operator::DESCRIBED,)*
                }
            }

            /// Returns the code of the operator in stable bytes; `None` if the operator has no code.
            pub(crate) fn code(&self, domain: Domain) -> Option<u8> {
                let codes = match self {
                    $(Self::$operator(_) => $operator::CODES,)*
                };
                codes.get(domain as usize).copied().flatten()
            }

            /// Appends the values to stable bytes.
            pub(crate) fn encode(&self, to: &mut StableBytes) {
                match self {
                    $(Self::$operator(operator) => operator.encode(to),)*
                }
            }

            /// Replaces times relative to `now` with absolute times.
            pub(crate) fn resolve(&mut self, now: Timestamp) {
                match self {
                    $(Self::$operator(operator) => operator.resolve(now),)*
                }
            }

            /// Parses the text after a symbol; `None` if no operator supports it for the subject.
            pub(crate) fn parse_typed(
                symbol: &str,
                subject: &Subject,
                text: &str,
            ) -> std::result::Result<Option<Self>, String> {
                $(if $operator::SYMBOLS.iter().any(|known| known.text == symbol)
                    && let Some(operator) = $operator::parse_typed(symbol, subject, text)?
                {
                    return Ok(Some(Self::$operator(operator)));
                })*
                Ok(None)
            }

            /// Returns the symbol and the text after it; `None` if only the JSON form can represent the test.
            pub(crate) fn typed(&self, subject: &Subject) -> Option<(&'static str, String)> {
                match self {
                    $(Self::$operator(operator) => operator.typed(subject),)*
                }
            }
        }
    };
}

operators! {
    /// Equality with one value.
    equals::Equals,
    /// Inequality.
    not_equals::NotEquals,
    /// Equality with one of several values.
    one_of::In,
    /// Prefix.
    prefix::Prefix,
    /// Suffix.
    suffix::Suffix,
    /// Wildcard pattern.
    wildcard::Wildcard,
    /// Regular expression.
    regex::Regex,
    /// Fuzzy match.
    fuzzy::Fuzzy,
    /// Words in any order.
    words::Words,
    /// Words in the given order, without other words between them.
    phrase::Phrase,
    /// Lower and upper bound.
    compare::Compare,
    /// Inclusive range between two values.
    between::Between,
    /// Presence of the subject.
    exists::Exists,
    /// Time range.
    span::Within,
    /// Circle on the earth.
    near::Near,
    /// Box on the earth.
    within_box::WithinBox,
    /// Polygon on the earth.
    polygon::Polygon,
}

#[cfg(test)]
mod testing;
mod typed_literal;

pub use compare::NumberRange;
pub use regex::takes_regular_expression;

/// Returns the names of a domain's operators as a list for messages.
pub(crate) fn names_of_operators(domain: Domain) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (listed, members) in LISTED {
        if members.iter().any(|member| member.form(domain).is_some()) {
            let is_of_values = members.iter().any(|member| member.values.is_some());
            match domain {
                // For values and rows, each bound is listed as a separate test.
                Domain::Values | Domain::Rows if is_of_values => {
                    names.extend(members.iter().map(|member| member.name));
                }
                _ => names.extend(*listed),
            }
        }
    }
    // For timelines, the name of the number bounds is moved to the end of the list; no other name contains a space.
    names.sort_by_key(|name| name.contains(' '));
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}
