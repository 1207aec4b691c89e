//! Limits of requests for rows: the rows of a write, the rows that are read for a page, and the memory of an export.
//!
//! The length of keys is tested by the scenario `43-long-keys.txt`, the number of keys of a read by `services/http`.

use serde_json::{Value, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

fn create(client: &Client) {
    let table = json!({"name": "events", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}],
        "columns": [{"name": "text", "type": "string"}, {"name": "last", "type": "bool"}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn put(n: u64, columns: &Value) -> Value {
    json!({"op": "put", "key": {"n": n}, "columns": columns})
}

fn write(client: &Client, rows: &[Value]) {
    client
        .post_json("/v1/tables/events/rows", &json!({"rows": rows}))
        .expect_status(200);
}

/// Scans rows as one page of JSON.
fn page(client: &Client, scan: &Value) -> Value {
    let page = client.post_json("/v1/tables/events/rows/scan", scan);
    page.expect_status(200).json()
}

/// Scans rows as NDJSON; returns the lines of the rows and the last line.
fn lines(client: &Client, scan: &Value) -> (Vec<String>, Value) {
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/x-ndjson"),
    ];
    let response = client
        .send(
            "POST",
            "/v1/tables/events/rows/scan",
            &headers,
            scan.to_string().as_bytes(),
        )
        .expect("a response")
        .expect_status(200);
    let text = response.text();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let end = lines.pop().expect("a last line");
    (lines, serde_json::from_str(&end).expect("JSON"))
}

#[test]
fn a_write_of_too_many_rows_is_refused_with_the_limit_and_writes_nothing() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    let rows: Vec<Value> = (0..10_001).map(|n| put(n, &json!({}))).collect();
    let refused = client
        .post_json("/v1/tables/events/rows", &json!({"rows": rows}))
        .expect_status(400)
        .json();
    assert_eq!(
        (
            &refused["code"],
            &refused["limit"],
            &refused["actual"],
            &refused["retryable"]
        ),
        (
            &json!("over_limit"),
            &json!(10_000),
            &json!(10_001),
            &json!(false)
        ),
        "{refused}"
    );
    let returned = |n: u64| json!({"op": "put", "key": {"n": n}, "return": "after"});
    let rows: Vec<Value> = (0..101).map(returned).collect();
    let refused = client
        .post_json("/v1/tables/events/rows", &json!({"rows": rows}))
        .expect_status(400)
        .json();
    assert_eq!(
        (&refused["code"], &refused["limit"], &refused["actual"]),
        (&json!("over_limit"), &json!(100), &json!(101)),
        "{refused}"
    );
    let found = page(&client, &json!({"allow_scan": true}));
    assert_eq!(found["returned"], 0, "{found}");
    assert!(server.terminate().status.success());
}

#[test]
fn a_page_ends_after_the_rows_that_may_be_read_and_its_token_continues() {
    /// Number of rows; at most 100,000 are read for a page.
    const ROWS: u64 = 100_500;
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    for first in (0..ROWS).step_by(5_000) {
        let numbers = first..(first + 5_000).min(ROWS);
        let rows: Vec<Value> = numbers
            .map(|n| match n + 1 == ROWS {
                true => put(n, &json!({"last": true})),
                false => put(n, &json!({})),
            })
            .collect();
        write(&client, &rows);
    }
    let mut scan = json!({"where": {"field": "last", "equals": true}, "allow_scan": true});
    let last = json!({"key": {"n": ROWS - 1}, "columns": {"last": true}});
    let first = page(&client, &scan);
    assert_eq!(
        (&first["returned"], &first["reason"]),
        (&json!(0), &json!("scanned")),
        "{first}"
    );
    assert!(first["scanned"].as_u64() >= Some(100_000), "{first}");
    scan["page_token"] = first["next"].clone();
    let second = page(&client, &scan);
    assert_eq!(
        (&second["rows"], &second["next"]),
        (&json!([last]), &Value::Null),
        "{second}"
    );
    // A stream has no such limit.
    scan["page_token"] = Value::Null;
    let (rows, end) = lines(&client, &scan);
    assert_eq!((rows.len(), &end["next"]), (1, &Value::Null), "{end}");
    assert!(end["scanned"].as_u64() >= Some(ROWS), "{end}");
    assert!(server.terminate().status.success());
}

#[test]
fn a_stream_of_any_number_of_rows_takes_bounded_memory() {
    /// Number of rows.
    const ROWS: u64 = 24_000;
    /// Length of the text of each row, in bytes.
    const TEXT_BYTES: usize = 4_000;
    /// Largest accepted growth of peak memory, in bytes: half of the texts of the stream.
    const GROWTH_BYTES_MAX: u64 = ROWS * TEXT_BYTES as u64 / 2;
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    let text = "x".repeat(TEXT_BYTES);
    for first in (0..ROWS).step_by(500) {
        let rows: Vec<Value> = (first..first + 500)
            .map(|n| put(n, &json!({"text": text})))
            .collect();
        write(&client, &rows);
    }
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    assert!(server.terminate().status.success());

    // The peak of the new process does not include the memory of the writes.
    let server = folder.start(&Launch::default());
    let client = server.client();
    let (some, _) = lines(&client, &json!({"range": {"column": "n", "to": 1_000}}));
    assert_eq!(some.len(), 1_000);
    let before = server.resident_bytes_peak();
    let (all, end) = lines(&client, &json!({"allow_scan": true}));
    let grown = server.resident_bytes_peak().saturating_sub(before);
    println!("peak memory grew by {} KiB", grown >> 10);
    assert_eq!((all.len() as u64, &end["next"]), (ROWS, &Value::Null), "{end}");
    assert!(
        grown <= GROWTH_BYTES_MAX,
        "peak memory grew by {grown} bytes, over the limit of {GROWTH_BYTES_MAX}"
    );
    assert!(server.terminate().status.success());
}
