//! Tests of the audit log of a running server: each change of a table and each delete is logged with its client, even
//! behind a proxy.

use std::time::Duration;

use serde_json::json;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, wait};

/// Returns the lines of the audit log once it has at least `count` lines.
fn lines(server: &tideline_tests::server::Server, count: usize) -> Vec<String> {
    let found = wait::until(Duration::from_secs(5), || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("tideline::audit"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    });
    found.unwrap_or_else(|| panic!("fewer than {count} audit lines:\n{}", server.log()))
}

#[test]
fn changes_by_sql_are_logged_with_their_table() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    for statement in [
        "CREATE TABLE orders (a BIGINT, b BIGINT, PRIMARY KEY (a, b))",
        "CREATE TABLE IF NOT EXISTS orders (a BIGINT, PRIMARY KEY (a))",
        "UPSERT INTO orders (a, b) VALUES (1, 1)",
        "SELECT * FROM orders WHERE a = 1",
        "DELETE FROM orders WHERE a = 1",
        "DROP TABLE orders",
    ] {
        let body = json!({"statement": statement});
        client.post_json("/v1/sql", &body).expect_status(200);
    }
    let logged = lines(&server, 3);
    for (line, change) in
        logged
            .iter()
            .zip(["CREATE TABLE orders", "DELETE FROM orders", "DROP TABLE orders"])
    {
        assert!(line.contains(change), "{logged:?}");
    }
    assert_eq!(logged.len(), 3, "{logged:?}");
    let delete = &logged[1];
    assert!(
        delete.contains("condition: ") && delete.contains("a = 1"),
        "{delete}"
    );
}

#[test]
fn a_change_is_logged_with_the_client_behind_the_proxy() {
    for (proxies, peer, proxy) in [
        ("127.0.0.0/8", "peer=203.0.113.9 ", "proxy=127.0.0.1:"),
        ("10.0.0.0/8", "peer=127.0.0.1:", "change"),
    ] {
        let folder = DataFolder::new();
        let launch = Launch::default().environment("TIDELINE__HTTP__TRUSTED_PROXIES", proxies);
        let server = folder.start(&launch);
        let body = json!({"name": "audited"}).to_string();
        let headers = [
            ("content-type", "application/json"),
            ("forwarded", "for=203.0.113.9;proto=https"),
        ];
        let answer = server
            .client()
            .send("POST", "/v1/tables", &headers, body.as_bytes());
        answer.expect("a response").expect_status(201);
        let line = wait::until(Duration::from_secs(5), || {
            let log = server.log();
            let mut lines = log.lines().filter(|line| line.contains("tideline::audit"));
            lines.next().map(str::to_owned)
        });
        let line = line.unwrap_or_else(|| panic!("no audit line:\n{}", server.log()));
        assert!(line.contains(peer) && line.contains(proxy), "{proxies}: {line}");
    }
}
