//! Parts of wide tables: listed, dropped on request, and dropped when they are older than they are kept.
//!
//! A drop changes one number in the settings of the table. The rows of earlier parts are invisible at once, and their
//! bytes are freed soon after, without reading the rows.

use tideline_key_codec::layout::Ranges;
use tideline_model::{PartPeriod, PartsSpec, TableId, Timestamp};
use tideline_wide_table::PartNumbers;

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
    /// True if reads cover the part. Otherwise it is older than parts are kept, and is dropped later.
    pub is_visible: bool,
}

impl TablePart {
    fn new(every: PartPeriod, number: i32, is_visible: bool) -> Self {
        Self {
            name: every.part_name(number),
            start: Timestamp::from_nanos_clamped(every.start_of(number)),
            end: Timestamp::from_nanos_clamped(every.start_of(number.saturating_add(1))),
            is_visible,
        }
    }
}

impl Engine {
    /// Returns the parts of a table that have rows, oldest first; empty for a table that is not divided. Takes time linear
    /// in the number of rows that are not flushed yet.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped or stored keys are damaged.
    pub fn table_parts(&self, table: &WideTable) -> Result<Vec<TablePart>> {
        let Some(PartsSpec { every, .. }) = table.settings().parts else {
            return Ok(Vec::new());
        };
        let stored = self.rows.parts(table.table().points().id())?.into_iter();
        let parts = stored.map(|part| TablePart::new(every, part.number, part.is_visible));
        Ok(parts.collect())
    }

    /// Returns the names of the parts that a scan looks into, oldest first; `None` for a table that is not divided. The
    /// names are those of the parts of the index if the path is an index.
    ///
    /// # Errors
    ///
    /// The errors of [`table_parts`](Self::table_parts).
    pub fn parts_of_scan(
        &self,
        table: &WideTable,
        path: &RowPath,
        ranges: &Ranges,
        parts: &PartNumbers,
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

    /// Returns the number of stored parts of a table; `None` if it is not divided into parts.
    pub fn part_count(&self, table: &Table) -> Option<usize> {
        table.spec().wide.as_ref()?.parts.as_ref()?;
        Some(self.rows.part_count(table.points().id()))
    }

    /// Drops the parts of a table that end at or before a time, and refuses later writes to them. With `is_preview`, drops
    /// nothing. Returns the parts that are dropped, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] for a table that is not divided into parts, and for a time in the future; and
    /// the errors of [`alter_table`](Self::alter_table). While the clock is in doubt, the trusted time decides what is in
    /// the future.
    pub fn drop_parts(&self, table: &str, before: Timestamp, is_preview: bool) -> Result<Vec<TablePart>> {
        if before > self.now() {
            return Err(EngineError::Invalid(format!(
                "before is {before}, which is in the future; parts can be dropped when their time has passed"
            )));
        }
        let _settings = self.lock_settings();
        let table = self.wide_table(table)?;
        let first = divided(&table)?.every.number_of(before.nanos());
        let mut parts = self.table_parts(&table)?;
        parts.retain(|part| part.end <= before);
        if !is_preview {
            self.keep_parts_from(&table, first)?;
        }
        Ok(parts)
    }

    /// Drops the parts of a table that are hidden for at least
    /// [`Settings::purge_delay`](crate::engine::Settings::purge_delay). Returns their number. A table that does not exist
    /// is not an error.
    ///
    /// # Errors
    ///
    /// The errors of [`alter_table`](Self::alter_table).
    pub fn drop_old_parts(&self, table: TableId) -> Result<u64> {
        let _settings = self.lock_settings();
        let tables = self.tables();
        let Some(found) = tables.iter().find(|found| found.points().id() == table) else {
            return Ok(0);
        };
        let table = self.wide_table(found.name().as_str())?;
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

    /// Returns true if a table exists whose rows or cells expire.
    pub fn has_row_ttl(&self, table: TableId) -> bool {
        let tables = self.tables();
        let found = tables.iter().find(|found| found.points().id() == table);
        found.is_some_and(|found| found.spec().wide.as_ref().is_some_and(|wide| wide.ttl.is_some()))
    }

    /// Returns the number of the first part that is not hidden for long; `None` while the clock is in doubt, and for parts
    /// that are kept for ever.
    fn first_part_to_keep(&self, parts: &PartsSpec) -> Option<i32> {
        parts.keep?;
        let trusted = self.store.trusted_now();
        if trusted.doubt.is_some() {
            return None;
        }
        let delay = i64::try_from(self.settings.purge_delay.as_nanos()).unwrap_or(i64::MAX);
        Some(parts.visible_from(trusted.now.nanos().saturating_sub(delay)))
    }

    /// Drops the parts before a number. The caller holds the guard of the settings.
    fn keep_parts_from(&self, table: &WideTable, first: i32) -> Result<()> {
        if divided(table)?.first >= first {
            return Ok(());
        }
        self.change_wide(table, |wide| {
            if let Some(parts) = &mut wide.parts {
                parts.first = first;
            }
        })
    }
}

/// Returns the division of a table.
fn divided(table: &WideTable) -> Result<&PartsSpec> {
    let name = table.table().name();
    let parts = table.settings().parts.as_ref();
    parts.ok_or_else(|| {
        EngineError::Invalid(format!(
            "table {name} is not divided into parts; `wide.parts` divides a new table"
        ))
    })
}
