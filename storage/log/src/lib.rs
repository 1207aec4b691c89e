//! The log of a shard: journal, group commit, flush and manifest for all data models.
//!
//! # Life of an entry
//!
//! 1. [`LogThreads::commit`] sends a [`LogEntry`] to the committer. The committer collects the waiting entries into a
//!    group, numbers them, appends them to the backend's journal, lets each model apply its entries, and replies. It
//!    syncs the journal before the replies if an entry of the group requests a sync, and otherwise at most about a
//!    second later.
//! 2. When a [`LogModel`] reports that its active generation is full or old, the committer freezes the active
//!    generations of all models at one sequence. A new generation begins in memory and in the journal.
//! 3. The flusher lets each model write its frozen generation. It then publishes the output of all models with one edit
//!    of the [`manifest`]; the same edit moves the cursor of the journal. Finally it deletes the journal of the frozen
//!    generation.
//!
//! A crash between any two steps neither loses nor duplicates an entry: [`Opening::replay`] passes each entry that is
//! not below the published cursor to its model again.
//!
//! The log also holds the state that all models share: the common rows of the manifest, the newest entries for watches,
//! remembered requests, the trusted clock, the lease of the shard, stamps and ids. The manifest is edited only through
//! [`Log::edit`].
//!
//! # Journal
//!
//! An entry begins with the two bytes of its [`ModelTag`]; the model defines the other bytes. All models of a shard
//! share one increasing series of sequences. A build refuses to open a journal with entries of a model that it does not
//! support.

mod clock;
mod committer;
pub mod copy;
mod edits;
pub mod entry;
pub mod error;
pub mod fail_points;
mod flusher;
mod groups;
mod lease;
mod log;
pub mod manifest;
pub mod model;
mod opening;
mod recent_entries;
mod reply;
mod requests;
mod retired;
mod settings;
#[cfg(test)]
mod simulation;
mod stamps;
pub mod trusted_clock;

pub use edits::Edit;
pub use entry::{LogEntry, ModelError, Refusal};
pub use error::{LogError, Result};
pub use log::{EntriesPage, Log, LogCounts, SHARD};
pub use manifest::Manifest;
pub use model::{Flushed, LogModel, Pressure, Replay, Replayed as ReplayedEntry};
pub use opening::{LogThreads, Opening, Replayed};
pub use recent_entries::{RecentEntry, RecentError, RecentPage};
pub use reply::Submitted;
pub use requests::{OUTCOME_BYTES_MAX, RequestKey, RequestRecord, Requests};
pub use retired::{Retired, Versioned};
pub use settings::LogSettings;
pub use stamps::Stamps;
pub use tideline_model::ModelTag;
pub use trusted_clock::{ClockDoubt, StoredClock, TrustedClock, TrustedNow};
