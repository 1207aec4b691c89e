//! Running queries: listed, cancelled by id, stopped by closing the connection.
//!
//! The tests hold a query in progress with a client that does not read its response.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::Server;

const POINTS: &str = "/v1/tables/default/points?precision=s";

/// Starts a server with so many rows that the buffers cannot hold the response while its client does not read.
fn filled() -> Server {
    let server = Server::start();
    for batch in 0..10 {
        let mut lines = String::new();
        for at in 0..40_000 {
            let time = 1_700_000_000 + batch * 40_000 + at;
            writeln!(lines, "m,host=a v={at}.25,w={at}.75 {time}").expect("memory");
        }
        server.post(POINTS, "text/plain", lines).expect(200);
    }
    server
}

/// Queries all rows and reads only the status of the response.
fn fetch(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    let body = "{\"fields\":[\"v\",\"w\"]}";
    let head = format!(
        "POST /v1/tables/default/query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-request-id: long\r\n\
         content-length: {}\r\n\r\n{body}",
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
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    // The last chunk of a complete response is empty.
    assert!(
        ended.is_err() || !rest.ends_with(b"0\r\n\r\n"),
        "the response looks complete"
    );
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
