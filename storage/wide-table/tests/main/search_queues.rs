//! Queues of the changes that search indexes follow.
//!
//! Each test acts as the indexer: it takes the changes and confirms them. A flush deletes the journal, so it must not
//! end before every index holds the changes. An index that has missed changes must be recognized after a restart.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::{KeyRange, SequenceNumber, TableId};
use tideline_wide_table::{ClaimedChanges, QueueState, SearchChange, SearchStart};

use super::database::*;

const INDEX: TableId = TableId(9);
/// Time within which a flush ends if it does not wait.
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

struct Queue {
    disk: Arc<MemoryDisk>,
    database: Arc<Database>,
}

impl Queue {
    /// Opens a database whose table has a search index.
    fn new() -> Self {
        let disk = MemoryDisk::new(Character::Embedded);
        let database = Self::open_at(&disk);
        database.add_search(INDEX);
        Self { disk, database }
    }

    fn open_at(disk: &Arc<MemoryDisk>) -> Arc<Database> {
        Arc::new(Database::open(Arc::new(MemoryBackend::open(disk)), 1))
    }

    /// Simulates a crash and opens the database again.
    fn crash(&mut self) {
        self.database = Self::open_at(&self.disk);
    }

    fn open(&self, position: Option<u64>) -> SearchStart {
        let position = position.map(SequenceNumber);
        self.database.store.expect_search(INDEX);
        let start = self.database.store.open_search(TABLE, INDEX, position);
        start.expect("the queue is not closed")
    }

    fn put(&self, key: &str) {
        self.database.write(&[put(&encoded(key), 1, &[("a", 1)])]);
    }

    fn take(&self) -> ClaimedChanges {
        self.database.store.claim_changes(INDEX, usize::MAX)
    }

    fn confirm(&self, end: SequenceNumber) {
        self.database.store.confirm_changes(INDEX, end);
    }

    fn state(&self) -> QueueState {
        self.database.store.wait_changes(INDEX, LONG)
    }

    /// Starts a flush. The receiver gets a message when the flush has ended.
    fn flush(&self) -> Receiver<()> {
        let (ended, is_ended) = channel();
        let database = Arc::clone(&self.database);
        std::thread::spawn(move || {
            database.flush();
            ended.send(()).ok();
        });
        is_ended
    }
}

fn rows(keys: &[&str]) -> Vec<SearchChange> {
    let row = |key: &&str| SearchChange::Row(encoded(key).into());
    keys.iter().map(row).collect()
}

fn assert_waits(flush: &Receiver<()>) {
    assert_eq!(flush.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
}

fn assert_ends(flush: &Receiver<()>) {
    flush.recv_timeout(LONG).expect("the flush ends");
}

#[test]
fn a_flush_waits_until_the_index_holds_the_changes() {
    let queue = Queue::new();
    assert!(!queue.open(None).is_current);
    queue.put("x");
    queue.put("y");
    assert_eq!(queue.state(), QueueState::Changes { is_wanted: false });
    let flush = queue.flush();
    assert_waits(&flush);
    let taken = queue.take();
    assert_eq!(taken.changes, rows(&["x", "y"]));
    assert_eq!(
        queue.state(),
        QueueState::Changes { is_wanted: true },
        "taken changes are not confirmed changes"
    );
    assert_waits(&flush);
    queue.confirm(taken.end);
    assert_ends(&flush);
}

#[test]
fn a_flush_ends_when_an_index_is_opened_that_holds_everything() {
    let mut queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let taken = queue.take();
    queue.confirm(taken.end);
    queue.crash();
    queue.database.store.expect_search(INDEX);
    let flush = queue.flush();
    assert_waits(&flush);
    assert!(queue.open(Some(taken.end.0)).is_current);
    assert_ends(&flush);
}

#[test]
fn changes_are_taken_in_the_order_of_the_journal() {
    let queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let range = KeyRange {
        start: encoded("x").into(),
        end: Some(encoded("y").into()),
    };
    queue.database.delete_rows(range.clone());
    queue.put("x");
    let first = queue.database.store.claim_changes(INDEX, 1);
    assert_eq!(first.changes, rows(&["x"]));
    let backlog = queue.database.store.search_backlog(INDEX).expect("it is open");
    assert_eq!(backlog.changes, 3, "taken changes count until they are confirmed");
    let rest = queue.take();
    assert_eq!(rest.changes[0], SearchChange::Range(range));
    assert_eq!(rest.changes[1..], rows(&["x"]));
    queue.confirm(first.end);
    assert!(first.end < rest.end);
}

#[test]
fn an_index_continues_after_a_crash_at_its_position() {
    let mut queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let taken = queue.take();
    queue.confirm(taken.end);
    queue.put("y");
    queue.put("z");
    queue.crash();
    let start = queue.open(Some(taken.end.0));
    assert!(start.is_current);
    assert_eq!(start.position, taken.end);
    assert_eq!(queue.take().changes, rows(&["y", "z"]));
}

#[test]
fn a_flush_after_a_crash_waits_for_an_index_that_is_not_open_yet() {
    let mut queue = Queue::new();
    queue.put("x");
    queue.crash();
    queue.database.store.expect_search(INDEX);
    queue.put("y");
    let flush = queue.flush();
    assert_waits(&flush);
    assert!(queue.open(Some(1)).is_current);
    let taken = queue.take();
    assert_eq!(taken.changes, rows(&["x", "y"]));
    queue.confirm(taken.end);
    assert_ends(&flush);
}

#[test]
fn an_expected_index_misses_no_change() {
    let mut queue = Queue::new();
    queue.crash();
    queue.database.store.expect_search(INDEX);
    queue.put("x");
    queue.open(Some(1));
    assert_eq!(queue.take().changes, rows(&["x"]));
}

#[test]
fn an_index_that_has_missed_a_flush_is_built_again() {
    let mut queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let taken = queue.take();
    queue.confirm(taken.end);
    assert_ends(&queue.flush());
    queue.crash();
    assert!(!queue.open(Some(taken.end.0 - 1)).is_current);
    queue.crash();
    assert!(queue.open(Some(taken.end.0)).is_current);
}

#[test]
fn a_flush_does_not_wait_for_an_abandoned_index() {
    let mut queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let flush = queue.flush();
    assert_waits(&flush);
    queue.database.store.abandon_search(INDEX);
    assert_ends(&flush);
    assert_eq!(queue.state(), QueueState::Abandoned);
    queue.put("y");
    assert!(queue.take().changes.is_empty());
    queue.database.store.close_search(INDEX);
    let start = queue.open(Some(u64::MAX));
    assert!(!start.is_current, "changes were lost");
    queue.put("z");
    assert_eq!(queue.take().changes, rows(&["z"]));
    queue.crash();
    assert!(!queue.open(Some(1)).is_current);
}

#[test]
fn a_flush_does_not_wait_for_a_closed_index() {
    let queue = Queue::new();
    queue.open(None);
    queue.put("x");
    queue.database.store.close_search(INDEX);
    assert_eq!(queue.state(), QueueState::Closed);
    assert_ends(&queue.flush());
}

#[test]
fn a_queue_that_is_closed_before_it_is_opened_stays_closed() {
    let queue = Queue::new();
    let store = &queue.database.store;
    store.expect_search(INDEX);
    store.close_search(INDEX);
    assert_eq!(store.open_search(TABLE, INDEX, None), None);
    assert_eq!(queue.state(), QueueState::Closed);
    queue.open(None);
    store.abandon_search(INDEX);
    store.close_search(INDEX);
    assert_eq!(store.open_search(TABLE, INDEX, None), None);
    assert_eq!(queue.state(), QueueState::Closed);
}

#[test]
fn a_part_is_requested_from_an_open_index_only() {
    let mut queue = Queue::new();
    let is_requested = |queue: &Queue| queue.database.store.index_part(INDEX, 3);
    assert!(!is_requested(&queue), "it is not open yet");
    queue.open(None);
    queue.put("a");
    assert!(is_requested(&queue));
    queue.put("b");
    let changes = queue.take().changes;
    let expected = [rows(&["a"]), vec![SearchChange::Part(3)], rows(&["b"])].concat();
    assert_eq!(changes, expected);
    // The request is not stored, so it is lost in a crash.
    assert!(is_requested(&queue));
    queue.crash();
    queue.open(None);
    assert_eq!(queue.take().changes, rows(&["a", "b"]));
    queue.database.store.close_search(INDEX);
    assert!(!is_requested(&queue), "it is closed");
}

#[test]
fn a_flush_does_not_wait_for_a_dropped_index() {
    let queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let flush = queue.flush();
    assert_waits(&flush);
    queue.database.store.forget_search(INDEX);
    assert_ends(&flush);
    assert_eq!(queue.state(), QueueState::Closed);
}

#[test]
fn a_reader_waits_for_its_write() {
    let queue = Queue::new();
    queue.open(None);
    queue.put("x");
    let everything = SequenceNumber(u64::MAX);
    let store = &queue.database.store;
    assert!(!store.wait_searchable(INDEX, everything, Instant::now()));
    assert_eq!(queue.state(), QueueState::Changes { is_wanted: true });
    assert!(store.is_search_behind(INDEX, Duration::ZERO));
    let taken = queue.take();
    queue.confirm(taken.end);
    assert!(store.wait_searchable(INDEX, everything, Instant::now()));
    assert!(!store.is_search_behind(INDEX, Duration::ZERO));
}

#[test]
fn a_reader_that_polls_does_not_wait_for_later_writes() {
    let queue = Queue::new();
    let store = &queue.database.store;
    assert_eq!(store.search_target(INDEX), SequenceNumber(0));
    assert_eq!(store.request_searchable(INDEX, SequenceNumber(1)), None);
    queue.open(None);
    queue.put("x");
    let target = store.search_target(INDEX);
    assert_eq!(store.request_searchable(INDEX, target), Some(false));
    assert_eq!(queue.state(), QueueState::Changes { is_wanted: true });
    let taken = queue.take();
    queue.put("y");
    queue.confirm(taken.end);
    assert_eq!(store.request_searchable(INDEX, target), Some(true));
    let later = store.search_target(INDEX);
    assert!(later > target);
    assert_eq!(store.request_searchable(INDEX, later), Some(false));
    store.forget_search(INDEX);
    assert_eq!(store.request_searchable(INDEX, later), None);
}
