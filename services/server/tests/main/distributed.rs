//! Tests of the whole service on the in-memory backend in its distributed mode, where each request takes a
//! millisecond.
//!
//! Results equal the results of a naive model, across stops and when another node takes over the shard. After a stop, the
//! next owner has little to replay, and it need not wait for the end of the lease even if the stop was not clean.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Shard};
use tideline_engine::{Engine, Settings};
use tideline_model::{ManualClock, SystemClock, Timestamp};
use tideline_server::{Config, Server, ServerError};
use tideline_testkit::wait;
use tideline_tests::model::{Purge, Service, run};
use tideline_tests::{Client, reading, rounds, seed};

/// Duration of a request to a node of a cluster.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Current node of the service; later nodes replace it.
struct Nodes {
    disk: Arc<MemoryDisk>,
    config: Config,
    /// Folder of the search index; each node has its own.
    folder: TempDir,
    server: Option<Server>,
}

impl Nodes {
    fn new(purge: Purge) -> Self {
        let disk = MemoryDisk::new(Character::Distributed);
        disk.limit_leases(Duration::from_secs(3), 1 << 40);
        disk.delay_round_trips(ROUND_TRIP);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            head_bytes_max: Some(1 << 20),
            ..Config::default()
        };
        if purge == Purge::AtOnce {
            config.scheduler.purge_delay = Duration::ZERO;
        }
        let mut nodes = Self {
            disk,
            config,
            folder,
            server: None,
        };
        nodes.replace_node();
        nodes
    }

    /// Starts a server in a new folder and returns the previous server, if there is one, which keeps running.
    fn replace_node(&mut self) -> Option<Server> {
        self.folder = tempfile::tempdir().expect("a temporary folder");
        self.config.data_dir = self.folder.path().join("node");
        self.start()
    }

    fn start(&mut self) -> Option<Server> {
        let server = Server::start_on(&self.config, Arc::new(SystemClock), |_| {
            let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&self.disk));
            Ok((backend, None))
        });
        self.server.replace(server.expect("the server starts"))
    }
}

impl Service for Nodes {
    fn client(&self) -> Client {
        let server = self.server.as_ref().expect("it was started");
        Client::new(server.address())
    }

    /// Lets another node take the shard from the serving node, which is not notified.
    fn kill(&mut self) {
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a temporary folder"));
        let before = self.replace_node().expect("it was started");
        let client = Client::new(before.address());
        let write = client.post_lines("/v1/tables/default/points", "alpha,host=lost f=1");
        assert_eq!(
            write.status, 503,
            "a node without the shard takes no writes: {write:?}"
        );
        let ready = client.get("/ready");
        assert_eq!(ready.status, 503, "and is not ready: {ready:?}");
        before.stop().request();
        // The other node owns the shard now, so steps of the stop that need the shard may fail.
        let _refused = before.wait();
        drop(folder);
    }

    fn stop(&mut self) {
        let server = self.server.take().expect("it was started");
        server.stop().request();
        server.wait().expect("a clean stop");
        self.start();
    }
}

#[test]
fn the_distributed_service_answers_as_a_naive_model_does() {
    let steps = rounds("TIDELINE_STEPS", 300, 5_000);
    run(seed("distributed"), steps, &mut |purge| {
        Box::new(Nodes::new(purge))
    });
}

/// Takes over the data, and returns the number of journal entries that a new owner replays.
fn replayed(disk: &Arc<MemoryDisk>) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backend = Arc::new(MemoryBackend::open(disk));
    let settings = Settings::new(folder.path().join("index"));
    let engine = Engine::open(backend, Arc::new(SystemClock), settings).expect("the data is sound");
    let replayed = engine.stats().replayed.entries;
    engine.close().expect("a clean end");
    replayed
}

#[test]
fn a_stopping_owner_flushes_before_another_node_takes_over() {
    /// Number of writes of points, and of rows.
    const WRITES: u64 = 100;
    /// Highest number of entries that the server itself commits while it stops, such as the times of jobs.
    const OWN_ENTRIES_MAX: u64 = 20;
    let mut nodes = Nodes::new(Purge::NextDay);
    let client = nodes.client();
    let table = json!({"name": "events", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}], "columns": [{"name": "text", "type": "string"}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
    for number in 0..WRITES {
        let line = format!("alpha,host=h{number} f={number}");
        client
            .post_lines("/v1/tables/default/points", &line)
            .expect_status(200);
        let row = json!({"op": "put", "key": {"n": number}, "columns": {"text": "one"}});
        client
            .post_json("/v1/tables/events/rows", &json!({"rows": [row]}))
            .expect_status(200);
    }
    assert!(replayed(&nodes.disk) >= 2 * WRITES, "nothing is flushed yet");
    nodes.kill();
    let server = nodes.server.take().expect("it was started");
    server.stop().request();
    server.wait().expect("a clean stop");
    let left = replayed(&nodes.disk);
    assert!(left <= OWN_ENTRIES_MAX, "{left} entries are left to replay");
    nodes.start();
    let client = nodes.client();
    let points = reading::all(&client, "default", "alpha");
    assert_eq!(points.len() as u64, WRITES);
    let counted = client.post_json("/v1/tables/events/rows/count", &json!({"allow_scan": true}));
    assert_eq!(counted.expect_status(200).json()["count"], WRITES);
}

#[test]
fn an_owner_gives_up_its_lease_if_the_flush_outlasts_the_stop() {
    /// Longer than the test, so that the lease is neither renewed nor ended by time.
    const LEASE: Duration = Duration::from_secs(3_600);
    /// Duration of a request that outlasts the stop.
    const STALLED: Duration = Duration::from_secs(60);
    let mut nodes = Nodes::new(Purge::NextDay);
    nodes.disk.limit_leases(LEASE, 1 << 40);
    nodes.config.http.drain_timeout = Duration::ZERO;
    nodes.stop();
    nodes
        .client()
        .post_lines("/v1/tables/default/points", "alpha,host=a f=1")
        .expect_status(200);
    // The time of this process does not advance, so it takes the data only if it was given up.
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(1));
    let next = MemoryBackend::open_with_clock(&nodes.disk, Arc::new(clock));
    next.take(Shard(0)).expect_err("another process owns the data");

    let server = nodes.server.take().expect("it was started");
    nodes.disk.delay_round_trips(STALLED);
    let before = nodes.disk.round_trips();
    server.stop().request();
    let stalled = || (nodes.disk.round_trips() > before).then_some(());
    wait::until(Duration::from_secs(3), stalled).expect("the flush begins");
    // The request is counted just before it reads its duration.
    wait::pause(Duration::from_millis(100));
    nodes.disk.delay_round_trips(Duration::ZERO);
    let ended = server.wait();
    assert!(matches!(ended, Err(ServerError::CloseTimeout(_))), "{ended:?}");
    next.take(Shard(0)).expect("the data is given up");
}
