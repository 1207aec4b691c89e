//! Invalid and hostile input: a clear error that names the limit, and a service that keeps running.
//!
//! Covers sizes of bodies, nesting of JSON, slow clients, and the limit of connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_http::HttpSettings;

use crate::client::{Response, Server, gzip};

const POINTS: &str = "/v1/tables/default/points";
const SEARCH: &str = "/v1/tables/default/timelines/search";

#[test]
fn bodies_are_bounded_before_and_after_decompression() {
    let server = Server::with(HttpSettings {
        body_bytes_max: 1 << 20,
        decoded_body_bytes_max: 4 << 20,
        ..HttpSettings::default()
    });
    let large = vec![b'x'; (1 << 20) + 1];
    let error = server.post(POINTS, "text/plain", &large).expect(413);
    assert_eq!(error["code"], "body_too_large");
    assert_eq!(
        (&error["limit"], &error["actual"]),
        (&json!(1 << 20), &json!((1 << 20) + 1))
    );
    let bomb = gzip(&vec![0; 64 << 20]);
    for (path, member) in [(POINTS, "code"), ("/write", "error"), ("/api/v2/write", "code")] {
        let response = server.send(
            "POST",
            path,
            &[("content-encoding", "gzip"), ("content-type", "text/plain")],
            &bomb,
        );
        assert!(response.expect(413)[member].is_string(), "{path}");
    }
    let text: String = (0..400_000u32)
        .map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761)))
        .collect();
    let error = server
        .send(
            "POST",
            POINTS,
            &[("content-encoding", "gzip")],
            &gzip(&text.as_bytes()[..1_000_000]),
        )
        .value();
    assert_ne!(
        error["code"], "body_too_large",
        "1 MB of digits is below every limit: {error}"
    );
    let cut = &gzip(b"m f=1\n")[..12];
    assert_eq!(
        server
            .send("POST", POINTS, &[("content-encoding", "gzip")], cut)
            .expect(400)["code"],
        "invalid"
    );
    assert_eq!(
        server
            .send("POST", POINTS, &[("content-encoding", "br")], b"m f=1")
            .status,
        415
    );
    assert_eq!(
        server
            .send("POST", POINTS, &[("content-encoding", "gzip, gzip")], b"m f=1")
            .status,
        415
    );
    server.post(POINTS, "text/plain", "m f=1").expect(200);
}

#[test]
fn a_chunked_body_over_the_limit_is_refused_too() {
    let server = Server::with(HttpSettings {
        body_bytes_max: 1 << 10,
        ..HttpSettings::default()
    });
    let mut stream = server.connect();
    let head = format!(
        "POST {POINTS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    for _ in 0..8 {
        stream
            .write_all(format!("200\r\n{}\r\n", "x".repeat(512)).as_bytes())
            .expect("sent");
    }
    stream.write_all(b"0\r\n\r\n").expect("sent");
    assert_eq!(Response::read(&mut stream).expect(413)["limit"], 1 << 10);
}

#[test]
fn bodies_of_all_requests_share_a_budget() {
    let server = Server::with(HttpSettings {
        bodies_in_flight_bytes_max: 64 << 10,
        ..HttpSettings::default()
    });
    let error = server.post(POINTS, "text/plain", vec![b'#'; 100_000]).expect(503);
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("overloaded"), &json!(true))
    );
    for _ in 0..5 {
        server.post(POINTS, "text/plain", vec![b'#'; 60_000]).expect(200);
    }
}

#[test]
fn deep_and_odd_json_is_refused() {
    let server = Server::start();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let response = server.post(POINTS, "application/json", &deep);
    assert!((400..500).contains(&response.status), "{}", response.text());
    let deep = format!(
        "{{\"where\":{}{{\"and\":[]}}{}}}",
        "{\"not\":".repeat(50_000),
        "}".repeat(50_000)
    );
    server.json("POST", SEARCH, &deep).expect(400);
    for bad in [
        "",
        "null",
        r#"{"where": {}}"#,
        r#"{"were": {"and": []}}"#,
        r#"{"where": {"tag": "a", "regex": "("}}"#,
        r#"{"where": {"property": "id", "equals": "xyz"}}"#,
        r#"{"where": {"property": "last_seen", "equals": "now"}}"#,
        r#"{"limit": 0}"#,
        r#"{"limit": 100000000}"#,
        r#"{"page": "damaged"}"#,
        r#"{"sort": [{"order": "ascending"}]}"#,
    ] {
        let error = server.json("POST", SEARCH, bad).expect(400);
        assert!(
            error["message"].as_str().is_some_and(|text| !text.is_empty()),
            "{bad}"
        );
    }
    let large = format!("{{\"page\": \"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(server.json("POST", SEARCH, &large).expect(413)["limit"], 1 << 20);
}

#[test]
fn slow_heads_and_bodies_are_cut_off() {
    let server = Server::with(HttpSettings {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..HttpSettings::default()
    });
    let started = Instant::now();
    let mut slow_head = server.connect();
    slow_head.write_all(b"GET /health HTTP/1.1\r\nhos").expect("sent");
    let mut idle = server.connect();
    let health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    idle.write_all(health).expect("sent");
    let mut silent = server.connect();
    let mut slow_body = server.connect();
    let head = "POST /v1/tables/default/points HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 10\r\n\r\nm f";
    slow_body.write_all(head.as_bytes()).expect("sent");
    assert_eq!(
        Response::read(&mut slow_body).expect(408)["code"],
        "body_too_slow"
    );
    let mut left = Vec::new();
    assert!(
        matches!(slow_head.read_to_end(&mut left), Ok(0) | Err(_)),
        "closed without a response"
    );
    assert!(
        matches!(silent.read_to_end(&mut left), Ok(0) | Err(_)),
        "a connection that sends nothing is closed in the same time"
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .expect("a connection that is idle between requests stays");
    let mut answers = String::new();
    idle.read_to_string(&mut answers).expect("two answers");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
}

#[test]
fn at_the_limit_the_connection_idle_longest_makes_room() {
    let server = Server::with(HttpSettings {
        connections_max: 3,
        ..HttpSettings::default()
    });
    let fetch = |stream: &mut TcpStream| {
        let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).expect("sent");
        assert_eq!(Response::read_one(stream).status, 200);
    };
    let mut silent = server.connect();
    let mut first = server.connect();
    fetch(&mut first);
    let mut second = server.connect();
    fetch(&mut second);
    let mut third = server.connect();
    fetch(&mut third);
    let mut left = Vec::new();
    assert!(
        matches!(silent.read_to_end(&mut left), Ok(0) | Err(_)),
        "the oldest silent connection was closed"
    );
    fetch(&mut first);
}

/// Starts a write whose body, `m f=1` and a newline, is not sent yet.
fn begin_write(server: &Server) -> TcpStream {
    let mut busy = server.connect();
    let head = "POST /v1/tables/default/points HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 6\r\n\r\n";
    busy.write_all(head.as_bytes()).expect("sent");
    assert_eq!(Response::read_one(&mut busy).status, 100, "the request runs");
    busy
}

/// Waits until `open` connections are counted, including the one that reads the metric. The server counts a closed
/// connection until its own side has ended, which may be after the client has read the response.
fn await_connections(server: &Server, open: usize) {
    let started = Instant::now();
    let expected = format!("tideline_http_connections {open}\n");
    while !server.get("/metrics").text().contains(&expected) {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "the count is never {open}"
        );
    }
}

#[test]
fn beyond_the_limit_of_busy_connections_only_health_is_served() {
    let server = Server::with(HttpSettings {
        connections_max: 1,
        ..HttpSettings::default()
    });
    let mut busy = begin_write(&server);
    assert_eq!(server.get("/health").status, 200);
    await_connections(&server, 2);
    let refused = server.get("/v1/tables").expect(503);
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&"overloaded".into(), &true.into())
    );
    busy.write_all(b"m f=1\n").expect("sent");
    assert_eq!(Response::read_one(&mut busy).status, 200);
}

#[test]
fn an_idle_health_check_makes_no_one_wait_for_a_busy_connection() {
    let server = Server::with(HttpSettings {
        connections_max: 1,
        ..HttpSettings::default()
    });
    let mut busy = begin_write(&server);
    // There are more health checks than reserved connections, so idle connections must be closed for new ones.
    let mut checks = Vec::new();
    for _ in 0..20 {
        let mut check = server.connect();
        let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        check.write_all(request).expect("sent");
        assert_eq!(Response::read_one(&mut check).status, 200);
        checks.push(check);
    }
    assert_eq!(server.get("/v1/tables").expect(503)["code"], "overloaded");
    busy.write_all(b"m f=1\n").expect("sent");
    assert_eq!(
        Response::read_one(&mut busy).status,
        200,
        "the busy connection stays open"
    );
}

#[test]
fn an_idle_connection_is_closed_in_its_own_time() {
    let server = Server::with(HttpSettings {
        header_timeout: Duration::from_millis(50),
        idle_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    });
    let mut stream = server.connect();
    let started = Instant::now();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .expect("sent");
    let mut response = Vec::new();
    stream
        .read_to_end(&mut response)
        .expect("closed in order or by time");
    assert!(response.starts_with(b"HTTP/1.1 200"));
    assert!(
        started.elapsed() >= Duration::from_millis(250),
        "the header timeout does not run while idle"
    );
}

#[test]
fn a_client_that_reads_no_response_is_cut_off() {
    let server = Server::with(HttpSettings {
        answer_timeout: Duration::from_millis(200),
        ..HttpSettings::default()
    });
    let mut stream = server.connect();
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    // The responses are far larger than the buffers of both sides. The last requests may not even be accepted.
    for _ in 0..300 {
        if stream
            .write_all(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .is_err()
        {
            break;
        }
    }
    // The first byte of a response shows that the connection is open. The count of connections is 1 before that, too.
    let mut received = vec![0];
    stream.read_exact(&mut received).expect("a response");
    await_connections(&server, 1);
    let _ = stream.read_to_end(&mut received);
    assert!(received.len() < 300 * 100_000, "{} bytes came", received.len());
}
