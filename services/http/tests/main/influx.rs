//! InfluxDB agents and clients: expected statuses, bodies and headers.
//!
//! Agents drop a batch on most 4xx statuses, so temporary errors must be 503.

use std::sync::Arc;

use tideline_backend::memory::{AppendFault, Character, MemoryDisk};
use tideline_http::HttpSettings;

use crate::client::{Server, gzip};

#[test]
fn v1_writes_respond_as_influxdb_does() {
    let server = Server::start();
    let stored = server.post(
        "/write?db=telegraf&rp=&consistency=any&precision=s&u=x&p=y",
        "text/plain",
        "m f=1 1\n",
    );
    assert_eq!((stored.status, stored.body.len()), (204, 0));
    assert_eq!(
        server
            .send("POST", "/write", &[("content-encoding", "gzip")], &gzip(b"m f=1"))
            .status,
        204
    );
    assert_eq!(
        server.post("/write?db=telegraf", "", "").status,
        204,
        "an empty body is not an error"
    );

    let all_bad = server.post("/write?db=telegraf", "text/plain", "bad\n");
    let error = all_bad.expect(400)["error"].as_str().expect("a text").to_owned();
    assert!(error.starts_with("unable to parse 'bad': "), "{error}");
    assert_eq!(all_bad.header("x-influxdb-error"), error);
    assert_eq!(all_bad.header("content-type"), "application/json");
    assert!(all_bad.text().ends_with("}\n"));

    let some_bad = server
        .post("/write?db=telegraf", "text/plain", "m f=1\nbad\nm f=2\n")
        .expect(400);
    let error = some_bad["error"].as_str().expect("a text").to_owned();
    assert!(
        error.starts_with("partial write: unable to parse 'bad': ") && error.ends_with(" dropped=0"),
        "{error}"
    );
    let conflict = server
        .post("/write?db=telegraf", "text/plain", "m f=\"text\"\n")
        .expect(400);
    let error = conflict["error"].as_str().expect("a text").to_owned();
    assert!(
        error.starts_with("partial write: field type conflict: input field \"f\""),
        "{error}"
    );
    assert!(error.ends_with(" dropped=1"), "{error}");

    let precision = server
        .post("/write?precision=days", "text/plain", "m f=1")
        .expect(400);
    assert!(
        precision["error"]
            .as_str()
            .is_some_and(|text| text.contains("days"))
    );
    let encoding = server.send("POST", "/write", &[("content-encoding", "br")], b"x");
    assert!(encoding.expect(415)["error"].is_string());
    let method = server.get("/write");
    assert!(method.expect(405)["error"].is_string());
}

#[test]
fn a_database_is_a_table_or_a_tag() {
    let server = Server::start();
    server
        .json("POST", "/v1/tables", r#"{"name":"metrics"}"#)
        .expect(201);
    assert_eq!(server.post("/write?db=metrics", "", "m,host=a f=1").status, 204);
    assert_eq!(
        server
            .post("/write?db=my%20db", "", "m,host=a f=1\nm,db=own f=1")
            .status,
        204
    );
    assert_eq!(server.post("/write", "", "m,host=a f=1").status, 204);
    assert_eq!(
        server
            .post("/api/v2/write?bucket=metrics/autogen&org=o", "", "m,host=b f=1")
            .status,
        204
    );
    let table = server.get("/v1/tables/metrics").expect(200);
    assert_eq!(table["statistics"]["timelines"], 2);
    let values = server.get("/v1/tables/default/tags/db/values").expect(200);
    let names: Vec<_> = values["names"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|name| &name["name"])
        .collect();
    assert_eq!(names, ["my db", "own"]);
    assert_eq!(
        server.get("/v1/tables/default").expect(200)["statistics"]["timelines"],
        3
    );
    assert_eq!(server.post("/write?db=a%0Ab", "", "m f=1").status, 400);
}

#[test]
fn the_statements_of_agents_succeed() {
    let server = Server::start();
    let form = "application/x-www-form-urlencoded";
    // Agents send the statement at every start.
    for _ in 0..2 {
        let created = server
            .post("/query", form, "q=CREATE+DATABASE+%22telegraf%22")
            .expect(200);
        assert_eq!(created, serde_json::json!({"results": [{"statement_id": 0}]}));
    }
    let shown = server.get("/query?q=show%20databases").expect(200);
    let values = [["default"], ["telegraf"]];
    let series = serde_json::json!([{"name": "databases", "columns": ["name"], "values": values}]);
    assert_eq!(shown["results"][0]["series"], series);
    let dropped = server
        .post("/query?q=drop+database+benchmark", "", "")
        .expect(200);
    assert!(dropped["results"][0]["error"].is_null());
    let refused = server.get("/query?q=drop%20database%20%22default%22").expect(200);
    assert!(
        refused["results"][0]["error"].is_string(),
        "a table cannot be dropped this way"
    );
    let unknown = server.get("/query?q=SELECT%201").expect(400);
    assert!(
        unknown["error"]
            .as_str()
            .is_some_and(|text| text.starts_with("error parsing query"))
    );
    assert_eq!(
        server.get("/query").expect(400)["error"],
        "missing required parameter \"q\""
    );
}

#[test]
fn databases_are_tables_with_fields_of_their_own() {
    let server = Server::start();
    let form = "application/x-www-form-urlencoded";
    let create = |name: &str| {
        let body = format!("q=CREATE+DATABASE+%22{name}%22");
        server.post("/query", form, body).expect(200)["results"][0]["error"].clone()
    };
    assert!(create("one").is_null() && create("two").is_null());
    assert_eq!(server.post("/write?db=one", "", "m,host=a f=1").status, 204);
    assert_eq!(
        server.post("/write?db=two", "", "m,host=a f=\"text\"").status,
        204
    );
    for name in ["one", "two"] {
        let table = server.get(&format!("/v1/tables/{name}")).expect(200);
        assert_eq!(table["statistics"]["timelines"], 1, "{name}");
    }
    // Points of a database are not split between two tables.
    assert_eq!(server.post("/write?db=old", "", "m,host=a f=1").status, 204);
    assert!(create("old").is_null());
    assert_eq!(server.post("/write?db=old", "", "m,host=b f=1").status, 204);
    server.get("/v1/tables/old").expect(404);
    assert_eq!(
        server.get("/v1/tables/default").expect(200)["statistics"]["timelines"],
        2
    );
    let refused = create("My+Data");
    let refused = refused.as_str().expect("a reason");
    assert!(
        refused.contains("My Data") && refused.contains("tag db"),
        "{refused}"
    );
    // A page of another site can make a browser send GET requests.
    let path = "/query?q=CREATE%20DATABASE%20three";
    let by_page = server.send("GET", path, &[("sec-fetch-site", "cross-site")], b"");
    assert!(by_page.expect(200)["results"][0]["error"].is_string());
    server.get("/v1/tables/three").expect(404);
    assert!(server.get(path).expect(200)["results"][0]["error"].is_null());
    server.get("/v1/tables/three").expect(200);
}

#[test]
fn probes_find_what_they_look_for() {
    let server = Server::start();
    let ping = server.get("/ping");
    assert_eq!((ping.status, ping.body.len()), (204, 0));
    assert!(!ping.header("x-influxdb-version").is_empty() && !ping.header("x-request-id").is_empty());
    assert_eq!(server.send("HEAD", "/ping", &[], b"").status, 204);
    assert!(server.get("/ping?verbose=true").expect(200)["version"].is_string());
    let health = server.get("/health").expect(200);
    assert_eq!(
        (&health["status"], &health["checks"]),
        (&"pass".into(), &serde_json::json!([]))
    );
    assert_eq!(server.get("/ready").expect(200)["status"], "ready");
    let buckets = server.get("/api/v2/buckets?name=telegraf").expect(200);
    assert_eq!(buckets["buckets"][0]["name"], "telegraf");
    assert_eq!(
        server.get("/api/v2/buckets").expect(200)["buckets"][0]["name"],
        "default"
    );
}

#[test]
fn v2_writes_respond_as_influxdb_does() {
    let server = Server::start();
    assert_eq!(
        server
            .post(
                "/api/v2/write?org=o&bucket=b&precision=ms",
                "text/plain",
                "m f=1 1\n"
            )
            .status,
        204
    );
    let error = server
        .post("/api/v2/write?bucket=b", "text/plain", "m f=1\nbad\n")
        .expect(400);
    assert_eq!(error["code"], "invalid");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("partial write"))
    );
    let error = server.get("/api/v2/nothing").expect(404);
    assert_eq!(error["code"], "not found");
}

#[test]
fn overload_and_faults_are_503_so_that_agents_send_again() {
    let settings = HttpSettings {
        writes_in_flight_max: 0,
        turn_timeout: std::time::Duration::from_millis(10),
        ..HttpSettings::default()
    };
    let overloaded = Server::with(settings);
    let disk = MemoryDisk::new(Character::Distributed);
    let failing = Server::on(Arc::clone(&disk), HttpSettings::default());
    for path in ["/write", "/api/v2/write", "/v1/tables/default/points"] {
        let response = overloaded.post(path, "text/plain", "m f=1");
        assert_eq!(response.status, 503, "{path}: {}", response.text());
        assert!(
            response
                .header("retry-after")
                .parse::<u32>()
                .is_ok_and(|seconds| seconds > 0),
            "{path}"
        );
        failing.disk.fail_append(AppendFault::Lost);
        let response = failing.post(path, "text/plain", "m f=1");
        assert_eq!(response.status, 503, "{path}: {}", response.text());
    }
    let overload = overloaded
        .post("/v1/tables/default/points", "text/plain", "m f=1")
        .expect(503);
    assert_eq!(
        (&overload["code"], &overload["retryable"]),
        (&"overloaded".into(), &true.into())
    );
}
