//! Estimated counts of large tables, compared with exact counts: even, uneven and merged keys, conditions, deletes.
//!
//! Small counts and the form of explanations are tested by `tests/scenarios/36-rows-formats.txt`.

use serde_json::{Value, json};

use crate::client::Server;

/// Number of rows of each table; too many for an estimate to be exact.
const ROWS: u64 = 60_000;

fn create(server: &Server, name: &str, key: &Value) {
    let body = json!({"name": name, "model": "wide", "wide": {"key": key, "allow_rising_key": true}});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
}

fn fill(server: &Server, name: &str, key: impl Fn(u64) -> Value) {
    for part in 0..ROWS / 10_000 {
        let numbers = part * 10_000..(part + 1) * 10_000;
        let rows: Vec<Value> = numbers
            .map(|n| json!({"op": "put", "key": key(n), "columns": {"third": n % 3 == 0}}))
            .collect();
        let written = server.json(
            "POST",
            &format!("/v1/tables/{name}/rows"),
            &json!({"rows": rows}).to_string(),
        );
        assert_eq!(written.expect(200)["written"], 10_000);
    }
}

fn count(server: &Server, name: &str, body: &Value) -> Value {
    server
        .json(
            "POST",
            &format!("/v1/tables/{name}/rows/count"),
            &body.to_string(),
        )
        .expect(200)
}

/// Compares an estimate with the exact count.
fn check(server: &Server, name: &str, body: &Value, what: &str) {
    let exact = count(server, name, body)["count"].as_u64().expect("a count");
    let mut body = body.clone();
    body["estimate"] = true.into();
    let estimate = count(server, name, &body);
    let of = |value: &Value| value.as_u64().expect("a count");
    let (low, high) = (
        of(&estimate["interval"]["low"]),
        of(&estimate["interval"]["high"]),
    );
    let (guess, scanned) = (of(&estimate["count"]), of(&estimate["scanned"]));
    println!("{what}: {exact} rows, estimate {guess} in {low}..{high}, {scanned} read");
    assert!(low <= guess && guess <= high, "{what}: {estimate}");
    assert!(low <= exact && exact <= high, "{what}: {exact} rows, {estimate}");
    assert!(
        guess.abs_diff(exact) * 4 <= exact,
        "{what}: {exact} rows, {estimate}"
    );
    assert_eq!(count(server, name, &body)["count"], guess, "{what}: repeated");
}

#[test]
fn estimates_of_even_keys_are_near_the_exact_count() {
    let server = Server::start();
    create(&server, "even", &json!([{"name": "id", "type": "u64"}]));
    fill(&server, "even", |n| json!({"id": n * 7_919}));
    check(&server, "even", &json!({"allow_scan": true}), "all");
    let third = json!({"allow_scan": true, "where": {"field": "third", "equals": true}});
    check(&server, "even", &third, "a third");
    let delete = json!({"range": {"column": "id", "from": 7_919 * 10_000, "to": 7_919 * 30_000}});
    server
        .json("POST", "/v1/tables/even/rows/delete", &delete.to_string())
        .expect(200);
    check(&server, "even", &json!({"allow_scan": true}), "after a delete");
}

#[test]
fn estimates_of_uneven_keys_are_in_their_interval() {
    let server = Server::start();
    let key = json!([{"name": "customer", "type": "string"}, {"name": "n", "type": "u64", "order": "desc"}]);
    create(&server, "uneven", &key);
    // Customer 0 has half of the rows, customer 1 a quarter, and so on.
    fill(&server, "uneven", |n| {
        let customer = (n + 1).trailing_zeros();
        json!({"customer": format!("customer-{customer:04}"), "n": n})
    });
    check(&server, "uneven", &json!({"allow_scan": true}), "all");
    check(
        &server,
        "uneven",
        &json!({"prefix": {"customer": "customer-0000"}}),
        "the largest",
    );
}

#[test]
fn estimates_of_merged_buckets_are_in_their_interval() {
    let server = Server::start();
    let key = json!([{"name": "spread", "bucket": {"of": ["at"], "count": 16}}, {"name": "at", "type": "timestamp"}]);
    create(&server, "merged", &key);
    fill(
        &server,
        "merged",
        |n| json!({"at": 1_795_176_000_000_000_000_u64 + n * 1_000_000_000}),
    );
    check(&server, "merged", &json!({"allow_scan": true}), "all");
    let range =
        json!({"range": {"column": "at", "from": 1_795_176_000_000_000_000_u64 + 10_000_000_000_000}});
    check(&server, "merged", &range, "a range");
}
