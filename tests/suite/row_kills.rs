//! Tests that kill the server at arbitrary times during long work on rows: a copy into a table with another key, an
//! import by `tideline rows import`, the build and the replacement of a search index, and drops of parts. In every
//! second round of the import, the command is killed too.
//!
//! The work is started again after each kill, as an operator would do. Afterwards every row must be stored exactly
//! once. The suite `row_steps` kills at every step of the same work, and `row_faults` at every step of a flush.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, the data is in a cluster.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tideline_tests::program::free_address;
use tideline_tests::server::{DataFolder, Server, binary};
use tideline_tests::{Client, Launch, wait};

/// Number of rows of each test.
const ROWS: u64 = 60_000;
/// Number of kills of each test.
const KILLS: u64 = 5;
/// Time limit for the end of a command or job.
const PATIENCE: Duration = Duration::from_secs(120);

fn create(client: &Client, name: &str, key: &Value) {
    let table = json!({"name": name, "model": "wide", "wide": {
        "key": key,
        "columns": [{"name": "text", "type": "string"}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn count(client: &Client, table: &str, prefix: &Value) -> Option<u64> {
    let body = match prefix.is_null() {
        true => json!({"allow_scan": true}),
        false => json!({"prefix": prefix}),
    };
    let counted = client.post_json(&format!("/v1/tables/{table}/rows/count"), &body);
    counted.expect_status(200).json()["count"].as_u64()
}

/// Returns the text of a CSV file: the header line, [`ROWS`] valid records and one record that is not valid.
fn records() -> String {
    let mut records = String::from("part,n,text\n");
    for n in 0..ROWS {
        let written = writeln!(records, "p{},{n},text {n}", n % 7);
        assert!(written.is_ok());
    }
    records.push_str("p0,many,a number is expected\n");
    records
}

#[test]
fn a_copy_into_another_key_that_is_killed_again_and_again_copies_every_row() {
    let folder = DataFolder::of_suite();
    let mut server = folder.start(&Launch::default());
    let client = server.client();
    create(
        &client,
        "source",
        &json!([{"name": "n", "type": "u64"}, {"name": "part", "type": "string"}]),
    );
    create(
        &client,
        "target",
        &json!([{"name": "part", "type": "string"}, {"name": "n", "type": "u64"}]),
    );
    for first in (0..ROWS).step_by(5_000) {
        let row = |n| json!({"op": "put", "key": {"n": n, "part": format!("p{}", n % 7)}, "columns": {"text": "one"}});
        let rows: Vec<Value> = (first..first + 5_000).map(row).collect();
        client
            .post_json("/v1/tables/source/rows", &json!({"rows": rows}))
            .expect_status(200);
    }
    for round in 0..KILLS {
        // Does not wait for the job: the kill interrupts it, and the request of the next round starts the copy again.
        let body = json!({"into": "target"}).to_string();
        let headers = [("content-type", "application/json")];
        let sent = server
            .client()
            .send("POST", "/v1/tables/source/rows/rekey", &headers, body.as_bytes());
        assert!(sent.is_ok(), "round {round}");
        wait::pause(Duration::from_millis(30 * round));
        server.kill();
        server = folder.start(&Launch::default());
    }
    let client = server.client();
    let copied = wait::until(PATIENCE, || {
        let done = client.post_json(
            "/v1/tables/source/rows/rekey",
            &json!({"into": "target", "wait": true}),
        );
        done.is_success().then(|| done.json())
    });
    let copied = copied.expect("the copy ends");
    assert_eq!(copied["state"], "done", "{copied}");
    assert_eq!(count(&client, "target", &Value::Null), Some(ROWS));
    let part = |n: u64| count(&client, "target", &json!({"part": format!("p{n}")}));
    let parts: u64 = (0..7).filter_map(part).sum();
    assert_eq!(parts, ROWS);
    assert!(server.terminate().status.success());
}

/// Starts `tideline rows import` with a resume file.
fn import(folder: &DataFolder, server: &Client, file: &str) -> Child {
    let path = |name: &str| folder.beside(name);
    let mut command = Command::new(binary());
    command
        .args(["rows", "import", "rows"])
        .arg(path(file))
        .args(["--server", &format!("http://{}", server.address())])
        .args(["--parallel", "3", "--patience", "60s"])
        .arg("--resume")
        .arg(path("resume"))
        .arg("--rejects")
        .arg(path("rejects"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("the command starts")
}

fn ended(child: &mut Child) -> Option<i32> {
    let status = wait::until(PATIENCE, || child.try_wait().expect("it is asked"));
    status.expect("the command ends").code()
}

#[test]
fn an_import_whose_server_and_command_are_killed_again_and_again_writes_every_row() {
    let folder = DataFolder::of_suite();
    // Each start listens on the same address, so that the running command reaches the new server.
    let launch = Launch::default().listen(free_address());
    let mut server: Server = folder.start(&launch);
    create(
        &server.client(),
        "rows",
        &json!([{"name": "part", "type": "string"}, {"name": "n", "type": "u64"}]),
    );
    fs::write(folder.beside("rows.csv"), records()).expect("the file is written");
    let mut command = import(&folder, &server.client(), "rows.csv");
    for round in 0..KILLS {
        wait::pause(Duration::from_millis(40 * round));
        if round % 2 == 1 {
            // Fails if the command has already ended, which is allowed.
            let _ = command.kill();
            let _ = command.wait();
        }
        server.kill();
        server = folder.start(&launch);
        if round % 2 == 1 {
            command = import(&folder, &server.client(), "rows.csv");
        }
    }
    // 1: a record was rejected.
    assert_eq!(ended(&mut command), Some(1));
    let client = server.client();
    assert_eq!(count(&client, "rows", &Value::Null), Some(ROWS));
    let last = json!({"keys": [{"part": format!("p{}", (ROWS - 1) % 7), "n": ROWS - 1}]});
    let last = client
        .post_json("/v1/tables/rows/rows/get", &last)
        .expect_status(200)
        .json();
    assert_eq!(last["rows"][0]["columns"]["text"], format!("text {}", ROWS - 1));
    let rejects = fs::read_to_string(folder.beside("rejects")).expect("the rejects are listed");
    assert!(rejects.contains("many"), "{rejects}");
    assert!(server.terminate().status.success());
}

/// Returns the total of a search, once the index is complete and holds every write.
fn found(client: &Client, condition: &Value) -> Option<u64> {
    // The position of the newest entry: of a delete of a row that does not exist.
    let newest = client.post_json(
        "/v1/tables/orders/rows/delete",
        &json!({"prefix": {"n": u64::MAX}}),
    );
    let newest = newest.is_success().then(|| newest.json()["position"].clone())?;
    let found = client.post_json(
        "/v1/tables/orders/rows/search",
        &json!({"where": condition, "limit": 1, "at_least": newest}),
    );
    found.is_success().then(|| found.json()["total"].as_u64())?
}

#[test]
fn a_search_index_finds_every_row_after_kills_while_it_is_built_replaced_and_written() {
    let folder = DataFolder::of_suite();
    // Small buffers, so that flushes and commits of the index are under way when the server is killed.
    let launch = Launch::default().environment("TIDELINE__STORAGE__ROW_BUFFER_BYTES", "1MiB");
    let mut server = folder.start(&launch);
    let table = json!({"name": "orders", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}],
        "columns": [{"name": "text", "type": "string"}, {"name": "part", "type": "u64"}]
    }});
    server.client().post_json("/v1/tables", &table).expect_status(201);
    let mut acknowledged = Vec::new();
    let mut next = 0_u64;
    let mut write = |client: &Client, acknowledged: &mut Vec<u64>| {
        let first = next;
        next += 500;
        let row = |n| json!({"op": "put", "key": {"n": n}, "columns": {"text": "red wine", "part": n % 7}});
        let rows: Vec<Value> = (first..next).map(row).collect();
        let written = client.post_json("/v1/tables/orders/rows", &json!({"rows": rows}));
        if written.is_success() {
            acknowledged.extend(first..next);
        }
    };
    for _ in 0..20 {
        write(&server.client(), &mut acknowledged);
    }
    for round in 0..2 * KILLS {
        let columns = match round % 2 {
            0 => json!([{"column": "text", "as": "text"}, {"column": "part", "as": "number"}]),
            _ => json!([{"column": "part", "as": "number"}, {"column": "text", "as": "text"}]),
        };
        let mut index = json!({"name": "all", "columns": columns, "replace": true});
        // Half of the indexes have three shards, so that kills interrupt the commits of shards.
        if round / 2 % 2 == 1 {
            let routed = json!({"column": "n", "as": "number"});
            index["columns"].as_array_mut().expect("a list").push(routed);
            (index["shards"], index["routing"]) = (json!(3), json!(["n"]));
        }
        server
            .client()
            .post_json("/v1/tables/orders/search-indexes", &index)
            .expect_status(201);
        for _ in 0..4 {
            write(&server.client(), &mut acknowledged);
        }
        // Deletes one acknowledged row, which no search may find afterwards.
        let deleted = acknowledged.remove(round as usize);
        let delete = json!({"rows": [{"op": "delete", "key": {"n": deleted}}]});
        server
            .client()
            .post_json("/v1/tables/orders/rows", &delete)
            .expect_status(200);
        wait::pause(Duration::from_millis(60 * round));
        server.kill();
        server = folder.start(&launch);
    }
    let client = server.client();
    let total = |condition: &Value| {
        wait::until(PATIENCE, || found(&client, condition)).expect("the index is complete in time")
    };
    assert_eq!(
        total(&json!({"column": "text", "phrase": "red wine"})),
        acknowledged.len() as u64
    );
    for part in 0..7 {
        let expected = acknowledged.iter().filter(|n| **n % 7 == part).count() as u64;
        assert_eq!(
            total(&json!({"column": "part", "equals": part})),
            expected,
            "part {part}"
        );
    }
    assert!(server.terminate().status.success());
}

/// Each round writes rows of a month, drops the month before the last one, and kills the server while the flush and the
/// release of the dropped parts are under way.
#[test]
fn rows_of_dropped_parts_stay_gone_and_all_others_stay_after_kills() {
    let folder = DataFolder::of_suite();
    let launch = Launch::default().environment("TIDELINE__STORAGE__ROW_BUFFER_BYTES", "1MiB");
    let mut server = folder.start(&launch);
    let table = json!({"name": "orders", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "state", "type": "string"}],
        "parts": {"by": "at", "every": "month"},
    }});
    server.client().post_json("/v1/tables", &table).expect_status(201);
    let index = json!({"name": "by_state", "key": [{"name": "state"}]});
    server
        .client()
        .post_json("/v1/tables/orders/indexes", &index)
        .expect_status(201);
    let search = json!({"name": "all", "columns": [{"column": "state", "as": "keyword"}]});
    server
        .client()
        .post_json("/v1/tables/orders/search-indexes", &search)
        .expect_status(201);
    let mut kept = 0;
    for round in 0..2 * KILLS {
        let client = server.client();
        let month = 1 + round;
        let mut written = 0;
        for batch in 0..6 {
            let row = |n| {
                json!({"op": "put", "key": {"n": n, "at": format!("2025-{month:02}-07T00:00:00Z")},
                    "columns": {"state": "new"}})
            };
            let rows: Vec<Value> = (batch * 1_000..(batch + 1) * 1_000).map(row).collect();
            let body = json!({"rows": rows});
            client
                .post_json("/v1/tables/orders/rows", &body)
                .expect_status(200);
            written += 1_000;
        }
        if round > 0 {
            let drop = json!({"before": format!("2025-{month:02}-01T00:00:00Z")});
            let dropped = client
                .post_json("/v1/tables/orders/parts/drop", &drop)
                .expect_status(200);
            assert_eq!(dropped.json()["dropped"].as_array().map(Vec::len), Some(1));
        }
        kept = written;
        wait::pause(Duration::from_millis(40 * round));
        server.kill();
        server = folder.start(&launch);
        let client = server.client();
        assert_eq!(
            count(&client, "orders", &Value::Null),
            Some(kept),
            "round {round}"
        );
        let parts = client.get("/v1/tables/orders/parts").expect_status(200).json();
        assert_eq!(
            parts["parts"].as_array().map(Vec::len),
            Some(1),
            "round {round}: {parts}"
        );
    }
    let client = server.client();
    let state = json!({"column": "state", "equals": "new"});
    let total = wait::until(PATIENCE, || found(&client, &state).filter(|total| *total == kept));
    assert_eq!(total, Some(kept));
    let request = json!({"index": "by_state", "prefix": {"state": "new"}});
    let counted = wait::until(PATIENCE, || {
        let counted = client.post_json("/v1/tables/orders/rows/count", &request);
        counted.is_success().then(|| counted.json()["count"].as_u64())?
    });
    assert_eq!(counted, Some(kept));
    assert!(server.terminate().status.success());
    if folder.has_data() {
        let checked = Command::new(binary()).arg("check").arg(folder.path()).output();
        let checked = checked.expect("the check runs");
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}
