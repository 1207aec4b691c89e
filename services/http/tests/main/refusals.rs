//! `/explain` and `/query/batch` return the same errors as `/query`.
//!
//! A client can therefore check a query with `/explain` before it runs it.

use serde_json::{Value, json};

use crate::client::Server;

/// Starts a server with numbers and strings of two machines.
fn filled() -> Server {
    let server = Server::start();
    let lines = "cpu,host=a v=1,s=\"x\" 1700000000\ncpu,host=b v=2,s=\"y\" 1700000060";
    server
        .post("/v1/tables/default/points?precision=s", "text/plain", lines)
        .expect(200);
    server
}

/// Returns queries that are invalid for different reasons.
fn wrong_queries() -> Vec<Value> {
    let aggregate =
        |aggregate: Value| json!({"fields": ["v"], "range": {"start": 0}, "aggregate": aggregate});
    let ranked = |rank: Value| aggregate(json!({"functions": ["max"], "group_by": ["host"], "rank": rank}));
    vec![
        ranked(json!({"by": "mean", "field": "s"})),
        ranked(json!({"by": "max", "field": "nothing"})),
        ranked(json!({"by": "max", "limit": 0})),
        json!({"aggregate": {"functions": ["max"], "rank": {"by": "max"}}}),
        json!({"budget": {"cells": 1}, "fields": ["v"],
            "aggregate": {"functions": ["count"], "group_by": ["host"], "rank": {"by": "max", "limit": 1}}}),
        aggregate(json!({"functions": []})),
        aggregate(json!({"functions": ["max", "max"]})),
        aggregate(json!({"functions": ["max"], "fill": "linear"})),
        aggregate(json!({"functions": ["max"], "group_by": ["host", "host"]})),
        aggregate(json!({"functions": ["max"], "window": "1us"})),
        aggregate(json!({"functions": ["max"], "compute": [{"name": "x", "expression": "max("}]})),
        json!({"fields": ["s"], "aggregate": {"functions": ["mean"]}}),
        json!({"limit": 0, "fields": ["v"], "aggregate": {"functions": ["max"]}}),
        json!({"limit": 0}),
        json!({"limit": 50_000_001}),
        json!({"sample": 0}),
        json!({"sample": 2}),
        json!({"sample": 100_001}),
        json!({"sample": 10, "aggregate": {"functions": ["max"]}}),
        json!({"sample": 10, "fields": ["s"]}),
        json!({"sample": 10, "limit": 0}),
        json!({"sort": {"field": "nothing"}}),
        json!({"sort": {"field": "v"}, "limit": 0}),
        json!({"sort": {"field": "v"}, "limit": 100_001}),
        json!({"sort": {"field": "v"}, "sample": 10}),
        json!({"sort": {"field": "v"}, "aggregate": {"functions": ["max"]}}),
        json!({"fields": ["nothing"]}),
        json!({"where": {"field": "nothing", "gt": 1}}),
        json!({"where": {"field": "v", "equals": "x"}}),
        json!({"compute": [{"name": "x", "expression": "s * 2"}]}),
        json!({"timelines": {"ids": ["00000000000000000000000000000000"]}}),
        json!({"budget": {"timelines": 1}}),
        json!({"range": {"start": 5, "end": 5}}),
        json!({"page": "00"}),
    ]
}

/// Returns the status, and the body without the request id, which differs between requests.
fn body(status: u16, mut body: Value) -> (u16, Value) {
    if let Some(body) = body.as_object_mut() {
        body.remove("request_id");
    }
    (status, body)
}

#[test]
fn explain_and_batch_refuse_what_query_refuses_in_its_words() {
    let server = filled();
    for wrong in wrong_queries() {
        let fetch = |path: &str, query: &Value| {
            let path = format!("/v1/tables/default/{path}");
            let response = server.post(&path, "application/json", query.to_string());
            (response.status, response.value())
        };
        let (status, refused) = fetch("query", &wrong);
        assert!((400..500).contains(&status), "{wrong} is answered: {refused}");
        let query = body(status, refused);
        let (status, explained) = fetch("explain", &wrong);
        assert_eq!(body(status, explained), query, "{wrong}");
        let (status, answers) = fetch("query/batch", &json!({"queries": {"one": wrong}}));
        assert_eq!(status, 200, "{answers}");
        let alone = body(query.0, answers["answers"]["one"]["error"].clone());
        assert_eq!(alone, query, "{wrong}");
    }
}

#[test]
fn a_page_of_another_query_is_refused_by_both() {
    let server = filled();
    let fetch = |path: &str, query: Value| {
        let path = format!("/v1/tables/default/{path}");
        server.post(&path, "application/json", query.to_string())
    };
    let first = fetch("query", json!({"limit": 1, "fields": ["v"]})).expect(200);
    let other = json!({"page": first["next"], "limit": 1, "fields": ["s"]});
    let (query, explain) = (fetch("query", other.clone()), fetch("explain", other));
    assert_eq!(query.status, 400);
    assert_eq!(
        body(explain.status, explain.value()),
        body(query.status, query.value())
    );
    let sampled = json!({"page": first["next"], "sample": 10, "fields": ["v"]});
    let (query, explain) = (fetch("query", sampled.clone()), fetch("explain", sampled));
    assert_eq!(query.status, 400);
    assert_eq!(
        body(explain.status, explain.value()),
        body(query.status, query.value())
    );
}
