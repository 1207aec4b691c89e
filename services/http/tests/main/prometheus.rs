//! Prometheus' API over a connection: compressed answers, open paths, remote read in both forms.

use tideline_http::{HttpSettings, Secret};

use crate::client::{Answer, Server};

const LINES: &str =
    "up,job=a value=1 1700000000\nup,job=a value=0.5 1700000015\nup,job=b value=3 1700000000\n";

fn filled() -> Server {
    let server = Server::start();
    assert_eq!(server.post("/write?precision=s", "text/plain", LINES).status, 204);
    server
}

/// A field of a message that is bytes.
fn bytes(field: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    out.extend(varint(payload.len() as u64));
    out.extend_from_slice(payload);
    out
}

/// A field of a message that is an integer.
fn integer(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// What lies in the fields of a message: numbers and bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    let take = |message: &mut &[u8]| {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = message[0];
            *message = &message[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    };
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

/// The payloads of a field.
fn all(message: &[u8], field: u64) -> Vec<&[u8]> {
    let of_field = fields(message).into_iter().filter(|(at, ..)| *at == field);
    of_field.map(|(.., payload)| payload).collect()
}

/// The number in a field; zero is left out.
fn number(message: &[u8], field: u64) -> u64 {
    fields(message)
        .iter()
        .find(|(at, ..)| *at == field)
        .map_or(0, |(_, number, _)| *number)
}

fn text(bytes: &[u8]) -> &str {
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

fn read(server: &Server, path: &str, queries: &[Vec<u8>], forms: &[u64]) -> Answer {
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
fn remote_read_answers_with_samples() {
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
        let answer = read(&server, path, &queries, &[]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("content-type"), "application/x-protobuf");
        assert_eq!(answer.header("content-encoding"), "snappy");
        let message = snap::raw::Decoder::new()
            .decompress_vec(&answer.body)
            .expect("snappy");
        let results = all(&message, 1);
        assert_eq!(results.len(), 3, "one for each query");
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
    // The first form that is known here.
    let answer = read(&server, "/api/v1/read", &queries, &[7, 1, 0]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let form = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!(
        (answer.header("content-type"), answer.header("content-encoding")),
        (form, "")
    );
    let mut rest = answer.body.as_slice();
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
fn large_answers_are_compressed_whole() {
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
