//! Imports of files as row writes: CSV, lines of JSON, Arrow streams and Parquet files.
//!
//! 1. A reader reads one record at a time from the input, so memory is bounded by a record, or by a batch of Arrow.
//! 2. [`FileColumns`] maps the columns of the file to key columns and other columns by their names. It converts each
//!    value to the JSON form that writes accept. Values are therefore checked against the types of the table, with the
//!    same error messages as in a write.
//! 3. Records are collected in entries, and the entries are written one after the other. If a record is not valid, only
//!    this record is refused. Unlike in a write, the other rows of its partition are written.
//!
//! | module | holds |
//! |---|---|
//! | `columns` | mapping of columns, conversion of values |
//! | `csv` | records of CSV |
//! | `lines` | lines of JSON |
//! | `arrow` | batches of Arrow streams and Parquet files |

mod arrow;
mod columns;
mod csv;
mod lines;

use std::collections::BTreeMap;
use std::io::{self, Read};

use bytes::Bytes;
use tideline_engine::fail_points::{When, pass};
use tideline_engine::model::SequenceNumber;
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::row::{RowCounts, RowOperation, RowOutcome, RowStatus, RowWrite};

use crate::error::{Result, RowsError};
use crate::write::{Divided, Unreadable, WriteSettings, check_room, write_divided};

use self::columns::FileColumns;

/// Suffix of the idempotency key of the second write of an entry.
const LAST_PART: &str = "/2";

/// Number of records at which an entry is written.
const ENTRY_RECORDS: usize = 1_000;
/// Size of an entry at which it is written, in bytes of JSON.
const ENTRY_BYTES: usize = 1 << 20;
/// Maximum size of a record of text, in bytes: more than the largest row.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Maximum memory of an import of text, in bytes: a record, its decoded form and an entry.
pub const TEXT_MEMORY_BYTES: u64 = 48 << 20;
/// Maximum memory of an import of Arrow or Parquet in addition to its body, in bytes: a batch or pages, their decoded
/// form and an entry.
pub const COLUMNAR_MEMORY_BYTES: u64 = 80 << 20;

/// Input of an import.
pub enum ImportSource {
    /// CSV with a header line.
    Csv(Box<dyn Read + Send>),
    /// One JSON object per line.
    Lines(Box<dyn Read + Send>),
    /// Arrow IPC stream.
    Arrow(Box<dyn Read + Send>),
    /// Parquet file. It is held in memory as a whole, because its metadata is at the end.
    Parquet(Bytes),
}

/// Settings of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportSettings {
    /// Settings of the writes.
    pub write: WriteSettings,
    /// Maps the name of a file column to the name of a table column, or to `None` if the file column is ignored. File
    /// columns that are not in the map keep their names.
    pub map: BTreeMap<String, Option<String>>,
    /// True if a record changes only the columns that it contains; false if it replaces the row.
    pub is_update: bool,
}

/// Outcome of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// Number of records with each outcome.
    pub counts: RowCounts,
    /// Error that ended the import before the end of the input, after entries had been written.
    pub stopped: Option<RowsError>,
    /// Sequence of the last journal entry; `None` if nothing was written.
    pub position: Option<SequenceNumber>,
}

/// Returns the idempotency key of an entry or of a part of it.
fn entry_key(key: &str, number: u64, part: &str) -> String {
    format!("{key}#{number}{part}")
}

/// Record of a file: its write, or the reason why the record is refused.
type Record = std::result::Result<RowWrite, String>;

/// Imports the records of a source. Passes the outcome of each record that was not written to `reject`. The index in
/// the outcome is the number of the record, starting at 0, without the header line.
///
/// If the writes have an idempotency key, each entry gets a separate key derived from it, so a repeated import writes
/// each entry once.
///
/// # Errors
///
/// [`RowsError::Input`] for the error of the input, [`RowsError::Invalid`] for a damaged file or one of an unsupported
/// form, [`RowsError::OverLimit`] for a key that has no room for the numbers of entries, and the errors of
/// [`write`](crate::write::write). After the first entry has been written, an error is part of the result, as
/// [`Imported::stopped`].
pub fn import(
    engine: &Engine,
    table: &WideTable,
    source: ImportSource,
    settings: &ImportSettings,
    is_stopped: &dyn Fn() -> bool,
    reject: &mut dyn FnMut(&RowOutcome) -> io::Result<()>,
) -> Result<Imported> {
    if let Some(key) = &settings.write.key {
        check_room(key, entry_key("", u64::MAX, LAST_PART).len(), "an import")?;
    }
    let columns = FileColumns::new(table, settings);
    let mut entries = Entries {
        engine,
        table,
        settings,
        is_stopped,
        reject,
        records: Vec::new(),
        bytes: 0,
        next: 0,
        entries: 0,
        counts: RowCounts::default(),
        position: None,
    };
    let mut take = |record: Record, bytes: usize| entries.add(record, bytes);
    let read = match source {
        ImportSource::Csv(input) => csv::read(input, &columns, &mut take),
        ImportSource::Lines(input) => lines::read(input, &columns, &mut take),
        ImportSource::Arrow(input) => arrow::read_stream(input, &columns, &mut take),
        ImportSource::Parquet(file) => arrow::read_file(file, &columns, &mut take),
    };
    let ended = read.and_then(|()| entries.flush());
    match ended {
        Ok(()) => Ok(Imported {
            counts: entries.counts,
            stopped: None,
            position: entries.position,
        }),
        Err(error) if entries.entries == 0 => Err(error),
        Err(error) => Ok(Imported {
            counts: entries.counts,
            stopped: Some(error),
            position: entries.position,
        }),
    }
}

/// Collects records in entries and writes the entries.
struct Entries<'i> {
    engine: &'i Engine,
    table: &'i WideTable,
    settings: &'i ImportSettings,
    is_stopped: &'i dyn Fn() -> bool,
    reject: &'i mut dyn FnMut(&RowOutcome) -> io::Result<()>,
    records: Vec<Record>,
    bytes: usize,
    /// Number of the first record of the current entry.
    next: u64,
    /// Number of entries that were written.
    entries: u64,
    counts: RowCounts,
    /// Sequence of the last journal entry.
    position: Option<SequenceNumber>,
}

impl Entries<'_> {
    fn add(&mut self, record: Record, bytes: usize) -> Result<()> {
        self.records.push(record);
        self.bytes += bytes;
        match self.records.len() >= ENTRY_RECORDS || self.bytes >= ENTRY_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        self.bytes = 0;
        if records.is_empty() {
            return Ok(());
        }
        if (self.is_stopped)() {
            return Err(RowsError::Cancelled);
        }
        let (first, count) = (self.next, records.len() as u64);
        let all: Vec<&Record> = records.iter().collect();
        let Divided { outcomes, mut error } = self.write(&all, first, "")?;
        let mut outcomes = outcomes.rows;
        // A row that is too large prevents its partition from being written. A second write therefore stores the other
        // rows of the partition.
        let again: Vec<usize> = (0..outcomes.len())
            .filter(|at| error.is_none() && outcomes[*at].status == RowStatus::NotApplied)
            .collect();
        if !again.is_empty() {
            let rest: Vec<&Record> = again.iter().map(|at| &records[*at]).collect();
            let second = self.write(&rest, first, LAST_PART)?;
            error = second.error;
            for (at, outcome) in again.iter().zip(second.outcomes.rows) {
                outcomes[*at] = RowOutcome {
                    index: first + *at as u64,
                    ..outcome
                };
            }
        }
        self.next += count;
        self.entries += u64::from(!outcomes.is_empty());
        for outcome in &outcomes {
            self.counts.add(outcome.status);
            if outcome.status != RowStatus::Written {
                (self.reject)(outcome)?;
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Writes records. An error in the result ended the write after the records that have outcomes.
    fn write(&mut self, records: &[&Record], first: u64, part: &str) -> Result<Divided> {
        let key = self.settings.write.key.as_ref();
        let settings = WriteSettings {
            key: key.map(|key| entry_key(key, self.entries, part)),
            is_independent: true,
            ..self.settings.write.clone()
        };
        let rows_from = |from: usize| {
            records[from..].iter().map(|record| match record {
                Ok(row) => Ok(row),
                Err(reason) => Err(Unreadable::from(reason.clone())),
            })
        };
        let content_from = |from: usize| -> io::Result<Vec<u8>> {
            let mut content = Vec::new();
            for record in &records[from..] {
                match record {
                    Ok(row) => serde_json::to_writer(&mut content, row)?,
                    Err(reason) => content.extend_from_slice(reason.as_bytes()),
                }
                content.push(b'\n');
            }
            Ok(content)
        };
        self.engine.wait_for_searches(self.table);
        pass::<EngineError>("row_import", "entry", When::Before)?;
        let mut written = write_divided(
            self.engine,
            self.table,
            (first, records.len()),
            (rows_from, content_from),
            &settings,
        );
        if written.error.is_none() {
            pass::<EngineError>("row_import", "entry", When::After)?;
        }
        let key = key.map(String::as_str);
        written.error = written.error.map(|error| error.with_key(key));
        self.position = written.outcomes.position.or(self.position);
        Ok(written)
    }
}

/// Returns the error of a file that is damaged or has an unsupported form.
fn unreadable(what: &str, error: impl std::fmt::Display) -> RowsError {
    RowsError::Invalid(format!("{what} cannot be read: {error}"))
}

/// Returns the operation with which records are written.
fn operation(is_update: bool) -> RowOperation {
    match is_update {
        true => RowOperation::Update,
        false => RowOperation::Put,
    }
}
