//! SQL for rows of wide tables.
//!
//! `sqlparser` splits statements into tokens and parses expressions and types. The statements themselves have a grammar
//! of their own ([`parse`](mod@parse)): a clause that this crate does not evaluate is a syntax error or is refused by
//! name, and never ignored. A parsed [`Statement`] is planned against a table ([`plan`]) and executed by the same
//! functions as the JSON requests of `tideline-rows` ([`run`]).
//!
//! ```text
//!  text, parameters ──► parse ──► Statement ──► plan ──► ReadPlan ──► run::read
//!                                     │          └─────► WritePlan ─► run::write
//!                                     └───────────────────────────► run::table
//! ```
//!
//! A plan reads rows by whole keys, by ranges of keys, or reads the whole table. There is no sort and no join: a
//! statement whose result does not come out of one access path in order is refused, with the reason and what to do.
//! Each kind of access path is a variant of [`plan::AccessPath`].
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
