//! Rows of key spaces, parts and segments, as ordered maps.
//!
//! The durable state of each key with buffered changes is stored separately. The simulated power cut restores it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use bytes::Bytes;
use tideline_model::{Durability, Tier};

use super::Character;
use crate::contract::*;
use crate::page::PageBuilder;

/// Rows of all partitions. A deleted row keeps its stamp, so that an older write cannot restore it.
#[derive(Default)]
pub(super) struct Rows {
    partitions: BTreeMap<Partition, BTreeMap<Bytes, Cell>>,
    /// For each key with buffered changes, its state after a power failure.
    durable: BTreeMap<(Partition, Bytes), Option<Cell>>,
}

#[derive(Clone)]
struct Cell {
    stamp: Stamp,
    value: Option<Bytes>,
}

impl Rows {
    pub(super) fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Page {
        let end = range.end.as_deref();
        let Some(rows) = self.partitions.get(&partition).filter(|_| !range.is_empty()) else {
            return PageBuilder::new(range, direction, limit).complete();
        };
        let bounds = (
            Bound::Included(range.start.as_slice()),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let found = rows.range::<[u8], _>(bounds);
        let found: Box<dyn Iterator<Item = (&Bytes, &Cell)>> = match direction {
            Direction::Ascending => Box::new(found),
            Direction::Descending => Box::new(found.rev()),
        };
        let mut page = PageBuilder::new(range, direction, limit);
        for (key, cell) in found {
            let Some(value) = &cell.value else { continue };
            if page.is_full() {
                return page.partial();
            }
            page.push(Row {
                key: key.clone(),
                value: value.clone(),
            });
        }
        page.complete()
    }

    pub(super) fn write(
        &mut self,
        character: Character,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) {
        let wins = |cell: &Cell, other: &Cell| character == Character::Embedded || cell.wins_over(other);
        let rows = self.partitions.entry(partition).or_default();
        for change in changes {
            let cell = Cell {
                stamp,
                value: change.value.clone(),
            };
            let durable = (partition, change.key.clone());
            match durability {
                Durability::Buffered => {
                    let before = || rows.get(&change.key).cloned();
                    self.durable.entry(durable).or_insert_with(before);
                }
                Durability::Synced => {
                    if let Some(before) = self.durable.get_mut(&durable)
                        && before.as_ref().is_none_or(|before| wins(&cell, before))
                    {
                        *before = Some(cell.clone());
                    }
                }
            }
            match rows.entry(change.key.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(cell);
                }
                Entry::Occupied(mut entry) => {
                    if wins(&cell, entry.get()) {
                        entry.insert(cell);
                    }
                }
            }
        }
    }

    /// Makes the buffered rows of a shard's parts and of all key spaces durable.
    pub(super) fn sync(&mut self, shard: Shard) {
        self.durable.retain(
            |(partition, _), _| matches!(partition.unit, Unit::Part(part) if part.part.shard() != shard.0),
        );
    }

    /// Makes all rows durable.
    pub(super) fn sync_all(&mut self) {
        self.durable.clear();
    }

    /// Drops all changes that were not synced.
    pub(super) fn cut_power(&mut self) {
        for ((partition, key), durable) in std::mem::take(&mut self.durable) {
            let rows = self.partitions.entry(partition).or_default();
            match durable {
                Some(cell) => rows.insert(key, cell),
                None => rows.remove(&key),
            };
        }
    }

    pub(super) fn load(&mut self, segment: SegmentRef, bucket: u16, loaded: Vec<Row>) {
        let rows = self
            .partitions
            .entry(Partition::segment(segment, bucket))
            .or_default();
        rows.extend(loaded.into_iter().map(|row| {
            let cell = Cell {
                stamp: Stamp(0),
                value: Some(row.value),
            };
            (row.key, cell)
        }));
    }

    /// Removes all buckets of a segment or part.
    pub(super) fn reclaim(&mut self, unit: Unit) {
        self.partitions.retain(|partition, _| partition.unit != unit);
        self.durable.retain(|(partition, _), _| partition.unit != unit);
    }

    pub(super) fn segments(&self) -> Vec<SegmentRef> {
        let held = self.partitions.iter().filter(|(_, rows)| !rows.is_empty());
        let mut segments: Vec<_> = held
            .filter_map(|(partition, _)| match partition.unit {
                Unit::Segment(segment) => Some(segment),
                Unit::Part(_) | Unit::Space(_) => None,
            })
            .collect();
        segments.dedup();
        segments
    }

    /// Returns the parts with at least one row, sorted.
    pub(super) fn parts(&self) -> Vec<PartRef> {
        let has_rows = |rows: &BTreeMap<Bytes, Cell>| rows.values().any(|cell| cell.value.is_some());
        let held = self.partitions.iter().filter(|(_, rows)| has_rows(rows));
        let mut parts: Vec<_> = held
            .filter_map(|(partition, _)| match partition.unit {
                Unit::Part(part) => Some(part),
                Unit::Segment(_) | Unit::Space(_) => None,
            })
            .collect();
        parts.dedup();
        parts
    }

    /// Returns the buckets of a segment or part, in increasing order.
    pub(super) fn buckets(&self, unit: Unit) -> Vec<u16> {
        if let Unit::Space(_) = unit {
            return Vec::new();
        }
        let bucket = |bucket| Partition { unit, bucket };
        let held = self.partitions.range(bucket(0)..=bucket(u16::MAX));
        held.map(|(partition, _)| partition.bucket).collect()
    }

    /// Returns the number of bytes stored in a tier.
    pub(super) fn bytes(&self, tier: Tier) -> u64 {
        let is_held = |partition: &Partition| partition.unit.tier() == tier;
        let held = self.partitions.iter().filter(|(partition, _)| is_held(partition));
        held.flat_map(|(_, rows)| rows)
            .map(|(key, cell)| (key.len() + cell.value.as_ref().map_or(0, Bytes::len)) as u64)
            .sum()
    }
}

impl Cell {
    /// Returns true if this cell replaces `other`. The highest stamp wins the whole row; of equal stamps, a delete
    /// wins, then the larger value, as in Cassandra.
    fn wins_over(&self, other: &Self) -> bool {
        let rank = |cell: &Self| (cell.stamp, cell.value.is_none());
        (rank(self), &self.value) >= (rank(other), &other.value)
    }
}
