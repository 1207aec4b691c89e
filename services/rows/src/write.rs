//! Writes of rows: converts the rows of a request to one write of the engine, and returns an outcome per row.
//!
//! 1. Each row is parsed according to the types of the table. A row that is not valid is refused. The other rows of its
//!    partition are then not applied, because the rows of a partition are written atomically. If its partition cannot be
//!    determined, no row of the request is applied. In a body of lines, such a line is refused alone, because the lines of
//!    a partition can be in several entries anyway.
//! 2. The remaining rows are written together. The engine evaluates conditions and assigns versions and ids.
//! 3. The outcomes of all rows are returned in the order of the request. If the request has an idempotency key, they
//!    are also stored with it.
//!
//! A body of lines is divided into entries, which are written one after the other.

mod draft;
mod lines;
mod outcome;
mod prepared;

use std::borrow::Borrow;

use serde_json::value::RawValue;
use tideline_engine::model::{Durability, SequenceNumber};
use tideline_engine::rows::{
    Image, RememberedResponse, RowCommit, RowOutcome as EngineOutcome, RowRequestStart,
    RowWrite as EngineWrite, RowWriteOptions,
};
use tideline_engine::{Engine, EngineError, IdempotentRequest, WideTable};
use tideline_openapi::plain::{self, JsonFault};
use tideline_openapi::row::{RowCounts, RowImage, RowIntegers, RowOperation, RowOutcome, RowWrite, RowsBody};

use crate::condition::has_patterns;
use crate::cut::{Cut, RowValue};
use crate::error::{Result, RowsError};
use crate::transaction::Transaction;
pub(crate) use draft::Unreadable;
use draft::{Draft, State, check_partition, exclude_rows, to_write};
pub(crate) use lines::{Divided, write_divided};
pub use lines::{OutcomeSink, WrittenLines, check_room, write_lines};
pub use outcome::refused_text;
use outcome::{Remembered, charge_images, counts_of, outcomes_of, repeated};
use prepared::Preparer;

/// Maximum number of rows of a request with a single JSON body.
pub const ROWS_MAX: usize = 10_000;
/// Maximum number of rows with the member `return` in a request, or in an entry of a body of lines. The returned rows
/// are held in memory until the response is sent.
pub const IMAGES_MAX: usize = 100;
/// Maximum total size of the returned rows of an entry that are stored with an idempotency key, in bytes. If they are
/// larger, the outcomes are stored without the returned rows.
const REMEMBERED_BYTES_MAX: usize = 1 << 20;

/// Settings of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteSettings {
    /// Durability of the acknowledgement; `None` = the setting of the table.
    pub durability: Option<Durability>,
    /// Form of integers in outcomes.
    pub integers: RowIntegers,
    /// Idempotency key of the client.
    pub key: Option<String>,
    /// True if the valid rows of a partition are written even if another row of the partition is not valid.
    pub is_independent: bool,
    /// Rows and ranges that must be unchanged; `None` = no requirement.
    pub transaction: Option<Transaction>,
}

/// Outcomes of a write.
#[derive(Debug, Clone, Default)]
pub struct Outcomes {
    /// Number of rows with each outcome.
    pub counts: RowCounts,
    /// Outcomes in the order of the rows.
    pub rows: Vec<RowOutcome>,
    /// True if these are the outcomes of an earlier request with the same idempotency key.
    pub repeated: bool,
    /// Sequence of the journal entry; of a later entry if the outcomes are those of an earlier request. `None` if nothing
    /// was written.
    pub position: Option<SequenceNumber>,
}

/// Reads the body of a request. Callers use this function instead of a separate JSON parser: this crate is compiled for
/// speed, and a caller may be compiled for size.
///
/// # Errors
///
/// The errors of [`plain::read`].
pub fn read_body(body: &[u8]) -> std::result::Result<RowsBody, JsonFault> {
    plain::read(body)
}

/// Writes the rows of a request. If the request has an idempotency key, `body` identifies its content.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many rows, [`RowsError::Invalid`] if a row does not belong to the partition of the
/// transaction, [`RowsError::Changed`] if a row or range of the transaction has changed, and the errors of
/// [`Engine::begin_row_request`] and [`Engine::write_rows`]. After an error of kind `Unavailable`, the rows may have
/// been written; after any other error, nothing was written.
pub fn write(
    engine: &Engine,
    table: &WideTable,
    rows: &[RowWrite],
    body: &[u8],
    settings: &WriteSettings,
) -> Result<Outcomes> {
    check_counts(rows)?;
    let terms = EntryTerms::default();
    write_entry(engine, table, rows.iter().map(Ok), terms, body, settings)
}

/// Checks the limits of a request.
fn check_counts(rows: &[RowWrite]) -> Result<()> {
    if rows.len() > ROWS_MAX {
        return Err(RowsError::over(
            "number of rows",
            ROWS_MAX as u64,
            rows.len() as u64,
        ));
    }
    let images = rows.iter().filter(|row| row.image != RowImage::None).count();
    if images > IMAGES_MAX {
        return Err(RowsError::over(
            "number of rows with `return`",
            IMAGES_MAX as u64,
            images as u64,
        ));
    }
    Ok(())
}

/// Rows whose write has begun. The outcomes apply if the commit succeeds.
#[derive(Debug)]
pub struct Begun {
    /// Outcomes of the rows.
    pub outcomes: Outcomes,
    /// The commit; `None` if nothing is written.
    pub commit: Option<RowCommit>,
}

/// Returns true if [`begin`] reads no stored row for these rows. It then takes only the time to parse them.
pub fn reads_nothing(table: &WideTable, rows: &[RowWrite]) -> bool {
    let is_plain = |row: &RowWrite| {
        matches!(row.op, RowOperation::Put | RowOperation::Delete)
            && row.condition.is_none()
            && row.image == RowImage::None
    };
    table.settings().indexes.is_empty() && rows.iter().all(is_plain)
}

/// Returns true if [`begin`] takes only the time to read the stored rows from the hot tier: it compiles no patterns,
/// and holds no lock that writes of other rows need.
pub fn reads_only_hot_rows(engine: &Engine, table: &WideTable, rows: &[RowWrite]) -> bool {
    let compiles_patterns = |row: &RowWrite| {
        let filter = row
            .condition
            .as_ref()
            .and_then(|condition| condition.filter.as_ref());
        filter.is_some_and(|filter| has_patterns(&filter.0))
    };
    table.layout().generated().is_none()
        && !engine.has_cold_parts(table)
        && !rows.iter().any(compiles_patterns)
}

/// Begins one attempt of [`write`], without waiting for the commit. Returns `None` for requests that [`write`] must
/// execute: requests with an idempotency key or a transaction.
///
/// # Errors
///
/// The errors of [`write`], except those of the commit.
pub fn begin(
    engine: &Engine,
    table: &WideTable,
    rows: &[RowWrite],
    settings: &WriteSettings,
) -> Result<Option<Begun>> {
    if settings.key.is_some() || settings.transaction.is_some() {
        return Ok(None);
    }
    check_counts(rows)?;
    let drafts = drafts_of(engine, table, rows.iter().map(Ok), (0, false), settings)?;
    check_images(engine, &drafts)?;
    let (writes, written, commit) = match drafts.iter().any(|draft| draft.ready().is_some()) {
        true => {
            let make = |next_id: &mut dyn FnMut() -> i64| writes_of(table, &drafts, next_id);
            let options = RowWriteOptions {
                durability: settings.durability,
                ..RowWriteOptions::default()
            };
            let begun = engine.begin_rows(table, &make, &options)?;
            (begun.writes, begun.outcomes, begun.commit)
        }
        false => (Vec::new(), Vec::new(), None),
    };
    let rows = outcomes_of(table, &drafts, &writes, &written, settings.integers);
    charge_images(engine, &rows);
    let outcomes = Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: false,
        position: None,
    };
    Ok(Some(Begun { outcomes, commit }))
}

/// Parses rows according to the types of the table. `first` is the index of the first row. `are_lines` is true if the
/// rows are lines, of which one without a known partition does not stop the others.
///
/// # Errors
///
/// [`RowsError::Invalid`] if a row does not belong to the partition of the transaction, and errors of the engine that do
/// not result from the rows, such as a lack of memory for the patterns of conditions.
fn drafts_of<R: Borrow<RowWrite>>(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<R, Unreadable>>,
    (first, are_lines): (u64, bool),
    settings: &WriteSettings,
) -> Result<Vec<Draft>> {
    let mut preparer = Preparer::new(engine, table, rows.size_hint().1 == Some(1));
    let drafts = (first..)
        .zip(rows)
        .map(|(index, row)| Draft::new(&mut preparer, index, row));
    let mut drafts = drafts.collect::<Result<Vec<Draft>>>()?;
    if let Some(transaction) = &settings.transaction {
        check_partition(&drafts, transaction)?;
    }
    if !settings.is_independent {
        exclude_rows(&mut drafts, settings.transaction.is_some(), are_lines);
    }
    Ok(drafts)
}

/// Returns the writes of the valid rows.
fn writes_of<'d>(
    table: &'d WideTable,
    drafts: &'d [Draft],
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<Vec<EngineWrite<'d>>, EngineError> {
    let time = next_id();
    let ready = drafts.iter().filter_map(Draft::ready);
    ready
        .map(|(key, prepared)| to_write(table, key, prepared, time, next_id))
        .collect()
}

/// Returns the values of the valid rows that can be stored in pieces. The pieces of a value are stored with the key of
/// its row, so the values of a row to which the server assigns an id stay in the row.
fn values_of(drafts: &mut [Draft]) -> impl Iterator<Item = RowValue<'_>> {
    let ready = drafts.iter_mut().filter(|draft| draft.ready().is_some());
    let of_rows = ready.enumerate().filter_map(|(row, draft)| {
        let key = draft.key.as_ref()?.stored.as_deref()?;
        let State::Ready(prepared) = &mut draft.state else {
            return None;
        };
        let columns = prepared.columns.iter_mut();
        Some(columns.flat_map(move |(column, given)| {
            let column = &*column;
            given.iter_mut().map(move |given| RowValue {
                row,
                key,
                column,
                value: &mut given.value,
            })
        }))
    });
    of_rows.flatten()
}

/// Checks the budget of bytes read of the tenant if the outcome of a row contains a stored row.
fn check_images(engine: &Engine, drafts: &[Draft]) -> Result<()> {
    let mut ready = drafts.iter().filter_map(Draft::ready);
    match ready.any(|(_, prepared)| prepared.image != Image::None) {
        true => Ok(engine.check_tenant_reads()?),
        false => Ok(()),
    }
}

/// Position of an entry in its request, and the kind of its rows.
#[derive(Debug, Clone, Copy, Default)]
struct EntryTerms {
    /// Index of the first row.
    first: u64,
    /// True if the rows are lines, of which one without a known partition does not stop the others.
    are_lines: bool,
    /// True to store the outcomes with the idempotency key even if no row is valid. Otherwise they are not stored, so
    /// that the request can be corrected and sent again with its key.
    stores_refused: bool,
}

/// Writes rows as one entry. If a row could not be read, `rows` contains the reason instead of the row. `body` is the
/// content that an idempotency key identifies, and unused without one.
fn write_entry<R: Borrow<RowWrite>>(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<R, Unreadable>>,
    terms: EntryTerms,
    body: &[u8],
    settings: &WriteSettings,
) -> Result<Outcomes> {
    let running = match &settings.key {
        None => None,
        Some(key) => {
            let integers = [settings.integers as u8];
            let request = IdempotentRequest::new(key.clone(), body, &[b"rows", &integers]);
            match engine.begin_row_request(table, &request)? {
                RowRequestStart::New(running) => Some(running),
                RowRequestStart::Repeated(stored) => return repeated(engine, table, &stored),
            }
        }
    };
    let mut drafts = drafts_of(engine, table, rows, (terms.first, terms.are_lines), settings)?;
    check_images(engine, &drafts)?;
    let cut = Cut::store(engine, table, values_of(&mut drafts))?;
    let make = |next_id: &mut dyn FnMut() -> i64| writes_of(table, &drafts, next_id);
    let response = |writes: &[EngineWrite<'_>], outcomes: &[EngineOutcome]| -> Box<RawValue> {
        let mut rows = outcomes_of(table, &drafts, writes, outcomes, settings.integers);
        let bytes = rows
            .iter()
            .filter_map(|row| row.row.as_ref())
            .map(|row| row.get().len());
        if bytes.sum::<usize>() > REMEMBERED_BYTES_MAX {
            rows.iter_mut().for_each(|row| row.row = None);
        }
        serde_json::value::to_raw_value(&Remembered { rows }).unwrap_or_default()
    };
    let options = RowWriteOptions {
        durability: settings.durability,
        request: running.map(|request| RememberedResponse {
            request,
            response: &response,
        }),
        unchanged: settings
            .transaction
            .as_ref()
            .map_or_else(Vec::new, |transaction| transaction.unchanged.clone()),
        is_whole: false,
    };
    // A transaction without rows only compares what was read.
    let compares_only = drafts.is_empty() && settings.transaction.is_some();
    let stores_refused = terms.stores_refused && settings.key.is_some();
    let is_written = compares_only || stores_refused || drafts.iter().any(|draft| draft.ready().is_some());
    let (writes, written, position) = match is_written {
        true => {
            let written = engine.write_rows(table, &make, &options);
            let (writes, written) = cut.end(engine, written)?;
            if let Some(changed) = written.changed {
                return Err(RowsError::Changed(changed));
            }
            (writes, written.rows, written.sequence)
        }
        false => (Vec::new(), Vec::new(), None),
    };
    let rows = outcomes_of(table, &drafts, &writes, &written, settings.integers);
    charge_images(engine, &rows);
    Ok(Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: false,
        position,
    })
}
