//! Panic in a thread of the store: callers get an error instead of waiting forever, and nothing more is committed. Also
//! tests reads during concurrent deletes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tideline_backend::memory::{Character, MemoryDisk};
use tideline_log::LogError;
use tideline_model::{TimeRange, TimelineId, Value};
use tideline_runtime::Supervisor;
use tideline_series_store::{Delete, Settings, StoreError};

use crate::fixture::{Point, TestBackend, timeline, write};

/// Maximum duration of a call that must not wait for a dead thread.
const PATIENCE: Duration = Duration::from_secs(30);

fn point(at: i64) -> Point {
    (timeline(1), at, vec![("value", Value::Signed(at))])
}

/// Returns store settings and a sender. After a message on the sender, `thread` panics in its next round.
fn panicking(thread: &'static str) -> (Settings, mpsc::Sender<()>) {
    let supervisor = Supervisor::default();
    let (arm, armed) = mpsc::channel();
    let armed = std::sync::Mutex::new(armed);
    supervisor.on_round(move |name| {
        if name == thread && armed.lock().expect("not poisoned").try_recv().is_ok() {
            panic!("as the test asked");
        }
    });
    let mut settings = Settings::default();
    settings.log.supervisor = supervisor;
    (settings, arm)
}

#[test]
fn a_dead_committer_refuses_what_waits_and_what_comes() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (settings, arm) = panicking("committer");
    let (store, _) = test_backend.open(&settings);
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");
    arm.send(()).expect("the store listens");
    let waiting = write(&store, &table, &[point(2)], &[]).expect_err("its thread is gone");
    assert!(
        matches!(waiting, StoreError::Log(LogError::Failed(_) | LogError::Closed)),
        "{waiting}"
    );
    // The thread records its failure after it has released the write.
    let (sender, failed) = mpsc::channel();
    settings
        .log
        .supervisor
        .on_failure(move |failure| sender.send(failure.thread).expect("the test listens"));
    assert_eq!(failed.recv_timeout(PATIENCE), Ok("committer"));
    let later = write(&store, &table, &[point(3)], &[]).expect_err("nothing is committed any more");
    assert!(
        later.is_retryable() && matches!(later, StoreError::Log(LogError::Failed(_))),
        "{later}"
    );
    assert!(
        later
            .to_string()
            .contains("the committer thread panicked: as the test asked"),
        "{later}"
    );
    assert!(store.seal().is_err());
    assert!(store.thread_failure().is_some());
    drop(store);
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(3)], &[]).expect("a restart takes writes again");
}

#[test]
fn a_dead_sealer_holds_up_neither_seals_nor_writers() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (settings, arm) = panicking("sealer");
    let (store, _) = test_backend.open(&settings);
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");
    arm.send(()).expect("the store listens");
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        // The sealer panics in its next round, before the first seal or between the two seals. The second seal
        // must fail.
        scope.spawn(|| {
            let _before = store.seal();
            let _lost = write(&store, &table, &[point(2)], &[]);
            sender.send(store.seal()).expect("the test listens");
        });
        let outcome = ended.recv_timeout(PATIENCE);
        let failed = outcome
            .expect("the call returns")
            .expect_err("its thread is gone");
        assert!(matches!(failed, StoreError::Log(LogError::Failed(_))), "{failed}");
    });
    let refused = write(&store, &table, &[point(4)], &[]).expect_err("the process is about to end");
    assert!(refused.is_retryable(), "{refused}");
}

/// Each delete removes the time spans of the timelines from memory, possibly while they are being looked up.
#[test]
fn a_timeline_with_points_has_a_time_span_during_deletes() {
    const DELETES: usize = 100;
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    let mut ids: Vec<TimelineId> = (0..500).map(timeline).collect();
    ids.sort_unstable();
    let points: Vec<Point> = ids
        .iter()
        .map(|id| (*id, 1, vec![("value", Value::Signed(1))]))
        .collect();
    write(&store, &table, &points, &ids).expect("a write");
    let (reads, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut lost = 0;
            while !is_done.load(Ordering::SeqCst) {
                let seen = store.seen(&table, &ids).expect("the spans are read");
                lost += seen.iter().filter(|seen| seen.is_none()).count();
                reads.fetch_add(1, Ordering::SeqCst);
            }
            lost
        });
        for _ in 0..DELETES {
            // After a read, the spans are in memory again.
            let before = reads.load(Ordering::SeqCst);
            while reads.load(Ordering::SeqCst) == before && !reader.is_finished() {
                std::thread::yield_now();
            }
            let delete = Delete {
                timelines: ids.clone(),
                range: TimeRange::new(100, 200),
                removes_timelines: false,
            };
            store.delete(&table, delete).expect("a delete");
        }
        is_done.store(true, Ordering::SeqCst);
        assert_eq!(reader.join().expect("no panic"), 0);
    });
}
