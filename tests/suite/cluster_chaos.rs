//! Three nodes of Cassandra and three servers, all of which are killed, paused and cut off from each other at random.
//!
//! During these faults, clients write points, rows, counters and messages, delete points, request seals and migrations,
//! and read. Each write is sent to any of the servers until it is acknowledged. A read that begins after an
//! acknowledgement must return the write from any server: a server that lost the data must not answer from its memory.
//! In the end, every acknowledged write is stored once.
//!
//! If libfaketime is installed, the clock of one server is an hour fast, and that of another is an hour slow.

mod relay;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use relay::{Mode, Relay};
use rustix::process::Signal;
use serde_json::{Value, json};
use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings};
use tideline_testkit::{Random, rounds, seed};
use tideline_tests::program::free_address;
use tideline_tests::server::{DataFolder, Server, binary};
use tideline_tests::{Client, Launch, wait};

/// Number of nodes, and number of servers.
const MACHINES: usize = 3;
/// Clients of each kind.
const WRITERS: u64 = 2;
/// Rows that a client of rows replaces in turn.
const ROWS: u64 = 20;
/// Number of writes after which a client of points deletes some points.
const DELETE_EVERY: u64 = 40;
/// Time limit for a start, a take-over and the end of an outage.
const PATIENCE: Duration = Duration::from_secs(180);
/// Distance of the points of a client, in nanoseconds.
const STEP: u64 = 60_000_000_000;
const TABLE: &str = "/v1/tables/metrics";
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Kind of the writes of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Points,
    Rows,
    Messages,
}

/// State that all clients share.
struct Shared {
    addresses: [SocketAddr; MACHINES],
    is_done: AtomicBool,
    /// Time of the first point.
    start: u64,
    /// Number of acknowledged writes.
    acknowledged: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// Client that writes the numbers 1, 2, 3 … in order. Each number is sent until it is acknowledged.
struct Writer<'a> {
    shared: &'a Shared,
    kind: Kind,
    number: u64,
    /// Newest acknowledged number.
    newest: &'a AtomicU64,
}

impl Shared {
    fn client(&self, random: &mut Random) -> Client {
        Client::new(self.addresses[random.below(MACHINES as u64) as usize])
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    fn violation(&self, text: String) {
        println!("VIOLATION: {text}");
        let mut violations = self.violations.lock().unwrap_or_else(PoisonError::into_inner);
        violations.push(text);
    }

    /// Sends a request to any server until it succeeds; returns `None` at the end of the test.
    fn until_done(&self, random: &mut Random, path: &str, body: &Value, key: &str) -> Option<Value> {
        let body = body.to_string();
        loop {
            let mut headers = vec![("content-type", "application/json")];
            if !key.is_empty() {
                headers.push(("idempotency-key", key));
            }
            match self.client(random).send("POST", path, &headers, body.as_bytes()) {
                Ok(answer) if answer.status < 300 => return Some(answer.json()),
                Ok(answer) if answer.json()["retryable"] == true => {}
                Ok(answer) => {
                    self.violation(format!("{path}: {answer:?} {}", answer.text()));
                    return None;
                }
                Err(_) => {}
            }
            if self.is_done() {
                return None;
            }
            wait::pause(Duration::from_millis(20));
        }
    }

    /// Sends a request once; returns the answer if it succeeds.
    fn once(&self, client: &Client, path: &str, body: &Value) -> Option<Value> {
        let headers = [("content-type", "application/json")];
        let answer = client
            .send("POST", path, &headers, body.to_string().as_bytes())
            .ok()?;
        match answer.status {
            200..300 => Some(answer.json()),
            _ if answer.json()["retryable"] == true => None,
            _ => {
                self.violation(format!("{path}: {answer:?} {}", answer.text()));
                None
            }
        }
    }
}

impl Writer<'_> {
    fn run(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut sequence = 0;
        for n in 1.. {
            if self.shared.is_done() || self.write(&mut random, n, &mut sequence).is_none() {
                return;
            }
            self.newest.store(n, Ordering::SeqCst);
            self.shared.acknowledged.fetch_add(1, Ordering::SeqCst);
            if self.kind == Kind::Points && n % DELETE_EVERY == 0 && self.delete(&mut random, n).is_none() {
                return;
            }
        }
    }

    fn write(&self, random: &mut Random, n: u64, sequence: &mut i64) -> Option<()> {
        let (shared, number) = (self.shared, self.number);
        match self.kind {
            Kind::Points => {
                let time = shared.start + n * STEP;
                let point = json!({"measurement": "load", "tags": {"host": format!("h{number}")},
                    "time": time.to_string(), "fields": {"n": n as f64}});
                let body = json!({"points": [point]});
                shared.until_done(random, &format!("{TABLE}/points"), &body, "")?;
            }
            Kind::Rows => {
                let key = json!({"owner": number, "row": n % ROWS});
                let total = json!({"owner": number, "row": ROWS});
                let rows = json!({"rows": [
                    {"op": "put", "key": key, "columns": {"n": n}},
                    {"op": "update", "key": total, "increment": {"n": 1}}]});
                let name = format!("{number}-{n}");
                shared.until_done(random, "/v1/tables/states/rows", &rows, &name)?;
            }
            Kind::Messages => {
                let message = json!({"id": format!("m{n}"), "sender": "ada", "columns": {"n": n}});
                let path = format!("/v1/tables/chat/feeds/room,name=r{number}/messages");
                let sent = shared.until_done(random, &path, &json!({"messages": [message]}), "")?;
                let text = sent["messages"][0]["sequence"].as_str();
                let Some(given) = text.and_then(|text| text.parse::<i64>().ok()) else {
                    shared.violation(format!("no sequence in {sent}"));
                    return None;
                };
                if given <= *sequence {
                    shared.violation(format!("message {n} of r{number} has {given}, after {sequence}"));
                }
                *sequence = given;
            }
        }
        Some(())
    }

    /// Deletes the nine points before the point with the number `n`.
    fn delete(&self, random: &mut Random, n: u64) -> Option<()> {
        let time = |n: u64| (self.shared.start + n * STEP).to_string();
        let body = json!({
            "timelines": {"where": {"tag": "host", "equals": format!("h{}", self.number)}},
            "range": {"start": time(n - 9), "end": time(n)},
        });
        let path = format!("{TABLE}/points/delete");
        self.shared.until_done(random, &path, &body, "").map(|_| ())
    }

    /// Reads the newest write from a server, and checks that it is not older than the newest acknowledged one.
    fn check_fresh(&self, client: &Client, random: &mut Random) {
        let (shared, number) = (self.shared, self.number);
        let acknowledged = self.newest.load(Ordering::SeqCst);
        if acknowledged == 0 {
            return;
        }
        let (path, body) = match self.kind {
            Kind::Points => {
                let condition = json!({"tag": "host", "equals": format!("h{number}")});
                let body = json!({"timelines": {"where": condition}, "limit": 1, "order": "desc"});
                (format!("{TABLE}/query"), body)
            }
            Kind::Rows => {
                let row = acknowledged.saturating_sub(random.below(ROWS)).max(1) % ROWS;
                let keys = json!([{"owner": number, "row": row}, {"owner": number, "row": ROWS}]);
                ("/v1/tables/states/rows/get".to_owned(), json!({"keys": keys}))
            }
            Kind::Messages => {
                let path = format!("/v1/tables/chat/feeds/room,name=r{number}/messages");
                let Ok(answer) = client.send("GET", &format!("{path}?order=descending&limit=1"), &[], b"")
                else {
                    return;
                };
                if answer.status == 200 {
                    let newest = answer.json()["messages"][0]["columns"]["n"].as_u64();
                    self.expect_fresh(client, newest, acknowledged);
                }
                return;
            }
        };
        let Some(answer) = shared.once(client, &path, &body) else {
            return;
        };
        let found = match self.kind {
            Kind::Points => answer["series"][0]["points"][0][1].as_f64().map(|n| n as u64),
            // The counter has the number of writes.
            _ => answer["rows"][1]["columns"]["n"].as_u64(),
        };
        self.expect_fresh(client, found, acknowledged);
    }

    fn expect_fresh(&self, client: &Client, found: Option<u64>, acknowledged: u64) {
        if found.is_none_or(|found| found < acknowledged) {
            let text = format!(
                "{:?} {} at {}: {found:?} was read after {acknowledged} was acknowledged",
                self.kind,
                self.number,
                client.address()
            );
            self.shared.violation(text);
        }
    }
}

/// Servers and nodes, with the relays that disturb them.
struct Machines {
    nodes: Vec<CassandraNode>,
    relays: Vec<Relay>,
    folders: Vec<DataFolder>,
    launches: Vec<Launch>,
    servers: Vec<Option<Server>>,
}

impl Machines {
    fn start(addresses: &[SocketAddr; MACHINES]) -> Option<Self> {
        let (mut nodes, mut relays): (Vec<CassandraNode>, Vec<Relay>) = (Vec::new(), Vec::new());
        let mut contacts = Vec::new();
        for number in 0..MACHINES as u8 {
            let [_, high, low, _] = std::process::id().to_be_bytes();
            let announced = Ipv4Addr::new(127, 200 + high % 50, low, 1 + number);
            let settings = NodeSettings {
                heap_mib: 512,
                commit_log: CommitLog::Group,
                seed: nodes.first().map(CassandraNode::ip),
                announced: Some(announced),
                ..NodeSettings::default()
            };
            let node = CassandraNode::start(&settings)?;
            relays.push(Relay::start(announced, node.ip()));
            contacts.push(format!("{announced}:9042"));
            nodes.push(node);
        }
        let keyspace = "chaos";
        let contact = contacts.join(",");
        let mut schema = Command::new(binary());
        schema.args(["backend", "schema", "--contact", &contact, "--keyspace", keyspace]);
        schema.args(["--replication", "3"]);
        schema.env("TIDELINE__CASSANDRA__REQUEST_TIMEOUT", "30s");
        let created = schema.output().expect("the binary runs");
        assert!(created.status.success(), "{created:?}");
        let has_clocks = Path::new(FAKETIME).exists();
        println!("clocks an hour apart: {has_clocks}");
        let launches = addresses.iter().zip(["+3600s", "+0s", "-3600s"]);
        let launches = launches.map(|(address, offset)| {
            let launch = Launch::default()
                .listen(*address)
                .arguments([
                    "--backend",
                    "cassandra",
                    "--contact",
                    &contact,
                    "--keyspace",
                    keyspace,
                ])
                .environment("TIDELINE__CASSANDRA__LEASE", "3s");
            match has_clocks {
                true => launch
                    .environment("LD_PRELOAD", FAKETIME)
                    .environment("FAKETIME", offset)
                    .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                false => launch,
            }
        });
        let launches: Vec<Launch> = launches.collect();
        let folders: Vec<DataFolder> = (0..MACHINES).map(|_| DataFolder::new()).collect();
        let servers = folders.iter().zip(&launches);
        let servers = servers
            .map(|(folder, launch)| Some(folder.spawn(launch)))
            .collect();
        Some(Self {
            nodes,
            relays,
            folders,
            launches,
            servers,
        })
    }

    fn spawn(&mut self, at: usize) {
        self.servers[at] = Some(self.folders[at].spawn(&self.launches[at]));
    }

    /// Disturbs a machine for a while. Returns a description.
    fn disturb(&mut self, random: &mut Random) -> String {
        let at = random.below(MACHINES as u64) as usize;
        let span = Duration::from_millis(200 + random.below(8_000));
        let event = random.below(8);
        match event {
            0 => {
                self.servers[at].take().expect("it runs").kill();
                wait::pause(span / 4);
                self.spawn(at);
            }
            1 => {
                let ended = self.servers[at].take().expect("it runs").terminate();
                assert!(ended.status.success(), "{}", ended.log);
                self.spawn(at);
            }
            2 => {
                let server = self.servers[at].as_ref().expect("it runs");
                server.signal(Signal::STOP);
                wait::pause(span);
                server.signal(Signal::CONT);
            }
            3 => {
                self.nodes[at].kill();
                wait::pause(span);
                self.nodes[at].restart();
            }
            4 => {
                self.nodes[at].pause();
                wait::pause(span);
                self.nodes[at].resume();
            }
            5 | 6 => {
                let mode = if event == 5 { Mode::Cut } else { Mode::Silent };
                self.relays[at].set(mode);
                wait::pause(span);
                self.relays[at].set(Mode::Forward);
            }
            _ => {
                let other = (at + 1) % MACHINES;
                for relay in [at, other] {
                    self.relays[relay].set(Mode::Cut);
                }
                wait::pause(span);
                for relay in [at, other] {
                    self.relays[relay].set(Mode::Forward);
                }
            }
        }
        let name = [
            "kill server",
            "stop server",
            "pause server",
            "kill node",
            "pause node",
            "cut off node",
            "silence node",
            "cut off two nodes from",
        ][event as usize];
        format!("{name} {at} for {span:?}")
    }
}

fn create(shared: &Shared, random: &mut Random) {
    let policy = json!({"name": "metrics", "policy": {"hot_ttl": "1d"}});
    let wide = json!({
        "key": [{"name": "owner", "type": "i64"}, {"name": "row", "type": "i64"}],
        "columns": [{"name": "n", "type": "i64"}],
    });
    let states = json!({"name": "states", "model": "wide", "wide": wide});
    let chat = json!({"name": "chat", "model": "feed", "feed": {"columns": [{"name": "n", "type": "i64"}]}});
    for table in [policy, states, chat] {
        shared
            .until_done(random, "/v1/tables", &table, "")
            .expect("a table");
    }
}

/// Checks all acknowledged writes of a client.
fn check(client: &Client, writer: &Writer<'_>) {
    let (shared, number) = (writer.shared, writer.number);
    let last = writer.newest.load(Ordering::SeqCst);
    match writer.kind {
        Kind::Points => {
            let condition = json!({"tag": "host", "equals": format!("h{number}")});
            let rows = tideline_tests::reading::of(client, "metrics", &condition).expect("an answer");
            let found: Vec<u64> = rows
                .iter()
                .map(|row| (row.time as u64 - shared.start) / STEP)
                .collect();
            let is_deleted = |n: u64| {
                let end = n.div_ceil(DELETE_EVERY) * DELETE_EVERY;
                end <= last && (end - 9..end).contains(&n)
            };
            let expected: Vec<u64> = (1..=last).filter(|n| !is_deleted(*n)).collect();
            // The last delete and the last write may have no answer.
            let open: Vec<u64> = (last.saturating_sub(DELETE_EVERY)..=last + 1).collect();
            let certain = |numbers: &[u64]| -> Vec<u64> {
                numbers.iter().copied().filter(|n| !open.contains(n)).collect()
            };
            if certain(&found) != certain(&expected) {
                shared.violation(format!("points of h{number}: {found:?} are not {expected:?}"));
            }
        }
        Kind::Rows => {
            let keys: Vec<Value> = (0..=ROWS)
                .map(|row| json!({"owner": number, "row": row}))
                .collect();
            let rows = client.post_json("/v1/tables/states/rows/get", &json!({"keys": keys}));
            let rows = rows.expect_status(200).json();
            let total = rows["rows"][ROWS as usize]["columns"]["n"].as_u64();
            if total != Some(last) && total != Some(last + 1) {
                shared.violation(format!(
                    "{total:?} writes are counted of {last} of owner {number}"
                ));
            }
            for row in 0..ROWS {
                let newest = last.saturating_sub((last + ROWS - row) % ROWS);
                let found = rows["rows"][row as usize]["columns"]["n"].as_u64();
                let is_expected = found == Some(newest) || found == Some(last + 1) || newest == 0;
                if !is_expected {
                    shared.violation(format!("row {row} of {number} has {found:?}, not {newest}"));
                }
            }
        }
        Kind::Messages => {
            let mut found = Vec::new();
            let mut cursor = String::new();
            loop {
                let path = format!("/v1/tables/chat/feeds/room,name=r{number}/messages?limit=1000{cursor}");
                let page = client.get(&path).expect_status(200).json();
                let messages = page["messages"].as_array().expect("a list").clone();
                found.extend(
                    messages
                        .iter()
                        .filter_map(|message| message["columns"]["n"].as_u64()),
                );
                if page["more"] == false {
                    break;
                }
                cursor = format!("&after={}", page["next"].as_str().expect("a cursor"));
            }
            let expected: Vec<u64> = (1..=last).collect();
            if !found.starts_with(&expected) || found.len() as u64 > last + 1 {
                let breaks: Vec<_> = found.windows(2).filter(|pair| pair[0] + 1 != pair[1]).collect();
                let count = found.len();
                shared.violation(format!(
                    "{count} messages of r{number} are not 1 to {last}: {breaks:?}"
                ));
            }
        }
    }
}

#[test]
#[ignore = "takes 20 minutes and 8 GiB of memory"]
fn nothing_acknowledged_is_lost_or_doubled_while_nodes_and_servers_fail() {
    let seed = seed("nothing_acknowledged_is_lost_or_doubled_while_nodes_and_servers_fail");
    let seconds = rounds("TIDELINE_CHAOS_SECONDS", 1_200, 1_200) as u64;
    let mut random = Random::new(seed);
    let addresses = [(); MACHINES].map(|()| free_address());
    let Some(mut machines) = Machines::start(&addresses) else {
        return;
    };
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let shared = Shared {
        addresses,
        is_done: AtomicBool::new(false),
        // Most points are older than the time-to-live of the hot tier.
        start: u64::try_from(now.as_nanos()).expect("before 2262") - 10 * 86_400_000_000_000,
        acknowledged: AtomicU64::new(0),
        violations: Mutex::default(),
    };
    create(&shared, &mut random);
    let kinds = [Kind::Points, Kind::Rows, Kind::Messages];
    let newest: Vec<AtomicU64> = (0..WRITERS * kinds.len() as u64)
        .map(|_| AtomicU64::new(0))
        .collect();
    let writers: Vec<Writer<'_>> = newest
        .iter()
        .zip(0..)
        .map(|(newest, number)| Writer {
            shared: &shared,
            kind: kinds[number as usize % kinds.len()],
            number,
            newest,
        })
        .collect();
    let begun = Instant::now();
    let mut events = 0;
    thread::scope(|scope| {
        for writer in &writers {
            let own = random.next();
            scope.spawn(move || writer.run(own));
        }
        for _ in 0..2 {
            let own = random.next();
            let (shared, writers) = (&shared, &writers);
            scope.spawn(move || {
                let mut random = Random::new(own);
                while !shared.is_done() {
                    let client = shared.client(&mut random);
                    let writer = &writers[random.below(writers.len() as u64) as usize];
                    writer.check_fresh(&client, &mut random);
                    if random.below(200) == 0 {
                        let kind = ["seal", "migrate", "purge"][random.below(3) as usize];
                        let job = json!({"kind": kind, "wait": false});
                        shared.once(&client, "/v1/jobs", &job);
                    }
                }
            });
        }
        while begun.elapsed() < Duration::from_secs(seconds) {
            let done = machines.disturb(&mut random);
            let before = shared.acknowledged.load(Ordering::SeqCst);
            let healed = Instant::now();
            let went_on = wait::until(PATIENCE, || {
                (shared.acknowledged.load(Ordering::SeqCst) > before + 3).then_some(())
            });
            if went_on.is_none() {
                shared.violation(format!("nothing is acknowledged for {PATIENCE:?} after: {done}"));
            }
            println!(
                "{:>5} s: {done}; {before} acknowledged, the next after {:?}",
                begun.elapsed().as_secs(),
                healed.elapsed()
            );
            events += 1;
            wait::pause(Duration::from_millis(random.below(4_000)));
            if !shared
                .violations
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
            {
                break;
            }
        }
        shared.is_done.store(true, Ordering::SeqCst);
    });
    let client = wait::until(PATIENCE, || {
        let ready = |address: &SocketAddr| {
            let client = Client::new(*address);
            let answer = client.send("GET", "/ready", &[], b"").ok()?;
            (answer.json()["role"] == "owner" && answer.status == 200).then_some(client)
        };
        addresses.iter().find_map(ready)
    });
    let client = client.expect("a server owns the data");
    for writer in &writers {
        check(&client, writer);
    }
    let violations = shared.violations.lock().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} s, {} acknowledged writes, {events} events",
        begun.elapsed().as_secs(),
        shared.acknowledged.load(Ordering::SeqCst)
    );
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
}
