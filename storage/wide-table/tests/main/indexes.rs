//! Secondary indexes: builds during writes, refused rows, and detection of damaged entries.
//!
//! The tests in `model.rs` compare indexes with a naive model after random writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction, ManifestKind, PartRef, Partition, RowChange, Stamp};
use tideline_key_codec::parse_part_name;
use tideline_log::SHARD;
use tideline_model::{Durability, KeyRange, TableId, Tier};
use tideline_wide_table::check::{JournalChanges, StoredParts, check_index};
use tideline_wide_table::{Action, CellValue, Column, ColumnName, Refused, RowOutcome, Settings};

use super::database::*;

const INDEX: TableId = TableId(7);

/// Returns the settings of an index on column `a` that covers column `b`.
fn by_a(state: &serde_json::Value) -> serde_json::Value {
    serde_json::json!([{
        "id": INDEX.0,
        "name": "by_a",
        "key": [{"name": "a", "type": "i64"}],
        "covers": {"columns": ["b"]},
        "state": state,
    }])
}

fn building() -> serde_json::Value {
    by_a(&serde_json::json!({"building": {}}))
}

fn ready() -> serde_json::Value {
    by_a(&serde_json::json!("ready"))
}

/// Returns the stored keys of the rows in the order of the index, and compares each entry with its row.
fn indexed_rows(database: &Database) -> Vec<Bytes> {
    let index = database.indexes().remove(0);
    let entries = database.rows_of(INDEX, KeyRange::ALL, Direction::Ascending, 100);
    let key = |entry: &tideline_wide_table::StoredRow| {
        let key = index.row_key(&entry.key).expect("it is intact");
        let row = database.store.row(TABLE, &key).expect("it is read");
        let row = row.expect("the row of an entry exists");
        assert!(
            index.is_entry_of(&entry.key, &row).expect("it is intact"),
            "{row:?}"
        );
        row.key
    };
    entries.iter().map(key).collect()
}

#[test]
fn an_index_that_is_built_during_writes_has_every_row() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let key = |number: usize| encoded(&format!("k{number:05}"));
        for first in (0..2_000).step_by(500) {
            let writes: Vec<_> = (first..first + 500)
                .map(|number| put(&key(number), 1, &[("a", number as i64), ("b", 1)]))
                .collect();
            database.write(&writes);
        }
        database.set_indexes(&building());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3_usize {
                let (database, is_over) = (&database, &is_over);
                scope.spawn(move || {
                    let mut number = writer;
                    while !is_over.load(Ordering::Relaxed) {
                        number = (number * 31 + 7 + writer) % 2_500;
                        let time = database.store.next_version();
                        let write = match number % 5 {
                            0 => write_of(&key(number), time, Action::Delete),
                            1 => put(&key(number), time, &[("b", 2)]),
                            _ => put(&key(number), time, &[("a", -(number as i64)), ("b", 3)]),
                        };
                        database.write(&[write]);
                    }
                });
            }
            database.build(INDEX);
            database.flush();
            is_over.store(true, Ordering::Relaxed);
        });
        database.set_indexes(&ready());
        let mut found = indexed_rows(&database);
        found.sort();
        let rows = database.rows(KeyRange::ALL, Direction::Ascending, 500);
        let expected = rows.iter().filter(|(_, row)| number(row, "a").is_some());
        let expected: Vec<Bytes> = expected.map(|(key, _)| key.clone()).collect();
        assert!(expected.len() > 1_000);
        assert_eq!(found, expected);
        database.close();
    });
}

#[test]
fn rows_are_deleted_although_their_entries_exceed_a_write() {
    const ROWS: usize = 400;
    let disk = MemoryDisk::new(Character::Embedded);
    let database = Database::open(Arc::new(MemoryBackend::open(&disk)), 1);
    // Each entry holds the key of its row, so the entries of a page of rows are six times as large as the page.
    let index = |number: u32| {
        serde_json::json!({
            "id": INDEX.0 + number,
            "name": format!("by_a_{number}"),
            "key": [{"name": "a", "type": "i64"}],
        })
    };
    database.set_indexes(&(0..6).map(index).collect());
    let rows: Vec<usize> = (0..ROWS).collect();
    for chunk in rows.chunks(50) {
        let row = |number: &usize| put(&encoded(&format!("{number:02000}")), 1, &[("a", *number as i64)]);
        database.write(&chunk.iter().map(row).collect::<Vec<_>>());
    }
    let entries = || {
        (0..6)
            .map(|number| {
                let index = TableId(INDEX.0 + number);
                database
                    .rows_of(index, KeyRange::ALL, Direction::Ascending, 500)
                    .len()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(entries(), [ROWS; 6]);
    database.delete_rows(KeyRange::ALL);
    assert!(database.rows(KeyRange::ALL, Direction::Ascending, 500).is_empty());
    assert_eq!(entries(), [0; 6]);
    database.close();
}

#[test]
fn a_row_whose_index_key_is_too_long_is_refused() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = Database::open(Arc::new(MemoryBackend::open(&disk)), 1);
    database.set_indexes(&serde_json::json!([{
        "id": INDEX.0,
        "name": "by_key",
        "key": [{"name": "d", "reverse": {"of": {"name": "a", "type": "i64"}}}],
    }]));
    assert!(matches!(
        database.write_one(put(&encoded("x"), 1, &[("a", 5)])),
        RowOutcome::Written(_)
    ));
    // A reversed column cannot hold negative numbers.
    match database.write_one(put(&encoded("y"), 1, &[("a", -5)])) {
        RowOutcome::Refused(Refused::NotIndexable(reason)) => {
            assert!(
                reason.contains("by_key") && reason.contains("negative"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(database.row(encoded("y").as_bytes()), None);
    assert_eq!(
        database
            .rows_of(INDEX, KeyRange::ALL, Direction::Ascending, 10)
            .len(),
        1
    );
    database.close();
}

/// Returns the findings of a check of the index.
fn findings(backend: &dyn Backend, index: &tideline_wide_table::Index) -> Vec<String> {
    let parts = StoredParts::read(backend).expect("they are read");
    let checked = check_index(backend, &parts, TABLE, index, &JournalChanges::default(), &|_| {
        false
    });
    checked.expect("it is checked").findings
}

/// A client can give an update an earlier time than the delete before it.
#[test]
fn a_row_that_an_update_recreates_has_the_time_of_the_update_as_its_entry_has() {
    for is_flushed in [false, true] {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let database = Database::open(Arc::clone(&backend), 1);
        database.set_indexes(&ready());
        let key = encoded("k");
        database.write_one(put(&key, 5, &[("a", 1), ("b", 1)]));
        database.write_one(write_of(&key, 9, Action::Delete));
        if is_flushed {
            database.flush();
        }
        database.write_one(set(&key, 3, "a", 2));
        let time = || database.row(key.as_bytes()).map(|row| row.time);
        assert_eq!(time(), Some(3));
        assert_eq!(database.trace(key.as_bytes()).time, Some(3));
        database.write_one(set(&key, 2, "b", 7));
        assert_eq!(time(), Some(3), "an update of a row does not lower its time");
        database.flush();
        assert_eq!(time(), Some(3));
        assert_eq!(indexed_rows(&database), [Bytes::from(key)]);
        let index = database.indexes().remove(0);
        assert_eq!(findings(&*backend, &index), Vec::<String>::new());
        database.close();
    }
}

#[test]
fn entries_of_rows_in_another_tier_are_found() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    let database = Database::open(Arc::clone(&backend), 1);
    database.set_indexes(&ready());
    database.write_one(put(&encoded("k"), 1, &[("a", 1), ("b", 1)]));
    database.flush();
    // The row was never moved, so its part is in the hot tier.
    for (tier, expected) in [("all", 0), ("hot", 0), ("cold", 1)] {
        let mut indexes = ready();
        indexes[0]["tier"] = tier.into();
        database.set_indexes(&indexes);
        let found = findings(&*backend, &database.indexes().remove(0));
        assert_eq!(found.len(), expected, "{tier}: {found:?}");
        let said = "the index does not cover the tier of the row";
        assert!(found.iter().all(|finding| finding.contains(said)), "{found:?}");
    }
    database.close();
}

#[test]
fn damaged_entries_are_found() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    // The blocks are too large to be filled, so all rows stay single. The test can then change stored rows and entries.
    let unpacked = Settings {
        block_bytes: 1 << 20,
        ..settings()
    };
    let database = Database::open_with(Arc::clone(&backend), 1, unpacked);
    database.set_indexes(&ready());
    for number in 0..20 {
        database.write_one(put(
            &encoded(&format!("k{number}")),
            1,
            &[("a", number), ("b", 1)],
        ));
    }
    database.flush();
    let index = database.indexes().remove(0);
    assert_eq!(findings(backend.as_ref(), &index), Vec::<String>::new());
    let stored = backend.manifest(SHARD).expect("it is read");
    let part_of = |table: TableId| {
        let mut parts = stored.rows.iter().filter(|row| row.kind == ManifestKind::Part);
        let row = parts
            .find(|row| String::from_utf8_lossy(&row.detail).contains(&format!("\"table\":{},", table.0)));
        let part = parse_part_name(&row.expect("the table has a part").name).expect("a part");
        Partition::part(
            PartRef {
                part,
                table,
                tier: Tier::Hot,
            },
            0,
        )
    };
    let mut stamp = u64::MAX / 2;
    let mut change = |table: TableId, key: &Bytes, value: Option<&Bytes>| {
        stamp += 1;
        let change = RowChange {
            key: key.clone(),
            value: value.cloned(),
        };
        let written = backend.write(part_of(table), &[change], Stamp(stamp), Durability::Buffered);
        written.expect("it is written");
    };
    let entries = database.rows_of(INDEX, KeyRange::ALL, Direction::Ascending, 100);
    let rows = database.rows_of(TABLE, KeyRange::ALL, Direction::Ascending, 100);
    let page = |table: TableId| {
        let limit = tideline_backend::PageLimit {
            rows_max: 100,
            bytes_max: 1 << 20,
        };
        backend
            .scan(part_of(table), &KeyRange::ALL, Direction::Ascending, limit)
            .expect("it is read")
            .rows
    };
    let (stored_entries, stored_rows) = (page(INDEX), page(TABLE));
    assert_eq!((entries.len(), rows.len()), (20, 20));

    change(INDEX, &entries[3].key, None);
    let found = findings(backend.as_ref(), &index);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("the row has no entry")),
        "{found:?}"
    );
    change(INDEX, &entries[3].key, Some(&stored_entries[4].value));
    assert_eq!(
        findings(backend.as_ref(), &index),
        Vec::<String>::new(),
        "the values of all entries are equal"
    );

    change(INDEX, &entries[3].key, Some(&Bytes::from_static(b"\x11nothing")));
    let found = findings(backend.as_ref(), &index);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("other values")),
        "{found:?}"
    );
    change(INDEX, &entries[3].key, Some(&stored_entries[3].value));

    change(TABLE, &rows[5].key, None);
    let found = findings(backend.as_ref(), &index);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("the entry has no row")),
        "{found:?}"
    );
    change(TABLE, &rows[5].key, Some(&stored_rows[5].value));

    change(
        INDEX,
        &Bytes::from_static(b"\xffx"),
        Some(&stored_entries[0].value),
    );
    let found = findings(backend.as_ref(), &index);
    assert!(
        matches!(found.as_slice(), [one] if one.contains("damaged")),
        "{found:?}"
    );
    database.close();
}

#[test]
fn values_of_a_removed_column_in_entries_are_not_damage() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    let database = Database::open(Arc::clone(&backend), 1);
    database.change_wide(|wide| wide.columns[1].number = 7);
    database.set_indexes(&ready());
    let columns = vec![
        Column::with(ColumnName::Declared(7), 1, CellValue::I64(5)),
        Column::with(named("a"), 1, CellValue::I64(1)),
    ];
    database.write_one(write_of(&encoded("k"), 1, Action::Put(columns)));
    database.flush();
    // Earlier builds allowed the removal of a column that an index covers.
    database.change_wide(|wide| wide.columns.retain(|column| column.number != 7));
    let index = database.indexes().remove(0);
    assert_eq!(findings(&*backend, &index), Vec::<String>::new());
    database.close();
}
