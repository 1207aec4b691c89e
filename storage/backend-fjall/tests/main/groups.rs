//! Groups are created and freed over many starts: other groups are not affected.
//!
//! The tests also check that the disk space of a freed segment is released while other segments of its group stay.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tideline_backend::{Backend, Row, SegmentRef};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_model::{GroupId, SegmentId, Tier};

use crate::test_folder::*;

/// Size of one segment of [`fill`], which cannot be compressed, in bytes.
const FILLED_BYTES: u64 = 1 << 20;

#[test]
fn groups_that_come_and_go_over_many_starts_never_take_another_with_them() {
    let test_folder = TestFolder::new();
    let mut held: Vec<SegmentRef> = Vec::new();
    let mut next = 1;
    for (round, seed) in (0..).zip(tideline_testkit::seeds("groups", 6)) {
        let backend = test_folder.open().expect("open");
        let mut found = backend.segments(SHARD).expect("segments");
        found.sort_unstable_by_key(|held| held.segment);
        assert_eq!(found, held, "start {round}");
        let mut state = seed;
        for _ in 0..4 {
            for tier in Tier::KEPT {
                let segment = SegmentRef {
                    segment: SegmentId(next),
                    group: GroupId(next + 1),
                    tier,
                };
                next += 2;
                load(&backend, segment);
                held.push(segment);
            }
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Frees the newest group, and in half of the cases also a random older group.
            let newest = held.pop().expect("just pushed");
            backend.reclaim(newest).expect("reclaim");
            if state >> 33 & 1 == 1 {
                let at = (state >> 34) as usize % held.len();
                backend.reclaim(held.remove(at)).expect("reclaim");
            }
        }
        backend.close().expect("close");
    }
}

#[test]
fn bytes_of_a_freed_segment_go_while_others_of_its_group_stay() {
    for tier in Tier::KEPT {
        let test_folder = TestFolder::new();
        let backend = test_folder.open_with(quick()).expect("open");
        let segments = [1, 2, 3].map(|segment| in_group(segment, tier));
        for segment in segments {
            fill(&backend, segment);
        }
        assert!(segment_bytes(&test_folder) >= 3 * FILLED_BYTES);
        for (left, segment) in [(2, segments[0]), (1, segments[2])] {
            backend.reclaim(segment).expect("reclaim");
            let deadline = Instant::now() + Duration::from_secs(20);
            while segment_bytes(&test_folder) >= (left + 1) * FILLED_BYTES {
                assert!(
                    Instant::now() < deadline,
                    "{tier}: the bytes of {segment:?} are still there"
                );
                std::thread::yield_now();
            }
        }
        backend.close().expect("close");
        let backend = test_folder.open().expect("open again");
        assert_eq!(backend.segments(SHARD).expect("segments"), [segments[1]]);
        backend.close().expect("close");
    }
}

/// Returns options with frequent rounds of the maintenance thread.
fn quick() -> FjallOptions {
    FjallOptions {
        high_water_interval: Duration::from_millis(20),
        ..options()
    }
}

fn in_group(segment: u64, tier: Tier) -> SegmentRef {
    SegmentRef {
        segment: SegmentId(segment),
        group: GroupId(7),
        tier,
    }
}

fn fill(backend: &FjallBackend, segment: SegmentRef) {
    let mut state = segment.segment.0;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let rows: Vec<Row> = (0..256u64)
        .map(|key| Row {
            key: Bytes::copy_from_slice(&key.to_be_bytes()),
            value: (0..FILLED_BYTES / 256).map(|_| noise()).collect(),
        })
        .collect();
    backend
        .load(segment, 0, &mut rows.into_iter().map(Ok))
        .expect("load");
}

/// Returns the size of all files of tables, in bytes.
fn segment_bytes(test_folder: &TestFolder) -> u64 {
    let tables = files(test_folder.path());
    let tables = tables
        .iter()
        .filter(|path| path.parent().is_some_and(|folder| folder.ends_with("tables")));
    // A table may be removed between listing its folder and reading its size.
    tables
        .map(|path| fs::metadata(path).map_or(0, |found| found.len()))
        .sum()
}
