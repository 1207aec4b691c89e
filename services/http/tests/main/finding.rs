//! Tables, timelines and their names.
//!
//! Covers searches, paging, attributes, changes of tables, seals, and suggestions for unknown names.

use serde_json::{Value, json};

use crate::client::Server;

const POINTS: &str = "/v1/tables/default/points";
const SEARCH: &str = "/v1/tables/default/timelines/search";

fn fleet() -> Server {
    let server = Server::start();
    let mut lines = String::new();
    for host in 0..6 {
        for measurement in ["cpu", "mem"] {
            let dc = ["fra", "ams"][host % 2];
            lines.push_str(&format!(
                "{measurement},host=web-{host},dc={dc} value={host}i 179517600000000000{host}\n"
            ));
        }
    }
    server.post(POINTS, "text/plain", &lines).expect(200);
    server
}

fn hosts(found: &Value) -> Vec<String> {
    let timelines = found["timelines"].as_array().expect("a list");
    let host = |timeline: &Value| timeline["tags"]["host"].as_str().expect("a host").to_owned();
    timelines.iter().map(host).collect()
}

#[test]
fn timelines_are_found_by_a_tree_of_conditions() {
    let server = fleet();
    let search = json!({
        "where": {"and": [
            {"property": "measurement", "equals": "cpu"},
            {"or": [{"tag": "host", "in": ["web-1", "web-2"]}, {"tag": "host", "regex": "web-[45]"}]},
            {"not": {"tag": "dc", "equals": "fra"}},
            {"tag": "rack", "exists": false},
            {"property": "last_seen", "range": {"start": "now-1d", "end": "now+1d"}}
        ]},
        "sort": [{"tag": "host", "order": "descending"}]
    });
    let found = server.json("POST", SEARCH, &search.to_string()).expect(200);
    assert_eq!(hosts(&found), ["web-5", "web-1"]);
    assert_eq!((&found["total"], &found["next"]), (&json!(2), &Value::Null));
    assert_eq!(found["timelines"][0]["source"], "web-5");

    let all = server.json("POST", SEARCH, "{}").expect(200);
    assert_eq!(all["total"], 12);
    let short = server
        .get("/v1/tables/default/timelines?measurement=mem&source=web-3")
        .expect(200);
    assert_eq!(hosts(&short), ["web-3"]);
}

#[test]
fn pages_follow_each_other_without_gap() {
    let server = fleet();
    let mut found = Vec::new();
    let mut page = Value::Null;
    for _ in 0..4 {
        let search =
            json!({"sort": [{"tag": "host"}, {"property": "measurement"}], "limit": 5, "page": page});
        let response = server.json("POST", SEARCH, &search.to_string()).expect(200);
        found.extend(hosts(&response));
        page = response["next"].clone();
        if page.is_null() {
            break;
        }
    }
    let expected: Vec<String> = (0..12).map(|n| format!("web-{}", n / 2)).collect();
    assert_eq!(found, expected);
    let mut tags = Vec::new();
    let mut path = "/v1/tables/default/tags/host/values?limit=4&prefix=web".to_owned();
    loop {
        let response = server.get(&path).expect(200);
        tags.extend(
            response["names"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|name| name["name"].clone()),
        );
        let Some(next) = response["next"].as_str() else {
            break;
        };
        path = format!("/v1/tables/default/tags/host/values?limit=4&prefix=web&page={next}");
    }
    assert_eq!(tags, ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"]);
    for bad in ["?limit=0", "?limit=10001", "?page=%21"] {
        server.get(&format!("/v1/tables/default/tags{bad}")).expect(400);
    }
    assert_eq!(
        server.get("/v1/tables/default/tags").expect(200)["names"][0],
        json!({"name": "dc", "timelines": 12})
    );
    let names = server.get("/v1/tables/default/measurements?prefix=m").expect(200);
    assert_eq!(names["names"], json!([{"name": "mem", "timelines": 6}]));
}

#[test]
fn attributes_are_set_found_and_removed() {
    let server = fleet();
    let first = server
        .get("/v1/tables/default/timelines?measurement=cpu&source=web-2")
        .expect(200);
    let id = first["timelines"][0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/tables/default/timelines/{id}");
    let set = r#"{"owner": "team-storage", "rack": 12, "spare": true, "nothing": null}"#;
    let changed = server
        .json("PATCH", &format!("{path}/attributes"), set)
        .expect(200);
    assert_eq!(
        changed["attributes"],
        json!({"owner": "team-storage", "rack": 12.0, "spare": true})
    );
    let search = r#"{"where": {"and": [{"attribute": "rack", "equals": 12}, {"attribute": "owner", "prefix": "team-"}]}}"#;
    assert_eq!(
        server.json("POST", SEARCH, search).expect(200)["timelines"][0]["id"],
        id.as_str()
    );
    server
        .json("PATCH", &format!("{path}/attributes"), r#"{"owner": null}"#)
        .expect(200);
    let read = server.get(&path).expect(200);
    assert_eq!(read["attributes"], json!({"rack": 12.0, "spare": true}));
    assert!(read["request_id"].is_string());
    let unknown = format!("/v1/tables/default/timelines/{}", "0".repeat(32));
    assert_eq!(server.get(&unknown).expect(404)["code"], "not_found");
    assert_eq!(
        server.get("/v1/tables/default/timelines/xyz").expect(400)["code"],
        "invalid"
    );
}

#[test]
fn tables_are_created_altered_and_dropped() {
    let server = Server::start();
    let create =
        r#"{"name": "devices", "source_tags": ["device"], "durability": "buffered", "write_past": "30d"}"#;
    let created = server.json("POST", "/v1/tables", create).expect(201);
    assert_eq!(
        (&created["write_past"], &created["write_future"]),
        (&json!("30d"), &json!("365d"))
    );
    assert_eq!(
        server.json("POST", "/v1/tables", create).expect(409)["code"],
        "conflict"
    );
    for bad in [
        r#"{"name": "Devices"}"#,
        r#"{"name": "x", "durabilty": "synced"}"#,
        r#"{"name": "x", "write_past": "30 days"}"#,
        r#"{"name": "x", "source_tags": ["a", "a"]}"#,
        "[]",
    ] {
        assert_eq!(
            server.json("POST", "/v1/tables", bad).expect(400)["code"],
            "invalid",
            "{bad}"
        );
    }
    let altered = server
        .json("PATCH", "/v1/tables/devices", r#"{"write_past": null}"#)
        .expect(200);
    assert_eq!(
        (&altered["write_past"], &altered["durability"]),
        (&Value::Null, &json!("buffered"))
    );
    let tables = server.get("/v1/tables").expect(200);
    let names: Vec<_> = tables["tables"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|table| &table["name"])
        .collect();
    assert_eq!(names, ["default", "devices"]);
    assert_eq!(server.send("DELETE", "/v1/tables/devices", &[], b"").status, 204);
    assert_eq!(server.get("/v1/tables/devices").status, 404);
    server.send("DELETE", "/v1/tables/default", &[], b"").expect(409);
}

#[test]
fn a_seal_moves_points_into_segments() {
    let server = fleet();
    let done = server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
    assert_eq!(
        (&done["state"], &done["head_points"]),
        (&json!("done"), &json!(0))
    );
    let table = server.get("/v1/tables/default").expect(200);
    assert_eq!(table["statistics"]["sealed_points"], 12);
    server
        .json("POST", "/v1/jobs", r#"{"kind": "shred"}"#)
        .expect(400);
}

#[test]
fn results_name_what_the_table_does_not_have() {
    let server = fleet();
    let cpuu = json!({"where": {"property": "measurement", "equals": "cpuu"}});
    let unknown = json!([{"measurement": "cpuu", "did_you_mean": ["cpu"]}]);
    let post = |path: &str, body: Value| {
        let path = format!("/v1/tables/default/{path}");
        server.json("POST", &path, &body.to_string()).expect(200)
    };
    for path in ["query", "latest", "explain"] {
        assert_eq!(
            post(path, json!({"timelines": cpuu}))["suggestions"],
            unknown,
            "{path}"
        );
    }
    let range = json!({"start": null, "end": null});
    let deleted = post("points/delete", json!({"timelines": cpuu, "range": range}));
    assert_eq!(
        (&deleted["timelines"], &deleted["suggestions"]),
        (&json!(0), &unknown)
    );
    let deleted = post("timelines/delete", json!({"timelines": cpuu}));
    assert_eq!(deleted["suggestions"], unknown);

    let grouped = json!({"aggregate": {"functions": ["count"], "group_by": ["hots"]}});
    assert_eq!(
        post("query", grouped)["suggestions"],
        json!([{"tag": "hots", "did_you_mean": ["host"]}])
    );
    server
        .post(
            POINTS,
            "text/plain",
            "disk,host=web-1 used=1 1795176000000000000\n",
        )
        .expect(200);
    let cpu = json!({"where": {"or": [
        {"property": "measurement", "equals": "cpu"}, {"property": "measurement", "equals": "mem"}
    ]}});
    let elsewhere = post("query", json!({"timelines": cpu, "fields": ["used"]}));
    assert_eq!(
        elsewhere["suggestions"],
        json!([{"field": "used", "did_you_mean": []}])
    );
    let here = post("query", json!({"timelines": cpu, "fields": ["value"]}));
    assert_eq!(here.get("suggestions"), None);

    let get = |path: &str| server.get(&format!("/v1/tables/default/{path}")).expect(200);
    assert_eq!(get("fields?measurement=cpuu")["suggestions"], unknown);
    assert_eq!(get("fields").get("suggestions"), None);
    assert_eq!(
        get("tags/hots/values")["suggestions"],
        json!([{"tag": "hots", "did_you_mean": ["host"]}])
    );
    assert_eq!(get("tags/host/values?prefix=none").get("suggestions"), None);
}
