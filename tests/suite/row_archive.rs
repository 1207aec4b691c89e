//! Tests of moves of parts of wide tables between the tiers. The server is killed before and after every step of a move
//! to the cold tier, of archiving and of a restore, with indexes of each tier. The tests also cover damaged and missing
//! files, and third-party readers of the files.
//!
//! After each kill, every row is stored once, with its last values, and the same work succeeds when it is repeated. The
//! offline check and `tideline archive verify` find no damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_model::{Clock, SystemClock};
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch};

use crate::python_readers::{DUCKDB, PYARROW, PythonReader};

/// Steps of the moves of parts.
pub(super) const STEPS: [&str; 10] = [
    "wide_move.build",
    "wide_move.copy",
    "wide_move.sync",
    "wide_move.edit",
    "wide_move.detail",
    "wide_archive.files",
    "wide_archive.describe",
    "wide_archive.index",
    "wide_restore.rows",
    "wide_attach.edit",
];
/// Time limit for the end of a killed process.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Number of old rows, in two parts.
pub(super) const ROWS: u64 = 3_000;
/// Scripts of other tools that read the files.
const PYARROW_SCRIPT: &str = include_str!("row_archive.py");
const DUCKDB_SCRIPT: &str = include_str!("row_archive_duckdb.py");

/// Kind of work on parts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Work {
    Migrate,
    Archive,
    Restore,
}

impl Work {
    /// Returns the tier of the old parts after the work.
    fn tier(self) -> &'static str {
        match self {
            Self::Migrate | Self::Restore => "cold",
            Self::Archive => "archive",
        }
    }

    /// Changes the settings of the table so that the work can be started. A server that starts with due work begins it
    /// before it listens.
    pub(super) fn prepare(self, client: &Client) {
        let parts = match self {
            Self::Migrate => json!({"hot": "1d"}),
            Self::Archive | Self::Restore => json!({"archive": {"target": "default", "after": "30d"}}),
        };
        alter(client, &json!({"wide": {"parts": parts}}));
    }

    pub(super) fn start(self, client: &Client) -> bool {
        let headers = [("content-type", "application/json")];
        let (path, body) = match self {
            Self::Restore => (
                "/v1/tables/orders/parts/restore",
                json!({"from": "2024-01-01T00:00:00Z", "to": "2024-03-01T00:00:00Z", "for": "1d", "wait": true}),
            ),
            Self::Migrate => (
                "/v1/jobs",
                json!({"kind": "migrate", "table": "orders", "wait": true}),
            ),
            Self::Archive => (
                "/v1/jobs",
                json!({"kind": "archive", "table": "orders", "wait": true}),
            ),
        };
        let sent = client.send("POST", path, &headers, body.to_string().as_bytes());
        sent.is_ok_and(|response| response.is_success())
    }
}

/// Database with its archive.
pub(super) struct Lab {
    pub(super) folder: DataFolder,
    pub(super) files: PathBuf,
}

impl Lab {
    pub(super) fn new() -> Self {
        let folder = DataFolder::new();
        let files = folder.beside("archive");
        fs::create_dir_all(&files).expect("a folder");
        Self { folder, files }
    }

    /// Returns options under which moves start only on request: the scheduler searches for work once an hour.
    pub(super) fn launch(&self) -> Launch {
        let target = format!("file://{}", self.files.display());
        Launch::default()
            .environment("TIDELINE__ARCHIVE__TARGET", &target)
            .environment("TIDELINE__LIFECYCLE__INTERVAL", "1h")
    }

    pub(super) fn verify(&self) -> Value {
        let verified = Command::new(binary())
            .args(["archive", "verify", "--json"])
            .arg(format!("file://{}", self.files.display()))
            .output()
            .expect("the command runs");
        serde_json::from_slice(&verified.stdout).expect("a report")
    }

    pub(super) fn check(&self) -> Value {
        check_of(&self.folder)
    }
}

/// Returns the report of the offline check of a folder.
pub(super) fn check_of(folder: &DataFolder) -> Value {
    let checked = Command::new(binary())
        .args(["check", "--json"])
        .arg(folder.path())
        .output()
        .expect("the check runs");
    serde_json::from_slice(&checked.stdout).expect("a report")
}

/// Creates a table with old rows in two parts and one new row, and flushes all rows.
pub(super) fn create(client: &Client) {
    let table = json!({"name": "orders", "model": "wide", "wide": {
        "key": [{"name": "n", "type": "u64"}, {"name": "at", "type": "timestamp"}],
        "columns": [
            {"name": "state", "type": "string"}, {"name": "total", "type": "decimal"}, {"name": "rate", "type": "f64"},
            {"name": "paid", "type": "bool"}, {"name": "doc", "type": "json"}, {"name": "raw", "type": "binary"}
        ],
        "parts": {"by": "at", "every": "month"},
        "groups": [{"name": "documents", "columns": ["doc", "raw", "text"], "compression": "dense"}, {"name": "states", "columns": ["state"]}]
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
    // The planner of SQL prefers the first of several equal indexes.
    for tier in ["hot", "cold", "all"] {
        let index = json!({"name": tier, "key": [{"name": "state"}], "tier": tier});
        client
            .post_json("/v1/tables/orders/indexes", &index)
            .expect_status(201);
        let search = json!({"name": tier, "columns": [{"column": "state", "as": "keyword"}], "tier": tier});
        client
            .post_json("/v1/tables/orders/search-indexes?refresh=wait", &search)
            .expect_status(201);
    }
    let build = json!({"kind": "build_index", "wait": true});
    client.post_json("/v1/jobs", &build).expect_status(200);
    for first in (0..ROWS).step_by(500) {
        let rows: Vec<Value> = (first..first + 500).map(row).collect();
        client
            .post_json("/v1/tables/orders/rows", &json!({"rows": rows}))
            .expect_status(200);
    }
    let new = json!({"rows": [{"op": "put", "key": {"n": ROWS, "at": SystemClock.now().to_rfc3339()}, "columns": {"state": "new"}}]});
    client
        .post_json("/v1/tables/orders/rows", &new)
        .expect_status(200);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
}

pub(super) fn alter(client: &Client, change: &Value) {
    let headers = [("content-type", "application/json")];
    let body = change.to_string();
    let sent = client.send("PATCH", "/v1/tables/orders", &headers, body.as_bytes());
    sent.expect("an answer").expect_status(200);
}

/// Returns the write of an old row. Some rows have undeclared columns, and one row is large.
pub(super) fn row(n: u64) -> Value {
    let mut columns = json!({
        "state": (if n.is_multiple_of(3) { "open" } else { "done" }), "total": format!("{n}.05"), "rate": n as f64 / 4.0,
        "paid": n.is_multiple_of(2), "doc": {"n": [n]}, "raw": "AP8=",
    });
    if n % 100 == 7 {
        columns["color"] = json!("red");
    }
    if n == 1_234 {
        columns["text"] = json!("x".repeat(400 << 10));
    }
    let month = 1 + n % 2;
    json!({"op": "put", "key": {"n": n, "at": format!("2024-{month:02}-07T08:00:00Z")}, "columns": columns})
}

/// Checks all rows by scans in both directions, single reads, and the index.
pub(super) fn check_rows(client: &Client, context: &str) {
    let mut expected: Vec<Value> = (0..ROWS)
        .map(|n| {
            let row = row(n);
            json!({"key": row["key"], "columns": row["columns"]})
        })
        .collect();
    for direction in ["forward", "backward"] {
        let mut found = Vec::new();
        let mut token = Value::Null;
        loop {
            let mut scan = json!({"allow_scan": true, "direction": direction, "limit": 700,
                "where": {"column": "at", "lt": "2025-01-01T00:00:00Z"}});
            if !token.is_null() {
                scan["page_token"] = token;
            }
            let page = client.post_json("/v1/tables/orders/rows/scan", &scan);
            let page = page.expect_status(200).json();
            found.extend(page["rows"].as_array().expect("a list").clone());
            token = page["next"].clone();
            if token.is_null() {
                break;
            }
        }
        assert_eq!(found.len(), expected.len(), "{context}, {direction}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found["key"], expected["key"], "{context}, {direction}");
            assert_eq!(found["columns"], expected["columns"], "{context}, {direction}");
        }
        expected.reverse();
    }
    for n in [0, 7, 1_234, 2_999] {
        let expected = row(n);
        let get = json!({"keys": [expected["key"]]});
        let got = client.post_json("/v1/tables/orders/rows/get", &get);
        let got = got.expect_status(200).json();
        assert_eq!(
            got["rows"][0]["columns"], expected["columns"],
            "{context}: row {n}"
        );
    }
    check_tiers(client, context);
}

/// Checks that the indexes find the expected number of open rows in each tier, and that SQL chooses the expected index.
fn check_tiers(client: &Client, context: &str) {
    loop {
        let parts = all_tiers(client);
        let found = found_by_tier(client);
        // A restarted server may repeat the work in the meantime.
        if all_tiers(client) == parts {
            assert_eq!(found, expected_by_tier(&parts), "{context}: {parts:?}");
            return;
        }
    }
}

/// Returns three results: the number of rows that each index finds in each tier, the outcome of a read of all tiers by
/// the index of the hot tier, and the index that SQL chooses.
fn found_by_tier(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    for tier in ["all", "hot", "cold"] {
        for index in ["all", tier] {
            let count = json!({"index": index, "tier": tier, "prefix": {"state": "open"}});
            let counted = client.post_json("/v1/tables/orders/rows/count", &count);
            let counted = counted.expect_status(200).json();
            let facets =
                json!({"index": index, "tier": tier, "where": {"column": "state", "equals": "open"}});
            let searched = client.post_json("/v1/tables/orders/rows/facets", &facets);
            let searched = searched.expect_status(200).json();
            let (count, rows) = (&counted["count"], &searched["rows"]);
            found.push(format!("{tier} by {index}: {count} counted, {rows} searched"));
        }
    }
    let count = json!({"index": "hot", "prefix": {"state": "open"}});
    let counted = client.post_json("/v1/tables/orders/rows/count", &count);
    let is_refused = counted.status == 400 && counted.text().contains("covers only the tier hot");
    assert!(is_refused || counted.is_success(), "{}", counted.text());
    let statement = json!({"statement": "EXPLAIN SELECT n FROM orders WHERE state = 'open'"});
    let explained = client.post_json("/v1/sql", &statement).expect_status(200).json();
    let chosen = explained["rows"][0]["index"].as_str().unwrap_or_default();
    found.push(format!("refused: {is_refused}, SQL chooses {chosen}"));
    found
}

fn expected_by_tier(parts: &[String]) -> Vec<String> {
    let mut expected = Vec::new();
    for tier in ["all", "hot", "cold"] {
        let is_in = |n: &u64| match tier {
            "all" => true,
            tier => (parts[(n % 2) as usize] == "hot") == (tier == "hot"),
        };
        let open = (0..ROWS).filter(|n| n.is_multiple_of(3) && is_in(n)).count();
        for index in ["all", tier] {
            expected.push(format!("{tier} by {index}: {open} counted, {open} searched"));
        }
    }
    let hot = parts.iter().filter(|tier| *tier == "hot").count();
    let chosen = match hot {
        0 => "cold",
        hot if hot == parts.len() => "hot",
        _ => "all",
    };
    expected.push(format!("refused: {}, SQL chooses {chosen}", hot < parts.len()));
    expected
}

/// Returns the tiers of the old parts.
pub(super) fn tiers(client: &Client) -> Vec<String> {
    all_tiers(client).into_iter().take(2).collect()
}

/// Returns the tiers of all parts. Rows that were never flushed are in the hot tier.
fn all_tiers(client: &Client) -> Vec<String> {
    let parts = client.get("/v1/tables/orders/parts").expect_status(200).json();
    let parts = parts["parts"].as_array().expect("a list").iter();
    parts
        .map(|part| part["tier"].as_str().unwrap_or("hot").to_owned())
        .collect()
}

fn kill_at(step: &str, side: &str, work: Work) {
    let point = format!("{step}.{side}");
    let context = format!("{point} of {}", work.tier());
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    create(&client);
    if work == Work::Restore {
        work.prepare(&client);
        assert!(Work::Archive.start(&client), "{context}");
    }
    assert!(server.terminate().status.success());

    let server = lab
        .folder
        .start(&lab.launch().environment("TIDELINE_KILL_AT", &point));
    work.prepare(&server.client());
    assert!(!work.start(&server.client()), "{context}: never reached");
    server.expect_killed(&context);

    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    check_rows(&client, &format!("{context}, after the kill"));
    // The scheduler may already have repeated the work.
    let _repeated = work.start(&client);
    let is_there = |client: &Client| tiers(client).iter().all(|tier| tier == work.tier());
    let ended = tideline_tests::wait::until(PATIENCE, || {
        let is_done = is_there(&client) || work.start(&client) && is_there(&client);
        is_done.then_some(())
    });
    assert!(ended.is_some(), "{context}: {:?}", tiers(&client));
    check_rows(&client, &format!("{context}, repeated"));
    assert!(server.terminate().status.success());
    let report = lab.check();
    assert_eq!(report["is_sound"], true, "{context}: {report}");
    if work != Work::Migrate {
        let verified = lab.verify();
        assert_eq!(verified["is_sound"], true, "{context}: {verified}");
    }
}

#[test]
fn every_row_is_there_whatever_step_of_a_move_is_cut() {
    for step in &STEPS[..5] {
        for side in ["before", "after"] {
            kill_at(step, side, Work::Migrate);
        }
    }
    // The first edit moves a part of an index; the second edit moves the part of the table.
    for side in ["before:2", "after:2"] {
        kill_at("wide_move.edit", side, Work::Migrate);
    }
}

#[test]
fn every_row_is_there_whatever_step_of_an_archiving_is_cut() {
    for step in &STEPS[3..8] {
        for side in ["before", "after"] {
            kill_at(step, side, Work::Archive);
        }
    }
}

#[test]
fn every_row_is_there_whatever_step_of_a_restoring_is_cut() {
    for (step, side) in [
        ("wide_restore.rows", "before"),
        ("wide_restore.rows", "after"),
        ("wide_move.edit", "before"),
        ("wide_move.edit", "after"),
    ] {
        kill_at(step, side, Work::Restore);
    }
}

/// Returns all files below a folder whose names end with an extension.
pub(super) fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Checks that the state of the archive, the list of the parts, the metrics and the command line report the same as a
/// verification of the files.
fn check_status(client: &Client, verified: &Value) {
    let overview = client.get("/v1/archive").expect_status(200).json();
    let table = &overview["wide_tables"][0];
    assert_eq!(
        (
            &table["table"],
            &table["parts"],
            &table["rows"],
            &table["files"],
            &table["file_bytes"]
        ),
        (
            &json!("orders"),
            &json!(2),
            &json!(ROWS),
            &verified["files"],
            &verified["bytes"]
        ),
        "{overview}"
    );
    assert_eq!(table["targets"][0]["name"], "default", "{overview}");
    assert_eq!(table["targets"][0]["rows"], ROWS, "{overview}");
    assert_eq!(
        (
            &table["oldest"],
            &table["newest"],
            &table["waiting"],
            &table["failures"]
        ),
        (
            &json!("2024-01-01T00:00:00Z"),
            &json!("2024-03-01T00:00:00Z"),
            &json!(0),
            &json!(0)
        ),
        "{overview}"
    );
    assert_eq!(overview["targets"][0]["tables"], json!(["orders"]), "{overview}");
    let parts = client.get("/v1/tables/orders/parts").expect_status(200).json();
    let sum = |name: &str| -> u64 {
        let parts = parts["parts"].as_array().into_iter().flatten();
        parts.filter_map(|part| part[name].as_u64()).sum()
    };
    assert_eq!(json!(sum("rows")), table["rows"], "{parts}");
    assert_eq!(json!(sum("bytes")), table["file_bytes"], "{parts}");
    let metrics = client.get("/metrics").text();
    for (name, value) in [
        ("row_archived_parts", &table["parts"]),
        ("row_archived_rows", &table["rows"]),
        ("row_archived_files", &table["files"]),
        ("row_archived_bytes", &table["file_bytes"]),
        ("row_archive_waiting_parts", &json!(0)),
        ("row_archive_failures_in_a_row", &json!(0)),
    ] {
        let line = format!("tideline_{name}{{table=\"orders\"}} {value}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let server = format!("http://{}", client.address());
    let status = Command::new(binary())
        .args(["archive", "status", "--server", &server])
        .output();
    let status = String::from_utf8_lossy(&status.expect("the command runs").stdout).into_owned();
    assert!(
        status.contains("wide table") && status.contains("3,000"),
        "{status}"
    );
}

#[test]
fn archived_rows_are_read_and_restored_and_damage_is_found() {
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    create(&client);
    Work::Archive.prepare(&client);
    let preview = client.get("/v1/jobs?state=planned").expect_status(200).json();
    assert!(
        preview["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()),
        "{preview}"
    );
    assert!(Work::Archive.start(&client));
    assert_eq!(tiers(&client), ["archive", "archive"]);
    check_rows(&client, "archived");
    let verified = lab.verify();
    assert_eq!(verified["is_sound"], true, "{verified}");
    assert_eq!(verified["parts"], 2, "{verified}");
    check_status(&client, &verified);

    // Rows in the archive can be neither written nor deleted.
    let refused = client.post_json("/v1/tables/orders/rows", &json!({"rows": [row(7)]}));
    assert!(refused.text().contains("in the archive"), "{}", refused.text());
    let delete = json!({"prefix": {"n": 7}});
    let refused = client.post_json("/v1/tables/orders/rows/delete", &delete);
    assert!(
        refused.text().contains("restore them first"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.json()["retryable"], false);

    // A flipped bit is found by the read and by the verification.
    let files = files_below(&lab.files, "parquet");
    assert!(!files.is_empty());
    let sound = fs::read(&files[0]).expect("it is read");
    let mut flipped = sound.clone();
    flipped[sound.len() / 3] ^= 4;
    fs::write(&files[0], &flipped).expect("it is written");
    assert!(server.terminate().status.success());
    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    let scan = json!({"allow_scan": true, "limit": 10_000});
    let failed = client.post_json("/v1/tables/orders/rows/scan", &scan);
    assert_eq!(failed.status, 500, "{}", failed.text());
    assert!(failed.text().contains("put the file back"), "{}", failed.text());
    assert_eq!(failed.json()["retryable"], false);
    assert_eq!(lab.verify()["is_sound"], false);
    fs::write(&files[0], &sound).expect("it is written");
    check_rows(&client, "put back");

    // Restored rows can be written, and are archived again after their time.
    assert!(Work::Restore.start(&client));
    assert_eq!(tiers(&client), ["cold", "cold"]);
    check_rows(&client, "restored");
    let update = json!({"rows": [{"op": "update", "key": row(8)["key"], "columns": {"state": "open"}}]});
    client
        .post_json("/v1/tables/orders/rows", &update)
        .expect_status(200);
    let parts = client.get("/v1/tables/orders/parts").expect_status(200).json();
    assert_eq!(parts["parts"][0]["writable"], true, "{parts}");
    assert!(parts["parts"][0]["held_until"].is_string(), "{parts}");
    let none = json!({"from": "2030-01-01T00:00:00Z", "to": "2031-01-01T00:00:00Z", "for": "1d"});
    let none = client.post_json("/v1/tables/orders/parts/restore", &none);
    assert!(none.expect_status(200).json()["job"].is_null());
    assert!(server.terminate().status.success());
}

#[test]
fn other_tools_read_the_files_of_archived_parts() {
    let readers = [(PYARROW, PYARROW_SCRIPT), (DUCKDB, DUCKDB_SCRIPT)];
    let readers = readers.map(|(package, script)| Some((PythonReader::install(package)?, script)));
    if readers.iter().all(Option::is_none) {
        return;
    }
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    create(&server.client());
    Work::Archive.prepare(&server.client());
    assert!(Work::Archive.start(&server.client()));
    let files = lab.files.join("orders");
    for (reader, script) in readers.into_iter().flatten() {
        reader.run(&lab.folder, script, &files.to_string_lossy());
    }
    assert!(server.terminate().status.success());
}
