//! Tests of writes: rows whose keys are not valid, and conditions whose patterns need memory.
//!
//! An invalid key stops the other rows of its partition, because a partition is written as a whole or not at all.

use serde_json::{Value, json};
use tideline_engine::EngineError;
use tideline_engine::backend::memory::Character;
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::{RowStatus, RowsBody};
use tideline_rows::condition::RowMatcher;
use tideline_rows::write::{read_body, write};
use tideline_rows::{Outcomes, RowsError, WriteSettings};

use crate::database::{Database, memory};

/// Number of rows of a request with equal conditions.
const ROWS: usize = 100;
const SPARE_BYTES: u64 = 64 << 20;

fn database() -> Database {
    let wide = json!({"key": [{"name": "p", "type": "string"}, {"name": "q", "type": "string"}]});
    Database::new(memory(Character::Embedded), &wide)
}

fn send(database: &Database, rows: &[Value], settings: &WriteSettings) -> Result<Outcomes, RowsError> {
    let body = json!({"rows": rows}).to_string();
    let RowsBody { rows, .. } = read_body(body.as_bytes()).expect("rows");
    write(
        database.engine(),
        &database.table(),
        &rows,
        body.as_bytes(),
        settings,
    )
}

fn put(p: &Value, q: &Value) -> Value {
    json!({"op": "put", "key": {"p": p, "q": q}})
}

#[test]
fn a_row_whose_key_is_not_valid_stops_its_partition() {
    use RowStatus::{NotApplied, Refused, Written};
    let (x, y, one) = (json!("x"), json!("y"), json!("1"));
    let long = json!("q".repeat(9_000));
    let unknown_column = json!({"op": "put", "key": {"p": "x", "q": "2", "r": 1}});
    for (bad, expected) in [
        (put(&x, &json!(7)), [NotApplied, Refused, Written]),
        (put(&x, &long), [NotApplied, Refused, Written]),
        (
            json!({"op": "put", "key": {"p": "x"}}),
            [NotApplied, Refused, Written],
        ),
        (unknown_column, [NotApplied, Refused, Written]),
        // A partition that no valid row can have.
        (put(&long, &one), [Written, Refused, Written]),
        // A partition that cannot be determined.
        (put(&json!(7), &one), [NotApplied, Refused, NotApplied]),
        (
            json!({"op": "put", "key": {"q": "1"}}),
            [NotApplied, Refused, NotApplied],
        ),
    ] {
        let sent = send(
            &database(),
            &[put(&x, &one), bad.clone(), put(&y, &one)],
            &WriteSettings::default(),
        );
        let rows = sent.expect("an outcome").rows;
        let found: Vec<RowStatus> = rows.iter().map(|row| row.status).collect();
        assert_eq!(found, expected, "{bad}");
    }
}

#[test]
fn a_lack_of_memory_for_patterns_is_temporary_and_equal_conditions_share_a_pattern() {
    let database = database();
    let account = database.engine().memory();
    let filter = json!({"not": {"column": "q", "regex": "[a-z]{1,100}[0-9]{1,100}!"}});
    let rows: Vec<Value> = (0..ROWS)
        .map(|n| json!({"op": "put", "key": {"p": "x", "q": format!("{n}")}, "condition": {"where": filter}}))
        .collect();
    let keyed = WriteSettings {
        key: Some("k".to_owned()),
        ..WriteSettings::default()
    };
    account.set_limit(account.used_bytes() + SPARE_BYTES);
    let spare = SPARE_BYTES.min(account.limit_bytes() - account.used_bytes());
    let held = account.reserve("the test", spare).expect("there is room");
    let refused = send(&database, &rows, &keyed).expect_err("there is no memory");
    assert!(
        matches!(&refused, RowsError::Engine(error) if error.is_retryable()),
        "{refused:?}"
    );
    drop(held);

    // There is room for a few patterns, and not for one per row.
    let parsed: RowFilter = serde_json::from_value(filter).expect("a condition");
    let before = account.used_bytes();
    let matcher = RowMatcher::new(database.engine(), &database.table(), &parsed).expect("it is compiled");
    let pattern = account.used_bytes() - before;
    drop(matcher);
    assert!(pattern > 0);
    account.set_limit(account.used_bytes() + 5 * pattern);
    let written = send(&database, &rows, &keyed).expect("the same request succeeds");
    assert_eq!((written.counts.written, written.repeated), (ROWS as u64, false));
}

#[test]
fn patterns_of_a_request_that_together_exceed_the_memory_are_refused_for_good() {
    let database = database();
    let account = database.engine().memory();
    let filter = |number: usize| {
        let pattern = format!("[a-z]{{1,100}}[0-9]{{1,100}}{number:03}!");
        json!({"not": {"column": "q", "regex": pattern}})
    };
    let rows: Vec<Value> = (0..ROWS)
        .map(|number| {
            json!({"op": "put", "key": {"p": "x", "q": format!("{number}")}, "condition": {"where": filter(number)}})
        })
        .collect();
    let parsed: RowFilter = serde_json::from_value(filter(0)).expect("a condition");
    let before = account.used_bytes();
    let matcher = RowMatcher::new(database.engine(), &database.table(), &parsed).expect("it is compiled");
    let pattern = account.used_bytes() - before;
    drop(matcher);
    let set_aside = account.whole_bytes() - account.limit_bytes();
    account.set_limit(set_aside + 5 * pattern + pattern / 2);
    let refused = send(&database, &rows, &WriteSettings::default()).expect_err("there is no memory");
    assert!(
        matches!(&refused, RowsError::Engine(error @ EngineError::Memory(_)) if !error.is_retryable()),
        "{refused:?}"
    );
}
