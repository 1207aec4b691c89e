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
//!
//! # Examples
//!
//! ```
//! # use std::sync::Arc;
//! #
//! # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
//! # use tideline_engine::model::SystemClock;
//! # use tideline_engine::{Engine, Settings};
//! use tideline_openapi::row::RowIntegers;
//! use tideline_sql::plan::ReadPlan;
//! use tideline_sql::run::read::{Extent, select};
//! use tideline_sql::run::table::change;
//! use tideline_sql::run::write::WritePlan;
//! use tideline_sql::{Statement, parse};
//!
//! # let folder = tempfile::tempdir()?;
//! # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! # let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
//! let mut rows = Vec::new();
//! for text in [
//!     "CREATE TABLE orders (id VARCHAR, total BIGINT, PRIMARY KEY (id))",
//!     "UPSERT INTO orders (id, total) VALUES ('a-1', 5)",
//!     "SELECT total FROM orders WHERE id = 'a-1'",
//! ] {
//!     match parse(text, &[])? {
//!         Statement::Change(statement) => {
//!             change(&engine, *statement, &|_, _| {})?;
//!         }
//!         Statement::Write(statement) => {
//!             let plan = WritePlan::new(&engine, statement)?;
//!             plan.run(&engine, text.as_bytes(), None, RowIntegers::Number, None, &|| false)?;
//!         }
//!         Statement::Select(statement) => {
//!             let plan = ReadPlan::new(&engine, &statement)?;
//!             select(&engine, &plan, Extent::All, RowIntegers::Number, &|| false, &mut |row| {
//!                 rows.push(String::from_utf8_lossy(row).into_owned());
//!                 Ok(())
//!             })?;
//!         }
//!         Statement::Explain(_) | Statement::Show(_) => {}
//!     }
//! }
//! let row: serde_json::Value = serde_json::from_str(&rows[0])?;
//! assert_eq!(row["total"], 5);
//! # engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
