//! Copies into a table with another key while clients write into both tables, first into the source, then into the
//! target, and after the switch, when they write only into the target.
//!
//! While clients write into both tables, the target must equal the source afterwards. Rows and columns that clients
//! delete must not come back, also if the copy is repeated after the switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::{TableModel, TableName, TableSpec, Timestamp};
use tideline_engine::rows::{
    Action, CellValue, Column, Image, Mutation, RowCondition, RowWrite, RowWriteOptions, Update,
};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::RowsBody;
use tideline_rows::read::ScanTerms;
use tideline_rows::rekey::{Rekey, RekeyProgress};
use tideline_rows::write::write;
use tideline_rows::{PageLimits, Scan, Selection, WriteSettings};

use crate::database::{Database, SECOND, START, memory};

/// Number of rows of the source. A merged scan reads all of them before the first batch is written.
const ROWS: usize = 2_000;
const CLIENTS: usize = 3;
const WRITES: usize = 600;

/// Creates a source with rows in four buckets, and an empty target.
fn database() -> Database {
    let source = json!({
        "key": [{"name": "spread", "bucket": {"of": ["id"], "count": 4}}, {"name": "id", "type": "i64"}],
        "columns": [{"name": "n", "type": "i64", "number": 1}], "next_column": 2, "allow_rising_key": true,
    });
    let database = Database::new(memory(Character::Embedded), &source);
    create_target(&database);
    let rows = (0..ROWS).map(|id| put(id, &json!({"n": id, "note": "old", "state": "old"})));
    write_rows(
        database.engine(),
        &database.table(),
        &rows.collect::<Vec<Value>>().into(),
    );
    database
}

fn create_target(database: &Database) {
    let target = json!({
        "key": [{"name": "hash", "hash_prefix": {"of": ["id"], "hex": 4}}, {"name": "id", "type": "i64"}],
        "columns": [{"name": "n", "type": "i64", "number": 1}], "next_column": 2,
    });
    create_target_with(database, target);
}

fn create_target_with(database: &Database, target: Value) {
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(serde_json::from_value(target).expect("settings"))),
        ..TableSpec::default()
    };
    let name = TableName::new("target").expect("a name");
    database.engine().create_table(name, spec).expect("a table");
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

/// Copies all rows. Returns the number of rows that were written.
fn copied(database: &Database) -> u64 {
    let copy = rekey(database).run(database.engine(), &mut |_| true);
    let (progress, is_complete) = copy.expect("a copy");
    assert!(is_complete && !progress.is_unrecorded, "{progress:?}");
    assert_eq!(progress.written + progress.up_to_date, progress.read);
    progress.written
}

/// Returns the columns of a row of the target; `None` if it does not exist.
fn columns(database: &Database, id: usize) -> Option<Value> {
    let mut rows = all(database, &target(database)).into_iter();
    let found = rows.find(|row| row["key"]["id"].to_string().trim_matches('"') == id.to_string());
    found.map(|mut row| row["columns"].take())
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

#[test]
fn a_copy_that_is_repeated_after_the_switch_writes_only_what_has_changed_in_the_source() {
    let mut database = database();
    let ahead = Timestamp::from_nanos_clamped(START + 3_600 * SECOND).to_rfc3339();
    let row_ahead = put(5, &json!({"state": {"value": "old", "version": ahead}}));
    write_rows(database.engine(), &database.table(), &json!([row_ahead]));
    // Versions of the last minutes before a copy can be those of running writes.
    database.clock.advance(1_200 * SECOND);
    assert_eq!(copied(&database), ROWS as u64);

    // Clients write only into the target from now on.
    let changes = json!([
        {"op": "delete", "key": {"id": 5}},
        {"op": "delete", "key": {"id": 7}},
        {"op": "update", "key": {"id": 8}, "clear": ["note"]},
        {"op": "put", "key": {"id": 9}, "columns": {"state": "new"}},
    ]);
    write_rows(database.engine(), &target(&database), &changes);
    database.engine().seal().expect("it is flushed");
    database.close();
    database.open();
    assert_eq!(copied(&database), 0);

    // Some late clients still write only into the source.
    let late = |id: usize| json!({"op": "update", "key": {"id": id}, "columns": {"note": "late"}});
    let changes = json!([late(10), late(11), put(ROWS, &json!({"note": "late"}))]);
    write_rows(database.engine(), &database.table(), &changes);
    let newer = json!({"op": "update", "key": {"id": 11}, "columns": {"state": "new"}, "clear": ["n"]});
    write_rows(database.engine(), &target(&database), &json!([newer]));
    assert_eq!(copied(&database), 3);
    for deleted in [5, 7] {
        assert_eq!(columns(&database, deleted), None, "{deleted}");
    }
    let row = |id| columns(&database, id).expect("a row");
    assert_eq!(row(8)["note"], Value::Null);
    assert_eq!(row(9), json!({"state": "new"}));
    assert_eq!(row(10)["note"], "late");
    assert_eq!(row(11), json!({"note": "late", "state": "new"}));
    assert_eq!(row(ROWS), json!({"note": "late"}));
    assert_eq!(copied(&database), 0);

    // A row that changes in the source is copied, although the target has deleted it.
    write_rows(database.engine(), &database.table(), &json!([late(7)]));
    assert_eq!(copied(&database), 1);
    assert_eq!(row(7)["note"], "late");
    database.close();
    database.check_stored();
}

#[test]
fn a_row_that_has_got_another_key_in_the_target_is_copied_as_a_whole() {
    let source = json!({
        "key": [{"name": "id", "type": "i64"}],
        "columns": [{"name": "school", "type": "string", "number": 1}], "next_column": 2, "allow_rising_key": true,
    });
    let mut database = Database::new(memory(Character::Embedded), &source);
    create_target_with(
        &database,
        json!({"key": [{"name": "school", "type": "string"}, {"name": "id", "type": "i64"}]}),
    );
    let update = |table: &WideTable, key: Value, change: Value| {
        let mut row = json!({"op": "update", "key": key});
        let members = change.as_object().expect("an object").clone();
        row.as_object_mut().expect("an object").extend(members);
        write_rows(database.engine(), table, &json!([row]));
    };
    let rows = || {
        let rows = all(&database, &target(&database)).into_iter();
        rows.map(|row| json!([row["key"]["school"], row["columns"]]))
            .collect::<Vec<Value>>()
    };
    let row = put(1, &json!({"school": "north", "amount": "5", "note": "old"}));
    write_rows(database.engine(), &database.table(), &json!([row]));
    // Versions of the last minutes before a copy can be those of running writes.
    database.clock.advance(1_200 * SECOND);
    assert_eq!(copied(&database), 1);

    // Only the source gets the new school, but both tables get the next change.
    let south = || json!({"school": "south", "id": 1});
    let change = json!({"columns": {"school": "south"}});
    update(&database.table(), json!({"id": 1}), change);
    let change = || json!({"columns": {"note": "new"}});
    update(&database.table(), json!({"id": 1}), change());
    update(&target(&database), south(), change());
    assert_eq!(rows()[1], json!(["south", {"note": "new"}]));
    assert_eq!(copied(&database), 1);
    let north = json!(["north", {"amount": "5", "note": "old"}]);
    let copied_south = json!(["south", {"amount": "5", "note": "new"}]);
    assert_eq!(rows(), [north.clone(), copied_south]);

    // With the key that the last copy has written, a column that was removed in the target stays removed.
    database.clock.advance(1_200 * SECOND);
    assert_eq!(copied(&database), 0);
    let late = json!({"columns": {"late": "1"}});
    update(&database.table(), json!({"id": 1}), late);
    update(&target(&database), south(), json!({"clear": ["amount"]}));
    assert_eq!(copied(&database), 1);
    assert_eq!(rows(), [north, json!(["south", {"late": "1", "note": "new"}])]);
    database.close();
    database.check_stored();
}

#[test]
fn a_copy_covers_rows_as_it_has_read_them_and_only_if_it_is_complete_and_both_tables_are_the_same() {
    let mut database = database();
    let delete = |id: usize| {
        let delete = json!([{"op": "delete", "key": {"id": id}}]);
        write_rows(database.engine(), &target(&database), &delete);
    };
    let change = |state: &str| {
        let change = json!([{"op": "update", "key": {"id": ROWS - 1}, "columns": {"state": state}}]);
        write_rows(database.engine(), &database.table(), &change);
    };
    let (_, is_complete) = rekey(&database)
        .run(database.engine(), &mut |_| false)
        .expect("a copy");
    assert!(!is_complete);
    delete(0);
    let mut is_changed = false;
    let mut step = |_: &RekeyProgress| {
        if !is_changed {
            change("during the copy");
            is_changed = true;
        }
        true
    };
    let copy = rekey(&database).run(database.engine(), &mut step);
    assert!(copy.expect("a copy").1);
    let first = columns(&database, 0);
    assert!(first.is_some(), "the interrupted copy is not complete");
    let row = columns(&database, ROWS - 1).expect("a row");
    assert_eq!(row["state"], "during the copy");

    delete(ROWS - 1);
    assert_eq!(copied(&database), 0);
    assert_eq!(columns(&database, ROWS - 1), None);
    change("after the copy");
    assert_eq!(copied(&database), 1);

    // A table that was created again is another table.
    database.engine().drop_table("target").expect("it is dropped");
    create_target(&database);
    assert_eq!(copied(&database), ROWS as u64);
    assert_equal(&database);
    database.close();
    database.check_stored();
}

#[test]
fn a_write_into_the_source_that_begins_before_a_copy_and_ends_after_it_is_copied_by_the_next_one() {
    let mut database = database();
    let (engine, source, rekey) = (database.engine(), database.table(), rekey(&database));
    let copy = || {
        let (progress, is_complete) = rekey.run(engine, &mut |_| true).expect("a copy");
        assert!(is_complete);
        progress.written
    };
    for (id, is_decided) in [(12, false), (13, true)] {
        let is_copied = AtomicBool::new(false);
        let copy_once = || {
            if !is_copied.swap(true, Ordering::SeqCst) {
                copy();
            }
        };
        let copy_once: &(dyn Fn() + Sync) = &copy_once;
        let mut key = Vec::new();
        let layout = source.layout();
        layout.encode(&[KeyValue::Signed(id)], &mut key).expect("a key");
        let make = |_: &mut dyn FnMut() -> i64| {
            let time = engine.next_version();
            let value = CellValue::String("late".into());
            if !is_decided {
                copy_once();
            }
            let condition = move |_: Option<&Mutation<'_>>| {
                copy_once();
                true
            };
            Ok(vec![RowWrite {
                partition: key.len(),
                key: key.clone().into(),
                time,
                action: Action::Update(Update {
                    columns: vec![Column::with(source.column("state").0, time, value)],
                    ..Update::default()
                }),
                condition: is_decided.then(|| Box::new(condition) as RowCondition<'_>),
                image: Image::None,
            }])
        };
        let written = engine.write_rows(&source, &make, &RowWriteOptions::default());
        written.expect("it is written");
        let state = |columns: Option<Value>| columns.expect("a row")["state"].clone();
        let id = usize::try_from(id).expect("a small number");
        let before = state(columns(&database, id));
        assert_eq!(before, "old", "the copy has read the row before the write");
        assert_eq!(copy(), 1, "{id}");
        assert_eq!(state(columns(&database, id)), "late");
    }
    drop((source, rekey));
    database.close();
    database.check_stored();
}
