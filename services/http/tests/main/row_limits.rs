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

/// Returns true if a request has waited for a limit.
fn has_waited(server: &Server) -> bool {
    let waited = |line: &str| {
        let value = line.strip_prefix("tideline_row_limit_wait_seconds_total{table=\"readings\"} ");
        value
            .and_then(|value| value.parse::<f64>().ok())
            .is_some_and(|seconds| seconds > 0.0)
    };
    server.get("/metrics").text().lines().any(waited)
}

#[test]
fn reads_of_old_parts_are_limited_and_reads_of_new_ones_are_not() {
    let server = Server::start();
    create(&server, &json!([{"older_than": "90d", "reads_per_second": 2}]));
    // The limit allows five seconds of its rate at once.
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
    // Every kind of read is refused if it reaches the old part; all other reads succeed.
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
fn reads_of_a_value_are_limited_like_reads_of_its_row() {
    let server = Server::start();
    create(&server, &json!([{"older_than": "90d", "reads_per_second": 2}]));
    let value = |at: &str| {
        let key = format!("%7B%22meter%22%3A%22m%22%2C%22at%22%3A%22{at}%22%7D");
        server.get(&format!("/v1/tables/readings/blobs/note?key={key}"))
    };
    for at in [OLD, NEW] {
        put(&server, at, &json!({"note": "words"})).expect(200);
    }
    for _ in 0..11 {
        assert_eq!(value(OLD).text(), "words");
    }
    assert_limited(&value(OLD));
    assert_limited(&get(&server, OLD));
    assert_eq!(value(NEW).text(), "words");
}

/// Creates the table with a limit of reads of old parts, and search and secondary indexes.
fn create_with_indexes(server: &Server) {
    create(server, &json!([{"older_than": "90d", "reads_per_second": 2}]));
    let search = json!({"name": "words", "columns": [{"column": "note", "as": "keyword"}, {"column": "kwh", "as": "number"}]});
    server
        .json(
            "POST",
            "/v1/tables/readings/search-indexes?refresh=wait",
            &search.to_string(),
        )
        .expect(201);
    let index = json!({"name": "by_kwh", "key": [{"name": "kwh"}]});
    server
        .json("POST", "/v1/tables/readings/indexes", &index.to_string())
        .expect(201);
    server
        .json("POST", "/v1/jobs", r#"{"kind": "build_index", "wait": true}"#)
        .expect(200);
    let rows = json!({"rows": [
        {"op": "put", "key": {"meter": "m", "at": OLD}, "columns": {"kwh": 2, "note": "old"}},
        {"op": "put", "key": {"meter": "m", "at": NEW}, "columns": {"kwh": 1, "note": "new"}}]});
    server
        .json("POST", "/v1/tables/readings/rows?refresh=wait", &rows.to_string())
        .expect(200);
}

/// Asserts that a request was refused because a rate is used up, and that its headers and its body have the same delay.
fn assert_limited(refused: &crate::client::Response) {
    let body = refused.expect(429);
    assert_eq!(
        (&body["code"], &body["retryable"]),
        (&json!("rate_limited"), &json!(true)),
        "{body}"
    );
    let after: u64 = refused.header("retry-after").parse().unwrap_or_default();
    assert!((1..=5).contains(&after), "{:?}", refused.headers);
}

#[test]
fn searches_are_limited_by_the_rows_that_they_return() {
    let server = Server::start();
    create_with_indexes(&server);
    let post = |route: &str, body: Value| {
        server.json(
            "POST",
            &format!("/v1/tables/readings/rows/{route}"),
            &body.to_string(),
        )
    };
    let old = json!({"column": "note", "equals": "old"});
    let new = json!({"column": "note", "equals": "new"});
    let search = |filter: &Value| post("search", json!({"where": filter}));
    for _ in 0..11 {
        assert_eq!(search(&old).expect(200)["rows"].as_array().map(Vec::len), Some(1));
    }
    assert_limited(&search(&old));
    // Reads of rows in new parts are not limited. Counts are not limited either, because they are computed from
    // the index.
    let both = json!({"column": "kwh", "gte": 1});
    for _ in 0..30 {
        assert_eq!(search(&new).expect(200)["total"], 1);
        assert_eq!(post("facets", json!({"where": both})).expect(200)["rows"], 2);
    }
    // A page that begins with a new row and continues with an old one is refused as a whole.
    assert_limited(&post(
        "search",
        json!({"where": both, "sort": [{"column": "kwh"}]}),
    ));
    let first = json!({"where": both, "sort": [{"column": "kwh"}], "limit": 1});
    let first = post("search", first).expect(200);
    assert_eq!(first["rows"][0]["columns"]["note"], "new", "{first}");
    let metrics = json!([{"column": "kwh", "functions": ["sum"]}]);
    assert_limited(&post(
        "aggregate",
        json!({"search": {}, "where": both, "metrics": metrics}),
    ));
    let keys = json!([{"meter": "m", "at": NEW}, {"meter": "m", "at": OLD}]);
    assert_limited(&post("get", json!({"keys": keys})));
    assert_limited(&post("aggregate", json!({"keys": keys, "metrics": metrics})));
    assert_limited(&post(
        "scan",
        json!({"index": "by_kwh", "allow_scan": true, "columns": ["note"]}),
    ));
    let statement = format!("SELECT note FROM readings WHERE meter = 'm' AND at IN ('{NEW}', '{OLD}')");
    assert_limited(&server.json("POST", "/v1/sql", &json!({"statement": statement}).to_string()));
    // The delay in `Retry-After` suffices.
    server.clock.advance(1_000_000_000);
    search(&old).expect(200);
}

#[test]
fn a_search_that_has_begun_waits_between_its_rows() {
    let server = Server::start();
    create(&server, &json!([{"reads_per_second": 1}]));
    let search = json!({"name": "words", "columns": [{"column": "note", "as": "keyword"}]});
    server
        .json(
            "POST",
            "/v1/tables/readings/search-indexes?refresh=wait",
            &search.to_string(),
        )
        .expect(201);
    let rows: Vec<Value> = (1..9)
        .map(|day| {
            json!({"op": "put", "key": {"meter": "m", "at": format!("2026-11-0{day}T00:00:00Z")}, "columns": {"note": "x"}})
        })
        .collect();
    server
        .json(
            "POST",
            "/v1/tables/readings/rows?refresh=wait",
            &json!({"rows": rows}).to_string(),
        )
        .expect(200);
    read_after_a_wait(
        &server,
        "search",
        &json!({"where": {"column": "note", "equals": "x"}}),
    );
    assert!(has_waited(&server));
}

/// Reads eight rows by a request that waits until the clock advances.
fn read_after_a_wait(server: &Server, route: &str, body: &Value) {
    let path = format!("/v1/tables/readings/rows/{route}");
    std::thread::scope(|scope| {
        let read = scope.spawn(|| server.json("POST", &path, &body.to_string()).expect(200));
        while !read.is_finished() && !has_waited(server) {}
        server.clock.advance(10_000_000_000);
        let read = read.join().expect("it ends");
        assert_eq!(read["rows"].as_array().map(Vec::len), Some(8), "{read}");
    });
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
    // Eight rows use 8 s of the rate, and 5 s are allowed at once, so the request waits until the clock advances.
    read_after_a_wait(&server, "get", &json!({"keys": keys}));
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
