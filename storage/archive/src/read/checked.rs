//! Validation of footers, so that readers can rely on them without further checks.
//!
//! A file may be foreign or damaged. This module rejects contents that would make the decoder fail: negative offsets,
//! pages outside their column, columns of the wrong type.

use parquet::basic::Type as Physical;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescriptor;
use tideline_model::ValueType;

use super::columns::page_locations;
use crate::copy::ArchiveFile;
use crate::file::columns::{ColumnNote, NOTE_COLUMNS, NOTE_FORMAT, TIME_AT};
use crate::file::shared::{FIELD_LEAF, SHARED_LEAVES, SHARED_LEAVES_WITHOUT_HISTOGRAMS, VALUES_LEAF};

/// Result of a check; the error is a human-readable reason.
type Checked<T> = std::result::Result<T, String>;

/// Value column: index in the file, field name, and type. The field name is empty for a shared file, whose rows hold
/// the field names.
pub(super) type ValueColumn = (usize, String, ValueType);

/// Validates a footer. Returns the value columns, and the first row of each row group followed by the total number of
/// rows.
pub(super) fn checked(
    metadata: &ParquetMetaData,
    file: &ArchiveFile,
) -> Checked<(Vec<ValueColumn>, Vec<u64>)> {
    let notes = metadata
        .file_metadata()
        .key_value_metadata()
        .map_or(&[][..], Vec::as_slice);
    format(notes)?;
    let schema = metadata.file_metadata().schema_descr();
    let fields = match file.shared {
        true => shared_columns(schema)?,
        false => noted_columns(schema, notes).ok_or("its footer does not describe its columns")?,
    };
    is_of_type(schema, TIME_AT, Physical::INT64, 0)?;
    for (column, _, of) in &fields {
        is_of_type(schema, *column, physical(*of), 1)?;
    }
    let mut starts = vec![0];
    let mut rows = 0u64;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let of_group = rows_of(metadata, number, group, file.bytes)?;
        rows = rows.checked_add(of_group).ok_or("it has too many rows")?;
        starts.push(rows);
    }
    if rows != file.rows {
        return Err(format!(
            "its footer declares {rows} rows instead of {}",
            file.rows
        ));
    }
    Ok((fields, starts))
}

/// Rejects files of another format, because the same columns may have another meaning there.
fn format(notes: &[KeyValue]) -> Checked<()> {
    let note = notes.iter().find(|note| note.key == NOTE_FORMAT);
    let format = note
        .and_then(|note| note.value.as_deref())
        .ok_or("its footer has no format note")?;
    match format == crate::FORMAT.to_string() {
        true => Ok(()),
        false => Err(format!("format {format} is not known to this build")),
    }
}

/// Returns the physical type of stored values.
pub(super) fn physical(of: ValueType) -> Physical {
    match of {
        ValueType::Float => Physical::DOUBLE,
        ValueType::Signed | ValueType::Unsigned => Physical::INT64,
        ValueType::Boolean => Physical::BOOLEAN,
        ValueType::String | ValueType::Histogram => Physical::BYTE_ARRAY,
    }
}

fn is_of_type(schema: &SchemaDescriptor, column: usize, physical: Physical, optional: i16) -> Checked<()> {
    let about = schema.column(column);
    let fits =
        about.physical_type() == physical && about.max_rep_level() == 0 && about.max_def_level() <= optional;
    match fits {
        true => Ok(()),
        false => Err(format!("column {:?} has the wrong type", about.name())),
    }
}

fn shared_columns(schema: &SchemaDescriptor) -> Checked<Vec<ValueColumn>> {
    let count = schema.num_columns();
    if ![SHARED_LEAVES, SHARED_LEAVES_WITHOUT_HISTOGRAMS].contains(&count) {
        return Err(format!("it has {count} columns instead of {SHARED_LEAVES}"));
    }
    is_of_type(schema, FIELD_LEAF, Physical::BYTE_ARRAY, 1)?;
    let columns = (VALUES_LEAF..count).zip(ValueType::ALL);
    Ok(columns.map(|(column, of)| (column, String::new(), of)).collect())
}

/// Returns the value columns according to the metadata entry of the file; `None` if the entry is missing or not valid.
fn noted_columns(schema: &SchemaDescriptor, notes: &[KeyValue]) -> Option<Vec<ValueColumn>> {
    let note = notes.iter().find(|note| note.key == NOTE_COLUMNS)?;
    let notes: Vec<ColumnNote> = serde_json::from_str(note.value.as_ref()?).ok()?;
    if notes.len() != schema.num_columns() || notes.is_empty() {
        return None;
    }
    let mut fields = Vec::new();
    for (at, note) in notes.into_iter().enumerate() {
        if let (Some(field), Some(kind)) = (note.field, note.kind) {
            let of = ValueType::ALL.into_iter().find(|of| of.name() == kind)?;
            fields.push((at, field, of));
        }
    }
    Some(fields)
}

/// Returns the number of rows of a row group after checking that its columns and pages are inside the file.
fn rows_of(metadata: &ParquetMetaData, number: usize, group: &RowGroupMetaData, bytes: u64) -> Checked<u64> {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    if group.num_columns() != columns {
        return Err(format!(
            "row group {number} has {} columns instead of {columns}",
            group.num_columns()
        ));
    }
    let rows = u64::try_from(group.num_rows()).map_err(|_| format!("row group {number} has no rows"))?;
    for (at, column) in group.columns().iter().enumerate() {
        let outside = || format!("column {at} of row group {number} is outside of it");
        let range = byte_range(column).ok_or_else(outside)?;
        if range.end > bytes {
            return Err(outside());
        }
        are_pages_inside(metadata, (number, at), range, rows)
            .ok_or_else(|| format!("pages of column {at} of row group {number} are outside of it"))?;
    }
    Ok(rows)
}

/// Returns the byte range of a column; `None` if the footer has impossible numbers.
fn byte_range(column: &ColumnChunkMetaData) -> Option<std::ops::Range<u64>> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let length = u64::try_from(column.compressed_size()).ok()?;
    Some(start..start.checked_add(length)?)
}

/// Returns `Some` if the pages of a column are in order, inside the column, and start at its first row.
fn are_pages_inside(
    metadata: &ParquetMetaData,
    (group, column): (usize, usize),
    range: std::ops::Range<u64>,
    rows: u64,
) -> Option<()> {
    let pages = page_locations(metadata, group, column).ok()?;
    let first = pages.first().map(|page| page.first_row_index);
    if first != (rows > 0).then_some(0) {
        return None;
    }
    let (mut at, mut row) = (range.start, None);
    for page in pages {
        let offset = u64::try_from(page.offset).ok()?;
        let end = offset.checked_add(u64::try_from(page.compressed_page_size).ok()?)?;
        let first = u64::try_from(page.first_row_index).ok()?;
        // The bytes before the first page are the dictionary. Its size must fit the `i32` that the decoder uses.
        let is_near = i32::try_from(offset.checked_sub(at)?).is_ok();
        if !is_near || end > range.end || first >= rows || row.is_some_and(|row| first <= row) {
            return None;
        }
        (at, row) = (end, Some(first));
    }
    Some(())
}
