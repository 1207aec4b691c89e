//! Policies: changes, refusals, previews, hidden points, and the trusted clock.
//!
//! Also covers the limits of new timelines per minute and the default limits of tables.

use serde_json::{Value, json};
use tideline_engine::TableLimits;
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{Clock as _, Timestamp};

use crate::ages::{DAY, NOW, TABLE, aged, ages, statistics};
use crate::client::Server;

fn alter(server: &Server, policy: &Value) -> Value {
    let body = json!({"policy": policy}).to_string();
    server.json("PATCH", TABLE, &body).expect(200)["policy"].clone()
}

#[test]
fn a_policy_is_set_shown_and_changed_member_by_member() {
    let server = Server::start();
    let default = server.get("/v1/tables/default").expect(200);
    let plain = json!({
        "hot_ttl": "7d", "cold_ttl": null, "retention": null, "archive": null, "timeline_ttl": null,
        "migrate": "continuous", "expire": "continuous", "move_bytes_per_second": null, "timelines_per_minute": null
    });
    assert_eq!(default["policy"], plain);
    let policy = json!({
        "hot_ttl": "2d", "cold_ttl": "30d", "retention": "90d", "timeline_ttl": "1y",
        "migrate": {"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}, "expire": {"cron": "30 4 * * SUN"},
        "move_bytes_per_second": 1_000_000, "timelines_per_minute": 500
    });
    let create = json!({"name": "ages", "policy": policy}).to_string();
    let created = server.json("POST", "/v1/tables", &create).expect(201);
    let mut expected = policy.clone();
    expected["archive"] = Value::Null;
    expected["timeline_ttl"] = json!("365d");
    expected["expire"]["time_zone"] = json!("UTC");
    assert_eq!(created["policy"], expected);
    let changed = alter(
        &server,
        &json!({"retention": null, "migrate": null, "timelines_per_minute": 7}),
    );
    expected["retention"] = Value::Null;
    expected["migrate"] = json!("continuous");
    expected["timelines_per_minute"] = json!(7);
    assert_eq!(changed, expected);
    let other = server.json("PATCH", TABLE, r#"{"write_past": "1d"}"#).expect(200);
    assert_eq!(other["policy"], expected, "omitted settings stay");
}

#[test]
fn a_wrong_policy_is_refused_by_member_and_nothing_changes() {
    let server = aged(&json!({"hot_ttl": "7d"}), &[1]);
    let before = server.get(TABLE).expect(200)["policy"].clone();
    for (policy, member, said) in [
        (json!({"hot_ttl": "7 days"}), "hot_ttl", "such as \"7d\""),
        (json!({"retention": "0s"}), "retention", "above zero"),
        (json!({"cold_ttl": "7d"}), "cold_ttl", "not above hot_ttl"),
        (json!({"cold_ttl": "30d", "hot_ttl": null}), "cold_ttl", "hot_ttl"),
        (json!({"migrate": {"cron": "60 3 * * *"}}), "migrate", "0 3 * * *"),
        (
            json!({"expire": {"cron": "0 3 * * *", "time_zone": "Berlin"}}),
            "expire",
            "did you mean Europe/Berlin?",
        ),
        (
            json!({"timelines_per_minute": 0}),
            "timelines_per_minute",
            "from 1",
        ),
        (
            json!({"move_bytes_per_second": "fast"}),
            "move_bytes_per_second",
            "1000000",
        ),
    ] {
        for (method, path, body) in [
            ("PATCH", TABLE, json!({"policy": policy})),
            ("POST", "/v1/tables", json!({"name": "other", "policy": policy})),
            (
                "POST",
                "/v1/policies/preview",
                json!({"table": "ages", "policy": policy}),
            ),
        ] {
            let error = server.json(method, path, &body.to_string()).expect(400);
            let message = error["message"].as_str().expect("a text");
            assert!(
                message.contains(&format!("policy.{member}: ")) && message.contains(said),
                "{method} {path} {body}: {message}"
            );
        }
    }
    let unknown = server
        .json("PATCH", TABLE, r#"{"policy": {"hot_tll": "7d"}}"#)
        .expect(400);
    assert!(
        unknown["message"]
            .as_str()
            .is_some_and(|text| text.contains("\"hot_tll\""))
    );
    assert_eq!(server.get(TABLE).expect(200)["policy"], before);
    server.get("/v1/tables/other").expect(404);
}

#[test]
fn a_shorter_policy_hides_at_once_and_a_longer_one_shows_again() {
    let server = aged(&json!({"hot_ttl": "3d"}), &[40, 20, 10, 5, 1]);
    for (policy, seen) in [
        (json!({"retention": "30d"}), &[1, 5, 10, 20][..]),
        (json!({"cold_ttl": "7d"}), &[1, 5][..]),
        (json!({"cold_ttl": null}), &[1, 5, 10, 20][..]),
        (json!({"retention": null}), &[1, 5, 10, 20, 40][..]),
    ] {
        alter(&server, &policy);
        assert_eq!(ages(&server), seen, "{policy}");
    }
    alter(&server, &json!({"retention": "30d"}));
    let statistics = statistics(&server);
    assert_eq!(statistics["visible_from"], "2026-10-21T12:00:00Z");
    assert!(statistics["expired_bytes"].as_u64() > Some(0), "{statistics}");
    let late = format!("age,host=a days=31i {}\n", NOW - 31 * DAY);
    let error = server
        .post(&format!("{TABLE}/points?precision=s"), "text/plain", late)
        .expect(422);
    assert!(
        error["rejects"][0]["reason"]
            .as_str()
            .is_some_and(|text| text.contains("retention of 30d")),
        "{error}"
    );
}

#[test]
fn a_preview_reports_the_effects_of_a_policy_and_changes_nothing() {
    let server = aged(&json!({"hot_ttl": null}), &[40, 20, 10, 5, 1]);
    let preview = |body: Value| {
        server
            .json("POST", "/v1/policies/preview", &body.to_string())
            .expect(200)
    };
    let as_it_is = preview(json!({"table": "ages"}));
    assert_eq!(as_it_is["now"], crate::client::NOW);
    for kind in ["migrate", "hide", "free"] {
        assert_eq!(as_it_is[kind]["points"], 0, "{as_it_is}");
    }
    let shown = preview(json!({"table": "ages", "policy": {"hot_ttl": "7d", "retention": "30d"}}));
    assert_eq!(
        (&shown["policy"]["hot_ttl"], &shown["policy"]["retention"]),
        (&json!("7d"), &json!("30d"))
    );
    assert_eq!(shown["visible_from"], "2026-10-21T12:00:00Z");
    let counts = |kind: &str, what: &str| shown[kind][what].as_u64().expect("a number");
    assert_eq!(
        (counts("migrate", "points"), counts("migrate", "windows")),
        (2, 2),
        "{shown}"
    );
    assert_eq!(
        (counts("hide", "points"), counts("free", "points")),
        (1, 1),
        "{shown}"
    );
    assert!(counts("free", "bytes") > 0 && counts("free", "timelines") == 1);
    assert_eq!(
        shown["migrate"]["first_windows"],
        json!([
            {"start": "2026-10-31T00:00:00Z", "end": "2026-11-01T00:00:00Z"},
            {"start": "2026-11-10T00:00:00Z", "end": "2026-11-11T00:00:00Z"}
        ])
    );
    assert_eq!(
        shown["free"]["begins"], "2026-11-21T12:00:00Z",
        "deletion starts after a day"
    );
    assert_eq!(ages(&server), [1, 5, 10, 20, 40]);
    assert_eq!(server.get(TABLE).expect(200)["policy"]["hot_ttl"], Value::Null);
    let body = |text: &str| server.json("POST", "/v1/policies/preview", text);
    assert_eq!(body(r#"{"table": "unknown"}"#).expect(404)["code"], "not_found");
    assert_eq!(body(r#"{"policy": {}}"#).expect(400)["code"], "invalid");
    assert_eq!(
        body(r#"{"table": "ages", "polcy": {}}"#).expect(400)["code"],
        "invalid"
    );
}

#[test]
fn a_preview_counts_points_that_are_not_sealed_yet() {
    let server = aged(&json!({"hot_ttl": null}), &[45, 9]);
    // Two of the unsealed points are overwritten, one is deleted, and one is within the day that is only partly
    // expired.
    let line = |days: i64| format!("age,host=a days={days}i {}\n", NOW - days * DAY);
    let hidden_today = format!("age,host=a days=30i {}\n", NOW - 30 * DAY - 60);
    let lines: String = [40, 35, 35, 20, 20, 10, 5, 1].map(line).concat();
    crate::ages::write(&server, &format!("{lines}{hidden_today}"));
    let delete = json!({
        "timelines": {"where": {"tag": "host", "equals": "a"}},
        "range": {"start": "now-10d", "end": "now-9d"}
    });
    server
        .json("POST", &format!("{TABLE}/points/delete"), &delete.to_string())
        .expect(200);
    let policy = json!({"hot_ttl": "7d", "retention": "30d"});
    let shown = server
        .json(
            "POST",
            "/v1/policies/preview",
            &json!({"table": "ages", "policy": policy}).to_string(),
        )
        .expect(200);
    // Sealed: the point of 45 days is hidden and freed, the point of 9 days migrates. Unsealed: the points of 40, 35
    // and 30 days are hidden, and the points of 40 and 35 days are freed, because their whole day has expired. The
    // points of 30 and 20 days migrate.
    assert_eq!(
        shown["unsealed"],
        json!({"migrate": 2, "archive": 0, "hide": 3, "free": 2}),
        "{shown}"
    );
    let points = |kind: &str| shown[kind]["points"].as_u64().expect("a number");
    assert_eq!(
        (points("migrate"), points("hide"), points("free")),
        (3, 4, 3),
        "{shown}"
    );
    assert_eq!(shown["hide"]["values"], 4);
    let before = ages(&server);
    alter(&server, &policy);
    let after = ages(&server);
    assert_eq!(
        (before.len() - after.len()) as u64,
        points("hide"),
        "the preview gives the number of hidden points: {before:?} {after:?}"
    );
    assert_eq!(after, [1, 5, 9, 20]);
}

#[test]
fn new_timelines_beyond_the_limit_are_refused_for_now() {
    let server = aged(&json!({"timelines_per_minute": 3}), &[1]);
    let lines = |from: i64, to: i64| -> String {
        let line = |pod: i64| format!("age,host=a,pod=p{pod} days=0i {NOW}\n");
        (from..to).map(line).collect()
    };
    let path = format!("{TABLE}/points?precision=s");
    let report = server.post(&path, "text/plain", lines(0, 5)).expect(200);
    assert_eq!(
        (&report["points"], &report["rejected"], &report["retryable"]),
        (&json!(2), &json!(3), &json!(3)),
        "{report}"
    );
    let reason = report["rejects"][0]["reason"].as_str().expect("a text");
    assert!(
        reason.contains("`pod`") && reason.contains("3 new timelines a minute"),
        "{reason}"
    );
    let refused = server.post(&path, "text/plain", lines(5, 7));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(
        (&refused.value()["code"], &refused.value()["retryable"]),
        (&json!("too_many_timelines"), &json!(true))
    );
    assert!(!refused.header("retry-after").is_empty());
    // The response distinguishes permanently rejected lines from retryable lines.
    let mixed = format!("nonsense\n{}", lines(5, 7));
    let refused = server.post(&path, "text/plain", mixed);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let response = refused.value();
    assert_eq!(
        (&response["code"], &response["retryable"]),
        (&json!("all_rejected"), &json!(true))
    );
    assert!(!refused.header("retry-after").is_empty());
    let marks: Vec<_> = response["rejects"]
        .as_array()
        .expect("named")
        .iter()
        .map(|reject| reject.get("retryable").cloned())
        .collect();
    assert_eq!(marks, [None, Some(json!(true)), Some(json!(true))]);
    let refused = server.post(&path, "text/plain", "nonsense\n");
    assert_eq!(
        (refused.status, &refused.value()["retryable"]),
        (422, &json!(false))
    );
    for (path, status) in [
        ("/write?db=ages&precision=s", 503),
        ("/api/v2/write?bucket=ages&precision=s", 429),
    ] {
        let refused = server.post(path, "text/plain", lines(0, 9));
        assert_eq!(refused.status, status, "{path}: {}", refused.text());
        assert!(
            !refused.text().contains("partial write"),
            "InfluxDB agents would drop the batch: {}",
            refused.text()
        );
    }
    server.clock.advance(80_000_000_000);
    let report = server.post(&path, "text/plain", lines(5, 7)).expect(200);
    assert_eq!((&report["points"], &report["retryable"]), (&json!(2), &json!(0)));
    let metrics = server.get("/metrics").text();
    assert!(
        metrics.contains("\ntideline_timelines_refused_total "),
        "{metrics}"
    );
}

#[test]
fn a_clock_in_doubt_is_reported_and_can_be_confirmed() {
    let server = aged(&json!({}), &[1]);
    let clock = server.get("/v1/clock").expect(200);
    assert_eq!(
        (&clock["wall"], &clock["trusted"]),
        (&json!(crate::client::NOW), &json!(crate::client::NOW))
    );
    assert_eq!(
        (&clock["doubt"], &clock["expires_by"]),
        (&Value::Null, &json!("2026-11-19T13:00:00Z"))
    );
    let wrong = server.clock.now().nanos() + 365 * NANOS_PER_DAY;
    server.clock.set(Timestamp::from_nanos_clamped(wrong));
    let clock = server.get("/v1/clock").expect(200);
    assert_eq!(
        (&clock["trusted"], &clock["expires_by"]),
        (&json!(crate::client::NOW), &Value::Null)
    );
    assert!(
        clock["doubt"]["reason"]
            .as_str()
            .is_some_and(|text| text.contains("365d ahead")),
        "{clock}"
    );
    let ready = server.get("/ready").expect(200);
    assert!(ready["reasons"].to_string().contains("clock"), "{ready}");
    assert!(
        server
            .get("/metrics")
            .text()
            .contains("tideline_clock_in_doubt 1")
    );
    let confirmed = server.send("POST", "/v1/clock/confirm", &[], b"").expect(200);
    assert_eq!(
        (&confirmed["trusted"], &confirmed["doubt"]),
        (&json!("2027-11-20T12:00:00Z"), &Value::Null)
    );
}

#[test]
fn tables_and_their_timelines_have_default_limits() {
    let server = Server::with_tables(TableLimits {
        timelines_per_minute: 3,
        tables_max: 2,
        ..TableLimits::default()
    });
    assert_eq!(
        server.json("POST", "/v1/tables", r#"{"name": "second"}"#).status,
        201
    );
    let refused = server.json("POST", "/v1/tables", r#"{"name": "third"}"#);
    let error = refused.value();
    assert_eq!(
        (refused.status, &error["code"], &error["limit"], &error["actual"]),
        (400, &json!("over_limit"), &json!(2), &json!(3))
    );
    assert!(refused.text().contains("tables.count_max"), "{error}");
    let lines =
        |from: i64, to: i64| -> String { (from..to).map(|pod| format!("m,pod=p{pod} a=1\n")).collect() };
    let path = "/v1/tables/default/points";
    server.post(path, "text/plain", lines(0, 3)).expect(200);
    let refused = server.post(path, "text/plain", lines(3, 5));
    assert_eq!(
        (
            refused.status,
            &refused.value()["code"],
            &refused.value()["retryable"]
        ),
        (429, &json!("too_many_timelines"), &json!(true))
    );
    server.post(path, "text/plain", lines(0, 3)).expect(200);
    let metrics = server.get("/metrics").text();
    for name in [
        "tideline_timelines_refused_total 2",
        "tideline_timelines_oversized_total 0",
    ] {
        assert!(metrics.contains(name), "{metrics}");
    }
}
