//! Background jobs: started by hand, listed, paused, resumed, cancelled.
//!
//! A migration must not change query results, and pages of jobs must be complete.

use serde_json::{Value, json};

use crate::client::Server;

const TABLE: &str = "ages";
const POINTS: &str = "/v1/tables/ages/points";
/// Timestamp in seconds: 2026-11-10, ten days before the time of the tests.
const OLD: i64 = 1_794_312_000;

/// Starts a server whose table has sealed hot points of two hosts on three old days. Its policy migrates only
/// on February 29, so the tests start all migrations.
fn aged() -> Server {
    let server = Server::start();
    let create = json!({"name": TABLE, "policy": {"hot_ttl": null, "migrate": {"cron": "0 0 29 2 *"}}});
    server.json("POST", "/v1/tables", &create.to_string()).expect(201);
    for day in 0..3 {
        let mut lines = String::new();
        for minute in 0..10 {
            let time = OLD + day * 86_400 + minute * 60;
            lines.push_str(&format!(
                "m,host=a f={minute}i {time}\nm,host=b f={minute}i {time}\n"
            ));
        }
        server
            .post(&format!("{POINTS}?precision=s"), "text/plain", &lines)
            .expect(200);
    }
    seal(&server);
    let policy = r#"{"policy": {"hot_ttl": "5d"}}"#;
    server.json("PATCH", "/v1/tables/ages", policy).expect(200);
    server
}

fn seal(server: &Server) {
    server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
}

fn tiers(server: &Server) -> Value {
    server.get("/v1/tables/ages").expect(200)["statistics"]["tiers"].clone()
}

fn jobs(server: &Server, query: &str) -> Vec<Value> {
    let listed = server.get(&format!("/v1/jobs{query}")).expect(200);
    listed["jobs"].as_array().expect("a list").clone()
}

#[test]
fn a_migration_moves_what_is_old_and_readers_see_the_same() {
    let server = aged();
    let query = json!({"aggregate": {"functions": ["count", "sum"]}, "range": {"start": 0}}).to_string();
    let fetch = |tier: &str| {
        let query = query.replacen('{', &format!("{{\"tier\":\"{tier}\","), 1);
        server.json("POST", "/v1/tables/ages/query", &query).expect(200)
    };
    let before = fetch("all");
    assert_eq!(before["series"][0]["points"][0][1], 60);
    assert_eq!(
        (
            &before["cost"]["tiers"]["hot"]["points"],
            fetch("cold")["series"].as_array().map(Vec::len)
        ),
        (&json!(60), Some(0))
    );

    let done = server
        .json(
            "POST",
            "/v1/jobs",
            r#"{"kind": "migrate", "table": "ages", "wait": true}"#,
        )
        .expect(200);
    assert_eq!(
        (&done["kind"], &done["state"]),
        (&json!("migrate"), &json!("done"))
    );
    let moved: Vec<Value> = done["jobs"].as_array().expect("a list").clone();
    assert_eq!(moved.len(), 3, "one job per day: {done}");
    let points = |job: &Value| job["total"]["points"].as_u64().expect("a number");
    assert_eq!(moved.iter().map(points).sum::<u64>(), 60);
    for job in &moved {
        assert_eq!(
            (&job["state"], &job["table"], &job["tier"]),
            (&json!("done"), &json!(TABLE), &json!("cold"))
        );
        assert_eq!(
            (&job["by_hand"], &job["done"]["points"]),
            (&json!(true), &job["total"]["points"])
        );
        assert!(
            job["outcome"].is_string() && job["finished"].is_string() && job["error"].is_null(),
            "{job}"
        );
    }

    let after = fetch("all");
    assert_eq!(after["series"], before["series"]);
    assert_eq!(fetch("cold")["series"], before["series"]);
    assert_eq!(fetch("hot")["series"], json!([]));
    let cost = &after["cost"]["tiers"];
    assert_eq!(
        (&cost["hot"]["segments"], &cost["cold"]["segments"]),
        (&json!(0), &json!(3))
    );
    let tiers = tiers(&server);
    assert_eq!(
        (&tiers["hot"]["points"], &tiers["cold"]["points"]),
        (&json!(0), &json!(60))
    );
    let nothing = server
        .json("POST", "/v1/jobs", r#"{"kind": "migrate", "table": "ages"}"#)
        .expect(200);
    assert_eq!(
        (&nothing["state"], &nothing["jobs"]),
        (&json!("done"), &json!([]))
    );
}

#[test]
fn work_that_is_not_waited_for_is_reported_by_number() {
    let server = aged();
    let response = server.json("POST", "/v1/jobs", r#"{"kind": "migrate"}"#);
    assert!([200, 202].contains(&response.status), "{}", response.text());
    let started = response.value();
    assert_eq!(started["jobs"].as_array().map(Vec::len), Some(3), "{started}");
    for job in started["jobs"].as_array().expect("a list") {
        let path = format!("/v1/jobs/{}", job["id"]);
        while server.get(&path).expect(200)["state"] != "done" {}
    }
    assert_eq!(tiers(&server)["cold"]["points"], 60);
    assert_eq!(jobs(&server, "?kind=migrate&state=done&table=ages").len(), 3);
    assert_eq!(jobs(&server, "?kind=fold&state=done"), Vec::<Value>::new());
    assert_eq!(jobs(&server, "?table=unknown"), Vec::<Value>::new());
}

#[test]
fn pages_of_jobs_follow_each_other() {
    let server = aged();
    server
        .json("POST", "/v1/jobs", r#"{"kind": "migrate", "wait": true}"#)
        .expect(200);
    let all: Vec<Value> = jobs(&server, "?kind=migrate")
        .iter()
        .map(|job| job["id"].clone())
        .collect();
    assert_eq!(all.len(), 3);
    assert!(
        all.is_sorted_by(|a, b| a.as_u64() > b.as_u64()),
        "past jobs are listed from new to old: {all:?}"
    );
    let mut paged = Vec::new();
    let mut page = String::new();
    loop {
        let listed = server
            .get(&format!("/v1/jobs?kind=migrate&limit=2{page}"))
            .expect(200);
        paged.extend(
            listed["jobs"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|job| job["id"].clone()),
        );
        let Some(next) = listed["next"].as_str() else {
            break;
        };
        page = format!("&page={next}");
    }
    assert_eq!(paged, all);
    for bad in [
        "limit=0",
        "limit=1001",
        "page=%21",
        "page=YQ",
        "state=over",
        "kind=shred",
        "sort=id",
    ] {
        let error = server.get(&format!("/v1/jobs?{bad}")).expect(400);
        assert!(error["message"].is_string(), "{bad}");
    }
}

#[test]
fn a_planned_job_is_paused_resumed_and_cancelled() {
    let server = aged();
    let planned = jobs(&server, "?kind=seal&state=planned");
    let [job] = planned.as_slice() else {
        panic!("a seal can always be started: {planned:?}");
    };
    assert_eq!(
        (&job["due"], &job["table"], &job["span"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let path = format!("/v1/jobs/{}", job["id"]);
    let tell = |verb: &str| server.send("POST", &format!("{path}/{verb}"), &[], b"");
    assert_eq!(tell("resume").expect(409)["code"], "conflict");
    assert_eq!(tell("pause").expect(200)["state"], "paused");
    assert_eq!(server.get(&path).expect(200)["state"], "paused");
    assert_eq!(tell("resume").expect(200)["state"], "planned");
    assert_eq!(tell("cancel").expect(200)["state"], "cancelled");
    for verb in ["pause", "resume", "cancel"] {
        assert_eq!(tell(verb).expect(409)["code"], "conflict", "{verb}");
    }
    assert_eq!(server.get("/v1/jobs/999999").expect(404)["code"], "not_found");
    assert_eq!(server.get("/v1/jobs/first").expect(400)["code"], "invalid");
    assert_eq!(
        server
            .send("POST", "/v1/jobs/999999/cancel", &[], b"")
            .expect(404)["code"],
        "not_found"
    );
}

#[test]
fn what_cannot_be_run_is_refused() {
    let server = Server::start();
    for (body, status) in [
        (r#"{"kind": "shred"}"#, 400),
        (r#"{"kind": "migrate", "tabel": "default"}"#, 400),
        (r#"{"kind": "seal", "table": "default"}"#, 400),
        (r#"{"kind": "migrate", "wait": "yes"}"#, 400),
        (r#"{}"#, 400),
        (r#"{"kind": "migrate", "table": "unknown"}"#, 404),
    ] {
        server.json("POST", "/v1/jobs", body).expect(status);
    }
    for kind in ["seal", "fold", "migrate", "expire", "purge", "clean_catalog"] {
        let body = json!({"kind": kind, "wait": true}).to_string();
        let done = server.json("POST", "/v1/jobs", &body).expect(200);
        assert_eq!(
            (&done["kind"], &done["state"]),
            (&json!(kind), &json!("done")),
            "{done}"
        );
    }
    let queued = server.json("POST", "/v1/jobs", r#"{"kind": "seal", "wait": false}"#);
    assert!([200, 202].contains(&queued.status), "{}", queued.text());
    assert_eq!(queued.value()["jobs"][0]["kind"], "seal");
}

#[test]
fn a_seal_is_listed_as_a_job() {
    let server = Server::start();
    server
        .post(
            "/v1/tables/default/points",
            "text/plain",
            "m,host=a v=1,w=2 1795176000000000000\n",
        )
        .expect(200);
    let done = server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
    let job = &done["jobs"][0];
    assert_eq!((&job["kind"], &job["state"]), (&json!("seal"), &json!("done")));
    assert_eq!(
        (&job["total"]["points"], &job["done"]["values"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(job["total"]["bytes"], job["done"]["bytes"]);
    let listed = jobs(&server, "?kind=seal&state=done");
    assert_eq!((listed.len(), &listed[0]["id"]), (1, &job["id"]));
}
