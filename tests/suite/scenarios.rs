//! HTTP scenarios: every file of `tests/scenarios` runs on a separate server.
//!
//! Special comments configure a file: `# start: NAME=VALUE` sets an environment variable of the server, and
//! `# token: TOKEN` sends this token with every request.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tideline_testkit::cassandra::shared_node;
use tideline_tests::corpora::workspace;
use tideline_tests::script::Script;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, rounds};

#[test]
fn every_scenario_holds() {
    let steps = run(&scenario_files(), launch);
    assert!(steps > 100, "only {steps} steps were found");
}

/// The scenario of `/ready` allows reasons, because a cluster can have some.
#[test]
fn an_embedded_server_has_no_reasons() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let ready = server.client().get("/ready").expect_status(200).json();
    assert_eq!(ready["reasons"], serde_json::json!([]), "{ready}");
}

/// Runs the same scenarios on a node of Cassandra, each in a separate keyspace; the short form runs an even selection.
#[test]
fn scenarios_hold_on_a_cluster() {
    let Some(contact) = shared_node() else {
        return;
    };
    let files = scenario_files();
    let count = rounds("TIDELINE_CLUSTER_SCENARIOS", 12, 1_000);
    let picked = files.iter().step_by(files.len().div_ceil(count).max(1));
    let number = AtomicU32::new(0);
    run(&picked.cloned().collect::<Vec<_>>(), |text| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let keyspace = format!("scenario_{}_{number}", std::process::id());
        let created = Command::new(binary())
            .args(["backend", "schema", "--replication", "1"])
            .args(["--contact", contact, "--keyspace", &keyspace])
            .env("TIDELINE__CASSANDRA__REQUEST_TIMEOUT", "30s")
            .output()
            .expect("the binary runs");
        assert!(created.status.success(), "{created:?}");
        launch(text)
            .environment("TIDELINE__STORAGE__BACKEND", "cassandra")
            .environment("TIDELINE__CASSANDRA__CONTACT", contact)
            .environment("TIDELINE__CASSANDRA__KEYSPACE", &keyspace)
            // Required if the node is on another machine; no other process uses the keyspace.
            .environment("TIDELINE__CASSANDRA__ADVERTISE", "localhost:8490")
            .environment("TIDELINE__CASSANDRA__ACKNOWLEDGED", "replicated")
            // Other tests and builds share the cores.
            .environment("TIDELINE__CASSANDRA__LEASE", "30s")
    });
}

/// Runs scenarios, each on a separate server that `launch` describes. Returns the number of steps.
fn run(paths: &[PathBuf], launch: impl Fn(&str) -> Launch) -> usize {
    let mut steps = 0;
    let mut failures = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path).expect("a scenario can be read");
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let script = Script::parse(&text);
        let folder = DataFolder::new();
        let server = folder.start(&launch(&text));
        let failed = script.run(&client(&server.client(), &text), &[]);
        println!("{name}: {} steps, {} failed", script.steps.len(), failed.len());
        steps += script.steps.len();
        failures.extend(failed.into_iter().map(|failure| format!("{name}, {failure}")));
        let ended = server.terminate();
        if !ended.status.success() {
            failures.push(format!(
                "{name}: the server ended with {}\n{}",
                ended.status, ended.log
            ));
        }
    }
    println!("{steps} steps");
    assert!(
        failures.is_empty(),
        "{} of {steps} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    steps
}

/// Returns the scenario files sorted by name. If `TIDELINE_SCENARIO` is set, only the files whose path
/// contains its value are returned.
fn scenario_files() -> Vec<PathBuf> {
    let picked = std::env::var("TIDELINE_SCENARIO").unwrap_or_default();
    let mut files: Vec<PathBuf> = fs::read_dir(workspace().join("tests/scenarios"))
        .expect("there are scenarios")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .filter(|path| path.to_string_lossy().contains(&picked))
        .collect();
    files.sort();
    files
}

fn launch(text: &str) -> Launch {
    let settings = text
        .lines()
        .filter_map(|line| line.strip_prefix("# start: ")?.split_once('='));
    settings.fold(Launch::default(), |launch, (name, value)| {
        launch.environment(name, value)
    })
}

fn client(client: &Client, text: &str) -> Client {
    match text.lines().find_map(|line| line.strip_prefix("# token: ")) {
        Some(token) => client.clone().with_token(token),
        None => client.clone(),
    }
}
