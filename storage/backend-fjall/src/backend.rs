//! Implementation of the `Backend` trait: rows, segments, parts and manifests in fjall, journals in separate files.
//!
//! The methods of the trait check the state of the backend, encode keys, and commit one batch or append to a journal.
//! Locks order the changes: commits are counted in the order in which they happen.

mod assess;
mod journaling;
mod maintenance;
mod open;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::limits::{check_edit, check_sorted, check_write};
use tideline_backend::page::PageBuilder;
use tideline_backend::{
    Backend, BackendError, Capabilities, Direction, EditOutcome, Epoch, Health, History, HistoryPage,
    JournalEntry, JournalEpoch, KeyRange, Lease, Manifest, ManifestChange, ManifestKind, ManifestRow, Page,
    PageLimit, PartRef, Partition, Reopening, Result, Row, RowChange, SegmentRef, Shard, Stamp, Unit, Usage,
    WRITE_BYTES_MAX,
};
use tideline_model::{Durability, GroupId, SequenceNumber, Tier};

use crate::cold::Cold;
use crate::copy::Scratch;
use crate::engine::{Change, Engine, Table};
use crate::format::FolderFormat;
use crate::highwater::HighWater;
use crate::journal::Journals;
use crate::keys::{ManifestKey, manifest_key, partition_prefix, prefixed, shard_prefix};
use crate::lock::FolderLock;
use crate::options::FjallOptions;
use crate::segments::RECLAIM_BATCH_ROWS;
use crate::shard_state::{ShardHead, ShardState, head_change};
use crate::store::{EngineGuard, SpaceDemand, Store, closed};
use maintenance::Maintenance;
pub(crate) use open::JOURNAL;

/// Minimum size, in bytes, of a sorted write to a hot part that is stored as separate tables of fjall.
const LOADED_BYTES_MIN: usize = 1 << 20;

/// The embedded default backend. Only one process at a time may use a data folder. Every method may be called from many
/// threads.
///
/// Rows, manifests, hot segments and hot parts are in one fjall database. Cold segments and cold parts are in another
/// database, with its own cache, thread and, optionally, disk. After a failed write a database refuses writes and is
/// reopened automatically. While its disk is nearly full, a database refuses writes that take space. Dropping the value
/// closes the backend.
///
/// # Examples
///
/// ```
/// use tideline_backend::{Backend, JournalEntry, Shard};
/// use tideline_backend_fjall::{FjallBackend, FjallOptions};
/// use tideline_model::{Durability, SequenceNumber};
///
/// let folder = tempfile::tempdir()?;
/// let backend = FjallBackend::open(folder.path(), FjallOptions::default())?;
/// let shard = Shard(0);
/// let epoch = backend.take(shard)?.epoch;
/// let entry = JournalEntry { sequence: SequenceNumber(1), value: "first".into() };
/// backend.append(shard, epoch, &[entry], Durability::Synced)?;
///
/// let mut replayed = Vec::new();
/// backend.replay(shard, epoch, SequenceNumber(0), &mut |sequence, value| {
///     replayed.push((sequence, value));
///     Ok(())
/// })?;
/// assert_eq!(replayed, [(SequenceNumber(1), "first".into())]);
/// backend.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FjallBackend {
    inner: Arc<Inner>,
    maintenance: Maintenance,
}

/// State that the backend shares with its maintenance thread.
#[derive(Debug)]
struct Inner {
    options: FjallOptions,
    capabilities: Capabilities,
    lock: Mutex<Option<FolderLock>>,
    format: Arc<FolderFormat>,
    hot: Store,
    cold: Cold,
    /// Locked for the whole of a commit, so that commits are counted in the order in which they happen.
    shard_state: Mutex<ShardState>,
    journals: Journals,
    high_water: HighWater,
    /// Failure of the journal; `None` if the journal accepts appends.
    journal_failure: Mutex<Option<JournalFailure>>,
    /// Description of missing acknowledged data. If data is missing, writes are refused until an operator accepts the
    /// loss.
    loss: Mutex<Option<String>>,
    is_closed: AtomicBool,
    /// Folder of the copy that serves reads while the data folder is left unchanged. Last field, so that it is dropped
    /// last.
    scratch: Option<Scratch>,
}

/// Failure of a journal, and the attempts to repair it.
#[derive(Debug)]
struct JournalFailure {
    reason: String,
    attempts: u32,
    last_error: Option<String>,
}

impl JournalFailure {
    fn new(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            attempts: 0,
            last_error: None,
        }
    }

    /// Returns the health of the backend while the journal is broken. Reads do not use the journal, so they still
    /// succeed. Each round of the maintenance thread tries to repair the journal.
    fn health(&self, interval: Duration) -> Health {
        Health::Poisoned {
            reason: format!("the journal: {}", self.reason),
            reopening: Reopening {
                reads: true,
                is_running: false,
                attempts: self.attempts,
                last_error: self.last_error.clone(),
                next_in: interval,
            },
        }
    }
}

impl Inner {
    /// Returns the hot engine for the duration of one call.
    fn engine(&self) -> Result<EngineGuard<'_>> {
        self.hot.opened()
    }

    /// Returns the store of a tier.
    fn store(&self, tier: Tier) -> &Store {
        match tier {
            Tier::Hot => &self.hot,
            Tier::Cold | Tier::Archive => &self.cold.store,
        }
    }

    /// Returns the engine that holds a partition; `None` if its store has not been created, and is therefore empty.
    fn engine_of(&self, partition: Partition) -> Result<Option<EngineGuard<'_>>> {
        self.store(partition.unit.tier()).engine()
    }

    /// Returns an error if a tier refuses a change with this space demand. After a close, a loss or a failed write, a
    /// tier refuses all changes. While its disk is nearly full, it refuses changes that take space.
    fn check_writable(&self, tier: Tier, takes: SpaceDemand) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        if let Some(missing) = &*self.loss.lock() {
            return Err(BackendError::Misconfigured {
                reason: format!("read-only, because acknowledged data is missing: {missing}"),
            });
        }
        self.store(tier).check(takes)
    }

    /// Commits changes durably and counts the commit. A failure marks the store as failed, because the outcome is
    /// unknown.
    fn commit(&self, engine: &Engine, shard_state: &mut ShardState, changes: Vec<Change>) -> Result<()> {
        self.commit_as(engine, shard_state, changes, Durability::Synced)
    }

    fn commit_as(
        &self,
        engine: &Engine,
        shard_state: &mut ShardState,
        mut changes: Vec<Change>,
        durability: Durability,
    ) -> Result<()> {
        if durability == Durability::Synced && shard_state.has_buffered() {
            engine.sync().map_err(|error| self.hot.failed(error))?;
            let counted = shard_state.commits();
            shard_state.note_durable(counted);
        }
        let has_parts = engine.parts().is_some();
        changes.extend(shard_state.next_commit(has_parts, durability));
        engine
            .commit(changes, durability)
            .map_err(|error| self.hot.failed(error))?;
        let commits = shard_state.committed(has_parts, durability);
        match durability {
            Durability::Synced => self.high_water.note_commit(commits),
            Durability::Buffered => self.hot.note_buffered(),
        }
        Ok(())
    }

    /// Makes durable all rows that were written to either store with [`Durability::Buffered`].
    fn sync_rows(&self) -> Result<()> {
        self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        let commits = self.shard_state.lock().commits();
        self.hot.sync_rows()?;
        self.shard_state.lock().note_durable(commits);
        self.high_water.note_commit(commits);
        self.cold.sync_rows(&self.high_water)
    }

    fn write(&self, partition: Partition, changes: &[RowChange], durability: Durability) -> Result<()> {
        check_write(partition, changes)?;
        let tier = partition.unit.tier();
        self.check_writable(tier, SpaceDemand::Space)?;
        if changes.is_empty() {
            return Ok(());
        }
        let prefix = partition_prefix(partition);
        let rows = changes
            .iter()
            .map(|change| (prefixed(&prefix, &change.key), change.value.clone()));
        let table = match partition.unit {
            Unit::Part(_) => {
                self.format.require_parts()?;
                Table::Parts
            }
            Unit::Segment(_) | Unit::Space(_) => Table::Rows,
        };
        let batch = last_of_each(table, rows);
        if tier != Tier::Hot {
            return self.cold.write_part(batch, durability, &self.high_water);
        }
        let engine = self.engine()?;
        if table == Table::Parts {
            self.hot.begin_parts(&engine)?;
        }
        let mut shard_state = self.shard_state.lock();
        self.commit_as(&engine, &mut shard_state, batch, durability)
    }

    /// Removes every row of a key range in one partition of a key space. Each batch is counted as a commit, like a write,
    /// but is also accepted while the disk is nearly full.
    fn remove_space_rows(&self, partition: Partition, range: &KeyRange) -> Result<()> {
        let prefix = partition_prefix(partition);
        let limit = PageLimit {
            rows_max: RECLAIM_BATCH_ROWS,
            bytes_max: WRITE_BYTES_MAX,
        };
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            self.check_writable(Tier::Hot, SpaceDemand::Little)?;
            let engine = self.engine()?;
            let page = engine.scan(partition, &range, Direction::Ascending, limit)?;
            if !page.rows.is_empty() {
                let removed = page.rows.iter().map(|row| (prefixed(&prefix, &row.key), None));
                let batch = last_of_each(Table::Rows, removed);
                let mut shard_state = self.shard_state.lock();
                self.commit_as(&engine, &mut shard_state, batch, Durability::Synced)?;
            }
            rest = page.next;
        }
        Ok(())
    }

    /// Writes sorted groups of changes to a bucket of a part in the hot store.
    fn load_part(&self, partition: Partition, groups: &[Vec<RowChange>]) -> Result<()> {
        groups
            .iter()
            .try_for_each(|group| check_write(partition, group))?;
        self.check_writable(Tier::Hot, SpaceDemand::Space)?;
        self.format.require_parts()?;
        let engine = self.engine()?;
        self.hot.begin_parts(&engine)?;
        self.hot.load_part(&engine, partition, groups)
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.check_writable(segment.tier, SpaceDemand::Space)?;
        // An empty load creates nothing.
        let Some(first) = rows.next().transpose()? else {
            return Ok(());
        };
        let mut rows = std::iter::once(Ok(first)).chain(rows);
        match segment.tier {
            Tier::Hot => self.hot.load(segment, bucket, &mut rows),
            Tier::Cold | Tier::Archive => self.cold.load(segment, bucket, &mut rows, &self.high_water),
        }
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        // After a failed write, the log may hold an edit that becomes visible only when the store is reopened.
        self.hot.check(SpaceDemand::Little)?;
        let engine = self.engine()?;
        // The lock of the shard state keeps epoch, version and rows consistent with each other.
        let shard_state = self.shard_state.lock();
        let head = shard_state.head(shard);
        let mut rows = Vec::new();
        for (key, detail) in engine.manifest_rows(&shard_prefix(shard))? {
            if let Some(ManifestKey::Row(_, kind, name)) = ManifestKey::parse(&key) {
                rows.push(ManifestRow { kind, name, detail });
            }
        }
        Ok(Manifest {
            epoch: head.epoch,
            version: head.version,
            rows,
        })
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        check_edit(changes)?;
        self.check_writable(Tier::Hot, SpaceDemand::Little)?;
        let engine = self.engine()?;
        let mut shard_state = self.shard_state.lock();
        let head = shard_state.head(shard);
        if head.epoch.0 == 0 || (head.epoch, head.version) != (epoch, version) {
            return Ok(EditOutcome::Refused {
                epoch: head.epoch,
                version: head.version,
            });
        }
        let names_part = |change: &ManifestChange| matches!(change, ManifestChange::Put(row) if row.kind == ManifestKind::Part);
        if changes.iter().any(names_part) {
            self.format.require_parts()?;
        }
        let rows = changes.iter().map(|change| match change {
            ManifestChange::Put(row) => (manifest_key(shard, row.kind, &row.name), Some(row.detail.clone())),
            ManifestChange::Remove(kind, name) => (manifest_key(shard, *kind, name), None),
        });
        let mut batch = last_of_each(Table::Manifest, rows);
        let head = ShardHead {
            epoch,
            version: version + 1,
        };
        batch.push(head_change(shard, head));
        self.commit(&engine, &mut shard_state, batch)?;
        shard_state.set_head(shard, head);
        Ok(EditOutcome::Applied {
            version: head.version,
        })
    }

    fn health(&self, tier: Tier) -> Health {
        if let Some(missing) = &*self.loss.lock() {
            return Health::ReadOnly {
                reason: missing.clone(),
            };
        }
        let trouble = self.store(tier).trouble();
        if tier == Tier::Hot
            && !matches!(trouble, Some(Health::Poisoned { .. }))
            && let Some(failure) = &*self.journal_failure.lock()
        {
            return failure.health(self.options.high_water_interval);
        }
        trouble.unwrap_or(Health::Ready)
    }

    fn usage(&self) -> Usage {
        let sizes = |store: &Store| {
            let engine = store.engine().ok().flatten();
            engine.map_or_else(Default::default, |engine| (engine.disk_bytes(), engine.cache()))
        };
        let (hot_bytes, hot_cache) = sizes(&self.hot);
        let (cold_bytes, cold_cache) = sizes(&self.cold.store);
        let journals = self.journals.all();
        Usage {
            data_bytes: hot_bytes + cold_bytes,
            hot_bytes,
            cold_bytes,
            journal_bytes: journals.iter().map(|journal| journal.lock().bytes()).sum(),
            free_bytes: self.hot.free_bytes(),
            free_bytes_min: self.hot.free_bytes_min(),
            cold_free_bytes: self.cold.store.free_bytes(),
            hot_cache,
            cold_cache,
        }
    }
}

/// Keeps the last change of each key, because fjall cannot order two changes of one key in one batch.
fn last_of_each(table: Table, changes: impl Iterator<Item = (Vec<u8>, Option<Bytes>)>) -> Vec<Change> {
    let changes: BTreeMap<_, _> = changes.collect();
    let changes = changes.into_iter();
    changes.map(|(key, value)| Change { table, key, value }).collect()
}

impl FjallBackend {
    /// Writes sorted groups of a part. If groups for the hot store have [`LOADED_BYTES_MIN`] bytes or more in total,
    /// they are written as separate tables, which are always durable on return. Otherwise, each group is written as a
    /// batch with the given durability.
    fn write_groups(
        &self,
        partition: Partition,
        groups: &[Vec<RowChange>],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        check_sorted(groups)?;
        let size = |change: &RowChange| change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
        let bytes: usize = groups.iter().flatten().map(size).sum();
        let is_part = matches!(partition.unit, Unit::Part(_)) && partition.unit.tier() == Tier::Hot;
        if is_part && bytes >= LOADED_BYTES_MIN {
            return self.inner.load_part(partition, groups);
        }
        groups
            .iter()
            .try_for_each(|group| self.write(partition, group, stamp, durability))
    }
}

impl Backend for FjallBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn take(&self, shard: Shard) -> Result<Lease> {
        self.inner.take(shard)
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        self.inner.renew(shard, epoch)
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        match self.inner.engine_of(partition)? {
            Some(engine) => engine.scan(partition, range, direction, limit),
            None => Ok(PageBuilder::new(range, direction, limit).complete()),
        }
    }

    fn get(&self, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
        match self.inner.engine_of(partition)? {
            Some(engine) => engine.get(partition, key),
            None => Ok(None),
        }
    }

    fn first(&self, partition: Partition, from: &[u8]) -> Result<Option<Row>> {
        match self.inner.engine_of(partition)? {
            Some(engine) => engine.first(partition, from),
            None => Ok(None),
        }
    }

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        _stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        self.inner.write(partition, changes, durability)
    }

    fn write_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        self.write_groups(partition, groups, stamp, Durability::Buffered)
    }

    fn load_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        self.write_groups(partition, groups, stamp, Durability::Synced)
    }

    fn remove_rows(&self, partition: Partition, range: &KeyRange, _stamp: Stamp) -> Result<()> {
        match partition.unit {
            Unit::Space(_) => self.inner.remove_space_rows(partition, range),
            Unit::Segment(_) | Unit::Part(_) => {
                let tier = partition.unit.tier();
                self.inner.check_writable(tier, SpaceDemand::Little)?;
                self.inner.store(tier).remove_rows(partition, range)
            }
        }
    }

    fn sync_rows(&self, _shard: Shard) -> Result<()> {
        self.inner.sync_rows()
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.inner.load(segment, bucket, rows)
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.inner.check_writable(segment.tier, SpaceDemand::Little)?;
        self.inner.store(segment.tier).reclaim(segment)
    }

    fn spare_group(&self, tier: Tier) -> Option<GroupId> {
        self.inner.store(tier).spare_group()
    }

    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>> {
        let mut segments = self.inner.hot.segments()?;
        segments.extend(self.inner.cold.store.segments()?);
        segments.retain(|held| held.segment.shard() == shard.0);
        Ok(segments)
    }

    fn reclaim_part(&self, part: PartRef) -> Result<()> {
        self.inner.check_writable(part.tier, SpaceDemand::Little)?;
        self.inner.store(part.tier).reclaim_part(part)
    }

    fn note_replaced(&self, part: PartRef, bytes: u64) {
        self.inner.store(part.tier).note_replaced(bytes);
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        let mut parts = self.inner.hot.parts()?;
        parts.extend(self.inner.cold.store.parts()?);
        parts.retain(|held| held.part.shard() == shard.0);
        parts.sort_unstable();
        Ok(parts)
    }

    fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        self.inner.store(unit.tier()).buckets(unit)
    }

    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.inner.append(shard, epoch, entries, durability)
    }

    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.inner.sync_journal(shard, epoch)
    }

    fn cut(&self, shard: Shard, epoch: Epoch, at: SequenceNumber) -> Result<()> {
        let journal = self.inner.journals.shard(shard);
        let mut journal = journal.lock();
        self.renew(shard, epoch)?;
        journal.cut(at);
        Ok(())
    }

    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>> {
        let _open = self.inner.engine()?;
        let epochs = self.inner.journals.shard(shard).lock().epochs();
        let shard_state = self.inner.shard_state.lock();
        let epochs = epochs.into_iter().map(|epoch| JournalEpoch {
            epoch,
            end: shard_state.end(shard, epoch),
        });
        Ok(epochs.collect())
    }

    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        drop(self.inner.engine()?);
        let replay = self.inner.journals.shard(shard).lock().replay(epoch, from)?;
        let end = self.inner.shard_state.lock().end(shard, epoch);
        replay.run(end, visit)
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        self.inner.close_epoch(shard, epoch, end)
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.inner.forget(shard, epoch, to)
    }

    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()> {
        self.inner.keep_history(shard, epoch, from)
    }

    fn history(&self, shard: Shard) -> Result<History> {
        drop(self.inner.engine()?);
        Ok(self.inner.journals.shard(shard).lock().history())
    }

    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage> {
        drop(self.inner.engine()?);
        let ends = self.inner.shard_state.lock().ends(shard);
        let reader = self
            .inner
            .journals
            .shard(shard)
            .lock()
            .history_reader(from, &ends)?;
        let end_of = |epoch| self.inner.shard_state.lock().end(shard, epoch);
        reader.page(bytes_max, &end_of)
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        self.inner.manifest(shard)
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        self.inner.edit(shard, epoch, version, changes)
    }

    fn health(&self) -> Health {
        self.inner.health(Tier::Hot)
    }

    fn tier_health(&self, tier: Tier) -> Health {
        self.inner.health(tier)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn close(&self) -> Result<()> {
        self.maintenance.stop();
        self.inner.close()
    }
}

impl Drop for FjallBackend {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the backend did not close cleanly");
        }
    }
}
