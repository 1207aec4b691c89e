//! Reference Prometheus: already running, or started by this module.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tideline_tests::program::{Program, Running, free_address};
use tideline_tests::{Client, wait};

/// Time limit of a start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reference Prometheus. If this module started the process, dropping the value kills it.
pub(super) struct Reference {
    client: Client,
    _started: Option<(Running, TempDir)>,
}

impl Reference {
    /// Returns the Prometheus that `TIDELINE_PROMETHEUS` names; `None` if the variable is not set.
    pub(super) fn of_environment() -> Option<Self> {
        let named = std::env::var("TIDELINE_PROMETHEUS").ok()?;
        let reference = match named.parse::<SocketAddr>() {
            Ok(address) => Self {
                client: Client::new(address),
                _started: None,
            },
            Err(_) => Self::start(Path::new(&named)),
        };
        Some(reference)
    }

    fn start(binary: &Path) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        let configuration = folder.path().join("prometheus.yml");
        std::fs::write(&configuration, "global: {}\n").expect("the folder can be written");
        let address = free_address();
        let data = folder.path().join("data");
        let running = Program::new(binary)
            .argument(format!("--config.file={}", configuration.display()))
            .argument(format!("--storage.tsdb.path={}", data.display()))
            .argument(format!("--web.listen-address={address}"))
            .argument("--web.enable-remote-write-receiver")
            .argument("--storage.tsdb.retention.time=100y")
            .argument("--enable-feature=promql-experimental-functions,native-histograms")
            .start();
        let client = Client::new(address);
        wait::until(PATIENCE, || {
            let outcome = client.send("GET", "/-/ready", &[], b"").ok()?;
            (outcome.status == 200).then_some(())
        })
        .expect("the reference becomes ready");
        Self {
            client,
            _started: Some((running, folder)),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the reported version.
    pub(super) fn version(&self) -> String {
        let outcome = self.client.get("/api/v1/status/buildinfo").json();
        outcome["data"]["version"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns true for versions before 3.
    pub(super) fn is_before_3(&self) -> bool {
        self.version().starts_with("2.")
    }
}
