//! Where the timelines of a shard are in its array.
//!
//! Agents send their timelines in the same order again and again, and new ones get the next places. So behind the place
//! of one timeline probably lies that of the next, and to look there costs a comparison in memory that is read in order,
//! where the map costs a hash and a look at memory that is far away.

use hashbrown::HashTable;
use tideline_model::TimelineId;

use crate::sharding::hash_of;

/// The place before the first: nothing is guessed from it but the first.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Bytes that a timeline takes here: the table is half full on average, and the list three quarters.
pub(crate) const PLACE_BYTES: usize = 2 * (size_of::<u32>() + 1) + size_of::<Option<TimelineId>>() * 4 / 3;

/// Places by timeline.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Places by the hash of the timeline at each. The timelines themselves are in `ids` alone: there may be millions.
    by_id: HashTable<u32>,
    /// The timeline at each place.
    ids: Vec<Option<TimelineId>>,
    /// Places of timelines that left.
    free: Vec<u32>,
}

impl Places {
    /// The place of a timeline.
    pub(crate) fn get(&self, id: TimelineId) -> Option<u32> {
        self.by_id
            .find(hash_of(id), |place| self.holds(*place, id))
            .copied()
    }

    fn holds(&self, place: u32, id: TimelineId) -> bool {
        self.ids[place as usize] == Some(id)
    }

    /// The place of a timeline, known or new; `before` is that of the one asked for before, or [`NOWHERE`].
    #[inline]
    pub(crate) fn of(&mut self, id: TimelineId, before: u32) -> u32 {
        let guess = before.wrapping_add(1);
        if self.ids.get(guess as usize) == Some(&Some(id)) {
            return guess;
        }
        self.by_map(id)
    }

    fn by_map(&mut self, id: TimelineId) -> u32 {
        if let Some(place) = self.get(id) {
            return place;
        }
        let ids = &mut self.ids;
        let place = self.free.pop().unwrap_or_else(|| {
            ids.push(None);
            u32::try_from(ids.len() - 1).expect("timelines of a shard are bounded by memory")
        });
        ids[place as usize] = Some(id);
        let rehash = |place: &u32| ids[*place as usize].map_or(0, hash_of);
        self.by_id.insert_unique(hash_of(id), place, rehash);
        place
    }

    /// Takes a timeline out; the place that it had is given to another later.
    pub(crate) fn remove(&mut self, id: TimelineId) -> Option<u32> {
        let ids = &self.ids;
        let found = self
            .by_id
            .find_entry(hash_of(id), |place| ids[*place as usize] == Some(id));
        let (place, _) = found.ok()?.remove();
        self.ids[place as usize] = None;
        self.free.push(place);
        Some(place)
    }

    /// Every timeline, by place.
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
        let mut places = Places::default();
        let mut before = NOWHERE;
        for n in 0..10 {
            before = places.of(id(n), before);
            assert_eq!(before, u32::from(n));
        }
        // Whatever came before, and however often.
        for (n, before) in [(3, NOWHERE), (4, 3), (4, 4), (0, 9), (9, u32::MAX - 1)] {
            assert_eq!(
                (places.of(id(n), before), places.get(id(n))),
                (n.into(), Some(n.into()))
            );
        }
        assert_eq!((places.remove(id(4)), places.remove(id(4))), (Some(4), None));
        assert_eq!(places.get(id(4)), None);
        assert_eq!(places.of(id(5), 4), 5);
        // A free place is taken again, by whoever comes.
        assert_eq!(places.of(id(20), 3), 4);
        assert_eq!(places.of(id(4), 3), 10);
        assert_eq!(places.ids().count(), 11);
    }
}
