//! Interfaces between the log and the data models.
//!
//! A model keeps its entries in memory in *generations* (memtables): one is active and grows, frozen ones wait for
//! their flush. All models are frozen at the same sequence. One edit of the manifest publishes everything that they
//! have flushed, together with the cursor of the journal.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{ManifestChange, ManifestRow, SegmentRef};
use tideline_model::{ModelTag, SequenceNumber, TableId};

use crate::entry::ModelError;
use crate::manifest::Manifest;
use crate::requests::RequestRecord;

/// Applies entries of earlier runs when the log is opened.
pub trait Replay {
    /// Returns the tag of the model whose entries are applied.
    fn tag(&self) -> ModelTag;

    /// Applies an entry, with the same result as [`LogEntry::apply`](crate::LogEntry::apply).
    ///
    /// # Errors
    ///
    /// An error if the entry cannot be read; the log is then not opened.
    fn apply(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<Replayed, ModelError>;
}

/// Description of a replayed entry.
#[derive(Debug)]
pub struct Replayed {
    /// Table of the entry.
    pub table: TableId,
    /// Request of the entry; `None` if the entry has no request, or if its table no longer exists.
    pub request: Option<RequestRecord>,
}

/// Memory pressure of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// The active generation is neither full nor old.
    Low,
    /// The active generation is full or old, and must be frozen.
    Full,
    /// The active generation is full, and frozen generations use the remaining budget. Writers wait until the pressure
    /// drops.
    Over,
}

/// Data model that writes to the log.
pub trait LogModel: Send + Sync {
    /// Returns the memory pressure, which determines whether the active generation is frozen. Called after each group,
    /// and about once a second when idle.
    fn pressure(&self) -> Pressure;

    /// Returns true if the active generation is empty.
    fn is_empty(&self) -> bool;

    /// Freezes the active generation, which ends before `next`, and begins a new one.
    fn freeze(&self, next: SequenceNumber);

    /// Writes the generations that end at or before `end` to the backend, invisible to readers. Also writes all other
    /// state of the model up to `end` that only the journal holds. Rows may be written as buffered: the flusher syncs
    /// the rows of all models together, and then calls [`Flushed::synced`]. Returns `None` if the flush has nothing to
    /// publish and nothing to do after the sync. Called again after a failure.
    ///
    /// # Errors
    ///
    /// An error of the model: nothing is published, and the flush is retried.
    fn flush(&self, end: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError>;

    /// Drops the generations that end at or before `end`: they are published. May be called repeatedly.
    fn flushed(&self, end: SequenceNumber);

    /// Does deferred work, such as freeing data whose last reader has ended. Called about once a second and before each
    /// flush.
    fn tidy(&self);

    /// Replaces the state of the model with the state of a manifest that was changed without the model, for example by
    /// an edit with an unknown outcome. `rows` are all rows of the manifest. At the same moment, readers switch from
    /// the flushed generations to the published data.
    ///
    /// # Errors
    ///
    /// An error if a row of the manifest cannot be read.
    fn take_over(&self, manifest: &Arc<Manifest>, rows: &[ManifestRow]) -> Result<(), ModelError>;

    /// Sets the tables that may have been dropped by an edit with an unknown outcome. Replaces the earlier set.
    fn doubt(&self, tables: &[TableId]);

    /// Frees segments of an edit that was not applied. No manifest references these segments.
    fn abandon(&self, loads: &[SegmentRef]);
}

/// Generation that was written to the backend and is not published yet.
pub trait Flushed {
    /// Does the work that must wait until all rows written by the flush are durable. Not called if the sync failed; the
    /// next flush then writes the rows again.
    ///
    /// # Errors
    ///
    /// An error if the generation cannot be published; it is flushed again.
    fn synced(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    /// Returns the row changes that publish the generation, and applies the changes of shared rows to `manifest`.
    ///
    /// # Errors
    ///
    /// An error if the generation cannot be published in the current state; it is flushed again.
    fn edit(&mut self, manifest: &mut Manifest) -> Result<Vec<ManifestChange>, ModelError>;

    /// Returns the segments that the edit adds.
    fn adds(&self) -> Vec<SegmentRef>;

    /// Switches readers from the generation in memory to the published one.
    fn follow(self: Box<Self>, manifest: &Arc<Manifest>);
}
