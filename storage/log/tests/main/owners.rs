//! Tests of processes that own the shard one after the other. Earlier owners have not detected their successors yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_log::{Log, LogSettings, Opening};
use tideline_model::SystemClock;

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
