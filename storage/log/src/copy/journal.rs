//! Journal of a copy: the entries that a start applies again, and those that change streams read.
//!
//! The entries keep their sequences, so cursors of change streams stay valid. All entries are appended in one epoch.
//! Epochs that interrupted copies have left in the target are closed without entries.

use bytes::Bytes;
use tideline_backend::{JournalEntry, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_model::{Durability, SequenceNumber};

use super::{Copy, CopyError, Digest, Result};
use crate::log::SHARD;

impl Copy<'_> {
    /// Copies the entries from `sealed_to` on, and the older ones that are kept for change streams.
    pub(super) fn copy_journal(&mut self, sealed_to: SequenceNumber) -> Result<()> {
        let own = self.target.ownership.epoch;
        // The entries of an interrupted copy are ignored: their epochs are closed without entries.
        for journal in self.target.call(|target| target.epochs(SHARD))? {
            if journal.epoch < own && journal.end.is_none() {
                self.target
                    .call(|target| target.close_epoch(SHARD, journal.epoch, SequenceNumber(0)))?;
            }
        }
        let history = self.source.read(|source| source.history(SHARD))?.from;
        if history.is_some() || self.target.call(|target| target.history(SHARD))?.from.is_some() {
            self.target
                .call(|target| target.keep_history(SHARD, own, history))?;
        }
        let mut batch = Batch::default();
        if let Some(from) = history {
            self.copy_history(from, sealed_to, &mut batch)?;
        }
        for journal in self.source.read(|source| source.epochs(SHARD))? {
            if journal.epoch >= self.source.ownership.epoch {
                continue;
            }
            let mut failed = None;
            let replayed =
                self.source
                    .backend
                    .replay(SHARD, journal.epoch, sealed_to, &mut |sequence, value| {
                        self.add(&mut batch, sequence, value).map_err(|error| {
                            let carried = tideline_backend::BackendError::corrupt(error.to_string());
                            failed = Some(error);
                            carried
                        })
                    });
            if let Some(error) = failed {
                return Err(error);
            }
            replayed.map_err(|error| CopyError::Source(error.into()))?;
        }
        self.append(&mut batch)?;
        self.target.call(|target| target.sync_journal(SHARD, own))?;
        let mut found = Digest::default();
        self.target.call(|target| {
            target.replay(SHARD, own, SequenceNumber(0), &mut |sequence, value| {
                found.add(&sequence.0.to_le_bytes(), &value);
                Ok(())
            })
        })?;
        if !found.is_equal(&batch.digest) {
            return Err(CopyError::Differs("entries of the journal".to_owned()));
        }
        self.row.progress.entries = found.count;
        self.report()
    }

    /// Copies the kept entries below `to`. If some are damaged, only those after the damage are kept in the target: a
    /// change stream then has a gap, as in the source.
    fn copy_history(&self, from: SequenceNumber, to: SequenceNumber, batch: &mut Batch) -> Result<()> {
        let own = self.target.ownership.epoch;
        let mut next = from;
        while next < to {
            let page = self
                .source
                .read(|source| source.read_history(SHARD, next, WRITE_BYTES_MAX))?;
            if page.from > next {
                tracing::warn!(
                    from = next.0,
                    to = page.from.0,
                    "changes that are damaged are not copied"
                );
                let kept = Some(page.from);
                self.target.call(|target| target.keep_history(SHARD, own, kept))?;
            }
            if page.entries.is_empty() && page.next == next {
                break;
            }
            for entry in page.entries {
                if entry.sequence < to {
                    self.add(batch, entry.sequence, entry.value)?;
                }
            }
            next = page.next;
        }
        Ok(())
    }

    fn add(&self, batch: &mut Batch, sequence: SequenceNumber, value: Bytes) -> Result<()> {
        let is_full = batch.entries.len() >= WRITE_ROWS_MAX || batch.bytes + value.len() > WRITE_BYTES_MAX;
        if is_full {
            self.append(batch)?;
        }
        batch.digest.add(&sequence.0.to_le_bytes(), &value);
        batch.bytes += value.len();
        batch.entries.push(JournalEntry { sequence, value });
        Ok(())
    }

    fn append(&self, batch: &mut Batch) -> Result<()> {
        if batch.entries.is_empty() {
            return Ok(());
        }
        self.target.check().map_err(CopyError::Target)?;
        let own = self.target.ownership.epoch;
        let entries = std::mem::take(&mut batch.entries);
        batch.bytes = 0;
        self.target
            .call(|target| target.append(SHARD, own, &entries, Durability::Buffered))
    }
}

/// Entries that wait to be appended, and the digest of all.
#[derive(Default)]
struct Batch {
    entries: Vec<JournalEntry>,
    bytes: usize,
    digest: Digest,
}
