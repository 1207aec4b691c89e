//! Helpers: a table with points of several ages, for tests of policies.

use serde_json::{Value, json};
use tideline_http::HttpSettings;

use crate::client::Server;

/// Time of the server's clock at the start of a test, in seconds: 2026-11-20T12:00:00Z.
pub(crate) const NOW: i64 = 1_795_176_000;
/// Seconds per day.
pub(crate) const DAY: i64 = 86_400;
pub(crate) const TABLE: &str = "/v1/tables/ages";

/// Creates a table with one sealed point of the same host for each of the given ages in days.
pub(crate) fn aged(policy: &Value, days: &[i64]) -> Server {
    aged_with(HttpSettings::default(), policy, days)
}

pub(crate) fn aged_with(settings: HttpSettings, policy: &Value, days: &[i64]) -> Server {
    let server = Server::with(settings);
    let create = json!({"name": "ages", "policy": policy}).to_string();
    server.json("POST", "/v1/tables", &create).expect(201);
    let line = |day: &i64| format!("age,host=a days={day}i {}\n", NOW - day * DAY);
    let lines: String = days.iter().map(line).collect();
    write(&server, &lines);
    seal(&server);
    server
}

/// Writes lines with timestamps in seconds; all points must be stored.
pub(crate) fn write(server: &Server, lines: &str) {
    let report = server
        .post(&format!("{TABLE}/points?precision=s"), "text/plain", lines)
        .expect(200);
    assert_eq!(report["rejected"], 0, "{report}");
}

pub(crate) fn seal(server: &Server) {
    server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
}

pub(crate) fn statistics(server: &Server) -> Value {
    server.get(TABLE).expect(200)["statistics"].clone()
}

/// Returns the ages of the visible points, in days.
pub(crate) fn ages(server: &Server) -> Vec<i64> {
    let response = server
        .json("POST", &format!("{TABLE}/query"), r#"{"order": "desc"}"#)
        .expect(200);
    let series = response["series"].as_array().expect("a list");
    let mut ages: Vec<i64> = series
        .iter()
        .flat_map(|series| series["points"].as_array().expect("rows"))
        .map(|row| row[1].as_i64().expect("a number"))
        .collect();
    ages.sort_unstable();
    ages
}
