//! Statistics of tiers, hot ranges and large machines. Also checks that cold queries do not block hot queries.
//!
//! The metrics must report each tier separately.

use std::io::Write as _;

use serde_json::{Value, json};
use tideline_http::HttpSettings;
use tideline_query::QuerySettings;

use crate::ages::{NOW, TABLE, aged, aged_with, seal, statistics, write};
use crate::client::Server;

#[test]
fn statistics_distinguish_the_tiers() {
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
fn the_number_of_rows_is_unknown_until_a_survey() {
    let server = Server::start();
    let table = json!({"name": "t", "model": "wide", "wide": {"key": [{"name": "id", "type": "string"}]}});
    server.json("POST", "/v1/tables", &table.to_string()).expect(201);
    let rows = json!({"rows": [{"op": "put", "key": {"id": "a"}, "columns": {"n": 1}}, {"op": "put", "key": {"id": "b"}}]});
    server
        .json("POST", "/v1/tables/t/rows", &rows.to_string())
        .expect(200);
    seal(&server);
    let of_rows = || server.get("/v1/tables/t").expect(200)["statistics"]["rows"].clone();
    let has_hot_bytes = || {
        let metrics = String::from_utf8(server.get("/metrics").body).expect("text");
        assert!(metrics.contains("tideline_table_cold_bytes{table=\"t\"} 0"));
        metrics.contains("tideline_table_hot_bytes{table=\"t\"}")
    };
    assert_eq!((of_rows(), has_hot_bytes()), (Value::Null, false));
    let job = json!({"kind": "survey_rows", "table": "t", "wait": true}).to_string();
    server.json("POST", "/v1/jobs", &job).expect(200);
    let counted = of_rows();
    assert_eq!(
        (&counted["rows"], &counted["changed"]),
        (&json!(2), &json!(false))
    );
    assert!(
        counted["surveyed"].is_string() && counted["bytes"].as_u64() > Some(0),
        "{counted}"
    );
    assert!(has_hot_bytes());
    let default = server.get("/v1/tables/default").expect(200);
    assert_eq!(default["statistics"]["rows"], Value::Null);
}

#[test]
fn busy_ranges_and_large_machines_are_named() {
    let server = Server::start();
    let quiet = server.get("/v1/tables/default/hot-ranges").expect(200);
    assert_eq!(quiet["hot_ranges"], json!([]));
    // The machines of a range are counted only after a time slot in which the range was hot.
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
            server.get(&format!("/v1/tables/unknown/{path}")).expect(404)["code"],
            "not_found"
        );
    }
}

#[test]
fn metrics_distinguish_the_tiers() {
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

#[test]
fn a_flood_of_cold_queries_leaves_room_for_hot_ones() {
    let query = QuerySettings {
        cold_queries_max: Some(1),
        cold_waiting_max: 1,
        // The clock of the tests does not advance, so the first cold query waits for its second chunk until its
        // client disconnects.
        cold_read_bytes_per_second: Some(1),
        ..QuerySettings::default()
    };
    let settings = HttpSettings {
        queries_in_flight_max: 1,
        query,
        ..HttpSettings::default()
    };
    let server = aged_with(settings, &json!({"hot_ttl": "3d"}), &[40, 30, 20, 1]);
    let fetch = |body: &str| {
        let mut stream = server.connect();
        let head = format!(
            "POST {TABLE}/query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    let metric = |line: &str| {
        while !server
            .get("/metrics")
            .text()
            .lines()
            .any(|have| have.starts_with(line))
        {}
    };
    let running = fetch("{}");
    metric("tideline_cold_queries_running 1");
    let waiting = fetch("{}");
    metric("tideline_cold_queries_waiting 1");
    let refused = server
        .json("POST", &format!("{TABLE}/query"), r#"{"tier": "cold"}"#)
        .expect(503);
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&json!("overloaded"), &json!(true))
    );
    for hot in [r#"{"tier": "hot"}"#, r#"{"range": {"start": "now-2d"}}"#] {
        let response = server.json("POST", &format!("{TABLE}/query"), hot).expect(200);
        assert_eq!(
            response["series"][0]["points"],
            json!([["2026-11-19T12:00:00Z", 1]]),
            "{hot}"
        );
    }
    server.json("POST", &format!("{TABLE}/latest"), "{}").expect(200);
    drop((running, waiting));
    metric("tideline_cold_queries_running 0");
}
