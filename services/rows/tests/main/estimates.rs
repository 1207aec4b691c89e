//! Estimated counts of large tables, compared with exact counts: even, uneven and merged keys, conditions, deletes.
//!
//! The effort is so small that every estimate is a sample.

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_openapi::row::{DeleteRows, ScanRows};
use tideline_rows::estimate::EstimateEffort;
use tideline_rows::read::{ScanTerms, delete};
use tideline_rows::{Scan, Selection};

use crate::database::{Database, memory};

/// Number of rows of each table; every tested selection has more rows than an exact estimate reads.
const ROWS: u64 = 60_000;
const EFFORT: EstimateEffort = EstimateEffort {
    exact_rows: 20_000,
    sampled_rows: 200_000,
};

/// Creates a database whose table has this key, and writes its rows.
fn filled(key: &Value, key_of: impl Fn(u64) -> Value) -> Database {
    let wide = json!({"key": key, "allow_rising_key": true});
    let database = Database::new(memory(Character::Embedded), &wide);
    for part in 0..ROWS / 10_000 {
        let numbers = part * 10_000..(part + 1) * 10_000;
        let rows: Vec<Value> = numbers
            .map(|n| json!({"op": "put", "key": key_of(n), "columns": {"third": n % 3 == 0}}))
            .collect();
        database.write(&rows.into());
    }
    database
}

/// Compares the estimate of a scan with the exact count. First waits until all rows are flushed: a flush between two
/// estimates can change the number of rows that they read.
fn check(database: &Database, scan: &Value, what: &str) {
    let request: ScanRows = serde_json::from_value(scan.clone()).expect("a request");
    let terms = ScanTerms {
        index: None,
        prefix: &request.prefix,
        range: request.range.as_ref(),
        direction: request.direction,
        filter: request.filter.as_ref(),
        tier: request.tier,
        page_token: None,
        allow_scan: request.allow_scan,
    };
    let (engine, table, selection) = (database.engine(), database.table(), Selection::default());
    engine.seal().expect("it is flushed");
    let scan = Scan::new(engine, &table, &terms, &selection).expect("a scan");
    let exact = scan.count(engine, &table, &|| false).expect("a count").count;
    let estimate = || {
        let estimate = scan.estimate(engine, &table, EFFORT, &|| false);
        estimate.expect("an estimate")
    };
    let found = estimate();
    let range = found.low..=found.high;
    assert!(!found.is_exact, "{what}: {found:?}");
    assert!(range.contains(&found.count), "{what}: {found:?}");
    assert!(range.contains(&exact), "{what}: {exact} rows, {found:?}");
    assert!(
        found.count.abs_diff(exact) * 4 <= exact,
        "{what}: {exact} rows, {found:?}"
    );
    assert_eq!(estimate(), found, "{what}: repeated");
}

#[test]
fn estimates_of_even_keys_are_near_the_exact_count() {
    let mut database = filled(
        &json!([{"name": "id", "type": "u64"}]),
        |n| json!({"id": n * 7_919}),
    );
    check(&database, &json!({"allow_scan": true}), "all");
    let third = json!({"allow_scan": true, "where": {"column": "third", "equals": true}});
    check(&database, &third, "a third");
    let range = json!({"range": {"column": "id", "from": 7_919 * 10_000, "to": 7_919 * 30_000}});
    let request: DeleteRows = serde_json::from_value(range).expect("a request");
    let deleted = delete(database.engine(), &database.table(), &request, None, &|| false);
    deleted.expect("they are deleted");
    check(&database, &json!({"allow_scan": true}), "after a delete");
    database.close();
}

#[test]
fn estimates_of_uneven_keys_are_in_their_interval() {
    let key = json!([{"name": "customer", "type": "string"}, {"name": "n", "type": "u64", "order": "desc"}]);
    // Customer 0 has half of the rows, customer 1 a quarter, and so on.
    let mut database = filled(&key, |n| {
        let customer = (n + 1).trailing_zeros();
        json!({"customer": format!("customer-{customer:04}"), "n": n})
    });
    check(&database, &json!({"allow_scan": true}), "all");
    let largest = json!({"prefix": {"customer": "customer-0000"}});
    check(&database, &largest, "the largest");
    database.close();
}

#[test]
fn estimates_of_merged_buckets_are_in_their_interval() {
    const FIRST: u64 = 1_795_176_000_000_000_000;
    let key = json!([{"name": "spread", "bucket": {"of": ["at"], "count": 16}}, {"name": "at", "type": "timestamp"}]);
    let mut database = filled(&key, |n| json!({"at": FIRST + n * 1_000_000_000}));
    check(&database, &json!({"allow_scan": true}), "all");
    let range = json!({"range": {"column": "at", "from": FIRST + 10_000_000_000_000}});
    check(&database, &range, "a range");
    database.close();
}
