//! Exports: permits, limits and content.
//!
//! Exports have separate permits, and the wait for a permit counts towards the time limit of a query. One test
//! evaluates an expression that is too large for the index.

use std::time::{Duration, Instant};

use serde_json::Value;
use tideline_http::HttpSettings;

use crate::client::{Response, Server};

const ALL: &str = "match%5B%5D=%7Bhost%3D~%22.%2B%22%7D";

fn export(server: &Server, more: &str) -> Response {
    server.get(&format!("/api/v1/export?{ALL}{more}"))
}

/// Returns the labels of each line as JSON text, and its timestamps.
fn lines(response: &Response) -> Vec<(String, Vec<i64>)> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let times = line["timestamps"].as_array().expect("instants").iter();
        let times = times
            .map(|time| time.as_i64().expect("a number"))
            .collect::<Vec<_>>();
        assert_eq!(line["values"].as_array().expect("values").len(), times.len());
        (line["metric"].to_string(), times)
    };
    response.text().lines().map(line).collect()
}

#[test]
fn exports_have_turns_of_their_own() {
    let server = Server::with(HttpSettings {
        queries_in_flight_max: 0,
        turn_timeout: Duration::from_millis(50),
        ..HttpSettings::default()
    });
    assert_eq!(
        server
            .post(
                "/write?precision=s",
                "text/plain",
                "up,host=a value=1 1700000000\n"
            )
            .status,
        204
    );
    assert_eq!(server.get("/api/v1/query?query=up").status, 503);
    let response = export(&server, "");
    assert_eq!(
        (response.status, lines(&response).len()),
        (200, 1),
        "{}",
        response.text()
    );
}

#[test]
fn the_wait_for_a_permit_is_time_of_a_query() {
    let server = Server::with(HttpSettings {
        queries_in_flight_max: 0,
        turn_timeout: Duration::from_secs(10),
        ..HttpSettings::default()
    });
    let began = Instant::now();
    let response = server.get("/api/v1/query?query=up&timeout=100ms");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(response.status, 503);
    assert!(
        response.text().contains("\"errorType\":\"timeout\""),
        "{}",
        response.text()
    );
}

#[test]
fn lines_have_as_many_rows_as_requested_and_importers_read() {
    let server = Server::start();
    let text: String = (0..5_000)
        .map(|at| format!("m,host=a value={at},busy=2 {}\n", 1_700_000_000_000_i64 + at))
        .collect();
    assert_eq!(
        server.post("/write?precision=ms", "text/plain", &text).status,
        204
    );
    for (rows, count) in [("0", 2), ("5000", 2), ("4999", 4), ("1000", 10), ("200000", 2)] {
        let response = export(&server, &format!("&max_rows_per_line={rows}"));
        let lines = lines(&response);
        assert_eq!(lines.len(), count, "{rows}");
        for metric in ["\"m\"", "\"m_busy\""] {
            let of_it = lines.iter().filter(|(labels, _)| labels.contains(metric));
            let times: Vec<i64> = of_it.flat_map(|(_, times)| times.clone()).collect();
            let expected: Vec<i64> = (0..5_000).map(|at| 1_700_000_000_000 + at).collect();
            assert!(times == expected, "{rows} {metric}");
        }
    }
    for rows in ["200001", "-1", "many", "1.5"] {
        let response = export(&server, &format!("&max_rows_per_line={rows}"));
        assert_eq!(response.status, 400, "{rows}");
        assert!(
            response.text().contains("max_rows_per_line"),
            "{}",
            response.text()
        );
    }
}

#[test]
fn an_expression_that_is_too_large_for_the_index_is_evaluated() {
    let server = Server::start();
    let name = "p".repeat(50);
    let text = format!("up,job={name} value=1 1700000000\nup,job=b value=1 1700000000\n");
    assert_eq!(server.post("/write?precision=s", "text/plain", &text).status, 204);
    let response = server.get("/api/v1/query?query=up%7Bjob%3D~%22%5C%5CpL%7B50%7D%22%7D&time=1700000010");
    assert_eq!(response.status, 200, "{}", response.text());
    assert!(
        response.text().contains(&name) && !response.text().contains("\"b\""),
        "{}",
        response.text()
    );
}
