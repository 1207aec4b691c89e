//! Timelines of all tables, read by a standby while another process owns the data.
//!
//! The time of a take-over must not depend on the number of timelines. A standby therefore keeps the timelines in memory:
//!
//! 1. [`read`](TimelinesAhead::read) finds the end of the log of changed rows ([`ChangeLog`](crate::ChangeLog)), and then
//!    reads all rows. Rows that the owner changes meanwhile are read in their old or new form.
//! 2. [`catch_up`](TimelinesAhead::catch_up) applies the records after that end. It is repeated until the take-over.
//! 3. After this process has taken the data, [`is_followed_by`](TimelinesAhead::is_followed_by) checks that no other
//!    process has owned it since, and [`complete`](TimelinesAhead::complete) applies the last records. The former owner wrote the
//!    record of each row before the row, so nothing that a read of all rows would find is missing. A write of the former
//!    owner that arrives later is missed by both. The journal then still holds its change.
//! 4. The rows of the last records may not be written. They are [in doubt](TimelinesAhead::in_doubt), and the new owner
//!    writes them again.
//!
//! The timelines are never used before the take-over. If a step fails, the new owner reads all rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_backend::{Backend, Direction, Epoch, KeyRange, PageLimit};
use tideline_key_codec::{
    catalog_changes_from, catalog_changes_partition, catalog_key, catalog_partition,
    parse_catalog_changes_key, parse_catalog_key,
};
use tideline_model::{TableId, TimelineId};

use crate::change_log::Record;
use crate::row::Row;
use crate::state::State;
use crate::{CatalogError, Result};

/// Page of records. It is small because a backend may estimate the size of a page from rows of other key spaces.
const RECORDS_AT_ONCE: PageLimit = PageLimit {
    rows_max: 64,
    bytes_max: 2 << 20,
};
/// Maximum number of deleted rows in doubt that are looked up one by one. With more, reading all rows takes less time.
const LOOKUPS_MAX: usize = 64;

/// Timelines of all tables, read before the database is opened.
#[derive(Debug)]
pub struct TimelinesAhead {
    /// Epoch of the owner whose log of changed rows is followed.
    epoch: Epoch,
    /// Lowest number of the records that are not applied.
    next: u64,
    /// True if the owner writes records.
    has_log: bool,
    tables: HashMap<TableId, State>,
    /// Tables and timelines of applied records whose rows may not be written, by number.
    in_doubt: BTreeMap<u64, (TableId, Vec<TimelineId>)>,
}

impl TimelinesAhead {
    /// Reads all rows. `epoch` is the epoch of the owner, read before the call. After each page, `is_wanted` receives the
    /// bytes in memory; if it returns false, the result is `None`.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if the backend cannot be read; [`CatalogError::DamagedKey`],
    /// [`CatalogError::DamagedRow`], [`CatalogError::DamagedRecord`] or [`CatalogError::Conflict`] for a damaged row;
    /// [`CatalogError::Full`] if a 32-bit number space is exhausted.
    pub fn read(
        backend: &dyn Backend,
        epoch: Epoch,
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Self>> {
        let mut ahead = Self {
            epoch,
            next: 0,
            has_log: false,
            tables: HashMap::new(),
            in_doubt: BTreeMap::new(),
        };
        ahead.find_end(backend)?;
        let limit = backend.capabilities().page_advice;
        let partition = catalog_partition(TimelineId::MIN);
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let page = backend.scan(partition, &range, Direction::Ascending, limit)?;
            for stored in &page.rows {
                let key = parse_catalog_key(&stored.key);
                let (table, id) = key.ok_or(CatalogError::DamagedKey(stored.key.len()))?;
                ahead.put(table, id, Some(&stored.value))?;
            }
            if !is_wanted(ahead.memory_bytes()) {
                return Ok(None);
            }
            rest = page.next;
        }
        Ok(Some(ahead))
    }

    /// Finds the first record whose rows may not be written yet.
    fn find_end(&mut self, backend: &dyn Backend) -> Result<()> {
        let last = PageLimit {
            rows_max: 1,
            ..RECORDS_AT_ONCE
        };
        let range = catalog_changes_from(self.epoch.0, 0);
        let page = backend.scan(catalog_changes_partition(), &range, Direction::Descending, last)?;
        if let Some(stored) = page.rows.first() {
            self.next = Record::decode(&stored.value)?.written_to;
            self.has_log = true;
        }
        Ok(())
    }

    /// Applies the records that the owner has written since the last call. Returns false if some of them are no longer
    /// kept; the timelines are then of no use.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read). After an error, the timelines are of no use.
    pub fn catch_up(&mut self, backend: &dyn Backend) -> Result<bool> {
        let needed_from = self.next;
        let (mut kept_from, mut written_to) = (0, 0);
        let mut has_changed = false;
        let mut rest = Some(catalog_changes_from(self.epoch.0, self.next));
        while let Some(range) = rest {
            let partition = catalog_changes_partition();
            let page = backend.scan(partition, &range, Direction::Ascending, RECORDS_AT_ONCE)?;
            for stored in &page.rows {
                let key = parse_catalog_changes_key(&stored.key);
                let (_, number) = key.ok_or(CatalogError::DamagedRecord)?;
                let record = Record::decode(&stored.value)?;
                kept_from = record.kept_from.max(kept_from);
                written_to = record.written_to.max(written_to);
                has_changed |= !record.rows.is_empty();
                self.apply(number, &record)?;
                self.next = number + 1;
                self.has_log = true;
            }
            rest = page.next;
        }
        self.in_doubt = self.in_doubt.split_off(&written_to);
        if has_changed {
            self.tables.values_mut().for_each(|state| state.edits.loaded());
        }
        Ok(kept_from <= needed_from)
    }

    /// Returns true if no other process can have owned the data between the owner and a process that has taken it in the
    /// epoch `own`. Otherwise the timelines are of no use to this process.
    pub fn is_followed_by(&self, own: Epoch) -> bool {
        self.epoch.0.checked_add(1) == Some(own.0)
    }

    /// Applies the last records of the former owner. Returns `None` if the former owner wrote no records, if some are no
    /// longer kept, or if too many rows are in doubt.
    ///
    /// # Errors
    ///
    /// The errors of [`catch_up`](Self::catch_up).
    pub fn complete(mut self, backend: &dyn Backend) -> Result<Option<Self>> {
        if !self.catch_up(backend)? || !self.has_log {
            return Ok(None);
        }
        let mut deleted = Vec::new();
        for (table, ids) in self.in_doubt.values() {
            let state = self.tables.get(table);
            let is_deleted = |id: &&TimelineId| state.is_none_or(|state| state.ordinal_of(**id).is_none());
            deleted.extend(ids.iter().filter(is_deleted).map(|id| (*table, *id)));
        }
        if deleted.len() > LOOKUPS_MAX {
            return Ok(None);
        }
        // Such a row may still be stored. It is loaded then, so that the replay of its removal deletes it.
        for (table, id) in deleted {
            if let Some(row) = backend.get(catalog_partition(id), &catalog_key(table, id))? {
                self.put(table, id, Some(&row))?;
            }
        }
        Ok(Some(self))
    }

    /// Returns the epoch of the owner whose log of changed rows is followed.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the number of timelines.
    pub fn timelines(&self) -> u64 {
        self.tables.values().map(|state| state.visible.len()).sum()
    }

    /// Returns the resident bytes. The time is proportional to the number of tables and of distinct combinations of
    /// measurement and tag keys.
    pub fn memory_bytes(&self) -> usize {
        let states: usize = self.tables.values().map(State::memory_bytes).sum();
        let in_doubt = self.in_doubt.values().map(|(_, ids)| size_of_val(&**ids));
        states + in_doubt.sum::<usize>()
    }

    /// Returns the timelines whose rows may not be written, by table.
    pub fn in_doubt(&self) -> impl Iterator<Item = (TableId, &[TimelineId])> {
        self.in_doubt.values().map(|(table, ids)| (*table, &**ids))
    }

    /// Removes the timelines of a table, and returns them; `None` if the table has no timelines.
    pub(crate) fn take(&mut self, table: TableId) -> Option<State> {
        self.tables.remove(&table)
    }

    fn apply(&mut self, number: u64, record: &Record<'_>) -> Result<()> {
        if record.drops_table() {
            self.tables.remove(&record.table);
            // Rows that the owner has not removed belong to no table. The next owner removes them.
            self.in_doubt.retain(|_, (table, _)| *table != record.table);
        }
        for (id, row) in &record.rows {
            self.put(record.table, *id, *row)?;
        }
        if !record.rows.is_empty() {
            let ids = record.rows.iter().map(|(id, _)| *id).collect();
            self.in_doubt.insert(number, (record.table, ids));
        }
        Ok(())
    }

    /// Replaces the row of a timeline; `None` deletes it.
    fn put(&mut self, table: TableId, id: TimelineId, row: Option<&[u8]>) -> Result<()> {
        let empty = || State::new(Vec::new(), Arc::default());
        let state = self.tables.entry(table).or_insert_with(empty);
        match row {
            Some(row) => state.reload(id, &Row::decode(id, row)?),
            None => {
                state.unload(id);
                Ok(())
            }
        }
    }
}
