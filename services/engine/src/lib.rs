//! The open database: store, catalogs and index joined, and the verbs that services offer over them.
//!
//! Storage knows timelines by id only, the indexer knows no points. Here they meet: a write resolves its
//! timelines in the catalog and goes to the store; a search asks the index and the store's memory of when
//! timelines were seen; a restart gives the identities found in the journal back to the catalogs.
//!
//! A write in file names: the decoder asks [`resolve`] for each timeline → [`write`] checks the batch, turns it
//! into a delta and commits it → the store acknowledges → the timelines become visible.
//!
//! | module | verbs |
//! |---|---|
//! | [`engine`] | open, close, readiness |
//! | [`tables`] | create, alter, drop |
//! | `models` | list, by model |
//! | [`resolve`] | raw series key → timeline |
//! | [`write`] | batch → acknowledged points and rejects |
//! | `bounds` | which instants a table takes |
//! | [`time`] | the time that requests go by, as far as the clock can be trusted |
//! | `line_order` | which line of one request wins |
//! | [`growth`] | new timelines a minute, and which tag brings them |
//! | [`find`] | timelines by conditions, names, attributes |
//! | [`suggest`] | names that were meant |
//! | [`attach`] | what another database has archived becomes tables here |
//! | [`attributes`] | attributes of many timelines |
//! | [`cardinality`] | how many names there are, and growth |
//! | [`copying`] | points of a table into another |
//! | [`delete`] | points and timelines, gone at once |
//! | [`clean`] | timelines that nobody can see anything of any more |
//! | [`watch`] | what is written from a cursor on |
//! | [`check`] | everything that a backend keeps, read and compared; of a database that is not open |
//! | [`heat`], [`partitions`] | busy ranges of keys, large machines |
//! | `warm` | reading ahead after a start |
//! | `activity` | what is remembered of a table's writers and readers |
//! | [`points`], [`moves`], [`catalog`], [`search`] | types of the crates below that the verbs take and return |
//! | [`error`] | the few kinds of failure that services map to their protocols |

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
pub mod search;
pub mod suggest;
pub mod tables;
pub mod time;
mod warm;
pub mod watch;
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
#[cfg(feature = "fail-points")]
pub use tideline_log::fail_points;
pub use tideline_model as model;
pub use tideline_runtime as runtime;
pub use tideline_series_store::{HeadBudget, HeadSurvey};
pub use write::{IdempotentRequest, RequestStart, RunningRequest, WriteOptions, WriteOutcome};
