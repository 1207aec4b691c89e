//! Who owns which shard, at which version its manifest is, and how many commits there were.
//!
//! Kept in memory so that a fence costs nothing, and written in the same batch as what it fences.
//!
//! fjall flushes each keyspace on its own, so a log that has lost its end may leave one keyspace complete and the other
//! without its last rows. Each batch therefore counts itself in both: two different counts mean that rows are missing.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{BackendError, Epoch, Result, Shard};
use tideline_model::SequenceNumber;

use crate::engine::{Change, Engine, Table};
use crate::keys::{COMMITS, MANIFEST, ManifestKey, ROWS, closed_key, owner_key};

/// Bytes of a number of commits.
const COUNT_BYTES: usize = 8;

/// The owners, versions, ends and commits, as of the last commit.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The highest number of commits that a keyspace holds.
    pub(crate) commits: u64,
    /// The first commit that was counted in both keyspaces; `None` if the last one was not.
    counted_since: Option<u64>,
    /// Description of the commits that one keyspace lacks.
    lacking: Option<String>,
    /// The lowest number of commits that a keyspace holds.
    complete: u64,
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
                Some(ManifestKey::Commits) => {
                    ledger.commits = number(&value, 0)?;
                    ledger.complete = ledger.commits;
                    let is_counted = value.len() > COUNT_BYTES;
                    ledger.counted_since = is_counted.then(|| number(&value, COUNT_BYTES)).transpose()?;
                }
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
        ledger.compare_rows(engine)?;
        Ok(ledger)
    }

    /// Compares the counts of both keyspaces, where the last commit was counted in both.
    fn compare_rows(&mut self, engine: &Engine) -> Result<()> {
        let counted = engine.counted_in_rows()?;
        let in_rows = counted.map_or(Ok(0), |value| number(&value, 0))?;
        let in_manifest = self.commits;
        // An older build counts in the manifest only, and leaves the count in the rows as it was. Where the manifest has
        // lost all its rows, any count in the rows is more than it has.
        if in_rows == in_manifest || (self.counted_since.is_none() && in_rows < in_manifest) {
            return Ok(());
        }
        let (keyspace, has) = match in_rows < in_manifest {
            true => (ROWS, in_rows),
            false => (MANIFEST, in_manifest),
        };
        self.commits = in_rows.max(in_manifest);
        self.complete = in_rows.min(in_manifest);
        self.lacking = Some(format!(
            "commits {} to {} in the keyspace {keyspace}",
            has + 1,
            self.commits
        ));
        Ok(())
    }

    /// Compares what tables hold with the first commit that the logs hold: a log between them may be missing.
    pub(crate) fn check_flushed(&mut self, engine: &Engine, first_commit: Option<u64>) -> Result<()> {
        let Some(before) = first_commit.and_then(|first| first.checked_sub(1)) else {
            return Ok(());
        };
        let flushed = |count: Option<Bytes>| count.map_or(Ok(0), |count| number(&count, 0));
        let [in_manifest, in_rows] = engine.flushed_commits()?;
        let is_counted = self.counted_since.is_some_and(|since| since <= before);
        let in_rows = if is_counted { flushed(in_rows)? } else { before };
        for (keyspace, has) in [(MANIFEST, flushed(in_manifest)?), (ROWS, in_rows)] {
            if has < before {
                self.complete = self.complete.min(has);
                self.lacking = Some(format!(
                    "commits {} to {before} in the keyspace {keyspace}, whose log is gone",
                    has + 1
                ));
            }
        }
        Ok(())
    }

    /// The number of commits that all keyspaces hold.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// Describes the commits that one keyspace lacks and another has.
    pub(crate) fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// The changes that count the next commit. They go into its batch, so that a lost one is noticed.
    pub(crate) fn next_commit(&self) -> [Change; 2] {
        let commits = self.commits + 1;
        let since = self.counted_since.unwrap_or(commits);
        let in_manifest = [commits.to_be_bytes(), since.to_be_bytes()].concat();
        let in_rows = Change {
            table: Table::Rows,
            key: COMMITS.to_vec(),
            value: Some(Bytes::copy_from_slice(&commits.to_be_bytes())),
        };
        [
            manifest_change(COMMITS.to_vec(), Some(in_manifest.into())),
            in_rows,
        ]
    }

    /// Notes that the batch of [`next_commit`](Self::next_commit) has been committed; the number of commits now.
    pub(crate) fn committed(&mut self) -> u64 {
        self.commits += 1;
        self.complete = self.commits;
        self.lacking = None;
        self.counted_since.get_or_insert(self.commits);
        self.commits
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

/// The change that counts a load of the cold store, whose manifest has nothing else.
pub(crate) fn loads_change(commits: u64) -> Change {
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
