//! Rows and values at the limits: pages of rows of different sizes, many deleted rows, the largest values.
//!
//! A page is one request to a node, so its length depends on the sizes of the rows that were read before.

use bytes::Bytes;
use tideline_backend::{
    Backend, Direction, KeyRange, PageLimit, Partition, Row, RowChange, ScanRange, SegmentRef, Space, Stamp,
    VALUE_BYTES_MAX,
};
use tideline_model::{Durability, GroupId, SegmentId, SequenceNumber, Tier};
use tideline_testkit::cassandra::shared_node;
use tideline_testkit::{Random, seed};

use crate::keyspace::{Keyspace, SHARD};
use tideline_backend::JournalEntry;

const ROWS: Partition = Partition::space(Space(7), 3);

/// Returns all rows of a partition, and checks the size of each page.
fn scanned(backend: &dyn Backend, direction: Direction, limit: PageLimit) -> Vec<Row> {
    let (mut rows, mut rest) = (Vec::new(), Some(KeyRange::ALL));
    while let Some(range) = rest {
        let page = backend.scan(ROWS, &range, direction, limit).expect("a page");
        assert!(page.rows.len() <= limit.rows_max);
        let sizes = page.rows.iter().map(|row| row.key.len() + row.value.len());
        let before_last: usize = sizes.rev().skip(1).sum();
        assert!(
            before_last < limit.bytes_max,
            "a page ends after the row that exceeds its limit, not after {before_last} bytes"
        );
        assert!(!page.rows.is_empty() || page.next.is_none());
        rows.extend(page.rows);
        rest = page.next;
    }
    rows
}

#[test]
fn pages_of_rows_of_different_sizes_are_complete() {
    let Some(contact) = shared_node() else { return };
    let mut random = Random::new(seed("pages_of_rows_of_different_sizes_are_complete"));
    let backend = Keyspace::new(contact);
    let keyspace = &backend;
    let backend = keyspace.open();
    let stamp = backend.take(SHARD).expect("the shard is free").stamp_min;
    let mut expected = Vec::new();
    for number in 0..400_u32 {
        let bytes = random.of(&[0, 1, 10, 10, 10, 1_000, 20_000, 300_000]);
        let row = Row {
            key: number.to_be_bytes().to_vec().into(),
            value: vec![number as u8; bytes].into(),
        };
        let change = RowChange {
            key: row.key.clone(),
            value: Some(row.value.clone()),
        };
        backend
            .write(ROWS, &[change], stamp, Durability::Synced)
            .expect("a write");
        expected.push(row);
    }
    let mut descending = expected.clone();
    descending.reverse();
    for (rows_max, bytes_max) in [
        (usize::MAX, 64 << 10),
        (50, 1 << 20),
        (3, usize::MAX),
        (usize::MAX, usize::MAX),
    ] {
        let limit = PageLimit { rows_max, bytes_max };
        assert!(
            scanned(&backend, Direction::Ascending, limit) == expected,
            "{limit:?}"
        );
        assert!(
            scanned(&backend, Direction::Descending, limit) == descending,
            "{limit:?}"
        );
    }
}

#[test]
fn a_partition_with_many_deleted_rows_is_scanned() {
    const DELETED: u32 = 20_000;
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let backend = keyspace.open();
    let stamp = backend.take(SHARD).expect("the shard is free").stamp_min;
    let numbers: Vec<u32> = (0..=DELETED).collect();
    for (value, ahead) in [(Some(Bytes::from_static(b"value")), 0), (None, 1)] {
        for numbers in numbers.chunks(1_000) {
            let changes = numbers
                .iter()
                .filter(|number| value.is_some() || **number != DELETED);
            let changes: Vec<RowChange> = changes
                .map(|number| RowChange {
                    key: number.to_be_bytes().to_vec().into(),
                    value: value.clone(),
                })
                .collect();
            let stamp = Stamp(stamp.0 + ahead);
            backend
                .write(ROWS, &changes, stamp, Durability::Synced)
                .expect("a write");
        }
    }
    let limit = PageLimit {
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    for direction in [Direction::Ascending, Direction::Descending] {
        let rows = scanned(&backend, direction, limit);
        assert_eq!(rows.len(), 1, "the last row is left");
        assert_eq!(rows[0].key, DELETED.to_be_bytes()[..]);
    }
}

#[test]
fn more_deleted_rows_than_a_node_reads_are_scanned() {
    /// Deleted rows in each of two groups; a node reads at most 100,000 for one request.
    const DELETED: u64 = 105_000;
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let backend = keyspace.open();
    let stamp = backend.take(SHARD).expect("the shard is free").stamp_min;
    let key = |number: u64| [&[1, 0, 0, 0, 5][..], &number.to_be_bytes()[..]].concat();
    let between = DELETED;
    // A delete leaves the same mark whether its row exists or not.
    let deleted: Vec<u64> = (0..=2 * DELETED).filter(|number| *number != between).collect();
    for numbers in deleted.chunks(1_000) {
        let changes = numbers.iter().map(|number| RowChange {
            key: key(*number).into(),
            value: None,
        });
        let changes: Vec<RowChange> = changes.collect();
        backend
            .write(ROWS, &changes, stamp, Durability::Synced)
            .expect("a write");
    }
    let live = [vec![0], key(between), vec![2, 3]];
    let puts = live.each_ref().map(|key| RowChange {
        key: key.clone().into(),
        value: Some(Bytes::from_static(b"value")),
    });
    backend
        .write(ROWS, &puts, stamp, Durability::Synced)
        .expect("a write");

    let limit = PageLimit {
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    let mut descending = live.clone();
    descending.reverse();
    for (direction, expected) in [
        (Direction::Ascending, &live),
        (Direction::Descending, &descending),
    ] {
        let rows = scanned(&backend, direction, limit);
        let keys: Vec<Vec<u8>> = rows.iter().map(|row| row.key.to_vec()).collect();
        assert_eq!(keys, expected, "{direction:?}");
    }
    let first = |from: &[u8]| {
        let row = backend.first(ROWS, from).expect("the first row");
        row.map(|row| row.key.to_vec())
    };
    assert_eq!(first(&[1]), Some(key(between)));
    assert_eq!(first(&key(between + 1)), Some(vec![2, 3]));
    assert_eq!(first(&[3]), None);
    let ranges = [KeyRange::prefix(&[1]), KeyRange::prefix(&[2])].map(|keys| ScanRange {
        partition: ROWS,
        keys,
    });
    let pages = backend.scan_many(&ranges, limit).expect("pages");
    let rows = pages.iter().flat_map(|page| &page.rows);
    let keys: Vec<Vec<u8>> = rows.map(|row| row.key.to_vec()).collect();
    assert_eq!(keys, live[1..]);
    let read = backend.requests()[0];
    assert!(read.failed == 0 && read.repeated > 0, "{read:?}");
}

#[test]
fn the_largest_value_is_stored_and_read() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let backend = keyspace.open();
    let epoch = backend.take(SHARD).expect("the shard is free").epoch;
    let value: Vec<u8> = (0..VALUE_BYTES_MAX).map(|at| ((at * 31) >> 7) as u8).collect();
    let value = Bytes::from(value);
    let segment = SegmentRef {
        segment: SegmentId(5),
        group: GroupId(5),
        tier: Tier::Hot,
    };
    let row = Row {
        key: "key".into(),
        value: value.clone(),
    };
    backend
        .load(segment, 0, &mut [Ok(row.clone())].into_iter())
        .expect("a load");
    let partition = Partition::segment(segment, 0);
    assert!(backend.get(partition, b"key").expect("a read") == Some(value.clone()));
    let limit = PageLimit {
        rows_max: 10,
        bytes_max: 1 << 20,
    };
    let page = backend.scan(partition, &KeyRange::ALL, Direction::Ascending, limit);
    assert!(page.expect("a page").rows == [row]);

    let entries = [1, 2].map(|sequence| JournalEntry {
        sequence: SequenceNumber(sequence),
        value: value.clone(),
    });
    backend
        .append(SHARD, epoch, &entries, Durability::Synced)
        .expect("an append");
    let mut count = 0;
    let replayed = backend.replay(SHARD, epoch, SequenceNumber(0), &mut |_, found| {
        assert!(found == value);
        count += 1;
        Ok(())
    });
    replayed.expect("a replay");
    assert_eq!(count, 2);
}
