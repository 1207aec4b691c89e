//! State of the shards: owners, versions of manifests, ends of closed epochs, and the number of commits.
//!
//! The state is kept in memory, so that checking the owner costs nothing. Each update of the state is written in the
//! same batch as the change that it belongs to.
//!
//! fjall flushes each keyspace separately. If a log has lost its end, one keyspace may be complete, and another may
//! lack its last rows. Each batch therefore stores its number in the keyspaces of the manifest, of rows and, if it
//! exists, of parts. If the numbers differ, rows are missing.
//!
//! Missing rows are a loss only if they belong to a *promised* commit, that is, a commit acknowledged as durable. The
//! stored count therefore also includes the number of promised commits. A buffered batch stores this number explicitly.
//! A synced batch is written only when all earlier commits are durable, so its own number serves for both.
//!
//! The cold store counts its loads and its writes to parts in the same way, but does not count in `rows`.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{BackendError, Epoch, Result, Shard};
use tideline_model::{Durability, SequenceNumber, Tier};

use crate::engine::{Change, Engine, Table};
use crate::error::{During, from_fjall};
use crate::keys::{COMMITS, MANIFEST, ManifestKey, PARTS, ROWS, closed_key, owner_key};

/// Length of a number of commits, in bytes.
const COUNT_BYTES: usize = 8;
/// Offset of the number of durable commits in the value that a buffered batch stores (see [`count_value`]), in bytes.
pub(crate) const DURABLE_AT: usize = 3 * COUNT_BYTES;
/// Placeholder for a missing number in a stored count. It is not a commit number, because commits are numbered from 1.
const NOT_COUNTED: u64 = 0;

/// Owners, manifest versions, epoch ends and commit counts after the last commit.
#[derive(Debug, Default)]
pub(crate) struct ShardState {
    /// Number of the last commit, which is the highest count in any keyspace.
    commits: u64,
    /// True if commits are also counted in the keyspace of rows.
    counts_rows: bool,
    /// First commit that was counted in the rows; `None` if the last commit was not counted there.
    rows_since: Option<u64>,
    /// First commit that was counted in the parts; `None` if the last commit was not counted there.
    parts_since: Option<u64>,
    /// Description of the promised commits that a keyspace lacks; `None` if no keyspace lacks any.
    lacking: Option<String>,
    /// Lowest count in any keyspace that counts commits.
    complete: u64,
    /// Number of commits that are known to be durable.
    durable: u64,
    shards: BTreeMap<Shard, ShardHead>,
    closed: BTreeMap<(Shard, Epoch), SequenceNumber>,
}

/// Owner of a shard, and the version of its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardHead {
    pub(crate) epoch: Epoch,
    pub(crate) version: u64,
}

impl ShardState {
    /// Creates the state of an empty store.
    pub(crate) fn of(tier: Tier) -> Self {
        Self {
            counts_rows: tier == Tier::Hot,
            ..Self::default()
        }
    }

    /// Reads the state from the store.
    pub(crate) fn read(engine: &Engine) -> Result<Self> {
        let mut shard_state = Self::of(engine.tier());
        for (key, value) in engine.manifest_rows(&[])? {
            match ManifestKey::parse(&key) {
                Some(ManifestKey::Commits) => {
                    shard_state.commits = number(&value, 0)?;
                    shard_state.complete = shard_state.commits;
                    shard_state.durable = durable(&value)?;
                    shard_state.rows_since = since(&value, COUNT_BYTES)?;
                    shard_state.parts_since = since(&value, 2 * COUNT_BYTES)?;
                }
                Some(ManifestKey::Owner(shard)) => {
                    let head = ShardHead {
                        epoch: Epoch(number(&value, 0)?),
                        version: number(&value, 8)?,
                    };
                    shard_state.shards.insert(shard, head);
                }
                Some(ManifestKey::Closed(shard, epoch)) => {
                    let end = SequenceNumber(number(&value, 0)?);
                    shard_state.closed.insert((shard, epoch), end);
                }
                Some(ManifestKey::Row(..)) => {}
                None => {
                    return Err(BackendError::corrupt(format!("manifest key {key:02x?}")));
                }
            }
        }
        shard_state.compare(engine)?;
        Ok(shard_state)
    }

    /// Compares the counts of the manifest, the rows and the parts, and records which promised commits are missing.
    /// Ignores rows or parts that did not count the last commit, unless their count exceeds the count of the manifest.
    fn compare(&mut self, engine: &Engine) -> Result<()> {
        let [in_rows, in_parts] = engine.counted_commits()?;
        let in_manifest = self.commits;
        let mut counts = vec![(MANIFEST, in_manifest)];
        // Highest number of promised commits according to any of the counts.
        let mut promised = self.durable;
        let others = [
            (ROWS, in_rows, self.rows_since),
            (PARTS, in_parts, self.parts_since),
        ];
        for (keyspace, value, since) in others {
            let (count, durable) = match &value {
                Some(value) => (number(value, 0)?, durable(value)?),
                None => (0, 0),
            };
            // A count without `since` is normally ignored: an older build counts only in the manifest and leaves the
            // count in the rows unchanged, and a failed commit may have created an empty keyspace of parts. But if the
            // manifest has lost all its rows, `since` is missing too. The manifest then has the count 0, and every
            // keyspace with commits has a higher count.
            if since.is_some() || count > in_manifest {
                counts.push((keyspace, count));
                promised = promised.max(durable);
            }
        }
        let highest = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let lowest = counts.into_iter().min_by_key(|(_, count)| *count);
        if let Some((keyspace, count)) = lowest.filter(|(_, count)| *count < highest) {
            self.commits = highest;
            self.complete = count;
            self.lacking = (count < promised)
                .then(|| format!("commits {} to {promised} in the keyspace {keyspace}", count + 1));
        }
        // All commits found on opening are durable: they are in tables, or in logs that were rewritten durably.
        self.durable = self.commits;
        Ok(())
    }

    /// Returns true if a keyspace lacks commits that another keyspace has, and none of them is promised. The counts
    /// must then be made equal ([`settle_counts`]). Otherwise, once a log is deleted, [`Self::check_flushed`] would
    /// report the missing commits as a loss.
    pub(crate) fn is_uneven(&self) -> bool {
        self.complete < self.commits && self.lacking.is_none()
    }

    /// Compares the commits in tables with the first commit in the logs, to detect a missing log between them.
    pub(crate) fn check_flushed(&mut self, engine: &Engine, first_commit: Option<u64>) -> Result<()> {
        let Some(before) = first_commit.and_then(|first| first.checked_sub(1)) else {
            return Ok(());
        };
        let flushed = |count: Option<Bytes>| count.map_or(Ok(0), |count| number(&count, 0));
        let [in_manifest, in_rows, in_parts] = engine.flushed_commits()?;
        let others = [
            (ROWS, flushed(in_rows)?, self.rows_since),
            (PARTS, flushed(in_parts)?, self.parts_since),
        ];
        let is_counted = |since: Option<u64>| since.is_some_and(|since| since <= before);
        let others = others.into_iter().filter(|(_, _, since)| is_counted(*since));
        let others = others.map(|(keyspace, has, _)| (keyspace, has));
        for (keyspace, has) in [(MANIFEST, flushed(in_manifest)?)].into_iter().chain(others) {
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

    /// Returns the number of commits that all keyspaces hold.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// Describes the promised commits that a keyspace lacks; `None` if no keyspace lacks any.
    pub(crate) fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// Returns the changes that count the next commit; `has_parts` is true if the engine has the keyspace of parts.
    /// The changes belong in the batch of the commit, so that its loss is detected.
    pub(crate) fn next_commit(&self, has_parts: bool, durability: Durability) -> Vec<Change> {
        let (commits, rows_since, parts_since) = self.next(has_parts);
        let durable = (durability == Durability::Buffered).then_some(self.durable);
        let in_manifest = count_value(commits, [rows_since, parts_since, durable]);
        let count = |table| Change {
            table,
            key: COMMITS.to_vec(),
            value: Some(count_value(commits, [None, None, durable])),
        };
        let mut changes = vec![manifest_change(COMMITS.to_vec(), Some(in_manifest))];
        changes.extend(rows_since.map(|_| count(Table::Rows)));
        changes.extend(parts_since.map(|_| count(Table::Parts)));
        changes
    }

    /// Records that the batch of [`next_commit`](Self::next_commit) has been committed. Returns the number of commits.
    pub(crate) fn committed(&mut self, has_parts: bool, durability: Durability) -> u64 {
        (self.commits, self.rows_since, self.parts_since) = self.next(has_parts);
        if durability == Durability::Synced {
            self.durable = self.commits;
        }
        self.complete = self.commits;
        self.lacking = None;
        self.commits
    }

    /// Returns the next number of commits, and the first commits that are counted in rows and in parts.
    fn next(&self, has_parts: bool) -> (u64, Option<u64>, Option<u64>) {
        let commits = self.commits + 1;
        let since = |is_counted: bool, since: Option<u64>| is_counted.then(|| since.unwrap_or(commits));
        (
            commits,
            since(self.counts_rows, self.rows_since),
            since(has_parts, self.parts_since),
        )
    }

    /// Returns true if buffered commits are not synced yet. They must be synced before the next synced commit, because
    /// the count of a synced commit marks all earlier commits as durable.
    pub(crate) fn has_buffered(&self) -> bool {
        self.durable < self.commits
    }

    /// Returns the number of commits, durable or not.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// Records that all commits up to `commits` are durable.
    pub(crate) fn note_durable(&mut self, commits: u64) {
        self.durable = self.durable.max(commits.min(self.commits));
    }

    /// Continues counting above `commits`, if more commits were acknowledged than the store holds.
    pub(crate) fn count_from(&mut self, commits: u64) {
        self.commits = self.commits.max(commits);
        self.durable = self.commits;
    }

    pub(crate) fn head(&self, shard: Shard) -> ShardHead {
        let none = ShardHead {
            epoch: Epoch(0),
            version: 0,
        };
        self.shards.get(&shard).copied().unwrap_or(none)
    }

    /// Returns an error if `epoch` is not the epoch of the shard's owner.
    pub(crate) fn check_owner(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let owner = self.head(shard).epoch;
        if epoch == owner && owner.0 > 0 {
            return Ok(());
        }
        Err(BackendError::Refused {
            reason: format!("epoch {} is not the owner's epoch {}", epoch.0, owner.0),
        })
    }

    /// Returns the end of an epoch, if it is closed.
    pub(crate) fn end(&self, shard: Shard, epoch: Epoch) -> Option<SequenceNumber> {
        self.closed.get(&(shard, epoch)).copied()
    }

    /// Returns the ends of all closed epochs of a shard.
    pub(crate) fn ends(&self, shard: Shard) -> BTreeMap<Epoch, SequenceNumber> {
        let closed = self.closed.range((shard, Epoch(0))..=(shard, Epoch(u64::MAX)));
        closed.map(|((_, epoch), end)| (*epoch, *end)).collect()
    }

    /// Returns the closed epochs of a shard, up to and including `epoch`, lowest first.
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

/// Counts one more commit in all keyspaces, if one of them has buffered commits that another has lost.
pub(crate) fn settle_counts(engine: &Engine, shard_state: &mut ShardState) -> Result<()> {
    if !shard_state.is_uneven() {
        return Ok(());
    }
    tracing::warn!("some rows that were not synced are lost; they had not been acknowledged as durable");
    let failed = |error| from_fjall(error, During::Write);
    let has_parts = engine.parts().is_some();
    let durability = Durability::Synced;
    let changes = shard_state.next_commit(has_parts, durability);
    engine.commit(changes, durability).map_err(failed)?;
    shard_state.committed(has_parts, durability);
    engine.flush_rows().map_err(failed)
}

/// Returns the change that stores a shard's owner and manifest version.
pub(crate) fn head_change(shard: Shard, head: ShardHead) -> Change {
    let value = [head.epoch.0.to_be_bytes(), head.version.to_be_bytes()].concat();
    manifest_change(owner_key(shard), Some(value.into()))
}

/// Returns the change that stores or removes the end of an epoch.
pub(crate) fn closed_change(shard: Shard, epoch: Epoch, end: Option<SequenceNumber>) -> Change {
    let value = end.map(|end| Bytes::copy_from_slice(&end.0.to_be_bytes()));
    manifest_change(closed_key(shard, epoch), value)
}

fn manifest_change(key: Vec<u8>, value: Option<Bytes>) -> Change {
    Change {
        table: Table::Manifest,
        key,
        value,
    }
}

/// Returns the stored form of a count: the number of commits, then the given numbers up to the last that is present.
/// A missing number before it is stored as [`NOT_COUNTED`].
fn count_value(commits: u64, numbers: [Option<u64>; 3]) -> Bytes {
    let used = numbers
        .iter()
        .rposition(Option::is_some)
        .map_or(0, |last| last + 1);
    let mut value = commits.to_be_bytes().to_vec();
    for number in &numbers[..used] {
        value.extend(number.unwrap_or(NOT_COUNTED).to_be_bytes());
    }
    value.into()
}

/// Returns the number of promised commits according to a count. For a synced batch, these are all commits up to the
/// batch. A buffered batch stores the number.
fn durable(value: &[u8]) -> Result<u64> {
    number(value, if value.len() > DURABLE_AT { DURABLE_AT } else { 0 })
}

/// Reads the number of the first commit that was counted in the rows or parts from a count in the manifest. `at` is the
/// offset of the number. Returns `None` if the last commit was not counted there.
fn since(value: &[u8], at: usize) -> Result<Option<u64>> {
    if value.len() <= at {
        return Ok(None);
    }
    Ok(Some(number(value, at)?).filter(|since| *since != NOT_COUNTED))
}

fn number(value: &[u8], at: usize) -> Result<u64> {
    let bytes = value.get(at..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|bytes| u64::from_be_bytes(*bytes))
        .ok_or_else(|| BackendError::corrupt("a manifest value is too short"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_these_bytes() {
        let numbers = |value: &Bytes| {
            let (numbers, rest) = value.as_chunks::<8>();
            assert!(rest.is_empty());
            numbers
                .iter()
                .map(|number| u64::from_be_bytes(*number))
                .collect::<Vec<_>>()
        };
        let counts = |shard_state: &ShardState, has_parts, durability| {
            let changes = shard_state.next_commit(has_parts, durability);
            let values = changes
                .iter()
                .map(|change| change.value.as_ref().expect("a count"));
            values.map(numbers).collect::<Vec<_>>()
        };
        let (synced, buffered) = (Durability::Synced, Durability::Buffered);
        let mut hot = ShardState::of(Tier::Hot);
        hot.count_from(8);
        assert_eq!(counts(&hot, false, synced), [vec![9, 9], vec![9]]);
        assert_eq!(hot.committed(false, synced), 9);
        assert_eq!(counts(&hot, true, synced), [vec![10, 9, 10], vec![10], vec![10]]);
        let at_nine = [vec![10, 9, 0, 9], vec![10, 0, 0, 9]];
        assert_eq!(counts(&hot, false, buffered), at_nine);
        hot.committed(true, buffered);
        hot.committed(true, buffered);
        assert!(hot.has_buffered());
        hot.note_durable(10);
        assert_eq!(counts(&hot, true, buffered)[1], [12, 0, 0, 10]);
        assert!(hot.has_buffered());
        hot.note_durable(11);
        assert!(!hot.has_buffered());
        assert_eq!(counts(&hot, true, synced), [vec![12, 9, 10], vec![12], vec![12]]);
        let cold = ShardState::of(Tier::Cold);
        assert_eq!(counts(&cold, false, synced), [[1]]);
        assert_eq!(counts(&cold, true, synced), [vec![1, 0, 1], vec![1]]);
        for change in hot.next_commit(true, buffered) {
            assert_eq!(durable(&change.value.expect("a count")).expect("a number"), 11);
        }
    }
}
