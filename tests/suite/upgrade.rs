//! Upgrade: a store in the first released format opens with this build and returns all of its data, before
//! and after its points have moved, and after restarts.
//!
//! The store and its expected contents are in `tests/fixtures`; the README there describes how they were
//! made.

mod attach;
mod expected;
mod story;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use tideline_tests::corpora::workspace;
use tideline_tests::points::json_point;
use tideline_tests::reading::{self, Row};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, archive};

use expected::{Expected, Identity, Timeline};
use story::{Point, Step};

const STORE: &str = "spine-store.zst";
const ANSWERS: &str = "spine-answers.txt";

#[test]
fn a_store_of_the_first_format_opens_and_answers_in_full() {
    let folder = unpacked();
    let mut expected = answers();
    let server = folder.start(&Launch::default());
    check(&server.client(), &expected, "after opening");
    server.kill();
    let server = folder.start(&Launch::default());
    check(&server.client(), &expected, "opened again after a kill");
    write_more(&server.client(), &mut expected);
    seal(&server.client());
    check(&server.client(), &expected, "written to and sealed");
    assert!(server.terminate().status.success());
    let server = folder.start(&Launch::default());
    check(&server.client(), &expected, "after a restart");
}

#[test]
fn a_store_of_the_first_format_moves_and_answers_in_full() {
    let folder = unpacked();
    let mut expected = answers();
    let server = folder.start(&Launch::default());
    let client = server.client();
    for kind in [
        "migrate",
        "fold",
        "seal",
        "migrate",
        "purge",
        "expire",
        "clean_catalog",
    ] {
        job(&client, kind);
        check(&client, &expected, &format!("after {kind}"));
    }
    check_all_cold(&client, &expected);
    assert!(server.terminate().status.success());
    let server = folder.start(&Launch::default());
    let client = server.client();
    check(&client, &expected, "moved and opened again");
    write_more(&client, &mut expected);
    check(&client, &expected, "written over what is cold");
    for kind in ["seal", "fold", "migrate"] {
        job(&client, kind);
        check(&client, &expected, &format!("written over what is cold, {kind}"));
    }
    server.kill();
    let server = folder.start(&Launch::default());
    check(&server.client(), &expected, "at the end");
}

/// Tests that the committed expected contents equal the contents derived from the requests in `story`.
#[test]
fn the_answers_of_the_fixture_follow_from_its_story() {
    let expected = Expected::of(&story::steps());
    assert_eq!(Expected::parse(&expected.to_text()), expected);
    assert_eq!(answers(), expected);
}

/// Writes the fixture with the binary that `TIDELINE_BINARY` names; see `tests/fixtures/README.md`.
#[test]
#[ignore = "writes the fixture into the source tree"]
fn make_the_fixture() {
    assert!(
        std::env::var_os("TIDELINE_BINARY").is_some(),
        "TIDELINE_BINARY names the old binary"
    );
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let expected = attach::tell_story(&client);
    check(&client, &expected, "the old binary");
    assert!(server.terminate().status.success());
    // Opening the store rebuilds the index from the catalog and creates the lock.
    let is_skipped = |path: &str| path == "index" || path.ends_with("LOCK");
    let packed = archive::pack(&folder.path(), is_skipped).expect("the data folder can be read");
    fs::write(fixture(STORE), packed).expect("the fixture can be written");
    fs::write(fixture(ANSWERS), expected.to_text()).expect("the fixture can be written");
}

fn unpacked() -> DataFolder {
    let folder = DataFolder::new();
    let packed = fs::read(fixture(STORE)).expect("the fixture is in the tree");
    archive::unpack(&packed, &folder.path()).expect("the fixture is whole");
    folder
}

fn answers() -> Expected {
    Expected::parse(&fs::read_to_string(fixture(ANSWERS)).expect("the answers are in the tree"))
}

fn fixture(name: &str) -> PathBuf {
    workspace().join("tests/fixtures").join(name)
}

/// Overwrites `busy` and `usage` of the points of the first write of the story, and writes a new point 1 ns after
/// each.
fn write_more(client: &Client, expected: &mut Expected) {
    let Some(Step::Write(table, points)) = story::steps().into_iter().nth(1) else {
        panic!("the story begins with a table and a write");
    };
    let more: Vec<Point> = points
        .into_iter()
        .flat_map(|point| {
            let mut over = point.clone();
            over.fields.retain(|name, _| name == "busy" || name == "usage");
            let beside = Point {
                time: point.time + 1,
                ..point
            };
            [over, beside]
        })
        .collect();
    write(client, table, &more);
    more.iter().for_each(|point| expected.write(table, point));
}

fn write(client: &Client, table: &str, points: &[Point]) {
    let points: Vec<Json> = points
        .iter()
        .map(|point| json_point(point.measurement, &point.tags, point.time, &point.fields))
        .collect();
    let answer = client
        .post_json(&format!("/v1/tables/{table}/points"), &json!({"points": points}))
        .expect_status(200)
        .json();
    assert_eq!(answer["points"], points.len(), "{answer}");
}

fn seal(client: &Client) {
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
}

/// Runs a job on every table to its end.
fn job(client: &Client, kind: &str) {
    if kind == "seal" {
        return seal(client);
    }
    for table in ["default", "devices"] {
        let body = json!({"kind": kind, "table": table, "wait": true});
        let answer = client.post_json("/v1/jobs", &body);
        assert!(answer.is_success(), "{body}: {answer:?}");
    }
}

/// Checks that all points are in the cold tier, because all are old.
fn check_all_cold(client: &Client, expected: &Expected) {
    for (table, timelines) in &expected.0 {
        let hot = reading::rows(client, table, json!({"tier": "hot"})).expect("a response");
        assert_eq!(hot, [], "{table}");
        let cold = reading::rows(client, table, json!({"tier": "cold"})).expect("a response");
        let points: usize = timelines.values().map(|timeline| timeline.points.len()).sum();
        assert_eq!(cold.len(), points, "{table}");
    }
}

fn timeline_id(client: &Client, host: &str) -> String {
    let condition = json!({"tag": "host", "equals": host});
    let found = reading::search(client, "default", &json!({"where": condition}));
    let id = found["timelines"][0]["id"].as_str();
    id.unwrap_or_else(|| panic!("{host} is found: {found}"))
        .to_owned()
}

/// Compares all tables, timelines, attributes, points, newest values and hourly aggregates with the
/// expectation.
fn check(client: &Client, expected: &Expected, context: &str) {
    let tables = client.get("/v1/tables").expect_status(200).json();
    let tables = tables["tables"].as_array().expect("tables are listed");
    let names: Vec<&str> = tables.iter().filter_map(|table| table["name"].as_str()).collect();
    let known: Vec<&str> = expected.0.keys().map(String::as_str).collect();
    assert_eq!(names, known, "{context}: tables");
    assert_eq!(tables[1]["source_tags"], json!(["device"]), "{context}");
    assert_eq!(tables[1]["durability"], "buffered", "{context}");
    for (table, timelines) in &expected.0 {
        check_timelines(client, table, timelines, context);
        check_points(client, table, timelines, context);
        check_latest(client, table, timelines, context);
    }
    check_hours(client, expected, context);
}

type Timelines = std::collections::BTreeMap<Identity, Timeline>;

fn check_timelines(client: &Client, table: &str, expected: &Timelines, context: &str) {
    let found = reading::search(client, table, &json!({"limit": 1_000}));
    let found = found["timelines"].as_array().expect("timelines are listed");
    assert_eq!(found.len(), expected.len(), "{context}: timelines of {table}");
    for timeline in found {
        let known = &expected[&identity(timeline)];
        let attributes = serde_json::to_value(&known.attributes).expect("plain data");
        assert_eq!(timeline["attributes"], attributes, "{context}: {timeline}");
        let (first, last) = (known.points.first_key_value(), known.points.last_key_value());
        for (property, point) in [("first_seen", first), ("last_seen", last)] {
            let (time, _) = point.expect("every timeline has points");
            let seen = timeline[property].as_str().unwrap_or_default();
            assert_eq!(
                reading::instant(seen),
                *time,
                "{context}: {property} of {timeline}"
            );
        }
    }
}

fn identity(timeline: &Json) -> Identity {
    let tags = serde_json::from_value(timeline["tags"].clone()).expect("tags are texts");
    (
        timeline["measurement"].as_str().unwrap_or_default().to_owned(),
        tags,
    )
}

fn check_points(client: &Client, table: &str, expected: &Timelines, context: &str) {
    let rows = reading::rows(client, table, json!({})).expect("a response");
    let wanted: usize = expected.values().map(|timeline| timeline.points.len()).sum();
    assert_eq!(rows.len(), wanted, "{context}: points of {table}");
    // Every point is stored once if there are as many rows as points, each row equals its point, and no row occurs
    // twice.
    let mut seen = std::collections::BTreeSet::new();
    for row in &rows {
        let identity = (row.measurement.clone(), row.tags.clone());
        let fields = expected
            .get(&identity)
            .and_then(|timeline| timeline.points.get(&row.time));
        assert_eq!(
            Some(&row.fields),
            fields,
            "{context}: {identity:?} at {}",
            row.time
        );
        assert!(seen.insert((identity, row.time)), "{context}: twice: {row:?}");
    }
}

/// Checks that the newest value of each field is in the row of its timestamp.
fn check_latest(client: &Client, table: &str, expected: &Timelines, context: &str) {
    let answer = client
        .post_json(&format!("/v1/tables/{table}/latest"), &json!({"times": "nanos"}))
        .expect_status(200);
    let rows = reading::rows_of(&answer);
    for (identity, timeline) in expected {
        let mut newest = std::collections::BTreeMap::new();
        for (time, fields) in &timeline.points {
            newest.extend(fields.iter().map(|(name, value)| (name, (*time, value))));
        }
        let of_timeline = |row: &&Row| (&row.measurement, &row.tags) == (&identity.0, &identity.1);
        let found = rows
            .iter()
            .filter(of_timeline)
            .flat_map(|row| row.fields.iter().map(|(name, value)| (name, (row.time, value))))
            .collect();
        assert_eq!(newest, found, "{context}: newest values of {identity:?}");
    }
}

/// Checks count, sum, minimum and maximum of the field `requests` by host and hour. Values are integers, so sums
/// are exact.
fn check_hours(client: &Client, expected: &Expected, context: &str) {
    const HOUR: i64 = 3_600_000_000_000;
    let query = json!({
        "timelines": {"where": {"property": "measurement", "equals": "cpu"}},
        "fields": ["requests"],
        "range": {"start": "2024-03-01T00:00:00Z", "end": "2024-03-06T00:00:00Z"},
        "times": "nanos",
        "aggregate": {"functions": ["count", "sum", "min", "max"], "window": "1h", "group_by": ["host"]},
    });
    let answer = client
        .post_json("/v1/tables/default/query", &query)
        .expect_status(200);
    let mut wanted = std::collections::BTreeMap::<(String, i64), Vec<i64>>::new();
    for ((_, tags), timeline) in &expected.0["default"] {
        for (time, fields) in &timeline.points {
            if let Some(tideline_model::Value::Signed(requests)) = fields.get("requests") {
                let window = time.div_euclid(HOUR) * HOUR;
                wanted
                    .entry((tags["host"].clone(), window))
                    .or_default()
                    .push(*requests);
            }
        }
    }
    for row in reading::rows_of(&answer) {
        let place = (row.tags["host"].clone(), row.time);
        let Some(values) = wanted.remove(&place) else {
            panic!("{context}: an hour without values: {row:?}");
        };
        let cell = |function: &str| match row.fields[&reading::column(function, "requests")] {
            tideline_model::Value::Signed(value) => Some(value),
            _ => None,
        };
        let told = ["count", "sum", "min", "max"].map(cell);
        let known = [
            Some(values.len() as i64),
            Some(values.iter().sum()),
            values.iter().min().copied(),
            values.iter().max().copied(),
        ];
        assert_eq!(told, known, "{context}: {place:?}");
    }
    assert!(wanted.is_empty(), "{context}: hours are missing: {wanted:?}");
}
