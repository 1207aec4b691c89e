//! Archives of sparse data, settings that change after points were archived, and archives that make no
//! progress.
//!
//! The archive is a folder. It is checked by queries, by `tideline archive verify`, and by attaching it to an
//! empty server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tideline_model::{Clock, SystemClock};
use tideline_tests::reading::{self, Row};
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, wait};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Time limit until the effect of background work is visible.
const PATIENCE: Duration = Duration::from_secs(60);

fn launch(files: &Path) -> Launch {
    let target = format!("file://{}", files.display());
    Launch::default().environment("TIDELINE__ARCHIVE__TARGET", &target)
}

/// Returns options under which moves start only on request: the scheduler searches for work once an hour.
fn by_hand(files: &Path) -> Launch {
    launch(files).environment("TIDELINE__LIFECYCLE__INTERVAL", "1h")
}

fn job(client: &Client, kind: &str, table: &str) -> tideline_tests::client::Response {
    let body = match kind {
        "seal" => json!({"kind": kind}),
        _ => json!({"kind": kind, "table": table, "wait": true}),
    };
    client.post_json("/v1/jobs", &body)
}

fn archive(client: &Client, table: &str) {
    for kind in ["seal", "migrate", "archive"] {
        let answer = job(client, kind, table);
        assert!(answer.is_success(), "{table}, {kind}: {}", answer.text());
    }
}

fn create(client: &Client, table: &str) {
    let policy = json!({"hot_ttl": "5d", "archive": {"target": "default", "after": "20d"}});
    let table = json!({"name": table, "policy": policy});
    client.post_json("/v1/tables", &table).expect_status(201);
}

fn write(client: &Client, table: &str, lines: &str) {
    let path = format!("/v1/tables/{table}/points?precision=ns");
    client.post_lines(&path, lines).expect_status(200);
}

/// Returns lines of one timeline at even intervals; the last point is at midnight UTC, `last_days_ago` days ago.
fn every(step: i64, count: i64, last_days_ago: i64) -> String {
    let last = (SystemClock.now().nanos() / DAY - last_days_ago) * DAY;
    let line = |at: i64| format!("level,port=a value={at}.25 {}\n", last - (count - 1 - at) * step);
    (0..count).map(line).collect()
}

/// Returns all rows of a table or of one tier, sorted.
fn rows(client: &Client, table: &str, tier: Option<&str>) -> Vec<Row> {
    let query = tier.map_or_else(|| json!({}), |tier| json!({"tier": tier}));
    let mut rows = reading::rows(client, table, query).expect("a response");
    rows.sort_by(|a, b| (&a.measurement, &a.tags, a.time).cmp(&(&b.measurement, &b.tags, b.time)));
    rows
}

/// Attaches everything in the target and waits for the end; returns the last line of the response.
fn attach(client: &Client) -> Json {
    let answer = client.post_json("/v1/archive/attach", &json!({"target": "default"}));
    let text = answer.expect_status(200).text();
    let last = serde_json::from_str(text.lines().last().expect("at least one line"));
    let last: Json = last.expect("a line is JSON");
    assert_eq!(
        (&last["done"], &last["problem_count"]),
        (&json!(true), &json!(0)),
        "{last}"
    );
    last
}

fn verify(files: &Path) {
    let target = format!("file://{}", files.display());
    let output = Command::new(binary())
        .args(["archive", "verify", &target])
        .output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "{output:?}");
}

/// Returns the relative paths of all objects below a folder.
fn objects(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("the folder is there") {
            let path = entry.expect("the folder can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false => names.push(path.strip_prefix(folder).expect("below").display().to_string()),
            }
        }
    }
    names
}

#[test]
fn ten_years_of_any_sparseness_and_a_day_of_many_measurements_are_archived() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    let server = folder.start(&by_hand(&files));
    let client = server.client();
    let day = (SystemClock.now().nanos() / DAY - 30) * DAY;
    let measurements = (0..1_000).map(|number| {
        let points = (0..3).map(move |hour| (number, day + hour * 3_600 * SECOND));
        points
            .map(|(number, at)| format!("measurement_{number:0>100},host=a value={number} {at}\n"))
            .collect::<String>()
    });
    let lines = BTreeMap::from([
        ("daily", every(DAY, 3_653, 25)),
        ("issue", every(DAY, 1_500, 0)),
        ("monthly", every(30 * DAY, 122, 25)),
        ("one_day", measurements.collect()),
        ("yearly", every(365 * DAY, 10, 25)),
    ]);
    let mut expected = BTreeMap::new();
    for (table, lines) in &lines {
        create(&client, table);
        write(&client, table, lines);
        expected.insert(*table, rows(&client, table, None));
        assert_eq!(expected[table].len(), lines.lines().count(), "{table}");
        archive(&client, table);
        assert_eq!(rows(&client, table, None), expected[table], "{table}");
        let left = match *table {
            "issue" => 1_500 - rows(&client, table, Some("archive")).len(),
            _ => expected[table].len() - rows(&client, table, Some("archive")).len(),
        };
        // Points younger than `after`, and older points in the same window as a younger point, are not archived.
        assert!(left == 0 || (*table == "issue" && left < 512), "{table}: {left}");
    }
    let count = objects(&files).len();
    // Each window has three objects, and sparse data has few windows; one file per day would give over 5,000.
    assert!(count < 200, "{count} objects: {:#?}", objects(&files));
    verify(&files);
    assert!(server.terminate().status.success());

    let server = folder.start(&by_hand(&files));
    let archived: BTreeMap<&str, Vec<Row>> = lines
        .keys()
        .map(|table| {
            assert_eq!(
                rows(&server.client(), table, None),
                expected[table],
                "{table}, started again"
            );
            (*table, rows(&server.client(), table, Some("archive")))
        })
        .collect();
    assert!(server.terminate().status.success());

    let empty = DataFolder::new();
    let server = empty.start(&by_hand(&files));
    let client = server.client();
    attach(&client);
    for (table, archived) in &archived {
        assert_eq!(rows(&client, table, None), *archived, "{table}, attached");
        let restore = json!({"range": {}, "for": "7d", "wait": true});
        let path = format!("/v1/tables/{table}/archive/restore");
        client.post_json(&path, &restore).expect_status(200);
        assert_eq!(rows(&client, table, None), *archived, "{table}, restored");
        assert_eq!(rows(&client, table, Some("cold")), *archived, "{table}, restored");
    }
}

#[test]
fn points_that_retention_hides_stay_hidden_where_the_archive_is_attached() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    let server = folder.start(&launch(&files).environment("TIDELINE__LIFECYCLE__INTERVAL", "200ms"));
    let client = server.client();
    create(&client, "metrics");
    write(&client, "metrics", &every(DAY / 2, 600, 25));
    archive(&client, "metrics");
    assert_eq!(rows(&client, "metrics", None).len(), 600);
    let before = settings(&files);
    let change = json!({"policy": {"hot_ttl": "5d", "retention": "100d",
        "archive": {"target": "default", "after": "20d"}}});
    patch(&client, "metrics", &change);
    let visible = rows(&client, "metrics", None);
    assert!((100..200).contains(&visible.len()), "{}", visible.len());
    // The settings in the archive are updated in the background.
    let written = wait::until(PATIENCE, || {
        Some(settings(&files)).filter(|now| *now != before && now.contains("retention\": 86400"))
    });
    assert!(written.is_some(), "{:?}", objects(&files));
    assert!(server.terminate().status.success());

    let empty = DataFolder::new();
    let server = empty.start(&by_hand(&files));
    let client = server.client();
    attach(&client);
    assert_eq!(rows(&client, "metrics", None), visible);
    let table = client.get("/v1/tables/metrics").json();
    assert_eq!(table["policy"]["retention"], "100d", "{table}");
}

/// Returns the settings that are stored with the files of the table `metrics`; empty if they are missing.
fn settings(files: &Path) -> String {
    let folder = files.join("metrics/_settings");
    let entries = fs::read_dir(folder).into_iter().flatten();
    let read = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path()).ok();
    entries.filter_map(read).collect()
}

#[test]
fn an_archive_of_rows_that_makes_no_progress_is_reported() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    let server = folder.start(&by_hand(&files));
    let client = server.client();
    let table = json!({"name": "readings", "model": "wide", "wide": {
        "key": [{"name": "meter", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "parts": {"by": "at", "every": "month"}}});
    client.post_json("/v1/tables", &table).expect_status(201);
    let row = json!({"op": "put", "key": {"meter": "m", "at": "2024-01-07T00:00:00Z"}});
    let written = client.post_json("/v1/tables/readings/rows", &json!({"rows": [row]}));
    written.expect_status(200);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    // The path of the target is a file, so that archiving fails.
    let _was_made = fs::remove_dir_all(&files);
    fs::write(&files, "not a folder").expect("written");
    let archived = json!({"wide": {"parts": {"archive": {"target": "default", "after": "30d"}}}});
    patch(&client, "readings", &archived);
    let reasons = || client.get("/ready").expect_status(200).json()["reasons"].clone();
    for failed in 1..=3 {
        let answer = job(&client, "archive", "readings");
        assert!(!answer.is_success(), "{}", answer.text());
        assert_eq!(
            reasons().as_array().map_or(0, Vec::len),
            usize::from(failed == 3),
            "{failed}: {}",
            reasons()
        );
    }
    let said = reasons().to_string();
    assert!(
        said.contains("archive of table readings: no progress: its oldest part")
            && said.contains("3 moves in a row"),
        "{said}"
    );
    let overview = client.get("/v1/archive").json();
    let table = &overview["wide_tables"][0];
    assert_eq!(
        (&table["table"], &table["failures"], &table["waiting"]),
        (&json!("readings"), &json!(3), &json!(1)),
        "{overview}"
    );
    assert!(
        table["tried_again"].is_string() && table["last_job"]["error"].is_string(),
        "{table}"
    );
    let of_target = &overview["targets"][0];
    assert_eq!(of_target["failures"], 3, "{overview}");
    assert!(of_target["error"].is_string(), "{overview}");
    let metrics = client.get("/metrics").text();
    for line in [
        "tideline_archive_stalled_tables 1",
        "tideline_archive_failures_in_a_row 3",
        "tideline_row_archive_failures_in_a_row{table=\"readings\"} 3",
        "tideline_row_archive_waiting_parts{table=\"readings\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }

    fs::remove_file(&files).expect("removed");
    assert!(job(&client, "archive", "readings").is_success());
    assert_eq!(reasons(), json!([]));
    let parts = client.get("/v1/tables/readings/parts").json();
    assert_eq!(
        (&parts["parts"][0]["tier"], &parts["parts"][0]["rows"]),
        (&json!("archive"), &json!(1))
    );
}

fn patch(client: &Client, table: &str, change: &Json) {
    let headers = [("content-type", "application/json")];
    let body = change.to_string();
    let sent = client.send("PATCH", &format!("/v1/tables/{table}"), &headers, body.as_bytes());
    sent.expect("an answer").expect_status(200);
}

#[test]
fn an_archive_that_makes_no_progress_is_reported() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    let server = folder.start(&by_hand(&files));
    let client = server.client();
    create(&client, "metrics");
    // All points are in one window, so there is one move.
    let start = (SystemClock.now().nanos() / DAY - 30) * DAY;
    let line = |at: i64| format!("level,port=a value={at} {}\n", start + at * SECOND);
    write(&client, "metrics", &(0..100).map(line).collect::<String>());
    for kind in ["seal", "migrate"] {
        assert!(job(&client, kind, "metrics").is_success());
    }
    // The path of the target is a file, so that archiving fails.
    let _was_made = fs::remove_dir_all(&files);
    fs::write(&files, "not a folder").expect("written");
    for failed in 1..=3 {
        let answer = job(&client, "archive", "metrics");
        assert!(!answer.is_success(), "{}", answer.text());
        let reasons = client.get("/ready").expect_status(200).json()["reasons"].clone();
        assert_eq!(
            reasons.as_array().map_or(0, Vec::len),
            usize::from(failed == 3),
            "{failed}: {reasons}"
        );
    }
    let reasons = client.get("/ready").json()["reasons"].to_string();
    assert!(
        reasons.contains("archive of table metrics: no progress") && reasons.contains("3 moves in a row"),
        "{reasons}"
    );
    let overview = client.get("/v1/archive").json();
    let table = overview["tables"]
        .as_array()
        .and_then(|tables| tables.iter().find(|table| table["table"] == "metrics"));
    let table = table.expect("it has an archive");
    assert_eq!(table["failures"], 3, "{table}");
    assert!(
        table["stalled"]
            .as_str()
            .is_some_and(|reason| reason.contains("no progress")),
        "{table}"
    );
    let metric = |name: &str| {
        let text = client.get("/metrics").text();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("tideline_{name} ")))
            .map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    assert_eq!(metric("archive_stalled_tables"), Some(1.0));
    let output = Command::new(binary())
        .args([
            "archive",
            "status",
            "--server",
            &format!("http://{}", client.address()),
        ])
        .output()
        .expect("the binary starts");
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(status.contains("metrics: no progress"), "{status}");

    fs::remove_file(&files).expect("removed");
    archive(&client, "metrics");
    assert_eq!(client.get("/ready").json()["reasons"], json!([]));
    assert_eq!(metric("archive_stalled_tables"), Some(0.0));
    assert_eq!(rows(&client, "metrics", Some("archive")).len(), 100);
}
