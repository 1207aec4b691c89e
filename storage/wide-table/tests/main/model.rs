//! Random writes, flushes, restarts and reads, compared with a naive model.
//!
//! The model is a map from keys to columns and versions. Each run prints its seed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction};
use tideline_model::{KeyRange, SystemClock};
use tideline_wide_table::{Action, Column, RowOutcome, Settings, Update};

use super::database::*;

/// Integers of a row, by column and time of the version.
type Row = BTreeMap<&'static str, BTreeMap<i64, i64>>;

const COLUMNS: [&str; 3] = ["a", "b", "c"];
const VERSIONS_MAX: usize = 2;

#[derive(Debug, Clone)]
enum Step {
    Put(String, i64, Vec<(usize, i64)>),
    /// Adds a row with a key that begins with this text and that no row has had.
    Create(String, i64, Vec<(usize, i64)>),
    /// Sets a column of the last row that was added.
    SetCreated(i64, usize, i64),
    /// Deletes the last row that was added.
    DeleteCreated,
    Set(String, i64, usize, i64),
    Increment(String, i64, usize, i64),
    Clear(String, usize),
    RemoveVersion(String, usize, i64),
    /// Sets a column if the row has it.
    SetIfPresent(String, i64, usize, i64),
    Delete(String),
    DeleteRange(String, String),
    Flush,
    Restart,
    /// Drops all indexes, and creates them again with other ids.
    Reindex,
    Get(String),
    Scan(String, String, bool, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "[a-d][a-d]".prop_map(|text| encoded(&text));
    let (time, column) = (|| 1..20_i64, || 0..COLUMNS.len());
    let columns = || proptest::collection::btree_map(column(), 0..100_i64, 0..3);
    let step = prop_oneof![
        2 => ("[a-d]", time(), columns()).prop_map(|(start, time, columns)| Step::Create(start, time, columns.into_iter().collect())),
        1 => (time(), column(), 0..100_i64).prop_map(|(time, column, number)| Step::SetCreated(time, column, number)),
        1 => Just(Step::DeleteCreated),
        3 => (key(), time(), columns()).prop_map(|(key, time, columns)| Step::Put(key, time, columns.into_iter().collect())),
        4 => (key(), time(), column(), 0..100_i64).prop_map(|(key, time, column, number)| Step::Set(key, time, column, number)),
        2 => (key(), time(), column(), -5..5_i64).prop_map(|(key, time, column, by)| Step::Increment(key, time, column, by)),
        1 => (key(), column()).prop_map(|(key, column)| Step::Clear(key, column)),
        1 => (key(), column(), time()).prop_map(|(key, column, time)| Step::RemoveVersion(key, column, time)),
        2 => (key(), time(), column(), 0..100_i64).prop_map(|(key, time, column, number)| Step::SetIfPresent(key, time, column, number)),
        1 => key().prop_map(Step::Delete),
        1 => (key(), key()).prop_map(|(start, end)| Step::DeleteRange(start, end)),
        1 => Just(Step::Flush),
        1 => Just(Step::Restart),
        1 => Just(Step::Reindex),
        2 => key().prop_map(Step::Get),
        2 => (key(), key(), any::<bool>(), 1..5_usize).prop_map(|(start, end, back, page)| Step::Scan(start, end, back, page)),
    ];
    proptest::collection::vec(step, 1..60)
}

#[derive(Debug, Default)]
struct Naive(BTreeMap<String, Row>);

impl Naive {
    fn set(&mut self, key: &str, time: i64, column: &'static str, number: i64) {
        let row = self.0.entry(key.to_owned()).or_default();
        let versions = row.entry(column).or_default();
        versions.insert(time, number);
        while versions.len() > VERSIONS_MAX {
            versions.pop_first();
        }
    }

    fn newest(&self, key: &str, column: &'static str) -> Option<(i64, i64)> {
        let versions = self.0.get(key)?.get(column)?;
        versions.last_key_value().map(|(time, number)| (*time, *number))
    }
}

fn check_row(row: Option<tideline_wide_table::Mutation<'static>>, expected: Option<&Row>, key: &str) {
    let row = row.map(|row| -> Row {
        let columns = row.columns.iter().map(|column| {
            let name = COLUMNS.iter().find(|name| named(name) == column.name);
            let versions = column.versions.iter().map(|version| match version.value {
                tideline_wide_table::CellValue::I64(number) => (version.time, number),
                _ => panic!("only integers were written"),
            });
            (*name.expect("a written column"), versions.collect())
        });
        columns.collect()
    });
    let expected = expected.map(|row| {
        let with_versions = row.iter().filter(|(_, versions)| !versions.is_empty());
        with_versions
            .map(|(name, versions)| (*name, versions.clone()))
            .collect::<Row>()
    });
    assert_eq!(row, expected, "row {key}");
}

/// Column groups of a table, each as a list of its columns.
type Groups = &'static [&'static [&'static str]];

/// Column groups of the tables that random steps change. The second table stores two columns in one group; one of them
/// matches a pattern.
const GROUPS: [Groups; 3] = [&[], &[&["a*", "c"]], &[&["b"], &["c"]]];

fn run(backend: &dyn Fn() -> Arc<dyn Backend>, (settings, groups): (Settings, Groups), steps: &[Step]) {
    let open = || {
        let spec = grouped(spec(VERSIONS_MAX as u32), groups);
        Database::open_at(backend(), Arc::new(SystemClock), spec, settings)
    };
    let (mut database, mut naive) = (open(), Naive::default());
    database.set_indexes(&serde_json::json!([]));
    database.delete_rows(KeyRange::ALL);
    reindex(&database);
    let mut created: Option<String> = None;
    for step in steps {
        check_indexes(&database, &naive);
        match step {
            Step::Put(key, time, columns) => {
                let columns: Vec<_> = columns
                    .iter()
                    .map(|(at, number)| (COLUMNS[*at], *number))
                    .collect();
                database.write_one(put(key, *time, &columns));
                naive.0.insert(key.clone(), Row::new());
                for (column, number) in columns {
                    naive.set(key, *time, column, number);
                }
            }
            Step::Create(start, time, columns) => {
                let number = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
                let key = encoded(&format!("{start}-{number}"));
                let columns: Vec<_> = columns
                    .iter()
                    .map(|(at, number)| (COLUMNS[*at], *number))
                    .collect();
                let mut write = put(&key, *time, &columns);
                if let Action::Put(columns) = write.action {
                    write.action = Action::Create(columns);
                }
                database.write_one(write);
                naive.0.insert(key.clone(), Row::new());
                for (column, number) in columns {
                    naive.set(&key, *time, column, number);
                }
                created = Some(key);
            }
            Step::SetCreated(time, column, number) => {
                if let Some(key) = created.as_ref().filter(|key| naive.0.contains_key(*key)) {
                    database.write_one(set(key, *time, COLUMNS[*column], *number));
                    naive.set(key, *time, COLUMNS[*column], *number);
                }
            }
            Step::DeleteCreated => {
                if let Some(key) = created.take() {
                    database.write_one(write_of(&key, 1, Action::Delete));
                    naive.0.remove(&key);
                }
            }
            Step::Set(key, time, column, number) => {
                database.write_one(set(key, *time, COLUMNS[*column], *number));
                naive.set(key, *time, COLUMNS[*column], *number);
            }
            Step::Increment(key, time, column, by) => {
                let column = COLUMNS[*column];
                database.write_one(increment(key, *time, column, *by));
                let (newest, current) = naive.newest(key, column).unwrap_or((i64::MIN, 0));
                naive.set(key, (*time).max(newest.saturating_add(1)), column, current + by);
            }
            Step::Clear(key, column) => {
                let columns = vec![Column::cleared(named(COLUMNS[*column]))];
                let update = Update {
                    columns,
                    ..Update::default()
                };
                database.write_one(write_of(key, 1, Action::Update(update)));
                naive.0.entry(key.clone()).or_default().remove(COLUMNS[*column]);
            }
            Step::RemoveVersion(key, column, time) => {
                let update = Update {
                    removed: vec![(named(COLUMNS[*column]), *time)],
                    ..Update::default()
                };
                database.write_one(write_of(key, 1, Action::Update(update)));
                let row = naive.0.entry(key.clone()).or_default();
                row.entry(COLUMNS[*column]).or_default().remove(time);
            }
            Step::SetIfPresent(key, time, column, number) => {
                let column = COLUMNS[*column];
                let write = when(
                    set(key, *time, column, *number),
                    Box::new(move |row| row.is_some_and(|row| row.column(&named(column)).is_some())),
                );
                let is_written = matches!(database.write_one(write), RowOutcome::Written(_));
                assert_eq!(is_written, naive.newest(key, column).is_some(), "row {key}");
                if is_written {
                    naive.set(key, *time, column, *number);
                }
            }
            Step::Delete(key) => {
                database.write_one(write_of(key, 1, Action::Delete));
                naive.0.remove(key);
            }
            Step::DeleteRange(start, end) => {
                database.delete_rows(KeyRange::new(start.as_bytes(), end.as_bytes()));
                naive.0.retain(|key, _| key < start || key >= end);
            }
            Step::Flush => database.flush(),
            Step::Restart => {
                database.close();
                database = open();
            }
            Step::Reindex => {
                database.set_indexes(&serde_json::json!([]));
                reindex(&database);
            }
            Step::Get(key) => {
                check_row(database.row(key.as_bytes()), naive.0.get(key), key);
                check_row(database.row_by_columns(key.as_bytes()), naive.0.get(key), key);
            }
            Step::Scan(start, end, back, page) => {
                let direction = match back {
                    true => Direction::Descending,
                    false => Direction::Ascending,
                };
                let range = KeyRange::new(start.as_bytes(), end.as_bytes());
                let mut rows = database.rows(range, direction, *page);
                if *back {
                    rows.reverse();
                }
                let bounds = (Bound::Included(start.clone()), Bound::Excluded(end.clone()));
                let expected: Vec<_> = match start < end {
                    true => naive.0.range(bounds).collect(),
                    false => Vec::new(),
                };
                assert_eq!(rows.len(), expected.len(), "{step:?}");
                for ((key, row), (expected_key, expected)) in rows.into_iter().zip(expected) {
                    assert_eq!(key.as_ref(), expected_key.as_bytes());
                    check_row(Some(row), Some(expected), expected_key);
                }
            }
        }
    }
    check_indexes(&database, &naive);
    database.close();
}

/// Number of the next new key. The test runs share a backend.
static NEXT_KEY: AtomicU32 = AtomicU32::new(0);

/// Id of the next index. The test runs share a backend, in which the id of a dropped index must not be reused.
static NEXT_INDEX: AtomicU32 = AtomicU32::new(100);

/// Columns of each index, with a flag that is true for descending order.
const INDEXES: [&[(&str, bool)]; 3] = [
    &[("a", false)],
    &[("b", true), ("c", false)],
    &[("k", true), ("a", false)],
];

/// Creates and builds all indexes. The first index covers column `b`, the second all columns, the third none.
fn reindex(database: &Database) {
    let covers = [
        serde_json::json!({"columns": ["b"]}),
        serde_json::json!("all"),
        serde_json::json!({"columns": []}),
    ];
    let first = NEXT_INDEX.fetch_add(INDEXES.len() as u32, Ordering::Relaxed);
    let in_state = |state: serde_json::Value| -> serde_json::Value {
        let index = |(number, columns): (usize, &&[(&str, bool)])| {
            let column = |(name, is_descending): &(&str, bool)| {
                let kind = if *name == "k" { "string" } else { "i64" };
                let order = if *is_descending { "desc" } else { "asc" };
                serde_json::json!({"name": name, "type": kind, "order": order})
            };
            serde_json::json!({
                "id": first + number as u32,
                "name": format!("index{number}"),
                "key": columns.iter().map(column).collect::<Vec<_>>(),
                "covers": covers[number],
                "state": state,
            })
        };
        INDEXES.iter().enumerate().map(index).collect()
    };
    database.set_indexes(&in_state(serde_json::json!({"building": {}})));
    for index in database.indexes() {
        database.build(index.id());
    }
    database.set_indexes(&in_state(serde_json::json!("ready")));
}

/// Value of an index key in the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Number(i64),
    Text(String),
}

/// Value of an index key with its order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Ordered {
    Ascending(KeyPart),
    Descending(Reverse<KeyPart>),
}

impl Naive {
    /// Returns the keys of the rows that have an entry in an index, in the order of the entries.
    fn indexed(&self, columns: &[(&str, bool)]) -> Vec<&String> {
        let part = |key: &String, (name, is_descending): &(&str, bool)| {
            let column = COLUMNS.into_iter().find(|column| column == name);
            let value = match column {
                Some(column) => KeyPart::Number(self.newest(key, column)?.1),
                None => KeyPart::Text(key.clone()),
            };
            Some(match is_descending {
                true => Ordered::Descending(Reverse(value)),
                false => Ordered::Ascending(value),
            })
        };
        let entry = |key| -> Option<(Vec<Ordered>, &String)> {
            let parts = columns.iter().map(|column| part(key, column));
            Some((parts.collect::<Option<_>>()?, key))
        };
        let mut entries: Vec<_> = self.0.keys().filter_map(entry).collect();
        entries.sort();
        entries.into_iter().map(|(_, key)| key).collect()
    }
}

/// Compares all indexes with the rows of the model: the order of the entries, their rows and their covered values.
fn check_indexes(database: &Database, naive: &Naive) {
    for (index, columns) in database.indexes().iter().zip(INDEXES) {
        let expected = naive.indexed(columns);
        for direction in [Direction::Ascending, Direction::Descending] {
            let mut entries = database.rows_of(index.id(), KeyRange::ALL, direction, 3);
            if direction == Direction::Descending {
                entries.reverse();
            }
            let rows = entries.iter().map(|entry| index.covered_row(entry));
            let rows: Vec<_> = rows.map(|row| row.expect("it is intact")).collect();
            let keys: Vec<&[u8]> = rows.iter().map(|row| row.key.as_ref()).collect();
            let expected_keys: Vec<&[u8]> = expected.iter().map(|key| key.as_bytes()).collect();
            assert_eq!(keys, expected_keys, "{}", index.name());
            for ((entry, row), key) in entries.iter().zip(&rows).zip(&expected) {
                let stored = database.store.row(TABLE, &row.key).expect("it is read");
                let stored = stored.expect("the row of an entry exists");
                assert!(index.is_entry_of(&entry.key, &stored).expect("it is intact"));
                let columns = row.columns().expect("it is intact");
                for column in COLUMNS.into_iter().filter(|column| index.holds(&named(column))) {
                    let newest = naive.newest(key, column).map(|(_, number)| number);
                    assert_eq!(number(&columns, column), newest, "{} of {key:?}", index.name());
                }
            }
        }
    }
}

/// Runs random steps on the store and on the naive model, and compares the results.
fn check(cases: u32, settings: (Settings, Groups), backend: &dyn Fn() -> Arc<dyn Backend>) {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..tideline_testkit::proptest_config(cases)
    });
    let checked = runner.run(&steps(), |steps| {
        run(backend, settings, &steps);
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns settings with blocks of `block_bytes`, and with fragments for rows of more than `fragment_bytes`.
fn sizes(block_bytes: usize, fragment_bytes: usize) -> Settings {
    Settings {
        block_bytes,
        fragment_bytes,
        ..settings()
    }
}

#[test]
fn random_writes_equal_a_naive_model_in_memory() {
    for character in [Character::Embedded, Character::Distributed] {
        // Block sizes: from one row per block to blocks that are never full.
        for block_bytes in [1, 60, 200, 1 << 20] {
            for groups in GROUPS {
                let disk = MemoryDisk::new(character);
                check(25, (sizes(block_bytes, 1 << 20), groups), &|| {
                    Arc::new(MemoryBackend::open(&disk))
                });
            }
        }
    }
}

#[test]
fn random_writes_of_large_rows_equal_a_naive_model_in_memory() {
    for character in [Character::Embedded, Character::Distributed] {
        for (block_bytes, fragment_bytes) in [(60, 12), (30, 30), (200, 30)] {
            for groups in GROUPS {
                let disk = MemoryDisk::new(character);
                check(25, (sizes(block_bytes, fragment_bytes), groups), &|| {
                    Arc::new(MemoryBackend::open(&disk))
                });
            }
        }
    }
}

#[test]
fn random_writes_equal_a_naive_model_in_fjall() {
    for groups in GROUPS {
        let folder = tempfile::tempdir().expect("a folder");
        for settings in [sizes(100, 1 << 20), sizes(60, 12)] {
            check(8, (settings, groups), &|| fjall(&folder.path().join("data")));
        }
    }
}

#[test]
fn random_writes_equal_a_naive_model_on_a_cluster() {
    let Some(keyspace) = cluster() else { return };
    let cases = tideline_testkit::rounds("TIDELINE_CLUSTER_CASES", 2, 40) as u32;
    for (settings, groups) in [(sizes(100, 1 << 20), GROUPS[1]), (sizes(60, 12), GROUPS[0])] {
        check(cases, (settings, groups), &|| {
            Arc::new(keyspace.open().expect("the cluster answers"))
        });
    }
}
