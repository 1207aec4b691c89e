//! Regular expressions in requests: their size is checked before they are compiled, and compiling them does not block
//! other requests. A search ends when its client disconnects.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_http::HttpSettings;

use crate::client::{Response, Server};

const TABLE: &str = "/v1/tables/default";

/// Encodes a text as a form value.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns a selector that blocks the server for 15 s if patterns are not limited: about 20 KB with 700 regular
/// expressions, each of which takes about one megabyte when compiled.
fn bomb() -> String {
    let matchers = (0..700).map(|at| format!(r#"label_{at:03}=~"x\\pL{{40}}.*{at}""#));
    format!("up{{{}}}", matchers.collect::<Vec<_>>().join(","))
}

fn regexes(count: usize, pattern: impl Fn(usize) -> String) -> String {
    let nodes: Vec<_> = (0..count)
        .map(|at| json!({"tag": "host", "regex": pattern(at)}))
        .collect();
    json!({"where": {"or": nodes}}).to_string()
}

fn fill(server: &Server, hosts: usize) {
    let lines: String = (0..hosts)
        .map(|host| format!("cpu,host=machine-{host:06}-{} usage=1\n", "ab".repeat(20)))
        .collect();
    server
        .post(&format!("{TABLE}/points"), "text/plain", lines)
        .expect(200);
}

#[test]
fn patterns_of_a_request_are_added_up_before_any_is_compiled() {
    let server = Server::start();
    let bomb = bomb();
    assert!((15_000..30_000).contains(&bomb.len()), "{}", bomb.len());
    let query = encoded(&bomb);
    let end = "start=0&end=60&step=15";
    for path in [
        format!("/api/v1/parse_query?query={query}"),
        format!("/api/v1/format_query?query={query}"),
        format!("/api/v1/query?query={query}"),
        format!("/api/v1/query_range?query={query}&{end}"),
        format!("/api/v1/query_exemplars?query={query}&{end}"),
        format!("/api/v1/series?match[]={query}"),
        format!("/federate?match[]={query}"),
    ] {
        let refused = server.get(&path);
        let text = refused.text();
        assert_eq!(refused.status, 400, "{text}");
        assert!(
            text.contains("patterns of this request") && text.contains("at most 67108864 are allowed"),
            "{text}"
        );
    }
    // The limit applies to the sum over all selectors of a request.
    let one = encoded(r#"up{a=~"x\\pL{40}.*"}"#);
    let many = vec![format!("match[]={one}"); 40].join("&");
    let refused = server.get(&format!("/api/v1/series?{many}"));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("patterns of this request"),
        "{}",
        refused.text()
    );
    // A single pattern has a separate limit.
    let refused = server.get(&format!(
        "/api/v1/parse_query?query={}",
        encoded(r#"{a=~"\\pL{1000}"}"#)
    ));
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("at most 8388608 are allowed"),
        "{}",
        refused.text()
    );
    // Typical requests of dashboards are accepted: a list of a thousand values, and a hundred patterns.
    let hosts = (0..1_000).map(|host| format!("machine-{host:06}"));
    let list = format!(r#"up{{host=~"{}"}}"#, hosts.collect::<Vec<_>>().join("|"));
    let dozens = (0..100).map(|at| format!(r#"l{at}=~"(?i)a.*[b-d]{at}\\d+""#));
    let dozens = format!("up{{{}}}", dozens.collect::<Vec<_>>().join(","));
    for query in [list, dozens] {
        let form = format!("query={}", encoded(&query));
        for path in ["/api/v1/parse_query", "/api/v1/query"] {
            let response = server.post(path, "application/x-www-form-urlencoded", &form);
            assert_eq!(response.status, 200, "{}", response.text());
        }
    }
}

#[test]
fn calls_of_label_replace_are_added_up() {
    let server = Server::start();
    fill(&server, 1);
    let call = |at: usize| format!(r#"label_replace(cpu_usage, "a", "$1", "host", "(a.*){at}\\w{{20}}")"#);
    let one = server.get(&format!("/api/v1/query?query={}", encoded(&call(1))));
    assert_eq!(one.status, 200, "{}", one.text());
    let calls: Vec<String> = (0..150).map(call).collect();
    let form = format!("query={}", encoded(&calls.join(" or ")));
    let refused = server.post("/api/v1/query", "application/x-www-form-urlencoded", form);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused
            .text()
            .contains("label_replace(): the patterns of this request"),
        "{}",
        refused.text()
    );
}

#[test]
fn conditions_of_many_patterns_are_refused_wherever_they_are_given() {
    let server = Server::start();
    let bomb = regexes(3_000, |at| format!("a.*{at}"));
    let condition: serde_json::Value = serde_json::from_str(&bomb).expect("JSON");
    let condition = &condition["where"];
    let timelines = json!({"where": condition});
    let range = json!({"start": null, "end": null});
    for (method, path, body) in [
        ("POST", "timelines/search", bomb.clone()),
        (
            "POST",
            "timelines/facets",
            json!({"where": condition, "by": [{"tag": "host"}]}).to_string(),
        ),
        (
            "POST",
            "query",
            json!({"timelines": timelines, "range": range}).to_string(),
        ),
        (
            "POST",
            "points/delete",
            json!({"timelines": timelines, "range": range}).to_string(),
        ),
        (
            "POST",
            "timelines/delete",
            json!({"timelines": timelines}).to_string(),
        ),
        ("POST", "watch", json!({"timelines": timelines}).to_string()),
        ("PUT", "searches/large", bomb.clone()),
        (
            "POST",
            "timelines/attributes",
            json!({"timelines": timelines, "set": {"a": "b"}}).to_string(),
        ),
    ] {
        let refused = server.json(method, &format!("{TABLE}/{path}"), &body);
        let error = refused.value();
        assert_eq!(
            (refused.status, &error["code"], &error["limit"]),
            (400, &json!("over_limit"), &json!(64 << 20)),
            "{path}: {error}"
        );
        assert!(
            refused.text().contains("patterns of this request"),
            "{path}: {error}"
        );
    }
    // Wildcards, and regular expressions that list a few alternatives, are not compiled.
    let wildcards: Vec<_> = (0..3_000)
        .map(|at| json!({"tag": "host", "wildcard": format!("machine-*{at}")}))
        .collect();
    let lists: Vec<_> = (0..3_000)
        .map(|at| json!({"tag": "host", "regex": format!("web-{at}|db-[0-9]-{at}")}))
        .collect();
    for nodes in [wildcards, lists] {
        let body = json!({"where": {"or": nodes}}).to_string();
        server
            .json("POST", &format!("{TABLE}/timelines/search"), &body)
            .expect(200);
    }
}

#[test]
fn a_search_ends_when_its_client_leaves() {
    let server = Server::with(HttpSettings {
        queries_in_flight_max: 1,
        turn_timeout: Duration::from_secs(3),
        ..HttpSettings::default()
    });
    for _ in 0..4 {
        fill(&server, 20_000);
    }
    // Each of 20,000 values is compared with 300 patterns that scan the whole value.
    let slow = regexes(300, |at| format!(".*a.*b.*a.*b.*a.*b.*a.*c{at}"));
    let quick = regexes(1, |_| "machine-000001.*".to_owned());
    let path = format!("{TABLE}/timelines/search");
    let mut stream = server.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        slow.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(slow.as_bytes()).expect("sent");
    let patience = Some(Duration::from_millis(500));
    stream.set_read_timeout(patience).expect("set");
    let early = stream.read(&mut [0]);
    assert!(
        early.is_err(),
        "the search is slow enough that the client disconnects first"
    );
    stream.shutdown(Shutdown::Both).expect("closed");
    drop(stream);
    let left = Instant::now();
    // The only permit is free again.
    let found = server.json("POST", &path, &quick).expect(200);
    assert_eq!(found["total"], json!(1), "{:?}", left.elapsed());
}

#[test]
fn writers_go_on_beside_sixteen_bombs() {
    let server = Server::start();
    fill(&server, 100);
    let query = encoded(&bomb());
    let search = regexes(3_000, |at| format!("a.*{at}"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) || written < 20 {
                fill(&server, 100);
                written += 1;
            }
        });
        let bombs: Vec<_> = (0..16)
            .map(|at| {
                let (server, query, search) = (&server, &query, &search);
                scope.spawn(move || -> Response {
                    match at % 2 {
                        0 => server.get(&format!("/api/v1/parse_query?query={query}")),
                        _ => server.json("POST", &format!("{TABLE}/timelines/search"), search),
                    }
                })
            })
            .collect();
        for bomb in bombs {
            assert_eq!(bomb.join().expect("no panic").status, 400);
        }
        done.store(true, Ordering::Relaxed);
        writer.join().expect("each write is acknowledged");
    });
}
