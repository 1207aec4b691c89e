//! Tests of column groups: a flush writes only the shares that change, and no reader sees only half of a change.
//!
//! The tests in `model.rs` and `ttl.rs` compare tables with column groups with a naive model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction, ManifestKind, PageLimit, PartRef, Partition, RowChange, Stamp};
use tideline_key_codec::parse_part_name;
use tideline_log::SHARD;
use tideline_model::{Durability, KeyRange, SystemClock, TableId, Tier};
use tideline_wide_table::check::{JournalChanges, StoredParts, check_rows};
use tideline_wide_table::{
    Action, CellValue, Column, GroupSet, Mutation, PartSelection, RowWrite, Settings, Update,
};

use super::database::*;

/// Id of the first group.
const GROUP: TableId = TableId(50);

/// Values of the buckets of a part, by bucket and key.
type Stored = BTreeMap<(u16, Bytes), Bytes>;

/// Returns the parts of a table or group.
fn parts(backend: &dyn Backend, table: TableId) -> Vec<PartRef> {
    let rows = backend.manifest(SHARD).expect("it is read").rows;
    let parts = rows.into_iter().filter(|row| row.kind == ManifestKind::Part);
    let of_table = parts.filter(|row| {
        let detail: serde_json::Value = serde_json::from_slice(&row.detail).expect("JSON");
        detail["table"] == table.0
    });
    of_table
        .map(|row| PartRef {
            part: parse_part_name(&row.name).expect("a part"),
            table,
            tier: Tier::Hot,
        })
        .collect()
}

/// Returns all values that the only part of a table or group stores.
fn stored(backend: &dyn Backend, table: TableId) -> Stored {
    let parts = parts(backend, table);
    assert_eq!(parts.len(), 1, "{table:?} has one part");
    let mut stored = Stored::new();
    for bucket in 0..3 {
        let rows = stored_rows(backend, Partition::part(parts[0], bucket)).into_iter();
        stored.extend(rows.map(|row| ((bucket, row.key), row.value)));
    }
    stored
}

/// Returns the total size of the keys and values that are new or changed.
fn written(before: &Stored, after: &Stored) -> usize {
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value));
    changed.map(|((_, key), value)| key.len() + value.len()).sum()
}

/// Returns a text that hardly compresses.
fn description(number: usize) -> String {
    let mut state = number as u64 + 1;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:06x} ", state >> 40)
    };
    (0..300).map(word).collect()
}

/// Writes rows with a price in column `a` and a description in column `b`.
fn put_goods(database: &Database, count: usize) {
    for from in (0..count).step_by(100) {
        let put = |number: usize| {
            let text = CellValue::String(description(number).into());
            let columns = vec![
                Column::with(named("a"), 1, CellValue::I64(number as i64)),
                Column::with(named("b"), 1, text),
            ];
            write_of(&key(number), 1, Action::Put(columns))
        };
        let writes: Vec<_> = (from..count.min(from + 100)).map(put).collect();
        database.write(&writes);
    }
}

/// Opens a table, and writes and flushes rows with prices and descriptions.
fn goods(backend: Arc<dyn Backend>, groups: &[&[&str]], count: usize) -> Database {
    let settings = Settings {
        buffer_bytes: 16 << 20,
        ..Settings::default()
    };
    let database = Database::open_at(backend, Arc::new(SystemClock), grouped(spec(1), groups), settings);
    put_goods(&database, count);
    database.flush();
    database
}

#[test]
fn an_update_of_the_price_does_not_write_the_description() {
    const COUNT: usize = 1_000;
    let mut bytes = Vec::new();
    for groups in [&[][..], &[&["b"][..]][..]] {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let database = goods(Arc::clone(&backend), groups, COUNT);
        let before = stored(&*backend, TABLE);
        let before_group = (!groups.is_empty()).then(|| stored(&*backend, GROUP));
        let updates: Vec<_> = (0..COUNT).map(|number| set(&key(number), 2, "a", 7)).collect();
        database.write(&updates);
        database.flush();
        bytes.push(written(&before, &stored(&*backend, TABLE)));
        if let Some(before) = before_group {
            assert_eq!(
                stored(&*backend, GROUP),
                before,
                "no value of the group was written"
            );
        }
        for number in [0, 500, COUNT - 1] {
            let row = database.row(key(number).as_bytes()).expect("it exists");
            assert_eq!(self::number(&row, "a"), Some(7));
            let text = row
                .column(&named("b"))
                .expect("it has a description")
                .newest()
                .cloned();
            assert_eq!(
                text.map(|text| text.value),
                Some(CellValue::String(description(number).into()))
            );
        }
        database.close();
    }
    println!(
        "{COUNT} prices: {} bytes written without a group, {} bytes with the description in a group",
        bytes[0], bytes[1]
    );
    assert!(bytes[1] * 50 < bytes[0], "{bytes:?}");
}

#[test]
fn rows_without_columns_of_a_group_store_nothing_in_it() {
    every_backend(|backend| {
        let backend = backend();
        let spec = grouped(spec(1), &[&["b"]]);
        let database = Database::open_at(Arc::clone(&backend), Arc::new(SystemClock), spec, settings());
        let puts = || -> Vec<_> { (0..50).map(|number| put(&key(number), 1, &[("a", 1)])).collect() };
        database.write(&puts());
        database.flush();
        assert!(parts(&*backend, GROUP).is_empty(), "the group has no part yet");
        database.write_one(set(&key(7), 2, "b", 3));
        database.flush();
        assert_eq!(stored(&*backend, GROUP).len(), 1);
        // All rows are replaced. The row that had a column of the group loses it.
        database.write(&puts());
        database.flush();
        let left = stored(&*backend, GROUP);
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(
            number(&database.row(key(7).as_bytes()).expect("it exists"), "b"),
            None
        );
        database.close();
    });
}

#[test]
fn a_read_of_other_columns_does_not_read_a_group() {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    let database = goods(Arc::clone(&backend), &[&["b"]], 200);
    for ((bucket, key), value) in stored(&*backend, GROUP) {
        let mut damaged = value.to_vec();
        damaged.truncate(damaged.len() / 2);
        change(&*backend, GROUP, bucket, (key, Some(damaged.into())));
    }
    let limit = PageLimit {
        rows_max: 50,
        bytes_max: 1 << 20,
    };
    let page = |set| {
        let of = (&PartSelection::default(), set);
        let all = KeyRange::ALL;
        database
            .store
            .page_of_groups(TABLE, of, &all, Direction::Ascending, limit)
    };
    let first = key(0);
    let row = |set| database.store.row_of_groups(TABLE, first.as_bytes(), set);
    let price = row(GroupSet::NONE)
        .expect("the group is not read")
        .expect("it exists");
    assert_eq!(number(&price.columns().expect("it is intact"), "a"), Some(0));
    assert_eq!(
        page(GroupSet::NONE).expect("the group is not read").rows.len(),
        50
    );
    assert!(
        row(GroupSet::ALL).is_err() && page(GroupSet::ALL).is_err(),
        "the group is damaged"
    );
    assert!(row(GroupSet::NONE.with(0)).is_err());
    database.close();
}

/// Changes or deletes a stored value.
fn change(backend: &dyn Backend, table: TableId, bucket: u16, (key, value): (Bytes, Option<Bytes>)) {
    let partition = Partition::part(parts(backend, table)[0], bucket);
    let changes = [RowChange { key, value }];
    let stamp = Stamp(u64::MAX >> 8);
    let changed = backend.write(partition, &changes, stamp, Durability::Buffered);
    changed.expect("it is written");
}

#[test]
fn the_check_finds_columns_without_a_row_and_in_the_wrong_group() {
    let findings = |damage: &dyn Fn(&dyn Backend)| {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let spec = grouped(spec(1), &[&["b"], &["c"]]);
        let database = Database::open_at(Arc::clone(&backend), Arc::new(SystemClock), spec, settings());
        database.write_one(put(&key(1), 1, &[("a", 1), ("b", 2), ("c", 3)]));
        database.flush();
        database.close();
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        damage(&*backend);
        let parts = StoredParts::read(&*backend).expect("the parts are read");
        let journal = JournalChanges::default();
        let checked = check_rows(&*backend, &parts, TABLE, &journal, &|_| Ok(()));
        checked.expect("it is checked").findings.join("; ")
    };
    assert_eq!(findings(&|_| {}), "");
    let single = |backend: &dyn Backend, table| {
        let stored = stored(backend, table).into_iter().next();
        let ((bucket, key), value) = stored.expect("it has a row");
        assert_eq!(bucket, SINGLES);
        (key, value)
    };
    let orphan = findings(&|backend| {
        let (key, _) = single(backend, TABLE);
        change(backend, TABLE, SINGLES, (key, None));
    });
    assert!(orphan.contains("a row that does not exist"), "{orphan}");
    let foreign = findings(&|backend| {
        let (key, value) = single(backend, TableId(51));
        change(backend, GROUP, SINGLES, (key, Some(value)));
    });
    assert!(foreign.contains("not of the group"), "{foreign}");
    assert!(foreign.contains("stored in two groups"), "{foreign}");
    let damaged = findings(&|backend| {
        let (key, _) = single(backend, GROUP);
        change(backend, GROUP, BLOCKS, (key, Some(Bytes::from_static(b"x"))));
    });
    assert!(!damaged.is_empty());
}

#[test]
fn the_parts_of_groups_are_freed_with_their_table() {
    every_backend(|backend| {
        let database = goods(backend(), &[&["b"]], 10);
        let log = database.threads.log();
        assert_eq!(log.backend().parts(SHARD).expect("parts").len(), 2);
        log.edit_shared(|manifest| {
            manifest.tables.remove(&TABLE);
            vec![tideline_log::manifest::remove_table(TABLE)]
        })
        .expect("it is dropped");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !log.backend().parts(SHARD).expect("parts").is_empty() {
            assert!(std::time::Instant::now() < deadline, "a part is still there");
            thread::yield_now();
        }
        database.close();
    });
}

/// Returns a write that sets two columns. One of them is in a group.
fn set_both(key: &str, time: i64, number: i64) -> RowWrite<'static> {
    let column = |name| Column::with(named(name), time, CellValue::I64(number));
    let update = Update {
        columns: vec![column("a"), column("b")],
        ..Update::default()
    };
    write_of(key, time, Action::Update(update))
}

fn assert_whole(row: &Mutation<'_>) {
    assert_eq!(number(row, "a"), number(row, "b"), "both columns of one write");
}

#[test]
fn readers_see_all_columns_of_a_write_or_none_of_them_during_flushes() {
    every_backend(|backend| {
        let settings = Settings {
            buffer_bytes: 4 << 10,
            ..settings()
        };
        let spec = grouped(spec(1), &[&["b"]]);
        let database = Database::open_at(backend(), Arc::new(SystemClock), spec, settings);
        let key = |number: i64| encoded(&format!("k{number:02}"));
        let is_over = AtomicBool::new(false);
        let (database, over) = (&database, &is_over);
        thread::scope(|scope| {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for number in 0..20 {
                        let row = database
                            .store
                            .row(TABLE, key(number).as_bytes())
                            .expect("it is read");
                        row.iter()
                            .for_each(|row| assert_whole(&row.columns().expect("it is intact")));
                    }
                }
            });
            for direction in [Direction::Ascending, Direction::Descending] {
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let rows = database.rows(KeyRange::ALL, direction, 7);
                        rows.iter().for_each(|(_, row)| assert_whole(row));
                    }
                });
            }
            for round in 1..300 {
                let writes: Vec<_> = (0..20)
                    .map(|number| set_both(&key(number), round, round))
                    .collect();
                database.write(&writes);
                if round % 8 == 0 {
                    database.flush();
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// Returns a text of words that many rows share.
fn prose(number: usize) -> String {
    const WORDS: [&str; 24] = [
        "lamp", "brass", "polished", "shade", "green", "glass", "cable", "switch", "table", "white", "steel",
        "bedside", "with", "and", "of", "the", "a", "small", "large", "wooden", "handle", "colour", "metre",
        "light",
    ];
    let mut state = number as u64 + 7;
    let word = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        WORDS[(state >> 33) as usize % WORDS.len()]
    };
    (0..60).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_dense_group_stores_the_same_texts_in_fewer_bytes() {
    const COUNT: usize = 3_000;
    // In the second table, column `b` is in the second group. Every second group is compressed densely.
    let sizes = [&[&["b"][..]][..], &[&["unused"][..], &["b"][..]][..]].map(|groups| {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let database = goods(Arc::clone(&backend), groups, 0);
        let (mut plain, mut writes) = (0, Vec::new());
        for number in 0..COUNT {
            let text = prose(number);
            plain += text.len();
            let columns = vec![Column::with(named("b"), 1, CellValue::String(text.into()))];
            writes.push(write_of(&key(number), 1, Action::Put(columns)));
        }
        writes.chunks(100).for_each(|writes| drop(database.write(writes)));
        database.flush();
        for number in [0, 1_234, COUNT - 1] {
            let row = database.row(key(number).as_bytes()).expect("it exists");
            let text = row.column(&named("b")).and_then(Column::newest).cloned();
            assert_eq!(
                text.map(|text| text.value),
                Some(CellValue::String(prose(number).into()))
            );
        }
        let group = TableId(GROUP.0 + groups.len() as u32 - 1);
        let packed = written(&Stored::new(), &stored(&*backend, group));
        database.close();
        (plain, packed)
    });
    let [(plain, fast), (_, dense)] = sizes;
    println!("{plain} bytes of texts: {fast} bytes fast, {dense} bytes dense");
    assert!(dense * 10 < fast * 8, "{dense} bytes dense, {fast} bytes fast");
}
