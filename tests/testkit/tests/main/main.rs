//! Tests of the rules in `tideline_testkit`: seeds, sizes, missing prerequisites and nodes of Cassandra.
//!
//! Each case runs this binary again with another environment and checks the output of that test run.

mod cassandra;

use std::process::{Command, Output};

/// Runs one of the tests named `subject_*` in a separate process; `cargo test` captures its output as usual.
fn subject(name: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    for variable in [
        "CI",
        "TIDELINE_SEED",
        "TIDELINE_SLOW",
        "TIDELINE_CORPORA",
        "TIDELINE_CASSANDRA",
        "SUBJECT_ROUNDS",
    ] {
        command.env_remove(variable);
    }
    command
        .args(["--exact", name, "--ignored"])
        .envs(environment.iter().copied())
        .output()
        .expect("the test starts")
}

fn terminal(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the standard output, where the harness shows the output of a failing subject.
fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "subject of the other tests"]
fn subject_corpus() {
    let _ = tideline_testkit::corpus("of-no-name");
}

#[test]
#[ignore = "subject of the other tests"]
fn subject_optional() {
    tideline_testkit::not_run("SUBJECT names no program");
}

#[test]
#[ignore = "subject of the other tests"]
fn subject_failing() {
    let rounds = tideline_testkit::rounds("SUBJECT_ROUNDS", 3, 30);
    let all: Vec<u64> = tideline_testkit::seeds("subject", 2).collect();
    let config = tideline_testkit::proptest_config(10);
    panic!(
        "rounds {rounds}, seeds {all:?}, cases {}, {}",
        config.cases, config.rng_seed
    );
}

#[test]
fn a_missing_corpus_is_reported_on_the_terminal() {
    let output = subject("subject_corpus", &[("TIDELINE_CORPORA", "/nowhere")]);
    assert!(output.status.success());
    assert!(
        terminal(&output).contains("skipped: subject_corpus: corpus /nowhere/of-no-name is missing"),
        "{output:?}"
    );
}

#[test]
fn a_missing_corpus_fails_in_ci() {
    let output = subject(
        "subject_corpus",
        &[("TIDELINE_CORPORA", "/nowhere"), ("CI", "true")],
    );
    assert!(!output.status.success());
    assert!(
        shown(&output).contains("corpus /nowhere/of-no-name is missing"),
        "{output:?}"
    );
    let script =
        std::fs::read_to_string(tideline_testkit::workspace().join(".ci/run")).expect("`.ci/run` exists");
    assert!(script.contains("\nexport CI=true\n"), "`.ci/run` sets CI itself");
}

#[test]
fn an_optional_test_is_reported_and_passes_in_ci() {
    let output = subject("subject_optional", &[("CI", "true")]);
    assert!(output.status.success());
    assert!(
        terminal(&output).contains("not run: subject_optional: SUBJECT"),
        "{output:?}"
    );
}

#[test]
fn a_seed_is_fresh_printed_and_replayed() {
    let line = |output: &Output| -> String {
        let text = shown(output);
        let found = text
            .lines()
            .find(|line| line.starts_with("subject: TIDELINE_SEED="));
        found.expect("the seed is printed").to_owned()
    };
    let (one, other) = (subject("subject_failing", &[]), subject("subject_failing", &[]));
    assert_ne!(line(&one), line(&other), "each run draws its own");
    let replay = subject("subject_failing", &[("TIDELINE_SEED", "41")]);
    assert!(
        shown(&replay).contains("rounds 3, seeds [41, 42], cases 10, 41"),
        "{replay:?}"
    );
    assert!(
        shown(&replay).contains("subject_failing: TIDELINE_SEED=41"),
        "{replay:?}"
    );
}

#[test]
fn one_variable_makes_all_tests_slow() {
    let slow = [("TIDELINE_SLOW", "1"), ("TIDELINE_SEED", "1")];
    let output = subject("subject_failing", &slow);
    assert!(
        shown(&output).contains("rounds 30, seeds [1, 2], cases 80"),
        "{output:?}"
    );
    let output = subject("subject_failing", &[slow[0], slow[1], ("SUBJECT_ROUNDS", "7")]);
    assert!(
        shown(&output).contains("rounds 7,"),
        "the variable of the test takes precedence: {output:?}"
    );
}
