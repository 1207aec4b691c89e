//! Members of feeds: who joins and leaves, and the cursors of users.
//!
//! A membership is a row of the table of users, under (user, feed, ""). The cursors of devices are rows under (user,
//! feed, device), and the state of the delivery of a feed is in rows of the user "".
//!
//! A join with history marks the membership until the inbox has the entries of all earlier messages. If the request is
//! interrupted, the job of the module `fan_out` completes the entries, or the request does if it is repeated.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::backend::Direction;
use tideline_engine::fail_points::{When, pass};
use tideline_engine::feeds::FeedName;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::feed::{
    CURSOR, FILLED, FILLING, INBOX, JOINED, MEMBER_INDEX, MUTED, VISIBLE_FROM,
};
use tideline_engine::model::{Durability, TimelineId, Timestamp};
use tideline_engine::rows::{
    Action, CellValue, Column, Image, Mutation, RowCondition, RowOutcome, RowWrite, RowWriteOptions,
    StoredRow, Unchanged, Update, WideError,
};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_rows::{Result, RowsError};

use crate::blocks::sender_of;
use crate::delivery::{Filled, audience, back_fill, pull, purge, push_max, shrunk};
use crate::message::{check_length, damaged, newest, reserved};
use crate::read::{begin_index_scan, begin_scan};
use crate::send::{COMMITS_MAX, delete_rows};
use crate::viewer::{may_name_inbox, owner_of};

/// Number of inbox entries that one write of a back-fill adds, and that one write of a removal removes.
pub(crate) const ENTRIES_PER_WRITE: usize = 1_000;
/// Number of inbox entries after which the progress of an interrupted join is stored. After a crash, at most so many
/// entries are written again.
const ENTRIES_PER_MARK: u64 = 100_000;

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
    /// True while the inbox does not have the entries of all earlier messages yet that the member sees. Readers of the
    /// inbox read the messages from the feed until then.
    pub is_filling: bool,
    /// Sequence number below which the inbox has these entries after an interrupted join; `None` = not known.
    pub filled: Option<i64>,
}

/// Returns the name of the inbox of a user.
///
/// # Errors
///
/// [`EngineError::Invalid`] for a user that a tag cannot hold.
pub fn inbox_of(user: &str) -> Result<FeedName> {
    Ok(FeedName::of(INBOX, &[("user", user)])?)
}

/// Returns the inbox of a user; `None` if the user has none.
pub(crate) fn known_inbox(engine: &Engine, table: &WideTable, user: &str) -> Result<Option<TimelineId>> {
    match engine.feed(table, &inbox_of(user)?) {
        Ok(inbox) => Ok(Some(inbox)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the stored key of a row in the table of users, and the length of the part that names the user.
pub(crate) fn user_key(
    users: &WideTable,
    user: &str,
    feed: TimelineId,
    device: &str,
) -> std::result::Result<(Bytes, usize), EngineError> {
    let feed = feed.to_string();
    users.encode_key(&[user, &feed, device].map(|text| KeyValue::String(text.into())))
}

/// Returns the membership that a row holds; `None` for other rows.
pub(crate) fn membership(users: &WideTable, row: &StoredRow) -> Result<Option<Membership>> {
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
        is_filling: matches!(newest(users, &columns, FILLING), Some(CellValue::Bool(true))),
        filled: number(FILLED),
    }))
}

/// Returns the membership of a user in a feed; `None` if the user is not a member.
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
    let (key, _) = user_key(&users, user, feed, "")?;
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

/// Returns a page of the members of a feed. `after` is the [`next`](Members::next) of the previous page.
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
    let low = after.map_or(Bound::Unbounded, |(joined, _)| {
        Bound::Included(KeyValue::Signed(*joined))
    });
    let prefix = [KeyValue::String(feed.to_string().into())];
    let mut scan = begin_index_scan(
        engine,
        &users,
        (MEMBER_INDEX, false),
        (&prefix, low),
        limit.saturating_add(1),
    )?;
    let mut page = Members::default();
    while let Some(found) = scan.next_row()? {
        let Some(member) = membership(&users, &found.row)? else {
            continue;
        };
        let position = (member.joined, member.user.as_str());
        if after.is_some_and(|(joined, user)| position <= (*joined, user.as_str())) {
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

/// Returns the number of members of a feed, at most `count_max`. Reads only the index of memberships.
pub(crate) fn count_members(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    count_max: usize,
) -> Result<usize> {
    let users = engine.users_table(table)?;
    let prefix = [KeyValue::String(feed.to_string().into())];
    let of_feed = (&prefix[..], Bound::Unbounded);
    let mut scan = begin_index_scan(engine, &users, (MEMBER_INDEX, true), of_feed, count_max)?;
    let mut count = 0;
    while count < count_max && scan.next_row()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Memberships of a user, and blocked senders.
#[derive(Debug, Default)]
pub(crate) struct UserRows {
    /// Memberships, in the order of their feeds.
    pub(crate) memberships: Vec<Membership>,
    pub(crate) blocked: BTreeSet<String>,
}

/// Reads the memberships of a user and the blocked senders.
///
/// # Errors
///
/// The errors of [`Engine::users_table`], and those of the scan.
pub(crate) fn user_rows(engine: &Engine, table: &WideTable, user: &str) -> Result<UserRows> {
    let users = engine.users_table(table)?;
    let ranges = range_of(&users, &[user])?;
    let mut scan = begin_scan(engine, &users, ranges, Direction::Ascending, usize::MAX);
    let mut rows = UserRows::default();
    while let Some(found) = scan.next_row()? {
        match membership(&users, &found.row)? {
            Some(membership) => rows.memberships.push(membership),
            None => rows.blocked.extend(sender_of(&users, &found.row.key)?),
        }
    }
    Ok(rows)
}

/// Returns the range of the rows in the table of users whose keys begin with these values.
pub(crate) fn range_of(users: &WideTable, prefix: &[&str]) -> Result<Ranges> {
    let prefix = prefix.iter().map(|text| KeyValue::String((*text).into()));
    let prefix: Vec<KeyValue<'_>> = prefix.collect();
    Ok(users
        .layout()
        .ranges(&prefix, (Bound::Unbounded, Bound::Unbounded))?)
}

/// Result of a request to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The membership.
    pub member: Membership,
    /// Number of earlier messages and events for which the inbox got no entry, because their parts are closed for
    /// writes.
    pub skipped: u64,
}

/// Adds a user to the members of a feed, and creates the feed and the inbox if they do not exist. `visible_from` is the
/// lowest sequence number of earlier messages that the inbox shows; `None` = only later messages. Repeating the request
/// is safe: it completes an interrupted request, and does not change an existing membership. After an interrupted
/// request, readers of the inbox read the messages from the feed, until the job `fan_out` has completed it.
///
/// # Errors
///
/// [`RowsError::Invalid`] for an invalid name, for an inbox, which has no members, and for a start of the history in the
/// future, [`WideError::Contended`] if the user leaves again and again meanwhile, [`RowsError::Cancelled`] if
/// `is_stopped` returns true, and the errors of [`Engine::users_table`], [`Engine::feed_or_new`],
/// [`Engine::claim_feed`] and [`Engine::write_rows`].
pub fn join(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: &FeedName,
    user: &str,
    visible_from: Option<i64>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Joined> {
    check_length("the user", user, "the request")?;
    let users = engine.users_table(table)?;
    if is_inbox(engine, table, feed)? {
        return Err(RowsError::Invalid(
            "the feed is the inbox of a user, which has no members; add the user to another feed".to_owned(),
        ));
    }
    let highest = engine.next_version();
    if let Some(from) = visible_from.filter(|from| *from > highest) {
        return Err(RowsError::Invalid(format!(
            "history: since is in the future ({}); give a time up to now, or `none`",
            Timestamp::from_nanos_clamped(from).to_rfc3339()
        )));
    }
    let feed = engine.feed_or_new(table, feed)?;
    let inbox = engine.feed_or_new(table, &inbox_of(user)?)?;
    let Begun {
        mut joined,
        is_new,
        known_from,
    } = begin_join(engine, table, &users, (feed, user), visible_from)?;
    let fill = |range, is_stopped: &dyn Fn() -> bool| {
        let written = |_: Filled| -> Result<ControlFlow<()>> {
            pass::<EngineError>("feed_join", "write", When::After)?;
            Ok(ControlFlow::Continue(()))
        };
        back_fill(engine, table, (&joined, inbox), range, &written, is_stopped)
    };
    let complete = || -> Result<u64> {
        let since = (joined.joined.max(joined.visible_from), known_from);
        if is_new {
            // A request that has read the members before the join can have given its message a number above the time of
            // the join. Its message is neither written to the inbox nor a part of the history. The range is short.
            fill(since, &|| false)?;
        } else if joined.is_filling {
            // An earlier request was interrupted, perhaps before it has written the entries of these messages.
            fill(since, is_stopped)?;
        }
        if audience(engine, table, feed)?.members.len() > push_max(table) {
            pull(engine, table, &users, feed)?;
        }
        let skipped = fill((joined.visible_from, joined.joined), is_stopped)?;
        if joined.is_filling {
            end_filling(engine, &users, &joined)?;
        }
        Ok(skipped)
    };
    let skipped = complete();
    if std::mem::take(&mut joined.is_filling) {
        match &skipped {
            Ok(_) => engine.end_interrupted_join(table, feed, user),
            Err(_) => {
                engine.add_interrupted_join(table, feed, user);
            }
        }
    }
    let skipped = skipped?;
    Ok(Joined {
        member: joined,
        skipped,
    })
}

/// Membership that a join has written or found.
struct Begun {
    joined: Membership,
    /// True if the request has written the membership.
    is_new: bool,
    /// Version above the numbers of all messages whose requests may not have known the member.
    known_from: i64,
}

/// Writes the membership of a user, if it does not exist, and reads it. Repeats both if the user leaves in between.
fn begin_join(
    engine: &Engine,
    table: &Arc<WideTable>,
    users: &Arc<WideTable>,
    (feed, user): (TimelineId, &str),
    visible_from: Option<i64>,
) -> Result<Begun> {
    let (key, partition) = user_key(users, user, feed, "")?;
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let number = |name, number| {
            let (name, value) = reserved(users, name, CellValue::I64(number));
            Column::with(name, time, value)
        };
        let mut columns = vec![
            number(JOINED, time),
            number(VISIBLE_FROM, visible_from.unwrap_or(time)),
        ];
        if visible_from.is_some_and(|from| from < time) {
            let (name, value) = reserved(users, FILLING, CellValue::Bool(true));
            columns.push(Column::with(name, time, value));
        }
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
    for _ in 0..COMMITS_MAX {
        let is_new = {
            // The job that writes messages to inboxes waits for this claim before it reads the members. So it finds
            // every member who may see a message that it writes.
            let _claim = engine.claim_feed(table, feed, std::iter::empty())?;
            let (_, written) = engine.write_rows(users, &make, &RowWriteOptions::default())?;
            matches!(written.rows.first(), Some(RowOutcome::Written(_)))
        };
        engine.audience_changed(table, feed);
        let known_from = engine.next_version();
        let joined = member(engine, table, feed, user).inspect_err(|_| {
            // The membership may be stored already.
            engine.add_interrupted_join(table, feed, user);
        })?;
        if let Some(joined) = joined {
            return Ok(Begun {
                joined,
                is_new,
                known_from,
            });
        }
    }
    Err(contended())
}

/// Returns the error of a change of a member that other requests prevent. The client can send the request again.
fn contended() -> RowsError {
    let contended = WideError::Contended {
        attempts: COMMITS_MAX,
    };
    EngineError::from(contended).into()
}

/// End of a run that completes an interrupted join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinEnd {
    /// The inbox has all entries.
    Complete,
    /// The user has left, or another request has completed the join.
    Gone,
    /// The run had to end before. The next run continues after the last entries.
    Stopped,
}

/// Writes the inbox entries that an interrupted join has not written. After each write, calls `written` with the number
/// of written entries, and the number of entries that cannot be written because their parts are closed for writes. Ends
/// if it breaks.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of [`join`].
pub(crate) fn complete_join(
    engine: &Engine,
    table: &Arc<WideTable>,
    (feed, user): (TimelineId, &str),
    written: &dyn Fn(u64, u64) -> ControlFlow<()>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<JoinEnd> {
    let users = engine.users_table(table)?;
    let known = member(engine, table, feed, user)?;
    let Some(joined) = known.filter(|joined| joined.is_filling) else {
        return Ok(JoinEnd::Gone);
    };
    let inbox = engine.feed_or_new(table, &inbox_of(user)?)?;
    // The request may have ended before it has changed the delivery of the feed.
    if audience(engine, table, feed)?.members.len() > push_max(table) {
        pull(engine, table, &users, feed)?;
    }
    // The history, and the messages since the join: their entries may be missing too. Entries that exist do not change.
    let from = joined.filled.unwrap_or(joined.visible_from);
    let range = (from.max(joined.visible_from), engine.next_version());
    let (last, unmarked) = (Cell::new(None::<i64>), Cell::new(0));
    let end = Cell::new(ControlFlow::Continue(()));
    let mark = || match last.take() {
        Some(last) => set_filled(engine, &users, &joined, last.saturating_add(1)),
        None => Ok(()),
    };
    let at_write = |filled: Filled| -> Result<ControlFlow<()>> {
        last.set(Some(filled.last));
        unmarked.set(unmarked.get() + filled.entries + filled.skipped);
        if unmarked.get() >= ENTRIES_PER_MARK {
            unmarked.set(0);
            mark()?;
        }
        end.set(written(filled.entries, filled.skipped));
        Ok(end.get())
    };
    let filled = back_fill(engine, table, (&joined, inbox), range, &at_write, is_stopped);
    if filled.is_err() || end.get().is_break() {
        mark()?;
    }
    filled?;
    if end.get().is_break() {
        return Ok(JoinEnd::Stopped);
    }
    match end_filling(engine, &users, &joined)? {
        true => Ok(JoinEnd::Complete),
        false => Ok(JoinEnd::Gone),
    }
}

/// Returns true for the name of an inbox. The inbox need not exist.
fn is_inbox(engine: &Engine, table: &WideTable, feed: &FeedName) -> Result<bool> {
    match feed {
        FeedName::Key(key) => {
            let is_type = || feed.identity().is_some_and(|name| name.measurement() == INBOX);
            Ok(may_name_inbox(key) && is_type())
        }
        FeedName::Id(feed) => Ok(owner_of(engine, table, *feed)?.is_some()),
    }
}

/// Stores that the inbox of a member has the entries of all messages that the member sees. After a crash, the mark can
/// still exist; readers then read more than they need. Returns false if the user has left.
fn end_filling(engine: &Engine, users: &WideTable, joined: &Membership) -> Result<bool> {
    let cleared = |_: i64| {
        let mut columns = [FILLING, FILLED].map(|name| Column::cleared(users.column(name).0));
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        columns.to_vec()
    };
    change_filling(engine, users, joined, &cleared)
}

/// Stores the sequence number below which the inbox of a member has the entries.
fn set_filled(engine: &Engine, users: &WideTable, joined: &Membership, end: i64) -> Result<()> {
    let filled = |time: i64| {
        let (name, value) = reserved(users, FILLED, CellValue::I64(end));
        vec![Column {
            clears: true,
            ..Column::with(name, time, value)
        }]
    };
    change_filling(engine, users, joined, &filled)?;
    Ok(())
}

/// Changes columns of a membership. Returns false if the user has left. `columns` gets the time of the write.
fn change_filling(
    engine: &Engine,
    users: &WideTable,
    joined: &Membership,
    columns: &dyn Fn(i64) -> Vec<Column<'static>>,
) -> Result<bool> {
    let (key, partition) = user_key(users, &joined.user, joined.feed, "")?;
    // The user can have left and joined again.
    let is_same = |row: Option<&Mutation<'_>>| {
        let time = row.and_then(|row| newest(users, row, JOINED));
        matches!(time, Some(CellValue::I64(time)) if *time == joined.joined)
    };
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Update(Update {
                columns: columns(time),
                ..Update::default()
            }),
            condition: Some(Box::new(is_same) as RowCondition<'_>),
            image: Image::None,
        }])
    };
    let options = RowWriteOptions {
        durability: Some(Durability::Buffered),
        ..RowWriteOptions::default()
    };
    let (_, written) = engine.write_rows(users, &make, &options)?;
    Ok(matches!(written.rows.first(), Some(RowOutcome::Written(_))))
}

/// Removes a user from the members of a feed, and removes the entries of the feed from the inbox of the user. Returns
/// false if the user was not a member. Repeating the request is safe.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of [`Engine::feed`], [`Engine::users_table`]
/// and [`Engine::write_rows`].
pub fn leave(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    user: &str,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool> {
    let was_member = remove(engine, table, feed, user, is_stopped)?;
    let users = engine.users_table(table)?;
    shrunk(engine, table, &users, feed)?;
    Ok(was_member)
}

/// Removes a member like [`leave`], without a change of the delivery of the feed.
fn remove(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    user: &str,
    is_stopped: &dyn Fn() -> bool,
) -> Result<bool> {
    let users = engine.users_table(table)?;
    let was_member = member(engine, table, feed, user)?.is_some();
    delete_rows_of(engine, &users, feed, user)?;
    engine.audience_changed(table, feed);
    // The user can join again meanwhile. The entries of the new membership stay.
    let end = engine.next_version();
    let end = member(engine, table, feed, user)?.map_or(end, |member| member.visible_from.min(end));
    if let Some(inbox) = known_inbox(engine, table, user)? {
        purge(engine, table, inbox, (feed, end), is_stopped)?;
    }
    Ok(was_member)
}

/// Deletes the membership of a user in a feed, and the cursors of the devices. Deletes single rows and not a range,
/// because readers of the inbox watch the journal for the keys of changed memberships.
fn delete_rows_of(engine: &Engine, users: &Arc<WideTable>, feed: TimelineId, user: &str) -> Result<()> {
    loop {
        let mut scan = begin_scan(
            engine,
            users,
            range_of(users, &[user, &feed.to_string()])?,
            Direction::Ascending,
            usize::MAX,
        );
        let mut keys = Vec::new();
        while let Some(found) = scan.next_row()? {
            keys.push(found.row.key);
        }
        if keys.is_empty() {
            return Ok(());
        }
        delete_rows(engine, users, &keys)?;
        // A device may have set its cursor meanwhile.
    }
}

/// Deletes a feed with its messages, attributes and members. Repeating the request is safe. The next message or read
/// creates a deleted inbox again if its user is a member of a feed.
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
    let has_inboxes = table.feed().inboxes.is_some();
    loop {
        let known = match has_inboxes {
            true => members(engine, table, feed, None, ENTRIES_PER_WRITE)?.members,
            false => Vec::new(),
        };
        if known.is_empty() {
            break;
        }
        for member in known {
            // The delivery of a feed that is deleted need not follow its number of members.
            remove(engine, table, feed, &member.user, is_stopped)?;
        }
    }
    Ok(engine.delete_feed(table, feed, is_stopped)?)
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
    let mut scan = begin_scan(
        engine,
        &users,
        range_of(&users, &[user, &feed.to_string()])?,
        Direction::Ascending,
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
    /// Messages were read up to a sequence number. A number below the present cursor changes nothing.
    Cursor {
        /// Device that has read them; `None` = the user.
        device: Option<&'a str>,
        /// The sequence number.
        sequence: i64,
    },
    /// Only messages up to a sequence number count as read, even if the present cursor is higher.
    Rewind {
        /// Device whose cursor is set; `None` = the user.
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
/// [`EngineError::NoSuchMember`] if the user is not a member of the feed, [`WideError::Contended`] if other requests
/// change the member again and again meanwhile, [`RowsError::Invalid`] for an invalid name and for a sequence number
/// above all that the server has assigned, and the errors of [`Engine::write_rows`].
pub fn change_member(
    engine: &Engine,
    table: &WideTable,
    feed: TimelineId,
    user: &str,
    change: MemberChange<'_>,
) -> Result<Option<i64>> {
    let (device, sequence) = match change {
        MemberChange::Cursor { device, sequence } | MemberChange::Rewind { device, sequence } => {
            (device, Some(sequence))
        }
        MemberChange::Muted(_) => (None, None),
    };
    if let Some(device) = device {
        check_length("the device", device, "the request")?;
    }
    // Later messages would count as read. Manual sequence numbers have no such bound.
    let highest = match table.layout().generated() {
        Some(_) => engine.next_version(),
        None => i64::MAX,
    };
    if let Some(sequence) = sequence.filter(|sequence| *sequence > highest) {
        return Err(RowsError::Invalid(format!(
            "sequence: {sequence} is above {highest}, which no sequence number so far exceeds; send the number of a \
             message"
        )));
    }
    let users = engine.users_table(table)?;
    let missing = || EngineError::NoSuchMember {
        user: user.to_owned(),
        feed: feed.to_string(),
    };
    let (member_key, _) = user_key(&users, user, feed, "")?;
    let (key, partition) = user_key(&users, user, feed, device.unwrap_or_default())?;
    let cursor_of = |row: &Mutation<'_>| match newest(&users, row, CURSOR) {
        Some(CellValue::I64(cursor)) => Some(*cursor),
        _ => None,
    };
    let is_needed = |row: Option<&Mutation<'_>>| match (row, change) {
        // The user has left meanwhile. The first cursor of a device has no row before it.
        (None, _) => device.is_some(),
        (Some(row), MemberChange::Cursor { sequence, .. }) => {
            cursor_of(row).is_none_or(|before| before < sequence)
        }
        (Some(row), MemberChange::Rewind { sequence, .. }) => cursor_of(row) != Some(sequence),
        (Some(_), MemberChange::Muted(_)) => true,
    };
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let (name, value) = match change {
            MemberChange::Cursor { sequence, .. } | MemberChange::Rewind { sequence, .. } => {
                reserved(&users, CURSOR, CellValue::I64(sequence))
            }
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
    for _ in 0..COMMITS_MAX {
        let stored = engine.row(&users, &member_key)?.ok_or_else(missing)?;
        if membership(&users, &stored)?.is_none() {
            return Err(missing().into());
        }
        let options = RowWriteOptions {
            // A request that removes the member deletes the cursors of the devices once.
            unchanged: match device {
                Some(_) => vec![Unchanged::Row {
                    key: member_key.to_vec(),
                    digest: Some(stored.digest()),
                }],
                None => Vec::new(),
            },
            ..RowWriteOptions::default()
        };
        let (_, written) = engine.write_rows(&users, &make, &options)?;
        if written.changed.is_some() {
            continue;
        }
        return match written.rows.into_iter().next() {
            Some(RowOutcome::Written(Some(row)) | RowOutcome::ConditionFailed(Some(row))) => {
                Ok(cursor_of(&row))
            }
            _ => Err(missing().into()),
        };
    }
    Err(contended())
}
