//! Time-to-live of rows and of cells, compared with a naive model.
//!
//! The test sets the clock. Random writes, flushes, restarts, removals and clock advances are applied to the store and
//! to the model. Rows and index entries must be equal after each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction};
use tideline_log::SHARD;
use tideline_model::{Clock, KeyRange, ManualClock, TableId, TableSpec, Timestamp};
use tideline_wide_table::{Action, CellValue, Column, Mutation, RowOutcome, Settings, Update};

use super::database::*;
use super::paused::paused_backend;

const COLUMNS: [&str; 2] = ["a", "b"];
const INDEX: TableId = TableId(7);
const MINUTE: i64 = 60_000_000_000;
const TTL: i64 = 60 * MINUTE;
const START: i64 = 1_800_000_000_000_000_000;

#[derive(Debug, Clone)]
enum Step {
    Put(String, Vec<usize>, i64),
    Set(String, usize, i64),
    Increment(String, usize),
    SetIfAbsent(String, usize, i64),
    Delete(String),
    /// Advances the clock by this number of minutes.
    Pass(i64),
    Flush,
    Restart,
    /// Removes data that expired at least this number of minutes ago.
    Remove(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "[a-c]".prop_map(|text| encoded(&text));
    let column = || 0..COLUMNS.len();
    let step = prop_oneof![
        2 => (key(), proptest::collection::vec(column(), 0..3), 0..9_i64).prop_map(|(key, columns, number)| Step::Put(key, columns, number)),
        4 => (key(), column(), 0..9_i64).prop_map(|(key, column, number)| Step::Set(key, column, number)),
        2 => (key(), column()).prop_map(|(key, column)| Step::Increment(key, column)),
        2 => (key(), column(), 0..9_i64).prop_map(|(key, column, number)| Step::SetIfAbsent(key, column, number)),
        1 => key().prop_map(Step::Delete),
        6 => (1..30_i64).prop_map(Step::Pass),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
        1 => (0..30_i64).prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 1..50)
}

/// Row of the model: the time of its last write, and for each column its number and its time.
#[derive(Debug, Default)]
struct Row {
    time: i64,
    columns: BTreeMap<&'static str, (i64, i64)>,
}

#[derive(Debug, Default)]
struct Naive(BTreeMap<String, Row>);

impl Naive {
    fn expire(&mut self, now: i64, are_cells: bool) {
        let has_expired = |time: i64| time + TTL <= now;
        self.0.retain(|_, row| !has_expired(row.time));
        if are_cells {
            for row in self.0.values_mut() {
                row.columns.retain(|_, (_, time)| !has_expired(*time));
            }
        }
    }

    fn set(&mut self, key: &str, column: &'static str, number: i64, time: i64) {
        let row = self.0.entry(key.to_owned()).or_default();
        row.time = time;
        row.columns.insert(column, (number, time));
    }
}

fn spec_of(are_cells: bool, is_grouped: bool) -> TableSpec {
    let groups: &[&[&str]] = if is_grouped { &[&["b"]] } else { &[] };
    let mut spec = grouped(spec(1), groups);
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    let of = if are_cells { "cell" } else { "row" };
    wide.ttl = serde_json::from_value(serde_json::json!({"after": TTL, "of": of})).expect("valid");
    let indexes = serde_json::json!([{
        "id": INDEX.0, "name": "by_a", "key": [{"name": "a", "type": "i64"}], "covers": {"columns": ["b"]},
    }]);
    wide.indexes = serde_json::from_value(indexes).expect("valid indexes");
    spec
}

fn numbers(row: &Mutation<'_>) -> BTreeMap<&'static str, i64> {
    let value = |column: &'static str| Some((column, number(row, column)?));
    COLUMNS.into_iter().filter_map(value).collect()
}

fn check(database: &Database, naive: &Naive) {
    let numbers_of = |row: &Row| -> BTreeMap<&'static str, i64> {
        row.columns
            .iter()
            .map(|(column, (number, _))| (*column, *number))
            .collect()
    };
    let rows = database.rows(KeyRange::ALL, Direction::Ascending, 2);
    let found: Vec<_> = rows
        .iter()
        .map(|(key, row)| (key.to_vec(), numbers(row)))
        .collect();
    let expected: Vec<_> = naive
        .0
        .iter()
        .map(|(key, row)| (key.as_bytes().to_vec(), numbers_of(row)))
        .collect();
    assert_eq!(found, expected);
    for (key, row) in &naive.0 {
        let single = database.row(key.as_bytes()).expect("it has not expired");
        assert_eq!(numbers(&single), numbers_of(row));
        let paged = database
            .row_by_columns(key.as_bytes())
            .expect("it has not expired");
        assert_eq!(numbers(&paged), numbers_of(row));
    }
    let index = database.indexes().remove(0);
    let entries = database.rows_of(INDEX, KeyRange::ALL, Direction::Ascending, 2);
    let found: Vec<_> = entries
        .iter()
        .map(|entry| {
            let row = index.covered_row(entry).expect("it is intact");
            (row.key.to_vec(), numbers(&row.columns().expect("it is intact")))
        })
        .collect();
    let mut expected: Vec<_> = naive
        .0
        .iter()
        .filter(|(_, row)| row.columns.contains_key("a"))
        .collect();
    expected.sort_by_key(|(key, row)| (row.columns["a"].0, (*key).clone()));
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(key, row)| (key.as_bytes().to_vec(), numbers_of(row)))
        .collect();
    assert_eq!(found, expected);
}

fn run(character: Character, (are_cells, is_grouped): (bool, bool), fragment_bytes: usize, steps: &[Step]) {
    let disk = MemoryDisk::new(character);
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let open = || {
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        Database::open_at(
            backend,
            Arc::new(clock.clone()),
            spec_of(are_cells, is_grouped),
            Settings {
                fragment_bytes,
                ..settings()
            },
        )
    };
    let (mut database, mut naive) = (open(), Naive::default());
    for step in steps {
        naive.expire(clock.now().nanos(), are_cells);
        let time = database.store.next_version();
        match step {
            Step::Put(key, columns, number) => {
                let columns: BTreeMap<_, _> = columns.iter().map(|at| (COLUMNS[*at], *number)).collect();
                let listed: Vec<_> = columns
                    .iter()
                    .map(|(column, number)| (*column, *number))
                    .collect();
                database.write_one(put(key, time, &listed));
                naive.0.insert(
                    key.clone(),
                    Row {
                        time,
                        columns: BTreeMap::new(),
                    },
                );
                listed
                    .iter()
                    .for_each(|(column, number)| naive.set(key, column, *number, time));
            }
            Step::Set(key, column, number) => {
                database.write_one(set(key, time, COLUMNS[*column], *number));
                naive.set(key, COLUMNS[*column], *number, time);
            }
            Step::Increment(key, column) => {
                let column = COLUMNS[*column];
                let before = naive
                    .0
                    .get(key)
                    .and_then(|row| row.columns.get(column))
                    .map_or(0, |(number, _)| *number);
                let outcome = database.write_one(increment(key, time, column, 1));
                let RowOutcome::Written(Some(after)) = outcome else {
                    panic!("{outcome:?}")
                };
                naive.set(key, column, before + 1, time);
                assert_eq!(numbers(&after)[column], before + 1);
            }
            Step::SetIfAbsent(key, column, number) => {
                let write = when(
                    set(key, time, COLUMNS[*column], *number),
                    Box::new(|row| row.is_none()),
                );
                let is_written = matches!(database.write_one(write), RowOutcome::Written(_));
                assert_eq!(is_written, !naive.0.contains_key(key));
                if is_written {
                    naive.set(key, COLUMNS[*column], *number, time);
                }
            }
            Step::Delete(key) => {
                database.write_one(write_of(key, time, Action::Delete));
                naive.0.remove(key);
            }
            Step::Pass(minutes) => clock.advance(minutes * MINUTE),
            Step::Flush => database.flush(),
            Step::Restart => {
                database.close();
                database = open();
            }
            Step::Remove(minutes) => {
                let mut next = Some(bytes::Bytes::new());
                while let Some(from) = next {
                    let step =
                        database
                            .store
                            .remove_expired(&database.threads, TABLE, &from, minutes * MINUTE);
                    next = step.expect("it is removed").next;
                }
            }
        }
        naive.expire(clock.now().nanos(), are_cells);
        check(&database, &naive);
    }
    // Finally everything expires. A removal then leaves no row and no index entry.
    for _ in 0..4 {
        clock.advance(20 * MINUTE);
        database.store.next_version();
    }
    check(&database, &Naive::default());
    let removed = database.store.remove_expired(&database.threads, TABLE, &[], 0);
    assert_eq!(removed.expect("it is removed").next, None);
    database.flush();
    let again = database
        .store
        .remove_expired(&database.threads, TABLE, &[], 0)
        .expect("it is read");
    assert_eq!((again.rows, again.removed), (0, 0));
    let entries = database
        .store
        .remove_expired(&database.threads, INDEX, &[], 0)
        .expect("it is read");
    assert_eq!(entries.rows, 0, "the entries are removed with their rows");
    database.close();
}

#[test]
fn expired_rows_and_cells_equal_a_naive_model() {
    for (character, are_cells, is_grouped, fragment_bytes) in [
        (Character::Embedded, false, false, 1 << 20),
        (Character::Embedded, true, false, 1 << 20),
        (Character::Embedded, false, true, 1 << 20),
        (Character::Embedded, true, true, 1 << 20),
        (Character::Distributed, false, false, 12),
        (Character::Distributed, true, false, 12),
        (Character::Distributed, false, true, 12),
        (Character::Distributed, true, true, 12),
    ] {
        let mut runner = TestRunner::new(Config {
            failure_persistence: None,
            ..tideline_testkit::proptest_config(40)
        });
        let checked = runner.run(&steps(), |steps| {
            run(character, (are_cells, is_grouped), fragment_bytes, &steps);
            Ok(())
        });
        checked.unwrap_or_else(|error| panic!("cells {are_cells}, groups {is_grouped}: {error}"));
    }
}

/// Returns the settings of a table whose cells expire, without indexes.
fn expiring_cells(versions_max: u32) -> TableSpec {
    let mut spec = spec(versions_max);
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    wide.ttl = serde_json::from_value(serde_json::json!({"after": TTL, "of": "cell"})).expect("valid");
    spec
}

#[test]
fn expired_cells_of_a_row_that_is_larger_than_a_write_are_removed() {
    let disk = MemoryDisk::new(Character::Embedded);
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
    let database = Database::open_at(backend, Arc::new(clock.clone()), expiring_cells(3), settings());
    let key = encoded("a");
    // The two versions of each column that do not expire have 4.8 MB together.
    for version in 1..=3_u8 {
        for column in ["c0", "c1", "c2", "c3"] {
            let time = database.store.next_version();
            let value = CellValue::Binary(vec![version; 600_000].into());
            let update = Update {
                columns: vec![Column::with(named(column), time, value)],
                ..Update::default()
            };
            let outcome = database.write_one(write_of(&key, time, Action::Update(update)));
            assert_eq!(outcome, RowOutcome::Written(None));
        }
        if version == 3 {
            database.flush();
        }
        clock.advance(20 * MINUTE);
    }
    clock.advance(MINUTE);
    database.store.next_version();
    let steps = [(); 5].map(|()| {
        let step = database.store.remove_expired(&database.threads, TABLE, &[], 0);
        step.expect("it is removed").removed
    });
    assert_eq!((steps[0], steps[4]), (1, 0), "{steps:?}");
    let row = database.row(key.as_bytes()).expect("it has not expired");
    let versions: Vec<usize> = row.columns.iter().map(|column| column.versions.len()).collect();
    assert_eq!(versions, [2; 4]);
    database.close();
}

#[test]
fn a_row_that_is_deleted_during_the_removal_of_its_cells_stays_deleted() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let (backend, opened) = paused_backend();
    let database = Database::open_at(opened, Arc::new(clock.clone()), expiring_cells(1), settings());
    let key = encoded("a");
    for column in COLUMNS {
        let time = database.store.next_version();
        database.write_one(set(&key, time, column, 1));
        clock.advance(20 * MINUTE);
    }
    // The flush still writes the cell that then expires.
    database.flush();
    clock.advance(21 * MINUTE);
    let time = database.store.next_version();

    let part = backend.parts(SHARD).expect("the parts").remove(0);
    let read = backend.pause(move |call| call.reads(part));
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| {
            database
                .store
                .remove_expired(&database.threads, TABLE, &[], 0)
                .expect("it is read")
        });
        read.wait();
        let deleted = database.write_one(write_of(&key, time, Action::Delete));
        assert_eq!(deleted, RowOutcome::Written(None));
        read.end();
        let step = removal.join().expect("it ends");
        assert_eq!((step.rows, step.removed), (1, 0));
    });
    assert_eq!(database.row(key.as_bytes()), None);
    database.close();
}

/// Opens the table of [`spec_of`] without column groups.
fn open_with(disk: &Arc<MemoryDisk>, clock: &ManualClock, are_cells: bool) -> Database {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(disk));
    let spec = spec_of(are_cells, false);
    Database::open_at(backend, Arc::new(clock.clone()), spec, settings())
}

#[test]
fn a_version_of_a_client_in_the_future_does_not_change_when_other_rows_expire_after_a_restart() {
    for (are_cells, is_flushed) in [(false, false), (true, false), (false, true), (true, true)] {
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let open = || open_with(&disk, &clock, are_cells);
        let [before, dated, after] = ["a", "b", "c"].map(encoded);
        let future = START + 5 * TTL;
        let (database, mut naive) = (open(), Naive::default());
        let time = database.store.next_version();
        database.write_one(put(&before, time, &[("a", 1)]));
        naive.set(&before, "a", 1, time);
        let column = Column::with(named("a"), future, CellValue::I64(1));
        database.write_one(write_of(&dated, time, Action::Put(vec![column])));
        naive.set(&dated, "a", 1, future);
        if is_flushed {
            database.flush();
        }
        database.close();

        let database = open();
        let time = database.store.next_version();
        assert!(time < START + MINUTE, "{time}");
        database.write_one(put(&after, time, &[("a", 1)]));
        naive.set(&after, "a", 1, time);
        check(&database, &naive);
        while clock.now().nanos() < future + TTL + MINUTE {
            clock.advance(20 * MINUTE);
            database.store.next_version();
            naive.expire(clock.now().nanos(), are_cells);
            check(&database, &naive);
            let removed = database.store.remove_expired(&database.threads, TABLE, &[], 0);
            removed.expect("it is removed");
            check(&database, &naive);
        }
        assert!(naive.0.is_empty());
        database.close();
    }
}

/// Without a delete in the journal, an index or a search index would keep what a flush has dropped.
#[test]
fn a_longer_ttl_shows_the_expired_data_of_a_table_with_indexes_again_unless_it_was_deleted() {
    for (are_cells, is_deleted) in [(false, false), (true, false), (false, true), (true, true)] {
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let (database, mut naive) = (open_with(&disk, &clock, are_cells), Naive::default());
        let pass = |minutes: i64| {
            clock.advance(minutes * MINUTE);
            database.store.next_version()
        };
        let (first, second) = (encoded("a"), encoded("b"));
        let time = pass(1);
        for key in [&first, &second] {
            database.write_one(put(key, time, &[("a", 1), ("b", 1)]));
            for column in COLUMNS {
                naive.set(key, column, 1, time);
            }
            // The first row is in a part, the second one only in the row buffer.
            if key == &first {
                database.flush();
            }
        }
        let time = pass(40);
        database.write_one(set(&first, time, "b", 2));
        naive.set(&first, "b", 2, time);
        pass(30);
        database.flush();
        if is_deleted {
            database.delete_rows(KeyRange::ALL);
            naive = Naive::default();
        }
        database.change_wide(|wide| wide.set_ttl(Some(10 * TTL)));
        check(&database, &naive);
        database.flush();
        check(&database, &naive);
        database.close();
    }
}
