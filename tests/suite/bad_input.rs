//! Bad and hostile requests: each is refused with a reason or disconnected, memory grows by a limited amount,
//! and the service continues to respond.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_tests::compress::{Packing, bomb, gzip, snappy};
use tideline_tests::raw::RawConnection;
use tideline_tests::server::{DataFolder, Server};
use tideline_tests::{Client, Launch, wait};
use tideline_wire::protobuf::PutFields;
use tideline_wire::varint;

/// Maximum growth of peak resident memory during one test of this file, in bytes.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Timeout of slow clients; longer than the time limits of the service.
const SLOW_PATIENCE: Duration = Duration::from_secs(25);

/// Warmed-up server, and its peak memory after the warm-up.
struct Victim {
    server: Server,
    client: Client,
    before: u64,
    _folder: DataFolder,
}

impl Victim {
    fn start() -> Self {
        let folder = DataFolder::new();
        let server = folder.start(&Launch::default());
        let client = server.client();
        let lines: Vec<String> = (0..5_000)
            .map(|n| {
                format!(
                    "cpu,host=h{} usage={n} {}",
                    n % 50,
                    1_700_000_000_000_000_000_i64 + n * 1_000_000_000
                )
            })
            .collect();
        client.post_lines("/write", &lines.join("\n")).expect_status(204);
        client.get("/openapi.json").expect_status(200);
        client
            .post_json(
                "/v1/tables/default/timelines/search",
                &json!({"where": {"tag": "host", "prefix": "h"}}),
            )
            .expect_status(200);
        let before = server.resident_bytes_peak();
        Self {
            server,
            client,
            before,
            _folder: folder,
        }
    }

    /// Asserts that the service is ready, that a write succeeds, and that peak memory has grown by at most
    /// [`GROWTH_BYTES_MAX`].
    #[track_caller]
    fn is_well(&self, after: &str) {
        self.client.get("/ready").expect_status(200);
        self.client
            .post_lines("/write", "well,host=a v=1 1700000000000000000")
            .expect_status(204);
        let grown = self.server.resident_bytes_peak().saturating_sub(self.before);
        println!("{after}: peak memory grew by {} KiB", grown >> 10);
        assert!(
            grown <= GROWTH_BYTES_MAX,
            "{after}: peak memory grew by {grown} bytes"
        );
    }
}

/// Asserts that a response is an error in our format that is not retryable: one of these statuses, with code,
/// message and request id. If `has_limit`, the error must also contain the limit and a larger actual value.
#[track_caller]
fn refused(answer: &tideline_tests::Response, statuses: &[u16], has_limit: bool) {
    assert!(
        statuses.contains(&answer.status),
        "expected one of {statuses:?}: {answer:?}"
    );
    let body = answer.json();
    for member in ["code", "message", "request_id"] {
        let text = body[member].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "no {member}: {answer:?}");
    }
    assert_eq!(body["retryable"], false, "{answer:?}");
    if has_limit {
        let (limit, actual) = (body["limit"].as_u64(), body["actual"].as_u64());
        assert!(
            limit.is_some() && actual > limit,
            "the limit is missing or not exceeded: {answer:?}"
        );
    }
}

#[test]
fn points_that_cannot_be_right() {
    let victim = Victim::start();
    let huge_tag = format!("cpu,host={} v=1", "x".repeat(1 << 20));
    let many_tags = format!(
        "cpu{} v=1",
        (0..10_000).map(|n| format!(",t{n}=v")).collect::<String>()
    );
    let bad = [
        "cpu v=9223372036854775808i",
        "cpu v=18446744073709551616u",
        "cpu v=1e400",
        "cpu v=NaN",
        "cpu,host= v=1",
        "cpu,=a v=1",
        ",host=a v=1",
        "cpu",
        "cpu,host=a,host=b v=1",
        "cpu v=1 9223372036854775808",
        "cpu v=1 1.5",
        "cpu v=\"open",
        "cpu,host=a\0b v=1",
        &huge_tag,
        &many_tags,
    ];
    for line in bad {
        let answer = victim.client.post_lines("/v1/tables/default/points", line);
        refused(&answer, &[400, 422], false);
        let reject = &answer.json()["rejects"][0];
        assert_eq!(reject["line"], 1, "{answer:?}");
        assert!(
            !reject["reason"].as_str().unwrap_or_default().is_empty(),
            "{answer:?}"
        );
        assert!(
            answer.body.len() < 4_000,
            "a refusal does not send the body back: {} bytes",
            answer.body.len()
        );
        let influx = victim.client.post_lines("/write", line).expect_status(400);
        assert!(
            influx.json()["error"].is_string() && influx.body.len() < 4_000,
            "{influx:?}"
        );
    }
    let invalid = victim
        .client
        .send(
            "POST",
            "/v1/tables/default/points",
            &[("content-type", "text/plain")],
            b"cpu,host=\xff\xfe v=1",
        )
        .expect("a response");
    refused(&invalid, &[400, 422], false);
    victim.is_well("bad points");
}

#[test]
fn json_that_cannot_be_right() {
    let victim = Victim::start();
    let deep = "[".repeat(100_000);
    let deep_object = "{\"and\":[".repeat(100_000);
    let wide: Vec<Value> = (0..10_000)
        .map(|n| json!({"tag": "host", "equals": format!("h{n}")}))
        .collect();
    let post = |path: &str, body: &str| {
        let headers = [("content-type", "application/json")];
        victim
            .client
            .send("POST", path, &headers, body.as_bytes())
            .expect("a response")
    };
    let points = "/v1/tables/default/points";
    let search = "/v1/tables/default/timelines/search";
    let query = "/v1/tables/default/query";
    refused(&post(points, &deep), &[400], false);
    refused(&post(points, &format!("{{\"points\":{deep}")), &[400], false);
    let closed = format!(
        "[{{\"measurement\":\"m\",\"fields\":{{\"f\":{}{}}}}}]",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    refused(&post(points, &closed), &[400, 422], false);
    for path in [search, query] {
        refused(&post(path, &deep), &[400], false);
        refused(&post(path, &format!("{{\"where\":{deep_object}")), &[400], false);
        refused(&post(path, "{\"where\":{},\"bogus\":1}"), &[400], false);
        refused(&post(path, "nonsense"), &[400], false);
        refused(&post(path, ""), &[400], false);
    }
    let wide = post(search, &json!({"where": {"or": wide}}).to_string());
    match wide.status {
        200 => {}
        _ => refused(&wide, &[400], true),
    }
    let doubled = "[{\"measurement\":\"m\",\"measurement\":\"n\",\"fields\":{\"f\":1}}]";
    refused(&post(points, doubled), &[400, 422], false);
    for value in [
        "1e999",
        "123456789012345678901234567890",
        "null",
        "[1]",
        "{\"float\":\"x\"}",
    ] {
        let body = format!("[{{\"measurement\":\"m\",\"fields\":{{\"f\":{value}}}}}]");
        refused(&post(points, &body), &[400, 422], false);
    }
    for regex in ["(", "a{1000}{1000}{1000}", "(?P<x>"] {
        let body = json!({"where": {"tag": "host", "regex": regex}}).to_string();
        refused(&post(search, &body), &[400], false);
    }
    let slow = json!({"where": {"tag": "host", "regex": "(h*)*(h|hh)*x"}}).to_string();
    let asked = Instant::now();
    post(search, &slow).expect_status(200);
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "a slow regular expression: {:?}",
        asked.elapsed()
    );
    victim.is_well("bad JSON");
}

#[test]
fn bodies_that_grow_are_not_unpacked() {
    let victim = Victim::start();
    let gib = 1 << 30;
    for (packing, encoding) in [(Packing::Gzip, "gzip"), (Packing::Zstd, "zstd")] {
        let body = bomb(packing, gib);
        println!("{encoding}: {} bytes unpack to {gib}", body.len());
        let plain = [("content-type", "text/plain"), ("content-encoding", encoding)];
        let native = victim
            .client
            .send("POST", "/v1/tables/default/points", &plain, &body)
            .expect("a response");
        refused(&native, &[413], true);
        for path in ["/write", "/api/v2/write?bucket=default"] {
            let influx = victim
                .client
                .send("POST", path, &plain, &body)
                .expect("a response");
            assert_eq!(influx.status, 413, "{influx:?}");
        }
        let json = [
            ("content-type", "application/json"),
            ("content-encoding", encoding),
        ];
        let search = victim
            .client
            .send("POST", "/v1/tables/default/timelines/search", &json, &body)
            .expect("a response");
        refused(&search, &[413], true);
    }
    let lines = gzip(b"cpu,host=a usage=1 1700000000000000000\n");
    let plain = [("content-type", "text/plain"), ("content-encoding", "gzip")];
    let truncated = victim.client.send(
        "POST",
        "/v1/tables/default/points",
        &plain,
        &lines[..lines.len() - 9],
    );
    refused(&truncated.expect("a response"), &[400], false);
    let garbage = victim
        .client
        .send("POST", "/v1/tables/default/points", &plain, b"no gzip at all");
    refused(&garbage.expect("a response"), &[400], false);
    let twice = victim
        .client
        .send("POST", "/v1/tables/default/points", &plain, &gzip(&lines));
    refused(&twice.expect("a response"), &[400, 422], false);
    victim.is_well("bombs");
}

const REMOTE_WRITE_1: &str = "application/x-protobuf";
const REMOTE_WRITE_2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// Sends a remote write request that must be refused; returns the message.
#[track_caller]
fn refused_write(victim: &Victim, content_type: &str, encoding: &str, body: &[u8]) -> String {
    let headers = [("content-type", content_type), ("content-encoding", encoding)];
    let answer = victim.client.send("POST", "/api/v1/write", &headers, body);
    let answer = answer.expect("a response");
    // vmagent would retry forever on any other status.
    assert_eq!(answer.status, 400, "{answer:?}");
    answer.text()
}

#[test]
fn remote_write_that_unpacks_to_much() {
    let victim = Victim::start();
    let write = |encoding: &str, body: &[u8]| refused_write(&victim, REMOTE_WRITE_1, encoding, body);
    let gib = bomb(Packing::Zstd, 1 << 30);
    assert!(write("zstd", &gib).contains("over the limit"));
    assert!(write("snappy", &snappy(&vec![0; 200 << 20])).contains("over the limit"));
    // A block that declares almost 4 GiB, and a block that declares a length within the limit but is too short for it.
    assert!(write("snappy", &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'a']).contains("over the limit"));
    assert!(write("snappy", &[0x80, 0x80, 0x80, 0x20, 0, b'a']).contains("cannot hold"));
    let whole = snappy(b"\x0a\x0f\x0a\x0d\x0a\x08__name__\x12\x01m");
    assert!(write("snappy", &whole[..whole.len() - 2]).contains("compressed body"));
    victim.is_well("remote write, packed");
}

#[test]
fn remote_write_of_samples_of_two_bytes() {
    let victim = Victim::start();
    let mut series = b"\x0a\x0d\x0a\x08__name__\x12\x01m".to_vec();
    series.extend(b"\x12\x00".repeat(4 << 20));
    let mut message = vec![0x0a];
    message.extend(length(series.len()));
    message.extend(series);
    let refusal = refused_write(&victim, REMOTE_WRITE_1, "snappy", &snappy(&message));
    assert!(refusal.contains("too many samples"));
    victim.is_well("remote write, samples");
}

/// Sends an OTLP request and returns its response. Asserts that the response does not request a retry.
#[track_caller]
fn export(victim: &Victim, content_type: &str, encoding: &str, body: &[u8]) -> tideline_tests::Response {
    let headers = [("content-type", content_type), ("content-encoding", encoding)];
    let answer = victim.client.send("POST", "/v1/metrics", &headers, body);
    let answer = answer.expect("a response");
    assert!([200, 400, 413].contains(&answer.status), "{answer:?}");
    assert_eq!(answer.header("retry-after"), "", "{answer:?}");
    assert_eq!(answer.header("content-type"), content_type, "{answer:?}");
    assert!(
        answer.body.len() < 4_000,
        "a refusal does not send the body back: {} bytes",
        answer.body.len()
    );
    answer
}

/// Wraps the data of a metric in a whole OTLP request. `field` is the field number of the data in `Metric`.
fn otlp_request(field: u32, data: &[u8]) -> Vec<u8> {
    let mut metric = Vec::new();
    metric.put_text(1, "m");
    metric.put_bytes(field, data);
    [2, 2, 1].into_iter().fold(metric, |inner, field| {
        let mut outer = Vec::new();
        outer.put_bytes(field, &inner);
        outer
    })
}

#[test]
fn otlp_that_unpacks_to_much() {
    let victim = Victim::start();
    for (encoding, packing) in [("gzip", Packing::Gzip), ("zstd", Packing::Zstd)] {
        for content_type in ["application/x-protobuf", "application/json"] {
            let answer = export(&victim, content_type, encoding, &bomb(packing, 1 << 30));
            assert_eq!(answer.status, 413, "{answer:?}");
        }
    }
    let half = gzip(&otlp_request(5, b"\x0a\x00"));
    let answer = export(&victim, "application/x-protobuf", "gzip", &half[..half.len() / 2]);
    assert_eq!(answer.status, 400, "{answer:?}");
    victim.is_well("OTLP, packed");
}

#[test]
fn otlp_of_many_small_or_large_parts() {
    let victim = Victim::start();
    let mut timed = Vec::new();
    timed.put_fixed64(3, 1_700_000_000_000_000_000);
    let mut attribute = timed.clone();
    attribute.extend(b"\x3a\x07\x0a\x01a\x12\x02\x18\x01".repeat(100_000));
    let mut buckets = Vec::new();
    buckets.put_sint(1, i64::from(i32::MIN));
    buckets.put_uints(2, std::iter::repeat_n(1, 4 << 20));
    let mut exponential = timed.clone();
    exponential.put_bytes(8, &buckets);
    let mut quantiles = timed.clone();
    quantiles.extend(b"\x32\x00".repeat(1 << 20));
    let mut exemplars = timed.clone();
    exemplars.put_fixed64(4, 0);
    exemplars.extend(b"\x2a\x00".repeat(1 << 20));
    for (what, field, point, count) in [
        ("empty points", 5, Vec::new(), 4 << 20),
        ("attributes", 5, attribute, 4),
        ("buckets", 10, exponential, 2),
        ("quantiles", 11, quantiles, 4),
        ("exemplars", 5, exemplars, 4),
    ] {
        let mut data = Vec::new();
        (0..count).for_each(|_| data.put_bytes(1, &point));
        data.put_uint(2, 2);
        let answer = export(
            &victim,
            "application/x-protobuf",
            "identity",
            &otlp_request(field, &data),
        );
        println!("{what}: {}", answer.status);
    }
    // Lists of short JSON elements. The service converts them to Protocol Buffers, where a number takes more bytes
    // than in JSON.
    for (open, element, close) in [
        (r#"{"resourceMetrics":["#, "{},", "{}]}"),
        (
            r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":["#,
            "{},",
            "{}]}}]}]}]}",
        ),
        (
            r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"explicitBounds":["#,
            "1,",
            "1]}]}}]}]}]}",
        ),
    ] {
        let body = [open, &element.repeat(1 << 20), close].concat();
        export(&victim, "application/json", "identity", body.as_bytes());
    }
    victim.is_well("OTLP, many parts");
}

#[test]
fn otlp_that_is_nested_deeply() {
    let victim = Victim::start();
    let mut value = b"\x0a\x01x".to_vec();
    for _ in 0..20_000 {
        let (mut list, mut outer) = (Vec::new(), Vec::new());
        list.put_bytes(1, &value);
        outer.put_bytes(5, &list);
        value = outer;
    }
    let mut attribute = b"\x0a\x01a".to_vec();
    attribute.put_bytes(2, &value);
    let mut point = Vec::new();
    point.put_fixed64(3, 1_700_000_000_000_000_000);
    point.put_fixed64(4, 0);
    point.put_bytes(7, &attribute);
    let mut data = Vec::new();
    data.put_bytes(1, &point);
    let answer = export(
        &victim,
        "application/x-protobuf",
        "identity",
        &otlp_request(5, &data),
    );
    assert!(
        answer.status == 400 && answer.text().contains("nested"),
        "{answer:?}"
    );
    let deep = r#"{"arrayValue":{"values":["#.repeat(100_000);
    let body = format!(r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"a","value":{deep}"#);
    let answer = export(&victim, "application/json", "identity", body.as_bytes());
    assert!(
        answer.status == 400 && answer.text().contains("recursion limit"),
        "{answer:?}"
    );
    victim.is_well("OTLP, nested");
}

#[test]
fn remote_write_of_labels_that_many_series_share() {
    let victim = Victim::start();
    // Series of a few bytes whose labels have 121 KiB, because they refer to one symbol of 4,000 bytes 31 times.
    let mut message = b"\x22\x00\x22\x08__name__\x22".to_vec();
    message.extend(length(4_000));
    message.extend([b'x'; 4_000]);
    let mut refs = vec![1, 2];
    (0..15).for_each(|_| refs.extend([2, 2]));
    let mut series = vec![0x0a, refs.len() as u8];
    series.extend(&refs);
    series.extend(b"\x12\x02\x10\x01");
    let mut one = vec![0x2a, series.len() as u8];
    one.extend(&series);
    message.extend(one.repeat(500_000));
    let refusal = refused_write(&victim, REMOTE_WRITE_2, "snappy", &snappy(&message));
    assert!(refusal.contains("labels too large"));
    victim.is_well("remote write, labels");
}

/// Encodes a length as a Protocol Buffers varint.
fn length(value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(value as u64, &mut out);
    out
}

#[test]
fn queries_that_cannot_be_answered() {
    let victim = Victim::start();
    let ask = |body: Value| victim.client.post_json("/v1/tables/default/query", &body);
    let cpu = json!({"where": {"property": "measurement", "equals": "cpu"}});
    let (start, end) = ("2023-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    let range = json!({"start": start, "end": end});
    let impossible = [
        json!({"start": end, "end": start}),
        json!({"start": start, "end": start}),
        json!({"start": "9999-01-01T00:00:00Z"}),
        json!({"start": "yesterday"}),
        json!({"start": 1e30}),
        json!({"start": start, "until": end}),
    ];
    for range in impossible {
        refused(&ask(json!({"timelines": cpu, "range": range})), &[400], false);
    }
    let windows = |window: &str| json!({"functions": ["mean"], "window": window});
    for window in ["1ns", "1ms", "20ms"] {
        let many = json!({"timelines": cpu, "range": range, "aggregate": windows(window)});
        refused(&ask(many), &[400, 422], true);
    }
    for window in ["0s", "-1s", "soon", "99999999999y"] {
        let none = json!({"timelines": cpu, "range": range, "aggregate": windows(window)});
        refused(&ask(none), &[400], false);
    }
    let rows = json!({"timelines": cpu, "limit": 1_000_000_000_000_u64});
    refused(&ask(rows), &[400, 422], true);
    refused(&ask(json!({"timelines": cpu, "limit": 0})), &[400], false);
    refused(
        &ask(json!({"timelines": cpu, "fields": ["never_written"]})),
        &[400, 404],
        false,
    );
    refused(
        &ask(json!({"timelines": {"ids": ["0".repeat(32)]}})),
        &[400, 404],
        false,
    );
    refused(&ask(json!({"timelines": {"ids": ["zebra"]}})), &[400], false);
    refused(&ask(json!({"timelines": {}})), &[400], false);
    refused(&ask(json!({"aggregate": {"functions": []}})), &[400], false);
    refused(
        &ask(json!({"aggregate": {"functions": ["median"]}})),
        &[400],
        false,
    );
    refused(&ask(json!({"timelines": cpu, "page": "nonsense"})), &[400], false);
    victim.is_well("bad queries");
}

#[test]
fn sql_statements_that_are_too_large() {
    let victim = Victim::start();
    let run = |statement: &str| {
        victim
            .client
            .post_json("/v1/sql", &json!({"statement": statement}))
    };
    for statement in [
        format!("SELECT {} FROM t", "1,".repeat(500_000)),
        format!("SELECT * FROM t WHERE {}", "(".repeat(1_000_000)),
        format!("SELECT * FROM t WHERE a = 1{}", " OR b = 1".repeat(20_000)),
        format!("SELECT * FROM t WHERE a = 1{}", "::INT".repeat(50_000)),
        format!("SELECT * FROM t WHERE {}a", "NOT ".repeat(150_000)),
        format!("SELECT * FROM t WHERE {}1", "a = ".repeat(50_000)),
        format!("UPSERT INTO t (a) VALUES {}(1)", "(1), ".repeat(40_000)),
        format!("SELECT * FROM t WHERE a = '{}'", "x".repeat(2 << 20)),
    ] {
        refused(&run(&statement), &[400], true);
    }
    // A statement of the maximum size is parsed; it fails only because its table does not exist.
    let row = "(1, 1, 1, 1, 1, 1, 1, 1),";
    let largest = format!(
        "UPSERT INTO t (a, b, c, d, e, f, g, h) VALUES {}",
        row.repeat(5_000)
    );
    refused(&run(largest.trim_end_matches(',')), &[404], false);
    let params = json!({"statement": "SHOW TABLES", "params": vec![1; 200_000]});
    refused(&victim.client.post_json("/v1/sql", &params), &[400], true);
    victim.is_well("SQL statements");
}

#[test]
fn bodies_and_heads_without_end() {
    let victim = Victim::start();
    let address = victim.client.address();
    let open = || RawConnection::open(address, Duration::from_secs(20)).expect("it listens");

    let mut claimed = open();
    let head =
        format!("POST /write HTTP/1.1\r\nhost: {address}\r\ncontent-length: 10737418240\r\n\r\ncpu v=1\n");
    claimed.send(head.as_bytes()).expect("it listens");
    assert_eq!(
        claimed.first_status(),
        Some(413),
        "a body of 10 GB is refused when it is announced"
    );

    let mut endless = open();
    let head = format!("POST /write HTTP/1.1\r\nhost: {address}\r\ntransfer-encoding: chunked\r\n\r\n");
    endless.send(head.as_bytes()).expect("it listens");
    let chunk = format!("10000\r\n{}\r\n", "#".repeat(1 << 16));
    let sent = (0..4_096)
        .take_while(|_| endless.send(chunk.as_bytes()).is_ok())
        .count();
    assert!(sent < 4_096, "256 MiB of a body without end were read");
    // The response may be lost if the server closes first; it is only required that the server stops reading.
    if let Some(status) = endless.first_status() {
        assert_eq!(status, 413);
    }

    let mut huge_head = open();
    let line = format!("x-filler: {}\r\n", "y".repeat(8_000));
    huge_head
        .send(format!("GET /health HTTP/1.1\r\nhost: {address}\r\n").as_bytes())
        .expect("it listens");
    let sent = (0..1_000)
        .take_while(|_| huge_head.send(line.as_bytes()).is_ok())
        .count();
    let status = huge_head.first_status();
    assert!(
        matches!(status, None | Some(400 | 431)),
        "{status:?} after {sent} header lines"
    );

    let mut nonsense = open();
    nonsense
        .send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        .expect("it listens");
    let status = nonsense.first_status();
    assert!(matches!(status, None | Some(400)), "{status:?}");
    victim.is_well("endless requests");
}

#[test]
fn slow_clients_are_cut_off_and_disturb_no_other() {
    let victim = Victim::start();
    let address = victim.client.address();
    let silent: Vec<_> = (0..300)
        .map(|_| RawConnection::open(address, SLOW_PATIENCE).expect("it listens"))
        .collect();
    let slow_head = std::thread::spawn(move || {
        let mut connection = RawConnection::open(address, SLOW_PATIENCE).expect("it listens");
        let began = Instant::now();
        let head = b"GET /health HTTP/1.1\r\nx-slow: ";
        connection.send(head).expect("it listens");
        // Sends single bytes for longer than the time limit of a request head.
        while began.elapsed() < SLOW_PATIENCE && connection.send(b"y").is_ok() {
            wait::pause(Duration::from_millis(250));
        }
        began.elapsed()
    });
    let slow_body = std::thread::spawn(move || {
        let mut connection = RawConnection::open(address, SLOW_PATIENCE).expect("it listens");
        let began = Instant::now();
        let head = format!(
            "POST /v1/tables/default/points HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\ncpu"
        );
        connection.send(head.as_bytes()).expect("it listens");
        (connection.first_status(), began.elapsed())
    });
    let mut slowest = Duration::ZERO;
    for number in 0..50 {
        let asked = Instant::now();
        victim
            .client
            .post_lines("/write", &format!("slow,host=a v={number} {number}"))
            .expect_status(204);
        slowest = slowest.max(asked.elapsed());
        wait::pause(Duration::from_millis(20));
    }
    println!(
        "slowest write alongside {} silent clients: {slowest:?}",
        silent.len()
    );
    assert!(slowest < Duration::from_secs(2), "a write took {slowest:?}");
    let head_took = slow_head.join().expect("the slow head ends");
    assert!(
        head_took < SLOW_PATIENCE,
        "a slow head was not cut off for {head_took:?}"
    );
    let (status, body_took) = slow_body.join().expect("the slow body ends");
    assert!(matches!(status, None | Some(408)), "{status:?}");
    assert!(
        body_took < SLOW_PATIENCE,
        "a silent body was not cut off for {body_took:?}"
    );
    println!("cut off: a slow head after {head_took:?}, a silent body after {body_took:?}");
    victim.is_well("slow clients");
}
