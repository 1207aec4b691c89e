//! Tests that planted secrets do not appear in a response, a metric, the log, the audit table or a file of the data
//! folder.
//!
//! The server gets the secrets in each way that it accepts, in valid and in invalid requests, and logs as much as it
//! can. Only the response to a request that creates or rotates a token contains a token.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use base64::Engine as _;
use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Running, output, text, tideline};

/// The configured token.
const TOKEN: &str = "planted-configured-0123456789abcdef";
/// A token that does not exist on the server.
const GUESSED: &str = "planted-guessed-0123456789abcdef";
/// Value in places of requests where clients might put passwords.
const PASSWORD: &str = "planted-password-0123456789abcdef";
/// Secret with which the requests of a webhook are signed. The server must store it to sign requests.
const SIGNING: &str = "whsec_cGxhbnRlZC1zaWduaW5nLTAxMjM0NTY3ODlhYmNkZWY=";

/// Key of the archive.
const ARCHIVE: &str = "planted-archive-0123456789abcdef";

/// Sends a request on a new connection, and returns the whole response.
fn send(address: SocketAddr, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    String::from_utf8_lossy(&response).into_owned()
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Calls `see` with the path and the content of each file below a folder.
fn each_file(folder: &Path, see: &mut dyn FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => each_file(&path, see),
            false => see(&path, &fs::read(&path).expect("a file")),
        }
    }
}

#[test]
fn no_output_has_a_planted_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let options = folder.path().join("archive.options");
    let credentials = format!(
        "endpoint = http://127.0.0.1:9\nregion = here\naccess_key_id = me\nsecret_access_key = {ARCHIVE}\n"
    );
    fs::write(&options, credentials).expect("written");
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command
        .arg(&data)
        .env("TIDELINE__ARCHIVE__TARGET", "s3://bucket/x")
        .env("TIDELINE__ARCHIVE__OPTIONS_FILE", &options)
        .env("TIDELINE__AUTH__TOKEN", TOKEN)
        .env("TIDELINE__WEBHOOKS__HOSTS", "hooks.example.com")
        .env("TIDELINE__LOG__LEVEL", "trace");
    let mut server = Running::start(command);
    let line = server.wait_for(|line| line.starts_with("listening on "));
    let address = line.trim_start_matches("listening on http://").split(',').next();
    let address: SocketAddr = address.unwrap_or_default().parse().expect("an address");

    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let created = send(
        address,
        "POST /v1/tokens",
        &bearer(TOKEN),
        r#"{"name": "agents", "roles": ["reader", "writer"]}"#,
    );
    let (_, body) = created.split_once("\r\n\r\n").expect("a body");
    let created: Value = serde_json::from_str(body).expect("JSON");
    let token = created["token"].as_str().expect("a token").to_owned();
    let id = created["id"].as_str().expect("an id").to_owned();
    let rotated = send(
        address,
        &format!("POST /v1/tokens/{id}/rotate"),
        &bearer(TOKEN),
        "{}",
    );
    let (_, body) = rotated.split_once("\r\n\r\n").expect("a body");
    let rotated: Value = serde_json::from_str(body).expect("JSON");
    let rotated = rotated["token"].as_str().expect("a token").to_owned();

    let mut responses = Vec::new();
    let mut ask = |request: &str, headers: &str, body: &str| {
        let response = send(address, request, headers, body);
        let status: u16 = response[9..12].parse().expect("a status");
        responses.push((request.to_owned(), response));
        status
    };
    for secret in [TOKEN, &token, &rotated, GUESSED] {
        let is_known = secret != GUESSED;
        for headers in [
            bearer(secret),
            format!("authorization: Token {secret}\r\n"),
            format!("authorization: Basic {}\r\n", base64(&format!("user:{secret}"))),
        ] {
            assert_eq!(ask("GET /v1/tables", &headers, "") == 200, is_known, "{headers}");
        }
        let line = "cpu,host=a usage=1";
        let written = ask(&format!("POST /write?u=user&p={secret}"), "", line);
        assert_eq!(written == 204, is_known);
        ask("POST /v1/tables/%00/points", &bearer(secret), line);
        ask("POST /v1/sql", &bearer(secret), "{");
        ask("DELETE /v1/tables/missing", &bearer(secret), "");
    }
    // Passwords where they do not belong: they are refused or ignored.
    ask(&format!("GET /v1/tables?password={PASSWORD}"), &bearer(TOKEN), "");
    ask(
        &format!("DELETE /v1/tables/missing?password={PASSWORD}"),
        &bearer(TOKEN),
        "",
    );
    ask(
        &format!("GET /query?u=root&p={PASSWORD}&q=SHOW%20DATABASES"),
        "",
        "",
    );
    ask(
        "GET /v1/tables",
        &format!("authorization: Digest {PASSWORD}\r\n"),
        "",
    );
    ask("GET /v1/tables", &format!("cookie: session={PASSWORD}\r\n"), "");
    // A webhook with a secret.
    let stream = r#"{"tables": ["*"]}"#;
    assert_eq!(ask("PUT /v1/changes/all", &bearer(TOKEN), stream), 200);
    let hook = format!(r#"{{"url": "https://hooks.example.com/x", "secret": "{SIGNING}"}}"#);
    let policy = r#"{"policy": {"hot_ttl": "3d", "archive": {"target": "default", "after": "30d"}}}"#;
    assert_eq!(ask("PATCH /v1/tables/default", &bearer(TOKEN), policy), 200);
    // The target does not answer, so its client fails with the key in use.
    let target = r#"{"target": "s3://bucket/x"}"#;
    ask("POST /v1/archive/attach", &bearer(TOKEN), target);
    let put = ask("PUT /v1/changes/all/webhooks/shop", &bearer(TOKEN), &hook);
    assert!(put < 300, "{put}");
    for path in [
        "/metrics",
        "/ready",
        "/v1/tokens",
        "/v1/access",
        "/v1/tenants",
        "/v1/jobs",
        "/v1/queries",
        "/v1/changes",
        "/v1/changes/all",
        "/v1/changes/all/webhooks",
        "/v1/changes/all/webhooks/shop",
        &format!("/v1/tokens/{id}"),
        "/v1/tables",
        "/v1/tables/tideline-state",
        "/v1/archive",
        "/openapi.json",
    ] {
        ask(&format!("GET {path}"), &bearer(TOKEN), "");
    }
    let scans = r#"{"allow_scan": true}"#;
    let of_state = ask("POST /v1/tables/tideline-state/rows/scan", &bearer(TOKEN), scans);
    assert_eq!(of_state, 403);
    let of_audit = ask("POST /v1/tables/tideline-audit/rows/scan", &bearer(TOKEN), scans);
    assert_eq!(of_audit, 200);
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");

    let secrets = [TOKEN, &token, &rotated, GUESSED, PASSWORD, SIGNING, ARCHIVE];
    let encoded = secrets.map(|secret| base64(&format!("user:{secret}")));
    let planted = secrets.iter().copied().chain(encoded.iter().map(String::as_str));
    let planted: Vec<&str> = planted.collect();
    for secret in &planted {
        for (request, response) in &responses {
            assert!(!response.contains(secret), "{request} has {secret}: {response}");
        }
        let line = said.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "the log has {secret}: {line:?}");
    }
    let mut files = 0;
    each_file(&data, &mut |path, content| {
        files += 1;
        for secret in planted.iter().filter(|secret| !secret.contains(SIGNING)) {
            let has_it = content
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!has_it, "{} has {secret}", path.display());
        }
    });
    assert!(files > 5 && said.lines().count() > 40, "{files} files\n{said}");
    let checked = output({
        let mut command = tideline(&["config", "check", "--data-dir"]);
        command.arg(&data).env("TIDELINE__AUTH__TOKEN", TOKEN);
        command
    });
    let said = text(&checked.stdout) + &text(&checked.stderr);
    assert!(checked.status.success() && !said.contains(TOKEN), "{said}");
}
