//! Writes of rows: converts the rows of a request to one write of the engine, and returns an outcome per row.
//!
//! 1. Each row is parsed according to the types of the table. A row that is not valid is refused. The other rows of its
//!    partition are then not applied, because the rows of a partition are written atomically.
//! 2. The remaining rows are written together. The engine evaluates conditions and assigns versions and ids.
//! 3. The outcomes of all rows are returned in the order of the request. If the request has an idempotency key, they
//!    are also stored with it.
//!
//! A body of lines is divided into entries, which are written one after the other.

mod draft;
mod outcome;
mod prepared;

use std::borrow::Borrow;
use std::fmt::Display;
use std::io;
use std::iter::{self, Peekable};

use serde_json::value::RawValue;
use tideline_engine::model::{Durability, SequenceNumber};
use tideline_engine::rows::{
    RememberedResponse, RowCommit, RowOutcome as EngineOutcome, RowRequestStart, RowWrite as EngineWrite,
    RowWriteOptions,
};
use tideline_engine::write::REQUEST_KEY_BYTES_MAX;
use tideline_engine::{Engine, EngineError, IdempotentRequest, WideTable};
use tideline_openapi::plain::{self, JsonFault};
use tideline_openapi::row::{
    RowCounts, RowImage, RowIntegers, RowOperation, RowOutcome, RowStatus, RowWrite, RowsBody,
};

use crate::condition::has_patterns;
use crate::cut::{Cut, RowValue};
use crate::error::{Result, RowsError};
use crate::transaction::Transaction;
use draft::{Draft, State, check_partition, exclude_partitions, to_write};
pub use outcome::refused_text;
use outcome::{Remembered, counts_of, outcome, outcomes_of, repeated};

/// Maximum number of rows of a request with a single JSON body.
pub const ROWS_MAX: usize = 10_000;
/// Maximum number of rows with the member `return` in a request, or in an entry of a body of lines. The returned rows
/// are held in memory until the response is sent.
pub const IMAGES_MAX: usize = 100;
/// Number of lines at which an entry of a body of lines ends.
const ENTRY_LINES: usize = 1_000;
/// Size in bytes at which an entry of a body of lines ends.
const ENTRY_BYTES: usize = 1 << 20;
/// Maximum size of an idempotency key, in bytes, to which the number of any entry can be appended: a `#` and 20 digits.
const LONG_KEY_BYTES: usize = REQUEST_KEY_BYTES_MAX - 21;
/// Bytes that are allocated per line of an outcome; a line for a written row is shorter, unless its key is long.
const TYPICAL_OUTCOME_BYTES: usize = 96;
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
    /// Sequence of the journal entry; `None` if nothing was written.
    pub position: Option<SequenceNumber>,
}

/// Summary of a write of lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct WrittenLines {
    /// Number of rows with each outcome.
    pub counts: RowCounts,
    /// Sequence of the last journal entry; `None` if nothing was written.
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
    write_entry(engine, table, rows.iter().map(Ok), 0, body, settings)
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

/// Receiver of the outcomes of [`write_lines`].
pub trait OutcomeSink {
    /// Takes the outcomes of an entry: a JSON object ([`RowOutcome`]) and a line feed for each of its lines.
    ///
    /// # Errors
    ///
    /// An error ends the write. Entries that were already stored remain.
    fn outcomes(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Calls `wait`, which blocks until the search indexes of the table have caught up. Releases resources that other
    /// requests could use while `wait` runs.
    fn while_waiting(&mut self, wait: &mut dyn FnMut());
}

/// Writes a body with one row per line, divided into entries, and passes the outcomes to `sink`. Lines that are not
/// valid are refused. If an entry after the first one cannot be written, its rows and all following rows are not
/// applied. Their outcomes are marked as retryable if the error is retryable.
///
/// Each entry has a separate idempotency key, derived from the key of the request. A repeated request therefore
/// continues after the last stored entry.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for an idempotency key that is too long for the last entry, the errors of [`write`] for the
/// first entry, and the errors of `sink`.
pub fn write_lines(
    engine: &Engine,
    table: &WideTable,
    body: &[u8],
    settings: &WriteSettings,
    sink: &mut dyn OutcomeSink,
) -> Result<WrittenLines> {
    let mut written_lines = WrittenLines::default();
    let counts = &mut written_lines.counts;
    let mut lines = split_lines(body)
        .filter(|line| !line.trim_ascii().is_empty())
        .zip(0_u64..)
        .peekable();
    if let Some(key) = settings.key.as_ref().filter(|key| key.len() > LONG_KEY_BYTES) {
        let (mut ahead, mut count) = (lines.clone(), 0_u64);
        while !next_entry(&mut ahead).is_empty() {
            count += 1;
        }
        let added = entry_key("", count.saturating_sub(1)).len();
        let what = format_args!("a body with {count} entries of at most {ENTRY_LINES} lines");
        check_room(key, added, what)?;
    }
    let mut entries = 0_u64;
    while let Some((_, first)) = lines.peek().copied() {
        let entry = next_entry(&mut lines);
        let settings = WriteSettings {
            key: settings.key.as_ref().map(|key| entry_key(key, entries)),
            ..settings.clone()
        };
        let mut images = 0;
        let rows = entry.iter().map(|line| {
            let row: RowWrite = plain::read(line).map_err(|fault| fault.message)?;
            images += usize::from(row.image != RowImage::None);
            match images > IMAGES_MAX {
                true => Err(format!(
                    "at most {IMAGES_MAX} of {ENTRY_LINES} lines can have the member `return`"
                )),
                false => Ok(row),
            }
        });
        if engine.is_search_behind(table) {
            sink.while_waiting(&mut || engine.wait_for_searches(table));
        }
        // Only an idempotency key needs the content of the entry.
        let content = match settings.key {
            Some(_) => entry.concat(),
            None => Vec::new(),
        };
        let written = write_entry(engine, table, rows, first, &content, &settings);
        let outcomes = match written {
            Ok(outcomes) => outcomes,
            Err(error) if entries == 0 => return Err(error),
            Err(error) => {
                let retryable = matches!(&error, RowsError::Engine(error) if error.is_retryable());
                let reason = error.to_string();
                let rest = first + entry.len() as u64 + lines.by_ref().count() as u64;
                for index in first..rest {
                    counts.add(RowStatus::NotApplied);
                    let not_applied = RowOutcome {
                        reason: Some(reason.clone()),
                        retryable,
                        ..outcome(index, RowStatus::NotApplied)
                    };
                    sink.outcomes(&lines_of(&[not_applied])?)?;
                }
                return Ok(written_lines);
            }
        };
        entries += 1;
        written_lines.position = outcomes.position.or(written_lines.position);
        outcomes
            .rows
            .iter()
            .for_each(|outcome| counts.add(outcome.status));
        sink.outcomes(&lines_of(&outcomes.rows)?)?;
    }
    Ok(written_lines)
}

/// Returns the lines of a body, without their line feeds.
fn split_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = Some(body);
    iter::from_fn(move || {
        let body = rest?;
        let end = memchr::memchr(b'\n', body);
        rest = end.map(|end| &body[end + 1..]);
        Some(&body[..end.unwrap_or(body.len())])
    })
}

/// Takes the lines of the next entry; none at the end of the body.
fn next_entry<'b>(lines: &mut Peekable<impl Iterator<Item = (&'b [u8], u64)>>) -> Vec<&'b [u8]> {
    let (mut entry, mut bytes) = (Vec::new(), 0);
    while let Some((line, _)) =
        lines.next_if(|_| entry.len() < ENTRY_LINES && (entry.is_empty() || bytes < ENTRY_BYTES))
    {
        bytes += line.len();
        entry.push(line);
    }
    entry
}

/// Returns the idempotency key of an entry.
fn entry_key(key: &str, number: u64) -> String {
    match number {
        0 => key.to_owned(),
        number => format!("{key}#{number}"),
    }
}

/// Refuses an idempotency key that would be too long with `added` further bytes, the size of the suffix of the last
/// entry. Otherwise, the first entries would be written, but the last ones could never be written.
///
/// # Errors
///
/// [`RowsError::OverLimit`], with `what` in the message: the content for which the key is too long.
pub(crate) fn check_room(key: &str, added: usize, what: impl Display) -> Result<()> {
    let limit = REQUEST_KEY_BYTES_MAX - added;
    if added == 0 || key.len() <= limit {
        return Ok(());
    }
    Err(RowsError::OverLimit {
        message: format!(
            "the idempotency key has {} bytes, over the limit of {limit} for {what}; use a shorter key",
            key.len()
        ),
        limit: limit as u64,
        actual: key.len() as u64,
    })
}

/// Returns outcomes as lines of JSON.
fn lines_of(outcomes: &[RowOutcome]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(outcomes.len() * TYPICAL_OUTCOME_BYTES);
    for outcome in outcomes {
        serde_json::to_writer(&mut lines, outcome)?;
        lines.push(b'\n');
    }
    Ok(lines)
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
    let drafts = drafts_of(engine, table, rows.iter().map(Ok), 0, settings);
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
    let outcomes = Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: false,
        position: None,
    };
    Ok(Some(Begun { outcomes, commit }))
}

/// Parses rows according to the types of the table. `first` is the index of the first row.
fn drafts_of<R: Borrow<RowWrite>>(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<R, String>>,
    first: u64,
    settings: &WriteSettings,
) -> Vec<Draft> {
    let now = engine.now();
    let mut drafts: Vec<Draft> = (first..)
        .zip(rows)
        .map(|(index, row)| Draft::new(engine, table, index, row, now))
        .collect();
    if !settings.is_independent {
        exclude_partitions(&mut drafts);
    }
    drafts
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

/// Writes rows as one entry. `first` is the index of the first row. If a row could not be read, `rows` contains the
/// reason instead of the row. `body` is the content that an idempotency key identifies, and unused without one.
pub(crate) fn write_entry<R: Borrow<RowWrite>>(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<R, String>>,
    first: u64,
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
                RowRequestStart::Repeated(stored) => return repeated(table, &stored),
            }
        }
    };
    let mut drafts = drafts_of(engine, table, rows, first, settings);
    if let Some(transaction) = &settings.transaction {
        check_partition(&drafts, transaction)?;
    }
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
    let (writes, written, position) = match drafts.iter().any(|draft| draft.ready().is_some()) {
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
    Ok(Outcomes {
        counts: counts_of(&rows),
        rows,
        repeated: false,
        position,
    })
}
