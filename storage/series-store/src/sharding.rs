//! Distribution of the timelines of a table over locked shards, used by the head and by the latest values.
//!
//! The shard is chosen by the low half of the timeline id, because one machine (the high half) may own a million
//! timelines. The rows of a delta are sorted by shard first, so applying them takes each lock once, regardless of the
//! number of groups in the delta.

use std::sync::Arc;

use tideline_chunk::{Delta, DeltaGroup};
use tideline_model::TimelineId;

use crate::schema::Shape;

/// Number of shards per table. Larger than the usual number of threads, so that a reader seldom waits for the
/// committer.
pub(crate) const SHARDS: usize = 64;

/// Returns the shard of a timeline.
pub(crate) fn shard_of(id: TimelineId) -> usize {
    (id.low() as usize) & (SHARDS - 1)
}

/// Delta prepared for applying: its groups with their shapes, and the rows of all groups sorted by shard.
#[derive(Debug)]
pub(crate) struct ShardedDelta<'a> {
    pub(crate) delta: &'a Delta,
    shapes: &'a [Arc<Shape>],
    /// Row numbers, counted across all groups.
    rows: Vec<u32>,
    ends: [u32; SHARDS],
}

/// Rows of one shard, in delta order.
#[derive(Debug, Clone)]
struct ShardRows<'a> {
    numbers: std::slice::Iter<'a, u32>,
    groups: &'a [DeltaGroup],
    shapes: &'a [Arc<Shape>],
    /// Index of the group of the last row. `first` is the number of the first row of that group.
    group: usize,
    first: u32,
}

/// Row of a delta.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeltaRow<'a> {
    pub(crate) group: &'a DeltaGroup,
    pub(crate) shape: &'a Arc<Shape>,
    pub(crate) row: usize,
}

impl<'a> ShardedDelta<'a> {
    /// Sorts the rows of a delta by shard. `shapes` must have one shape per group.
    pub(crate) fn new(delta: &'a Delta, shapes: &'a [Arc<Shape>]) -> Self {
        let shard_of_timeline: Vec<u8> = delta.timelines.iter().map(|id| shard_of(*id) as u8).collect();
        let mut ends = [0u32; SHARDS];
        for timeline in delta.groups.iter().flat_map(|group| &group.timelines) {
            ends[shard_of_timeline[*timeline as usize] as usize] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            total += std::mem::replace(end, total);
        }
        let mut rows = vec![0; total as usize];
        let timelines = delta.groups.iter().flat_map(|group| &group.timelines);
        for (row, timeline) in (0u32..).zip(timelines) {
            let at = &mut ends[shard_of_timeline[*timeline as usize] as usize];
            rows[*at as usize] = row;
            *at += 1;
        }
        Self {
            delta,
            shapes,
            rows,
            ends,
        }
    }

    /// Iterates over the shards that have rows, with their rows in delta order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = (usize, impl Iterator<Item = DeltaRow<'_>> + Clone)> {
        let mut start = 0;
        let parts = self.ends.iter().enumerate().map(move |(shard, end)| {
            let rows = start..*end as usize;
            start = *end as usize;
            (shard, rows)
        });
        parts.filter(|(_, rows)| !rows.is_empty()).map(|(shard, rows)| {
            let rows = ShardRows {
                numbers: self.rows[rows].iter(),
                groups: &self.delta.groups,
                shapes: self.shapes,
                group: 0,
                first: 0,
            };
            (shard, rows)
        })
    }
}

impl<'a> Iterator for ShardRows<'a> {
    type Item = DeltaRow<'a>;

    #[inline]
    fn next(&mut self) -> Option<DeltaRow<'a>> {
        let number = *self.numbers.next()?;
        let mut group = &self.groups[self.group];
        while (number - self.first) as usize >= group.timelines.len() {
            self.first += group.timelines.len() as u32;
            self.group += 1;
            group = &self.groups[self.group];
        }
        Some(DeltaRow {
            group,
            shape: &self.shapes[self.group],
            row: (number - self.first) as usize,
        })
    }
}

impl DeltaRow<'_> {
    /// Returns the index of the row's timeline in the list of the delta.
    pub(crate) fn timeline(&self) -> usize {
        self.group.timelines[self.row] as usize
    }
}

/// Loads memory that is about to be modified into the cache.
///
/// Timelines are scattered in memory, and modifying one takes so many instructions that the processor cannot overlap
/// the cache misses of several. Plain loads take few instructions, so many misses overlap.
pub(crate) fn warm<T>(looks: impl Iterator<Item = T>) {
    looks.for_each(|look| {
        std::hint::black_box(look);
    });
}

/// Returns the hash of a timeline within a shard. An id is already a hash, so its low half is used.
pub(crate) fn hash_of(id: TimelineId) -> u64 {
    let low = id.0.last_chunk::<8>().expect("an id is sixteen bytes");
    // Some of these bits have selected the shard; the multiplication spreads the other bits.
    u64::from_le_bytes(*low).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
