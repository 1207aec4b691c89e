//! OTLP over a connection: statuses, content types and bodies by which senders decide whether to retry a request.
//!
//! After a wrong status, senders drop data or retry forever. The statuses are therefore checked in both encodings. Also
//! covers metadata and `target_info`.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_backend::memory::{AppendFault, Character, MemoryDisk};
use tideline_engine::TableLimits;
use tideline_fleet::otlp::{Data, Metric, Number, Point, Request, texts};
use tideline_http::{DeltaTemporality, HttpSettings, OtlpSettings, Secret, TranslationStrategy};

use crate::client::{Response, Server, compressed, gzip};
use crate::prometheus::{all, number, text};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const PATHS: [&str; 6] = [
    "/v1/metrics",
    "/opentelemetry/v1/metrics",
    "/api/v1/otlp/v1/metrics",
    "/v1/tables/default/prometheus/v1/metrics",
    "/v1/tables/default/prometheus/opentelemetry/v1/metrics",
    "/v1/tables/default/prometheus/api/v1/otlp/v1/metrics",
];
/// Timestamp one second before the time of the tests, in nanoseconds since the Unix epoch.
const TIME: u64 = 1_795_175_999_000_000_000;

fn gauge(points: Vec<Point>) -> Request {
    Request::of(Metric {
        name: "queue.length".into(),
        data: Data::Gauge(points),
        ..Metric::default()
    })
}

fn point(value: f64) -> Point {
    Point {
        attributes: texts(&[("zone", "a")]),
        time: TIME,
        value: Some(Number::Double(value)),
        ..Point::default()
    }
}

fn timeless() -> Point {
    Point {
        time: 0,
        ..point(1.0)
    }
}

/// Returns the code and message of a `google.rpc.Status` in the encoding of the request.
#[track_caller]
fn error(answer: &Response, content_type: &str) -> (u64, String) {
    assert_eq!(answer.header("content-type"), content_type, "{}", answer.text());
    match content_type {
        PROTOBUF => {
            let message = all(&answer.body, 2);
            (number(&answer.body, 1), text(message[0]).to_owned())
        }
        _ => {
            let body = answer.value();
            let message = body["message"].as_str().expect("a message");
            (body["code"].as_u64().expect("a code"), message.to_owned())
        }
    }
}

#[test]
fn every_path_stores_both_encodings() {
    let server = Server::start();
    for (number, path) in PATHS.into_iter().enumerate() {
        let body = gauge(vec![point(number as f64)]);
        let stored = server.post(path, PROTOBUF, body.to_protobuf());
        assert_eq!((stored.status, &*stored.body), (200, &b""[..]), "{path}");
        assert_eq!(stored.header("content-type"), PROTOBUF);
        let stored = server.post(path, "application/json; charset=utf-8", body.to_json());
        assert_eq!((stored.status, &*stored.text()), (200, "{}"), "{path}");
        assert_eq!(stored.header("content-type"), JSON);
        let query = format!("/api/v1/query?query=queue_length&time={}", TIME / 1_000_000_000);
        let found = server.get(&query).expect(200);
        assert_eq!(
            found["data"]["result"][0]["value"][1],
            number.to_string(),
            "{path}: {found}"
        );
        assert_eq!(found["data"]["result"][0]["metric"]["zone"], "a");
    }
    for (content_type, empty) in [(PROTOBUF, ""), (JSON, "{}")] {
        assert_eq!(server.post("/v1/metrics", content_type, empty).status, 200);
    }
}

#[test]
fn bodies_may_be_compressed() {
    let server = Server::start();
    let body = gauge(vec![point(1.0)]).to_protobuf();
    let [gzipped, deflated, zstd] = compressed(&body);
    // The collector sends the same format as `deflate` or as `zlib`.
    let zlib = ("zlib", deflated.1.clone());
    for (encoding, body) in [gzipped, deflated, zlib, zstd, ("identity", body)] {
        let headers = [("content-type", PROTOBUF), ("content-encoding", encoding)];
        let stored = server.send("POST", "/v1/metrics", &headers, &body);
        assert_eq!(stored.status, 200, "{encoding}: {}", stored.text());
    }
    let headers = [("content-type", PROTOBUF), ("content-encoding", "snappy")];
    let refused = server.send("POST", "/v1/metrics", &headers, b"x");
    assert_eq!(refused.status, 415);
    let (code, message) = error(&refused, PROTOBUF);
    assert!(
        code == 3 && message.contains("gzip, deflate, zlib, zstd"),
        "{message}"
    );
}

#[test]
fn a_batch_of_idle_histograms_may_be_compressed_above_100_to_1() {
    let server = Server::start();
    let idle = |number: u64| Point {
        attributes: texts(&[("pod", format!("pod-{}", number % 64).as_str())]),
        time: TIME - number / 64 * 1_000_000_000,
        sum: Some(0.0),
        counts: vec![0; 16],
        bounds: (0..15).map(f64::from).collect(),
        ..Point::default()
    };
    let body = Request::of(Metric {
        name: "latency".into(),
        data: Data::Histogram {
            points: (0..4_096).map(idle).collect(),
            temporality: 2,
        },
        ..Metric::default()
    })
    .to_json();
    let packed = zstd::encode_all(body.as_bytes(), 3).expect("memory takes it");
    assert!(
        body.len() > 1 << 20 && body.len() > 100 * packed.len(),
        "{} bytes become {}",
        body.len(),
        packed.len()
    );
    let headers = [("content-type", JSON), ("content-encoding", "zstd")];
    let stored = server.send("POST", "/v1/metrics", &headers, &packed);
    assert_eq!((stored.status, &*stored.text()), (200, "{}"));
    let time = TIME / 1_000_000_000;
    let query = format!("/api/v1/query?query=count(latency_count)&time={time}");
    let found = server.get(&query).expect(200);
    assert_eq!(found["data"]["result"][0]["value"][1], "64", "{found}");
}

#[test]
fn rejected_points_are_counted_and_the_others_stored() {
    let server = Server::start();
    let body = gauge(vec![point(1.0), timeless(), timeless()]);
    let partial = server.post("/v1/metrics", PROTOBUF, body.to_protobuf());
    assert_eq!((partial.status, partial.header("content-type")), (200, PROTOBUF));
    let success = all(&partial.body, 1);
    assert_eq!(number(success[0], 1), 2);
    let message = text(all(success[0], 2)[0]).to_owned();
    assert!(
        message.starts_with("2 of 3 data points rejected:") && message.contains("no time"),
        "{message}"
    );
    let partial = server.post("/v1/metrics", JSON, body.to_json()).expect(200);
    assert_eq!(partial["partialSuccess"]["rejectedDataPoints"], "2", "{partial}");
    assert_eq!(partial["partialSuccess"]["errorMessage"], message);

    // If no data point is stored, the whole request is refused.
    let body = gauge(vec![timeless()]);
    for (content_type, body) in [
        (PROTOBUF, body.to_protobuf()),
        (JSON, body.to_json().into_bytes()),
    ] {
        let refused = server.post("/v1/metrics", content_type, body);
        assert_eq!(refused.status, 400);
        let (code, message) = error(&refused, content_type);
        assert!(
            code == 3 && message.contains("1 of 1 data points rejected"),
            "{message}"
        );
    }
}

#[test]
fn the_published_example_is_stored_but_for_its_deltas() {
    let server = Server::start();
    let Some(folder) = tideline_testkit::corpus("otlp") else {
        return;
    };
    let example = fs::read(folder.join("metrics.json")).expect("the example is there");
    let partial = server.post("/v1/metrics", JSON, &example).expect(200);
    assert_eq!(partial["partialSuccess"]["rejectedDataPoints"], "3", "{partial}");
    let message = partial["partialSuccess"]["errorMessage"]
        .as_str()
        .unwrap_or_default();
    assert!(message.contains("delta temporality"), "{message}");
    let settings = HttpSettings {
        otlp: OtlpSettings {
            delta_temporality: DeltaTemporality::Store,
            translation_strategy: TranslationStrategy::NoTranslation,
            ..OtlpSettings::default()
        },
        ..HttpSettings::default()
    };
    let server = Server::with(settings);
    assert_eq!(server.post("/v1/metrics", JSON, &example).expect(200), json!({}));
    let names = server
        .get("/api/v1/label/__name__/values?start=1544712600&end=1544712720")
        .expect(200);
    assert_eq!(
        names["data"],
        json!([
            "my.counter",
            "my.exponential.histogram",
            "my.gauge",
            "my.histogram_bucket",
            "my.histogram_count",
            "my.histogram_sum"
        ])
    );
}

#[test]
fn bad_requests_are_refused_for_good() {
    let server = Server::start();
    let retries = |answer: &Response| !answer.header("retry-after").is_empty();
    for (content_type, body) in [(PROTOBUF, &b"\x0a\x05x"[..]), (JSON, b"{\"resourceMetrics\": 5}")] {
        let refused = server.post("/v1/metrics", content_type, body);
        assert_eq!(refused.status, 400);
        assert_eq!(error(&refused, content_type).0, 3);
        assert!(!retries(&refused));
    }
    for content_type in [
        "text/plain",
        "application/protobuf",
        "application/x-www-form-urlencoded",
    ] {
        let refused = server.post("/v1/metrics", content_type, "x");
        assert_eq!(refused.status, 415);
        let (code, message) = error(&refused, JSON);
        assert!(
            code == 3 && message.contains("use application/x-protobuf"),
            "{message}"
        );
    }
    let untyped = server.send("POST", "/v1/metrics", &[], b"x");
    assert_eq!(untyped.status, 415);
    let refused = server.get("/v1/metrics");
    assert_eq!((refused.status, error(&refused, JSON).0), (405, 12));
    let refused = server.post("/v1/tables/nowhere/prometheus/v1/metrics", PROTOBUF, "");
    assert_eq!((refused.status, error(&refused, PROTOBUF).0), (404, 5));
    let small = HttpSettings {
        body_bytes_max: 1_000,
        ..HttpSettings::default()
    };
    let refused = Server::with(small).post("/v1/metrics", PROTOBUF, [0; 2_000]);
    assert_eq!((refused.status, error(&refused, PROTOBUF).0), (413, 8));
    let protected = HttpSettings {
        token: Some(Secret::new("0123456789abcdef").expect("long enough")),
        ..HttpSettings::default()
    };
    let server = Server::with(protected);
    let body = gauge(vec![point(1.0)]).to_protobuf();
    let refused = server.post("/v1/metrics", PROTOBUF, &body);
    assert_eq!((refused.status, error(&refused, PROTOBUF).0), (401, 16));
    let headers = [
        ("content-type", PROTOBUF),
        ("authorization", "Bearer 0123456789abcdef"),
    ];
    assert_eq!(server.send("POST", "/v1/metrics", &headers, &body).status, 200);
}

#[test]
fn a_decompressed_body_has_the_limit_of_the_protocol() {
    let server = Server::start();
    let headers = [("content-type", PROTOBUF), ("content-encoding", "gzip")];
    // The body is hardly compressible, so the limit of the compression ratio is not reached.
    let mut state = 1_u64;
    let body: Vec<u8> = (0..(65 << 20) / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes()
        })
        .collect();
    let packed = gzip(&body);
    assert!(packed.len() > body.len() / 100 && packed.len() < body.len());
    let refused = server.send("POST", "/v1/metrics", &headers, &packed);
    assert_eq!(refused.status, 413, "{} bytes sent", packed.len());
}

#[test]
fn logs_and_traces_are_refused_for_good() {
    let server = Server::start();
    for prefix in [
        "",
        "/opentelemetry",
        "/api/v1/otlp",
        "/v1/tables/default/prometheus",
    ] {
        for signal in ["logs", "traces"] {
            for content_type in [PROTOBUF, JSON] {
                let refused = server.post(&format!("{prefix}/v1/{signal}"), content_type, "{}");
                assert_eq!(refused.status, 404, "{prefix} {signal}");
                let (code, message) = error(&refused, content_type);
                assert!(code == 5 && message.starts_with(signal), "{message}");
                assert_eq!(refused.header("retry-after"), "");
            }
        }
    }
}

#[test]
fn failures_that_pass_are_to_be_repeated() {
    let body = gauge(vec![point(1.0)]);
    let sent = [
        (PROTOBUF, body.to_protobuf()),
        (JSON, body.to_json().into_bytes()),
    ];
    // The storage of the first server does not confirm writes; the second server has no permits for writes.
    let failing = Server::on(MemoryDisk::new(Character::Distributed), HttpSettings::default());
    failing.disk.fail_append(AppendFault::Lost);
    failing.disk.fail_append(AppendFault::Lost);
    let overloaded = Server::with(HttpSettings {
        writes_in_flight_max: 0,
        turn_timeout: Duration::from_millis(10),
        ..HttpSettings::default()
    });
    // The tables of the third server accept no new timelines.
    let crowded = Server::with_tables(TableLimits {
        timelines_per_minute: 0,
        ..TableLimits::default()
    });
    for (what, server) in [
        ("failing", failing),
        ("overloaded", overloaded),
        ("crowded", crowded),
    ] {
        for (content_type, body) in &sent {
            let refused = server.post("/v1/metrics", content_type, body);
            assert_eq!(refused.status, 503, "{what}: {}", refused.text());
            assert_eq!(error(&refused, content_type).0, 14, "{what}");
            let after: u64 = refused.header("retry-after").parse().unwrap_or_default();
            assert!(after >= 1, "{what}");
        }
    }
}

#[test]
fn metadata_and_target_info_are_served() {
    let server = Server::start();
    let mut request = gauge(vec![point(1.0)]);
    let resource = &mut request.resources[0];
    resource.attributes = texts(&[("service.name", "shop"), ("service.version", "2.1")]);
    let metric = &mut resource.scopes[0].metrics[0];
    (metric.description, metric.unit) = ("Waiting orders.".into(), "{order}".into());
    assert_eq!(
        server.post("/v1/metrics", PROTOBUF, request.to_protobuf()).status,
        200
    );
    let metadata = server.get("/api/v1/metadata").expect(200);
    assert_eq!(
        metadata["data"]["queue_length"],
        json!([{"type": "gauge", "help": "Waiting orders.", "unit": ""}])
    );
    let query = format!(
        "/api/v1/query?query=queue_length*on(job)group_left(service_version)target_info&time={}",
        TIME / 1_000_000_000
    );
    let joined = server.get(&query).expect(200);
    assert_eq!(
        joined["data"]["result"][0]["metric"]["service_version"],
        Value::from("2.1"),
        "{joined}"
    );
}
