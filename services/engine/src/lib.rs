//! The open database: joins store, catalogs and search index, and provides the operations that services use.
//!
//! The store identifies timelines by id only, and the index holds no points. The engine connects them. A write
//! resolves its timelines in the catalog and goes to the store. A search combines the index with the spans of
//! timelines from the store. A restart restores the catalogs with the identities found in the journal.
//!
//! Path of a write: the decoder resolves each timeline through [`resolve`] → [`mod@write`] checks the batch, converts it
//! to a delta and commits it → the store acknowledges → the timelines become visible.
//!
//! | module | operations |
//! |---|---|
//! | [`engine`] | open, close, readiness |
//! | [`tables`] | create, alter, drop |
//! | `models` | tables by model |
//! | [`rows`], [`wide_table`] | rows of wide tables |
//! | [`resolve`] | raw series key → timeline |
//! | [`mod@write`] | batch → acknowledged points and rejects |
//! | `bounds` | timestamps that a table accepts |
//! | [`time`] | trusted time of requests |
//! | `line_order` | order of conflicting lines of one request |
//! | [`growth`] | limits of new timelines, and the tag that causes growth |
//! | [`find`] | timelines by conditions, names, attributes |
//! | [`suggest`] | "did you mean" suggestions |
//! | [`attach`] | tables from the archive of another database |
//! | [`attributes`] | attribute changes of many timelines |
//! | [`cardinality`] | counts of distinct names, growth |
//! | [`copying`] | copies of points in another table |
//! | [`delete`] | deletion of points and timelines |
//! | [`clean`] | removal of timelines without visible points |
//! | [`watch`] | stream of writes after a cursor |
//! | [`check`] | offline check of everything that a backend stores |
//! | [`heat`], [`partitions`] | busy key ranges, large machines |
//! | `warm` | read-ahead after a start |
//! | `activity` | writers and readers of a table |
//! | `directory` | catalogs of all tables: replay and flush |
//! | [`points`], [`moves`], [`catalog`], [`search`] | re-exported types of the crates below |
//! | [`error`] | error classes that services map to their protocols |

mod activity;
pub mod attach;
pub mod attributes;
mod bounds;
pub mod cardinality;
pub mod catalog;
pub mod check;
pub mod clean;
pub mod copying;
pub mod delete;
mod directory;
pub mod engine;
pub mod error;
pub mod find;
pub mod growth;
pub mod heat;
mod line_order;
mod models;
pub mod moves;
pub mod partitions;
pub mod points;
pub mod resolve;
pub mod rows;
pub mod search;
pub mod suggest;
pub mod tables;
pub mod time;
mod warm;
pub mod watch;
pub mod wide_table;
pub mod write;

pub use attach::{AttachPlan, AttachProgress, AttachRequest};
pub use attributes::AttributesChanged;
pub use cardinality::Growth;
pub use clean::CatalogCleaned;
pub use copying::PointsCopied;
pub use delete::{Deleted, TimelineSelector};
pub use engine::{Engine, EngineStats, FailedTier, Readiness, Settings};
pub use error::{EngineError, ErrorKind, Result};
pub use find::{FacetCounts, FoundTimeline, Timeline, TimelinePage};
pub use growth::TableLimits;
pub use heat::HotRange;
pub use partitions::Partition;
pub use resolve::BatchResolver;
pub use suggest::{NameKind, Suggestion};
pub use tables::{Table, TableStats, TierStats};
pub use tideline_archive as archive;
pub use tideline_backend as backend;
pub use tideline_condition as condition;
pub use tideline_ingest_protocols::prometheus::{EXEMPLAR_FIELD, START_FIELD, is_sample_detail};
pub use tideline_key_codec as key_codec;
#[cfg(feature = "fail-points")]
pub use tideline_log::fail_points;
pub use tideline_model as model;
pub use tideline_runtime as runtime;
pub use tideline_series_store::{HeadBudget, HeadSurvey};
pub use wide_table::WideTable;
pub use write::{IdempotentRequest, RequestStart, RunningRequest, WriteOptions, WriteOutcome};
