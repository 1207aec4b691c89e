//! Delivery of messages to the inboxes of members.
//!
//! An inbox is a feed of the table of the messages. The messages of a feed with few members are *pushed*: one journal
//! entry holds a message and the entries of all inboxes. The messages of a feed with more members are *pulled*: a
//! member reads them from the feed. The job of the module `fan_out` writes pulled messages to the inboxes later, if the
//! settings of the table allow this for a feed with so many members.
//!
//! The state of a feed records the ranges of sequence numbers that are pulled. A switch leaves no gap in either
//! direction: it starts the new kind of delivery, waits for the writes that began before, and then ends the old kind.
//! Messages that are written in between are delivered both ways, and a reader returns them once.
//!
//! A pulled feed is pushed again when its number of members has fallen to half of the threshold for pushing. A feed
//! whose number of members is close to the threshold therefore does not switch with every member who joins or leaves.
//!
//! An entry refers to its message; a pushed entry can also contain a copy of it. A change of a pushed message changes
//! all copies by the same journal entry, also while a pulled range is about to end. The copies of a feed that is only
//! pulled are not changed. A reader therefore ignores copies from before the end of the last pulled range, and reads
//! the message.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::backend::Direction;
use tideline_engine::feeds::{Audience, Recipient};
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::SOURCE;
use tideline_engine::rows::{
    Action, CellValue, Image, Refused, RowOutcome, RowWrite, RowWriteOptions, StoredRow,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_rows::write::refused_text;
use tideline_rows::{Result, RowsError};

use crate::inbox::is_for;
use crate::members::{ENTRIES_PER_WRITE, Membership, count_members, inbox_of, member, members};
use crate::message::{Values, damaged, newest, number_of_message, sequence_of, to_columns};
use crate::read::begin_scan;
use crate::send::{deletion, inbox_entry, stored_key};
use crate::state::{Pulled, State};

/// Returns true if entries of inboxes have copies of their messages.
pub(crate) fn has_copies(table: &WideTable) -> bool {
    table.feed().has_copies()
}

/// Returns the largest number of members of a feed whose messages are pushed.
pub(crate) fn push_max(table: &WideTable) -> usize {
    let inboxes = table.feed().inboxes;
    inboxes.map_or(0, |inboxes| inboxes.push_max as usize)
}

/// Returns the largest number of members of a feed whose messages the job writes to inboxes; 0 without a job.
pub(crate) fn fan_out_max(table: &WideTable) -> usize {
    table.feed().fan_out_max() as usize
}

/// Returns the audience of a feed; an empty one if the table has no inboxes.
///
/// # Errors
///
/// The errors of [`members`].
pub(crate) fn audience(engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Arc<Audience>> {
    if table.feed().inboxes.is_none() {
        return Ok(Arc::default());
    }
    engine.audience(table, feed, || {
        let users = engine.users_table(table)?;
        let state = State::read(engine, (table, &users), feed)?;
        let open = state.open();
        let copied_from = match open {
            Some(_) => None,
            None => state
                .pulled
                .iter()
                .filter_map(|range| range.to)
                .max()
                .or(Some(i64::MIN)),
        };
        let mut audience = Audience {
            members: Vec::new(),
            is_fanned_out: open.is_some_and(|range| range.is_fanned_out),
            copied_from,
            changes_copied_from: match open {
                // The end of the range can be below a message that is pushed now.
                Some(range) => range.is_pushed_too.then_some(range.from),
                None => copied_from,
            },
            pulled: state.left_to_readers().collect(),
        };
        if state.is_pushed() {
            for member in members(engine, table, feed, None, usize::MAX - 1)?.members {
                audience.members.push(Recipient {
                    // Creates the inbox again if a request has deleted it.
                    inbox: engine.feed_or_new(table, &inbox_of(&member.user)?)?,
                    user: member.user.into(),
                    visible_from: member.visible_from,
                });
            }
        }
        Ok(audience)
    })
}

/// Returns the number of inboxes to which the messages of a feed are written, if it is cached; 0 if the table has no
/// inboxes.
pub(crate) fn cached_members(engine: &Engine, table: &WideTable, feed: TimelineId) -> Option<usize> {
    match table.feed().inboxes {
        None => Some(0),
        Some(_) => Some(engine.cached_audience(table, feed)?.members.len()),
    }
}

/// Begins to pull the messages of a feed with many members.
pub(crate) fn pull(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let from = engine.next_version();
    let is_fanned_out = fan_out_max(table) > 0;
    let is_begun = State::change(engine, (table, users), feed, |state| {
        if state.open().is_some() {
            return false;
        }
        state.forget_written();
        state.pulled.push(Pulled {
            from,
            to: None,
            // Requests that use the previous audience still push.
            is_pushed_too: true,
            is_fanned_out,
        });
        true
    })?;
    if is_begun {
        engine.audience_changed(table, feed);
    }
    let is_ended = State::change(engine, (table, users), feed, |state| {
        match state.pulled.last_mut() {
            Some(last) if last.to.is_none() => std::mem::take(&mut last.is_pushed_too),
            _ => false,
        }
    })?;
    if is_ended {
        engine.audience_changed(table, feed);
    }
    Ok(())
}

/// Begins to push the messages of a feed that has few members again.
pub(crate) fn push(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let begins = |state: &mut State| match state.pulled.last_mut() {
        Some(last) if last.to.is_none() => {
            last.is_pushed_too = true;
            true
        }
        _ => false,
    };
    if !State::change(engine, (table, users), feed, begins)? {
        return Ok(());
    }
    engine.audience_changed(table, feed);
    let to = engine.next_version();
    State::change(engine, (table, users), feed, |state| {
        match state.pulled.last_mut() {
            // A request that has begun to pull again meanwhile has removed the mark.
            Some(last) if last.to.is_none() && last.is_pushed_too => {
                *last = Pulled {
                    to: Some(to),
                    is_pushed_too: false,
                    ..*last
                };
                true
            }
            _ => false,
        }
    })?;
    engine.audience_changed(table, feed);
    Ok(())
}

/// Begins the fan-out of the new messages of a feed that has shrunk. Earlier messages stay pulled.
fn begin_fan_out(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let from = engine.next_version();
    let is_begun = State::change(engine, (table, users), feed, |state| {
        match state.pulled.last_mut() {
            Some(last) if last.to.is_none() && !last.is_fanned_out => {
                let begun = Pulled {
                    from,
                    is_fanned_out: true,
                    ..*last
                };
                last.to = Some(from);
                last.is_pushed_too = false;
                state.pulled.push(begun);
                true
            }
            _ => false,
        }
    })?;
    if is_begun {
        engine.audience_changed(table, feed);
        // Requests that used the previous audience did not add their messages to the list of waiting messages.
        engine.add_fan_out(table, feed, (from, engine.next_version()));
    }
    Ok(())
}

/// Changes the delivery of the messages of a feed that a member has left, if the feed has become small enough.
pub(crate) fn shrunk(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let audience = audience(engine, table, feed)?;
    if !audience.is_pulled() {
        return Ok(());
    }
    if !has_more(engine, table, feed, push_max(table) / 2)? {
        return push(engine, table, users, feed);
    }
    let fan_out_max = fan_out_max(table);
    if fan_out_max > 0 && !audience.is_fanned_out && !has_more(engine, table, feed, fan_out_max / 2)? {
        begin_fan_out(engine, table, users, feed)?;
    }
    Ok(())
}

/// Returns true if a feed has more members than `count`.
fn has_more(engine: &Engine, table: &WideTable, feed: TimelineId, count: usize) -> Result<bool> {
    Ok(count_members(engine, table, feed, count + 1)? > count)
}

/// Write of a [`back_fill`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled {
    /// Highest sequence number of the messages.
    pub(crate) last: i64,
    /// Number of written entries.
    pub(crate) entries: u64,
    /// Number of messages and events that get no entry because their part is closed for writes.
    pub(crate) skipped: u64,
}

/// Adds inbox entries for the messages from the sequence number `from` to `until` that a new member sees and that were
/// not written to the inbox with their messages. Adds no entries for pulled messages. After each write, calls `written`,
/// and ends if it breaks. Returns the number of messages and events that get no entry because their part is closed for
/// writes.
pub(crate) fn back_fill(
    engine: &Engine,
    table: &Arc<WideTable>,
    (joined, inbox): (&Membership, TimelineId),
    (from, until): (i64, i64),
    written: &dyn Fn(Filled) -> Result<ControlFlow<()>>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<u64> {
    if from >= until {
        return Ok(0);
    }
    let users = engine.users_table(table)?;
    let state = State::read(engine, (table, &users), joined.feed)?;
    let bounds = (Bound::Included(from), Bound::Included(until));
    let ranges = engine.messages_of(table, joined.feed, bounds)?;
    let missing = |found: &StoredRow| {
        let sequence = sequence_of(table, &found.key)?;
        let columns = found.columns().map_err(|reason| damaged(table, reason))?;
        let is_visible = number_of_message(table, &columns, sequence) >= joined.visible_from;
        let is_missing =
            is_visible && !state.is_left_to_others(sequence) && is_for(table, &columns, &joined.user);
        Ok(is_missing.then_some((sequence, columns.time)))
    };
    let values = inbox_entry(table, joined.feed);
    let closed = Cell::new(0);
    let write = |entries: &[(i64, i64)]| {
        let skipped = {
            // A request that removes the member waits for this claim, and then removes the entries.
            let _claim = engine.claim_feed(table, joined.feed, std::iter::empty())?;
            let found = member(engine, table, joined.feed, &joined.user)?;
            if found.is_none_or(|found| found.joined != joined.joined) {
                return Ok(ControlFlow::Break(()));
            }
            let entry =
                |entry: &(i64, i64), _: &mut dyn FnMut() -> i64| reference(table, inbox, *entry, &values);
            write_open(engine, table, entries, &entry)?
        };
        closed.set(closed.get() + skipped);
        match entries.last() {
            Some((last, _)) => written(Filled {
                last: *last,
                entries: entries.len() as u64 - skipped,
                skipped,
            }),
            None => Ok(ControlFlow::Continue(())),
        }
    };
    in_batches(engine, table, ranges, missing, write, is_stopped)?;
    Ok(closed.get())
}

/// Function that returns the write of one row. Its second argument returns version numbers.
pub(crate) type MakeRow<'m, 'v, T> =
    &'m dyn Fn(&T, &mut dyn FnMut() -> i64) -> std::result::Result<RowWrite<'v>, EngineError>;

/// Writes rows of one feed or inbox, without the rows whose parts are closed for writes. Returns the number of these
/// omitted rows. The rows of a feed are written together, so one refused row prevents the others: the write is then repeated
/// without it.
pub(crate) fn write_open<'v, T>(
    engine: &Engine,
    table: &Arc<WideTable>,
    rows: &[T],
    make: MakeRow<'_, 'v, T>,
) -> Result<u64> {
    let mut left: Vec<&T> = rows.iter().collect();
    while !left.is_empty() {
        let make_left =
            |next_id: &mut dyn FnMut() -> i64| left.iter().map(|row| make(row, next_id)).collect();
        let (_, written) = engine.write_rows(table, &make_left, &RowWriteOptions::default())?;
        let closed = written.rows.iter().map(|outcome| is_closed(table, outcome));
        let closed = closed.collect::<Result<Vec<bool>>>()?;
        if !closed.contains(&true) {
            break;
        }
        let open = left.iter().zip(&closed).filter(|(_, is_closed)| !**is_closed);
        left = open.map(|(row, _)| *row).collect();
    }
    Ok((rows.len() - left.len()) as u64)
}

/// Returns true if a row of a feed or inbox was refused because its part is closed for writes, hidden or dropped.
///
/// # Errors
///
/// [`RowsError::Invalid`] if it was refused for another reason.
pub(crate) fn is_closed(table: &WideTable, outcome: &RowOutcome) -> Result<bool> {
    match outcome {
        RowOutcome::Refused(
            Refused::PartClosed(_) | Refused::PartArchived | Refused::PartDropped(_) | Refused::PartHidden(_),
        ) => Ok(true),
        RowOutcome::Refused(refused) => {
            let reason = refused_text(table, refused);
            Err(RowsError::Invalid(format!("an entry of the feed: {reason}")))
        }
        // `NotApplied`: another row of the feed or inbox was refused, and its rows are written together.
        RowOutcome::Written(_) | RowOutcome::NotApplied | RowOutcome::ConditionFailed(_) => Ok(false),
    }
}

/// Returns a write of an inbox entry that refers to a message: its sequence number, and the time of its last change.
pub(crate) fn reference<'v>(
    table: &WideTable,
    inbox: TimelineId,
    (sequence, time): (i64, i64),
    values: &'v Values,
) -> std::result::Result<RowWrite<'v>, EngineError> {
    let (key, partition) = stored_key(table, inbox, sequence)?;
    let columns = to_columns(values.iter(), time);
    Ok(RowWrite {
        key,
        partition,
        // An entry expires with its message.
        time,
        // Without copies, an existing entry has the same columns, so it is not read before the write.
        action: match has_copies(table) {
            true => Action::Put(columns),
            false => Action::Create(columns),
        },
        condition: None,
        image: Image::None,
    })
}

/// Removes the entries of a feed below the sequence number `end` from an inbox. Entries in parts that are closed for
/// writes stay, and readers of the inbox omit them.
pub(crate) fn purge(
    engine: &Engine,
    table: &Arc<WideTable>,
    inbox: TimelineId,
    (feed, end): (TimelineId, i64),
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let feed = feed.to_string();
    let ranges = engine.messages_of(table, inbox, (Bound::Unbounded, Bound::Excluded(end)))?;
    let of_feed = |found: &StoredRow| {
        let columns = found.columns().map_err(|reason| damaged(table, reason))?;
        let is_of_feed =
            matches!(newest(table, &columns, SOURCE), Some(CellValue::String(source)) if **source == *feed);
        Ok(is_of_feed.then(|| found.key.clone()))
    };
    let remove = |keys: &[Bytes]| {
        let delete = |key: &Bytes, next_id: &mut dyn FnMut() -> i64| deletion(table, key, next_id());
        write_open(engine, table, keys, &delete)?;
        Ok(ControlFlow::Continue(()))
    };
    in_batches(engine, table, ranges, of_feed, remove, is_stopped)
}

/// Calls `choose` for the rows of `ranges`, and `write` for each batch of the results, until `write` breaks.
fn in_batches<T>(
    engine: &Engine,
    table: &Arc<WideTable>,
    ranges: Ranges,
    choose: impl Fn(&StoredRow) -> Result<Option<T>>,
    write: impl Fn(&[T]) -> Result<ControlFlow<()>>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let mut rows = begin_scan(engine, table, ranges, Direction::Ascending, usize::MAX);
    let mut chosen = Vec::new();
    loop {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let found = rows.next_row()?;
        let is_end = found.is_none();
        if let Some(found) = found {
            chosen.extend(choose(&found.row)?);
        }
        if chosen.len() == ENTRIES_PER_WRITE || (is_end && !chosen.is_empty()) {
            if write(&chosen)?.is_break() {
                return Ok(());
            }
            chosen.clear();
        }
        if is_end {
            return Ok(());
        }
    }
}
