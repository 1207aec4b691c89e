//! Writes of single rows and blocks into a part, combined into few writes to the backend.
//!
//! A single row that a block contains is removed only after the block is durable, so a crash does not lose the row.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tideline_backend::{PartRef, RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_log::SHARD;
use tideline_log::fail_points::around;

use crate::blocks::BLOCKS_BUCKET;
use crate::error::Result;
use crate::read::ROWS_BUCKET;
use crate::store::WideStore;

/// Size of the waiting blocks at which they are all written, in bytes.
const BLOCKS_BYTES_MAX: usize = 16 << 20;
/// Size from which waiting blocks are written as sorted rows, in bytes. The engine creates a file for each such write,
/// so it is not worthwhile for few blocks.
const SORTED_BYTES_MIN: usize = 256 << 10;
/// Single rows that blocks contain are removed when this number of them is recorded.
const PACKED_MAX: usize = 20_000;

/// Writes single rows and blocks of one part.
pub(super) struct PartWriter<'f> {
    store: &'f WideStore,
    at: PartRef,
    /// Changes of single rows that wait for one write.
    singles: Vec<RowChange>,
    singles_bytes: usize,
    /// Changes of blocks that wait for one write, in key order.
    blocks: Vec<Vec<RowChange>>,
    blocks_bytes: usize,
    /// Key of the last block that was written or waits.
    last_block: Option<Bytes>,
    /// Keys of single rows that blocks contain and that must be removed.
    packed: Vec<Bytes>,
}

impl<'f> PartWriter<'f> {
    pub(super) fn new(store: &'f WideStore, at: PartRef) -> Self {
        Self {
            store,
            at,
            singles: Vec::new(),
            singles_bytes: 0,
            blocks: Vec::new(),
            blocks_bytes: 0,
            last_block: None,
            packed: Vec::new(),
        }
    }

    /// Writes a single row, or deletes it if `value` is `None`.
    pub(super) fn put_single(&mut self, key: Bytes, value: Option<Bytes>) -> Result<()> {
        let change = RowChange { key, value };
        let bytes = bytes_of(&change);
        if self.singles.len() == WRITE_ROWS_MAX || self.singles_bytes + bytes > WRITE_BYTES_MAX {
            self.write_singles()?;
        }
        self.singles_bytes += bytes;
        self.singles.push(change);
        Ok(())
    }

    /// Records that a block now contains a single row. The single row is removed once the block is durable.
    pub(super) fn set_packed(&mut self, key: Bytes) {
        self.packed.push(key);
    }

    /// Adds changes of blocks, whose keys must be above those of all earlier calls. The changes wait for a write
    /// together with later ones.
    pub(super) fn put_blocks(&mut self, changes: Vec<RowChange>) -> Result<()> {
        let Some(last) = changes.last() else {
            return Ok(());
        };
        self.last_block = Some(last.key.clone());
        self.blocks_bytes += changes.iter().map(bytes_of).sum::<usize>();
        self.blocks.push(changes);
        if self.blocks_bytes >= BLOCKS_BYTES_MAX {
            self.write_blocks()?;
        }
        if self.packed.len() >= PACKED_MAX {
            self.remove_packed()?;
        }
        Ok(())
    }

    /// Writes changes of blocks immediately, in one write.
    pub(super) fn put_blocks_now(&self, changes: &[RowChange]) -> Result<()> {
        around("wide", "blocks", || self.change(BLOCKS_BUCKET, changes))
    }

    /// Returns the key of the last block that was passed to [`put_blocks`](Self::put_blocks).
    pub(super) fn last_block(&self) -> Option<Bytes> {
        self.last_block.clone()
    }

    /// Writes all changes that wait.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.write_singles()?;
        self.write_blocks()?;
        self.remove_packed()
    }

    /// Writes the changes of single rows that wait.
    pub(super) fn write_singles(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.singles);
        self.singles_bytes = 0;
        around("wide", "write", || self.change(ROWS_BUCKET, &changes))
    }

    fn write_blocks(&mut self) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let blocks = std::mem::take(&mut self.blocks);
        let bytes = std::mem::take(&mut self.blocks_bytes);
        around("wide", "blocks", || {
            if bytes < SORTED_BYTES_MIN {
                let mut groups = blocks.iter();
                return groups.try_for_each(|group| self.change(BLOCKS_BUCKET, group));
            }
            self.store.load_part(self.at, BLOCKS_BUCKET, &blocks)
        })
    }

    /// Makes the blocks durable, and then removes the single rows that they contain.
    fn remove_packed(&mut self) -> Result<()> {
        if self.packed.is_empty() {
            return Ok(());
        }
        self.write_singles()?;
        self.write_blocks()?;
        around("wide", "moved", || {
            self.store.log.backend().sync_rows(SHARD)?;
            // A reader that has read blocks before this moment reads again, and spans that were noted before this moment
            // are not used any more.
            self.store.packings.fetch_add(1, Ordering::AcqRel);
            for key in std::mem::take(&mut self.packed) {
                self.put_single(key, None)?;
            }
            self.write_singles()
        })
    }

    fn change(&self, bucket: u16, changes: &[RowChange]) -> Result<()> {
        self.store.change_part(self.at, bucket, changes)
    }
}

fn bytes_of(change: &RowChange) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len)
}
