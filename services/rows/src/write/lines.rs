//! Bodies of lines: writes a body with one row per line as several entries, one after the other.
//!
//! An entry whose changes are too large for one journal entry is divided into parts. Imports divide their entries in
//! the same way. Each entry and each part has its own idempotency key, so that a repeated request continues after the
//! last one that was stored.
//!
//! The division depends on the stored rows and on the indexes of the table, which can change before a request is
//! repeated. A repeated request therefore takes the division from the stored parts: each part that is followed by
//! another one is stored, even if all of its rows were refused. The next part begins after the rows of the stored one.

use std::borrow::Borrow;
use std::fmt::Display;
use std::io;
use std::iter::{self, Peekable};

use serde::Deserialize;
use tideline_engine::model::SequenceNumber;
use tideline_engine::write::REQUEST_KEY_BYTES_MAX;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::plain;
use tideline_openapi::row::{Members, RowCounts, RowImage, RowOutcome, RowStatus, RowWrite};

use super::draft::Unreadable;
use super::outcome::{counts_of, outcome};
use super::{EntryTerms, IMAGES_MAX, Outcomes, WriteSettings, write_entry};
use crate::error::{Result, RowsError};

/// Number of lines at which an entry of a body of lines ends.
const ENTRY_LINES: usize = 1_000;
/// Size in bytes at which an entry of a body of lines ends.
const ENTRY_BYTES: usize = 1 << 20;
/// Maximum size of an idempotency key, in bytes, to which the number of any entry can be appended: a `#` and 20 digits.
const LONG_KEY_BYTES: usize = REQUEST_KEY_BYTES_MAX - 21;
/// Bytes that are allocated per line of an outcome; a line for a written row is shorter, unless its key is long.
const TYPICAL_OUTCOME_BYTES: usize = 96;

/// Summary of a write of lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct WrittenLines {
    /// Number of rows with each outcome.
    pub counts: RowCounts,
    /// Sequence of the last journal entry; `None` if nothing was written.
    pub position: Option<SequenceNumber>,
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
/// [`RowsError::OverLimit`] for an idempotency key that is too long for the last entry, the errors of
/// [`write`](super::write()) for the first entry, and the errors of `sink`.
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
    let client_key = settings.key.as_deref();
    let mut entries = 0_u64;
    while let Some((_, first)) = lines.peek().copied() {
        let entry = next_entry(&mut lines);
        let settings = WriteSettings {
            key: settings.key.as_ref().map(|key| entry_key(key, entries)),
            ..settings.clone()
        };
        if engine.is_search_behind(table) {
            sink.while_waiting(&mut || engine.wait_for_searches(table));
        }
        let content_from = |from: usize| -> io::Result<Vec<u8>> { Ok(entry[from..].concat()) };
        let content = (|from: usize| rows_of(&entry).skip(from), content_from);
        let Divided { outcomes, error } =
            write_divided(engine, table, (first, entry.len()), content, &settings);
        let error = error.map(|error| error.with_key(client_key));
        let error = match error {
            Some(error) if entries == 0 && outcomes.rows.is_empty() => return Err(error),
            error => error,
        };
        entries += 1;
        written_lines.position = outcomes.position.or(written_lines.position);
        outcomes
            .rows
            .iter()
            .for_each(|outcome| counts.add(outcome.status));
        if !outcomes.rows.is_empty() {
            sink.outcomes(&lines_of(&outcomes.rows)?)?;
        }
        let Some(error) = error else {
            continue;
        };
        let retryable = matches!(&error, RowsError::Engine(error) if error.is_retryable());
        let reason = error.to_string();
        let end = first + entry.len() as u64 + lines.by_ref().count() as u64;
        for index in first + outcomes.rows.len() as u64..end {
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
    Ok(written_lines)
}

/// Returns the rows of the lines of an entry, or the reasons why they cannot be read.
fn rows_of(entry: &[&[u8]]) -> impl Iterator<Item = std::result::Result<RowWrite, Unreadable>> {
    let mut images = 0;
    entry.iter().map(move |line| {
        let row: RowWrite = plain::read(line).map_err(|fault| unreadable(line, fault.message))?;
        images += usize::from(row.image != RowImage::None);
        match images > IMAGES_MAX {
            true => Err(Unreadable {
                reason: format!("at most {IMAGES_MAX} of {ENTRY_LINES} lines can have the member `return`"),
                key: Some(row.key),
            }),
            false => Ok(row),
        }
    })
}

/// Result of [`write_divided`].
pub(crate) struct Divided {
    /// Outcomes of the rows up to the error, or of all rows.
    pub(crate) outcomes: Outcomes,
    /// Error that ended the write; `None` if all rows have an outcome.
    pub(crate) error: Option<RowsError>,
}

/// Number of rows of the next part of an entry. It is halved if a part is too large, and doubled after parts that fit.
///
/// At first, it is doubled after each part. Whenever a doubled number is too large, twice as many parts must fit before
/// the next attempt: otherwise, the rows of each part of equally large rows would be evaluated several times.
#[derive(Debug)]
struct PartSize {
    rows: usize,
    /// Number of parts that have fit since `rows` was changed.
    fitting: usize,
    /// Number of parts that must fit before `rows` is doubled.
    needed: usize,
    /// True if `rows` was doubled, and no part of this size has been attempted since.
    is_doubled: bool,
}

impl PartSize {
    fn new(rows: usize) -> Self {
        Self {
            rows,
            fitting: 0,
            needed: 1,
            is_doubled: false,
        }
    }

    /// Notes that a part was not too large.
    fn add_fitting(&mut self) {
        if std::mem::take(&mut self.is_doubled) {
            self.needed = 1;
        }
        self.fitting += 1;
        if self.fitting >= self.needed {
            (self.rows, self.fitting, self.is_doubled) = (self.rows.saturating_mul(2), 0, true);
        }
    }

    /// Halves the size, because a part with this number of rows was too large.
    fn halve(&mut self, rows: usize) {
        if std::mem::take(&mut self.is_doubled) {
            self.needed = self.needed.saturating_mul(2);
        }
        (self.rows, self.fitting) = (rows.div_ceil(2), 0);
    }
}

/// Writes the rows of an entry. If their changes, with those of their index entries, are too large for one journal
/// entry, writes them in several parts. A row that is too large on its own is refused. `first` is the index of the first
/// of `count` rows. `rows_from` returns the rows from a position on. `content_from` returns their content, which an
/// idempotency key identifies, and is called only if there is one.
///
/// The first part has the idempotency key of the entry. The keys of the others end with the position of their first
/// row, and identify the content up to the end of the entry. A repeated request therefore finds each stored part, even
/// if it would now be divided in another way. It writes no row again, because all parts before a stored one are stored.
pub(crate) fn write_divided<R, I>(
    engine: &Engine,
    table: &WideTable,
    (first, count): (u64, usize),
    (rows_from, content_from): (impl Fn(usize) -> I, impl Fn(usize) -> io::Result<Vec<u8>>),
    settings: &WriteSettings,
) -> Divided
where
    R: Borrow<RowWrite>,
    I: Iterator<Item = std::result::Result<R, Unreadable>>,
{
    let mut all = Outcomes::default();
    let mut size = PartSize::new(count);
    let mut grows = false;
    let error = loop {
        let from = all.rows.len();
        if from >= count {
            break None;
        }
        let taken = size.rows.min(count - from);
        let terms = EntryTerms {
            first: first + from as u64,
            are_lines: true,
            stores_refused: from + taken < count,
        };
        let rows = rows_from(from).take(taken);
        let mut part = write_part(engine, table, rows, (from, terms), &content_from, settings);
        if let Err(error) = &part
            && error.is_large_write()
        {
            if taken > 1 {
                let room = settings.key.as_ref().map_or(Ok(()), |key| {
                    let what = "rows whose index entries are too large for one journal entry";
                    check_room(key, part_key("", count).len(), what)
                });
                match room {
                    Ok(()) => size.halve(taken),
                    Err(error) => break Some(error),
                }
                continue;
            }
            let refused: std::result::Result<RowWrite, _> = Err(Unreadable::from(error.to_string()));
            let rows = iter::once(refused);
            part = write_part(engine, table, rows, (from, terms), &content_from, settings);
        }
        let part = match part {
            Ok(part) => part,
            Err(error) => break Some(error),
        };
        // Earlier builds did not store parts without a valid row. Until a row is written, such a part may be followed by
        // a stored one. With the size of the last stored part, it is divided as it was, so no part contains rows that
        // another one has stored. After a row was written, no later part is stored.
        grows = !part.repeated && (grows || part.counts.written > 0);
        if part.repeated {
            size = PartSize::new(part.rows.len());
        } else if grows {
            size.add_fitting();
        }
        all.repeated |= part.repeated;
        all.position = part.position.or(all.position);
        all.rows.extend(part.rows);
    };
    all.counts = counts_of(&all.rows);
    Divided { outcomes: all, error }
}

/// Writes one part of an entry, from a position on. Returns the outcomes of at least one row: those of an earlier
/// request can be more or fewer than `rows`.
fn write_part<R: Borrow<RowWrite>>(
    engine: &Engine,
    table: &WideTable,
    rows: impl Iterator<Item = std::result::Result<R, Unreadable>>,
    (from, terms): (usize, EntryTerms),
    content_from: &impl Fn(usize) -> io::Result<Vec<u8>>,
    settings: &WriteSettings,
) -> Result<Outcomes> {
    let settings = WriteSettings {
        key: settings.key.as_ref().map(|key| part_key(key, from)),
        ..settings.clone()
    };
    let content = match settings.key {
        Some(_) => content_from(from)?,
        None => Vec::new(),
    };
    let part = write_entry(engine, table, rows, terms, &content, &settings)?;
    match part.rows.is_empty() {
        false => Ok(part),
        true => Err(RowsError::Damaged {
            table: table.table().name().to_string(),
            reason: "a stored outcome has no rows".to_owned(),
        }),
    }
}

/// Returns the idempotency key of a part of an entry. `from` is the position of its first row.
fn part_key(key: &str, from: usize) -> String {
    match from {
        0 => key.to_owned(),
        from => format!("{key}+{from}"),
    }
}

/// Returns the description of a line that is not a write. Contains the key of the line if the line is an object with a
/// key, for example one with a misspelt member.
fn unreadable(line: &[u8], reason: String) -> Unreadable {
    #[derive(Deserialize)]
    struct KeyOnly {
        key: Members,
    }
    let key = serde_json::from_slice::<KeyOnly>(line).ok();
    Unreadable {
        reason,
        key: key.map(|line| line.key),
    }
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
pub fn check_room(key: &str, added: usize, what: impl Display) -> Result<()> {
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
