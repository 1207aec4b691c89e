//! The open database: joins the stores of points and rows, the catalogs and the search indexes, and provides the
//! operations that services use.
//!
//! The store identifies timelines by id only, and the index holds no points. The engine connects both. A write resolves
//! its timelines in the catalog and passes the points to the store. A search combines the index with the spans of
//! timelines from the store. A start restores the catalogs from their rows and from the identities in the journal.
//!
//! Path of a write: the decoder resolves each timeline through [`resolve`]. Then [`mod@write`] checks the batch,
//! converts it to a delta and commits it. When the store has acknowledged the delta, the timelines become visible.
//!
//! | module | operations |
//! |---|---|
//! | [`engine`] | open, close, readiness |
//! | [`tables`] | create, alter, drop |
//! | `models` | look-up of tables, restricted to a model |
//! | `restriction` | restriction of a table handle to some of its timelines |
//! | [`rows`], [`wide_table`] | rows of wide tables |
//! | [`feed_changes`] | feeds that were written since a position in the journal |
//! | [`feeds`] | feeds, whose messages are rows |
//! | [`fan_outs`] | messages that a job still has to write to inboxes, and interrupted joins |
//! | [`large`] | large values of rows |
//! | `declared_columns` | types and numbers of the columns of a wide table |
//! | [`row_values`] | values of rows in the form that conditions compare |
//! | [`audit_table`] | records of changes and refusals |
//! | [`state_table`] | state of services |
//! | `table_notes` | notes of the existing tables, from which change streams report drops |
//! | `system_table` | creation of the tables of the server, and access to them |
//! | [`stored_data`] | timelines of each table, and bytes in each tier |
//! | [`parts`] | parts of wide tables that are divided by time |
//! | [`parts_preview`] | effects of changed ages of parts |
//! | [`schedule`] | schedules of jobs: cron expressions with time zones |
//! | [`row_archives`] | archived parts of wide tables |
//! | [`expired_rows`] | removal of expired rows and cells |
//! | [`row_copies`] | copies of rows into another table: what the last complete copy has covered |
//! | [`indexes`] | secondary indexes of wide tables |
//! | [`row_search`] | search indexes over rows |
//! | [`column_use`] | reads and updates of the columns of wide tables |
//! | [`index_growth`] | growth of wide tables and their indexes |
//! | [`row_load`] | busy key ranges of wide tables |
//! | [`row_limits`] | limits of the rates at which rows are read and written |
//! | [`row_surveys`] | sizes and delete markers of stored rows, packing |
//! | [`why`] | diagnosis of one key of a wide table |
//! | [`resolve`] | look-up of the timeline of a raw series key |
//! | [`mod@write`] | write of a batch: acknowledged points and rejects |
//! | `bounds` | timestamps that a table accepts |
//! | [`time`] | trusted time of requests |
//! | `line_order` | order of conflicting lines of one request |
//! | [`growth`] | limits of new timelines, and the tag that causes growth |
//! | [`find`] | timelines by conditions, names, attributes |
//! | [`suggest`] | "did you mean" suggestions |
//! | [`attach`] | tables from the archive of another database |
//! | [`attributes`] | attribute changes of many timelines |
//! | `attribute_analyzers` | checks of the analyzers of text attributes |
//! | [`cardinality`] | counts of distinct names, growth |
//! | [`copying`] | copies of points into another table |
//! | [`delete`] | deletion of points and timelines |
//! | [`clean`] | removal of timelines that have no visible points, or no writes for too long |
//! | [`watch`] | stream of writes after a cursor |
//! | [`changes`] | changes of all tables, as the journal holds them |
//! | [`check`] | offline check of all data that a backend stores |
//! | [`hot_ranges`], [`partitions`] | busy key ranges; machines with the most stored data |
//! | `warm` | read-ahead after a start |
//! | `activity` | running writers, growth, busy keys and use of columns of a table |
//! | `directory` | catalogs of all tables: replay and flush |
//! | [`points`], [`moves`], [`catalog`], [`search`] | re-exported types of the crates below |
//! | [`error`] | error classes that services map to their protocols |
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//!
//! use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
//! use tideline_engine::condition::{Domain, command_line};
//! use tideline_engine::model::{SystemClock, TableName, TableSpec};
//! use tideline_engine::search::FindRequest;
//! use tideline_engine::{Engine, Settings, WriteOptions, find};
//! # use tideline_ingest_protocols::{DecodeOptions, line_protocol};
//!
//! let folder = tempfile::tempdir()?;
//! let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
//! let table = engine.create_table(TableName::new("metrics")?, TableSpec::default())?;
//!
//! let lines = b"cpu,host=web-1 usage=0.5\ncpu,host=web-2 usage=0.25";
//! let options = DecodeOptions::new(engine.clock().now());
//! let batch = line_protocol::decode(lines, options, &mut engine.resolver(&table));
//! let outcome = engine.write(&table, batch, &WriteOptions::default())?;
//! assert_eq!(outcome.points, 2);
//!
//! let condition = command_line::parse(Domain::Timelines, "host=~web-[2-9]")?;
//! let request = FindRequest { condition, limit: 10, ..FindRequest::default() };
//! let page = engine.find(&table, &request, find::NEVER)?;
//! assert_eq!(page.found[0].timeline.source.as_deref(), Some("web-2"));
//! engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod activity;
pub mod attach;
mod attribute_analyzers;
pub mod attributes;
pub mod audit_table;
mod bounds;
pub mod cardinality;
pub mod catalog;
pub mod changes;
pub mod check;
pub mod clean;
pub mod column_use;
pub mod copying;
mod declared_columns;
pub mod delete;
mod directory;
pub mod engine;
pub mod error;
pub mod expired_rows;
pub mod fan_outs;
pub mod feed_changes;
pub mod feeds;
pub mod find;
pub mod growth;
pub mod hot_ranges;
pub mod index_growth;
pub mod indexes;
pub mod large;
mod line_order;
mod models;
pub mod moves;
pub mod partitions;
pub mod parts;
pub mod parts_preview;
pub mod points;
pub mod resolve;
mod restriction;
pub mod row_archives;
pub mod row_copies;
pub mod row_limits;
pub mod row_load;
pub mod row_search;
pub mod row_surveys;
pub mod row_values;
pub mod rows;
pub mod schedule;
pub mod search;
pub mod state_table;
pub mod stored_data;
pub mod suggest;
mod system_table;
mod table_notes;
pub mod tables;
pub mod time;
mod warm;
pub mod watch;
pub mod why;
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
pub use hot_ranges::HotRange;
pub use partitions::Partition;
pub use resolve::BatchResolver;
pub use suggest::{NameKind, Suggestion};
pub use tables::{Table, TableStats, TierStats};
pub use tideline_archive as archive;
pub use tideline_backend as backend;
pub use tideline_condition as condition;
pub use tideline_ingest_protocols::prometheus::{EXEMPLAR_FIELD, START_FIELD, is_sample_detail};
pub use tideline_key_codec as key_codec;
pub use tideline_log::copy;
pub use tideline_log::fail_points;
pub use tideline_model as model;
pub use tideline_runtime as runtime;
pub use tideline_series_store::{HeadBudget, HeadSurvey};
pub use wide_table::WideTable;
pub use write::{IdempotentRequest, RequestStart, RunningRequest, WriteOptions, WriteOutcome};
