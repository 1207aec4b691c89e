//! Rows of wide tables in JSON: conversion of requests to engine calls, and of rows to JSON.
//!
//! The engine stores typed values under encoded keys and takes conditions as functions. This crate defines the JSON
//! forms of values, keys and conditions. It does not depend on HTTP: results are Rust values, or bytes that are passed
//! to the caller row by row.
//!
//! | module | holds |
//! |---|---|
//! | [`value`] | JSON forms of values: parsing by declared type, writing |
//! | [`key`] | keys, prefixes and bounds by column name |
//! | [`condition`] | conditions on rows |
//! | [`columns`] | pages of the columns of one row, for rows with many columns |
//! | [`selection`] | the returned columns and versions; rows as JSON |
//! | [`write`](mod@write) | writes and their outcomes |
//! | [`large`] | values of any size as streams |
//! | `cut` | large values of ordinary writes, stored before their rows |
//! | [`read`] | reads by key, scans, counts, deletes of ranges |
//! | `parts` | parts of a table that can have rows that match a condition |
//! | [`rekey`] | copy of rows into a table with another key |
//! | [`search`] | searches through a search index |
//! | `index_filter` | selection of rows through a search index |
//! | `routing` | shards of a search index that can have rows that match a condition |
//! | [`tabular`] | rows as a table: CSV, Arrow, Parquet |
//! | [`estimate`] | estimated counts |
//! | [`explain`](mod@explain) | access paths, and advice on keys |
//! | [`statistics`] | stored rows, partitions and hot key ranges, with keys in JSON |
//! | [`advice`](mod@advice) | advice on keys, columns and indexes |
//! | [`advise_queries`](mod@advise_queries) | advice on the access paths of a sample of queries |
//! | [`facets`] | counts and metrics by values of a search index |
//! | [`import`](mod@import) | files as writes of rows |
//! | [`token`] | page tokens |
//! | [`transaction`] | revisions, and the requirement that rows are unchanged |
//! | [`why`](mod@why) | stored data of a key, and the rule that hides each piece of it |
//! | [`aggregate`] | aggregates by groups and time windows |
//! | [`error`] | [`RowsError`] |
//!
//! # Examples
//!
//! ```
//! # use std::sync::Arc;
//! #
//! # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
//! # use tideline_engine::model::{SystemClock, TableModel, TableName, TableSpec, WideSpec};
//! # use tideline_engine::{Engine, Settings};
//! use tideline_openapi::row::{GetRows, RowIntegers, RowsBody};
//! use tideline_rows::{Selection, WriteSettings, read, write};
//!
//! # let folder = tempfile::tempdir()?;
//! # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! # let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
//! let wide: WideSpec = serde_json::from_str(r#"{"key": [{"name": "id", "type": "string"}]}"#)?;
//! let spec = TableSpec { model: TableModel::Wide, wide: Some(Box::new(wide)), ..TableSpec::default() };
//! engine.create_table(TableName::new("orders")?, spec)?;
//! let table = engine.wide_table("orders")?;
//!
//! let body = br#"{"rows": [{"op": "put", "key": {"id": "a-1"}, "columns": {"total": 5}}]}"#;
//! let request: RowsBody = serde_json::from_slice(body)?;
//! let outcomes = write::write(&engine, &table, &request.rows, body, &WriteSettings::default())?;
//! assert_eq!(outcomes.counts.written, 1);
//!
//! let request: GetRows = serde_json::from_str(r#"{"keys": [{"id": "a-1"}]}"#)?;
//! let keys = read::keys_of(&table, &request)?;
//! let selection = Selection::all(RowIntegers::Number);
//! let mut rows = Vec::new();
//! read::get(&engine, &table, &keys, &selection, &|| false, &mut |row| {
//!     rows.push(row.map(|json| String::from_utf8_lossy(json).into_owned()));
//!     Ok(())
//! })?;
//! let row: serde_json::Value = serde_json::from_str(rows[0].as_deref().unwrap_or_default())?;
//! assert_eq!(row["columns"]["total"], 5);
//! # engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod advice;
pub mod advise_queries;
pub mod aggregate;
pub mod columns;
pub mod condition;
mod cut;
pub mod error;
pub mod estimate;
pub mod explain;
pub mod facets;
pub mod import;
mod index_filter;
pub mod key;
pub mod large;
mod parts;
pub mod read;
pub mod rekey;
mod routing;
pub mod search;
pub mod selection;
pub mod statistics;
pub mod tabular;
pub mod token;
pub mod transaction;
pub mod value;
pub mod why;
pub mod write;

pub use columns::ColumnPages;
pub use error::{Result, RowsError};
pub use read::{Count, Page, PageLimits, Scan};
pub use selection::{RowEncoder, Selection};
pub use transaction::Transaction;
pub use write::{Outcomes, WriteSettings};
