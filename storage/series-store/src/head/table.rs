//! Part of a head for one table: timelines in shards, each with its own lock.
//!
//! [`crate::sharding`] distributes rows over the shards.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tideline_chunk::Delta;
use tideline_model::{SequenceNumber, TimeRange, TimelineId};

use super::Growth;
use super::series::{HeadFragments, SeriesHead};
use crate::error::{Result, StoreError};
use crate::pages::Pages;
use crate::sharding::{DeltaRow, SHARDS, ShardedDelta, shard_of, warm};
use crate::timeline_slots::{NO_SLOT, SLOT_BYTES, TimelineSlots};

const UNKNOWN: u32 = u32::MAX;

/// Unsealed points of one table.
#[derive(Debug)]
pub struct TableHead {
    shards: Box<[Mutex<Shard>]>,
    points: AtomicU64,
    bytes: AtomicUsize,
    first: AtomicI64,
    last: AtomicI64,
}

#[derive(Debug, Default)]
struct Shard {
    slots: TimelineSlots,
    series: Pages<SeriesHead>,
}

impl Default for TableHead {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            points: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            first: AtomicI64::new(i64::MAX),
            last: AtomicI64::new(i64::MIN),
        }
    }
}

impl TableHead {
    /// Adds the rows of a delta.
    pub(crate) fn apply(&self, sharded: &ShardedDelta<'_>, sequence: SequenceNumber) -> Growth {
        let mut slots = vec![UNKNOWN; sharded.delta.timelines.len()];
        let (mut growth, mut scratch) = (Growth::default(), Vec::new());
        for (shard, rows) in sharded.shards() {
            let mut shard = self.shards[shard].lock();
            growth.add(shard.append(sharded.delta, rows, &mut slots, sequence, &mut scratch));
        }
        for group in &sharded.delta.groups {
            let timestamps = &group.timestamps;
            self.points.fetch_add(timestamps.len() as u64, Ordering::Relaxed);
            if let Some((first, last)) = timestamps.iter().min().zip(timestamps.iter().max()) {
                self.first.fetch_min(*first, Ordering::Relaxed);
                self.last.fetch_max(*last, Ordering::Relaxed);
            }
        }
        self.count(growth);
        growth
    }

    /// Returns the number of rows written, including overwritten and deleted ones.
    pub fn points(&self) -> u64 {
        self.points.load(Ordering::Relaxed)
    }

    /// Returns the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the oldest and the newest timestamp written; `None` without rows.
    pub fn span(&self) -> Option<(i64, i64)> {
        let (first, last) = (
            self.first.load(Ordering::Relaxed),
            self.last.load(Ordering::Relaxed),
        );
        (first <= last).then_some((first, last))
    }

    fn count(&self, growth: Growth) {
        self.bytes
            .fetch_add(growth.open + growth.blocks, Ordering::Relaxed);
        self.bytes
            .fetch_sub(growth.closed + growth.dropped, Ordering::Relaxed);
    }

    pub(crate) fn close_open_rows(&self) -> Growth {
        let mut growth = Growth::default();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for series in shard.series.iter_mut() {
                growth.add(series.close());
                series.shrink();
            }
        }
        self.count(growth);
        growth
    }

    /// Removes the points of timelines in a time range.
    pub(crate) fn delete(&self, ids: &[TimelineId], range: TimeRange) -> Result<Growth> {
        let mut growth = Growth::default();
        for id in ids {
            let mut shard = self.shards[shard_of(*id)].lock();
            if let Some(slot) = shard.slots.get(*id) {
                let deleted = shard.series[slot as usize].delete(range);
                growth.add(deleted.map_err(|cause| StoreError::chunk(*id, cause))?);
            }
        }
        self.count(growth);
        Ok(growth)
    }

    /// Returns the fragments of one timeline in the head, oldest write first; `None` if the head has no write of the
    /// timeline.
    pub(crate) fn fragments(&self, id: TimelineId) -> Option<HeadFragments> {
        let shard = self.shards[shard_of(id)].lock();
        let slot = shard.slots.get(id)?;
        Some(shard.series[slot as usize].fragments())
    }

    /// Calls `visit` with every timeline, in unspecified order, until it fails.
    pub(crate) fn each<E>(
        &self,
        mut visit: impl FnMut(&SeriesHead) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.shards
            .iter()
            .try_for_each(|shard| shard.lock().series.iter().try_for_each(&mut visit))
    }

    /// Returns every timeline with a write in the head, in id order, including timelines whose points were deleted.
    pub(crate) fn timelines(&self) -> Vec<TimelineId> {
        let mut ids: Vec<TimelineId> = self
            .shards
            .iter()
            .flat_map(|shard| shard.lock().slots.ids().collect::<Vec<_>>())
            .collect();
        ids.sort_unstable();
        ids
    }
}

impl Shard {
    fn append<'a>(
        &mut self,
        delta: &Delta,
        rows: impl Iterator<Item = DeltaRow<'a>> + Clone,
        slots: &mut [u32],
        sequence: SequenceNumber,
        scratch: &mut Vec<u8>,
    ) -> Growth {
        let mut growth = Growth::default();
        let mut before = NO_SLOT;
        for row in rows.clone() {
            let timeline = row.timeline();
            if slots[timeline] == UNKNOWN {
                slots[timeline] = self.slot(delta.timelines[timeline], before, &mut growth);
            }
            before = slots[timeline];
        }
        let slots = rows.clone().map(|row| slots[row.timeline()] as usize);
        warm(slots.clone().map(|slot| self.series[slot].next_byte()));
        for (row, slot) in rows.zip(slots) {
            growth.add(self.series[slot].append(row, sequence, scratch));
        }
        growth
    }

    fn slot(&mut self, id: TimelineId, before: u32, growth: &mut Growth) -> u32 {
        let slot = self.slots.of(id, before);
        if slot as usize == self.series.len() {
            self.series.push(SeriesHead::default());
            growth.timelines += 1;
            growth.blocks += size_of::<SeriesHead>() + SLOT_BYTES;
        }
        slot
    }
}
