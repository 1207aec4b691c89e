//! Joining of small blocks that deletes have left.
//!
//! A scan reads blocks one by one, so many small blocks make it slow. A small block is joined with the block before it,
//! if both fit into one block, and with the next blocks. Rows always move to a block with a higher key, and the blocks
//! that they leave are deleted in the same write. Without the block before, each flush would leave one more group of
//! joined blocks that is not full.

use bytes::Bytes;
use tideline_backend::{Direction, PageLimit, Row, RowChange};
use tideline_model::KeyRange;

use super::{TableFlush, after};
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

    /// Joins each recorded small block with the block before it and the blocks after it. The recorded blocks must
    /// already be written.
    pub(super) fn join_small(&mut self) -> Result<()> {
        let mut small = std::mem::take(&mut self.small);
        if small.is_empty() {
            return self.writer.finish();
        }
        // All writes of joins are between these two counts. After an error, the joins do not count as ended.
        self.store.joins.begin();
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
            if let Some(first) = blocks.first()
                && let Some((before, of_before)) = self.joinable_before(first, passed.as_ref())?
            {
                bytes = of_before;
                group.push(before);
            }
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
        self.writer.finish()?;
        self.store.joins.end();
        Ok(())
    }

    /// Returns the block before a block, and its size, if both fit into one block. Blocks up to `passed` are not
    /// returned: they belong to an earlier group, and their last state may not be written yet.
    fn joinable_before(&self, block: &Row, passed: Option<&Bytes>) -> Result<Option<(Row, usize)>> {
        let of_block = self.open(block)?.bytes;
        if of_block >= self.packer.block_bytes() {
            return Ok(None);
        }
        let range = KeyRange {
            start: passed.map_or(Vec::new(), |passed| after(passed)),
            end: Some(block.key.to_vec()),
        };
        let one = PageLimit {
            rows_max: 1,
            bytes_max: 1,
        };
        let found = self.blocks().scan(&range, Direction::Descending, one);
        let found = found.map_err(|error| error.of(self.part.at.table))?;
        let Some(before) = found.rows.into_iter().next() else {
            return Ok(None);
        };
        let bytes = self.open(&before)?.bytes;
        let fits = bytes + of_block <= self.packer.block_bytes();
        Ok(fits.then_some((before, bytes)))
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
        self.replaced += group.iter().map(|block| block.value.len()).sum::<usize>();
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
