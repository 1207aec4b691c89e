//! Rules of parts: rows that are changed in place, sorted and buffered writes, isolation from other units, pages,
//! listing, and reclaim.
//!
//! Each rule runs once per tier.

use super::*;
use bytes::Bytes;

pub(super) const RULES: &[TierRule] = &[
    (
        "rows of a part are written, replaced and deleted, also after a restart",
        rows_are_written_in_place,
    ),
    (
        "parts are isolated from other parts, spaces and segments",
        parts_are_apart,
    ),
    ("buckets of a part are isolated", buckets_are_apart),
    ("the buckets of parts and segments are listed", buckets_are_listed),
    ("a write to a part is never seen in part", writes_are_atomic),
    (
        "sorted writes of a part are writes, whatever their size",
        sorted_writes_are_writes,
    ),
    (
        "buffered rows of a part are visible at once, and kept by a sync",
        buffered_rows_are_visible,
    ),
    ("a large part is paged both ways", a_large_part_is_paged),
    (
        "a scan of many ranges of parts returns pages in their order",
        many_ranges_at_once,
    ),
    ("a shard lists its own parts only", each_shard_has_its_own),
    (
        "reclaim frees all buckets of one part, and may be repeated",
        reclaim_is_exact_and_repeatable,
    ),
    (
        "reclaim frees rows that were replaced and deleted many times",
        reclaim_frees_old_rows,
    ),
];

fn part(part: u64, table: u32, tier: Tier) -> PartRef {
    PartRef {
        part: PartId(part),
        table: TableId(table),
        tier,
    }
}

fn write(backend: &dyn Backend, part: PartRef, bucket: u16, changes: &[RowChange], stamp: u64) {
    backend
        .write(
            Partition::part(part, bucket),
            changes,
            Stamp(stamp),
            Durability::Synced,
        )
        .expect("write");
}

fn held(backend: &dyn Backend) -> Vec<PartRef> {
    backend.parts(SHARD).expect("parts")
}

fn sorted_writes_are_writes(fixture: &dyn Fixture, tier: Tier) {
    let (own, other) = (part(7, 3, tier), part(8, 3, tier));
    let partition = Partition::part(own, 2);
    let key = |n: usize| format!("key {n:06}").into_bytes();
    let mut stamp = 0;
    let mut expected = BTreeMap::new();
    let backend = fixture.open();
    write(&*backend, other, 2, &[put(b"key 000003", b"another part")], 1_000);
    // Some rounds write a few bytes, which fit into a log. Others write several megabytes, for which a backend may
    // create a separate file.
    for (round, (count, bytes)) in [(10, 10), (3_000, 1_000), (40, 20), (2_500, 2_000)]
        .into_iter()
        .enumerate()
    {
        let changes: Vec<RowChange> = (0..count)
            .map(|n| match (n + round) % 5 {
                0 => delete(&key(n)),
                _ => put(&key(n), &[round as u8].repeat(bytes + n % 7)),
            })
            .collect();
        for change in &changes {
            match &change.value {
                Some(value) => expected.insert(change.key.clone(), value.clone()),
                None => expected.remove(&change.key),
            };
        }
        let groups: Vec<Vec<RowChange>> = changes.chunks(700).map(<[RowChange]>::to_vec).collect();
        stamp += 1;
        backend
            .write_sorted(partition, &groups, Stamp(stamp))
            .expect("a sorted write");
        // A later write of single rows is newer than a sorted one.
        stamp += 1;
        write(
            &*backend,
            own,
            2,
            &[put(&key(1), b"single"), delete(&key(2))],
            stamp,
        );
        expected.insert(key(1).into(), Bytes::from_static(b"single"));
        expected.remove(&key(2)[..]);
        let found = collect_all(&*backend, partition);
        let found: Vec<_> = found.into_iter().map(|row| (row.key, row.value)).collect();
        assert!(
            found == expected.clone().into_iter().collect::<Vec<_>>(),
            "round {round}"
        );
    }
    assert_eq!(collect_all(&*backend, Partition::part(other, 2)).len(), 1);
    let wrong = [vec![put(b"b", b"")], vec![put(b"a", b"")]];
    stamp += 1;
    let refused = backend.write_sorted(partition, &wrong, Stamp(stamp));
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Refused));

    backend.sync_rows(SHARD).expect("a sync");
    // Writes groups that are durable on return, in both sizes.
    for (first, bytes) in [(5_000, 10), (6_000, 20_000)] {
        let group = |from: usize| {
            (from..from + 50)
                .map(|n| put(&key(n), &vec![b'v'; bytes]))
                .collect()
        };
        let groups: [Vec<RowChange>; 2] = [group(first), group(first + 50)];
        stamp += 1;
        backend
            .load_sorted(partition, &groups, Stamp(stamp))
            .expect("a durable sorted write");
        expected.extend(groups.into_iter().flatten().map(|change| {
            let value = change.value.expect("it puts");
            (change.key, value)
        }));
    }
    let backend = reopen(fixture, backend);
    let found = collect_all(&*backend, partition);
    assert_eq!(found.len(), expected.len());
    // A removed range may be a part of a file, whole files, or empty.
    let removed = KeyRange::new(key(5_090), key(6_050));
    for _ in 0..2 {
        stamp += 1;
        backend
            .remove_rows(partition, &removed, Stamp(stamp))
            .expect("a removal");
        expected.retain(|key, _| !removed.contains(key));
        let found = collect_all(&*backend, partition);
        let found: Vec<_> = found.into_iter().map(|row| (row.key, row.value)).collect();
        assert!(found == expected.clone().into_iter().collect::<Vec<_>>());
    }
    backend.reclaim_part(own).expect("reclaim");
    assert_eq!(collect_all(&*backend, partition), []);
    assert_eq!(collect_all(&*backend, Partition::part(other, 2)).len(), 1);
}

fn rows_are_written_in_place(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(7, 3, tier);
    let partition = Partition::part(own, 2);
    assert_eq!(collect_all(&*backend, partition), [], "nothing was written");
    assert_eq!(held(&*backend), []);
    write(&*backend, own, 2, &[], 1);
    assert_eq!(held(&*backend), [], "an empty write creates no part");
    let all = [
        put(b"", b""),
        put(b"a", b"1"),
        put(b"b", b"2"),
        put(b"\xff", b"3"),
    ];
    for _ in 0..2 {
        write(&*backend, own, 2, &all, 2);
    }
    write(
        &*backend,
        own,
        2,
        &[put(b"a", b"new"), delete(b"b"), delete(b"no")],
        3,
    );
    let wanted = [row(b"", b""), row(b"a", b"new"), row(b"\xff", b"3")];
    let check = |backend: &dyn Backend| {
        assert_eq!(collect_all(backend, partition), wanted);
        assert_eq!(held(backend), [own]);
        let get = |key: &[u8]| backend.get(partition, key).expect("get");
        assert_eq!(get(b"a"), Some(Bytes::from_static(b"new")));
        assert_eq!((get(b"b"), get(b"a\x00")), (None, None));
        let first = |from: &[u8]| backend.first(partition, from).expect("first");
        assert_eq!(first(b"a"), Some(row(b"a", b"new")));
        assert_eq!(
            first(b"a\x00"),
            Some(row(b"\xff", b"3")),
            "deleted rows are skipped"
        );
        assert_eq!(first(b"\xff\x00"), None);
        assert_eq!(backend.tier_health(tier), Health::Ready);
    };
    check(&*backend);
    let backend = reopen(fixture, backend);
    check(&*backend);
    write(&*backend, own, 2, &[put(b"b", b"again")], 4);
    let backend = reopen(fixture, backend);
    assert_eq!(collect_all(&*backend, partition).len(), 4);
}

fn parts_are_apart(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    // The encoded numbers of the space, the segment and the parts share bytes.
    let parts = [
        part(1, 1, tier),
        part(2, 1, tier),
        part(3, 0, tier),
        part(4, u32::MAX, tier),
        part((1 << 48) - 1, u32::MAX, tier),
    ];
    for (n, &own) in parts.iter().enumerate() {
        write(&*backend, own, 1, &[put(b"k", &[n as u8])], 1);
    }
    let space = Partition::space(Space(1), 1);
    backend
        .write(space, &[put(b"k", b"space")], Stamp(1), Durability::Synced)
        .expect("write");
    let loaded = segment(1, 1, tier);
    load(&*backend, loaded, 1, &[row(b"k", b"segment")]);
    let check = |backend: &dyn Backend| {
        for (n, &own) in parts.iter().enumerate() {
            let rows = collect_all(backend, Partition::part(own, 1));
            assert_eq!(rows, [row(b"k", &[n as u8])]);
        }
        assert_eq!(collect_all(backend, space), [row(b"k", b"space")]);
        let of_segment = collect_all(backend, Partition::segment(loaded, 1));
        assert_eq!(of_segment, [row(b"k", b"segment")]);
        assert_eq!(collect_all(backend, Partition::part(part(9, 1, tier), 1)), []);
        assert_eq!(held(backend), parts, "sorted by part");
        assert_eq!(backend.segments(SHARD).expect("segments"), [loaded]);
    };
    check(&*backend);
    let backend = reopen(fixture, backend);
    check(&*backend);
    backend.reclaim(loaded).expect("reclaim");
    for own in parts {
        backend.reclaim_part(own).expect("reclaim");
    }
    assert_eq!(held(&*backend), []);
    assert_eq!(collect_all(&*backend, space), [row(b"k", b"space")]);
}

fn buckets_are_apart(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(1, 1, tier);
    let buckets = [0, 1, 0x0100, u16::MAX];
    for bucket in buckets {
        write(&*backend, own, bucket, &[put(b"k", &bucket.to_be_bytes())], 1);
    }
    for bucket in buckets {
        let rows = collect_all(&*backend, Partition::part(own, bucket));
        assert_eq!(rows, [row(b"k", &bucket.to_be_bytes())]);
    }
    assert_eq!(collect_all(&*backend, Partition::part(own, 2)), []);
    assert_eq!(held(&*backend), [own], "a part is listed once");
}

fn buckets_are_listed(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    // The encoded numbers of the parts and of the segments are neighbors.
    let parts = [part(1, 1, tier), part(2, 1, tier)];
    let segments = [segment(1, 5, tier), segment(2, 5, tier)];
    let buckets = [[0, 1, 0x0100, u16::MAX].as_slice(), &[3]];
    for (&part, buckets) in parts.iter().zip(buckets) {
        for &bucket in buckets {
            write(&*backend, part, bucket, &[put(b"k", b"v"), put(b"l", b"w")], 1);
        }
    }
    for (&segment, buckets) in segments.iter().zip(buckets) {
        for &bucket in buckets {
            load(&*backend, segment, bucket, &[row(b"k", b"v"), row(b"l", b"w")]);
        }
    }
    let check = |backend: &dyn Backend| {
        let of = |unit| backend.buckets(unit).expect("buckets");
        for (n, expected) in buckets.into_iter().enumerate() {
            assert_eq!(of(Unit::Part(parts[n])), expected);
            assert_eq!(of(Unit::Segment(segments[n])), expected);
        }
        assert_eq!(of(Unit::Part(part(3, 1, tier))), []);
        assert_eq!(of(Unit::Segment(segment(3, 6, tier))), []);
        assert_eq!(of(Unit::Space(Space(1))), []);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn writes_are_atomic(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(1, 1, tier);
    let keys: Vec<_> = (0..50_u8).map(|n| [n]).collect();
    let rounds = 100_u64;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=rounds {
                let value = round.to_be_bytes();
                let changes: Vec<_> = keys.iter().map(|key| put(key, &value)).collect();
                write(&*backend, own, 0, &changes, round);
            }
        });
        while !writer.is_finished() {
            super::rows::assert_one_value(&*backend, Partition::part(own, 0));
        }
    });
    assert_eq!(collect_all(&*backend, Partition::part(own, 0)).len(), keys.len());
}

fn buffered_rows_are_visible(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(1, 1, tier);
    let partition = Partition::part(own, 0);
    for n in 0..10_u8 {
        backend
            .write(partition, &[put(&[n], b"")], Stamp(1), Durability::Buffered)
            .expect("write");
        assert_eq!(collect_all(&*backend, partition).len(), usize::from(n) + 1);
    }
    assert_eq!(held(&*backend), [own]);
    backend.sync_rows(SHARD).expect("sync");
    let backend = reopen(fixture, backend);
    assert_eq!(collect_all(&*backend, partition).len(), 10);
    assert_eq!(backend.tier_health(tier), Health::Ready);
}

fn numbered(count: u32) -> Vec<RowChange> {
    let value = |n: u32| vec![n as u8; (n % 300) as usize];
    (0..count).map(|n| put(&n.to_be_bytes(), &value(n))).collect()
}

fn fill(backend: &dyn Backend, part: PartRef, bucket: u16, count: u32, stamp: u64) {
    for changes in numbered(count).chunks(WRITE_ROWS_MAX) {
        write(backend, part, bucket, changes, stamp);
    }
}

fn a_large_part_is_paged(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(1, 1, tier);
    fill(&*backend, own, 3, 2_500, 1);
    let wanted: Vec<_> = numbered(2_500)
        .into_iter()
        .map(|change| Row {
            key: change.key,
            value: change.value.unwrap_or_default(),
        })
        .collect();
    let partition = Partition::part(own, 3);
    let limit = PageLimit {
        rows_max: 77,
        bytes_max: 5_000,
    };
    let up = collect(&*backend, partition, &KeyRange::ALL, Direction::Ascending, limit);
    assert!(up == wanted, "ascending");
    let mut down = collect(&*backend, partition, &KeyRange::ALL, Direction::Descending, limit);
    down.reverse();
    assert!(down == wanted, "descending");
    let range = KeyRange::new(300_u32.to_be_bytes(), 601_u32.to_be_bytes());
    let some = collect(&*backend, partition, &range, Direction::Ascending, limit);
    assert!(some == wanted[300..601], "a range");
}

fn many_ranges_at_once(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let parts = [part(1, 1, tier), part(2, 1, tier), part(3, 2, tier)];
    for own in &parts[..2] {
        for bucket in 0..4 {
            fill(&*backend, *own, bucket, 100 + u32::from(bucket), 1);
        }
    }
    let mut ranges = Vec::new();
    for n in (0..100_u32).rev() {
        let keys = KeyRange::new(n.to_be_bytes(), (n + n % 4).to_be_bytes());
        let partition = Partition::part(parts[n as usize % 3], (n % 5) as u16);
        ranges.push(ScanRange { partition, keys });
    }
    let pages = backend.scan_many(&ranges, EVERYTHING).expect("scan");
    assert_eq!(pages.len(), ranges.len());
    for (range, page) in ranges.iter().zip(pages) {
        let direction = Direction::Ascending;
        let alone = collect(&*backend, range.partition, &range.keys, direction, EVERYTHING);
        assert_eq!(page.rows, alone, "{range:?}");
        assert_eq!(page.next, None);
    }
}

fn each_shard_has_its_own(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let own = part(PartId::of(0, 7).0, 1, tier);
    let other = part(PartId::of(3, 7).0, 1, tier);
    for (n, written) in [own, other].into_iter().enumerate() {
        write(&*backend, written, 0, &[put(b"k", &[n as u8])], 1);
    }
    let check = |backend: &dyn Backend| {
        assert_eq!(held(backend), [own]);
        assert_eq!(backend.parts(Shard(3)).expect("parts"), [other]);
        assert_eq!(backend.parts(Shard(1)).expect("parts"), []);
    };
    check(&*backend);
    let backend = reopen(fixture, backend);
    check(&*backend);
    backend.reclaim_part(own).expect("reclaim");
    assert_eq!(held(&*backend), []);
    let rows = collect_all(&*backend, Partition::part(other, 0));
    assert_eq!(rows, [row(b"k", &[1])]);
}

fn reclaim_is_exact_and_repeatable(fixture: &dyn Fixture, tier: Tier) {
    let mut backend = fixture.open();
    let all = [
        part(1, 1, tier),
        part(2, 1, tier),
        part(3, 1, tier),
        part(4, 2, tier),
    ];
    backend.reclaim_part(all[0]).expect("a part that never was");
    for own in all {
        for bucket in [0, 9, u16::MAX] {
            fill(&*backend, own, bucket, 200, 1);
        }
    }
    let rows = collect_all(&*backend, Partition::part(all[0], 9));
    for (n, &gone) in all.iter().enumerate() {
        for _ in 0..2 {
            backend.reclaim_part(gone).expect("reclaim");
            for bucket in [0, 9, u16::MAX] {
                assert_eq!(collect_all(&*backend, Partition::part(gone, bucket)), []);
            }
            assert_eq!(held(&*backend), all[n + 1..]);
        }
        backend = reopen(fixture, backend);
        assert_eq!(held(&*backend), all[n + 1..]);
        for &left in &all[n + 1..] {
            for bucket in [0, 9, u16::MAX] {
                assert_eq!(collect_all(&*backend, Partition::part(left, bucket)), rows);
            }
        }
    }
    let next = part(5, 1, tier);
    write(&*backend, next, 0, &[put(b"k", b"v")], 2);
    assert_eq!(held(&*backend), [next]);
}

fn reclaim_frees_old_rows(fixture: &dyn Fixture, tier: Tier) {
    let backend = fixture.open();
    let (own, other) = (part(1, 1, tier), part(2, 1, tier));
    for stamp in 1..=5 {
        fill(&*backend, own, 0, 1_100, stamp);
        fill(&*backend, other, 0, 100, stamp);
        let gone: Vec<_> = (0..50_u32).map(|n| delete(&n.to_be_bytes())).collect();
        write(&*backend, own, 0, &gone, stamp);
    }
    backend.reclaim_part(own).expect("reclaim");
    let check = |backend: &dyn Backend| {
        assert_eq!(collect_all(backend, Partition::part(own, 0)), []);
        assert_eq!(collect_all(backend, Partition::part(other, 0)).len(), 100);
        assert_eq!(held(backend), [other]);
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}
