//! Members of feeds, and the delivery of messages to their inboxes.
//!
//! A membership is a row of the table of users. An inbox is a feed of the table of the messages, and its entries refer to
//! messages. The messages of a feed with few members are *pushed*: one journal entry holds a message and the entries of
//! all inboxes. Those of a feed with more members are *pulled*: a member reads them from the feed.
//!
//! The state of a feed records the ranges of sequence numbers that are pulled. Both changes of the delivery leave no gap,
//! because each first begins the new delivery, waits for the writes that may not use it, and then ends the old one.
//! Messages between are delivered twice, and a reader returns them once.
//!
//! A switch back to pushed messages happens at half of the members, so that a few changes do not switch again and again.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_engine::backend::Direction;
use tideline_engine::feeds::{Audience, FeedName};
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{CURSOR, JOINED, MEMBER_INDEX, MUTED, PULLED, SOURCE, VISIBLE_FROM};
use tideline_engine::rows::{
    Action, CellValue, Column, Image, Mutation, RowCondition, RowOutcome, RowPath, RowWrite, RowWriteOptions,
    StoredRow, Unchanged, Update,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_rows::{Result, RowsError};

use crate::inbox::is_for;
use crate::message::{check_length, damaged, key_of, newest, reserved};
use crate::send::stored_key;

/// Type of the feeds that are inboxes. The tag `user` names their user.
pub const INBOX: &str = "inbox";
/// Number of inbox entries that one write of a back-fill adds, or one of a removal removes.
const ENTRIES_PER_WRITE: usize = 1_000;
/// Number of attempts of a change of the state of a feed that other requests change at the same time.
const ATTEMPTS_MAX: usize = 100;

/// Membership of a user in a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The user.
    pub user: String,
    /// The feed.
    pub feed: TimelineId,
    /// Time at which it began, in nanoseconds since 1970-01-01T00:00:00Z.
    pub joined: i64,
    /// Lowest sequence number that the member sees in the inbox.
    pub visible_from: i64,
    /// Sequence number up to which the user has read the feed; `None` = nothing.
    pub cursor: Option<i64>,
    /// True if unread messages of the feed do not count for the user.
    pub is_muted: bool,
}

/// Range of sequence numbers that members read from the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Pulled {
    from: i64,
    /// End; `None` while it goes on.
    to: Option<i64>,
    /// True while messages are also pushed, because the range is about to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_pushed_too: bool,
}

/// Returns the largest number of members of a feed whose messages are pushed.
fn push_max(table: &WideTable) -> usize {
    let feed = table.table().spec().feed;
    let inboxes = feed.and_then(|feed| feed.inboxes);
    inboxes.map_or(0, |inboxes| inboxes.push_max as usize)
}

/// Returns the name of the inbox of a user.
pub fn inbox_of(user: &str) -> FeedName {
    let mut key = format!("{INBOX},user=");
    for character in user.chars() {
        if matches!(character, ',' | '=' | ' ' | '\\') {
            key.push('\\');
        }
        key.push(character);
    }
    FeedName::parse(&key)
}

/// Returns the stored key of a row of the table of users, and the length of the part that names the user.
fn user_key(
    users: &WideTable,
    user: &str,
    feed: &str,
    device: &str,
) -> std::result::Result<(Bytes, usize), EngineError> {
    let invalid = |error: &dyn std::fmt::Display| EngineError::Invalid(error.to_string());
    let values = [user, feed, device].map(|text| KeyValue::String(text.to_owned().into()));
    let mut key = Vec::new();
    let layout = users.layout();
    layout
        .encode(&values, &mut key)
        .map_err(|error| invalid(&error))?;
    let partition = layout.partition_len(&key).map_err(|error| invalid(&error))?;
    Ok((key.into(), partition))
}

/// Returns the membership that a row holds; `None` for other rows.
fn membership(users: &WideTable, row: &StoredRow) -> Result<Option<Membership>> {
    let values = users.layout().decode(&row.key);
    let values = values.map_err(|error| damaged(users, error))?;
    let [
        KeyValue::String(user),
        KeyValue::String(feed),
        KeyValue::String(device),
    ] = values.as_slice()
    else {
        return Err(damaged(users, "the key of a user has other columns"));
    };
    let columns = row.columns().map_err(|reason| damaged(users, reason))?;
    let number = |name| match newest(users, &columns, name) {
        Some(CellValue::I64(number)) => Some(*number),
        _ => None,
    };
    let (true, Some(joined)) = (device.is_empty(), number(JOINED)) else {
        return Ok(None);
    };
    Ok(Some(Membership {
        user: user.to_string(),
        feed: feed
            .parse()
            .map_err(|_| damaged(users, "a membership has no feed id"))?,
        joined,
        visible_from: number(VISIBLE_FROM).unwrap_or(joined),
        cursor: number(CURSOR),
        is_muted: matches!(newest(users, &columns, MUTED), Some(CellValue::Bool(true))),
    }))
}

/// Returns the membership of a user in a feed; `None` if the user is no member.
///
/// # Errors
///
/// The errors of [`Engine::users_table`] and [`Engine::row`].
pub fn member(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    user: &str,
) -> Result<Option<Membership>> {
    let users = engine.users_table(table)?;
    let (key, _) = user_key(&users, user, &feed.to_string(), "")?;
    match engine.row(&users, &key)? {
        Some(row) => membership(&users, &row),
        None => Ok(None),
    }
}

/// Page of the members of a feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Members, in the order in which they joined.
    pub members: Vec<Membership>,
    /// Position of the next page: time of the last member, and its name; `None` at the end.
    pub next: Option<(i64, String)>,
}

/// Returns a page of the members of a feed. `after` is the position of the previous page.
///
/// # Errors
///
/// The errors of [`Engine::users_table`], and those of the scan.
pub fn members(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    after: Option<&(i64, String)>,
    limit: usize,
) -> Result<Members> {
    let users = engine.users_table(table)?;
    let index = users.index(MEMBER_INDEX)?;
    let low = after.map_or(Bound::Unbounded, |(joined, _)| {
        Bound::Included(KeyValue::Signed(*joined))
    });
    let prefix = [KeyValue::String(feed.to_string().into())];
    let ranges = index.layout().ranges(&prefix, (low, Bound::Unbounded))?;
    let path = RowPath::Index {
        index: Arc::clone(index),
        is_covered: false,
    };
    let mut scan = engine.scan_rows(
        Arc::clone(&users),
        path,
        ranges,
        Direction::Ascending,
        None,
        limit.saturating_add(1),
    );
    let mut page = Members::default();
    while let Some(found) = scan.next_row()? {
        let Some(member) = membership(&users, &found.row)? else {
            continue;
        };
        let place = (member.joined, member.user.as_str());
        if after.is_some_and(|(joined, user)| place <= (*joined, user.as_str())) {
            continue;
        }
        if page.members.len() == limit {
            let last = page.members.last();
            page.next = last.map(|last| (last.joined, last.user.clone()));
            break;
        }
        page.members.push(member);
    }
    Ok(page)
}

/// Returns the memberships of a user, in the order of their feeds.
///
/// # Errors
///
/// The errors of [`Engine::users_table`], and those of the scan.
pub fn memberships(engine: &Engine, table: &WideTable, user: &str) -> Result<Vec<Membership>> {
    let users = engine.users_table(table)?;
    let prefix = [KeyValue::String(user.to_owned().into())];
    let ranges = users
        .layout()
        .ranges(&prefix, (Bound::Unbounded, Bound::Unbounded))?;
    let mut scan = engine.scan_rows(
        Arc::clone(&users),
        RowPath::Primary,
        ranges,
        Direction::Ascending,
        None,
        usize::MAX,
    );
    let mut found = Vec::new();
    while let Some(row) = scan.next_row()? {
        found.extend(membership(&users, &row.row)?);
    }
    Ok(found)
}

/// Returns the audience of a feed; an empty one if the table has no inboxes.
///
/// # Errors
///
/// The errors of [`members`].
pub(crate) fn audience(engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Arc<Audience>> {
    if table
        .table()
        .spec()
        .feed
        .is_none_or(|feed| feed.inboxes.is_none())
    {
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
                let inbox = engine.feed(table, &inbox_of(&member.user))?;
                audience.members.push((member.user.into(), inbox));
            }
        }
        Ok(audience)
    })
}

/// Reads the pulled ranges of a feed, with the row that holds them; `None` if they were never written.
fn state_of(
    engine: &Engine,
    users: &WideTable,
    feed: TimelineId,
) -> Result<Option<(Vec<Pulled>, StoredRow)>> {
    let (key, _) = user_key(users, "", &feed.to_string(), "")?;
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
    let (key, partition) = user_key(users, "", &feed.to_string(), "")?;
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
fn pull(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
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
fn push(engine: &Engine, table: &WideTable, users: &WideTable, feed: TimelineId) -> Result<()> {
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
fn has_more(engine: &Engine, table: &WideTable, feed: TimelineId, count: usize) -> Result<bool> {
    Ok(members(engine, table, feed, None, count + 1)?.members.len() > count)
}

/// Adds a user to the members of a feed, and creates the feed and the inbox if they do not exist. `visible_from` is the
/// lowest sequence number of earlier messages that the inbox shows; `None` = only later messages. Repeating the request is
/// safe: it completes an interrupted one, and does not change a membership.
///
/// # Errors
///
/// [`RowsError::Invalid`] for an invalid name, [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of
/// [`Engine::users_table`], [`Engine::feed_or_new`] and [`Engine::write_rows`].
pub fn join(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: &FeedName,
    user: &str,
    visible_from: Option<i64>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Membership> {
    check_length("the user", user, "the request")?;
    let users = engine.users_table(table)?;
    let feed = engine.feed_or_new(table, feed)?;
    let inbox = engine.feed_or_new(table, &inbox_of(user))?;
    let (key, partition) = user_key(&users, user, &feed.to_string(), "")?;
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let number = |name, number| {
            let (name, value) = reserved(&users, name, CellValue::I64(number));
            Column::with(name, time, value)
        };
        let mut columns = vec![
            number(JOINED, time),
            number(VISIBLE_FROM, visible_from.unwrap_or(time)),
        ];
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        let is_new = |row: Option<&Mutation<'_>>| row.is_none();
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Put(columns),
            condition: Some(Box::new(is_new) as RowCondition<'_>),
            image: Image::None,
        }])
    };
    engine.write_rows(&users, &make, &RowWriteOptions::default())?;
    engine.audience_changed(table, feed);
    let joined = member(engine, table, feed, user)?;
    let joined = joined.ok_or_else(|| {
        RowsError::ConditionFailed(format!(
            "user {user:?} has left the feed meanwhile; send the request again"
        ))
    })?;
    if has_more(engine, table, feed, push_max(table))? {
        pull(engine, table, &users, feed)?;
    }
    back_fill(engine, table, &joined, inbox, is_stopped)?;
    Ok(joined)
}

/// Adds entries of the messages before a membership that its inbox shows, except those that are pulled.
fn back_fill(
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
    let mut scan = engine.scan_rows(
        Arc::clone(table),
        RowPath::Primary,
        ranges,
        Direction::Ascending,
        None,
        usize::MAX,
    );
    let mut sequences = Vec::new();
    loop {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let found = scan.next_row()?;
        let is_end = found.is_none();
        if let Some(found) = found {
            let (_, sequence) = key_of(table, &found.row.key)?;
            let columns = found.row.columns().map_err(|reason| damaged(table, reason))?;
            if !is_pulled(sequence) && is_for(table, &columns, &member.user) {
                sequences.push(sequence);
            }
        }
        if sequences.len() == ENTRIES_PER_WRITE || (is_end && !sequences.is_empty()) {
            let inbox = inbox.to_string();
            let source = reserved(table, SOURCE, CellValue::String(member.feed.to_string().into()));
            let make = |next_id: &mut dyn FnMut() -> i64| {
                let entries = sequences.iter().map(|sequence| {
                    let (key, partition) = stored_key(table, &inbox, *sequence)?;
                    let time = next_id();
                    Ok(RowWrite {
                        key,
                        partition,
                        time,
                        action: Action::Put(vec![Column::with(source.0.clone(), time, source.1.clone())]),
                        condition: None,
                        image: Image::None,
                    })
                });
                entries.collect()
            };
            engine.write_rows(table, &make, &RowWriteOptions::default())?;
            sequences.clear();
        }
        if is_end {
            return Ok(());
        }
    }
}

/// Removes a user from the members of a feed, and the entries of the feed from the inbox. Returns false if the user is no
/// member. Repeating the request is safe.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of [`Engine::feed`], [`Engine::users_table`] and
/// [`Engine::write_rows`].
pub fn leave(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    user: &str,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool> {
    let users = engine.users_table(table)?;
    let was_member = member(engine, table, feed, user)?.is_some();
    // The membership, and the cursors of devices.
    let prefix = [user.to_owned(), feed.to_string()].map(|text| KeyValue::String(text.into()));
    let rows = users
        .layout()
        .ranges(&prefix, (Bound::Unbounded, Bound::Unbounded))?;
    engine.delete_rows(&users, &rows.ranges, None, is_stopped)?;
    engine.audience_changed(table, feed);
    if let Ok(inbox) = engine.feed(table, &inbox_of(user)) {
        purge(engine, table, inbox, feed, is_stopped)?;
    }
    if !has_more(engine, table, feed, push_max(table) / 2)? {
        push(engine, table, &users, feed)?;
    }
    Ok(was_member)
}

/// Deletes a feed with its messages, attributes and members. Repeating the request is safe.
///
/// # Errors
///
/// The errors of [`leave`] and of [`Engine::delete_feed`]. Some of the members and messages may be deleted then.
pub fn delete_feed(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let has_inboxes = table
        .table()
        .spec()
        .feed
        .is_some_and(|feed| feed.inboxes.is_some());
    while has_inboxes {
        let page = members(engine, table, feed, None, ENTRIES_PER_WRITE)?;
        for member in &page.members {
            leave(engine, table, feed, &member.user, is_stopped)?;
        }
        if page.members.is_empty() {
            break;
        }
    }
    Ok(engine.delete_feed(table, feed, is_stopped)?)
}

/// Removes the entries of a feed from an inbox.
fn purge(
    engine: &Engine,
    table: &Arc<WideTable>,
    inbox: TimelineId,
    feed: TimelineId,
    is_stopped: &dyn Fn() -> bool,
) -> Result<()> {
    let feed = feed.to_string();
    let ranges = engine.messages_of(table, inbox, (Bound::Unbounded, Bound::Unbounded))?;
    let mut scan = engine.scan_rows(
        Arc::clone(table),
        RowPath::Primary,
        ranges,
        Direction::Ascending,
        None,
        usize::MAX,
    );
    let mut keys = Vec::new();
    loop {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let found = scan.next_row()?;
        let is_end = found.is_none();
        if let Some(found) = found {
            let columns = found.row.columns().map_err(|reason| damaged(table, reason))?;
            let is_of_feed =
                |value: &CellValue<'_>| matches!(value, CellValue::String(source) if **source == *feed);
            if newest(table, &columns, SOURCE).is_some_and(is_of_feed) {
                keys.push(found.row.key.clone());
            }
        }
        if keys.len() == ENTRIES_PER_WRITE || (is_end && !keys.is_empty()) {
            let make = |next_id: &mut dyn FnMut() -> i64| {
                let removals = keys.iter().map(|key| {
                    let partition = table.layout().partition_len(key);
                    Ok(RowWrite {
                        key: key.clone(),
                        partition: partition.map_err(|error| EngineError::Invalid(error.to_string()))?,
                        time: next_id(),
                        action: Action::Delete,
                        condition: None,
                        image: Image::None,
                    })
                });
                removals.collect()
            };
            engine.write_rows(table, &make, &RowWriteOptions::default())?;
            keys.clear();
        }
        if is_end {
            return Ok(());
        }
    }
}

/// Returns the cursors of the devices of a user in a feed.
///
/// # Errors
///
/// The errors of [`Engine::users_table`], and those of the scan.
pub fn device_cursors(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    user: &str,
) -> Result<BTreeMap<String, i64>> {
    let users = engine.users_table(table)?;
    let prefix = [user.to_owned(), feed.to_string()].map(|text| KeyValue::String(text.into()));
    let ranges = users
        .layout()
        .ranges(&prefix, (Bound::Unbounded, Bound::Unbounded))?;
    let path = RowPath::Primary;
    let mut scan = engine.scan_rows(
        Arc::clone(&users),
        path,
        ranges,
        Direction::Ascending,
        None,
        usize::MAX,
    );
    let mut cursors = BTreeMap::new();
    while let Some(found) = scan.next_row()? {
        let values = users.layout().decode(&found.row.key);
        let values = values.map_err(|error| damaged(&users, error))?;
        let columns = found.row.columns().map_err(|reason| damaged(&users, reason))?;
        if let (Some(KeyValue::String(device)), Some(CellValue::I64(cursor))) =
            (values.last(), newest(&users, &columns, CURSOR))
            && !device.is_empty()
        {
            cursors.insert(device.to_string(), *cursor);
        }
    }
    Ok(cursors)
}

/// Change of the state of a member.
#[derive(Debug, Clone, Copy)]
pub enum MemberChange<'a> {
    /// Messages were read up to a sequence number. A lower one than before changes nothing.
    Cursor {
        /// Device that has read them; `None` = the user.
        device: Option<&'a str>,
        /// The sequence number.
        sequence: i64,
    },
    /// Unread messages of the feed do not count for the user, or count again.
    Muted(bool),
}

/// Changes the state of a member. Returns the cursor after the change; `None` without one.
///
/// # Errors
///
/// [`EngineError::NoSuchMember`] if the user is no member of the feed, [`RowsError::Invalid`] for an invalid name, and the
/// errors of [`Engine::write_rows`].
pub fn change_member(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    user: &str,
    change: MemberChange<'_>,
) -> Result<Option<i64>> {
    let device = match change {
        MemberChange::Cursor { device, .. } => device,
        MemberChange::Muted(_) => None,
    };
    if let Some(device) = device {
        check_length("the device", device, "the request")?;
    }
    let users = engine.users_table(table)?;
    let missing = || EngineError::NoSuchMember {
        user: user.to_owned(),
        feed: feed.to_string(),
    };
    if member(engine, table, feed, user)?.is_none() {
        return Err(missing().into());
    }
    let (key, partition) = user_key(&users, user, &feed.to_string(), device.unwrap_or_default())?;
    let cursor_of = |row: &Mutation<'_>| match newest(&users, row, CURSOR) {
        Some(CellValue::I64(cursor)) => Some(*cursor),
        _ => None,
    };
    let is_needed = |row: Option<&Mutation<'_>>| match (row, change) {
        // A missing membership means that the user has left meanwhile.
        (None, _) => device.is_some(),
        (Some(row), MemberChange::Cursor { sequence, .. }) => {
            cursor_of(row).is_none_or(|before| before < sequence)
        }
        (Some(_), MemberChange::Muted(_)) => true,
    };
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let (name, value) = match change {
            MemberChange::Cursor { sequence, .. } => reserved(&users, CURSOR, CellValue::I64(sequence)),
            MemberChange::Muted(is_muted) => reserved(&users, MUTED, CellValue::Bool(is_muted)),
        };
        let column = Column {
            clears: true,
            ..Column::with(name, time, value)
        };
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Update(Update {
                columns: vec![column],
                ..Update::default()
            }),
            condition: Some(Box::new(is_needed) as RowCondition<'_>),
            image: Image::After,
        }])
    };
    let (_, written) = engine.write_rows(&users, &make, &RowWriteOptions::default())?;
    match written.rows.into_iter().next() {
        Some(RowOutcome::Written(Some(row)) | RowOutcome::ConditionFailed(Some(row))) => Ok(cursor_of(&row)),
        _ => Err(missing().into()),
    }
}
