//! Large values of wide tables: uploads, reads of any value as bytes, and removal of values that no row refers to.
//!
//! The first large value of a table changes its settings: the pieces of large values get a separate id. Older builds
//! refuse the table from then on.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tideline_model::{ColumnType, TableId};
use tideline_wide_table::{ColumnName, ColumnSpan, Version};
pub use tideline_wide_table::{
    CutValue, LARGE_BYTES_MAX, LARGE_BYTES_MIN, LargeKind, LargeReader, LargeUpload, LargeValue, PIECE_BYTES,
    UPLOAD_MEMORY_BYTES, ValueToCut, WideError,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::row_load::RowAccess;
use crate::rows::CellValue;
use crate::wide_table::WideTable;

/// Number of attempts to read a value. A read is repeated if the row was overwritten meanwhile.
const READ_ATTEMPTS_MAX: usize = 100;

/// Version of a text or binary value, readable in ranges.
#[derive(Debug)]
pub struct ValueBytes {
    /// Type of the value: `string`, `binary` or `json`.
    pub column_type: ColumnType,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3 (64 bits) of the content.
    pub checksum: u64,
    /// Time of the version, in nanoseconds since 1970-01-01T00:00:00Z.
    pub version: i64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Row(Bytes),
    Pieces(LargeReader),
}

impl ValueBytes {
    /// Returns true if the value is stored in pieces. The bytes of other values are read, and charged, with their row.
    pub fn is_large(&self) -> bool {
        matches!(self.content, Content::Pieces(_))
    }

    /// Returns bytes from `offset` on: at most [`PIECE_BYTES`] of a large value, all remaining bytes of another value.
    /// Returns no bytes at the end of the value.
    ///
    /// # Errors
    ///
    /// Returns a store error if a piece is damaged, or if its table or part was dropped meanwhile.
    pub fn at(&self, offset: u64) -> Result<Bytes> {
        match &self.content {
            Content::Pieces(reader) => Ok(reader.at(offset)?),
            Content::Row(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(bytes.slice(start.min(bytes.len())..))
            }
        }
    }
}

/// Returns the checksum of a text or binary value: xxh3 (64 bits) of its content. `None` for values of other types.
pub fn checksum_of(value: &CellValue<'_>) -> Option<u64> {
    match value {
        CellValue::Large(large) => Some(large.checksum),
        value => content_of(value).map(xxh3_64),
    }
}

/// Returns the bytes of a text or binary value that is stored in its row; `None` for large values and values of other
/// types.
fn content_of<'v>(value: &'v CellValue<'_>) -> Option<&'v [u8]> {
    match value {
        CellValue::String(text) | CellValue::Json(text) => Some(text.as_bytes()),
        CellValue::Binary(bytes) => Some(bytes),
        _ => None,
    }
}

/// Work of a removal of values so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargeProgress {
    /// Number of values that rows refer to.
    pub values: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Number of values that were removed.
    pub removed: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
}

impl Engine {
    /// Begins an upload of a value for a column of a row. The caller writes the value to the row afterwards, and then
    /// ends the upload.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space, and the errors of the row store.
    pub fn begin_large(
        &self,
        table: &Arc<WideTable>,
        key: &[u8],
        column: &ColumnName<'_>,
        kind: LargeKind,
    ) -> Result<LargeUpload> {
        self.check_writable()?;
        self.open_large_values(table)?;
        Ok(self
            .rows
            .begin_large(table.table().points().id(), key, column, kind)?)
    }

    /// Gives a table an id for the pieces of large values, if it has none.
    pub(crate) fn open_large_values(&self, table: &WideTable) -> Result<()> {
        if table.settings().large_values.is_some() {
            return Ok(());
        }
        let _settings = self.lock_settings();
        // Another upload may have changed the settings meanwhile.
        let table = self.known_rows(table.table().name().as_str())?;
        if table.settings().large_values.is_none() {
            self.change_wide(&table, |wide| wide.large_values = Some(0))?;
        }
        Ok(())
    }

    /// Stores values of rows in pieces, before the rows are written. Returns a value for each element of `values`;
    /// `None` if the value must be written with its row.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space, and the errors of the row store.
    pub fn cut_values(&self, table: &WideTable, values: &[ValueToCut<'_>]) -> Result<Vec<Option<CutValue>>> {
        self.check_writable()?;
        let has_setting = |table: &WideTable| {
            let settings = table.settings();
            settings.cut_values && settings.large_values.is_some()
        };
        if !has_setting(table) {
            let _settings = self.lock_settings();
            // Another write may have changed the settings meanwhile.
            let table = self.known_rows(table.table().name().as_str())?;
            if !has_setting(&table) {
                self.change_wide(&table, |wide| {
                    wide.cut_values = true;
                    wide.large_values = wide.large_values.or(Some(0));
                })?;
            }
        }
        Ok(self.rows.cut_values(table.table().points().id(), values)?)
    }

    /// Removes stored values whose rows were not written.
    pub fn abandon_cut(&self, values: &[CutValue]) {
        self.rows.abandon_cut(values);
    }

    /// Opens a version of a text or binary value of a row: the newest, or the one with this time. Returns `None` if the
    /// row, the column or the version does not exist. Counts as a read of the row, without the pieces of a large value.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] if the value has another type, [`EngineError::RateLimited`] if a rate of the
    /// table is used up, and the errors of the row store.
    pub fn open_value(
        &self,
        table: &WideTable,
        key: &[u8],
        column: &ColumnName<'_>,
        version: Option<i64>,
    ) -> Result<Option<ValueBytes>> {
        let id = table.table().points().id();
        let declared = match column {
            ColumnName::Declared(number) => vec![*number],
            ColumnName::Named(_) => Vec::new(),
        };
        // The span of undeclared names holds exactly the column, or nothing.
        let name = match column {
            ColumnName::Named(name) => name.as_ref(),
            ColumnName::Declared(_) => "",
        };
        let end = match column {
            ColumnName::Named(name) => format!("{name}\0"),
            ColumnName::Declared(_) => String::new(),
        };
        let span = ColumnSpan {
            declared: &declared,
            from: name,
            to: Some(&end),
            limit: 1,
        };
        self.admit_rows(table, RowAccess::Read, std::iter::once(key))?;
        self.note_rows(table, RowAccess::Read, 1, |_| key);
        let mut last = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let page = self.rows.columns(id, key, &span)?;
            self.charge_read(table, key, page.as_ref().map_or(0, |page| page.row.bytes()))?;
            let Some(page) = page else {
                return Ok(None);
            };
            let row = page.row.columns();
            let row = row.map_err(|reason| WideError::Damaged { table: id, reason })?;
            let versions = row.column(column).map(|column| &column.versions);
            let wanted = |found: &&Version<'_>| version.is_none_or(|time| found.time == time);
            let Some(found) = versions.and_then(|versions| versions.iter().find(wanted)) else {
                return Ok(None);
            };
            let column_type = found.value.column_type();
            let CellValue::Large(large) = found.value else {
                let content = content_of(&found.value).map(Bytes::copy_from_slice).ok_or_else(|| {
                    EngineError::Invalid(format!(
                        "the value has the type {column_type}, which is not read as bytes; read it with the row"
                    ))
                })?;
                return Ok(Some(ValueBytes {
                    column_type,
                    bytes: content.len() as u64,
                    checksum: xxh3_64(&content),
                    version: found.time,
                    content: Content::Row(content),
                }));
            };
            if let Some(reader) = self.rows.read_large(id, key, large)? {
                return Ok(Some(ValueBytes {
                    column_type,
                    bytes: large.bytes,
                    checksum: large.checksum,
                    version: found.time,
                    content: Content::Pieces(reader),
                }));
            }
            if self.rows.is_elsewhere(id, key, &large)? {
                return Err(WideError::LargeNotArchived(id).into());
            }
            // The row still refers to the same value, so its pieces are lost.
            if last == Some(large) {
                return Err(WideError::LargeMissing(id).into());
            }
            last = Some(large);
        }
        Err(WideError::Contended {
            attempts: READ_ATTEMPTS_MAX as u32,
        }
        .into())
    }

    /// Returns the content of a large value of a row; `None` if the row was overwritten and the value was removed.
    ///
    /// # Errors
    ///
    /// Returns a store error if the value cannot be read.
    pub fn read_large(&self, table: &WideTable, key: &[u8], value: LargeValue) -> Result<Option<Vec<u8>>> {
        let reader = self.rows.read_large(table.table().points().id(), key, value)?;
        let Some(reader) = reader else {
            return Ok(None);
        };
        let mut content = Vec::with_capacity(usize::try_from(value.bytes).unwrap_or_default());
        loop {
            let piece = reader.at(content.len() as u64)?;
            if piece.is_empty() {
                self.charge_tenant_read(content.len() as u64);
                return Ok(Some(content));
            }
            content.extend_from_slice(&piece);
        }
    }

    /// Copies a large value to a row of another table. The upload must be ended after the row was written.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`begin_large`](Self::begin_large), and a store error if the value cannot be read.
    pub fn copy_large(
        &self,
        from: (&WideTable, &[u8], LargeValue),
        into: (&Arc<WideTable>, &[u8], &ColumnName<'_>),
    ) -> Result<(LargeUpload, LargeValue)> {
        let (source, key, value) = from;
        let id = source.table().points().id();
        let Some(reader) = self.rows.read_large(id, key, value)? else {
            return Err(match self.rows.is_elsewhere(id, key, &value)? {
                true => WideError::LargeNotArchived(id).into(),
                false => WideError::LargeGone(id).into(),
            });
        };
        let (table, key, column) = into;
        let mut upload = self.begin_large(table, key, column, value.kind)?;
        let mut offset = 0;
        loop {
            let piece = reader.at(offset)?;
            if piece.is_empty() {
                let copied = upload.finish()?;
                return Ok((upload, copied));
            }
            upload.write(&piece)?;
            offset += piece.len() as u64;
        }
    }

    /// Removes the large values of a table that no row refers to: overwritten, deleted, expired and abandoned values.
    /// Calls `proceed` after each step except the last. Returns `None` if `proceed` has ended the removal.
    ///
    /// # Errors
    ///
    /// Returns an error if rows or pieces cannot be read or removed. A table that does not exist is not an error.
    pub fn remove_unnamed_values(
        &self,
        table: TableId,
        proceed: &mut dyn FnMut(&LargeProgress) -> ControlFlow<()>,
    ) -> Result<Option<LargeProgress>> {
        let mut progress = LargeProgress::default();
        let mut from = None;
        loop {
            let step = match self.rows.gc_large_values(self.store.threads(), table, from) {
                Err(WideError::NoTable(_)) => return Ok(Some(progress)),
                step => step?,
            };
            progress.values += step.values;
            progress.bytes += step.bytes;
            progress.removed += step.removed;
            progress.bytes_read += step.bytes_read;
            if step.next.is_none() {
                self.large_counts.lock().insert(table, progress);
                return Ok(Some(progress));
            }
            from = step.next;
            if proceed(&progress).is_break() {
                return Ok(None);
            }
        }
    }

    /// Returns true if large values were ever written to the table.
    pub fn has_large_values(&self, table: TableId) -> bool {
        self.rows.has_large(table)
    }

    /// Returns the counts of the last complete removal of each table since the start.
    pub fn large_values(&self) -> Vec<(TableId, LargeProgress)> {
        let counts = self.large_counts.lock();
        let counts = counts.iter().filter(|(table, _)| self.rows.has_large(**table));
        counts.map(|(table, counted)| (*table, *counted)).collect()
    }
}
