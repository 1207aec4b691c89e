//! The head (the memtable): unsealed points in memory, one head per generation of the journal.
//!
//! | file | holds |
//! |---|---|
//! | [`table`] | timelines of one table in locked shards; applies deltas |
//! | [`series`] | one timeline: its open rows, and the blocks into which they are encoded |
//! | `open_rows` | open rows of one shape as variable-length numbers |
//! | `budget` | memory budget that triggers a seal |
//!
//! Only one thread at a time adds and deletes points: the recovery at a start, then the committer. Readers lock one
//! shard while they copy the open rows of one timeline. A head is *active* while it grows and *frozen* while it is
//! being sealed. A frozen head changes only when a table is dropped.

mod budget;
mod open_rows;
pub mod series;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_model::{SequenceNumber, TableId, TimeRange, TimelineId};

use crate::error::Result;
use crate::sharding::ShardedDelta;
pub use budget::HeadBudget;
use table::TableHead;

/// Divisor of the head budget. If the open rows exceed this share and reach [`BLOCK_OPEN_BYTES_MIN`] per timeline, all
/// open rows are encoded. Open rows take about two bytes per value, blocks less than one byte.
const OPEN_SHARE: usize = 2;
/// Minimum bytes of open rows per timeline for which blocks are smaller than open rows. Below this minimum, the head is
/// sealed with its open rows, which are then encoded once in larger runs.
const BLOCK_OPEN_BYTES_MIN: usize = 320;

/// Unsealed points of all tables since one position of the journal.
#[derive(Debug)]
pub struct Head {
    first: SequenceNumber,
    /// First sequence after the head. Increases while the head is active.
    end: AtomicU64,
    started: Instant,
    tables: RwLock<HashMap<TableId, Arc<TableHead>>>,
    /// Bytes of open rows.
    open_bytes: AtomicUsize,
    /// Bytes of encoded blocks, and of the structures per timeline and shape.
    block_bytes: AtomicUsize,
    points: AtomicU64,
    /// Timelines of all tables.
    timelines: AtomicUsize,
}

impl Head {
    /// Creates an empty head for entries from the sequence `first` on.
    pub fn new(first: SequenceNumber) -> Self {
        Self {
            first,
            end: AtomicU64::new(first.0),
            started: Instant::now(),
            tables: RwLock::default(),
            open_bytes: AtomicUsize::new(0),
            block_bytes: AtomicUsize::new(0),
            points: AtomicU64::new(0),
            timelines: AtomicUsize::new(0),
        }
    }

    /// Adds the rows of a delta. Called by one thread in sequence order.
    pub(crate) fn apply(&self, sharded: &ShardedDelta<'_>, sequence: SequenceNumber, budget: HeadBudget) {
        let delta = sharded.delta;
        let growth = self.table_or_new(delta.table).apply(sharded, sequence);
        self.grow(growth);
        self.points.fetch_add(
            delta
                .groups
                .iter()
                .map(|group| group.timestamps.len() as u64)
                .sum(),
            Ordering::Relaxed,
        );
        self.pass(sequence);
        let (timelines, open) = (self.timelines(), self.open_bytes.load(Ordering::Relaxed));
        if open > budget.bytes(timelines) / OPEN_SHARE && open >= timelines * BLOCK_OPEN_BYTES_MIN {
            self.close_open_rows();
        }
    }

    fn grow(&self, growth: Growth) {
        self.open_bytes.fetch_add(growth.open, Ordering::Relaxed);
        self.open_bytes.fetch_sub(growth.closed, Ordering::Relaxed);
        self.block_bytes.fetch_add(growth.blocks, Ordering::Relaxed);
        self.block_bytes.fetch_sub(growth.dropped, Ordering::Relaxed);
        self.timelines.fetch_add(growth.timelines, Ordering::Relaxed);
    }

    /// Applies a delete: removes the points of timelines in a time range. Called by the thread that calls `apply`.
    pub(crate) fn delete(
        &self,
        table: TableId,
        ids: &[TimelineId],
        range: TimeRange,
        sequence: SequenceNumber,
    ) -> Result<()> {
        if let Some(table) = self.table(table) {
            self.grow(table.delete(ids, range)?);
        }
        self.pass(sequence);
        Ok(())
    }

    /// Advances the end of the head past an entry, which may have no content for this head, such as an entry of a
    /// dropped table.
    pub(crate) fn pass(&self, sequence: SequenceNumber) {
        self.end.fetch_max(sequence.0 + 1, Ordering::AcqRel);
    }

    /// Ends the head before the sequence `next`.
    pub(crate) fn end_before(&self, next: SequenceNumber) {
        self.end.fetch_max(next.0, Ordering::AcqRel);
    }

    /// Encodes all open rows and frees their memory.
    fn close_open_rows(&self) {
        let tables: Vec<_> = self.tables.read().values().cloned().collect();
        for table in tables {
            self.grow(table.close_open_rows());
        }
    }

    /// Removes the points of a dropped table. The counts of the head are not reduced.
    pub(crate) fn drop_table(&self, table: TableId) {
        self.tables.write().remove(&table);
    }

    /// Returns the part of one table; `None` if no write of the table is in this head.
    pub fn table(&self, table: TableId) -> Option<Arc<TableHead>> {
        self.tables.read().get(&table).cloned()
    }

    /// Returns all tables with writes in this head, sorted by id.
    pub(crate) fn tables(&self) -> Vec<(TableId, Arc<TableHead>)> {
        let mut all: Vec<_> = self
            .tables
            .read()
            .iter()
            .map(|(id, table)| (*id, Arc::clone(table)))
            .collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// Returns the memory of the head in bytes.
    pub fn bytes(&self) -> usize {
        self.open_bytes.load(Ordering::Relaxed) + self.block_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of timelines in the head, including those of dropped tables.
    pub fn timelines(&self) -> usize {
        self.timelines.load(Ordering::Relaxed)
    }

    /// Returns the number of rows written, including overwritten and deleted ones.
    pub fn points(&self) -> u64 {
        self.points.load(Ordering::Relaxed)
    }

    /// Returns the time at which the head was created.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the first sequence of the head.
    pub fn first(&self) -> SequenceNumber {
        self.first
    }

    /// Returns the first sequence after the head.
    pub fn end(&self) -> SequenceNumber {
        SequenceNumber(self.end.load(Ordering::Acquire))
    }

    /// Returns true if the head has no entry.
    pub fn is_empty(&self) -> bool {
        self.end() == self.first
    }

    fn table_or_new(&self, table: TableId) -> Arc<TableHead> {
        if let Some(known) = self.table(table) {
            return known;
        }
        Arc::clone(self.tables.write().entry(table).or_default())
    }
}

/// Change of the memory of a head.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Growth {
    /// Bytes of open rows added.
    pub(crate) open: usize,
    /// Bytes of open rows that were encoded into blocks.
    pub(crate) closed: usize,
    /// Bytes of blocks and structures added.
    pub(crate) blocks: usize,
    /// Bytes of blocks removed.
    pub(crate) dropped: usize,
    /// Timelines added.
    pub(crate) timelines: usize,
}

impl Growth {
    pub(crate) fn add(&mut self, other: Self) {
        self.open += other.open;
        self.closed += other.closed;
        self.blocks += other.blocks;
        self.dropped += other.dropped;
        self.timelines += other.timelines;
    }
}
