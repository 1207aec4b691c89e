//! Feeds: message timelines as a service.
//!
//! A feed table is a table of rows with the key (feed, sequence number). The engine keeps feeds in a catalog, like the
//! timelines of series tables. This crate defines messages: their columns, their events, and the requests that write
//! and read them. It does not depend on HTTP.
//!
//! A change of a message is also an *event*: a row of the feed with a separate sequence number. A reader that follows a
//! feed by its cursor therefore sees every change, even of messages that it has read before. The change of the message
//! and its event are one atomic write.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | columns of messages; messages as JSON |
//! | [`send`](mod@send) | new messages, and message ids that were sent before |
//! | [`change`] | edits, recalls, deletions and counters |
//! | [`blocks`] | senders whose messages a user does not see |
//! | `delivery` | delivery of messages to inboxes: pushed, or read from the feed |
//! | [`fan_out`](mod@fan_out) | job that writes the messages of feeds with many members to inboxes, and completes interrupted joins |
//! | [`inbox`] | inboxes and conversations of users |
//! | [`members`] | members of feeds, cursors of users |
//! | [`read`] | pages of one feed, of several feeds, and of several merged feeds; counts |
//! | `message_list` | messages of a response as JSON |
//! | `state` | state of the delivery of a feed |
//! | [`search`] | searches over messages |
//! | [`viewer`] | messages as one user sees them |
//!
//! # Examples
//!
//! ```
//! # use std::sync::Arc;
//! #
//! # use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
//! # use tideline_engine::model::{SystemClock, TableModel, TableName, TableSpec};
//! # use tideline_engine::{Engine, Settings};
//! use tideline_engine::feeds::FeedName;
//! use tideline_message_feed::MessageEncoder;
//! use tideline_message_feed::read::{ReadTerms, Room, page};
//! use tideline_message_feed::send::{WriteTerms, send};
//! use tideline_openapi::feed::{FeedSettings, NewMessage};
//!
//! # let folder = tempfile::tempdir()?;
//! # let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
//! # let engine = Engine::open(backend, Arc::new(SystemClock), Settings::new(folder.path().join("index")))?;
//! let (feed, rows) = FeedSettings::default().into_spec()?;
//! let spec = TableSpec {
//!     model: TableModel::Feed,
//!     wide: Some(Box::new(rows)),
//!     feed: Some(feed),
//!     ..TableSpec::default()
//! };
//! engine.create_table(TableName::new("chat")?, spec)?;
//! let table = engine.feed_table("chat")?;
//!
//! let room = FeedName::parse("room,name=lobby");
//! let messages: Vec<NewMessage> = serde_json::from_str(r#"[{"sender": "ann", "columns": {"text": "hello"}}]"#)?;
//! let sent = send(&engine, &table, &room, &messages, &WriteTerms::default())?;
//!
//! let (terms, encoder) = (ReadTerms::default(), MessageEncoder::default());
//! let mut space = Room::default();
//! let read = page(&engine, &table, (sent.feed, &terms), &encoder, (10, &mut space), &|| false)?;
//! assert_eq!(read.messages.len(), 1);
//! assert!(read.messages.to_json().contains("hello"));
//! # engine.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod blocks;
pub mod change;
mod delivery;
pub mod fan_out;
pub mod inbox;
pub mod members;
pub mod message;
mod message_list;
pub mod read;
pub mod search;
pub mod send;
mod state;
pub mod viewer;

pub use message::MessageEncoder;
pub use message_list::MessageList;
