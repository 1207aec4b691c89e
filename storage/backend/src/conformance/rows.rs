//! Rules of rows in key spaces: order, pages, bounds, isolation, atomic writes, limits, restarts, and calls after a
//! close.
//!
//! Keys are chosen so that signed or length-based comparisons fail.

use super::*;
use crate::error::ErrorKind;

pub(super) const RULES: &[Rule] = &[
    (
        "keys are in unsigned byte order, both ways, with pages of any size",
        order_and_pages,
    ),
    ("bounds are half-open", bounds_are_half_open),
    (
        "many ranges return their pages in order, each as if scanned alone",
        many_ranges_at_once,
    ),
    (
        "the first row from a key is that of a scan from this key",
        first_row_from_a_key,
    ),
    (
        "a page ends after the row that passes its bytes",
        pages_end_by_bytes,
    ),
    ("partitions are isolated", partitions_are_apart),
    (
        "a write replaces, deletes and may be repeated",
        writes_replace_and_repeat,
    ),
    ("a removal of a range removes no other row", ranges_are_removed),
    ("a write is never seen in part", writes_are_atomic),
    ("limits are kept", limits_are_kept),
    ("rows survive a restart", rows_survive_a_restart),
    (
        "buffered rows are visible at once, and kept by a close and by a sync",
        buffered_rows_are_visible,
    ),
    ("every call after close fails", calls_after_close_fail),
];

/// Keys in correct order. Signed or length-based comparisons would sort them differently.
const KEYS: [&[u8]; 10] = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\xff",
    b"b",
    b"\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];

fn fill(backend: &dyn Backend) {
    let changes: Vec<_> = KEYS.iter().rev().map(|key| put(key, key)).collect();
    backend
        .write(ROWS, &changes, Stamp(1), Durability::Synced)
        .expect("write");
}

fn order_and_pages(fixture: &dyn Fixture) {
    let backend = fixture.open();
    fill(&*backend);
    let wanted: Vec<_> = KEYS.iter().map(|key| row(key, key)).collect();
    let reversed: Vec<_> = wanted.iter().rev().cloned().collect();
    for rows_max in [1, 2, 3, KEYS.len() - 1, KEYS.len(), usize::MAX] {
        let limit = PageLimit {
            rows_max,
            bytes_max: usize::MAX,
        };
        let up = collect(&*backend, ROWS, &KeyRange::ALL, Direction::Ascending, limit);
        assert_eq!(up, wanted, "ascending, {rows_max} rows a page");
        let down = collect(&*backend, ROWS, &KeyRange::ALL, Direction::Descending, limit);
        assert_eq!(down, reversed, "descending, {rows_max} rows a page");
    }
    for key in KEYS {
        let value = value_of(&*backend, ROWS, key).expect("get");
        assert_eq!(
            value.as_deref(),
            Some(key),
            "an empty key is a key, an empty value a value"
        );
    }
    assert_eq!(value_of(&*backend, ROWS, b"missing").expect("get"), None);
}

fn many_ranges_at_once(fixture: &dyn Fixture) {
    let backend = fixture.open();
    fill(&*backend);
    let loaded = segment(1, 1, Tier::Hot);
    let of_segment: Vec<_> = (0..300_u16).map(|n| row(&n.to_be_bytes(), &[1; 9])).collect();
    load(&*backend, loaded, 3, &of_segment);
    let partitions = [ROWS, Partition::segment(loaded, 3), Partition::segment(loaded, 4)];
    let mut ranges = Vec::new();
    for n in 0..100_u16 {
        for partition in partitions {
            let keys = match n {
                0 => KeyRange::ALL,
                n => KeyRange::new(n.to_be_bytes(), (n + n % 5).to_be_bytes()),
            };
            ranges.push(ScanRange { partition, keys });
        }
    }
    let alone = |range: &ScanRange| {
        let direction = Direction::Ascending;
        collect(&*backend, range.partition, &range.keys, direction, EVERYTHING)
    };
    let wanted: Vec<_> = ranges.iter().map(alone).collect();
    let in_flight = backend.capabilities().requests_in_flight;
    assert!(in_flight > 0);
    for (rows_max, bytes_max) in [(usize::MAX, usize::MAX), (1, 100), (7, usize::MAX), (1_000, 50)] {
        let limit = PageLimit { rows_max, bytes_max };
        let mut found = vec![Vec::new(); ranges.len()];
        let mut left: Vec<_> = (0..).zip(ranges.clone()).collect();
        while !left.is_empty() {
            let (numbers, asked): (Vec<usize>, Vec<ScanRange>) = left.into_iter().unzip();
            let pages = backend.scan_many(&asked, limit).expect("scan");
            assert_eq!(pages.len(), asked.len(), "one page for each range");
            let rows: usize = pages.iter().map(|page| page.rows.len()).sum();
            let most = rows_max.saturating_mul(1 + in_flight);
            assert!(rows <= most, "{rows} rows, the limit is {rows_max}");
            let first = &pages[0];
            assert!(!first.rows.is_empty() || first.next.is_none(), "no progress");
            left = Vec::new();
            for ((number, range), page) in numbers.into_iter().zip(asked).zip(pages) {
                found[number].extend(page.rows);
                let partition = range.partition;
                left.extend(page.next.map(|keys| (number, ScanRange { partition, keys })));
            }
        }
        assert!(found == wanted, "{rows_max} rows, {bytes_max} bytes at once");
    }
    assert_eq!(backend.scan_many(&[], EVERYTHING).expect("scan"), []);
}

fn first_row_from_a_key(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let neighbor = Partition::space(Space(1), 8);
    assert_eq!(
        backend.first(ROWS, b"").expect("first"),
        None,
        "nothing is stored"
    );
    backend
        .write(neighbor, &[put(b"", b"neighbor")], Stamp(1), Durability::Synced)
        .expect("write");
    assert_eq!(
        backend.first(ROWS, b"").expect("first"),
        None,
        "the row belongs to the next partition"
    );
    fill(&*backend);
    // Rows that are deleted or replaced later must be skipped, or returned with their last value.
    let changes = [put(b"a\x01", b"later"), put(b"a\x02", b"gone"), put(b"c", b"old")];
    backend
        .write(ROWS, &changes, Stamp(2), Durability::Synced)
        .expect("write");
    let changes = [delete(b"a\x02"), delete(b"b"), put(b"c", b"new")];
    backend
        .write(ROWS, &changes, Stamp(3), Durability::Synced)
        .expect("write");
    let check = |backend: &dyn Backend| {
        let all = collect_all(backend, ROWS);
        let between: [&[u8]; 7] = [
            b"a\x00\x00",
            b"a\x01\x00",
            b"a\x02",
            b"b\x00",
            b"c",
            b"d",
            &[0xff; 9],
        ];
        for from in KEYS.into_iter().chain(between) {
            let wanted = all.iter().find(|row| row.key >= from);
            let found = backend.first(ROWS, from).expect("first");
            assert_eq!(found.as_ref(), wanted, "from {from:?}");
        }
    };
    check(&*backend);
    check(&*reopen(fixture, backend));
}

fn bounds_are_half_open(fixture: &dyn Fixture) {
    let backend = fixture.open();
    fill(&*backend);
    for start in KEYS {
        for end in KEYS.iter().map(Some).chain([None]) {
            let range = KeyRange {
                start: start.to_vec(),
                end: end.map(|end| end.to_vec()),
            };
            for direction in [Direction::Ascending, Direction::Descending] {
                let tiny = PageLimit {
                    rows_max: 2,
                    bytes_max: usize::MAX,
                };
                let mut seen = collect(&*backend, ROWS, &range, direction, tiny);
                if direction == Direction::Descending {
                    seen.reverse();
                }
                let inside = KEYS.iter().filter(|key| range.contains(key));
                let wanted: Vec<_> = inside.map(|key| row(key, key)).collect();
                assert_eq!(seen, wanted, "{range:?}, {direction:?}");
            }
        }
    }
    let prefixed = KeyRange::prefix(b"a");
    let seen = collect(&*backend, ROWS, &prefixed, Direction::Ascending, EVERYTHING);
    assert_eq!(seen.len(), 3);
}

fn pages_end_by_bytes(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let changes: Vec<_> = (0..10_u8).map(|n| put(&[n], &[n; 99])).collect();
    backend
        .write(ROWS, &changes, Stamp(1), Durability::Synced)
        .expect("write");
    let limit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: 250,
    };
    let page = backend
        .scan(ROWS, &KeyRange::ALL, Direction::Ascending, limit)
        .expect("scan");
    assert_eq!(page.rows.len(), 3, "the third row passes 250 bytes");
    assert!(page.next.is_some());
    let all = collect(&*backend, ROWS, &KeyRange::ALL, Direction::Descending, limit);
    assert_eq!(all.len(), 10);
}

fn partitions_are_apart(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let partitions = [
        Partition::space(Space(1), 0),
        Partition::space(Space(1), 1),
        Partition::space(Space(1), u16::MAX),
        Partition::space(Space(2), 0),
        Partition::space(Space(u16::MAX), u16::MAX),
    ];
    for (n, partition) in partitions.into_iter().enumerate() {
        let changes = [put(b"", &[n as u8]), put(&[0xff; 20], &[n as u8])];
        backend
            .write(partition, &changes, Stamp(1), Durability::Synced)
            .expect("write");
    }
    for (n, partition) in partitions.into_iter().enumerate() {
        let wanted = [row(b"", &[n as u8]), row(&[0xff; 20], &[n as u8])];
        assert_eq!(collect_all(&*backend, partition), wanted);
        for row in wanted {
            let found = backend.get(partition, &row.key).expect("get");
            assert_eq!(found, Some(row.value), "a single row equals that of a scan");
        }
        for missing in [&b"\x00"[..], &[0xff; 19], &[0xff; 21]] {
            assert_eq!(backend.get(partition, missing).expect("get"), None);
        }
    }
}

fn writes_replace_and_repeat(fixture: &dyn Fixture) {
    let backend = fixture.open();
    backend
        .write(
            ROWS,
            &[put(b"a", b"1"), put(b"b", b"1")],
            Stamp(1),
            Durability::Synced,
        )
        .expect("write");
    for _ in 0..2 {
        let changes = [put(b"a", b"2"), delete(b"b"), delete(b"never")];
        backend
            .write(ROWS, &changes, Stamp(2), Durability::Synced)
            .expect("write");
        assert_eq!(collect_all(&*backend, ROWS), [row(b"a", b"2")]);
    }
    backend
        .write(ROWS, &[put(b"b", b"3")], Stamp(3), Durability::Synced)
        .expect("write");
    assert_eq!(collect_all(&*backend, ROWS), [row(b"a", b"2"), row(b"b", b"3")]);
    backend
        .write(ROWS, &[], Stamp(4), Durability::Synced)
        .expect("an empty write");
}

fn ranges_are_removed(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let partitions = [ROWS, Partition::space(Space(1), 8), Partition::space(Space(2), 7)];
    let key = |n: u16| n.to_be_bytes();
    for partition in partitions {
        for first in (0..2_500).step_by(500) {
            let changes: Vec<_> = (first..first + 500).map(|n| put(&key(n), b"1")).collect();
            backend
                .write(partition, &changes, Stamp(1), Durability::Buffered)
                .expect("write");
        }
    }
    let keys = |partition| {
        let rows = collect_all(&*backend, partition);
        rows.into_iter().map(|row| row.key.to_vec()).collect::<Vec<_>>()
    };
    let wanted = |numbers: &[std::ops::Range<u16>]| -> Vec<Vec<u8>> {
        let numbers = numbers.iter().cloned().flatten();
        numbers.map(|n| key(n).to_vec()).collect()
    };
    let removed = KeyRange::new(key(100), key(2_400));
    for stamp in [2, 3] {
        backend
            .remove_rows(ROWS, &removed, Stamp(stamp))
            .expect("a removal");
        assert_eq!(keys(ROWS), wanted(&[0..100, 2_400..2_500]));
    }
    let empty = KeyRange::new(key(5), key(5));
    backend.remove_rows(ROWS, &empty, Stamp(4)).expect("no row");
    backend
        .write(ROWS, &[put(&key(200), b"2")], Stamp(5), Durability::Synced)
        .expect("write");
    assert_eq!(keys(ROWS), wanted(&[0..100, 200..201, 2_400..2_500]));
    for other in &partitions[1..] {
        assert_eq!(keys(*other).len(), 2_500);
    }
    let backend = reopen(fixture, backend);
    assert_eq!(collect_all(&*backend, ROWS).len(), 201);
    backend
        .remove_rows(ROWS, &KeyRange::ALL, Stamp(6))
        .expect("a removal");
    assert_eq!(collect_all(&*backend, ROWS), []);
    for other in &partitions[1..] {
        assert_eq!(collect_all(&*backend, *other).len(), 2_500);
    }
}

/// Checks that all rows of each page have the value of one write.
pub(super) fn assert_one_value(backend: &dyn Backend, partition: Partition) {
    let mut rest = Some(KeyRange::ALL);
    while let Some(range) = rest {
        let page = backend.scan(partition, &range, Direction::Ascending, EVERYTHING);
        let page = page.expect("scan");
        assert!(
            page.rows.iter().all(|row| row.value == page.rows[0].value),
            "a page shows half a write"
        );
        rest = page.next;
    }
}

fn writes_are_atomic(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let keys: Vec<[u8; 2]> = (0..50_u16).map(u16::to_be_bytes).collect();
    let write = |stamp: u64| {
        let changes: Vec<_> = keys.iter().map(|key| put(key, &stamp.to_be_bytes())).collect();
        backend
            .write(ROWS, &changes, Stamp(stamp), Durability::Synced)
            .expect("write");
    };
    write(1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (2..40).for_each(write));
        while !writer.is_finished() {
            assert_one_value(&*backend, ROWS);
        }
    });
}

fn limits_are_kept(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let too_large = |changes: &[RowChange]| {
        let refused = backend.write(ROWS, changes, Stamp(1), Durability::Synced);
        assert_eq!(refused.expect_err("too large").kind(), ErrorKind::TooLarge);
    };
    too_large(&[put(&vec![0; KEY_BYTES_MAX + 1], b"")]);
    too_large(&[put(b"", &vec![0; VALUE_BYTES_MAX + 1])]);
    let many: Vec<_> = (0..=WRITE_ROWS_MAX).map(|n| put(&n.to_be_bytes(), b"")).collect();
    too_large(&many);
    let value = vec![0; WRITE_BYTES_MAX / 4];
    let wide: Vec<_> = (0..4_u8).map(|n| put(&[n], &value)).collect();
    too_large(&wide);
    assert_eq!(collect_all(&*backend, ROWS), [], "a refused write does nothing");
    let longest = vec![0xff; KEY_BYTES_MAX];
    backend
        .write(ROWS, &[put(&longest, b"value")], Stamp(1), Durability::Synced)
        .expect("the longest key");
    backend
        .write(ROWS, &many[..WRITE_ROWS_MAX], Stamp(1), Durability::Synced)
        .expect("the most rows");
    assert_eq!(collect_all(&*backend, ROWS).len(), WRITE_ROWS_MAX + 1);
    let written_to_a_segment = backend.write(
        Partition::segment(segment(1, 1, Tier::Hot), 0),
        &[put(b"k", b"v")],
        Stamp(1),
        Durability::Synced,
    );
    assert!(written_to_a_segment.is_err(), "segments are loaded, not written");
}

fn rows_survive_a_restart(fixture: &dyn Fixture) {
    let mut backend = fixture.open();
    for stamp in 1..4_u64 {
        let changes = [
            put(&stamp.to_be_bytes(), b"v"),
            delete(&(stamp - 1).to_be_bytes()),
        ];
        backend
            .write(ROWS, &changes, Stamp(stamp), Durability::Synced)
            .expect("write");
        backend = reopen(fixture, backend);
        assert_eq!(collect_all(&*backend, ROWS), [row(&stamp.to_be_bytes(), b"v")]);
    }
}

fn buffered_rows_are_visible(fixture: &dyn Fixture) {
    let mut backend = fixture.open();
    backend.sync_rows(SHARD).expect("a sync without rows");
    let mut wanted = Vec::new();
    for n in 0..6_u8 {
        let durability = match n % 3 {
            0 => Durability::Synced,
            _ => Durability::Buffered,
        };
        for partition in [ROWS, Partition::space(Space(2), 0)] {
            backend
                .write(partition, &[put(&[n], &[n])], Stamp(n.into()), durability)
                .expect("write");
        }
        wanted.push(row(&[n], &[n]));
        assert_eq!(collect_all(&*backend, ROWS), wanted);
        if n == 4 {
            backend.sync_rows(SHARD).expect("sync");
            backend.sync_rows(SHARD).expect("nothing is left to sync");
            drop(backend);
            backend = fixture.open();
        } else if n == 5 {
            backend = reopen(fixture, backend);
        }
        assert_eq!(collect_all(&*backend, ROWS), wanted);
    }
}

fn calls_after_close_fail(fixture: &dyn Fixture) {
    let backend = fixture.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    backend.close().expect("close");
    backend.close().expect("close is idempotent");
    let failures = [
        backend.take(SHARD).err(),
        value_of(&*backend, ROWS, b"k").err(),
        backend.get(ROWS, b"k").err(),
        backend.first(ROWS, b"k").err(),
        backend
            .scan(ROWS, &KeyRange::ALL, Direction::Ascending, EVERYTHING)
            .err(),
        backend
            .write(ROWS, &[put(b"k", b"v")], Stamp(1), Durability::Synced)
            .err(),
        backend
            .load(
                segment(1, 1, Tier::Hot),
                0,
                &mut [Ok(row(b"k", b"v"))].into_iter(),
            )
            .err(),
        backend
            .append(SHARD, epoch, &[entry(1, b"")], tideline_model::Durability::Synced)
            .err(),
        backend.manifest(SHARD).err(),
        backend.edit(SHARD, epoch, 0, &[]).err(),
        backend.sync_rows(SHARD).err(),
        backend.segments(SHARD).err(),
        backend.parts(SHARD).err(),
        backend.epochs(SHARD).err(),
    ];
    for (n, failure) in failures.iter().enumerate() {
        assert!(failure.is_some(), "call {n} of a closed backend works");
    }
    let reopened = {
        drop(backend);
        fixture.open()
    };
    assert_eq!(value_of(&*reopened, ROWS, b"k").expect("get"), None);
}
