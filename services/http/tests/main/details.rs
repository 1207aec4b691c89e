//! Start timestamps and exemplars are returned on request only.
//!
//! The rule applies to queries, lists of fields and watches.

use serde_json::{Value, json};

use crate::client::Server;

const TABLE: &str = "/v1/tables/default";

/// Starts a server with three points: a sample with a start timestamp, an exemplar of the same series, and a point of
/// another measurement with an ordinary field `_start`.
fn filled() -> Server {
    let server = Server::start();
    let lines = "hits,host=a value=7,_start=1700000000000i 1700000000\n\
        hits,host=a _exemplar=\"{}\" 1700000001\n\
        trip,host=a _start=\"Berlin\" 1700000000";
    server
        .post(&format!("{TABLE}/points?precision=s"), "text/plain", lines)
        .expect(200);
    server
}

fn fetch(server: &Server, resource: &str, body: &Value) -> Vec<(Value, usize)> {
    let response = server.json("POST", &format!("{TABLE}/{resource}"), &body.to_string());
    let response = response.expect(200);
    let series = response["series"].as_array().expect("series").iter();
    let shown = |series: &Value| {
        let points = series["points"].as_array().expect("points").len();
        (series["columns"].clone(), points)
    };
    let mut series: Vec<(Value, usize)> = series.map(shown).collect();
    series.sort_by_key(|(columns, _)| columns.to_string());
    series
}

#[test]
fn queries_show_what_accompanies_samples_only_on_request() {
    let server = filled();
    let of_trip = (json!(["time", "_start"]), 1);
    for resource in ["query", "latest"] {
        let all = fetch(&server, resource, &json!({}));
        assert_eq!(
            all,
            [of_trip.clone(), (json!(["time", "value"]), 1)],
            "{resource}"
        );
        let asked = json!({"where": {"property": "measurement", "equals": "hits"}});
        let whole = fetch(
            &server,
            resource,
            &json!({"timelines": asked, "sample_details": true}),
        );
        assert_eq!(
            whole,
            [(json!(["time", "value", "_start", "_exemplar"]), 2)],
            "{resource}"
        );
        let named = fetch(&server, resource, &json!({"fields": ["_exemplar"]}));
        assert_eq!(named, [(json!(["time", "_exemplar"]), 1)], "{resource}");
    }
    let counts = json!({"aggregate": {"functions": ["count"]}, "timelines": {"where": {"property": "measurement", "equals": "hits"}}});
    let counted = fetch(&server, "query", &counts);
    assert_eq!(counted[0].0, json!(["time", "count(value)"]));
    let csv = server.send(
        "POST",
        &format!("{TABLE}/query"),
        &[("accept", "text/csv"), ("content-type", "application/json")],
        b"{}",
    );
    assert!(!csv.text().contains("_exemplar"), "{}", csv.text());
}

#[test]
fn lists_of_fields_name_them_only_on_request() {
    let server = filled();
    let names = |query: &str| -> Vec<String> {
        let list = server.get(&format!("{TABLE}/fields{query}")).expect(200);
        let fields = list["fields"].as_array().expect("a list").iter();
        let name = |field: &Value| format!("{}.{}", field["measurement"], field["field"]).replace('"', "");
        fields.map(name).collect()
    };
    assert_eq!(names(""), ["hits.value", "trip._start"]);
    assert_eq!(
        names("?sample_details=true"),
        ["hits._exemplar", "hits._start", "hits.value", "trip._start"]
    );
}

#[test]
fn watches_tell_of_them_only_on_request() {
    let server = Server::start();
    let ready = server.get(&format!("{TABLE}/watch?for=0s")).text();
    let cursor = ready.lines().find_map(|line| line.strip_prefix("id: "));
    let cursor = cursor.expect("a cursor").to_owned();
    let lines =
        "hits,host=a value=7,_start=1700000000000i 1700000000\nhits,host=a _exemplar=\"{}\" 1700000001";
    server
        .post(&format!("{TABLE}/points?precision=s"), "text/plain", lines)
        .expect(200);
    let watched = |more: &str| {
        let path = format!("{TABLE}/watch?for=0s&from={cursor}{more}");
        server.get(&path).text()
    };
    let plain = watched("");
    assert!(
        plain.contains("\"value\"") && !plain.contains("_exemplar") && !plain.contains("_start"),
        "{plain}"
    );
    let whole = watched("&sample_details=true");
    assert!(whole.contains("_exemplar") && whole.contains("_start"), "{whole}");
    let named = watched("&fields=_exemplar");
    assert!(
        named.contains("_exemplar") && !named.contains("\"value\""),
        "{named}"
    );
}
