//! Garbage collection of large values that no row references: overwritten, deleted, expired and abandoned values.
//!
//! The collection reads the headers of a table. It removes a value if all of these checks succeed, in this order:
//!
//! 1. The value is not being uploaded.
//! 2. No version of any column of its row references it, whether the row has expired or not. This includes versions
//!    that exceed the number of versions per column: they are stored until a flush rewrites the row, and become visible
//!    again if the number is raised. If buffered rows have such versions, and the buffer has changes of the table that
//!    are old enough, the collection flushes it once. The flush covers all tables, so it must not follow each change.
//! 3. The state in which the row was read is durable. Otherwise, a power failure could restore the earlier row.
//! 4. No reader uses it.
//!
//! The order matters: an upload that ends between checks 1 and 2 has written its row before check 2.
//!
//! The collection also removes the pieces of values that are in the files of an archived part. A restore of this part
//! stores them again, so they are not removed while it runs.

use std::sync::Arc;

use tideline_backend::{Direction, PageLimit, RowChange, WRITE_ROWS_MAX};
use tideline_log::LogThreads;
use tideline_model::{Durability, KeyRange, TableId};

use super::{HEADER, Header, LargeValue, header_key, named_in, partition, piece_key, pieces_of};
use crate::division::{ALL_PARTS, RECORD};
use crate::error::{Damage, Result, WideError};
use crate::read::StoredRow;
use crate::state::Part;
use crate::store::WideStore;
use crate::tables::TableRules;

/// Maximum number and size of the headers of a step.
const STEP: PageLimit = PageLimit {
    rows_max: 500,
    bytes_max: 1 << 20,
};

/// Maximum number of pieces of a value that is removed together with other values.
const SMALL_PIECES: u32 = 16;
/// Maximum number of small values that are removed in one write, which must have room for their pieces and headers.
const BATCH_VALUES: usize = WRITE_ROWS_MAX / (SMALL_PIECES as usize + 1);

/// Position of a garbage collection: the part, and the id of the value at which the next step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcPosition {
    part: i32,
    id: u64,
    /// True if the collection has flushed the row buffer. It does so at most once.
    has_flushed: bool,
}

/// Result of one step of a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GcStep {
    /// Number of checked values that rows reference.
    pub values: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Number of values that were removed.
    pub removed: u64,
    /// Bytes of headers and rows that were read.
    pub bytes_read: u64,
    /// Position of the next step; `None` at the end.
    pub next: Option<GcPosition>,
}

impl GcStep {
    fn keep(&mut self, large: &LargeValue) {
        self.values += 1;
        self.bytes += large.bytes;
    }
}

/// References of a row to a large value.
enum Named {
    /// A visible or a stored version references the value.
    Kept(LargeValue),
    /// Only versions beyond `max_versions` of a row in the row buffer reference the value. A flush of the row removes
    /// these versions.
    Surplus(LargeValue),
    /// No version references the value.
    Not,
}

impl WideStore {
    /// Returns true if large values were ever written to the table.
    pub fn has_large(&self, table: TableId) -> bool {
        let rules = self.rules(table);
        rules.is_ok_and(|rules| rules.large_values.is_some())
    }

    /// Checks up to 500 large values of a table, beginning at `from`, and removes the values that no row references. If
    /// `from` is `None`, begins at the first value. If only surplus versions of buffered rows reference a value, flushes
    /// the row buffer, at most once per collection, and only if it has changes of the table that are at least as old as
    /// [`Settings::surplus_age_min`](crate::Settings::surplus_age_min).
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and the errors of the log and the backend.
    pub fn gc_large_values(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        from: Option<GcPosition>,
    ) -> Result<GcStep> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let rules = self.rules(table)?;
        let mut step = GcStep::default();
        let Some(space) = rules.large_values else {
            return Ok(step);
        };
        let (first, id) = from.map_or((i32::MIN, 0), |from| (from.part, from.id));
        let mut has_flushed = from.is_some_and(|from| from.has_flushed);
        let state = self.state();
        let oldest = state.buffers(table).last().map(|buffer| buffer.age());
        let may_flush = !has_flushed && oldest.is_some_and(|age| age >= self.settings.surplus_age_min);
        let mut parts = state
            .parts_of(space, first..=*ALL_PARTS.end())
            .filter(|part| part.number() != RECORD && rules.keeps(part.number()));
        let Some(part) = parts.next().copied() else {
            return Ok(step);
        };
        let mut range = KeyRange::prefix(&[HEADER]);
        if part.number() == first {
            range.start = header_key(id).to_vec();
        }
        let backend = self.log.backend();
        self.log.check_lease()?;
        let page = backend.scan(partition(part.at), &range, Direction::Ascending, STEP)?;
        let next = match page.next.and(page.rows.last()) {
            Some(last) => Some((
                part.number(),
                id_of(&last.key).map_err(damaged)?.saturating_add(1),
            )),
            None => parts.next().map(|part| (part.number(), 0)),
        };
        let of_rows = state.parts.get(&(table, part.number()));
        let (mut unnamed, mut surplus, mut archived) = (Vec::new(), Vec::new(), Vec::new());
        for row in page.rows {
            step.bytes_read += (row.key.len() + row.value.len()) as u64;
            let id = id_of(&row.key).map_err(damaged)?;
            if self.large.is_used(id) {
                continue;
            }
            if let Some(of_rows) = of_rows
                && self.is_value_archived(of_rows, id)?
            {
                archived.push(id);
                continue;
            }
            let header = Header::decode(&row.value).map_err(damaged)?;
            match self.named_by(table, &rules, (id, &header.key[..]), &mut step)? {
                Named::Kept(large) => step.keep(&large),
                Named::Surplus(_) if may_flush => surplus.push((id, header.key)),
                Named::Surplus(large) => step.keep(&large),
                Named::Not => unnamed.push(id),
            }
        }
        if !surplus.is_empty() {
            has_flushed = true;
            threads.flush()?;
        }
        for (id, key) in surplus {
            match self.named_by(table, &rules, (id, &key[..]), &mut step)? {
                Named::Kept(large) | Named::Surplus(large) => step.keep(&large),
                Named::Not => unnamed.push(id),
            }
        }
        step.next = next.map(|(part, id)| GcPosition {
            part,
            id,
            has_flushed,
        });
        if !unnamed.is_empty() {
            self.settle_writes(threads, table)?;
            step.removed = self.remove_unnamed(part, &unnamed)?;
        }
        if !archived.is_empty() {
            step.removed += self.remove_archived((table, part), &archived)?;
        }
        Ok(step)
    }

    /// Removes the pieces of values that are in the files of an archived part, unless the part was restored meanwhile
    /// or is being restored. Returns the number of removed values.
    fn remove_archived(&self, (table, part): (TableId, Part), archived: &[u64]) -> Result<u64> {
        let of_rows = (table, part.number());
        // Held until the end, so that no restore begins meanwhile.
        let restoring = self.large.restoring.lock();
        let is_archived = self.has_archived_values(table, part.number());
        match is_archived && !restoring.contains(&of_rows) {
            true => self.remove_unnamed(part, archived),
            false => Ok(0),
        }
    }

    /// Returns which versions of a row reference a value.
    fn named_by(
        &self,
        table: TableId,
        rules: &TableRules,
        (id, key): (u64, &[u8]),
        step: &mut GcStep,
    ) -> Result<Named> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let find = |row: &StoredRow| -> Result<Option<LargeValue>> {
            let columns = row.columns().map_err(damaged)?;
            let found = named_in(&columns).find(|large| large.id == id);
            Ok(found)
        };
        let Some(all) = self.row_with_all_versions(table, rules, key)? else {
            return Ok(Named::Not);
        };
        step.bytes_read += all.bytes() as u64;
        let Some(large) = find(&all)? else {
            return Ok(Named::Not);
        };
        // A flush removes surplus versions only from rows that it rewrites.
        if !self.state().is_buffered(table, key) {
            return Ok(Named::Kept(large));
        }
        let is_visible = match self.row_at(table, rules, key)?.0 {
            Some(row) => find(&row)?.is_some(),
            None => false,
        };
        Ok(match is_visible {
            true => Named::Kept(large),
            false => Named::Surplus(large),
        })
    }

    /// Removes values that no row needs, except values that are being read. Returns the number of removed values.
    /// Small values are removed in batches. Large values are removed as ranges, because the storage engine can free the
    /// files of a range as a whole.
    fn remove_unnamed(&self, part: Part, unnamed: &[u64]) -> Result<u64> {
        let mut removed = 0;
        let mut batch = Vec::new();
        for id in unnamed {
            if !self.large.begin_removal(*id) {
                continue;
            }
            let marked = Marked { store: self, id: *id };
            removed += 1;
            let pieces = self.stored_pieces(part, *id)?;
            if pieces > SMALL_PIECES {
                self.remove_large(part, *id)?;
                continue;
            }
            batch.push((marked, pieces));
            if batch.len() == BATCH_VALUES {
                self.remove_small(part, &batch)?;
                batch.clear();
            }
        }
        self.remove_small(part, &batch)?;
        Ok(removed)
    }

    /// Returns the number of stored pieces of a value.
    fn stored_pieces(&self, part: Part, id: u64) -> Result<u32> {
        let last = PageLimit {
            rows_max: 1,
            bytes_max: 1,
        };
        let backend = self.log.backend();
        let page = backend.scan(partition(part.at), &pieces_of(id), Direction::Descending, last)?;
        let Some(row) = page.rows.first() else {
            return Ok(0);
        };
        let number = row.key.last_chunk().map(|number| u32::from_be_bytes(*number));
        // A key that is too short is not the key of a piece. With `u32::MAX`, the whole range is removed.
        Ok(number.map_or(u32::MAX, |number| number.saturating_add(1)))
    }

    /// Removes small values in one write.
    fn remove_small(&self, part: Part, values: &[(Marked<'_>, u32)]) -> Result<()> {
        let delete = |key| RowChange { key, value: None };
        let of_value = |(marked, pieces): &(Marked<'_>, u32)| {
            let id = marked.id;
            let pieces = (0..*pieces).map(move |piece| piece_key(id, piece));
            pieces.chain([header_key(id)]).map(delete).collect::<Vec<_>>()
        };
        let changes: Vec<RowChange> = values.iter().flat_map(of_value).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let _writes = self.large.writes.lock();
        let stamp = self.log.stamps().next()?;
        let backend = self.log.backend();
        Ok(backend.write(partition(part.at), &changes, stamp, Durability::Synced)?)
    }
}

/// Guard of a value that is marked as being removed. The mark ends when the guard is dropped.
struct Marked<'s> {
    store: &'s WideStore,
    id: u64,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.store.large.end(self.id);
    }
}

/// Returns the id in the key of a header.
fn id_of(key: &[u8]) -> std::result::Result<u64, Damage> {
    let id = key.get(1..).and_then(<[u8]>::first_chunk);
    let id = id.ok_or(Damage("the key of a header of a large value is cut off"))?;
    Ok(u64::from_be_bytes(*id))
}
