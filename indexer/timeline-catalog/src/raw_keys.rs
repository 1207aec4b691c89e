//! The cache in front of parsing: raw line-protocol key bytes → ordinal.
//!
//! A known key costs one hash and one comparison of its bytes, whatever its tags are. The cache is bounded: it
//! has two halves, new keys go to the younger one, and when that is full the elder half is dropped and the
//! younger takes its place. A key that was dropped is parsed once more, nothing else.

use hashbrown::HashTable;
use tideline_model::Ordinal;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::symbols::process_seed;

/// The two halves of the cache.
#[derive(Debug)]
pub(crate) struct RawKeyCache {
    younger: Half,
    elder: Half,
    half_bytes_max: usize,
    seed: u64,
}

impl RawKeyCache {
    /// An empty cache that stays within about `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            younger: Half::default(),
            elder: Half::default(),
            // Offsets are 32 bits wide.
            half_bytes_max: (bytes_max / 2).min(u32::MAX as usize),
            seed: process_seed(),
        }
    }

    /// The ordinal that `key` was inserted with.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Ordinal> {
        let hash = xxh3_64_with_seed(key, self.seed);
        self.younger.get(hash, key).or_else(|| self.elder.get(hash, key))
    }

    /// Remembers a key; one that is too large for the budget is not kept.
    pub(crate) fn insert(&mut self, key: &[u8], ordinal: Ordinal) {
        let hash = xxh3_64_with_seed(key, self.seed);
        let cost = key.len() + ENTRY_BYTES;
        if cost > self.half_bytes_max || self.younger.get(hash, key).is_some() {
            return;
        }
        if self.younger.used_bytes() + cost > self.half_bytes_max {
            self.elder = std::mem::take(&mut self.younger);
        }
        self.younger.insert(hash, key, ordinal, self.seed);
    }

    /// Resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        [&self.younger, &self.elder]
            .map(|half| half.text.capacity() + half.entries.allocation_size())
            .iter()
            .sum()
    }
}

/// Bytes of a table slot at its usual load, beside the key's own.
const ENTRY_BYTES: usize = 20;

#[derive(Debug, Default)]
struct Half {
    text: Vec<u8>,
    entries: HashTable<KeyEntry>,
}

#[derive(Debug)]
struct KeyEntry {
    offset: u32,
    length: u32,
    ordinal: Ordinal,
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

    fn get(&self, hash: u64, key: &[u8]) -> Option<Ordinal> {
        let entry = self.entries.find(hash, |entry| entry.key(&self.text) == key)?;
        Some(entry.ordinal)
    }

    /// The caller has checked that the key fits and is new.
    fn insert(&mut self, hash: u64, key: &[u8], ordinal: Ordinal, seed: u64) {
        let entry = KeyEntry {
            offset: self.text.len() as u32,
            length: key.len() as u32,
            ordinal,
        };
        self.text.extend_from_slice(key);
        let text = &self.text;
        self.entries
            .insert_unique(hash, entry, |entry| xxh3_64_with_seed(entry.key(text), seed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_budget_and_never_answers_wrongly() {
        let budget = 64 << 10;
        let mut cache = RawKeyCache::new(budget);
        let key = |n: u32| format!("cpu,host=h{n}");
        for n in 0..20_000 {
            cache.insert(key(n).as_bytes(), Ordinal(n));
            assert_eq!(cache.get(key(n).as_bytes()), Some(Ordinal(n)));
        }
        for n in 0..20_000 {
            assert!(
                cache
                    .get(key(n).as_bytes())
                    .is_none_or(|found| found == Ordinal(n))
            );
        }
        assert_eq!(cache.get(key(0).as_bytes()), None, "the oldest keys make room");
        let kept = (0..20_000).filter(|n| cache.get(key(*n).as_bytes()).is_some());
        assert!(kept.count() > 500, "at least a half is kept");
        // Vectors and tables grow by doubling, so the resident bytes may be twice the used ones.
        assert!(cache.memory_bytes() <= 2 * budget);
    }

    #[test]
    fn a_key_larger_than_the_budget_is_not_kept() {
        let mut cache = RawKeyCache::new(100);
        cache.insert(&[b'x'; 200], Ordinal(1));
        assert_eq!(cache.get(&[b'x'; 200]), None);
        assert_eq!(RawKeyCache::new(0).get(b""), None);
    }
}
