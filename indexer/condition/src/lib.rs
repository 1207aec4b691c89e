//! The one condition tree: AST, parsers, operators and their meaning.
//!
//! A [`Condition`] joins tests of subjects by and, or, not. The same tree finds timelines and filters points by their
//! values. A [`Matcher`] is the checked, compiled form; it evaluates over the [`Record`] trait. The search index and the
//! column filter of queries walk the compiled tree ([`Node`]) themselves, and must agree with that evaluation.
//!
//! ```text
//!  JSON ─────────┐                                   ┌──► matches(record)      one record
//!  command line ─┼──► Condition ──► Matcher (Nodes) ─┼──► search-index         sets of documents
//!  PromQL, code ─┘                                   └──► query                columns of a run
//! ```
//!
//! An operator is one file in [`operators`]: JSON members, symbols of the command line, compilation, stable bytes,
//! tests. It is registered by one line of the list there.
//!
//! | module | holds |
//! |---|---|
//! | [`condition`] | [`Condition`], [`Subject`] and the limits |
//! | [`operators`] | [`Test`]: the list of operators |
//! | [`literal`] | [`Literal`]: the values that operators compare with |
//! | [`domain`] | [`Domain`]: which subjects and forms a place admits |
//! | [`json`] | the JSON form |
//! | [`command_line`] | the form on a command line |
//! | [`matcher`] | [`Matcher`] and [`Node`] |
//! | [`record`] | [`Record`]: what a condition is evaluated on |
//! | [`text`] | tests of a text: closeness, words |
//! | [`intervals`] | tests of a value of any number type |
//! | [`geo`] | areas of the earth |
//! | [`stable`] | bytes that equal conditions share in every build |

pub mod command_line;
pub mod condition;
pub mod domain;
pub mod error;
pub mod geo;
pub mod intervals;
pub mod json;
pub mod literal;
pub mod matcher;
pub mod operators;
pub mod record;
pub mod stable;
pub mod text;

pub use condition::{Condition, Subject};
pub use domain::Domain;
pub use error::ConditionError;
pub use literal::Literal;
pub use matcher::{Matcher, Node};
pub use operators::Test;
pub use record::{Record, ValueRef};
pub use tideline_pattern::{Pattern, PatternBudget, PatternError};

/// The result of a check.
pub type Result<T> = std::result::Result<T, ConditionError>;
