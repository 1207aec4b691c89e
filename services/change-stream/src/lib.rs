//! Change streams: the changes of all tables as records, in the order of the journal.
//!
//! A stream is a named filter over the journal. While there are streams, the journal is kept for longer. Readers of a
//! stream hold their cursors themselves; the server stores the cursors of consumer groups. A stream costs writers
//! nothing: records are decoded from journal entries when they are read.
//!
//! | module | holds |
//! |---|---|
//! | [`position`] | cursors, and the partitions of a stream |
//! | [`streams`] | streams and consumer groups, and their state |
//! | [`read`] | pages of records |
//! | `record` | records as JSON |
//! | `retention` | which part of the journal is kept |
//! | `hooks` | webhooks and their state |
//! | [`delivery`] | the tasks that send webhooks |
//! | [`error`] | [`ChangesError`] |
//!
//! # Examples
//!
//! ```
//! # use std::sync::Arc;
//! #
//! # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
//! # use tideline_engine::model::{SystemClock, TableModel, TableName, TableSpec, WideSpec};
//! # use tideline_engine::{Engine, Settings};
//! use tideline_change_stream::{ChangeSettings, ChangeStreams, Partition, ReadLimits};
//! use tideline_openapi::change::StreamSettings;
//! use tideline_openapi::row::RowsBody;
//! use tideline_rows::{WriteSettings, write};
//!
//! # let folder = std::env::temp_dir().join(format!("tideline-change-stream-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! # let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.join("index")))?;
//! # let engine = Arc::new(engine);
//! # let wide: WideSpec = serde_json::from_str(r#"{"key": [{"name": "id", "type": "string"}]}"#)?;
//! # let spec = TableSpec { model: TableModel::Wide, wide: Some(Box::new(wide)), ..TableSpec::default() };
//! # engine.create_table(TableName::new("orders")?, spec)?;
//! let streams = ChangeStreams::open(Arc::clone(&engine), ChangeSettings::default())?;
//! let settings = StreamSettings { tables: vec!["orders".to_owned()], ..StreamSettings::default() };
//! streams.put_stream("all-orders", &settings, &|_, _| Ok(()))?;
//!
//! let table = engine.wide_table("orders")?;
//! let body = br#"{"rows": [{"op": "put", "key": {"id": "a-1"}, "columns": {"total": 5}}]}"#;
//! let request: RowsBody = serde_json::from_slice(body)?;
//! write::write(&engine, &table, &request.rows, body, &WriteSettings::default())?;
//!
//! let whole = Partition::new(0, 1)?;
//! let page = streams.read(&engine, "all-orders", None, whole, ReadLimits::default(), &|| false)?;
//! assert_eq!(page.records.len(), 1);
//! assert!(page.records[0].contains("a-1"));
//! // The next read continues after these records.
//! let page = streams.read(&engine, "all-orders", Some(page.next), whole, ReadLimits::default(), &|| false)?;
//! assert!(page.records.is_empty());
//! # engine.close()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod delivery;
pub mod error;
mod hooks;
pub mod position;
pub mod read;
mod record;
mod retention;
pub mod streams;

pub use error::{ChangesError, Result};
pub use position::{Partition, Position};
pub use read::{Page, ReadLimits};
pub use streams::{Admit, ChangeSettings, ChangeStreams, ChangeSummary, STREAMS_MAX, name_in_use, no_stream};
pub use tideline_webhooks::{Backoff, HostPattern, WebhookSettings};
