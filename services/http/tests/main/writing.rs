//! Writes on the native route: all formats, reports about rejected points, repeated requests.
//!
//! Points without a timestamp get the time of arrival or the `time` of the request.

use serde_json::json;

use crate::client::{Server, gzip};

const POINTS: &str = "/v1/tables/default/points";

#[test]
fn every_form_and_encoding_is_stored() {
    let server = Server::start();
    let lines =
        "cpu,host=a usage=1.5,n=2i 1795176000000000000\ncpu,host=b usage=2.5,n=3i 1795176000000000000\n";
    let zstd = zstd::stream::encode_all(lines.as_bytes(), 1).expect("writes to memory");
    let ndjson = "{\"measurement\":\"cpu\",\"tags\":{\"host\":\"c\"},\"fields\":{\"usage\":1.0}}\n";
    let points = r#"{"precision":"s","points":[{"measurement":"cpu","tags":{"host":"d"},"time":1795176000,
        "fields":{"usage":1.5,"big":{"unsigned":"18446744073709551615"},"ok":true,"s":"text"}}]}"#;
    for (content_type, encoding, body, points, values) in [
        (
            "text/plain; charset=utf-8",
            "identity",
            lines.as_bytes().to_vec(),
            2,
            4,
        ),
        ("text/plain", "gzip", gzip(lines.as_bytes()), 2, 4),
        ("text/plain", "zstd", zstd, 2, 4),
        (
            "application/x-www-form-urlencoded",
            "",
            lines.as_bytes().to_vec(),
            2,
            4,
        ),
        ("application/x-ndjson", "gzip", gzip(ndjson.as_bytes()), 1, 1),
        ("application/json", "identity", points.as_bytes().to_vec(), 1, 4),
        ("text/plain", "gzip", Vec::new(), 0, 0),
    ] {
        let headers = [("content-type", content_type), ("content-encoding", encoding)];
        let report = server.send("POST", POINTS, &headers, &body).expect(200);
        assert_eq!(report["points"], points, "{content_type} {encoding}");
        assert_eq!(report["values"], values, "{content_type} {encoding}");
        assert_eq!(report["rejected"], 0);
        assert!(report["request_id"].is_string());
    }
    let table = server.get("/v1/tables/default").expect(200);
    assert_eq!(table["statistics"]["timelines"], 4);
    let fields = server
        .get("/v1/tables/default/fields?measurement=cpu")
        .expect(200);
    let types: Vec<_> = fields["fields"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|field| &field["types"][0])
        .collect();
    assert_eq!(types, ["unsigned", "integer", "boolean", "string", "float"]);
}

#[test]
fn bad_points_are_reported_by_line_and_good_ones_stored() {
    let server = Server::start();
    let report = server
        .post(POINTS, "text/plain", "m f=1\nm f=\nm f=3\n")
        .expect(200);
    assert_eq!(report["points"], 2);
    assert_eq!(report["rejected"], 1);
    assert_eq!(report["rejects"][0]["line"], 2);
    assert!(
        report["rejects"][0]["excerpt"]
            .as_str()
            .is_some_and(|text| text.starts_with("m f="))
    );
    let error = server
        .post(POINTS, "text/plain", "m f=\nm f=\"text\"\n")
        .expect(422);
    assert_eq!(error["code"], "all_rejected");
    assert_eq!(error["retryable"], false);
    assert_eq!(error["rejects"][1]["line"], 2);
    assert!(
        error["rejects"][1]["reason"]
            .as_str()
            .is_some_and(|text| text.starts_with("field type conflict"))
    );
    let error = server
        .post(POINTS, "application/json", "{\"points\":")
        .expect(400);
    assert_eq!(error["code"], "invalid");
    let error = server
        .post("/v1/tables/none/points", "text/plain", "m f=1")
        .expect(404);
    assert_eq!(error["code"], "not_found");
    let error = server
        .post(&format!("{POINTS}?precision=days"), "text/plain", "m f=1")
        .expect(400);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("days"))
    );
    let error = server
        .post(&format!("{POINTS}?presision=s"), "text/plain", "m f=1")
        .expect(400);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("presision"))
    );
    let error = server.post(POINTS, "application/pdf", "m f=1").expect(415);
    assert_eq!(error["code"], "unsupported_media_type");
}

#[test]
fn a_repeated_request_gets_its_response_and_is_not_done_again() {
    let server = Server::start();
    let headers = [("idempotency-key", "batch-7"), ("content-type", "text/plain")];
    let first = server.send("POST", POINTS, &headers, b"m f=1\nbad\n").expect(200);
    let again = server.send("POST", POINTS, &headers, b"m f=1\nbad\n").expect(200);
    assert_eq!(
        (&first["repeated"], &again["repeated"]),
        (&json!(false), &json!(true))
    );
    for member in ["points", "rejected", "rejects"] {
        assert_eq!(first[member], again[member], "{member}");
    }
    assert_eq!(
        server.get("/v1/tables/default").expect(200)["statistics"]["timelines"],
        1
    );
    let precise = format!("{POINTS}?precision=s");
    for (path, body) in [
        (POINTS, "other f=1\n"),
        (POINTS, "m f=1\nbad"),
        (&precise, "m f=1\nbad\n"),
    ] {
        let refused = server.send("POST", path, &headers, body.as_bytes()).expect(422);
        assert_eq!(refused["code"], "idempotency_key_reused", "{path} {body:?}");
        assert_eq!(refused["retryable"], false);
    }
    assert_eq!(
        server.get("/v1/tables/default").expect(200)["statistics"]["timelines"],
        1
    );
    let long = "k".repeat(256);
    let error = server
        .send("POST", POINTS, &[("idempotency-key", &long)], b"m f=1")
        .expect(400);
    assert_eq!((&error["limit"], &error["actual"]), (&json!(255), &json!(256)));
}

#[test]
fn points_without_a_time_get_that_of_their_arrival() {
    let server = Server::start();
    server.post(POINTS, "text/plain", "m,host=a f=1").expect(200);
    let found = server.get("/v1/tables/default/timelines").expect(200);
    assert_eq!(found["timelines"][0]["last_seen"], crate::client::NOW);
}

#[test]
fn a_retry_can_state_when_points_without_a_time_were_first_sent() {
    let server = Server::start();
    let path = format!("{POINTS}?precision=s&time=1700000000987654321");
    for _ in 0..2 {
        server.clock.advance(5_000_000_000);
        server
            .post(&path, "text/plain", "m,host=a f=1\nm,host=a f=2 1600000000")
            .expect(200);
    }
    let found = server.get("/v1/tables/default/timelines").expect(200);
    assert_eq!(
        found["timelines"][0]["last_seen"], "2023-11-14T22:13:20Z",
        "truncated to whole units"
    );
    let count = json!({"range": {}, "aggregate": {"functions": ["count"]}});
    let response = server
        .post("/v1/tables/default/query", "application/json", count.to_string())
        .expect(200);
    assert!(
        response.to_string().contains(",2]"),
        "the repeated write overwrites the points: {response}"
    );
    let wrong = server
        .post(
            &format!("{POINTS}?time=9223372036854775807"),
            "text/plain",
            "m f=1",
        )
        .expect(400);
    assert!(
        wrong["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("time: ")),
        "{wrong}"
    );
}
