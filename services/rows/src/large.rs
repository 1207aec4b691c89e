//! Values of any size, written and read as streams of bytes.
//!
//! A value of up to 64 KiB becomes a part of its row. A larger value is stored in pieces, and its row gets a reference
//! to them. The row changes only after all pieces are durable. In JSON, a large value is an object with its type, its
//! size, its checksum, and the address from which it can be read. A text of up to 2 MiB is stored like a text of a write
//! of rows instead, so that it does not depend on the form of the request whether conditions test it.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::large::{
    LARGE_BYTES_MAX, LARGE_BYTES_MIN, LargeKind, LargeUpload, LargeValue, WideError, checksum_of,
};
use tideline_engine::model::{ColumnType, Durability, SequenceNumber};
use tideline_engine::rows::{
    Action, CellValue, Column, ColumnName, Image, Mutation, RowCondition, RowOutcome, RowWrite,
    RowWriteOptions, Update,
};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_openapi::row::Members;

use crate::cut::{Cut, RowValue};
use crate::error::{Result, RowsError};
use crate::key;
use crate::selection::INLINE_BYTES_MAX;
use crate::value::write_text;
use crate::write::refused_text;

/// Size of the buffer through which a stream is read, in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Number of bytes of a stream after which an upload checks again whether the disk has room.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// Row and column of a value.
#[derive(Debug)]
pub struct ValueCell {
    /// Stored key of the row.
    pub key: Bytes,
    /// Length of the prefix of the key that names its partition.
    partition: usize,
    /// Stored name of the column.
    pub column: ColumnName<'static>,
    /// Declared type of the column; `None` if it is not declared.
    pub declared: Option<ColumnType>,
    name: String,
}

impl ValueCell {
    /// Resolves a row, by its key, and a column.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the key is not complete or not valid, or if the column is not valid or is part of the
    /// key.
    pub fn new(table: &WideTable, key: &Members, column: &str) -> Result<Self> {
        let stored = key::encode(table, key)?;
        if table.layout().has_column(column) {
            return Err(RowsError::Invalid(format!(
                "column {column:?} is part of the key; give another column"
            )));
        }
        if column.is_empty() || column.len() > tideline_engine::wide_table::COLUMN_NAME_BYTES_MAX {
            return Err(RowsError::Invalid(format!(
                "a column name of {} bytes is not valid; 1 to {} are allowed",
                column.len(),
                tideline_engine::wide_table::COLUMN_NAME_BYTES_MAX
            )));
        }
        let (name, declared) = table.column(column);
        let partition = table.layout().partition_len(&stored);
        Ok(Self {
            partition: partition.map_err(|error| RowsError::Invalid(error.to_string()))?,
            key: stored.into(),
            column: name,
            declared,
            name: column.to_owned(),
        })
    }
}

/// State of the column that a write of a value requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueCondition {
    /// The row has no value in the column.
    Absent,
    /// The row has a value in the column.
    Present,
    /// The newest value has this checksum.
    Checksum(u64),
}

impl ValueCondition {
    fn is_met(&self, current: Option<&CellValue<'_>>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Checksum(checksum) => current.and_then(checksum_of) == Some(*checksum),
        }
    }
}

/// Settings of a write of a value.
#[derive(Debug, Default)]
pub struct PutSettings {
    /// True if the content is text. Applies to a column that is not declared.
    pub is_text: bool,
    /// Required state of the column.
    pub condition: Option<ValueCondition>,
    /// Durability of the acknowledgement; `None` = the setting of the table.
    pub durability: Option<Durability>,
    /// Size that the sender has declared, in bytes. A stream of another size is refused.
    pub declared_bytes: Option<u64>,
}

/// Description of a written value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutValue {
    /// Type of the value: `string` or `binary`.
    pub column_type: ColumnType,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3 (64 bits) of the content.
    pub checksum: u64,
    /// True if the value is stored in pieces, outside of its row.
    pub is_large: bool,
    /// Sequence of the journal entry.
    pub position: Option<SequenceNumber>,
}

/// Outcome of a write of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The value was written.
    Written(PutValue),
    /// The condition was not met; nothing was written.
    ConditionFailed,
}

/// Writes a value from a stream: sets a column of a row, and creates the row if it does not exist. Memory does not
/// depend on the size of the value. `is_stopped` is called before each read.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the column cannot hold text or bytes, if a text is not UTF-8, if the stream has another
/// size than declared, or if the row cannot be written; [`RowsError::OverLimit`] beyond 1 GiB; [`RowsError::Input`] if
/// the stream cannot be read; [`RowsError::Cancelled`] if `is_stopped` returns true; and the errors of the engine.
/// After an error of kind `Unavailable`, the value may have been written; after any other error, nothing was written.
pub fn put(
    engine: &Engine,
    table: &Arc<WideTable>,
    cell: &ValueCell,
    settings: &PutSettings,
    input: &mut dyn Read,
    is_stopped: &dyn Fn() -> bool,
) -> Result<PutOutcome> {
    let kind = match (cell.declared, settings.is_text) {
        (Some(ColumnType::String), _) | (None, true) => LargeKind::Text,
        (Some(ColumnType::Binary), _) | (None, false) => LargeKind::Binary,
        (Some(other), _) => {
            return Err(RowsError::Invalid(format!(
                "column {:?} has the type {other}; values are streamed to columns of the types string and binary",
                cell.name
            )));
        }
    };
    if let Some(declared_bytes) = settings.declared_bytes
        && declared_bytes > LARGE_BYTES_MAX
    {
        return Err(RowsError::over(
            "size of a value in bytes",
            LARGE_BYTES_MAX,
            declared_bytes,
        ));
    }
    let mut stream = Stream {
        input,
        bytes: 0,
        declared_bytes: settings.declared_bytes,
        is_stopped,
    };
    let mut first = vec![0; LARGE_BYTES_MIN + 1];
    let length = stream.fill(&mut first)?;
    first.truncate(length);
    if length <= LARGE_BYTES_MIN {
        let value = match kind {
            LargeKind::Binary => CellValue::Binary(first.into()),
            LargeKind::Text | LargeKind::Json => {
                let text = String::from_utf8(first);
                let text = text.map_err(|_| EngineError::from(WideError::NotText))?;
                CellValue::String(text.into())
            }
        };
        return write_value(engine, table, cell, settings, &value);
    }
    let may_fit = settings
        .declared_bytes
        .is_none_or(|bytes| bytes <= INLINE_BYTES_MAX);
    if kind == LargeKind::Text && may_fit {
        first.resize(INLINE_BYTES_MAX as usize + 1, 0);
        let length = length + stream.fill(&mut first[length..])?;
        first.truncate(length);
        if length as u64 <= INLINE_BYTES_MAX
            && let Some(outcome) = put_text(engine, table, cell, settings, &first)?
        {
            return Ok(outcome);
        }
    }
    let mut upload = engine.begin_large(table, &cell.key, &cell.column, kind)?;
    let value = match fill(engine, &mut upload, first, &mut stream) {
        Ok(value) => CellValue::Large(value),
        Err(error) => {
            upload.abandon();
            return Err(error);
        }
    };
    let written = write_value(engine, table, cell, settings, &value);
    match &written {
        Ok(PutOutcome::Written(_)) => upload.kept(),
        Ok(PutOutcome::ConditionFailed) => upload.abandon(),
        Err(error) => end_failed(upload, error),
    }
    written
}

/// Writes a text like a write of rows, so that conditions, searches and aggregates read it. Returns `None` if the row
/// cannot hold the text in this form, for example because of the size of its other values; the text is then uploaded.
fn put_text(
    engine: &Engine,
    table: &Arc<WideTable>,
    cell: &ValueCell,
    settings: &PutSettings,
    text: &[u8],
) -> Result<Option<PutOutcome>> {
    let text = std::str::from_utf8(text).map_err(|_| EngineError::from(WideError::NotText))?;
    let mut value = CellValue::String(text.to_owned().into());
    let to_cut = RowValue {
        row: 0,
        key: &cell.key,
        column: &cell.column,
        value: &mut value,
    };
    let cut = Cut::store(engine, table, std::iter::once(to_cut))?;
    let written = try_write(engine, table, cell, settings, (&value, Some(cut)))?;
    Ok(written.ok())
}

/// Returns true if a write that failed with this error may nevertheless have been applied.
pub(crate) fn is_unknown(error: &EngineError) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Internal)
}

/// Ends an upload after the write of its row has failed.
pub(crate) fn end_failed(upload: LargeUpload, error: &RowsError) {
    match error {
        // The row may reference the value, now or later.
        RowsError::Engine(error) if is_unknown(error) => upload.hold(),
        _ => upload.abandon(),
    }
}

/// Passes the first bytes and the rest of a stream to an upload. Frees the first bytes before it reads the rest, because
/// both together would exceed the memory that is reserved for an upload. Returns the uploaded value.
fn fill(
    engine: &Engine,
    upload: &mut LargeUpload,
    first: Vec<u8>,
    stream: &mut Stream<'_>,
) -> Result<LargeValue> {
    upload.write(&first).map_err(EngineError::from)?;
    drop(first);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut checked = 0;
    loop {
        let length = stream.fill(&mut buffer)?;
        if length == 0 {
            return Ok(upload.finish().map_err(EngineError::from)?);
        }
        if stream.bytes >= checked + SPACE_CHECK_BYTES {
            checked = stream.bytes;
            engine.check_writable()?;
        }
        upload.write(&buffer[..length]).map_err(EngineError::from)?;
    }
}

/// Stream of a value. Its size is compared with the declared size.
struct Stream<'s> {
    input: &'s mut dyn Read,
    bytes: u64,
    declared_bytes: Option<u64>,
    is_stopped: &'s dyn Fn() -> bool,
}

impl Stream<'_> {
    /// Reads from the stream until the buffer is full or the stream ends. Returns the number of bytes that were read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            if (self.is_stopped)() {
                return Err(RowsError::Cancelled);
            }
            match self.input.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RowsError::Input(error)),
            }
        }
        self.bytes += length as u64;
        match self.declared_bytes {
            Some(declared_bytes) if length < buffer.len() && self.bytes != declared_bytes => {
                Err(RowsError::Invalid(format!(
                    "the value ended after {} bytes, and {declared_bytes} were declared; nothing was written",
                    self.bytes
                )))
            }
            _ => Ok(length),
        }
    }
}

/// Writes a value to its row.
fn write_value(
    engine: &Engine,
    table: &Arc<WideTable>,
    cell: &ValueCell,
    settings: &PutSettings,
    value: &CellValue<'static>,
) -> Result<PutOutcome> {
    let written = try_write(engine, table, cell, settings, (value, None))?;
    written.map_err(RowsError::Invalid)
}

/// Writes a value to its row. `cut` is given if the value is stored in pieces that belong to an ordinary write. Returns
/// the reason if the row is refused.
fn try_write(
    engine: &Engine,
    table: &Arc<WideTable>,
    cell: &ValueCell,
    settings: &PutSettings,
    (value, cut): (&CellValue<'static>, Option<Cut>),
) -> Result<std::result::Result<PutOutcome, String>> {
    engine.wait_for_searches(table);
    let make = |_: &mut dyn FnMut() -> i64| {
        let time = engine.next_version();
        let column = Column::with(cell.column.clone(), time, value.clone());
        let condition = settings.condition.as_ref().map(|condition| {
            let is_met = move |row: Option<&Mutation<'_>>| {
                let current = row.and_then(|row| row.column(&cell.column)?.newest());
                condition.is_met(current.map(|version| &version.value))
            };
            Box::new(is_met) as RowCondition<'_>
        });
        Ok(vec![RowWrite {
            key: cell.key.clone(),
            partition: cell.partition,
            time,
            action: Action::Update(Update {
                columns: vec![column],
                follows_current: true,
                ..Update::default()
            }),
            condition,
            image: Image::None,
        }])
    };
    let options = RowWriteOptions {
        durability: settings.durability,
        ..RowWriteOptions::default()
    };
    let written = engine.write_rows(table, &make, &options);
    let (_, written) = match cut {
        Some(cut) => cut.end(engine, written)?,
        None => written?,
    };
    Ok(match written.rows.first() {
        Some(RowOutcome::Written(_)) => Ok(PutOutcome::Written(PutValue {
            column_type: value.column_type(),
            bytes: bytes_of(value),
            checksum: checksum_of(value).unwrap_or_default(),
            is_large: matches!(value, CellValue::Large(_)),
            position: written.sequence,
        })),
        Some(RowOutcome::Refused(refused)) => Err(refused_text(table, refused)),
        Some(RowOutcome::ConditionFailed(_)) => Ok(PutOutcome::ConditionFailed),
        Some(RowOutcome::NotApplied) | None => Err("the row was not written".into()),
    })
}

fn bytes_of(value: &CellValue<'_>) -> u64 {
    match value {
        CellValue::Large(large) => large.bytes,
        CellValue::String(text) => text.len() as u64,
        CellValue::Binary(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

/// Appends a large value as JSON: `{"large": {"type": …, "bytes": …, "checksum": …}}`, with `href` if it is given.
pub(crate) fn write_large(large: &LargeValue, href: Option<&str>, out: &mut Vec<u8>) {
    let kind = match large.kind {
        LargeKind::Text => "string",
        LargeKind::Binary => "binary",
        LargeKind::Json => "json",
    };
    let (bytes, checksum) = (large.bytes, checksum_text(large.checksum));
    write!(
        out,
        "{{\"large\":{{\"type\":\"{kind}\",\"bytes\":{bytes},\"checksum\":\"{checksum}\""
    )
    .expect("a vector takes all bytes");
    if let Some(href) = href {
        out.extend_from_slice(b",\"href\":");
        write_text(href, out);
    }
    out.extend_from_slice(b"}}");
}

/// Returns a checksum as text: 16 hexadecimal digits.
pub fn checksum_text(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// Returns the path and query of the address from which a value of a row can be read. `key` is the key as a JSON
/// object.
pub(crate) fn href(table: &str, key: &[u8], column: &str) -> String {
    let mut out = String::from("/v1/tables/");
    percent_encode(table.as_bytes(), &mut out);
    out.push_str("/blobs/");
    percent_encode(column.as_bytes(), &mut out);
    out.push_str("?key=");
    percent_encode(key, &mut out);
    out
}

/// Appends bytes with the percent-encoding of URLs.
fn percent_encode(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
}
