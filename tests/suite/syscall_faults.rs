//! System calls of the storage threads fail at many positions, with the errors of a failing and of a full
//! disk. No acknowledged write is lost, writes are accepted again after the fault, and `/ready` reports the
//! true state.
//!
//! Each round:
//!
//! 1. starts the service on a separate folder, because comparing one ledger of all rounds would take longer
//!    than writing;
//! 2. writes, seals, and makes a span of calls fail: each round uses the next group of calls; error and
//!    position are random;
//! 3. compares `/ready` with the responses to writes and reads during the fault;
//! 4. ends the fault, waits until the service is ready, writes, and compares all points with the ledger;
//! 5. kills the process, restarts it without a fault, and compares again.
//!
//! A second test lets an outage last while the service tries to reopen its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::{Clock as _, SystemClock};
use tideline_tests::ledger::{Fate, MEASUREMENT};
use tideline_tests::load::Load;
use tideline_tests::server::DataFolder;
use tideline_tests::syscalls::{ENDLESS, Fault, Injection, obstacle};
use tideline_tests::{Client, Launch, Server, is_slow, reading, rounds, seed, skip, wait};

/// Threads that write and sync. The threads of fjall are traced only until the store is reopened.
const THREADS: [&str; 4] = ["committer", "sealer", "maintenance", "fjall:worker"];
/// Groups of calls that fail together; each round uses the next group.
const CALLS: [&str; 6] = [
    "fdatasync,fsync",
    "write,writev,pwrite64",
    "openat",
    "rename,renameat,renameat2,unlink,unlinkat,mkdir",
    "ftruncate,fallocate,copy_file_range,link,linkat",
    "fdatasync,fsync,write,writev,pwrite64,openat",
];
const ERRORS: [&str; 2] = ["EIO", "ENOSPC"];
/// Largest number that the first failing call can have. The calls of each thread are numbered from 1, beginning when
/// strace is attached.
const FIRST_CALL_MAX: usize = 24;
/// Maximum length of a span of failing calls.
const CALLS_MAX: usize = 40;
/// Duration of a fault; the load makes most kinds of calls within this time.
const FAULT_TIME: Duration = Duration::from_secs(2);
/// Time limit for the service to become ready after a fault; it covers several attempts to reopen.
const HEAL_PATIENCE: Duration = Duration::from_secs(60);
/// Number of consecutive probes contradicting `/ready` at which the test fails. Fewer are allowed, because
/// the state can change between two requests.
const ODDS_MAX: u32 = 8;
/// Interval of the probes.
const PROBE_EVERY: Duration = Duration::from_millis(50);

#[test]
fn failing_calls_lose_nothing_and_are_recovered_from() {
    let seed = seed("syscall_faults");
    if let Some(obstacle) = obstacle() {
        return skip(&obstacle);
    }
    let mut random = Random::new(seed);
    let (mut failed, mut healed, mut points) = (0, 0, 0);
    for round in 1..=rounds("TIDELINE_FAULTS", 6, 120) {
        let folder = DataFolder::new();
        let load = Load::new(random.bits());
        let server = folder.start(&launch());
        let client = server.client();
        let writers = load.start(&client, 1);
        await_progress(&load);
        client
            .post_json("/v1/jobs", &json!({"kind": "seal"}))
            .expect_status(200);
        let fault = random_fault(CALLS[(round - 1) % CALLS.len()], &mut random);
        let probes = Probes::start(&load, &client);
        let injection = Injection::begin(&server, &THREADS, &fault, &folder.beside("calls"));
        let injection = match injection {
            Ok(injection) => injection,
            Err(said) => return skip(&format!("strace cannot attach: {said}")),
        };
        let sealing = seal_until(&client, FAULT_TIME);
        let calls = injection.listed();
        drop(injection);
        let freed = Instant::now();
        let server = match wait_healed(server) {
            Healed::Alive(server) => server,
            Healed::Ended(log) => panic!("round {round}, {fault:?}: the process ended:\n{log}"),
        };
        let took = freed.elapsed();
        let acknowledged = load.ledger().keys(Fate::Acknowledged).len();
        let more = wait::until(HEAL_PATIENCE, || {
            (load.ledger().keys(Fate::Acknowledged).len() > acknowledged).then_some(())
        });
        assert!(
            more.is_some(),
            "round {round}, {fault:?}: no write is accepted\n{}",
            server.log()
        );
        let written = writers.stop();
        let seen = probes.stop();
        println!(
            "round {round}: {fault:?}: {} calls failed, {sealing} seals refused, ready after {took:?}, {written:?}, {seen:?}",
            calls.len()
        );
        if let Some(call) = calls.first() {
            println!("  first: {call}");
        }
        check(&load, &client, round);
        server.kill();
        let server = folder.start(&launch());
        check(&load, &server.client(), round);
        server.kill();
        failed += calls.len();
        healed += usize::from(seen.red > 0);
        points += load.ledger().keys(Fate::Acknowledged).len();
    }
    println!(
        "{failed} calls failed, {healed} rounds with red probes, {points} points acknowledged, all present"
    );
    assert!(failed > 0, "no call failed");
}

/// Tests a store that cannot be reopened: `/ready` reports the refused operations and the time of the next attempt, and
/// attempts continue. The slow form lasts for more than ten attempts.
#[test]
fn an_outage_is_reported_as_it_is_and_ends_with_its_cause() {
    if let Some(obstacle) = obstacle() {
        return skip(&obstacle);
    }
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    // Current time, so that the point is sealed into the hot tier.
    let line = format!("outage,host=a v=1 {}", SystemClock.now().nanos());
    client
        .post_lines("/v1/tables/default/points", &line)
        .expect_status(200);
    let seal = json!({"kind": "seal"});
    // The second seal flushes the audit record of the first one. This flush raises the number of the format, and a
    // failed sync of that number would do no harm.
    for _ in 0..2 {
        client.post_json("/v1/jobs", &seal).expect_status(200);
    }
    client
        .post_lines("/v1/tables/default/points", &line.replace("=1 ", "=2 "))
        .expect_status(200);
    let every = |calls, span| Fault {
        calls,
        error: "EIO",
        span,
    };
    let begin = |threads: &[&str], fault: &Fault, name: &str| {
        Injection::begin(&server, threads, fault, &folder.beside(name))
    };
    let closed = match begin(&["maintenance"], &every("openat", 1..=ENDLESS), "opens") {
        Ok(injection) => injection,
        Err(said) => return skip(&format!("strace cannot attach: {said}")),
    };
    let failing = begin(&["sealer"], &every("fdatasync,fsync", 1..=1), "syncs").expect("it attached before");
    let refused = client.post_json("/v1/jobs", &seal);
    assert!(refused.status >= 500, "the seal could not be synced: {refused:?}");
    // Each sealer thread can fail once: the rows of the audit table may be flushed at the same time as the points.
    assert!(
        (1..=2).contains(&failing.failed()),
        "{} syncs failed",
        failing.failed()
    );
    drop(failing);
    let attempts = if is_slow() { 14 } else { 3 };
    let state = wait::until(4 * HEAL_PATIENCE, || {
        let ready = readiness(&client);
        let hot = &ready["reopening"][0];
        (hot["attempts"].as_u64() >= Some(attempts) && hot["is_running"] == false).then(|| ready.clone())
    });
    let state = state.unwrap_or_else(|| panic!("no more attempts; the log:\n{}", server.log()));
    println!("{state}");
    assert!(state["reads"] == false && state["writes"] == false, "{state}");
    assert_eq!(state["reopening"][0]["tier"], "hot", "{state}");
    let query = json!({"timelines": {"where": {"tag": "host", "equals": "a"}}});
    let read = client.post_json("/v1/tables/default/query", &query);
    assert_eq!(read.status, 503, "{read:?}");
    assert!(read.headers.contains_key("retry-after"), "{read:?}");
    let written = client.post_lines("/v1/tables/default/points", &line);
    assert_eq!(written.status, 503, "{written:?}");
    drop(closed);
    let Healed::Alive(server) = wait_healed(server) else {
        panic!("it is not ready again");
    };
    client
        .post_lines("/v1/tables/default/points", &line)
        .expect_status(200);
    // The first seal may be refused because of rows that the failed seal has left, and is then repeated.
    let sealed = wait::until(HEAL_PATIENCE, || {
        let sealed = client.post_json("/v1/jobs", &seal);
        assert!(
            sealed.is_success() || sealed.json()["retryable"] == true,
            "{sealed:?}"
        );
        sealed.is_success().then_some(())
    });
    assert!(sealed.is_some(), "no seal succeeds; the log:\n{}", server.log());
    assert_eq!(reading::all(&client, "default", "outage").len(), 1);
    server.kill();
}

/// Returns a launch with small heads, so that the sealer and the fjall threads have work.
fn launch() -> Launch {
    Launch::default().environment("TIDELINE__STORAGE__HEAD_BYTES_MAX", "1MiB")
}

fn random_fault(calls: &'static str, random: &mut Random) -> Fault {
    let first = 1 + random.index(FIRST_CALL_MAX) as u32;
    Fault {
        calls,
        error: ERRORS[random.index(ERRORS.len())],
        span: first..=first + random.index(CALLS_MAX) as u32,
    }
}

/// Waits until a write of this round is acknowledged.
fn await_progress(load: &Load) {
    let before = load.ledger().keys(Fate::Acknowledged).len();
    let more = wait::until(HEAL_PATIENCE, || {
        (load.ledger().keys(Fate::Acknowledged).len() > before).then_some(())
    });
    assert!(more.is_some(), "no write is acknowledged");
}

/// Requests seals for `time`; returns how many were refused.
fn seal_until(client: &Client, time: Duration) -> usize {
    let until = Instant::now() + time;
    let mut refused = 0;
    while Instant::now() < until {
        refused += usize::from(
            !client
                .post_json("/v1/jobs", &json!({"kind": "seal"}))
                .is_success(),
        );
        wait::pause(PROBE_EVERY);
    }
    refused
}

enum Healed {
    Alive(Server),
    Ended(String),
}

/// Waits until the service is ready or has ended. Also returns [`Healed::Ended`] if the service is not ready in time.
fn wait_healed(server: Server) -> Healed {
    let client = server.client();
    let healed = wait::until(HEAL_PATIENCE, || match client.send("GET", "/ready", &[], b"") {
        Ok(answer) => (answer.status == 200).then_some(true),
        Err(_) => Some(false),
    });
    match healed {
        Some(true) => Healed::Alive(server),
        Some(false) => match server.ended_within(HEAL_PATIENCE) {
            Ok(ended) => Healed::Ended(ended.log),
            Err(server) => Healed::Ended(format!("it runs but does not respond\n{}", server.log())),
        },
        None => Healed::Ended(format!("it is not ready again\n{}", server.log())),
    }
}

fn check(load: &Load, client: &Client, round: usize) {
    let ledger = load.ledger().clone();
    let rows = reading::all_if_known(client, "default", MEASUREMENT);
    let contradictions = ledger.contradictions(&rows, false);
    assert!(
        contradictions.is_empty(),
        "round {round}:\n{}",
        contradictions.join("\n")
    );
}

/// Background probes that compare `/ready` with the behaviour of the service.
struct Probes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// Results of the probes.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    probes: u32,
    /// Number of probes with refused writes and a matching `/ready`.
    red: u32,
    /// Number of probes with refused reads and a matching `/ready`.
    unreadable: u32,
}

impl Probes {
    fn start(load: &Load, client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hosts = load.ledger().hosts(Fate::Acknowledged);
        let host = hosts.first().cloned().expect("a write was acknowledged");
        let thread = {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            thread::spawn(move || probe(&client, &host, &stop))
        };
        Self { stop, thread }
    }

    fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("every probe matches `/ready`")
    }
}

/// Requests `/ready` before and after a write and a read. If both responses report working writes, the write
/// must succeed; the same holds for the read. See [`ODDS_MAX`] for exceptions.
fn probe(client: &Client, host: &str, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut odds = [0_u32; 2];
    let mut number = 0_i64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let before = readiness(client);
        let line = format!("probe,host=p v={number}i {}", 1_600_000_000_000_000_000 + number);
        let written = client.post_lines("/v1/tables/default/points", &line);
        let query = json!({
            "timelines": {"where": {"tag": "host", "equals": host}},
            "fields": ["f"],
            "limit": 10
        });
        let read = client.post_json("/v1/tables/default/query", &query);
        assert!(
            read.is_success() || read.status >= 500,
            "the query is valid: {read:?}"
        );
        let after = readiness(client);
        let said = |member: &str, value: bool| before[member] == value && after[member] == value;
        let found = [
            said("writes", true) && !written.is_success(),
            // A read may also succeed while `reads` is false: points of the other tier and of memory may be
            // readable.
            said("reads", true) && !read.is_success(),
        ];
        for (odds, found) in odds.iter_mut().zip(found) {
            *odds = if found { *odds + 1 } else { 0 };
        }
        assert!(
            odds.iter().all(|odds| *odds < ODDS_MAX),
            "/ready is wrong ({odds:?}): {before} then {after}; write {written:?}; read {read:?}"
        );
        seen.probes += 1;
        seen.red += u32::from(said("writes", false) && !written.is_success());
        seen.unreadable += u32::from(said("reads", false) && !read.is_success());
        wait::pause(PROBE_EVERY);
    }
    seen
}

/// Returns the body of `/ready` after checking that it is consistent.
fn readiness(client: &Client) -> Json {
    let answer = client.get("/ready");
    let ready = answer.json();
    let is_ready = ready["reads"] == true && ready["writes"] == true;
    assert_eq!(answer.status == 200, is_ready, "{ready}");
    let reasons = ready["reasons"].as_array().expect("reasons");
    assert!(is_ready || !reasons.is_empty(), "a reason is missing: {ready}");
    for tier in ready["reopening"].as_array().expect("tiers") {
        let attempts = tier["attempts"].as_u64().expect("a number");
        assert!(attempts == 0 || tier["last_error"].is_string(), "{ready}");
        assert!(
            tier["next_in"].is_string() && tier["reason"].is_string(),
            "{ready}"
        );
    }
    ready
}
