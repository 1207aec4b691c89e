//! Packing of the single rows and delete markers of a key range into its blocks.
//!
//! Packing works like the merge of a flush without changed rows. A block is durable before the single rows that it
//! contains are removed. A reader may therefore find a row both as a single row and in a block, but always in at least
//! one of them.

use std::collections::VecDeque;

use bytes::Bytes;
use tideline_backend::{Direction, PageLimit, Row};
use tideline_model::KeyRange;

use super::{Merge, STEP, TableFlush, after, packable_bytes};
use crate::codec;
use crate::error::Result;
use crate::pack::PackStep;

/// Maximum number and size of the blocks that one step reads.
const BLOCKS: PageLimit = PageLimit {
    rows_max: 64,
    bytes_max: 1 << 20,
};
/// Number of packed single rows and removed markers at which a step ends.
const SINGLES: u64 = 20_000;

impl TableFlush<'_> {
    /// Packs the single rows in the spans of the first blocks of a range.
    pub(crate) fn pack(mut self, range: &KeyRange) -> Result<PackStep> {
        // The step does not write the manifest row of the part.
        self.packer.keep_dictionaries();
        let mut step = PackStep::default();
        let mut from = range.start.clone();
        let page = self.blocks_from(&from)?;
        let may_have_more = page.next.is_some();
        let mut blocks: VecDeque<Row> = page.rows.into();
        let mut below = match blocks.is_empty() {
            true => None,
            false => self.below(&from)?,
        };
        while let Some(block) = blocks.pop_front() {
            let key = block.key.clone();
            let is_last = range.end.as_ref().is_some_and(|end| key[..] >= end[..]);
            let whole = KeyRange {
                start: below.as_ref().map_or(Vec::new(), |below: &Bytes| after(below)),
                end: Some(after(&key)),
            };
            let rest = self.pack_block(block, whole, &mut step)?;
            from = rest.unwrap_or_else(|| after(&key));
            if is_last || from.len() <= key.len() || step.rows + step.markers >= SINGLES {
                step.next = (!is_last || from[..] <= key[..]).then_some(from);
                return self.packed(step);
            }
            below = Some(key);
        }
        match may_have_more {
            true => step.next = Some(from),
            false => self.remove_last_markers(&from, range, &mut step)?,
        }
        self.packed(step)
    }

    fn packed(mut self, step: PackStep) -> Result<PackStep> {
        self.writer.finish()?;
        self.join_small()?;
        self.report_replaced();
        Ok(step)
    }

    /// Returns the blocks of one step, beginning with the block that can contain the key.
    fn blocks_from(&self, key: &[u8]) -> Result<tideline_backend::Page> {
        let range = KeyRange {
            start: key.to_vec(),
            end: None,
        };
        let found = self.blocks().scan(&range, Direction::Ascending, BLOCKS);
        found.map_err(|error| error.of(self.part.at.table))
    }

    fn below(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.blocks().before(key);
        found.map_err(|error| error.of(self.part.at.table))
    }

    /// Packs the single rows in the span of a block. Returns the key at which the rest begins if the single rows are
    /// too many for one merge.
    fn pack_block(
        &mut self,
        block: Row,
        mut range: KeyRange,
        step: &mut PackStep,
    ) -> Result<Option<Vec<u8>>> {
        let page = self.singles(&range, STEP)?;
        let is_packable = page.rows.iter().any(|row| packable_bytes(row) > 0);
        let markers = page
            .rows
            .iter()
            .filter(|row| codec::is_delete(&row.value))
            .count() as u64;
        if let Some(next) = &page.next {
            range.end = Some(next.start.clone());
        }
        let rest = page.next.map(|next| next.start);
        step.bytes_read += page
            .rows
            .iter()
            .map(|row| (row.key.len() + row.value.len()) as u64)
            .sum::<u64>();
        if !is_packable {
            return Ok(rest);
        }
        step.markers += markers;
        step.rows += page.rows.len() as u64 - markers;
        step.bytes_read += block.value.len() as u64;
        self.merge(
            Some(block),
            Merge {
                waiting: VecDeque::new(),
                singles: page.rows,
                range,
                is_whole: rest.is_none(),
            },
        )?;
        if rest.is_some() {
            // The next merge of this block must read it again.
            self.writer.finish()?;
        }
        Ok(rest)
    }

    /// Removes the delete markers above the last block. They hide no packed rows.
    fn remove_last_markers(&mut self, from: &[u8], range: &KeyRange, step: &mut PackStep) -> Result<()> {
        let rest = KeyRange {
            start: from.to_vec(),
            end: range.end.clone(),
        };
        if rest.is_empty() {
            return Ok(());
        }
        let limit = PageLimit {
            rows_max: SINGLES as usize,
            ..STEP
        };
        let page = self.singles(&rest, limit)?;
        for row in page.rows {
            step.bytes_read += (row.key.len() + row.value.len()) as u64;
            if codec::is_delete(&row.value) {
                step.markers += 1;
                self.writer.put_single(row.key, None)?;
            }
        }
        step.next = page.next.map(|next| next.start);
        Ok(())
    }
}
