//! One table's part of a head: timelines in shards, each behind a lock of its own.
//!
//! The shard is chosen by the low half of the timeline id, since one machine (the high half) may own a million
//! timelines. A delta is applied shard by shard: its rows are first sorted by shard, so that each lock is
//! taken once a delta and no row pays for one.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_chunk::{Delta, DeltaGroup};
use tideline_model::{SequenceNumber, TimelineId};

use super::Growth;
use super::series::{HeadPieces, SeriesHead};
use crate::schema::Shape;

/// Shards of a table. More than threads, so that a reader seldom meets the committer.
const SHARDS: usize = 64;
const UNKNOWN: u32 = u32::MAX;

/// The unsealed points of one table.
#[derive(Debug)]
pub struct TableHead {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    index: HashMap<TimelineId, u32, BuildHasherDefault<IdHasher>>,
    series: Vec<SeriesHead>,
}

/// A timeline id is a hash already: take its low half.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(low) = bytes.last_chunk::<8>() {
            // The shard was chosen by the same bits; spread them for the table's own use.
            self.0 = u64::from_le_bytes(*low).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The shard of a timeline, of `count` (a power of two).
pub(crate) fn shard_of(id: TimelineId, count: usize) -> usize {
    (id.low() as usize) & (count - 1)
}

impl Default for TableHead {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl TableHead {
    /// Adds the rows of a delta; `shapes` has one shape for each of its groups.
    pub(crate) fn apply(&self, delta: &Delta, shapes: &[Arc<Shape>], sequence: SequenceNumber) -> Growth {
        let shard_of_timeline: Vec<u8> = delta
            .timelines
            .iter()
            .map(|id| shard_of(*id, SHARDS) as u8)
            .collect();
        let mut slots = vec![UNKNOWN; delta.timelines.len()];
        let mut growth = Growth::default();
        for (group, shape) in delta.groups.iter().zip(shapes) {
            let (order, ends) = rows_by_shard(group, &shard_of_timeline);
            let mut start = 0;
            for (shard, end) in self.shards.iter().zip(ends) {
                let rows = &order[start..end as usize];
                start = end as usize;
                if !rows.is_empty() {
                    growth.add(
                        shard
                            .lock()
                            .append(delta, group, shape, rows, &mut slots, sequence),
                    );
                }
            }
        }
        growth
    }

    pub(crate) fn close_open_rows(&self) -> Growth {
        let mut growth = Growth::default();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for series in &mut shard.series {
                growth.add(series.close());
                series.shrink();
            }
        }
        growth
    }

    /// What the head has of one timeline, oldest write first; `None` when it has nothing.
    pub(crate) fn pieces(&self, id: TimelineId) -> Option<HeadPieces> {
        let shard = self.shards[shard_of(id, SHARDS)].lock();
        let slot = *shard.index.get(&id)?;
        Some(shard.series[slot as usize].pieces())
    }

    /// Every timeline with points here, in id order.
    pub(crate) fn timelines(&self) -> Vec<TimelineId> {
        let mut ids: Vec<TimelineId> = self
            .shards
            .iter()
            .flat_map(|shard| shard.lock().index.keys().copied().collect::<Vec<_>>())
            .collect();
        ids.sort_unstable();
        ids
    }
}

impl Shard {
    fn append(
        &mut self,
        delta: &Delta,
        group: &DeltaGroup,
        shape: &Arc<Shape>,
        rows: &[u32],
        slots: &mut [u32],
        sequence: SequenceNumber,
    ) -> Growth {
        let mut growth = Growth::default();
        for &row in rows {
            let timeline = group.timelines[row as usize] as usize;
            if slots[timeline] == UNKNOWN {
                slots[timeline] = self.slot(delta.timelines[timeline], &mut growth);
            }
            growth.add(self.series[slots[timeline] as usize].append(group, shape, row as usize, sequence));
        }
        growth
    }

    fn slot(&mut self, id: TimelineId, growth: &mut Growth) -> u32 {
        let next = u32::try_from(self.series.len()).expect("timelines of a shard are bounded by memory");
        let slot = *self.index.entry(id).or_insert(next);
        if slot == next {
            self.series.push(SeriesHead::default());
            growth.blocks += size_of::<SeriesHead>() + size_of::<(TimelineId, u32)>();
        }
        slot
    }
}

/// Sorts the rows of a group by shard, keeping their order within each: the rows, and where each shard's end.
fn rows_by_shard(group: &DeltaGroup, shard_of_timeline: &[u8]) -> (Vec<u32>, [u32; SHARDS]) {
    let mut ends = [0u32; SHARDS];
    for &timeline in &group.timelines {
        ends[shard_of_timeline[timeline as usize] as usize] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    let mut order = vec![0; group.timelines.len()];
    for (row, &timeline) in (0u32..).zip(&group.timelines) {
        let at = &mut ends[shard_of_timeline[timeline as usize] as usize];
        order[*at as usize] = row;
        *at += 1;
    }
    (order, ends)
}
