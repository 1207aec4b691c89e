//! Tests of `tideline demo`: the printed commands work, and a second start continues with the data of the first.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::process::{Running, output, tideline};

fn demo(data: &Path, more: &[&str]) -> Command {
    let mut command = tideline(&["demo", "--listen", "127.0.0.1:0", "--hosts", "20", "--data-dir"]);
    command.arg(data).args(more);
    command
}

#[test]
fn the_printed_lines_work_and_a_second_start_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut running = Running::start(demo(folder.path(), &["--seed", "7"]));
    running.wait_for(|line| line.contains("SIMULATED fleet of 20 machines (seed 7)"));
    for shown in ["\"timelines\":[{", "mean(usage_active)", "used_percent"] {
        let line = running.wait_for(|line| line.starts_with("curl "));
        let response = Command::new("sh")
            .args(["-c", &line])
            .output()
            .expect("a shell runs");
        let response = String::from_utf8_lossy(&response.stdout);
        assert!(response.contains(shown), "{line}\nanswers\n{response}");
    }
    running.wait_for(|line| line.starts_with("Ctrl-C ends the demo"));
    running.signal(Signal::INT);
    let (status, _, said) = running.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("stopped; ") && !said.contains("failed"), "{said}");

    let again = Running::start(demo(folder.path(), &["--once"]));
    let (status, _, said) = again.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(said.matches("\ncurl ").count(), 3, "{said}");
}

#[test]
fn the_printed_lines_of_a_demo_with_tls_name_its_certificate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tls = folder.path().join("tls");
    let make = |more: &str| {
        let mut command = tideline(&["tls", "self-signed", more, "--out"]);
        command.arg(&tls).arg("--key-out").arg(tls.join("key"));
        output(command).status.success()
    };
    assert!(make("--if-missing"));
    let certificate = tls.join("tideline.crt");
    let first = std::fs::read(&certificate).expect("a certificate");
    assert!(
        make("--if-missing") && !make("--days=2"),
        "existing files are kept"
    );
    assert_eq!(std::fs::read(&certificate).expect("a certificate"), first);
    // Simulates a run that was interrupted between the two files.
    std::fs::remove_file(&certificate).expect("it exists");
    assert!(!make("--days=2") && make("--if-missing"));
    assert_ne!(std::fs::read(&certificate).expect("a certificate"), first);
    let mut command = demo(&folder.path().join("data"), &["--seed", "7"]);
    command
        .env("TIDELINE__HTTP__TLS_CERTIFICATE_FILE", &certificate)
        .env("TIDELINE__HTTP__TLS_KEY_FILE", tls.join("key/tideline.key"));
    let mut running = Running::start(command);
    let line = running.wait_for(|line| line.starts_with("curl "));
    assert!(
        line.starts_with("curl -s --cacert '") && line.contains(" https://127.0.0.1:"),
        "{line}"
    );
    let response = Command::new("sh")
        .args(["-c", &line])
        .output()
        .expect("a shell runs");
    let response = String::from_utf8_lossy(&response.stdout);
    assert!(response.contains("\"timelines\":[{"), "{response}");
    running.signal(Signal::INT);
    assert!(running.end().0.success());
}
