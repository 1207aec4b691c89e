//! The operators: one file each, one line each in the list below.
//!
//! To add one, write its file with [`Operator`] and its tests, and add its line to the list. Parsers, the API's document,
//! limits, page tokens and messages take it from here. The order is that of the API's document.

use std::fmt;

use tideline_model::Timestamp;

use crate::Result;
use crate::condition::Subject;
use crate::domain::Domain;
use crate::json::{Content, Fault, Member, Members};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Parts of an operator. Its file holds the type, the implementation of this trait, and the tests of both.
pub trait Operator: Clone + fmt::Debug + PartialEq + Sized {
    /// The names of its test in messages that list all operators.
    const LISTED: &'static [&'static str];
    /// Its JSON members.
    const MEMBERS: &'static [Member];
    /// Its symbols on the command line.
    const SYMBOLS: &'static [Symbol] = &[];
    /// Its numbers in stable bytes for timelines and for values. Operators without one are written as JSON; new ones need
    /// none.
    const CODES: [Option<u8>; 2] = [None, None];
    /// Its name in a message that a subject does not have it.
    const DESCRIBED: &'static str;

    /// Takes its members; `None` where they are absent.
    ///
    /// # Errors
    ///
    /// If they contradict each other.
    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault>;

    /// Returns its members with their values.
    fn write(&self) -> Vec<(&'static str, Content)>;

    /// Compiles it; `None` where the subject does not have it.
    ///
    /// # Errors
    ///
    /// If a limit was passed or a value does not fit.
    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>>;

    /// Appends its values to stable bytes. Operators without a code need not.
    fn encode(&self, _to: &mut StableBytes) {}

    /// Resolves times relative to `now`.
    fn resolve(&mut self, _now: Timestamp) {}

    /// Parses the text after one of its symbols; `None` where the subject cannot be typed with it.
    ///
    /// # Errors
    ///
    /// If the text does not have its form.
    fn parse_typed(
        _symbol: &str,
        _subject: &Subject,
        _text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        Ok(None)
    }

    /// Returns the symbol and the text after it; `None` where it can only be written as JSON.
    fn typed(&self, _subject: &Subject) -> Option<(&'static str, String)> {
        None
    }
}

/// A symbol of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// The characters.
    pub text: &'static str,
    /// Whether it negates the test.
    pub is_not: bool,
    /// Whether conditions on timelines have it.
    pub timelines: bool,
    /// Whether conditions on values have it.
    pub values: bool,
}

impl Symbol {
    /// Whether a domain has it.
    pub fn is_of(&self, domain: Domain) -> bool {
        match domain {
            Domain::Timelines => self.timelines,
            Domain::Values => self.values,
        }
    }
}

macro_rules! operators {
    ($($(#[$doc:meta])* $module:ident :: $operator:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$operator;)*

        /// Test of a subject. A list passes if one of its values does. Texts are compared byte by byte.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Test {
            $($(#[$doc])* $operator($operator),)*
        }

        $(impl From<$operator> for Test {
            fn from(operator: $operator) -> Self {
                Self::$operator(operator)
            }
        })*

        /// The JSON members of all operators, in order.
        pub const MEMBERS: &[&[Member]] = &[$($operator::MEMBERS,)*];

        /// The names of all operators with their members, in order.
        const LISTED: &[(&[&str], &[Member])] = &[$(($operator::LISTED, $operator::MEMBERS),)*];

        /// The symbols of all operators.
        pub const SYMBOLS: &[&[Symbol]] = &[$($operator::SYMBOLS,)*];

        impl Test {
            /// Reads the tests of all operators whose members are there.
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

            /// Compiles the test of a subject; `None` where the subject does not have it.
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

            /// Returns the number of the operator in stable bytes.
            pub(crate) fn code(&self, domain: Domain) -> Option<u8> {
                let codes = match self {
                    $(Self::$operator(_) => $operator::CODES,)*
                };
                codes[domain as usize]
            }

            /// Appends the values to stable bytes.
            pub(crate) fn encode(&self, to: &mut StableBytes) {
                match self {
                    $(Self::$operator(operator) => operator.encode(to),)*
                }
            }

            /// Resolves times relative to `now`.
            pub(crate) fn resolve(&mut self, now: Timestamp) {
                match self {
                    $(Self::$operator(operator) => operator.resolve(now),)*
                }
            }

            /// Parses the text after a symbol; `None` where no operator takes it for the subject.
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

            /// Returns the symbol and the text after it.
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
    /// A prefix.
    prefix::Prefix,
    /// A suffix.
    suffix::Suffix,
    /// A wildcard pattern.
    wildcard::Wildcard,
    /// A regular expression.
    regex::Regex,
    /// Closeness.
    fuzzy::Fuzzy,
    /// Words in any order.
    words::Words,
    /// Words in this order.
    phrase::Phrase,
    /// Bounds on either side.
    compare::Compare,
    /// Both bounds, included.
    between::Between,
    /// Presence.
    exists::Exists,
    /// A span of time.
    span::Within,
    /// A circle.
    near::Near,
    /// A box.
    within_box::WithinBox,
    /// A polygon.
    polygon::Polygon,
}

#[cfg(test)]
mod testing;
mod typed_literal;

pub use compare::NumberRange;
pub use regex::takes_regular_expression;

/// The names of the operators of a domain, as a sentence lists them.
pub(crate) fn names_of_operators(domain: Domain) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (listed, members) in LISTED {
        if members.iter().any(|member| member.form(domain).is_some()) {
            match domain {
                Domain::Timelines => names.extend(*listed),
                // Of values each bound is a test of its own.
                Domain::Values => names.extend(members.iter().map(|member| member.name)),
            }
        }
    }
    // Bounds of a number close the list of timelines, whatever comes after them in the document.
    names.sort_by_key(|name| name.contains(' '));
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}
