//! Clients that read their responses very slowly: queries of other clients still succeed, and the slow
//! readers are disconnected.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, wait};

/// Number of slow readers: three times the number of query permits.
const READERS: usize = 48;
/// Number of points of 1 KB; together they exceed the buffers of a connection and of a response.
const POINTS: usize = 16_000;
/// Time limit of two queries during the slow reads. A query that gets no permit is refused after five seconds.
const PROMPT: Duration = Duration::from_secs(4);

fn write(client: &Client) {
    let text = "x".repeat(1_000);
    for batch in 0..POINTS / 2_000 {
        let line = |at: usize| {
            let time = 1_700_000_000 + batch * 2_000 + at;
            format!("wide,host=a text=\"{text}\",value={at} {time}000000000\n")
        };
        let lines: String = (0..2_000).map(line).collect();
        client.post_lines("/write", &lines).expect_status(204);
    }
}

/// Requests all points and reads at most 64 bytes per second.
fn read_slowly(client: &Client, stop: &AtomicBool) {
    let address = client.address();
    let mut stream = TcpStream::connect(address).expect("it listens");
    let body = json!({"timelines": {"where": {"property": "measurement", "equals": "wide"}}}).to_string();
    let head = format!(
        "POST /v1/tables/default/query HTTP/1.1\r\nhost: {address}\r\naccept: text/csv\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if stream.read(&mut buffer).is_err() {
            return;
        }
        wait::pause(Duration::from_secs(1));
    }
}

fn gauge(metrics: &str, name: &str) -> Option<f64> {
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[test]
fn queries_are_answered_beside_readers_of_64_bytes_a_second() {
    let folder = DataFolder::new();
    let launch = Launch::default()
        .environment("TIDELINE__MEMORY__MAX", "512MiB")
        .environment("TIDELINE__HTTP__ANSWER_TIMEOUT", "8s");
    let server = folder.start(&launch);
    let client = server.client();
    write(&client);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| read_slowly(&client, &stop));
        }
        wait::pause(Duration::from_secs(1));
        let count = json!({"aggregate": {"functions": ["count"]}, "fields": ["value"]});
        for _ in 0..20 {
            let asked = Instant::now();
            let answer = client
                .post_json("/v1/tables/default/query", &count)
                .expect_status(200);
            assert!(answer.text().contains("16000"), "{answer:?}");
            client
                .get("/api/v1/query?query=count(wide_value)")
                .expect_status(200);
            assert!(asked.elapsed() < PROMPT, "two queries took {:?}", asked.elapsed());
            wait::pause(Duration::from_millis(100));
        }
        let metrics = client.get("/metrics").text();
        let used = gauge(&metrics, "tideline_memory_requests_bytes ");
        let limit = gauge(&metrics, "tideline_memory_requests_max_bytes ");
        assert!(used <= limit && limit.is_some(), "{used:?} of {limit:?}");
        // The connections of the slow readers are closed, and their queries have ended.
        let mut metrics = String::new();
        let closed = wait::until(Duration::from_secs(40), || {
            metrics = client.get("/metrics").text();
            let is = |name, most| gauge(&metrics, name).is_some_and(|count| count <= most);
            (is("tideline_http_connections ", 4.0) && is("tideline_memory_requests_bytes ", 0.0))
                .then_some(())
        });
        stop.store(true, Ordering::Relaxed);
        assert!(closed.is_some(), "{metrics}");
    });
    assert_eq!(client.get("/v1/queries").json()["queries"], json!([]));
}
