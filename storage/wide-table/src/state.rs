//! State of the store at one moment: generations of the row buffer and parts of the tables.
//!
//! Readers take the current [`State`] and read its generations, newest first, before the part. A flush writes rows into
//! the part while its generation still covers them, so both orders of "row written" and "row read" give the same
//! result. Only the *publication* of a flush drops a generation; a reader that finds that a flush was published while it
//! read the part reads again, because later generations may have been written over what it has taken.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use hashbrown::DefaultHashBuilder;
use serde::{Deserialize, Serialize};
use tideline_backend::PartRef;
use tideline_model::{KeyRange, SequenceNumber, TableId};

use crate::buffer::{Found, Generation, Mutations, TableBuffer};
use crate::store::is_base;

/// Part of a table, with what its manifest row records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: PartRef,
    pub(crate) detail: PartDetail,
}

/// Content of the manifest row of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartDetail {
    /// Form of the row: 2 if the part can hold fragments of large rows, otherwise 1.
    pub(crate) format: u8,
    /// Table of the part.
    pub(crate) table: u32,
    /// Number of buckets: 2 if the part can hold fragments, otherwise 1.
    pub(crate) buckets: u16,
    /// Largest stored row that was ever written, in bytes.
    pub(crate) row_bytes_max: u64,
    /// Upper bound of the size of every stored column with its versions, in bytes; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) column_bytes_max: Option<u64>,
    /// Newest time of all rows, in nanoseconds since 1970-01-01T00:00:00Z. The next version of the server is later.
    pub(crate) newest: i64,
}

/// Form of [`PartDetail`] without fragments.
pub(crate) const PART_FORMAT: u8 = 1;
/// Form of [`PartDetail`] with fragments, which older builds refuse.
pub(crate) const PART_FORMAT_FRAGMENTS: u8 = 2;

impl PartDetail {
    /// Returns true if the part can hold fragments of large rows.
    pub(crate) fn has_fragments(&self) -> bool {
        self.format == PART_FORMAT_FRAGMENTS
    }

    /// Returns the sizes of the largest stored row and column, in bytes.
    pub(crate) fn largest(&self) -> (usize, usize) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let row = bytes(self.row_bytes_max);
        (row, self.column_bytes_max.map_or(row, bytes))
    }

    /// Records the size of a column, or of a row that holds it.
    pub(crate) fn note_column(&mut self, bytes: usize) {
        self.column_bytes_max = self.column_bytes_max.map(|known| known.max(bytes as u64));
    }

    /// Records that the part holds fragments.
    pub(crate) fn set_fragments(&mut self) {
        self.format = PART_FORMAT_FRAGMENTS;
        self.buckets = 2;
    }
}

/// Generations and parts at one moment. A value never changes once it is shared, but its active generation grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) active: Arc<Generation>,
    /// Frozen generations, oldest first.
    pub(crate) frozen: Vec<Arc<Generation>>,
    pub(crate) parts: BTreeMap<TableId, Part>,
    /// Number of published flushes.
    pub(crate) flushes: u64,
}

impl State {
    /// Returns the buffers of a table, newest first.
    pub(crate) fn buffers(&self, table: TableId) -> Vec<Arc<TableBuffer>> {
        let frozen = self.frozen.iter().rev();
        std::iter::once(&self.active)
            .chain(frozen)
            .filter_map(|generation| generation.table(table))
            .collect()
    }

    /// Returns the position of a row in the history of changes, to find out later whether it was changed.
    pub(crate) fn revision(&self, table: TableId, key: &[u8]) -> Revision {
        let buffers = self.buffers(table);
        let last = buffers.iter().find_map(|buffer| buffer.last_change(key));
        Revision {
            last,
            flushes: self.flushes,
        }
    }

    /// Returns the position of a range in the history of changes.
    pub(crate) fn range_revision(&self, table: TableId, range: &KeyRange) -> RangeRevision {
        let buffers = self.buffers(table);
        RangeRevision(Revision {
            last: buffers
                .iter()
                .filter_map(|buffer| buffer.last_change_in(range))
                .max(),
            flushes: self.flushes,
        })
    }

    /// Returns true if a row was not changed since `seen`. May return false for an unchanged row if a flush was
    /// published in between.
    pub(crate) fn is_unchanged(&self, table: TableId, key: &[u8], seen: Revision) -> bool {
        let now = self.revision(table, key);
        match (seen.last, now.last) {
            (None, None) => seen.flushes == now.flushes,
            (seen, now) => seen == now,
        }
    }
}

/// Last change of a row that a reader has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Revision {
    /// Sequence of the last change in the buffer; `None` if the buffer does not change the row.
    last: Option<SequenceNumber>,
    /// Number of flushes published before.
    flushes: u64,
}

/// Last change of the rows of a range that a reader has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeRevision(Revision);

/// Collects the mutations of one row over the buffers, newest first. Returns the mutations oldest first, and whether
/// older state matters to them.
pub(crate) fn buffered(buffers: &[Arc<TableBuffer>], key: &[u8]) -> Buffered {
    let mut all: Vec<Mutations> = Vec::new();
    let mut needs_part = true;
    for buffer in buffers {
        match buffer.find(key) {
            Found::Nothing => {}
            Found::Deleted => {
                needs_part = false;
                break;
            }
            Found::Row(mutations) => {
                let is_base = mutations.first().is_some_and(|first| is_base(first));
                all.push(mutations);
                if is_base {
                    needs_part = false;
                    break;
                }
            }
        }
    }
    Buffered {
        mutations: all.into_iter().rev().flatten().collect(),
        needs_part,
    }
}

/// Mutations of a row in the buffer.
#[derive(Debug)]
pub(crate) struct Buffered {
    /// Mutations, oldest first.
    pub(crate) mutations: Vec<Bytes>,
    /// True if the mutations apply to the row in the part.
    pub(crate) needs_part: bool,
}

/// Rows with a change between its check and its application, as counters by the hash of the key.
///
/// The committer checks all entries of a group before it applies any. A condition on a row that an earlier entry of the
/// group changes cannot be decided then. Two keys with the same counter only cost a retry.
#[derive(Debug)]
pub(crate) struct PendingRows {
    counters: Box<[AtomicU32]>,
    /// Counters by the hash of the partition.
    partitions: Box<[AtomicU32]>,
    /// Pending deletions of ranges, which may change any row.
    ranges: AtomicU32,
    hasher: DefaultHashBuilder,
}

/// Number of counters; a power of two.
const COUNTERS: usize = 1 << 14;

impl Default for PendingRows {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            partitions: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            ranges: AtomicU32::new(0),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl PendingRows {
    fn slot(&self, table: TableId, key: &[u8]) -> usize {
        self.hasher.hash_one((table.0, key)) as usize % COUNTERS
    }

    /// Returns true if a change of the row may be pending.
    pub(crate) fn is_pending(&self, table: TableId, key: &[u8]) -> bool {
        let counter = &self.counters[self.slot(table, key)];
        self.ranges.load(Ordering::Relaxed) > 0 || counter.load(Ordering::Relaxed) > 0
    }

    /// Returns true if a change of a row of the partition may be pending.
    pub(crate) fn is_partition_pending(&self, table: TableId, partition: &[u8]) -> bool {
        let counter = &self.partitions[self.slot(table, partition)];
        self.ranges.load(Ordering::Relaxed) > 0 || counter.load(Ordering::Relaxed) > 0
    }

    /// Counts a change of a row as pending. `partition` is the length of the prefix that names its partition.
    pub(crate) fn begin_row(&self, table: TableId, key: &[u8], partition: usize) {
        self.counters[self.slot(table, key)].fetch_add(1, Ordering::Relaxed);
        self.partitions[self.slot(table, &key[..partition])].fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what [`begin_row`](Self::begin_row) has begun.
    pub(crate) fn end_row(&self, table: TableId, key: &[u8], partition: usize) {
        self.counters[self.slot(table, key)].fetch_sub(1, Ordering::Relaxed);
        self.partitions[self.slot(table, &key[..partition])].fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_range(&self) {
        self.ranges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_range(&self) {
        self.ranges.fetch_sub(1, Ordering::Relaxed);
    }
}
