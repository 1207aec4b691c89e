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
pub use streams::{ChangeSettings, ChangeStreams, ChangeSummary, no_stream};
pub use tideline_webhooks::{Backoff, HostPattern, WebhookSettings};
