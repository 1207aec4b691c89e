//! Rows of wide tables: conditional writes, versions, row buffer, parts, ordered reads.
//!
//! # Life of a row
//!
//! 1. [`WideStore::write`] turns a write into absolute [`mutation`]s and commits them as one entry of the
//!    [log](tideline_log). Conditions, increments and returned rows are evaluated first, on the caller's thread. The
//!    committer refuses the entry if a row that was read has changed since, and the write is retried.
//! 2. The committed entry is applied to the active generation of the row buffer, and acknowledged.
//! 3. When the generation is full, the log freezes it. A flush writes its rows in key order into the *part* of the
//!    table, which the storage engine keeps sorted, and the log publishes the flush.
//!
//! A crash between any two steps neither loses nor duplicates a change, because mutations are idempotent.
//!
//! A table can be divided into parts by a timestamp in its key. A read merges the visible parts in its time range.
//!
//! A row of more than 256 KiB (by default) is stored as a head and fragments, so that some of its columns can be read
//! without the others.
//!
//! A text, a binary value or a JSON document of more than 64 KiB can be stored apart from its row, as pieces in a
//! separate part; see [`large`].
//!
//! # Reading
//!
//! [`WideStore::row`] and [`WideStore::page`] overlay the buffer on the part. Each row is returned in a state that it
//! had at some time during the read. The pages of a scan are not a snapshot.
//!
//! # Out of scope
//!
//! The store handles keys as bytes; `key-codec` builds them from the declared key columns. The layers above handle
//! column names, types, filters and formats.
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//!
//! # use bytes::Bytes;
//! # use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
//! # use tideline_key_codec::layout::KeyLayout;
//! # use tideline_key_codec::tuple::KeyValue;
//! # use tideline_log::manifest::{TableRow, put_table};
//! # use tideline_log::{LogSettings, LogThreads, Opening};
//! # use tideline_model::{SystemClock, TableId, TableModel, TableName, TableSpec, WideSpec};
//! use tideline_wide_table::{
//!     Action, CellValue, Column, ColumnName, Image, RowOutcome, RowWrite, Settings, WideModel, WideReplay, WideStore,
//!     WriteOptions,
//! };
//!
//! // Opens a log with the store as its only model.
//! let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! let opening = Opening::begin(backend, Arc::new(SystemClock), LogSettings::default())?;
//! let replay = WideReplay::new(opening.manifest(), opening.rows(), opening.trusted_now())?;
//! let log = opening.replay(&mut [&mut replay.clone()])?.open()?;
//! let store = Arc::new(WideStore::open(&log, &replay, None, Settings::default()));
//! let model = Arc::new(WideModel(Arc::clone(&store)));
//! let threads = LogThreads::start(Arc::clone(&log), vec![model]);
//!
//! // Stores the settings of a table.
//! let table = TableId(1);
//! let wide: WideSpec = serde_json::from_str(r#"{"key": [{"name": "k", "type": "string"}]}"#)?;
//! let layout = KeyLayout::new(&wide.key, false)?;
//! let spec = TableSpec { model: TableModel::Wide, wide: Some(Box::new(wide)), ..TableSpec::default() };
//! let row = TableRow::new(table, TableName::new("rows")?, spec, 0, 0);
//! log.edit_shared(|manifest| {
//!     let changes = vec![put_table(&row)];
//!     manifest.tables.insert(table, row);
//!     changes
//! })?;
//!
//! let mut key = Vec::new();
//! layout.encode(&[KeyValue::from("a")], &mut key)?;
//! let time = store.next_version();
//! let column = ColumnName::Named("n".into());
//! let write = RowWrite {
//!     key: Bytes::from(key.clone()),
//!     partition: key.len(),
//!     time,
//!     action: Action::Put(vec![Column::with(column.clone(), time, CellValue::I64(7))]),
//!     condition: None,
//!     image: Image::None,
//! };
//! let written = store.write(&threads, table, &[write], &WriteOptions::default(), &|_| None)?;
//! assert_eq!(written.rows, [RowOutcome::Written(None)]);
//!
//! let row = store.row(table, &key)?.expect("the row exists");
//! let columns = row.columns()?;
//! let newest = columns.column(&column).and_then(|column| column.newest());
//! assert_eq!(newest.map(|version| &version.value), Some(&CellValue::I64(7)));
//! threads.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![doc = include_str!("../FORMAT.md")]

mod archived;
mod block;
mod blocks;
mod buffer;
pub mod build;
pub mod changed;
pub mod check;
mod codec;
mod codecs;
mod cold;
pub mod columns;
mod dictionaries;
mod division;
mod entry;
pub mod error;
mod expiry;
mod flush;
mod fragments;
mod groups;
pub mod index;
pub mod large;
mod model;
pub mod moves;
pub mod mutation;
pub mod pack;
pub mod parts;
mod read;
pub mod remove_expired;
mod singles;
mod spans;
mod state;
pub mod stats;
pub mod store;
pub mod survey;
mod tables;
mod tiers;
pub mod unchanged;
pub mod value;
mod versions;
pub mod why;
mod write;

pub use archived::{ArchivedObjects, ArchivedPart, AttachEnd, PartToArchive, PartToAttach};
pub use build::BuildStep;
pub use changed::{ClaimedChanges, QueueState, SearchBacklog, SearchChange, SearchStart};
pub use cold::take_cold_bytes;
pub use columns::{ColumnPage, ColumnSpan};
pub use dictionaries::DictionaryStats;
pub use division::{ALL_PARTS, PARTS_MAX, PartNumbers, PartSelection};
pub use entry::{Change as EntryChange, changes_of, written_keys};
pub use error::{Damage, Result, WideError};
pub use groups::{GROUPS_MAX, GroupSet};
pub use index::Index;
pub use large::check::check_large;
pub use large::cut::{CutValue, ValueToCut};
pub use large::gc::{GcPosition, GcStep};
pub use large::read::LargeReader;
pub use large::upload::{LargeUpload, UPLOAD_MEMORY_BYTES};
pub use large::{LARGE_BYTES_MAX, LARGE_BYTES_MIN, LargeKind, LargeValue, PIECE_BYTES};
pub use model::WideModel;
pub use moves::{MoveEnd, MoveProgress, PartInTier};
pub use mutation::{Column, ColumnName, Effect, Mutation, Version};
pub use parts::{FirstParts, StoredPart};
pub use read::{RowPage, StoredRow};
pub use remove_expired::RemovalStep;
pub use stats::{WideStats, WideTableStats};
pub use store::{Settings, WideReplay, WideStore};
pub use tiers::BuildDocuments;
pub use unchanged::{RangeDigest, RowDigest, UNCHANGED_ROWS_MAX, Unchanged};
pub use value::CellValue;
pub use write::{
    Action, Begun, COLUMN_BYTES_MAX, Condition, Image, Increment, MakeRows, OUTCOME_SIZE, ROW_BYTES_MAX,
    Refused, RememberRows, RowOutcome, RowWrite, Update, WRITE_BYTES_MAX, WRITE_SIZE, WriteOptions, Written,
    current,
};
