//! Server without free file descriptors: writes are refused and `/ready` reports the reason, until
//! descriptors are free again.

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, Server, reading, wait};

/// Limit below the number of descriptors that a running server has open. The server keeps the open descriptors
/// and gets no new ones.
const TOO_FEW: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(30);

fn set_limit(server: &Server, limit: Rlimit) -> Rlimit {
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Nofile, limit).expect("the limit of a child can be set")
}

fn write(client: &Client, value: i64) -> u16 {
    let line = format!("files,host=a v={value}i {}", 1_700_000_000_000_000_000 + value);
    client.post_lines("/v1/tables/default/points", &line).status
}

#[test]
fn a_server_without_descriptors_reports_it_and_recovers() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    // The connection must stay open: a server without free descriptors accepts no new connection.
    let client = server.client();
    assert_eq!(write(&client, 0), 200);
    let full = set_limit(
        &server,
        Rlimit {
            current: Some(TOO_FEW),
            ..getrlimit(Resource::Nofile)
        },
    );
    // After a seal the journal continues in a new file, which cannot be created.
    let sealed = client.post_json("/v1/jobs", &json!({"kind": "seal"}));
    println!("seal: {} {}", sealed.status, sealed.text());
    let mut acknowledged = vec![0];
    let reason = wait::until(PATIENCE, || {
        let value = acknowledged.len() as i64;
        match write(&client, value) {
            200 => acknowledged.push(value),
            503 => {}
            status => panic!("a write got {status}"),
        }
        let ready = client.get("/ready");
        (ready.status == 503).then(|| ready.text())
    });
    let reason = reason.expect("/ready is red");
    assert!(reason.contains("open files"), "{reason}");
    assert_eq!(write(&client, 1_000_000), 503, "writes are refused");
    client.get("/health").expect_status(200);

    set_limit(&server, full);
    wait::until(PATIENCE, || (client.get("/ready").status == 200).then_some(()))
        .unwrap_or_else(|| panic!("it recovers; its log:\n{}", server.log()));
    let value = acknowledged.len() as i64;
    assert_eq!(write(&client, value), 200);
    acknowledged.push(value);
    let rows = reading::all(&client, "default", "files");
    assert_eq!(rows.len(), acknowledged.len(), "{rows:?}");
}
