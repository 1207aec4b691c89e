//! Queues of row changes that are not in the search indexes yet.
//!
//! Each search index has a queue with the changes of its table, in the order of the journal. Its indexer takes changes,
//! indexes the current rows, and confirms the changes once they are durable and visible in the index. A flush waits for
//! the confirmation, so the journal of a change is deleted only after every search index holds the change. The size of
//! the queues is bounded by the row buffer, because their keys share the memory of the buffered entries.
//!
//! The manifest row of a part records up to which sequence the search indexes of its table were complete
//! ([`PartDetail::search_end`](crate::state::PartDetail::search_end)). An index whose own position is lower has missed
//! changes, and must be built again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tideline_model::{KeyRange, SequenceNumber, TableId};

use crate::entry::Change;
use crate::store::WideStore;

/// Time without a confirmation after which a flush no longer waits for an index. The index is then built again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Change that a search index must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchChange {
    /// The row with this stored key was written or deleted.
    Row(Bytes),
    /// All rows whose stored keys are in the range were deleted. Some may have been written again since.
    Range(KeyRange),
    /// The index must add the documents of all rows of the part with this number. The request is not stored: after a
    /// restart, the move that needs the documents adds it again.
    Part(i32),
}

/// Changes that an indexer has claimed.
#[derive(Debug, Default)]
pub struct ClaimedChanges {
    /// Changes in the order of the journal.
    pub changes: Vec<SearchChange>,
    /// Position to confirm: all changes below this sequence have been claimed.
    pub end: SequenceNumber,
}

/// State of a queue, for status reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchBacklog {
    /// Number of changes that are not confirmed.
    pub changes: u64,
    /// Time since the oldest change that is not confirmed; `None` without changes.
    pub age: Option<Duration>,
    /// All changes of the table with a lower sequence are confirmed.
    pub end: SequenceNumber,
}

/// Result of opening the queue of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchStart {
    /// True if the index has missed no change. Otherwise it must be built again.
    pub is_current: bool,
    /// Position from which the queue continues.
    pub position: SequenceNumber,
}

/// Reason why a wait for changes has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// Changes wait.
    Changes {
        /// True if a flush or a reader waits for a commit.
        is_wanted: bool,
    },
    /// No change waits.
    Idle,
    /// A flush has stopped waiting; the index must be built again.
    Abandoned,
    /// The queue is closed.
    Closed,
}

/// Queues of all search indexes.
#[derive(Debug, Default)]
pub(crate) struct SearchQueues {
    queues: Mutex<BTreeMap<TableId, Queue>>,
    changed: Condvar,
}

/// Phase of the indexer of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// It has not opened the index yet.
    #[default]
    Expected,
    /// It takes the changes.
    Open,
    /// It ends, or has ended. Flushes do not wait for it.
    Closed,
}

#[derive(Debug, Default)]
struct Queue {
    phase: Phase,
    /// True after the index has failed, or a flush has stopped waiting for it. No changes are kept, because the index
    /// must be built again.
    is_abandoned: bool,
    waiting: VecDeque<(SequenceNumber, Instant, SearchChange)>,
    /// Number of changes that were claimed and are not confirmed, and the time of the oldest one.
    claimed: (u64, Option<Instant>),
    /// Sequence after the newest change.
    pushed: u64,
    /// All changes below this sequence are confirmed.
    confirmed: u64,
    /// Highest position that a flush or a reader waits for.
    wanted: u64,
}

impl From<&Change> for SearchChange {
    fn from(change: &Change) -> Self {
        match change {
            Change::Row { key, .. } => Self::Row(key.clone()),
            Change::DeleteRange(range) => Self::Range(range.clone()),
        }
    }
}

impl Queue {
    fn push(&mut self, sequence: SequenceNumber, changes: impl Iterator<Item = SearchChange>) {
        let now = Instant::now();
        self.waiting.extend(changes.map(|change| (sequence, now, change)));
        self.pushed = self.pushed.max(sequence.0 + 1);
    }

    /// Drops the changes, and keeps no further changes until the queue is opened again.
    fn abandon(&mut self) {
        self.is_abandoned = true;
        self.waiting.clear();
        self.claimed = (0, None);
    }

    /// Returns true if the queue is open and its oldest unconfirmed change is older than `age`.
    fn is_behind(&self, age: Duration) -> bool {
        self.phase == Phase::Open && self.oldest().is_some_and(|oldest| oldest.elapsed() > age)
    }

    /// Returns the time of the oldest change that is not confirmed.
    fn oldest(&self) -> Option<Instant> {
        self.claimed.1.or(self.waiting.front().map(|(_, time, _)| *time))
    }

    /// Drops the changes below a position, and counts them as confirmed.
    fn skip_to(&mut self, position: u64) {
        while self
            .waiting
            .front()
            .is_some_and(|(sequence, ..)| sequence.0 < position)
        {
            self.waiting.pop_front();
        }
        self.confirmed = position;
    }
}

impl SearchQueues {
    /// Adds the changes of a replayed entry to the queues of these indexes.
    pub(crate) fn replay(&mut self, indexes: &[TableId], sequence: SequenceNumber, changes: &[Change]) {
        for index in indexes {
            let queue = self.queues.get_mut().entry(*index).or_default();
            queue.push(sequence, changes.iter().map(SearchChange::from));
        }
    }

    /// Adds the changes of an entry to the queues of these indexes.
    pub(crate) fn push(&self, indexes: &[TableId], sequence: SequenceNumber, changes: &[SearchChange]) {
        let mut queues = self.queues.lock();
        for index in indexes {
            // A new index has no queue yet. Its indexer will read the current rows.
            if let Some(queue) = queues.get_mut(index)
                && !queue.is_abandoned
            {
                queue.push(sequence, changes.iter().cloned());
            }
        }
        drop(queues);
        self.changed.notify_all();
    }

    /// Waits until an index has confirmed all of its changes below `end`. Does not wait for a closed or abandoned
    /// queue. Abandons the queue if the indexer confirms nothing for `PATIENCE`. Returns the position up to which the
    /// index must be complete at the next start; 0 if the index has no queue.
    pub(crate) fn settle(&self, index: TableId, end: SequenceNumber) -> u64 {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&index) else {
            return 0;
        };
        let target = queue.pushed.min(end.0);
        queue.wanted = queue.wanted.max(target);
        self.changed.notify_all();
        let (mut progress, mut since) = (queue.confirmed, Instant::now());
        loop {
            let Some(queue) = queues.get_mut(&index) else {
                return target;
            };
            if queue.confirmed >= target || queue.phase == Phase::Closed || queue.is_abandoned {
                return target;
            }
            if queue.confirmed > progress {
                (progress, since) = (queue.confirmed, Instant::now());
            }
            let rest = PATIENCE.saturating_sub(since.elapsed());
            if rest.is_zero() {
                tracing::warn!(
                    index = index.0,
                    "a search index does not follow; it is built again"
                );
                queue.abandon();
                self.changed.notify_all();
                return target;
            }
            self.changed.wait_for(&mut queues, rest);
        }
    }
}

impl WideStore {
    /// Creates the queue of an index whose indexer will open it later with [`open_search`](Self::open_search). From now
    /// on the queue keeps changes, and flushes wait for the indexer. Call this after a start, before rows are written.
    pub fn expect_search(&self, index: TableId) {
        let mut queues = self.searches.queues.lock();
        queues.entry(index).or_default().phase = Phase::Expected;
    }

    /// Opens the queue of an index that [`expect_search`](Self::expect_search) has created. `position` is the position
    /// of the index on disk; `None` for an empty index. Call this before the indexer reads any row. Returns `None`
    /// unless the queue waits to be opened.
    pub fn open_search(
        &self,
        table: TableId,
        index: TableId,
        position: Option<SequenceNumber>,
    ) -> Option<SearchStart> {
        let flushed = self.state().search_end(table);
        let mut queues = self.searches.queues.lock();
        let queue = queues
            .get_mut(&index)
            .filter(|queue| queue.phase == Phase::Expected)?;
        // An abandoned queue has lost changes.
        let position = position.filter(|position| position.0 >= flushed && !queue.is_abandoned);
        queue.skip_to(position.map_or(flushed, |position| position.0));
        (queue.phase, queue.is_abandoned) = (Phase::Open, false);
        // A flush may be waiting since the start although the index already holds everything.
        self.searches.changed.notify_all();
        Some(SearchStart {
            is_current: position.is_some(),
            position: SequenceNumber(queue.confirmed),
        })
    }

    /// Requests that the indexer of an index adds the documents of all rows of a part. Returns false if the index is
    /// not open.
    pub fn index_part(&self, index: TableId, number: i32) -> bool {
        let mut queues = self.searches.queues.lock();
        let queue = queues.get_mut(&index);
        let Some(queue) = queue.filter(|queue| queue.phase == Phase::Open && !queue.is_abandoned) else {
            return false;
        };
        let sequence = SequenceNumber(queue.pushed.max(queue.confirmed).saturating_sub(1));
        let change = SearchChange::Part(number);
        queue.waiting.push_back((sequence, Instant::now(), change));
        drop(queues);
        self.searches.changed.notify_all();
        true
    }

    /// Closes the queue of an index. Flushes no longer wait for it.
    pub fn close_search(&self, index: TableId) {
        if let Some(queue) = self.searches.queues.lock().get_mut(&index) {
            queue.phase = Phase::Closed;
        }
        self.searches.changed.notify_all();
    }

    /// Removes the queue of a dropped index.
    pub fn forget_search(&self, index: TableId) {
        self.searches.queues.lock().remove(&index);
        self.searches.changed.notify_all();
    }

    /// Drops the changes of an index that has failed, and keeps no further changes until the index is opened again.
    pub fn abandon_search(&self, index: TableId) {
        if let Some(queue) = self.searches.queues.lock().get_mut(&index) {
            queue.abandon();
        }
        self.searches.changed.notify_all();
    }

    /// Claims up to `max` of the oldest changes of an index that were not claimed yet.
    pub fn claim_changes(&self, index: TableId, max: usize) -> ClaimedChanges {
        let mut queues = self.searches.queues.lock();
        let Some(queue) = queues.get_mut(&index) else {
            return ClaimedChanges::default();
        };
        let count = max.min(queue.waiting.len());
        let oldest = queue.waiting.front().map(|(_, time, _)| *time);
        queue.claimed = (queue.claimed.0 + count as u64, queue.claimed.1.or(oldest));
        let changes = queue.waiting.drain(..count).map(|(_, _, change)| change);
        let changes = changes.collect();
        let end = match queue.waiting.front() {
            Some((sequence, ..)) => sequence.0,
            None => queue.pushed.max(queue.confirmed),
        };
        ClaimedChanges {
            changes,
            end: SequenceNumber(end),
        }
    }

    /// Confirms that all changes below a position are durable and visible in an index.
    pub fn confirm_changes(&self, index: TableId, end: SequenceNumber) {
        if let Some(queue) = self.searches.queues.lock().get_mut(&index) {
            queue.confirmed = queue.confirmed.max(end.0);
            queue.claimed = (0, None);
        }
        self.searches.changed.notify_all();
    }

    /// Waits until the queue of an index has changes, a commit is requested, or `patience` has passed.
    pub fn wait_changes(&self, index: TableId, patience: Duration) -> QueueState {
        let deadline = Instant::now() + patience;
        let mut queues = self.searches.queues.lock();
        loop {
            match queues.get(&index) {
                None => return QueueState::Closed,
                Some(queue) if queue.phase == Phase::Closed => return QueueState::Closed,
                Some(queue) if queue.is_abandoned => return QueueState::Abandoned,
                Some(queue) => {
                    let is_wanted = queue.wanted > queue.confirmed;
                    if is_wanted || !queue.waiting.is_empty() {
                        return QueueState::Changes { is_wanted };
                    }
                }
            }
            if self
                .searches
                .changed
                .wait_until(&mut queues, deadline)
                .timed_out()
            {
                return QueueState::Idle;
            }
        }
    }

    /// Waits until the changes of an index up to and including `sequence` are visible in the index. Changes that are
    /// committed after the call are not waited for. Returns false if the changes are not visible at the deadline.
    pub fn wait_searchable(&self, index: TableId, sequence: SequenceNumber, deadline: Instant) -> bool {
        let mut queues = self.searches.queues.lock();
        let pushed = queues.get(&index).map_or(0, |queue| queue.pushed);
        let target = pushed.min(sequence.0.saturating_add(1));
        loop {
            let Some(queue) = queues.get_mut(&index) else {
                return false;
            };
            if queue.confirmed >= target {
                return true;
            }
            if queue.wanted < target {
                queue.wanted = target;
                self.searches.changed.notify_all();
            }
            if self
                .searches
                .changed
                .wait_until(&mut queues, deadline)
                .timed_out()
            {
                return false;
            }
        }
    }

    /// Returns the position that an index has confirmed when it holds all changes so far; 0 if the index has no queue.
    /// See [`request_searchable`](Self::request_searchable).
    pub fn search_target(&self, index: TableId) -> SequenceNumber {
        let queues = self.searches.queues.lock();
        SequenceNumber(queues.get(&index).map_or(0, |queue| queue.pushed))
    }

    /// Requests that an index confirms its changes below `target`, without a wait. Returns true if they are confirmed;
    /// `None` if the index has no queue, because it was dropped.
    pub fn request_searchable(&self, index: TableId, target: SequenceNumber) -> Option<bool> {
        let mut queues = self.searches.queues.lock();
        let queue = queues.get_mut(&index)?;
        if queue.confirmed >= target.0 {
            return Some(true);
        }
        if queue.wanted < target.0 {
            queue.wanted = target.0;
            self.searches.changed.notify_all();
        }
        Some(false)
    }

    /// Returns true if a change of an index has waited for longer than `age`. A failed index keeps no changes, so it is
    /// never behind.
    pub fn is_search_behind(&self, index: TableId, age: Duration) -> bool {
        let queues = self.searches.queues.lock();
        queues.get(&index).is_some_and(|queue| queue.is_behind(age))
    }

    /// Waits until no change of an index has waited for longer than `age`, but not longer than until the deadline.
    pub fn wait_search_age(&self, index: TableId, age: Duration, deadline: Instant) {
        let mut queues = self.searches.queues.lock();
        while queues.get(&index).is_some_and(|queue| queue.is_behind(age)) {
            if self
                .searches
                .changed
                .wait_until(&mut queues, deadline)
                .timed_out()
            {
                return;
            }
        }
    }

    /// Returns the state of the queue of an index; `None` if it has no queue.
    pub fn search_backlog(&self, index: TableId) -> Option<SearchBacklog> {
        let queues = self.searches.queues.lock();
        let queue = queues.get(&index)?;
        let oldest = queue.oldest();
        Some(SearchBacklog {
            changes: queue.claimed.0 + queue.waiting.len() as u64,
            age: oldest.map(|oldest| oldest.elapsed()),
            end: SequenceNumber(queue.confirmed),
        })
    }
}
