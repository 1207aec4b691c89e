//! Who owns which shard, at which version its manifest is, and how many commits there were.
//!
//! Kept in memory so that a fence costs nothing, and written in the same batch as what it fences.
//!
//! fjall flushes each keyspace on its own, so a log that has lost its end may leave one keyspace complete and another
//! without its last rows. Each batch therefore counts itself in all keyspaces of rows that there are: different counts
//! mean that rows are missing. Rows of buffered batches may be missing: the count of such a batch contains how many commits
//! were durable when it was written, and only those were promised. A synced batch is written after all before it are durable.
//! The cold store has the same counts for its loads and for writes to its parts, without `rows`.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{BackendError, Epoch, Result, Shard};
use tideline_model::{Durability, SequenceNumber, Tier};

use crate::engine::{Change, Engine, Table};
use crate::error::{During, from_fjall};
use crate::keys::{COMMITS, MANIFEST, ManifestKey, PARTS, ROWS, closed_key, owner_key};

/// Bytes of a number of commits.
const COUNT_BYTES: usize = 8;
/// Place of the number of durable commits in a count that has one.
pub(crate) const DURABLE_AT: usize = 3 * COUNT_BYTES;
/// Stands for the first commit where a keyspace counts none; commits are numbered from 1.
const NOT_COUNTED: u64 = 0;

/// The owners, versions, ends and commits, as of the last commit.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The highest number of commits that a keyspace holds.
    commits: u64,
    /// Whether commits are counted in the keyspace of rows too.
    counts_rows: bool,
    /// The first commit that was counted in the rows; `None` if the last one was not.
    rows_since: Option<u64>,
    /// The first commit that was counted in the parts; `None` if the last one was not.
    parts_since: Option<u64>,
    /// Description of the commits that one keyspace lacks.
    lacking: Option<String>,
    /// The lowest number of commits that a keyspace holds.
    complete: u64,
    /// Commits that are known to be durable.
    durable: u64,
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
    /// The ledger of an empty store.
    pub(crate) fn of(tier: Tier) -> Self {
        Self {
            counts_rows: tier == Tier::Hot,
            ..Self::default()
        }
    }

    /// Reads it from the store.
    pub(crate) fn read(engine: &Engine) -> Result<Self> {
        let mut ledger = Self::of(engine.tier());
        for (key, value) in engine.manifest_rows(&[])? {
            match ManifestKey::parse(&key) {
                Some(ManifestKey::Commits) => {
                    ledger.commits = number(&value, 0)?;
                    ledger.complete = ledger.commits;
                    ledger.durable = durable(&value)?;
                    ledger.rows_since = since(&value, COUNT_BYTES)?;
                    ledger.parts_since = since(&value, 2 * COUNT_BYTES)?;
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
        ledger.compare(engine)?;
        Ok(ledger)
    }

    /// Compares the counts of the keyspaces in which the last commit was counted.
    fn compare(&mut self, engine: &Engine) -> Result<()> {
        let [in_rows, in_parts] = engine.counted_commits()?;
        let in_manifest = self.commits;
        let mut counts = vec![(MANIFEST, in_manifest)];
        // The commits that the counts prove to have been promised.
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
            // An older build counts in the manifest only, and leaves the count in the rows as it was; parts may have been
            // made for a commit that did not happen. Where the manifest has lost all its rows, any other count is higher.
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
        // What an open has found is in tables, or in logs that were written anew.
        self.durable = self.commits;
        Ok(())
    }

    /// Whether one keyspace has commits that another lost before they were promised. Counted again, they are not missed when a
    /// log is gone.
    pub(crate) fn is_uneven(&self) -> bool {
        self.complete < self.commits && self.lacking.is_none()
    }

    /// Compares what tables hold with the first commit that the logs hold: a log between them may be missing.
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

    /// The number of commits that all keyspaces hold.
    pub(crate) fn complete(&self) -> u64 {
        self.complete
    }

    /// Describes the commits that one keyspace lacks and another has.
    pub(crate) fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// The changes that count the next commit, of an engine that `has_parts` or not. They go into its batch, so that a lost
    /// one is noticed.
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

    /// Notes that the batch of [`next_commit`](Self::next_commit) has been committed; the number of commits now.
    pub(crate) fn committed(&mut self, has_parts: bool, durability: Durability) -> u64 {
        (self.commits, self.rows_since, self.parts_since) = self.next(has_parts);
        if durability == Durability::Synced {
            self.durable = self.commits;
        }
        self.complete = self.commits;
        self.lacking = None;
        self.commits
    }

    /// The next number of commits, and since when they are counted in rows and parts.
    fn next(&self, has_parts: bool) -> (u64, Option<u64>, Option<u64>) {
        let commits = self.commits + 1;
        let since = |is_counted: bool, since: Option<u64>| is_counted.then(|| since.unwrap_or(commits));
        (
            commits,
            since(self.counts_rows, self.rows_since),
            since(has_parts, self.parts_since),
        )
    }

    /// Whether buffered commits are not synced yet. They are before a synced one: its count promises all before it.
    pub(crate) fn has_buffered(&self) -> bool {
        self.durable < self.commits
    }

    /// The number of commits so far, durable or not.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// Notes that all commits up to `commits` are durable.
    pub(crate) fn note_durable(&mut self, commits: u64) {
        self.durable = self.durable.max(commits.min(self.commits));
    }

    /// Goes on counting above `commits`, where more were acknowledged than the store holds.
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

/// Counts commits again in all keyspaces, where one of them has buffered commits that another lost.
pub(crate) fn settle_counts(engine: &Engine, ledger: &mut Ledger) -> Result<()> {
    if !ledger.is_uneven() {
        return Ok(());
    }
    tracing::warn!("some rows that were not synced are lost; they had not been acknowledged as durable");
    let failed = |error| from_fjall(error, During::Write);
    let has_parts = engine.parts().is_some();
    let durability = Durability::Synced;
    let changes = ledger.next_commit(has_parts, durability);
    engine.commit(changes, durability).map_err(failed)?;
    ledger.committed(has_parts, durability);
    engine.flush_rows().map_err(failed)
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

fn manifest_change(key: Vec<u8>, value: Option<Bytes>) -> Change {
    Change {
        table: Table::Manifest,
        key,
        value,
    }
}

/// The stored form of a count: commits, then numbers up to the last that there is.
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

/// The commits that a count proves to have been promised: all up to it, unless it was buffered.
fn durable(value: &[u8]) -> Result<u64> {
    number(value, if value.len() > DURABLE_AT { DURABLE_AT } else { 0 })
}

/// The first commit that another keyspace counted; `None` if it counts none.
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
        let counts = |ledger: &Ledger, has_parts, durability| {
            let changes = ledger.next_commit(has_parts, durability);
            let values = changes
                .iter()
                .map(|change| change.value.as_ref().expect("a count"));
            values.map(numbers).collect::<Vec<_>>()
        };
        let (synced, buffered) = (Durability::Synced, Durability::Buffered);
        let mut hot = Ledger::of(Tier::Hot);
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
        let cold = Ledger::of(Tier::Cold);
        assert_eq!(counts(&cold, false, synced), [[1]]);
        assert_eq!(counts(&cold, true, synced), [vec![1, 0, 1], vec![1]]);
        for change in hot.next_commit(true, buffered) {
            assert_eq!(durable(&change.value.expect("a count")).expect("a number"), 11);
        }
    }
}
