//! Access to fjall: keyspaces and their options, reads and writes. Each tier has a separate database.
//!
//! Reads of several rows use `Database::snapshot()`, because a direct read of a keyspace may return half of a batch. A
//! single row is read directly. Each write of rows is one batch. A *synced* batch becomes visible only after its sync.
//! A *buffered* batch becomes visible without a sync. fjall panics on keys and values of invalid sizes, so callers
//! check all sizes first.

use std::collections::HashMap;
use std::fs;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy};
use fjall::{
    AbstractTree, CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable,
    Slice, UserValue,
};
use parking_lot::{Mutex, RwLock};
use tideline_backend::page::PageBuilder;
use tideline_backend::{
    BackendError, CacheUsage, Direction, KeyRange, Page, PageLimit, Partition, Result, Row, Unit,
};
use tideline_model::{Durability, GroupId, Tier};
use tideline_runtime::background;

use crate::error::{During, from_fjall};
use crate::files::list;
use crate::keys::{
    Bounds, COMMITS, MANIFEST, PARTS, ROWS, bounds, bucket_of, group_name, group_of, partition_prefix,
    unit_end,
};
use crate::options::Setup;

/// Block size of hot chunks. A block holds several chunks, which keeps the number of index entries low.
const HOT_BLOCK_BYTES: u32 = 16 << 10;
/// Block size of cold chunks, which are 2 to 20 KiB long. Measured with a segment of 1 GiB:
///
/// - Compared with blocks of 16 KiB, a scan is a sixth faster and needs half the system calls.
/// - Compared with blocks of 64 KiB, a scan is a tenth slower. However, a read of one timeline takes 49 KiB instead
///   of 79 KiB, both from the disk and in the cache.
const COLD_BLOCK_BYTES: u32 = 32 << 10;
/// Block size of rows, which are small and read one by one.
const ROW_BLOCK_BYTES: u32 = 4 << 10;
/// Memtable size of a group. Loads bypass the memtable, so the memtable holds only the deletes of a reclaim.
const GROUP_MEMTABLE_BYTES: u64 = 4 << 20;
/// Total size of fjall's own logs, in bytes. Above it, memtables are flushed so that old logs can be deleted.
const WAL_BYTES_MAX: u64 = 128 << 20;
/// Unit in which the system counts the disk space of a file, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;
/// Number of sequence numbers that opening a database uses up if an earlier build may have dropped keyspaces; see
/// [`Engine::pass_dropped_sequences`]. This takes a few milliseconds.
const PASSED_SEQUENCES: usize = 2_048;
/// Key that never has a row in the manifest keyspace.
const NO_ROW: &[u8] = b"-";
/// Maximum length of a value that is copied instead of referenced, in bytes. A reference to a short value would keep
/// its whole block in memory.
const COPIED_BYTES_MAX: usize = 2 << 10;

/// Open fjall database and its keyspaces.
pub(crate) struct Engine {
    database: Database,
    folder: PathBuf,
    tier: Tier,
    /// Size at which a memtable of rows is flushed, in bytes.
    row_memtable_bytes: u64,
    rows: Keyspace,
    manifest: Keyspace,
    /// `None` until the first write to a part.
    parts: RwLock<Option<Keyspace>>,
    groups: RwLock<HashMap<GroupId, Keyspace>>,
    /// Keyspaces with dropped tables whose files may still exist, by number.
    unfreed: Mutex<HashMap<u64, Keyspace>>,
    /// Number of old versions of the keyspace [`PARTS`] in the previous round of maintenance.
    old_versions: AtomicU32,
    /// True if a batch that was committed without a sync may still be unsynced.
    has_buffered: AtomicBool,
}

/// Blocks that were not in the cache. Hits are not reported, because fjall does not count the hits of scans.
#[derive(Debug, Clone, Copy, Default)]
struct Misses {
    blocks: u64,
    bytes: u64,
}

/// Change of one row in a batch.
pub(crate) struct Change {
    pub(crate) table: Table,
    pub(crate) key: Vec<u8>,
    /// `None` deletes the row.
    pub(crate) value: Option<Bytes>,
}

/// Keyspace that batches write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Rows,
    Manifest,
    Parts,
}

impl Engine {
    /// Opens the database in a folder. Creates it, and its keyspaces of rows and manifest, if they are missing.
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
                parts = Some(database.keyspace(PARTS, || part_options(setup.memtable_bytes))?);
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
            old_versions: AtomicU32::new(0),
            has_buffered: AtomicBool::new(false),
        })
    }

    /// Uses up sequence numbers until they are above those of keyspaces that an earlier build dropped in the last run.
    ///
    /// fjall 3.1.13 reuses the folder number of a dropped keyspace. When it computes its next sequence number after a
    /// start, it ignores the sequence number with which the drop was recorded. If a folder number has two records, the
    /// record with the higher sequence number wins. So a new keyspace may count as dropped, and the next open removes
    /// it with its content. A drop takes one or two sequence numbers. This function uses up more sequence numbers than
    /// there are keyspaces.
    pub(crate) fn pass_dropped_sequences(&self) -> fjall::Result<()> {
        for _ in 0..PASSED_SEQUENCES {
            let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
            batch.remove(&self.manifest, NO_ROW);
            batch.commit()?;
        }
        Ok(())
    }

    /// Returns the number and the name of every keyspace. The number is also the name of the keyspace's folder.
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
            background::yield_core();
            page.push(row_of(next, prefix.len())?);
        }
    }

    /// Returns the row of a partition with the lowest key at or above `from`. A scan of one row also reads the row
    /// after it, with a further block of a table in most cases.
    pub(crate) fn first(&self, partition: Partition, from: &[u8]) -> Result<Option<Row>> {
        let prefix = partition_prefix(partition);
        let range = KeyRange {
            start: from.to_vec(),
            end: None,
        };
        let (Some(keyspace), Some(bounds)) = (self.keyspace(partition.unit), bounds(&prefix, &range)) else {
            return Ok(None);
        };
        let first = self.database.snapshot().range(&keyspace, bounds).next();
        first.map(|first| row_of(first, prefix.len())).transpose()
    }

    pub(crate) fn get(&self, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(keyspace) = self.keyspace(partition.unit) else {
            return Ok(None);
        };
        let mut stored = partition_prefix(partition);
        stored.extend_from_slice(key);
        Ok(keyspace.get(&stored).map_err(read_error)?.map(into_bytes))
    }

    /// Returns every row of the manifest keyspace whose key begins with `prefix`.
    pub(crate) fn manifest_rows(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let found = self.database.snapshot().prefix(&self.manifest, prefix);
        found
            .map(|next| {
                let (key, value) = next.into_inner().map_err(read_error)?;
                Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
            })
            .collect()
    }

    /// Returns the counts of commits in the keyspaces of rows and of parts; `None` for a keyspace that does not exist
    /// or has no count.
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

    /// Returns the counts of commits in the tables of the manifest, the rows and the parts, in this order. Counts that
    /// are only in logs are ignored; `None` for a keyspace without a count in tables.
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

    /// Flushes the memtables of rows, parts and manifest to tables, and waits until they are written.
    pub(crate) fn flush_rows(&self) -> fjall::Result<()> {
        self.rows.rotate_memtable_and_wait()?;
        if let Some(parts) = self.parts() {
            parts.rotate_memtable_and_wait()?;
        }
        self.manifest.rotate_memtable_and_wait()
    }

    /// Returns the size of the tables of parts, in bytes.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.parts().map_or(0, |parts| parts.disk_space())
    }

    /// Merges all tables of parts, so that they hold no replaced or deleted values. Waits until the merge has ended.
    /// Writes continue meanwhile. The merge needs as much disk space as the tables.
    pub(crate) fn compact_parts(&self) -> fjall::Result<()> {
        let Some(parts) = self.parts() else {
            return Ok(());
        };
        parts.rotate_memtable_and_wait()?;
        parts.major_compact()
    }

    /// Flushes the memtable of rows to tables and leaves the manifest in the log.
    #[cfg(test)]
    pub(crate) fn flush_rows_alone(&self) -> fjall::Result<()> {
        self.rows.rotate_memtable_and_wait()
    }

    /// Commits changes as one atomic batch. A synced batch makes all earlier batches durable, because they are in the
    /// same log, or in a log that was synced when it was full.
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

    /// Syncs buffered batches before a batch without a count follows. Otherwise, after a power cut, such a batch would
    /// suggest that earlier commits are missing, although they were never acknowledged as durable.
    fn sync_before_uncounted(&self) -> fjall::Result<()> {
        match self.has_buffered.swap(false, Ordering::AcqRel) {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Checks that fjall still accepts writes; its threads may have failed unnoticed.
    pub(crate) fn check(&self) -> fjall::Result<()> {
        self.database.persist(PersistMode::Buffer)
    }

    /// Syncs buffered batches.
    pub(crate) fn sync(&self) -> fjall::Result<()> {
        self.database.persist(PersistMode::SyncAll)
    }

    /// Returns the size on disk: tables and fjall's own logs, without the hole that fills most of a log file.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let tables: u64 = self.all_keyspaces().iter().map(Keyspace::disk_space).sum();
        let files = list(&self.folder).unwrap_or_default();
        let logs = files
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "jnl"));
        let blocks = logs.filter_map(|path| Some(fs::metadata(path).ok()?.blocks()));
        tables + blocks.sum::<u64>() * STAT_BLOCK_BYTES
    }

    /// Returns the maximum and current size of the block cache, and its misses since the database was opened.
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

    /// Returns the keyspace of a group, if it has one.
    pub(crate) fn group(&self, group: GroupId) -> Option<Keyspace> {
        self.groups.read().get(&group).cloned()
    }

    /// Returns every group that has a keyspace.
    pub(crate) fn groups(&self) -> Vec<(GroupId, Keyspace)> {
        let groups = self.groups.read();
        groups
            .iter()
            .map(|(group, keyspace)| (*group, keyspace.clone()))
            .collect()
    }

    /// Creates the keyspace of a group. Takes about 12 ms.
    pub(crate) fn create_group(&self, group: GroupId) -> fjall::Result<Keyspace> {
        let options = || group_options(self.tier);
        let keyspace = self.database.keyspace(&group_name(group), options)?;
        self.groups.write().insert(group, keyspace.clone());
        Ok(keyspace)
    }

    /// Returns the keyspace of parts, if it has been created.
    pub(crate) fn parts(&self) -> Option<Keyspace> {
        self.parts.read().clone()
    }

    /// Returns the keyspace of parts, and creates it first if it is missing.
    pub(crate) fn create_parts(&self) -> fjall::Result<Keyspace> {
        let mut parts = self.parts.write();
        let keyspace = match parts.take() {
            Some(keyspace) => keyspace,
            None => self
                .database
                .keyspace(PARTS, || part_options(self.row_memtable_bytes))?,
        };
        Ok(parts.insert(keyspace).clone())
    }

    /// Returns the tier of the database.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the groups whose keyspaces hold no row, lowest first. A keyspace that cannot be read does not count as
    /// empty.
    pub(crate) fn empty_groups(&self) -> Vec<GroupId> {
        let everything = || (Bound::Unbounded, Bound::Unbounded);
        let is_empty = |keyspace| matches!(self.first_key(keyspace, everything()), Ok(None));
        let groups = self.groups.read();
        let empty = groups.iter().filter(|(_, keyspace)| is_empty(keyspace));
        let mut empty: Vec<GroupId> = empty.map(|(group, _)| *group).collect();
        empty.sort_unstable();
        empty
    }

    /// Returns the first key of a range of a keyspace; `None` if the range has no row.
    pub(crate) fn first_key(&self, keyspace: &Keyspace, range: Bounds) -> fjall::Result<Option<Slice>> {
        let mut found = self.database.snapshot().range(keyspace, range);
        found.next().map(fjall::Guard::key).transpose()
    }

    /// Returns the buckets of a unit that hold rows. Costs one seek per bucket.
    pub(crate) fn buckets(&self, keyspace: &Keyspace, unit: Unit) -> Result<Vec<u16>> {
        let mut buckets = Vec::new();
        let mut next = Some(0);
        while let Some(bucket) = next {
            let start = Bound::Included(partition_prefix(Partition { unit, bucket }));
            let key = self
                .first_key(keyspace, (start, unit_end(unit)))
                .map_err(|error| from_fjall(error, During::Read))?;
            let Some(key) = key else { break };
            let bucket = bucket_of(unit, &key)
                .ok_or_else(|| BackendError::corrupt("a key of a segment or part is too short"))?;
            buckets.push(bucket);
            next = bucket.checked_add(1);
        }
        Ok(buckets)
    }

    /// Removes every row of a range: drops tables that are inside the range, then deletes the remaining rows in
    /// batches. [`free_dropped_tables`](Self::free_dropped_tables) deletes the files of the dropped tables.
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
                // The next batch starts after the last key of this batch.
                range.0 = Bound::Excluded(key.to_vec());
                batch.remove(keyspace, key);
            }
            if batch.is_empty() {
                return Ok(());
            }
            // fjall derives its next sequence number from the existing keyspaces. If an earlier build drops this
            // keyspace while the log holds this batch, later batches would get lower numbers than this batch. So the
            // batch also writes to the manifest keyspace, which is never dropped.
            batch.remove(&self.manifest, NO_ROW);
            self.sync_before_uncounted()?;
            batch.commit()?;
        }
    }

    /// Makes fjall delete the files of dropped tables. Files that a snapshot still reads are deleted by a later call.
    /// Costs one small write, or nothing if no files wait for their deletion.
    ///
    /// fjall 3.1.13 keeps such tables with the older versions of their keyspace. It checks whether those versions are
    /// still in use only when it rotates a non-empty memtable of any keyspace.
    pub(crate) fn free_dropped_tables(&self) -> fjall::Result<()> {
        let mut waiting = std::mem::take(&mut *self.unfreed.lock());
        // A compaction of parts also leaves old versions. Later writes free these versions; without later writes, this
        // call does.
        if let Some(parts) = self.parts() {
            let old = u32::try_from(parts.tree.version_free_list_len()).unwrap_or(u32::MAX);
            let before = self.old_versions.swap(old, Ordering::Relaxed);
            if old > 0 && old == before {
                waiting.insert(parts.id(), parts);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        batch.remove(&self.manifest, NO_ROW);
        self.sync_before_uncounted()?;
        batch.commit()?;
        self.manifest.rotate_memtable()?;
        // Checked without holding the lock of `unfreed`, because fjall may be writing a version at the same time.
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

/// Returns the options of the keyspaces of rows and manifest, whose rows are small and compressed.
fn row_options(memtable_bytes: u64) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable_bytes)
        .data_block_size_policy(BlockSizePolicy::all(ROW_BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
}

/// Returns the options of the keyspace of parts. An existing keyspace keeps the options with which it was created.
///
/// Until the entries of its index are written, fjall keeps the whole block of each entry in memory. With one index per
/// table, a compaction of a table of pieces takes 64 MiB. An index in blocks of 4 KiB is written as the table grows, and
/// the compaction takes a quarter of this memory.
fn part_options(memtable_bytes: u64) -> KeyspaceCreateOptions {
    row_options(memtable_bytes).index_block_partitioning_policy(PartitioningPolicy::all(true))
}

/// Returns the options of groups: chunks are packed and read by range, so compression and filters do not pay off.
fn group_options(tier: Tier) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(GROUP_MEMTABLE_BYTES)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .expect_point_read_hits(true);
    match tier {
        Tier::Hot => options.data_block_size_policy(BlockSizePolicy::all(HOT_BLOCK_BYTES)),
        // The index of cold data outgrows its cache, so it is read in blocks of 4 KiB instead of one block per table.
        Tier::Cold | Tier::Archive => options
            .data_block_size_policy(BlockSizePolicy::all(COLD_BLOCK_BYTES))
            .index_block_partitioning_policy(PartitioningPolicy::all(true)),
    }
}

fn read_error(error: fjall::Error) -> tideline_backend::BackendError {
    from_fjall(error, During::Read)
}

/// Reads the row that an iterator has reached. The first `prefix` bytes of its key name the partition.
fn row_of(found: Guard, prefix: usize) -> Result<Row> {
    let (key, value) = found.into_inner().map_err(read_error)?;
    Ok(Row {
        key: Bytes::copy_from_slice(key.get(prefix..).unwrap_or_default()),
        value: into_bytes(value),
    })
}

/// Converts a fjall value to bytes, without a copy if it is long.
fn into_bytes(value: UserValue) -> Bytes {
    if value.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(&value)
    } else {
        Bytes::from_owner(value)
    }
}
