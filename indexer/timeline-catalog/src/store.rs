//! The catalog's rows in the backend: load, save, edit, remove.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{
    Backend, Direction, KeyRange, PageLimit, Partition, RowChange, Stamp, WRITE_BYTES_MAX, WRITE_ROWS_MAX,
};
use tideline_key_codec::{catalog_key, catalog_partition, parse_catalog_key, space, table_rows};
use tideline_model::{Ordinal, TableId};

use crate::attributes::{self, AttributeValue, Attributes};
use crate::catalog::{Catalog, CatalogOptions};
use crate::row::Row;
use crate::state::{Edited, Stage};
use crate::{CatalogError, Result};

/// Rows that one save encodes before it writes them: what bounds its memory.
const SAVE_ROWS_MAX: usize = 16 * WRITE_ROWS_MAX;

impl Catalog {
    /// Reads all rows of a table. The journal's timelines follow through [`Catalog::adopt`].
    pub fn load(backend: &dyn Backend, table: TableId, options: CatalogOptions) -> Result<Self> {
        let catalog = Self::new(table, options);
        let mut state = catalog.state.write();
        each_row(backend, table, backend.capabilities().page_advice, &mut |rows| {
            for stored in rows {
                let key = parse_catalog_key(&stored.key);
                let (_, id) = key.ok_or(CatalogError::DamagedKey(stored.key.len()))?;
                let row = Row::decode(id, &stored.value)?;
                state.insert(id, row.ordinal, row.measurement, row.tags.iter().copied())?;
                state.set_loaded(row.ordinal, row.edit, row.attributes);
            }
            Ok(())
        })?;
        drop(state);
        Ok(catalog)
    }

    /// Writes the rows of all timelines announced so far; on return they are durable.
    ///
    /// Must be done before the journal forgets the deltas that carried them. After an error the rest stays
    /// unsaved, and the call may be repeated.
    pub fn save(&self, backend: &dyn Backend, stamp: &mut dyn FnMut() -> Stamp) -> Result<()> {
        let _writing = self.writing.lock();
        loop {
            let taken: Vec<Ordinal> = {
                let mut state = self.state.write();
                let count = state.unsaved.len().min(SAVE_ROWS_MAX);
                state.unsaved.drain(..count).collect()
            };
            if taken.is_empty() {
                return Ok(());
            }
            let written = self.write_rows(backend, &taken, stamp);
            let mut state = self.state.write();
            if written.is_ok() {
                taken.iter().for_each(|ordinal| state.set_saved(*ordinal, true));
            } else {
                state.unsaved.extend(taken);
            }
            drop(state);
            written?;
        }
    }

    /// Encodes and writes the rows of timelines, in key order, in writes within the backend's limits.
    fn write_rows(
        &self,
        backend: &dyn Backend,
        ordinals: &[Ordinal],
        stamp: &mut dyn FnMut() -> Stamp,
    ) -> Result<()> {
        let mut changes: Vec<(Partition, RowChange)> = {
            let state = self.state.read();
            let unsaved = ordinals
                .iter()
                .filter(|ordinal| state.stage(**ordinal) == Stage::Announced);
            let change = |ordinal: &Ordinal| {
                let id = state.id(*ordinal);
                let key = Bytes::copy_from_slice(&catalog_key(self.table, id));
                let value = Some(state.row(*ordinal).encode(id).into());
                (catalog_partition(id), RowChange { key, value })
            };
            unsaved.map(change).collect()
        };
        changes.sort_unstable_by(|(a, left), (b, right)| (a, &left.key).cmp(&(b, &right.key)));
        let mut batch: Vec<RowChange> = Vec::new();
        let mut batch_bytes = 0;
        let mut rest = changes.into_iter().peekable();
        while let Some((partition, change)) = rest.next() {
            batch_bytes += bytes_of(&change);
            batch.push(change);
            let complete = rest.peek().is_none_or(|(other, next)| {
                *other != partition
                    || batch.len() == WRITE_ROWS_MAX
                    || batch_bytes + bytes_of(next) > WRITE_BYTES_MAX
            });
            if complete {
                backend.write(partition, &batch, stamp())?;
                batch.clear();
                batch_bytes = 0;
            }
        }
        Ok(())
    }

    /// Changes attributes of a visible timeline and returns all it has then; durable and visible on return.
    ///
    /// `Some` sets, `None` removes, keys that are not named stay. The row is written at once, so a timeline
    /// that was not yet saved is now. After a backend error the edit is not visible; whether it is after a
    /// restart depends on the error's kind.
    pub fn set_attributes(
        &self,
        backend: &dyn Backend,
        ordinal: Ordinal,
        changes: &BTreeMap<String, Option<AttributeValue>>,
        stamp: &mut dyn FnMut() -> Stamp,
    ) -> Result<Attributes> {
        let _writing = self.writing.lock();
        let (edited, id, value) = {
            let state = self.state.read();
            if !state.visible.contains(ordinal.0) {
                return Err(CatalogError::UnknownTimeline(ordinal));
            }
            let mut row = state.row(ordinal);
            attributes::apply(&mut row.attributes, changes)?;
            row.edit = state.edits.newest + 1;
            let id = state.id(ordinal);
            let value = row.encode(id);
            let edited = Edited {
                number: row.edit,
                attributes: row.attributes,
            };
            (edited, id, value)
        };
        let change = RowChange {
            key: Bytes::copy_from_slice(&catalog_key(self.table, id)),
            value: Some(value.into()),
        };
        let written = backend.write(catalog_partition(id), &[change], stamp());
        let mut state = self.state.write();
        state.edits.newest = edited.number;
        if let Err(error) = written {
            state.edits.in_doubt.insert(edited.number, ordinal);
            state.set_saved(ordinal, false);
            return Err(error.into());
        }
        let all = edited.attributes.clone();
        state.edits.set(ordinal, edited);
        state.set_saved(ordinal, true);
        Ok(all)
    }

    /// Deletes all rows of a dropped table. May be repeated; nobody may save to the table any more.
    pub fn remove_all(backend: &dyn Backend, table: TableId, stamp: &mut dyn FnMut() -> Stamp) -> Result<()> {
        let page = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX / 2,
        };
        let (partition, _) = table_rows(space::CATALOG, table);
        each_row(backend, table, page, &mut |rows| {
            let delete = |row: tideline_backend::Row| RowChange {
                key: row.key,
                value: None,
            };
            let changes: Vec<RowChange> = rows.into_iter().map(delete).collect();
            Ok(backend.write(partition, &changes, stamp())?)
        })
    }
}

/// Hands all rows of a table to `visit`, page by page; never an empty page.
fn each_row(
    backend: &dyn Backend,
    table: TableId,
    limit: PageLimit,
    visit: &mut dyn FnMut(Vec<tideline_backend::Row>) -> Result<()>,
) -> Result<()> {
    let (partition, range) = table_rows(space::CATALOG, table);
    let mut next: Option<KeyRange> = Some(range);
    while let Some(range) = next {
        let page = backend.scan(partition, &range, Direction::Ascending, limit)?;
        if !page.rows.is_empty() {
            visit(page.rows)?;
        }
        next = page.next;
    }
    Ok(())
}

fn bytes_of(change: &RowChange) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests;
