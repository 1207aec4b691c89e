//! The embedded backend: rows, segments and manifests in fjall, journals in own files.

mod journaling;
mod keeper;
mod open;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fjall::Keyspace;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tideline_backend::limits::{check_edit, check_key, check_write};
use tideline_backend::{
    Backend, BackendError, Capabilities, Direction, EditOutcome, Epoch, Health, JournalEntry, JournalEpoch,
    KeyRange, Manifest, ManifestChange, ManifestRow, Page, PageLimit, Partition, Result, Row, RowChange,
    SegmentRef, Shard, Stamp, Usage,
};
use tideline_model::{Durability, GroupId, SequenceNumber};

use crate::engine::{Change, Engine, Table};
use crate::error::{During, RETRY_AFTER, from_fjall, from_io, unavailable};
use crate::files::FreeSpace;
use crate::highwater::HighWater;
use crate::journal::Journals;
use crate::keys::{ManifestKey, manifest_key, partition_prefix, prefixed, shard_prefix};
use crate::keyspace_list::KeyspaceList;
use crate::ledger::{Ledger, ShardHead, commits_change, head_change};
use crate::lock::FolderLock;
use crate::options::FjallOptions;
use crate::segments::{self, GroupLocks, LoadError};
use keeper::{Keeper, Poison};
pub(crate) use open::{FORMAT_FILE, JOURNAL, STORE};

/// The embedded default. One process for each data folder; every method may be called from many threads.
///
/// It keeps its promises itself: a failed write makes it refuse writes, and reopen the store on its own; a full disk
/// makes it refuse writes until there is space. Dropping it closes it.
#[derive(Debug)]
pub struct FjallBackend {
    inner: Arc<Inner>,
    keeper: Keeper,
}

/// What the backend shares with its keeper.
#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    options: FjallOptions,
    capabilities: Capabilities,
    lock: Mutex<Option<FolderLock>>,
    free_space: FreeSpace,
    /// Locked for writing only to reopen and to close, so whoever reads has the engine for the whole call.
    engine: RwLock<Option<Engine>>,
    /// Locked for the whole of a commit, so commits are counted in the order they happen.
    ledger: Mutex<Ledger>,
    journals: Journals,
    groups: GroupLocks,
    keyspaces: Mutex<KeyspaceList>,
    high_water: HighWater,
    poison: Mutex<Option<Poison>>,
    /// Why a journal takes no appends, if one does not.
    journal_failure: Mutex<Option<String>>,
    /// Why writes are refused for good, if they are.
    loss: Mutex<Option<String>>,
    /// Whether the copy that was made for the open is still there.
    has_safety: AtomicBool,
    is_closed: AtomicBool,
}

/// Whether a change takes space or frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Refused while the disk is nearly full.
    Space,
    /// Small, or on the way to freeing space.
    Little,
}

impl FjallBackend {
    fn closed() -> BackendError {
        BackendError::Refused {
            reason: "the backend is closed".to_owned(),
        }
    }
}

impl Inner {
    /// The engine, for the time of one call. Recursive, since the rows of a load may come from a scan.
    fn engine(&self) -> Result<EngineGuard<'_>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(FjallBackend::closed());
        }
        let guard = self.engine.read_recursive();
        if guard.is_none() {
            return Err(unavailable("the store is being reopened"));
        }
        Ok(EngineGuard(guard))
    }

    /// Refuses a change that cannot be promised now.
    fn check_writable(&self, takes: Takes) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(FjallBackend::closed());
        }
        if let Some(missing) = &*self.loss.lock() {
            return Err(BackendError::Misconfigured {
                reason: format!("read-only, because something acknowledged is missing: {missing}"),
            });
        }
        if let Some(poison) = &*self.poison.lock() {
            return Err(BackendError::Unavailable {
                reason: format!("the store is being reopened after: {}", poison.reason),
                retry_after: RETRY_AFTER,
            });
        }
        let space = self.free_space.get();
        if takes == Takes::Space && space.is_low() {
            return Err(unavailable(format!(
                "only {} bytes are free, {} must be",
                space.free_bytes, space.watermark_bytes
            )));
        }
        Ok(())
    }

    /// Commits changes and counts the commit. A failure poisons the store, since its outcome is unknown.
    fn commit(&self, engine: &Engine, ledger: &mut Ledger, mut changes: Vec<Change>) -> Result<()> {
        let commits = ledger.commits + 1;
        changes.push(commits_change(commits));
        engine.commit(changes).map_err(|error| {
            self.poison(&error.to_string());
            from_fjall(error, During::Write)
        })?;
        ledger.commits = commits;
        self.high_water.note_commit(commits);
        Ok(())
    }

    fn poison(&self, reason: &str) {
        let mut poison = self.poison.lock();
        if poison.is_none() {
            tracing::error!(reason, "the store failed and will be reopened");
            *poison = Some(Poison::new(reason));
        }
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.check_writable(Takes::Space)?;
        let turn = self.groups.of(segment.group);
        let _turn = turn.lock();
        let engine = self.engine()?;
        let failed = |error| from_fjall(error, During::Write);
        let (keyspace, is_new) = match engine.group(segment.group) {
            Some(keyspace) => (keyspace, false),
            None => (self.create_group(&engine, segment.group)?, true),
        };
        let loaded = segments::load(&keyspace, segment, bucket, rows);
        // Neither a failed nor an empty load leaves an empty group behind.
        if is_new && !matches!(loaded, Ok(1..)) {
            self.drop_group(&engine, segment.group, keyspace)?;
        }
        loaded.map(drop).map_err(|error| match error {
            LoadError::Rows(error) => error,
            LoadError::Store(error) => failed(error),
        })
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.check_writable(Takes::Little)?;
        let turn = self.groups.of(segment.group);
        let _turn = turn.lock();
        let engine = self.engine()?;
        let Some(keyspace) = engine.group(segment.group) else {
            return Ok(());
        };
        let failed = |error: fjall::Error| {
            self.poison(&error.to_string());
            from_fjall(error, During::Write)
        };
        if segments::reclaim(&engine, &keyspace, segment.segment).map_err(failed)? {
            self.drop_group(&engine, segment.group, keyspace)?;
        }
        Ok(())
    }

    /// Creates a group's keyspace and lists it before anything is in it.
    fn create_group(&self, engine: &Engine, group: GroupId) -> Result<Keyspace> {
        let keyspace = engine
            .create_group(group)
            .map_err(|error| from_fjall(error, During::Write))?;
        self.list_keyspaces(|list| list.add(keyspace.id(), keyspace.name()))?;
        Ok(keyspace)
    }

    /// Takes a group's keyspace off the list and drops it.
    fn drop_group(&self, engine: &Engine, group: GroupId, keyspace: Keyspace) -> Result<()> {
        self.list_keyspaces(|list| list.remove(keyspace.id()))?;
        drop(keyspace);
        engine
            .drop_group(group)
            .map_err(|error| from_fjall(error, During::Write))
    }

    fn list_keyspaces(&self, change: impl FnOnce(&mut KeyspaceList)) -> Result<()> {
        let mut list = self.keyspaces.lock();
        change(&mut list);
        list.write(&self.folder)
            .map_err(|error| from_io(&error, "the list of keyspaces", During::Write))
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
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
        self.check_writable(Takes::Little)?;
        let engine = self.engine()?;
        let mut ledger = self.ledger.lock();
        let head = ledger.head(shard);
        if head.epoch.0 == 0 || (head.epoch, head.version) != (epoch, version) {
            return Ok(EditOutcome::Refused {
                epoch: head.epoch,
                version: head.version,
            });
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

    fn health(&self) -> Health {
        if let Some(missing) = &*self.loss.lock() {
            return Health::ReadOnly {
                reason: missing.clone(),
            };
        }
        if let Some(poison) = &*self.poison.lock() {
            return Health::Poisoned {
                reason: poison.reason.clone(),
            };
        }
        if let Some(failure) = &*self.journal_failure.lock() {
            return Health::Poisoned {
                reason: format!("the journal: {failure}"),
            };
        }
        let space = self.free_space.get();
        if space.is_low() {
            return Health::DiskLow {
                free_bytes: space.free_bytes,
                watermark_bytes: space.watermark_bytes,
            };
        }
        Health::Ready
    }
}

/// fjall cannot tell two changes of one key in one batch apart, so the last one is kept.
fn last_of_each(table: Table, changes: impl Iterator<Item = (Vec<u8>, Option<Bytes>)>) -> Vec<Change> {
    let changes: BTreeMap<_, _> = changes.collect();
    let changes = changes.into_iter();
    changes.map(|(key, value)| Change { table, key, value }).collect()
}

/// An engine that is not closed while this lives.
struct EngineGuard<'a>(RwLockReadGuard<'a, Option<Engine>>);

impl std::ops::Deref for EngineGuard<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0.as_ref().expect("checked when the guard was made")
    }
}

impl Backend for FjallBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn take(&self, shard: Shard) -> Result<Epoch> {
        self.inner.take(shard)
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let _open = self.inner.engine()?;
        self.inner.ledger.lock().check_owner(shard, epoch)
    }

    fn get(&self, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
        check_key(key)?;
        self.inner.engine()?.get(partition, key)
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        self.inner.engine()?.scan(partition, range, direction, limit)
    }

    fn write(&self, partition: Partition, changes: &[RowChange], _stamp: Stamp) -> Result<()> {
        check_write(partition, changes)?;
        self.inner.check_writable(Takes::Space)?;
        if changes.is_empty() {
            return Ok(());
        }
        let prefix = partition_prefix(partition);
        let rows = changes
            .iter()
            .map(|change| (prefixed(&prefix, &change.key), change.value.clone()));
        let batch = last_of_each(Table::Rows, rows);
        let engine = self.inner.engine()?;
        let mut ledger = self.inner.ledger.lock();
        self.inner.commit(&engine, &mut ledger, batch)
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
        self.inner.reclaim(segment)
    }

    fn segments(&self) -> Result<Vec<SegmentRef>> {
        segments::list(&*self.inner.engine()?)
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

    fn sync(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.inner.sync(shard, epoch)
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
        self.inner.health()
    }

    fn usage(&self) -> Usage {
        let data_bytes = self.inner.engine().map_or(0, |engine| engine.disk_bytes());
        let journals = self.inner.journals.all();
        Usage {
            data_bytes,
            journal_bytes: journals.iter().map(|journal| journal.lock().bytes()).sum(),
            free_bytes: self.inner.free_space.get().free_bytes,
        }
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
