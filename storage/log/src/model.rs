//! The part of a model that the log drives.
//!
//! A model keeps its entries in memory in a *generation*: the active one grows, frozen ones wait to be flushed. All models
//! are frozen at the same sequence, and one edit of the manifest publishes what they have flushed together with the cursor
//! of the journal.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{ManifestChange, ManifestRow, SegmentRef};
use tideline_model::{SequenceNumber, TableId};

use crate::entry::{ModelError, ModelTag};
use crate::manifest::Manifest;
use crate::requests::RequestRecord;

/// Applies entries of earlier runs when the log is opened.
pub trait Replay {
    /// The model whose entries these are.
    fn tag(&self) -> ModelTag;

    /// Takes an entry in, as [`LogEntry::apply`](crate::LogEntry::apply) did.
    ///
    /// # Errors
    ///
    /// The entry cannot be read; the log does not open.
    fn apply(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<Replayed, ModelError>;
}

/// An entry that was replayed.
#[derive(Debug)]
pub struct Replayed {
    /// The table that it was written to.
    pub table: TableId,
    /// Its request, if its table still exists.
    pub request: Option<RequestRecord>,
}

/// How much of its budget a model has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// It has room.
    Low,
    /// Its active generation is full or old: it is frozen.
    Full,
    /// And generations that are still being flushed have taken the room: writers wait.
    Over,
}

/// A model that writes to the log.
pub trait LogModel: Send + Sync {
    /// Whether its active generation is to be frozen. Called after each group.
    fn pressure(&self) -> Pressure;

    /// Whether its active generation holds anything.
    fn is_empty(&self) -> bool;

    /// Freezes the active generation, which ends before `next`, and begins a new one.
    fn freeze(&self, next: SequenceNumber);

    /// Writes the generation that ends at `end` to the backend, unseen by readers, and what else only the journal carries up
    /// to there. Rows may be written as buffered: they are synced once, for all models, and [`Flushed::synced`] says so.
    /// `None` where there is nothing to publish and nothing to take note of. Called again after a failure.
    ///
    /// # Errors
    ///
    /// Nothing is published; it is tried again.
    fn flush(&self, end: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError>;

    /// Everything before `end` is published: generations up to there are dropped. Repeatable.
    fn flushed(&self, end: SequenceNumber);

    /// Does what waits for readers or for time, about once a second and after each flush.
    fn tidy(&self);

    /// Follows a manifest that was changed without it: an edit of unknown outcome was made. `rows` are all rows. Generations
    /// that it has flushed are dropped in the same instant for readers.
    ///
    /// # Errors
    ///
    /// A row of it cannot be read.
    fn take_over(&self, manifest: &Arc<Manifest>, rows: &[ManifestRow]) -> Result<(), ModelError>;

    /// These tables may have been dropped, and no others.
    fn doubt(&self, tables: &[TableId]);

    /// An edit that would have added these was not made: nobody names them.
    fn abandon(&self, loads: &[SegmentRef]);
}

/// A generation that was written and is not published yet.
pub trait Flushed {
    /// All rows that the flush has written are durable. Where they could not be synced this is not called, and the next
    /// flush writes them again.
    ///
    /// # Errors
    ///
    /// It cannot be published; it is flushed again.
    fn synced(&mut self) -> Result<(), ModelError> {
        Ok(())
    }

    /// The changes of the manifest that publish it.
    ///
    /// # Errors
    ///
    /// It cannot be published as things are now; it is flushed again.
    fn edit(&mut self, manifest: &mut Manifest) -> Result<Vec<ManifestChange>, ModelError>;

    /// The segments that the edit adds.
    fn adds(&self) -> Vec<SegmentRef>;

    /// Readers see the manifest from now on, in place of the generation in memory.
    fn follow(self: Box<Self>, manifest: &Arc<Manifest>);
}
