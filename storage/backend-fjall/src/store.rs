//! Store: one fjall database and its protection. The protection consists of a list of the keyspaces, checks before the
//! database is opened, a safety copy while it is opened, a minimum of free space on the disk, and the detection and
//! repair of failures.
//!
//! Each tier has its own store. Stores share nothing, so a failure of one store does not affect the other.

mod compact;
mod heal;
mod open;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fjall::Keyspace;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use tideline_backend::{
    BackendError, Health, KeyRange, PartRef, Partition, Result, Row, RowChange, SegmentRef, Unit,
};
use tideline_model::GroupId;

use crate::engine::Engine;
use crate::error::{During, from_fjall, from_io, unavailable};
use crate::files::FreeSpace;
use crate::keyspace_list::KeyspaceList;
use crate::options::{FjallOptions, Setup};
use crate::parts;
use crate::segments::{self, GroupLocks, LoadError};
use compact::Replaced;
use heal::Poison;
pub(crate) use open::STORE;

/// Number of bytes after which a load checks whether it may continue.
const LOAD_CHECK_BYTES: usize = 1 << 20;

/// Location of a store.
#[derive(Debug, Clone)]
pub(crate) struct StoreLocation {
    /// Folder that holds the store.
    pub(crate) root: PathBuf,
    /// Folder of the store's list of keyspaces.
    pub(crate) lists: PathBuf,
}

/// One fjall database. Every method may be called from many threads.
#[derive(Debug)]
pub(crate) struct Store {
    location: StoreLocation,
    setup: Setup,
    free_space: FreeSpace,
    /// Locked for writing only to create, reopen and close the store. Other calls hold the read lock until they end.
    slot: RwLock<Slot>,
    keyspaces: Mutex<KeyspaceList>,
    groups: GroupLocks,
    poison: Mutex<Option<Poison>>,
    /// True if the safety copy of the last open still exists.
    has_safety: AtomicBool,
    /// Groups whose keyspaces are empty and unlisted. The first group is offered next.
    spares: Mutex<VecDeque<GroupId>>,
    /// Set before the slot is closed, so that a long load ends early.
    is_closing: AtomicBool,
    row_sync: Mutex<RowSync>,
    /// Values of parts that were replaced or deleted.
    replaced: Mutex<Replaced>,
}

/// Number of writes with `Durability::Buffered`, and number of such writes that need no further sync.
#[derive(Debug, Default)]
struct RowSync {
    written: u64,
    synced: u64,
    /// True if the store was reopened with writes that were not synced, and `sync_rows` has not reported this yet.
    is_doubtful: bool,
}

/// State of the engine.
#[derive(Debug)]
enum Slot {
    /// The store has not been opened, or does not exist on disk.
    Unmade,
    Open(Engine),
    /// The failed engine was closed, and no attempt to reopen the store has succeeded yet.
    Failed,
    Closed,
}

/// Disk space that a change needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceDemand {
    /// The change takes space. It is refused while the disk is nearly full.
    Space,
    /// The change is small, or frees space.
    Little,
}

/// Reference to an engine that is not closed while the reference exists.
pub(crate) type EngineGuard<'a> = MappedRwLockReadGuard<'a, Engine>;

impl Store {
    /// Creates a store that is not open, and that may not exist on disk yet. `disk` is a folder on the disk of the
    /// store.
    pub(crate) fn unmade(location: StoreLocation, setup: Setup, options: &FjallOptions, disk: &Path) -> Self {
        Self {
            keyspaces: Mutex::new(KeyspaceList::of(setup.tier, Vec::new())),
            free_space: FreeSpace::new(disk, options),
            location,
            setup,
            slot: RwLock::new(Slot::Unmade),
            groups: GroupLocks::default(),
            poison: Mutex::new(None),
            has_safety: AtomicBool::new(false),
            spares: Mutex::default(),
            is_closing: AtomicBool::new(false),
            row_sync: Mutex::default(),
            replaced: Mutex::default(),
        }
    }

    /// Returns the engine for the duration of one call; `None` if the store has not been created. The lock is
    /// recursive, because the rows of a load may come from a scan.
    pub(crate) fn engine(&self) -> Result<Option<EngineGuard<'_>>> {
        match RwLockReadGuard::try_map(self.slot.read_recursive(), Slot::engine) {
            Ok(engine) => Ok(Some(engine)),
            Err(slot) => match *slot {
                Slot::Failed => Err(self.not_reopened()),
                Slot::Closed => Err(closed()),
                Slot::Unmade | Slot::Open(_) => Ok(None),
            },
        }
    }

    /// Returns the error of a read after the failed engine was closed and before the store has been reopened.
    fn not_reopened(&self) -> BackendError {
        match &*self.poison.lock() {
            Some(poison) => BackendError::Unavailable {
                reason: format!(
                    "the {} store is being reopened after: {}",
                    self.setup.tier, poison.reason
                ),
                retry_after: poison.retry_after(),
            },
            None => unavailable("the store is being reopened"),
        }
    }

    /// Returns the engine. Fails as `Unavailable` if the store has not been created.
    pub(crate) fn opened(&self) -> Result<EngineGuard<'_>> {
        let engine = self.engine()?;
        engine.ok_or_else(|| unavailable("the store has not been made"))
    }

    /// Returns an error if the store has failed, or if its disk is nearly full and the change takes space.
    pub(crate) fn check(&self, takes: SpaceDemand) -> Result<()> {
        if let Some(poison) = &*self.poison.lock() {
            return Err(BackendError::Unavailable {
                reason: format!("the store is being reopened after: {}", poison.reason),
                retry_after: poison.retry_after(),
            });
        }
        let space = self.free_space.get();
        if takes == SpaceDemand::Space && space.is_low() {
            return Err(unavailable(format!(
                "the disk is nearly full: {} bytes are free, at least {} are required",
                space.free_bytes, space.watermark_bytes
            )));
        }
        Ok(())
    }

    /// Loads one bucket of a segment. The load ends early if the store fails or closes, or if the disk becomes nearly
    /// full.
    pub(crate) fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        let lock = self.groups.of(segment.group);
        let _guard = lock.lock();
        let engine = self.opened()?;
        let (keyspace, was_empty) = self.begin_group(&engine, segment.group)?;
        let mut unchecked_bytes = 0;
        let mut rows = rows.map(|row| {
            let row = row?;
            unchecked_bytes += row.key.len() + row.value.len();
            if unchecked_bytes >= LOAD_CHECK_BYTES {
                unchecked_bytes = 0;
                self.check_load()?;
            }
            Ok(row)
        });
        let Err(failure) = segments::load(&keyspace, segment, bucket, &mut rows) else {
            return Ok(());
        };
        // If the store is closing, the loaded rows stay, and are freed as an orphaned segment after the next open.
        let cleaned = if self.is_closing.load(Ordering::Acquire) || matches!(failure, LoadError::Store(_)) {
            Ok(())
        } else if was_empty {
            self.empty_group(&engine, segment.group, &keyspace)
        } else {
            segments::remove_bucket(&engine, &keyspace, segment, bucket).map_err(|error| self.failed(error))
        };
        match failure {
            LoadError::Rows(error) => cleaned.and(Err(error)),
            // The next open removes tables that no version file names.
            LoadError::Store(error) => Err(self.failed(error)),
        }
    }

    fn check_load(&self) -> Result<()> {
        if self.is_closing.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.check(SpaceDemand::Space)
    }

    /// Frees a segment.
    pub(crate) fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        let lock = self.groups.of(segment.group);
        let _guard = lock.lock();
        let Some(engine) = self.engine()? else {
            return Ok(());
        };
        let Some(keyspace) = engine.group(segment.group) else {
            return Ok(());
        };
        if !self.keyspaces.lock().has(keyspace.id()) {
            return Ok(());
        }
        let is_last =
            segments::reclaim(&engine, &keyspace, segment.segment).map_err(|error| self.failed(error))?;
        if is_last {
            self.empty_group(&engine, segment.group, &keyspace)?;
        }
        Ok(())
    }

    /// Creates the keyspace of parts if it is missing, and lists it before anything is stored in it.
    pub(crate) fn begin_parts(&self, engine: &Engine) -> Result<()> {
        let keyspace = match engine.parts() {
            Some(keyspace) => keyspace,
            None => engine
                .create_parts()
                .map_err(|error| from_fjall(error, During::Write))?,
        };
        let is_listed = self.keyspaces.lock().has(keyspace.id());
        if !is_listed {
            self.list_keyspaces(|list| list.add(keyspace.id(), keyspace.name()))?;
        }
        Ok(())
    }

    /// Writes sorted groups of changes to a bucket of a part.
    pub(crate) fn load_part(
        &self,
        engine: &Engine,
        partition: Partition,
        groups: &[Vec<RowChange>],
    ) -> Result<()> {
        parts::load(engine, partition, groups).map_err(|error| self.failed(error))
    }

    /// Frees a part.
    pub(crate) fn reclaim_part(&self, part: PartRef) -> Result<()> {
        match self.engine()? {
            Some(engine) => parts::reclaim(&engine, part).map_err(|error| self.failed(error)),
            None => Ok(()),
        }
    }

    /// Removes every row of a key range in one bucket of a part.
    pub(crate) fn remove_rows(&self, partition: Partition, range: &KeyRange) -> Result<()> {
        match self.engine()? {
            Some(engine) => parts::remove(&engine, partition, range).map_err(|error| self.failed(error)),
            None => Ok(()),
        }
    }

    /// Returns every part that holds rows, in the order of keys.
    pub(crate) fn parts(&self) -> Result<Vec<PartRef>> {
        match self.engine()? {
            Some(engine) => parts::list(&engine),
            None => Ok(Vec::new()),
        }
    }

    /// Records a buffered write. The caller holds the engine that was written to.
    pub(crate) fn note_buffered(&self) {
        self.row_sync.lock().written += 1;
    }

    /// Makes durable all buffered writes that were recorded before the call. Returns `Unknown` once after a reopening
    /// that may have lost some of them.
    pub(crate) fn sync_rows(&self) -> Result<()> {
        // Held until the end, so that the store is not reopened before the rows are synced.
        let engine = self.engine();
        let written = {
            let mut rows = self.row_sync.lock();
            if std::mem::take(&mut rows.is_doubtful) {
                return Err(BackendError::Unknown {
                    reason: format!(
                        "the {} store was reopened with rows in it that had not been synced",
                        self.setup.tier
                    ),
                });
            }
            if rows.written == rows.synced {
                return Ok(());
            }
            rows.written
        };
        self.check(SpaceDemand::Little)?;
        let Some(engine) = engine? else {
            return Ok(());
        };
        engine.sync().map_err(|error| self.failed(error))?;
        let mut rows = self.row_sync.lock();
        rows.synced = rows.synced.max(written);
        Ok(())
    }

    /// Records that buffered writes may be lost, because the store is reopened. The engine is not used at this time.
    fn doubt_buffered(&self) {
        let mut rows = self.row_sync.lock();
        rows.is_doubtful |= rows.synced < rows.written;
        rows.synced = rows.written;
    }

    /// Returns a group whose keyspace exists and is empty. Successive calls rotate through such groups. A group is
    /// offered until a load uses it.
    pub(crate) fn spare_group(&self) -> Option<GroupId> {
        let mut spares = self.spares.lock();
        let next = spares.pop_front()?;
        spares.push_back(next);
        Some(next)
    }

    /// Returns every segment that holds rows, by group, then segment.
    pub(crate) fn segments(&self) -> Result<Vec<SegmentRef>> {
        match self.engine()? {
            Some(engine) => segments::list(&engine, self.setup.tier),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the buckets of a segment or part that hold rows, in increasing order.
    pub(crate) fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        let engine = self.engine()?;
        let keyspace = engine.as_ref().and_then(|engine| match unit {
            Unit::Segment(segment) => engine.group(segment.group),
            Unit::Part(_) => engine.parts(),
            Unit::Space(_) => None,
        });
        match engine.zip(keyspace) {
            Some((engine, keyspace)) => engine.buckets(&keyspace, unit),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the health of a store that has failed or whose disk is nearly full; `None` otherwise.
    pub(crate) fn trouble(&self) -> Option<Health> {
        if let Some(poison) = &*self.poison.lock() {
            return Some(poison.health());
        }
        let space = self.free_space.get();
        space.is_low().then_some(Health::DiskLow {
            free_bytes: space.free_bytes,
            watermark_bytes: space.watermark_bytes,
        })
    }

    /// Returns true if the store has failed and has not been reopened.
    pub(crate) fn has_failed(&self) -> bool {
        self.poison.lock().is_some()
    }

    /// Returns the free space of the disk, in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_space.get().free_bytes
    }

    /// Returns the free space below which writes are refused, in bytes.
    pub(crate) fn free_bytes_min(&self) -> u64 {
        self.free_space.get().watermark_bytes
    }

    /// Simulates a full disk, or ends the simulation.
    #[cfg(test)]
    pub(crate) fn seem_full(&self, is_full: bool) {
        self.free_space.seem_full(is_full);
    }

    /// Returns the number of listed keyspaces of groups and parts.
    pub(crate) fn filled(&self) -> usize {
        self.keyspaces.lock().filled()
    }

    /// Marks the store as failed after a change of unknown outcome, so that it is reopened. Returns the error of the
    /// change.
    pub(crate) fn failed(&self, error: fjall::Error) -> BackendError {
        self.poison(&error.to_string());
        from_fjall(error, During::Write)
    }

    /// Returns the keyspace of a group, and true if it is empty. Creates a missing keyspace, and lists it before
    /// anything is stored in it.
    fn begin_group(&self, engine: &Engine, group: GroupId) -> Result<(Keyspace, bool)> {
        let keyspace = match engine.group(group) {
            Some(keyspace) => keyspace,
            None => engine
                .create_group(group)
                .map_err(|error| from_fjall(error, During::Write))?,
        };
        let is_listed = self.keyspaces.lock().has(keyspace.id());
        if !is_listed {
            self.spares.lock().retain(|spare| *spare != group);
            self.list_keyspaces(|list| list.add(keyspace.id(), keyspace.name()))?;
        }
        Ok((keyspace, !is_listed))
    }

    /// Removes everything from a group's keyspace, removes the keyspace from the list and keeps it for another load.
    ///
    /// The keyspace is not deleted. Until the database is closed, fjall 3.1.13 keeps every version of its own keyspace,
    /// with the tables and open files of each version. It also keeps every row of a deleted keyspace for ever. So each
    /// creation or deletion of a keyspace costs one or two more files, and slows down later creations and deletions.
    fn empty_group(&self, engine: &Engine, group: GroupId, keyspace: &Keyspace) -> Result<()> {
        segments::remove_all(engine, keyspace).map_err(|error| self.failed(error))?;
        self.list_keyspaces(|list| list.remove(keyspace.id()))?;
        self.spares.lock().push_back(group);
        Ok(())
    }

    fn list_keyspaces(&self, change: impl FnOnce(&mut KeyspaceList)) -> Result<()> {
        let mut list = self.keyspaces.lock();
        let before = list.clone();
        change(&mut list);
        list.write(&self.location.lists).map_err(|error| {
            list.restore(before);
            from_io(&error, "the list of keyspaces", During::Write)
        })
    }
}

impl Slot {
    fn engine(&self) -> Option<&Engine> {
        match self {
            Self::Open(engine) => Some(engine),
            _ => None,
        }
    }
}

/// Returns the error of every call after a close.
pub(crate) fn closed() -> BackendError {
    BackendError::Refused {
        reason: "the backend is closed".to_owned(),
    }
}
