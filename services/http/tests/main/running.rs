//! Running queries: listed, cancelled by id, stopped by closing the connection or by revoking the token.
//!
//! The tests hold a query in progress with a client that does not read its response.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::access;
use crate::client::Server;

const POINTS: &str = "/v1/tables/default/points?precision=s";
/// Path and body of a query of all points.
const ALL_POINTS: (&str, &str) = ("/v1/tables/default/query", r#"{"fields":["v","w"]}"#);

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

/// Queries all rows and reads only the status of the response.
fn fetch(server: &Server) -> TcpStream {
    fetch_with(server, ALL_POINTS, "")
}

/// Sends a request with a JSON body and reads only the status of the response.
fn fetch_with(server: &Server, (path, body): (&str, &str), token: &str) -> TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: long\r\n\
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
    write_points(|lines| {
        let authorization = access::bearer(access::ROOT);
        let headers = [("authorization", &*authorization), ("content-type", "text/plain")];
        server
            .send("POST", POINTS, &headers, lines.as_bytes())
            .expect(200);
    });
    let wide = json!({"name": "wide", "model": "wide", "wide": {"key": [{"name": "id", "type": "i64"}]}});
    root("/v1/tables", &wide.to_string()).expect(201);
    let text = "x".repeat(60_000);
    for batch in 0..8 {
        let row = |at: i64| json!({"op": "put", "key": {"id": 50 * batch + at}, "columns": {"text": text}});
        let rows = json!({"rows": (0..50).map(row).collect::<Vec<_>>()});
        root("/v1/tables/wide/rows", &rows.to_string()).expect(200);
    }
    let created = access::create(&server, &json!({"name": "a", "roles": ["reader"]}));
    let token = created["token"].as_str().expect("a token");
    let scan = ("/v1/tables/wide/rows/scan", r#"{"allow_scan": true}"#);
    let mut streams = [ALL_POINTS, scan].map(|question| fetch_with(&server, question, token));
    let path = format!("/v1/tokens/{}", created["id"].as_str().expect("an id"));
    let revoked = access::ask(&server, access::ROOT, "DELETE", &path, "");
    assert_eq!(revoked.status, 204);
    streams.iter_mut().for_each(assert_incomplete);
}
