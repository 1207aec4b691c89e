//! Delivery of messages to the inboxes of members.
//!
//! An inbox is a feed of the table of the messages, and its entries refer to messages. The messages of a feed with few
//! members are *pushed*: one journal entry holds a message and the entries of all inboxes. Those of a feed with more
//! members are *pulled*: a member reads them from the feed.
//!
//! The state of a feed records the ranges of sequence numbers that are pulled. A switch leaves no gap in either direction:
//! it starts the new kind of delivery, waits for the writes that began before, and then ends the old kind. Messages that
//! are written in between are delivered both ways, and a reader returns them once.
//!
//! A pulled feed is pushed again when half of the permitted members are left. A feed whose number of members is close to
//! the threshold therefore does not switch with every member who joins or leaves.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_engine::backend::Direction;
use tideline_engine::feeds::Audience;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{PULLED, SOURCE};
use tideline_engine::rows::{
    Action, CellValue, Column, Image, RowWrite, RowWriteOptions, StoredRow, Unchanged,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_rows::{Result, RowsError};

use crate::inbox::is_for;
use crate::members::{ENTRIES_PER_WRITE, Membership, inbox_of, members, user_key};
use crate::message::{damaged, key_of, newest, reserved};
use crate::read::begin_scan;
use crate::send::{partition_of, stored_key};

/// Maximum number of attempts to change the state of a feed while other requests change it too.
const ATTEMPTS_MAX: usize = 100;

/// Range of sequence numbers that members read from the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Pulled {
    from: i64,
    /// Exclusive end; `None` while messages are still pulled.
    to: Option<i64>,
    /// True while messages are also pushed, because the range is about to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_pushed_too: bool,
}

/// Returns the largest number of members of a feed whose messages are pushed.
pub(crate) fn push_max(table: &WideTable) -> usize {
    let inboxes = table.feed().inboxes;
    inboxes.map_or(0, |inboxes| inboxes.push_max as usize)
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
        let pulled = state_of(engine, &users, feed)?.map_or_else(Vec::new, |(pulled, _)| pulled);
        let is_pushed = pulled
            .last()
            .is_none_or(|last| last.to.is_some() || last.is_pushed_too);
        let mut audience = Audience {
            members: Vec::new(),
            pulled: pulled.iter().map(|range| (range.from, range.to)).collect(),
        };
        if is_pushed {
            for member in members(engine, table, feed, None, usize::MAX - 1)?.members {
                // Creates the inbox again if a request has deleted it.
                let inbox = engine.feed_or_new(table, &inbox_of(&member.user)?)?;
                audience.members.push((member.user.into(), inbox));
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

/// Reads the pulled ranges of a feed, with the row that holds them; `None` if they were never written.
fn state_of(
    engine: &Engine,
    users: &WideTable,
    feed: TimelineId,
) -> Result<Option<(Vec<Pulled>, StoredRow)>> {
    let (key, _) = user_key(users, "", feed, "")?;
    let Some(row) = engine.row(users, &key)? else {
        return Ok(None);
    };
    let pulled = {
        let columns = row.columns().map_err(|reason| damaged(users, reason))?;
        match newest(users, &columns, PULLED) {
            Some(CellValue::Json(json)) => {
                serde_json::from_str(json).map_err(|error| damaged(users, error))?
            }
            _ => Vec::new(),
        }
    };
    Ok(Some((pulled, row)))
}

/// Changes the pulled ranges of a feed. `change` returns false if there is nothing to change.
fn change_state(
    engine: &Engine,
    users: &WideTable,
    feed: TimelineId,
    change: impl Fn(&mut Vec<Pulled>) -> bool,
) -> Result<bool> {
    let (key, partition) = user_key(users, "", feed, "")?;
    for _ in 0..ATTEMPTS_MAX {
        let (mut pulled, digest) = match state_of(engine, users, feed)? {
            Some((pulled, row)) => (pulled, Some(row.digest())),
            None => (Vec::new(), None),
        };
        if !change(&mut pulled) {
            return Ok(false);
        }
        let json = serde_json::to_string(&pulled).map_err(|error| damaged(users, error))?;
        let (name, _) = users.column(PULLED);
        let make = |next_id: &mut dyn FnMut() -> i64| {
            let time = next_id();
            let value = CellValue::Json(json.clone().into());
            Ok(vec![RowWrite {
                key: key.clone(),
                partition,
                time,
                action: Action::Put(vec![Column::with(name.clone(), time, value)]),
                condition: None,
                image: Image::None,
            }])
        };
        let options = RowWriteOptions {
            unchanged: vec![Unchanged::Row {
                key: key.to_vec(),
                digest,
            }],
            ..RowWriteOptions::default()
        };
        if engine.write_rows(users, &make, &options)?.1.changed.is_none() {
            return Ok(true);
        }
    }
    Err(RowsError::ConditionFailed(
        "the delivery of the feed was changed by other requests; send the request again".to_owned(),
    ))
}

/// Begins to pull the messages of a feed with many members.
pub(crate) fn pull(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let from = engine.next_version();
    let is_changed = change_state(engine, users, feed, |pulled| match pulled.last_mut() {
        Some(last) if last.to.is_none() => std::mem::take(&mut last.is_pushed_too),
        _ => {
            pulled.push(Pulled {
                from,
                to: None,
                is_pushed_too: false,
            });
            true
        }
    })?;
    if is_changed {
        engine.audience_changed(table, feed);
    }
    Ok(())
}

/// Begins to push the messages of a feed that has few members again.
pub(crate) fn push(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
    let begins = |pulled: &mut Vec<Pulled>| match pulled.last_mut() {
        Some(last) if last.to.is_none() => {
            last.is_pushed_too = true;
            true
        }
        _ => false,
    };
    if !change_state(engine, users, feed, begins)? {
        return Ok(());
    }
    engine.audience_changed(table, feed);
    let to = engine.next_version();
    change_state(engine, users, feed, |pulled| match pulled.last_mut() {
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
    })?;
    engine.audience_changed(table, feed);
    Ok(())
}

/// Returns true if a feed has more members than `count`.
pub(crate) fn has_more(engine: &Engine, table: &WideTable, feed: TimelineId, count: usize) -> Result<bool> {
    Ok(members(engine, table, feed, None, count + 1)?.members.len() > count)
}

/// Adds entries of the messages before a membership that its inbox shows, except those that are pulled.
pub(crate) fn back_fill(
    engine: &Engine,
    table: &Arc<WideTable>,
    member: &Membership,
    inbox: TimelineId,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    if member.visible_from >= member.joined {
        return Ok(());
    }
    let audience = audience(engine, table, member.feed)?;
    let is_pulled = |sequence: i64| {
        let mut ranges = audience.pulled.iter();
        ranges.any(|(from, to)| sequence >= *from && to.is_none_or(|to| sequence < to))
    };
    let bounds = (
        Bound::Included(member.visible_from),
        Bound::Included(member.joined),
    );
    let ranges = engine.messages_of(table, member.feed, bounds)?;
    let (source, feed) = reserved(table, SOURCE, CellValue::String(member.feed.to_string().into()));
    let missing = |found: &StoredRow| {
        let (_, sequence) = key_of(table, &found.key)?;
        let columns = found.columns().map_err(|reason| damaged(table, reason))?;
        let is_missing = !is_pulled(sequence) && is_for(table, &columns, &member.user);
        Ok(is_missing.then_some(sequence))
    };
    let entry = |sequence: &i64, time| {
        let (key, partition) = stored_key(table, inbox, *sequence)?;
        let action = Action::Put(vec![Column::with(source.clone(), time, feed.clone())]);
        Ok((key, partition, action))
    };
    change_entries(engine, table, ranges, missing, entry, is_stopped)
}

/// Removes the entries of a feed from an inbox.
pub(crate) fn purge(
    engine: &Engine,
    table: &Arc<WideTable>,
    inbox: TimelineId,
    feed: TimelineId,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let feed = feed.to_string();
    let ranges = engine.messages_of(table, inbox, (Bound::Unbounded, Bound::Unbounded))?;
    let of_feed = |found: &StoredRow| {
        let columns = found.columns().map_err(|reason| damaged(table, reason))?;
        let is_of_feed =
            matches!(newest(table, &columns, SOURCE), Some(CellValue::String(source)) if **source == *feed);
        Ok(is_of_feed.then(|| found.key.clone()))
    };
    let removal = |key: &Bytes, _| Ok((key.clone(), partition_of(table, key)?, Action::Delete));
    change_entries(engine, table, ranges, of_feed, removal, is_stopped)
}

/// Changes entries of an inbox, a batch at a time. `choose` returns what to change for a row of `ranges`, and `change`
/// returns the key of an entry, the length of its partition, and the change at a time.
fn change_entries<T>(
    engine: &Engine,
    table: &Arc<WideTable>,
    ranges: Ranges,
    choose: impl Fn(&StoredRow) -> Result<Option<T>>,
    change: impl Fn(&T, i64) -> std::result::Result<(Bytes, usize, Action<'static>), EngineError>,
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
            let make = |next_id: &mut dyn FnMut() -> i64| {
                let entries = chosen.iter().map(|entry| {
                    let time = next_id();
                    let (key, partition, action) = change(entry, time)?;
                    Ok(RowWrite {
                        key,
                        partition,
                        time,
                        action,
                        condition: None,
                        image: Image::None,
                    })
                });
                entries.collect()
            };
            engine.write_rows(table, &make, &RowWriteOptions::default())?;
            chosen.clear();
        }
        if is_end {
            return Ok(());
        }
    }
}
