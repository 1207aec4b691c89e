//! Packing of rows into blocks of about equal size.
//!
//! Blocks end where further rows are likely to be inserted. A large row gets a separate block.

use bytes::Bytes;
use tideline_backend::{PartRef, RowChange};
use tideline_model::GroupCompression;
use tideline_runtime::background;

use crate::block::BlockEncoder;
use crate::blocks::BlockError;
use crate::dictionaries::ZstdColumns;
use crate::error::Result;
use crate::store::WideStore;
use crate::tables::TableRules;

/// Size of a densely compressed block, as a multiple of the size of a block with fast compression.
const DENSE_BLOCKS: usize = 8;
/// Maximum size of a block that is compressed densely, before its encoding, in bytes.
const DENSE_BYTES_MAX: usize = 1 << 20;

/// Rows to pack, in key order.
#[derive(Debug, Default)]
pub(super) struct RowsToPack {
    rows: Vec<(Bytes, Bytes)>,
    /// Positions in `rows` before which a block must end.
    ends: Vec<usize>,
    /// Bytes of the current run of new rows.
    new_bytes: usize,
}

impl RowsToPack {
    /// Adds a row. A block ends after a run of new rows of at least `run_bytes`, because further rows are often
    /// inserted there. These rows then need not be merged into the block of the rows above.
    pub(super) fn push(&mut self, row: (Bytes, Bytes), is_new: bool, run_bytes: usize) {
        if is_new {
            self.new_bytes += size(&row);
        } else {
            if self.new_bytes >= run_bytes {
                self.ends.push(self.rows.len());
            }
            self.new_bytes = 0;
        }
        self.rows.push(row);
    }

    /// Returns the bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(size).sum()
    }

    /// Returns the rows between the ends. An end is ignored if fewer than `bytes_min` bytes follow it.
    fn runs(&self, bytes_min: usize) -> Vec<&[(Bytes, Bytes)]> {
        let mut runs = Vec::with_capacity(1 + self.ends.len());
        let mut start = 0;
        for end in &self.ends {
            let bytes_left: usize = self.rows[*end..].iter().map(size).sum();
            if bytes_left >= bytes_min {
                runs.push(&self.rows[start..*end]);
                start = *end;
            }
        }
        runs.push(&self.rows[start..]);
        runs
    }
}

pub(super) fn size((key, row): &(Bytes, Bytes)) -> usize {
    key.len() + row.len()
}

/// Packs rows of one part into blocks.
pub(super) struct Packer<'f> {
    at: PartRef,
    encoder: BlockEncoder,
    zstd: ZstdColumns<'f>,
    /// Size of a block before its encoding, in bytes.
    block_bytes: usize,
}

impl<'f> Packer<'f> {
    /// Creates a packer for a part. `rules` are the rules of its table, and `compression` is the compression of the
    /// part.
    pub(super) fn new(
        store: &'f WideStore,
        at: PartRef,
        (rules, compression): (&TableRules, GroupCompression),
    ) -> Self {
        // Size of a block with fast compression.
        let block_bytes = store.settings.block_bytes;
        Self {
            at,
            encoder: BlockEncoder::new(compression, &rules.codecs),
            zstd: ZstdColumns::new(store, at),
            block_bytes: match compression {
                GroupCompression::Fast => block_bytes,
                GroupCompression::Dense => (block_bytes * DENSE_BLOCKS).min(DENSE_BYTES_MAX),
            },
        }
    }

    /// Returns the size of a block before its encoding, in bytes.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Prevents the replacement of dictionaries of the part.
    pub(super) fn keep_dictionaries(&mut self) {
        self.zstd.keep_dictionaries();
    }

    /// Returns true if a dictionary of the part was replaced.
    pub(super) fn has_replaced_dictionaries(&self) -> bool {
        self.zstd.has_replaced()
    }

    /// Returns the blocks of rows, each under the key of its last row. Stores new dictionaries of the part.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`](crate::WideError::Damaged) if a row or a dictionary is damaged, and the errors of the
    /// backend and of the log.
    pub(super) fn blocks(&mut self, rows: &RowsToPack) -> Result<Vec<RowChange>> {
        let mut blocks = Vec::new();
        for run in rows.runs(self.block_bytes / 8) {
            self.add_blocks(run, &mut blocks)?;
        }
        Ok(blocks)
    }

    fn add_blocks(&mut self, rows: &[(Bytes, Bytes)], blocks: &mut Vec<RowChange>) -> Result<()> {
        let total: usize = rows.iter().map(size).sum();
        let count = ((total + self.block_bytes / 2) / self.block_bytes).max(1);
        let each = total.div_ceil(count);
        let (mut start, mut bytes) = (0, 0);
        for (at, row) in rows.iter().enumerate() {
            // A large row is alone in its block, so that reads of its neighbors do not decompress it.
            let is_large = size(row) > self.block_bytes / 2;
            if at > start && (is_large || bytes + size(row) / 2 > each) {
                blocks.extend(self.block_of(&rows[start..at])?);
                (start, bytes) = (at, 0);
            }
            bytes += size(row);
        }
        blocks.extend(self.block_of(&rows[start..])?);
        Ok(())
    }

    fn block_of(&mut self, rows: &[(Bytes, Bytes)]) -> Result<Option<RowChange>> {
        // Before each block, because a call can pack megabytes.
        background::yield_core();
        self.zstd.make_dictionaries()?;
        let value = self.block(rows)?;
        let last = rows.last().map(|(key, _)| key.clone());
        Ok(last.map(|key| RowChange { key, value }))
    }

    /// Returns one block of all rows; `None` if there are no rows.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`](crate::WideError::Damaged) if a row or a dictionary is damaged, and the errors of the
    /// backend.
    pub(super) fn block(&mut self, rows: &[(Bytes, Bytes)]) -> Result<Option<Bytes>> {
        if rows.is_empty() {
            return Ok(None);
        }
        self.encode(rows)
            .map(Some)
            .map_err(|error| error.of(self.at.table))
    }

    fn encode(&mut self, rows: &[(Bytes, Bytes)]) -> std::result::Result<Bytes, BlockError> {
        for (key, row) in rows {
            self.encoder.push(key, row)?;
        }
        let zstd = &mut self.zstd;
        self.encoder
            .finish(&mut |name, contents| zstd.compress(name, contents))
    }
}
