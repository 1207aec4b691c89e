//! Kills before and after every step of a flush of rows. Afterwards the table has exactly the acknowledged rows,
//! each in its last state, and the offline check finds no damage.
//!
//! Every case runs without an index and with column groups. Every case except those of `wide.delete` also runs with a
//! secondary index, whose entries must match the rows. The step that stores a dictionary of a compressed column has
//! separate cases.
//!
//! Each case first flushes rows of all kinds: packed into blocks, single, and in fragments. Then rows grow, shrink and
//! disappear, single rows are packed, and ranges are deleted; the flush of these changes is killed. The binary needs
//! the fail points of a build with debug assertions; see `tests/README.md`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch};

/// Steps of a flush of rows, in their order.
pub(super) const STEPS: [&str; 9] = [
    "wide.delete",
    "wide.fragments",
    "wide.blocks",
    "wide.write",
    "wide.moved",
    "wide.stale",
    "seal.sync",
    "seal.edit",
    "seal.forget",
];
/// Step of a flush that stores the dictionary of a column with the compression `zstd`.
pub(super) const DICTIONARY_STEP: &str = "wide.dictionary";
/// Length of a text that is still stored in its row; a row with eight columns of this length is stored in fragments.
const LARGE: usize = 60 << 10;

/// Columns of each row, by row number.
type Rows = BTreeMap<u64, BTreeMap<&'static str, String>>;

fn create(client: &Client, has_index: bool, groups: &Value) {
    let table = json!({"name": "events", "model": "wide", "wide": {
        "key": [{"name": "part", "type": "string"}, {"name": "n", "type": "u64"}],
        "columns": [{"name": "a", "type": "string"}, {"name": "s", "type": "string"}],
        "groups": groups,
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
    if has_index {
        let index = json!({"name": "by_s", "key": [{"name": "s"}]});
        client
            .post_json("/v1/tables/events/indexes", &index)
            .expect_status(201);
        let build = json!({"kind": "build_index", "wait": true});
        client.post_json("/v1/jobs", &build).expect_status(200);
    }
}

fn write(client: &Client, rows: &mut Rows, op: &str, n: u64, columns: &[(&'static str, String)]) {
    let row = rows.entry(n).or_default();
    if op == "put" {
        row.clear();
    }
    row.extend(columns.iter().cloned());
    let sort = format!("s{}", (n + columns.len() as u64) % 3);
    row.insert("s", sort.clone());
    if op == "delete" {
        rows.remove(&n);
    }
    let mut write = json!({"op": op, "key": {"part": "p", "n": n}});
    if op != "delete" {
        write["columns"] = columns
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!(text)))
            .chain([("s".to_owned(), json!(sort))])
            .collect();
    }
    client
        .post_json("/v1/tables/events/rows", &json!({"rows": [write]}))
        .expect_status(200);
}

/// Writes several small rows in one request.
fn write_many(client: &Client, rows: &mut Rows, numbers: std::ops::Range<u64>, text: &str) {
    let writes = numbers.map(|n| {
        let columns = BTreeMap::from([("a", format!("{text} {n}")), ("s", format!("s{}", n % 3))]);
        let write = json!({"op": "put", "key": {"part": "p", "n": n}, "columns": columns});
        rows.insert(n, columns);
        write
    });
    let writes: Vec<Value> = writes.collect();
    client
        .post_json("/v1/tables/events/rows", &json!({"rows": writes}))
        .expect_status(200);
}

fn delete_range(client: &Client, rows: &mut Rows, from: u64, to: u64) {
    rows.retain(|n, _| !(from..to).contains(n));
    let body = json!({"prefix": {"part": "p"}, "range": {"column": "n", "from": from, "to": to}});
    client
        .post_json("/v1/tables/events/rows/delete", &body)
        .expect_status(200);
}

/// Checks that the table has exactly these rows.
fn check(client: &Client, rows: &Rows, context: &str) {
    let scan = json!({"prefix": {"part": "p"}, "limit": 10_000});
    let page = client.post_json("/v1/tables/events/rows/scan", &scan);
    let page = page.expect_status(200).json();
    assert!(page["next"].is_null(), "{context}: one page");
    let found: Vec<Value> = page["rows"].as_array().expect("a list").clone();
    let numbers: Vec<u64> = found.iter().filter_map(|row| row["key"]["n"].as_u64()).collect();
    assert_eq!(numbers, rows.keys().copied().collect::<Vec<_>>(), "{context}");
    for (row, (n, expected)) in found.iter().zip(rows) {
        let columns = row["columns"].as_object().expect("an object");
        assert_eq!(columns.len(), expected.len(), "{context}: columns of row {n}");
        for (name, text) in expected {
            assert!(
                columns[*name] == json!(text),
                "{context}: column {name} of row {n}"
            );
        }
    }
}

/// Checks that the index has exactly the entries of these rows, in the order of the index.
fn check_index(client: &Client, rows: &Rows, context: &str) {
    let scan = json!({"index": "by_s", "allow_scan": true, "columns": ["s"], "limit": 10_000});
    let page = client.post_json("/v1/tables/events/rows/scan", &scan);
    let page = page.expect_status(200).json();
    let found = page["rows"].as_array().expect("a list").iter().map(|row| {
        let sort = row["columns"]["s"].as_str().unwrap_or_default().to_owned();
        (sort, row["key"]["n"].as_u64().unwrap_or_default())
    });
    let mut expected: Vec<_> = rows.iter().map(|(n, row)| (row["s"].clone(), *n)).collect();
    expected.sort();
    assert_eq!(found.collect::<Vec<_>>(), expected, "{context}: index");
}

fn flush(client: &Client) -> bool {
    let headers = [("content-type", "application/json")];
    let body = json!({"kind": "seal"}).to_string();
    let sent = client.send("POST", "/v1/jobs", &headers, body.as_bytes());
    sent.is_ok_and(|response| response.is_success())
}

/// Returns columns that make up half of a row that is stored in fragments.
fn large(names: [&'static str; 4], letter: &str) -> Vec<(&'static str, String)> {
    names.map(|name| (name, letter.repeat(LARGE))).to_vec()
}

/// Writes and flushes the rows that are stored before the fault.
fn prepare(client: &Client, rows: &mut Rows) {
    write_many(client, rows, 1_000..2_000, "packed");
    for n in 0..40 {
        write(
            client,
            rows,
            "put",
            n,
            &[("a", format!("first {n}")), ("b", "x".into())],
        );
    }
    for n in [50, 51, 52, 53] {
        let columns = [
            large(["a", "a1", "a2", "a3"], "a"),
            large(["b", "b1", "b2", "b3"], "b"),
        ];
        write(client, rows, "put", n, &columns.concat());
    }
    assert!(flush(client), "the first rows");
    // These rows are too few to be packed.
    write_many(client, rows, 1_500..1_505, "single");
    assert!(flush(client), "the single rows");
}

/// Writes the changes whose flush is killed.
fn change(client: &Client, rows: &mut Rows) {
    delete_range(client, rows, 10, 20);
    delete_range(client, rows, 53, 54);
    write(client, rows, "put", 15, &[("c", "again".into())]);
    write(client, rows, "update", 3, &[("c", "more".into())]);
    write(client, rows, "delete", 4, &[]);
    // These neighbors are enough to pack the single rows among them.
    write_many(client, rows, 1_502..1_900, "packed again");
    delete_range(client, rows, 1_950, 1_960);
    // Large rows change, become small, and disappear; a small row becomes large.
    let changed = [large(["b", "b1", "b2", "b3"], "z"), vec![("d", "new".into())]];
    write(client, rows, "update", 50, &changed.concat());
    write(client, rows, "put", 51, &[("a", "small".into())]);
    write(client, rows, "delete", 52, &[]);
    let grown = [
        large(["c", "c1", "c2", "c3"], "l"),
        large(["d", "d1", "d2", "d3"], "m"),
    ];
    write(client, rows, "update", 5, &grown.concat());
}

#[test]
fn every_row_is_there_whatever_step_of_a_flush_is_cut() {
    kill_at_every_step(false, &json!([]));
}

#[test]
fn every_column_of_a_group_is_there_whatever_step_of_a_flush_is_cut() {
    kill_at_every_step(false, &json!([{"name": "large", "columns": ["a"]}]));
    kill_at_every_step(
        false,
        &json!([{"name": "states", "columns": ["s"], "compression": "dense"}]),
    );
}

#[test]
fn every_index_entry_is_there_whatever_step_of_a_flush_is_cut() {
    kill_at_every_step(true, &json!([]));
}

fn kill_at_every_step(has_index: bool, groups: &Value) {
    // In a table with an index, rows are deleted one by one, so the step `wide.delete` does not occur.
    for step in STEPS
        .into_iter()
        .filter(|step| !has_index || *step != "wide.delete")
    {
        for side in ["before", "after"] {
            let point = format!("{step}.{side}");
            let check = |client: &Client, rows: &Rows, context: &str| {
                check(client, rows, context);
                if has_index {
                    check_index(client, rows, context);
                }
            };
            let folder = DataFolder::new();
            let server = folder.start(&Launch::default());
            let (client, mut rows) = (server.client(), Rows::new());
            create(&client, has_index, groups);
            prepare(&client, &mut rows);
            assert!(server.terminate().status.success());

            let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", &point));
            let client = server.client();
            change(&client, &mut rows);
            check(&client, &rows, &format!("{point}, in the buffer"));
            assert!(!flush(&client), "{point}: never reached");
            server.expect_killed(&point);

            let server = folder.start(&Launch::default());
            let client = server.client();
            check(&client, &rows, &format!("{point}, after the kill"));
            write(&client, &mut rows, "update", 50, &[("e", "last".into())]);
            assert!(flush(&client), "{point}");
            check(&client, &rows, &format!("{point}, flushed"));
            let metrics = client.get("/metrics").expect_status(200).text();
            assert!(metrics.contains("tideline_row_flush_lag_seconds"), "{metrics}");
            assert!(server.terminate().status.success());

            check_offline(&folder, &rows, &point);
        }
    }
}

/// Checks that the offline check finds these rows and no damage.
fn check_offline(folder: &DataFolder, rows: &Rows, point: &str) {
    let checked = Command::new(binary())
        .args(["check", "--json"])
        .arg(folder.path())
        .output()
        .expect("the check runs");
    let report: Value = serde_json::from_slice(&checked.stdout).expect("a report");
    assert_eq!(report["is_sound"], true, "{point}: {report}");
    assert_eq!(report["counts"]["rows"], rows.len(), "{point}");
}

#[test]
fn every_text_is_there_on_both_sides_of_storing_a_dictionary() {
    for side in ["before", "after"] {
        let point = format!("{DICTIONARY_STEP}.{side}");
        let folder = DataFolder::new();
        let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", &point));
        let (client, mut rows) = (server.client(), Rows::new());
        let table = json!({"name": "events", "model": "wide", "wide": {
            "key": [{"name": "part", "type": "string"}, {"name": "n", "type": "u64"}],
            "columns": [{"name": "a", "type": "string", "compression": "zstd"}, {"name": "s", "type": "string"}],
        }});
        client.post_json("/v1/tables", &table).expect_status(201);
        // The samples of a dictionary are 512 KiB.
        let text = |n: u64| format!("{n} of {} ", n * 7_919).repeat(64);
        for n in 0..16 {
            write_many(&client, &mut rows, n * 100..n * 100 + 100, &text(n));
        }
        assert!(!flush(&client), "{point}: never reached");
        server.expect_killed(&point);

        let server = folder.start(&Launch::default());
        let client = server.client();
        check(&client, &rows, &format!("{point}, after the kill"));
        assert!(flush(&client), "{point}");
        check(&client, &rows, &format!("{point}, flushed"));
        assert!(server.terminate().status.success());
        check_offline(&folder, &rows, &point);
    }
}
