//! Rows of a closed part in the order of their keys, as whole blocks where possible.
//!
//! A closed part does not change: writes to it are refused, and it is not packed. Its blocks and its single rows can
//! therefore be read independently. In a table with column groups, each row is joined from several parts, so whole rows
//! are read instead of blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{Direction, Partition, Row};
use tideline_model::KeyRange;

use crate::block::Block;
use crate::blocks::BLOCKS_BUCKET;
use crate::error::{Damage, Result, WideError};
use crate::read::{ROWS_BUCKET, STEP_PAGE, Scope, StoredRow, resolve};
use crate::state::Part;
use crate::store::WideStore;
use crate::tables::TableRules;

/// Neighboring rows of a part.
pub(super) enum RowSpan {
    /// All rows of a block. No single row has a key in the span of the block.
    Block(Row),
    /// Rows that are not a whole block.
    Rows(Vec<StoredRow>),
}

/// Reads a closed part from its first row to its last.
pub(super) struct PartReader<'s> {
    store: &'s WideStore,
    part: Part,
    rules: Arc<TableRules>,
    blocks: Rest,
    singles: Rest,
    /// Rows of the current block that are not merged with single rows yet.
    packed: VecDeque<(Bytes, Bytes)>,
    /// Key up to which single rows precede the next block; `None` after the last block.
    until: Option<Bytes>,
    /// Range that was not read yet, for a table with column groups; `None` at the end.
    whole: Option<KeyRange>,
}

/// Blocks or single rows that were not returned yet.
struct Rest {
    from: Partition,
    read: VecDeque<Row>,
    /// Range that was not read from the backend yet.
    unread: Option<KeyRange>,
}

impl Rest {
    /// Returns the first row that was not returned yet.
    fn first(&mut self, store: &WideStore) -> Result<Option<&Row>> {
        while self.read.is_empty()
            && let Some(range) = self.unread.take()
        {
            store.log.check_lease()?;
            let backend = store.log.backend();
            let page = backend.scan(self.from, &range, Direction::Ascending, STEP_PAGE)?;
            self.read.extend(page.rows);
            self.unread = page.next;
        }
        Ok(self.read.front())
    }

    /// Returns the first row that was not returned yet, unless its key is above `until`.
    fn first_until(&mut self, store: &WideStore, until: Option<&Bytes>) -> Result<Option<&Row>> {
        let first = self.first(store)?;
        Ok(first.filter(|row| until.is_none_or(|until| row.key <= *until)))
    }
}

impl<'s> PartReader<'s> {
    pub(super) fn new(store: &'s WideStore, part: Part, rules: Arc<TableRules>) -> Self {
        let rest = |bucket, is_used: bool| Rest {
            from: Partition::part(part.at, bucket),
            read: VecDeque::new(),
            unread: is_used.then_some(KeyRange::ALL),
        };
        Self {
            store,
            part,
            rules,
            blocks: rest(BLOCKS_BUCKET, part.detail.has_blocks()),
            singles: rest(ROWS_BUCKET, true),
            packed: VecDeque::new(),
            until: Some(Bytes::new()),
            whole: Some(KeyRange::ALL),
        }
    }

    /// Returns the next rows; `None` after the last ones.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`] if stored bytes are damaged, and the errors of the backend and of the lease.
    pub(super) fn next(&mut self) -> Result<Option<RowSpan>> {
        if !self.rules.groups.is_empty() {
            return self.next_whole();
        }
        loop {
            let rows = self.merged()?;
            if !rows.is_empty() {
                return Ok(Some(RowSpan::Rows(rows)));
            }
            if self.until.is_none() {
                return Ok(None);
            }
            self.blocks.first(self.store)?;
            let Some(block) = self.blocks.read.pop_front() else {
                self.until = None;
                continue;
            };
            let is_alone = self.singles.first_until(self.store, Some(&block.key))?.is_none();
            self.until = Some(block.key.clone());
            if is_alone {
                return Ok(Some(RowSpan::Block(block)));
            }
            self.packed = self.packed_rows(&block)?.into();
        }
    }

    /// Returns the next rows of a table with column groups, with the columns of all groups; `None` after the last ones.
    fn next_whole(&mut self) -> Result<Option<RowSpan>> {
        let Some(range) = self.whole.take() else {
            return Ok(None);
        };
        let (table, number) = (self.part.at.table, self.part.number());
        let wanted = (&range, Direction::Ascending, STEP_PAGE);
        let page = self
            .store
            .stored_page(table, &self.rules, &(number..=number), Scope::All, wanted)?;
        self.whole = page.next;
        Ok(Some(RowSpan::Rows(page.rows)))
    }

    /// Returns the rows of a block in key order.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`] if the block is damaged.
    pub(super) fn rows_of(&self, block: &Row) -> Result<Vec<StoredRow>> {
        let mut rows = Vec::new();
        for (key, row) in self.packed_rows(block)? {
            rows.extend(self.resolved(key, row)?);
        }
        Ok(rows)
    }

    /// Opens a block of the part.
    ///
    /// # Errors
    ///
    /// [`WideError::Damaged`] if the block or a dictionary is damaged, and the errors of the backend.
    pub(super) fn open<'v>(&self, value: &'v [u8]) -> Result<Block<'v>> {
        let opened = self.store.blocks(self.part.at).open(value);
        opened.map_err(|error| error.of(self.part.at.table))
    }

    fn packed_rows(&self, block: &Row) -> Result<Vec<(Bytes, Bytes)>> {
        self.open(&block.value)?
            .all_rows()
            .map_err(|reason| self.damaged(reason))
    }

    /// Returns the next rows of the current block, merged with the single rows up to `until`; a single row hides a
    /// packed row. Returns about 1 MiB at most. Empty if no such rows are left.
    fn merged(&mut self) -> Result<Vec<StoredRow>> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < STEP_PAGE.rows_max && bytes <= STEP_PAGE.bytes_max {
            let single = self.singles.first_until(self.store, self.until.as_ref())?;
            let packed = self.packed.front();
            let is_packed_first = match (packed, single) {
                (None, None) => break,
                (Some((key, _)), Some(single)) => *key < single.key,
                (packed, _) => packed.is_some(),
            };
            let (key, row) = match is_packed_first {
                true => self.packed.pop_front().map(|(key, row)| (key, Some(row))),
                false => self.single()?,
            }
            .unwrap_or_default();
            if let Some(row) = row {
                bytes += key.len() + row.len();
                rows.extend(self.resolved(key, row)?);
            }
        }
        Ok(rows)
    }

    /// Removes the first single row, and the packed row that it hides. Returns the key of the single row, and the row.
    /// The row of a delete marker has the effect *delete*.
    fn single(&mut self) -> Result<Option<(Bytes, Option<Bytes>)>> {
        let Some(Row { key, value }) = self.singles.read.pop_front() else {
            return Ok(None);
        };
        self.packed.pop_front_if(|(packed, _)| *packed == key);
        let row = self.store.joined(&self.part, &key, value)?;
        Ok(Some((key, row)))
    }

    fn resolved(&self, key: Bytes, row: Bytes) -> Result<Option<StoredRow>> {
        let row = resolve(None, &[row], self.rules.versions_max).map_err(|reason| self.damaged(reason))?;
        Ok(row.map(|row| StoredRow::new(key, row)))
    }

    /// Returns a row with the contents of its cut values, as if they were stored with it. The part is closed, so no
    /// value of its rows is removed meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`WideStore::whole`].
    pub(super) fn whole(&self, row: StoredRow) -> Result<StoredRow> {
        let (table, unchanged) = (self.part.at.table, row.clone());
        let whole = self
            .store
            .whole(table, row, &|_| true, &mut || Ok(Some(unchanged.clone())))?;
        Ok(whole.map_or(unchanged, StoredRow::flattened))
    }

    /// Returns the error of damaged bytes of the part.
    pub(super) fn damaged(&self, reason: Damage) -> WideError {
        WideError::Damaged {
            table: self.part.at.table,
            reason,
        }
    }
}
