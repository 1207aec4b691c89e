//! The service as a whole: tokens, request ids, metrics, unknown routes, shutdown.
//!
//! Also covers compression of responses, pages of other sites and foreign hosts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use tideline_http::{HttpSettings, Secret};

use crate::client::{Response, Server};

const POINTS: &str = "/v1/tables/default/points";
const TOKEN: &str = "a-token-of-some-length";

fn guarded() -> Server {
    Server::with(HttpSettings {
        token: Some(Secret::new(TOKEN).expect("long enough")),
        ..HttpSettings::default()
    })
}

#[test]
fn a_token_is_required_everywhere_but_at_the_door() {
    let server = guarded();
    let pages = ["/", "/docs/", "/openapi.json", "/guide", "/guide/index"];
    for open in ["/health", "/ready", "/ping"].iter().chain(&pages) {
        assert!(server.get(open).status < 400, "{open}");
    }
    let without_pages = Server::with(HttpSettings {
        token: Some(Secret::new(TOKEN).expect("long enough")),
        are_pages_open: false,
        ..HttpSettings::default()
    });
    for page in pages {
        assert_eq!(without_pages.get(page).status, 401, "{page}");
    }
    for closed in [
        "/v1/tables",
        "/metrics",
        "/guide/index/x",
        "/query?q=show%20databases",
        "/nowhere",
    ] {
        let response = server.get(closed);
        assert_eq!(response.status, 401, "{closed}");
        assert!(response.header("www-authenticate").contains("Bearer"), "{closed}");
    }
    assert_eq!(server.get("/v1/tables").value()["code"], "unauthenticated");
    assert!(server.post("/write", "", "m f=1").expect(401)["error"].is_string());
    assert_eq!(
        server.post("/api/v2/write", "", "m f=1").expect(401)["code"],
        "unauthorized"
    );
}

#[test]
fn a_token_is_taken_as_each_client_carries_it() {
    let server = guarded();
    let status = |value: &str| {
        server
            .send("GET", "/v1/tables", &[("authorization", value)], b"")
            .status
    };
    // The credentials are `user:a-token-of-some-length`.
    let basic = "Basic dXNlcjphLXRva2VuLW9mLXNvbWUtbGVuZ3Ro";
    for right in [
        &format!("Bearer {TOKEN}"),
        &format!("Token {TOKEN}"),
        &format!("Token user:{TOKEN}"),
        basic,
    ] {
        assert_eq!(status(right), 200, "{right}");
    }
    for wrong in [
        "Bearer",
        "Bearer a-token-of-some-lengtH",
        "Basic !!!",
        "Bearer ",
        "Digest x",
    ] {
        assert_eq!(status(wrong), 401, "{wrong}");
    }
    assert_eq!(
        server
            .post(&format!("/write?u=any&p={TOKEN}"), "", "m f=1")
            .status,
        204
    );
    assert_eq!(server.post("/write?u=any&p=wrong", "", "m f=1").status, 401);
    assert_eq!(
        server.get(&format!("/v1/tables?p={TOKEN}")).status,
        401,
        "only InfluxDB 1 routes accept the parameter"
    );
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let server = Server::start();
    let host = "localhost";
    let create = |origin: &str, name: &str| {
        let body = format!("{{\"name\":\"{name}\"}}");
        let headers = [("origin", origin), ("content-type", "text/plain")];
        let as_json = [("origin", origin), ("content-type", "application/json")];
        assert_ne!(
            server
                .send("POST", "/v1/tables", &headers, body.as_bytes())
                .status,
            201
        );
        server.send("POST", "/v1/tables", &as_json, body.as_bytes())
    };
    assert_eq!(
        create("https://elsewhere.example", "a").expect(403)["code"],
        "forbidden"
    );
    assert_eq!(create("null", "b").status, 403);
    assert_eq!(
        create(&format!("http://{host}"), "c").status,
        201,
        "pages of this server are allowed"
    );
    let read = server.send(
        "GET",
        "/v1/tables",
        &[("origin", "https://elsewhere.example")],
        b"",
    );
    assert_eq!(
        (read.status, read.header("access-control-allow-origin")),
        (200, "")
    );
}

#[test]
fn every_response_names_its_request() {
    let server = Server::start();
    let sent = server.send("GET", "/v1/nothing", &[("x-request-id", "my-id:7")], b"");
    assert_eq!(sent.header("x-request-id"), "my-id:7");
    assert_eq!(sent.expect(404)["request_id"], "my-id:7");
    let odd = server.send("GET", "/v1/tables", &[("x-request-id", "<script>")], b"");
    let made = odd.header("x-request-id").to_owned();
    assert!(!made.is_empty() && !made.contains('<'));
    assert_eq!(odd.expect(200)["request_id"], made.as_str());
    assert_ne!(server.get("/v1/tables").header("x-request-id"), made);
    assert_eq!(
        server.send("PUT", "/v1/tables", &[], b"").expect(405)["code"],
        "method_not_allowed"
    );
}

#[test]
fn metrics_count_what_happened() {
    let server = Server::start();
    server
        .post(POINTS, "text/plain", "m,host=a f=1,g=2\nbad\n")
        .expect(200);
    server.get("/v1/nothing");
    let metrics = server.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    let text = metrics.text();
    for line in [
        "tideline_http_requests_total{method=\"POST\",route=\"/v1/tables/{table}/points\",status=\"200\"} 1",
        "tideline_http_requests_total{method=\"GET\",route=\"unmatched\",status=\"404\"} 1",
        "tideline_ingest_points_total{protocol=\"line_protocol\"} 1",
        "tideline_ingest_values_total{protocol=\"line_protocol\"} 2",
        "tideline_ingest_rejects_total{protocol=\"line_protocol\"} 1",
        "tideline_write_duration_seconds_count 1",
        "tideline_timelines 1",
        "tideline_head_points 1",
        "tideline_ready_writes 1",
    ] {
        assert!(
            text.lines().any(|have| have.starts_with(line)),
            "{line} is missing from\n{text}"
        );
    }
    let open = server.send(
        "GET",
        "/metrics",
        &[("accept", "application/openmetrics-text;version=1.0.0")],
        b"",
    );
    assert!(
        open.header("content-type")
            .starts_with("application/openmetrics-text")
    );
}

#[test]
fn a_refused_or_missing_file_is_reported_until_it_is_valid_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hashes.json");
    let write = |text: &str| {
        let staged = folder.path().join("staged");
        std::fs::write(&staged, text).expect("a file");
        std::fs::set_permissions(&staged, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        std::fs::rename(&staged, &path).expect("renamed");
    };
    write(r#"{"tokens": []}"#);
    let server = Server::with(HttpSettings {
        token: Some(Secret::new(TOKEN).expect("long enough")),
        hashes_file: Some(path.clone()),
        ..HttpSettings::default()
    });
    let bearer = format!("Bearer {TOKEN}");
    let reports = || {
        let metrics = server.send("GET", "/metrics", &[("authorization", bearer.as_str())], b"");
        let metrics = metrics.text();
        // No token is needed, and the reason has no path.
        let ready = server.get("/ready").expect(200);
        let reasons = ready["reasons"].to_string();
        assert!(!reasons.contains("hashes.json"), "{reasons}");
        (
            metrics.contains("tideline_file_refused{file=\"hashes\"} 1"),
            reasons.contains("auth.hashes_file: the newest version"),
        )
    };
    let wait_for = |expected: bool| {
        let begun = Instant::now();
        while reports() != (expected, expected) {
            assert!(begun.elapsed() < crate::client::ANSWER_TIMEOUT, "{expected}");
            std::thread::yield_now();
        }
    };
    assert_eq!(reports(), (false, false));
    write("{");
    wait_for(true);
    write(r#"{"tokens": []}"#);
    wait_for(false);
    std::fs::remove_file(&path).expect("removed");
    wait_for(true);
    write(r#"{"tokens": []}"#);
    wait_for(false);
}

#[test]
fn responses_are_compressed_on_request() {
    let server = Server::start();
    let plain = server.get("/openapi.json");
    let packed = server.send("GET", "/openapi.json", &[("accept-encoding", "gzip")], b"");
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(packed.body.as_slice())
        .read_to_end(&mut text)
        .expect("gzip");
    assert_eq!(text, plain.body);
}

#[test]
fn a_stopping_service_finishes_what_runs_and_takes_nothing_new() {
    let mut server = Server::start();
    let mut idle = server.connect();
    let mut running = server.connect();
    let head = "POST /v1/tables/default/points HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\n\r\nm f";
    running.write_all(head.as_bytes()).expect("sent");
    // The metric counts the running write and the request for the metrics.
    while !server
        .get("/metrics")
        .text()
        .contains("tideline_http_requests_running 2")
    {}
    server.request_stop();
    let mut left = Vec::new();
    assert!(
        matches!(idle.read_to_end(&mut left), Ok(0) | Err(_)),
        "an idle connection closes at once"
    );
    running.write_all(b"=1\n").expect("sent");
    let response = Response::read(&mut running);
    assert_eq!(response.expect(200)["points"], 1);
    server.wait_stopped();
    assert!(TcpStream::connect(server.address).is_err(), "the port is closed");
}

#[test]
fn a_request_that_never_ends_does_not_hold_up_the_end() {
    let mut server = Server::with(HttpSettings {
        drain_timeout: Duration::from_millis(200),
        ..HttpSettings::default()
    });
    let mut running = server.connect();
    let head = "POST /v1/tables/default/points HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\n\r\nm f";
    running.write_all(head.as_bytes()).expect("sent");
    while !server
        .get("/metrics")
        .text()
        .contains("tideline_http_requests_running 2")
    {}
    let started = Instant::now();
    server.wait_stopped();
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Returns the status of `GET path` with these header lines.
fn status_with(server: &Server, path: &str, headers: &str) -> u16 {
    let mut stream = server.connect();
    let request = format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    Response::read(&mut stream).status
}

#[test]
fn a_foreign_host_is_refused_where_no_token_is_needed() {
    let server = Server::start();
    for (headers, status) in [
        ("host: localhost:8490\r\n", 200),
        ("host: 127.0.0.1\r\n", 200),
        ("host: [::1]:8490\r\n", 200),
        ("host: evil.example\r\n", 403),
        ("host: 127.0.0.1.evil.example:8490\r\n", 403),
        ("", 400),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("host: a b\r\n", 400),
    ] {
        assert_eq!(status_with(&server, "/v1/tables", headers), status, "{headers:?}");
    }
    assert_eq!(status_with(&server, "/health", "host: 192.0.2.1\r\n"), 200);
    let listed = Server::with(HttpSettings {
        hosts: vec!["db.example".to_owned()],
        ..HttpSettings::default()
    });
    assert_eq!(
        status_with(&listed, "/v1/tables", "host: DB.example.:80\r\n"),
        200
    );
    assert_eq!(status_with(&listed, "/v1/tables", "host: evil.example\r\n"), 403);
    let guarded = guarded();
    // The host is allowed, but the token is missing.
    assert_eq!(status_with(&guarded, "/v1/tables", "host: evil.example\r\n"), 401);
    assert_eq!(status_with(&guarded, "/v1/tables", ""), 400);
}

#[test]
fn only_large_responses_are_compressed() {
    let server = Server::start();
    let lines: String = (0..2_000).map(|n| format!("m,host=h{n} f={n}\n")).collect();
    assert_eq!(
        server
            .post("/v1/tables/default/points", "text/plain", &lines)
            .status,
        200
    );
    let gzip = [("accept-encoding", "gzip"), ("content-type", "application/json")];
    let query = |limit: usize| {
        let body = format!(r#"{{"fields": ["f"], "limit": {limit}}}"#);
        server.send("POST", "/v1/tables/default/query", &gzip, body.as_bytes())
    };
    let small = query(2);
    assert_eq!((small.status, small.header("content-encoding")), (200, ""));
    assert_eq!(
        small.header("content-length"),
        small.body.len().to_string(),
        "{}",
        small.text()
    );
    let large = query(2_000);
    assert_eq!((large.status, large.header("content-encoding")), (200, "gzip"));
    assert!(small.header("vary").is_empty() || small.header("vary").contains("accept-encoding"));
}
