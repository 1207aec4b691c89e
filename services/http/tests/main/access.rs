//! Access: roles and scopes on every operation of the OpenAPI document, and the life of tokens.
//!
//! The matrix sends the example request of each operation with a token of each role. A new route is included
//! automatically, because it is in the document.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::{HttpSettings, Secret};

use crate::client::{Response, Server};
use crate::document::ExampleRequest;

pub(crate) const ROOT: &str = "root-token-of-some-length";
/// Text in the names and values of everything that a restricted token must not see.
pub(crate) const HIDDEN: &str = "zqx";
/// Nanoseconds.
const HOUR: i64 = 3_600_000_000_000;
const ROLES: [&str; 4] = ["reader", "writer", "operator", "admin"];

pub(crate) fn settings() -> HttpSettings {
    HttpSettings {
        token: Some(Secret::new(ROOT).expect("long enough")),
        ..HttpSettings::default()
    }
}

pub(crate) fn start() -> Server {
    Server::with(settings())
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(crate) fn ask(server: &Server, token: &str, method: &str, path: &str, body: &str) -> Response {
    let authorization = bearer(token);
    let headers = [
        ("authorization", &*authorization),
        ("content-type", "application/json"),
    ];
    server.send(method, path, &headers, body.as_bytes())
}

/// Opens a watch of a table, and waits for its first event.
pub(crate) fn open_watch(server: &Server, token: &str, table: &str) -> TcpStream {
    let mut watch = server.connect();
    let head = format!(
        "GET /v1/tables/{table}/watch HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\nconnection: close\r\n\r\n",
        bearer(token)
    );
    watch.write_all(head.as_bytes()).expect("sent");
    let mut events = Vec::new();
    let mut buffer = [0; 4_096];
    while !String::from_utf8_lossy(&events).contains("event: ready") {
        let read = watch.read(&mut buffer).expect("events in time");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&events));
        events.extend_from_slice(&buffer[..read]);
    }
    watch
}

/// Creates a token and returns its response.
pub(crate) fn create(server: &Server, body: &Value) -> Value {
    ask(server, ROOT, "POST", "/v1/tokens", &body.to_string()).expect(201)
}

/// Creates a token with one role, restricted to `tables` unless the list is empty, and returns its text.
pub(crate) fn token(server: &Server, role: &str, tables: &[&str]) -> String {
    let mut body = json!({"name": role, "roles": [role]});
    if !tables.is_empty() {
        body["tables"] = json!(tables);
    }
    let created = create(server, &body);
    created["token"].as_str().expect("a token").to_owned()
}

/// Returns true if the role of the token was the reason for a refusal.
pub(crate) fn is_wrong_role(response: &Response) -> bool {
    response.status == 403 && response.text().contains("needs one of")
}

/// Returns true if the scope of the token was the reason for a refusal.
fn is_out_of_scope(response: &Response) -> bool {
    response.status == 403 && response.text().contains("its scope is")
}

/// Creates tables of all models with data, a stream and jobs. `word` is in all their names and values.
fn fill(server: &Server, word: &str) {
    let root = |method: &str, path: &str, body: &Value| {
        let response = ask(server, ROOT, method, path, &body.to_string());
        assert!(response.status < 300, "{method} {path}: {}", response.text());
        response
    };
    let key = json!({"key": [{"name": "id", "type": "string"}]});
    root("POST", "/v1/tables", &json!({"name": word}));
    root(
        "POST",
        "/v1/tables",
        &json!({"name": format!("{word}-wide"), "model": "wide", "wide": key}),
    );
    root(
        "POST",
        "/v1/tables",
        &json!({"name": format!("{word}-feed"), "model": "feed", "feed": {"inboxes": {}}}),
    );
    root(
        "POST",
        &format!("/v1/tables/{word}/points"),
        &json!({"points": [{"measurement": format!("{word}_cpu"), "tags": {"host": word}, "fields": {"f": word}}]}),
    );
    root(
        "POST",
        &format!("/v1/tables/{word}-wide/rows"),
        &json!({"rows": [{"op": "put", "key": {"id": word}, "columns": {"c": word}}]}),
    );
    root(
        "PUT",
        &format!("/v1/changes/{word}"),
        &json!({"tables": [word, format!("{word}-*")]}),
    );
    root("POST", "/v1/jobs", &json!({"kind": "fold", "table": word}));
}

#[test]
fn every_operation_is_allowed_by_its_roles_only() {
    let server = start();
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let tokens = ROLES.map(|role| (role, token(&server, role, &[])));
    let (mut asked, mut refused) = (0, 0);
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let request = ExampleRequest::new(&document, path, operation, "default");
            let required = &operation["security"][0]["token"];
            let Some(required) = required.as_array() else {
                assert_eq!(operation["security"], json!([{}]), "{method} {path}");
                continue;
            };
            let missing = request.send(&server, method, &[]);
            assert_eq!(missing.status, 401, "{method} {path} without a token");
            let wrong = request.send(&server, method, &[("authorization", "Bearer tl_0123456789ab_0")]);
            assert_eq!(wrong.status, 401, "{method} {path} with a wrong token");
            let [required, ..] = required.as_slice() else {
                continue;
            };
            for (role, token) in &tokens {
                let is_allowed = match required.as_str().expect("an action") {
                    "observe" | "read" => *role != "writer",
                    "write" => matches!(*role, "writer" | "admin"),
                    "operate" => matches!(*role, "operator" | "admin"),
                    "administer" => *role == "admin",
                    other => panic!("{method} {path}: {other}"),
                };
                let response = request.send(&server, method, &[("authorization", &bearer(token))]);
                assert_eq!(
                    is_wrong_role(&response),
                    !is_allowed,
                    "{method} {path} as {role}: {} {}",
                    response.status,
                    response.text()
                );
                assert_ne!(response.status, 401, "{method} {path} as {role}");
                asked += 1;
                refused += usize::from(!is_allowed);
            }
        }
    }
    println!("{asked} requests, {refused} refused");
    assert!(asked > 600 && refused > 200, "{asked} {refused}");
}

#[test]
fn a_scope_hides_all_other_tables_on_every_operation() {
    let server = start();
    let tokens =
        ["reader", "writer", "operator"].map(|role| (role, token(&server, role, &["seen", "seen-*"])));
    others_are_hidden(&server, &tokens);
}

#[test]
fn a_tenant_reaches_no_table_of_others_on_any_operation() {
    let server = start();
    for word in ["seen", HIDDEN] {
        let tables = json!({"tables": [word, format!("{word}-*")]}).to_string();
        ask(&server, ROOT, "PUT", &format!("/v1/tenants/{word}"), &tables).expect(201);
    }
    let tokens = ["reader", "writer", "operator"].map(|role| {
        let created = create(
            &server,
            &json!({"name": role, "roles": [role], "tenants": ["seen"]}),
        );
        (role, created["token"].as_str().expect("a token").to_owned())
    });
    others_are_hidden(&server, &tokens);
}

/// Sends the example request of every operation, about tables in the scope of the tokens and about hidden ones.
fn others_are_hidden(server: &Server, tokens: &[(&str, String); 3]) {
    fill(server, "seen");
    fill(server, HIDDEN);
    let document = serde_json::to_value(tideline_http::document()).expect("serialises");
    let (mut asked, mut refused) = (0, 0);
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            if operation["security"][0]["token"].is_null() {
                continue;
            }
            for table in ["", "-wide", "-feed"] {
                for word in ["seen", HIDDEN] {
                    let name = format!("{word}{table}");
                    let mut request = ExampleRequest::new(&document, path, operation, &name);
                    let is_of_stream = path.contains("{stream}");
                    if is_of_stream {
                        request.address = request
                            .address
                            .replace("/v1/changes/orders", &format!("/v1/changes/{word}"));
                    }
                    let is_hidden = word == HIDDEN && path.contains("{table}");
                    for (role, token) in tokens {
                        let response = request.send(server, method, &[("authorization", &bearer(token))]);
                        let text = response.text();
                        let what = format!("{method} {path} of {name} as {role}: {} {text}", response.status);
                        if is_hidden {
                            assert!(is_out_of_scope(&response) || is_wrong_role(&response), "{what}");
                            // The name of the table is in the request itself.
                            let others = text.replace(&name, "");
                            assert!(!others.contains(HIDDEN), "{what}");
                            refused += 1;
                        } else if is_of_stream && word == HIDDEN {
                            // The name of the stream is in the request itself; the response is that for a stream
                            // that does not exist. Only a new stream cannot have its name.
                            let is_new = method == "put" && path == "/v1/changes/{stream}";
                            let expected = if is_new { 409 } else { 404 };
                            assert!(response.status == expected || is_wrong_role(&response), "{what}");
                            let others = text.replace(&format!("\\\"{HIDDEN}\\\""), "");
                            assert!(!others.contains(HIDDEN), "{what}");
                        } else {
                            assert!(!text.contains(HIDDEN), "{what}");
                        }
                        asked += 1;
                    }
                    if !path.contains("{table}") && !is_of_stream {
                        break;
                    }
                }
            }
        }
    }
    println!("{asked} requests, {refused} refused");
    assert!(asked > 1_500 && refused > 500, "{asked} {refused}");
    // Nothing of the hidden tables has changed.
    let found = ask(
        server,
        ROOT,
        "GET",
        &format!("/v1/tables/{HIDDEN}/measurements"),
        "",
    )
    .expect(200);
    assert!(found.to_string().contains(&format!("{HIDDEN}_cpu")), "{found}");
}

#[test]
fn tables_that_are_not_in_the_path_are_checked() {
    let server = start();
    fill(&server, "seen");
    fill(&server, HIDDEN);
    let scope = ["seen", "seen-*"];
    let [reader, writer, operator] =
        ["reader", "writer", "operator"].map(|role| token(&server, role, &scope));
    let refused = |token: &str, method: &str, path: &str, body: Value| {
        let body = match body {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let response = ask(&server, token, method, path, &body);
        let text = response.text();
        assert!(
            text.contains("its scope is") || text.contains("needs one of"),
            "{method} {path} {body}: {} {text}",
            response.status
        );
    };
    let wide = format!("{HIDDEN}-wide");
    // SQL.
    refused(
        &reader,
        "POST",
        "/v1/sql",
        json!({"statement": format!("SELECT * FROM \"{wide}\"")}),
    );
    refused(
        &reader,
        "POST",
        "/v1/sql",
        json!({"statement": format!("EXPLAIN SELECT * FROM \"{wide}\"")}),
    );
    refused(
        &reader,
        "POST",
        "/v1/sql",
        json!({"statement": format!("SHOW CREATE TABLE \"{wide}\"")}),
    );
    refused(
        &reader,
        "POST",
        "/v1/sql",
        json!({"statement": "UPSERT INTO \"seen-wide\" (id, c) VALUES ('a', 'b')"}),
    );
    refused(
        &writer,
        "POST",
        "/v1/sql",
        json!({"statement": format!("UPSERT INTO \"{wide}\" (id, c) VALUES ('a', 'b')")}),
    );
    refused(
        &writer,
        "POST",
        "/v1/sql",
        json!({"statement": format!("DELETE FROM \"{wide}\" WHERE id = 'a'")}),
    );
    refused(
        &writer,
        "POST",
        "/v1/sql",
        json!({"statement": "SELECT * FROM \"seen-wide\""}),
    );
    refused(
        &writer,
        "POST",
        "/v1/sql",
        json!({"statement": "DROP TABLE \"seen-wide\""}),
    );
    refused(
        &operator,
        "POST",
        "/v1/sql",
        json!({"statement": format!("DROP TABLE \"{wide}\"")}),
    );
    refused(
        &operator,
        "POST",
        "/v1/sql",
        json!({"statement": "CREATE TABLE other (id VARCHAR PRIMARY KEY)"}),
    );
    refused(
        &operator,
        "POST",
        "/v1/sql",
        json!({"statement": format!("CREATE INDEX i ON \"{wide}\" (c)")}),
    );
    let shown = ask(
        &server,
        &reader,
        "POST",
        "/v1/sql",
        r#"{"statement": "SHOW TABLES"}"#,
    );
    assert!(
        shown.status == 200 && shown.text().contains("seen-wide"),
        "{}",
        shown.text()
    );
    assert!(!shown.text().contains(HIDDEN), "{}", shown.text());
    let allowed = r#"{"statement": "UPSERT INTO \"seen-wide\" (id, c) VALUES ('a', 'b')"}"#;
    ask(&server, &writer, "POST", "/v1/sql", allowed).expect(200);
    // InfluxDB: a table, the default table, and databases.
    for path in [
        format!("/write?db={HIDDEN}"),
        "/write?db=other".into(),
        "/write".into(),
    ] {
        refused(&writer, "POST", &path, "m f=1".into());
    }
    refused(
        &writer,
        "POST",
        &format!("/api/v2/write?org=o&bucket={HIDDEN}"),
        "m f=1".into(),
    );
    assert_eq!(
        ask(&server, &writer, "POST", "/write?db=seen", "m f=1").status,
        204
    );
    refused(
        &writer,
        "GET",
        "/query?q=CREATE%20DATABASE%20%22seen-2%22",
        Value::String(String::new()),
    );
    refused(
        &operator,
        "GET",
        "/query?q=CREATE%20DATABASE%20%22other%22",
        Value::String(String::new()),
    );
    let known = ask(
        &server,
        &writer,
        "GET",
        "/query?q=CREATE%20DATABASE%20%22seen%22",
        "",
    )
    .expect(200);
    assert!(known["results"][0]["error"].is_null(), "{known}");
    let databases = ask(&server, &reader, "GET", "/query?q=SHOW%20DATABASES", "").text();
    assert!(
        databases.contains("seen") && !databases.contains(HIDDEN),
        "{databases}"
    );
    // The Prometheus routes at the root apply to the default table.
    for path in [
        "/api/v1/query?query=up",
        "/api/v1/labels",
        "/api/v1/status/tsdb",
        "/federate?match[]=up",
    ] {
        refused(&reader, "GET", path, Value::String(String::new()));
    }
    // Paths of a Pushgateway group have any length, so they are not in the document.
    refused(
        &reader,
        "PUT",
        "/v1/tables/seen/prometheus/metrics/job/a/instance/b",
        "m 1\n".into(),
    );
    refused(&writer, "PUT", "/metrics/job/a/instance/b", "m 1\n".into());
    let hidden = format!("/v1/tables/{HIDDEN}/prometheus/");
    refused(
        &writer,
        "PUT",
        &format!("{hidden}metrics/job/a/instance/b"),
        "m 1\n".into(),
    );
    refused(&reader, "GET", &hidden, Value::String(String::new()));
    // Tables in bodies.
    refused(&operator, "POST", "/v1/tables", json!({"name": "other"}));
    refused(
        &operator,
        "POST",
        "/v1/jobs",
        json!({"kind": "fold", "table": HIDDEN}),
    );
    refused(&operator, "POST", "/v1/jobs", json!({"kind": "fold"}));
    refused(&operator, "POST", "/v1/jobs", json!({"kind": "seal"}));
    refused(&reader, "POST", "/v1/policies/preview", json!({"table": HIDDEN}));
    refused(
        &operator,
        "POST",
        "/v1/tables/seen/archive/restore",
        json!({"range": {}, "into": HIDDEN}),
    );
    refused(
        &operator,
        "POST",
        "/v1/tables/seen-wide/rows/rekey",
        json!({"into": wide}),
    );
    refused(&operator, "POST", "/v1/archive/attach", json!({"target": "a"}));
    refused(&operator, "POST", "/v1/archive/orphans", json!({"target": "a"}));
    refused(
        &operator,
        "POST",
        "/v1/clock/confirm",
        Value::String(String::new()),
    );
    refused(&operator, "PUT", "/v1/changes/other", json!({}));
    refused(&operator, "PUT", "/v1/changes/other", json!({"tables": ["see*"]}));
    refused(
        &operator,
        "PUT",
        "/v1/changes/other",
        json!({"tables": ["seen", wide]}),
    );
    ask(
        &server,
        &operator,
        "PUT",
        "/v1/changes/other",
        r#"{"tables": ["seen"]}"#,
    )
    .expect(200);
    // Metrics include figures of all tables.
    refused(&reader, "GET", "/metrics", Value::String(String::new()));
    let unrestricted = token(&server, "reader", &[]);
    assert_eq!(ask(&server, &unrestricted, "GET", "/metrics", "").status, 200);
}

#[test]
fn a_writer_gets_no_row_back() {
    let server = start();
    fill(&server, "seen");
    let path = "/v1/tables/seen-wide/rows";
    let body =
        r#"{"rows": [{"op": "update", "key": {"id": "seen"}, "columns": {"d": 1}, "return": "before"}]}"#;
    let writer = token(&server, "writer", &[]);
    let response = ask(&server, &writer, "POST", path, body);
    assert!(
        response.text().contains("needs one of reader, operator, admin"),
        "{}",
        response.text()
    );
    let both = create(&server, &json!({"name": "both", "roles": ["writer", "reader"]}));
    let response = ask(
        &server,
        both["token"].as_str().expect("a token"),
        "POST",
        path,
        body,
    );
    assert_eq!(response.status, 200);
    assert!(response.text().contains("\"c\":\"seen\""), "{}", response.text());
}

#[test]
fn a_writer_gets_no_stored_data_from_changes() {
    let server = start();
    fill(&server, "seen");
    let feed = "/v1/tables/seen-feed/feeds/room,name=lobby";
    let member = &*format!("{feed}/members/ann");
    let cursor = "/v1/tables/seen-feed/users/ann/cursors/room,name=lobby";
    let put = json!({"attributes": {"title": HIDDEN}}).to_string();
    ask(&server, ROOT, "PUT", feed, &put).expect(200);
    ask(&server, ROOT, "PUT", member, "{}").expect(200);
    let sent = json!({"messages": [{"sender": "bea"}]}).to_string();
    let sent = ask(&server, ROOT, "POST", &format!("{feed}/messages"), &sent).expect(200);
    let sequence = sent["messages"][0]["sequence"].as_str().expect("a number");
    let counters = &*format!("{feed}/messages/{sequence}/counters");
    ask(&server, ROOT, "POST", counters, r#"{"add": {"like": 41}}"#).expect(200);
    let read = json!({"sequence": sequence}).to_string();
    ask(&server, ROOT, "PUT", cursor, &read).expect(200);
    let timelines = ask(&server, ROOT, "GET", "/v1/tables/seen/timelines", "").expect(200);
    let timeline = timelines["timelines"][0]["id"].as_str().expect("an id");
    let attributes = &*format!("/v1/tables/seen/timelines/{timeline}/attributes");

    let writer = token(&server, "writer", &[]);
    let both = create(&server, &json!({"name": "both", "roles": ["writer", "reader"]}));
    let both = both["token"].as_str().expect("a token");
    let feed_id = ask(&server, ROOT, "GET", feed, "").expect(200)["id"].clone();
    for (method, path, body, of_writer, of_reader) in [
        (
            "PUT",
            feed,
            json!({"attributes": {"topic": "a"}}),
            json!({"id": feed_id, "attributes": {"topic": "a"}}),
            "title",
        ),
        (
            "PUT",
            member,
            json!({}),
            json!({"feed": feed_id, "user": "ann"}),
            "joined",
        ),
        (
            "PATCH",
            member,
            json!({"muted": true}),
            json!({"feed": feed_id, "user": "ann", "muted": true}),
            "joined",
        ),
        (
            "POST",
            counters,
            json!({"add": {"like": 0}}),
            json!({"counters": {}}),
            "41",
        ),
        (
            "PUT",
            cursor,
            json!({"sequence": "1"}),
            json!({"cursor": null}),
            sequence,
        ),
        (
            "PATCH",
            attributes,
            json!({"owner": "ann"}),
            json!({"id": timeline, "attributes": {"owner": "ann"}}),
            "seen_cpu",
        ),
    ] {
        let body = body.to_string();
        let mut found = ask(&server, &writer, method, path, &body).expect(200);
        let members = found.as_object_mut().expect("an object");
        assert!(members.remove("request_id").is_some());
        assert_eq!(found, of_writer, "{method} {path}");
        let found = ask(&server, both, method, path, &body).expect(200).to_string();
        assert!(found.contains(of_reader), "{method} {path}: {found}");
    }
}

#[test]
fn jobs_show_no_other_tables() {
    let server = start();
    fill(&server, "seen");
    fill(&server, HIDDEN);
    let operator = token(&server, "operator", &["seen", "seen-*"]);
    let folded = |token: &str| {
        let body = json!({"kind": "fold", "table": "seen", "wait": true}).to_string();
        ask(&server, token, "POST", "/v1/jobs", &body).expect(200)
    };
    // These figures count the data of all tables.
    for member in ["head_points", "segments", "segment_bytes"] {
        assert!(folded(&operator)[member].is_null(), "{member}");
        assert!(folded(ROOT)[member].is_u64(), "{member}");
    }
    // The target refuses the row, because it has no value for a key column.
    let (into, column) = (format!("{HIDDEN}-coded"), format!("{HIDDEN}_code"));
    let key = json!({"key": [{"name": column, "type": "u64"}, {"name": "id", "type": "string"}]});
    let target = json!({"name": into, "model": "wide", "wide": key});
    ask(&server, ROOT, "POST", "/v1/tables", &target.to_string()).expect(201);
    let copy = json!({"into": into, "merge": true, "wait": true}).to_string();
    ask(&server, ROOT, "POST", "/v1/tables/seen-wide/rows/rekey", &copy).expect(200);
    let copies = |token: &str| {
        let jobs = ask(&server, token, "GET", "/v1/jobs?kind=rekey", "").expect(200);
        jobs["jobs"].as_array().expect("jobs").clone()
    };
    assert_eq!(copies(ROOT)[0]["into"], into);
    let outcome = copies(ROOT)[0]["outcome"].to_string();
    assert!(
        outcome.contains("1 refused") && outcome.contains(&column),
        "{outcome}"
    );
    let seen = copies(&operator);
    assert_eq!(seen[0]["outcome"], "0 of 1 rows copied, 1 refused");
    assert_eq!(seen.len(), 1);
    assert!(!json!(seen).to_string().contains(HIDDEN), "{seen:?}");

    // The model of a dropped table is not known, and a later table of its name can have another one.
    let of_series = create(
        &server,
        &json!({"name": "a", "roles": ["operator"], "models": ["series"]}),
    );
    let of_series = of_series["token"].as_str().expect("a token");
    let path = format!("/v1/jobs/{}/cancel", seen[0]["id"]);
    let check_hidden = || {
        assert!(copies(of_series).is_empty());
        ask(&server, of_series, "POST", &path, "").expect(404);
        assert_eq!(copies(ROOT).len(), 1);
    };
    check_hidden();
    let dropped = ask(&server, ROOT, "DELETE", "/v1/tables/seen-wide", "");
    assert_eq!(dropped.status, 204, "{}", dropped.text());
    check_hidden();
    ask(&server, ROOT, "POST", "/v1/tables", r#"{"name": "seen-wide"}"#).expect(201);
    check_hidden();
}

#[test]
fn the_users_of_a_feed_table_belong_to_it() {
    let server = start();
    fill(&server, "seen");
    fill(&server, HIDDEN);
    let of_feed = token(&server, "reader", &["seen-feed"]);
    let of_users = token(&server, "reader", &["seen-feed-users"]);
    let scan = |token: &str, table: &str| {
        let path = format!("/v1/tables/{table}/rows/scan");
        ask(&server, token, "POST", &path, r#"{"allow_scan": true}"#).status
    };
    assert_eq!(scan(&of_feed, "seen-feed-users"), 200);
    assert_eq!(scan(&of_feed, &format!("{HIDDEN}-feed-users")), 403);
    assert_eq!(scan(&of_users, "seen-feed-users"), 403);
    let stream = json!({"tables": ["seen-feed", "seen-feed-users"]}).to_string();
    ask(&server, ROOT, "PUT", "/v1/changes/both", &stream).expect(200);
    ask(&server, &of_feed, "GET", "/v1/changes/both", "").expect(200);
    ask(&server, &of_feed, "GET", "/v1/changes/both/records", "").expect(200);
    ask(&server, &of_users, "GET", "/v1/changes/both", "").expect(404);
    // The feed table decides, also about changes.
    let operators = ["seen-feed", "seen-feed-users"].map(|table| token(&server, "operator", &[table]));
    for (token, status) in [(&operators[0], 422), (&operators[1], 403)] {
        let refused = ask(&server, token, "DELETE", "/v1/tables/seen-feed-users", "");
        assert_eq!(refused.status, status, "{}", refused.text());
    }
}

#[test]
fn a_stream_has_the_users_of_a_feed_table_only_together_with_it() {
    let server = start();
    fill(&server, "seen");
    let put = |token: &str, stream: &str, tables: &[&str]| {
        let body = json!({ "tables": tables }).to_string();
        ask(&server, token, "PUT", &format!("/v1/changes/{stream}"), &body)
    };
    let refused = put(ROOT, "users", &["seen-feed-users"]).expect(400);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("add seen-feed"), "{message}");
    for tables in [
        &["seen-feed-users", "seen-f*"][..],
        &["seen-feed-users", "seen-feed"],
        &["seen-*"],
        &["seen-feed-*"],
    ] {
        put(ROOT, "users", tables).expect(200);
    }
    let of_name = |table: &str| {
        let created = create(
            &server,
            &json!({"name": table, "roles": ["reader", "operator"], "tables": [table]}),
        );
        created["token"].as_str().expect("a token").to_owned()
    };
    let of_users = of_name("seen-feed-users");
    assert!(is_out_of_scope(&put(&of_users, "own", &["seen-feed-users"])));
    // A stream of a name that a table of users gets later stays visible and can be deleted.
    let of_later = of_name("late-feed-users");
    put(&of_later, "own", &["late-feed-users"]).expect(200);
    fill(&server, "late");
    assert!(is_out_of_scope(&put(&of_later, "own", &["late-feed-users"])));
    ask(&server, &of_later, "GET", "/v1/changes/own", "").expect(200);
    let listed = ask(&server, &of_later, "GET", "/v1/changes", "").expect(200);
    assert_eq!(listed["streams"][0]["name"], "own", "{listed}");
    let deleted = ask(&server, &of_later, "DELETE", "/v1/changes/own", "");
    assert_eq!(deleted.status, 204, "{}", deleted.text());
}

#[test]
fn a_scope_of_another_model_does_not_reveal_the_users_of_a_feed_table() {
    let server = start();
    fill(&server, "seen");
    for (scope, status) in [("seen-feed", 403), ("seen-*", 404)] {
        let created = create(
            &server,
            &json!({"name": scope, "roles": ["reader"], "tables": [scope], "models": ["wide"]}),
        );
        let of_wide = created["token"].as_str().expect("a token");
        for (method, path, body) in [("GET", "", ""), ("POST", "/rows/scan", r#"{"allow_scan": true}"#)] {
            let refusal = |name: &str| {
                let path = format!("/v1/tables/{name}{path}");
                let refused = ask(&server, of_wide, method, &path, body).expect(status);
                refused["message"].as_str().expect("a text").replace(name, "NAME")
            };
            let of_missing = refusal("seen-none-users");
            assert_eq!(refusal("seen-feed-users"), of_missing, "{scope}: {path}");
        }
    }
}

#[test]
fn a_token_of_a_model_reaches_no_other_model() {
    let server = start();
    fill(&server, "seen");
    let created = create(
        &server,
        &json!({"name": "a", "roles": ["reader"], "models": ["wide"]}),
    );
    let of_wide = created["token"].as_str().expect("a token");
    let tables = ask(&server, of_wide, "GET", "/v1/tables", "").expect(200);
    let names: Vec<&str> = tables["tables"]
        .as_array()
        .expect("tables")
        .iter()
        .filter_map(|table| table["name"].as_str())
        .collect();
    assert_eq!(names, ["seen-wide"]);
    // The response does not reveal whether a table of another model exists.
    let of_missing = |name: &str| {
        let path = format!("/v1/tables/{name}");
        let missing = ask(&server, of_wide, "GET", &path, "").expect(404);
        missing["message"].as_str().expect("a text").replace(name, "NAME")
    };
    assert_eq!(of_missing("seen"), of_missing("nothing"));
    assert_eq!(of_missing("seen-feed"), of_missing("nothing"));
    let writer = create(
        &server,
        &json!({"name": "b", "roles": ["writer"], "models": ["series"]}),
    );
    let writer = writer["token"].as_str().expect("a token");
    for database in ["seen-wide", "nothing"] {
        let path = format!("/write?db={database}");
        let written = ask(&server, writer, "POST", &path, "m f=1");
        assert_eq!(written.status, 204, "{path}: {}", written.text());
    }
    let users = ask(
        &server,
        of_wide,
        "POST",
        "/v1/tables/seen-feed-users/rows/scan",
        "{}",
    );
    assert_ne!(users.status, 200, "{}", users.text());
    ask(
        &server,
        of_wide,
        "POST",
        "/v1/tables/seen-wide/rows/scan",
        r#"{"allow_scan": true}"#,
    )
    .expect(200);
}

#[test]
fn a_token_is_shown_once_and_stored_as_a_hash() {
    let server = start();
    let created = create(
        &server,
        &json!({"name": "telegraf", "roles": ["writer"], "tables": ["fleet"], "models": ["series"], "expires": "now+90d"}),
    );
    let text = created["token"].as_str().expect("a token");
    let id = created["id"].as_str().expect("an id");
    assert!(text.starts_with(&format!("tl_{id}_")), "{text}");
    assert_eq!(created["created_by"], "configured token");
    assert_eq!(created["expires"], "2027-02-18T12:00:00Z");
    let secret = &text[id.len() + 4..];
    for path in ["/v1/tokens".to_owned(), format!("/v1/tokens/{id}")] {
        let shown = ask(&server, ROOT, "GET", &path, "");
        assert_eq!(shown.status, 200);
        assert!(
            shown.text().contains("telegraf") && !shown.text().contains(secret),
            "{}",
            shown.text()
        );
        assert!(!shown.text().contains("sha256"), "{}", shown.text());
    }
    let rows = server.engine.state_rows("tokens").expect("readable");
    let stored = format!("{rows:?}");
    assert!(
        stored.contains("telegraf") && !stored.contains(secret),
        "{stored}"
    );
    let own = ask(&server, text, "GET", "/v1/access", "").expect(200);
    assert_eq!(
        (&own["id"], &own["roles"], &own["tables"], &own["models"]),
        (
            &json!(id),
            &json!(["writer"]),
            &json!(["fleet"]),
            &json!(["series"])
        )
    );
    let listed = ask(&server, ROOT, "GET", "/v1/tokens", "").expect(200);
    assert_eq!(listed["tokens"][0]["last_used"], crate::client::NOW);
    assert!(
        ask(&server, text, "GET", "/v1/tokens", "")
            .text()
            .contains("needs one of admin")
    );
}

#[test]
fn a_token_is_taken_in_the_form_of_every_protocol() {
    use base64::Engine as _;
    let server = start();
    let writer = token(&server, "writer", &[]);
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("any:{writer}"));
    for authorization in [
        format!("Bearer {writer}"),
        format!("bearer {writer}"),
        format!("Token {writer}"),
        format!("Token any:{writer}"),
        format!("Basic {basic}"),
    ] {
        let response = server.send("POST", "/write", &[("authorization", &authorization)], b"m f=1");
        assert_eq!(response.status, 204, "{authorization}");
    }
    assert_eq!(
        server
            .post(&format!("/write?u=any&p={writer}"), "", "m f=1")
            .status,
        204
    );
    // A proxy could check the other header.
    let bearer = bearer(&writer);
    let both = [("authorization", &*bearer), ("authorization", "Bearer other")];
    for headers in [both, [both[1], both[0]], [both[0]; 2]] {
        let refused = server.send("POST", "/v1/tables/default/points", &headers, b"m f=1");
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(
            refused.text().contains("two headers Authorization"),
            "{}",
            refused.text()
        );
    }
    let shorter = &writer[..writer.len() - 1];
    assert_eq!(
        server
            .post(&format!("/write?u=any&p={shorter}"), "", "m f=1")
            .status,
        401
    );
}

#[test]
fn tokens_are_rotated_with_an_overlap_and_expire() {
    let server = start();
    let created = create(
        &server,
        &json!({"name": "a", "roles": ["reader"], "expires": "now+10d"}),
    );
    let (first, id) = (
        created["token"].as_str().expect("a token"),
        created["id"].as_str().expect("an id"),
    );
    let status = |token: &str| ask(&server, token, "GET", "/v1/tables", "").status;
    let path = format!("/v1/tokens/{id}/rotate");
    let rotated = ask(&server, ROOT, "POST", &path, r#"{"overlap": "1h"}"#).expect(200);
    let second = rotated["token"].as_str().expect("a token");
    assert_eq!(rotated["previous_secret_until"], "2026-11-20T13:00:00Z");
    assert_eq!((status(first), status(second)), (200, 200));
    server.clock.advance(HOUR);
    assert_eq!((status(first), status(second)), (401, 200));
    let gone = ask(&server, first, "GET", "/v1/tables", "").text();
    assert!(
        gone.contains(id) && gone.contains("expired or was replaced"),
        "{gone}"
    );
    let third = ask(&server, ROOT, "POST", &path, r#"{"overlap": "0s"}"#).expect(200);
    assert_eq!(third["previous_secret_until"], Value::Null);
    assert_eq!(status(second), 401);
    let second = third["token"].as_str().expect("a token");
    assert_eq!(status(second), 200);
    ask(&server, ROOT, "POST", &path, r#"{"overlap": "31d"}"#).expect(400);
    server.clock.advance(240 * HOUR);
    assert_eq!(status(second), 401);
    let listed = ask(&server, ROOT, "GET", "/v1/tokens", "").expect(200);
    assert_eq!(listed["tokens"][0]["is_expired"], true);
    ask(&server, ROOT, "POST", &path, "{}").expect(409);
}

#[test]
fn a_rotation_ends_no_valid_secret_unless_it_has_no_overlap() {
    let server = start();
    let created = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let (first, id) = (
        created["token"].as_str().expect("a token"),
        created["id"].as_str().expect("an id"),
    );
    let path = format!("/v1/tokens/{id}/rotate");
    let rotate = |overlap: &str| {
        let body = json!({"overlap": overlap}).to_string();
        ask(&server, ROOT, "POST", &path, &body)
    };
    for _ in 0..3 {
        rotate("1h").expect(200);
    }
    let refused = rotate("2h").expect(409);
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.contains(id) && message.contains("valid until 2026-11-20T13:00:00Z, "),
        "{message}"
    );
    let status = |token: &str| ask(&server, token, "GET", "/v1/tables", "").status;
    assert_eq!(status(first), 200);
    let last = rotate("0s").expect(200);
    assert_eq!(status(first), 401);
    assert_eq!(status(last["token"].as_str().expect("a token")), 200);
}

/// Reads the events of a watch up to one with this text.
fn read_event(watch: &mut TcpStream, text: &str) {
    let mut events = Vec::new();
    let mut buffer = [0; 4_096];
    while !String::from_utf8_lossy(&events).contains(text) {
        let read = watch.read(&mut buffer).expect("events in time");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&events));
        events.extend_from_slice(&buffer[..read]);
    }
}

#[test]
fn a_watch_ends_with_the_overlap_of_its_secret() {
    let server = start();
    let created = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let (first, id) = (
        created["token"].as_str().expect("a token"),
        created["id"].as_str().expect("an id"),
    );
    let mut watches = vec![open_watch(&server, first, "default")];
    let path = format!("/v1/tokens/{id}/rotate");
    let rotated = ask(&server, ROOT, "POST", &path, r#"{"overlap": "1h"}"#).expect(200);
    let second = rotated["token"].as_str().expect("a token");
    watches.push(open_watch(&server, first, "default"));
    let mut of_second = open_watch(&server, second, "default");
    let own = ask(&server, first, "GET", "/v1/access", "").expect(200);
    assert_eq!(own["expires"], "2026-11-20T13:00:00Z");
    let own = ask(&server, second, "GET", "/v1/access", "").expect(200);
    assert_eq!(own["expires"], Value::Null);
    // Both secrets are valid.
    assert_eq!(ask(&server, ROOT, "POST", "/write", "seen f=1").status, 204);
    for watch in watches.iter_mut().chain([&mut of_second]) {
        read_event(watch, "seen");
    }
    server.clock.advance(HOUR);
    assert_eq!(ask(&server, ROOT, "POST", "/write", "zqx f=1").status, 204);
    for mut watch in watches {
        let mut events = Vec::new();
        watch.read_to_end(&mut events).expect("the watch ends");
        let events = String::from_utf8_lossy(&events);
        assert!(!events.contains("zqx"), "{events}");
    }
    read_event(&mut of_second, "zqx");
}

/// Eight clients write without a pause. Meanwhile the token of four of them is rotated fifty times, and fifty other
/// tokens are revoked, which no client uses. A client uses the new secret as soon as it is available, like a client
/// that reads a file of a secret store.
#[test]
fn rotation_and_revocation_fail_no_request_of_a_valid_secret() {
    let server = start();
    let writer = || create(&server, &json!({"name": "a", "roles": ["writer"]}));
    let text = |created: &Value| created["token"].as_str().expect("a token").to_owned();
    let (rotated, other) = (writer(), writer());
    let secrets = [Mutex::new(text(&rotated)), Mutex::new(text(&other))];
    let stop = AtomicBool::new(false);
    let written: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (client, written) in written.iter().enumerate() {
            let (server, secret, stop) = (&server, &secrets[client % 2], &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let secret = secret.lock().expect("no panic").clone();
                    let line = format!("cpu,host=h{client} usage=1");
                    let response = ask(server, &secret, "POST", "/write", &line);
                    assert_eq!(response.status, 204, "{}", response.text());
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let id = rotated["id"].as_str().expect("an id");
        for _ in 0..50 {
            let path = format!("/v1/tokens/{id}/rotate");
            let new = ask(&server, ROOT, "POST", &path, r#"{"overlap": "3s"}"#).expect(200);
            *secrets[0].lock().expect("no panic") = text(&new);
            let revoked = writer();
            let path = format!("/v1/tokens/{}", revoked["id"].as_str().expect("an id"));
            assert_eq!(ask(&server, ROOT, "DELETE", &path, "").status, 204);
            let refused = ask(&server, &text(&revoked), "POST", "/write", "cpu usage=1");
            assert_eq!(refused.status, 401);
            // Each client must use the new secret before the old one ends.
            let counts = || written.each_ref().map(|written| written.load(Ordering::Relaxed));
            let before = counts();
            while counts().iter().zip(before).any(|(now, before)| *now < before + 2) {
                std::thread::yield_now();
            }
            // A token has at most four valid secrets, so one of them ends before the next rotation.
            server.clock.advance(1_000_000_000);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_revoked_token_is_refused_at_once_and_its_watch_ends() {
    let server = start();
    let created = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let (text, id) = (
        created["token"].as_str().expect("a token"),
        created["id"].as_str().expect("an id"),
    );
    let mut watch = open_watch(&server, text, "default");
    let path = format!("/v1/tokens/{id}");
    assert_eq!(ask(&server, ROOT, "DELETE", &path, "").status, 204);
    ask(&server, ROOT, "DELETE", &path, "").expect(404);
    // The write would be an event of the watch.
    assert_eq!(ask(&server, ROOT, "POST", "/write", "zqx f=1").status, 204);
    let mut events = Vec::new();
    watch.read_to_end(&mut events).expect("the watch ends");
    let events = String::from_utf8_lossy(&events);
    assert!(!events.contains("zqx"), "{events}");
    assert_eq!(ask(&server, text, "GET", "/v1/tables", "").status, 401);
}

#[test]
fn readiness_names_tables_only_to_tokens_for_everything() {
    let server = start();
    let root = |method: &str, path: &str, body: &Value| ask(&server, ROOT, method, path, &body.to_string());
    let feed =
        json!({"name": "zqx", "model": "feed", "feed": {"inboxes": {"push_max": 0, "fan_out_max": 10}}});
    root("POST", "/v1/tables", &feed).expect(201);
    let room = "/v1/tables/zqx/feeds/room,name=a";
    root("PUT", &format!("{room}/members/ann"), &json!({})).expect(200);
    // The job of the start ends, and the next one is paused. Then a message waits for its inbox.
    let run = json!({"kind": "fan_out", "table": "zqx", "wait": true});
    root("POST", "/v1/jobs", &run).expect(200);
    root("POST", &format!("{room}/messages"), &json!({"messages": [{}]})).expect(200);
    let begun = std::time::Instant::now();
    let id = loop {
        let jobs = root("GET", "/v1/jobs?kind=fan_out&state=planned", &json!({})).expect(200);
        if let Some(id) = jobs["jobs"][0]["id"].as_u64() {
            break id;
        }
        assert!(begun.elapsed() < crate::client::ANSWER_TIMEOUT);
        std::thread::yield_now();
    };
    let paused = root("POST", &format!("/v1/jobs/{id}/pause"), &json!({}));
    assert!(paused.status < 300, "{paused:?}");
    for _ in 0..3 {
        server.clock.advance(HOUR);
        server.get("/ready").expect(200);
    }
    let reasons = |token: &str| ask(&server, token, "GET", "/ready", "").expect(200)["reasons"].to_string();
    let named = reasons(ROOT);
    assert!(named.contains("fan-out of table zqx"), "{named}");
    let all = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    assert_eq!(reasons(all["token"].as_str().expect("a token")), named);
    for token in ["wrong", &*token(&server, "operator", &["zqx"])] {
        let counted = reasons(token);
        assert!(!counted.contains(HIDDEN), "{counted}");
        assert!(counted.contains("change streams: 1;"), "{counted}");
    }
    let without = server.get("/ready").expect(200)["reasons"].to_string();
    assert_eq!(without, reasons("wrong"));
}

#[test]
fn tokens_and_their_last_use_survive_a_restart() {
    let disk: Arc<MemoryDisk> = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(Arc::clone(&disk), settings());
    let [kept, revoked] = ["kept", "revoked"].map(|name| {
        create(
            &server,
            &json!({"name": name, "roles": ["reader"], "tables": ["seen*"]}),
        )
    });
    let text = |token: &Value| token["token"].as_str().expect("a token").to_owned();
    ask(&server, &text(&kept), "GET", "/v1/tables", "").expect(200);
    server.clock.advance(60_000_000_000);
    ask(&server, &text(&kept), "GET", "/v1/tables", "").expect(200);
    let path = format!("/v1/tokens/{}", kept["id"].as_str().expect("an id"));
    let used = ask(&server, ROOT, "GET", &path, "").expect(200)["last_used"].clone();
    assert_ne!(used, crate::client::NOW);
    let path = format!("/v1/tokens/{}", revoked["id"].as_str().expect("an id"));
    assert_eq!(ask(&server, ROOT, "DELETE", &path, "").status, 204);
    server.wait_stopped();
    server.engine.close().expect("closes");
    drop(server);
    let server = Server::on(disk, settings());
    let listed = ask(&server, ROOT, "GET", "/v1/tokens", "").expect(200);
    assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["tokens"][0]["tables"], json!(["seen*"]));
    assert_eq!(listed["tokens"][0]["last_used"], used);
    assert_eq!(ask(&server, &text(&revoked), "GET", "/v1/tables", "").status, 401);
    ask(&server, &text(&kept), "GET", "/v1/tables", "").expect(200);
    assert!(is_out_of_scope(&ask(
        &server,
        &text(&kept),
        "GET",
        "/v1/tables/other",
        ""
    )));
}

#[test]
fn readiness_warns_of_tokens_that_restrict_nothing() {
    let disk: Arc<MemoryDisk> = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(Arc::clone(&disk), settings());
    let created = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let warns = |server: &Server| {
        let reasons = server.get("/ready").expect(200)["reasons"].to_string();
        reasons.contains("requires no token although it has stored tokens (1): set auth.token_file")
    };
    assert!(!warns(&server), "it requires tokens");
    server.wait_stopped();
    server.engine.close().expect("closes");
    drop(server);
    let server = Server::on(disk, HttpSettings::default());
    assert!(warns(&server));
    let path = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
    assert_eq!(server.json("DELETE", &path, "").status, 204);
    assert!(!warns(&server), "there is no token");
}

#[test]
fn wrong_requests_for_tokens_are_explained() {
    let server = start();
    for (body, part) in [
        (json!({"name": "a", "roles": []}), "needs a role"),
        (json!({"name": "", "roles": ["reader"]}), "1 to 64 characters"),
        (json!({"name": "a", "roles": ["owner"]}), "reader"),
        (
            json!({"name": "a", "roles": ["reader"], "tables": ["A"]}),
            "neither the name of a table",
        ),
        (
            json!({"name": "a", "roles": ["admin"], "tables": ["a"]}),
            "admin cannot be restricted",
        ),
        (
            json!({"name": "a", "roles": ["reader"], "expires": "now-1h"}),
            "in the past",
        ),
        (json!({"name": "a", "roles": ["reader"], "table": "a"}), "table"),
        (
            json!({"name": "a", "roles": ["reader"], "tables": []}),
            "/tables: the list is empty",
        ),
        (
            json!({"name": "a", "roles": ["reader"], "models": []}),
            "/models: the list is empty",
        ),
        (
            json!({"name": "a", "roles": ["reader"], "tenants": []}),
            "/tenants: the list is empty",
        ),
    ] {
        let response = ask(&server, ROOT, "POST", "/v1/tokens", &body.to_string());
        let error = response.expect(400);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(part), "{body}: {message}");
    }
    ask(&server, ROOT, "GET", "/v1/tokens/none", "").expect(404);
    // A client that sends the token instead of its id does not get it back in an error, which can be in a log.
    let secret = token(&server, "reader", &[]);
    for (method, end, body) in [("GET", "", ""), ("DELETE", "", ""), ("POST", "/rotate", "{}")] {
        let refused = ask(&server, ROOT, method, &format!("/v1/tokens/{secret}{end}"), body);
        assert_eq!(refused.status, 404, "{}", refused.text());
        assert!(!refused.text().contains(&secret[16..]), "{}", refused.text());
    }
    let open = Server::start();
    let response = open.json("POST", "/v1/tokens", r#"{"name": "a", "roles": ["reader"]}"#);
    let message = response.expect(409)["message"].clone();
    assert!(
        message.as_str().is_some_and(|text| text.contains("--token-file")),
        "{message}"
    );
    let access = open.get("/v1/access").expect(200);
    assert_eq!(
        (&access["name"], &access["roles"]),
        (&json!("anonymous"), &json!(["admin"]))
    );
}

#[test]
fn tokens_of_a_file_are_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hashes.json");
    let write = |tokens: Value, mode: u32| {
        let next = folder.path().join("next");
        std::fs::write(&next, json!({"tokens": tokens}).to_string()).expect("a file");
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(mode)).expect("its mode");
        std::fs::rename(&next, &path).expect("replaced");
    };
    let sha256 = |token: &str| String::from(tideline_access::TokenHash::of(token));
    let (one, two) = ("secret-of-the-first-tool", "secret-of-the-second-tool");
    let first = json!({"id": "first", "roles": ["reader"], "tables": ["seen*"], "sha256": [sha256(one)]});
    let narrow = "secret-of-a-restricted-tool";
    let x = json!({"tag": "team", "equals": "x"});
    let restricted = json!({"id": "narrow", "roles": ["reader"], "timelines": x, "sha256": [sha256(narrow)]});
    write(json!([first, restricted]), 0o644);
    let server = Server::with(HttpSettings {
        hashes_file: Some(path.clone()),
        ..HttpSettings::default()
    });
    assert_eq!(server.get("/v1/tables").status, 401);
    let status = |token: &str| ask(&server, token, "GET", "/v1/tables", "").status;
    let follows = |token: &str, expected: u16| {
        let begun = std::time::Instant::now();
        while status(token) != expected {
            assert!(
                begun.elapsed() < crate::client::ANSWER_TIMEOUT,
                "{token} is not {expected}"
            );
            std::thread::yield_now();
        }
    };
    assert_eq!((status(one), status(two)), (200, 401));
    assert!(is_out_of_scope(&ask(&server, one, "GET", "/v1/tables/other", "")));
    let access = ask(&server, narrow, "GET", "/v1/access", "").expect(200);
    assert_eq!(access["timelines"], x);
    // A file that is not valid, or that other users can write, changes nothing.
    let second = json!({"id": "second", "roles": ["admin"], "sha256": [sha256(two)]});
    write(json!([first, second]), 0o666);
    write(
        json!([first, {"id": "second", "roles": [], "sha256": [sha256(two)]}]),
        0o600,
    );
    write(json!([first, second]), 0o600);
    follows(two, 200);
    assert_eq!(status(one), 200);
    let listed = ask(&server, two, "GET", "/v1/tokens", "").expect(200);
    assert_eq!(
        (&listed["tokens"][0]["id"], &listed["tokens"][1]["created_by"]),
        (&json!("first"), &json!("file"))
    );
    let conflict = ask(&server, two, "DELETE", "/v1/tokens/first", "").expect(409);
    assert!(
        conflict["message"]
            .as_str()
            .is_some_and(|text| text.contains("hashes_file")),
        "{conflict}"
    );
    ask(&server, two, "POST", "/v1/tokens/first/rotate", "{}").expect(409);
    let created = ask(
        &server,
        two,
        "POST",
        "/v1/tokens",
        r#"{"name": "third", "roles": ["reader"]}"#,
    )
    .expect(201);
    // During a rotation in the file, a watch ends with its hash.
    let three = "other-secret-of-the-second-tool";
    let both = json!({"id": "second", "roles": ["admin"], "sha256": [sha256(two), sha256(three)]});
    write(json!([first, both]), 0o600);
    follows(three, 200);
    let mut watch = open_watch(&server, two, "default");
    let mut of_three = open_watch(&server, three, "default");
    let second = json!({"id": "second", "roles": ["admin"], "sha256": [sha256(three)]});
    write(json!([first, second]), 0o600);
    follows(two, 401);
    assert_eq!(ask(&server, three, "POST", "/write", "zqx f=1").status, 204);
    let mut events = Vec::new();
    watch.read_to_end(&mut events).expect("the watch ends");
    let events = String::from_utf8_lossy(&events);
    assert!(!events.contains("zqx"), "{events}");
    read_event(&mut of_three, "zqx");
    write(json!([second]), 0o600);
    follows(one, 401);
    assert_eq!(
        status(created["token"].as_str().expect("a token")),
        200,
        "stored tokens stay"
    );
}

#[test]
fn tokens_of_an_identity_provider_are_accepted_until_their_key_leaves() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    let random = ring::rand::SystemRandom::new();
    let pair = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
    let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).expect("a key");
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jwks.json");
    let write = |key: &[u8]| {
        let next = folder.path().join("next");
        let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": encoded(key)}]});
        std::fs::write(&next, keys.to_string()).expect("a file");
        std::fs::rename(&next, &path).expect("replaced");
    };
    write(pair.public_key().as_ref());
    let server = Server::with(HttpSettings {
        jwt: Some(tideline_http::JwtFileSettings {
            jwks_file: path.clone(),
            claims: tideline_http::JwtSettings {
                issuer: "https://id.example".to_owned(),
                audience: "tideline".to_owned(),
                roles_claim: "roles".to_owned(),
                tables_claim: Some("tables".to_owned()),
                models_claim: None,
                timelines_claim: None,
                tenants_claim: None,
            },
        }),
        ..settings()
    });
    let now = tideline_model::Timestamp::parse_rfc3339(crate::client::NOW).expect("a time");
    let expires = now.nanos() / 1_000_000_000 + 600;
    let sign = |roles: Value| {
        let claims = json!({
            "iss": "https://id.example", "aud": "tideline", "sub": "ann", "exp": expires, "roles": roles, "tables": ["seen*"]
        });
        let header = json!({"alg": "EdDSA", "kid": "one"});
        let message = format!(
            "{}.{}",
            encoded(header.to_string().as_bytes()),
            encoded(claims.to_string().as_bytes())
        );
        format!("{message}.{}", encoded(pair.sign(message.as_bytes()).as_ref()))
    };
    let reader = sign(json!(["reader"]));
    let own = ask(&server, &reader, "GET", "/v1/access", "").expect(200);
    assert_eq!(
        (&own["name"], &own["roles"], &own["tables"]),
        (&json!("jwt:ann"), &json!(["reader"]), &json!(["seen*"]))
    );
    assert!(is_out_of_scope(&ask(
        &server,
        &reader,
        "GET",
        "/v1/tables/other",
        ""
    )));
    assert!(is_wrong_role(&ask(
        &server,
        &reader,
        "POST",
        "/v1/tables",
        r#"{"name": "seen"}"#
    )));
    let operator = sign(json!("operator"));
    ask(&server, &operator, "POST", "/v1/tables", r#"{"name": "seen"}"#).expect(201);
    let refused = ask(&server, &sign(json!([])), "GET", "/v1/access", "").expect(401);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|text| text.contains("none of the roles")),
        "{refused}"
    );
    assert_eq!(
        ask(&server, &format!("{reader}x"), "GET", "/v1/access", "").status,
        401
    );
    assert_eq!(
        ask(&server, ROOT, "GET", "/v1/access", "").status,
        200,
        "the configured token stays"
    );
    server.clock.advance(660_000_000_000);
    let expired = ask(&server, &reader, "GET", "/v1/access", "").expect(401);
    assert!(
        expired["message"]
            .as_str()
            .is_some_and(|text| text.contains("has expired")),
        "{expired}"
    );
    server.clock.advance(-660_000_000_000);
    ask(&server, &reader, "GET", "/v1/access", "").expect(200);
    let other = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
    let other = Ed25519KeyPair::from_pkcs8(other.as_ref()).expect("a key");
    write(other.public_key().as_ref());
    let begun = std::time::Instant::now();
    while ask(&server, &reader, "GET", "/v1/access", "").status != 401 {
        assert!(begun.elapsed() < crate::client::ANSWER_TIMEOUT);
        std::thread::yield_now();
    }
}

#[test]
fn requests_that_wait_get_nothing_after_their_token_was_revoked() {
    let server = start();
    fill(&server, "seen");
    let feed = "/v1/tables/seen-feed/feeds/room,name=a";
    let message = r#"{"messages": [{"columns": {"text": "zqx"}}]}"#;
    ask(&server, ROOT, "POST", &format!("{feed}/messages"), message).expect(200);
    let records = ask(&server, ROOT, "GET", "/v1/changes/seen/records", "").expect(200);
    let cursor = records["next"].as_str().expect("a cursor");
    let read = ask(&server, ROOT, "GET", &format!("{feed}/messages"), "").expect(200);
    let after = read["messages"][0]["sequence"].as_str().expect("a number");
    let created = create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let text = created["token"].as_str().expect("a token");
    let paths = [
        format!("/v1/changes/seen/records?cursor={cursor}&wait=15s"),
        format!("{feed}/messages?after={after}&wait=15s"),
    ];
    std::thread::scope(|scope| {
        let waiting = paths
            .each_ref()
            .map(|path| scope.spawn(|| ask(&server, text, "GET", path, "")));
        while !ask(&server, ROOT, "GET", "/metrics", "")
            .text()
            .contains("tideline_feed_watches 2")
        {
            std::thread::yield_now();
        }
        let path = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
        assert_eq!(ask(&server, ROOT, "DELETE", &path, "").status, 204);
        ask(&server, ROOT, "POST", &format!("{feed}/messages"), message).expect(200);
        for (path, response) in paths.iter().zip(waiting) {
            let response = response.join().expect("no panic").text();
            assert!(!response.contains("zqx"), "{path}: {response}");
        }
    });
}
