//! Prometheus API over a connection: compressed responses, open paths, remote read in both formats.
//!
//! Also covers missing tables, forms, remote write counts, imports, Pushgateway pushes and federation.

use tideline_http::{HttpSettings, Secret};
use tideline_wire::protobuf::PutFields;
use tideline_wire::varint;

use crate::client::{Response, Server};

const LINES: &str =
    "up,job=a value=1 1700000000\nup,job=a value=0.5 1700000015\nup,job=b value=3 1700000000\n";

fn filled() -> Server {
    let server = Server::start();
    assert_eq!(server.post("/write?precision=s", "text/plain", LINES).status, 204);
    server
}

/// Encodes a length-delimited field.
fn bytes(field: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_bytes(field, payload);
    out
}

/// Encodes an integer field.
fn integer(field: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_integer(field, value);
    out
}

/// Returns the fields of a message: number, integer value, bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    let take = |message: &mut &[u8]| varint::take(message).expect("a varint");
    while !message.is_empty() {
        let tag = take(&mut message);
        let (number, payload) = match tag & 7 {
            0 => (take(&mut message), &message[..0]),
            1 => {
                let (word, rest) = message.split_at(8);
                message = rest;
                (
                    u64::from_le_bytes(word.try_into().expect("eight bytes")),
                    &word[..0],
                )
            }
            2 => {
                let length = take(&mut message) as usize;
                let (payload, rest) = message.split_at(length);
                message = rest;
                (0, payload)
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, number, payload));
    }
    found
}

/// Returns the payloads of a field.
pub(crate) fn all(message: &[u8], field: u64) -> Vec<&[u8]> {
    let of_field = fields(message).into_iter().filter(|(at, ..)| *at == field);
    of_field.map(|(.., payload)| payload).collect()
}

/// Returns the value of an integer field; a missing field is zero.
pub(crate) fn number(message: &[u8], field: u64) -> u64 {
    fields(message)
        .iter()
        .find(|(at, ..)| *at == field)
        .map_or(0, |(_, number, _)| *number)
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn labels(series: &[u8]) -> Vec<(&str, &str)> {
    let label = |label| (text(all(label, 1)[0]), text(all(label, 2)[0]));
    all(series, 1).into_iter().map(label).collect()
}

fn matcher(kind: u64, name: &str, value: &str) -> Vec<u8> {
    let message = [
        integer(1, kind),
        bytes(2, name.as_bytes()),
        bytes(3, value.as_bytes()),
    ];
    bytes(3, &message.concat())
}

fn read(server: &Server, path: &str, queries: &[Vec<u8>], forms: &[u64]) -> Response {
    let mut message: Vec<u8> = queries.iter().flat_map(|query| bytes(1, query)).collect();
    forms.iter().for_each(|form| message.extend(integer(2, *form)));
    let body = snap::raw::Encoder::new()
        .compress_vec(&message)
        .expect("small enough");
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
    ];
    server.send("POST", path, &headers, &body)
}

fn query(start: u64, end: u64, matchers: &[Vec<u8>]) -> Vec<u8> {
    [integer(1, start), integer(2, end), matchers.concat()].concat()
}

#[test]
fn remote_read_returns_samples() {
    let server = filled();
    let up = matcher(0, "__name__", "up");
    let queries = [
        query(
            1_700_000_000_000,
            1_700_000_015_000,
            &[up.clone(), matcher(2, "job", "a|c")],
        ),
        query(1_700_000_000_000, 1_700_000_001_000, &[up]),
        query(0, 1, &[matcher(1, "job", "")]),
    ];
    for path in ["/api/v1/read", "/v1/tables/default/prometheus/api/v1/read"] {
        let response = read(&server, path, &queries, &[]);
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.header("content-type"), "application/x-protobuf");
        assert_eq!(response.header("content-encoding"), "snappy");
        let message = snap::raw::Decoder::new()
            .decompress_vec(&response.body)
            .expect("snappy");
        let results = all(&message, 1);
        assert_eq!(results.len(), 3, "one result per query");
        let series = all(results[0], 1);
        assert_eq!(series.len(), 1);
        assert_eq!(labels(series[0]), [("__name__", "up"), ("job", "a")]);
        let samples: Vec<(u64, f64)> = all(series[0], 2)
            .into_iter()
            .map(|sample| (number(sample, 2), f64::from_bits(number(sample, 1))))
            .collect();
        assert_eq!(samples, [(1_700_000_000_000, 1.0), (1_700_000_015_000, 0.5)]);
        let jobs: Vec<&str> = all(results[1], 1)
            .into_iter()
            .map(|series| labels(series)[1].1)
            .collect();
        assert_eq!(jobs, ["a", "b"], "sorted");
        assert!(results[2].is_empty());
    }
}

#[test]
fn remote_read_streams_chunks_to_who_takes_them() {
    let server = filled();
    let queries = [query(
        1_699_999_999_000,
        1_700_000_100_000,
        &[matcher(0, "__name__", "up")],
    )];
    // The first supported response type is used.
    let response = read(&server, "/api/v1/read", &queries, &[7, 1, 0]);
    assert_eq!(response.status, 200, "{}", response.text());
    let form = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!(
        (
            response.header("content-type"),
            response.header("content-encoding")
        ),
        (form, "")
    );
    let mut rest = response.body.as_slice();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(rest[0]);
        assert!(length < 0x80, "each of these frames is small");
        let (checksum, message) = rest[1..5 + length].split_at(4);
        assert_eq!(checksum, crc32c::crc32c(message).to_be_bytes());
        rest = &rest[5 + length..];
        let series = all(message, 1)[0];
        let chunk = all(series, 2)[0];
        let data = all(chunk, 4)[0];
        let count = u16::from_be_bytes([data[0], data[1]]);
        seen.push((
            labels(series)[1].1.to_owned(),
            number(chunk, 1),
            number(chunk, 2),
            number(chunk, 3),
            count,
        ));
    }
    let (first, last) = (1_700_000_000_000, 1_700_000_015_000);
    assert_eq!(
        seen,
        [
            ("a".to_owned(), first, last, 1, 2),
            ("b".to_owned(), first, first, 1, 1)
        ]
    );
}

#[test]
fn remote_read_refuses_what_it_cannot_read() {
    let server = filled();
    let garbage = server.post("/api/v1/read", "application/x-protobuf", b"\xff\xff\xff\xff\x7f");
    assert_eq!(garbage.expect(400)["errorType"], "bad_data");
    let regex = query(0, 1, &[matcher(2, "job", "(")]);
    assert_eq!(read(&server, "/api/v1/read", &[regex], &[]).status, 400);
    let unknown = read(&server, "/api/v1/read", &[], &[9]);
    let error = unknown.expect(400)["error"].to_string();
    assert!(error.contains("none of the accepted response types"), "{error}");
    let nowhere = read(&server, "/v1/tables/nowhere/prometheus/api/v1/read", &[], &[]);
    assert_eq!(nowhere.expect(404)["errorType"], "not_found");
}

#[test]
fn large_responses_are_compressed_as_a_whole() {
    let server = Server::start();
    let lines: String = (0..3_000)
        .map(|at| format!("m,host=h{at} value={at} 1700000000\n"))
        .collect();
    assert_eq!(server.post("/write?precision=s", "text/plain", lines).status, 204);
    let path = "/api/v1/query?query=m&time=1700000000";
    let packed = server.send("GET", path, &[("accept-encoding", "gzip")], b"");
    assert_eq!((packed.status, packed.header("content-encoding")), (200, "gzip"));
    let mut plain = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::GzDecoder::new(packed.body.as_slice()),
        &mut plain,
    )
    .expect("a whole stream");
    let plain: serde_json::Value = serde_json::from_slice(&plain).expect("a whole answer");
    assert_eq!(plain["data"]["result"].as_array().map(Vec::len), Some(3_000));
    assert_eq!(plain, server.get(path).expect(200));
}

#[test]
fn health_needs_no_token_and_everything_else_does() {
    let token = Secret::new("0123456789abcdef").expect("long enough");
    let server = Server::with(HttpSettings {
        token: Some(token),
        ..HttpSettings::default()
    });
    assert_eq!(server.get("/-/healthy").text(), "Tideline is Healthy.\n");
    assert_eq!(server.get("/-/ready").status, 200);
    let refused = server.get("/api/v1/query?query=1");
    let body = refused.expect(401);
    assert_eq!(
        (&body["status"], &body["errorType"]),
        (&"error".into(), &"bad_data".into())
    );
    let basic = [("authorization", "Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm")];
    assert_eq!(
        server.send("GET", "/api/v1/query?query=1", &basic, b"").status,
        200
    );
}

#[test]
fn the_health_of_a_prometheus_is_open_at_the_root_only() {
    let token = Secret::new("0123456789abcdef").expect("long enough");
    let server = Server::with(HttpSettings {
        token: Some(token),
        ..HttpSettings::default()
    });
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
        let of_table = format!("/v1/tables/default/prometheus{path}");
        let token = [("authorization", "Bearer 0123456789abcdef")];
        assert_eq!(
            server.send("GET", &of_table, &token, b"").status,
            200,
            "{of_table}"
        );
    }
    for closed in [
        "/v1/tables/default/prometheus/-/healthy",
        "/v1/tables/default/prometheus/-/ready",
        "/v1/tables/default/prometheus/api/v1/status/buildinfo",
        "/v1/tables/default/-/healthy",
        "/v1/tables/default/prometheus/-/healthy/x",
    ] {
        assert_eq!(server.get(closed).status, 401, "{closed}");
    }
}

#[test]
fn an_absent_table_is_not_found_in_any_request() {
    let server = Server::start();
    for path in [
        "query?query=1",
        "format_query?query=up",
        "parse_query?query=up",
        "status/buildinfo",
        "status/config",
        "status/flags",
        "status/runtimeinfo",
        "status/tsdb",
        "status/walreplay",
        "targets",
        "targets/metadata",
        "scrape_pools",
        "rules",
        "alerts",
        "alertmanagers",
        "notifications",
    ] {
        assert_eq!(server.get(&format!("/api/v1/{path}")).status, 200, "{path}");
        let nowhere = format!("/v1/tables/nope/prometheus/api/v1/{path}");
        assert_eq!(
            server.get(&nowhere).expect(404)["errorType"],
            "not_found",
            "{path}"
        );
    }
    let form = "application/x-www-form-urlencoded";
    for path in ["format_query", "parse_query"] {
        let nowhere = format!("/v1/tables/nope/prometheus/api/v1/{path}");
        assert_eq!(server.post(&nowhere, form, "query=up").status, 404, "{path}");
    }
}

#[test]
fn a_table_whose_name_cannot_be_read_is_not_the_default_one() {
    let server = Server::start();
    let path = "/v1/tables/%FF/prometheus/api/v1/import/prometheus";
    let refused = server.post(path, "text/plain", "up 1\n");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(server.get("/v1/tables/%FF/prometheus/api/v1/labels").status, 400);
    let names = server.get("/api/v1/label/__name__/values").expect(200);
    assert_eq!(
        names["data"],
        serde_json::json!([]),
        "nothing is in the default table"
    );
}

/// Returns the status of a remote write and its counts of written items; `None` for a missing header.
fn written(response: &Response) -> (u16, [Option<u64>; 3]) {
    let count = |kind: &str| {
        let name = format!("x-prometheus-remote-write-{kind}-written");
        response.header(&name).parse().ok()
    };
    (response.status, ["samples", "histograms", "exemplars"].map(count))
}

#[test]
fn remote_write_reports_what_it_wrote_also_if_that_is_nothing() {
    let server = Server::start();
    let write = |path: &str, content_type: &str, encoding: &str, body: &[u8]| {
        let headers = [("content-type", content_type), ("content-encoding", encoding)];
        written(&server.send("POST", path, &headers, body))
    };
    let snappy = |message: &[u8]| snap::raw::Encoder::new().compress_vec(message).expect("small");
    let (path, v1) = ("/api/v1/write", "application/x-protobuf");
    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let nothing = [Some(0); 3];
    assert_eq!(write(path, v2, "snappy", &snappy(b"")), (204, nothing));
    for content_type in [v1, v2] {
        assert_eq!(write(path, content_type, "snappy", b"\xff\xff"), (400, nothing));
        assert_eq!(
            write(path, content_type, "snappy", &snappy(b"\x2a\x09")),
            (400, nothing)
        );
        // A compressed body is never empty, even if its message is empty.
        assert_eq!(write(path, content_type, "snappy", b""), (400, nothing));
        assert_eq!(write(path, content_type, "zstd", b""), (400, nothing));
    }
    let nowhere = "/v1/tables/nope/prometheus/api/v1/write";
    assert_eq!(write(nowhere, v2, "snappy", &snappy(b"")), (404, nothing));
    assert_eq!(
        write(path, "application/x-protobuf;proto=yolo", "snappy", b""),
        (415, [None; 3]),
        "an unsupported message has no counts"
    );
}

#[test]
fn a_form_of_another_kind_is_refused_with_the_kind_that_is_read() {
    let server = filled();
    let form = "--x\r\ncontent-disposition: form-data; name=\"query\"\r\n\r\nup\r\n--x--\r\n";
    let refused = server.post("/api/v1/query", "multipart/form-data; boundary=x", form);
    let error = refused.expect(415)["error"].to_string();
    assert!(error.contains("use application/x-www-form-urlencoded"), "{error}");
    // For a body with another content type, only the query string counts.
    let path = "/api/v1/query?query=up&time=1700000000";
    assert_eq!(server.post(path, "application/json", "{}").status, 200);
}

#[test]
fn an_import_that_was_not_read_to_its_end_is_reported() {
    let server = Server::start();
    let page = format!("up 1\n{}up 2\n", "wrong\n".repeat(100_000));
    let refused = server.post("/api/v1/import/prometheus", "text/plain", page);
    assert_eq!(refused.status, 400);
    let said = refused.text();
    let end = "and 99991 more, the last of them:\n\
               too many rejects (limit 100000): 1 more from here on were not read\n";
    assert!(said.ends_with(end), "{said}");
}

/// Content type that the Go client library uses for pushes.
const FAMILIES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Encodes a length-delimited family with one metric.
fn family(name: &str, kind: u64, value: &[u8]) -> Vec<u8> {
    let fields = [bytes(1, name.as_bytes()), integer(3, kind), bytes(4, value)];
    let family = fields.concat();
    let mut out = Vec::new();
    varint::put(family.len() as u64, &mut out);
    out.extend(family);
    out
}

#[test]
fn what_go_pushes_is_read_and_ends_with_its_group() {
    let server = Server::start();
    let gauge = bytes(2, &[&[0x09][..], &42.0_f64.to_le_bytes()].concat());
    // Three observations in one bucket of schema 3.
    let span = [integer(1, 0), integer(2, 1)].concat();
    let native = [integer(1, 3), integer(5, 6), bytes(12, &span), bytes(13, &[6])].concat();
    let body = [family("done", 1, &gauge), family("lag", 4, &bytes(7, &native))].concat();
    let group = "/metrics/job/nightly/instance/db-1";
    let push = |content_type: &str, body: &[u8]| {
        let pushed = server.send("PUT", group, &[("content-type", content_type)], body);
        (pushed.status, pushed.text())
    };
    assert_eq!(push(FAMILIES, &body), (200, String::new()));
    let fetch = |query: &str| {
        let response = server.get(&format!("/api/v1/query?query={query}")).expect(200);
        response["data"]["result"].clone()
    };
    assert_eq!(fetch("done")[0]["value"][1], "42");
    assert_eq!(
        fetch("lag")[0]["metric"],
        serde_json::json!({"__name__": "lag", "job": "nightly", "instance": "db-1"})
    );
    assert_eq!(fetch("histogram_count(lag)")[0]["value"][1], "3");
    assert_eq!(fetch("push_time_seconds").as_array().map(Vec::len), Some(1));
    server.clock.advance(1_000_000_000);
    assert_eq!(server.send("DELETE", group, &[], b"").status, 202);
    for name in ["done", "lag", "push_time_seconds"] {
        assert_eq!(fetch(name), serde_json::json!([]), "{name}");
    }
    let (status, said) = push(FAMILIES, &body[..body.len() - 1]);
    assert_eq!(status, 400, "{said}");
    let (status, said) = push(&FAMILIES.replace("delimited", "text"), &body);
    assert_eq!(status, 415);
    assert!(said.contains("encoding=delimited"), "{said}");
    let imported = server.post("/api/v1/import/prometheus", FAMILIES, body);
    assert_eq!(imported.status, 204, "{}", imported.text());
}

#[test]
fn federation_escapes_names_as_requested() {
    let server = Server::start();
    let page = "{\"lag.s\",\"http.status\"=\"200\"} 1\n";
    assert_eq!(
        server
            .post("/api/v1/import/prometheus", "text/plain", page)
            .status,
        204
    );
    let federate = |accept: &str| {
        let path = "/federate?match[]=%7B__name__%3D~%22.%2B%22%7D";
        let response = server.send("GET", path, &[("accept", accept)], b"");
        let sample = response.text().lines().nth(1).unwrap_or_default().to_owned();
        (response.header("content-type").to_owned(), sample)
    };
    let (kind, sample) = federate("*/*");
    assert_eq!(
        kind,
        "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    );
    assert!(
        sample.starts_with("lag_s{http_status=\"200\",instance=\"\"} 1 "),
        "{sample}"
    );
    let (kind, sample) = federate("text/plain;version=0.0.4;escaping=allow-utf-8");
    assert_eq!(
        kind,
        "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8"
    );
    assert!(
        sample.starts_with("{\"lag.s\",\"http.status\"=\"200\",instance=\"\"} 1 "),
        "{sample}"
    );
}
