//! Tests of processes that own the shard one after the other. Earlier owners have not detected their successors yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_log::{Log, LogError, LogSettings, LogThreads, Opening};
use tideline_model::SystemClock;
use tideline_testkit::wait::until;

fn open(disk: &Arc<MemoryDisk>) -> Arc<Log> {
    let backend = Arc::new(MemoryBackend::open(disk));
    let opening = Opening::begin(backend, Arc::new(SystemClock), LogSettings::default());
    let replayed = opening.expect("it takes the shard").replay(&mut []);
    replayed.expect("it replays").open().expect("it opens")
}

/// Segments are loaded and freed by their ids without a check of the owner. A process that has lost the shard may still
/// load and free segments for a while. It must not write to a segment of its successor, or free one.
#[test]
fn two_owners_never_assign_the_same_id() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3), 1 << 40);
    let mut assigned = BTreeSet::new();
    let mut owners = Vec::new();
    for _ in 0..3 {
        owners.push(open(&disk));
        for owner in &owners {
            for id in [owner.next_segment().0, owner.next_group().0, owner.next_part().0] {
                assert!(assigned.insert(id), "{id} is assigned twice");
            }
        }
    }
}

#[test]
fn a_process_that_ends_its_lease_stays_without_it() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(1), 1 << 40);
    let owner = open(&disk);
    owner.end_lease("the process ends");
    let before = disk.round_trips();
    // The lease of the backend is still renewed.
    let renewed = || (disk.round_trips() > before + 1).then_some(());
    until(Duration::from_secs(30), renewed).expect("the lease is renewed");
    let lost = owner.check_lease().expect_err("the lease is lost");
    assert!(matches!(lost, LogError::LeaseLost { .. }), "{lost}");
}

/// The next owner waits for the end of the stop.
#[test]
fn a_stop_does_not_wait_long_for_the_last_edit() {
    /// Duration of the edit that stores the trusted time.
    const STALLED: Duration = Duration::from_secs(60);
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3_600), 1 << 40);
    let threads = LogThreads::start(open(&disk), Vec::new());
    disk.delay_round_trips(STALLED);
    let (begun, before) = (Instant::now(), disk.round_trips());
    threads.stop();
    drop(threads);
    assert!(begun.elapsed() < STALLED / 2, "{:?}", begun.elapsed());
    let is_sent = || (disk.round_trips() == before + 1).then_some(());
    until(Duration::from_secs(30), is_sent).expect("the edit is sent");
}

#[test]
fn a_stop_waits_for_a_last_edit_that_is_a_little_slow() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(Duration::from_secs(3_600), 1 << 40);
    let log = open(&disk);
    let threads = LogThreads::start(Arc::clone(&log), Vec::new());
    let before = log.manifest().version;
    disk.delay_round_trips(Duration::from_millis(20));
    threads.stop();
    assert_eq!(log.manifest().version, before + 1, "the edit is answered");
}
