//! Tests of the whole service on the in-memory backend in its distributed mode, where each request takes a
//! millisecond.
//!
//! Results equal the results of a naive model, across stops and when another node takes over the shard.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tideline_backend::Backend;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::SystemClock;
use tideline_server::{Config, Server};
use tideline_tests::model::{Purge, Service, run};
use tideline_tests::{Client, rounds, seed};

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
