//! Cache in front of identity parsing: maps raw key bytes, as received in a protocol, to ordinals.
//!
//! A lookup of a cached key costs one hash and one comparison of its bytes, regardless of the number of tags. Senders
//! repeat their timelines in the same order, so each entry stores the key that followed it last time. A lookup compares
//! that key first. If it matches, no hash is needed, and memory is read sequentially.
//!
//! The cache is bounded. It has two halves; new keys go to the newer half. When the newer half is full, the older
//! half is dropped and the newer one takes its place. The only effect on a dropped key is that it is parsed again.

use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashTable;
use tideline_model::Ordinal;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::symbols::process_seed;

/// The two halves of the cache.
#[derive(Debug)]
pub(crate) struct RawKeyCache {
    newer: Half,
    older: Half,
    half_bytes_max: usize,
    seed: u64,
}

/// The key of the previous lookup, from which the next key is guessed. Start each batch with a new value.
///
/// If the cache changes between two lookups, the guess may be wrong, but lookups stay correct.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastKey {
    is_older: bool,
    /// Index of the entry in its half.
    index: Option<u32>,
}

impl RawKeyCache {
    /// Creates an empty cache whose keys and entries stay within `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            newer: Half::default(),
            older: Half::default(),
            // Offsets are 32 bits wide.
            half_bytes_max: (bytes_max / 2).min(u32::MAX as usize),
            seed: process_seed(),
        }
    }

    /// Returns the ordinal of `key`; `None` if the key is not in the cache. `last` is the previous
    /// key. If `key` is found, `last` is set to `key`.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], last: &mut LastKey) -> Option<Ordinal> {
        let half = self.half(*last);
        if let Some((guess, entry)) = half.after(*last)
            && entry.key(&half.text) == key
        {
            last.index = Some(guess);
            return Some(entry.ordinal);
        }
        let found = self.find(key)?;
        let before = last.index.and_then(|index| half.entries.get(index as usize));
        if let (Some(before), (true, Some(index))) = (before, (found.is_older == last.is_older, found.index))
        {
            before.next.store(index, Ordering::Relaxed);
        }
        *last = found;
        found
            .index
            .map(|index| self.half(found).entries[index as usize].ordinal)
    }

    /// Returns the ordinal of the key that probably follows `last`, if `is_it` returns true for its bytes; `last` is
    /// then set to that key. Otherwise returns `None`.
    #[inline]
    pub(crate) fn guess(&self, is_it: impl FnOnce(&[u8]) -> bool, last: &mut LastKey) -> Option<Ordinal> {
        let half = self.half(*last);
        let (guess, entry) = half.after(*last)?;
        if !is_it(entry.key(&half.text)) {
            return None;
        }
        last.index = Some(guess);
        Some(entry.ordinal)
    }

    fn half(&self, key: LastKey) -> &Half {
        if key.is_older { &self.older } else { &self.newer }
    }

    /// Locates a key by its hash.
    fn find(&self, key: &[u8]) -> Option<LastKey> {
        let hash = xxh3_64_with_seed(key, self.seed);
        let halves = [(false, &self.newer), (true, &self.older)];
        halves.into_iter().find_map(|(is_older, half)| {
            let index = half.find(hash, key)?;
            Some(LastKey {
                is_older,
                index: Some(index),
            })
        })
    }

    /// Inserts a key. A key that is too large for the budget is not kept.
    pub(crate) fn insert(&mut self, key: &[u8], ordinal: Ordinal) {
        let hash = xxh3_64_with_seed(key, self.seed);
        let cost = key.len() + ENTRY_BYTES;
        if cost > self.half_bytes_max || self.newer.find(hash, key).is_some() {
            return;
        }
        if self.newer.used_bytes() + cost > self.half_bytes_max {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(hash, key, ordinal, self.seed);
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        [&self.newer, &self.older]
            .map(|half| {
                let entries = half.entries.capacity() * size_of::<KeyEntry>();
                half.text.capacity() + entries + half.indexes.allocation_size()
            })
            .iter()
            .sum()
    }
}

/// Bytes of an entry and of its hash table slot at the usual load factor, without the key.
const ENTRY_BYTES: usize = size_of::<KeyEntry>() + 8;

#[derive(Debug, Default)]
struct Half {
    text: Vec<u8>,
    /// Entries in insertion order.
    entries: Vec<KeyEntry>,
    /// Index of each entry, hashed by its key.
    indexes: HashTable<u32>,
}

#[derive(Debug)]
struct KeyEntry {
    offset: u32,
    length: u32,
    ordinal: Ordinal,
    /// Index of the entry that followed this one last time; initially the entry that was inserted after it.
    next: AtomicU32,
}

impl KeyEntry {
    fn key<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.offset as usize..][..self.length as usize]
    }
}

impl Half {
    fn used_bytes(&self) -> usize {
        self.text.len() + self.entries.len() * ENTRY_BYTES
    }

    /// Returns the index and entry of the key that probably follows `last`.
    fn after(&self, last: LastKey) -> Option<(u32, &KeyEntry)> {
        let before = self.entries.get(last.index? as usize)?;
        let guess = before.next.load(Ordering::Relaxed);
        Some((guess, self.entries.get(guess as usize)?))
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let is_it = |index: &u32| self.entries[*index as usize].key(&self.text) == key;
        self.indexes.find(hash, is_it).copied()
    }

    /// Inserts a key. The caller has checked that the key fits and is new.
    fn insert(&mut self, hash: u64, key: &[u8], ordinal: Ordinal, seed: u64) {
        let index = u32::try_from(self.entries.len()).expect("each takes more than a byte of 4 GiB");
        self.entries.push(KeyEntry {
            offset: self.text.len() as u32,
            length: key.len() as u32,
            ordinal,
            next: AtomicU32::new(index.saturating_add(1)),
        });
        self.text.extend_from_slice(key);
        let (text, entries) = (&self.text, &self.entries);
        self.indexes.insert_unique(hash, index, |index| {
            xxh3_64_with_seed(entries[*index as usize].key(text), seed)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &RawKeyCache, key: &str) -> Option<Ordinal> {
        cache.get(key.as_bytes(), &mut LastKey::default())
    }

    #[test]
    fn keys_are_found_in_any_order_whatever_was_guessed() {
        let mut cache = RawKeyCache::new(40 << 10);
        let key = |n: u32| format!("cpu,host=h{n}");
        (0..500).for_each(|n| cache.insert(key(n).as_bytes(), Ordinal(n)));
        let orders: [fn(u32) -> u32; 4] = [|n| n, |n| 499 - n, |n| n * 7 % 500, |n| n / 2];
        let (mut last, mut guesses) = (LastKey::default(), 0);
        for (order, round) in orders.iter().flat_map(|order| [(order, 0), (order, 1)]) {
            for n in 0..500 {
                let wanted = order(n);
                let found = cache.get(key(wanted).as_bytes(), &mut last);
                assert_eq!(found, Some(Ordinal(wanted)), "round {round}");
                assert_eq!(cache.get(key(n + 500).as_bytes(), &mut last), None);
                let next = order((n + 1) % 500);
                let guess = cache.guess(|guess| guess == key(next).as_bytes(), &mut { last });
                assert!(
                    guess.is_none_or(|guess| guess == Ordinal(next)),
                    "{next}: {guess:?}"
                );
                guesses += usize::from(guess.is_some());
            }
        }
        assert!(guesses > 1_000, "orders are learned: {guesses}");
        // The halves swap while `last` keeps pointing at the old entry.
        for n in 500..3_000 {
            cache.insert(key(n).as_bytes(), Ordinal(n));
            assert_eq!(cache.get(key(n).as_bytes(), &mut last), Some(Ordinal(n)));
            let old = cache.get(key(n - 400).as_bytes(), &mut last);
            assert!(old.is_none_or(|old| old == Ordinal(n - 400)));
        }
    }

    #[test]
    fn stays_within_its_budget_and_never_answers_wrongly() {
        let budget = 64 << 10;
        let mut cache = RawKeyCache::new(budget);
        let key = |n: u32| format!("cpu,host=h{n}");
        for n in 0..20_000 {
            cache.insert(key(n).as_bytes(), Ordinal(n));
            assert_eq!(get(&cache, &key(n)), Some(Ordinal(n)));
        }
        for n in 0..20_000 {
            assert!(get(&cache, &key(n)).is_none_or(|found| found == Ordinal(n)));
        }
        assert_eq!(get(&cache, &key(0)), None, "the oldest keys make room");
        let kept = (0..20_000).filter(|n| get(&cache, &key(*n)).is_some());
        assert!(kept.count() > 500, "at least a half is kept");
        // Vectors and tables grow by doubling, so the resident bytes may be twice the used bytes.
        assert!(cache.memory_bytes() <= 2 * budget);
    }

    #[test]
    fn a_key_larger_than_the_budget_is_not_kept() {
        let mut cache = RawKeyCache::new(100);
        cache.insert(&[b'x'; 200], Ordinal(1));
        assert_eq!(cache.get(&[b'x'; 200], &mut LastKey::default()), None);
        assert_eq!(RawKeyCache::new(0).get(b"", &mut LastKey::default()), None);
    }
}
