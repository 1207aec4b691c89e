//! How points age and go: policies, previews, deletes, statistics, the clock.

use serde_json::{Value, json};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{Clock as _, Timestamp};

use crate::client::Server;

/// 2026-11-20T12:00:00Z, when every test takes place.
const NOW: i64 = 1_795_176_000;
const DAY: i64 = 86_400;
const TABLE: &str = "/v1/tables/ages";

/// A table with one sealed point of a host on each of some days before now.
fn aged(policy: &Value, days: &[i64]) -> Server {
    let server = Server::start();
    let create = json!({"name": "ages", "policy": policy}).to_string();
    server.json("POST", "/v1/tables", &create).expect(201);
    let line = |day: &i64| format!("age,host=a days={day}i {}\n", NOW - day * DAY);
    let lines: String = days.iter().map(line).collect();
    write(&server, &lines);
    seal(&server);
    server
}

fn write(server: &Server, lines: &str) {
    let report = server
        .post(&format!("{TABLE}/points?precision=s"), "text/plain", lines)
        .expect(200);
    assert_eq!(report["rejected"], 0, "{report}");
}

fn seal(server: &Server) {
    server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
}

fn alter(server: &Server, policy: &Value) -> Value {
    let body = json!({"policy": policy}).to_string();
    server.json("PATCH", TABLE, &body).expect(200)["policy"].clone()
}

fn ages(server: &Server) -> Vec<i64> {
    let answer = server
        .json("POST", &format!("{TABLE}/query"), r#"{"order": "desc"}"#)
        .expect(200);
    let series = answer["series"].as_array().expect("a list");
    let mut ages: Vec<i64> = series
        .iter()
        .flat_map(|series| series["points"].as_array().expect("rows"))
        .map(|row| row[1].as_i64().expect("a number"))
        .collect();
    ages.sort_unstable();
    ages
}

fn statistics(server: &Server) -> Value {
    server.get(TABLE).expect(200)["statistics"].clone()
}

#[test]
fn a_policy_is_set_shown_and_changed_member_by_member() {
    let server = Server::start();
    let default = server.get("/v1/tables/default").expect(200);
    let plain = json!({
        "hot_ttl": "7d", "cold_ttl": null, "retention": null, "timeline_ttl": null, "migrate": "continuous",
        "expire": "continuous", "move_bytes_per_second": null, "timelines_per_minute": null
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
    assert_eq!(other["policy"], expected, "what is not named stays");
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
            .is_some_and(|text| text.contains("`hot_tll`"))
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
fn a_preview_says_what_a_policy_would_do_and_does_nothing() {
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
        "a day to think about it"
    );
    assert_eq!(ages(&server), [1, 5, 10, 20, 40]);
    assert_eq!(server.get(TABLE).expect(200)["policy"]["hot_ttl"], Value::Null);
    let body = |text: &str| server.json("POST", "/v1/policies/preview", text);
    assert_eq!(body(r#"{"table": "nobody"}"#).expect(404)["code"], "not_found");
    assert_eq!(body(r#"{"policy": {}}"#).expect(400)["code"], "invalid");
    assert_eq!(
        body(r#"{"table": "ages", "polcy": {}}"#).expect(400)["code"],
        "invalid"
    );
}

#[test]
fn deleted_points_are_gone_and_what_is_written_later_is_there() {
    let server = aged(&json!({"hot_ttl": "3d"}), &[20, 10, 5, 1]);
    write(&server, &format!("age,host=b days=2i {}\n", NOW - 2 * DAY));
    let delete = json!({
        "timelines": {"where": {"tag": "host", "equals": "a"}},
        "range": {"start": "now-12d", "end": "now-4d"}
    })
    .to_string();
    for _ in 0..2 {
        let report = server
            .json("POST", &format!("{TABLE}/points/delete"), &delete)
            .expect(200);
        assert_eq!(report["timelines"], 1);
        assert_eq!(ages(&server), [1, 2, 20]);
    }
    let statistics = statistics(&server);
    assert!(
        statistics["deletes_waiting"].as_u64() > Some(0)
            && statistics["bytes_with_deletes"].as_u64() > Some(0),
        "{statistics}"
    );
    write(&server, &format!("age,host=a days=5i {}\n", NOW - 5 * DAY));
    assert_eq!(ages(&server), [1, 2, 5, 20]);
    let purge = r#"{"kind": "purge", "table": "ages", "wait": true}"#;
    server.json("POST", "/v1/jobs", purge).expect(200);
    seal(&server);
    assert_eq!(ages(&server), [1, 2, 5, 20]);
    let everything = r#"{"timelines": {"where": {"and": []}}, "range": {"start": null, "end": null}}"#;
    let report = server
        .json("POST", &format!("{TABLE}/points/delete"), everything)
        .expect(200);
    assert_eq!((&report["timelines"], ages(&server)), (&json!(2), Vec::new()));
    let found = server.get(&format!("{TABLE}/timelines")).expect(200);
    assert_eq!(found["total"], 2, "timelines stay without points");
}

#[test]
fn a_delete_that_does_not_say_what_it_means_is_refused() {
    let server = aged(&json!({}), &[5, 1]);
    let ids = "\"timelines\": {\"where\": {\"and\": []}}";
    for (path, body, status) in [
        ("points", format!("{{{ids}}}"), 400),
        ("points", format!("{{{ids}, \"range\": {{}}}}"), 400),
        ("points", format!("{{{ids}, \"range\": {{\"start\": 0}}}}"), 400),
        (
            "points",
            format!("{{{ids}, \"range\": {{\"start\": 5, \"end\": 5}}}}"),
            400,
        ),
        (
            "points",
            r#"{"range": {"start": null, "end": null}}"#.to_owned(),
            400,
        ),
        (
            "points",
            r#"{"timelines": {}, "range": {"start": null, "end": null}}"#.to_owned(),
            400,
        ),
        ("timelines", "{}".to_owned(), 400),
        ("timelines", r#"{"timelines": {"ids": ["xyz"]}}"#.to_owned(), 400),
        (
            "timelines",
            format!("{{{ids}, \"range\": {{\"start\": 0, \"end\": 1}}}}"),
            400,
        ),
        (
            "timelines",
            format!("{{\"timelines\": {{\"ids\": [\"{}\"]}}}}", "0".repeat(32)),
            404,
        ),
    ] {
        let answer = server.json("POST", &format!("{TABLE}/{path}/delete"), &body);
        assert!(answer.expect(status)["message"].is_string(), "{path} {body}");
    }
    server
        .json(
            "POST",
            "/v1/tables/nobody/points/delete",
            &format!("{{{ids}, \"range\": {{\"start\": null, \"end\": null}}}}"),
        )
        .expect(404);
    assert_eq!(ages(&server), [1, 5]);
}

#[test]
fn deleted_timelines_are_gone_and_come_back_when_they_are_written() {
    let server = aged(&json!({}), &[5, 1]);
    write(
        &server,
        &format!("age,host=b days=2i {0}\nage,host=c days=3i {0}\n", NOW - 2 * DAY),
    );
    let sources = || {
        let search = r#"{"sort": [{"tag": "host"}]}"#;
        let found = server
            .json("POST", &format!("{TABLE}/timelines/search"), search)
            .expect(200);
        let timelines = found["timelines"].as_array().expect("a list").clone();
        timelines
            .iter()
            .map(|timeline| timeline["source"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let id_of = |host: &str| {
        let found = server
            .get(&format!("{TABLE}/timelines?source={host}"))
            .expect(200);
        found["timelines"][0]["id"].as_str().expect("an id").to_owned()
    };
    let (b, c) = (id_of("b"), id_of("c"));
    for (selector, count) in [
        (json!({"ids": [b]}), 1),
        (json!({"where": {"tag": "host", "equals": "b"}}), 0),
    ] {
        let delete = json!({"timelines": selector}).to_string();
        let report = server
            .json("POST", &format!("{TABLE}/timelines/delete"), &delete)
            .expect(200);
        assert_eq!(
            report["timelines"], count,
            "the second time there is nothing left"
        );
        assert_eq!(
            (sources(), ages(&server)),
            (vec!["a".to_owned(), "c".to_owned()], vec![1, 3, 5])
        );
    }
    server.get(&format!("{TABLE}/timelines/{b}")).expect(404);
    let path = format!("{TABLE}/timelines/{c}");
    assert_eq!(server.send("DELETE", &path, &[], b"").status, 204);
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(
        server
            .send("DELETE", &format!("{TABLE}/timelines/xyz"), &[], b"")
            .status,
        400
    );
    assert_eq!((sources(), ages(&server)), (vec!["a".to_owned()], vec![1, 5]));
    write(&server, &format!("age,host=c days=0i {NOW}\n"));
    assert_eq!(
        (sources(), ages(&server)),
        (vec!["a".to_owned(), "c".to_owned()], vec![0, 1, 5])
    );
    assert_eq!(id_of("c"), c, "it comes back with its id");
}

#[test]
fn statistics_tell_the_tiers_apart() {
    let server = aged(&json!({"hot_ttl": "3d"}), &[40, 20, 5, 2, 1]);
    write(&server, &format!("age,host=a days=0i {NOW}\n"));
    let statistics = statistics(&server);
    let tiers = &statistics["tiers"];
    let points = ["head", "hot", "cold"].map(|tier| tiers[tier]["points"].as_u64());
    assert_eq!(points, [Some(1), Some(2), Some(3)], "{statistics}");
    assert_eq!(statistics["sealed_points"], 5);
    assert_eq!(tiers["cold"]["oldest"], "2026-10-11T12:00:00Z");
    assert_eq!(tiers["cold"]["newest"], "2026-11-15T12:00:00Z");
    assert_eq!(tiers["hot"]["newest"], statistics["sealed_to"]);
    assert_eq!(tiers["head"]["newest"], crate::client::NOW);
    assert_eq!(
        (&tiers["hot"]["windows"], &tiers["hot"]["segments"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(statistics["loaded_bytes"], statistics["sealed_bytes"]);
    assert_eq!(statistics["write_amplification"], 1.0);
    assert_eq!(
        (&statistics["visible_from"], &statistics["expired_bytes"]),
        (&Value::Null, &json!(0))
    );
    let default = server.get("/v1/tables/default").expect(200);
    assert_eq!(default["statistics"]["write_amplification"], Value::Null);
}

#[test]
fn busy_ranges_and_large_machines_are_named() {
    let server = Server::start();
    let quiet = server.get("/v1/tables/default/hot-ranges").expect(200);
    assert_eq!(quiet["hot_ranges"], json!([]));
    // A range is counted machine by machine from the slot on in which it was first hot.
    for slot in 0..3 {
        let mut lines = String::new();
        for host in 0..50 {
            lines.push_str(&format!("load,host=quiet-{host} f={slot}i {}\n", NOW + slot));
        }
        for point in 0..2_000 {
            lines.push_str(&format!(
                "load,host=busy f={point}i {}\n",
                NOW - slot * 2_000 - point
            ));
        }
        server
            .post("/v1/tables/default/points?precision=s", "text/plain", &lines)
            .expect(200);
        server.clock.advance(6_000_000_000);
    }
    let hot = server.get("/v1/tables/default/hot-ranges").expect(200);
    let range = &hot["hot_ranges"][0];
    assert!(range["share_of_writes"].as_f64() > Some(0.9), "{hot}");
    assert_eq!(range["sources"][0], "busy");
    assert!(range["from"].as_str() < range["to"].as_str());
    seal(&server);
    let partitions = server.get("/v1/tables/default/partitions").expect(200);
    let largest = &partitions["partitions"][0];
    assert_eq!(
        (&largest["source"], &largest["warning"]),
        (&json!("busy"), &Value::Null),
        "{partitions}"
    );
    assert_eq!(largest["prefix"].as_str().map(str::len), Some(16));
    for path in ["hot-ranges", "partitions"] {
        assert_eq!(
            server.get(&format!("/v1/tables/nobody/{path}")).expect(404)["code"],
            "not_found"
        );
    }
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
    for (path, status) in [
        ("/write?db=ages&precision=s", 503),
        ("/api/v2/write?bucket=ages&precision=s", 429),
    ] {
        let refused = server.post(path, "text/plain", lines(0, 9));
        assert_eq!(refused.status, status, "{path}: {}", refused.text());
        assert!(
            !refused.text().contains("partial write"),
            "agents would drop the batch: {}",
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
fn a_clock_in_doubt_is_told_and_can_be_confirmed() {
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
fn metrics_tell_the_tiers_apart() {
    let server = aged(&json!({"hot_ttl": "3d"}), &[40, 20, 5, 2, 1]);
    server
        .json("POST", "/v1/jobs", r#"{"kind": "migrate", "wait": true}"#)
        .expect(200);
    let text = server.get("/metrics").text();
    for line in [
        "tideline_tier_points{tier=\"hot\"} 2",
        "tideline_tier_points{tier=\"cold\"} 3",
        "tideline_tier_segments{tier=\"cold\"} 3",
        "tideline_tier_windows{tier=\"hot\"} 2",
        "tideline_tier_oldest_timestamp_seconds{tier=\"cold\"} 17917",
        "tideline_seal_loaded_bytes_total{tier=\"cold\"} ",
        "tideline_rewrite_loaded_bytes_total{tier=\"cold\"} 0",
        "tideline_deletes_waiting 0",
        "tideline_expired_bytes 0",
        "tideline_jobs{state=\"planned\"} ",
        "tideline_jobs_due{kind=\"fold\"} 0",
        "tideline_jobs_ended_total{state=\"done\"} ",
        "tideline_cache_bytes{tier=\"cold\"} ",
        "tideline_cold_queries_waiting 0",
        "tideline_clock_in_doubt 0",
    ] {
        assert!(
            text.lines().any(|have| have.starts_with(line)),
            "{line} is missing from\n{text}"
        );
    }
}
