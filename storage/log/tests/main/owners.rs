//! Tests of processes that own the shard one after the other. Earlier owners have not detected their successors yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_log::{Log, LogError, LogSettings, Opening};
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
