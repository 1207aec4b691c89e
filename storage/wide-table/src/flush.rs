//! Flush of the changes of one table into one of its parts.
//!
//! The flush goes through the changed rows in key order, span by span. A *span* is the range of keys that belong to one
//! block. If the changed rows and the single rows of a span are many compared with its block, they are merged into the
//! block. Otherwise the changed rows are written as single rows, and a later flush merges them. A row is thus rewritten
//! a bounded number of times, and a bulk write of neighboring rows writes each of them once.
//!
//! An interrupted flush is repeated as a whole, and then writes the same rows.
//!
//! In a table with column groups, each [share](crate::groups) of the rows is flushed into its part in the same way.

mod changes;
mod delete;
mod join;
mod merge;
mod next_single;
mod pack;
mod packed_part;
mod packer;
mod part_writer;

use std::collections::VecDeque;

use bytes::Bytes;
use tideline_backend::page::scan_to_limit;
use tideline_backend::{Direction, Page, PageLimit, Partition, Row, RowChange};
use tideline_log::fail_points::around;
use tideline_model::KeyRange;
use tideline_runtime::background;

use crate::block::Block;
use crate::blocks::Blocks;
use crate::buffer::{Mutations, TableBuffer};
use crate::codec;
use crate::error::{Damage, Result, WideError};
use crate::expiry::Expiry;
use crate::fragments::Head;
use crate::groups::Share;
use crate::model::StaleFragments;
use crate::read::{ROWS_BUCKET, resolve};
use crate::state::Part;
use crate::store::{WideStore, is_base};
use crate::tables::TableRules;
use changes::{Changes, ShareOf, Waiting};
pub(crate) use changes::{PartRows, rows_by_part};
use merge::{MergedRow, MergedRows};
use next_single::NextSingle;
pub(crate) use packed_part::{PackedPart, PackedRows};
use packer::{Packer, RowsToPack};
use part_writer::PartWriter;

/// Maximum number and size of the changed rows that are merged into blocks in one step. The same limit applies to the
/// single rows.
const STEP: PageLimit = PageLimit {
    rows_max: 5_000,
    bytes_max: 512 << 10,
};
/// Maximum number of blocks that are read ahead.
const AHEAD_MAX: usize = 16;

/// Writes the changes of one table into one of its parts.
pub(crate) struct TableFlush<'f> {
    store: &'f WideStore,
    part: Part,
    /// Rules of the table. They are also used for a part that stores the columns of a group.
    rules: &'f TableRules,
    /// Columns that the part stores.
    share: Share,
    expiry: Expiry,
    /// Fragments that must be deleted after the sync.
    stale: &'f mut Vec<StaleFragments>,
    writer: PartWriter<'f>,
    packer: Packer<'f>,
    ahead: Ahead,
    next_single: NextSingle,
    /// Keys of small blocks that were written.
    small: Vec<Bytes>,
    /// Bytes of the blocks that were replaced or deleted.
    replaced: usize,
}

/// Blocks that were read ahead.
#[derive(Debug, Default)]
struct Ahead {
    blocks: VecDeque<Row>,
    /// Key of the block before the first of these blocks, if it is known.
    below: Option<Bytes>,
    /// Maximum number of blocks that the next read returns.
    count: usize,
}

/// Keys that belong to one block: above `below`, up to the key of the block.
struct Span {
    /// Block of the keys; `None` for keys above the last block.
    block: Option<Row>,
    /// Key of the previous block; `None` if this block was not read.
    below: Option<Bytes>,
}

/// Range in which single rows can be merged together with the changed rows.
struct SinglesRange {
    keys: KeyRange,
    /// True if the range may contain single rows that the flush has not passed. If false, `keys` has no lower bound.
    may_have_rows: bool,
}

/// Rows of a span that are merged into its block.
struct Merge {
    waiting: VecDeque<(Bytes, Mutations)>,
    singles: Vec<Row>,
    /// Range of keys that are merged.
    range: KeyRange,
    /// True if the merge includes the rest of the span.
    is_whole: bool,
}

impl<'f> TableFlush<'f> {
    pub(crate) fn new(
        store: &'f WideStore,
        part: Part,
        (rules, share): (&'f TableRules, Share),
        stale: &'f mut Vec<StaleFragments>,
    ) -> Self {
        let expiry = match rules.drops_expired() {
            true => store.expiry(rules),
            false => Expiry::NEVER,
        };
        Self {
            store,
            part,
            rules,
            share,
            expiry,
            stale,
            writer: PartWriter::new(store, part.at),
            packer: Packer::new(store, part.at, (rules, rules.compression_of(share))),
            ahead: Ahead::default(),
            next_single: NextSingle::new(store.log.backend().capabilities()),
            small: Vec::new(),
            replaced: 0,
        }
    }

    /// Writes all changes of the part: the rows `of_part`, or all rows of the buffer if the table has only one part.
    /// Returns the part with its changed details.
    pub(crate) fn write(mut self, buffer: &TableBuffer, of_part: Option<PartRows>) -> Result<Part> {
        for range in buffer.deleted_ranges() {
            around("wide", "delete", || self.delete_range(&range))?;
        }
        let share = (!self.rules.groups.is_empty()).then_some(ShareOf {
            store: self.store,
            rules: self.rules,
            part: self.part,
            share: self.share,
        });
        let mut changes = Changes::new(buffer, of_part, share);
        while let Some(first) = changes.first()? {
            background::yield_core();
            if self.part.detail.has_blocks() {
                let span = self.span_of(&first)?;
                self.write_span(span, &mut changes)?;
            } else {
                let waiting = changes.take(None, STEP)?;
                self.write_singly(None, waiting.rows)?;
            }
        }
        self.writer.finish()?;
        self.join_small()?;
        self.report_replaced();
        // Once this flag is visible to readers, they also read blocks. Before that, no single row may be moved into a
        // block.
        self.part.detail.set_blocks();
        if self.packer.has_replaced_dictionaries() {
            self.part.detail.set_replaced_dictionaries();
        }
        Ok(self.part)
    }

    /// Reports the replaced and deleted blocks to the backend.
    fn report_replaced(&self) {
        if self.replaced > 0 {
            let backend = self.store.log.backend();
            backend.note_replaced(self.part.at, self.replaced as u64);
        }
    }

    fn damaged(&self, reason: Damage) -> WideError {
        WideError::Damaged {
            table: self.part.at.table,
            reason,
        }
    }

    fn blocks(&self) -> Blocks<'f> {
        let store: &'f WideStore = self.store;
        store.blocks(self.part.at)
    }

    /// Returns the span of a key.
    fn span_of(&mut self, key: &[u8]) -> Result<Span> {
        let ahead = &mut self.ahead;
        while let Some(block) = ahead.blocks.pop_front_if(|block| block.key < key) {
            ahead.below = Some(block.key);
            // The blocks between the previous changed row and this one were read ahead but not needed, so fewer blocks
            // are read ahead next.
            ahead.count = 1;
        }
        if ahead.blocks.is_empty() {
            ahead.below = None;
            ahead.count = (ahead.count * 2).clamp(1, AHEAD_MAX);
            let count = ahead.count;
            let table = self.part.at.table;
            let found = self.blocks().from(key, count);
            self.ahead.blocks = found.map_err(|error| error.of(table))?.into();
        }
        let block = self.ahead.blocks.pop_front();
        let key = block.as_ref().map(|block| block.key.clone());
        let below = std::mem::replace(&mut self.ahead.below, key);
        Ok(Span { block, below })
    }

    /// Writes the changes of a span, or the first of them if they are many.
    fn write_span(&mut self, span: Span, changes: &mut Changes<'_>) -> Result<()> {
        let upper = span.block.as_ref().map(|block| &block.key);
        let waiting = changes.take(upper, STEP)?;
        let is_cut = waiting.is_cut;
        let range = self.range_of(&span, &waiting)?;
        let mut end = range.keys.end.clone();
        if !self.is_merged(&span, &waiting, &range)? {
            if is_cut {
                self.ahead = Ahead::default();
            }
            self.write_singly(span.block.as_ref(), waiting.rows)?;
        } else {
            match self.merge_of(&span, waiting, range, changes)? {
                Ok(merge) => {
                    end.clone_from(&merge.range.end);
                    self.merge(span.block, merge)?;
                }
                Err(waiting) => {
                    self.ahead = Ahead::default();
                    self.write_singly(span.block.as_ref(), waiting.rows)?;
                }
            }
        }
        self.next_single.pass(end);
        Ok(())
    }

    /// Returns the range in which single rows can be merged together with the changed rows.
    fn range_of(&mut self, span: &Span, waiting: &Waiting) -> Result<SinglesRange> {
        let upper = span.block.as_ref().map(|block| &block.key);
        let last = waiting.rows.back().map(|(key, _)| key);
        let end = last.filter(|_| waiting.is_cut).or(upper).map(|key| after(key));
        if !self.may_have_singles(end.as_deref())? {
            return Ok(SinglesRange {
                keys: KeyRange {
                    start: Vec::new(),
                    end,
                },
                may_have_rows: false,
            });
        }
        let below = match (&span.below, waiting.rows.front()) {
            (None, Some((first, _))) => {
                let stored = self.blocks().before(first);
                let stored = stored.map_err(|error| error.of(self.part.at.table))?;
                // Blocks that wait in the writer are not stored yet.
                stored.max(self.writer.last_block())
            }
            (below, _) => below.clone(),
        };
        Ok(SinglesRange {
            keys: KeyRange {
                start: below.map_or(Vec::new(), |below| after(&below)),
                end,
            },
            may_have_rows: true,
        })
    }

    /// Returns true if the changed rows and the single rows of a range are many: at least a quarter of the rows or of
    /// the bytes of the block, or half the size of a full block. Without a block, they must fill half of a full block,
    /// or be as many as one step merges.
    fn is_merged(&self, span: &Span, waiting: &Waiting, range: &SinglesRange) -> Result<bool> {
        let half = self.packer.block_bytes() / 2;
        let (rows, bytes) = match &span.block {
            Some(block) => {
                let block = self.open(block)?;
                (block.rows.div_ceil(4), half.min(block.bytes / 4))
            }
            None => (STEP.rows_max, half),
        };
        let missing_rows = rows.saturating_sub(waiting.rows.len());
        let missing_bytes = bytes.saturating_sub(waiting.bytes);
        if missing_rows == 0 || missing_bytes == 0 {
            return Ok(true);
        }
        if !range.may_have_rows {
            return Ok(false);
        }
        let limit = PageLimit {
            rows_max: missing_rows,
            bytes_max: missing_bytes,
        };
        let found = self.singles(&range.keys, limit)?.rows;
        let packable: Vec<usize> = found
            .iter()
            .map(packable_bytes)
            .filter(|bytes| *bytes > 0)
            .collect();
        Ok(packable.len() >= missing_rows || packable.iter().sum::<usize>() >= missing_bytes)
    }

    /// Reads the single rows that are merged together with the changed rows. If they are too many for one step, puts
    /// back the changed rows above the single rows that were read. Returns the changed rows as an error if they are all
    /// above these single rows and none of the single rows can be packed.
    fn merge_of(
        &self,
        span: &Span,
        mut waiting: Waiting,
        range: SinglesRange,
        changes: &mut Changes<'_>,
    ) -> Result<std::result::Result<Merge, Waiting>> {
        let SinglesRange {
            keys: mut range,
            may_have_rows,
        } = range;
        let page = match may_have_rows {
            true => self.singles(&range, STEP)?,
            false => Page {
                rows: Vec::new(),
                next: None,
            },
        };
        debug_assert!(may_have_rows || self.has_no_singles(range.end.as_deref())?);
        let mut is_whole = !waiting.is_cut;
        if let Some(next) = page.next {
            let is_below = |(first, _): &(Bytes, Mutations)| first[..] >= next.start[..];
            let is_stuck = page.rows.iter().all(|row| packable_bytes(row) == 0);
            if is_stuck && waiting.rows.front().is_some_and(is_below) {
                return Ok(Err(waiting));
            }
            changes.put_back(&mut waiting.rows, |key| key >= &next.start[..]);
            range.end = Some(next.start);
            is_whole = false;
        }
        debug_assert!(!is_whole || changes.is_above(span.block.as_ref().map(|block| &block.key))?);
        Ok(Ok(Merge {
            waiting: waiting.rows,
            singles: page.rows,
            range,
            is_whole,
        }))
    }

    /// Merges rows of a span into its block.
    fn merge(&mut self, block: Option<Row>, merge: Merge) -> Result<()> {
        let half = self.packer.block_bytes() / 2;
        let of_changes = merge.waiting.iter().map(|(key, changes)| {
            let bytes: usize = changes.iter().map(Bytes::len).sum();
            key.len() + bytes
        });
        let bytes = of_changes.sum::<usize>() + merge.singles.iter().map(packable_bytes).sum::<usize>();
        let last = merge.waiting.back().map(|(key, _)| &key[..]);
        let last = last.max(merge.singles.last().map(|row| &row.key[..]));
        let is_above = |first: &[u8]| last.is_none_or(|last| last < first);
        let (is_gap, packed) = match &block {
            // If all rows to merge are below the first row of the block and fill half of a block, they become separate
            // blocks.
            Some(block) if bytes >= half && is_above(self.open(block)?.first) => (true, Vec::new()),
            Some(block) => (false, self.rows_of(block)?),
            None => (true, Vec::new()),
        };
        let kept = match merge.is_whole {
            true => packed.len(),
            false => packed.partition_point(|(key, _)| merge.range.contains(key)),
        };
        let (merged, rest) = packed.split_at(kept);
        let mut rows = RowsToPack::default();
        for row in MergedRows::new(merged, merge.singles, merge.waiting) {
            let is_new = row.changes.is_some() || row.single.is_some();
            if let Some(row) = self.merged_row(row)? {
                rows.push(row, is_new, half);
            }
        }
        let mut changes = self.packer.blocks(&rows)?;
        if is_gap || !merge.is_whole {
            self.ahead = Ahead::default();
        }
        let Some(block) = block.filter(|_| !is_gap) else {
            return self.writer.put_blocks(changes);
        };
        self.replaced += block.value.len();
        if !merge.is_whole {
            // The next step reads the rest of the block again.
            let value = self.packer.block(rest)?;
            changes.push(RowChange {
                key: block.key,
                value,
            });
            return self.writer.put_blocks_now(&changes);
        }
        self.note_small(&block.key, rows.bytes());
        match changes.last_mut() {
            Some(last) => last.key = block.key,
            None => changes.push(RowChange {
                key: block.key,
                value: None,
            }),
        }
        self.writer.put_blocks(changes)
    }

    fn open<'r>(&self, block: &'r Row) -> Result<Block<'r>> {
        let opened = self.blocks().open(&block.value);
        opened.map_err(|error| error.of(self.part.at.table))
    }

    fn rows_of(&self, block: &Row) -> Result<Vec<(Bytes, Bytes)>> {
        let rows = self.open(block)?.all_rows();
        rows.map_err(|reason| self.damaged(reason))
    }

    /// Returns single rows of a range.
    fn singles(&self, range: &KeyRange, limit: PageLimit) -> Result<Page> {
        let partition = Partition::part(self.part.at, ROWS_BUCKET);
        let backend = self.store.log.backend().as_ref();
        Ok(scan_to_limit(
            backend,
            partition,
            range,
            Direction::Ascending,
            limit,
        )?)
    }

    fn single(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let partition = Partition::part(self.part.at, ROWS_BUCKET);
        Ok(self.store.log.backend().get(partition, key)?)
    }

    /// Returns the row to pack for a key; `None` if no row of the key must be packed. For a large row, writes its head
    /// as a single row.
    fn merged_row(&mut self, row: MergedRow) -> Result<Option<(Bytes, Bytes)>> {
        let MergedRow {
            key,
            packed,
            single,
            changes,
        } = row;
        let is_head = single.as_ref().is_some_and(|single| codec::is_head(single));
        let Some(changes) = changes else {
            // A row that has expired is kept here, because it must be removed together with its index entries.
            let row = match single {
                Some(_) if is_head => None,
                Some(single) => {
                    self.writer.set_packed(key.clone());
                    Some(single).filter(|single| !codec::is_delete(single))
                }
                None => packed,
            };
            return Ok(row.map(|row| (key, row)));
        };
        let has_single = single.is_some();
        let base = match (single, changes.first().is_some_and(|first| is_base(first))) {
            (_, true) => None,
            (Some(single), false) => self.whole(&key, single)?,
            (None, false) => packed.clone(),
        };
        let stored = self.stored_row(&key, base.as_ref(), &changes)?;
        if stored.as_ref().is_some_and(|stored| codec::is_head(stored)) {
            self.writer.put_single(key.clone(), stored)?;
            // The head hides the packed row. The packed row is kept, because a repetition of an interrupted flush needs
            // it.
            return Ok(packed.map(|row| (key, row)));
        }
        if has_single {
            self.writer.set_packed(key.clone());
        }
        Ok(stored.map(|row| (key, row)))
    }

    /// Returns a single row, with the fragments joined if it is large; `None` for the marker of a deleted row.
    fn whole(&self, key: &[u8], single: Bytes) -> Result<Option<Bytes>> {
        match codec::is_delete(&single) {
            true => Ok(None),
            false => self.store.joined(&self.part, key, single),
        }
    }

    /// Writes changed rows as single rows. `block` is the block of their span.
    fn write_singly(&mut self, block: Option<&Row>, waiting: VecDeque<(Bytes, Mutations)>) -> Result<()> {
        let first = block.map(|block| self.open(block)).transpose()?;
        let first = first.map(|block| block.first);
        // Rows of the block, decoded at most once, and only if a change depends on a packed row.
        let mut packed: Option<Vec<(Bytes, Bytes)>> = None;
        for (key, changes) in waiting {
            // A row below the first row of the block is not packed, and neither is a row without a block.
            let may_be_packed = first.is_some_and(|first| key >= first);
            let mut base = None;
            if !changes.first().is_some_and(|first| is_base(first)) {
                if let Some(single) = self.single(&key)? {
                    base = self.whole(&key, single)?;
                } else if let Some(block) = block.filter(|_| may_be_packed) {
                    let rows = match packed.take() {
                        Some(rows) => rows,
                        None => self.rows_of(block)?,
                    };
                    let found = rows.binary_search_by(|(other, _)| other.cmp(&key));
                    base = found.ok().map(|at| rows[at].1.clone());
                    packed = Some(rows);
                }
            }
            let stored = self.stored_row(&key, base.as_ref(), &changes)?;
            // The marker of a deleted row hides a packed row.
            let stored = stored.or_else(|| may_be_packed.then(codec::deleted_marker));
            self.writer.put_single(key, stored)?;
        }
        Ok(())
    }

    /// Applies changes to a row. Returns the stored form: the row itself, or the head of a large row, whose fragments
    /// are written first. Returns `None` if the row is deleted or has expired, or if a share of a group has no columns.
    fn stored_row(
        &mut self,
        key: &Bytes,
        base: Option<&Bytes>,
        changes: &Mutations,
    ) -> Result<Option<Bytes>> {
        let value = resolve(base, changes, self.rules.versions_max);
        let value = value.map_err(|reason| self.damaged(reason))?;
        let value = match value {
            Some(value) => self
                .expiry
                .visible(value)
                .map_err(|reason| self.damaged(reason))?,
            None => None,
        };
        let value = match value {
            Some(value) if self.share != Share::Main => {
                let columns = codec::column_count(&value).map_err(|reason| self.damaged(reason))?;
                Some(value).filter(|_| columns > 0)
            }
            value => value,
        };
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        let detail = &mut self.part.detail;
        detail.row_bytes_max = detail.row_bytes_max.max(bytes as u64);
        let is_large = bytes > self.store.settings.fragment_bytes;
        if !is_large {
            detail.note_column(bytes);
            if !detail.has_fragments() {
                return Ok(value);
            }
        }
        detail.set_fragments();
        let before = self.single(key)?.map(|stored| Head::decode(&stored)).transpose();
        let before = before.map_err(|reason| self.damaged(reason))?.flatten();
        let generation = before.as_ref().map(|head| head.generation);
        self.store.delete_fragments(self.part.at, key, generation)?;
        if let Some(generation) = generation {
            self.stale.push(StaleFragments {
                part: self.part.at,
                key: key.clone(),
                generation,
            });
        }
        match value {
            Some(value) if is_large => {
                let (head, largest) = around("wide", "fragments", || {
                    self.store
                        .write_fragments(self.part.at, key, &value, before.as_ref())
                })?;
                self.part.detail.note_column(largest);
                Ok(Some(head.encode().into()))
            }
            value => Ok(value),
        }
    }
}

/// Returns the bytes that a single row adds to a block.
fn packable_bytes(row: &Row) -> usize {
    match codec::is_head(&row.value) {
        true => 0,
        false => row.key.len() + row.value.len(),
    }
}

/// Returns the first key after a key.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
