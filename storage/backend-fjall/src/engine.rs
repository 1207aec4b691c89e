//! fjall behind the backend: which keyspaces, set up how, read and written how. Each tier has a database of its own.
//!
//! Reads go through `Database::snapshot()`, never through a keyspace directly, which can see half a batch. Writes are
//! one batch each, synced before it is visible. fjall panics on sizes that it does not like, so everything has been
//! checked before it comes here.

use std::collections::HashMap;
use std::fs;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Slice,
    UserValue,
};
use parking_lot::{Mutex, RwLock};
use tideline_backend::page::PageBuilder;
use tideline_backend::{CacheUsage, Direction, KeyRange, Page, PageLimit, Partition, Result, Row, Unit};
use tideline_model::{Durability, GroupId, Tier};
use tideline_runtime::background;

use crate::error::{During, from_fjall};
use crate::files::list;
use crate::keys::{Bounds, COMMITS, MANIFEST, PARTS, ROWS, bounds, group_name, group_of, partition_prefix};
use crate::options::Setup;

/// Data blocks of hot chunks: a few chunks each, so that an index entry pays.
const HOT_BLOCK_BYTES: u32 = 16 << 10;
/// Data blocks of cold chunks of 2 to 20 KiB. Measured over a segment of 1 GiB: against 16 KiB a scan is a sixth
/// faster with half the system calls; against 64 KiB it is a tenth slower, but reading one timeline takes 49 KiB
/// instead of 79, from the disk and of the cache.
const COLD_BLOCK_BYTES: u32 = 32 << 10;
/// Data blocks of rows, which are small and read one by one.
const ROW_BLOCK_BYTES: u32 = 4 << 10;
/// Memtable of a group, which only ever holds the deletes of a reclaim.
const GROUP_MEMTABLE_BYTES: u64 = 4 << 20;
/// Total of fjall's own journals before memtables are flushed to free them.
const WAL_BYTES_MAX: u64 = 128 << 20;
/// The unit in which the system counts what a file occupies.
const STAT_BLOCK_BYTES: u64 = 512;
/// Sequence numbers that an open after drops takes; see [`Engine::pass_dropped_sequences`]. A few milliseconds in all.
const PASSED_SEQUENCES: usize = 2_048;
/// A key of the manifest keyspace that never has a row.
const NO_ROW: &[u8] = b"-";
/// A value that is shorter is copied: a reference would keep its whole block in memory.
const COPIED_BYTES_MAX: usize = 2 << 10;

/// An open fjall database and its keyspaces.
pub(crate) struct Engine {
    database: Database,
    folder: PathBuf,
    tier: Tier,
    /// Size at which a memtable of rows is flushed.
    row_memtable_bytes: u64,
    rows: Keyspace,
    manifest: Keyspace,
    /// `None` until the first write to a part.
    parts: RwLock<Option<Keyspace>>,
    groups: RwLock<HashMap<GroupId, Keyspace>>,
    /// Keyspaces of which tables were dropped whose files are still there, by number.
    unfreed: Mutex<HashMap<u64, Keyspace>>,
    /// Whether buffered batches may not be synced yet.
    has_buffered: AtomicBool,
}

/// Blocks that were not in the cache. fjall counts the others too, but leaves out those of scans.
#[derive(Debug, Clone, Copy, Default)]
struct Misses {
    blocks: u64,
    bytes: u64,
}

/// A change of one row in a batch.
pub(crate) struct Change {
    pub(crate) table: Table,
    pub(crate) key: Vec<u8>,
    /// `None` deletes.
    pub(crate) value: Option<Bytes>,
}

/// A keyspace that batches write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Rows,
    Manifest,
    Parts,
}

impl Engine {
    /// Opens the database in a folder, creating what is missing.
    pub(crate) fn open(folder: &Path, setup: &Setup) -> fjall::Result<Self> {
        let database = Database::builder(folder)
            .cache_size(setup.cache_bytes)
            .worker_threads(setup.worker_threads.max(1))
            .max_cached_files(Some(setup.open_files_max.max(10)))
            .max_journaling_size(WAL_BYTES_MAX)
            .open()?;
        let row_options = || row_options(setup.memtable_bytes);
        let rows = database.keyspace(ROWS, row_options)?;
        let manifest = database.keyspace(MANIFEST, row_options)?;
        let mut parts = None;
        let mut groups = HashMap::new();
        for name in database.list_keyspace_names() {
            if &*name == PARTS {
                parts = Some(database.keyspace(PARTS, row_options)?);
            }
            if let Some(group) = group_of(&name) {
                groups.insert(group, database.keyspace(&name, || group_options(setup.tier))?);
            }
        }
        Ok(Self {
            database,
            folder: folder.to_owned(),
            tier: setup.tier,
            rows,
            manifest,
            parts: RwLock::new(parts),
            groups: RwLock::new(groups),
            row_memtable_bytes: setup.memtable_bytes,
            unfreed: Mutex::default(),
            has_buffered: AtomicBool::new(false),
        })
    }

    /// Takes sequence numbers until they are above those of keyspaces that an earlier build dropped in the last run.
    ///
    /// fjall 3.1.13 gives the folder number of a dropped keyspace to a later one, finds out its next sequence number
    /// without looking at where it noted the drop, and lets the higher one win. So a new keyspace may count as dropped,
    /// and the next open removes it with all that is in it. A drop takes one or two numbers, and there are fewer
    /// keyspaces than this.
    pub(crate) fn pass_dropped_sequences(&self) -> fjall::Result<()> {
        for _ in 0..PASSED_SEQUENCES {
            let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
            batch.remove(&self.manifest, NO_ROW);
            batch.commit()?;
        }
        Ok(())
    }

    /// The number and name of every keyspace, as fjall names its folders.
    pub(crate) fn keyspaces(&self) -> Vec<(u64, String)> {
        let keyspaces = self.all_keyspaces();
        let keyspaces = keyspaces.iter();
        let mut keyspaces: Vec<_> = keyspaces
            .map(|keyspace| (keyspace.id(), keyspace.name().to_string()))
            .collect();
        keyspaces.sort_unstable();
        keyspaces
    }

    fn all_keyspaces(&self) -> Vec<Keyspace> {
        let mut all = vec![self.rows.clone(), self.manifest.clone()];
        all.extend(self.parts());
        all.extend(self.groups.read().values().cloned());
        all
    }

    pub(crate) fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        let mut page = PageBuilder::new(range, direction, limit);
        let prefix = partition_prefix(partition);
        let (Some(keyspace), Some(bounds)) = (self.keyspace(partition.unit), bounds(&prefix, range)) else {
            return Ok(page.complete());
        };
        let mut found = self.database.snapshot().range(&keyspace, bounds);
        loop {
            let next = match direction {
                Direction::Ascending => found.next(),
                Direction::Descending => found.next_back(),
            };
            let Some(next) = next else {
                return Ok(page.complete());
            };
            if page.is_full() {
                return Ok(page.partial());
            }
            background::give_way();
            let (key, value) = next.into_inner().map_err(read_error)?;
            page.push(Row {
                key: Bytes::copy_from_slice(key.get(prefix.len()..).unwrap_or_default()),
                value: into_bytes(value),
            });
        }
    }

    /// Every row of the manifest keyspace whose key begins with `prefix`.
    pub(crate) fn manifest_rows(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let found = self.database.snapshot().prefix(&self.manifest, prefix);
        found
            .map(|next| {
                let (key, value) = next.into_inner().map_err(read_error)?;
                Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
            })
            .collect()
    }

    /// The numbers of commits that the keyspaces of rows and of parts hold; `None` where none was ever counted.
    pub(crate) fn counted_commits(&self) -> Result<[Option<Bytes>; 2]> {
        let counted = |keyspace: Option<&Keyspace>| {
            let Some(keyspace) = keyspace else {
                return Ok(None);
            };
            let value = self.database.snapshot().get(keyspace, COMMITS);
            value.map_err(read_error)
        };
        let counts = [counted(Some(&self.rows))?, counted(self.parts().as_ref())?];
        Ok(counts.map(|count| count.map(into_bytes)))
    }

    /// The counts of commits that tables hold, whatever the logs have after them: of the manifest, the rows, the parts.
    pub(crate) fn flushed_commits(&self) -> Result<[Option<Bytes>; 3]> {
        let flushed = |keyspace: &Keyspace| {
            let Some(highest) = keyspace.tree.get_highest_persisted_seqno() else {
                return Ok(None);
            };
            let value = keyspace.tree.get(COMMITS, highest + 1);
            value.map_err(|error| read_error(error.into()))
        };
        let in_parts = self.parts().map(|parts| flushed(&parts)).transpose()?;
        let counts = [flushed(&self.manifest)?, flushed(&self.rows)?, in_parts.flatten()];
        Ok(counts.map(|count| count.map(into_bytes)))
    }

    /// Writes all rows, those of parts, and the manifest to tables, and waits for it.
    pub(crate) fn flush_rows(&self) -> fjall::Result<()> {
        self.rows.rotate_memtable_and_wait()?;
        if let Some(parts) = self.parts() {
            parts.rotate_memtable_and_wait()?;
        }
        self.manifest.rotate_memtable_and_wait()
    }

    /// Writes the rows to tables and leaves the manifest in the log.
    #[cfg(test)]
    pub(crate) fn flush_rows_alone(&self) -> fjall::Result<()> {
        self.rows.rotate_memtable_and_wait()
    }

    /// Commits changes as one batch: all or nothing, never seen in part. A synced batch makes all earlier ones durable, since
    /// they are in the same log, or in a log that was synced when it was full.
    pub(crate) fn commit(&self, changes: Vec<Change>, durability: Durability) -> fjall::Result<()> {
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Buffered => PersistMode::Buffer,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        let parts = self.parts();
        for change in changes {
            let keyspace = match change.table {
                Table::Rows => &self.rows,
                Table::Manifest => &self.manifest,
                Table::Parts => parts.as_ref().expect("it is made before it is written to"),
            };
            match change.value {
                Some(value) => batch.insert(keyspace, change.key, &*value),
                None => batch.remove(keyspace, change.key),
            }
        }
        self.has_buffered
            .store(durability == Durability::Buffered, Ordering::Release);
        batch.commit()
    }

    /// Syncs buffered batches before one that has no count follows. After a power cut such a batch would show that something
    /// before it is missing, although that was never acknowledged as durable.
    fn sync_before_uncounted(&self) -> fjall::Result<()> {
        match self.has_buffered.swap(false, Ordering::AcqRel) {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Asks fjall whether it still takes writes; its threads may have failed unnoticed.
    pub(crate) fn check(&self) -> fjall::Result<()> {
        self.database.persist(PersistMode::Buffer)
    }

    /// Syncs what is buffered.
    pub(crate) fn sync(&self) -> fjall::Result<()> {
        self.database.persist(PersistMode::SyncAll)
    }

    /// Bytes on disk: tables and fjall's own log, without the hole that most of a log file is.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let tables: u64 = self.all_keyspaces().iter().map(Keyspace::disk_space).sum();
        let files = list(&self.folder).unwrap_or_default();
        let logs = files
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "jnl"));
        let blocks = logs.filter_map(|path| Some(fs::metadata(path).ok()?.blocks()));
        tables + blocks.sum::<u64>() * STAT_BLOCK_BYTES
    }

    /// What the block cache holds, and what has been read past it since the database was opened.
    pub(crate) fn cache(&self) -> CacheUsage {
        let mut misses = Misses::default();
        for keyspace in self.all_keyspaces() {
            misses.add(&keyspace);
        }
        CacheUsage {
            capacity_bytes: self.database.cache_capacity(),
            used_bytes: self.database.cache_size(),
            misses: misses.blocks,
            read_bytes: misses.bytes,
        }
    }

    /// The keyspace of a group, if it has one.
    pub(crate) fn group(&self, group: GroupId) -> Option<Keyspace> {
        self.groups.read().get(&group).cloned()
    }

    /// Every group that has a keyspace.
    pub(crate) fn groups(&self) -> Vec<(GroupId, Keyspace)> {
        let groups = self.groups.read();
        groups
            .iter()
            .map(|(group, keyspace)| (*group, keyspace.clone()))
            .collect()
    }

    /// Creates the keyspace of a group. About 12 ms.
    pub(crate) fn create_group(&self, group: GroupId) -> fjall::Result<Keyspace> {
        let options = || group_options(self.tier);
        let keyspace = self.database.keyspace(&group_name(group), options)?;
        self.groups.write().insert(group, keyspace.clone());
        Ok(keyspace)
    }

    /// The keyspace of parts, if it has been made.
    pub(crate) fn parts(&self) -> Option<Keyspace> {
        self.parts.read().clone()
    }

    /// Creates the keyspace of parts, or returns the one that is there.
    pub(crate) fn create_parts(&self) -> fjall::Result<Keyspace> {
        let mut parts = self.parts.write();
        let keyspace = match parts.take() {
            Some(keyspace) => keyspace,
            None => self
                .database
                .keyspace(PARTS, || row_options(self.row_memtable_bytes))?,
        };
        Ok(parts.insert(keyspace).clone())
    }

    /// The tier that it stores.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// Groups whose keyspaces hold no row, lowest first. One that cannot be read counts as filled.
    pub(crate) fn empty_groups(&self) -> Vec<GroupId> {
        let everything = || (Bound::Unbounded, Bound::Unbounded);
        let is_empty = |keyspace| matches!(self.first_key(keyspace, everything()), Ok(None));
        let groups = self.groups.read();
        let empty = groups.iter().filter(|(_, keyspace)| is_empty(keyspace));
        let mut empty: Vec<GroupId> = empty.map(|(group, _)| *group).collect();
        empty.sort_unstable();
        empty
    }

    /// The first key of a range of a keyspace.
    pub(crate) fn first_key(&self, keyspace: &Keyspace, range: Bounds) -> fjall::Result<Option<Slice>> {
        let mut found = self.database.snapshot().range(keyspace, range);
        found.next().map(fjall::Guard::key).transpose()
    }

    /// Removes every row of a range: whole tables first, then what is left, batch by batch. The files of those tables
    /// go with [`free_dropped_tables`](Self::free_dropped_tables).
    pub(crate) fn remove_range(
        &self,
        keyspace: &Keyspace,
        range: &Bounds,
        batch_rows: usize,
    ) -> fjall::Result<()> {
        keyspace.tree.drop_range::<Vec<u8>, _>(range.clone())?;
        let mut range = range.clone();
        self.unfreed.lock().insert(keyspace.id(), keyspace.clone());
        loop {
            let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
            let found = self.database.snapshot().range(keyspace, range.clone());
            for next in found.take(batch_rows) {
                let key = next.key()?;
                // The next batch does not pass over the deletes of this one.
                range.0 = Bound::Excluded(key.to_vec());
                batch.remove(keyspace, key);
            }
            if batch.is_empty() {
                return Ok(());
            }
            // fjall derives its next sequence number from the keyspaces that exist. An earlier build may drop this one
            // while its log has this batch, after which later batches would get lower numbers than this one.
            batch.remove(&self.manifest, NO_ROW);
            self.sync_before_uncounted()?;
            batch.commit()?;
        }
    }

    /// Lets fjall delete the files of tables that were dropped, unless a snapshot still reads from them; then the next
    /// call does. One small write, and none where nothing was dropped.
    ///
    /// fjall 3.1.13 keeps such tables with the older versions of their keyspace, and looks whether those are of use only
    /// when it rotates a memtable, of whichever keyspace, that is not empty.
    pub(crate) fn free_dropped_tables(&self) -> fjall::Result<()> {
        let waiting = std::mem::take(&mut *self.unfreed.lock());
        if waiting.is_empty() {
            return Ok(());
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        batch.remove(&self.manifest, NO_ROW);
        self.sync_before_uncounted()?;
        batch.commit()?;
        self.manifest.rotate_memtable()?;
        // Asked without a lock of ours: fjall may be writing a version just now.
        let is_held = |keyspace: &Keyspace| keyspace.tree.version_free_list_len() > 0;
        let held = waiting.into_iter().filter(|(_, keyspace)| is_held(keyspace));
        let held: Vec<(u64, Keyspace)> = held.collect();
        self.unfreed.lock().extend(held);
        Ok(())
    }

    fn keyspace(&self, unit: Unit) -> Option<Keyspace> {
        match unit {
            Unit::Segment(segment) => self.group(segment.group),
            Unit::Part(_) => self.parts(),
            Unit::Space(_) => Some(self.rows.clone()),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("tier", &self.tier)
            .field("groups", &self.groups.read().len())
            .finish_non_exhaustive()
    }
}

impl Misses {
    fn add(&mut self, keyspace: &Keyspace) {
        let metrics = keyspace.metrics();
        self.blocks += metrics.block_load_io_count() as u64;
        self.bytes += metrics.block_io();
    }
}

/// Rows: many small ones, compressed.
fn row_options(memtable_bytes: u64) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes)
        .data_block_size_policy(BlockSizePolicy::all(ROW_BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
}

/// Chunks: packed already, read by range, so neither compression nor filters pay.
fn group_options(tier: Tier) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(GROUP_MEMTABLE_BYTES)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .expect_point_read_hits(true);
    match tier {
        Tier::Hot => options.data_block_size_policy(BlockSizePolicy::all(HOT_BLOCK_BYTES)),
        // The index of what is cold outgrows its cache: it is read in blocks of 4 KiB instead of one for each table.
        Tier::Cold | Tier::Archive => options
            .data_block_size_policy(BlockSizePolicy::all(COLD_BLOCK_BYTES))
            .index_block_partitioning_policy(PartitioningPolicy::all(true)),
    }
}

fn read_error(error: fjall::Error) -> tideline_backend::BackendError {
    from_fjall(error, During::Read)
}

/// A fjall value, without a copy if it is long.
fn into_bytes(value: UserValue) -> Bytes {
    if value.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(&value)
    } else {
        Bytes::from_owner(value)
    }
}
