//! Rules of tiers: segments of both tiers coexist, and each is listed, read and reclaimed in its own tier.
//!
//! A move between tiers reads from one tier while it loads into the other.

use super::*;

pub(super) const RULES: &[Rule] = &[
    (
        "segments of both tiers are listed with their tier, also after a restart",
        both_tiers_are_held,
    ),
    ("reclaim in one tier leaves the other", reclaim_keeps_to_its_tier),
    (
        "the rows of a load may come from a segment of any tier",
        a_move_reads_and_writes,
    ),
    ("usage is reported per tier", usage_is_reported_per_tier),
];

const HOT: u64 = 1;
const COLD: u64 = 2;

fn both(numbers: std::ops::RangeInclusive<u64>) -> Vec<SegmentRef> {
    let pair = |n| [segment(n, HOT, Tier::Hot), segment(n + 100, COLD, Tier::Cold)];
    numbers.flat_map(pair).collect()
}

fn held(backend: &dyn Backend) -> Vec<SegmentRef> {
    let mut held = backend.segments(SHARD).expect("segments");
    held.sort();
    held
}

fn sorted(mut segments: Vec<SegmentRef>) -> Vec<SegmentRef> {
    segments.sort();
    segments
}

fn both_tiers_are_held(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let all = both(1..=3);
    for &loaded in &all {
        let own = loaded.segment.0.to_be_bytes();
        load(&*backend, loaded, 4, &[row(b"k", &own), row(b"l", &own)]);
    }
    let check = |backend: &dyn Backend| {
        assert_eq!(held(backend), sorted(all.clone()));
        for &loaded in &all {
            let own = loaded.segment.0.to_be_bytes();
            let partition = Partition::segment(loaded, 4);
            assert_eq!(
                collect_all(backend, partition),
                [row(b"k", &own), row(b"l", &own)]
            );
            let value = value_of(backend, partition, b"l").expect("get");
            assert_eq!(value.as_deref(), Some(own.as_slice()));
        }
        for tier in Tier::KEPT {
            assert_eq!(backend.tier_health(tier), Health::Ready);
        }
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn reclaim_keeps_to_its_tier(fixture: &dyn Fixture) {
    let mut backend = fixture.open();
    let mut left = both(1..=2);
    for &loaded in &left {
        load(&*backend, loaded, 0, &[row(b"k", b"v")]);
    }
    while let Some(gone) = left.pop() {
        for _ in 0..2 {
            backend.reclaim(gone).expect("reclaim");
            assert_eq!(held(&*backend), sorted(left.clone()));
        }
        backend = reopen(fixture, backend);
        assert_eq!(held(&*backend), sorted(left.clone()));
        for &kept in &left {
            let rows = collect_all(&*backend, Partition::segment(kept, 0));
            assert_eq!(rows, [row(b"k", b"v")]);
        }
    }
}

fn a_move_reads_and_writes(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let from = segment(1, HOT, Tier::Hot);
    let to = segment(2, COLD, Tier::Cold);
    let again = segment(3, COLD, Tier::Cold);
    let rows: Vec<_> = (0..1_000_u32)
        .map(|n| row(&n.to_be_bytes(), &[n as u8; 50]))
        .collect();
    load(&*backend, from, 0, &rows);
    for (source, target) in [(from, to), (to, again)] {
        let mut moved = (0..1_000_u32).map(|n| {
            let key = n.to_be_bytes();
            let value = value_of(&*backend, Partition::segment(source, 0), &key)?;
            Ok(row(&key, &value.expect("it was loaded")))
        });
        backend.load(target, 0, &mut moved).expect("load");
    }
    for loaded in [from, to, again] {
        assert!(collect_all(&*backend, Partition::segment(loaded, 0)) == rows);
    }
}

fn usage_is_reported_per_tier(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let before = backend.usage();
    let rows: Vec<_> = (0..100_u32)
        .map(|n| row(&n.to_be_bytes(), &[n as u8; 10_000]))
        .collect();
    load(&*backend, segment(1, COLD, Tier::Cold), 0, &rows);
    let after = backend.usage();
    assert!(after.cold_bytes >= before.cold_bytes + 1_000_000, "{after:?}");
    assert!(after.hot_bytes < before.hot_bytes + 100_000, "{after:?}");
    assert_eq!(after.data_bytes, after.hot_bytes + after.cold_bytes);
    backend.reclaim(segment(1, COLD, Tier::Cold)).expect("reclaim");
    assert_eq!(held(&*backend), []);
}
