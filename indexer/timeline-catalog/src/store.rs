//! The catalog's rows in the backend: loading, writing and removing.
//!
//! A catalog is loaded completely before its database serves requests. On a backend with several requests in flight, a
//! thread therefore reads many ranges at once, ahead of the thread that adds the timelines.
//!
//! A flush writes rows without a sync; the caller of the flush syncs them. Bitmaps in `State` record which rows may
//! differ from memory. A timeline that changes while its row is being written stays recorded.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;
use roaring::RoaringBitmap;
use tideline_backend::{
    Backend, Direction, KeyRange, PageLimit, Partition, RowChange, ScanRange, Space, Stamp, WRITE_BYTES_MAX,
    WRITE_ROWS_MAX,
};
use tideline_key_codec::{
    catalog_key, catalog_partition, parse_catalog_key, parse_named_key, space, split_catalog_rows, table_rows,
};
use tideline_model::{Durability, Ordinal, TableId};

use crate::ahead::TimelinesAhead;
use crate::catalog::{Catalog, CatalogOptions};
use crate::change_log::ChangeLog;
use crate::row::Row;
use crate::state::State;
use crate::{CatalogError, Result};

/// Maximum number of rows that are encoded before they are written; bounds the memory.
const SAVE_ROWS_MAX: usize = 16 * WRITE_ROWS_MAX;
/// Maximum number of ranges that a load reads at once. With pages of 1 MiB, each group of pages takes at most 16 MiB, and
/// at most three groups are in memory.
const RANGES_MAX: u8 = 16;
/// Key spaces of the rows of a catalog. The timelines come first, because only their removal is recorded.
const SPACES: [Space; 3] = [space::CATALOG, space::SEARCHES, space::METADATA];

impl Catalog {
    /// Loads all rows of a table. Timelines that only the journal holds are added later by [`Catalog::adopt`].
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if the backend cannot be read; [`CatalogError::DamagedKey`],
    /// [`CatalogError::DamagedRow`], [`CatalogError::DamagedSearch`] or [`CatalogError::Conflict`] for a damaged row;
    /// [`CatalogError::Full`] if a 32-bit number space is exhausted.
    pub fn load(backend: &dyn Backend, table: TableId, options: CatalogOptions) -> Result<Self> {
        let catalog = Self::new(table, options);
        catalog.load_timelines(backend)?;
        catalog.load_settings(backend)?;
        Ok(catalog)
    }

    /// Loads a table like [`load`](Self::load), but takes its timelines from `ahead`, which must be
    /// [complete](TimelinesAhead::complete). After the replay of the journal and before the first write of rows, call
    /// [`doubt_rows`](Self::doubt_rows) with the timelines of [`TimelinesAhead::in_doubt`].
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if the backend cannot be read; [`CatalogError::DamagedSearch`] for a damaged row.
    pub fn load_ahead(
        backend: &dyn Backend,
        table: TableId,
        options: CatalogOptions,
        ahead: &mut TimelinesAhead,
    ) -> Result<Self> {
        let catalog = Self::new(table, options);
        if let Some(loaded) = ahead.take(table) {
            catalog.state.write().take_loaded(loaded);
        }
        catalog.load_settings(backend)?;
        Ok(catalog)
    }

    fn load_timelines(&self, backend: &dyn Backend) -> Result<()> {
        let mut state = self.state.write();
        let page = backend.capabilities().page_advice;
        each_catalog_row(backend, self.table, page, &mut |rows| {
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
        Ok(())
    }

    fn load_settings(&self, backend: &dyn Backend) -> Result<()> {
        self.searches.load(backend)?;
        self.metadata.load(backend)
    }

    /// Writes the rows that may differ from memory: rows of visible timelines, saved searches and metadata of metrics.
    /// Deletes the rows of removed timelines. The writes are not synced: call [`rows_synced`](Self::rows_synced) after
    /// a sync. If the budget of raw keys was used up, frees the older half of the raw key cache.
    ///
    /// Must be completed and synced before the journal discards the entries that carried the changes. Without
    /// `rows_synced`, the next call writes the same rows again.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if `stamp` or a write fails.
    pub fn write_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        let freed = self.state.write().raw_keys.give_way();
        drop(freed);
        let mut writing = self.writing.lock();
        if self.is_dropped.load(Ordering::Relaxed) {
            return Ok(());
        }
        *writing = WrittenRows::default();
        writing.timelines = self.write_timelines(backend, stamp, Durability::Buffered, |state| {
            &state.unsaved | &state.outdated
        })?;
        if let Some(log) = self.change_log.get() {
            log.all_written(backend, self.table, stamp)?;
        }
        writing.searches = self.searches.write_rows(backend, stamp)?;
        writing.metrics = self.metadata.write_rows(backend, stamp)?;
        Ok(())
    }

    /// Marks the rows of the last [`write_rows`](Self::write_rows) as durable.
    pub fn rows_synced(&self) {
        let mut writing = self.writing.lock();
        let WrittenRows {
            timelines,
            searches,
            metrics,
        } = std::mem::take(&mut *writing);
        self.timelines_synced(&timelines);
        self.searches.rows_synced(&searches);
        self.metadata.rows_synced(&metrics);
    }

    /// Deletes the rows of removed timelines. If a timeline has become visible again, its row is overwritten instead.
    /// The changes are durable on return.
    ///
    /// Must be completed before a removal is acknowledged. If the journal contains an acknowledged removal of a
    /// timeline that also has a row, the row was therefore written after the removal.
    /// [`remove_replayed`](Self::remove_replayed) relies on this.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if `stamp` or a write fails.
    pub fn save_removals(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        let mut writing = self.writing.lock();
        if self.is_dropped.load(Ordering::Relaxed) {
            return Ok(());
        }
        let written = self.write_timelines(backend, stamp, Durability::Synced, |state| {
            // A flush that is not synced yet may have written older rows of these timelines. `rows_synced` must not
            // mark those older rows as durable, even if the writes below fail.
            writing.timelines.forget(&state.outdated);
            state.outdated.clone()
        })?;
        self.timelines_synced(&written);
        Ok(())
    }

    /// Writes or deletes the rows of the timelines that `waiting` selects. The caller holds `writing`.
    fn write_timelines(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
        durability: Durability,
        waiting: impl FnOnce(&State) -> RoaringBitmap,
    ) -> Result<WrittenTimelines> {
        let mut written = WrittenTimelines::default();
        let waiting = {
            let mut state = self.state.write();
            let waiting = waiting(&state);
            state.changed_meanwhile -= &waiting;
            waiting
        };
        let mut waiting = waiting.iter().map(Ordinal);
        loop {
            let changes = self.changes(&self.state.read(), waiting.by_ref().take(SAVE_ROWS_MAX));
            if changes.is_empty() {
                return Ok(written);
            }
            let log = self.change_log.get();
            let recorded = log.map(|log| log.record(backend, self.table, &changes, stamp));
            let recorded = recorded.transpose()?;
            write_changes(backend, &changes, stamp, durability)?;
            if let (Some(log), Some(recorded)) = (log, &recorded) {
                log.written(recorded);
            }
            for change in &changes {
                let rows = match &change.row.value {
                    Some(_) => &mut written.rows,
                    None => &mut written.deleted,
                };
                rows.insert(change.ordinal.0);
            }
        }
    }

    /// Marks rows of timelines as durable. Timelines that were removed or edited since their rows were read stay
    /// unsaved. The next write includes them, before the journal discards the removal or edit.
    fn timelines_synced(&self, written: &WrittenTimelines) {
        let mut state = self.state.write();
        for ordinal in &written.rows - &state.changed_meanwhile {
            state.set_saved(Ordinal(ordinal));
        }
        for ordinal in &written.deleted - &state.changed_meanwhile {
            state.set_row_deleted(Ordinal(ordinal));
        }
    }

    /// Returns the row changes that bring the rows of timelines up to date, in key order.
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

    /// Deletes all rows of this catalog, whose table was dropped. Waits for a running write of rows. Later calls of
    /// [`write_rows`](Self::write_rows) and [`save_removals`](Self::save_removals) do nothing. May be repeated.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if `stamp` or a write fails.
    pub fn drop_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        {
            // A flush that writes rows after their removal would leave them for ever. The lock is not held during the
            // removal, which may take seconds, so that a flush does not wait for it.
            let _writing = self.writing.lock();
            self.is_dropped.store(true, Ordering::Relaxed);
        }
        let off = ChangeLog::default();
        let log = self.change_log.get().map_or(&off, |log| &**log);
        Self::remove_all(backend, self.table, log, stamp)
    }

    /// Deletes all rows of a dropped table, including saved searches and metadata of metrics. May be repeated. No catalog
    /// of the table may write rows; if there is a catalog, call [`drop_rows`](Self::drop_rows) instead.
    ///
    /// The number of requests does not depend on the number of rows if the backend deletes a range at once.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if `stamp` or a write fails.
    pub fn remove_all(
        backend: &dyn Backend,
        table: TableId,
        log: &ChangeLog,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        let recorded = log.record_drop(backend, table, stamp)?;
        for space in SPACES {
            let (partition, range) = table_rows(space, table);
            backend.remove_rows(partition, &range, stamp()?)?;
        }
        log.written(&recorded);
        Ok(())
    }

    /// Returns all tables that have rows of timelines, saved searches or metadata of metrics. Costs one read of a row per
    /// key space and table.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if the backend cannot be read; [`CatalogError::DamagedKey`] if a key has no table.
    pub fn stored_tables(backend: &dyn Backend) -> Result<BTreeSet<TableId>> {
        let mut tables = BTreeSet::new();
        for space in SPACES {
            let mut next = Some(TableId(0));
            while let Some(from) = next {
                let (partition, range) = table_rows(space, from);
                let Some(row) = backend.first(partition, &range.start)? else {
                    break;
                };
                let key = parse_named_key(&row.key);
                let (table, _) = key.ok_or(CatalogError::DamagedKey(row.key.len()))?;
                tables.insert(table);
                next = table.0.checked_add(1).map(TableId);
            }
        }
        Ok(tables)
    }
}

/// Rows that are written and may not be durable yet.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    timelines: WrittenTimelines,
    searches: BTreeSet<Box<str>>,
    metrics: BTreeSet<Box<str>>,
}

/// Timelines whose rows were written or deleted.
#[derive(Debug, Default)]
struct WrittenTimelines {
    rows: RoaringBitmap,
    deleted: RoaringBitmap,
}

impl WrittenTimelines {
    /// Removes timelines whose rows are written again or deleted.
    fn forget(&mut self, timelines: &RoaringBitmap) {
        self.rows -= timelines;
        self.deleted -= timelines;
    }
}

/// Row change of one timeline.
pub(crate) struct Change {
    pub(crate) ordinal: Ordinal,
    pub(crate) partition: Partition,
    pub(crate) row: RowChange,
}

/// Writes changes in batches within the backend's limits. The changes must be in key order.
fn write_changes(
    backend: &dyn Backend,
    changes: &[Change],
    stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    durability: Durability,
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
            backend.write(change.partition, &batch, stamp()?, durability)?;
            batch.clear();
            batch_bytes = 0;
        }
    }
    Ok(())
}

/// Page size of a read of saved searches or metadata of metrics.
pub(crate) const ROWS_AT_ONCE: PageLimit = PageLimit {
    rows_max: WRITE_ROWS_MAX,
    bytes_max: WRITE_BYTES_MAX / 2,
};

/// Passes all rows of a table in a key space to `visit`, page by page. Empty pages are not passed.
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

/// Passes all catalog rows of a table to `visit`, page by page, in any order.
///
/// If the first page is not the last one and the backend keeps several requests in flight, the other rows are read in
/// several ranges at once, on a thread that reads ahead of `visit`.
fn each_catalog_row(
    backend: &dyn Backend,
    table: TableId,
    limit: PageLimit,
    visit: &mut dyn FnMut(Vec<tideline_backend::Row>) -> Result<()>,
) -> Result<()> {
    let in_flight = backend.capabilities().requests_in_flight;
    if in_flight <= 1 {
        return each_row(backend, space::CATALOG, table, limit, visit);
    }
    let (partition, all) = table_rows(space::CATALOG, table);
    let first = backend.scan(partition, &all, Direction::Ascending, limit)?;
    visit(first.rows)?;
    let Some(rest) = first.next else {
        return Ok(());
    };
    let parts = u8::try_from(in_flight).unwrap_or(RANGES_MAX).min(RANGES_MAX);
    let parts = split_catalog_rows(table, &rest, parts).into_iter();
    let ranges: Vec<ScanRange> = parts.map(|keys| ScanRange { partition, keys }).collect();
    thread::scope(|scope| {
        let (sender, pages) = sync_channel(1);
        scope.spawn(move || read_ahead(backend, ranges, limit, &sender));
        // The thread ends after its error, or when an error of `visit` drops `pages`.
        pages.into_iter().try_for_each(|rows| visit(rows?))
    })
}

/// Sends the rows of all ranges, a group of pages at a time, until the receiver is dropped or a read fails.
fn read_ahead(
    backend: &dyn Backend,
    mut ranges: Vec<ScanRange>,
    limit: PageLimit,
    sender: &SyncSender<tideline_backend::Result<Vec<tideline_backend::Row>>>,
) {
    while !ranges.is_empty() {
        let pages = match backend.scan_many(&ranges, limit) {
            Ok(pages) => pages,
            Err(error) => {
                // Fails if the receiver is dropped, after another error.
                let _ = sender.send(Err(error));
                return;
            }
        };
        let (mut rows, mut left) = (Vec::new(), Vec::new());
        for (page, ScanRange { partition, .. }) in pages.into_iter().zip(ranges) {
            rows.extend(page.rows);
            left.extend(page.next.map(|keys| ScanRange { partition, keys }));
        }
        ranges = left;
        if sender.send(Ok(rows)).is_err() {
            return;
        }
    }
}

/// Returns the size of a row change, in bytes.
pub(crate) fn bytes_of(change: &RowChange) -> usize {
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests;
