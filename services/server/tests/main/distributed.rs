//! The whole service over the in-memory backend in its distributed character, where each request takes a millisecond: it
//! answers as a naive model does, over stops and over another process that takes the shard.

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

/// A node, and the next one after it.
struct Nodes {
    disk: Arc<MemoryDisk>,
    config: Config,
    /// The folder of the search index; each node has its own.
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

    /// Starts a server in a folder of its own; the one that ran before still runs.
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

    /// Another node takes the shard from the one that serves it, which does not know of it.
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
        assert_eq!(ready.status, 503, "and says so: {ready:?}");
        before.stop().ask();
        // What it could not do without the shard is another node's now.
        let _refused = before.wait();
        drop(folder);
    }

    fn stop(&mut self) {
        let server = self.server.take().expect("it was started");
        server.stop().ask();
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
