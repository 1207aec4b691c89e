//! Blocks of files that were read lately, in memory within a budget.
//!
//! Blocks are put here after they were compared with their checksums, and are found by the checksum of their file: the same
//! content under several names is here once, and a file never changes. All queries share them.
//!
//! Eviction is CLOCK: each use of a block lets it stay for another round, up to [`USES_MAX`] rounds. So a long scan, which
//! uses each block once, leaves those that are used again.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::digest;

/// Rounds that a block stays for its uses.
const USES_MAX: u8 = 3;
/// About the memory of a block beside its bytes.
const BLOCK_MEMORY: usize = 128;

/// The content of a file, by its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContentId(pub(crate) u128);

impl ContentId {
    /// The content that a SHA-256 in hexadecimal stands for.
    pub(crate) fn of(sha256: &str) -> Self {
        // The text may be of a foreign description, and any.
        let [first, ..] = *digest::sha256(sha256.as_bytes()).as_chunks().0 else {
            return Self(0);
        };
        Self(u128::from_be_bytes(first))
    }
}

/// Blocks that were read lately.
#[derive(Debug)]
pub(crate) struct Pages {
    blocks: Mutex<Blocks>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Blocks {
    known: HashMap<(ContentId, usize), Block>,
    /// All of them, the next candidates for eviction first.
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

    /// Returns blocks of a file; `None` for each that is not in memory.
    pub(crate) fn get(&self, of: ContentId, blocks: Range<usize>) -> Vec<Option<Bytes>> {
        let mut known = self.blocks.lock();
        let mut get = |block| {
            let block = known.known.get_mut(&(of, block))?;
            block.uses = (block.uses + 1).min(USES_MAX);
            Some(block.bytes.clone())
        };
        blocks.map(&mut get).collect()
    }

    /// Copies a verified block into the cache. It is a copy because its buffer may be much larger.
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
        while blocks.bytes + memory > self.bytes_max && blocks.turn() {}
        blocks.known.insert((of, block), Block { bytes, uses: 0 });
        blocks.order.push_back((of, block));
        blocks.bytes += memory;
    }

    /// Memory of all blocks, about.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.lock().bytes
    }
}

impl Blocks {
    /// Removes the next block, or gives it another round if it was used; `false` without blocks.
    fn turn(&mut self) -> bool {
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
        // Unused, everything goes.
        for block in 0..200 {
            pages.put(ContentId(3), block, &vec![0; size]);
        }
        assert_eq!(pages.get(used, 0..5).into_iter().flatten().count(), 0);
        pages.put(used, 0, &vec![0; 23 * size]);
        assert!(pages.get(used, 0..1)[0].is_none(), "larger than the budget");
    }
}
