//! Rows whose index entries make them too large for one journal entry: imports, bodies of lines and copies write them
//! in several, each row once.

use std::io::{self, Cursor};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use tideline_engine::Engine;
use tideline_engine::backend::memory::Character;
use tideline_engine::model::{TableModel, TableName, TableSpec};
use tideline_rows::WriteSettings;
use tideline_rows::import::{ImportSettings, ImportSource, Imported, import};
use tideline_rows::read::newest_position;
use tideline_rows::rekey::Rekey;
use tideline_rows::write::{OutcomeSink, WrittenLines, write_lines};

use crate::database::{Database, TABLE, memory};

const ROWS: usize = 2_000;
/// Bytes of the text of a row. With eight indexes, the changes of a row are nine times as large.
const TEXT_BYTES: usize = 1_200;

/// Collects the outcomes of lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl OutcomeSink for Lines {
    fn outcomes(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(lines);
        Ok(())
    }

    fn while_waiting(&mut self, wait: &mut dyn FnMut()) {
        wait();
    }
}

fn name(index: usize) -> String {
    format!("by_n{index}")
}

/// Adds indexes that cover all columns, and builds them.
fn add_indexes(engine: &Engine, table: &str, count: usize) {
    for index in 0..count {
        let index = json!({"name": name(index), "key": [{"name": "n", "type": "i64"}], "covers": "all"});
        let index = serde_json::from_value(index).expect("an index");
        engine.create_index(table, index).expect("it is created");
        for building in engine.building_indexes() {
            let built = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
            built.expect("it is built");
        }
    }
}

/// Drops the indexes, so that the changes of a row are as large as the row.
fn drop_indexes(database: &Database, count: usize) {
    for index in 0..count {
        let dropped = database.engine().drop_index(TABLE, &name(index));
        dropped.expect("it is dropped");
    }
}

fn database(indexes: usize) -> Database {
    let wide = json!({
        "key": [{"name": "id", "type": "string"}],
        "columns": [{"name": "n", "type": "i64"}, {"name": "text", "type": "string"}],
    });
    let database = Database::new(memory(Character::Embedded), &wide);
    add_indexes(database.engine(), TABLE, indexes);
    database
}

fn key(id: usize) -> Value {
    json!({"id": format!("row-{id:05}")})
}

fn columns(id: usize) -> Value {
    json!({"n": id, "text": "x".repeat(TEXT_BYTES)})
}

/// Returns a body of lines.
fn body(lines: impl Iterator<Item = Value>) -> Vec<u8> {
    lines.flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn keyed() -> WriteSettings {
    WriteSettings {
        key: Some("once".to_owned()),
        ..WriteSettings::default()
    }
}

fn import_lines(database: &Database, body: Vec<u8>) -> Imported {
    let settings = ImportSettings {
        write: keyed(),
        is_update: true,
        ..ImportSettings::default()
    };
    let source = ImportSource::Lines(Box::new(Cursor::new(body)));
    let imported = import(
        database.engine(),
        &database.table(),
        source,
        &settings,
        &|| false,
        &mut |_| Ok(()),
    );
    imported.expect("an import")
}

fn send_lines(database: &Database, body: &[u8]) -> (WrittenLines, Vec<Value>) {
    let mut sink = Lines::default();
    let written = write_lines(database.engine(), &database.table(), body, &keyed(), &mut sink);
    let outcomes = serde_json::Deserializer::from_slice(&sink.0).into_iter();
    let outcomes: Result<Vec<Value>, _> = outcomes.collect();
    (written.expect("lines"), outcomes.expect("JSON"))
}

#[test]
fn an_import_is_divided_if_its_index_entries_are_large() {
    for indexes in [4, 8] {
        let database = database(indexes);
        let records = (0..ROWS).map(|id| json!({"key": key(id), "columns": columns(id)}));
        let body = body(records);
        for _ in 0..2 {
            let imported = import_lines(&database, body.clone());
            assert!(imported.stopped.is_none(), "{:?}", imported.stopped);
            assert_eq!(imported.counts.written, ROWS as u64);
            assert_eq!(database.naive(None).len(), ROWS);
        }
    }
}

#[test]
fn the_lines_of_a_divided_body_are_written_once_also_if_it_would_then_be_divided_in_another_way() {
    for indexes in [4, 8] {
        let database = database(indexes);
        let line = |id| json!({"op": "update", "key": key(id), "columns": {"text": "x".repeat(TEXT_BYTES)}, "increment": {"n": 1}});
        let body = body((0..ROWS).map(line));
        let (written, outcomes) = send_lines(&database, &body);
        assert_eq!(written.counts.written, ROWS as u64);
        let numbers: Vec<Value> = outcomes.iter().map(|outcome| outcome["index"].clone()).collect();
        assert_eq!(numbers, (0..ROWS).map(Value::from).collect::<Vec<Value>>());
        drop_indexes(&database, indexes);
        let (again, repeated) = send_lines(&database, &body);
        assert_eq!((again.counts, repeated), (written.counts, outcomes));
        let rows = database.naive(None);
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().all(|row| row["columns"]["n"] == 1), "{}", rows[0]);
    }
}

/// Returns columns with texts of 30,000 bytes.
fn large_columns(count: usize) -> serde_json::Map<String, Value> {
    let text = Value::from("x".repeat(30_000));
    (0..count)
        .map(|number| (format!("part{number}"), text.clone()))
        .collect()
}

#[test]
fn a_repeated_request_divides_refused_lines_like_the_first_one() {
    // Two of the rows are too large for one journal entry, so some parts have only refused lines.
    let row =
        |id| json!({"op": "update", "key": key(id), "columns": large_columns(10), "increment": {"n": 1}});
    let refused = || json!({"op": "update", "key": {"id": 5}, "columns": {}});
    let bodies = [
        vec![row(0), row(1), refused(), row(3), row(4)],
        vec![refused(), refused(), row(2), row(3), refused(), row(5), row(6)],
        vec![row(0), refused(), refused(), refused(), row(4), row(5)],
    ];
    for lines in bodies {
        for drops_indexes in [false, true] {
            let database = database(8);
            let body = body(lines.iter().cloned());
            let (written, outcomes) = send_lines(&database, &body);
            assert_eq!(outcomes.len(), lines.len());
            if drops_indexes {
                drop_indexes(&database, 8);
            }
            let (again, repeated) = send_lines(&database, &body);
            assert_eq!((again.counts, repeated), (written.counts, outcomes));
            let rows = database.naive(None);
            assert_eq!(rows.len() as u64, written.counts.written);
            assert!(rows.iter().all(|row| row["columns"]["n"] == 1));
            let valid = lines.iter().filter(|line| line["key"]["id"].is_string());
            assert_eq!(rows.len(), valid.count());
        }
    }
}

#[test]
fn the_parts_of_a_divided_body_grow_again_after_large_rows() {
    const LINES: usize = 600;
    let database = database(8);
    // Each of the large rows is a part of its own.
    let line = |id: usize| {
        let columns = match id {
            200..=202 => large_columns(10),
            _ => serde_json::Map::new(),
        };
        json!({"op": "update", "key": key(id), "columns": columns, "increment": {"n": 1}})
    };
    let body = body((0..LINES).map(line));
    let before = newest_position(database.engine()).0;
    let (written, outcomes) = send_lines(&database, &body);
    assert_eq!(written.counts.written, LINES as u64, "{outcomes:?}");
    let entries = newest_position(database.engine()).0 - before;
    assert!((4..=40).contains(&entries), "{entries}");
    drop_indexes(&database, 8);
    let (again, repeated) = send_lines(&database, &body);
    assert_eq!((again.counts, repeated), (written.counts, outcomes));
    let rows = database.naive(None);
    assert_eq!(rows.len(), LINES);
    assert!(rows.iter().all(|row| row["columns"]["n"] == 1));
}

#[test]
fn a_row_that_is_too_large_with_its_index_entries_is_refused_alone() {
    let database = database(8);
    let mut large = large_columns(20);
    large.insert("n".to_owned(), 1.into());
    let rows = [
        json!({"op": "put", "key": key(0), "columns": columns(0)}),
        json!({"op": "put", "key": key(1), "columns": large}),
        json!({"op": "put", "key": key(2), "columns": columns(2)}),
    ];
    let (written, outcomes) = send_lines(&database, &body(rows.into_iter()));
    assert_eq!((written.counts.written, written.counts.refused), (2, 1));
    let reason = outcomes[1]["reason"].as_str().expect("a reason");
    assert!(reason.contains("index entries"), "{reason}");
}

#[test]
fn a_copy_into_a_table_with_many_indexes_is_divided() {
    let database = database(0);
    for ids in (0..ROWS).collect::<Vec<usize>>().chunks(500) {
        let rows = ids
            .iter()
            .map(|id| json!({"op": "put", "key": key(*id), "columns": columns(*id)}));
        database.write(&rows.collect::<Vec<Value>>().into());
    }
    let wide = json!({
        "key": [{"name": "hash", "hash_prefix": {"of": ["id"], "hex": 4}}, {"name": "id", "type": "string"}],
        "columns": [{"name": "n", "type": "i64"}, {"name": "text", "type": "string"}],
    });
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(serde_json::from_value(wide).expect("settings"))),
        ..TableSpec::default()
    };
    let target = TableName::new("target").expect("a name");
    database.engine().create_table(target, spec).expect("a table");
    add_indexes(database.engine(), "target", 8);
    let target = database.engine().wide_table("target").expect("it exists");
    let copy = Rekey::new(database.table(), target, false).expect("a copy");
    let (progress, is_complete) = copy.run(database.engine(), &mut |_| true).expect("a copy");
    assert!(is_complete && !progress.is_unrecorded, "{progress:?}");
    assert_eq!(
        (progress.written, progress.refused),
        (ROWS as u64, 0),
        "{progress:?}"
    );
}
