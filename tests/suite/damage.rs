//! Damaged files of every kind. Accepted outcomes: the start is refused with a reason; the service is
//! read-only with a reason and changes nothing in the folder; a query is refused; or all data is returned.
//! Data must never be missing silently and never have another value.
//!
//! A store with the hot and the cold tier, an archive and a journal is created once and stopped cleanly. Each round
//! damages one file of a copy, or removes a file or folder. No combination of file kind and damage is repeated before
//! all were used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::{Clock as _, SystemClock};
use tideline_tests::reading::{self, Row};
use tideline_tests::server::{DataFolder, Server};
use tideline_tests::{Client, Launch, archive, rounds, seed, wait};

const TABLE: &str = "default";
const MEASUREMENTS: [&str; 2] = ["air", "water"];
const HOSTS: i64 = 40;
const DAY: i64 = 24 * 3_600_000_000_000;
/// Time limit until a start is refused or the server responds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of a zeroed range, in bytes.
const PAGE_BYTES: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Flipped,
    Zeroed,
    Truncated,
    Missing,
}

/// Result of a start.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The process ended with a reason.
    Refused,
    /// The service is read-only and reports a reason; queries return the remaining data or are refused.
    ReadOnly,
    /// The service runs and refuses queries on damaged data.
    QueryRefused,
    /// All data is returned.
    Whole,
}

/// Results of the undamaged store.
#[derive(Debug)]
struct Expected {
    rows: BTreeMap<&'static str, Vec<Row>>,
    timelines: u64,
}

#[test]
fn damage_of_any_file_is_reported_or_harmless() {
    let seed = seed("damage");
    let mut random = Random::new(seed);
    let folder = DataFolder::new();
    let expected = prepare(&folder);
    let packed = archive::pack(&folder.path(), |_| false).expect("the folder can be read");
    let mut left: Vec<(String, Damage)> = Vec::new();
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    for round in 1..=rounds("TIDELINE_DAMAGES", 16, 500) {
        let copy = Copy::of(&folder, &packed);
        let kinds = kinds(&copy.data());
        if left.is_empty() {
            left = kinds.keys().flat_map(|kind| damages_of(kind)).collect();
        }
        let (kind, damage) = left.swap_remove(random.index(left.len()));
        let paths = &kinds[&kind];
        let path = paths[random.index(paths.len())].clone();
        let Some(what) = apply(&copy.data().join(&path), damage, &mut random) else {
            continue;
        };
        let what = format!("seed {seed}, round {round}: {} {what}", path.display());
        let outcome = outcome(&copy, &expected, &what);
        println!("{what}: {outcome:?}");
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{outcomes:?}");
    assert!(!outcomes.is_empty(), "no file was damaged");
}

#[test]
fn where_something_is_missing_everything_left_is_answered_and_nothing_changed() {
    let folder = DataFolder::new();
    let expected = prepare(&folder);
    let packed = archive::pack(&folder.path(), |_| false).expect("the folder can be read");
    let copy = Copy::of(&folder, &packed);
    fs::remove_file(copy.data().join("highwater")).expect("removed");
    for start in ["first", "second"] {
        let before = state(&copy.data());
        let server = copy.spawn();
        let client = server.client();
        let ready = wait::until(PATIENCE, || {
            let ready = client.send("GET", "/ready", &[], b"").ok()?;
            ready.text().contains("read-only").then_some(ready)
        });
        let ready = ready.unwrap_or_else(|| panic!("{start} start: not read-only:\n{}", server.log()));
        assert_eq!(ready.status, 503);
        assert!(ready.text().contains("high-water mark"), "{}", ready.text());
        assert_eq!(total(&client), expected.timelines);
        for (measurement, rows) in &expected.rows {
            let found = reading::all(&client, TABLE, measurement);
            assert!(found == *rows, "{start} start: other points of {measurement}");
        }
        let sealing = client.post_json("/v1/jobs", &json!({"kind": "seal"}));
        assert!(!sealing.is_success(), "{}", sealing.text());
        assert!(server.terminate().status.success());
        let after = state(&copy.data());
        let changed: Vec<_> = before.symmetric_difference(&after).collect();
        assert!(changed.is_empty(), "{start} start: files changed: {changed:?}");
    }
    let accepting = launch(copy.prepared).environment("TIDELINE__STORAGE__ACCEPT_LOSS", "true");
    let server = copy.folder.start(&accepting);
    for (measurement, rows) in &expected.rows {
        assert!(reading::all(&server.client(), TABLE, measurement) == *rows);
    }
    assert!(server.terminate().status.success());
    let server = copy.folder.start(&launch(copy.prepared));
    write(&server.client(), 0);
    server.kill();
}

/// Copy of the prepared data folder; all copies use the archive of the original.
struct Copy<'a> {
    prepared: &'a DataFolder,
    folder: DataFolder,
}

impl<'a> Copy<'a> {
    fn of(prepared: &'a DataFolder, packed: &[u8]) -> Self {
        let folder = DataFolder::new();
        archive::unpack(packed, &folder.path()).expect("it was packed here");
        Self { prepared, folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.path()
    }

    fn spawn(&self) -> Server {
        self.folder.spawn(&launch(self.prepared))
    }
}

fn launch(folder: &DataFolder) -> Launch {
    let target = format!("file://{}", folder.beside("archive").display());
    Launch::default().environment("TIDELINE__ARCHIVE__TARGET", &target)
}

/// Writes points to the archive, to both tiers and to the journal; returns the expected query results.
fn prepare(folder: &DataFolder) -> Expected {
    fs::create_dir_all(folder.beside("archive")).expect("a folder");
    let server = folder.start(&launch(folder));
    let client = server.client();
    let never = json!({"cron": "0 0 29 2 *", "time_zone": "UTC"});
    set_policy(
        &client,
        &json!({
            "hot_ttl": "3d", "migrate": never,
            "archive": {"target": "default", "after": "20d", "schedule": never}
        }),
    );
    let now = SystemClock.now().nanos();
    for days in [40, 39, 10, 9, 1] {
        write(&client, now - days * DAY);
    }
    job(&client, &json!({"kind": "seal"}));
    for kind in ["migrate", "archive"] {
        job(&client, &json!({"kind": kind, "table": TABLE}));
    }
    // The response to a job request may arrive before a long job has ended.
    let archived = wait::until(PATIENCE, || {
        let rows = reading::rows(&client, TABLE, json!({"tier": "archive"}));
        rows.is_ok_and(|rows| !rows.is_empty()).then_some(())
    });
    assert!(archived.is_some(), "nothing is archived after {PATIENCE:?}");
    write(&client, now - DAY / 2);
    job(&client, &json!({"kind": "seal"}));
    // These points are in the journal only.
    write(&client, now);
    let expected = Expected {
        rows: MEASUREMENTS
            .into_iter()
            .map(|measurement| (measurement, reading::all(&client, TABLE, measurement)))
            .collect(),
        timelines: total(&client),
    };
    let points: usize = expected.rows.values().map(Vec::len).sum();
    assert_eq!(points as i64, 7 * HOSTS * 3);
    let archived = files(&folder.beside("archive"));
    assert!(!archived.is_empty(), "nothing is archived");
    assert!(folder.path().join("cold/store").is_dir(), "nothing is cold");
    assert!(server.terminate().status.success());
    expected
}

fn set_policy(client: &Client, policy: &Json) {
    let body = json!({"policy": policy}).to_string();
    let headers = [("content-type", "application/json")];
    client
        .send("PATCH", &format!("/v1/tables/{TABLE}"), &headers, body.as_bytes())
        .expect("a response")
        .expect_status(200);
}

fn write(client: &Client, time: i64) {
    let lines: Vec<String> = (0..HOSTS)
        .flat_map(|host| {
            let second = time + 1_000_000_000;
            [
                format!("air,host=h{host} temperature={host}.5,pressure=1013i {time}"),
                format!("air,host=h{host} temperature=-{host}.25 {second}"),
                format!("water,host=h{host} level={host}i,state=\"open\" {time}"),
            ]
        })
        .collect();
    let path = format!("/v1/tables/{TABLE}/points");
    client.post_lines(&path, &lines.join("\n")).expect_status(200);
}

fn job(client: &Client, body: &Json) {
    let answer = client.post_json("/v1/jobs", body);
    assert!(answer.is_success(), "{body}: {}", answer.text());
}

fn total(client: &Client) -> u64 {
    let condition = json!({"where": {"property": "measurement", "in": MEASUREMENTS}, "limit": 1});
    let answer = reading::search(client, TABLE, &condition);
    answer["total"].as_u64().expect("a number")
}

/// Returns the relative paths of all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.push(path.strip_prefix(folder).expect("below").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Returns path, size and modification time of all files below a folder.
fn state(folder: &Path) -> BTreeSet<(PathBuf, u64, SystemTime)> {
    let all = files(folder).into_iter();
    all.map(|path| {
        let metadata = fs::metadata(folder.join(&path)).expect("a file");
        (path, metadata.len(), metadata.modified().expect("a time"))
    })
    .collect()
}

/// Groups files by kind, which is the path without numbers and ids. Folders of the upper two levels are kinds too;
/// their only damage is removal.
fn kinds(folder: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files(folder) {
        let mut kind = String::new();
        for part in &path {
            let part = part.to_string_lossy();
            let (stem, end) = part.split_once('.').unwrap_or((&part, ""));
            let is_number = |byte: u8| byte.is_ascii_digit() || b"abcdef-v".contains(&byte);
            let is_id = stem.bytes().any(|byte| byte.is_ascii_digit()) && stem.bytes().all(is_number);
            kind.push_str(if is_id { "*" } else { stem });
            if !end.is_empty() {
                kind.push('.');
                kind.push_str(end);
            }
            kind.push('/');
        }
        kinds.entry(kind).or_default().push(path.clone());
        let folders = path.ancestors().skip(1).filter(|at| !at.as_os_str().is_empty());
        for at in folders.filter(|at| at.iter().count() <= 2) {
            let of = kinds.entry(format!("{} as a whole", at.display())).or_default();
            if of.is_empty() {
                of.push(at.to_owned());
            }
        }
    }
    kinds
}

fn damages_of(kind: &str) -> Vec<(String, Damage)> {
    let all = match kind.ends_with("as a whole") {
        true => &[Damage::Missing][..],
        false => &[
            Damage::Flipped,
            Damage::Zeroed,
            Damage::Truncated,
            Damage::Missing,
        ],
    };
    all.iter().map(|damage| (kind.to_owned(), *damage)).collect()
}

/// Damages a file, or removes a folder. Returns a description, or `None` if the file is empty or has only zeros.
fn apply(path: &Path, damage: Damage, random: &mut Random) -> Option<String> {
    if damage == Damage::Missing {
        match path.is_dir() {
            true => fs::remove_dir_all(path).expect("removed"),
            false => fs::remove_file(path).expect("removed"),
        }
        return Some("is missing".into());
    }
    let mut content = fs::read(path).expect("readable");
    // Preallocated zeros hold nothing that could be damaged.
    let end = 1 + content.iter().rposition(|byte| *byte != 0)?;
    let at = random.index(end);
    let what = match damage {
        Damage::Flipped => {
            let bit = random.index(8);
            content[at] ^= 1 << bit;
            format!("has bit {bit} of byte {at} of {end} flipped")
        }
        Damage::Zeroed => {
            let start = at / PAGE_BYTES * PAGE_BYTES;
            content[start..(start + PAGE_BYTES).min(end)].fill(0);
            format!("has the page at byte {start} of {end} zeroed")
        }
        Damage::Truncated | Damage::Missing => {
            content.truncate(at);
            format!("ends at byte {at} of {end}")
        }
    };
    fs::write(path, content).expect("writable");
    Some(what)
}

/// Starts a server on a damaged copy and compares its results with the results of the undamaged store.
fn outcome(copy: &Copy<'_>, expected: &Expected, what: &str) -> Outcome {
    let before = state(&copy.data());
    let mut server = copy.spawn();
    let found = wait::until(PATIENCE, || {
        if let Some(status) = server.gone() {
            return Some(Err(status));
        }
        let client = Client::new(server.address_within(Duration::ZERO)?);
        let ready = client.send("GET", "/ready", &[], b"").ok()?;
        (ready.status == 200 || ready.text().contains("read-only")).then_some(Ok((client, ready)))
    });
    let found = found.unwrap_or_else(|| panic!("{what}: neither refused nor ready:\n{}", server.log()));
    let (client, ready) = match found {
        Err(status) => {
            assert!(!status.success(), "{what}: it ended without a reason");
            let is_told = || server.log().contains("cannot open").then_some(());
            let told = wait::until(Duration::from_secs(5), is_told);
            assert!(told.is_some(), "{what}: no reason in the log:\n{}", server.log());
            return Outcome::Refused;
        }
        Ok(found) => found,
    };
    let is_read_only = ready.status != 200;
    let mut outcome = if is_read_only {
        Outcome::ReadOnly
    } else {
        Outcome::Whole
    };
    for (measurement, rows) in &expected.rows {
        match rows_of(&client, measurement) {
            Err(refused) => {
                assert!(refused.contains("\"code\""), "{what}: {refused}");
                if !is_read_only {
                    outcome = Outcome::QueryRefused;
                }
            }
            Ok(found) if is_read_only => {
                let wrong = found.iter().find(|row| !rows.contains(row));
                assert_eq!(wrong, None, "{what}: never written");
            }
            Ok(found) => {
                assert_eq!(found.len(), rows.len(), "{what}: silently less of {measurement}");
                assert!(found == *rows, "{what}: other values of {measurement}");
            }
        }
    }
    if is_read_only {
        let refused = client.post_lines(&format!("/v1/tables/{TABLE}/points"), "air,host=h1 temperature=1");
        assert!(!refused.is_success(), "{what}: a write succeeds");
        assert!(server.terminate().status.success(), "{what}");
        let changed: Vec<_> = before
            .symmetric_difference(&state(&copy.data()))
            .cloned()
            .collect();
        assert!(changed.is_empty(), "{what}: the server changed {changed:?}");
    } else {
        assert_eq!(
            total(&client),
            expected.timelines,
            "{what}: silently fewer timelines"
        );
        server.kill();
    }
    outcome
}

/// Returns all points of a measurement, or the error of the query.
fn rows_of(client: &Client, measurement: &str) -> Result<Vec<Row>, String> {
    let condition = json!({"property": "measurement", "equals": measurement});
    let query = json!({"timelines": {"where": condition}, "limit": 5_000}).to_string();
    let headers = [("content-type", "application/json")];
    let path = format!("/v1/tables/{TABLE}/query");
    let answer = client
        .send("POST", &path, &headers, query.as_bytes())
        .map_err(|error| error.to_string())?;
    match answer.status {
        200 => Ok(reading::all_if_known(client, TABLE, measurement)),
        _ => Err(answer.text()),
    }
}
