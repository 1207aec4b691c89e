//! Blocks of a part: which rows are packed, how deleted rows are removed, parts of earlier builds, and damage.
//!
//! The tests in `model.rs` use blocks of several sizes and compare the results with a naive model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{
    Backend, Direction, EditOutcome, ManifestChange, ManifestRow, Row, RowChange, Stamp, Unit,
};
use tideline_log::SHARD;
use tideline_model::{Durability, KeyRange};
use tideline_wide_table::Settings;
use tideline_wide_table::check::{JournalChanges, StoredParts, check_rows};

use super::database::*;
use super::paused::{Call, paused_backend};

/// Returns the rows that the backend stores in a bucket of the part.
fn stored(backend: &dyn Backend, of: u16) -> Vec<Row> {
    stored_rows(backend, bucket(backend, of))
}

/// Returns settings with blocks of this size.
fn blocks_of(block_bytes: usize) -> Settings {
    Settings {
        block_bytes,
        ..settings()
    }
}

fn put_rows(database: &Database, numbers: impl Iterator<Item = usize>, value: i64) {
    let numbers: Vec<usize> = numbers.collect();
    for numbers in numbers.chunks(500) {
        let writes: Vec<_> = numbers
            .iter()
            .map(|number| put(&key(*number), 1, &[("a", value), ("b", *number as i64)]))
            .collect();
        database.write(&writes);
    }
}

/// Deletes nine of ten rows. A later flush joins the small blocks that are left.
fn delete_most(database: &Database, numbers: std::ops::Range<usize>) {
    let deletes = deletes(numbers.filter(|number| number % 10 != 0), 4);
    for deletes in deletes.chunks(500) {
        database.write(deletes);
    }
}

fn assert_rows(database: &Database, expected: &[(usize, i64)]) {
    for (direction, page) in [(Direction::Ascending, 300), (Direction::Descending, 7)] {
        let mut rows = database.rows(KeyRange::ALL, direction, page);
        if direction == Direction::Descending {
            rows.reverse();
        }
        let found: Vec<(Bytes, i64)> = rows
            .iter()
            .map(|(key, row)| (key.clone(), number(row, "a").expect("it is set")))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(number, value)| (Bytes::from(key(*number)), *value))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn rows_are_packed_once_enough_of_them_are_neighbors() {
    every_backend(|backend| {
        let backend = backend();
        let database = Database::open_with(Arc::clone(&backend), 1, blocks_of(1_000));
        put_rows(&database, (0..1_000).map(|number| number * 2), 1);
        database.flush();
        assert_eq!(stored(&*backend, SINGLES), []);
        let blocks = stored(&*backend, BLOCKS).len();
        assert!((20..60).contains(&blocks), "{blocks} blocks of about 30 rows");

        // Few changed rows stay single. Reads return them.
        put_rows(&database, std::iter::once(501), 2);
        database.flush();
        assert_eq!(stored(&*backend, SINGLES).len(), 1);
        let mut expected: Vec<(usize, i64)> = (0..1_000).map(|number| (number * 2, 1)).collect();
        expected.insert(251, (501, 2));
        assert_rows(&database, &expected);

        // With further changed rows in the same block, the row is packed.
        let nearby = || (491..512).step_by(2).filter(|number| *number != 501);
        put_rows(&database, nearby(), 3);
        database.flush();
        assert_eq!(stored(&*backend, SINGLES), []);
        expected.extend(nearby().map(|number| (number, 3)));
        expected.sort_unstable();
        assert_rows(&database, &expected);
        database.close();
    });
}

#[test]
fn single_rows_are_packed_with_later_neighbors_wherever_they_are() {
    every_backend(|backend| {
        let backend = backend();
        let database = Database::open_with(Arc::clone(&backend), 1, blocks_of(1_000));
        put_rows(&database, (0..1_000).map(|number| number * 2), 1);
        database.flush();
        let mut expected: Vec<(usize, i64)> = (0..1_000).map(|number| (number * 2, 1)).collect();
        let mut put = |numbers: Vec<usize>, value| {
            put_rows(&database, numbers.iter().copied(), value);
            database.flush();
            expected.extend(numbers.into_iter().map(|number| (number, value)));
            expected.sort_unstable();
            assert_rows(&database, &expected);
            stored(&*backend, SINGLES).len()
        };
        let near = |middle: usize| {
            (middle - 40..middle + 41)
                .step_by(2)
                .filter(move |number| *number != middle)
        };
        assert_eq!(put(vec![301, 901, 1_501], 2), 3, "few rows stay single");
        assert_eq!(put(near(901).collect(), 3), 2);
        // Rows above the last block, where the flush finds no single row.
        assert_eq!(put((2_001..2_200).collect(), 4), 2);
        assert_eq!(put(near(301).chain(near(1_501)).collect(), 5), 0);
        database.close();
    });
}

#[test]
fn a_part_whose_rows_are_deleted_stores_nothing() {
    every_backend(|backend| {
        let backend = backend();
        let database = Database::open(Arc::clone(&backend), 1);
        put_rows(&database, 0..2_000, 1);
        database.flush();
        database.write(&deletes(0..1_000, 2));
        database.flush();
        let left: Vec<(usize, i64)> = (1_000..2_000).map(|number| (number, 1)).collect();
        assert_rows(&database, &left);
        assert_eq!(stored(&*backend, SINGLES), []);

        let range = KeyRange::new(key(1_001).as_bytes(), key(1_998).as_bytes());
        database.delete_rows(range);
        database.flush();
        assert_rows(&database, &[(1_000, 1), (1_998, 1), (1_999, 1)]);
        database.delete_rows(KeyRange::ALL);
        database.flush();
        assert_rows(&database, &[]);
        assert_eq!(
            (stored(&*backend, SINGLES), stored(&*backend, BLOCKS)),
            (vec![], vec![])
        );
        database.close();
    });
}

#[test]
fn blocks_that_deletes_leave_small_are_joined() {
    every_backend(|backend| {
        let backend = backend();
        let database = Database::open(Arc::clone(&backend), 1);
        put_rows(&database, 0..3_000, 1);
        database.flush();
        let before = stored(&*backend, BLOCKS).len();
        delete_most(&database, 0..3_000);
        database.flush();
        let after = stored(&*backend, BLOCKS).len();
        assert!(after * 6 < before, "{before} blocks before, {after} after");
        let left: Vec<(usize, i64)> = (0..300).map(|number| (number * 10, 1)).collect();
        assert_rows(&database, &left);
        database.close();
    });
}

#[test]
fn blocks_that_later_flushes_leave_small_are_joined_with_earlier_ones() {
    every_backend(|backend| {
        let backend = backend();
        let database = Database::open_with(Arc::clone(&backend), 1, blocks_of(1_000));
        put_rows(&database, 0..3_000, 1);
        database.flush();
        let before = stored(&*backend, BLOCKS).len();
        for first in (0..3_000).step_by(60) {
            delete_most(&database, first..first + 60);
            database.flush();
        }
        // Without the earlier blocks, each flush would leave at least one block.
        let after = stored(&*backend, BLOCKS).len();
        assert!(after * 4 < before, "{before} blocks before, {after} after");
        let left: Vec<(usize, i64)> = (0..300).map(|number| (number * 10, 1)).collect();
        assert_rows(&database, &left);
        database.close();
    });
}

#[test]
fn scans_in_both_directions_miss_no_row_while_blocks_are_cut_and_joined() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let kept = |number: &usize| number.is_multiple_of(10);
        put_rows(&database, 0..1_000, 1);
        database.flush();
        let expected: Vec<Bytes> = (0..1_000).filter(kept).map(|number| key(number).into()).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for (direction, page) in [
                (Direction::Descending, 7),
                (Direction::Ascending, 7),
                (Direction::Descending, 90),
            ] {
                let (database, expected, is_over) = (&database, &expected, &is_over);
                scope.spawn(move || {
                    let mut scans = 0;
                    while !is_over.load(Ordering::Relaxed) || scans == 0 {
                        let mut rows = database.rows(KeyRange::ALL, direction, page);
                        if direction == Direction::Descending {
                            rows.reverse();
                        }
                        assert!(
                            rows.is_sorted_by(|(one, _), (next, _)| one < next),
                            "each key once, in order"
                        );
                        let keys: Vec<Bytes> = rows.into_iter().map(|(key, _)| key).collect();
                        let kept = expected.iter().filter(|key| keys.binary_search(key).is_ok());
                        assert_eq!(kept.count(), expected.len(), "every kept row");
                        scans += 1;
                    }
                });
            }
            for round in 0..15 {
                let numbers = || (0..1_000).filter(|number| !kept(number));
                database.write(&deletes(numbers(), 2));
                database.flush();
                put_rows(&database, numbers(), round);
                database.flush();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        database.close();
    });
}

#[test]
fn a_descending_read_finds_rows_that_are_joined_into_a_block_that_it_has_read() {
    for end in [305, 415, 525, 635] {
        let (backend, opened) = paused_backend();
        let database = Database::open_with(opened, 1, large_blocks());
        put_rows(&database, 0..1_000, 1);
        database.flush();
        delete_most(&database, 0..1_000);
        let blocks = bucket(&*backend, BLOCKS);
        let Unit::Part(part) = blocks.unit else {
            panic!("the bucket belongs to a part");
        };
        let range = KeyRange::new(*b"", key(end).as_bytes());
        // The generation is frozen, and none of its rows are written.
        let write = backend.pause(move |call| call.writes(part));
        let keys: Vec<Bytes> = thread::scope(|scope| {
            scope.spawn(|| database.flush());
            write.wait();
            let first = backend.pause(move |call| call == Call::Read(blocks));
            let reader = scope.spawn(|| database.rows(range, Direction::Descending, 1_000));
            first.wait();
            let second = backend.pause(move |call| call == Call::Read(blocks));
            first.end();
            second.wait();
            // The block with the highest keys was read. Now the blocks are joined, but not published.
            let publication = backend.pause(|call| call == Call::Edit);
            write.end();
            publication.wait();
            second.end();
            let rows = reader.join().expect("it ends");
            publication.end();
            rows.into_iter().map(|(key, _)| key).collect()
        });
        let expected: Vec<Bytes> = (0..end)
            .step_by(10)
            .rev()
            .map(|number| key(number).into())
            .collect();
        assert_eq!(keys, expected, "below {end}");
        database.close();
    }
}

#[test]
fn a_descending_read_reads_no_block_twice_unless_blocks_are_joined() {
    let (backend, opened) = paused_backend();
    let database = Database::open_with(opened, 1, large_blocks());
    put_rows(&database, 0..1_000, 1);
    database.flush();
    delete_most(&database, 0..1_000);
    database.flush();
    let blocks = bucket(&*backend, BLOCKS);
    let before = backend.reads_of(blocks);
    let range = KeyRange::new(*b"", key(505).as_bytes());
    let rows = database.rows(range, Direction::Descending, 1_000);
    assert_eq!(rows.len(), 51);
    let reads = backend.reads_of(blocks) - before;
    assert_eq!(
        reads, 2,
        "the block at the end of the range, and the blocks below"
    );
    database.close();
}

#[test]
fn a_part_of_an_earlier_build_is_packed_by_later_flushes() {
    let disk = MemoryDisk::new(Character::Embedded);
    let open = || -> Arc<dyn Backend> { Arc::new(MemoryBackend::open(&disk)) };
    let database = Database::open_with(open(), 1, blocks_of(1 << 20));
    put_rows(&database, 0..1_000, 1);
    database.flush();
    database.close();

    // The test restores the manifest row that builds without blocks have written.
    let backend = open();
    let row = part_row(&*backend);
    let mut detail: serde_json::Value = serde_json::from_slice(&row.detail).expect("JSON");
    assert_eq!((&detail["format"], &detail["buckets"]), (&3.into(), &3.into()));
    (detail["format"], detail["buckets"]) = (1.into(), 1.into());
    let lease = backend.take(SHARD).expect("it is owned");
    let version = backend.manifest(SHARD).expect("it is read").version;
    let old = ManifestRow {
        detail: detail.to_string().into(),
        ..row
    };
    let edited = backend.edit(SHARD, lease.epoch, version, &[ManifestChange::Put(old)]);
    assert!(matches!(edited, Ok(EditOutcome::Applied { .. })), "{edited:?}");
    backend.close().expect("it closes");

    let backend = open();
    let database = Database::open(Arc::clone(&backend), 1);
    let mut expected: Vec<(usize, i64)> = (0..1_000).map(|number| (number, 1)).collect();
    assert_rows(&database, &expected);
    for (value, are_packed) in [(2, false), (3, true)] {
        put_rows(&database, std::iter::once(500), value);
        database.flush();
        expected[500].1 = value;
        assert_rows(&database, &expected);
        let detail = String::from_utf8_lossy(&part_row(&*backend).detail).into_owned();
        assert!(detail.contains("\"format\":3"), "{detail}");
        assert_eq!(stored(&*backend, SINGLES).is_empty(), are_packed, "value {value}");
    }
    database.close();
}

/// Returns true if the byte is the frame header descriptor of zstd. Its bit 4, which the test changes, has no meaning.
fn damaged_bit_is_ignored(block: &[u8], at: usize) -> bool {
    at >= 4 && block[at - 4..at] == [0x28, 0xb5, 0x2f, 0xfd]
}

#[test]
fn the_check_finds_damaged_blocks() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    let database = Database::open(Arc::clone(&backend), 1);
    put_rows(&database, 0..50, 1);
    database.flush();
    let findings = || {
        let parts = StoredParts::read(&*backend).expect("the parts are read");
        let checked = check_rows(&*backend, &parts, TABLE, &JournalChanges::default(), &|_| Ok(()));
        checked.expect("it is checked")
    };
    let clean = findings();
    assert_eq!((clean.rows, clean.findings.len()), (50, 0), "{clean:?}");

    let blocks = stored(&*backend, BLOCKS);
    let mut stamp = u64::MAX / 2;
    let mut change = |key: &Bytes, value: &Bytes| {
        stamp += 1;
        let change = RowChange {
            key: key.clone(),
            value: Some(value.clone()),
        };
        let place = bucket(&*backend, BLOCKS);
        let written = backend.write(place, &[change], Stamp(stamp), Durability::Buffered);
        written.expect("it is written");
    };
    let block = &blocks[3];
    for at in 0..block.value.len() {
        let mut damaged = block.value.to_vec();
        damaged[at] ^= 0x10;
        change(&block.key, &damaged.into());
        let is_found = !findings().findings.is_empty();
        // zstd ignores this bit in one byte of its header.
        let is_harmless = damaged_bit_is_ignored(&block.value, at);
        assert_eq!(is_found, !is_harmless, "byte {at}");
    }
    // The value of one block is stored under the key of another one.
    change(&block.key, &blocks[2].value);
    let found = findings().findings;
    assert!(
        found.iter().any(|found| found.contains("another block")),
        "{found:?}"
    );
    change(&block.key, &block.value);
    assert_eq!(findings(), clean);

    // A read of a damaged block fails; other rows are still read.
    change(&block.key, &Bytes::from_static(b"\x01nothing"));
    let error = database.store.row(TABLE, &block.key).expect_err("it is damaged");
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(database.row(&blocks[2].key).is_some());
    change(&block.key, &block.value);
    database.close();
}
