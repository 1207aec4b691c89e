//! `rows/aggregate` over HTTP: formats, statuses, big integers, and the list of running queries.
//!
//! The values themselves are compared with a naive model by the tests of `tideline-rows`.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_ipc::reader::StreamReader;
use serde_json::json;

use crate::client::{Response, Server};

fn server() -> Server {
    let server = Server::start();
    let body = json!({"name": "t", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}],
        "columns": [{"name": "state", "type": "string"}, {"name": "total", "type": "decimal"}, {"name": "big", "type": "u64"}]
    }});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
    let body = json!({"rows": [
        {"op": "put", "key": {"n": 1}, "columns": {"state": "a", "total": "1.50", "big": u64::MAX}},
        {"op": "put", "key": {"n": 2}, "columns": {"state": "a", "total": "0.25", "big": 7}},
        {"op": "put", "key": {"n": 3}, "columns": {"state": "b"}}
    ]});
    server
        .json("POST", "/v1/tables/t/rows", &body.to_string())
        .expect(200);
    server
}

fn aggregate(server: &Server, accept: &str, query: &str, body: &serde_json::Value) -> Response {
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let path = format!("/v1/tables/t/rows/aggregate{query}");
    server.send("POST", &path, &headers, body.to_string().as_bytes())
}

#[test]
fn groups_are_returned_in_each_format() {
    let server = server();
    let request = json!({"allow_scan": true, "by": [{"column": "state"}], "metrics": [
        {"column": "total", "functions": ["sum"]}, {"column": "big", "functions": ["max", "count"]}]});
    let found = aggregate(&server, "application/json", "?integers=text", &request).expect(200);
    let max = u64::MAX.to_string();
    assert_eq!(
        found["groups"],
        json!([
            {"key": {"state": "a"}, "rows": 2, "metrics": {"total": {"sum": "1.75"}, "big": {"max": max, "count": 2}}},
            {"key": {"state": "b"}, "rows": 1, "metrics": {"total": {"sum": null}, "big": {"max": null, "count": 0}}},
        ])
    );
    assert_eq!(found["scanned"], 3);
    assert!(found["request_id"].is_string());

    let lines = aggregate(&server, "application/x-ndjson", "", &request);
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&lines.body)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!((lines.len(), &lines[2]["rows"]), (3, &json!(3)));

    let csv = aggregate(&server, "text/csv", "", &request);
    let expected = format!("state,rows,sum(total),max(big),count(big)\r\na,2,1.75,{max},2\r\nb,1,,,0\r\n");
    assert_eq!(String::from_utf8_lossy(&csv.body), expected);

    let arrow = aggregate(&server, "application/vnd.apache.arrow.stream", "", &request);
    let mut batches = StreamReader::try_new(arrow.body.as_slice(), None).expect("a stream");
    let batch = batches.next().expect("a batch").expect("whole");
    assert_eq!(batch.schema().field(3).name(), "max(big)");
    assert_eq!(batch.column(3).as_primitive::<UInt64Type>().value(0), u64::MAX);
}

#[test]
fn refusals_have_a_status_and_a_reason() {
    let server = server();
    let refused = |body: &serde_json::Value, status| {
        let refused = aggregate(&server, "application/x-ndjson", "", body);
        assert_eq!(refused.status, status, "{body}");
        String::from_utf8_lossy(&refused.body).into_owned()
    };
    assert!(refused(&json!({}), 400).contains("allow_scan"));
    assert!(refused(&json!({"allow_scan": true, "wrong": 1}), 400).contains("wrong"));
    // The sum is found to be too large before the response begins.
    let sum = json!({"allow_scan": true, "metrics": [{"column": "big", "functions": ["sum"]}]});
    let put = json!({"rows": [{"op": "put", "key": {"n": 4}, "columns": {"big": 1}}]});
    server
        .json("POST", "/v1/tables/t/rows", &put.to_string())
        .expect(200);
    assert!(refused(&sum, 400).contains("sum(big) of a group does not fit its type"));
    let headers = [("content-type", "application/json")];
    let missing = server.send(
        "POST",
        "/v1/tables/none/rows/aggregate",
        &headers,
        b"{\"allow_scan\": true}",
    );
    assert_eq!(missing.status, 404);
}
