//! The embedded backend: rows, segments and manifests in fjall, journals in own files.

mod assess;
mod journaling;
mod keeper;
mod open;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::limits::{check_edit, check_write};
use tideline_backend::page::PageBuilder;
use tideline_backend::{
    Backend, BackendError, Capabilities, Direction, EditOutcome, Epoch, Health, JournalEntry, JournalEpoch,
    KeyRange, Lease, Manifest, ManifestChange, ManifestKind, ManifestRow, Page, PageLimit, PartRef,
    Partition, Reopening, Result, Row, RowChange, SegmentRef, Shard, Stamp, Unit, Usage,
};
use tideline_model::{Durability, GroupId, SequenceNumber, Tier};

use crate::cold::Cold;
use crate::copy::Scratch;
use crate::engine::{Change, Engine, Table};
use crate::format::FolderFormat;
use crate::highwater::HighWater;
use crate::journal::Journals;
use crate::keys::{ManifestKey, manifest_key, partition_prefix, prefixed, shard_prefix};
use crate::ledger::{Ledger, ShardHead, head_change};
use crate::lock::FolderLock;
use crate::options::FjallOptions;
use crate::store::{EngineGuard, Store, Takes, closed};
use keeper::Keeper;
pub(crate) use open::JOURNAL;

/// The embedded default. One process for each data folder; every method may be called from many threads.
///
/// Rows, manifests, hot segments and hot parts are in one fjall database, cold ones in another, with their own cache, thread
/// and, if wanted, disk. It keeps its promises itself: after a failed write a database refuses writes and is reopened;
/// while its disk is full it refuses what takes space. Dropping it closes it.
#[derive(Debug)]
pub struct FjallBackend {
    inner: Arc<Inner>,
    keeper: Keeper,
}

/// What the backend shares with its keeper.
#[derive(Debug)]
struct Inner {
    options: FjallOptions,
    capabilities: Capabilities,
    lock: Mutex<Option<FolderLock>>,
    format: Arc<FolderFormat>,
    hot: Store,
    cold: Cold,
    /// Locked for the whole of a commit, so commits are counted in the order they happen.
    ledger: Mutex<Ledger>,
    journals: Journals,
    high_water: HighWater,
    /// Why a journal takes no appends, if one does not.
    journal_failure: Mutex<Option<JournalFailure>>,
    /// Why writes are refused for good, if they are.
    loss: Mutex<Option<String>>,
    is_closed: AtomicBool,
    /// Where the copy is that serves reads while the data folder is left as it is. Goes after all that uses it.
    scratch: Option<Scratch>,
}

/// The failure of a journal, and the attempts to repair it.
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

    /// Reads need no journal; each round of the maintenance thread tries to repair it.
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
    /// The hot engine, for the time of one call.
    fn engine(&self) -> Result<EngineGuard<'_>> {
        self.hot.opened()
    }

    /// The store of a tier.
    fn store(&self, tier: Tier) -> &Store {
        match tier {
            Tier::Hot => &self.hot,
            Tier::Cold | Tier::Archive => &self.cold.store,
        }
    }

    /// The engine that holds a partition; `None` if the store has not been made, so nothing is in it.
    fn engine_of(&self, partition: Partition) -> Result<Option<EngineGuard<'_>>> {
        self.store(partition.unit.tier()).engine()
    }

    /// Refuses a change to a tier that cannot be promised now.
    fn check_writable(&self, tier: Tier, takes: Takes) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        if let Some(missing) = &*self.loss.lock() {
            return Err(BackendError::Misconfigured {
                reason: format!("read-only, because something acknowledged is missing: {missing}"),
            });
        }
        self.store(tier).check(takes)
    }

    /// Commits changes durably and counts the commit. A failure poisons the store, since its outcome is unknown.
    fn commit(&self, engine: &Engine, ledger: &mut Ledger, changes: Vec<Change>) -> Result<()> {
        self.commit_as(engine, ledger, changes, Durability::Synced)
    }

    fn commit_as(
        &self,
        engine: &Engine,
        ledger: &mut Ledger,
        mut changes: Vec<Change>,
        durability: Durability,
    ) -> Result<()> {
        if durability == Durability::Synced && ledger.has_buffered() {
            engine.sync().map_err(|error| self.hot.failed(error))?;
            let counted = ledger.commits();
            ledger.note_durable(counted);
        }
        let has_parts = engine.parts().is_some();
        changes.extend(ledger.next_commit(has_parts, durability));
        engine
            .commit(changes, durability)
            .map_err(|error| self.hot.failed(error))?;
        let commits = ledger.committed(has_parts, durability);
        match durability {
            Durability::Synced => self.high_water.note_commit(commits),
            Durability::Buffered => self.hot.note_buffered(),
        }
        Ok(())
    }

    /// Makes the buffered rows of both stores durable.
    fn sync_rows(&self) -> Result<()> {
        self.check_writable(Tier::Hot, Takes::Little)?;
        let commits = self.ledger.lock().commits();
        self.hot.sync_rows()?;
        self.ledger.lock().note_durable(commits);
        self.high_water.note_commit(commits);
        self.cold.sync_rows(&self.high_water)
    }

    fn write(&self, partition: Partition, changes: &[RowChange], durability: Durability) -> Result<()> {
        check_write(partition, changes)?;
        let tier = partition.unit.tier();
        self.check_writable(tier, Takes::Space)?;
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
        let mut ledger = self.ledger.lock();
        self.commit_as(&engine, &mut ledger, batch, durability)
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.check_writable(segment.tier, Takes::Space)?;
        // An empty load makes nothing.
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
        // What a failed write has left in the log is read when the store is opened again, and may be an edit.
        self.hot.check(Takes::Little)?;
        let engine = self.engine()?;
        // The ledger's lock makes head and rows of one moment.
        let ledger = self.ledger.lock();
        let head = ledger.head(shard);
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
        self.check_writable(Tier::Hot, Takes::Little)?;
        let engine = self.engine()?;
        let mut ledger = self.ledger.lock();
        let head = ledger.head(shard);
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
        self.commit(&engine, &mut ledger, batch)?;
        ledger.set_head(shard, head);
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
            cold_free_bytes: self.cold.store.free_bytes(),
            hot_cache,
            cold_cache,
        }
    }
}

/// fjall cannot tell two changes of one key in one batch apart, so the last one is kept.
fn last_of_each(table: Table, changes: impl Iterator<Item = (Vec<u8>, Option<Bytes>)>) -> Vec<Change> {
    let changes: BTreeMap<_, _> = changes.collect();
    let changes = changes.into_iter();
    changes.map(|(key, value)| Change { table, key, value }).collect()
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

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        _stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        self.inner.write(partition, changes, durability)
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
        self.inner.check_writable(segment.tier, Takes::Little)?;
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
        self.inner.check_writable(part.tier, Takes::Little)?;
        self.inner.store(part.tier).reclaim_part(part)
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        let mut parts = self.inner.hot.parts()?;
        parts.extend(self.inner.cold.store.parts()?);
        parts.retain(|held| held.part.shard() == shard.0);
        parts.sort_unstable();
        Ok(parts)
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
        let ledger = self.inner.ledger.lock();
        let epochs = epochs.into_iter().map(|epoch| JournalEpoch {
            epoch,
            end: ledger.end(shard, epoch),
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
        let end = self.inner.ledger.lock().end(shard, epoch);
        replay.run(end, visit)
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        self.inner.close_epoch(shard, epoch, end)
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.inner.forget(shard, epoch, to)
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
        self.keeper.stop();
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
