//! The timeline-metadata table: who is who.
//!
//! A [`Catalog`] holds one table's timelines: in memory as dense arrays over
//! [`tideline_model::Ordinal`], durable as rows of the key space `CATALOG`. It answers which timeline some raw
//! bytes name (the hot path of every write), gives out ids and ordinals, keeps attributes, and lists names.
//!
//! It does not search: `search-index` does, and can be rebuilt from here at any time.
//!
//! | module | holds |
//! |---|---|
//! | [`catalog`] | [`Catalog`]: register, announce, adopt |
//! | [`reader`] | [`CatalogReader`] and [`Entry`]: many look-ups under one lock |
//! | [`names`] | distinct measurements, tag keys and tag values, counted |
//! | [`attributes`] | [`AttributeValue`], its limits |
//! | `store` | load, save, edit and remove rows |
//! | `row` | the stored form |
//! | `state` | the arrays; `symbols` and `raw_keys` are parts of it |
//!
//! # The life of a timeline
//!
//! 1. [`Catalog::register`] gives it an id and an ordinal. Only the write path knows it yet.
//! 2. The journal delta that first uses it carries its identity ([`CatalogReader::needs_announcement`]).
//! 3. [`Catalog::announced`] follows the commit of that delta: from now on it is visible to search and lists.
//! 4. [`Catalog::save`] writes its row before the journal forgets that delta.
//!
//! After a crash [`Catalog::load`] reads the rows and [`Catalog::adopt`] takes the rest from the journal.
#![doc = include_str!("../FORMAT.md")]

pub mod attributes;
pub mod catalog;
pub mod error;
pub mod names;
pub mod reader;

mod raw_keys;
mod row;
mod state;
mod store;
mod symbols;

pub use attributes::{AttributeValue, Attributes};
pub use catalog::{Catalog, CatalogOptions, IDENTITY_BYTES_MAX, Registered};
pub use error::CatalogError;
pub use names::{CountedName, NameSelection};
pub use reader::{CatalogReader, Entry};

/// The result of a catalog call.
pub type Result<T> = std::result::Result<T, CatalogError>;
