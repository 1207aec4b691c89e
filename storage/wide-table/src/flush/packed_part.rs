//! Writer of a whole part: packs rows in key order into full blocks.

use bytes::Bytes;
use tideline_backend::PartRef;

use super::packer::{Packer, RowsToPack};
use super::part_writer::PartWriter;
use crate::error::Result;
use crate::groups::Share;
use crate::store::WideStore;
use crate::tables::TableRules;

/// Number of blocks that are packed together.
const BLOCKS_TOGETHER: usize = 64;

/// New part to which rows are added in key order. No reader uses it before it is published.
pub(crate) struct PackedPart<'f> {
    store: &'f WideStore,
    at: PartRef,
    writer: PartWriter<'f>,
    packer: Packer<'f>,
    rows: RowsToPack,
    bytes: usize,
    written: PackedRows,
}

/// Sizes of the rows of a packed part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PackedRows {
    /// True if some rows are stored in fragments.
    pub(crate) has_fragments: bool,
    /// Size of the largest row with its key, in bytes; 0 if there are no rows.
    pub(crate) bytes_max: usize,
    /// True if a dictionary of the part was replaced while its rows were packed.
    pub(crate) has_replaced_dictionaries: bool,
}

impl<'f> PackedPart<'f> {
    pub(crate) fn new(store: &'f WideStore, at: PartRef, (rules, share): (&TableRules, Share)) -> Self {
        Self {
            store,
            at,
            writer: PartWriter::new(store, at),
            packer: Packer::new(store, at, (rules, rules.compression_of(share))),
            rows: RowsToPack::default(),
            bytes: 0,
            written: PackedRows::default(),
        }
    }

    /// Adds a whole row. Its key must be above all earlier keys.
    pub(crate) fn push(&mut self, key: Bytes, row: Bytes) -> Result<()> {
        let bytes = key.len() + row.len();
        self.written.bytes_max = self.written.bytes_max.max(bytes);
        if bytes > self.store.settings.fragment_bytes {
            let (head, _) = self.store.write_fragments(self.at, &key, &row, None)?;
            self.written.has_fragments = true;
            return self.writer.put_single(key, Some(head.encode().into()));
        }
        self.bytes += bytes;
        self.rows.push((key, row), false, usize::MAX);
        if self.bytes >= BLOCKS_TOGETHER * self.packer.block_bytes() {
            self.pack()?;
        }
        Ok(())
    }

    /// Writes all rows that wait. Returns the sizes of the rows of the part.
    pub(crate) fn finish(mut self) -> Result<PackedRows> {
        self.pack()?;
        self.writer.finish()?;
        self.written.has_replaced_dictionaries = self.packer.has_replaced_dictionaries();
        Ok(self.written)
    }

    fn pack(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let blocks = self.packer.blocks(&rows)?;
        self.writer.put_blocks(blocks)
    }
}
