//! One fjall database with what keeps it safe: the list of its keyspaces, checks before each open, a copy aside
//! meanwhile, the free space of its disk, whether it has failed, and how it is opened again.
//!
//! Each tier has one. They share nothing, so that what happens to one does not hinder the other.

mod heal;
mod open;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fjall::Keyspace;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use tideline_backend::{BackendError, Health, PartRef, Result, Row, SegmentRef};
use tideline_model::GroupId;

use crate::engine::Engine;
use crate::error::{During, from_fjall, from_io, unavailable};
use crate::files::FreeSpace;
use crate::keyspace_list::KeyspaceList;
use crate::options::{FjallOptions, Setup};
use crate::parts;
use crate::segments::{self, GroupLocks, LoadError};
use heal::Poison;
pub(crate) use open::STORE;

/// Bytes of rows after which a load looks whether it may go on.
const LOAD_CHECK_BYTES: usize = 1 << 20;

/// Where a store lies.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The folder that holds it.
    pub(crate) root: PathBuf,
    /// The folder of its list of keyspaces.
    pub(crate) lists: PathBuf,
}

/// One fjall database. Every method may be called from many threads.
#[derive(Debug)]
pub(crate) struct Store {
    place: Place,
    setup: Setup,
    free_space: FreeSpace,
    /// Locked for writing only to make, reopen and close, so whoever reads has the engine for the whole call.
    slot: RwLock<Slot>,
    keyspaces: Mutex<KeyspaceList>,
    groups: GroupLocks,
    poison: Mutex<Option<Poison>>,
    /// Whether the copy that was made for the open is still there.
    has_safety: AtomicBool,
    /// Groups whose keyspaces are empty and unlisted, the next to be offered first.
    spares: Mutex<VecDeque<GroupId>>,
    /// Set before the slot, so that a long load ends and makes way.
    is_closing: AtomicBool,
    row_sync: Mutex<RowSync>,
}

/// Buffered writes, and how many of them are synced.
#[derive(Debug, Default)]
struct RowSync {
    written: u64,
    synced: u64,
    /// Whether the store was reopened with writes in it that were not synced.
    is_doubtful: bool,
}

/// What a store has instead of, or as, its engine.
#[derive(Debug)]
enum Slot {
    /// It has not been made, so it is empty.
    Unmade,
    Open(Engine),
    /// It failed, and could not be opened again yet.
    Failed,
    Closed,
}

/// Whether a change takes space or frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Refused while the disk is nearly full.
    Space,
    /// Small, or on the way to freeing space.
    Little,
}

/// An engine that is not closed while this lives.
pub(crate) type EngineGuard<'a> = MappedRwLockReadGuard<'a, Engine>;

impl Store {
    /// A store that has not been made. `disk` is a folder on the disk that it lies on.
    pub(crate) fn unmade(place: Place, setup: Setup, options: &FjallOptions, disk: &Path) -> Self {
        Self {
            keyspaces: Mutex::new(KeyspaceList::of(setup.tier, Vec::new())),
            free_space: FreeSpace::new(disk, options),
            place,
            setup,
            slot: RwLock::new(Slot::Unmade),
            groups: GroupLocks::default(),
            poison: Mutex::new(None),
            has_safety: AtomicBool::new(false),
            spares: Mutex::default(),
            is_closing: AtomicBool::new(false),
            row_sync: Mutex::default(),
        }
    }

    /// The engine, for the time of one call; `None` if the store has not been made. Recursive, since the rows of a
    /// load may come from a scan.
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

    /// The refusal of a read while the store cannot be reopened.
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

    /// The engine of a store that has been made.
    pub(crate) fn opened(&self) -> Result<EngineGuard<'_>> {
        let engine = self.engine()?;
        engine.ok_or_else(|| unavailable("the store has not been made"))
    }

    /// Refuses a change that cannot be promised now.
    pub(crate) fn check(&self, takes: Takes) -> Result<()> {
        if let Some(poison) = &*self.poison.lock() {
            return Err(BackendError::Unavailable {
                reason: format!("the store is being reopened after: {}", poison.reason),
                retry_after: poison.retry_after(),
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

    /// Loads one bucket of a segment. While it runs it looks whether the disk fills up, and whether it has to make way.
    pub(crate) fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        let turn = self.groups.of(segment.group);
        let _turn = turn.lock();
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
        // While the store is closing, the next open finds what is left.
        let cleaned = if self.is_closing.load(Ordering::Acquire) || matches!(failure, LoadError::Store(_)) {
            Ok(())
        } else if was_empty {
            self.empty_group(&engine, segment.group, &keyspace)
        } else {
            segments::remove_bucket(&engine, &keyspace, segment, bucket).map_err(|error| self.failed(error))
        };
        match failure {
            LoadError::Rows(error) => cleaned.and(Err(error)),
            // An open removes the tables that belong to nothing.
            LoadError::Store(error) => Err(self.failed(error)),
        }
    }

    fn check_load(&self) -> Result<()> {
        if self.is_closing.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.check(Takes::Space)
    }

    /// Frees a segment.
    pub(crate) fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        let turn = self.groups.of(segment.group);
        let _turn = turn.lock();
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

    /// Creates the keyspace of parts if it is missing, and lists it before anything is in it.
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

    /// Frees a part.
    pub(crate) fn reclaim_part(&self, part: PartRef) -> Result<()> {
        match self.engine()? {
            Some(engine) => parts::reclaim(&engine, part).map_err(|error| self.failed(error)),
            None => Ok(()),
        }
    }

    /// Every part that holds rows, in no order.
    pub(crate) fn parts(&self) -> Result<Vec<PartRef>> {
        match self.engine()? {
            Some(engine) => parts::list(&engine),
            None => Ok(Vec::new()),
        }
    }

    /// Notes a buffered write. The caller holds the engine that has it.
    pub(crate) fn note_buffered(&self) {
        self.row_sync.lock().written += 1;
    }

    /// Makes all buffered writes durable that were noted before. `Unknown` once after they may have been lost.
    pub(crate) fn sync_rows(&self) -> Result<()> {
        // Held from now on, so that the store is not opened again before the rows are synced.
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
        self.check(Takes::Little)?;
        let Some(engine) = engine? else {
            return Ok(());
        };
        engine.sync().map_err(|error| self.failed(error))?;
        let mut rows = self.row_sync.lock();
        rows.synced = rows.synced.max(written);
        Ok(())
    }

    /// Notes that buffered writes may be lost, because the store is opened again. Nothing uses the engine meanwhile.
    fn doubt_buffered(&self) {
        let mut rows = self.row_sync.lock();
        rows.is_doubtful |= rows.synced < rows.written;
        rows.synced = rows.written;
    }

    /// A group whose keyspace is there and empty. Successive calls return different ones while there are several; a
    /// group is offered until a load takes it.
    pub(crate) fn spare_group(&self) -> Option<GroupId> {
        let mut spares = self.spares.lock();
        let next = spares.pop_front()?;
        spares.push_back(next);
        Some(next)
    }

    /// Every segment that holds rows, by group, then segment.
    pub(crate) fn segments(&self) -> Result<Vec<SegmentRef>> {
        match self.engine()? {
            Some(engine) => segments::list(&engine, self.setup.tier),
            None => Ok(Vec::new()),
        }
    }

    /// What keeps it from its promises, if anything does.
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

    /// Whether it has failed and was not reopened since.
    pub(crate) fn has_failed(&self) -> bool {
        self.poison.lock().is_some()
    }

    /// Bytes free on its disk.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_space.get().free_bytes
    }

    /// Makes its disk seem full, or what it is.
    #[cfg(test)]
    pub(crate) fn seem_full(&self, is_full: bool) {
        self.free_space.seem_full(is_full);
    }

    /// How many keyspaces of segments or parts are listed.
    pub(crate) fn filled(&self) -> usize {
        self.keyspaces.lock().filled()
    }

    /// A failed change, whose outcome is unknown: the store is opened again.
    pub(crate) fn failed(&self, error: fjall::Error) -> BackendError {
        self.poison(&error.to_string());
        from_fjall(error, During::Write)
    }

    /// The keyspace of a group, created if missing and listed before anything is in it; and whether it is empty.
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

    /// Removes everything from a group's keyspace, takes it off the list and keeps it for another load.
    ///
    /// The keyspace is not deleted. fjall 3.1.13 keeps every version of its own keyspace, with the tables and open
    /// files of each, until the database is closed, and every row of a deleted keyspace for ever: each keyspace that is
    /// created or deleted costs one or two files more, and the next one more time.
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
        list.write(&self.place.lists).map_err(|error| {
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

/// What every call says after a close.
pub(crate) fn closed() -> BackendError {
    BackendError::Refused {
        reason: "the backend is closed".to_owned(),
    }
}
