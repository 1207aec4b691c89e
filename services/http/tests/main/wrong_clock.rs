//! A server with a wrong clock: no route stores a wrong timestamp, no response makes a sender drop points that could be
//! stored later, and no delete is executed that refers to the current time.

use serde_json::json;
use tideline_model::Timestamp;

use crate::client::{NOW, Server};

const POINTS: &str = "/v1/tables/default/points";
/// Timestamp twelve seconds before [`NOW`], in seconds.
const AT: i64 = 1_795_175_988;

/// Starts a server and sets its clock back to 1971.
fn in_1971() -> Server {
    let server = Server::start();
    server.clock.set(at("1971-01-01T00:00:00Z"));
    server
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).expect("a time")
}

fn timelines(server: &Server) -> serde_json::Value {
    server.get("/v1/tables/default").expect(200)["statistics"]["timelines"].clone()
}

/// Returns routes that accept points, each with a content type, a body with a timestamp and a body without.
fn routes() -> Vec<(&'static str, &'static str, String, String)> {
    let json = |time: &str| format!(r#"[{{"measurement":"j","fields":{{"f":1}}{time}}}]"#);
    let stamped = format!(",\"time\":{AT}000000000");
    vec![
        (
            POINTS,
            "text/plain",
            format!("m f=1 {AT}000000000\n"),
            "m f=1\n".into(),
        ),
        (POINTS, "application/json", json(&stamped), json("")),
        (
            POINTS,
            "application/x-ndjson",
            json(&stamped).trim_matches(['[', ']']).into(),
            json("").trim_matches(['[', ']']).into(),
        ),
        (
            "/write?precision=s",
            "text/plain",
            format!("v1 f=1 {AT}\n"),
            "v1 f=1\n".into(),
        ),
        (
            "/api/v2/write?precision=s",
            "text/plain",
            format!("v2 f=1 {AT}\n"),
            "v2 f=1\n".into(),
        ),
        (
            "/api/v1/import/prometheus",
            "text/plain",
            format!("up 1 {AT}000\n"),
            "up 1\n".into(),
        ),
    ]
}

#[test]
fn a_point_with_a_time_is_stored_and_one_without_waits_for_the_clock() {
    let server = in_1971();
    for (path, content_type, _, without) in routes() {
        let refused = server.post(path, content_type, &without);
        assert_eq!(refused.status, 503, "{path} {content_type}: {}", refused.text());
        assert_eq!(refused.header("retry-after"), "30", "{path}");
        assert!(refused.text().contains("clock"), "{path}: {}", refused.text());
        if path == POINTS {
            let error = refused.value();
            assert_eq!(
                (&error["code"], &error["retryable"]),
                (&json!("unavailable"), &json!(true))
            );
            assert_eq!(error["rejects"][0]["retryable"], true);
        }
    }
    let refused = server.post("/metrics/job/a", "text/plain", "pushed 1\n");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "30"));
    let refused = server.send("DELETE", "/metrics/job/a", &[], b"");
    assert_eq!(refused.status, 503);
    let known = timelines(&server);
    for (path, content_type, with, _) in routes() {
        let stored = server.post(path, content_type, &with);
        assert!(
            stored.status < 300,
            "{path} {content_type}: {} {}",
            stored.status,
            stored.text()
        );
    }
    assert_ne!(timelines(&server), known);
    // No point was stored with a timestamp in 1971.
    let query =
        json!({"timelines": {"where": {"and": []}}, "range": {"start": null, "end": "2000-01-01T00:00:00Z"}});
    let found = server.json("POST", "/v1/tables/default/query", &query.to_string());
    assert!(!found.text().contains("1971"), "{}", found.text());
    // When the clock is correct again, the retried points are accepted.
    server.clock.set(at(NOW));
    for (path, content_type, _, without) in routes() {
        let stored = server.post(path, content_type, &without);
        assert!(
            stored.status < 300,
            "{path} {content_type}: {} {}",
            stored.status,
            stored.text()
        );
    }
    assert_eq!(
        server.post("/metrics/job/a", "text/plain", "pushed 1\n").status,
        200
    );
}

#[test]
fn lines_that_wait_for_the_clock_do_not_keep_the_others_from_being_stored() {
    let server = in_1971();
    let headers = [("idempotency-key", "batch-1"), ("content-type", "text/plain")];
    let body = format!("m,host=a f=1 {AT}000000000\nm,host=b f=1\nm,host=c f=\n");
    let report = server.send("POST", POINTS, &headers, body.as_bytes()).expect(200);
    let counts = [&report["points"], &report["rejected"], &report["retryable"]];
    assert_eq!(counts, [&json!(1), &json!(2), &json!(1)]);
    // The key is not used up: when the same request is repeated, the retryable points are stored.
    server.clock.set(at(NOW));
    let report = server.send("POST", POINTS, &headers, body.as_bytes()).expect(200);
    let counts = [&report["points"], &report["rejected"], &report["repeated"]];
    assert_eq!(counts, [&json!(2), &json!(1), &json!(false)]);
    server.clock.set(at("1971-01-01T00:00:00Z"));
    // InfluxDB agents drop a batch when the response contains `partial write`.
    let refused = server.post("/write", "text/plain", &body);
    assert_eq!(refused.status, 503);
    assert!(!refused.text().contains("partial write"), "{}", refused.text());
}

#[test]
fn bounds_go_by_the_trusted_time_and_doubt_is_retryable() {
    let server = Server::start();
    let settings = r#"{"name": "bound", "write_past": "1h", "write_future": "1h"}"#;
    server.json("POST", "/v1/tables", settings).expect(201);
    let write = |seconds: i64| {
        let line = format!("m f=1 {}\n", AT + seconds);
        server.post("/v1/tables/bound/points?precision=s", "text/plain", line)
    };
    write(0).expect(200);
    assert_eq!(write(7_200).expect(422)["retryable"], false);
    for wrong in ["1971-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        server.clock.set(at(wrong));
        write(0).expect(200);
        for seconds in [7_200, -7_200] {
            let refused = write(seconds);
            if seconds < 0 && wrong.starts_with("1971") || seconds > 0 && wrong.starts_with("2099") {
                // The lower bound is based on the earliest possible current time, the upper bound on the latest. The
                // timestamp is between both bounds, so it is accepted.
                refused.expect(200);
                continue;
            }
            let error = refused.expect(503);
            assert_eq!(
                (&error["code"], &error["retryable"]),
                (&json!("unavailable"), &json!(true))
            );
            assert_eq!(refused.header("retry-after"), "30");
        }
    }
    server.clock.set(at(NOW));
    assert_eq!(write(7_200).expect(422)["retryable"], false);
}

#[test]
fn nothing_is_deleted_by_a_time_that_counts_from_a_wrong_clock() {
    let server = Server::start();
    let lines = format!("m,host=a f=1 {AT}\n");
    assert_eq!(server.post("/write?precision=s", "text/plain", lines).status, 204);
    server.clock.set(at("2099-01-01T00:00:00Z"));
    let delete = |range: serde_json::Value| {
        let request = json!({"timelines": {"where": {"and": []}}, "range": range});
        server.json("POST", "/v1/tables/default/points/delete", &request.to_string())
    };
    let refused = delete(json!({"start": null, "end": "now-30d"}));
    assert_eq!(refused.expect(503)["retryable"], true);
    let old = json!({"timelines": {"where": {"property": "last_seen", "range": {"end": "now-30d"}}}});
    let refused = server.json("POST", "/v1/tables/default/timelines/delete", &old.to_string());
    assert_eq!(refused.expect(503)["retryable"], true);
    assert_eq!(timelines(&server), 1);
    delete(json!({"start": null, "end": "2001-01-01T00:00:00Z"})).expect(200);
}
