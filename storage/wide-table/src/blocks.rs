//! Location and reading of the blocks of a part.
//!
//! A part stores a row in one of two places. *Single* rows are in bucket 0, one value each. *Packed* rows are in the
//! [blocks](crate::block) of bucket 2. The key of a block is an upper bound of the keys of its rows. The keys of its
//! rows are above the key of the previous block. The row of a key is therefore in the first block whose key is at or
//! above this key.
//!
//! A single row hides a packed row with the same key, and so does a single *marker* of a deleted row. A flush moves
//! single rows into blocks: it writes the blocks, syncs them, and then removes the single rows. A read of one row reads
//! the single row first, so it never misses a row that is being moved. A read of a page reads the blocks first, because
//! they bound the range of the single rows to read. If rows were moved during the read, the page is read again, with
//! the single rows first.
//!
//! Rows also move between blocks: to a lower block when a block is split, to a higher block when small blocks are
//! joined. A reader that reads blocks one after the other drops rows that it has already read. Ascending reads miss no
//! row. Descending reads could miss rows that were joined into a block that was read before. Such a read therefore
//! reads this block again after it has read the next blocks, and starts over if the block has changed. It need not read
//! the block again if [`Joins`] shows that no blocks were joined in the meantime.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tideline_backend::page::scan_to_limit;
use tideline_backend::{Backend, BackendError, Direction, PageLimit, PartRef, Partition, Row};
use tideline_model::{KeyRange, TableId};

use crate::block::{Block, BlockKeys};
use crate::dictionaries::Dictionaries;
use crate::error::{Damage, WideError};

/// Bucket of a part that holds the blocks.
pub(crate) const BLOCKS_BUCKET: u16 = 2;
/// Expected number of rows of the first block of a page, if a row has about 250 bytes. Each following block is expected
/// to have as many rows as the block before. The number only determines how many blocks a page reads at once: a further
/// read seeks in the engine again, which costs more than reading a block that is not needed.
const TYPICAL_ROWS: usize = 32;
/// Maximum number of blocks that are read at once.
const BLOCKS_READ_MAX: usize = 16;

/// Maximum number of rows of a page that ends within a block. Such a page is usually the only one of its scan.
const CUT_PAGE_ROWS_MAX: usize = 200;

const ONE: PageLimit = PageLimit {
    rows_max: 1,
    bytes_max: 1,
};

/// Error of reading a block.
#[derive(Debug)]
pub(crate) enum BlockError {
    /// The engine failed.
    Backend(BackendError),
    /// The block is damaged.
    Damage(Damage),
}

impl From<BackendError> for BlockError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<Damage> for BlockError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl BlockError {
    /// Converts the error to the error of a read of a table.
    pub(crate) fn of(self, table: TableId) -> WideError {
        match self {
            Self::Backend(error) => error.into(),
            Self::Damage(reason) => WideError::Damaged { table, reason },
        }
    }
}

type Result<T> = std::result::Result<T, BlockError>;

/// Counts of the joins of blocks of all parts since the start.
///
/// A join counts as begun before its first write, and as ended after its last write has succeeded. After a failed
/// write, the join never counts as ended, because the write may take effect later.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Joins {
    /// Counts the begin of joins. Only one thread joins blocks at a time.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the end of joins whose writes have all succeeded.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of joins if all of them have ended. If two calls return the same number, no write of a join
    /// took effect between them.
    fn settled(&self) -> Option<u64> {
        // Loaded first: a join that begins and ends between the two loads makes the counts differ.
        let ended = self.ended.load(Ordering::Acquire);
        (self.begun.load(Ordering::Acquire) == ended).then_some(ended)
    }
}

/// Blocks of one part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks<'b> {
    backend: &'b dyn Backend,
    part: PartRef,
    dictionaries: &'b Dictionaries,
    /// Joins of the blocks; `None` if another process may still join blocks.
    joins: Option<&'b Joins>,
}

/// Packed rows of a range, in scan order.
#[derive(Debug, Default)]
pub(crate) struct PackedRows {
    /// Keys and encoded rows.
    pub(crate) rows: VecDeque<(Bytes, Bytes)>,
    /// Last key that was read if more rows may follow; `None` otherwise.
    pub(crate) more_after: Option<Bytes>,
}

/// Result of the search for a packed row.
#[derive(Debug)]
pub(crate) enum PackedRow {
    /// The row.
    Found(Bytes),
    /// No block contains the row. Holds the key and the head of the block that could contain it; `None` if the key is
    /// above all blocks.
    Absent(Option<(Bytes, BlockKeys)>),
}

impl<'b> Blocks<'b> {
    pub(crate) fn new(backend: &'b dyn Backend, part: PartRef, dictionaries: &'b Dictionaries) -> Self {
        Self {
            backend,
            part,
            dictionaries,
            joins: None,
        }
    }

    /// Adds the counts of the joins. Every join of blocks of the part must be counted.
    pub(crate) fn with_joins(self, joins: &'b Joins) -> Self {
        Self {
            joins: Some(joins),
            ..self
        }
    }

    /// Returns the number of joins so far; `None` if blocks may be being joined.
    fn settled_joins(self) -> Option<u64> {
        self.joins.and_then(Joins::settled)
    }

    /// Returns the storage engine of the blocks.
    pub(crate) fn backend(self) -> &'b dyn Backend {
        self.backend
    }

    /// Opens a block of the part, with the dictionaries that it needs.
    pub(crate) fn open(self, value: &[u8]) -> Result<Block<'_>> {
        let mut block = Block::open(value)?;
        let needed = block.needed_dictionaries().map(|number| {
            let dictionary = self.dictionaries.get(self.backend, self.part, number)?;
            Ok((number, dictionary))
        });
        let needed = needed.collect::<Result<_>>()?;
        block.set_dictionaries(needed);
        Ok(block)
    }

    /// Returns up to `count` blocks in key order, beginning with the block that can contain the key.
    pub(crate) fn from(self, key: &[u8], count: usize) -> Result<Vec<Row>> {
        let range = KeyRange {
            start: key.to_vec(),
            end: None,
        };
        let limit = PageLimit {
            rows_max: count,
            bytes_max: 1 << 20,
        };
        Ok(self.next_blocks(&range, limit)?.rows)
    }

    /// Returns the block that can contain a key: the first block at or above the key. Returns `None` if the key is
    /// above the last block.
    pub(crate) fn of_key(self, key: &[u8]) -> Result<Option<Row>> {
        let partition = Partition::part(self.part, BLOCKS_BUCKET);
        Ok(self.backend.first(partition, key)?)
    }

    /// Returns the key of the last block whose rows are all below `key`; `None` if there is no such block.
    pub(crate) fn before(self, key: &[u8]) -> Result<Option<Bytes>> {
        let range = KeyRange {
            start: Vec::new(),
            end: Some(key.to_vec()),
        };
        let found = self.scan(&range, Direction::Descending, ONE)?;
        Ok(found.rows.into_iter().next().map(|block| block.key))
    }

    /// Returns a packed row; `None` if no block contains it.
    pub(crate) fn row(self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.of_key(key)? {
            Some(block) => Ok(self.open(&block.value)?.row(key)?),
            None => Ok(None),
        }
    }

    /// Searches a packed row. If no block contains it, also returns which keys the block of the key contains.
    pub(crate) fn find(self, key: &[u8]) -> Result<PackedRow> {
        let Some(block) = self.of_key(key)? else {
            return Ok(PackedRow::Absent(None));
        };
        let opened = self.open(&block.value)?;
        Ok(match opened.row(key)? {
            Some(row) => PackedRow::Found(row),
            None => PackedRow::Absent(Some((block.key, opened.contained_keys()))),
        })
    }

    /// Returns the first packed rows of a range in scan order: at most `limit.rows_max` rows, and no further row once
    /// their size exceeds `limit.bytes_max`. May return fewer rows if the page ends at the end of a block.
    pub(crate) fn page(self, range: &KeyRange, direction: Direction, limit: PageLimit) -> Result<PackedRows> {
        let mut page = Page {
            blocks: self,
            range: range.clone(),
            direction,
            limit,
            found: PackedRows::default(),
            bytes: 0,
            rows_per_block: TYPICAL_ROWS,
        };
        match direction {
            Direction::Ascending => self.read_ascending(&mut page)?,
            Direction::Descending => {
                while !self.read_descending(&mut page)? {
                    (page.range, page.found, page.bytes) = (range.clone(), PackedRows::default(), 0);
                }
            }
        }
        Ok(page.found)
    }

    fn read_ascending(self, page: &mut Page<'_>) -> Result<()> {
        let mut rest = Some(KeyRange {
            start: page.range.start.clone(),
            end: None,
        });
        while let Some(range) = rest {
            let blocks = self.next_blocks(&range, page.block_limit())?;
            for block in blocks.rows {
                let is_last = page.range.end.as_ref().is_some_and(|end| block.key >= *end);
                if page.add(&block)? || is_last {
                    return Ok(());
                }
            }
            rest = blocks.next;
        }
        Ok(())
    }

    /// Returns false if rows may be missing because blocks were joined during the read.
    fn read_descending(self, page: &mut Page<'_>) -> Result<bool> {
        let joins = self.settled_joins();
        // A key, and the block that was found for it: the first block at or above the key.
        let mut last = None;
        // The block that holds the highest keys of the range may itself have a key above the range.
        if let Some(end) = page.range.end.clone() {
            let block = self.of_key(&end)?;
            if let Some(block) = &block
                && page.add(block)?
            {
                return Ok(true);
            }
            last = Some((Bytes::from(end), block));
        }
        let mut rest = Some(page.range.clone());
        while let Some(range) = rest {
            let blocks = self.scan(&range, Direction::Descending, page.block_limit())?;
            if let Some((key, block)) = &last
                && (joins.is_none() || self.settled_joins() != joins)
                && self.of_key(key)? != *block
            {
                return Ok(false);
            }
            for block in blocks.rows {
                if page.add(&block)? {
                    return Ok(true);
                }
                last = Some((block.key.clone(), Some(block)));
            }
            rest = blocks.next;
        }
        Ok(true)
    }

    /// Returns the first blocks of a range without an end. For one block, avoids reading the block after it.
    fn next_blocks(self, range: &KeyRange, limit: PageLimit) -> Result<tideline_backend::Page> {
        if limit.rows_max > 1 {
            return self.scan(range, Direction::Ascending, limit);
        }
        let first = self.of_key(&range.start)?;
        Ok(tideline_backend::Page {
            next: first.as_ref().and_then(|block| range.above(&block.key)),
            rows: first.into_iter().collect(),
        })
    }

    /// Returns a page of blocks.
    pub(crate) fn scan(
        self,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<tideline_backend::Page> {
        let partition = Partition::part(self.part, BLOCKS_BUCKET);
        Ok(scan_to_limit(self.backend, partition, range, direction, limit)?)
    }
}

/// Page of packed rows that is being read.
struct Page<'b> {
    blocks: Blocks<'b>,
    /// Range that was not read yet.
    range: KeyRange,
    direction: Direction,
    limit: PageLimit,
    found: PackedRows,
    bytes: usize,
    /// Expected number of rows of the next block; at least 1.
    rows_per_block: usize,
}

impl Page<'_> {
    /// Adds the rows of the next block. Returns true if the page is complete.
    fn add(&mut self, block: &Row) -> Result<bool> {
        let opened = self.blocks.open(&block.value)?;
        self.rows_per_block = opened.rows.max(1);
        if self
            .range
            .end
            .as_ref()
            .is_some_and(|end| opened.first >= &end[..])
        {
            return Ok(self.direction == Direction::Ascending);
        }
        let count = self.found.rows.len();
        // A large page that is more than half full ends before a block that does not fit as a whole. Otherwise, the next
        // page would decompress this block again.
        let rows_max = self.limit.rows_max;
        if rows_max > CUT_PAGE_ROWS_MAX && count > rows_max / 2 && count + opened.rows > rows_max {
            self.found.more_after = self.found.rows.back().map(|(key, _)| key.clone());
            return Ok(true);
        }
        let limit = PageLimit {
            rows_max: self.limit.rows_max - count,
            bytes_max: self.limit.bytes_max.saturating_sub(self.bytes),
        };
        let rows = opened.rows_in(&self.range, self.direction, limit)?;
        self.bytes += rows
            .rows
            .iter()
            .map(|(key, row)| key.len() + row.len())
            .sum::<usize>();
        self.found.rows.extend(rows.rows);
        let last = self.found.rows.back().map(|(key, _)| key.clone());
        if let Some(last) = &last {
            match self.direction {
                Direction::Ascending => self.range.start = [last, &[0][..]].concat(),
                Direction::Descending => self.range.end = Some(last.to_vec()),
            }
        }
        let is_full = self.found.rows.len() >= self.limit.rows_max || self.bytes > self.limit.bytes_max;
        if rows.is_cut || is_full {
            self.found.more_after = last;
        }
        Ok(rows.is_cut || is_full)
    }

    /// Returns the limit of the next read of blocks.
    fn block_limit(&self) -> PageLimit {
        let rows = self.limit.rows_max - self.found.rows.len();
        // The rows begin anywhere in the first block, and blocks differ in size. Unless the rows are few, one more block
        // is cheaper than another seek for the last of them.
        let spare = usize::from(rows > self.rows_per_block / 2);
        PageLimit {
            rows_max: (rows / self.rows_per_block)
                .saturating_add(1 + spare)
                .min(BLOCKS_READ_MAX),
            bytes_max: self.limit.bytes_max.clamp(1, 1 << 20),
        }
    }
}
