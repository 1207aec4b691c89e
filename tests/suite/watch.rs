//! Watches over HTTP: a client that resumes from the cursor of the last event misses no event and receives none twice,
//! even after kill −9. A watch ends when its client disconnects, its time is over, or the service stops. Invalid
//! watches are rejected.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

/// Time limit of all waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// Event: id, name and data.
#[derive(Debug)]
struct Event {
    id: Option<String>,
    name: String,
    data: Value,
}

/// Parses the events of a complete stream.
fn events(text: &str) -> Vec<Event> {
    let blocks = text.split("\n\n").filter(|block| block.contains("event: "));
    let line = |block: &str, name: &str| {
        let found = block
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.map(str::to_owned)
    };
    blocks
        .map(|block| Event {
            id: line(block, "id"),
            name: line(block, "event").expect("just looked for"),
            data: serde_json::from_str(&line(block, "data").expect("data")).expect("data is JSON"),
        })
        .collect()
}

/// Returns the events after a cursor, and the cursor at which the next poll continues.
fn poll(client: &Client, from: Option<&str>) -> (Vec<Event>, String) {
    let mut told = Vec::new();
    let mut from = from.map(str::to_owned);
    loop {
        let request = json!({"from": from, "for": "0s", "times": "nanos"});
        let answer = client
            .post_json("/v1/tables/default/watch", &request)
            .expect_status(200);
        assert_eq!(answer.header("content-type"), "text/event-stream");
        let mut part = events(&answer.text());
        let ready = part.remove(0);
        assert_eq!(
            (ready.name.as_str(), &ready.data["cursor"]),
            ("ready", &json!(ready.id))
        );
        let last = part.iter().rev().find_map(|event| event.id.clone());
        let is_end = part.is_empty();
        told.extend(part);
        from = last.or(ready.id);
        if is_end {
            return (told, from.expect("each event has an id"));
        }
    }
}

/// Counts how often each value of field `n` was received.
fn count(told: &[Event], seen: &mut BTreeMap<i64, u32>) {
    for event in told.iter().filter(|event| event.name == "points") {
        for series in event.data["series"].as_array().expect("series") {
            for row in series["points"].as_array().expect("rows") {
                *seen.entry(row[1].as_i64().expect("a number")).or_default() += 1;
            }
        }
    }
}

#[test]
fn a_watch_that_is_resumed_receives_every_event_once() {
    let folder = DataFolder::new();
    let mut server = folder.start(&Launch::default());
    let mut client = server.client();
    let (_, mut cursor) = poll(&client, None);
    let (mut seen, mut written) = (BTreeMap::new(), 0i64);
    for round in 0..6 {
        for batch in 0..4 {
            let rows = if batch == 1 { 5_000 } else { 3 };
            let line = |n: i64| format!("m,host=h{} n={n}i {n}\n", n % 7);
            let lines: String = (written..written + rows).map(line).collect();
            client.post_lines("/write", &lines).expect_status(204);
            written += rows;
        }
        if round % 2 == 1 {
            server.kill();
            server = folder.start(&Launch::default());
            client = server.client();
        }
        let (told, next) = poll(&client, Some(&cursor));
        count(&told, &mut seen);
        cursor = next;
    }
    assert_eq!(seen.len() as i64, written, "every point is received");
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times != 1).take(5).collect();
    assert!(twice.is_empty(), "received more than once: {twice:?}");
}

#[test]
fn a_dropped_table_and_a_kill_hide_nothing_from_a_watcher() {
    let folder = DataFolder::new();
    let mut server = folder.start(&Launch::default());
    let mut client = server.client();
    let mut written = 0i64;
    let mut seen = BTreeMap::new();
    let write = |client: &Client, path: &str, from: i64, to: i64| {
        for n in from..to {
            let line = format!("m,host=a n={n}i {n}\n");
            let answer = client.post_lines(path, &line);
            assert!(answer.is_success(), "{}", answer.text());
        }
    };
    for round in 0..3 {
        let table = json!({"name": "doomed"});
        client.post_json("/v1/tables", &table).expect_status(201);
        write(&client, "/write", written, written + 3);
        write(&client, "/v1/tables/doomed/points", 0, 20);
        let (told, cursor) = poll(&client, None);
        assert!(told.is_empty());
        client
            .send("DELETE", "/v1/tables/doomed", &[], b"")
            .expect("a response")
            .expect_status(204);
        server.kill();
        server = folder.start(&Launch::default());
        client = server.client();
        write(&client, "/write", written + 3, written + 43);
        let (told, _) = poll(&client, Some(&cursor));
        count(&told, &mut seen);
        let expected: Vec<i64> = (written + 3..written + 43).collect();
        let found: Vec<i64> = seen.keys().copied().collect();
        assert_eq!(found, expected, "round {round}");
        seen.clear();
        written += 43;
    }
}

#[test]
fn deletes_are_told_also_after_a_kill() {
    let folder = DataFolder::new();
    let mut server = folder.start(&Launch::default());
    let mut client = server.client();
    client
        .post_lines(
            "/write",
            "m,host=a n=1i 1000\nm,host=a n=1i 5000\nm,host=b n=2i 1000\n",
        )
        .expect_status(204);
    let (_, cursor) = poll(&client, None);
    let of = |host: &str| json!({"where": {"tag": "host", "equals": host}});
    let delete = |client: &Client, path: &str, body: Value| {
        let path = format!("/v1/tables/default/{path}");
        client.post_json(&path, &body).expect_status(200);
    };
    let range = json!({"start": 0, "end": 2000});
    delete(
        &client,
        "points/delete",
        json!({"timelines": of("a"), "range": range}),
    );
    delete(&client, "timelines/delete", json!({"timelines": of("b")}));
    let deleted = |client: &Client| -> Vec<Value> {
        let (told, _) = poll(client, Some(&cursor));
        let deleted = told.into_iter().filter(|event| event.name == "deleted");
        deleted.map(|event| event.data).collect()
    };
    let told = deleted(&client);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((&told[0]["range"], &told[0]["removed"]), (&range, &json!(false)));
    assert_eq!(
        (&told[1]["range"], &told[1]["removed"]),
        (&json!({}), &json!(true))
    );
    let found = client.post_json(
        "/v1/tables/default/timelines/search",
        &json!({"where": of("a")["where"]}),
    );
    assert_eq!(
        told[0]["timelines"],
        json!([found.expect_status(200).json()["timelines"][0]["id"]])
    );
    assert_eq!(told[1]["timelines"].as_array().map(Vec::len), Some(1));
    server.kill();
    server = folder.start(&Launch::default());
    client = server.client();
    assert_eq!(deleted(&client), told);
}

#[test]
fn an_open_watch_receives_writes_and_ends_with_the_service() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let mut stream = TcpStream::connect(client.address()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let selector = "%7B%22where%22%3A%7B%22tag%22%3A%22host%22%2C%22equals%22%3A%22a%22%7D%7D";
    let head = format!(
        "GET /v1/tables/default/watch?tell=points&timelines={selector} HTTP/1.1\r\nhost: {}\r\n\r\n",
        client.address()
    );
    stream.write_all(head.as_bytes()).expect("it is taken");
    let mut lines = BufReader::new(stream).lines();
    let mut until = |wanted: &str| {
        let found = lines.find_map(|line| line.ok().filter(|line| line.starts_with(wanted)));
        found.unwrap_or_else(|| panic!("the stream ended before {wanted:?}"))
    };
    until("data: {\"cursor\"");
    client
        .post_lines("/write", "m,host=b n=1i 1\nm,host=a n=2i 2\n")
        .expect_status(204);
    let data = until("data: ");
    assert!(
        data.contains("\"tags\":{\"host\":\"a\"}") && data.contains(",2]]"),
        "{data}"
    );
    let began = Instant::now();
    let ended = server.terminate();
    assert!(ended.status.success(), "{:?}", ended.status);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "it waited for the watch: {:?}",
        began.elapsed()
    );
    assert!(
        lines.all(|line| line.is_ok_and(|line| !line.starts_with("data: "))),
        "no further events"
    );
}

#[test]
fn wrong_watches_are_refused_with_what_is_wrong() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default().environment("TIDELINE__HTTP__WATCHES_MAX", "1"));
    let client = server.client();
    let refused = |request: Value, status: u16, code: &str, words: &str| {
        let answer = client
            .post_json("/v1/tables/default/watch", &request)
            .expect_status(status);
        let body = answer.json();
        assert_eq!(body["code"], code, "{body}");
        assert!(
            body["message"]
                .as_str()
                .is_some_and(|message| message.contains(words)),
            "{body}"
        );
    };
    refused(json!({"from": "yesterday"}), 400, "invalid", "cursor");
    refused(json!({"from": "1-ffffffff-0-0"}), 410, "gone", "does not reach");
    refused(json!({"from": "77-0-0-0"}), 400, "invalid", "another table");
    refused(json!({"for": "8d"}), 400, "invalid", "7d");
    refused(json!({"tell": ["queries"]}), 400, "invalid", "queries");
    let seen = json!({"timelines": {"where": {"property": "last_seen", "range": {"start": "now-1h"}}}});
    refused(seen, 400, "invalid", "last_seen");
    refused(
        json!({"timelines": {"ids": ["3f2a9c017bde45a18c40f1e29d3b6a57"]}}),
        404,
        "not_found",
        "3f2a",
    );
    let by_address = |query: &str| client.get(&format!("/v1/tables/default/watch?{query}"));
    assert!(
        by_address("timelines=host")
            .expect_status(400)
            .text()
            .contains("JSON")
    );
    assert!(
        by_address("tell=all")
            .expect_status(400)
            .text()
            .contains("timelines")
    );
    client.get("/v1/tables/nowhere/watch").expect_status(404);
}
