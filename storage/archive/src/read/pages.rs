//! In-memory cache of file blocks, limited in size.
//!
//! Blocks are added after their checksums were verified. The key is the checksum of the file and the block number. So
//! the same content under several names is cached once, and a cached block never becomes stale. All queries share the
//! cache.
//!
//! Eviction uses the CLOCK algorithm: each use of a block keeps it for another round, up to [`USES_MAX`] rounds. A long
//! scan, which uses each block once, therefore does not evict blocks that are used repeatedly.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::digest;

/// Maximum number of eviction rounds that a block survives because of its uses.
const USES_MAX: u8 = 3;
/// Approximate memory of a block in addition to its bytes.
const BLOCK_MEMORY: usize = 128;

/// Content of a file, identified by its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContentId(pub(crate) u128);

impl ContentId {
    /// Returns the id of the content with the given SHA-256 (in hexadecimal).
    pub(crate) fn of(sha256: &str) -> Self {
        // The text may come from the segment description of another database and may be any text, so it is hashed.
        let [first, ..] = *digest::sha256(sha256.as_bytes()).as_chunks().0 else {
            return Self(0);
        };
        Self(u128::from_be_bytes(first))
    }
}

/// Cache of file blocks.
#[derive(Debug)]
pub(crate) struct Pages {
    blocks: Mutex<Blocks>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Blocks {
    known: HashMap<(ContentId, usize), Block>,
    /// All blocks, in the order in which they are considered for eviction.
    order: VecDeque<(ContentId, usize)>,
    bytes: usize,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    uses: u8,
}

impl Pages {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            blocks: Mutex::default(),
            bytes_max,
        }
    }

    /// Returns blocks of a file; `None` for each that is not cached.
    pub(crate) fn get(&self, of: ContentId, blocks: Range<usize>) -> Vec<Option<Bytes>> {
        let mut known = self.blocks.lock();
        let mut get = |block| {
            let block = known.known.get_mut(&(of, block))?;
            block.uses = (block.uses + 1).min(USES_MAX);
            Some(block.bytes.clone())
        };
        blocks.map(&mut get).collect()
    }

    /// Copies a verified block into the cache. The original buffer may be much larger, so it is not kept.
    pub(crate) fn put(&self, of: ContentId, block: usize, bytes: &[u8]) {
        let memory = bytes.len() + BLOCK_MEMORY;
        if memory > self.bytes_max {
            return;
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let mut blocks = self.blocks.lock();
        if blocks.known.contains_key(&(of, block)) {
            return;
        }
        while blocks.bytes + memory > self.bytes_max && blocks.evict_next() {}
        blocks.known.insert((of, block), Block { bytes, uses: 0 });
        blocks.order.push_back((of, block));
        blocks.bytes += memory;
    }

    /// Returns the approximate memory of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.lock().bytes
    }
}

impl Blocks {
    /// Evicts the next block, or keeps it for another round if it was used. Returns `false` if there are no blocks.
    fn evict_next(&mut self) -> bool {
        let Some(next) = self.order.pop_front() else {
            return false;
        };
        match self.known.get_mut(&next) {
            Some(block) if block.uses > 0 => {
                block.uses -= 1;
                self.order.push_back(next);
            }
            _ => {
                let gone = self.known.remove(&next);
                self.bytes -= gone.map_or(0, |block| block.bytes.len() + BLOCK_MEMORY);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_holds_and_what_is_used_again_survives_a_scan() {
        let size = 1_000;
        let pages = Pages::new(20 * (size + BLOCK_MEMORY));
        let (used, scanned) = (ContentId(1), ContentId(2));
        for block in 0..5 {
            pages.put(used, block, &vec![block as u8; size]);
        }
        assert!(pages.get(used, 0..5).iter().all(Option::is_some));
        for block in 0..30 {
            pages.put(scanned, block, &vec![0; size]);
            assert!(pages.bytes() <= 20 * (size + BLOCK_MEMORY));
        }
        let found = pages.get(used, 0..6);
        assert!(found[..5].iter().all(Option::is_some) && found[5].is_none());
        assert_eq!(found[3].as_deref(), Some(&[3; 1_000][..]));
        let left = pages.get(scanned, 0..30).into_iter().flatten().count();
        assert_eq!(left, 15, "the rest of the budget");
        // All blocks that are no longer used are evicted.
        for block in 0..200 {
            pages.put(ContentId(3), block, &vec![0; size]);
        }
        assert_eq!(pages.get(used, 0..5).into_iter().flatten().count(), 0);
        pages.put(used, 0, &vec![0; 23 * size]);
        assert!(pages.get(used, 0..1)[0].is_none(), "larger than the budget");
    }
}
