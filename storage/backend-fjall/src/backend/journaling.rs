//! Ownership and journals: the fence in the ledger, the entries in the files, the mark beside them.
//!
//! Locks are taken in this order: a shard's journal, the engine, the ledger. The journal's is held from the check of
//! the epoch to the end of the append, so a new owner finds nothing of the old one on its way.

use tideline_backend::limits::check_older;
use tideline_backend::{BackendError, Epoch, JournalEntry, Lease, Result, Shard, Stamp};
use tideline_model::{Durability, SequenceNumber, Tier};

use super::{Inner, JournalFailure};
use crate::error::{During, from_io};
use crate::journal::ShardJournal;
use crate::ledger::{ShardHead, closed_change, head_change};
use crate::store::Takes;

impl Inner {
    /// Lets `health` know of a broken journal without taking its lock.
    fn note_failure(&self, journal: &ShardJournal) {
        if let Some(reason) = journal.broken() {
            let mut failure = self.journal_failure.lock();
            failure.get_or_insert_with(|| JournalFailure::new(reason));
        }
    }

    /// Notes all entries of a journal as durable.
    pub(super) fn note_entries(&self, journal: &ShardJournal) {
        for ((shard, epoch), last) in journal.marks() {
            self.high_water.note_entry(shard, epoch, last);
        }
    }

    pub(super) fn take(&self, shard: Shard) -> Result<Lease> {
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        let newest = journal.epochs().last().copied();
        let is_read_only = self.loss.lock().is_some();
        if !is_read_only {
            self.check_writable(Tier::Hot, Takes::Little)?;
            let synced = journal.sync();
            self.note_failure(&journal);
            synced?;
        }
        let engine = self.engine()?;
        let mut ledger = self.ledger.lock();
        let head = ledger.head(shard);
        let head = ShardHead {
            epoch: Epoch(newest.max(Some(head.epoch)).map_or(0, |epoch| epoch.0) + 1),
            ..head
        };
        if !is_read_only {
            self.commit(&engine, &mut ledger, vec![head_change(shard, head)])?;
        }
        ledger.set_head(shard, head);
        Ok(own(head.epoch))
    }

    /// Looks whether the shard still has this owner.
    pub(super) fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        let _open = self.engine()?;
        self.ledger.lock().check_owner(shard, epoch)?;
        Ok(own(epoch))
    }

    pub(super) fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.check_writable(Tier::Hot, Takes::Space)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        self.ledger.lock().check_owner(shard, epoch)?;
        let appended = journal.append(epoch, entries, durability);
        self.note_failure(&journal);
        appended?;
        if let (Durability::Synced, Some(last)) = (durability, entries.last()) {
            self.high_water.note_entry(shard, epoch, last.sequence);
        }
        Ok(())
    }

    pub(super) fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.check_writable(Tier::Hot, Takes::Little)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        self.ledger.lock().check_owner(shard, epoch)?;
        let synced = journal.sync();
        self.note_failure(&journal);
        synced?;
        if let Some(last) = journal.last(epoch) {
            self.high_water.note_entry(shard, epoch, last);
        }
        Ok(())
    }

    pub(super) fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        let is_read_only = self.loss.lock().is_some();
        if !is_read_only {
            self.check_writable(Tier::Hot, Takes::Little)?;
        }
        let engine = self.engine()?;
        let mut ledger = self.ledger.lock();
        check_older(epoch, ledger.head(shard).epoch)?;
        match ledger.end(shard, epoch) {
            Some(closed) if closed == end => Ok(()),
            Some(closed) => Err(BackendError::Refused {
                reason: format!("the epoch was closed at {closed}, not {end}"),
            }),
            None => {
                if !is_read_only {
                    let change = closed_change(shard, epoch, Some(end));
                    self.commit(&engine, &mut ledger, vec![change])?;
                }
                ledger.close(shard, epoch, end);
                Ok(())
            }
        }
    }

    pub(super) fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.check_writable(Tier::Hot, Takes::Little)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        // The marks go first: a mark without its file would look like a loss.
        let forgotten = journal.forgotten_epochs(epoch, to);
        if !forgotten.is_empty() {
            let forgot = self.high_water.forget(shard, &forgotten);
            forgot.map_err(|error| from_io(&error, "the high-water mark", During::Read))?;
        }
        journal.forget(epoch, to)?;
        let held = journal.epochs();
        let engine = self.engine()?;
        let mut ledger = self.ledger.lock();
        let mut closed = ledger.closed_up_to(shard, epoch);
        closed.retain(|epoch| !held.contains(epoch));
        if !closed.is_empty() {
            let changes = closed.iter().map(|&epoch| closed_change(shard, epoch, None));
            self.commit(&engine, &mut ledger, changes.collect())?;
            ledger.forget_closed(shard, &closed);
        }
        Ok(())
    }
}

/// A lease for as long as the folder is locked. Writes take effect in the order of calls, so their stamps are not stored.
fn own(epoch: Epoch) -> Lease {
    Lease {
        epoch,
        stamp_min: Stamp(0),
        stamp_max: Stamp(u64::MAX),
        holds: None,
    }
}
