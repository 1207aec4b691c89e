//! The log that every model writes to.
//!
//! # The life of an entry
//!
//! 1. [`LogThreads::commit`] hands a [`LogEntry`] to the committer: it gathers what waits, numbers it, appends it to the
//!    backend's journal, syncs, has each entry applied by its model and answers.
//! 2. When a [`LogModel`] says that it is full or old, the committer freezes all models at one sequence: a new generation
//!    begins in memory and in the journal.
//! 3. The flusher has each model write its frozen generation, and publishes all of it with one edit of the [`manifest`]
//!    that also moves the cursor of the journal. Then the journal of that generation is forgotten.
//!
//! A crash between any two steps neither loses nor doubles an entry: [`Opening::replay`] hands the entries from the
//! published cursor on to their models again.
//!
//! Beside that the log keeps what all models need: the shared rows of the manifest and the one way to edit them, the newest
//! entries for watchers, remembered requests, the trusted clock, the lease of the shard, stamps and ids.
//!
//! # The journal
//!
//! An entry begins with the two bytes of its [`ModelTag`]; the rest is its model's. Sequences rise over all models of a
//! shard. A build refuses to open a journal with entries of a model that it does not know.

mod clock;
mod committer;
mod edits;
pub mod entry;
pub mod error;
pub mod fail_points;
mod flusher;
mod lease;
mod log;
pub mod manifest;
pub mod model;
mod opening;
mod requests;
mod retired;
mod settings;
mod stamps;
mod tail;
pub mod trusted_clock;

pub use edits::Edit;
pub use entry::{LogEntry, ModelError, ModelTag, Refusal};
pub use error::{LogError, Result};
pub use log::{Log, LogCounts, SHARD};
pub use manifest::Manifest;
pub use model::{Flushed, LogModel, Pressure, Replay, Replayed as ReplayedEntry};
pub use opening::{LogThreads, Opening, Replayed};
pub use requests::{RequestKey, RequestRecord, Requests};
pub use retired::{Retired, Versioned};
pub use settings::LogSettings;
pub use stamps::Stamps;
pub use tail::{TailEntry, TailError, TailPart};
pub use trusted_clock::{ClockDoubt, StoredClock, TrustedClock, TrustedNow};
