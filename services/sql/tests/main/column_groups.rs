//! Tests of the column groups that a `SELECT` by keys reads, and of the use of columns that it records.
//!
//! Bytes that are read from parts in the cold tier are counted, so the test moves its rows there.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use tideline_engine::model::Tier;
use tideline_engine::rows::{MoveEnd, take_cold_bytes};

use crate::support::Database;

/// Size of the value in the column group, in bytes.
const TEXT_BYTES: usize = 50_000;

fn database() -> Database {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE t (id BIGINT, at TIMESTAMP, price BIGINT, description VARCHAR, PRIMARY KEY (id, at)) \
         WITH (PARTS_BY = at, PARTS_EVERY = 'day', \
         GROUPS = '[{\"name\": \"texts\", \"columns\": [\"description\"]}]')",
    );
    let text = "x".repeat(TEXT_BYTES);
    database.succeed(&format!(
        "UPSERT INTO t (id, at, price, description) VALUES (1, '2027-01-10 12:00:00', 5, '{text}')"
    ));
    let engine = database.engine();
    engine.seal().expect("the row is flushed");
    let table = engine.wide_table("t").expect("it exists");
    let every = table.settings().parts.as_ref().expect("it is divided").every;
    let part = engine.table_parts(&table).expect("parts")[0].start.nanos();
    let moved = engine.move_table_part(
        table.table().points().id(),
        every.number_of(part),
        Tier::Cold,
        &mut |_| ControlFlow::Continue(()),
    );
    assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
    database
}

#[test]
fn a_select_by_keys_reads_the_needed_column_groups_and_is_counted() {
    let database = database();
    let table = database.engine().wide_table("t").expect("it exists");
    let read = |columns: &str, condition: &str| -> (Vec<Value>, u64) {
        let statement =
            format!("SELECT {columns} FROM t WHERE id = 1 AND at = '2027-01-10 12:00:00'{condition}");
        take_cold_bytes();
        let rows = database.rows(&statement);
        (rows, take_cold_bytes())
    };
    let (rows, bytes) = read("price", "");
    assert_eq!(rows, [json!({"price": 5})]);
    assert!((1..TEXT_BYTES as u64).contains(&bytes), "{bytes} bytes");
    let (rows, bytes) = read("COUNT(*)", " AND price = 5");
    assert_eq!(rows, [json!({"count": 1})]);
    assert!((1..TEXT_BYTES as u64).contains(&bytes), "{bytes} bytes");
    // The condition needs the group.
    let (rows, bytes) = read("price", " AND description LIKE 'x%'");
    assert_eq!(rows, [json!({"price": 5})]);
    assert!(bytes > TEXT_BYTES as u64, "{bytes} bytes");
    let (rows, bytes) = read("*", "");
    assert_eq!(rows[0]["description"].as_str().map(str::len), Some(TEXT_BYTES));
    assert!(bytes > TEXT_BYTES as u64, "{bytes} bytes");

    let used = database.engine().column_use(&table);
    assert_eq!((used.reads, used.whole_reads), (4, 1));
    let named = ["price", "description"].map(|column| used.columns.get(column).map(|used| used.reads));
    assert_eq!(named, [Some(3), Some(1)]);
}
