//! Messages: the columns that users write, and messages as JSON.
//!
//! Columns that only the server writes, such as the sender, are separate members of the JSON. Users cannot use the
//! names of these columns for other columns.

use std::fmt::Display;
use std::io::Write as _;

use smallvec::SmallVec;
use tideline_engine::WideTable;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::feed::{
    CLEARED, COPY, COUNTER_PREFIX, EDITED, EVENT, EXCEPT, MENTIONS, MESSAGE_ID, RECALLED, SENDER, SOURCE,
    TARGET, TARGET_SENDER, TIME, TO,
};
use tideline_engine::model::{ColumnType, SequenceSource, TimelineId, Timestamp};
use tideline_engine::rows::{CellValue, Column, ColumnName, Mutation, RowDigest};
use tideline_engine::wide_table::COLUMN_NAME_BYTES_MAX;
use tideline_openapi::row::{Members, RowIntegers};
use tideline_rows::selection::RowEncoder;
use tideline_rows::value::{parse_column, write_number, write_text, write_time, write_value};
use tideline_rows::{Result, RowsError};

use crate::delivery::has_copies;

/// Maximum length of a message id and of the name of a sender, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Columns with their values, in any order; [`to_columns`] sorts them.
pub(crate) type Values = Vec<(ColumnName<'static>, CellValue<'static>)>;

/// Returns a reserved column with a value.
pub(crate) fn reserved(
    table: &WideTable,
    name: &str,
    value: CellValue<'static>,
) -> (ColumnName<'static>, CellValue<'static>) {
    (table.column(name).0, value)
}

/// Parses the columns of a message. `path` names the message in errors.
///
/// # Errors
///
/// [`RowsError::Invalid`] for a reserved or invalid name, for a value that does not fit its column, and for versions.
pub(crate) fn columns_of(
    table: &WideTable,
    members: &Members,
    now: Timestamp,
    path: impl Display + Copy,
) -> Result<Values> {
    let mut columns = Vec::with_capacity(members.len() + 3);
    for (name, json) in members.iter() {
        check_name(table, name, path)?;
        let (column, declared) = table.column(name);
        let invalid = |found: String| {
            let expected = declared.map_or_else(String::new, |declared| format!(" has the type {declared};"));
            RowsError::Invalid(format!("{path}: column {name:?}{expected} {found}"))
        };
        let mut values = parse_column(json, declared, now).map_err(invalid)?;
        match (values.pop(), values.is_empty()) {
            (Some(given), true) if given.version.is_none() => columns.push((column, given.value)),
            _ => return Err(invalid("messages have no versions; give one value".to_owned())),
        }
    }
    Ok(columns)
}

/// Refuses the name of a column that users cannot write.
pub(crate) fn check_name(table: &WideTable, name: &str, path: impl Display) -> Result<()> {
    if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX {
        return Err(RowsError::Invalid(format!(
            "{path}: a column name has {} bytes; 1 to {COLUMN_NAME_BYTES_MAX} are allowed",
            name.len()
        )));
    }
    match table.feed().is_reserved(name) || name.starts_with(COUNTER_PREFIX) {
        false => Ok(()),
        true => Err(RowsError::Invalid(format!(
            "{path}: column {name:?} is set by the server; use another name"
        ))),
    }
}

/// Returns true for the name of the column with copies of messages, in a table whose inboxes have copies.
fn is_copy(table: &WideTable, name: &str) -> bool {
    name == COPY && has_copies(table)
}

/// Refuses an empty or long name.
pub(crate) fn check_length(what: &str, name: &str, path: impl Display) -> Result<()> {
    match (1..=NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(RowsError::Invalid(format!(
            "{path}: {what} has {} bytes; 1 to {NAME_BYTES_MAX} are allowed",
            name.len()
        ))),
    }
}

/// Returns columns with one version each, sorted by name.
pub(crate) fn to_columns<'v>(
    values: impl Iterator<Item = &'v (ColumnName<'static>, CellValue<'static>)>,
    time: i64,
) -> Vec<Column<'v>> {
    let mut columns: Vec<Column<'v>> = values
        .map(|(name, value)| Column::with(name.borrowed(), time, value.borrowed()))
        .collect();
    columns.sort_by(|one, other| one.name.cmp(&other.name));
    columns
}

/// Returns the error of stored data that cannot be read.
pub(crate) fn damaged(table: &WideTable, reason: impl std::fmt::Display) -> RowsError {
    RowsError::Damaged {
        table: table.table().name().to_string(),
        reason: reason.to_string(),
    }
}

/// Returns the feed and the sequence number of a stored key.
///
/// # Errors
///
/// [`RowsError::Damaged`] for a key that is not one of a message.
pub fn key_of(table: &WideTable, key: &[u8]) -> Result<(TimelineId, i64)> {
    let values = table.layout().decode(key);
    let values = values.map_err(|error| damaged(table, error))?;
    match values.as_slice() {
        [KeyValue::String(feed), KeyValue::Signed(sequence)] => {
            let feed = feed.parse();
            let feed = feed.map_err(|_| damaged(table, "the key of a message holds no feed id"))?;
            Ok((feed, *sequence))
        }
        _ => Err(damaged(table, "the key of a message has other columns")),
    }
}

/// Returns the sequence number of the key of a message. Cheaper than [`key_of`].
///
/// # Errors
///
/// [`RowsError::Damaged`] for a key that is not one of a message.
pub(crate) fn sequence_of(table: &WideTable, key: &[u8]) -> Result<i64> {
    match table.layout().last_value(key) {
        Ok(Some(KeyValue::Signed(sequence))) => Ok(sequence),
        Ok(_) => Err(damaged(table, "the key of a message has other columns")),
        Err(error) => Err(damaged(table, error)),
    }
}

/// Returns the time of a message.
pub(crate) fn time_of(table: &WideTable, sequence: i64, row: &Mutation<'_>) -> Timestamp {
    match table.feed().sequence {
        SequenceSource::Generated => Timestamp::from_nanos_clamped(sequence),
        SequenceSource::Manual => match newest(table, row, TIME) {
            Some(CellValue::Timestamp(time)) => *time,
            _ => Timestamp::from_nanos_clamped(row.time),
        },
    }
}

/// Returns the newest value of a column; `None` if the row has none.
pub(crate) fn newest<'r>(table: &WideTable, row: &'r Mutation<'_>, name: &str) -> Option<&'r CellValue<'r>> {
    let column = row.column(&table.column(name).0)?;
    Some(&column.newest()?.value)
}

/// Returns the names in a list of a message; `None` if the message has no such list.
pub(crate) fn names_in(table: &WideTable, row: &Mutation<'_>, column: &str) -> Option<Vec<String>> {
    match newest(table, row, column)? {
        CellValue::Json(json) => serde_json::from_str(json).ok(),
        _ => None,
    }
}

/// Returns the sequence number from which a member must see a feed to see a row: that of the message, also for an event of
/// the message.
pub(crate) fn number_of_message(table: &WideTable, row: &Mutation<'_>, sequence: i64) -> i64 {
    match newest(table, row, TARGET) {
        Some(CellValue::I64(target)) => *target,
        _ => sequence,
    }
}

/// Form in which messages are returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageEncoder {
    /// Returned columns: names, or prefixes that end with `*`; `None` = all.
    pub columns: Option<Vec<String>>,
    /// True if the JSON of a message contains its feed.
    pub has_feed: bool,
    /// True if the JSON of a message contains its lists `to` and `except`. Readers of messages do not get these lists:
    /// they would reveal the other recipients of a message to a member.
    pub has_lists: bool,
}

impl MessageEncoder {
    fn has(&self, name: &str) -> bool {
        let is_named = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == wanted,
        };
        self.columns
            .as_ref()
            .is_none_or(|columns| columns.iter().any(is_named))
    }
}

/// Columns of a message, by their use.
#[derive(Default)]
struct Sorted<'r> {
    sender: Option<&'r str>,
    id: Option<&'r str>,
    event: Option<&'r str>,
    target: Option<i64>,
    cleared: Option<&'r str>,
    edited: Option<Timestamp>,
    recalled: Option<Timestamp>,
    mentions: Option<&'r str>,
    to: Option<&'r str>,
    except: Option<&'r str>,
    counters: Vec<(&'r str, i64)>,
    /// Name, declared type and value. Most messages have few such columns, which need no allocation.
    others: SmallVec<[(&'r str, Option<ColumnType>, &'r CellValue<'r>); 4]>,
}

impl<'r> Sorted<'r> {
    fn new(table: &'r WideTable, row: &'r Mutation<'_>) -> Self {
        let mut sorted = Self::default();
        for column in &row.columns {
            // A column has no name if its declaration was removed from the settings.
            let declaration = table.declaration_of(&column.name);
            let (Some((name, declared)), Some(newest)) = (declaration, column.newest()) else {
                continue;
            };
            match (name, &newest.value) {
                (SENDER, CellValue::String(text)) => sorted.sender = Some(text),
                (MESSAGE_ID, CellValue::String(text)) => sorted.id = Some(text),
                (EVENT, CellValue::String(text)) => sorted.event = Some(text),
                (CLEARED, CellValue::Json(text)) => sorted.cleared = Some(text),
                (TARGET, CellValue::I64(sequence)) => sorted.target = Some(*sequence),
                (EDITED, CellValue::Timestamp(time)) => sorted.edited = Some(*time),
                (RECALLED, CellValue::Timestamp(time)) => sorted.recalled = Some(*time),
                (MENTIONS, CellValue::Json(text)) => sorted.mentions = Some(text),
                (TO, CellValue::Json(text)) => sorted.to = Some(text),
                (EXCEPT, CellValue::Json(text)) => sorted.except = Some(text),
                (TIME | SOURCE | TO | EXCEPT, _) => {}
                (TARGET_SENDER, _) if table.feed().inboxes.is_some() => {}
                (name, _) if is_copy(table, name) => {}
                (name, value) => match (name.strip_prefix(COUNTER_PREFIX), value) {
                    (Some(counter), CellValue::I64(count)) => sorted.counters.push((counter, *count)),
                    _ => sorted.others.push((name, declared, value)),
                },
            }
        }
        sorted
    }
}

/// Appends the separator before a member of a message, and the name of the member.
pub(crate) fn begin_member(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

impl RowEncoder for MessageEncoder {
    fn write_row(
        &self,
        table: &WideTable,
        key: &[u8],
        row: &Mutation<'_>,
        _: Option<RowDigest>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let sequence = sequence_of(table, key)?;
        let sorted = Sorted::new(table, row);
        out.extend_from_slice(b"{\"sequence\":\"");
        write_number(sequence, out);
        out.extend_from_slice(b"\",\"time\":");
        write_time(time_of(table, sequence, row), out);
        if self.has_feed {
            let (feed, _) = key_of(table, key)?;
            write!(out, ",\"feed\":\"{feed}\"")?;
        }
        let texts = [
            ("sender", sorted.sender),
            ("id", sorted.id),
            ("event", sorted.event),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                begin_member(name, out);
                write_text(text, out);
            }
        }
        if let Some(target) = sorted.target {
            write!(out, ",\"target\":\"{target}\"")?;
        }
        let lists = [
            ("mentions", sorted.mentions),
            ("to", sorted.to.filter(|_| self.has_lists)),
            ("except", sorted.except.filter(|_| self.has_lists)),
        ];
        for (name, list) in lists {
            if let Some(list) = list {
                begin_member(name, out);
                out.extend_from_slice(list.as_bytes());
            }
        }
        out.extend_from_slice(b",\"columns\":{");
        let mut is_first = true;
        let mut begin = |name: &str, out: &mut Vec<u8>| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            write_text(name, out);
            out.push(b':');
        };
        for (name, declared, value) in sorted.others.iter().filter(|(name, ..)| self.has(name)) {
            begin(name, out);
            write_value(value, *declared, RowIntegers::Number, out);
        }
        let cleared = sorted.cleared.map(serde_json::from_str::<Vec<String>>);
        for name in cleared
            .into_iter()
            .flatten()
            .flatten()
            .filter(|name| self.has(name))
        {
            begin(&name, out);
            out.extend_from_slice(b"null");
        }
        out.push(b'}');
        if !sorted.counters.is_empty() {
            out.extend_from_slice(b",\"counters\":{");
            for (number, (name, count)) in sorted.counters.iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write_number(*count, out);
            }
            out.push(b'}');
        }
        for (name, time) in [("edited", sorted.edited), ("recalled", sorted.recalled)] {
            if let Some(time) = time {
                begin_member(name, out);
                write_time(time, out);
            }
        }
        out.push(b'}');
        Ok(())
    }
}
