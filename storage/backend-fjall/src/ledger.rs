//! Who owns which shard, at which version its manifest is, and how many commits there were.
//!
//! Kept in memory so that a fence costs nothing, and written in the same batch as what it fences.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{BackendError, Epoch, Result, Shard};
use tideline_model::SequenceNumber;

use crate::engine::{Change, Engine, Table};
use crate::keys::{COMMITS, ManifestKey, closed_key, owner_key};

/// The owners, versions, ends and commits, as of the last commit.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) commits: u64,
    shards: BTreeMap<Shard, ShardHead>,
    closed: BTreeMap<(Shard, Epoch), SequenceNumber>,
}

/// A shard's owner and the version of its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardHead {
    pub(crate) epoch: Epoch,
    pub(crate) version: u64,
}

impl Ledger {
    /// Reads it from the store.
    pub(crate) fn read(engine: &Engine) -> Result<Self> {
        let mut ledger = Self::default();
        for (key, value) in engine.manifest_rows(&[])? {
            match ManifestKey::parse(&key) {
                Some(ManifestKey::Commits) => ledger.commits = number(&value, 0)?,
                Some(ManifestKey::Owner(shard)) => {
                    let head = ShardHead {
                        epoch: Epoch(number(&value, 0)?),
                        version: number(&value, 8)?,
                    };
                    ledger.shards.insert(shard, head);
                }
                Some(ManifestKey::Closed(shard, epoch)) => {
                    let end = SequenceNumber(number(&value, 0)?);
                    ledger.closed.insert((shard, epoch), end);
                }
                Some(ManifestKey::Row(..)) => {}
                None => {
                    return Err(BackendError::corrupt(format!("manifest key {key:02x?}")));
                }
            }
        }
        Ok(ledger)
    }

    pub(crate) fn head(&self, shard: Shard) -> ShardHead {
        let none = ShardHead {
            epoch: Epoch(0),
            version: 0,
        };
        self.shards.get(&shard).copied().unwrap_or(none)
    }

    /// Refuses a caller that is not the owner.
    pub(crate) fn check_owner(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let owner = self.head(shard).epoch;
        if epoch == owner && owner.0 > 0 {
            return Ok(());
        }
        Err(BackendError::Refused {
            reason: format!("epoch {} is not the owner's, {}", epoch.0, owner.0),
        })
    }

    /// Where an epoch ends, if it is closed.
    pub(crate) fn end(&self, shard: Shard, epoch: Epoch) -> Option<SequenceNumber> {
        self.closed.get(&(shard, epoch)).copied()
    }

    /// Closed epochs of a shard, up to and including `epoch`.
    pub(crate) fn closed_up_to(&self, shard: Shard, epoch: Epoch) -> Vec<Epoch> {
        let closed = self.closed.range((shard, Epoch(0))..=(shard, epoch));
        closed.map(|((_, epoch), _)| *epoch).collect()
    }

    pub(crate) fn set_head(&mut self, shard: Shard, head: ShardHead) {
        self.shards.insert(shard, head);
    }

    pub(crate) fn close(&mut self, shard: Shard, epoch: Epoch, end: SequenceNumber) {
        self.closed.insert((shard, epoch), end);
    }

    pub(crate) fn forget_closed(&mut self, shard: Shard, epochs: &[Epoch]) {
        self.closed
            .retain(|(held, epoch), _| *held != shard || !epochs.contains(epoch));
    }
}

/// The change that stores a shard's head.
pub(crate) fn head_change(shard: Shard, head: ShardHead) -> Change {
    let value = [head.epoch.0.to_be_bytes(), head.version.to_be_bytes()].concat();
    manifest_change(owner_key(shard), Some(value.into()))
}

/// The change that stores, or removes, where an epoch ends.
pub(crate) fn closed_change(shard: Shard, epoch: Epoch, end: Option<SequenceNumber>) -> Change {
    let value = end.map(|end| Bytes::copy_from_slice(&end.0.to_be_bytes()));
    manifest_change(closed_key(shard, epoch), value)
}

/// The change that counts a commit. It goes into every batch, so that a lost one is noticed.
pub(crate) fn commits_change(commits: u64) -> Change {
    let value = Bytes::copy_from_slice(&commits.to_be_bytes());
    manifest_change(COMMITS.to_vec(), Some(value))
}

fn manifest_change(key: Vec<u8>, value: Option<Bytes>) -> Change {
    Change {
        table: Table::Manifest,
        key,
        value,
    }
}

fn number(value: &[u8], at: usize) -> Result<u64> {
    let bytes = value.get(at..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|bytes| u64::from_be_bytes(*bytes))
        .ok_or_else(|| BackendError::corrupt("a manifest value is too short"))
}
