//! Changed rows of a buffer. A flush takes them in key order, span by span.
//!
//! If a table has one part, all rows of the buffer belong to it, and are read in pages. For a divided table, the rows
//! are sorted by parts once, and the flush of each part gets its rows. In a table with column groups, each change is
//! restricted to one share.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tideline_backend::{Direction, PageLimit};
use tideline_model::KeyRange;

use crate::buffer::{Mutations, TableBuffer};
use crate::codec;
use crate::division::RECORD;
use crate::error::{Damage, Result as StoreResult, WideError};
use crate::groups::Share;
use crate::read::rest_of;
use crate::state::Part;
use crate::store::WideStore;
use crate::tables::TableRules;

/// Number of rows of a generation that are read at once.
const PAGE_ROWS: usize = 500;

/// Changed rows of a buffer that belong to one part, in key order.
pub(super) struct Changes<'b> {
    buffer: &'b TableBuffer,
    rows: VecDeque<(Bytes, Mutations)>,
    /// Range of the buffer that is not read yet.
    rest: Option<KeyRange>,
    /// Rows of the flushed part if the table has several parts. They are not restricted to the share yet.
    of_part: PartRows,
    /// Share to which the changes are restricted; `None` in a table without column groups.
    share: Option<ShareOf<'b>>,
}

/// Share of the rows of a part that is flushed.
#[derive(Clone, Copy)]
pub(super) struct ShareOf<'b> {
    pub(super) store: &'b WideStore,
    pub(super) rules: &'b TableRules,
    pub(super) part: Part,
    pub(super) share: Share,
}

impl ShareOf<'_> {
    /// Restricts the changes of rows to the share. Drops rows whose share does not change.
    fn cut(&self, rows: impl Iterator<Item = (Bytes, Mutations)>) -> StoreResult<PartRows> {
        let damaged = |reason| WideError::Damaged {
            table: self.part.at.table,
            reason,
        };
        let mut cut = PartRows::new();
        for (key, mutations) in rows {
            let mut changes = Mutations::new();
            for mutation in &mutations {
                let changed = self.rules.groups.cut(mutation, self.share);
                changes.extend(changed.map_err(damaged)?);
            }
            // Most rows without columns of a group have never had any, so there is nothing to delete.
            let is_delete = changes.len() == 1 && codec::is_delete(&changes[0]);
            let is_dropped =
                is_delete && self.share != Share::Main && self.store.stored_raw(&self.part, &key)?.is_none();
            if !changes.is_empty() && !is_dropped {
                cut.push_back((key, changes));
            }
        }
        Ok(cut)
    }
}

/// Changed rows of one of several parts, in key order.
pub(crate) type PartRows = VecDeque<(Bytes, Mutations)>;

/// Returns the changed rows of a buffer, grouped by the numbers of their parts.
///
/// # Errors
///
/// [`Damage`] if a key is damaged.
pub(crate) fn rows_by_part(
    buffer: &TableBuffer,
    rules: &TableRules,
) -> Result<BTreeMap<i32, PartRows>, Damage> {
    let mut parts: BTreeMap<i32, PartRows> = BTreeMap::new();
    buffer.each_row(&mut |key, mutations| {
        let number = rules.part_of(key.bytes())?;
        // Rows of dropped parts are not written.
        if rules.keeps(number) && number != RECORD {
            let rows = parts.entry(number).or_default();
            rows.push_back((key.to_bytes(), mutations.clone()));
        }
        Ok(())
    })?;
    Ok(parts)
}

/// Changed rows that were taken from the buffer.
pub(super) struct Waiting {
    pub(super) rows: VecDeque<(Bytes, Mutations)>,
    pub(super) bytes: usize,
    /// True if the limit was reached before the end of the requested keys.
    pub(super) is_cut: bool,
}

impl<'b> Changes<'b> {
    /// Creates the source of changed rows: `of_part`, or all rows of the buffer if it is `None`.
    pub(super) fn new(
        buffer: &'b TableBuffer,
        of_part: Option<PartRows>,
        share: Option<ShareOf<'b>>,
    ) -> Self {
        Self {
            buffer,
            rows: PartRows::new(),
            rest: of_part.is_none().then_some(KeyRange::ALL),
            of_part: of_part.unwrap_or_default(),
            share,
        }
    }

    /// Returns the next rows, not yet restricted to the share; empty at the end.
    fn next_rows(&mut self) -> PartRows {
        let Some(range) = self.rest.take() else {
            let count = PAGE_ROWS.min(self.of_part.len());
            return self.of_part.drain(..count).collect();
        };
        let rows = self.buffer.page(&range, Direction::Ascending, PAGE_ROWS);
        self.rest = match rows.last() {
            Some((last, _)) if rows.len() == PAGE_ROWS => rest_of(&range, last, Direction::Ascending),
            _ => None,
        };
        rows.into()
    }

    fn fill(&mut self) -> StoreResult<()> {
        while self.rows.is_empty() {
            let rows = self.next_rows();
            if rows.is_empty() {
                break;
            }
            self.rows = match &self.share {
                Some(share) => share.cut(rows.into_iter())?,
                None => rows,
            };
        }
        Ok(())
    }

    /// Returns the key of the next row; `None` at the end.
    pub(super) fn first(&mut self) -> StoreResult<Option<Bytes>> {
        self.fill()?;
        Ok(self.rows.front().map(|(key, _)| key.clone()))
    }

    /// Returns true if no row is left, or the next row is above the bound.
    pub(super) fn is_above(&mut self, upper: Option<&Bytes>) -> StoreResult<bool> {
        Ok(match (self.first()?, upper) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(first), Some(upper)) => first > *upper,
        })
    }

    /// Takes the next rows up to the key `upper`, inclusive, within a limit.
    pub(super) fn take(&mut self, upper: Option<&Bytes>, limit: PageLimit) -> StoreResult<Waiting> {
        let mut waiting = Waiting {
            rows: VecDeque::new(),
            bytes: 0,
            is_cut: false,
        };
        while !self.is_above(upper)? {
            if waiting.rows.len() >= limit.rows_max || waiting.bytes > limit.bytes_max {
                waiting.is_cut = true;
                break;
            }
            if let Some((key, changes)) = self.rows.pop_front() {
                waiting.bytes += key.len() + changes.iter().map(Bytes::len).sum::<usize>();
                waiting.rows.push_back((key, changes));
            }
        }
        Ok(waiting)
    }

    /// Puts taken rows back, from the last one on, as long as `is_back` returns true for their keys.
    pub(super) fn put_back(
        &mut self,
        taken: &mut VecDeque<(Bytes, Mutations)>,
        is_back: impl Fn(&[u8]) -> bool,
    ) {
        while let Some(row) = taken.pop_back_if(|(key, _)| is_back(key)) {
            self.rows.push_front(row);
        }
    }
}
