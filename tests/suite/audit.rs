//! Audit log of a running server: each change with its client, also behind a proxy.

use std::time::Duration;

use serde_json::json;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, wait};

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
