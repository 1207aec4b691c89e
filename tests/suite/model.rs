//! Model test of the whole process, including kills and stops. A short form also runs on a node of Cassandra; with
//! `TIDELINE_SUITE_BACKEND=cassandra`, both do.

use tideline_tests::model::{Purge, Service, run};
use tideline_tests::server::{DataFolder, Server};
use tideline_tests::{Client, Launch, rounds, seed};

/// The binary on a data folder.
struct Process {
    folder: DataFolder,
    launch: Launch,
    server: Option<Server>,
}

impl Service for Process {
    fn client(&self) -> Client {
        let server = self.server.as_ref().expect("it was started");
        server.client()
    }

    fn kill(&mut self) {
        self.server.take().expect("it was started").kill();
        self.server = Some(self.folder.start(&self.launch));
    }

    fn stop(&mut self) {
        let ended = self.server.take().expect("it was started").terminate();
        assert!(ended.status.success(), "after {:?}: {}", ended.took, ended.log);
        self.server = Some(self.folder.start(&self.launch));
    }
}

/// Starts the binary on an empty data folder or keyspace.
fn start(folder: DataFolder, purge: Purge) -> Box<dyn Service> {
    // Small heads, so that the service also seals automatically.
    let launch = Launch::default()
        .environment("TIDELINE__STORAGE__HEAD_BYTES_MAX", "1MiB")
        .environment("TIDELINE__LIFECYCLE__PURGE_DELAY", purge.delay());
    let server = Some(folder.start(&launch));
    Box::new(Process {
        folder,
        launch,
        server,
    })
}

#[test]
fn the_service_answers_as_a_naive_model_does() {
    let steps = rounds("TIDELINE_STEPS", 600, 20_000);
    run(seed("model"), steps, &mut |purge| {
        start(DataFolder::of_suite(), purge)
    });
}

#[test]
fn the_service_on_a_cluster_answers_as_a_naive_model_does() {
    let steps = rounds("TIDELINE_CLUSTER_PROCESS_STEPS", 40, 1_000);
    let Some(folder) = DataFolder::in_cluster() else {
        return;
    };
    let mut folder = Some(folder);
    run(seed("model_in_cluster"), steps, &mut |purge| {
        start(folder.take().expect("one service is started"), purge)
    });
}
