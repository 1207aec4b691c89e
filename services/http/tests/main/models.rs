//! Table models: a table shows its model, the model cannot be changed, and requests for tables of another model are
//! refused.

use crate::client::Server;
use serde_json::json;

#[test]
fn a_model_is_shown_and_an_unknown_one_is_refused() {
    let server = Server::start();
    assert_eq!(server.get("/v1/tables/default").expect(200)["model"], "series");
    let created = server.json("POST", "/v1/tables", r#"{"name": "points", "model": "series"}"#);
    assert_eq!(created.expect(201)["model"], "series");
    for table in server.get("/v1/tables").expect(200)["tables"]
        .as_array()
        .expect("a list")
    {
        assert_eq!(table["model"], "series", "{table}");
    }
    let unknown = server.json("POST", "/v1/tables", r#"{"name": "other", "model": "rows"}"#);
    assert_eq!(unknown.expect(400)["code"], "invalid");
}

#[test]
fn the_model_of_a_table_is_fixed() {
    let server = Server::start();
    let same = server.json(
        "PATCH",
        "/v1/tables/default",
        r#"{"model": "series", "write_past": "30d"}"#,
    );
    assert_eq!(same.expect(200)["write_past"], "30d");
    let refused = server
        .json("PATCH", "/v1/tables/default", r#"{"model": "wide"}"#)
        .expect(409);
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (
            &json!("conflict"),
            &json!(
                "table default has the model series, which cannot be changed to wide; create another table"
            )
        )
    );
}

#[test]
fn requests_for_series_name_the_model_of_another_table() {
    let server = Server::start();
    let table = r#"{"name": "rows", "model": "wide", "wide": {"key": [{"name": "id", "type": "string"}]}}"#;
    server.json("POST", "/v1/tables", table).expect(201);
    assert_eq!(server.get("/v1/tables/rows").expect(200)["model"], "wide");
    let altered = server.json("PATCH", "/v1/tables/rows", r#"{"durability": "buffered"}"#);
    assert_eq!(altered.expect(200)["durability"], "buffered");

    let said = "table rows has the model wide; this request is for tables of the model series";
    let post = |path: &str, body: &str| (format!("/v1/tables/rows/{path}"), Some(body.to_owned()));
    let get = |path: &str| (format!("/v1/tables/rows/{path}"), None);
    let range = r#"{"range": {"start": "now-1h"}}"#;
    let all = r#"{"timelines": {"where": {"and": []}}, "range": {"start": "now-1h", "end": "now"}}"#;
    let chosen = r#"{"timelines": {"where": {"and": []}}}"#;
    let changes = r#"{"set": {"a": 1}, "timelines": {"where": {"and": []}}}"#;
    let back = r#"{"for": "7d", "range": {"start": "now-2d", "end": "now-1d"}}"#;
    for (path, body) in [
        post("points", r#"{"points": []}"#),
        post("points/delete", all),
        post("query", range),
        post("latest", "{}"),
        post("explain", range),
        post("timelines/search", "{}"),
        post("timelines/attributes", changes),
        post("timelines/facets", r#"{"by": [{"tag": "host"}]}"#),
        post("timelines/delete", chosen),
        post("archive/restore", back),
        get("timelines"),
        get("timelines/3f2a9c017bde45a18c40f1e29d3b6a57"),
        get("hot-ranges"),
        get("partitions"),
        get("watch"),
        get("tags"),
        get("tags/host/values"),
        get("fields?measurement=m"),
        get("measurements"),
        get("attributes"),
        get("cardinality"),
        get("searches"),
        get("prometheus/api/v1/labels"),
        get("prometheus/api/v1/query?query=m"),
        get("prometheus/api/v1/status/tsdb"),
        get("prometheus/federate?match[]=m"),
        ("/write?db=rows".to_owned(), Some("m v=1".to_owned())),
        ("/api/v2/write?bucket=rows".to_owned(), Some("m v=1".to_owned())),
        (
            "/v1/policies/preview".to_owned(),
            Some(r#"{"table": "rows"}"#.to_owned()),
        ),
    ] {
        let response = match body {
            Some(body) => server.json("POST", &path, &body),
            None => server.get(&path),
        };
        let text = response.text();
        assert_eq!(response.status, 422, "{path}: {text}");
        assert!(text.contains(said), "{path}: {text}");
    }
    let databases = server.get("/query?q=SHOW%20DATABASES").text();
    assert!(
        databases.contains("default") && !databases.contains("rows"),
        "{databases}"
    );
    let buckets = server.get("/api/v2/buckets").text();
    assert!(
        buckets.contains("default") && !buckets.contains("rows"),
        "{buckets}"
    );
    assert_eq!(server.send("DELETE", "/v1/tables/rows", &[], b"").status, 204);
}
