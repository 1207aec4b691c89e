//! `tideline backend copy`: a data folder moves into a cluster and back, and every query returns the same.
//!
//! The folder has sealed and journaled points, rows with an index, messages, and a change stream whose changes a group
//! holds.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};
use tideline_testkit::wait;
use tideline_tests::Client;

use crate::cassandra::{Cluster, PATIENCE, wait_for_role};
use crate::process::Running;

const STREAM: &str = "/v1/changes/all";

/// Creates a table of each model, and a stream of their changes.
fn create(client: &Client) {
    let wide = json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "i64"}],
        "columns": [{"name": "city", "type": "string"}, {"name": "amount", "type": "f64"}],
    });
    let orders = json!({"name": "orders", "model": "wide", "wide": wide});
    let chat =
        json!({"name": "chat", "model": "feed", "feed": {"columns": [{"name": "room", "type": "string"}]}});
    for table in [orders, chat] {
        client.post_json("/v1/tables", &table).expect_status(201);
    }
    let index = json!({"name": "by_city", "key": [{"name": "city"}]});
    client
        .post_json("/v1/tables/orders/indexes", &index)
        .expect_status(201);
    client
        .put_json(STREAM, &json!({"kinds": ["points", "row", "message"]}))
        .expect_status(200);
    let group = json!({"partitions": 1, "hold": true, "from": "oldest"});
    client
        .put_json(&format!("{STREAM}/groups/copy"), &group)
        .expect_status(200);
}

/// Writes points, rows and messages with numbers of a range.
fn write(client: &Client, numbers: std::ops::Range<u64>) {
    for n in numbers.clone() {
        let lines: String = (0..40)
            .map(|host| {
                let time = 1_767_225_600_000_000_000 + n * 60_000_000_000 + host;
                format!(
                    "load,host=h{host:02},rack=r{} one={n},two={host}i {time}\n",
                    host % 5
                )
            })
            .collect();
        let sent = client.post_lines("/v1/tables/default/points", &lines);
        assert!(sent.status < 300, "{sent:?}");
    }
    let row = |n: u64| {
        let key = json!({"customer": format!("c{}", n % 7), "number": n});
        let city = ["Riga", "Oslo", "Bonn"][n as usize % 3];
        let columns = json!({"city": city, "amount": n as f64 / 4.0});
        json!({"op": "put", "key": key, "columns": columns})
    };
    let rows: Vec<Value> = numbers.clone().map(row).collect();
    let sent = client.post_json("/v1/tables/orders/rows", &json!({"rows": rows}));
    sent.expect_status(200);
    for n in numbers {
        let message = json!({"columns": {"room": "lobby"}, "sender": "ada", "id": format!("m{n}")});
        let path = format!("/v1/tables/chat/feeds/room,name=r{}/messages", n % 3);
        let sent = client.post_json(&path, &json!({"messages": [message]}));
        assert_eq!(sent.status, 200, "{sent:?}");
    }
}

/// Returns the results of queries of all models.
fn results(address: SocketAddr) -> Vec<(String, Value)> {
    let client = Client::new(address);
    let mut results = Vec::new();
    let mut note = |name: &str, mut body: Value| {
        if let Some(members) = body.as_object_mut() {
            members.remove("request_id");
        }
        results.push((name.to_owned(), body));
    };
    let prometheus = "/v1/tables/default/prometheus/api/v1";
    for path in [
        format!(
            "{prometheus}/query_range?query=sum%20by%20(rack)(load_one)&start=1767225600&end=1767240000&step=60"
        ),
        format!("{prometheus}/query?query=count(load_two)&time=1767227400"),
        format!("{prometheus}/series?match%5B%5D=load_one"),
        format!("{STREAM}/records?limit=1000"),
        format!("{STREAM}/groups/copy"),
        "/v1/tables/chat/feeds/room,name=r1/messages?limit=1000".to_owned(),
    ] {
        let body = client.get(&path).json();
        note(&path, body);
    }
    for (path, body) in [
        ("/v1/tables/orders/rows/count", json!({"allow_scan": true})),
        (
            "/v1/tables/default/timelines/search",
            json!({"where": {"tag": "rack", "equals": "r3"}, "limit": 100}),
        ),
        (
            "/v1/sql",
            json!({"statement": "SELECT * FROM orders WHERE customer = 'c1'"}),
        ),
        (
            "/v1/sql",
            json!({"statement": "SELECT * FROM orders WHERE city = 'Oslo'"}),
        ),
    ] {
        let body_text = client.post_json(path, &body).json();
        note(&format!("{path} {body}"), body_text);
    }
    results
}

fn check_same(address: SocketAddr, expected: &[(String, Value)]) {
    for ((name, found), (_, expected)) in results(address).iter().zip(expected) {
        for (member, expected) in expected.as_object().into_iter().flatten() {
            assert_eq!(&found[member], expected, "{member} of {name}");
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_data_folder_moves_into_a_cluster_and_back() {
    let Some(cluster) = Cluster::new("copied") else {
        return;
    };
    let folders = tempfile::tempdir().expect("a temporary folder");
    let (original, copied) = (folders.path().join("original"), folders.path().join("copied"));
    let copy = |to: &str, folder: &Path| {
        let folder = folder.to_str().expect("a path");
        cluster.backend("copy", &["--to", to, "--data-dir", folder])
    };

    // A folder with sealed points and flushed rows, and with entries that are only in the journal.
    let (server, address) = Running::serve(&original);
    let client = Client::new(address);
    create(&client);
    write(&client, 0..60);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    write(&client, 60..90);
    let expected = results(address);
    for (name, result) in &expected {
        assert!(result.get("code").is_none(), "{name}: {result}");
    }
    let (refused, is_copied) = copy("cassandra", &original);
    assert!(!is_copied && refused.contains("is using"), "{refused}");
    server.signal(Signal::KILL);
    drop(server);

    let (said, is_copied) = copy("cassandra", &original);
    assert!(is_copied, "{said}");
    let (mut server, address) = cluster.serve("server");
    server.wait_for(|line| line.contains("this process owns the data"));
    check_same(address, &expected);
    let (refused, is_copied) = copy("fjall", &copied);
    assert!(
        !is_copied && refused.contains(&format!("the process at {address} owns the data")),
        "{refused}"
    );
    let waited = "the data cannot be taken yet, trying for up to";
    assert_eq!(refused.matches(waited).count(), 1, "{refused}");
    write(&Client::new(address), 90..100);
    let expected = results(address);
    server.signal(Signal::TERM);
    assert!(server.end().0.success());

    let (said, is_copied) = copy("fjall", &copied);
    assert!(is_copied, "{said}");
    let (server, address) = Running::serve(&copied);
    let ready = wait::until(PATIENCE, || {
        let ready = Client::new(address).get("/ready").json();
        (ready["status"] == "ready").then_some(())
    });
    assert!(ready.is_some());
    check_same(address, &expected);
    drop(server);

    let (refused, is_copied) = copy("cassandra", &copied);
    assert!(
        !is_copied && refused.contains("already has a database"),
        "{refused}"
    );
    let (refused, is_copied) = copy("cassandra", &folders.path().join("missing"));
    assert!(!is_copied && refused.contains("--data-dir"), "{refused}");
    // The refusals have changed nothing.
    let (server, address) = cluster.serve("server");
    wait_for_role(address, "owner");
    check_same(address, &expected);
    drop(server);
}
