//! Rules of segments: loads, isolation, listing, failed loads, limits, pages, and reclaim.
//!
//! Each rule runs once per tier.

use super::*;
use crate::error::{BackendError, ErrorKind};

pub(super) const RULES: &[TierRule] = &[
    (
        "a load can be read in its buckets, also after a restart",
        loads_are_read_back,
    ),
    ("segments of one group are isolated", segments_are_apart),
    ("a shard lists its own segments only", each_shard_has_its_own),
    (
        "a load that fails midway affects no other segment and is reclaimed",
        a_failed_load_is_reclaimed,
    ),
    (
        "reclaim frees one segment, and may be repeated",
        reclaim_is_exact_and_repeatable,
    ),
    ("a load keeps the limits and the order", loads_are_checked),
    ("a large load is paged both ways", a_large_load_is_paged),
];

fn loads_are_read_back(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let loaded = segment(7, 3, tier);
    let rows = [row(b"", b""), row(b"\x00", b"zero"), row(b"\xff", b"high")];
    load(&*backend, loaded, 0, &rows);
    load(&*backend, loaded, u16::MAX, &rows[1..]);
    load(&*backend, loaded, 5, &[]);
    let check = |backend: &dyn Backend| {
        let bucket = |bucket| collect_all(backend, Partition::segment(loaded, bucket));
        assert_eq!(bucket(0), rows);
        assert_eq!(bucket(u16::MAX), rows[1..]);
        assert_eq!(bucket(5), []);
        assert_eq!(bucket(6), []);
        let value = value_of(backend, Partition::segment(loaded, 0), b"").expect("get");
        assert_eq!(value.as_deref(), Some(b"".as_slice()));
        assert_eq!(backend.segments(SHARD).expect("segments"), [loaded]);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn each_shard_has_its_own(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = segment(SegmentId::of(0, 7).0, 1, tier);
    let other = segment(SegmentId::of(3, 7).0, 2, tier);
    for (n, loaded) in [own, other].into_iter().enumerate() {
        load(&*backend, loaded, 0, &[row(b"k", &[n as u8])]);
    }
    let check = |backend: &dyn Backend| {
        assert_eq!(backend.segments(SHARD).expect("segments"), [own]);
        assert_eq!(backend.segments(Shard(3)).expect("segments"), [other]);
        assert_eq!(backend.segments(Shard(1)).expect("segments"), []);
        let rows = collect_all(backend, Partition::segment(other, 0));
        assert_eq!(rows, [row(b"k", &[1])]);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn segments_are_apart(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let all = [
        segment(1, 1, tier),
        segment(2, 1, tier),
        segment((1 << 48) - 1, 1, tier),
        segment(3, 2, tier),
        segment(4, u64::MAX, tier),
    ];
    for (n, &loaded) in all.iter().enumerate() {
        load(&*backend, loaded, 0, &[row(b"k", &[n as u8])]);
    }
    let check = |backend: &dyn Backend| {
        for (n, &loaded) in all.iter().enumerate() {
            let rows = collect_all(backend, Partition::segment(loaded, 0));
            assert_eq!(rows, [row(b"k", &[n as u8])]);
        }
        let missing = Partition::segment(segment(9, 1, tier), 0);
        assert_eq!(collect_all(backend, missing), []);
        let no_group = Partition::segment(segment(9, 9, tier), 0);
        assert_eq!(value_of(backend, no_group, b"k").expect("get"), None);
        let mut held = backend.segments(SHARD).expect("segments");
        held.sort();
        let mut wanted = all.to_vec();
        wanted.sort();
        assert_eq!(held, wanted);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn a_failed_load_is_reclaimed(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let kept = segment(1, 1, tier);
    load(&*backend, kept, 0, &[row(b"k", b"kept")]);
    for failed in [segment(2, 1, tier), segment(3, 2, tier)] {
        let rows: Vec<Result<Row>> = vec![
            Ok(row(b"a", b"")),
            Ok(row(b"b", b"")),
            Err(BackendError::corrupt("the source of rows failed")),
        ];
        let answer = backend.load(failed, 0, &mut rows.into_iter());
        assert_eq!(
            answer.expect_err("the rows' error").kind(),
            ErrorKind::Corrupt,
            "the error of the rows is returned"
        );
        backend.reclaim(failed).expect("reclaim");
        assert_eq!(collect_all(&*backend, Partition::segment(failed, 0)), []);
    }
    assert_eq!(backend.segments(SHARD).expect("segments"), [kept]);
    let backend = reopen(fixture, backend);
    assert_eq!(backend.segments(SHARD).expect("segments"), [kept]);
    assert_eq!(
        collect_all(&*backend, Partition::segment(kept, 0)),
        [row(b"k", b"kept")]
    );
}

fn reclaim_is_exact_and_repeatable(fixture: &dyn Fixture, tier: Tier) {
    let mut backend = fixture.open();
    let rows: Vec<_> = (0..500_u16).map(|n| row(&n.to_be_bytes(), &[7; 100])).collect();
    let all = [
        segment(1, 1, tier),
        segment(2, 1, tier),
        segment(3, 1, tier),
        segment(4, 2, tier),
    ];
    for loaded in all {
        load(&*backend, loaded, 0, &rows);
        load(&*backend, loaded, 9, &rows);
    }
    for (n, &gone) in all.iter().enumerate() {
        for _ in 0..2 {
            backend.reclaim(gone).expect("reclaim");
            assert_eq!(collect_all(&*backend, Partition::segment(gone, 9)), []);
            assert_eq!(backend.segments(SHARD).expect("segments"), all[n + 1..]);
        }
        backend = reopen(fixture, backend);
        assert_eq!(backend.segments(SHARD).expect("segments"), all[n + 1..]);
        for &left in &all[n + 1..] {
            assert_eq!(collect_all(&*backend, Partition::segment(left, 0)), rows);
        }
    }
    backend
        .reclaim(segment(99, 99, tier))
        .expect("a segment that never was");
    load(&*backend, segment(5, 1, tier), 0, &rows);
    assert_eq!(backend.segments(SHARD).expect("segments"), [segment(5, 1, tier)]);
}

fn loads_are_checked(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let refuse = |rows: Vec<Row>| {
        let answer = backend.load(segment(1, 1, tier), 0, &mut rows.into_iter().map(Ok));
        answer.expect_err("a wrong load").kind()
    };
    let long = vec![0; KEY_BYTES_MAX + 1];
    assert_eq!(refuse(vec![row(&long, b"")]), ErrorKind::TooLarge);
    let large = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(refuse(vec![row(b"k", &large)]), ErrorKind::TooLarge);
    assert_eq!(refuse(vec![row(b"b", b""), row(b"a", b"")]), ErrorKind::Refused);
    assert_eq!(refuse(vec![row(b"a", b""), row(b"a", b"")]), ErrorKind::Refused);
    load(&*backend, segment(2, 1, tier), 0, &[row(&long[1..], &large[1..])]);
}

fn a_large_load_is_paged(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let loaded = segment(1, 1, tier);
    let rows: Vec<_> = (0..2_000_u32)
        .map(|n| row(&(n * 3).to_be_bytes(), &vec![n as u8; (n % 700) as usize]))
        .collect();
    load(&*backend, loaded, 0, &rows);
    let partition = Partition::segment(loaded, 0);
    let limit = PageLimit {
        rows_max: 77,
        bytes_max: 10_000,
    };
    let up = collect(&*backend, partition, &KeyRange::ALL, Direction::Ascending, limit);
    assert!(up == rows, "ascending");
    let mut down = collect(&*backend, partition, &KeyRange::ALL, Direction::Descending, limit);
    down.reverse();
    assert!(down == rows, "descending");
    let range = KeyRange::new(300_u32.to_be_bytes(), 601_u32.to_be_bytes());
    let part = collect(&*backend, partition, &range, Direction::Ascending, limit);
    assert!(part == rows[100..201], "a range");
}
