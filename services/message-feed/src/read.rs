//! Reads of messages: pages of one feed, of several feeds, and of several feeds in one order; counts.
//!
//! A cursor is a sequence number. A page after a cursor does not change when messages arrive, because new messages have
//! higher numbers.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use tideline_engine::backend::Direction;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::feed::{EVENT, SOURCE};
use tideline_engine::model::{SequenceSource, TimelineId, Timestamp};
use tideline_engine::rows::{ALL_PARTS, Mutation, RowPath, RowScan, StoredRow};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::feed::MessageOrder;
use tideline_rows::selection::RowEncoder as _;
use tideline_rows::{Result, RowsError, token};

use crate::change::missing;
use crate::message::{MessageEncoder, damaged, newest, sequence_of, time_of};
use crate::message_list::MessageList;
use crate::send::stored_key;
use crate::viewer::Viewer;

/// Default number of messages of a page.
pub const PAGE_MESSAGES: usize = 100;
/// Maximum number of messages of a page.
pub const PAGE_MESSAGES_MAX: usize = 1_000;
/// Maximum number of feeds of a request.
pub const FEEDS_MAX: usize = 1_000;
/// Maximum number of messages of a response with several feeds.
pub const RESPONSE_MESSAGES_MAX: usize = 10_000;
/// Total size of the messages of a response, in bytes of JSON, at which the response ends.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of messages and events that are read for a page of a feed.
pub const PAGE_SCANNED_MAX: usize = 100_000;
/// Maximum number of messages and events that are read for one count.
pub const COUNT_SCANNED_MAX: u64 = 1_000_000;
/// Initial capacity for the JSON of a message, in bytes. Most short texts fit.
const MESSAGE_BYTES: usize = 512;
/// Maximum memory that is reserved for the messages of a page after its first message, in bytes.
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Minimum number of messages that a merge reads at once from each feed.
const MERGE_ROWS_MIN: usize = 8;

/// Range and order of the messages of a read.
#[derive(Debug, Clone, Default)]
pub struct ReadTerms {
    /// Only messages after this sequence number.
    pub after: Option<i64>,
    /// Only messages before this sequence number.
    pub before: Option<i64>,
    /// Only messages of this time or later.
    pub from: Option<Timestamp>,
    /// Only messages before this time.
    pub to: Option<Timestamp>,
    /// Order by sequence number.
    pub order: MessageOrder,
    /// True if events are returned too.
    pub has_events: bool,
    /// User who reads a feed, and does not see all of its messages; `None` = all. An inbox has its own user.
    pub viewer: Option<Arc<Viewer>>,
}

impl ReadTerms {
    /// Returns the bounds of the sequence numbers. Generated sequence numbers are times, so they also bound the time.
    fn bounds(&self, source: SequenceSource) -> (Bound<i64>, Bound<i64>) {
        let (from, to) = match source {
            SequenceSource::Generated => (self.from.map(Timestamp::nanos), self.to.map(Timestamp::nanos)),
            SequenceSource::Manual => (None, None),
        };
        // The narrower of two bounds applies. If both starts are equal, the exclusive one is narrower. Both ends are
        // exclusive.
        let low = match (self.after, from) {
            (Some(after), from) if from.is_none_or(|from| from <= after) => Bound::Excluded(after),
            (_, Some(from)) => Bound::Included(from),
            (_, None) => Bound::Unbounded,
        };
        let high = self.before.into_iter().chain(to).min();
        (low, high.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// Returns these terms, limited to the messages before a sequence number.
    pub(crate) fn until(&self, sequence: i64) -> Self {
        Self {
            before: Some(self.before.map_or(sequence, |before| before.min(sequence))),
            ..self.clone()
        }
    }

    /// Returns the terms of a read on behalf of a user; without a user, the terms without a viewer.
    ///
    /// # Errors
    ///
    /// The errors of [`Viewer::new`].
    pub fn seen_by(&self, engine: &Engine, table: &WideTable, user: Option<&str>) -> Result<Self> {
        let viewer = user.map(|user| Viewer::new(engine, table, user)).transpose()?;
        Ok(Self {
            viewer: viewer.map(Arc::new),
            ..self.clone()
        })
    }

    /// Returns the bounds of generated sequence numbers that are also in a range; `None` if there are no such numbers.
    pub(crate) fn within(&self, from: i64, to: Option<i64>) -> Option<(Bound<i64>, Bound<i64>)> {
        let (low, high) = self.bounds(SequenceSource::Generated);
        let (low, first) = match low {
            Bound::Excluded(after) if after >= from => (Bound::Excluded(after), after.checked_add(1)?),
            Bound::Included(low) if low >= from => (Bound::Included(low), low),
            _ => (Bound::Included(from), from),
        };
        let high = match high {
            Bound::Excluded(high) => Some(high),
            _ => None,
        };
        match high.into_iter().chain(to).min() {
            Some(end) if end <= first => None,
            Some(end) => Some((low, Bound::Excluded(end))),
            None => Some((low, Bound::Unbounded)),
        }
    }

    /// Returns the range of the stored keys of a feed.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::messages_of`].
    pub fn ranges(&self, engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<Ranges> {
        Ok(engine.messages_of(table, feed, self.bounds(table.feed().sequence))?)
    }

    /// Returns true if the read reaches parts in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::scan_reaches_cold`].
    pub fn reaches_cold(&self, engine: &Engine, table: &WideTable, feed: TimelineId) -> Result<bool> {
        let ranges = self.ranges(engine, table, feed)?;
        Ok(engine.scan_reaches_cold(table, &RowPath::Primary, &ranges, &ALL_PARTS)?)
    }

    pub(crate) fn direction(&self) -> Direction {
        match self.order {
            MessageOrder::Ascending => Direction::Ascending,
            MessageOrder::Descending => Direction::Descending,
        }
    }

    /// Returns true if the terms include a row. Checks whether the row is an event, whether the viewer sees it, and its
    /// time if the range of keys does not bound the time.
    fn has(&self, table: &WideTable, row: &StoredRow) -> Result<bool> {
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        self.has_columns(table, &row.key, &columns)
    }

    /// Returns the same as [`has`](Self::has), for a row whose columns are decoded already.
    fn has_columns(&self, table: &WideTable, key: &[u8], columns: &Mutation<'_>) -> Result<bool> {
        if !self.has_events && newest(table, columns, EVENT).is_some() {
            return Ok(false);
        }
        let is_hidden = |viewer: &Arc<Viewer>| !viewer.sees(table, columns);
        if self.viewer.as_ref().is_some_and(is_hidden) {
            return Ok(false);
        }
        let needs_time =
            table.feed().sequence == SequenceSource::Manual && (self.from.is_some() || self.to.is_some());
        if !needs_time {
            return Ok(true);
        }
        let time = time_of(table, sequence_of(table, key)?, columns);
        Ok(self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to))
    }
}

/// Page of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Messages in the order of the request.
    pub messages: MessageList,
    /// Cursor after the page; the cursor of the request if nothing was read.
    pub next: Option<i64>,
    /// True if more messages follow.
    pub has_more: bool,
}

/// Room for the messages of a response.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Number of messages that the response can still hold.
    pub messages: usize,
    /// Number of bytes that the response can still hold.
    pub bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            messages: RESPONSE_MESSAGES_MAX,
            bytes: PAGE_BYTES_MAX,
        }
    }
}

/// Reads a page of a feed. `room` is reduced by its messages.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, [`RowsError::Damaged`] for stored data that cannot be read,
/// and the errors of [`RowScan::next_row`].
pub fn page(
    engine: &Engine,
    table: &Arc<WideTable>,
    (feed, terms): (TimelineId, &ReadTerms),
    encoder: &MessageEncoder,
    (limit, room): (usize, &mut Room),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Page> {
    let ranges = terms.ranges(engine, table, feed)?;
    let mut page = Page {
        next: match terms.order {
            MessageOrder::Ascending => terms.after,
            MessageOrder::Descending => terms.before,
        },
        ..Page::default()
    };
    let limit = limit.min(room.messages);
    let mut scan = scan(engine, table, ranges, terms, limit);
    let (mut scanned, mut last) = (0, None);
    while let Some(row) = next(&mut scan, is_stopped)? {
        let is_full = page.messages.len() >= limit || room.bytes == 0;
        {
            let columns = row.columns().map_err(|reason| damaged(table, reason))?;
            let is_included = terms.has_columns(table, &row.key, &columns)?;
            if scanned >= PAGE_SCANNED_MAX || is_full && is_included {
                page.has_more = true;
                break;
            }
            if is_included {
                let bytes = page.messages.push(table, encoder, &row.key, &columns)?;
                if page.messages.len() == 1 {
                    // The messages of a feed often have similar sizes.
                    let expected = bytes.saturating_mul(limit);
                    page.messages.reserve(expected.min(RESERVED_BYTES_MAX));
                }
                room.bytes = room.bytes.saturating_sub(bytes);
                room.messages -= 1;
            }
        }
        scanned += 1;
        last = Some(row.key);
    }
    if let Some(key) = last {
        page.next = Some(sequence_of(table, &key)?);
    }
    Ok(page)
}

/// Returns a message or event as JSON. `user` is the viewer, if there is one.
///
/// # Errors
///
/// [`EngineError::NoSuchMessage`](tideline_engine::EngineError::NoSuchMessage) if the feed has none with this sequence
/// number, or the viewer does not see it, and the errors of [`Viewer::new`] and [`Engine::row`].
pub fn message(
    engine: &Engine,
    table: &WideTable,
    (feed, sequence): (TimelineId, i64),
    user: Option<&str>,
    encoder: &MessageEncoder,
) -> Result<String> {
    let (key, _) = stored_key(table, feed, sequence)?;
    let terms = ReadTerms {
        has_events: true,
        ..ReadTerms::default()
    };
    let terms = terms.seen_by(engine, table, user)?;
    match engine.row(table, &key)? {
        Some(row) if terms.has(table, &row)? => encoded(table, encoder, &row),
        _ => Err(missing(table, sequence)),
    }
}

/// Returns the sequence number of the newest message or event of a feed; `None` without messages.
///
/// # Errors
///
/// The errors of [`page`].
pub fn newest_sequence(engine: &Engine, table: &Arc<WideTable>, feed: TimelineId) -> Result<Option<i64>> {
    let terms = ReadTerms {
        order: MessageOrder::Descending,
        ..ReadTerms::default()
    };
    let ranges = terms.ranges(engine, table, feed)?;
    let newest = scan(engine, table, ranges, &terms, 1).next_row()?;
    newest.map(|found| sequence_of(table, &found.row.key)).transpose()
}

/// Returns a cursor after all messages that were sent before this call. Every later message has a higher sequence
/// number. In a table with manual sequence numbers, the cursor is the newest message of the feed. `feed` is `None` for
/// an inbox.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of [`newest_sequence`].
pub fn cursor_now(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: Option<TimelineId>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<i64> {
    if let (SequenceSource::Manual, Some(feed)) = (table.feed().sequence, feed) {
        return Ok(newest_sequence(engine, table, feed)?.unwrap_or(i64::MIN));
    }
    let version = engine.next_version();
    match engine.wait_for_messages(version, is_stopped) {
        true => Ok(version),
        false => Err(RowsError::Cancelled),
    }
}

/// Number of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Number of messages, without events.
    pub messages: u64,
    /// Sequence number up to which the messages were counted; `None` if all were.
    pub next: Option<i64>,
}

/// Counts the messages of a feed. Reads at most [`COUNT_SCANNED_MAX`] messages and events.
///
/// # Errors
///
/// The errors of [`page`].
pub fn count(
    engine: &Engine,
    table: &Arc<WideTable>,
    feed: TimelineId,
    terms: &ReadTerms,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Count> {
    let terms = ReadTerms {
        has_events: false,
        order: MessageOrder::Ascending,
        ..terms.clone()
    };
    let ranges = terms.ranges(engine, table, feed)?;
    let mut scan = scan(engine, table, ranges, &terms, usize::MAX);
    let (mut messages, mut scanned, mut last) = (0, 0, None);
    while let Some(row) = next(&mut scan, is_stopped)? {
        if scanned >= COUNT_SCANNED_MAX {
            return Ok(Count { messages, next: last });
        }
        scanned += 1;
        messages += u64::from(terms.has(table, &row)?);
        last = Some(sequence_of(table, &row.key)?);
    }
    Ok(Count { messages, next: None })
}

/// Position in the order of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MergePosition {
    time: i64,
    feed: [u8; 16],
    sequence: i64,
}

/// Feed of a merge, with its next message.
struct Source<'e> {
    feed: TimelineId,
    scan: RowScan<'e>,
    next: Option<(MergePosition, StoredRow)>,
}

/// Messages of several feeds in one order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// Messages in the order of the request.
    pub messages: MessageList,
    /// Token of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Reads a page of the messages of several feeds, ordered by time, feed and sequence number. `page` is the token of the
/// previous page. Of an inbox, only the messages that were sent to it directly are returned. In a table with manual
/// sequence numbers, the order within a feed is that of the sequence numbers, and the times are expected to follow it.
///
/// # Errors
///
/// [`RowsError::Invalid`] for a token that is damaged or belongs to another merge, and the errors of [`page`].
pub fn merge(
    engine: &Engine,
    table: &Arc<WideTable>,
    feeds: &[TimelineId],
    terms: &ReadTerms,
    encoder: &MessageEncoder,
    (limit, page): (usize, Option<&str>),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Merged> {
    let merge_terms = merge_terms(table, feeds, terms.order);
    let last = page.map(|token| position_of(&merge_terms, token)).transpose()?;
    let is_generated = table.feed().sequence == SequenceSource::Generated;
    // The feeds are read one after the other. Without this wait, a message could be written to the first feed after
    // that feed was read, with a lower position than a message that is then read from the second feed. A page would
    // skip it.
    let version = engine.next_version();
    if !engine.wait_for_messages(version, is_stopped) {
        return Err(RowsError::Cancelled);
    }
    let terms = &match is_generated {
        true => terms.until(version),
        false => terms.clone(),
    };
    // With generated numbers, the last position bounds the sequence numbers of every feed.
    let bounded = rest_of_merge(terms, last.filter(|_| is_generated));
    let mut known = HashSet::new();
    let mut sources = Vec::with_capacity(feeds.len());
    for feed in feeds.iter().filter(|feed| known.insert(**feed)) {
        let ranges = bounded.ranges(engine, table, *feed)?;
        sources.push(Source {
            feed: *feed,
            scan: scan(engine, table, ranges, &bounded, limit.min(MERGE_ROWS_MIN)).with_memory(),
            next: None,
        });
    }
    let is_descending = terms.order == MessageOrder::Descending;
    let filter = MergeFilter { table, terms, last };
    let mut heads = BTreeSet::new();
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(position) = filter.fill(source, is_stopped)? {
            heads.insert((position, number));
        }
    }
    let (mut merged, mut bytes, mut position) = (Merged::default(), 0, last);
    loop {
        let first = match is_descending {
            false => heads.pop_first(),
            true => heads.pop_last(),
        };
        let Some((_, number)) = first else { break };
        if merged.messages.len() >= limit || bytes >= PAGE_BYTES_MAX {
            merged.next = position.map(|position| token::encode(&merge_terms, &position.to_bytes()));
            break;
        }
        let source = &mut sources[number];
        if let Some((at, row)) = source.next.take() {
            let columns = row.columns().map_err(|reason| damaged(table, reason))?;
            bytes += merged.messages.push(table, encoder, &row.key, &columns)?;
            position = Some(at);
        }
        if let Some(at) = filter.fill(source, is_stopped)? {
            heads.insert((at, number));
        }
    }
    Ok(merged)
}

/// Returns the terms of a merge after the last position of the previous page.
fn rest_of_merge(terms: &ReadTerms, last: Option<MergePosition>) -> ReadTerms {
    match (last, terms.order) {
        (None, _) => terms.clone(),
        (Some(last), MessageOrder::Ascending) => ReadTerms {
            after: Some(last.time.saturating_sub(1)),
            ..terms.clone()
        },
        (Some(last), MessageOrder::Descending) => ReadTerms {
            before: Some(last.time.saturating_add(1)),
            ..terms.clone()
        },
    }
}

/// Decides which messages of its feeds a page of a merge contains.
struct MergeFilter<'a> {
    table: &'a WideTable,
    terms: &'a ReadTerms,
    /// Last position of the previous page.
    last: Option<MergePosition>,
}

impl MergeFilter<'_> {
    fn is_after(&self, position: &MergePosition) -> bool {
        match (self.last, self.terms.order) {
            (None, _) => true,
            (Some(last), MessageOrder::Ascending) => *position > last,
            (Some(last), MessageOrder::Descending) => *position < last,
        }
    }

    /// Reads a feed up to its next message of the page, if that message was not read before. Returns its position; `None`
    /// at the end of the feed.
    fn fill(&self, source: &mut Source<'_>, is_stopped: &dyn Fn() -> bool) -> Result<Option<MergePosition>> {
        let table = self.table;
        let has_inboxes = table.feed().inboxes.is_some();
        while source.next.is_none() {
            let Some(row) = next(&mut source.scan, is_stopped)? else {
                return Ok(None);
            };
            let columns = row.columns().map_err(|reason| damaged(table, reason))?;
            let sequence = sequence_of(table, &row.key)?;
            let position = MergePosition {
                time: time_of(table, sequence, &columns).nanos(),
                feed: source.feed.0,
                sequence,
            };
            // An entry of an inbox refers to a message, which the merge of its feed returns.
            let is_entry = has_inboxes && newest(table, &columns, SOURCE).is_some();
            let is_included =
                !is_entry && self.is_after(&position) && self.terms.has_columns(table, &row.key, &columns)?;
            drop(columns);
            if is_included {
                source.next = Some((position, row));
            }
        }
        Ok(source.next.as_ref().map(|(position, _)| *position))
    }
}

impl MergePosition {
    fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.time.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.feed);
        bytes[24..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Decodes a position; `None` if the number of bytes is wrong.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (time, rest) = bytes.split_first_chunk()?;
        let (feed, sequence) = rest.split_first_chunk()?;
        Some(Self {
            time: i64::from_be_bytes(*time),
            feed: *feed,
            sequence: i64::from_be_bytes(sequence.try_into().ok()?),
        })
    }
}

/// Encodes the table, the order and the feeds of a merge. A page token is valid only for requests with the same
/// encoding.
fn merge_terms(table: &WideTable, feeds: &[TimelineId], order: MessageOrder) -> Vec<u8> {
    let mut terms = table.table().points().id().0.to_le_bytes().to_vec();
    terms.push(u8::from(order == MessageOrder::Descending));
    terms.extend(feeds.iter().flat_map(|feed| feed.0));
    terms
}

/// Decodes the position of the last message of the previous page.
fn position_of(terms: &[u8], token: &str) -> Result<MergePosition> {
    let position = token::decode(terms, token);
    position.and_then(|bytes| MergePosition::from_bytes(&bytes)).ok_or_else(|| {
        RowsError::Invalid(
            "page is damaged or belongs to another request; send the `next` of a response with the same feeds and order"
                .to_owned(),
        )
    })
}

/// Begins a scan that is expected to return `wanted` rows.
fn scan<'e>(
    engine: &'e Engine,
    table: &Arc<WideTable>,
    ranges: Ranges,
    terms: &ReadTerms,
    wanted: usize,
) -> RowScan<'e> {
    // One extra row shows whether more follow.
    let wanted = wanted.saturating_add(1);
    begin_scan(engine, table, ranges, terms.direction(), wanted)
}

/// Begins a scan of the rows in `ranges`, of which the caller expects to take `wanted`.
pub(crate) fn begin_scan<'e>(
    engine: &'e Engine,
    table: &Arc<WideTable>,
    ranges: Ranges,
    direction: Direction,
    wanted: usize,
) -> RowScan<'e> {
    engine.scan_rows(
        Arc::clone(table),
        RowPath::Primary,
        ranges,
        direction,
        None,
        wanted,
    )
}

/// Begins a scan of a secondary index. `is_covered` is true if the columns of its entries suffice. `prefix` has the
/// values of the first columns of its key, and `low` is a bound of the next one. The caller expects to take `wanted`
/// rows.
pub(crate) fn begin_index_scan<'e>(
    engine: &'e Engine,
    table: &Arc<WideTable>,
    (index, is_covered): (&str, bool),
    (prefix, low): (&[KeyValue<'_>], Bound<KeyValue<'_>>),
    wanted: usize,
) -> Result<RowScan<'e>> {
    let index = Arc::clone(table.index(index)?);
    let ranges = index.layout().ranges(prefix, (low, Bound::Unbounded))?;
    let path = RowPath::Index { index, is_covered };
    let table = Arc::clone(table);
    Ok(engine.scan_rows(table, path, ranges, Direction::Ascending, None, wanted))
}

fn next(scan: &mut RowScan<'_>, is_stopped: &dyn Fn() -> bool) -> Result<Option<StoredRow>> {
    if is_stopped() {
        return Err(RowsError::Cancelled);
    }
    Ok(scan.next_row()?.map(|found| found.row))
}

/// Returns a message as JSON.
pub(crate) fn encoded(table: &WideTable, encoder: &MessageEncoder, row: &StoredRow) -> Result<String> {
    let columns = row.columns().map_err(|reason| damaged(table, reason))?;
    let mut json = Vec::with_capacity(MESSAGE_BYTES);
    encoder.write_row(table, &row.key, &columns, None, &mut json)?;
    String::from_utf8(json).map_err(|error| damaged(table, error))
}
