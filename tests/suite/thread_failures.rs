//! A panic in a supervised thread ends the process with a reason: no request hangs, and no acknowledged point
//! is lost. A log that cannot be written causes no panic.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tideline_tests::ledger::{Fate, MEASUREMENT};
use tideline_tests::load::Load;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, reading, seed};

/// Supervised threads, and the round in which each panics.
const THREADS: [(&str, u32); 5] = [
    ("committer", 50),
    ("sealer", 3),
    ("maintenance", 2),
    ("indexer", 2),
    ("scheduler", 2),
];
/// Time limit from the start of the load to the end of the process. The slowest thread has a round every five
/// seconds, and the drain takes up to five seconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn contradictions(load: &Load, client: &Client) -> Vec<String> {
    let rows = reading::all_if_known(client, "default", MEASUREMENT);
    load.ledger().contradictions(&rows, false)
}

#[test]
fn a_panic_in_any_thread_ends_the_process_and_loses_nothing() {
    let load = Load::new(seed("thread_failures"));
    let folder = DataFolder::new();
    for (thread, round) in THREADS {
        let at = format!("thread.{thread}:{round}");
        let server = folder.spawn(&Launch::default().environment("TIDELINE_PANIC_AT", &at));
        let client = server.client();
        let writers = load.start(&client, 2);
        let ended = server
            .ended_within(PATIENCE)
            .unwrap_or_else(|server| panic!("{at}: it still runs; its log:\n{}", server.log()));
        // Requests that waited for the thread have received a response or lost their connection.
        let written = writers.join();
        println!("{at}: {:?} after {:?}, {written:?}", ended.status, ended.took);
        assert_eq!(ended.status.code(), Some(1), "{at}: {}", ended.log);
        let reason = format!("the {thread} thread panicked: ");
        assert!(ended.log.contains(&reason), "{at}: {}", ended.log);
        let server = folder.start(&Launch::default());
        let found = contradictions(&load, &server.client());
        assert!(found.is_empty(), "{at}:\n{}", found.join("\n"));
        server.kill();
    }
    assert!(
        !load.ledger().keys(Fate::Acknowledged).is_empty(),
        "there was load"
    );
}

#[test]
fn a_log_that_cannot_be_written_harms_nothing() {
    let folder = DataFolder::new();
    let full = Launch::default()
        .log_file(Path::new("/dev/full"))
        .environment("TIDELINE__LOG__LEVEL", "debug");
    let server = folder.start(&full);
    let client = server.client();
    for round in 0..3 {
        let line = format!("log,host=a v={round} {}", 1_700_000_000_000_000_000_i64 + round);
        client
            .post_lines("/v1/tables/default/points", &line)
            .expect_status(200);
        client
            .post_json("/v1/jobs", &json!({"kind": "seal"}))
            .expect_status(200);
        client.get("/ready").expect_status(200);
    }
    assert_eq!(reading::all(&client, "default", "log").len(), 3);
    assert!(server.terminate().status.success());
}
