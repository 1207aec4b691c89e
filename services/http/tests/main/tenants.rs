//! Tenants: the tables that their tokens reach, the header that names the tenant of a request, and budgets.
//!
//! The matrix of operations is in `access`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_engine::TableLimits;
use tideline_http::HttpSettings;

use crate::access::{ROOT, ask, bearer, create, open_watch, settings, start};
use crate::client::{Response, Server};

/// Stores a tenant with the tables `NAME-*`, of which `NAME-metrics` is the default, and creates that table.
fn tenant(server: &Server, name: &str, budgets: &Value) {
    let body = json!({
        "tables": [format!("{name}-*")],
        "default_table": format!("{name}-metrics"),
        "budgets": budgets,
    });
    put(server, name, &body).expect(201);
    let table = json!({"name": format!("{name}-metrics")});
    ask(server, ROOT, "POST", "/v1/tables", &table.to_string()).expect(201);
}

fn put(server: &Server, name: &str, body: &Value) -> Response {
    ask(
        server,
        ROOT,
        "PUT",
        &format!("/v1/tenants/{name}"),
        &body.to_string(),
    )
}

/// Creates a token that acts for tenants.
fn token(server: &Server, roles: &[&str], tenants: &[&str]) -> String {
    let mut body = json!({"name": "a token", "roles": roles});
    if !tenants.is_empty() {
        body["tenants"] = json!(tenants);
    }
    let created = create(server, &body);
    created["token"].as_str().expect("a token").to_owned()
}

/// Sends a request that names its tenant.
fn ask_for(server: &Server, token: &str, tenant: &str, method: &str, path: &str, body: &str) -> Response {
    let headers = [
        ("authorization", &*bearer(token)),
        ("x-scope-orgid", tenant),
        ("content-type", "application/json"),
    ];
    server.send(method, path, &headers, body.as_bytes())
}

fn names(tables: &Value) -> Vec<&str> {
    let tables = tables["tables"].as_array().expect("tables").iter();
    tables
        .map(|table| table["name"].as_str().expect("a name"))
        .collect()
}

/// Returns the number of series with this name that a Prometheus query finds.
fn found(response: &Response) -> usize {
    let found = response.expect(200);
    found["data"]["result"].as_array().expect("a result").len()
}

const UP: &str = "/api/v1/query?query=up&time=1763640000";
const WRITE: &str = "/api/v1/import/prometheus";

#[test]
fn requests_without_a_table_go_to_that_of_the_tenant() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let acme = token(&server, &["reader", "writer"], &["acme"]);
    let both = token(&server, &["reader", "writer"], &["acme", "glob*"]);
    let sample = "up{job=\"a\"} 1 1763640000000\n";
    assert_eq!(ask(&server, &acme, "POST", WRITE, sample).status, 204);
    assert_eq!(found(&ask(&server, &acme, "GET", UP, "")), 1);
    assert_eq!(
        found(&ask(&server, ROOT, "GET", UP, "")),
        0,
        "not in the default table"
    );
    assert_eq!(found(&ask_for(&server, &both, "acme", "GET", UP, "")), 1);
    assert_eq!(found(&ask_for(&server, &both, "globex", "GET", UP, "")), 0);
    assert_eq!(
        ask_for(&server, &both, "globex", "POST", WRITE, sample).status,
        204
    );
    assert_eq!(found(&ask_for(&server, &both, "globex", "GET", UP, "")), 1);
    // Line protocol without a database, or with a database that is a table of the tenant.
    for (path, body) in [
        ("/write?db=&precision=s", "cpu,host=a usage=1 1763640000"),
        (
            "/api/v2/write?bucket=acme-metrics&precision=s",
            "cpu,host=b usage=1 1763640000",
        ),
    ] {
        let written = ask(&server, &acme, "POST", path, body);
        assert_eq!(written.status, 204, "{path}: {}", written.text());
    }
    let tables = ask(&server, &acme, "GET", "/v1/tables", "").expect(200);
    assert_eq!(names(&tables), ["acme-metrics"]);
    let timelines = ask(&server, ROOT, "GET", "/v1/tables/acme-metrics/measurements", "").expect(200);
    assert!(timelines.to_string().contains("cpu"), "{timelines}");
    // This tenant has no default table.
    put(&server, "bare", &json!({"tables": ["bare"]})).expect(201);
    let bare = token(&server, &["reader"], &["bare"]);
    ask(&server, &bare, "GET", UP, "").expect(403);
}

#[test]
fn the_header_counts_only_with_a_token_that_allows_it() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let one = token(&server, &["reader", "operator"], &["acme"]);
    let several = token(&server, &["reader"], &["acme", "globex"]);
    let every = token(&server, &["reader"], &["*"]);
    let none = token(&server, &["reader"], &[]);
    let path = "/v1/tables/acme-metrics/measurements";
    let status = |token: &str, tenant: &str| ask_for(&server, token, tenant, "GET", path, "").status;
    assert_eq!(ask(&server, &one, "GET", path, "").status, 200);
    assert_eq!(
        (
            status(&one, "acme"),
            status(&several, "acme"),
            status(&every, "acme")
        ),
        (200, 200, 200)
    );
    assert_eq!((status(&several, "globex"), status(&every, "globex")), (403, 403));
    // A tenant that the token may not act for and a tenant that does not exist are refused with the same
    // message.
    for (token, tenant) in [
        (&one, "globex"),
        (&one, "initech"),
        (&every, "initech"),
        (&several, ""),
    ] {
        let refused = ask_for(&server, token, tenant, "GET", path, "").expect(403);
        let message = refused["message"].as_str().expect("a message");
        assert!(
            message.contains(&format!("may not act for the tenant {tenant:?}")),
            "{message}"
        );
    }
    assert_eq!(status(&none, "globex"), 200, "the header is ignored");
    let unnamed = ask(&server, &several, "GET", path, "").expect(400);
    assert!(
        unnamed["message"]
            .as_str()
            .expect("a message")
            .contains("X-Scope-OrgID"),
        "{unnamed}"
    );
    for (method, path, body) in [
        ("POST", "/v1/sql", r#"{"statement": "SHOW TABLES"}"#),
        ("GET", "/query?q=SHOW%20DATABASES", ""),
    ] {
        let unnamed = ask(&server, &several, method, path, body);
        assert_eq!(unnamed.status, 400, "{path}");
        assert!(unnamed.text().contains("X-Scope-OrgID"), "{}", unnamed.text());
    }
    let twice = server.send(
        "GET",
        path,
        &[
            ("authorization", &*bearer(&several)),
            ("x-scope-orgid", "acme"),
            ("x-scope-orgid", "globex"),
        ],
        b"",
    );
    assert_eq!(twice.status, 400);

    let shown = ask(&server, &several, "GET", "/v1/access", "").expect(200);
    assert_eq!(
        (&shown["tenants"], &shown["tenant"]),
        (&json!(["acme", "globex"]), &Value::Null)
    );
    let shown = ask_for(&server, &several, "globex", "GET", "/v1/access", "").expect(200);
    assert_eq!(shown["tenant"], "globex");

    // An operator of a tenant manages the tables of the tenant only.
    ask(&server, &one, "POST", "/v1/tables", r#"{"name": "acme-more"}"#).expect(201);
    ask(&server, &one, "POST", "/v1/tables", r#"{"name": "more"}"#).expect(403);
    ask(&server, &one, "DELETE", "/v1/tables/globex-metrics", "").expect(403);
    ask(
        &server,
        &one,
        "POST",
        "/v1/sql",
        r#"{"statement": "DROP TABLE \"globex-metrics\""}"#,
    )
    .expect(403);
    ask(&server, &one, "POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(403);
    ask(&server, &one, "GET", "/v1/tenants", "").expect(403);
    let admin = json!({"name": "a", "roles": ["admin"], "tenants": ["acme"]});
    ask(&server, ROOT, "POST", "/v1/tokens", &admin.to_string()).expect(400);
}

#[test]
fn writes_over_the_budget_are_refused_before_their_body_is_read() {
    let server = start();
    tenant(&server, "acme", &json!({"points_per_second": 100}));
    tenant(&server, "globex", &json!({"points_per_second": 100}));
    let [acme, globex] = ["acme", "globex"].map(|name| token(&server, &["reader", "writer"], &[name]));
    let lines = |from: i64| -> String {
        let line = |n: i64| format!("cpu,host=h{} usage=1 {}\n", n % 10, 1_763_640_000 + n);
        (from..from + 600).map(line).collect()
    };
    let path = "/v1/tables/acme-metrics/points?precision=s";
    let write = |from: i64| {
        let headers = [("authorization", &*bearer(&acme)), ("content-type", "text/plain")];
        server.send("POST", path, &headers, lines(from).as_bytes())
    };
    // A write that begins while less than the budget of ten seconds is used is stored as a whole.
    assert_eq!((write(0).status, write(600).status), (200, 200));
    let refused = write(1_200);
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, "2"),
        "{}",
        refused.text()
    );
    let refused = refused.expect(429);
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&json!("rate_limited"), &json!(true))
    );
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains("the tenant acme") && message.contains("100"),
        "{message}"
    );
    // The error has the form of each protocol, also if the budget is checked only after the statement of the
    // request is parsed.
    for (path, body) in [
        ("/write?precision=s", "cpu usage=1 1763640000"),
        ("/api/v2/write?precision=s&bucket=", "cpu usage=1 1763640000"),
        (WRITE, "up 1 1763640000000\n"),
        ("/v1/metrics", "{}"),
        ("/metrics/job/a", "up 1\n"),
        ("/v1/tables/acme-metrics/points/delete", "{}"),
        (
            "/v1/sql",
            r#"{"statement": "DELETE FROM \"acme-rows\" WHERE id = 1"}"#,
        ),
    ] {
        let response = ask(&server, &acme, "POST", path, body);
        assert_eq!(response.status, 429, "{path}: {}", response.text());
    }
    for path in [path_of_reads(), "/query?q=SHOW%20DATABASES"] {
        assert_eq!(ask(&server, &acme, "GET", path, "").status, 200, "{path}");
    }
    let body = "cpu usage=1 1763640000";
    let other = ask(&server, &globex, "POST", "/write?precision=s", body);
    assert_eq!(other.status, 204, "another tenant has a budget of its own");
    server.clock.advance(3_000_000_000);
    assert_eq!(write(1_200).status, 200);
    let shown = ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200);
    assert_eq!(shown["used"]["points"], 1_800);
    assert_eq!(shown["used"]["refused_points"], 8);
    let metrics = ask(&server, ROOT, "GET", "/metrics", "");
    for line in [
        "tideline_tenant_points_total{tenant=\"acme\"} 1800",
        "tideline_tenant_refused_writes_total{tenant=\"acme\"} 8",
        "tideline_tenant_refused_writes_total{tenant=\"globex\"} 0",
    ] {
        assert!(metrics.text().contains(line), "{line}");
    }
    // Rows are charged too.
    let rows =
        json!({"name": "acme-rows", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}]}});
    ask(&server, ROOT, "POST", "/v1/tables", &rows.to_string()).expect(201);
    server.clock.advance(100_000_000_000);
    let row = json!({"rows": [{"op": "put", "key": {"id": 1}, "columns": {}}, {"op": "put", "key": {"id": 2}, "columns": {}}]});
    let written = ask(
        &server,
        &acme,
        "POST",
        "/v1/tables/acme-rows/rows",
        &row.to_string(),
    );
    assert_eq!(written.status, 200, "{}", written.text());
    let shown = ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200);
    assert_eq!(shown["used"]["points"], 1_802);
}

fn path_of_reads() -> &'static str {
    "/v1/tables/acme-metrics/measurements"
}

#[test]
fn a_query_counts_until_its_response_is_sent() {
    let server = start();
    tenant(&server, "acme", &json!({"queries": 2}));
    let acme = token(&server, &["reader"], &["acme"]);
    let running = || {
        let shown = ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200);
        shown["used"]["queries"].as_u64().expect("a number")
    };
    // The bodies of these requests have not arrived, so they are running.
    let begin = || {
        let mut stream = server.connect();
        let path = "/v1/tables/acme-metrics/query";
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-type: application/json\r\n\
             content-length: 20\r\nconnection: close\r\n\r\n",
            bearer(&acme)
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    let mut first = begin();
    let _second = begin();
    while running() < 2 {
        std::thread::yield_now();
    }
    let refused = ask(&server, &acme, "GET", path_of_reads(), "");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    let message = refused.text();
    assert!(
        message.contains("2 queries of the tenant acme are running"),
        "{message}"
    );
    for path in [
        "/v1/tables/acme-metrics/watch?cursor=x",
        "/v1/changes/none/records",
        "/v1/tables/acme-metrics/feeds/room/messages?wait=1s",
    ] {
        let waiting = ask(&server, &acme, "GET", path, "");
        assert_ne!(waiting.status, 429, "{path} does not count");
    }
    first.write_all(b"{\"fields\": [\"usage\"]}").expect("sent");
    let mut response = Vec::new();
    first.read_to_end(&mut response).expect("a response");
    while running() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(ask(&server, &acme, "GET", path_of_reads(), "").status, 200);
    // A client that disconnects releases its query.
    drop(_second);
    while running() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn timelines_over_the_budget_are_rejected_for_good() {
    let server = start();
    tenant(&server, "acme", &json!({"timelines": 3}));
    let acme = token(&server, &["reader", "writer", "operator"], &["acme"]);
    ask(&server, &acme, "POST", "/v1/tables", r#"{"name": "acme-more"}"#).expect(201);
    let write = |table: &str, host: &str| {
        let path = format!("/v1/tables/{table}/points?precision=s");
        let headers = [("authorization", &*bearer(&acme)), ("content-type", "text/plain")];
        let line = format!("cpu,host={host} usage=1 1763640000");
        server.send("POST", &path, &headers, line.as_bytes())
    };
    for (table, host) in [("acme-metrics", "a"), ("acme-more", "a"), ("acme-more", "b")] {
        assert_eq!(write(table, host).status, 200);
    }
    let full = write("acme-metrics", "b").expect(422);
    let reject = &full["rejects"][0];
    assert_eq!(full["retryable"], json!(false), "{full}");
    let reason = reject["reason"].as_str().expect("a reason");
    assert!(reason.contains("tenant acme") && reason.contains('3'), "{reason}");
    assert_eq!(write("acme-more", "b").status, 200, "a known timeline");
    let used = &ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"];
    assert_eq!(used["refused_timelines"], 1);
    // The measurement determines the number of stored timelines.
    let body = json!({"tables": ["acme-*"], "budgets": {"timelines": 4}});
    let changed = put(&server, "acme", &body).expect(200);
    assert_eq!(changed["used"]["timelines"], 3, "{changed}");
    assert_eq!(write("acme-metrics", "b").status, 200);
    assert_eq!(write("acme-metrics", "c").status, 422);
}

#[test]
fn writes_over_a_budget_of_stored_bytes_are_refused_and_deletes_are_not() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    let acme = token(&server, &["reader", "writer"], &["acme"]);
    let body = "cpu,host=a usage=1 1763640000";
    let write = || ask(&server, &acme, "POST", "/write?precision=s", body);
    assert_eq!(write().status, 204);
    let limited = json!({"tables": ["acme-*"], "default_table": "acme-metrics", "budgets": {"hot_bytes": 1, "cold_bytes": 1}});
    let changed = put(&server, "acme", &limited).expect(200);
    let stored = changed["used"]["hot_bytes"].as_u64().expect("a number");
    assert!(stored > 1, "{changed}");
    let refused = write();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, "60"),
        "{}",
        refused.text()
    );
    assert!(
        refused
            .text()
            .contains(&format!("has {stored} bytes in the hot tier")),
        "{}",
        refused.text()
    );
    // An operator cannot create an index either, whatever the protocol.
    let rows = r#"{"name": "acme-rows", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}], "columns": [{"name": "a", "type": "i64"}]}}"#;
    ask(&server, ROOT, "POST", "/v1/tables", rows).expect(201);
    let operator = token(&server, &["operator"], &["acme"]);
    for (path, body) in [
        (
            "/v1/tables/acme-rows/indexes",
            r#"{"name": "by_a", "key": [{"name": "a"}]}"#,
        ),
        (
            "/v1/sql",
            r#"{"statement": "CREATE INDEX by_a ON \"acme-rows\" (a)"}"#,
        ),
    ] {
        let refused = ask(&server, &operator, "POST", path, body);
        assert_eq!(refused.status, 429, "{path}: {}", refused.text());
    }
    let delete = r#"{"timelines": {"where": {"tag": "host", "equals": "a"}}, "range": {"start": "2025-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}}"#;
    let path = "/v1/tables/acme-metrics/points/delete";
    let deleted = ask(&server, &acme, "POST", path, delete);
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(ask(&server, &acme, "GET", path_of_reads(), "").status, 200);
    let metrics = ask(&server, ROOT, "GET", "/metrics", "").text();
    assert!(
        metrics.contains(&format!("tideline_tenant_hot_bytes{{tenant=\"acme\"}} {stored}")),
        "{metrics}"
    );
}

#[test]
fn reads_over_the_budget_of_bytes_are_refused_for_a_while() {
    let server = start();
    tenant(&server, "acme", &json!({"bytes_read_per_second": 10}));
    let acme = token(&server, &["reader", "writer"], &["acme"]);
    let lines: String = (0..1_000)
        .map(|n| format!("cpu,host=a usage={} {}\n", n * n, 1_763_640_000 + n))
        .collect();
    let written = ask(&server, &acme, "POST", "/write?precision=s", &lines);
    assert_eq!(written.status, 204);
    let query = json!({"fields": ["usage"], "range": {"start": "2025-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}});
    let path = "/v1/tables/acme-metrics/query";
    let read = || ask(&server, &acme, "POST", path, &query.to_string());
    assert_eq!(read().status, 200, "{}", read().text());
    let used = || ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"].clone();
    let bytes = used()["bytes_read"].as_u64().expect("a number");
    assert!(bytes > 100, "{}", used());
    for (method, path, body) in [
        ("GET", UP, ""),
        ("POST", "/v1/sql", r#"{"statement": "SHOW TABLES"}"#),
        ("GET", "/v1/tables/acme-metrics/watch", ""),
    ] {
        let refused = ask(&server, &acme, method, path, body);
        assert_eq!(refused.status, 429, "{path}: {}", refused.text());
        assert!(
            refused.text().contains("10 bytes of stored data per second"),
            "{path}"
        );
    }
    assert_eq!(used()["refused_queries"], 3);
    server.clock.advance((bytes / 10 * 1_000_000_000) as i64);
    assert_eq!(read().status, 200);
    assert_eq!(used()["bytes_read"], 2 * bytes);
    // Rows and their values are charged too, with every protocol.
    let rows =
        json!({"name": "acme-rows", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}]}});
    ask(&server, ROOT, "POST", "/v1/tables", &rows.to_string()).expect(201);
    let row = json!({"rows": [{"op": "put", "key": {"id": 1}, "columns": {"text": "x".repeat(2_000)}}]});
    ask(
        &server,
        ROOT,
        "POST",
        "/v1/tables/acme-rows/rows",
        &row.to_string(),
    )
    .expect(200);
    for (method, path, body) in [
        (
            "POST",
            "/v1/tables/acme-rows/rows/get",
            r#"{"keys": [{"id": 1}]}"#,
        ),
        (
            "POST",
            "/v1/tables/acme-rows/rows/scan",
            r#"{"allow_scan": true}"#,
        ),
        (
            "POST",
            "/v1/sql",
            r#"{"statement": "SELECT * FROM \"acme-rows\" WHERE id = 1"}"#,
        ),
        (
            "POST",
            "/v1/tables/acme-rows/rows",
            r#"{"rows": [{"op": "update", "key": {"id": 1}, "columns": {"n": 1}, "return": "before"}]}"#,
        ),
    ] {
        server.clock.advance(1_000_000_000_000);
        let before = used()["bytes_read"].as_u64();
        let read = ask(&server, &acme, method, path, body);
        assert_eq!(read.status, 200, "{path}: {}", read.text());
        let charged = used()["bytes_read"].as_u64().zip(before);
        assert!(
            charged.is_some_and(|(after, before)| after >= before + 2_000),
            "{path}: {charged:?}"
        );
    }
    // A write that returns a row is also a read; the budget is used up now. Other writes are not refused.
    let mut update =
        json!({"rows": [{"op": "update", "key": {"id": 1}, "columns": {"n": 2}, "return": "after"}]});
    let write = |body: &Value| {
        ask(
            &server,
            &acme,
            "POST",
            "/v1/tables/acme-rows/rows",
            &body.to_string(),
        )
    };
    let refused = write(&update);
    assert_eq!(refused.status, 429, "{}", refused.text());
    update["rows"][0]["return"] = json!("none");
    write(&update).expect(200);
}

#[test]
fn the_notes_of_all_tables_are_charged_to_no_tenant() {
    let server = start();
    ask(&server, ROOT, "PUT", "/v1/changes/any", "{}").expect(200);
    tenant(&server, "acme", &json!({"bytes_read_per_second": 10}));
    for n in 0..20 {
        let table = json!({"name": format!("other-{n}")});
        ask(&server, ROOT, "POST", "/v1/tables", &table.to_string()).expect(201);
    }
    let operator = token(&server, &["operator"], &["acme"]);
    let body = json!({"name": "acme-new"}).to_string();
    ask(&server, &operator, "POST", "/v1/tables", &body).expect(201);
    let dropped = ask(&server, &operator, "DELETE", "/v1/tables/acme-new", "");
    assert_eq!(dropped.status, 204);
    let used = ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"].clone();
    assert_eq!((&used["bytes_read"], &used["points"]), (&json!(0), &json!(0)));
}

#[test]
fn requests_over_the_budget_of_memory_end_with_an_error() {
    let server = start();
    tenant(&server, "acme", &json!({"memory_bytes": 1_048_576}));
    tenant(&server, "globex", &json!({}));
    let [acme, globex] = ["acme", "globex"].map(|name| token(&server, &["reader", "writer"], &[name]));
    let query = json!({
        "fields": ["usage"],
        "range": {"start": "2025-11-20T00:00:00Z", "end": "2025-11-23T00:00:00Z"},
        "aggregate": {"functions": ["mean", "max"], "window": "1s"}
    });
    let read = |token: &str, name: &str| {
        let path = format!("/v1/tables/{name}-metrics/query");
        ask(&server, token, "POST", &path, &query.to_string())
    };
    for (token, name) in [(&acme, "acme"), (&globex, "globex")] {
        let lines: String = (0..1_000)
            .map(|n| format!("cpu,host=a usage={n} {}\n", 1_763_640_000 + n))
            .collect();
        let written = ask(&server, token, "POST", "/write?precision=s", &lines);
        assert_eq!(written.status, 204, "{name}");
    }
    assert_eq!(read(&globex, "globex").status, 200);
    let refused = read(&acme, "acme");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused
            .text()
            .contains("1048576 bytes that requests of the tenant acme may hold"),
        "{}",
        refused.text()
    );
    let used = &ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"];
    assert_eq!(
        (&used["memory_bytes"], used["refused_memory"].as_u64() >= Some(1)),
        (&json!(0), true),
        "{used}"
    );
    assert_eq!(found(&ask(&server, &acme, "GET", UP, "")), 0, "small reads go on");
}

#[test]
fn outcomes_of_writes_that_wait_for_searches_need_memory() {
    let server = start();
    tenant(&server, "acme", &json!({"memory_bytes": 1_600_000}));
    let acme = token(&server, &["reader", "writer"], &["acme"]);
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [{"name": "n", "type": "i64"}]});
    let table = json!({"name": "acme-rows", "model": "wide", "wide": wide});
    ask(&server, ROOT, "POST", "/v1/tables", &table.to_string()).expect(201);
    let index = json!({"name": "all", "columns": [{"column": "n", "as": "number"}]});
    let path = "/v1/tables/acme-rows/search-indexes?refresh=wait";
    ask(&server, ROOT, "POST", path, &index.to_string()).expect(201);
    let write = |count: usize| {
        let row = |id: usize| json!({"op": "put", "key": {"id": format!("{id:0100}")}, "columns": {"n": id}});
        let rows: Vec<Value> = (0..count).map(row).collect();
        let path = "/v1/tables/acme-rows/rows?refresh=wait";
        let body = json!({"rows": rows}).to_string();
        ask(&server, &acme, "POST", path, &body).expect(200)
    };
    assert_eq!(write(1)["searchable"], true);
    // The write itself succeeds.
    let large = write(10_000);
    assert_eq!(
        (&large["written"], &large["searchable"]),
        (&json!(10_000), &json!(false))
    );
    let used = &ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"];
    assert_eq!(used["memory_bytes"], 0, "{used}");
}

/// Returns the code, limit and actual value of a refusal, and its message.
fn over_limit(refused: &Response) -> (Value, Value, Value, String) {
    let body = refused.expect(400);
    let message = body["message"].as_str().expect("a message").to_owned();
    (
        body["code"].clone(),
        body["limit"].clone(),
        body["actual"].clone(),
        message,
    )
}

#[test]
fn tables_over_the_budget_are_refused() {
    let server = start();
    tenant(&server, "acme", &json!({"tables": 3}));
    tenant(&server, "globex", &json!({}));
    let [acme, globex] = ["acme", "globex"].map(|name| token(&server, &["operator"], &[name]));
    let create_table =
        |token: &str, body: &Value| ask(&server, token, "POST", "/v1/tables", &body.to_string());
    create_table(&acme, &json!({"name": "acme-2"})).expect(201);
    // A feed table with inboxes has a table of its users.
    let feed = json!({"name": "acme-chat", "model": "feed", "feed": {"inboxes": {}}});
    let (code, limit, actual, message) = over_limit(&create_table(&acme, &feed));
    assert_eq!((code, limit, actual), (json!("over_limit"), json!(3), json!(4)));
    assert!(
        message.contains("the tenant acme") && message.contains("budget `tables` is 3"),
        "{message}"
    );
    create_table(&acme, &json!({"name": "acme-3"})).expect(201);
    for (method, path, body) in [
        ("POST", "/v1/tables", r#"{"name": "acme-4"}"#),
        (
            "POST",
            "/v1/sql",
            r#"{"statement": "CREATE TABLE \"acme-4\" (id VARCHAR PRIMARY KEY)"}"#,
        ),
        ("GET", "/query?q=CREATE%20DATABASE%20%22acme-4%22", ""),
    ] {
        let refused = ask(&server, &acme, method, path, body).text();
        assert!(
            refused.contains("the tenant acme would have 4 tables"),
            "{path}: {refused}"
        );
    }
    create_table(&acme, &json!({"name": "acme-2"})).expect(409);
    // Another tenant and requests without a tenant are not refused.
    create_table(&globex, &json!({"name": "globex-2"})).expect(201);
    create_table(ROOT, &json!({"name": "acme-4"})).expect(201);
    let used = &ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"];
    assert_eq!(
        (&used["tables"], &used["tables_max"], &used["refused_objects"]),
        (&json!(4), &json!(3), &json!(4)),
        "{used}"
    );
    let metrics = ask(&server, ROOT, "GET", "/metrics", "").text();
    for line in [
        "tideline_tenant_tables{tenant=\"acme\"} 4",
        "tideline_tenant_tables{tenant=\"globex\"} 2",
        "tideline_tenant_refused_objects_total{tenant=\"acme\"} 4",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    for table in ["acme-3", "acme-4"] {
        let path = format!("/v1/tables/{table}");
        assert_eq!(ask(&server, &acme, "DELETE", &path, "").status, 204, "{table}");
    }
    create_table(&acme, &json!({"name": "acme-5"})).expect(201);
}

#[test]
fn a_tenant_without_a_budget_may_have_a_tenth_of_the_tables_and_change_streams() {
    let limits = TableLimits {
        tables_max: 29,
        ..TableLimits::default()
    };
    let server = Server::on_tables(MemoryDisk::new(Character::Embedded), settings(), limits);
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let [acme, globex] = ["acme", "globex"].map(|name| token(&server, &["operator"], &[name]));
    ask(&server, &acme, "POST", "/v1/tables", r#"{"name": "acme-2"}"#).expect(201);
    let refused = ask(&server, &acme, "POST", "/v1/tables", r#"{"name": "acme-3"}"#);
    let (_, limit, actual, message) = over_limit(&refused);
    assert_eq!((limit, actual), (json!(2), json!(3)), "{message}");

    let stream = |token: &str, name: &str, tables: &[&str]| {
        let body = json!({"tables": tables}).to_string();
        ask(&server, token, "PUT", &format!("/v1/changes/{name}"), &body)
    };
    // A stream that contains only tables of the tenant counts, also if another principal has created it.
    stream(ROOT, "root", &["acme-metrics"]).expect(200);
    stream(ROOT, "all", &[]).expect(200);
    stream(ROOT, "both", &["acme-metrics", "globex-metrics"]).expect(200);
    for number in 1..10 {
        stream(&acme, &format!("acme-{number}"), &["acme-*"]).expect(200);
    }
    let (code, limit, actual, message) = over_limit(&stream(&acme, "acme-10", &["acme-*"]));
    assert_eq!((code, limit, actual), (json!("over_limit"), json!(10), json!(11)));
    assert!(
        message
            .contains("the tenant acme would have 11 change streams, and its budget `change_streams` is 10"),
        "{message}"
    );
    stream(&acme, "acme-9", &["acme-2"]).expect(200);
    stream(&globex, "globex", &["globex-*"]).expect(200);
    let used = &ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200)["used"];
    assert_eq!(
        (
            &used["change_streams"],
            &used["change_streams_max"],
            &used["refused_objects"]
        ),
        (&json!(10), &json!(10), &json!(2)),
        "{used}"
    );
    assert_eq!(
        ask(&server, &acme, "DELETE", "/v1/changes/acme-1", "").status,
        204
    );
    stream(&acme, "acme-10", &["acme-*"]).expect(200);
    let body = json!({"tables": ["acme-*"], "budgets": {"change_streams": 11}});
    put(&server, "acme", &body).expect(200);
    stream(&acme, "acme-11", &["acme-*"]).expect(200);
}

#[test]
fn streams_of_others_keep_their_names_and_the_figures_of_the_server_are_hidden() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let acme = token(&server, &["operator"], &["acme"]);
    let body = |tables: &str| json!({"tables": [tables]}).to_string();
    ask(&server, ROOT, "PUT", "/v1/changes/news", &body("globex-metrics")).expect(200);
    let refused = ask(&server, &acme, "PUT", "/v1/changes/news", &body("acme-*")).expect(409);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("the name \"news\" is in use"), "{message}");
    assert!(!message.contains("globex"), "{message}");
    for (method, path, body) in [
        ("GET", "/v1/changes/news", ""),
        ("DELETE", "/v1/changes/news", ""),
        ("PUT", "/v1/changes/news/groups/a", "{}"),
    ] {
        ask(&server, &acme, method, path, body).expect(404);
    }
    let listed = ask(&server, &acme, "GET", "/v1/changes", "").expect(200);
    assert_eq!(
        (
            &listed["streams"],
            &listed["kept_bytes"],
            &listed["kept_bytes_max"]
        ),
        (&json!([]), &Value::Null, &Value::Null)
    );
    let listed = ask(&server, ROOT, "GET", "/v1/changes", "").expect(200);
    assert!(
        listed["kept_bytes"].is_u64() && listed["kept_bytes_max"].is_u64(),
        "{listed}"
    );
    let info = |token: &str| {
        let info = ask(&server, token, "GET", "/api/v1/status/runtimeinfo", "").expect(200);
        ["CWD", "hostname"].map(|name| info["data"][name].as_str().expect("a text").to_owned())
    };
    assert_eq!(info(&acme), ["", ""]);
    assert!(info(ROOT).iter().all(|text| !text.is_empty()), "{:?}", info(ROOT));
}

/// The body of a request can arrive long after its headers. Meanwhile another principal creates or replaces the stream.
#[test]
fn a_held_request_body_does_not_reach_a_stream_of_others() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let acme = token(&server, &["operator", "writer"], &["acme"]);
    let tables = |table: &str| json!({"tables": [table]}).to_string();
    for (method, path, body, is_new, expected) in [
        ("PUT", "", tables("acme-*"), true, 409),
        ("PUT", "", tables("acme-*"), false, 409),
        ("PUT", "/groups/new", "{}".to_owned(), false, 404),
        (
            "POST",
            "/groups/old/checkpoints",
            json!({"partition": 0, "cursor": "0-0-0"}).to_string(),
            false,
            404,
        ),
        (
            "PUT",
            "/webhooks/new",
            json!({"url": "https://hooks.example.com/"}).to_string(),
            false,
            404,
        ),
    ] {
        let stream = "/v1/changes/late";
        if !is_new {
            ask(&server, &acme, "PUT", stream, &tables("acme-*")).expect(200);
            ask(&server, &acme, "PUT", &format!("{stream}/groups/old"), "{}").expect(200);
        }
        let mut held = server.connect();
        let head = format!(
            "{method} {stream}{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: {}\r\n\
             content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            bearer(&acme),
            body.len()
        );
        held.write_all(head.as_bytes()).expect("sent");
        // The server has checked the path, and waits for the body.
        assert_eq!(Response::read_one(&mut held).status, 100);
        ask(&server, ROOT, "PUT", stream, &tables("globex-metrics")).expect(200);
        held.write_all(body.as_bytes()).expect("sent");
        let refused = Response::read(&mut held);
        assert_eq!(refused.status, expected, "{path}: {}", refused.text());
        assert!(!refused.text().contains("globex"), "{}", refused.text());
        let kept = ask(&server, ROOT, "GET", stream, "").expect(200);
        assert_eq!(kept["tables"], json!(["globex-metrics"]), "{path}");
        assert_eq!(ask(&server, ROOT, "DELETE", stream, "").status, 204);
    }
}

#[test]
fn saved_searches_are_part_of_the_budget_of_hot_bytes() {
    let server = start();
    tenant(&server, "acme", &json!({}));
    let acme = token(&server, &["operator"], &["acme"]);
    let search = json!({"where": {"tag": "host", "equals": "x".repeat(20_000)}}).to_string();
    let path = |name: &str| format!("/v1/tables/acme-metrics/searches/{name}");
    let save = |name: &str| ask(&server, &acme, "PUT", &path(name), &search);
    // A change of the tenant measures its data.
    let hot_bytes = || {
        let body = json!({"tables": ["acme-*"], "budgets": {"hot_bytes": 10_000}});
        let used = put(&server, "acme", &body).expect(200)["used"].clone();
        used["hot_bytes"].as_u64().expect("a number")
    };
    let before = hot_bytes();
    save("one").expect(200);
    assert!(hot_bytes() >= before + 20_000, "{before} {}", hot_bytes());
    let refused = save("two");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"));
    assert!(
        refused.text().contains("bytes in the hot tier"),
        "{}",
        refused.text()
    );
    assert_eq!(ask(&server, &acme, "DELETE", &path("one"), "").status, 204);
    assert!(hot_bytes() <= before + 1_000);
    save("two").expect(200);
}

#[test]
fn the_saved_searches_of_a_tenant_leave_room_for_others() {
    let limits = TableLimits {
        saved_search_bytes_max: 10_000,
        ..TableLimits::default()
    };
    let server = Server::on_tables(MemoryDisk::new(Character::Embedded), settings(), limits);
    tenant(&server, "acme", &json!({}));
    let acme = token(&server, &["operator"], &["acme"]);
    ask(&server, &acme, "POST", "/v1/tables", r#"{"name": "acme-2"}"#).expect(201);
    let search = json!({"where": {"tag": "host", "equals": "x".repeat(600)}}).to_string();
    let save = |token: &str, table: &str, name: &str| {
        let path = format!("/v1/tables/{table}/searches/{name}");
        ask(&server, token, "PUT", &path, &search)
    };
    save(&acme, "acme-metrics", "one").expect(200);
    let (code, limit, both, message) = over_limit(&save(&acme, "acme-2", "two"));
    assert_eq!((code, limit), (json!("over_limit"), json!(1_000)));
    assert!(
        message.contains("the saved searches of the tenant acme"),
        "{message}"
    );
    save(ROOT, "default", "two").expect(200);

    let path = "/v1/tables/acme-metrics/searches/one";
    assert_eq!(ask(&server, &acme, "DELETE", path, "").status, 204);
    let saved = (0..100).take_while(|at| save(ROOT, "default", &format!("{at:03}")).status == 200);
    assert!((1..100).contains(&saved.count()));
    // Each of these searches has the same size. The tenant does not learn the bytes of the other searches.
    let bytes = both.as_u64().expect("a number") / 2;
    let (_, limit, actual, message) = over_limit(&save(&acme, "acme-metrics", "one"));
    assert_eq!((limit, actual), (json!(10_000), json!(10_000 + bytes)));
    assert!(message.contains("the saved searches of the server"), "{message}");
}

#[test]
fn a_token_sees_the_budgets_of_its_tenant_and_their_use() {
    let server = start();
    tenant(&server, "acme", &json!({"queries": 4, "tables": 5}));
    tenant(&server, "globex", &json!({"queries": 7}));
    let acme = token(&server, &["writer"], &["acme"]);
    let both = token(&server, &["reader"], &["acme", "globex"]);
    let sample = "up{job=\"a\"} 1 1763640000000\n";
    assert_eq!(ask(&server, &acme, "POST", WRITE, sample).status, 204);
    let shown = ask(&server, &acme, "GET", "/v1/access", "").expect(200);
    assert_eq!(
        (&shown["budgets"]["queries"], &shown["budgets"]["timelines"]),
        (&json!(4), &Value::Null),
        "{shown}"
    );
    assert_eq!(
        (
            &shown["used"]["points"],
            &shown["used"]["tables"],
            &shown["used"]["tables_max"]
        ),
        (&json!(1), &json!(1), &json!(5)),
        "{shown}"
    );
    let shown = ask_for(&server, &both, "globex", "GET", "/v1/access", "").expect(200);
    assert_eq!(
        (&shown["budgets"]["queries"], &shown["used"]["points"]),
        (&json!(7), &json!(0)),
        "{shown}"
    );
    // The use concerns all tables of the tenant.
    let narrow = json!({"name": "a", "roles": ["reader"], "tenants": ["acme"], "tables": ["acme-metrics"]});
    let narrow = create(&server, &narrow);
    let shown = ask(
        &server,
        narrow["token"].as_str().expect("a token"),
        "GET",
        "/v1/access",
        "",
    )
    .expect(200);
    assert_eq!(
        (&shown["budgets"]["queries"], &shown["used"]),
        (&json!(4), &Value::Null)
    );
    for token in [&*both, ROOT] {
        let shown = ask(&server, token, "GET", "/v1/access", "").expect(200);
        assert_eq!((&shown["budgets"], &shown["used"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn changes_of_tenants_are_checked_stored_and_end_watches() {
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(disk.clone(), settings());
    tenant(&server, "acme", &json!({"queries": 4}));
    for (name, body, status) in [
        ("acme-2", json!({"tables": ["acme-x"]}), 409),
        ("acme-2", json!({"tables": ["ac*"]}), 409),
        ("acme-2", json!({"tables": []}), 400),
        ("acme-2", json!({"tables": ["A"]}), 400),
        (
            "acme-2",
            json!({"tables": ["other"], "default_table": "third"}),
            400,
        ),
        (
            "acme-2",
            json!({"tables": ["other"], "budgets": {"queries": 0}}),
            400,
        ),
        (
            "acme-2",
            json!({"tables": ["other"], "budgets": {"query": 1}}),
            400,
        ),
        ("a%20b", json!({"tables": ["other"]}), 400),
        ("acme-2", json!({"tables": ["other"]}), 201),
        ("acme-2", json!({"tables": ["other", "third"]}), 200),
    ] {
        let response = put(&server, name, &body);
        assert_eq!(response.status, status, "{name} {body}: {}", response.text());
    }
    let acme = token(&server, &["reader", "writer"], &["acme"]);
    let watch = || open_watch(&server, &acme, "acme-metrics");
    let ended = |mut watch: std::net::TcpStream| {
        let mut rest = Vec::new();
        watch.read_to_end(&mut rest).expect("the watch ends");
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("late_point"), "{rest}");
    };
    // A change of another budget or table does not end the watch; the loss of its table does.
    let open = watch();
    let mut body = json!({"tables": ["acme-*"], "default_table": "acme-metrics", "budgets": {"queries": 8}});
    put(&server, "acme", &body).expect(200);
    body["tables"] = json!(["fourth", "acme-*"]);
    put(&server, "acme", &body).expect(200);
    open.set_read_timeout(Some(Duration::from_millis(300)))
        .expect("a timeout");
    let mut one = [0; 65_536];
    let read = (&open).read(&mut one);
    assert!(!matches!(read, Ok(0)), "the watch has ended");
    open.set_read_timeout(Some(crate::client::ANSWER_TIMEOUT))
        .expect("a timeout");
    body["tables"] = json!(["acme-metrics"]);
    put(&server, "acme", &body).expect(200);
    ended(open);
    let open = watch();
    assert_eq!(ask(&server, ROOT, "DELETE", "/v1/tenants/acme", "").status, 204);
    let line = "late_point v=1 1763640000";
    ask(&server, ROOT, "POST", "/write?db=acme-metrics&precision=s", line);
    ended(open);
    ask(&server, &acme, "GET", path_of_reads(), "").expect(403);
    ask(&server, ROOT, "DELETE", "/v1/tenants/acme", "").expect(404);
    server.wait_stopped();
    drop(server);

    let server = Server::on(disk, settings());
    let listed = ask(&server, ROOT, "GET", "/v1/tenants", "").expect(200);
    let names: Vec<&Value> = listed["tenants"]
        .as_array()
        .expect("tenants")
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(names, ["acme-2"], "{listed}");
    assert_eq!(listed["tenants"][0]["created_by"], "configured token");
    ask(&server, &acme, "GET", path_of_reads(), "").expect(403);
}

#[test]
fn a_tenant_has_one_share_from_all_its_addresses() {
    let server = Server::with(HttpSettings {
        watches_max: 10,
        turn_timeout: Duration::from_millis(50),
        trusted_proxies: vec!["127.0.0.1".parse().expect("a network")],
        ..settings()
    });
    tenant(&server, "acme", &json!({}));
    tenant(&server, "globex", &json!({}));
    let [acme, globex] = ["acme", "globex"].map(|name| token(&server, &["reader"], &[name]));
    let watch = |token: &str, tenant: &str, from: usize| {
        let mut stream = server.connect();
        let head = format!(
            "GET /v1/tables/{tenant}-metrics/watch HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\
             forwarded: for=192.0.2.{from}\r\n\r\n",
            bearer(token)
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).expect("an answer begins");
        (String::from_utf8_lossy(&begin[9..]).into_owned(), stream)
    };
    let mut open = Vec::new();
    let mut status = |token: &str, tenant: &str, from: usize| {
        let (status, stream) = watch(token, tenant, from);
        open.push(stream);
        status
    };
    let of_acme: Vec<String> = (0..10).map(|from| status(&acme, "acme", from)).collect();
    assert_eq!(of_acme, [["200"; 8].as_slice(), &["503"; 2]].concat());
    assert_eq!(
        status(&globex, "globex", 1),
        "200",
        "another tenant, from an address that acme uses"
    );
}

#[test]
fn new_timelines_over_the_budget_of_all_tables_are_retryable() {
    let server = start();
    tenant(&server, "acme", &json!({"new_timelines_per_minute": 3}));
    ask(&server, ROOT, "POST", "/v1/tables", r#"{"name": "acme-other"}"#).expect(201);
    let acme = token(&server, &["writer"], &["acme"]);
    let write = |table: &str, hosts: std::ops::Range<u32>| {
        let line = |host| format!("cpu,host=h{host} usage=1 1763640000\n");
        let path = format!("/v1/tables/{table}/points?precision=s");
        let headers = [("authorization", &*bearer(&acme)), ("content-type", "text/plain")];
        let lines: String = hosts.map(line).collect();
        server.send("POST", &path, &headers, lines.as_bytes())
    };
    write("acme-metrics", 0..2).expect(200);
    let partly = write("acme-other", 0..3).expect(200);
    assert_eq!(
        (&partly["points"], &partly["retryable"]),
        (&json!(1), &json!(2)),
        "{partly}"
    );
    let reason = partly["rejects"][0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("the tenant acme take at most 3 new timelines a minute"),
        "{reason}"
    );
    write("acme-metrics", 0..2).expect(200);
    let all = write("acme-metrics", 5..6);
    assert_eq!(all.status, 429, "{}", all.text());
    server.clock.advance(60_000_000_000);
    write("acme-metrics", 5..8).expect(200);
    let shown = ask(&server, ROOT, "GET", "/v1/tenants/acme", "").expect(200);
    assert_eq!(shown["used"]["refused_timelines"], 3, "{shown}");
}

#[test]
fn a_token_of_the_file_of_hashes_can_act_for_a_tenant() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hashes.json");
    let text = "a-token-of-the-file-of-some-length";
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let content =
        json!({"tokens": [{"id": "agents", "roles": ["reader"], "tenants": ["acme"], "sha256": [hash]}]});
    std::fs::write(&file, content.to_string()).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let server = Server::with(HttpSettings {
        hashes_file: Some(file),
        ..settings()
    });
    ask(&server, text, "GET", path_of_reads(), "").expect(403);
    tenant(&server, "acme", &json!({}));
    assert_eq!(ask(&server, text, "GET", path_of_reads(), "").status, 200);
    ask(&server, text, "GET", "/v1/tables/default/measurements", "").expect(403);
}
