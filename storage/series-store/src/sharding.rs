//! How a table's timelines spread over locked shards, in the head and in the latest values alike.
//!
//! The shard is chosen by the low half of the timeline id, since one machine (the high half) may own a million
//! timelines. The rows of a delta are sorted by shard once, so that each lock is taken once a group and no row
//! pays for one.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_chunk::{Delta, DeltaGroup};
use tideline_model::TimelineId;

use crate::schema::Shape;

/// Shards of a table. More than threads, so that a reader seldom meets the committer.
pub(crate) const SHARDS: usize = 64;

/// A map by timeline.
pub(crate) type TimelineMap<T> = HashMap<TimelineId, T, BuildHasherDefault<IdHasher>>;

/// The shard of a timeline.
pub(crate) fn shard_of(id: TimelineId) -> usize {
    (id.low() as usize) & (SHARDS - 1)
}

/// A delta ready to be applied: its groups with their shapes, and the rows of each sorted by shard.
#[derive(Debug)]
pub(crate) struct ShardedDelta<'a> {
    pub(crate) delta: &'a Delta,
    groups: Vec<ShardedGroup<'a>>,
}

/// A group with its rows sorted by shard, in their own order within each.
#[derive(Debug)]
pub(crate) struct ShardedGroup<'a> {
    pub(crate) group: &'a DeltaGroup,
    pub(crate) shape: &'a Arc<Shape>,
    order: Vec<u32>,
    ends: [u32; SHARDS],
}

impl<'a> ShardedDelta<'a> {
    /// `shapes` has one shape for each group of the delta.
    pub(crate) fn new(delta: &'a Delta, shapes: &'a [Arc<Shape>]) -> Self {
        let shard_of_timeline: Vec<u8> = delta.timelines.iter().map(|id| shard_of(*id) as u8).collect();
        let groups = delta.groups.iter().zip(shapes);
        let groups = groups
            .map(|(group, shape)| ShardedGroup::new(group, shape, &shard_of_timeline))
            .collect();
        Self { delta, groups }
    }

    pub(crate) fn groups(&self) -> &[ShardedGroup<'a>] {
        &self.groups
    }
}

impl<'a> ShardedGroup<'a> {
    fn new(group: &'a DeltaGroup, shape: &'a Arc<Shape>, shard_of_timeline: &[u8]) -> Self {
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
        Self {
            group,
            shape,
            order,
            ends,
        }
    }

    /// Each shard that has rows of this group, with those rows.
    pub(crate) fn shards(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let mut start = 0;
        let parts = self.ends.iter().enumerate().map(move |(shard, end)| {
            let rows = start..*end as usize;
            start = *end as usize;
            (shard, rows)
        });
        parts
            .filter(|(_, rows)| !rows.is_empty())
            .map(|(shard, rows)| (shard, &self.order[rows]))
    }
}

/// A timeline id is a hash already: take its low half.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(low) = bytes.last_chunk::<8>() {
            // The shard was chosen by the same bits; spread them for the map's own use.
            self.0 = u64::from_le_bytes(*low).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
