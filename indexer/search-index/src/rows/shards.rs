//! Shards of an index over rows: the rows are divided over several tantivy indexes by their keys.
//!
//! A key never changes its shard, so each row has one document in one shard. A search reads the segments of the chosen
//! shards as if they were segments of one index.
//!
//! The first shard is stored in the folder of the index, so an index with one shard has no other folders. A commit
//! makes the first shard durable last: its position is the position of the index, and the other shards hold at least
//! the changes before it. Changes after it are indexed again after a restart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tantivy::{Index, IndexReader, IndexWriter, Searcher};

use super::Result;
use crate::folder;

/// Maximum number of shards of an index. Each shard has a writer with separate threads and memory.
pub const SHARDS_MAX: usize = 16;

/// Minimum number of segments of similar size that are merged into one. Higher than for timelines: rows change more
/// often, and each merge rewrites documents.
const MERGED_SEGMENTS: usize = 8;

/// Set of shards of an index, by their numbers. The default contains all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSet(u16);

const _: () = assert!(SHARDS_MAX <= u16::BITS as usize, "a set has a bit for each shard");

impl ShardSet {
    /// Set with all shards.
    pub const ALL: Self = Self(u16::MAX);
    /// Set without shards.
    pub const EMPTY: Self = Self(0);

    /// Adds a shard. `shard` is below [`SHARDS_MAX`].
    pub fn insert(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    /// Returns true if the set contains a shard.
    pub fn has(self, shard: usize) -> bool {
        shard < SHARDS_MAX && self.0 & 1 << shard != 0
    }

    /// Returns the number of shards of the set, in an index with `count` shards.
    pub fn len_of(self, count: usize) -> usize {
        (0..count).filter(|shard| self.has(*shard)).count()
    }

    /// Returns the shards that are in at least one of the sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the shards that are in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Default for ShardSet {
    fn default() -> Self {
        Self::ALL
    }
}

/// Function that returns the number of the shard of a stored key.
type ShardOf = dyn Fn(&[u8]) -> usize + Send + Sync;

/// Division of the keys over the shards of an index. It never changes during the life of an index.
pub struct Sharding {
    count: usize,
    shard_of: Box<ShardOf>,
}

impl Sharding {
    /// Creates the division of an index with one shard.
    pub fn one() -> Self {
        Self {
            count: 1,
            shard_of: Box::new(|_| 0),
        }
    }

    /// Creates a division over `count` shards, 1 to [`SHARDS_MAX`]. `shard_of` returns the number of the shard of a
    /// stored key, below `count`.
    pub fn new(count: usize, shard_of: impl Fn(&[u8]) -> usize + Send + Sync + 'static) -> Self {
        assert!(
            (1..=SHARDS_MAX).contains(&count),
            "the settings limit the number of shards"
        );
        Self {
            count,
            shard_of: Box::new(shard_of),
        }
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of the shard of a stored key.
    pub(super) fn shard_of(&self, key: &[u8]) -> usize {
        (self.shard_of)(key)
    }
}

impl std::fmt::Debug for Sharding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharding")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Returns the folder of a shard of the index in `folder`.
pub fn shard_folder(folder: &Path, shard: usize) -> PathBuf {
    match shard {
        0 => folder.to_owned(),
        shard => folder.join(format!("shard-{shard}")),
    }
}

/// Tantivy index with the rows of one shard.
pub(super) struct Shard {
    index: Index,
    reader: IndexReader,
    /// Created by the first change.
    writer: Mutex<Option<IndexWriter>>,
    /// True if there are changes since the last commit.
    is_changed: AtomicBool,
    heap_bytes: usize,
}

impl Shard {
    pub(super) fn new(index: Index, heap_bytes: usize) -> Result<Self> {
        Ok(Self {
            reader: folder::reader(&index)?,
            index,
            writer: Mutex::new(None),
            is_changed: AtomicBool::new(false),
            heap_bytes,
        })
    }

    pub(super) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }

    /// Makes the last commit, and segments that were merged since then, visible to searches.
    pub(super) fn reload(&self) -> Result<()> {
        Ok(self.reader.reload()?)
    }

    /// Returns true if there are changes since the last commit.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Makes a change that the next commit includes.
    pub(super) fn change(&self, change: impl FnOnce(&mut IndexWriter) -> tantivy::Result<()>) -> Result<()> {
        self.is_changed.store(true, Ordering::Relaxed);
        self.with_writer(change)
    }

    /// Makes all changes durable. `payload` is stored with them; `None` marks a shard without a position.
    pub(super) fn commit(&self, payload: Option<&str>) -> Result<()> {
        self.with_writer(|writer| {
            let mut commit = writer.prepare_commit()?;
            if let Some(payload) = payload {
                commit.set_payload(payload);
            }
            commit.commit()?;
            Ok(())
        })?;
        self.is_changed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for running merges and releases the writer. Changes since the last commit are lost.
    pub(super) fn release_writer(&self) -> Result<()> {
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            writer.wait_merging_threads()?;
        }
        self.is_changed.store(false, Ordering::Relaxed);
        self.reload()
    }

    fn with_writer(&self, change: impl FnOnce(&mut IndexWriter) -> tantivy::Result<()>) -> Result<()> {
        let mut held = self.writer.lock();
        let writer = match &mut *held {
            Some(writer) => writer,
            None => held.insert(folder::writer(&self.index, self.heap_bytes, MERGED_SEGMENTS)?),
        };
        let changed = change(writer);
        if changed.is_err() {
            // A writer that has failed once always fails.
            *held = None;
        }
        Ok(changed?)
    }
}
