//! Changes of all tables, as the journal holds them, for change streams.
//!
//! A change is decoded from its journal entry when it is read. Points, deletes and rows are as they were written. The
//! entry of a changed timeline, saved search or metric holds only its id or name, so the change is reported with the
//! current state, which can include later changes.
//!
//! An engine with the access of a principal decodes only the changes that the principal may read: those of its tables
//! and, if its token is restricted to timelines, of these timelines as they are when the change is read. The removal of
//! a timeline is tested by the identity in the journal entry.
//!
//! A change has a slot: the hash of its timeline id, its name, or the partition of its row key. All changes of one key
//! have the same slot and the order of the journal, so several readers can divide the slots. A range of deleted rows
//! belongs to every slot, unless it is within one partition of rows.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::History;
use tideline_chunk::{DeleteRecord, Delta, DeltaGroup};
use tideline_model::{Identity, KeyRange, ModelTag, SequenceNumber, TableId, TableModel, TimelineId};
use tideline_series_store::StoreError;
use tideline_timeline_catalog::{Catalog, CatalogRow};
use tideline_wide_table::{Damage, EntryChange, Mutation, changes_of};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::{Timeline, describe, has_series};
use crate::tables::Table;
use crate::watch::{Part, WatchedDelete, WatchedSeries};
use crate::wide_table::WideTable;

/// Number of slots.
pub const SLOTS: u32 = 1 << 16;

/// Kept changes are freed if the free space of the data disk is below this percentage of the limit below which writes
/// are refused. The difference must be enough for the writes of about a second, until the changes are freed.
const ROOM_PERCENT: u64 = 125;

/// Entries of the journal from a position on.
#[derive(Debug, Clone)]
pub struct ChangeEntries {
    /// Position from which the entries are complete: the requested position, or a later position if entries after the
    /// requested position were freed or are damaged.
    pub from: SequenceNumber,
    /// True if the missing entries are damaged; false if they were freed.
    pub is_damaged: bool,
    /// Entries, by sequence.
    pub entries: Vec<(SequenceNumber, Bytes)>,
    /// Position to continue from.
    pub next: SequenceNumber,
}

/// Change of a table.
#[derive(Debug)]
pub enum Change {
    /// Points of one timeline were written.
    Points(WatchedSeries),
    /// A timeline was introduced, or its attributes were changed.
    Timeline(Timeline),
    /// Points of one timeline were deleted, or the timeline was removed.
    Deleted(WatchedDelete),
    /// A saved search was changed. Holds its name, and its text; `None` if it was deleted.
    Search(String, Option<Arc<str>>),
    /// The metadata of a metric were changed. Holds its name.
    Metric(String),
    /// A row was written or deleted.
    Row {
        /// Stored key.
        key: Bytes,
        /// Stored form of the [`Mutation`](crate::rows::Mutation).
        mutation: Bytes,
    },
    /// All rows of a range of stored keys were deleted.
    RowsDeleted(KeyRange),
}

/// Changes of one journal entry.
#[derive(Debug)]
pub struct TableChanges {
    /// The table.
    pub table: Table,
    /// Settings of the rows of the table; `None` for a series table.
    pub rows: Option<Arc<WideTable>>,
    /// Changes, in order. `None` for a change of a timeline that was removed later or that the principal may not use:
    /// the other changes keep their numbers, because readers continue from a number.
    pub changes: Vec<Option<Change>>,
}

/// Decoder of journal entries. It looks up each table once.
#[derive(Debug)]
pub struct ChangeDecoder<'e> {
    engine: &'e Engine,
    /// Tables by id; `None` for dropped tables, system tables, and tables that the principal may not use.
    tables: HashMap<TableId, Option<Table>>,
}

impl Engine {
    /// Returns entries of the journal from a position on, up to the last one that is on stable storage. Stops after the
    /// entry at which their bytes total at least `bytes_max`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] of the kind [`Gone`](crate::ErrorKind::Gone) if the journal does not reach `from`, and
    /// the errors of the backend.
    pub fn change_entries(&self, from: SequenceNumber, bytes_max: usize) -> Result<ChangeEntries> {
        let page = self
            .store
            .log()
            .entries(from, bytes_max)
            .map_err(StoreError::from)?;
        Ok(ChangeEntries {
            from: page.from,
            is_damaged: page.is_damaged,
            entries: page.entries,
            next: page.next,
        })
    }

    /// Returns the position after the last change that is on stable storage.
    pub fn changes_end(&self) -> SequenceNumber {
        self.store.log().durable_end()
    }

    /// Returns the number of journal entries from one position to before another, without the numbers that starts and
    /// take-overs skip.
    pub fn changes_between(&self, from: SequenceNumber, to: SequenceNumber) -> u64 {
        self.store.log().entries_between(from, to)
    }

    /// Keeps the changes from a position on, in addition to the changes that a restart needs. `None` keeps only the
    /// latter.
    ///
    /// # Errors
    ///
    /// The errors of the backend.
    pub fn keep_changes(&self, from: Option<SequenceNumber>) -> Result<()> {
        Ok(self.store.log().keep_entries(from).map_err(StoreError::from)?)
    }

    /// Returns the history: the journal units that are kept although a restart does not need them.
    ///
    /// # Errors
    ///
    /// The errors of the backend.
    pub fn kept_changes(&self) -> Result<History> {
        Ok(self.store.log().kept_entries().map_err(StoreError::from)?)
    }

    /// Returns true while the data disk is so full that kept changes should make room: its free space is less than
    /// [`ROOM_PERCENT`] of the limit below which writes are refused.
    pub fn is_disk_low(&self) -> bool {
        let usage = self.store.log().backend().usage();
        usage.free_bytes < usage.free_bytes_min / 100 * ROOM_PERCENT
    }

    /// Replaces the references to large values in a change of a row by their contents, if these are still stored.
    ///
    /// # Errors
    ///
    /// [`EngineError::Rows`] if stored bytes are damaged, and the errors of the backend.
    pub fn with_stored_contents<'m>(
        &self,
        table: &WideTable,
        key: &[u8],
        row: Mutation<'m>,
    ) -> Result<Mutation<'m>> {
        let id = table.table().points().id();
        Ok(self.rows.with_stored_contents(id, key, row)?)
    }

    /// Returns a decoder of journal entries.
    pub fn change_decoder(&self) -> ChangeDecoder<'_> {
        ChangeDecoder {
            engine: self,
            tables: HashMap::new(),
        }
    }
}

impl ChangeDecoder<'_> {
    /// Decodes an entry; `None` if its table was dropped, is a system table, or is one that the principal of the engine
    /// may not use.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`], [`EngineError::Catalog`] or [`EngineError::Rows`] if the entry is damaged.
    pub fn decode(&mut self, (sequence, entry): &(SequenceNumber, Bytes)) -> Result<Option<TableChanges>> {
        match ModelTag::of(entry) {
            Some(ModelTag::SERIES) => {
                let delta = Delta::decode(entry).map_err(|cause| {
                    let sequence = sequence.0;
                    EngineError::Store(StoreError::Delta { sequence, cause })
                })?;
                let table = self.table(delta.table);
                Ok(table.map(|table| self.joined(points_of(&table, &delta), table)))
            }
            Some(ModelTag::CATALOG) => {
                let (table, rows) = Catalog::changed_rows(entry)?;
                let table = self.table(table);
                Ok(table.map(|table| self.joined(catalog_of(&table, rows), table)))
            }
            Some(ModelTag::WIDE) => {
                let damaged = |damage: Damage| {
                    EngineError::Store(StoreError::StoredRow {
                        what: "journal entry",
                        reason: format!("entry {sequence}: {damage}"),
                    })
                };
                let (table, changes) = changes_of(entry).map_err(damaged)?;
                let changes = changes.into_iter().map(|change| match change {
                    EntryChange::Row { key, mutation } => Change::Row { key, mutation },
                    EntryChange::DeleteRange(range) => Change::RowsDeleted(range),
                });
                let table = self.table(table);
                Ok(table.map(|table| self.joined(changes.map(Some).collect(), table)))
            }
            // The test model of the log has no tables.
            _ => Ok(None),
        }
    }

    /// Returns the names of the tables whose drop an entry reports; `None` in place of each table that the principal of
    /// the engine may not use.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if the entry is damaged.
    pub fn dropped_tables(&self, (_, entry): &(SequenceNumber, Bytes)) -> Result<Vec<Option<String>>> {
        match ModelTag::of(entry) {
            Some(ModelTag::WIDE) => self.engine.dropped_in(entry),
            _ => Ok(Vec::new()),
        }
    }

    fn table(&mut self, id: TableId) -> Option<Table> {
        let engine = self.engine;
        let find = || engine.usable_table_of(id);
        self.tables.entry(id).or_insert_with(find).clone()
    }

    fn joined(&self, changes: Vec<Option<Change>>, table: Table) -> TableChanges {
        let rows = match table.spec().model {
            TableModel::Series => None,
            TableModel::Wide | TableModel::Feed => self.engine.table_of_rows(table.name().as_str()).ok(),
        };
        TableChanges { table, rows, changes }
    }
}

impl TableChanges {
    /// Returns the slot of a change; `None` for a change that concerns every slot.
    pub fn slot(&self, change: &Change) -> Option<u16> {
        let hash = |bytes: &[u8]| (xxh3_64(bytes) >> 48) as u16;
        let partition_len = |key: &[u8]| {
            let rows = self.rows.as_ref()?;
            rows.layout().partition_len(key).ok()
        };
        match change {
            Change::Points(series) => Some(hash(&series.timeline.id.0)),
            Change::Timeline(timeline) => Some(hash(&timeline.id.0)),
            Change::Deleted(delete) => delete.timelines.first().map(|id| hash(&id.0)),
            Change::Search(name, _) | Change::Metric(name) => Some(hash(name.as_bytes())),
            Change::Row { key, .. } => {
                let length = partition_len(key).unwrap_or(key.len());
                Some(hash(&key[..length]))
            }
            Change::RowsDeleted(range) => {
                let partition = &range.start[..partition_len(&range.start)?];
                let end = KeyRange::prefix(partition).end;
                let is_within = match (&range.end, &end) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(of_range), Some(of_partition)) => of_range <= of_partition,
                };
                is_within.then(|| hash(partition))
            }
        }
    }
}

/// Returns the changes of a delta: timelines, then points by timeline. `None` for timelines that were removed later,
/// and for their points: the removal deletes both.
fn points_of(table: &Table, delta: &Delta) -> Vec<Option<Change>> {
    if let Some(delete) = &delta.delete {
        return deletes_of(table, delete, &delta.removed);
    }
    let described: Vec<Option<Timeline>> = delta.timelines.iter().map(|id| usable(table, *id)).collect();
    let new = delta.new_timelines.iter();
    let mut changes: Vec<Option<Change>> = new
        .map(|new| usable(table, new.id).map(Change::Timeline))
        .collect();
    for group in &delta.groups {
        add_group(group, &described, &mut changes);
    }
    changes
}

/// Describes a timeline; `None` if it was removed later or the principal may not use it. Tests only this timeline: more
/// principals can read the changes than there are conditions whose timelines are kept.
fn usable(table: &Table, id: TimelineId) -> Option<Timeline> {
    let reader = table.catalog.reader();
    describe(&reader, table.usable(&reader, id)?)
}

/// Returns the changes of a delete, one for each timeline. `identities` are those of the removed timelines, or empty.
fn deletes_of(table: &Table, delete: &DeleteRecord, identities: &[Vec<u8>]) -> Vec<Option<Change>> {
    let ids = &delete.timelines;
    let may_read = |at: usize| {
        if table.condition().is_none() {
            return true;
        }
        let reader = table.catalog.reader();
        if reader.by_id(ids[at]).is_some() {
            return table.usable(&reader, ids[at]).is_some();
        }
        let identity = identities.get(at).map(|identity| Identity::decode(identity));
        match identity {
            Some(Ok(identity)) => table.may_tell_identity(&identity),
            // Not recorded. The catalog knows timelines that were removed since the start.
            _ => table.may_tell(&reader, ids[at]),
        }
    };
    let deleted = |at: usize| {
        may_read(at).then(|| {
            Change::Deleted(WatchedDelete {
                timelines: vec![ids[at]],
                range: delete.range,
                is_removed: delete.removes_timelines,
            })
        })
    };
    (0..ids.len()).map(deleted).collect()
}

/// Adds the points of a group in parts of limited size. A part has its points by timeline, in the order of first
/// occurrence.
fn add_group(group: &DeltaGroup, described: &[Option<Timeline>], changes: &mut Vec<Option<Change>>) {
    let positions: Vec<usize> = (0..group.fields.len()).collect();
    let describe = |timeline: usize| described.get(timeline).cloned().flatten();
    let to_change = |series: Option<WatchedSeries>| series.map(Change::Points);
    let mut part = Part::new(group, &positions);
    for (row, timeline) in group.timelines.iter().enumerate() {
        part.push(*timeline as usize, row);
        if part.is_full() {
            let full = std::mem::replace(&mut part, Part::new(group, &positions));
            changes.extend(full.into_series(describe).into_iter().map(to_change));
        }
    }
    changes.extend(part.into_series(describe).into_iter().map(to_change));
}

/// Returns the changes of a catalog. `None` for timelines that were removed later, and for what the principal may not
/// read.
fn catalog_of(table: &Table, rows: Vec<CatalogRow>) -> Vec<Option<Change>> {
    let change = |row: CatalogRow| match row {
        CatalogRow::Timeline(id) => usable(table, id).map(Change::Timeline),
        // The condition of a saved search would reveal other timelines.
        CatalogRow::Search(name) if table.condition().is_none() => {
            let text = table.searches().get(&name);
            Some(Change::Search(name, text))
        }
        CatalogRow::Search(_) => None,
        CatalogRow::Metric(name) => {
            let may_read = table.condition().is_none() || has_series(&table.reader(), &name);
            may_read.then_some(Change::Metric(name))
        }
    };
    rows.into_iter().map(change).collect()
}
