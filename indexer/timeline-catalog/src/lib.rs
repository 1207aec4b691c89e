//! The timeline catalog: identities, ids, ordinals and attributes of the timelines of a table.
//!
//! A [`Catalog`] holds the timelines of one table: in memory as dense arrays indexed by [`tideline_model::Ordinal`],
//! durable as rows of the key space `CATALOG`. It maps raw key bytes to timelines (the hot path of every write),
//! assigns ids and ordinals, stores attributes and lists names.
//!
//! The crate `search-index` implements searches. Its index can be rebuilt from the catalog at any time.
//!
//! | module | holds |
//! |---|---|
//! | [`catalog`] | [`Catalog`]: register, mark durable, adopt and remove timelines |
//! | [`reader`] | [`CatalogReader`] and [`Entry`]: many lookups under one lock |
//! | [`subset`] | [`CatalogSubset`]: the timelines that pass a test, with the counts of their names |
//! | [`names`] | distinct measurements, tag keys and tag values with their timeline counts |
//! | [`cardinality`] | number of distinct names and the most frequent names |
//! | [`attributes`] | [`AttributeValue`], its types and limits |
//! | [`types`] | value type of each attribute key |
//! | [`value`] | encoding of an attribute value, and [`AttributeRef`], a borrowed value |
//! | [`searches`] | [`SavedSearches`]: named search conditions |
//! | [`metadata`] | [`MetadataOfMetrics`]: type, help and unit of metrics |
//! | [`editing`] | setting and removing attributes |
//! | [`change`] | catalog changes that are committed through the log |
//! | [`change_log`] | [`ChangeLog`]: records of changed rows for standbys |
//! | [`ahead`] | [`TimelinesAhead`]: timelines that a standby reads before it takes over the data |
//! | [`error`] | errors of the catalog |
//! | `store` | loading, saving and removing rows |
//! | `unsaved_rows` | rows of searches and metrics that the next flush writes |
//! | `row` | stored form of a timeline |
//! | `state` | in-memory arrays; `symbols`, `raw_keys`, `edits`, `attribute_sets` and `packed` are parts of it |
//!
//! # Lifecycle of a timeline
//!
//! 1. [`Catalog::register`] assigns an id and an ordinal. Until step 3 the timeline is visible to the write path
//!    only.
//! 2. The first journal delta that uses the timeline carries its identity ([`CatalogReader::needs_identity`]).
//! 3. [`Catalog::mark_durable`] is called after that delta is committed. From then on the timeline appears in searches
//!    and lists.
//! 4. [`Catalog::write_rows`] writes its row before the journal discards that delta.
//! 5. [`Catalog::remove`] is called after a delete is committed. The timeline returns to the state of step 1, without
//!    attributes; a later delta may make it visible again. [`Catalog::save_removals`] deletes the row before the delete
//!    is acknowledged, or, at the latest, [`Catalog::write_rows`] deletes it before the journal discards the delete.
//!
//! After a crash, [`Catalog::load`] reads the rows. [`Catalog::adopt`], [`Catalog::remove_replayed`] and
//! [`Catalog::replay`] apply the journal, and [`Catalog::replayed`] ends the replay.
//!
//! Attributes, saved searches and metadata go through the log. Each change is a journal entry ([`change`]) before it
//! becomes visible, and the next [`Catalog::write_rows`] writes it as a row.
//!
//! # Memory
//!
//! A removed timeline keeps its ordinal, identity and texts in memory until the next start, so that writes in flight
//! and cached keys stay valid. Its attributes are freed immediately. After a restart its ordinal is free for another
//! timeline.
#![doc = include_str!("../FORMAT.md")]

pub mod ahead;
pub mod attributes;
pub mod cardinality;
pub mod catalog;
pub mod change;
pub mod change_log;
pub mod editing;
pub mod error;
pub mod metadata;
pub mod names;
pub mod reader;
pub mod searches;
pub mod subset;
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

pub use ahead::TimelinesAhead;
pub use attributes::{AttributeType, AttributeValue, Attributes};
pub use catalog::{Catalog, CatalogOptions, IDENTITY_BYTES_MAX, Registered};
pub use change::{CatalogChange, CatalogRow, Commit, CommitError, UnflushedBytes};
pub use change_log::ChangeLog;
pub use editing::AttributeChanges;
pub use error::CatalogError;
pub use metadata::{MetadataOfMetrics, MetricKind, MetricMetadata};
pub use names::{CountedName, NameRef, NameSelection};
pub use raw_keys::{LastKey, RawKeyBudget};
pub use reader::{CatalogReader, Entry};
pub use searches::SavedSearches;
pub use subset::CatalogSubset;
pub use tideline_key_codec::timeline_id;
pub use types::CountedKey;
pub use value::AttributeRef;

/// Result of a catalog call.
pub type Result<T> = std::result::Result<T, CatalogError>;
