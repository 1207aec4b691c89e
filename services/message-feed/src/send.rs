//! New messages.
//!
//! The messages of a request are written by one journal entry. A message id makes a repeated request safe: the ids of a
//! feed are in a secondary index, which the entry of the message also changes. Requests with the same message id cannot
//! run at the same time, so a later request always finds the message of an earlier request.
//!
//! The same entry holds the inbox entries of the members, so all inboxes show a message, or none.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tideline_engine::backend::Direction;
use tideline_engine::feeds::{Audience, FeedClaim, FeedName, Recipient};
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::feed::{
    COPY, DELETE, EVENT, EXCEPT, ID_INDEX, MENTIONS, MESSAGE_ID, SENDER, SOURCE, TARGET, TIME, TO,
};
use tideline_engine::model::{Durability, SequenceNumber, SequenceSource, TimelineId, Timestamp};
use tideline_engine::rows::{
    Action, CellValue, Column, Effect, Image, Mutation, RowCommit, RowCondition, RowOutcome, RowWrite,
    RowWriteOptions, Update, WideError,
};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_openapi::feed::{NewMessage, SendMessages};
use tideline_openapi::plain::{self, JsonFault};
use tideline_rows::value::{write_number, write_time};
use tideline_rows::write::refused_text;
use tideline_rows::{Result, RowsError};

use crate::delivery::{audience, cached_members, has_copies};
use crate::message::{
    Values, begin_member, check_length, columns_of, damaged, newest, reserved, sequence_of, time_of,
    to_columns,
};
use crate::read::{begin_index_scan, begin_scan};

/// Maximum number of messages of a request.
pub const MESSAGES_MAX: usize = 1_000;
/// Maximum number of names in a list of a message.
pub const NAMES_MAX: usize = 1_000;
/// Expected size of a message of a response to a request with new messages, in bytes of JSON.
pub const SENT_BYTES: usize = 100;
/// Maximum number of messages and inbox entries that one request writes.
pub const ENTRIES_MAX: usize = 20_000;
/// Maximum number of messages and inbox entries for which [`reads_nothing`] returns true. They take less than a
/// millisecond to encode.
const ENTRIES_AT_ONCE_MAX: usize = 100;
/// Maximum size of a copy of a message, in bytes. The entries of a larger message refer to it: a page would otherwise
/// read the whole copy even if the request selects other columns.
const COPY_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a write with copies, in bytes. It is below the limit of a write, because the sizes are estimated.
const COPIED_WRITE_BYTES: usize = 3 << 20;
/// Estimated size of a row of a write without the columns of its message, in bytes.
pub(crate) const ROW_BYTES: usize = 150;
/// Number of times that a request creates its feed again because it was deleted meanwhile.
const ATTEMPTS_MAX: usize = 16;
/// Maximum number of attempts to commit a change while other requests change the same rows; then it is refused as
/// contended. It is the limit of the row store, too. With 100 attempts, about 3 % of the runs of three busy threads were
/// refused on slow machines.
pub(crate) const COMMITS_MAX: u32 = 1_000;

/// Settings of a write of messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteTerms<'a> {
    /// Principal on whose behalf the request acts; `None` = not given.
    pub principal: Option<&'a str>,
    /// Durability of the acknowledgement; `None` = the setting of the table.
    pub durability: Option<Durability>,
}

/// Result of a request with new messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The feed.
    pub feed: TimelineId,
    /// Messages in the order of the request.
    pub messages: Vec<SentMessage>,
    /// Sequence of the journal entry; `None` if nothing was written.
    pub position: Option<SequenceNumber>,
}

impl Sent {
    /// Returns the result with the sequence of its journal entry.
    pub fn at(self, position: SequenceNumber) -> Self {
        Self {
            position: Some(position),
            ..self
        }
    }

    /// Appends the messages as JSON, separated by commas, each in the form of
    /// [`MessageSent`](tideline_openapi::feed::MessageSent).
    pub fn write_messages(&self, out: &mut Vec<u8>) {
        for (number, message) in self.messages.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            message.write_json(out);
        }
    }
}

/// Sequence number of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMessage {
    /// The sequence number.
    pub sequence: i64,
    /// Time of the message; `None` for a repeated message with a manual sequence number.
    pub time: Option<Timestamp>,
    /// True if an earlier message has the message id, so that nothing was written.
    pub is_repeated: bool,
}

impl SentMessage {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"sequence\":\"");
        write_number(self.sequence, out);
        out.push(b'"');
        if let Some(time) = self.time {
            begin_member("time", out);
            write_time(time, out);
        }
        if self.is_repeated {
            begin_member("repeated", out);
            out.extend_from_slice(b"true");
        }
        out.push(b'}');
    }
}

/// Sequence numbers that a request gives, each with a message id, and with the name of its message in errors.
pub(crate) type GivenNumbers<'m> = BTreeMap<i64, (Option<&'m str>, String)>;

/// Parsed message.
struct Draft<'m> {
    values: Values,
    /// Members whose inboxes show the message; `None` = all.
    to: Option<Cow<'m, [String]>>,
    /// Members whose inboxes do not show the message.
    except: &'m [String],
    id: Option<&'m str>,
    /// Sequence number in the request, and the time of the message. `None` if the server assigns the number, which is
    /// then also the time.
    given: Option<(i64, Timestamp)>,
}

/// Messages whose write has begun.
#[derive(Debug)]
pub struct BegunSend {
    /// Result if the commit succeeds, without its position.
    pub sent: Sent,
    /// The commit; `None` if nothing is written.
    pub commit: Option<SendCommit>,
}

/// Commit of messages. As a future, it returns the same as [`RowCommit`]. It holds the claim on the message ids and on
/// the feed, so it must be polled to its end, even if the request that began it has ended.
#[derive(Debug)]
pub struct SendCommit {
    commit: RowCommit,
    claim: FeedClaim,
}

impl SendCommit {
    /// Waits on the current thread.
    fn wait(self, engine: &Engine) -> Result<Option<SequenceNumber>> {
        let Self { commit, claim } = self;
        let committed = engine.wait_for_rows(commit);
        drop(claim);
        Ok(committed?)
    }
}

impl Future for SendCommit {
    type Output = Result<Option<SequenceNumber>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let committed = Pin::new(&mut self.commit).poll(context);
        committed.map_err(RowsError::from)
    }
}

/// Reads the body of a request. Callers use this function instead of a separate JSON parser: this crate is compiled for
/// speed, and a caller may be compiled for size.
///
/// # Errors
///
/// The errors of [`plain::read`].
pub fn read_body(body: &[u8]) -> std::result::Result<SendMessages, JsonFault> {
    plain::read(body)
}

/// Writes messages to a feed, and creates the feed if it does not exist: all messages, or none.
///
/// # Errors
///
/// [`RowsError::Invalid`] for a message that is not valid, [`RowsError::OverLimit`] for too many messages,
/// [`RowsError::ConditionFailed`] if the feed has a message with a given sequence number or had one that was deleted, and
/// the errors of [`Engine::feed_or_new`], [`Engine::claim_feed`] and [`Engine::write_rows`].
pub fn send(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: &FeedName,
    messages: &[NewMessage],
    terms: &WriteTerms<'_>,
) -> Result<Sent> {
    for _ in 0..COMMITS_MAX {
        let BegunSend { sent, commit } = begin(engine, table, feed, messages, terms)?;
        let Some(commit) = commit else {
            return Ok(sent);
        };
        if let Some(position) = commit.wait(engine)? {
            return Ok(sent.at(position));
        }
    }
    let contended = WideError::Contended {
        attempts: COMMITS_MAX,
    };
    Err(EngineError::from(contended).into())
}

/// Begins one attempt of [`send`], without waiting for the commit of the messages. If the commit returns `None`, the
/// attempt must be repeated.
///
/// # Errors
///
/// The errors of [`send`], except those of the commit.
pub fn begin(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: &FeedName,
    messages: &[NewMessage],
    terms: &WriteTerms<'_>,
) -> Result<BegunSend> {
    if messages.is_empty() {
        return Err(RowsError::Invalid(
            "messages is empty; send at least one".to_owned(),
        ));
    }
    if messages.len() > MESSAGES_MAX {
        return Err(RowsError::over(
            "number of messages",
            MESSAGES_MAX as u64,
            messages.len() as u64,
        ));
    }
    let now = engine.now();
    let drafts = messages.iter().enumerate();
    let drafts = drafts.map(|(number, message)| draft(engine, table, message, number, now, terms));
    let drafts = drafts.collect::<Result<Vec<Draft<'_>>>>()?;
    let ids = || drafts.iter().filter_map(|draft| draft.id);
    let mut feed_id = engine.feed_or_new(table, feed)?;
    // Readers of all tables wait for the end of a claim, so it begins after the scan of the feed.
    check_numbers(
        engine,
        table,
        feed_id,
        &numbers_of(engine, table, feed_id, &drafts)?,
    )?;
    for _ in 0..ATTEMPTS_MAX {
        let claim = engine.claim_feed(table, feed_id, ids())?;
        match engine.feed(table, &FeedName::Id(feed_id)) {
            Ok(_) => {
                let (sent, commit) = begin_write(engine, table, feed_id, &drafts, terms)?;
                let commit = commit.map(|commit| SendCommit { commit, claim });
                return Ok(BegunSend { sent, commit });
            }
            // The feed was deleted before the claim.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        feed_id = engine.feed_or_new(table, feed)?;
    }
    Err(EngineError::FeedDeleting(feed_id.to_string()).into())
}

/// Returns true if [`begin`] reads no stored data and does not wait when it gets these messages. It then takes only
/// the time to parse and encode them. If another request deletes the feed meanwhile, [`begin`] waits nevertheless.
pub fn reads_nothing(engine: &Engine, table: &WideTable, feed: &FeedName, messages: &[NewMessage]) -> bool {
    // A message id is looked up in its index, and a given sequence number among the messages.
    let is_plain = |message: &NewMessage| message.id.is_none() && message.sequence.is_none();
    if !messages.iter().all(is_plain) {
        return false;
    }
    let Some(feed) = engine.cached_feed(table, feed) else {
        return false;
    };
    cached_members(engine, table, feed)
        // The copies of a message can be large.
        .filter(|members| *members == 0 || !has_copies(table))
        .is_some_and(|members| messages.len() * (1 + members) <= ENTRIES_AT_ONCE_MAX)
}

/// Parses a message.
fn draft<'m>(
    engine: &Engine,
    table: &WideTable,
    message: &'m NewMessage,
    number: usize,
    now: Timestamp,
    terms: &WriteTerms<'_>,
) -> Result<Draft<'m>> {
    let path = format_args!("messages/{number}");
    let mut values = columns_of(table, &message.columns, now, path)?;
    let sender = message.sender.as_deref().or(terms.principal);
    for (what, column, text) in [
        ("the sender", SENDER, sender),
        ("the id", MESSAGE_ID, message.id.as_deref()),
    ] {
        if let Some(text) = text {
            check_length(what, text, path)?;
            values.push(reserved(table, column, CellValue::String(text.to_owned().into())));
        }
    }
    // The sender sees the message too, unless `except` has the sender.
    let to = message.to.as_deref().map(|to| match sender {
        Some(sender) if !to.iter().any(|name| name == sender) => {
            Cow::Owned(to.iter().cloned().chain([sender.to_owned()]).collect())
        }
        _ => Cow::Borrowed(to),
    });
    if let Some(to) = message.to.as_ref().filter(|to| to.len() > NAMES_MAX) {
        return Err(over_names(path, "to", to.len()));
    }
    for (what, column, names) in [
        ("to", TO, to.as_deref()),
        (
            "except",
            EXCEPT,
            Some(&*message.except).filter(|names| !names.is_empty()),
        ),
        (
            "mentions",
            MENTIONS,
            Some(&*message.mentions).filter(|names| !names.is_empty()),
        ),
    ] {
        let Some(names) = names else { continue };
        if column != TO && names.len() > NAMES_MAX {
            return Err(over_names(path, what, names.len()));
        }
        names.iter().try_for_each(|name| check_length(what, name, path))?;
        let json = serde_json::to_string(names).unwrap_or_default();
        values.push(reserved(table, column, CellValue::Json(json.into())));
    }
    let sequence = message.sequence.map(|sequence| sequence.0);
    check_sequence(table, sequence, path)?;
    let given = sequence.map(|sequence| {
        let time = Timestamp::from_nanos_clamped(engine.next_version());
        values.push(reserved(table, TIME, CellValue::Timestamp(time)));
        (sequence, time)
    });
    Ok(Draft {
        values,
        to,
        except: &message.except,
        id: message.id.as_deref(),
        given,
    })
}

/// Returns the error for a list of a message with too many names.
fn over_names(path: impl Display, what: &str, count: usize) -> RowsError {
    RowsError::over(
        &format!("{path}: number of names in {what}"),
        NAMES_MAX as u64,
        count as u64,
    )
}

/// Checks that a sequence number is given if the table has manual sequence numbers, and not given otherwise.
pub(crate) fn check_sequence(table: &WideTable, sequence: Option<i64>, path: impl Display) -> Result<()> {
    let name = table.table().name();
    match (table.feed().sequence, sequence) {
        (SequenceSource::Generated, Some(_)) => Err(RowsError::Invalid(format!(
            "{path}: sequence is given, and the server assigns the sequence numbers of table {name}; omit it"
        ))),
        (SequenceSource::Manual, None) => Err(RowsError::Invalid(format!(
            "{path}: table {name} has manual sequence numbers; give a sequence"
        ))),
        _ => Ok(()),
    }
}

/// Returns the stored key of a message, and the length of the part that names its feed.
pub(crate) fn stored_key(
    table: &WideTable,
    feed: TimelineId,
    sequence: i64,
) -> std::result::Result<(Bytes, usize), EngineError> {
    table.encode_key(&[
        KeyValue::String(feed.to_string().into()),
        KeyValue::Signed(sequence),
    ])
}

/// Returns the length of the part of a stored key that names its partition.
fn partition_of(table: &WideTable, key: &[u8]) -> std::result::Result<usize, EngineError> {
    let partition = table.layout().partition_len(key);
    partition.map_err(|error| EngineError::Invalid(error.to_string()))
}

/// Deletes rows of a table, each by its stored key.
pub(crate) fn delete_rows(engine: &Engine, table: &Arc<WideTable>, keys: &[Bytes]) -> Result<()> {
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let deletes = keys.iter().map(|key| deletion(table, key, next_id()));
        deletes.collect()
    };
    engine.write_rows(table, &make, &RowWriteOptions::default())?;
    Ok(())
}

/// Returns the deletion of a row by its stored key.
pub(crate) fn deletion(
    table: &WideTable,
    key: &Bytes,
    time: i64,
) -> std::result::Result<RowWrite<'static>, EngineError> {
    Ok(RowWrite {
        key: key.clone(),
        partition: partition_of(table, key)?,
        time,
        action: Action::Delete,
        condition: None,
        image: Image::None,
    })
}

/// Returns a write of a new row of a feed. With a given sequence number, it requires that the feed has no such row.
pub(crate) fn new_row<'v>(
    table: &WideTable,
    feed: TimelineId,
    given: Option<i64>,
    values: &'v Values,
    next_id: &mut dyn FnMut() -> i64,
) -> std::result::Result<RowWrite<'v>, EngineError> {
    let time = next_id();
    let (key, partition) = stored_key(table, feed, given.unwrap_or(time))?;
    let columns = to_columns(values.iter(), time);
    Ok(RowWrite {
        key,
        partition,
        time,
        action: match given {
            None => Action::Create(columns),
            Some(_) => Action::Put(columns),
        },
        condition: given.map(|_| {
            let is_new = |row: Option<&Mutation<'_>>| row.is_none();
            Box::new(is_new) as RowCondition<'v>
        }),
        image: Image::None,
    })
}

/// Begins the write of the messages whose ids the feed does not have yet. The commit is `None` if the feed has all of
/// the ids.
fn begin_write(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    drafts: &[Draft<'_>],
    terms: &WriteTerms<'_>,
) -> Result<(Sent, Option<RowCommit>)> {
    let known = drafts.iter().map(|draft| match draft.id {
        Some(id) => sent_before(engine, table, feed, id),
        None => Ok(None),
    });
    let mut messages = known.collect::<Result<Vec<Option<SentMessage>>>>()?;
    let new: Vec<(usize, &Draft<'_>)> = drafts
        .iter()
        .enumerate()
        .filter(|(number, _)| messages[*number].is_none())
        .collect();
    let mut commit = None;
    if !new.is_empty() {
        let audience = audience(engine, table, feed)?;
        let readers: Vec<Vec<&Recipient>> = new
            .iter()
            .map(|(_, draft)| match audience.members.is_empty() {
                true => Vec::new(),
                false => ReaderLists::new(draft.to.as_deref(), draft.except).among(&audience),
            })
            .collect();
        let entries = new.len() + readers.iter().map(Vec::len).sum::<usize>();
        if entries > ENTRIES_MAX {
            return Err(RowsError::over(
                "number of messages and inbox entries of a request",
                ENTRIES_MAX as u64,
                entries as u64,
            ));
        }
        let source = match entries > new.len() {
            true => inbox_entry(table, feed),
            false => Values::new(),
        };
        let mut room = CopyRoom::beside(entries);
        let copied = new.iter().zip(&readers);
        let copied: Vec<Option<Bytes>> = copied
            .map(|((_, draft), readers)| room.take(table, &draft.values, readers.len()))
            .collect();
        let make = |next_id: &mut dyn FnMut() -> i64| {
            let mut rows = Vec::with_capacity(entries);
            for (_, draft) in &new {
                let sequence = draft.given.map(|(sequence, _)| sequence);
                rows.push(new_row(table, feed, sequence, &draft.values, next_id)?);
            }
            for (number, readers) in readers.iter().enumerate() {
                let message = rows[number].time;
                let copy = copied[number].as_ref();
                push_entries(table, readers, message, (&source, copy), &mut rows)?;
            }
            Ok(rows)
        };
        let options = RowWriteOptions {
            durability: terms.durability,
            // The messages and their inbox entries are written together or not at all.
            is_whole: true,
            ..RowWriteOptions::default()
        };
        let begun = engine.begin_rows(table, &make, &options)?;
        check_written(table, &begun.outcomes, |row| match new.get(row) {
            Some((number, _)) => format!("messages/{number}"),
            None => "an inbox entry".to_owned(),
        })?;
        commit = begun.commit;
        if let (true, [first, ..]) = (audience.is_fanned_out, &begun.writes[..new.len()]) {
            let last = begun.writes[new.len() - 1].time;
            engine.add_fan_out(table, feed, (first.time, last));
        }
        for ((number, draft), write) in new.iter().zip(&begun.writes) {
            let assigned = (write.time, Timestamp::from_nanos_clamped(write.time));
            let (sequence, time) = draft.given.unwrap_or(assigned);
            messages[*number] = Some(SentMessage {
                sequence,
                time: Some(time),
                is_repeated: false,
            });
        }
    }
    let sent = Sent {
        feed,
        messages: messages.into_iter().flatten().collect(),
        position: None,
    };
    Ok((sent, commit))
}

/// Lists of a message that select the members whose inboxes show it.
pub(crate) struct ReaderLists<'m> {
    to: Option<HashSet<&'m str>>,
    except: HashSet<&'m str>,
}

impl<'m> ReaderLists<'m> {
    /// Creates the lists of a message. The message is shown to the members in `to`, or to all if `to` is `None`, but
    /// not to those in `except`.
    pub(crate) fn new(to: Option<&'m [String]>, except: &'m [String]) -> Self {
        Self {
            to: to.map(|to| to.iter().map(String::as_str).collect()),
            except: except.iter().map(String::as_str).collect(),
        }
    }

    pub(crate) fn has(&self, user: &str) -> bool {
        self.to.as_ref().is_none_or(|to| to.contains(user)) && !self.except.contains(user)
    }

    /// Returns the members of an audience whose inboxes show the message.
    pub(crate) fn among<'a>(&self, audience: &'a Audience) -> Vec<&'a Recipient> {
        let members = audience.members.iter();
        members.filter(|member| self.has(&member.user)).collect()
    }
}

/// Returns the columns of the inbox entries of a feed.
pub(crate) fn inbox_entry(table: &WideTable, feed: TimelineId) -> Values {
    vec![reserved(
        table,
        SOURCE,
        CellValue::String(feed.to_string().into()),
    )]
}

/// Appends the writes of the inbox entries of a message, with a copy of the message or without one.
pub(crate) fn push_entries<'v>(
    table: &WideTable,
    recipients: &[&Recipient],
    sequence: i64,
    (entry, copy): (&'v Values, Option<&Bytes>),
    rows: &mut Vec<RowWrite<'v>>,
) -> std::result::Result<(), EngineError> {
    for recipient in recipients {
        let (key, partition) = stored_key(table, recipient.inbox, sequence)?;
        rows.push(RowWrite {
            key,
            partition,
            time: sequence,
            action: Action::Create(entry_columns(table, entry, copy, sequence)),
            condition: None,
            image: Image::None,
        });
    }
    Ok(())
}

/// Returns a write that gives an inbox entry a new time, from which its time-to-live counts. A copy in the entry stays.
pub(crate) fn renewed_entry<'v>(
    table: &WideTable,
    inbox: TimelineId,
    sequence: i64,
    entry: &'v Values,
    time: i64,
) -> std::result::Result<RowWrite<'v>, EngineError> {
    let (key, partition) = stored_key(table, inbox, sequence)?;
    Ok(RowWrite {
        key,
        partition,
        time,
        action: match has_copies(table) {
            true => {
                let columns = entry.iter();
                let columns = columns.map(|(name, value)| Column {
                    clears: true,
                    ..Column::with(name.clone(), time, value.clone())
                });
                Action::Update(Update {
                    columns: columns.collect(),
                    ..Update::default()
                })
            }
            false => Action::Put(to_columns(entry.iter(), time)),
        },
        condition: None,
        image: Image::None,
    })
}

/// Returns the columns of an inbox entry with a copy of its message, or without one.
pub(crate) fn entry_columns<'v>(
    table: &WideTable,
    entry: &'v Values,
    copy: Option<&Bytes>,
    time: i64,
) -> Vec<Column<'v>> {
    let mut columns = to_columns(entry.iter(), time);
    if let Some(copy) = copy {
        let value = CellValue::Binary(copy.to_vec().into());
        columns.push(Column::with(table.column(COPY).0, time, value));
        columns.sort_by(|one, other| one.name.cmp(&other.name));
    }
    columns
}

/// Returns the copy of a message with these columns, in the form of stored rows. Its time is 0: a reader of a copy uses
/// only values, and so the copy can be encoded before the write has a time.
pub(crate) fn copy_of(values: &Values) -> Bytes {
    let message = Mutation {
        effect: Effect::Replace,
        time: 0,
        columns: to_columns(values.iter(), 0),
    };
    message.encoded()
}

/// Bytes of a request that remain for copies of messages in inbox entries.
pub(crate) struct CopyRoom(usize);

impl CopyRoom {
    /// Returns the bytes that remain for copies in a write of `rows` rows. Columns of messages are not deducted yet.
    pub(crate) const fn beside(rows: usize) -> Self {
        Self(COPIED_WRITE_BYTES.saturating_sub(rows * ROW_BYTES))
    }

    /// Takes the bytes of a message, and the bytes of its copies if they fit. Returns the copy; `None` if the entries
    /// of the message must refer to it.
    pub(crate) fn take(&mut self, table: &WideTable, values: &Values, copies: usize) -> Option<Bytes> {
        if !has_copies(table) {
            return None;
        }
        let copy = copy_of(values);
        self.0 = self.0.saturating_sub(copy.len());
        let rest = self.0.checked_sub(copy.len().saturating_mul(copies))?;
        (copies > 0 && copy.len() <= COPY_BYTES_MAX).then(|| {
            self.0 = rest;
            copy
        })
    }
}

/// Returns an error if a row of an atomic write was not written. `path` names a row, by its number.
pub(crate) fn check_written(
    table: &WideTable,
    outcomes: &[RowOutcome],
    path: impl Fn(usize) -> String,
) -> Result<()> {
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            RowOutcome::Written(_) | RowOutcome::NotApplied => {}
            RowOutcome::ConditionFailed(_) => {
                return Err(number_in_use(&path(number)));
            }
            RowOutcome::Refused(refused) => {
                let reason = refused_text(table, refused);
                return Err(RowsError::Invalid(format!("{}: {reason}", path(number))));
            }
        }
    }
    Ok(())
}

/// Returns the error for a given sequence number that the feed has already. `path` names the row.
pub(crate) fn number_in_use(path: &str) -> RowsError {
    RowsError::ConditionFailed(format!(
        "{path}: the feed has a message with this sequence number; nothing was written"
    ))
}

/// Returns the given sequence numbers of the messages that the feed does not have yet, each with the message id and the name
/// of the message in errors.
fn numbers_of<'d>(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    drafts: &'d [Draft<'_>],
) -> Result<GivenNumbers<'d>> {
    let mut given = GivenNumbers::new();
    for (number, draft) in drafts.iter().enumerate() {
        let Some((sequence, _)) = draft.given else {
            continue;
        };
        // A repeated message does not get the number.
        let is_repeated = match draft.id {
            Some(id) => sent_before(engine, table, feed, id)?.is_some(),
            None => false,
        };
        if !is_repeated {
            given.insert(sequence, (draft.id, format!("messages/{number}")));
        }
    }
    Ok(given)
}

/// Checks that given sequence numbers are neither used nor were used by a message that was deleted: a reader from the
/// start would apply the event of the deletion to the new message. A number is free for a message with the same id, which
/// another request has sent meanwhile.
///
/// Reads the feed from the lowest number on, so a number above all others costs one look-up. An event with a lower number
/// than its message is read before the new message, and so does not remove it.
pub(crate) fn check_numbers(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    given: &GivenNumbers<'_>,
) -> Result<()> {
    let Some((first, _)) = given.first_key_value() else {
        return Ok(());
    };
    let ranges = engine.messages_of(table, feed, (Bound::Included(*first), Bound::Unbounded))?;
    let mut scan = begin_scan(engine, table, ranges, Direction::Ascending, given.len());
    while let Some(found) = scan.next_row()? {
        let sequence = sequence_of(table, &found.row.key)?;
        let row = found.row.columns().map_err(|reason| damaged(table, reason))?;
        let is_deletion =
            matches!(newest(table, &row, EVENT), Some(CellValue::String(kind)) if **kind == *DELETE);
        let deleted = match newest(table, &row, TARGET) {
            Some(CellValue::I64(target)) if is_deletion && *target < sequence => Some(*target),
            _ => None,
        };
        let is_other = |id: Option<&str>| {
            id.is_none_or(
                |id| !matches!(newest(table, &row, MESSAGE_ID), Some(CellValue::String(known)) if **known == *id),
            )
        };
        if let Some((id, path)) = given.get(&sequence)
            && is_other(*id)
        {
            return Err(number_in_use(path));
        }
        if let Some((id, path)) = deleted.and_then(|deleted| given.get(&deleted))
            && is_other(*id)
        {
            return Err(RowsError::ConditionFailed(format!(
                "{path}: the feed had a message with this sequence number, and readers would remove the new one like the \
                 deleted one; give another number; nothing was written"
            )));
        }
    }
    Ok(())
}

/// Returns the message with an id in a feed; `None` if no message has it. A deleted message is found by its event.
fn sent_before(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    id: &str,
) -> Result<Option<SentMessage>> {
    let prefix = [
        KeyValue::String(feed.to_string().into()),
        KeyValue::String(id.to_owned().into()),
    ];
    let of_id = (&prefix[..], Bound::Unbounded);
    let mut scan = begin_index_scan(engine, table, (ID_INDEX, true), of_id, 1)?;
    let Some(found) = scan.next_row()? else {
        return Ok(None);
    };
    let sequence = sequence_of(table, &found.row.key)?;
    let row = found.row.columns().map_err(|reason| damaged(table, reason))?;
    let sequence = match newest(table, &row, TARGET) {
        Some(CellValue::I64(target)) => *target,
        _ => sequence,
    };
    let has_time = table.feed().sequence == SequenceSource::Generated;
    Ok(Some(SentMessage {
        sequence,
        time: has_time.then(|| time_of(table, sequence, &row)),
        is_repeated: true,
    }))
}
