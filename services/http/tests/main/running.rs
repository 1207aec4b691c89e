//! Running queries: listed, cancelled by id, stopped by closing the connection or by the end of the token or its secret.
//!
//! The tests hold a query in progress with a client that does not read its response.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_http::HttpSettings;

use crate::access;
use crate::client::{ANSWER_TIMEOUT, Response, Server};

const POINTS: &str = "/v1/tables/default/points?precision=s";
/// Method, path and body of a query of all points.
const ALL_POINTS: (&str, &str, &str) = ("POST", "/v1/tables/default/query", r#"{"fields":["v","w"]}"#);

/// Starts a server with so many rows that the buffers cannot hold the response while its client does not read.
fn filled() -> Server {
    let server = Server::start();
    write_points(|lines| drop(server.post(POINTS, "text/plain", lines).expect(200)));
    server
}

/// Calls `write` with lines of so many points that the buffers cannot hold them.
fn write_points(write: impl Fn(String)) {
    for batch in 0..10 {
        let mut lines = String::new();
        for at in 0..40_000 {
            let time = 1_700_000_000 + batch * 40_000 + at;
            writeln!(lines, "m,host=a v={at}.25,w={at}.75 {time}").expect("memory");
        }
        write(lines);
    }
}

/// Writes the points to a server that requires tokens.
fn write_as_root(server: &Server) {
    write_points(|lines| {
        let authorization = access::bearer(access::ROOT);
        let headers = [("authorization", &*authorization), ("content-type", "text/plain")];
        server
            .send("POST", POINTS, &headers, lines.as_bytes())
            .expect(200);
    });
}

/// Queries all rows and reads only the status of the response.
fn fetch(server: &Server) -> TcpStream {
    fetch_with(server, ALL_POINTS, "")
}

/// Sends a request with a JSON body and reads only the status of the response.
fn fetch_with(server: &Server, (method, path, body): (&str, &str, &str), token: &str) -> TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: long\r\n\
         authorization: {}\r\ncontent-length: {}\r\n\r\n{body}",
        access::bearer(token),
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).expect("an answer begins");
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    stream
}

fn running(server: &Server) -> Vec<Value> {
    let list = server.get("/v1/queries").expect(200);
    list["queries"].as_array().expect("a list").clone()
}

fn wait_for_none(server: &Server) {
    let begun = Instant::now();
    while !running(server).is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "a query is still running"
        );
        std::thread::yield_now();
    }
}

fn assert_incomplete(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    // The last chunk of a complete response is empty, and the connection stays open.
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the response looks complete");
    let is_open =
        ended.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_open, "the connection stays open");
}

#[test]
fn a_query_is_listed_and_cancelled_by_its_id() {
    let server = filled();
    assert!(running(&server).is_empty());
    let mut stream = fetch(&server);
    let queries = running(&server);
    assert_eq!(queries.len(), 1, "{queries:?}");
    let query = &queries[0];
    assert_eq!(
        (&query["table"], &query["resource"]),
        (&"default".into(), &"query".into())
    );
    assert_eq!(
        (&query["request_id"], &query["timelines"]),
        (&"long".into(), &1.into())
    );
    assert!(
        query["question"]
            .as_str()
            .is_some_and(|text| text.contains("\"w\""))
    );
    assert!(query["points"].as_u64().is_some_and(|points| points > 0));
    let path = format!("/v1/queries/{}", query["id"]);
    assert_eq!(
        server.send("DELETE", &path, &[], b"").expect(200)["cancelled"],
        true
    );
    assert_incomplete(&mut stream);
    wait_for_none(&server);
    assert_eq!(
        server.send("DELETE", &path, &[], b"").expect(200)["cancelled"],
        false
    );
}

#[test]
fn a_query_ends_when_its_client_leaves() {
    let server = filled();
    let stream = fetch(&server);
    assert_eq!(running(&server).len(), 1);
    drop(stream);
    wait_for_none(&server);
}

#[test]
fn running_queries_of_a_revoked_token_end() {
    let server = access::start();
    let root = |path: &str, body: &str| access::ask(&server, access::ROOT, "POST", path, body);
    write_as_root(&server);
    let wide = json!({"name": "wide", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}]}});
    root("/v1/tables", &wide.to_string()).expect(201);
    let text = "x".repeat(60_000);
    for batch in 0..8 {
        let row = |at: i64| json!({"op": "put", "key": {"id": 50 * batch + at}, "columns": {"text": text}});
        let rows = json!({"rows": (0..50).map(row).collect::<Vec<_>>()});
        root("/v1/tables/wide/rows", &rows.to_string()).expect(200);
    }
    let large = "/v1/tables/wide/blobs/large?key=%7B%22id%22%3A1%7D";
    access::ask(&server, access::ROOT, "PUT", large, &"x".repeat(32 << 20)).expect(200);
    let created = access::create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let token = created["token"].as_str().expect("a token");
    let scan = ("POST", "/v1/tables/wide/rows/scan", r#"{"allow_scan": true}"#);
    let value = ("GET", large, "");
    let mut streams = [ALL_POINTS, scan, value].map(|question| fetch_with(&server, question, token));
    let path = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
    let revoked = access::ask(&server, access::ROOT, "DELETE", &path, "");
    assert_eq!(revoked.status, 204);
    streams.iter_mut().for_each(assert_incomplete);
}

#[test]
fn a_running_query_ends_with_the_overlap_of_its_secret() {
    let server = access::start();
    let root = |method: &str, path: &str, body: &str| access::ask(&server, access::ROOT, method, path, body);
    write_as_root(&server);
    let created = access::create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let token = created["token"].as_str().expect("a token");
    let mut stream = fetch_with(&server, ALL_POINTS, token);
    let path = format!("/v1/tokens/{}/rotate", created["id"].as_str().expect("an id"));
    root("POST", &path, r#"{"overlap": "1h"}"#).expect(200);
    server.clock.advance(3_600_000_000_000);
    // The server ends the work of replaced secrets every second. The query itself cannot be awaited, because it waits
    // for its client.
    root("GET", "/v1/tables/default/watch?for=5s", "");
    assert_incomplete(&mut stream);
}

#[test]
fn a_write_whose_token_is_revoked_while_it_waits_is_refused() {
    let server = Server::with(HttpSettings {
        writes_in_flight_max: 1,
        turn_timeout: ANSWER_TIMEOUT,
        ..access::settings()
    });
    let root = |method: &str, path: &str, body: &str| access::ask(&server, access::ROOT, method, path, body);
    let wide = json!({"name": "wide", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}]}});
    root("POST", "/v1/tables", &wide.to_string()).expect(201);
    let created = access::create(&server, &json!({"name": "a", "roles": ["writer"]}));
    let token = created["token"].as_str().expect("a token");
    // Sends a write as soon as the server has accepted its token.
    let write = |token: &str, content_type: &str, body: &str| {
        let mut stream = server.connect();
        let head = format!(
            "POST /v1/tables/wide/rows HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: {}\r\n\
             content-type: {content_type}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            access::bearer(token),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        assert_eq!(Response::read_one(&mut stream).status, 100);
        stream.write_all(body.as_bytes()).expect("sent");
        stream
    };
    // Each thousand lines are one commit, so the write holds the only permit for many round trips.
    let mut lines = String::new();
    for id in 0..40_000 {
        writeln!(lines, r#"{{"op":"put","key":{{"id":{id}}}}}"#).expect("memory");
    }
    server.disk.delay_round_trips(Duration::from_millis(200));
    let mut slow = write(access::ROOT, "application/x-ndjson", &lines);
    let begun = Instant::now();
    while !root("GET", "/metrics", "")
        .text()
        .contains("\ntideline_writes_running 1")
    {
        assert!(begun.elapsed() < ANSWER_TIMEOUT, "the write has not begun");
    }
    let row = r#"{"rows": [{"op": "put", "key": {"id": -1}}]}"#;
    let mut waiting = write(token, "application/json", row);
    let path = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
    assert_eq!(root("DELETE", &path, "").status, 204);
    server.disk.delay_round_trips(Duration::ZERO);
    assert_eq!(Response::read(&mut slow).status, 200);
    let refused = Response::read(&mut waiting).expect(401);
    assert_eq!(refused["code"], "unauthenticated", "{refused}");
    let found = root("POST", "/v1/tables/wide/rows/get", r#"{"keys": [{"id": -1}]}"#).expect(200);
    assert_eq!(found["rows"], json!([null]), "{found}");
}
