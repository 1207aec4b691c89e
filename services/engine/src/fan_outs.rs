//! Fan-outs: feeds with messages that the job `fan_out` has not written to the inboxes of all members yet.
//!
//! The list is in memory. Each write of a message adds its feed before the write ends, and the job removes it. After
//! the start of the process, the list of a table is incomplete until the first job of the table has read the feeds from
//! storage.

use hashbrown::HashMap;
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
}

/// Feeds of a table whose messages wait.
#[derive(Debug, Default)]
struct Waiting {
    /// True if the feeds that waited before the start of the process are known.
    is_complete: bool,
    feeds: HashMap<TimelineId, Span>,
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
    /// True if the feeds that waited before the start of the process are known.
    pub is_complete: bool,
    /// Number of feeds whose messages wait.
    pub feeds: usize,
    /// Sequence number of the oldest message that waits, which is its time in nanoseconds since 1970-01-01T00:00:00Z;
    /// `None` without such a message.
    pub oldest: Option<i64>,
}

/// Age of a waiting message from which [`Engine::fan_out_warnings`] reports it, in nanoseconds. The job normally starts
/// after a minute.
const LATE: i64 = 3_600 * NANOS_PER_SECOND;

impl TableFanOuts {
    /// Returns the age of the oldest message that waits, in nanoseconds; 0 without such a message.
    pub fn lag(&self, now: i64) -> i64 {
        self.oldest.map_or(0, |oldest| now.saturating_sub(oldest).max(0))
    }
}

/// Returns true if a job writes messages of a table to inboxes.
fn has_fan_out(spec: &TableSpec) -> bool {
    spec.feed.is_some_and(|feed| feed.fan_out_max() > 0)
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

    /// Records that all waiting feeds of a table are known.
    pub fn complete_fan_outs(&self, table: TableId) {
        let mut state = self.fan_outs.0.lock();
        state.tables.entry(table).or_default().is_complete = true;
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

    /// Returns the fan-outs of all tables with a job that writes messages to inboxes.
    pub fn fan_outs(&self) -> Vec<TableFanOuts> {
        let mut tables = self.known_tables();
        tables.retain(|table| has_fan_out(&table.spec()));
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
