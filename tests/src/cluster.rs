//! Keyspaces on a node of Cassandra in place of data folders, so that a suite runs on either engine.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, [`DataFolder::of_suite`](crate::server::DataFolder::of_suite) creates a keyspace
//! for each folder. The node is that of [`tideline_testkit::cassandra::shared_node`]. Keyspaces are not dropped: a node that
//! the tests start is removed with its data, and another node keeps them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tideline_testkit::cassandra::shared_node;

use crate::server::binary;

/// Variable that selects the engine of the suites that run on either engine.
const VARIABLE: &str = "TIDELINE_SUITE_BACKEND";
/// Settings for the shared node, which syncs its commit log only every ten seconds. No test kills this node, so no
/// acknowledged write is lost. Other tests and builds share the cores, so a server could renew a lease of the default
/// length too late, and would then refuse requests.
const ENVIRONMENT: [(&str, &str); 2] = [
    ("TIDELINE__CASSANDRA__ACKNOWLEDGED", "replicated"),
    ("TIDELINE__CASSANDRA__LEASE", "10s"),
];

/// Keyspace with tables.
#[derive(Debug)]
pub struct Keyspace {
    contact: String,
    name: String,
}

/// Returns true if the suites that run on either engine use Cassandra.
///
/// # Panics
///
/// Panics if the variable names an unknown engine.
pub fn is_selected() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("cassandra") => true,
        Ok("embedded") | Err(_) => false,
        Ok(other) => panic!("{VARIABLE}={other}: use `embedded` or `cassandra`"),
    }
}

impl Keyspace {
    /// Creates a keyspace on the shared node. Returns `None` after a report if there is no node.
    ///
    /// # Panics
    ///
    /// Panics if the keyspace cannot be created, and as `shared_node` does.
    pub fn create() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let keyspace = Self {
            contact: shared_node()?.to_owned(),
            name: format!("suite_{}_{number}", std::process::id()),
        };
        let mut schema = Command::new(binary());
        schema.args(["backend", "schema", "--replication", "1"]);
        keyspace.run(schema);
        Some(keyspace)
    }

    /// Copies a data folder that no server uses into the keyspace, which must be empty.
    ///
    /// # Panics
    ///
    /// Panics if the copy fails.
    pub fn fill(&self, folder: &Path) {
        let mut copy = Command::new(binary());
        copy.args(["backend", "copy", "--to", "cassandra", "--data-dir"])
            .arg(folder);
        self.run(copy);
    }

    /// Adds the arguments and variables with which a command uses the keyspace.
    pub(crate) fn select(&self, command: &mut Command) {
        command
            .args(["--contact", &self.contact, "--keyspace", &self.name])
            .envs(ENVIRONMENT);
    }

    fn run(&self, mut command: Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDELINE_") {
                command.env_remove(name);
            }
        }
        self.select(&mut command);
        // A change of tables takes seconds on a busy node.
        command.env("TIDELINE__CASSANDRA__REQUEST_TIMEOUT", "30s");
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
}
