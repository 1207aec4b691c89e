//! How a table's timelines spread over locked shards, in the head and in the latest values alike.
//!
//! The shard is chosen by the low half of the timeline id, since one machine (the high half) may own a million
//! timelines. The rows of a delta are sorted by shard once, so that each lock is taken once a delta, however many
//! groups it has, and no row pays for one.

use std::sync::Arc;

use tideline_chunk::{Delta, DeltaGroup};
use tideline_model::TimelineId;

use crate::schema::Shape;

/// Shards of a table. More than threads, so that a reader seldom meets the committer.
pub(crate) const SHARDS: usize = 64;

/// The shard of a timeline.
pub(crate) fn shard_of(id: TimelineId) -> usize {
    (id.low() as usize) & (SHARDS - 1)
}

/// A delta ready to be applied: its groups with their shapes, and the rows of all of them sorted by shard.
#[derive(Debug)]
pub(crate) struct ShardedDelta<'a> {
    pub(crate) delta: &'a Delta,
    shapes: &'a [Arc<Shape>],
    /// Numbers of rows, counted through all groups.
    rows: Vec<u32>,
    ends: [u32; SHARDS],
}

/// Rows of one shard, in the order of the delta.
#[derive(Debug, Clone)]
struct ShardRows<'a> {
    numbers: std::slice::Iter<'a, u32>,
    groups: &'a [DeltaGroup],
    shapes: &'a [Arc<Shape>],
    /// The group that the last row was in, and the number of that group's first row.
    group: usize,
    first: u32,
}

/// A row of a delta.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeltaRow<'a> {
    pub(crate) group: &'a DeltaGroup,
    pub(crate) shape: &'a Arc<Shape>,
    pub(crate) row: usize,
}

impl<'a> ShardedDelta<'a> {
    /// `shapes` has one shape for each group of the delta.
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

    /// Each shard that has rows, with those rows, in their own order.
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
    /// Its timeline's place in the delta's list.
    pub(crate) fn timeline(&self) -> usize {
        self.group.timelines[self.row] as usize
    }
}

/// Looks at memory that is about to be altered.
///
/// Timelines lie scattered, and to alter one takes so many steps that the processor never sees the next one in time.
/// Looking takes few, so that it waits for many of them at once.
pub(crate) fn warm<T>(looks: impl Iterator<Item = T>) {
    looks.for_each(|look| {
        std::hint::black_box(look);
    });
}

/// The hash of a timeline for a table of one shard. An id is a hash already: its low half is taken.
pub(crate) fn hash_of(id: TimelineId) -> u64 {
    let low = id.0.last_chunk::<8>().expect("an id is sixteen bytes");
    // The shard was chosen by the same bits; the product spreads them.
    u64::from_le_bytes(*low).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
