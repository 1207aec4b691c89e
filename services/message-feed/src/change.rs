//! Changes of messages: edits, recalls, deletions and counters.
//!
//! An edit, a recall and a deletion change the message and add an event to its feed, by one atomic write. Counters
//! change without an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::feeds::{Audience, FeedName, Recipient};
use tideline_engine::model::feed::{
    CLEARED, COUNTER_PREFIX, EDITED, EVENT, EXCEPT, MESSAGE_ID, RECALLED, SENDER, TARGET, TIME, TO,
};
use tideline_engine::model::{SequenceSource, Timestamp};
use tideline_engine::rows::{
    Action, CellValue, Column, ColumnName, Image, Increment, Mutation, RowCondition, RowOutcome, RowWrite,
    RowWriteOptions, StoredRow, Unchanged, Update,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::feed::EditMessage;
use tideline_rows::{Result, RowsError};

use crate::delivery::{audience, has_copies};
use crate::message::{
    Values, check_length, check_name, columns_of, damaged, names_in, newest, reserved, sequence_of,
    to_columns,
};
use crate::send::{
    CopyRoom, ReaderLists, WriteTerms, check_sequence, check_written, entry_columns, inbox_entry, new_row,
    push_entries, stored_key,
};

/// Maximum number of attempts to change a message while other requests change it too.
const ATTEMPTS_MAX: usize = 100;
/// Maximum number of counters of a message, and of counters that a request changes.
pub const COUNTERS_MAX: usize = 100;
/// Maximum length of the name of a counter, in bytes.
pub const COUNTER_BYTES_MAX: usize = 64;

/// Message to change.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The feed.
    pub feed: &'a FeedName,
    /// Sequence number of the message.
    pub sequence: i64,
    /// Sequence number of the event; `None` if the server assigns it.
    pub event: Option<i64>,
}

/// Change of the row of a message, and its event.
struct Change {
    row: RowChange,
    event: Values,
}

/// Change of the row of a message.
enum RowChange {
    Update(Update),
    Replace(Values),
    Delete,
}

/// Returns the name and the newest value of a column; `None` without a value.
fn value_of(column: &Column<'_>) -> Option<(ColumnName<'static>, CellValue<'static>)> {
    let newest = column.newest()?;
    Some((
        column.name.clone().into_owned(),
        newest.value.clone().into_owned(),
    ))
}

impl RowChange {
    /// Returns the columns of a message after the change, without counters; `None` for a deletion.
    fn result(&self, table: &WideTable, row: &Mutation<'_>) -> Option<Values> {
        let is_counter = |name: &ColumnName<'_>| {
            table
                .name_of(name)
                .is_some_and(|name| name.starts_with(COUNTER_PREFIX))
        };
        let mut values: Values = match self {
            Self::Delete => return None,
            Self::Replace(values) => values.clone(),
            Self::Update(update) => {
                let is_changed =
                    |name: &ColumnName<'_>| update.columns.iter().any(|changed| changed.name == *name);
                let kept = row.columns.iter().filter(|column| !is_changed(&column.name));
                let set = update.columns.iter().filter_map(value_of);
                kept.filter_map(value_of).chain(set).collect()
            }
        };
        values.retain(|(name, _)| !is_counter(name));
        Some(values)
    }
}

/// Change of the copies of a message in inboxes; the default in tables without copies.
#[derive(Default)]
struct CopyChange<'a> {
    /// Members whose entries of the message change.
    recipients: Vec<&'a Recipient>,
    /// True if the message is deleted.
    is_deletion: bool,
    /// Copy of the changed message; `None` if the entries refer to it.
    message: Option<Bytes>,
    /// Copy of the event.
    event: Option<Bytes>,
}

impl<'a> CopyChange<'a> {
    /// Decides the change of the copies of a message with this sequence number. `readers` are the members of the
    /// audience whose inboxes show the message and its event.
    fn new(
        table: &WideTable,
        (audience, readers): (&Audience, &[&'a Recipient]),
        (sequence, row): (i64, &Mutation<'_>),
        change: &Change,
    ) -> Self {
        if !has_copies(table) {
            return Self::default();
        }
        // Copies before this number are never read. A member who does not see the message has no entry.
        let is_changed = audience.changes_copied_from.is_some_and(|from| sequence >= from);
        let has_entry = |member: &&&Recipient| is_changed && member.visible_from <= sequence;
        let recipients: Vec<&Recipient> = readers.iter().filter(has_entry).copied().collect();
        let changed = change.row.result(table, row);
        let mut room = CopyRoom::beside(2 + readers.len() + recipients.len());
        let message = changed.as_ref();
        let message = message.and_then(|values| room.take(table, values, recipients.len()));
        Self {
            event: room.take(table, &change.event, readers.len()),
            recipients,
            is_deletion: changed.is_none(),
            message,
        }
    }

    /// Appends the writes of the changed entries.
    fn push<'v>(
        &self,
        table: &WideTable,
        sequence: i64,
        (entry, time): (&'v Values, i64),
        rows: &mut Vec<RowWrite<'v>>,
    ) -> std::result::Result<(), EngineError> {
        for recipient in &self.recipients {
            let (key, partition) = stored_key(table, recipient.inbox, sequence)?;
            rows.push(RowWrite {
                key,
                partition,
                time,
                action: match self.is_deletion {
                    false => Action::Put(entry_columns(table, entry, self.message.as_ref(), time)),
                    true => Action::Delete,
                },
                condition: None,
                image: Image::None,
            });
        }
        Ok(())
    }
}

/// Sets and removes columns of a message. Returns the sequence number of the event.
///
/// # Errors
///
/// [`EngineError::NoSuchFeed`] or [`EngineError::NoSuchMessage`] if the feed or the message does not exist,
/// [`RowsError::ConditionFailed`] for a recalled message, [`RowsError::Invalid`] for columns that are not valid, and
/// the errors of [`Engine::write_rows`].
pub fn edit(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    changes: &EditMessage,
    terms: &WriteTerms<'_>,
) -> Result<i64> {
    if changes.columns.is_empty() && changes.clear.is_empty() {
        return Err(RowsError::Invalid(
            "the edit changes nothing; give columns or clear".to_owned(),
        ));
    }
    let values = columns_of(engine, table, &changes.columns, "columns")?;
    for (number, name) in changes.clear.iter().enumerate() {
        check_name(table, name, "clear")?;
        let is_repeated = changes.clear[..number].contains(name) || changes.columns.get(name).is_some();
        if is_repeated {
            return Err(RowsError::Invalid(format!(
                "column {name:?} is changed twice; name it once in columns or clear"
            )));
        }
    }
    let edited = change(engine, table, target, terms, &mut |time, row| {
        if newest(table, row, RECALLED).is_some() {
            return Err(recalled(target.sequence));
        }
        let set = values.iter().map(|(name, value)| Column {
            clears: true,
            ..Column::with(name.clone(), time, value.clone())
        });
        let cleared = changes
            .clear
            .iter()
            .map(|name| Column::cleared(table.column(name).0));
        let edited = reserved(
            table,
            EDITED,
            CellValue::Timestamp(Timestamp::from_nanos_clamped(time)),
        );
        let edited = Column {
            clears: true,
            ..Column::with(edited.0, time, edited.1)
        };
        let mut columns: Vec<Column<'static>> = set.chain(cleared).chain([edited]).collect();
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        let mut event = values.clone();
        if !changes.clear.is_empty() {
            let names = serde_json::to_string(&changes.clear).unwrap_or_default();
            event.push(reserved(table, CLEARED, CellValue::Json(names.into())));
        }
        event.push(reserved(table, EVENT, CellValue::String("edit".into())));
        Ok(Some(Change {
            row: RowChange::Update(Update {
                columns,
                ..Update::default()
            }),
            event,
        }))
    })?;
    edited.ok_or_else(|| missing(table, target.sequence))
}

/// Removes the columns of a message, and marks it as recalled. Returns the sequence number of the event; `None` if the
/// message was recalled before.
///
/// # Errors
///
/// The errors of [`edit`], except those of columns.
pub fn recall(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    terms: &WriteTerms<'_>,
) -> Result<Option<i64>> {
    change(engine, table, target, terms, &mut |time, row| {
        if newest(table, row, RECALLED).is_some() {
            return Ok(None);
        }
        let is_kept = |name: &str| {
            [SENDER, MESSAGE_ID, TIME, EDITED, TO, EXCEPT].contains(&name) || name.starts_with(COUNTER_PREFIX)
        };
        let kept = row.columns.iter().filter_map(|column| {
            table.name_of(&column.name).filter(|name| is_kept(name))?;
            value_of(column)
        });
        let recalled = CellValue::Timestamp(Timestamp::from_nanos_clamped(time));
        Ok(Some(Change {
            row: RowChange::Replace(kept.chain([reserved(table, RECALLED, recalled)]).collect()),
            event: vec![reserved(table, EVENT, CellValue::String("recall".into()))],
        }))
    })
}

/// Removes a message. Returns the sequence number of the event. The event keeps the message id, so that the message is
/// not written again by a repeated request.
///
/// # Errors
///
/// The errors of [`edit`], except those of columns.
pub fn delete(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    terms: &WriteTerms<'_>,
) -> Result<i64> {
    let deleted = change(engine, table, target, terms, &mut |_, row| {
        let mut event = vec![reserved(table, EVENT, CellValue::String("delete".into()))];
        if let Some(id) = newest(table, row, MESSAGE_ID) {
            event.push(reserved(table, MESSAGE_ID, id.clone().into_owned()));
        }
        Ok(Some(Change {
            row: RowChange::Delete,
            event,
        }))
    })?;
    deleted.ok_or_else(|| missing(table, target.sequence))
}

/// Reads a message, then writes its change and the event of the change. If another request has changed the message in
/// between, reads it again. `decide` receives a time and the row of the message, and returns the change; `None` if
/// nothing has to be written. Returns the sequence number of the event.
fn change(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    terms: &WriteTerms<'_>,
    decide: &mut dyn FnMut(i64, &Mutation<'_>) -> Result<Option<Change>>,
) -> Result<Option<i64>> {
    check_sequence(table, target.event, "the event")?;
    if let Some(principal) = terms.principal {
        check_length("as", principal, "the request")?;
    }
    let feed = engine.feed(table, target.feed)?;
    let _claim = engine.claim_feed(table, feed, std::iter::empty())?;
    let (key, partition) = stored_key(table, feed, target.sequence)?;
    for _ in 0..ATTEMPTS_MAX {
        let stored = stored_message(engine, table, &key, target.sequence)?;
        let row = stored.columns().map_err(|reason| damaged(table, reason))?;
        let time = engine.next_version();
        let Some(mut change) = decide(time, &row)? else {
            return Ok(None);
        };
        // A deletion frees the number of its message. An event with this number would be missed by readers with later
        // cursors.
        if target.event == Some(target.sequence) {
            return Err(RowsError::ConditionFailed(format!(
                "the event: its sequence number {} is that of the message; give another one",
                target.sequence
            )));
        }
        complete_event(
            table,
            (target.sequence, &row),
            (time, terms.principal),
            &mut change.event,
        );
        let (to, except) = (names_in(table, &row, TO), names_in(table, &row, EXCEPT));
        let except = except.unwrap_or_default();
        let audience = audience(engine, table, feed)?;
        let readers = ReaderLists::new(to.as_deref(), &except).among(&audience);
        let entry = inbox_entry(table, feed);
        let copies = CopyChange::new(table, (&audience, &readers), (target.sequence, &row), &change);
        let event_copy = copies.event.as_ref();
        let make = |next_id: &mut dyn FnMut() -> i64| {
            let event = new_row(table, feed, target.event, &change.event, next_id)?;
            let message = RowWrite {
                key: key.clone(),
                partition,
                time: event.time,
                action: match &change.row {
                    RowChange::Update(update) => Action::Update(update.clone()),
                    RowChange::Replace(values) => Action::Put(to_columns(values.iter(), event.time)),
                    RowChange::Delete => Action::Delete,
                },
                condition: None,
                image: Image::None,
            };
            let sequence = event.time;
            let mut rows = vec![message, event];
            push_entries(table, &readers, sequence, (&entry, event_copy), &mut rows)?;
            copies.push(table, target.sequence, (&entry, sequence), &mut rows)?;
            Ok(rows)
        };
        let options = RowWriteOptions {
            durability: terms.durability,
            unchanged: vec![Unchanged::Row {
                key: key.to_vec(),
                digest: Some(stored.digest()),
            }],
            // The change, its event and the inbox entries of the event are written together or not at all.
            is_whole: true,
            ..RowWriteOptions::default()
        };
        let (writes, written) = engine.write_rows(table, &make, &options)?;
        if written.changed.is_some() {
            continue;
        }
        check_written(table, &written.rows, |row| match row {
            0 => format!("message {}", target.sequence),
            _ => "the event".to_owned(),
        })?;
        let event = sequence_of(table, &writes[1].key)?;
        if audience.is_fanned_out {
            engine.add_fan_out(table, feed, (event, event));
        }
        return Ok(Some(event));
    }
    Err(RowsError::ConditionFailed(format!(
        "message {} was changed by other requests during {ATTEMPTS_MAX} attempts; send the request again",
        target.sequence
    )))
}

/// Adds the columns that every event has: its message, the principal, the time, and the readers.
fn complete_event(
    table: &WideTable,
    (sequence, row): (i64, &Mutation<'_>),
    (time, principal): (i64, Option<&str>),
    event: &mut Values,
) {
    event.push(reserved(table, TARGET, CellValue::I64(sequence)));
    if let Some(principal) = principal {
        let principal = CellValue::String(principal.to_owned().into());
        event.push(reserved(table, SENDER, principal));
    }
    if table.feed().sequence == SequenceSource::Manual {
        let now = Timestamp::from_nanos_clamped(time);
        event.push(reserved(table, TIME, CellValue::Timestamp(now)));
    }
    // The event reaches the readers of the message.
    for name in [TO, EXCEPT] {
        if let Some(list) = newest(table, row, name) {
            event.push(reserved(table, name, list.clone().into_owned()));
        }
    }
}

/// Adds to counters of a message. Returns all counters of the message.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many counters, [`RowsError::Invalid`] for a name that is not valid and for a sum
/// outside of 64 bits, and the errors of [`recall`].
pub fn count(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    add: &BTreeMap<String, i64>,
    terms: &WriteTerms<'_>,
) -> Result<BTreeMap<String, i64>> {
    if add.is_empty() {
        return Err(RowsError::Invalid(
            "add is empty; name at least one counter".to_owned(),
        ));
    }
    if let Some(name) = add
        .keys()
        .find(|name| !(1..=COUNTER_BYTES_MAX).contains(&name.len()))
    {
        return Err(RowsError::Invalid(format!(
            "the name of a counter has {} bytes; 1 to {COUNTER_BYTES_MAX} are allowed",
            name.len()
        )));
    }
    let feed = engine.feed(table, target.feed)?;
    let _claim = engine.claim_feed(table, feed, std::iter::empty())?;
    let (key, partition) = stored_key(table, feed, target.sequence)?;
    // Reads the message first, because even a refused write would open a part for a message that does not exist.
    let stored = stored_message(engine, table, &key, target.sequence)?;
    let row = stored.columns().map_err(|reason| damaged(table, reason))?;
    if newest(table, &row, RECALLED).is_some() {
        return Err(recalled(target.sequence));
    }
    let counters_of = |row: &Mutation<'_>| {
        let counters = row.columns.iter().filter_map(|column| {
            let name = table.name_of(&column.name)?.strip_prefix(COUNTER_PREFIX)?;
            match column.newest()?.value {
                CellValue::I64(count) => Some((name.to_owned(), count)),
                _ => None,
            }
        });
        counters.collect::<BTreeMap<String, i64>>()
    };
    let names: Vec<ColumnName<'static>> = add
        .keys()
        .map(|name| table.column(&format!("{COUNTER_PREFIX}{name}")).0)
        .collect();
    // Number of counters of a message after the request.
    let counters_with = |row: &Mutation<'_>| {
        let counters = counters_of(row);
        let new = add.keys().filter(|name| !counters.contains_key(*name)).count();
        counters.len() + new
    };
    let can_count = |row: Option<&Mutation<'_>>| {
        let Some(row) = row else { return false };
        newest(table, row, EVENT).is_none()
            && newest(table, row, RECALLED).is_none()
            && counters_with(row) <= COUNTERS_MAX
    };
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let increments = names.iter().zip(add.values()).map(|(column, by)| Increment {
            column: column.clone(),
            by: *by,
            is_unsigned: false,
        });
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time: next_id(),
            action: Action::Update(Update {
                increments: increments.collect(),
                ..Update::default()
            }),
            condition: Some(Box::new(can_count) as RowCondition<'_>),
            image: Image::After,
        }])
    };
    let options = RowWriteOptions {
        durability: terms.durability,
        ..RowWriteOptions::default()
    };
    let (_, written) = engine.write_rows(table, &make, &options)?;
    match written.rows.into_iter().next() {
        Some(RowOutcome::Written(Some(row))) => Ok(counters_of(&row)),
        Some(RowOutcome::ConditionFailed(Some(row))) if newest(table, &row, EVENT).is_none() => {
            match newest(table, &row, RECALLED) {
                Some(_) => Err(recalled(target.sequence)),
                None => Err(RowsError::over(
                    "number of counters of a message",
                    COUNTERS_MAX as u64,
                    counters_with(&row) as u64,
                )),
            }
        }
        Some(RowOutcome::Refused(refused)) => Err(RowsError::Invalid(tideline_rows::write::refused_text(
            table, &refused,
        ))),
        _ => Err(missing(table, target.sequence)),
    }
}

/// Returns the row of a message. An event is not a message.
fn stored_message(engine: &Engine, table: &WideTable, key: &[u8], sequence: i64) -> Result<StoredRow> {
    let stored = engine.row(table, key)?.ok_or_else(|| missing(table, sequence))?;
    let row = stored.columns().map_err(|reason| damaged(table, reason))?;
    let is_event = newest(table, &row, EVENT).is_some();
    drop(row);
    match is_event {
        false => Ok(stored),
        true => Err(missing(table, sequence)),
    }
}

fn recalled(sequence: i64) -> RowsError {
    RowsError::ConditionFailed(format!(
        "message {sequence} was recalled, so it cannot be changed"
    ))
}

pub(crate) fn missing(table: &WideTable, sequence: i64) -> RowsError {
    EngineError::NoSuchMessage {
        table: table.table().name().clone(),
        sequence,
    }
    .into()
}
