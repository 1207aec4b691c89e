//! The head: the unsealed points in memory, one for each generation of the journal.
//!
//! | file | part |
//! |---|---|
//! | [`table`] | one table's timelines in locked shards; where a delta is applied |
//! | [`series`] | one timeline: open rows and the blocks that full ones were encoded into |
//! | `lane` | the open rows of one shape, as short numbers |
//! | `budget` | bytes at which a head is sealed |
//!
//! Only the committer writes; readers lock one shard for as long as it takes to copy one timeline's open rows.
//! A head is *active* while it grows and *frozen* while it is being sealed; frozen ones never change.

mod budget;
mod lane;
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

/// Share of the head's budget that open rows may take before all of them are encoded, where that pays:
/// open rows cost about two bytes a value, blocks less than one.
const OPEN_SHARE: usize = 2;
/// Bytes of open rows per timeline from which blocks are smaller than open rows. Below it the head is sealed as it is:
/// its rows are then encoded once, with more of them together.
const BLOCK_OPEN_BYTES_MIN: usize = 320;

/// The unsealed points of all tables since one point of the journal.
#[derive(Debug)]
pub struct Head {
    first: SequenceNumber,
    /// First sequence that is not in it; rises while the head is active.
    end: AtomicU64,
    started: Instant,
    tables: RwLock<HashMap<TableId, Arc<TableHead>>>,
    /// Bytes of open rows.
    open_bytes: AtomicUsize,
    /// Bytes of encoded blocks and of the structures around them.
    block_bytes: AtomicUsize,
    points: AtomicU64,
    /// Timelines of all tables.
    timelines: AtomicUsize,
}

impl Head {
    /// An empty head whose first entry will be `first`.
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

    /// Adds the rows of a delta. Called by one thread, in the order of sequences.
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

    /// Takes in a delete of `sequence`: removes the points of timelines in a range. Called by the same thread.
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

    /// Passes over an entry that has nothing for this head, such as one of a dropped table.
    pub(crate) fn pass(&self, sequence: SequenceNumber) {
        self.end.fetch_max(sequence.0 + 1, Ordering::AcqRel);
    }

    /// Ends it: it takes in nothing from a sequence on.
    pub(crate) fn end_before(&self, next: SequenceNumber) {
        self.end.fetch_max(next.0, Ordering::AcqRel);
    }

    /// Encodes all open rows and gives their memory back.
    fn close_open_rows(&self) {
        let tables: Vec<_> = self.tables.read().values().cloned().collect();
        for table in tables {
            self.grow(table.close_open_rows());
        }
    }

    /// Forgets the points of a dropped table.
    pub(crate) fn drop_table(&self, table: TableId) {
        self.tables.write().remove(&table);
    }

    /// One table's part; `None` when it has no point here.
    pub fn table(&self, table: TableId) -> Option<Arc<TableHead>> {
        self.tables.read().get(&table).cloned()
    }

    /// All tables with points here.
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

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.open_bytes.load(Ordering::Relaxed) + self.block_bytes.load(Ordering::Relaxed)
    }

    /// Timelines with points here, those of all tables.
    pub fn timelines(&self) -> usize {
        self.timelines.load(Ordering::Relaxed)
    }

    /// Rows taken in, overwritten ones included.
    pub fn points(&self) -> u64 {
        self.points.load(Ordering::Relaxed)
    }

    /// When it began to fill.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// First sequence in it.
    pub fn first(&self) -> SequenceNumber {
        self.first
    }

    /// First sequence that is not in it.
    pub fn end(&self) -> SequenceNumber {
        SequenceNumber(self.end.load(Ordering::Acquire))
    }

    /// Whether it holds no entry.
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

/// How a change moved the head's bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Growth {
    /// Open-row bytes added.
    pub(crate) open: usize,
    /// Open-row bytes that became blocks.
    pub(crate) closed: usize,
    /// Block bytes added.
    pub(crate) blocks: usize,
    /// Block bytes removed.
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
