//! Fan-outs: feeds with messages that the job `fan_out` has not written to the inboxes of all members yet, and
//! interrupted joins, after which an inbox does not have the entries of all earlier messages.
//!
//! The lists are in memory. Each write of a message adds its feed before the write ends, a join that fails adds its
//! member, and the job removes both. After the start of the process, the lists of a table are incomplete until the first
//! job of the table has read the feeds and the members from storage.

use std::fmt;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{TableId, TableSpec, TimelineId, Timestamp};

use crate::engine::Engine;
use crate::tables::Table;
use crate::wide_table::WideTable;

/// Lists of the feeds whose messages wait.
#[derive(Debug, Default)]
pub(crate) struct FanOuts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tables: HashMap<TableId, Waiting>,
    entries: u64,
    joins: u64,
}

/// Feeds of a table whose messages wait, and its interrupted joins.
#[derive(Debug, Default)]
struct Waiting {
    /// True if the feeds and joins that waited before the start of the process are known.
    is_complete: bool,
    feeds: HashMap<TimelineId, Span>,
    /// Feed and member of the interrupted joins.
    joins: HashSet<(TimelineId, Box<str>)>,
}

/// Sequence numbers of the waiting messages of a feed.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Lower bound.
    oldest: i64,
    newest: i64,
}

/// Fan-outs of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFanOuts {
    /// Id of the table.
    pub table: TableId,
    /// Name of the table.
    pub name: String,
    /// True if the feeds and joins that waited before the start of the process are known.
    pub is_complete: bool,
    /// Number of feeds whose messages wait.
    pub feeds: usize,
    /// Number of interrupted joins.
    pub joins: usize,
    /// Sequence number of the oldest message that waits, which is its time in nanoseconds since 1970-01-01T00:00:00Z;
    /// `None` without such a message.
    pub oldest: Option<i64>,
}

/// Age of a waiting message from which [`Engine::fan_out_warnings`] reports it, in nanoseconds. The job normally starts
/// after a minute.
const LATE: i64 = 3_600 * NANOS_PER_SECOND;
/// Maximum number of interrupted joins of a table in memory. The job looks up further ones after it has completed these.
const JOINS_MAX: usize = 10_000;

impl TableFanOuts {
    /// Returns the age of the oldest message that waits, in nanoseconds; 0 without such a message.
    pub fn lag(&self, now: i64) -> i64 {
        self.oldest.map_or(0, |oldest| now.saturating_sub(oldest).max(0))
    }
}

/// Returns true if a table has inboxes, so that a job completes interrupted joins. The job also writes messages to the
/// inboxes if the settings of the table allow this.
fn has_inboxes(spec: &TableSpec) -> bool {
    spec.feed.is_some_and(|feed| feed.inboxes.is_some())
}

impl Engine {
    /// Adds messages of a feed to the messages that wait for the job, given by their lowest and highest sequence
    /// number. The write of the messages calls this before it ends its claim, so that
    /// [`wait_for_messages`](Self::wait_for_messages) also waits for this call.
    pub fn add_fan_out(&self, table: &WideTable, feed: TimelineId, (oldest, newest): (i64, i64)) {
        let mut state = self.fan_outs.0.lock();
        let waiting = state.tables.entry(table.table().points().id()).or_default();
        let span = waiting.feeds.entry(feed).or_insert(Span { oldest, newest });
        *span = Span {
            oldest: span.oldest.min(oldest),
            newest: span.newest.max(newest),
        };
    }

    /// Removes the messages of a feed below a sequence number, because all inboxes have them or because no job writes
    /// them. `entries` is the number of entries that were written.
    pub fn end_fan_out(&self, table: &WideTable, feed: TimelineId, (end, entries): (i64, u64)) {
        let mut state = self.fan_outs.0.lock();
        state.entries += entries;
        let Some(waiting) = state.tables.get_mut(&table.table().points().id()) else {
            return;
        };
        if let Some(span) = waiting.feeds.get_mut(&feed) {
            span.oldest = span.oldest.max(end);
            if span.newest < end {
                waiting.feeds.remove(&feed);
            }
        }
    }

    /// Records that all waiting feeds and interrupted joins of a table are known. Has no effect while the list of joins
    /// is full, because joins may have been interrupted meanwhile that it does not have.
    pub fn complete_fan_outs(&self, table: TableId) {
        let mut state = self.fan_outs.0.lock();
        let waiting = state.tables.entry(table).or_default();
        waiting.is_complete = waiting.joins.len() < JOINS_MAX;
    }

    /// Logs a warning about a damaged row of a table of users. It is not known whether the row is a membership whose join
    /// was interrupted, so no job completes such a join.
    pub fn warn_of_damaged_member(users: &WideTable, key: &[u8], error: &dyn fmt::Display) {
        tracing::warn!(
            table = %users.table().name(),
            key = %key.escape_ascii(),
            %error,
            "a damaged row of a table of users was skipped; a join of its member is not completed"
        );
    }

    /// Adds an interrupted join to those that the job completes. Returns false if too many are known already; a later
    /// job looks this one up.
    pub fn add_interrupted_join(&self, table: &WideTable, feed: TimelineId, user: &str) -> bool {
        let mut state = self.fan_outs.0.lock();
        let waiting = state.tables.entry(table.table().points().id()).or_default();
        if waiting.joins.len() >= JOINS_MAX {
            waiting.is_complete = false;
            return false;
        }
        waiting.joins.insert((feed, user.into()));
        true
    }

    /// Removes an interrupted join from the list, because it is complete or its member has left.
    pub fn end_interrupted_join(&self, table: &WideTable, feed: TimelineId, user: &str) {
        let mut state = self.fan_outs.0.lock();
        let waiting = state.tables.get_mut(&table.table().points().id());
        let is_known = waiting.is_some_and(|waiting| waiting.joins.remove(&(feed, Box::from(user))));
        state.joins += u64::from(is_known);
    }

    /// Returns the known interrupted joins of a table: the feed and the member of each.
    pub fn interrupted_joins(&self, table: &WideTable) -> Vec<(TimelineId, Box<str>)> {
        let state = self.fan_outs.0.lock();
        let waiting = state.tables.get(&table.table().points().id());
        let joins = waiting.into_iter().flat_map(|waiting| &waiting.joins);
        let mut joins: Vec<(TimelineId, Box<str>)> = joins.cloned().collect();
        joins.sort_unstable_by(|one, other| (one.0.0, &one.1).cmp(&(other.0.0, &other.1)));
        joins
    }

    /// Returns the number of known interrupted joins that have ended since the start of the process.
    pub fn ended_joins(&self) -> u64 {
        self.fan_outs.0.lock().joins
    }

    /// Counts inbox entries that a job has written for interrupted joins.
    pub fn add_fan_out_entries(&self, entries: u64) {
        self.fan_outs.0.lock().entries += entries;
    }

    /// Returns the feeds of a table whose messages wait, the feed with the oldest message first.
    pub fn waiting_feeds(&self, table: &WideTable) -> Vec<TimelineId> {
        let state = self.fan_outs.0.lock();
        let waiting = state.tables.get(&table.table().points().id());
        let feeds = waiting.into_iter().flat_map(|waiting| &waiting.feeds);
        let mut feeds: Vec<(i64, TimelineId)> = feeds.map(|(feed, span)| (span.oldest, *feed)).collect();
        feeds.sort_unstable_by_key(|(oldest, feed)| (*oldest, feed.0));
        feeds.into_iter().map(|(_, feed)| feed).collect()
    }

    /// Returns the fan-outs of all tables with inboxes.
    pub fn fan_outs(&self) -> Vec<TableFanOuts> {
        let mut tables = self.known_tables();
        tables.retain(|table| has_inboxes(&table.spec()));
        let mut state = self.fan_outs.0.lock();
        // Removes the lists of dropped tables.
        state
            .tables
            .retain(|id, _| tables.iter().any(|table| table.points().id() == *id));
        let of = |table: &Table| {
            let id = table.points().id();
            let waiting = state.tables.get(&id);
            TableFanOuts {
                table: id,
                name: table.name().to_string(),
                is_complete: waiting.is_some_and(|waiting| waiting.is_complete),
                feeds: waiting.map_or(0, |waiting| waiting.feeds.len()),
                joins: waiting.map_or(0, |waiting| waiting.joins.len()),
                oldest: waiting.and_then(|waiting| waiting.feeds.values().map(|span| span.oldest).min()),
            }
        };
        tables.iter().map(of).collect()
    }

    /// Returns warnings about tables whose messages have waited for more than an hour.
    pub(crate) fn fan_out_warnings(&self) -> Vec<String> {
        let now = self.now().nanos();
        let mut tables = self.fan_outs();
        tables.retain(|table| table.lag(now) > LATE);
        let warning = |table: &TableFanOuts| {
            format!(
                "fan-out of table {}: messages of {} feeds are not in all inboxes yet, the oldest of {}; inboxes read them \
                 from their feeds, and the jobs of the kind fan_out list the reason",
                table.name,
                table.feeds,
                Timestamp::from_nanos_clamped(now.saturating_sub(table.lag(now))).to_rfc3339()
            )
        };
        tables.iter().map(warning).collect()
    }

    /// Returns the number of inbox entries that jobs have written since the start of the process.
    pub fn fan_out_entries(&self) -> u64 {
        self.fan_outs.0.lock().entries
    }
}
