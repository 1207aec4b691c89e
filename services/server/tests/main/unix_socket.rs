//! Tests of the Unix socket: requests and their tokens, the user in the log, and the file after each kind of end. Also
//! tests the command line as a client of the socket.
//! the command line as a client of the socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, getuid};

use crate::process::{Running, output, text, tideline};

const TOKEN: &str = "a-token-of-this-test-0123456789";

fn serve(data: &Path, socket: &Path) -> Command {
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command
        .arg(data)
        .arg("--unix-socket")
        .arg(socket)
        .env("TIDELINE__AUTH__TOKEN", TOKEN);
    command
}

/// Sends a request on a new connection, and returns the response.
fn send(socket: &Path, request: &str, further: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{further}\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

#[test]
fn a_unix_socket_serves_with_tokens_and_its_file_is_removed_or_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, socket) = (folder.path().join("data"), folder.path().join("tideline.sock"));
    let made = output({
        let mut command = tideline(&["tls", "self-signed", "--out"]);
        command.arg(folder.path());
        command
    });
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut command = serve(&data, &socket);
    // TLS does not apply to the Unix socket.
    command
        .env(
            "TIDELINE__HTTP__TLS_CERTIFICATE_FILE",
            folder.path().join("tideline.crt"),
        )
        .env("TIDELINE__HTTP__TLS_KEY_FILE", folder.path().join("tideline.key"));
    let mut server = Running::start(command);
    server.wait_for(|line| line.starts_with("listening on https://"));
    let refused = send(&socket, "GET /v1/tables", "", "");
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let bearer = format!("authorization: Bearer {TOKEN}\r\n");
    let tables = send(&socket, "GET /v1/tables", &bearer, "");
    assert!(tables.starts_with("HTTP/1.1 200"), "{tables}");
    let created = send(&socket, "POST /v1/tables", &bearer, "{\"name\": \"fleet\"}");
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let client = |arguments: &[&str]| {
        let mut command = tideline(arguments);
        command
            .args(["--server", &format!("unix:{}", socket.display())])
            .env("TIDELINE_TOKEN_FILE", folder.path().join("token"));
        let ended = output(command);
        assert!(ended.status.success(), "{arguments:?}: {}", text(&ended.stderr));
        text(&ended.stdout)
    };
    std::fs::write(folder.path().join("token"), TOKEN).expect("a file");
    assert!(client(&["ready"]).starts_with("ready"));
    let file = folder.path().join("points.lp");
    let lines: String = (0..50_000)
        .map(|at| format!("cpu,host=a v={at} {at}\n"))
        .collect();
    std::fs::write(&file, lines).expect("a file");
    client(&[
        "write",
        file.to_str().expect("a path"),
        "--table",
        "fleet",
        "--json",
    ]);
    let exported = client(&["export", "--table", "fleet"]);
    assert_eq!(exported.lines().count(), 50_000);
    let peer = format!("peer=unix:{}", getuid().as_raw());
    server.wait_for(|line| line.contains("audit") && line.contains(&peer));

    let (status, _, said) = Running::start(serve(&folder.path().join("other"), &socket)).end();
    assert!(
        !status.success() && said.contains("another process listens there"),
        "{said}"
    );
    server.signal(Signal::KILL);
    let _killed = server.end();
    assert!(socket.exists(), "the file of a killed server stays");
    let mut server = Running::start(serve(&data, &socket));
    server.wait_for(|line| line.starts_with("listening on "));
    let tables = send(&socket, "GET /v1/tables/fleet", &bearer, "");
    assert!(tables.starts_with("HTTP/1.1 200"), "{tables}");
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");
    assert!(!socket.exists());

    let too_long: PathBuf = folder.path().join("long".repeat(40));
    let (status, _, said) = Running::start(serve(&data, &too_long)).end();
    assert!(!status.success() && said.contains("Unix socket"), "{said}");
}
