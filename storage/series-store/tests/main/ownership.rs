//! A store whose shard has, or may have, another owner: it serves neither writes nor reads. Also tests the stamps that
//! a lease permits.
//!
//! The memory backend simulates other owners, failing renewals and limited leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Shard};
use tideline_model::{Clock, ManualClock, TimeRange, Timestamp, Value};
use tideline_series_store::{LogError, Order, Selection, SeriesStore, Settings, StoreError};

use crate::fixture::{Point, TestBackend, read, timeline, write};

const SHARD: Shard = Shard(0);
/// Maximum wait for a renewal, or for its refusal, in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

fn point(at: i64) -> Point {
    (timeline(1), at, vec![("value", Value::Signed(at))])
}

/// Reads the newest values of a timeline, to check whether reads are served.
fn step(store: &SeriesStore) -> Result<(), StoreError> {
    let snapshot = store.snapshot();
    let timelines = [timeline(1)];
    let mut reader = snapshot.reader(Selection {
        table: tideline_model::TableId(1),
        timelines: &timelines,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    reader.newest(timeline(1), &[]).map(drop)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Log(LogError::LeaseLost { .. }))
}

#[test]
fn a_store_with_a_newer_owner_answers_nothing() {
    let disk = MemoryDisk::new(Character::Distributed);
    let test_backend = TestBackend::Memory(disk.clone());
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");
    step(&store).expect("it is served");

    let (newer, _) = test_backend.open(&Settings::default());
    let refused = write(&store, &table, &[point(2)], &[]).expect_err("another owner");
    assert!(!matches!(refused, StoreError::Log(LogError::Closed)), "{refused}");
    // The refused append has revealed the new owner. From now on all reads fail.
    assert!(is_lost(&step(&store).expect_err("no reads")));
    assert!(is_lost(&store.table("default").expect_err("no table")));
    let again = write(&store, &table, &[point(3)], &[]).expect_err("for ever");
    assert!(!again.is_retryable(), "{again}");
    drop(store);

    let table = newer.table("default").expect("the default table");
    let ids = [timeline(1)];
    let found = read(&newer, &table, &ids, TimeRange::ALL, None, Order::Ascending);
    let instants: Vec<i64> = found[0].iter().map(|(at, _)| *at).collect();
    assert_eq!(instants, [1], "what was not acknowledged is not there");
}

#[test]
fn a_renewal_that_is_refused_ends_the_service() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_millis(40), 1_000_000);
    let (store, _) = TestBackend::Memory(disk.clone()).open(&Settings::default());
    store.table("default").expect("the default table");
    MemoryBackend::open(&disk).take(SHARD).expect("a rival takes it");
    until("the loss is noticed without any request", || {
        store.table("default").is_err_and(|error| is_lost(&error))
    });
}

#[test]
fn a_lease_that_has_run_out_is_served_again_once_it_is_renewed() {
    let disk = MemoryDisk::new(Character::Distributed);
    let holds = Duration::from_secs(2);
    disk.limit_leases(holds, 1_000_000);
    let clock = ManualClock::new(Timestamp::EPOCH);
    let (store, _) = TestBackend::Memory(disk.clone()).open_at(&Settings::default(), &clock);
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");

    disk.fail_renewals(true);
    clock.advance(holds.as_nanos() as i64);
    let expired = store.table("default").expect_err("no table");
    assert!(
        matches!(expired, StoreError::Log(LogError::LeaseExpired)),
        "{expired}"
    );
    assert!(step(&store).is_err_and(|error| error.is_retryable()), "no reads");
    let refused = write(&store, &table, &[point(2)], &[]).expect_err("no writes");
    assert!(refused.is_retryable(), "{refused}");

    disk.fail_renewals(false);
    until("the lease is renewed", || store.table("default").is_ok());
    write(&store, &table, &[point(3)], &[]).expect("a write");
    step(&store).expect("a read");
}

/// Clock that advances by 40 minutes at each request of the monotonic time after it was started.
#[derive(Debug, Clone)]
struct Hasty {
    clock: ManualClock,
    is_started: Arc<AtomicBool>,
}

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        if self.is_started.load(Ordering::Relaxed) {
            self.clock.advance(40 * 60 * 1_000_000_000);
        }
        self.clock.monotonic()
    }
}

/// A newer owner may have freed segments before they were read, so the result of the read may lack points.
#[test]
fn a_read_during_which_the_lease_ends_is_not_answered() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3_600), 1_000_000);
    let clock = Hasty {
        clock: ManualClock::new(Timestamp::EPOCH),
        is_started: Arc::default(),
    };
    let (store, _) = TestBackend::Memory(disk).open_at(&Settings::default(), &clock);
    let table = store.table("default").expect("the default table");
    write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");
    step(&store).expect("it is served");
    clock.is_started.store(true, Ordering::Relaxed);
    let expired = step(&store).expect_err("the lease ends between the begin and the end of the read");
    assert!(
        matches!(expired, StoreError::Log(LogError::LeaseExpired)),
        "{expired}"
    );
}

#[test]
fn stamps_stay_within_the_lease_and_above_those_of_earlier_owners() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3_600), 10);
    let test_backend = TestBackend::Memory(disk);
    let (store, _) = test_backend.open(&Settings::default());
    let mut given = Vec::new();
    let refused = loop {
        match store.stamps().next() {
            Ok(stamp) => given.push(stamp),
            Err(error) => break error,
        }
    };
    assert!(refused.kind().is_retryable(), "{refused}");
    assert!(
        !given.is_empty() && given.is_sorted() && given.len() <= 10,
        "{given:?}"
    );
    drop(store);
    let (store, _) = test_backend.open(&Settings::default());
    let first = store.stamps().next().expect("a new lease");
    assert!(Some(&first) > given.last(), "{first:?} after {given:?}");
}

#[test]
fn a_wall_clock_beyond_the_lease_uses_up_none_of_its_stamps() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3_600), 1_000);
    let clock = ManualClock::new(Timestamp::MAX);
    let (store, _) = TestBackend::Memory(disk).open_at(&Settings::default(), &clock);
    for _ in 0..100 {
        store.stamps().next().expect("a stamp");
    }
}
