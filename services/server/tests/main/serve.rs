//! Tests of `tideline serve`: the server serves requests, stops cleanly, and recovers acknowledged data after a
//! restart. Also covers a folder or an address that is already in use, and a second signal.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{Running, output, text, tideline};

/// Longest time from the stop signal to the end of the process.
const STOP_LIMIT: Duration = Duration::from_secs(5);

fn ask(address: SocketAddr, path: &str, body: Option<&str>) -> (u16, String) {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .new_agent();
    let url = format!("http://{address}{path}");
    let mut response = match body {
        Some(body) => agent.post(&url).send(body),
        None => agent.get(&url).call(),
    }
    .expect("a response");
    let text = response
        .body_mut()
        .read_to_string()
        .expect("the response is text");
    (response.status().as_u16(), text)
}

#[test]
fn points_outlive_a_stop() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let (server, address) = Running::serve(&data);
    assert_eq!(ask(address, "/health", None).0, 200);
    assert_eq!(
        ask(
            address,
            "/write",
            Some("kept,host=a value=41.5 1700000000000000000")
        )
        .0,
        204
    );
    let mode = data.metadata().expect("the folder is made").permissions().mode();
    assert_eq!(mode & 0o077, 0, "only its owner may access it");
    server.signal(Signal::TERM);
    let (status, took, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(took < STOP_LIMIT, "it took {took:?}:\n{said}");

    let (server, address) = Running::serve(&data);
    let (status, found) = ask(address, "/v1/tables/default/timelines?measurement=kept", None);
    assert_eq!(status, 200, "{found}");
    assert!(
        found.contains("\"host\":\"a\"") && found.contains("2023-11-14T22:13:20Z"),
        "{found}"
    );
    server.signal(Signal::INT);
    let (status, _, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn a_folder_has_one_process_at_a_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_first, address) = Running::serve(folder.path());
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.path());
    let second = output(command);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("tideline: cannot open the data folder") && last.contains("is using"),
        "{said}"
    );
    assert_eq!(ask(address, "/health", None).0, 200, "the first keeps running");
}

#[test]
fn the_embedded_engine_declares_what_differs_from_a_cluster() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_server, address) = Running::serve(folder.path());
    let (status, said) = ask(address, "/v1/backend", None);
    assert_eq!(status, 200, "{said}");
    let backend: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let expected = serde_json::json!({
        "engine": "fjall", "acknowledged": "synced", "is_shared": false, "medium": "folder", "backup": "folder_copy",
        "buffers_writes": true, "limits_free_space": true, "frees_at_once": true, "has_offline_check": true,
    });
    for (member, value) in expected.as_object().expect("an object") {
        assert_eq!(&backend[member], value, "{member}");
    }
}

#[test]
fn the_folder_of_a_server_of_a_cluster_is_refused_and_kept() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let index = folder.path().join("index");
    std::fs::create_dir(&index).expect("a folder");
    // A server of a cluster has left its lock file, its epoch and its index.
    for file in ["cluster.lock", "epoch", "index/segment"] {
        std::fs::write(folder.path().join(file), "").expect("a file");
    }
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(folder.path());
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains("cannot use the data folder") && said.contains("--backend cassandra"),
        "{said}"
    );
    assert!(index.join("segment").exists(), "the index is kept");
    assert!(!folder.path().join("store").exists(), "nothing is created");
}

#[test]
fn an_address_in_use_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_first, address) = Running::serve(&folder.path().join("first"));
    let mut command = tideline(&["serve", "--listen", &address.to_string(), "--data-dir"]);
    command.arg(folder.path().join("second"));
    let second = output(command);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(said.contains(&format!("cannot listen on {address}: ")), "{said}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut server, address) = Running::serve(folder.path());
    let mut unfinished = TcpStream::connect(address).expect("it listens");
    unfinished
        .write_all(b"POST /write HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\ncpu v=1")
        .expect("it reads");
    // A response to a later request implies that the first request was received.
    assert_eq!(ask(address, "/health", None).0, 200);
    server.signal(Signal::TERM);
    server.wait_for(|line| line.contains("SIGTERM: stopping"));
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert_eq!(status.code(), Some(130), "{said}");
}
