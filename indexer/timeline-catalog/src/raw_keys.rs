//! Cache in front of identity parsing: maps raw key bytes, as received in a protocol, to ordinals.
//!
//! A lookup of a cached key costs one hash and one comparison of its bytes, regardless of the number of tags. Senders
//! repeat their timelines in the same order, so each entry stores the key that followed it last time. A lookup compares
//! that key first. If it matches, no hash is needed, and memory is read sequentially.
//!
//! The caches of all catalogs share one [`RawKeyBudget`]. Each cache has two halves; new keys go to the newer half. When
//! the newer half is full, or the budget is used up, the older half is dropped and the newer one takes its place. If
//! there is still no room, the key is not kept. The only effect on such a key is that it is parsed again. If the budget was
//! used up, every cache drops its older half at the next flush, so that idle tables free their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashTable;
use tideline_model::Ordinal;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::symbols::process_seed;

/// Limit on the bytes of the raw key caches of all catalogs that share it. The default limit is 0: no key is kept.
#[derive(Debug, Default)]
pub struct RawKeyBudget {
    bytes_max: usize,
    used: AtomicUsize,
    /// Number of keys for which no bytes were left, before a cache dropped its older half.
    shortages: AtomicU64,
}

impl RawKeyBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::default()
        }
    }

    /// Returns the bytes that all caches use.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes. Returns false if they exceed the budget.
    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The two halves of the cache.
#[derive(Debug)]
pub(crate) struct RawKeyCache {
    newer: Half,
    older: Half,
    half_bytes_max: usize,
    seed: u64,
    budget: Arc<RawKeyBudget>,
    /// Number of shortages of the budget at the last [`give_way`](Self::give_way).
    shortages_seen: u64,
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
    /// Creates an empty cache whose keys and entries count against `budget`.
    pub(crate) fn new(budget: Arc<RawKeyBudget>) -> Self {
        Self {
            newer: Half::new(&budget),
            older: Half::new(&budget),
            // Offsets are 32 bits wide.
            half_bytes_max: (budget.bytes_max / 2).min(u32::MAX as usize),
            seed: process_seed(),
            shortages_seen: budget.shortages.load(Ordering::Relaxed),
            budget,
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

    /// Inserts a key. A key for which the budget has no room is not kept.
    pub(crate) fn insert(&mut self, key: &[u8], ordinal: Ordinal) {
        let hash = xxh3_64_with_seed(key, self.seed);
        let cost = key.len() + ENTRY_BYTES;
        if cost > self.half_bytes_max || self.newer.find(hash, key).is_some() {
            return;
        }
        if self.newer.used_bytes() + cost > self.half_bytes_max {
            drop(self.rotate());
        }
        if !self.budget.take(cost) {
            self.budget.shortages.fetch_add(1, Ordering::Relaxed);
            // Without an older half, a rotation would free nothing now, and all keys at the next rotation.
            if !self.older.entries.is_empty() {
                drop(self.rotate());
            }
            if !self.budget.take(cost) {
                return;
            }
        }
        self.newer.insert(hash, key, ordinal, self.seed);
    }

    /// Replaces the older half by the newer one if the budget was used up, by any cache, since the last call. The
    /// caller drops the returned half, which frees its bytes, after it has released its locks.
    pub(crate) fn give_way(&mut self) -> Option<Half> {
        let shortages = self.budget.shortages.load(Ordering::Relaxed);
        let was_short = std::mem::replace(&mut self.shortages_seen, shortages) != shortages;
        was_short.then(|| self.rotate())
    }

    /// Makes the newer half the older one, and returns the previous older half.
    fn rotate(&mut self) -> Half {
        let newer = std::mem::replace(&mut self.newer, Half::new(&self.budget));
        std::mem::replace(&mut self.older, newer)
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

/// A half of a cache. Its used bytes are reserved in the budget until it is dropped.
#[derive(Debug)]
pub(crate) struct Half {
    budget: Arc<RawKeyBudget>,
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

impl Drop for Half {
    fn drop(&mut self) {
        self.budget.give_back(self.used_bytes());
    }
}

impl Half {
    fn new(budget: &Arc<RawKeyBudget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            text: Vec::new(),
            entries: Vec::new(),
            indexes: HashTable::new(),
        }
    }

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

    /// Inserts a key. The caller has checked that the key fits and is new, and has reserved its bytes.
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

    fn cache(bytes_max: usize) -> RawKeyCache {
        RawKeyCache::new(Arc::new(RawKeyBudget::new(bytes_max)))
    }

    fn key(n: u32) -> String {
        format!("cpu,host=h{n}")
    }

    /// Inserts `keys`, and returns the number of keys of the cache among them.
    fn fill(cache: &mut RawKeyCache, keys: std::ops::Range<u32>) -> usize {
        for n in keys.clone() {
            cache.insert(key(n).as_bytes(), Ordinal(n));
        }
        keys.filter(|n| get(cache, &key(*n)) == Some(Ordinal(*n))).count()
    }

    fn used_bytes(cache: &RawKeyCache) -> usize {
        cache.newer.used_bytes() + cache.older.used_bytes()
    }

    fn get(cache: &RawKeyCache, key: &str) -> Option<Ordinal> {
        cache.get(key.as_bytes(), &mut LastKey::default())
    }

    #[test]
    fn keys_are_found_in_any_order_whatever_was_guessed() {
        let mut cache = cache(40 << 10);
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
        let mut cache = cache(budget);
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
        let mut small = cache(100);
        small.insert(&[b'x'; 200], Ordinal(1));
        assert_eq!(small.get(&[b'x'; 200], &mut LastKey::default()), None);
        assert_eq!(cache(0).get(b"", &mut LastKey::default()), None);
    }

    #[test]
    fn all_caches_together_stay_within_the_budget() {
        let budget = Arc::new(RawKeyBudget::new(64 << 10));
        let mut caches: Vec<_> = (0..5).map(|_| RawKeyCache::new(Arc::clone(&budget))).collect();
        for n in 0..20_000 {
            // The first caches get more keys than the last ones.
            for cache in caches.iter_mut().take(1 + n as usize % 5) {
                cache.insert(key(n).as_bytes(), Ordinal(n));
                assert!(get(cache, &key(n)).is_none_or(|found| found == Ordinal(n)));
            }
            assert_eq!(budget.used_bytes(), caches.iter().map(used_bytes).sum::<usize>());
            assert!(budget.used_bytes() <= 64 << 10);
            if n % 1_000 == 0 {
                caches.iter_mut().for_each(|cache| drop(cache.give_way()));
            }
        }
        assert!(budget.used_bytes() > 16 << 10, "{}", budget.used_bytes());
    }

    #[test]
    fn an_idle_cache_gives_way_only_if_the_budget_was_used_up() {
        let budget = Arc::new(RawKeyBudget::new(64 << 10));
        let [mut idle, mut busy] = [0, 1].map(|_| RawKeyCache::new(Arc::clone(&budget)));
        fill(&mut idle, 0..5_000);
        // The idle cache holds both of its halves.
        assert!(used_bytes(&idle) > 32 << 10);
        assert!(
            idle.give_way().is_none() && busy.give_way().is_none(),
            "nothing was short"
        );
        let before = fill(&mut busy, 0..700);
        assert!(before < 700, "{before}");
        for _ in 0..2 {
            for cache in [&mut idle, &mut busy] {
                drop(cache.give_way());
            }
            fill(&mut busy, 0..1_400);
        }
        assert_eq!(used_bytes(&idle), 0, "both halves gave way");
        assert!(fill(&mut busy, 0..700) > before);
    }

    #[test]
    fn a_dropped_cache_frees_its_bytes() {
        let budget = Arc::new(RawKeyBudget::new(64 << 10));
        let mut dropped = RawKeyCache::new(Arc::clone(&budget));
        fill(&mut dropped, 0..5_000);
        assert!(budget.used_bytes() > 32 << 10);
        drop(dropped);
        assert_eq!(budget.used_bytes(), 0);
    }
}
