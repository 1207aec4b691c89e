//! Ownership and journals: the shard state holds the owner, journal files hold the entries, and the high-water mark
//! records the last durable entries.
//!
//! Locks are taken in this order: the journal of a shard, the engine, the shard state. The lock of the journal is held
//! from the check of the epoch to the end of the append. So a new owner never races with an append of the old owner.

use tideline_backend::limits::check_older;
use tideline_backend::{BackendError, Epoch, JournalEntry, Lease, Result, Shard, Stamp};
use tideline_model::{Durability, SequenceNumber, Tier};

use super::{Inner, JournalFailure};
use crate::error::{During, from_io};
use crate::journal::ShardJournal;
use crate::shard_state::{ShardHead, closed_change, head_change};
use crate::store::SpaceDemand;

impl Inner {
    /// Records the failure of a broken journal, so that `health` needs no lock of the journal.
    fn note_failure(&self, journal: &ShardJournal) {
        if let Some(reason) = journal.broken() {
            let mut failure = self.journal_failure.lock();
            failure.get_or_insert_with(|| JournalFailure::new(reason));
        }
    }

    /// Records all entries of a journal as durable.
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
            self.check_writable(Tier::Hot, SpaceDemand::Little)?;
            let synced = journal.sync();
            self.note_failure(&journal);
            synced?;
        }
        let engine = self.engine()?;
        let mut shard_state = self.shard_state.lock();
        let head = shard_state.head(shard);
        let head = ShardHead {
            epoch: Epoch(newest.max(Some(head.epoch)).map_or(0, |epoch| epoch.0) + 1),
            ..head
        };
        if !is_read_only {
            self.commit(&engine, &mut shard_state, vec![head_change(shard, head)])?;
        }
        shard_state.set_head(shard, head);
        Ok(own(head.epoch))
    }

    /// Checks that the owner of this epoch still owns the shard. Returns its lease.
    pub(super) fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        let _open = self.engine()?;
        self.shard_state.lock().check_owner(shard, epoch)?;
        Ok(own(epoch))
    }

    pub(super) fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.check_writable(Tier::Hot, SpaceDemand::Space)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        self.shard_state.lock().check_owner(shard, epoch)?;
        let appended = journal.append(epoch, entries, durability);
        self.note_failure(&journal);
        appended?;
        if let (Durability::Synced, Some(last)) = (durability, entries.last()) {
            self.high_water.note_entry(shard, epoch, last.sequence);
        }
        Ok(())
    }

    pub(super) fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        self.shard_state.lock().check_owner(shard, epoch)?;
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
            self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        }
        let engine = self.engine()?;
        let mut shard_state = self.shard_state.lock();
        check_older(epoch, shard_state.head(shard).epoch)?;
        match shard_state.end(shard, epoch) {
            Some(closed) if closed == end => Ok(()),
            Some(closed) => Err(BackendError::Refused {
                reason: format!("the epoch was closed at {closed}, not {end}"),
            }),
            None => {
                if !is_read_only {
                    let change = closed_change(shard, epoch, Some(end));
                    self.commit(&engine, &mut shard_state, vec![change])?;
                }
                shard_state.close(shard, epoch, end);
                Ok(())
            }
        }
    }

    pub(super) fn keep_history(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: Option<SequenceNumber>,
    ) -> Result<()> {
        self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        self.shard_state.lock().check_owner(shard, epoch)?;
        journal.keep_history(from)
    }

    pub(super) fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        let journal = self.journals.shard(shard);
        let mut journal = journal.lock();
        // The marks are removed first, because a mark without its file would count as a loss.
        let forgotten = journal.forgotten_epochs(epoch, to);
        if !forgotten.is_empty() {
            let forgot = self.high_water.forget(shard, &forgotten);
            forgot.map_err(|error| from_io(&error, "the high-water mark", During::Read))?;
        }
        journal.forget(epoch, to)?;
        let held = journal.epochs();
        let engine = self.engine()?;
        let mut shard_state = self.shard_state.lock();
        let mut closed = shard_state.closed_up_to(shard, epoch);
        closed.retain(|epoch| !held.contains(epoch));
        if !closed.is_empty() {
            let changes = closed.iter().map(|&epoch| closed_change(shard, epoch, None));
            self.commit(&engine, &mut shard_state, changes.collect())?;
            shard_state.forget_closed(shard, &closed);
        }
        Ok(())
    }
}

/// Returns a lease that is valid while the folder is locked. Writes take effect in the order of calls, so stamps are
/// not stored.
fn own(epoch: Epoch) -> Lease {
    Lease {
        epoch,
        stamp_min: Stamp(0),
        stamp_max: Stamp(u64::MAX),
        holds: None,
    }
}
