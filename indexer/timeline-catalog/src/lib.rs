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
//! | [`catalog`] | [`Catalog`]: register, announce, adopt, remove |
//! | [`reader`] | [`CatalogReader`] and [`Entry`]: many look-ups under one lock |
//! | [`names`] | distinct measurements, tag keys and tag values, counted |
//! | [`cardinality`] | how many names there are |
//! | [`attributes`] | [`AttributeValue`], its types and limits |
//! | [`types`] | which type each attribute key has |
//! | [`value`] | the bytes of a value, and [`AttributeRef`], a value in memory |
//! | [`searches`] | [`SavedSearches`]: conditions with a name |
//! | [`metadata`] | [`MetadataOfMetrics`]: type, help and unit of metrics |
//! | [`editing`] | attributes are set and removed |
//! | [`change`] | a change on its way through the log |
//! | `store` | load, save and remove rows |
//! | `unsaved_rows` | rows of searches and metrics that wait for a flush |
//! | `row` | the stored form |
//! | `state` | the arrays; `symbols`, `raw_keys`, `edits`, `attribute_sets` and `packed` are parts of it |
//!
//! # The life of a timeline
//!
//! 1. [`Catalog::register`] gives it an id and an ordinal. Only the write path knows it yet.
//! 2. The journal delta that first uses it carries its identity ([`CatalogReader::needs_announcement`]).
//! 3. [`Catalog::announced`] follows the commit of that delta: from now on it is visible to search and lists.
//! 4. [`Catalog::write_rows`] writes its row before the journal forgets that delta.
//! 5. [`Catalog::remove`] follows the commit of a delete: it is as in step 1 again, without attributes. A later
//!    delta may bring it back. [`Catalog::save_removals`] deletes its row before the delete is answered, and
//!    [`Catalog::write_rows`] does so at the latest before the journal forgets the delete.
//!
//! After a crash [`Catalog::load`] reads the rows, [`Catalog::adopt`], [`Catalog::remove_replayed`] and [`Catalog::replay`]
//! take the rest from the journal, and [`Catalog::replayed`] ends that.
//!
//! Attributes, saved searches and metadata go through the log: each is an entry of the journal ([`change`]) before it is
//! visible, and a row with the next [`Catalog::write_rows`].
//!
//! # Memory
//!
//! A removed timeline keeps its ordinal, its identity and its texts in memory until the next start, so that writes
//! on their way and cached keys stay right; its attributes go at once. After a start nothing of it is left: its
//! ordinal is given to another timeline.
#![doc = include_str!("../FORMAT.md")]

pub mod attributes;
pub mod cardinality;
pub mod catalog;
pub mod change;
pub mod editing;
pub mod error;
pub mod metadata;
pub mod names;
pub mod reader;
pub mod searches;
pub mod types;
pub mod value;

mod attribute_sets;
mod edits;
mod packed;
mod raw_keys;
mod row;
mod state;
mod store;
mod symbols;
mod unsaved_rows;

pub use attributes::{AttributeType, AttributeValue, Attributes};
pub use catalog::{Catalog, CatalogOptions, IDENTITY_BYTES_MAX, Registered};
pub use change::{Commit, UnflushedBytes};
pub use editing::AttributeChanges;
pub use error::CatalogError;
pub use metadata::{MetadataOfMetrics, MetricKind, MetricMetadata};
pub use names::{CountedName, NameRef, NameSelection};
pub use raw_keys::LastKey;
pub use reader::{CatalogReader, Entry};
pub use searches::SavedSearches;
pub use tideline_key_codec::timeline_id;
pub use types::CountedKey;
pub use value::AttributeRef;

/// The result of a catalog call.
pub type Result<T> = std::result::Result<T, CatalogError>;
