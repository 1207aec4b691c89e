//! SQL for rows of wide tables.
//!
//! `sqlparser` splits statements into tokens, and parses expressions and types. This crate defines the grammar of
//! statements ([`parse`](mod@parse)). A clause that this crate cannot evaluate is never ignored: it causes a syntax
//! error, or an error that contains the name of the clause. A parsed [`Statement`] is planned against a table
//! ([`plan`]). The plan is executed by the functions that also execute the JSON requests of `tideline-rows` ([`run`]).
//!
//! ```text
//!  text, parameters ──► parse ──► Statement ──► plan ──► ReadPlan ──► run::read
//!                                     │          └─────► WritePlan ─► run::write
//!                                     └───────────────────────────► run::table
//! ```
//!
//! A plan reads rows by whole keys or by ranges of keys, or scans the whole table. Plans neither sort nor join. A
//! statement is refused if no single access path returns its result in the required order. The error contains the
//! reason and a remedy. Each kind of access path is a variant of [`plan::AccessPath`].
//!
//! | module | holds |
//! |---|---|
//! | [`parse`](mod@parse) | text to [`Statement`]: tokens, hints, bounds, grammar |
//! | [`statement`] | statements and conditions |
//! | [`literal`] | values of statements and parameters; conversion to the JSON forms of `tideline-rows` |
//! | [`plan`] | access paths, order, filters |
//! | [`projection`] | the returned columns; rows as flat JSON objects |
//! | [`run`] | execution of plans |
//! | [`definition`] | the `CREATE TABLE` statement of a table |
//! | [`error`] | [`SqlError`] |

pub mod definition;
pub mod error;
pub mod literal;
pub mod parse;
pub mod plan;
pub mod projection;
pub mod run;
pub mod statement;

pub use error::{Position, Result, SqlError};
pub use parse::{Parameters, parse};
pub use statement::Statement;
