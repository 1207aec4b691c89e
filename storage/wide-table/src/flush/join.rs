//! Joining of small blocks that deletes have left.
//!
//! A scan reads blocks one by one, so many small blocks make it slow. A small block is joined with the next blocks: its
//! rows move to a block with a higher key, and the small block is deleted in the same write.

use bytes::Bytes;
use tideline_backend::{Row, RowChange};

use super::TableFlush;
use crate::error::Result;

/// Number of blocks that are read at once.
const BLOCKS_READ: usize = 64;
/// Maximum number of small blocks that a flush records for joining.
const SMALL_MAX: usize = 100_000;

impl TableFlush<'_> {
    /// Records a written block if it is small, that is, less than a quarter of a full block.
    pub(super) fn note_small(&mut self, key: &Bytes, bytes: usize) {
        if bytes < self.packer.block_bytes() / 4 && self.small.len() < SMALL_MAX {
            self.small.push(key.clone());
        }
    }

    /// Joins each recorded small block with the blocks after it. The recorded blocks must already be written.
    pub(super) fn join_small(&mut self) -> Result<()> {
        let mut small = std::mem::take(&mut self.small);
        // Deletions of ranges have recorded their blocks first, so the keys are not sorted.
        small.sort_unstable();
        let mut passed: Option<Bytes> = None;
        for key in small {
            if passed.as_ref().is_some_and(|passed| *passed >= key) {
                continue;
            }
            let blocks = self.blocks().from(&key, BLOCKS_READ);
            let blocks = blocks.map_err(|error| error.of(self.part.at.table))?;
            let (mut group, mut bytes): (Vec<Row>, usize) = (Vec::new(), 0);
            for block in blocks {
                let of_block = self.open(&block)?.bytes;
                if bytes + of_block > self.packer.block_bytes() && !group.is_empty() {
                    self.join(std::mem::take(&mut group))?;
                    bytes = 0;
                    if of_block >= self.packer.block_bytes() / 4 {
                        break;
                    }
                }
                bytes += of_block;
                passed = Some(block.key.clone());
                group.push(block);
            }
            self.join(group)?;
        }
        self.writer.finish()
    }

    /// Moves the rows of consecutive blocks into the last of them.
    fn join(&mut self, mut group: Vec<Row>) -> Result<()> {
        if group.len() < 2 {
            return Ok(());
        }
        let mut rows = Vec::new();
        for block in &group {
            rows.extend(self.rows_of(block)?);
        }
        let value = self.packer.block(&rows)?;
        let last = group.pop().map(|block| block.key);
        let deleted = group.into_iter().map(|block| RowChange {
            key: block.key,
            value: None,
        });
        let joined = last.map(|key| RowChange { key, value });
        self.writer.put_blocks(deleted.chain(joined).collect())
    }
}
