//! Groups come and go over many starts: what is there stays there.

use tideline_backend::{Backend, SegmentRef};
use tideline_model::{GroupId, SegmentId, Tier};

use crate::place::*;

#[test]
fn groups_that_come_and_go_over_many_starts_never_take_another_with_them() {
    let place = Place::new();
    let mut held: Vec<SegmentRef> = Vec::new();
    let mut next = 1;
    for round in 0..6u64 {
        let backend = place.open().expect("open");
        let mut found = backend.segments().expect("segments");
        found.sort_unstable_by_key(|held| held.segment);
        assert_eq!(found, held, "start {round}");
        let mut state = round * 7 + 3;
        for _ in 0..4 {
            for tier in Tier::ALL {
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
            // The newest groups go as often as old ones.
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
