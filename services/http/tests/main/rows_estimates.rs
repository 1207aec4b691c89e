//! Estimated count of a table with more rows than an exact estimate reads.
//!
//! The samples are tested in `services/rows`; small counts and the form of explanations by
//! `tests/scenarios/36-rows-formats.txt`.

use serde_json::{Value, json};

use crate::client::Server;

/// Number of rows. An estimate of up to 200,000 rows is exact.
const ROWS: u64 = 210_000;

#[test]
fn a_large_count_is_estimated_with_an_interval() {
    let server = Server::start();
    let key = json!([{"name": "id", "type": "u64"}]);
    let body = json!({"name": "even", "model": "wide", "wide": {"key": key, "allow_rising_key": true}});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
    for part in 0..ROWS / 10_000 {
        let numbers = part * 10_000..(part + 1) * 10_000;
        let rows: Vec<Value> = numbers
            .map(|n| json!({"op": "put", "key": {"id": n * 7_919}, "columns": {"n": 1}}))
            .collect();
        let body = json!({"rows": rows}).to_string();
        let written = server.json("POST", "/v1/tables/even/rows", &body);
        assert_eq!(written.expect(200)["written"], 10_000);
    }
    let count = |body: &Value| {
        let counted = server.json("POST", "/v1/tables/even/rows/count", &body.to_string());
        counted.expect(200)
    };
    let estimate = count(&json!({"allow_scan": true, "estimate": true}));
    assert!(!estimate["interval"].is_null(), "{estimate}");
    let of = |value: &Value| value.as_u64().expect("a count");
    let interval = of(&estimate["interval"]["low"])..=of(&estimate["interval"]["high"]);
    let guess = of(&estimate["count"]);
    assert!(
        interval.contains(&guess) && interval.contains(&ROWS),
        "{estimate}"
    );
    assert!(guess.abs_diff(ROWS) * 4 <= ROWS, "{estimate}");
}
