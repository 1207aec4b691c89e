//! Copies into a table with another key while clients write into both tables: first into the source, then into the
//! target.
//!
//! The target must equal the source afterwards. Rows and columns that clients delete must not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::model::{TableModel, TableName, TableSpec};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::RowsBody;
use tideline_rows::read::ScanTerms;
use tideline_rows::rekey::{Rekey, RekeyProgress};
use tideline_rows::write::write;
use tideline_rows::{PageLimits, Scan, Selection, WriteSettings};

use crate::database::{Database, memory};

/// Number of rows of the source. A merged scan reads all of them before the first batch is written.
const ROWS: usize = 2_000;
const CLIENTS: usize = 3;
const WRITES: usize = 600;

/// Creates a source with rows in four buckets, and an empty target.
fn database() -> Database {
    let columns = json!([{"name": "n", "type": "i64", "number": 1}]);
    let source = json!({
        "key": [{"name": "spread", "bucket": {"of": ["id"], "count": 4}}, {"name": "id", "type": "i64"}],
        "columns": columns, "next_column": 2, "allow_rising_key": true,
    });
    let target = json!({
        "key": [{"name": "hash", "hash_prefix": {"of": ["id"], "hex": 4}}, {"name": "id", "type": "i64"}],
        "columns": columns, "next_column": 2,
    });
    let database = Database::new(memory(Character::Embedded), &source);
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(serde_json::from_value(target).expect("settings"))),
        ..TableSpec::default()
    };
    let name = TableName::new("target").expect("a name");
    database.engine().create_table(name, spec).expect("a table");
    let rows = (0..ROWS).map(|id| put(id, &json!({"n": id, "note": "old", "state": "old"})));
    write_rows(
        database.engine(),
        &database.table(),
        &rows.collect::<Vec<Value>>().into(),
    );
    database
}

fn target(database: &Database) -> Arc<WideTable> {
    database.engine().wide_table("target").expect("it exists")
}

fn put(id: usize, columns: &Value) -> Value {
    json!({"op": "put", "key": {"id": id}, "columns": columns})
}

fn write_rows(engine: &Engine, table: &WideTable, rows: &Value) {
    let body: RowsBody = serde_json::from_value(json!({"rows": rows})).expect("rows");
    let written = write(engine, table, &body.rows, b"", &WriteSettings::default());
    let written = written.expect("they are written");
    assert_eq!(
        written.counts.written as usize,
        body.rows.len(),
        "{:?}",
        written.rows
    );
}

/// Returns all rows of a table, by their ids.
fn all(database: &Database, table: &Arc<WideTable>) -> Vec<Value> {
    let terms = ScanTerms {
        index: None,
        prefix: &Default::default(),
        range: None,
        direction: Default::default(),
        filter: None,
        tier: Default::default(),
        page_token: None,
        allow_scan: true,
    };
    let selection = Selection::default();
    let scan = Scan::new(database.engine(), table, &terms, &selection).expect("a scan");
    let limits = PageLimits {
        rows: None,
        scanned: None,
        bytes: None,
    };
    let mut rows: Vec<Value> = Vec::new();
    let read = scan.page(
        database.engine(),
        table,
        &selection,
        limits,
        &|| false,
        &mut |row| {
            rows.push(serde_json::from_slice(row).expect("JSON"));
            Ok(())
        },
    );
    read.expect("a page");
    rows.sort_by_key(|row| row["key"]["id"].to_string());
    rows
}

fn rekey(database: &Database) -> Rekey {
    Rekey::new(database.table(), target(database), false).expect("a copy")
}

fn assert_equal(database: &Database) {
    let (source, target) = (database.table(), target(database));
    let (expected, copied) = (all(database, &source), all(database, &target));
    let differing = expected.iter().zip(&copied).find(|(one, other)| one != other);
    assert_eq!(differing, None);
    assert_eq!(copied.len(), expected.len());
}

#[test]
fn rows_that_clients_change_between_the_read_and_the_write_of_a_copy_are_read_again() {
    let mut database = database();
    let changes = json!([
        {"op": "delete", "key": {"id": 1_000}},
        {"op": "update", "key": {"id": 1_001}, "clear": ["note"]},
        {"op": "put", "key": {"id": 1_002}, "columns": {"state": "new"}},
        {"op": "update", "key": {"id": 1_003}, "columns": {"state": "new"}},
    ]);
    let (source, target) = (database.table(), target(&database));
    let mut steps = 0;
    let mut step = |progress: &RekeyProgress| {
        steps += 1;
        if steps == 1 {
            // The scan of the copy has read these rows, but they are not written yet.
            assert!(progress.read < 1_000, "{progress:?}");
            for table in [&source, &target] {
                write_rows(database.engine(), table, &changes);
            }
        }
        true
    };
    let (progress, is_complete) = rekey(&database)
        .run(database.engine(), &mut step)
        .expect("a copy");
    assert!(is_complete && steps > 1);
    let expected = RekeyProgress {
        read: ROWS as u64,
        written: ROWS as u64 - 1,
        deleted: 1,
        ..RekeyProgress::default()
    };
    assert_eq!(progress, expected);
    assert_equal(&database);
    // The same changes after a complete copy stay when it is repeated, also once nothing of them is buffered.
    let changes = json!([
        {"op": "delete", "key": {"id": 7}},
        {"op": "update", "key": {"id": 8}, "clear": ["note"]},
        {"op": "put", "key": {"id": 9}, "columns": {"state": "new"}},
    ]);
    for table in [&source, &target] {
        write_rows(database.engine(), table, &changes);
    }
    database.engine().seal().expect("it is flushed");
    rekey(&database)
        .run(database.engine(), &mut |_| true)
        .expect("a copy");
    assert_equal(&database);
    drop((source, target));
    database.close();
    database.check_stored();
}

#[test]
fn repeated_copies_while_clients_write_into_both_tables_bring_no_deleted_row_or_column_back() {
    let mut database = database();
    let (source, target) = (database.table(), target(&database));
    let copy = rekey(&database);
    let (engine, left) = (database.engine(), AtomicUsize::new(CLIENTS));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (source, target, left) = (&source, &target, &left);
            scope.spawn(move || {
                let mut random = 0x9E37_79B9_u64 + client as u64;
                for number in 0..WRITES {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Each row is written by one client, so that both tables get its changes in the same order.
                    let id = random as usize % (ROWS / CLIENTS) * CLIENTS + client;
                    let key = json!({"id": id});
                    let change = match (random >> 32) % 4 {
                        0 => put(id, &json!({"state": number})),
                        1 => json!({"op": "update", "key": key, "clear": ["note", "n"]}),
                        2 => json!({"op": "update", "key": key, "columns": {"note": number}}),
                        _ => json!({"op": "delete", "key": key}),
                    };
                    for table in [source, target] {
                        write_rows(engine, table, &json!([change]));
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while left.load(Ordering::SeqCst) > 0 {
            copy.run(engine, &mut |_| true).expect("a copy");
        }
    });
    copy.run(engine, &mut |_| true).expect("a copy");
    assert_equal(&database);
    drop((copy, source, target));
    database.close();
    database.check_stored();
}
