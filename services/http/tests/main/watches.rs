//! Tests with many watches, and with a watch of a slow client, which must hold little memory.
//!
//! Watches with the same request share encoded steps, and each point is sent once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tideline_http::HttpSettings;
use tideline_testkit::wait::until;

use crate::client::Server;

const TABLE: &str = "/v1/tables/default";

/// Opens a watch and reads its first event.
fn watch(server: &Server, request: &str) -> TcpStream {
    let mut stream = server.connect();
    let head = format!(
        "POST {TABLE}/watch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{request}",
        request.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let text = read_until(&mut stream, "event: ready");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    stream
}

/// Reads until the text `wanted` is received.
pub(crate) fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0; 65_536];
    while !text.contains(wanted) {
        let count = stream.read(&mut bytes).expect("an event in time");
        assert!(count > 0, "the watch ended: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    text
}

pub(crate) fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.get("/metrics").text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("{name} is missing: {metrics}"));
    line.parse().expect("a number")
}

/// Writes until a watch takes no further step, because its client reads nothing and all buffers are full.
pub(crate) fn until_stuck(server: &Server, steps: &str, mut write: impl FnMut()) {
    // Buffers of sockets hold some megabytes.
    for _ in 0..1_000 {
        let before = metric(server, steps);
        write();
        let step = until(Duration::from_secs(3), || {
            (metric(server, steps) != before).then_some(())
        });
        if step.is_none() {
            return;
        }
    }
    panic!("the watch takes steps although its client reads nothing");
}

fn write(server: &Server, from: i64, to: i64) {
    let lines: String = (from..to)
        .map(|n| format!("m,host=h{} n={n}i {n}\n", n % 7))
        .collect();
    server
        .post(&format!("{TABLE}/points"), "text/plain", lines)
        .expect(200);
}

#[test]
fn watches_of_the_same_are_encoded_once_and_each_point_comes_once() {
    let server = Server::start();
    write(&server, 0, 7);
    let mut watches: Vec<TcpStream> = (0..40)
        .map(|_| watch(&server, "{\"tell\": [\"points\"]}"))
        .collect();
    let mut others: Vec<TcpStream> = (0..7)
        .map(|host| {
            let request = format!(r#"{{"timelines": {{"where": {{"tag": "host", "equals": "h{host}"}}}}}}"#);
            watch(&server, &request)
        })
        .collect();
    assert!(metric(&server, "tideline_watches") >= 47.0);
    const ROUNDS: i64 = 30;
    let taken = || metric(&server, "tideline_watch_steps_total");
    let shared = || metric(&server, "tideline_watch_steps_shared_total");
    for round in 1..=ROUNDS {
        let (before, began) = (taken() + shared(), Instant::now());
        write(&server, round * 10, round * 10 + 10);
        // The next round starts when each watch has counted a step (or after 10 s), so that all have the same cursor.
        while taken() + shared() < before + 47.0 && began.elapsed() < Duration::from_secs(10) {}
    }
    write(&server, 100_000, 100_007);
    for watch in &mut watches {
        let mut text = read_until(watch, "100006]");
        text.retain(|c| c != '\r');
        for n in (10..ROUNDS * 10 + 10).chain(100_000..100_007) {
            assert_eq!(text.matches(&format!(",{n}]")).count(), 1, "{n}: {text}");
        }
    }
    for (host, watch) in others.iter_mut().enumerate() {
        let last = (100_000..100_007)
            .find(|n| n % 7 == host as i64)
            .expect("one of each");
        let text = read_until(watch, &format!(",{last}]"));
        let told = (10..ROUNDS * 10 + 10).filter(|n| text.contains(&format!(",{n}]")));
        assert!(told.clone().count() > 0 && told.clone().all(|n| n % 7 == host as i64));
    }
    let (taken, shared) = (taken(), shared());
    assert!(
        shared > taken,
        "40 watches share, 7 do not: {shared} shared, {taken} taken"
    );
}

#[test]
fn a_slow_watch_holds_little_and_reports_what_it_missed() {
    let server = Server::with(HttpSettings {
        answer_timeout: Duration::from_secs(600),
        ..HttpSettings::default()
    });
    let mut slow = watch(&server, "{}");
    let text = "x".repeat(60_000);
    let began = Instant::now();
    // Writes more points than the server keeps for watches and than fit into the socket buffers.
    for n in 0..500 {
        let lines: String = (0..4)
            .map(|at| format!("m,host=a text=\"{n}-{at}{text}\" {n}{at}\n"))
            .collect();
        server
            .post(&format!("{TABLE}/points"), "text/plain", lines)
            .expect(200);
    }
    let held = || metric(&server, "tideline_memory_requests_bytes");
    // Each check is a request, so the loop does not need a pause.
    while held() > 0.0 && began.elapsed() < Duration::from_secs(60) {}
    assert_eq!(held(), 0.0, "after {:?}", began.elapsed());
    let text = read_until(&mut slow, "event: failed");
    assert!(text.contains("is not kept any more") || read_until(&mut slow, "kept any more").len() > 1);
}

#[test]
fn a_client_that_stops_reading_is_told_to_resume() {
    let server = Server::with(HttpSettings {
        answer_timeout: Duration::from_secs(16),
        ..HttpSettings::default()
    });
    let mut slow = watch(&server, "{}");
    let (text, mut number) = ("x".repeat(60_000), 0);
    until_stuck(&server, "tideline_watch_steps_total", || {
        number += 1;
        let lines: String = (0..8)
            .map(|at| format!("m,host=a text=\"{at}{text}\" {number}{at}\n"))
            .collect();
        server
            .post(&format!("{TABLE}/points"), "text/plain", lines)
            .expect(200);
    });
    // The watch ends although its client has not read the queued events.
    let ended = until(Duration::from_secs(60), || {
        (metric(&server, "tideline_watches") == 0.0).then_some(())
    });
    assert!(ended.is_some(), "the watch does not end");
    let (mut received, mut bytes) = (Vec::new(), [0; 65_536]);
    while !String::from_utf8_lossy(&received[received.len().saturating_sub(bytes.len())..]).contains("slow") {
        let count = slow.read(&mut bytes).expect("an event in time");
        assert!(count > 0, "the watch was cut");
        received.extend_from_slice(&bytes[..count]);
    }
    let received = String::from_utf8_lossy(&received);
    let (before, last) = received.split_once("event: resume").expect("the last event");
    let id = before.rsplit_once("id: ").map(|(_, id)| id.trim());
    let data = format!(
        "data: {{\"cursor\":\"{}\",\"reason\":\"slow\"}}",
        id.expect("an id")
    );
    assert!(last.contains(&data) && !last.contains("event: "), "{last}");
}
