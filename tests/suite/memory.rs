//! Requests that need as much memory as possible, sixteen of each kind at once: resident memory stays below
//! `memory.max` plus a fixed base, writes continue, and requests that get no memory fail with a clear error.
//! A second test checks that a limit below the reserved memory is rejected at the start.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tideline_tests::load::Load;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, seed, wait};

const MIB: u64 = 1 << 20;
const MEMORY_MAX: u64 = 384 * MIB;
/// Memory in bytes that `memory.max` does not count: code, threads, catalogs, the index and reserves of the allocator.
const BASE_BYTES: u64 = 128 * MIB;
/// Number of concurrent requests of one kind.
const AT_ONCE: usize = 16;

fn launch(archive: &Path) -> Launch {
    Launch::default()
        .environment("TIDELINE__MEMORY__MAX", &MEMORY_MAX.to_string())
        .environment(
            "TIDELINE__ARCHIVE__TARGET",
            &format!("file://{}", archive.display()),
        )
}

/// Sends a request [`AT_ONCE`] times concurrently; returns the statuses. A 503 must have a `retry-after`
/// header, and a 422 must mention memory; any status except these, 200 and 409 fails the test.
fn at_once(
    client: &Client,
    what: &str,
    send: impl Fn(&Client) -> tideline_tests::client::Response + Sync,
) -> Vec<u16> {
    let statuses: Vec<u16> = thread::scope(|scope| {
        let sent: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let answer = send(client);
                    match answer.status {
                        200 | 409 => {}
                        503 => assert!(!answer.header("retry-after").is_empty(), "{what}: {answer:?}"),
                        422 => assert!(answer.text().contains("memory"), "{what}: {answer:?}"),
                        _ => panic!("{what}: {answer:?}"),
                    }
                    answer.status
                })
            })
            .collect();
        let statuses = sent.into_iter().map(|sent| sent.join().expect("it has a status"));
        statuses.collect()
    });
    println!("{what}: {statuses:?}");
    statuses
}

#[test]
fn sixteen_of_each_large_request_stay_below_the_limit_and_writes_go_on() {
    let folder = DataFolder::new();
    let archive = folder.beside("archive");
    // Sparse file of zeros in place of a sidecar; it takes no space on the disk.
    let segments = archive.join("huge/_segments");
    fs::create_dir_all(&segments).expect("a folder");
    let digits = "0123456789abcdef0123456789abcdef";
    let huge = File::create(segments.join(format!("00aa-1-{digits}.json"))).expect("a file");
    huge.set_len(1_200 * MIB).expect("a sparse file");
    let server = folder.start(&launch(&archive));
    let client = server.client();
    let before = server.resident_bytes_peak();
    for table in 0..300 {
        let name = json!({"name": format!("table_{table}")});
        client.post_json("/v1/tables", &name).expect_status(201);
    }
    let load = Load::new(seed("memory"));
    let writers = load.start(&client, 2);

    // Each step of a subquery counts as one value: at least 400 MB for a request of fifty bytes.
    let huge = "/api/v1/query?query=max_over_time(vector(1)%5B49999999s:1s%5D)";
    let statuses = at_once(
        &client,
        "a subquery that is too large for the account",
        |client| client.get(huge),
    );
    assert!(statuses.iter().all(|status| *status == 422), "{statuses:?}");
    let large = "/api/v1/query?query=max_over_time(vector(1)%5B1000000s:1s%5D)";
    at_once(&client, "subqueries that fit alone", |client| client.get(large));
    let long = "/api/v1/query?query=vector(1)%5B800000s:1s%5D";
    at_once(&client, "a series of many samples", |client| client.get(long));
    let show = format!("q={}", "SHOW+DATABASES;".repeat(4_200));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    at_once(&client, "4,200 lists of all tables", |client| {
        let sent = client.send("POST", "/query", &form, show.as_bytes());
        sent.expect("a response")
    });
    let attach = json!({"target": "default"});
    at_once(&client, "an archive with a huge object", |client| {
        client.post_json("/v1/archive/attach", &attach)
    });
    let cells = json!({
        "range": {"start": 1_700_000_000_000_000_000_i64, "end": 1_700_900_000_000_000_000_i64},
        "aggregate": {"functions": ["stddev"], "window": "6s"},
        "limit": 10,
    });
    at_once(&client, "an aggregate of many cells", |client| {
        client.post_json("/v1/tables/default/query", &cells)
    });

    let written = writers.stop();
    let peak = server.resident_bytes_peak();
    println!(
        "{written:?}; resident at most {} MiB, {} MiB at start",
        peak / MIB,
        before / MIB
    );
    assert!(written.acknowledged > 0, "{written:?}");
    assert_eq!((written.refused, written.unanswered), (0, 0), "{written:?}");
    assert!(
        peak < MEMORY_MAX + BASE_BYTES,
        "resident: {} MiB\n{}",
        peak / MIB,
        client.get("/metrics").text()
    );
    // The requests have released all of their memory, and a single large query succeeds.
    let free = wait::until(Duration::from_secs(10), || {
        let metrics = client.get("/metrics").text();
        metrics
            .contains("\ntideline_memory_requests_bytes 0")
            .then_some(())
    });
    assert!(free.is_some(), "{}", client.get("/metrics").text());
    client.get(large).expect_status(200);
    let metrics = client.get("/metrics").text();
    assert!(
        metrics.contains("tideline_memory_refusals_total{holder=\"queries\"}"),
        "{metrics}"
    );
}

#[test]
fn a_limit_below_what_is_set_aside_is_refused_with_the_numbers() {
    let folder = DataFolder::new();
    let launch = Launch::default()
        .environment("TIDELINE__MEMORY__MAX", "256MiB")
        .environment("TIDELINE__STORAGE__HEAD_BYTES_MAX", "200MiB");
    let Ok(ended) = folder.spawn(&launch).ended_within(Duration::from_secs(30)) else {
        panic!("the server started");
    };
    assert!(!ended.status.success(), "{ended:?}");
    for part in [
        "memory.max of 256MiB",
        "2 × storage.head_bytes_max 400MiB",
        "raise memory.max",
    ] {
        assert!(ended.log.contains(part), "{part:?} is not in:\n{}", ended.log);
    }
}
