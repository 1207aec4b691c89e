//! Parts of wide tables: lists of parts, moves between tiers, and drops on request or at the end of the retention time.
//!
//! A drop changes one number in the settings of the table. The rows of earlier parts become invisible immediately.
//! Their bytes are freed soon after, without reading the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tideline_key_codec::layout::Ranges;
use tideline_log::fail_points::around;
use tideline_model::{PartPeriod, PartsSpec, TableId, Tier, Timestamp, WideSpec};
use tideline_wide_table::{
    ArchivedPart, MoveEnd, MoveProgress, PartInTier, PartNumbers, PartSelection, PartToArchive, StoredPart,
    WideError,
};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::rows::RowPath;
use crate::tables::Table;
use crate::wide_table::WideTable;

/// Part of a divided table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePart {
    /// Name: `2026-11-26`, `2026-W48` or `2026-11`.
    pub name: String,
    /// First time of the rows of the part.
    pub start: Timestamp,
    /// First time after the part.
    pub end: Timestamp,
    /// True if reads cover the part. Otherwise its retention time has ended, and it is dropped later.
    pub is_visible: bool,
    /// True if rows of the part can be written.
    pub is_writable: bool,
    /// Tier that stores the part; `None` if its rows are only in the row buffer.
    pub tier: Option<Tier>,
    /// Time until which a restored part is not archived again; `None` for other parts.
    pub held_until: Option<Timestamp>,
    /// Files of a part in the archive; `None` for other parts.
    pub archived: Option<ArchivedPart>,
}

impl TablePart {
    fn new(every: PartPeriod, part: &StoredPart, archived: Option<ArchivedPart>) -> Self {
        let StoredPart { number, .. } = *part;
        Self {
            name: every.part_name(number),
            start: Timestamp::from_nanos_clamped(every.start_of(number)),
            end: Timestamp::from_nanos_clamped(every.start_of(number.saturating_add(1))),
            is_visible: part.is_visible,
            is_writable: part.is_writable,
            tier: part.tier,
            held_until: part.held_until.map(Timestamp::from_nanos_clamped),
            archived,
        }
    }
}

/// Part of a table that is old enough for another tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePart {
    /// Table of the part.
    pub table: TableId,
    /// Number of the part.
    pub number: i32,
    /// Name of the part.
    pub name: String,
    /// Tier to which the part is due to move: cold or archive.
    pub tier: Tier,
    /// Age at which parts of the table move to this tier, in nanoseconds.
    pub age: i64,
    /// Time at which the part became due, nanoseconds since the epoch.
    pub since: i64,
}

impl Engine {
    /// Returns the parts of a table that have rows, oldest first; empty for a table that is not divided. Takes time
    /// linear in the number of rows that are not flushed yet.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped or stored keys are damaged.
    pub fn table_parts(&self, table: &WideTable) -> Result<Vec<TablePart>> {
        let Some(PartsSpec { every, .. }) = table.settings().parts else {
            return Ok(Vec::new());
        };
        let id = table.table().points().id();
        let archived = self.archived_parts(id).into_iter();
        let archived = archived.map(|part| (part.number, part));
        let mut archived: BTreeMap<i32, ArchivedPart> = archived.collect();
        let stored = self.rows.parts(id)?.into_iter();
        let parts = stored.map(|part| TablePart::new(every, &part, archived.remove(&part.number)));
        Ok(parts.collect())
    }

    /// Returns the names of the parts that a scan reads, oldest first; `None` for a table that is not divided. If the
    /// path is an index, these are parts of the index.
    ///
    /// # Errors
    ///
    /// The errors of [`table_parts`](Self::table_parts).
    pub fn parts_of_scan(
        &self,
        table: &WideTable,
        path: &RowPath,
        ranges: &Ranges,
        parts: &PartSelection,
    ) -> Result<Option<Vec<String>>> {
        let Some(PartsSpec { every, .. }) = table.settings().parts else {
            return Ok(None);
        };
        let id = match path {
            RowPath::Primary => table.table().points().id(),
            RowPath::Index { index, .. } => index.id(),
        };
        let read = self.rows.parts_read(id, parts, &ranges.ranges)?.into_iter();
        Ok(Some(read.map(|number| every.part_name(number)).collect()))
    }

    /// Returns true if a stored part of a table is in the cold tier or in the archive.
    pub fn has_cold_parts(&self, table: &WideTable) -> bool {
        self.rows.has_cold_parts(table.table().points().id())
    }

    /// Returns true if a scan of ranges reads parts in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped.
    pub fn scan_reaches_cold(
        &self,
        table: &WideTable,
        path: &RowPath,
        ranges: &Ranges,
        parts: &PartNumbers,
    ) -> Result<bool> {
        let rows = table.table().points().id();
        let id = match path {
            RowPath::Primary => rows,
            RowPath::Index { index, .. } => index.id(),
        };
        Ok(self.rows.reaches_cold((id, rows), parts, &ranges.ranges)?)
    }

    /// Returns true if a stored key belongs to a part in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped or a key is damaged.
    pub fn has_cold_keys(&self, table: &WideTable, keys: &[Vec<u8>]) -> Result<bool> {
        Ok(self.rows.has_cold_keys(table.table().points().id(), keys)?)
    }

    /// Returns the number of stored parts of a table; `None` if it is not divided into parts.
    pub fn part_count(&self, table: &Table) -> Option<usize> {
        table.spec().wide.as_ref()?.parts.as_ref()?;
        Some(self.rows.part_count(table.points().id()))
    }

    /// Drops the parts of a table that end at or before a time, and refuses later writes to them. With `is_preview`,
    /// drops nothing. Returns the parts that are dropped, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] for a table that is not divided into parts, and for a time in the future; and
    /// the errors of [`alter_table`](Self::alter_table). While the clock is in doubt, `before` is compared with the
    /// trusted time.
    pub fn drop_parts(&self, table: &str, before: Timestamp, is_preview: bool) -> Result<Vec<TablePart>> {
        if before > self.now() {
            return Err(EngineError::Invalid(format!(
                "before is {before}, which is in the future; parts can be dropped when their time has passed"
            )));
        }
        let _settings = self.lock_settings();
        let table = self.table_of_rows(table)?;
        self.check_definable(table.table())?;
        let first = divided(&table)?.every.number_of(before.nanos());
        let mut parts = self.table_parts(&table)?;
        parts.retain(|part| part.end <= before);
        if !is_preview {
            self.keep_parts_from(&table, first)?;
        }
        Ok(parts)
    }

    /// Drops the parts of a table that have been hidden for at least
    /// [`Settings::purge_delay`](crate::engine::Settings::purge_delay). Returns their number. A table that does not
    /// exist is not an error.
    ///
    /// # Errors
    ///
    /// The errors of [`alter_table`](Self::alter_table).
    pub fn drop_old_parts(&self, table: TableId) -> Result<u64> {
        let _settings = self.lock_settings();
        let Some(found) = self.table_of(table) else {
            return Ok(0);
        };
        let table = self.known_rows(found.name().as_str())?;
        let Some(parts) = &table.settings().parts else {
            return Ok(0);
        };
        let Some(first) = self.first_part_to_keep(parts) else {
            return Ok(0);
        };
        let every = parts.every;
        let start = Timestamp::from_nanos_clamped(every.start_of(first));
        let parts = self.table_parts(&table)?;
        let dropped = parts.iter().filter(|part| part.end <= start).count();
        if dropped > 0 {
            self.keep_parts_from(&table, first)?;
        }
        Ok(dropped as u64)
    }

    /// Returns the parts that are old enough for the archive or for the cold tier, the oldest part of each table first.
    /// A part is also due for the cold tier if only its column groups, or its entries in secondary indexes of all
    /// tiers, are still in the hot tier. `now` is the trusted time.
    pub fn due_parts(&self, now: i64) -> Vec<DuePart> {
        let mut due = Vec::new();
        for table in self.known_tables() {
            let spec = table.spec();
            let Some(wide) = &spec.wide else { continue };
            let Some(parts) = &wide.parts else { continue };
            let id = table.points().id();
            let mut add = |number: i32, tier, age, held_until: Option<i64>| {
                let end = parts.every.start_of(number.saturating_add(1));
                due.push(DuePart {
                    table: id,
                    number,
                    name: parts.every.part_name(number),
                    tier,
                    age,
                    since: end.saturating_add(age).max(held_until.unwrap_or(i64::MIN)),
                });
            };
            let rows = self.rows.parts_in_tiers(id);
            if let Some(archive) = &parts.archive {
                let before = parts.archived_before(now);
                let is_due = |part: &&PartInTier| {
                    let is_held = part.held_until.is_some_and(|until| now < until);
                    part.tier != Tier::Archive && part.number < before && !is_held
                };
                let archived = rows.iter().filter(is_due);
                archived.for_each(|part| add(part.number, Tier::Archive, archive.after, part.held_until));
            }
            if let Some(hot) = parts.hot {
                let first = parts.hot_from(now);
                let ids = moved_with(wide);
                let entries = ids.flat_map(|id| self.rows.parts_in_tiers(id));
                let is_due = |part: &PartInTier| part.tier == Tier::Hot && part.number < first;
                let numbers = entries.chain(rows).filter(is_due).map(|part| part.number);
                let numbers: BTreeSet<i32> = numbers.collect();
                numbers
                    .into_iter()
                    .for_each(|number| add(number, Tier::Cold, hot, None));
            }
        }
        due
    }

    /// Moves a part of a table into the archive that is set for the table. The entries of its rows in secondary indexes
    /// stay where they are. If the table has an index of one tier, the part first moves to the cold tier. Calls
    /// `proceed` after each group of rows, with the work so far.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] if the settings have no archive, [`EngineError::Forbidden`] if its target is
    /// not allowed any more, and the errors of
    /// [`WideStore::archive_part`](tideline_wide_table::WideStore::archive_part).
    pub fn archive_table_part(
        &self,
        table: TableId,
        number: i32,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let Some(found) = self.table_of(table) else {
            return Ok(MoveEnd::Gone);
        };
        let spec = found.spec();
        let parts = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
        let Some((parts, archive)) = parts.and_then(|parts| Some((parts, parts.archive.as_ref()?))) else {
            return Err(EngineError::Invalid(format!(
                "table {} has no archive; `wide.parts.archive` names one",
                found.name()
            )));
        };
        self.allow_target(&archive.target)?;
        let mut moved = MoveProgress::default();
        if spec.wide.as_ref().is_some_and(|wide| wide.has_tiered_indexes()) {
            // In the archive, a part has the indexes of the cold tier.
            match self.move_table_part(table, number, Tier::Cold, proceed)? {
                MoveEnd::Moved(work) => moved = work,
                MoveEnd::Gone => {}
                end => return Ok(end),
            }
        }
        let part = PartToArchive {
            table,
            number,
            spec: &spec,
            origin: self.store.archive_origin()?,
            names: (found.name().clone(), parts.every.part_name(number)),
            target: archive.target.clone(),
        };
        let threads = self.store.threads();
        let flush = || -> std::result::Result<(), WideError> { Ok(threads.flush()?) };
        let mut step = |work: &MoveProgress| proceed(&moved.plus(work));
        let end = self.rows.archive_part(&part, &flush, &mut step)?;
        self.store.log().notify_flusher();
        Ok(match end {
            MoveEnd::Moved(work) => MoveEnd::Moved(moved.plus(&work)),
            end => end,
        })
    }

    /// Restores parts of a table from the archive into the cold tier. Restored parts can be written, and are not
    /// archived again before `until`. This also applies to parts that are already restored. Calls `proceed` after each
    /// group of rows. Returns the number of parts that were restored, and the total work; `None` if `proceed` ended the
    /// restore.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`WideStore::restore_part`](tideline_wide_table::WideStore::restore_part). Some parts may
    /// have been restored; a repeated call continues with the others.
    pub fn restore_parts(
        &self,
        table: &WideTable,
        parts: &[TablePart],
        until: Timestamp,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<(u64, MoveProgress)>> {
        let every = divided(table)?.every;
        let id = table.table().points().id();
        let (mut count, mut done) = (0, MoveProgress::default());
        for part in parts {
            let number = every.number_of(part.start.nanos());
            let mut step = |work: &MoveProgress| proceed(&done.plus(work));
            if self.rows.has_archived_values(id, number) {
                self.open_large_values(table)?;
            }
            match self.rows.restore_part(id, number, until.nanos(), &mut step)? {
                MoveEnd::Moved(work) => {
                    count += 1;
                    done = done.plus(&work);
                }
                MoveEnd::Gone | MoveEnd::Busy | MoveEnd::Unready => {}
                MoveEnd::Stopped => return Ok(None),
            }
        }
        self.store.log().notify_flusher();
        Ok(Some((count, done)))
    }

    /// Returns true if parts of a table are in the archive, or if an archive is set for the table.
    pub fn has_archived_parts(&self, table: &Table) -> bool {
        let spec = table.spec();
        let parts = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
        let is_archived = |part: &PartInTier| part.tier == Tier::Archive;
        parts.is_some_and(|parts| {
            let stored = || self.rows.parts_in_tiers(table.points().id());
            parts.archive.is_some() || stored().iter().any(is_archived)
        })
    }

    /// Moves a part of a table, the columns of its groups, and the entries of its rows in secondary indexes, into the
    /// hot or the cold tier. Indexes that cover only one of the tiers gain or lose the rows of the part. Reads and
    /// writes continue. Calls `proceed` after every few megabytes, with the work of the move so far.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`WideStore::move_table_part`](tideline_wide_table::WideStore::move_table_part). The table
    /// or some of its indexes may have moved; a repeated move continues with the others.
    pub fn move_table_part(
        &self,
        table: TableId,
        number: i32,
        tier: Tier,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let mut build_documents = |search: TableId,
                                   proceed: &mut dyn FnMut() -> ControlFlow<()>|
         -> std::result::Result<_, WideError> {
            Ok(self.index_part(search, number, proceed))
        };
        let threads = self.store.threads();
        let part = (table, number);
        let end = self
            .rows
            .move_table_part(threads, part, tier, &mut build_documents, proceed)?;
        self.store.log().notify_flusher();
        Ok(end)
    }

    /// Returns true if the table exists and its rows or cells expire.
    pub fn has_row_ttl(&self, table: TableId) -> bool {
        let found = self.table_of(table);
        found.is_some_and(|found| found.spec().wide.as_ref().is_some_and(|wide| wide.ttl.is_some()))
    }

    /// Returns the number of the first part that has not been hidden for the purge delay yet; `None` while the clock is
    /// in doubt, and if parts are kept forever.
    fn first_part_to_keep(&self, parts: &PartsSpec) -> Option<i32> {
        parts.keep?;
        let trusted = self.store.trusted_now();
        if trusted.doubt.is_some() {
            return None;
        }
        Some(self.hidden_long_before(parts, trusted.now.nanos()))
    }

    /// Returns the number of the first part that, at the time `now`, has not been hidden for
    /// [`Settings::purge_delay`](crate::engine::Settings::purge_delay) yet. Earlier parts are dropped.
    pub(crate) fn hidden_long_before(&self, parts: &PartsSpec, now: i64) -> i32 {
        let delay = i64::try_from(self.settings.purge_delay.as_nanos()).unwrap_or(i64::MAX);
        parts.visible_from(now.saturating_sub(delay))
    }

    /// Drops the parts with a number below `first`. The caller holds the guard of the settings.
    fn keep_parts_from(&self, table: &WideTable, first: i32) -> Result<()> {
        if divided(table)?.first >= first {
            return Ok(());
        }
        around("part_drop", "settings", || {
            self.change_wide(table, |wide| {
                if let Some(parts) = &mut wide.parts {
                    parts.first = first;
                }
            })
        })
    }
}

/// Returns the ids of the secondary indexes and column groups that move with the rows of a table.
fn moved_with(wide: &WideSpec) -> impl Iterator<Item = TableId> {
    let indexes = wide.indexes.iter().filter(|index| index.tier.is_all());
    let indexes = indexes.map(|index| index.id);
    let groups = wide.groups.iter().map(|group| group.id);
    indexes.chain(groups).map(TableId)
}

/// Returns the settings of the parts of a table; an error if the table is not divided.
fn divided(table: &WideTable) -> Result<&PartsSpec> {
    let name = table.table().name();
    let parts = table.settings().parts.as_ref();
    parts.ok_or_else(|| {
        EngineError::Invalid(format!(
            "table {name} is not divided into parts; `wide.parts` divides a new table"
        ))
    })
}
