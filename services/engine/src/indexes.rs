//! Secondary indexes of wide tables: creation, removal, build and statistics.
//!
//! An index is a part of the settings of its table. Every write maintains it from its creation on; a job adds the
//! entries of older rows. Reads are refused until the job has ended.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use parking_lot::Mutex;
use tideline_log::fail_points::around;
use tideline_model::wide::{IndexState, KeySource};
use tideline_model::{IndexCover, IndexSpec, KeyColumnSpec, TableId, TableName, TierScope, WideSpec};
pub use tideline_wide_table::Index;
use tideline_wide_table::WideError;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::row_values::{bytes_of_hex, hex};
use crate::wide_table::WideTable;

/// Maximum length of the name of an index, in bytes.
pub const INDEX_NAME_BYTES_MAX: usize = 255;
/// Maximum number of covered columns of an index; `all` covers any number.
pub const COVERED_COLUMNS_MAX: usize = 1_000;
/// Time between two stored positions of a build. A restart repeats at most this much work.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// Index that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildingIndex {
    /// Table of the index.
    pub table: TableId,
    /// Name of the table.
    pub table_name: TableName,
    /// Id of the index.
    pub index: TableId,
    /// Name of the index.
    pub name: String,
}

/// Work of a build since it was started or last resumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildProgress {
    /// Number of rows that were read.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes_read: u64,
    /// Bytes of the entries that were written.
    pub bytes_written: u64,
}

/// Usage counters of an index since the start of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Number of scans of the index.
    pub scans: u64,
    /// Number of entries that these scans have read.
    pub entries_read: u64,
    /// Number of entries that writes and builds have written or removed.
    pub entries_written: u64,
}

/// Counters of scans and entries read, by index.
#[derive(Debug, Default)]
pub(crate) struct IndexReads(Mutex<BTreeMap<TableId, (u64, u64)>>);

impl IndexReads {
    /// Counts a scan that has read `entries` entries.
    pub(crate) fn count(&self, index: TableId, entries: u64) {
        let mut counts = self.0.lock();
        let (scans, read) = counts.entry(index).or_default();
        *scans += 1;
        *read += entries;
    }

    fn of(&self, index: TableId) -> (u64, u64) {
        self.0.lock().get(&index).copied().unwrap_or_default()
    }
}

/// Result of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildEnd {
    /// The index is complete and can be read.
    Ready(BuildProgress),
    /// The caller ended the build. The next build continues at the same position.
    Stopped,
    /// The index does not exist any more, or is ready already.
    Gone,
}

impl Engine {
    /// Creates an index. The id and the state in `index` are ignored. A job of the kind `build_index` builds the index.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::IndexExists`] if the table has an index of this name, [`EngineError::Invalid`] or
    /// [`EngineError::OverLimit`] for a definition that does not fit the table, and the errors of
    /// [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn create_index(&self, table: &str, index: IndexSpec) -> Result<Arc<WideTable>> {
        let _alone = self.lock_settings();
        let wide = self.table_of_rows(table)?;
        self.check_definable(wide.table())?;
        if wide.indexes().iter().any(|known| known.name() == index.name) {
            return Err(EngineError::IndexExists {
                table: wide.table().name().clone(),
                index: index.name,
            });
        }
        around("row_index", "create", || {
            self.change_indexes(&wide, |indexes| {
                indexes.push(IndexSpec {
                    id: 0,
                    state: IndexState::Building { next: String::new() },
                    ..index
                });
            })
        })?;
        self.table_of_rows(table)
    }

    /// Drops an index. Its entries become inaccessible immediately; their bytes are freed soon after.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] if the table has no index of this name, and the errors of
    /// [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn drop_index(&self, table: &str, name: &str) -> Result<()> {
        let _alone = self.lock_settings();
        let wide = self.table_of_rows(table)?;
        self.check_definable(wide.table())?;
        if !wide.indexes().iter().any(|known| known.name() == name) {
            return Err(wide.no_such_index(name));
        }
        around("row_index", "drop", || {
            self.change_indexes(&wide, |indexes| indexes.retain(|index| index.name != name))
        })?;
        self.store.log().notify_flusher();
        Ok(())
    }

    /// Returns the usage counters of an index.
    pub fn index_use(&self, index: TableId) -> IndexUse {
        let (scans, entries_read) = self.index_reads.of(index);
        IndexUse {
            scans,
            entries_read,
            entries_written: self.rows.changes_of(index),
        }
    }

    /// Returns the indexes that are being built, in the order of their creation.
    pub fn building_indexes(&self) -> Vec<BuildingIndex> {
        let mut building = Vec::new();
        for table in self.known_tables() {
            let spec = table.spec();
            let Some(wide) = spec.wide.as_deref().filter(|_| spec.model.has_rows()) else {
                continue;
            };
            if self.unbuilt.lock().contains(table.name()) {
                continue;
            }
            let indexes = wide.indexes.iter().filter(|index| !index.is_ready());
            building.extend(indexes.map(|index| BuildingIndex {
                table: table.points().id(),
                table_name: table.name().clone(),
                index: TableId(index.id),
                name: index.name.clone(),
            }));
        }
        building.sort_by_key(|building| building.index);
        building
    }

    /// Builds an index, and makes it readable at the end. Calls `proceed` after each page of rows. A build that was
    /// ended by `proceed` continues at the same position; after a restart, a build continues at the last stored
    /// position.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space, and the errors of the row store, for
    /// example for a row that cannot have an entry.
    pub fn build_index(
        &self,
        building: &BuildingIndex,
        proceed: &mut dyn FnMut(&BuildProgress) -> ControlFlow<()>,
    ) -> Result<BuildEnd> {
        let threads = self.store.threads();
        let Some(mut next) = self.build_position(building)? else {
            return Ok(BuildEnd::Gone);
        };
        self.rows.settle_writes(threads, building.table)?;
        let mut progress = BuildProgress::default();
        let mut stored = Instant::now();
        loop {
            self.check_writable()?;
            let step = around("row_index", "page", || {
                self.rows
                    .build_index(threads, building.table, building.index, &next)
            });
            let step = match step {
                Err(WideError::NoTable(_)) => return Ok(BuildEnd::Gone),
                step => step?,
            };
            progress.rows += step.rows;
            progress.bytes_read += step.bytes_read;
            progress.bytes_written += step.bytes_written;
            let Some(after) = step.next else {
                break;
            };
            next = after.into();
            let is_stopped = proceed(&progress).is_break();
            if is_stopped || stored.elapsed() >= CHECKPOINT_INTERVAL {
                let state = IndexState::Building { next: hex(&next) };
                let is_stored = around("row_index", "checkpoint", || {
                    self.set_index_state(building, state)
                });
                if !is_stored? {
                    return Ok(BuildEnd::Gone);
                }
                stored = Instant::now();
            }
            if is_stopped {
                return Ok(BuildEnd::Stopped);
            }
        }
        let is_ready = around("row_index", "ready", || {
            self.set_index_state(building, IndexState::Ready)
        });
        match is_ready? {
            true => Ok(BuildEnd::Ready(progress)),
            false => Ok(BuildEnd::Gone),
        }
    }

    /// Returns the key at which a build continues; `None` if there is nothing to build.
    fn build_position(&self, building: &BuildingIndex) -> Result<Option<Vec<u8>>> {
        let Ok(table) = self.known_rows(building.table_name.as_str()) else {
            return Ok(None);
        };
        if self.unbuilt.lock().contains(&building.table_name) {
            return Ok(None);
        }
        let mut indexes = table.settings().indexes.iter();
        let index = indexes.find(|index| index.id == building.index.0);
        match index.map(|index| &index.state) {
            Some(IndexState::Building { next }) => {
                let damaged =
                    || EngineError::Invalid(format!("the position of a build is damaged: {next:?}"));
                Ok(Some(bytes_of_hex(next).ok_or_else(damaged)?))
            }
            Some(IndexState::Ready) | None => Ok(None),
        }
    }

    /// Stores the state of an index that is being built. Returns false if it does not exist any more.
    fn set_index_state(&self, building: &BuildingIndex, state: IndexState) -> Result<bool> {
        let _alone = self.lock_settings();
        let Ok(table) = self.known_rows(building.table_name.as_str()) else {
            return Ok(false);
        };
        let mut is_found = false;
        self.change_indexes(&table, |indexes| {
            let mut indexes = indexes.iter_mut();
            if let Some(index) = indexes.find(|index| index.id == building.index.0) {
                index.state = state;
                is_found = true;
            }
        })?;
        Ok(is_found)
    }

    /// Returns the number of indexes that a table can get in addition to those that it has.
    pub fn room_for_indexes(&self, table: &WideTable) -> usize {
        let count = table.settings().indexes.len();
        self.settings.tables.indexes_max.saturating_sub(count)
    }

    /// Changes the list of indexes. The caller holds the lock of the settings.
    fn change_indexes(&self, table: &WideTable, change: impl FnOnce(&mut Vec<IndexSpec>)) -> Result<()> {
        self.change_wide(table, |wide| change(&mut wide.indexes))
    }

    /// Checks the indexes of new or altered settings.
    pub(crate) fn check_indexes(&self, wide: &WideSpec) -> Result<()> {
        let limit = self.settings.tables.indexes_max;
        if wide.indexes.len() > limit {
            return Err(EngineError::OverLimit {
                what: "number of indexes",
                limit: limit as u64,
                actual: wide.indexes.len() as u64,
            });
        }
        let mut names = HashSet::new();
        for index in &wide.indexes {
            if index.name.is_empty() || index.name.len() > INDEX_NAME_BYTES_MAX {
                return Err(EngineError::Invalid(format!(
                    "the name of an index has {} bytes; 1 to {INDEX_NAME_BYTES_MAX} are allowed",
                    index.name.len()
                )));
            }
            if !names.insert(index.name.as_str()) {
                return Err(EngineError::Invalid(format!(
                    "index {:?} is declared twice",
                    index.name
                )));
            }
            if let IndexCover::Columns(names) = &index.covers
                && names.len() > COVERED_COLUMNS_MAX
            {
                return Err(EngineError::OverLimit {
                    what: "number of covered columns",
                    limit: COVERED_COLUMNS_MAX as u64,
                    actual: names.len() as u64,
                });
            }
            check_tier("index", &index.name, index.tier, wide)?;
            index.key.iter().try_for_each(check_not_generated)?;
        }
        Index::all_of(wide).map(drop).map_err(EngineError::Invalid)
    }
}

/// Refuses an index of one tier if the table has no tiers.
pub(crate) fn check_tier(what: &str, name: &str, tier: TierScope, wide: &WideSpec) -> Result<()> {
    if tier.is_all() || wide.parts.is_some() {
        return Ok(());
    }
    Err(EngineError::Invalid(format!(
        "{what} {name:?}: tier is {tier}, and only tables that are divided into parts have tiers; omit it, or create the \
         table with `parts`"
    )))
}

/// Refuses a generated column: the server generates values for rows, but not for index entries.
fn check_not_generated(column: &KeyColumnSpec) -> Result<()> {
    match column.source {
        KeySource::Generated(_) => Err(EngineError::Invalid(format!(
            "the index column {:?} cannot be generated; name the column of the table",
            column.name
        ))),
        _ => Ok(()),
    }
}
