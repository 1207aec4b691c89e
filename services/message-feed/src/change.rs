//! Changes of messages: edits, recalls, deletions and counters.
//!
//! An edit, a recall and a deletion change the message and add an event to its feed, by one atomic write. Counters
//! change without an event.
//!
//! The event of an edit has the new values. A recall or deletion also removes these values from the earlier events of
//! its message, by the same write; the events then report the columns as removed. Copies in inboxes have no values of
//! edits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::backend::Direction;
use tideline_engine::feeds::{Audience, FeedName, Recipient};
use tideline_engine::model::feed::{
    CLEARED, COUNTER_PREFIX, DELETE, EDIT, EDITED, EVENT, EXCEPT, MESSAGE_ID, RECALLED, SENDER, SOURCE,
    TARGET, TARGET_SENDER, TIME, TO,
};
use tideline_engine::model::{SequenceSource, TimelineId, Timestamp};
use tideline_engine::rows::{
    Action, CellValue, Column, ColumnName, Image, Increment, Mutation, RowCondition, RowOutcome, RowWrite,
    RowWriteOptions, StoredRow, Unchanged, Update, WideError,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::feed::EditMessage;
use tideline_rows::{Result, RowsError};

use crate::delivery::{audience, has_copies, is_closed, write_open};
use crate::members::ENTRIES_PER_WRITE;
use crate::message::{
    Values, check_length, check_name, columns_of, damaged, names_in, newest, reserved, sequence_of,
    to_columns,
};
use crate::read::begin_scan;
use crate::send::{
    COMMITS_MAX, CopyRoom, GivenNumbers, ROW_BYTES, ReaderLists, WriteTerms, check_numbers, check_sequence,
    check_written, copy_of, entry_columns, inbox_entry, new_row, number_in_use, push_entries, renewed_entry,
    stored_key,
};

/// Maximum size of the events of edits that a write changes, in bytes. A larger event is changed alone. The last of
/// these writes also changes the message and its entries in inboxes.
const EDIT_BYTES_PER_WRITE: usize = 256 << 10;
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

impl RowChange {
    /// Returns true if values of the message are removed.
    fn removes_values(&self) -> bool {
        !matches!(self, Self::Update(_))
    }

    /// Returns the action on the row. `time` is the time of its values.
    fn action(&self, time: i64) -> Action<'_> {
        match self {
            Self::Update(update) => Action::Update(update.clone()),
            Self::Replace(values) => Action::Put(to_columns(values.iter(), time)),
            Self::Delete => Action::Delete,
        }
    }
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

/// Change of the entries of a message in inboxes. Without copies and without a time-to-live, entries do not change.
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
        let changed = change.row.result(table, row);
        // An entry expires with its message, so it gets the time of the change too. An entry of a deleted message
        // expires without that.
        let is_renewed = has_ttl(table) && changed.is_some();
        if !has_copies(table) && !is_renewed {
            return Self::default();
        }
        // Copies before this number are never read.
        let is_copied = audience.changes_copied_from.is_some_and(|from| sequence >= from);
        let is_changed = is_renewed || has_copies(table) && is_copied;
        let recipients: Vec<&Recipient> = match is_changed {
            true => readers.to_vec(),
            false => Vec::new(),
        };
        let mut room = CopyRoom::beside(2 + readers.len() + recipients.len());
        let message = changed.as_ref().filter(|_| is_copied);
        let message = message.and_then(|values| room.take(table, values, recipients.len()));
        // A copy of the values of an edit would remain after a recall of the message.
        let event = match &change.row {
            RowChange::Update(_) => None,
            RowChange::Replace(_) | RowChange::Delete => room.take(table, &change.event, readers.len()),
        };
        Self {
            event,
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
    let values = columns_of(table, &changes.columns, engine.now(), "columns")?;
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
        event.push(reserved(table, EVENT, CellValue::String(EDIT.into())));
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

/// Removes the columns of a message, and the values in the events of its edits, and marks the message as recalled.
/// Returns the sequence number of the event; `None` if the message was recalled before.
///
/// # Errors
///
/// The errors of [`edit`], except those of columns. The events of the oldest of many edits may have lost their values
/// then, although the message is not recalled.
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

/// Removes a message, and the values in the events of its edits. Returns the sequence number of the event. The event
/// keeps the message id, so that the message is not written again by a repeated request.
///
/// # Errors
///
/// The errors of [`edit`], except those of columns. The events of the oldest of many edits may have lost their values
/// then, although the message exists.
pub fn delete(
    engine: &Engine,
    table: &Arc<WideTable>,
    target: Target<'_>,
    terms: &WriteTerms<'_>,
) -> Result<i64> {
    let deleted = change(engine, table, target, terms, &mut |_, row| {
        let mut event = vec![reserved(table, EVENT, CellValue::String(DELETE.into()))];
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
    let (key, partition) = stored_key(table, feed, target.sequence)?;
    let event = target.event.map(|event| (event, (None, "the event".to_owned())));
    let given: GivenNumbers<'_> = event.into_iter().collect();
    // Events whose values cannot be removed, because their parts are closed for writes.
    let mut closed = BTreeSet::new();
    for _ in 0..COMMITS_MAX {
        let stored = engine.row(table, &key)?;
        let stored = stored.ok_or_else(|| missing(table, target.sequence))?;
        let row = columns_of_message(table, &stored, target.sequence)?;
        let time = engine.next_version();
        let Some(mut change) = decide(time, &row)? else {
            return Ok(None);
        };
        check_event(target)?;
        check_numbers(engine, table, feed, &given)?;
        let mut edits = match change.row.removes_values() {
            false => Vec::new(),
            true => edits_with_values(engine, table, feed, (target.sequence, &row))?,
        };
        edits.retain(|edit| !closed.contains(&edit.sequence));
        // A write has a limited size, so the oldest of many events are changed before.
        let mut earlier = batches(&edits);
        // The last write also holds the message and its entries, so a large event is changed before.
        let fits =
            |batch: &mut &[Edit]| batch.iter().map(|edit| edit.bytes).sum::<usize>() <= EDIT_BYTES_PER_WRITE;
        let edits = earlier.pop_if(fits).unwrap_or_default();
        // Readers of all tables wait for the end of a claim, so it begins after the scan of the feed.
        let _claim = engine.claim_feed(table, feed, std::iter::empty())?;
        if !earlier.is_empty() && !is_possible(engine, table, feed, (&key, &stored), target.event)? {
            continue;
        }
        complete_event(
            table,
            (target.sequence, &row),
            (time, terms.principal),
            &mut change.event,
        );
        let audience = audience(engine, table, feed)?;
        let readers = readers_of(table, (target.sequence, &row), &audience);
        let entry = inbox_entry(table, feed);
        let copies = CopyChange::new(table, (&audience, &readers), (target.sequence, &row), &change);
        for batch in earlier {
            let make =
                |edit: &Edit, next_id: &mut dyn FnMut() -> i64| edit.without_values(table, feed, next_id());
            write_open(engine, table, batch, &make)?;
        }
        let write = ChangeWrite {
            table,
            feed,
            target,
            row: (&key, partition),
            change: &change,
            edits,
            readers: &readers,
            entry: &entry,
            copies: &copies,
        };
        let make = |next_id: &mut dyn FnMut() -> i64| write.rows(next_id);
        let options = change_options(terms, (&key, &stored));
        let (writes, written) = engine.write_rows(table, &make, &options)?;
        if written.changed.is_some() {
            continue;
        }
        if add_closed(table, edits, &written.rows, &mut closed)? {
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
    // The client can send the request again.
    let contended = WideError::Contended {
        attempts: COMMITS_MAX,
    };
    Err(EngineError::from(contended).into())
}

/// Refuses an event with the sequence number of its message. A deletion removes the row of the message, so the write of the
/// event would find the number free.
fn check_event(target: Target<'_>) -> Result<()> {
    if target.event != Some(target.sequence) {
        return Ok(());
    }
    Err(RowsError::ConditionFailed(format!(
        "the event: its sequence number {} is that of the message; give another one",
        target.sequence
    )))
}

/// Returns the members of an audience whose inboxes show a message. Members who see the feed only from a later message on
/// are not among them: an event with new values would show them the message.
fn readers_of<'a>(
    table: &WideTable,
    (sequence, row): (i64, &Mutation<'_>),
    audience: &'a Audience,
) -> Vec<&'a Recipient> {
    let (to, except) = (names_in(table, row, TO), names_in(table, row, EXCEPT));
    let except = except.unwrap_or_default();
    let mut readers = ReaderLists::new(to.as_deref(), &except).among(audience);
    readers.retain(|member| member.visible_from <= sequence);
    readers
}

/// Write of a changed message: its row, its event, the events of its edits, and the entries of all these in inboxes.
struct ChangeWrite<'a> {
    table: &'a WideTable,
    feed: TimelineId,
    target: Target<'a>,
    /// Key and partition of the message.
    row: (&'a Bytes, usize),
    change: &'a Change,
    /// Events whose values are removed.
    edits: &'a [Edit],
    readers: &'a [&'a Recipient],
    /// Columns of the entries in inboxes.
    entry: &'a Values,
    copies: &'a CopyChange<'a>,
}

impl<'a> ChangeWrite<'a> {
    /// Returns the rows to write: the message, the event, and then the others. `next_id` returns the next sequence number.
    fn rows(&self, next_id: &mut dyn FnMut() -> i64) -> std::result::Result<Vec<RowWrite<'a>>, EngineError> {
        let (table, target) = (self.table, self.target);
        let event = new_row(table, self.feed, target.event, &self.change.event, next_id)?;
        let sequence = event.time;
        let (key, partition) = self.row;
        let message = RowWrite {
            key: key.clone(),
            partition,
            time: sequence,
            action: self.change.row.action(sequence),
            condition: None,
            image: Image::None,
        };
        let mut rows = vec![message, event];
        for edit in self.edits {
            rows.push(edit.without_values(table, self.feed, sequence)?);
        }
        let of_event = (self.entry, self.copies.event.as_ref());
        push_entries(table, self.readers, sequence, of_event, &mut rows)?;
        self.copies
            .push(table, target.sequence, (self.entry, sequence), &mut rows)?;
        Ok(rows)
    }
}

/// Returns the options of the write of a change: the message must not have changed since it was read.
fn change_options(
    terms: &WriteTerms<'_>,
    (key, stored): (&Bytes, &StoredRow),
) -> RowWriteOptions<'static, 'static> {
    RowWriteOptions {
        durability: terms.durability,
        unchanged: vec![Unchanged::Row {
            key: key.to_vec(),
            digest: Some(stored.digest()),
        }],
        // The change, its event and the inbox entries of the event are written together or not at all.
        is_whole: true,
        ..RowWriteOptions::default()
    }
}

/// Adds the events that a write could not change, because their parts are closed for writes, to `closed`. Returns true if
/// the write succeeds without them.
fn add_closed(
    table: &WideTable,
    edits: &[Edit],
    outcomes: &[RowOutcome],
    closed: &mut BTreeSet<i64>,
) -> Result<bool> {
    let before = closed.len();
    for (edit, outcome) in edits.iter().zip(outcomes.iter().skip(2)) {
        if is_closed(table, outcome)? {
            closed.insert(edit.sequence);
        }
    }
    let is_writable = |outcome: &RowOutcome| !matches!(outcome, RowOutcome::Refused(_));
    Ok(closed.len() > before && outcomes[..2].iter().all(is_writable))
}

/// Returns false if a message has changed since it was read, before writes that do not check this themselves. Without
/// the message, its feed can have been deleted before the claim.
///
/// # Errors
///
/// The error of a number of the event that is in use.
fn is_possible(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    (key, stored): (&[u8], &StoredRow),
    event: Option<i64>,
) -> Result<bool> {
    let found = engine.row(table, key)?;
    if found.map(|row| row.digest()) != Some(stored.digest()) {
        return Ok(false);
    }
    match event {
        Some(event) if engine.row(table, &stored_key(table, feed, event)?.0)?.is_some() => {
            Err(number_in_use("the event"))
        }
        _ => Ok(true),
    }
}

/// Event of an edit that has values of its message.
struct Edit {
    sequence: i64,
    /// Columns of the event, with the names of the changed columns instead of their values.
    kept: Values,
    /// Approximate size of the write of these columns, in bytes.
    bytes: usize,
}

impl Edit {
    /// Returns a write that removes the values from the event.
    fn without_values<'w>(
        &self,
        table: &WideTable,
        feed: TimelineId,
        time: i64,
    ) -> std::result::Result<RowWrite<'w>, EngineError> {
        let (key, partition) = stored_key(table, feed, self.sequence)?;
        let kept = self.kept.iter();
        let kept = kept.map(|(name, value)| Column::with(name.clone(), time, value.clone()));
        let mut columns: Vec<Column<'w>> = kept.collect();
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(RowWrite {
            key,
            partition,
            time,
            action: Action::Put(columns),
            condition: None,
            image: Image::None,
        })
    }
}

/// Divides events of edits into those of each write.
fn batches(mut edits: &[Edit]) -> Vec<&[Edit]> {
    let mut batches = Vec::new();
    while !edits.is_empty() {
        let mut bytes = 0;
        let fits = |edit: &&Edit| {
            bytes += edit.bytes;
            bytes <= EDIT_BYTES_PER_WRITE
        };
        let count = edits.iter().take(ENTRIES_PER_WRITE).take_while(fits).count();
        let (batch, later) = edits.split_at(count.max(1));
        batches.push(batch);
        edits = later;
    }
    batches
}

/// Returns the events of the edits of a message that have values, the oldest first. The caller's write must require
/// that the message is unchanged: every edit changes its message too, so no other event is written meanwhile.
fn edits_with_values(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    (sequence, message): (i64, &Mutation<'_>),
) -> Result<Vec<Edit>> {
    if newest(table, message, EDITED).is_none() {
        return Ok(Vec::new());
    }
    // The generated number of an event is the time at which the event has changed its message.
    let bounds = match table.feed().sequence {
        SequenceSource::Generated if message.time <= sequence => return Ok(Vec::new()),
        SequenceSource::Generated => (Bound::Excluded(sequence), Bound::Included(message.time)),
        SequenceSource::Manual => (Bound::Unbounded, Bound::Unbounded),
    };
    let ranges = engine.messages_of(table, feed, bounds)?;
    let mut scan = begin_scan(engine, table, ranges, Direction::Ascending, usize::MAX);
    let mut edits = Vec::new();
    while let Some(found) = scan.next_row()? {
        let row = found.row.columns().map_err(|reason| damaged(table, reason))?;
        let is_edit = matches!(newest(table, &row, EVENT), Some(CellValue::String(kind)) if **kind == *EDIT)
            && matches!(newest(table, &row, TARGET), Some(CellValue::I64(target)) if *target == sequence);
        if !is_edit {
            continue;
        }
        let is_kept = |column: &&Column<'_>| {
            table
                .name_of(&column.name)
                .is_some_and(|name| table.feed().is_reserved(name))
        };
        let (kept, values): (Vec<_>, Vec<_>) = row.columns.iter().partition(is_kept);
        if values.is_empty() {
            continue;
        }
        let mut removed = names_in(table, &row, CLEARED).unwrap_or_default();
        let names = values.iter().filter_map(|column| table.name_of(&column.name));
        removed.extend(names.map(str::to_owned));
        let mut kept: Values = kept.into_iter().filter_map(value_of).collect();
        let (cleared, _) = table.column(CLEARED);
        kept.retain(|(name, _)| *name != cleared);
        let names = serde_json::to_string(&removed).unwrap_or_default();
        kept.push((cleared, CellValue::Json(names.into())));
        edits.push(Edit {
            sequence: sequence_of(table, &found.row.key)?,
            bytes: ROW_BYTES + copy_of(&kept).len(),
            kept,
        });
    }
    Ok(edits)
}

/// Returns true if messages of the table expire.
fn has_ttl(table: &WideTable) -> bool {
    table.settings().ttl.is_some()
}

/// Adds the columns that every event has: its message, the principal, the time, the sender of the message, and the readers.
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
    if table.feed().inboxes.is_some() {
        // An empty text distinguishes a message without a sender from an event of an earlier build.
        let author = match newest(table, row, SENDER) {
            Some(CellValue::String(author)) => author.to_string(),
            _ => String::new(),
        };
        event.push(reserved(table, TARGET_SENDER, CellValue::String(author.into())));
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
    check_counters(add)?;
    let feed = engine.feed(table, target.feed)?;
    let _claim = engine.claim_feed(table, feed, std::iter::empty())?;
    let (key, partition) = stored_key(table, feed, target.sequence)?;
    // Reads the message first, because even a refused write would open a part for a message that does not exist.
    let stored = engine.row(table, &key)?;
    let stored = stored.ok_or_else(|| missing(table, target.sequence))?;
    let row = columns_of_message(table, &stored, target.sequence)?;
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
    // An entry expires with its message, so it gets the time of the change too.
    let entry = inbox_entry(table, feed);
    let audience = match has_ttl(table) {
        true => audience(engine, table, feed)?,
        false => Arc::default(),
    };
    let readers = readers_of(table, (target.sequence, &row), &audience);
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let increments = names.iter().zip(add.values()).map(|(column, by)| Increment {
            column: column.clone(),
            by: *by,
            is_unsigned: false,
        });
        let mut rows = vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Update(Update {
                increments: increments.collect(),
                ..Update::default()
            }),
            condition: Some(Box::new(can_count) as RowCondition<'_>),
            image: Image::After,
        }];
        for reader in &readers {
            rows.push(renewed_entry(table, reader.inbox, target.sequence, &entry, time)?);
        }
        Ok(rows)
    };
    let options = RowWriteOptions {
        durability: terms.durability,
        // Without a condition that is met, neither the message nor an entry changes.
        is_whole: !readers.is_empty(),
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

/// Checks the names of the counters of a request.
fn check_counters(add: &BTreeMap<String, i64>) -> Result<()> {
    if add.is_empty() {
        return Err(RowsError::Invalid(
            "add is empty; name at least one counter".to_owned(),
        ));
    }
    let is_wrong = |name: &&String| !(1..=COUNTER_BYTES_MAX).contains(&name.len());
    match add.keys().find(is_wrong) {
        None => Ok(()),
        Some(name) => Err(RowsError::Invalid(format!(
            "the name of a counter has {} bytes; 1 to {COUNTER_BYTES_MAX} are allowed",
            name.len()
        ))),
    }
}

/// Decodes the columns of a message. Neither an event nor the entry of an inbox, which refers to a message, is a message.
fn columns_of_message<'r>(table: &WideTable, stored: &'r StoredRow, sequence: i64) -> Result<Mutation<'r>> {
    let row = stored.columns().map_err(|reason| damaged(table, reason))?;
    let is_other = newest(table, &row, EVENT).is_some() || newest(table, &row, SOURCE).is_some();
    match is_other {
        false => Ok(row),
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
