//! Kills the process with SIGKILL at random times, including the first starts on a folder. Every acknowledged point
//! must be stored once with its value. A point of unknown fate must be absent, or stored once with its value. No other
//! points may exist, and all acknowledged timelines must be found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tideline_fleet::Random;
use tideline_tests::ledger::{Fate, MEASUREMENT};
use tideline_tests::load::Load;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, reading, rounds, seed, wait};

/// Number of concurrent writers.
const WRITERS: u64 = 4;

#[test]
fn no_acknowledged_point_is_lost_when_the_process_is_killed() {
    let seed = seed("crash");
    let rounds = rounds("TIDELINE_ROUNDS", 5, 50);
    let mut random = Random::new(seed);
    let folder = DataFolder::new();
    kill_first_boots(&folder, &mut random);
    let load = Load::new(seed);
    for round in 1..=rounds {
        let launch = random_launch(&mut random);
        let started = Instant::now();
        let server = folder.start(&launch);
        let ready = started.elapsed();
        let client = server.client();
        check(&load, &client, round);
        if random.index(2) == 0 {
            load.resend_unknown(&client);
        }
        let alive = Duration::from_millis(20 + random.index(780) as u64);
        let writers = load.start(&client, WRITERS);
        let background = Background::start(&load, &client);
        wait::pause(alive);
        server.kill();
        let written = writers.join();
        let reads = background.stop();
        println!("round {round}: ready in {ready:?}, killed after {alive:?}, {written:?}, {reads} reads");
    }
    let server = folder.start(&Launch::default());
    check(&load, &server.client(), rounds + 1);
    let acknowledged = load.ledger().keys(Fate::Acknowledged).len();
    assert!(acknowledged > 0, "the load was acknowledged at least once");
    println!("{rounds} kills, {acknowledged} points acknowledged, all present");
}

/// Kills the first starts of a folder at random times, beginning immediately; the folder must still open.
fn kill_first_boots(folder: &DataFolder, random: &mut Random) {
    for bound_ms in [1, 10, 40, 120] {
        let server = folder.spawn(&Launch::default());
        wait::pause(Duration::from_millis(random.index(bound_ms) as u64));
        server.kill();
    }
}

/// Returns a launch with a random head size (limit of unsealed points in memory): small heads are sealed during the
/// load; with large heads, all points are only in the journal.
fn random_launch(random: &mut Random) -> Launch {
    let heads = ["1MiB", "4MiB", "256MiB"];
    Launch::default().environment(
        "TIDELINE__STORAGE__HEAD_BYTES_MAX",
        heads[random.index(heads.len())],
    )
}

/// Checks the invariants after a restart. Before the first acknowledged point, nothing is checked.
fn check(load: &Load, client: &Client, round: usize) {
    let ledger = load.ledger().clone();
    if ledger.keys(Fate::Acknowledged).is_empty() {
        return;
    }
    let rows = reading::all(client, "default", MEASUREMENT);
    let contradictions = ledger.contradictions(&rows, false);
    assert!(
        contradictions.is_empty(),
        "round {round}:\n{}",
        contradictions.join("\n")
    );
    check_found(load, client, &rows, round);
}

/// Checks that the index agrees with the points: each machine with points is found once. The last three
/// acknowledged machines are also searched by their tag.
fn check_found(load: &Load, client: &Client, rows: &[reading::Row], round: usize) {
    let mut holders: Vec<String> = rows
        .iter()
        .filter_map(|row| row.tags.get("host").cloned())
        .collect();
    holders.sort();
    holders.dedup();
    let mut found = reading::sources(
        client,
        "default",
        &json!({"property": "measurement", "equals": MEASUREMENT}),
    );
    found.sort();
    let acknowledged = load.ledger().hosts(Fate::Acknowledged);
    for host in &acknowledged {
        assert!(
            found.binary_search(host).is_ok(),
            "round {round}: {host} is not found"
        );
    }
    for host in &holders {
        assert!(
            found.binary_search(host).is_ok(),
            "round {round}: {host} has points and is not found"
        );
    }
    let count = found.len();
    found.dedup();
    assert_eq!(found.len(), count, "round {round}: a timeline is found twice");
    for host in acknowledged.iter().rev().take(3) {
        let named = reading::sources(client, "default", &json!({"tag": "host", "equals": host}));
        assert_eq!(named, [host.as_str()], "round {round}");
    }
}

/// Concurrent seals and reads. A read must return all points that were acknowledged before it began.
struct Background {
    stop: Arc<AtomicBool>,
    reader: thread::JoinHandle<u64>,
    sealer: thread::JoinHandle<()>,
}

impl Background {
    fn start(load: &Load, client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let reader = {
            let (load, client, stop) = (load.clone(), client.clone(), Arc::clone(&stop));
            thread::spawn(move || read(&load, &client, &stop))
        };
        let sealer = {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let body = json!({"kind": "seal"}).to_string();
                let headers = [("content-type", "application/json")];
                while !stop.load(Ordering::Relaxed) {
                    match client.send("POST", "/v1/jobs", &headers, body.as_bytes()) {
                        Ok(answer) => assert!(answer.is_success(), "{answer:?}"),
                        Err(_) => return,
                    }
                    wait::pause(Duration::from_millis(100));
                }
            })
        };
        Self { stop, reader, sealer }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sealer.join().expect("every seal succeeded");
        self.reader.join().expect("every read was correct")
    }
}

fn read(load: &Load, client: &Client, stop: &AtomicBool) -> u64 {
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(host) = load.ledger().hosts(Fate::Acknowledged).pop() else {
            wait::pause(Duration::from_millis(5));
            continue;
        };
        let known = load.ledger().of_host(&host);
        let Ok(rows) = reading::of(client, "default", &json!({"tag": "host", "equals": host})) else {
            return reads;
        };
        let contradictions = known.contradictions(&rows, true);
        assert!(
            contradictions.is_empty(),
            "while writing:\n{}",
            contradictions.join("\n")
        );
        reads += 1;
        wait::pause(Duration::from_millis(10));
    }
    reads
}
