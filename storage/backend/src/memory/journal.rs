//! Journal of one epoch of one shard.
//!
//! Late entries are applied only by [`Journal::land_late`], and dropped if the epoch is closed before. A close keeps
//! exactly the entries that the closing process has replayed. An entry that arrives between this replay and the close
//! is not part of the epoch, like all entries that arrive later.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tideline_model::{Durability, SequenceNumber};

use crate::contract::JournalEntry;
use crate::error::{BackendError, Result};
use crate::limits::check_entries;

/// Applied entries by sequence number, and late entries that are not yet applied.
#[derive(Default)]
pub(super) struct Journal {
    entries: BTreeMap<SequenceNumber, Bytes>,
    late: Vec<JournalEntry>,
    acknowledged: Option<SequenceNumber>,
    end: Option<SequenceNumber>,
    /// True if the epoch had no entries when a newer owner took the shard. It gets none later, but can be closed.
    is_barred: bool,
    /// Sequence number of the first entry that a power failure would lose.
    unsynced: Option<SequenceNumber>,
}

/// Entries of an open epoch that a replay has passed to its caller.
pub(super) struct Found {
    /// Sequence number from which the replay began.
    pub(super) from: SequenceNumber,
    pub(super) sequences: BTreeSet<SequenceNumber>,
}

impl Journal {
    /// Creates the journal of an epoch that gets no entries.
    pub(super) fn barred() -> Self {
        Self {
            is_barred: true,
            ..Self::default()
        }
    }

    /// Ends an epoch without entries, because a newer owner takes the shard.
    pub(super) fn bar_if_empty(&mut self) {
        if self.is_empty() {
            self.is_barred = true;
            self.late.clear();
        }
    }

    /// Returns true if entries that arrive now are part of the epoch.
    fn is_open(&self) -> bool {
        self.end.is_none() && !self.is_barred
    }

    /// Records whether appended entries survive a power failure. A synced append also syncs all earlier entries.
    pub(super) fn note_durability(&mut self, entries: &[JournalEntry], durability: Durability) {
        match (durability, entries.first()) {
            (Durability::Synced, _) => self.sync(),
            (Durability::Buffered, Some(first)) => {
                self.unsynced.get_or_insert(first.sequence);
            }
            (Durability::Buffered, None) => {}
        }
    }

    /// Makes all entries durable.
    pub(super) fn sync(&mut self) {
        self.unsynced = None;
    }

    /// Drops all entries that were not synced.
    pub(super) fn cut_power(&mut self) {
        if let Some(first) = self.unsynced.take() {
            self.entries.split_off(&first);
        }
    }

    /// Refuses entries that are too large, or whose sequence numbers do not increase above the acknowledged ones.
    pub(super) fn check(&self, entries: &[JournalEntry]) -> Result<()> {
        check_entries(entries, self.acknowledged)
    }

    /// Stores entries, unless the epoch has been closed.
    pub(super) fn append(&mut self, entries: &[JournalEntry]) {
        if !self.is_open() {
            return;
        }
        let entries = entries.iter().cloned();
        self.entries
            .extend(entries.map(|entry| (entry.sequence, entry.value)));
    }

    pub(super) fn append_late(&mut self, entries: &[JournalEntry]) {
        self.late.extend_from_slice(entries);
    }

    pub(super) fn acknowledge(&mut self, entries: &[JournalEntry]) {
        self.acknowledged = self.acknowledged.max(entries.last().map(|entry| entry.sequence));
    }

    /// Applies late entries, unless the epoch has been closed.
    pub(super) fn land_late(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.append(&late);
    }

    pub(super) fn end(&self) -> Option<SequenceNumber> {
        self.end
    }

    /// Closes the epoch at `end`. `found` are the entries that the caller has replayed; `None` if it has not replayed
    /// the epoch.
    pub(super) fn close(&mut self, end: SequenceNumber, found: Option<&Found>) -> Result<()> {
        match self.end {
            Some(closed) if closed != end => Err(BackendError::Refused {
                reason: format!("the epoch was closed at {closed}, not {end}"),
            }),
            Some(_) => Ok(()),
            None => {
                self.end = Some(end);
                self.entries.split_off(&end);
                if let Some(found) = found {
                    let entries = &mut self.entries;
                    entries.retain(|at, _| *at < found.from || found.sequences.contains(at));
                }
                self.late.clear();
                Ok(())
            }
        }
    }

    /// Frees each slot that is entirely below `to`, and returns its entries. A slot covers `slot_entries` consecutive
    /// sequence numbers.
    pub(super) fn forget(
        &mut self,
        to: SequenceNumber,
        slot_entries: u64,
    ) -> BTreeMap<SequenceNumber, Bytes> {
        let first_kept = SequenceNumber(to.0 / slot_entries * slot_entries);
        let kept = self.entries.split_off(&first_kept);
        self.late.retain(|entry| entry.sequence >= first_kept);
        std::mem::replace(&mut self.entries, kept)
    }

    /// Returns the durable entries with sequence numbers of at least `from`.
    pub(super) fn durable(&self, from: SequenceNumber) -> impl Iterator<Item = (SequenceNumber, Bytes)> {
        let end = self.unsynced.unwrap_or(SequenceNumber(u64::MAX));
        let entries = self.entries.range(from..);
        let durable = entries.take_while(move |(sequence, _)| **sequence < end);
        durable.map(|(sequence, value)| (*sequence, value.clone()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn from(&self, from: SequenceNumber) -> Vec<(SequenceNumber, Bytes)> {
        let entries = self.entries.range(from..);
        entries
            .map(|(sequence, value)| (*sequence, value.clone()))
            .collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.values().map(|value| value.len() as u64).sum()
    }
}
