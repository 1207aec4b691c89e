//! Limits of the rates at which the rows of a wide table, and of its older parts, are read and written.
//!
//! The clock of the server stands still unless a test advances it, so the rates are exact.

use serde_json::{Value, json};

use crate::client::Server;

/// Creates a table by month with these limits, and one row of last year and one of today.
fn create(server: &Server, limits: &Value) {
    let table = json!({
        "name": "readings", "model": "wide", "wide": {
            "key": [{"name": "meter", "type": "string"}, {"name": "at", "type": "timestamp"}],
            "columns": [{"name": "kwh", "type": "i64"}, {"name": "note", "type": "string"}],
            "parts": {"by": "at", "every": "month"}, "limits": limits
        }
    });
    server.json("POST", "/v1/tables", &table.to_string()).expect(201);
    let rows: Vec<Value> = [OLD, NEW]
        .iter()
        .map(|at| json!({"op": "put", "key": {"meter": "m", "at": at}, "columns": {"kwh": 1}}))
        .collect();
    write_rows(server, &json!({"rows": rows})).expect(200);
    server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
}

const OLD: &str = "2025-11-10T00:00:00Z";
const NEW: &str = "2026-11-20T11:00:00Z";

fn write_rows(server: &Server, rows: &Value) -> crate::client::Response {
    server.json("POST", "/v1/tables/readings/rows", &rows.to_string())
}

fn get(server: &Server, at: &str) -> crate::client::Response {
    let body = json!({"keys": [{"meter": "m", "at": at}]});
    server.json("POST", "/v1/tables/readings/rows/get", &body.to_string())
}

fn put(server: &Server, at: &str, columns: &Value) -> crate::client::Response {
    write_rows(
        server,
        &json!({"rows": [{"op": "put", "key": {"meter": "m", "at": at}, "columns": columns}]}),
    )
}

fn scan(server: &Server, from: &str) -> crate::client::Response {
    let body = json!({"prefix": {"meter": "m"}, "range": {"column": "at", "from": from}});
    server.json("POST", "/v1/tables/readings/rows/scan", &body.to_string())
}

#[test]
fn reads_of_old_parts_are_limited_and_reads_of_new_ones_are_not() {
    let server = Server::start();
    create(&server, &json!([{"older_than": "90d", "reads_per_second": 2}]));
    // Five seconds of the rate can be used ahead.
    for _ in 0..11 {
        get(&server, OLD).expect(200);
    }
    let refused = get(&server, OLD).expect(429);
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&json!("rate_limited"), &json!(true)),
        "{refused}"
    );
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("limit of 2 reads per second of parts that ended 90d ago or earlier"),
        "{message}"
    );
    // Every kind of read is refused if it reaches the old part, and no other one.
    scan(&server, "2025-01-01T00:00:00Z").expect(429);
    let select = |from: &str| {
        let sql = format!("SELECT * FROM readings WHERE meter = 'm' AND at >= '{from}'");
        server.json("POST", "/v1/sql", &json!({"statement": sql}).to_string())
    };
    select("2025-01-01 00:00:00").expect(429);
    for _ in 0..50 {
        get(&server, NEW).expect(200);
        put(&server, OLD, &json!({"kwh": 2})).expect(200);
    }
    assert_eq!(scan(&server, "2026-11-01T00:00:00Z").expect(200)["returned"], 1);
    select("2026-11-01 00:00:00").expect(200);
    let metrics = server.get("/metrics").text();
    assert!(
        metrics.contains("tideline_row_limit_refusals_total{table=\"readings\"} 3"),
        "{metrics}"
    );
    // The rate is available again after the time in `Retry-After`.
    server.clock.advance(1_000_000_000);
    get(&server, OLD).expect(200);
}

#[test]
fn writes_of_the_whole_table_are_limited_by_their_size() {
    let server = Server::start();
    create(&server, &json!([{"writes_per_second": 10}]));
    // A row of 100 KB counts 25 times; with the first two rows, the rate is used for 5.2 s.
    let large = json!({"note": "x".repeat(100_000)});
    put(&server, NEW, &large).expect(200);
    put(&server, OLD, &large).expect(200);
    let refused = put(&server, NEW, &json!({"kwh": 3})).expect(429);
    assert_eq!(refused["code"], "rate_limited", "{refused}");
    let delete = json!({"prefix": {"meter": "m"}});
    server
        .json("POST", "/v1/tables/readings/rows/delete", &delete.to_string())
        .expect(429);
    get(&server, NEW).expect(200);
    server.clock.advance(1_000_000_000);
    put(&server, NEW, &json!({"kwh": 3})).expect(200);

    // Without limits, everything passes.
    server
        .json("PATCH", "/v1/tables/readings", r#"{"wide": {"limits": []}}"#)
        .expect(200);
    for _ in 0..20 {
        put(&server, NEW, &large).expect(200);
    }
}

#[test]
fn a_scan_waits_between_its_rows_instead_of_failing() {
    let server = Server::start();
    create(&server, &json!([{"reads_per_second": 1}]));
    let rows: Vec<Value> = (0..8)
        .map(|number| json!({"op": "put", "key": {"meter": "m", "at": format!("2026-11-0{}T00:00:00Z", number + 1)}}))
        .collect();
    write_rows(&server, &json!({"rows": rows})).expect(200);
    let keys: Vec<Value> = (1..9)
        .map(|day| json!({"meter": "m", "at": format!("2026-11-0{day}T00:00:00Z")}))
        .collect();
    let body = json!({"keys": keys}).to_string();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            server
                .json("POST", "/v1/tables/readings/rows/get", &body)
                .expect(200)
        });
        // Eight rows use 8 s, and 5 s can be used ahead, so the request waits until the clock advances.
        let waited = |line: &str| {
            let value = line.strip_prefix("tideline_row_limit_wait_seconds_total{table=\"readings\"} ");
            value
                .and_then(|value| value.parse::<f64>().ok())
                .is_some_and(|seconds| seconds > 0.0)
        };
        while !read.is_finished() && !server.get("/metrics").text().lines().any(waited) {}
        server.clock.advance(10_000_000_000);
        let read = read.join().expect("it ends");
        assert_eq!(read["rows"].as_array().map(Vec::len), Some(8), "{read}");
    });
}

#[test]
fn limits_that_are_not_valid_are_refused() {
    let server = Server::start();
    for (limits, said) in [
        (
            json!([{"older_than": "1d"}]),
            "give reads_per_second or writes_per_second",
        ),
        (json!([{"reads_per_second": 0}]), "each must be at least 1"),
        (
            json!([{"reads_per_second": 1}, {"writes_per_second": 1}]),
            "two limits without older_than",
        ),
        (
            json!([{"older_than": "1d", "reads_per_second": 1}, {"older_than": "24h", "writes_per_second": 1}]),
            "two limits with older_than 1d",
        ),
        (
            json!([{"older_than": "0s", "reads_per_second": 1}]),
            "longer than 0s",
        ),
    ] {
        let table = json!({
            "name": "t", "model": "wide", "wide": {
                "key": [{"name": "id", "type": "string"}, {"name": "at", "type": "timestamp"}],
                "parts": {"by": "at", "every": "day"}, "limits": limits
            }
        });
        let refused = server.json("POST", "/v1/tables", &table.to_string()).expect(400);
        assert!(
            refused["message"]
                .as_str()
                .is_some_and(|message| message.contains(said)),
            "{refused}"
        );
    }
    let table = json!({
        "name": "t", "model": "wide", "wide": {
            "key": [{"name": "id", "type": "string"}],
            "limits": [{"older_than": "1d", "reads_per_second": 1}]
        }
    });
    let refused = server.json("POST", "/v1/tables", &table.to_string()).expect(400);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|message| message.contains("divided into parts")),
        "{refused}"
    );
}
