//! Inboxes and conversations of a user.
//!
//! An inbox shows the messages of all feeds of which the user is a member, in the order of their sequence numbers,
//! which are unique within the table. The entries of the inbox refer to messages, or hold copies of them. Pulled
//! messages are read from their feeds, and merged with the entries.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tideline_engine::backend::Direction;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{COPY, EDIT, EVENT, EXCEPT, MENTIONS, RECALLED, SENDER, SOURCE, TO};
use tideline_engine::rows::{CellValue, Mutation, RowScan, StoredRow};
use tideline_engine::runtime::Reservation;
use tideline_engine::{Engine, EngineError, ErrorKind, Timeline, WideTable};
use tideline_openapi::feed::MessageOrder;
use tideline_rows::value::{write_number, write_text};
use tideline_rows::{Result, RowsError, token};

use crate::change::missing;
use crate::delivery::audience;
use crate::members::{Membership, UserRows, known_inbox, user_rows};
use crate::message::{
    MessageEncoder, begin_member, damaged, key_of, names_in, newest, number_of_message, sequence_of,
};
use crate::read::{
    COUNT_SCANNED_MAX, Count, PAGE_BYTES_MAX, PAGE_SCANNED_MAX, Page, ReadTerms, begin_scan, encoded,
};
use crate::send::stored_key;
use crate::viewer::Viewer;

/// Default number of conversations of a list.
pub const CONVERSATIONS: usize = 50;
/// Maximum number of conversations of a list.
pub const CONVERSATIONS_MAX: usize = 1_000;
/// Expected size of a conversation with a short message, in bytes of JSON.
pub const CONVERSATION_BYTES: usize = 512;

/// User whose inbox is read.
struct Reader {
    viewer: Viewer,
    /// Lowest visible sequence number of the feeds of which the user is a member. Other entries are left over in parts
    /// that were closed for writes when the user left.
    visible_from: HashMap<TimelineId, i64>,
    /// Lowest sequence number of the current copies in entries, by feed.
    copied_from: HashMap<TimelineId, i64>,
}

/// Source of an inbox: its entries, or a pulled range of a feed.
struct Source<'e> {
    scan: RowScan<'e>,
    next: Option<(i64, StoredRow)>,
}

/// Reads a page of the inbox of a user. The times of `terms` bound the sequence numbers.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, [`RowsError::Damaged`] for stored data that cannot be read,
/// and the errors of [`Engine::users_table`].
pub fn page(
    engine: &Engine,
    table: &Arc<WideTable>,
    (user, terms): (&str, &ReadTerms),
    encoder: &MessageEncoder,
    limit: usize,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Page> {
    let (reader, sources) = sources(engine, table, (user, terms), limit, is_stopped)?;
    let mut rows = InOrder::new(table, sources, terms.order)?;
    let mut page = Page {
        next: match terms.order {
            MessageOrder::Ascending => terms.after,
            MessageOrder::Descending => terms.before,
        },
        ..Page::default()
    };
    let (mut bytes, mut scanned) = (0, 0);
    // A message that was pushed while its feed was already pulled is read twice, with the same sequence number.
    let mut last = None;
    while let Some((sequence, row)) = rows.next_row(table)? {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        if scanned >= PAGE_SCANNED_MAX {
            page.has_more = true;
            break;
        }
        let is_full = page.messages.len() >= limit || bytes >= PAGE_BYTES_MAX;
        scanned += 1;
        if last == Some(sequence) {
            continue;
        }
        if let Some(message) = shown(engine, table, row, (&reader, terms))? {
            // A full page continues over messages that the user does not see.
            if is_full {
                page.has_more = true;
                break;
            }
            let columns = message.columns().map_err(|reason| damaged(table, reason))?;
            bytes += page.messages.push(table, encoder, &message.key, &columns)?;
            last = Some(sequence);
        }
        page.next = Some(sequence);
    }
    Ok(page)
}

/// Counts the messages that the inbox of a user shows. Reads at most [`COUNT_SCANNED_MAX`] entries, messages and events.
///
/// # Errors
///
/// The errors of [`page`].
pub fn count(
    engine: &Engine,
    table: &Arc<WideTable>,
    (user, terms): (&str, &ReadTerms),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Count> {
    let terms = &ReadTerms {
        has_events: false,
        order: MessageOrder::Ascending,
        ..terms.clone()
    };
    let (reader, sources) = sources(engine, table, (user, terms), COUNT_ROWS, is_stopped)?;
    let mut rows = InOrder::new(table, sources, terms.order)?;
    let (mut messages, mut scanned) = (0, 0);
    let (mut last, mut last_shown) = (None, None);
    while let Some((sequence, row)) = rows.next_row(table)? {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        // A page after a message does not have its duplicate, so the count may end between both.
        if scanned >= COUNT_SCANNED_MAX {
            return Ok(Count { messages, next: last });
        }
        scanned += 1;
        last = Some(sequence);
        if last_shown != last && shown(engine, table, row, (&reader, terms))?.is_some() {
            messages += 1;
            last_shown = last;
        }
    }
    Ok(Count { messages, next: None })
}

/// Returns the message or event that the inbox of a user shows under a sequence number, as JSON.
///
/// # Errors
///
/// [`EngineError::NoSuchMessage`] if the inbox does not show one, and the errors of [`page`].
pub fn message(
    engine: &Engine,
    table: &Arc<WideTable>,
    (user, sequence): (&str, i64),
    encoder: &MessageEncoder,
    is_stopped: &dyn Fn() -> bool,
) -> Result<String> {
    let terms = ReadTerms {
        after: sequence.checked_sub(1),
        before: sequence.checked_add(1),
        has_events: true,
        ..ReadTerms::default()
    };
    let found = page(engine, table, (user, &terms), encoder, 1, is_stopped)?.messages;
    match found.is_empty() {
        true => Err(missing(table, sequence)),
        false => Ok(String::from_utf8_lossy(found.items()).into_owned()),
    }
}

/// Returns true if a read of the inbox of a user reaches parts in the cold tier or in the archive. The sequence number
/// determines the part of a row, so pulled messages are in the same parts as inbox entries would be.
///
/// # Errors
///
/// The errors of [`ReadTerms::reaches_cold`].
pub fn reaches_cold(engine: &Engine, table: &WideTable, user: &str, terms: &ReadTerms) -> Result<bool> {
    match known_inbox(engine, table, user)? {
        Some(inbox) => terms.reaches_cold(engine, table, inbox),
        None => Ok(false),
    }
}

/// Returns the feeds whose new messages the inbox of a user shows: the inbox itself, and the feeds that are pulled at
/// present.
///
/// # Errors
///
/// The errors of [`Engine::users_table`], and those of the scan.
pub fn sources_now(engine: &Engine, table: &WideTable, user: &str) -> Result<Vec<TimelineId>> {
    let mut feeds = Vec::new();
    for member in user_rows(engine, table, user)?.memberships {
        if audience(engine, table, member.feed)?.is_pulled() {
            feeds.push(member.feed);
        }
    }
    // Looked up last, because the read of an audience creates an inbox again that was deleted.
    feeds.extend(known_inbox(engine, table, user)?);
    Ok(feeds)
}

/// Begins the scans of an inbox.
fn sources<'e>(
    engine: &'e Engine,
    table: &Arc<WideTable>,
    (user, terms): (&str, &ReadTerms),
    limit: usize,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(Reader, Vec<Source<'e>>)> {
    let direction = terms.direction();
    let scan = |ranges, wanted| Source {
        scan: begin_scan(engine, table, ranges, direction, wanted).with_memory(),
        next: None,
    };
    // A feed that switches to pulled messages during this read has a pulled range above this version. The read ends at
    // the version, so it does not need that range.
    let version = engine.next_version();
    let terms = &terms.until(version);
    let UserRows { memberships, blocked } = user_rows(engine, table, user)?;
    let (mut pulled, mut copied_from) = (Vec::new(), HashMap::new());
    let visible = memberships
        .iter()
        .map(|member| (member.feed, member.visible_from));
    let visible_from = visible.collect();
    for member in memberships {
        let audience = audience(engine, table, member.feed)?;
        // An entry from before the membership can be left over from an earlier membership. Its copy does not include
        // later changes of the message.
        let from = audience.copied_from.map(|from| from.max(member.joined));
        copied_from.extend(from.map(|from| (member.feed, from)));
        if member.is_filling {
            // The entries of all earlier messages may be missing.
            pulled.push((member.feed, member.visible_from, None));
            continue;
        }
        for (from, to) in &audience.pulled {
            pulled.push((member.feed, (*from).max(member.visible_from), *to));
        }
    }
    // The sources are read one after the other. Without this wait, a message could be written to the first source after
    // that source was read, below the sequence number of a message that is then read from the second source. The next
    // page would skip it.
    if !pulled.is_empty() && !engine.wait_for_messages(version, is_stopped) {
        return Err(RowsError::Cancelled);
    }
    let mut sources = Vec::new();
    if let Some(inbox) = known_inbox(engine, table, user)? {
        sources.push(scan(terms.ranges(engine, table, inbox)?, limit));
    }
    for (feed, from, to) in pulled {
        if let Some(bounds) = terms.within(from, to) {
            let ranges = engine.messages_of(table, feed, bounds)?;
            sources.push(scan(ranges, limit.min(PULLED_ROWS)));
        }
    }
    let reader = Reader {
        viewer: Viewer::with_blocked(user, blocked),
        visible_from,
        copied_from,
    };
    Ok((reader, sources))
}

/// Number of messages that an inbox reads at once from a pulled feed.
const PULLED_ROWS: usize = 8;
/// Number of entries that a count of an inbox reads at once.
const COUNT_ROWS: usize = 1_000;

/// Rows of the sources of an inbox in the order of their sequence numbers.
struct InOrder<'e> {
    sources: Vec<Source<'e>>,
    /// Sequence number of the next row of each source that has one, and the index of the source.
    heads: BTreeSet<(i64, usize)>,
    order: MessageOrder,
}

impl<'e> InOrder<'e> {
    fn new(table: &WideTable, mut sources: Vec<Source<'e>>, order: MessageOrder) -> Result<Self> {
        let mut heads = BTreeSet::new();
        for (number, source) in sources.iter_mut().enumerate() {
            heads.extend(source.head(table)?.map(|sequence| (sequence, number)));
        }
        Ok(Self {
            sources,
            heads,
            order,
        })
    }

    /// Returns the next row with its sequence number; `None` at the end.
    fn next_row(&mut self, table: &WideTable) -> Result<Option<(i64, StoredRow)>> {
        let first = match self.order {
            MessageOrder::Ascending => self.heads.pop_first(),
            MessageOrder::Descending => self.heads.pop_last(),
        };
        let Some((_, number)) = first else {
            return Ok(None);
        };
        let source = &mut self.sources[number];
        let row = source.next.take();
        let head = source.head(table)?;
        self.heads.extend(head.map(|sequence| (sequence, number)));
        Ok(row)
    }
}

impl Source<'_> {
    /// Returns the sequence number of the next row.
    fn head(&mut self, table: &WideTable) -> Result<Option<i64>> {
        if self.next.is_none()
            && let Some(found) = self.scan.next_row()?
        {
            let sequence = sequence_of(table, &found.row.key)?;
            self.next = Some((sequence, found.row));
        }
        Ok(self.next.as_ref().map(|(sequence, _)| *sequence))
    }
}

/// Returns the message of a row of an inbox; `None` if the inbox does not show it.
fn shown(
    engine: &Engine,
    table: &WideTable,
    row: StoredRow,
    (reader, terms): (&Reader, &ReadTerms),
) -> Result<Option<StoredRow>> {
    let message = {
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        match newest(table, &columns, SOURCE) {
            Some(CellValue::String(source)) => {
                let source = source.parse();
                let source = source.map_err(|_| damaged(table, "an inbox entry holds no feed id"))?;
                let sequence = sequence_of(table, &row.key)?;
                let visible_from = reader.visible_from.get(&source);
                if visible_from.is_none_or(|from| sequence < *from) {
                    return Ok(None);
                }
                let (key, _) = stored_key(table, source, sequence)?;
                let is_current = reader
                    .copied_from
                    .get(&source)
                    .is_some_and(|from| sequence >= *from);
                let copy = match newest(table, &columns, COPY).filter(|_| is_current) {
                    Some(CellValue::Binary(copy)) => {
                        let copy = StoredRow::with_columns(key.clone(), Bytes::copy_from_slice(copy));
                        // Earlier builds have copied edits. A recall removes their values only from the feed.
                        Some(copy).filter(|copy| !is_edit(table, copy))
                    }
                    _ => None,
                };
                match copy {
                    Some(copy) => Some(copy),
                    None => match engine.row(table, &key)? {
                        Some(message) => Some(message),
                        // The message was deleted, or has expired.
                        None => return Ok(None),
                    },
                }
            }
            _ => None,
        }
    };
    let row = message.unwrap_or(row);
    let is_shown = {
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        let is_event = newest(table, &columns, EVENT).is_some();
        (!is_event || terms.has_events && is_visible(table, &row, (reader, &columns))?)
            && reader.viewer.sees(table, &columns)
    };
    Ok(is_shown.then_some(row))
}

/// Returns true if the user sees the message of an event in the inbox. Entries of events of earlier messages exist if an
/// earlier build has written them, and a pulled feed has the events themselves.
fn is_visible(
    table: &WideTable,
    event: &StoredRow,
    (reader, columns): (&Reader, &Mutation<'_>),
) -> Result<bool> {
    let (feed, sequence) = key_of(table, &event.key)?;
    let visible_from = reader.visible_from.get(&feed);
    Ok(visible_from.is_none_or(|from| number_of_message(table, columns, sequence) >= *from))
}

/// Returns true for the event of an edit, and for a row that cannot be read.
fn is_edit(table: &WideTable, row: &StoredRow) -> bool {
    match row.columns() {
        Ok(columns) => {
            matches!(newest(table, &columns, EVENT), Some(CellValue::String(kind)) if **kind == *EDIT)
        }
        Err(_) => true,
    }
}

/// Returns true if the lists of a message allow that a user sees it in the inbox.
pub(crate) fn is_for(table: &WideTable, message: &Mutation<'_>, user: &str) -> bool {
    let has = |names: &Vec<String>| names.iter().any(|name| name == user);
    names_in(table, message, TO).is_none_or(|to| has(&to))
        && !names_in(table, message, EXCEPT).is_some_and(|except| has(&except))
}

/// Conversation of a user.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The membership.
    pub member: Membership,
    /// The feed.
    pub feed: Timeline,
    /// Newest message as JSON; `None` without messages.
    pub last: Option<String>,
    /// Unread messages of other senders, without recalled ones.
    pub unread: u64,
    /// Number of unread messages that mention the user.
    pub mentions: u64,
}

impl Conversation {
    /// Appends the conversation in the form of [`Conversation`](tideline_openapi::feed::Conversation).
    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"feed\":\"");
        out.extend_from_slice(self.member.feed.to_string().as_bytes());
        out.push(b'"');
        begin_member("type", out);
        write_text(&self.feed.measurement, out);
        begin_member("tags", out);
        out.push(b'{');
        for (number, (name, value)) in self.feed.tags.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_text(name, out);
            out.push(b':');
            write_text(value, out);
        }
        out.push(b'}');
        begin_member("last", out);
        out.extend_from_slice(self.last.as_deref().unwrap_or("null").as_bytes());
        begin_member("unread", out);
        write_number(self.unread, out);
        begin_member("mentions", out);
        write_number(self.mentions, out);
        begin_member("cursor", out);
        match self.member.cursor {
            Some(cursor) => {
                out.push(b'"');
                write_number(cursor, out);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        begin_member("muted", out);
        let muted = match self.member.is_muted {
            true => "true",
            false => "false",
        };
        out.extend_from_slice(muted.as_bytes());
        out.push(b'}');
    }
}

/// Conversations of a user.
#[derive(Debug, Default)]
pub struct Conversations {
    /// Conversations, the one with the newest message first.
    pub conversations: Vec<Conversation>,
    /// Token of the next page; `None` at the end.
    pub next: Option<String>,
    /// Number of all conversations.
    pub total: usize,
    /// Number of unread messages of all conversations that are not muted.
    pub unread: u64,
    /// Memory of the newest messages.
    _memory: Option<Reservation>,
}

impl Conversations {
    /// Appends the conversations as JSON, separated by commas, each in the form of
    /// [`Conversation`](tideline_openapi::feed::Conversation).
    pub fn write_conversations(&self, out: &mut Vec<u8>) {
        for (number, conversation) in self.conversations.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            conversation.write_json(out);
        }
    }
}

/// Position of a conversation in a list: the sequence number of its newest message, or the time of the membership
/// without messages, and its feed. The list is in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ConversationPosition {
    activity: i64,
    feed: [u8; 16],
}

impl ConversationPosition {
    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.activity.to_be_bytes());
        bytes[8..].copy_from_slice(&self.feed);
        bytes
    }

    /// Decodes a position; `None` if the number of bytes is wrong.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (activity, feed) = bytes.split_first_chunk()?;
        Some(Self {
            activity: i64::from_be_bytes(*activity),
            feed: feed.try_into().ok()?,
        })
    }
}

/// Returns a page of the conversations of a user, those with the newest messages first, and counts the unread messages
/// of all. `page` is the token of the previous page. Messages that arrive between two pages move their conversations to
/// the begin of the list; no other conversation is missed or returned twice. Reads the newest message of each
/// conversation and all unread messages.
///
/// # Errors
///
/// [`RowsError::Invalid`] for a token that is damaged or belongs to another list, the errors of [`page`], and
/// [`EngineError::Memory`] if the memory of the newest messages cannot be reserved.
pub fn conversations(
    engine: &Engine,
    table: &Arc<WideTable>,
    user: &str,
    (limit, page): (usize, Option<&str>),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Conversations> {
    let mut list = table.table().points().id().0.to_le_bytes().to_vec();
    list.extend_from_slice(user.as_bytes());
    let after = page.map(|token| {
        let position = token::decode(&list, token);
        position
            .and_then(|bytes| ConversationPosition::from_bytes(&bytes))
            .ok_or_else(|| {
                RowsError::Invalid(
                    "page is damaged or belongs to another list; send the `next` of a response for the same user"
                        .to_owned(),
                )
            })
    });
    let after = after.transpose()?;
    let UserRows { memberships, blocked } = user_rows(engine, table, user)?;
    let viewer = Viewer::with_blocked(user, blocked);
    let mut found = Conversations {
        total: memberships.len(),
        ..Conversations::default()
    };
    let mut listed = Vec::with_capacity(memberships.len());
    let mut memory = engine.memory().open("conversations");
    for member in memberships {
        let news = news(engine, table, &member, &viewer, is_stopped)?;
        if !member.is_muted {
            found.unread += news.unread;
        }
        let position = ConversationPosition {
            activity: news
                .last
                .as_ref()
                .map_or(member.joined, |(sequence, _)| *sequence),
            feed: member.feed.0,
        };
        if after.is_some_and(|after| position >= after) {
            continue;
        }
        let bytes = news.last.as_ref().map_or(0, |(_, row)| row.bytes() as u64);
        memory.grow(bytes).map_err(EngineError::from)?;
        listed.push((position, news, member));
    }
    listed.sort_unstable_by_key(|(position, ..)| Reverse(*position));
    let encoder = MessageEncoder::default();
    let mut last: Option<ConversationPosition> = None;
    for (position, news, member) in listed {
        if found.conversations.len() >= limit {
            found.next = last.map(|last| token::encode(&list, &last.to_bytes()));
            break;
        }
        let feed = match engine.described_feed(table, member.feed) {
            Ok(feed) => feed,
            // The feed is being deleted.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let message = news
            .last
            .map(|(_, row)| encoded(table, &encoder, &row))
            .transpose()?;
        let bytes = message.as_ref().map_or(0, |json| json.len() as u64);
        memory.grow(bytes).map_err(EngineError::from)?;
        found.conversations.push(Conversation {
            member,
            feed,
            last: message,
            unread: news.unread,
            mentions: news.mentions,
        });
        last = Some(position);
    }
    found._memory = Some(memory);
    Ok(found)
}

/// Number of messages of a conversation that are read at first. Most conversations have at most one unread message, and
/// the message before it ends the read.
const NEWS_ROWS: usize = 2;

/// Newest message of a conversation, and its unread messages.
#[derive(Debug, Default)]
struct News {
    /// Newest message that the member sees, with its sequence number.
    last: Option<(i64, StoredRow)>,
    /// Number of unread messages.
    unread: u64,
    /// Number of unread messages that mention the user.
    mentions: u64,
}

/// Reads the messages of a feed that a member sees, the newest first, until the newest one is found and all unread ones
/// are counted.
fn news(
    engine: &Engine,
    table: &Arc<WideTable>,
    member: &Membership,
    viewer: &Viewer,
    is_stopped: &dyn Fn() -> bool,
) -> Result<News> {
    let bounds = (Bound::Included(member.visible_from), Bound::Unbounded);
    let ranges = engine.messages_of(table, member.feed, bounds)?;
    let mut scan = begin_scan(engine, table, ranges, Direction::Descending, NEWS_ROWS);
    let mut news = News::default();
    while let Some(found) = scan.next_row()? {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let sequence = sequence_of(table, &found.row.key)?;
        let is_read = member.cursor.is_some_and(|cursor| sequence <= cursor);
        if is_read && news.last.is_some() {
            break;
        }
        let is_shown = {
            let columns = found.row.columns().map_err(|reason| damaged(table, reason))?;
            let is_shown = newest(table, &columns, EVENT).is_none() && viewer.sees(table, &columns);
            let is_own = || matches!(newest(table, &columns, SENDER), Some(CellValue::String(sender)) if *sender == *viewer.user);
            if is_shown && !is_read && newest(table, &columns, RECALLED).is_none() && !is_own() {
                news.unread += 1;
                let mentioned = names_in(table, &columns, MENTIONS).unwrap_or_default();
                news.mentions += u64::from(mentioned.contains(&viewer.user));
            }
            is_shown
        };
        if is_shown && news.last.is_none() {
            news.last = Some((sequence, found.row));
        }
    }
    Ok(news)
}
