//! Assignment of the timelines of a shard to slots in the array of the shard.
//!
//! Agents repeatedly send their timelines in the same order, and new timelines get the next slots. The next timeline
//! of a write is therefore probably in the slot after the slot of the previous timeline. Checking that slot costs a
//! comparison in memory that is read sequentially; the map costs a hash and a random memory access.

use hashbrown::HashTable;
use tideline_model::TimelineId;

use crate::sharding::hash_of;

/// Value of `before` in [`TimelineSlots::of`] if there is no previous timeline; the first guess is then slot 0.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Approximate bytes per timeline. On average, the hash table is half full and the list three-quarters full.
pub(crate) const SLOT_BYTES: usize = 2 * (size_of::<u32>() + 1) + size_of::<Option<TimelineId>>() * 4 / 3;

/// Map from timeline ids to slots.
#[derive(Debug, Default)]
pub(crate) struct TimelineSlots {
    /// Slots by the hash of their timelines. The ids are stored only in `ids`, because there may be millions.
    by_id: HashTable<u32>,
    /// Timeline in each slot.
    ids: Vec<Option<TimelineId>>,
    /// Slots of removed timelines.
    free: Vec<u32>,
}

impl TimelineSlots {
    /// Returns the slot of a timeline; `None` for an unknown timeline.
    pub(crate) fn get(&self, id: TimelineId) -> Option<u32> {
        self.by_id
            .find(hash_of(id), |slot| self.holds(*slot, id))
            .copied()
    }

    fn holds(&self, slot: u32, id: TimelineId) -> bool {
        self.ids[slot as usize] == Some(id)
    }

    /// Returns the slot of a timeline, known or new. `before` is the slot of the previous timeline, or [`NO_SLOT`].
    #[inline]
    pub(crate) fn of(&mut self, id: TimelineId, before: u32) -> u32 {
        let guess = before.wrapping_add(1);
        if self.ids.get(guess as usize) == Some(&Some(id)) {
            return guess;
        }
        self.by_map(id)
    }

    fn by_map(&mut self, id: TimelineId) -> u32 {
        if let Some(slot) = self.get(id) {
            return slot;
        }
        let ids = &mut self.ids;
        let slot = self.free.pop().unwrap_or_else(|| {
            ids.push(None);
            u32::try_from(ids.len() - 1).expect("timelines of a shard are bounded by memory")
        });
        ids[slot as usize] = Some(id);
        let rehash = |slot: &u32| ids[*slot as usize].map_or(0, hash_of);
        self.by_id.insert_unique(hash_of(id), slot, rehash);
        slot
    }

    /// Removes a timeline and returns its slot, which is reused later; `None` for an unknown timeline.
    pub(crate) fn remove(&mut self, id: TimelineId) -> Option<u32> {
        let ids = &self.ids;
        let found = self
            .by_id
            .find_entry(hash_of(id), |slot| ids[*slot as usize] == Some(id));
        let (slot, _) = found.ok()?.remove();
        self.ids[slot as usize] = None;
        self.free.push(slot);
        Some(slot)
    }

    /// Iterates over all timelines in slot order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TimelineId> {
        self.ids.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_its_place_until_it_leaves() {
        let id = |n: u8| TimelineId([n; 16]);
        let mut slots = TimelineSlots::default();
        let mut before = NO_SLOT;
        for n in 0..10 {
            before = slots.of(id(n), before);
            assert_eq!(before, u32::from(n));
        }
        // The result depends neither on the previous slot nor on the number of calls.
        for (n, before) in [(3, NO_SLOT), (4, 3), (4, 4), (0, 9), (9, u32::MAX - 1)] {
            assert_eq!(
                (slots.of(id(n), before), slots.get(id(n))),
                (n.into(), Some(n.into()))
            );
        }
        assert_eq!((slots.remove(id(4)), slots.remove(id(4))), (Some(4), None));
        assert_eq!(slots.get(id(4)), None);
        assert_eq!(slots.of(id(5), 4), 5);
        // A free slot is reused for any new timeline.
        assert_eq!(slots.of(id(20), 3), 4);
        assert_eq!(slots.of(id(4), 3), 10);
        assert_eq!(slots.ids().count(), 11);
    }
}
