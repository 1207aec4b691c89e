//! The condition tree used by all interfaces: AST, parsers, operators and evaluation.
//!
//! A [`Condition`] combines tests of subjects with and, or, not. The same tree selects timelines, and filters points
//! by their values and rows by their columns. A [`Matcher`] is the checked, compiled form, which is evaluated on any
//! [`Record`]. The search index and the column filter of queries evaluate the compiled tree ([`Node`]) themselves and
//! must produce the same result.
//!
//! ```text
//!  JSON ─────────┐                                   ┌──► matches(record)      one record
//!  command line ─┼──► Condition ──► Matcher (Nodes) ─┼──► search-index         sets of documents
//!  PromQL, code ─┘                                   └──► query                columns of a run
//! ```
//!
//! Each operator has one file in [`operators`] with its JSON members, command-line symbols, compilation, stable bytes
//! and tests. One line in the list of that module registers it.
//!
//! | module | holds |
//! |---|---|
//! | [`condition`] | [`Condition`], [`Subject`] and the limits |
//! | [`operators`] | [`Test`]: the list of operators |
//! | [`literal`] | [`Literal`]: values that operators compare with |
//! | [`domain`] | [`Domain`]: the subjects and forms available for timelines, for values and for rows |
//! | [`json`] | JSON form |
//! | [`command_line`] | command-line form |
//! | [`matcher`] | [`Matcher`] and [`Node`] |
//! | [`record`] | [`Record`]: input of an evaluation |
//! | [`analyzer`] | splitting of texts into words |
//! | [`text`] | text tests: equality, fuzzy matching, words, phrases |
//! | [`intervals`] | value tests for all number types |
//! | [`geo`] | areas on the earth |
//! | [`stable`] | encoding of conditions that is identical in every build |
//! | [`error`] | [`ConditionError`]: reasons for rejecting a condition |
//!
//! # Examples
//!
//! The JSON form and the command-line form of a condition result in the same tree:
//!
//! ```
//! use tideline_condition::{Condition, Domain, command_line, json};
//!
//! let parsed = json::from_str(Domain::Timelines, r#"{"tag": "host", "equals": "web-1"}"#)?;
//! assert_eq!(parsed, Condition::tag("host", "web-1"));
//! assert_eq!(parsed, command_line::parse(Domain::Timelines, "host=web-1")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod analyzer;
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

/// Result of checking or compiling a condition.
pub type Result<T> = std::result::Result<T, ConditionError>;
