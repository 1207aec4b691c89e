//! Rows of wide tables: acknowledged rows survive kill −9, an index is complete although its build was killed repeatedly,
//! a scan ends when its client disconnects, and an import of a large file takes bounded memory.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, the data is in a cluster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, wait};

fn create(client: &Client) {
    let table = json!({"name": "events", "model": "wide", "wide": {
        "key": [
            {"name": "spread", "bucket": {"of": ["n"], "count": 4}},
            {"name": "n", "type": "u64"}
        ],
        "columns": [{"name": "text", "type": "string"}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn put(client: &Client, numbers: std::ops::Range<u64>, text: &str) {
    let rows = numbers.map(|n| json!({"op": "put", "key": {"n": n}, "columns": {"text": text}}));
    let rows = json!({"rows": rows.collect::<Vec<Value>>()});
    client
        .post_json("/v1/tables/events/rows", &rows)
        .expect_status(200);
}

fn numbers(client: &Client) -> Vec<u64> {
    let scan = json!({"allow_scan": true, "limit": 10_000});
    let page = client
        .post_json("/v1/tables/events/rows/scan", &scan)
        .expect_status(200)
        .json();
    let rows = page["rows"].as_array().expect("a list").clone();
    rows.iter()
        .map(|row| row["key"]["n"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn acknowledged_rows_survive_a_kill() {
    let folder = DataFolder::of_suite();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    put(&client, 0..1_000, "one");
    server.kill();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let all: Vec<u64> = (0..1_000).collect();
    assert_eq!(numbers(&client), all);
    let delete = json!({"range": {"column": "n", "from": 500}});
    client
        .post_json("/v1/tables/events/rows/delete", &delete)
        .expect_status(200);
    assert!(server.terminate().status.success());
    let server = folder.start(&Launch::default());
    assert_eq!(numbers(&server.client()), all[..500]);
    assert!(server.terminate().status.success());
}

#[test]
fn an_index_whose_build_is_killed_again_and_again_gets_every_row() {
    let folder = DataFolder::of_suite();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    for first in (0..60_000).step_by(5_000) {
        put(&client, first..first + 5_000, "one");
    }
    let index = json!({"name": "by_text", "key": [{"name": "text"}]});
    client
        .post_json("/v1/tables/events/indexes", &index)
        .expect_status(201);
    let mut server = server;
    for round in 0..5_u64 {
        // Writes during the build of the index, then kills the server at an arbitrary moment of the build.
        put(&server.client(), round..round + 1, "two");
        wait::pause(Duration::from_millis(20 * round));
        server.kill();
        server = folder.start(&Launch::default());
    }
    let client = server.client();
    let build = json!({"kind": "build_index", "wait": true});
    let ready = wait::until(Duration::from_secs(60), || {
        client.post_json("/v1/jobs", &build).expect_status(200);
        let index = client
            .get("/v1/tables/events/indexes/by_text")
            .expect_status(200)
            .json();
        (index["status"] == "ready").then_some(())
    });
    assert!(ready.is_some(), "the index is ready");
    let count = |text: &str| {
        let count = json!({"index": "by_text", "prefix": {"text": text}});
        let counted = client.post_json("/v1/tables/events/rows/count", &count);
        counted.expect_status(200).json()["count"].as_u64()
    };
    assert_eq!((count("one"), count("two")), (Some(59_995), Some(5)));
    assert!(server.terminate().status.success());
}

#[test]
fn a_client_that_leaves_ends_its_scan() {
    let folder = DataFolder::of_suite();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    let text = "x".repeat(1_000);
    for part in 0..20 {
        put(&client, part * 1_000..(part + 1) * 1_000, &text);
    }
    let body = r#"{"allow_scan": true}"#;
    let mut stream = TcpStream::connect(client.address()).expect("connects");
    write!(
        stream,
        "POST /v1/tables/events/rows/scan HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut first = [0; 1_000];
    stream.read_exact(&mut first).expect("the first rows");
    let running = || {
        let queries = client.get("/v1/queries").expect_status(200).json();
        queries["queries"].as_array().map_or(0, Vec::len)
    };
    let becomes = |count| wait::until(Duration::from_secs(10), || (running() == count).then_some(()));
    becomes(1).expect("the scan waits for its client");
    drop(stream);
    becomes(0).expect("the scan ends");
    assert!(server.terminate().status.success());
}

#[test]
fn an_import_of_any_size_takes_bounded_memory() {
    /// Size of the imported file, and the largest accepted growth of peak memory, in bytes.
    const FILE_BYTES: usize = 192 << 20;
    const GROWTH_BYTES_MAX: u64 = 96 << 20;
    let folder = DataFolder::of_suite();
    let server = folder.start(&Launch::default());
    let client = server.client();
    create(&client);
    put(&client, 0..1_000, "one");
    // The value of `n` is not a number, so that these rows are rejected and take no memory of the row buffer.
    let record = format!("many,{}\n", "x".repeat(4_000));
    let import = |bytes: usize| {
        let mut file = b"n,text\n1,first\n".to_vec();
        while file.len() < bytes {
            file.extend_from_slice(record.as_bytes());
        }
        let headers = [("content-type", "text/csv")];
        client
            .send("POST", "/v1/tables/events/rows/import", &headers, &file)
            .expect("a response")
            .expect_status(200)
    };
    let _ = import(8 << 20);
    let before = server.resident_bytes_peak();
    let imported = import(FILE_BYTES);
    let grown = server.resident_bytes_peak().saturating_sub(before);
    println!("peak memory grew by {} KiB", grown >> 10);
    assert!(grown <= GROWTH_BYTES_MAX, "peak memory grew by {grown} bytes");
    let text = imported.text();
    let end: Value = serde_json::from_str(text.trim_end().lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(end["written"], 1);
    let refused = end["refused"].as_u64().unwrap_or_default();
    assert_eq!(end["omitted"], refused - 10_000, "{end}");
    assert!(server.terminate().status.success());
}
