//! A process whose lease has expired: it answers no request with data that may be outdated.
//!
//! The lease is limited by the clock of the test, and its renewal by the real time, so it is not renewed meanwhile.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::HttpSettings;
use tideline_testkit::wait::until;

use crate::access::{ROOT, ask, settings};
use crate::audit::records;
use crate::client::{ANSWER_TIMEOUT, Response, Server};

const LEASE: Duration = Duration::from_secs(3_600);
/// Paths that are answered without a lease, because the answers are about the process.
const OF_PROCESS: [&str; 7] = [
    "/health",
    "/ready",
    "/ping",
    "/-/healthy",
    "/-/ready",
    "/metrics",
    "/v1/backend",
];

fn leased() -> Server {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(LEASE, 1_000_000);
    Server::on(disk, HttpSettings::default())
}

fn expire(server: &Server) {
    server.clock.advance(LEASE.as_nanos() as i64);
}

/// Returns the paths of all GET routes, with `default` for each parameter.
fn paths() -> Vec<String> {
    let document = serde_json::to_value(tideline_http::document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").iter();
    let paths = paths.filter(|(_, operations)| operations["get"].is_object());
    let filled = |segment: &str| match segment.starts_with('{') {
        true => "default".to_owned(),
        false => segment.to_owned(),
    };
    let fill = |path: &str| path.split('/').map(filled).collect::<Vec<_>>().join("/");
    paths.map(|(path, _)| fill(path)).collect()
}

#[test]
fn without_a_lease_no_route_answers_from_the_data() {
    let server = leased();
    let lists = [
        "/v1/tables",
        "/v1/changes",
        "/v1/tokens",
        "/v1/tenants",
        "/v1/audit/retention",
        "/v1/jobs",
        "/v1/archive",
        "/api/v2/buckets",
        "/query?q=SHOW%20DATABASES",
    ];
    for path in lists {
        server.get(path).expect(200);
    }
    expire(&server);
    let paths = paths();
    assert!(paths.len() > 60, "only {} routes", paths.len());
    let paths = paths.iter().map(String::as_str).chain(lists);
    for path in paths.filter(|path| !OF_PROCESS.contains(path)) {
        let refused = server.get(path);
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
        assert_eq!(refused.header("retry-after"), "1", "{path}");
    }
    let show = r#"{"statement": "SHOW TABLES"}"#;
    let refused = server.json("POST", "/v1/sql", show).expect(503);
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&Value::from("unavailable"), &Value::from(true)),
        "{refused}"
    );
    for path in [
        "/health",
        "/metrics",
        "/v1/backend",
        "/openapi.json",
        "/guide/index",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let ready = server.get("/ready").expect(503);
    assert_eq!(
        (&ready["role"], &ready["reads"]),
        (&Value::from("owner"), &Value::from(false))
    );
}

#[test]
fn a_request_during_which_the_lease_expires_is_not_answered() {
    let server = leased();
    let body = r#"{"statement": "SHOW TABLES"}"#;
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/sql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    assert_eq!(Response::read_one(&mut stream).status, 100, "the request runs");
    expire(&server);
    stream.write_all(body.as_bytes()).expect("sent");
    let refused = Response::read(&mut stream).expect(503);
    assert_eq!(refused["code"], "unavailable", "{refused}");
    let message = refused["message"].as_str().expect("a message");
    assert!(
        message.ends_with("it ended while the request was executed, so the outcome is unknown"),
        "{message}"
    );
}

#[test]
fn a_change_that_was_not_begun_without_a_lease_has_no_audit_record() {
    /// Short, because a lease is renewed each quarter of it, in real time.
    const SHORT_LEASE: Duration = Duration::from_secs(1);
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(SHORT_LEASE, 1 << 40);
    let server = Server::on(disk, settings());
    // A service whose lease ends during its start ends too.
    ask(&server, ROOT, "GET", "/v1/tables", "").expect(200);
    server.disk.fail_renewals(true);
    server.clock.advance(SHORT_LEASE.as_nanos() as i64);
    let refused = ask(&server, ROOT, "DELETE", "/v1/tables/refused", "").expect(503);
    let message = refused["message"].as_str().expect("a message");
    assert!(!message.contains("unknown"), "{message}");
    server.disk.fail_renewals(false);
    let renewed = until(ANSWER_TIMEOUT, || {
        let tables = ask(&server, ROOT, "GET", "/v1/tables", "");
        (tables.status == 200).then_some(())
    });
    renewed.expect("the lease is renewed");
    // The response is sent when this record and all earlier ones are written.
    ask(&server, ROOT, "POST", "/v1/tables", r#"{"name": "made"}"#).expect(201);
    let recorded = records(&server, "kind = 'change'");
    let paths: Vec<&Value> = recorded.iter().map(|record| &record["path"]).collect();
    assert_eq!(json!(paths), json!(["/v1/tables/made"]));
}
