//! The catalog's rows in the backend: load, save, remove.

use bytes::Bytes;
use roaring::RoaringBitmap;
use tideline_backend::{
    Backend, Direction, KeyRange, PageLimit, Partition, RowChange, Space, Stamp, WRITE_BYTES_MAX,
    WRITE_ROWS_MAX,
};
use tideline_key_codec::{catalog_key, catalog_partition, parse_catalog_key, space, table_rows};
use tideline_model::{Durability, Ordinal, TableId};

use crate::catalog::{Catalog, CatalogOptions};
use crate::metadata::MetadataOfMetrics;
use crate::row::Row;
use crate::searches::SavedSearches;
use crate::state::State;
use crate::{CatalogError, Result};

/// Rows that one save encodes before it writes them: what bounds its memory.
const SAVE_ROWS_MAX: usize = 16 * WRITE_ROWS_MAX;

impl Catalog {
    /// Reads all rows of a table. The journal's timelines follow through [`Catalog::adopt`].
    pub fn load(backend: &dyn Backend, table: TableId, options: CatalogOptions) -> Result<Self> {
        let catalog = Self::new(table, options);
        let mut state = catalog.state.write();
        let page = backend.capabilities().page_advice;
        each_row(backend, space::CATALOG, table, page, &mut |rows| {
            for stored in rows {
                let key = parse_catalog_key(&stored.key);
                let (_, id) = key.ok_or(CatalogError::DamagedKey(stored.key.len()))?;
                let row = Row::decode(id, &stored.value)?;
                state.insert(id, row.ordinal, row.measurement, row.tags.iter().copied())?;
                state.set_loaded(row.ordinal, row.edit, &row.attributes)?;
            }
            Ok(())
        })?;
        state.edits.loaded();
        drop(state);
        catalog.searches.load(backend)?;
        catalog.metadata.load(backend)?;
        Ok(catalog)
    }

    /// Writes the rows of all timelines announced and of all changes committed, and deletes those of all timelines removed
    /// so far; on return that is durable.
    ///
    /// Must be done before the journal forgets the entries that carried them. After an error the rest stays
    /// unsaved, and the call may be repeated.
    pub fn save(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        let _writing = self.writing.lock();
        self.save_rows(backend, stamp, |state| &state.unsaved | &state.outdated)?;
        self.searches.save(backend, stamp)?;
        self.metadata.save(backend, stamp)
    }

    /// As [`save`](Self::save), but only for timelines that were removed: their rows are deleted, or overwritten for
    /// those that have come back.
    ///
    /// Must be done before a removal is answered: a row that is found beside the journal of its removal is then known
    /// to be of after it.
    pub fn save_removals(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        let _writing = self.writing.lock();
        self.save_rows(backend, stamp, |state| state.outdated.clone())
    }

    /// Writes the rows of what waits now. The caller holds `writing`.
    fn save_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
        waiting: impl FnOnce(&State) -> RoaringBitmap,
    ) -> Result<()> {
        let waiting = waiting(&self.state.read());
        let mut waiting = waiting.iter().map(Ordinal);
        loop {
            self.state.write().changed_meanwhile.clear();
            let changes = self.changes(&self.state.read(), waiting.by_ref().take(SAVE_ROWS_MAX));
            if changes.is_empty() {
                return Ok(());
            }
            write_rows(backend, &changes, stamp)?;
            let mut state = self.state.write();
            for change in &changes {
                // What was removed or edited while its row was written stays as it is, for the next save: that comes before
                // the journal forgets the removal or the edit.
                if state.changed_meanwhile.contains(change.ordinal.0) {
                    continue;
                }
                match &change.row.value {
                    Some(_) => state.set_saved(change.ordinal),
                    None => state.set_row_deleted(change.ordinal),
                }
            }
        }
    }

    /// What makes the rows of timelines say what memory says, in key order.
    fn changes(&self, state: &State, ordinals: impl Iterator<Item = Ordinal>) -> Vec<Change> {
        let change = |ordinal: Ordinal| {
            let id = state.id(ordinal);
            let visible = state.visible.contains(ordinal.0);
            let row = RowChange {
                key: Bytes::copy_from_slice(&catalog_key(self.table, id)),
                value: visible.then(|| state.row(ordinal).encode(id).into()),
            };
            let partition = catalog_partition(id);
            Change {
                ordinal,
                partition,
                row,
            }
        };
        let mut changes: Vec<Change> = ordinals.map(change).collect();
        changes.sort_unstable_by(|a, b| (a.partition, &a.row.key).cmp(&(b.partition, &b.row.key)));
        changes
    }

    /// Deletes all rows of a dropped table, saved searches and what is said of metrics too. May be repeated; nobody may
    /// save to the table any more.
    pub fn remove_all(
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        remove_rows(backend, space::CATALOG, table, stamp)?;
        SavedSearches::remove_all(backend, table, stamp)?;
        MetadataOfMetrics::remove_all(backend, table, stamp)
    }
}

/// What becomes of one timeline's row.
pub(crate) struct Change {
    pub(crate) ordinal: Ordinal,
    pub(crate) partition: Partition,
    pub(crate) row: RowChange,
}

/// Writes changes, which are in key order, within the backend's limits.
pub(crate) fn write_rows(
    backend: &dyn Backend,
    changes: &[Change],
    stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
) -> Result<()> {
    let mut batch: Vec<RowChange> = Vec::new();
    let mut batch_bytes = 0;
    let mut rest = changes.iter().peekable();
    while let Some(change) = rest.next() {
        batch_bytes += bytes_of(&change.row);
        batch.push(change.row.clone());
        let complete = rest.peek().is_none_or(|next| {
            next.partition != change.partition
                || batch.len() == WRITE_ROWS_MAX
                || batch_bytes + bytes_of(&next.row) > WRITE_BYTES_MAX
        });
        if complete {
            backend.write(change.partition, &batch, stamp()?, Durability::Synced)?;
            batch.clear();
            batch_bytes = 0;
        }
    }
    Ok(())
}

/// A page that can be deleted in one write.
pub(crate) const ROWS_AT_ONCE: PageLimit = PageLimit {
    rows_max: WRITE_ROWS_MAX,
    bytes_max: WRITE_BYTES_MAX / 2,
};

/// Deletes all rows of a table in a key space. May be repeated.
pub(crate) fn remove_rows(
    backend: &dyn Backend,
    space: Space,
    table: TableId,
    stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
) -> Result<()> {
    let (partition, _) = table_rows(space, table);
    each_row(backend, space, table, ROWS_AT_ONCE, &mut |rows| {
        let delete = |row: tideline_backend::Row| RowChange {
            key: row.key,
            value: None,
        };
        let changes: Vec<RowChange> = rows.into_iter().map(delete).collect();
        Ok(backend.write(partition, &changes, stamp()?, Durability::Synced)?)
    })
}

/// Hands all rows of a table in a key space to `visit`, page by page; never an empty page.
pub(crate) fn each_row(
    backend: &dyn Backend,
    space: Space,
    table: TableId,
    limit: PageLimit,
    visit: &mut dyn FnMut(Vec<tideline_backend::Row>) -> Result<()>,
) -> Result<()> {
    let (partition, range) = table_rows(space, table);
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
