//! Tests of attaching: an empty server that has only the archive returns the same results as the server that wrote the
//! archive, even if an older build wrote it. The tests also cover kills during an attach, owned files, and reported
//! problems.

mod apart;
mod flipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tideline_tests::reading;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, archive};

use super::story::{self, Step};
use super::{Expected, answers, check, fixture, job, seal, timeline_id, write, write_more};

const STORE: &str = "archived-store.zst";
const FILES: &str = "archived-files.zst";
const TABLES: [&str; 2] = ["default", "devices"];
/// Time limit for the end of a killed process.
const PATIENCE: Duration = Duration::from_secs(30);
const MOVES: [&str; 3] = ["seal", "migrate", "archive"];

#[test]
fn an_empty_machine_answers_from_the_archive_alone() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let client = server.client();
    let mut expected = tell_story(&client);
    archive_all(&client);
    check(&client, &expected, "archived");
    let before = extra_answers(&client);
    server.kill();
    let second = DataFolder::new();
    let server = second.start(&launch(&files));
    let client = server.client();
    let last = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&last["done"], &last["problem_count"]),
        (&json!(true), &json!(0)),
        "{last}"
    );
    assert_eq!(
        (&last["tables"], &last["attached"]),
        (&json!(2), &last["segments"]),
        "{last}"
    );
    check(&client, &expected, "attached");
    assert_eq!(extra_answers(&client), before);
    let tables = client.get("/v1/tables/devices").json();
    assert_eq!(tables["policy"]["archive"]["target"], "default", "{tables}");
    let again = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&again["segments"], &again["known"]),
        (&json!(0), &last["attached"]),
        "{again}"
    );
    server.kill();
    let server = second.start(&launch(&files));
    let client = server.client();
    check(&client, &expected, "attached, and opened again after a kill");
    assert_eq!(extra_answers(&client), before);
    // New writes override attached points: in memory, in segments, and in new archive files.
    write_more(&client, &mut expected);
    check(&client, &expected, "written over what is attached");
    delete(&client, &mut expected);
    check(&client, &expected, "deleted from what is attached");
    for kind in MOVES {
        job(&client, kind);
        check(&client, &expected, &format!("attached, then {kind}"));
    }
    let before = extra_answers(&client);
    server.kill();
    // The files of the first server are kept, and the files of the second server supersede them.
    let third = DataFolder::new();
    let server = third.start(&launch(&files));
    let client = server.client();
    let last = attach(&client, &json!({"target": "default"}));
    assert_ne!(last["superseded"], 0, "{last}");
    assert_eq!(last["problem_count"], 0, "{last}");
    check(&client, &expected, "attached a second time, elsewhere");
    assert_eq!(extra_answers(&client), before);
}

#[test]
fn a_kill_in_the_middle_leaves_what_is_attached_and_the_rest_follows() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let expected = tell_story(&server.client());
    archive_all(&server.client());
    assert!(server.terminate().status.success());
    for step in ["load.before:2", "load.after:2", "edit.before:2", "edit.after:2"] {
        let folder = DataFolder::new();
        let launch = launch(&files);
        let server = folder.start(
            &launch
                .clone()
                .environment("TIDELINE_KILL_AT", &format!("attach.{step}")),
        );
        let asked = server.client().send(
            "POST",
            "/v1/archive/attach",
            &[("content-type", "application/json")],
            br#"{"target": "default"}"#,
        );
        assert!(
            !asked.is_ok_and(|answer| answer.text().contains("\"done\":true")),
            "{step}"
        );
        let gone = server.wait_gone(PATIENCE);
        assert!(gone.is_ok_and(|status| !status.success()), "{step}");
        let server = folder.start(&launch);
        let client = server.client();
        // Agents continue to write newer points, and attaching still succeeds.
        let mut expected = expected_clone(&expected);
        write_more(&client, &mut expected);
        let last = attach(&client, &json!({"target": "default"}));
        let known = if step == "edit.after:2" { 2 } else { 1 };
        assert_eq!(
            (&last["known"], &last["problem_count"]),
            (&json!(known), &json!(0)),
            "{step}: {last}"
        );
        check(&client, &expected, step);
        for kind in MOVES {
            job(&client, kind);
        }
        check(&client, &expected, &format!("{step}, moved"));
    }
}

#[test]
fn what_is_owned_is_removed_and_what_is_not_stays() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let expected = tell_story(&server.client());
    archive_all(&server.client());
    assert!(server.terminate().status.success());
    for own in [false, true] {
        let folder = DataFolder::new();
        let copy = folder.beside("copy");
        copy_tree(&files, &copy);
        let server = folder.start(&launch(&copy));
        let client = server.client();
        let before = objects(&copy);
        attach(&client, &json!({"target": "default", "own": own}));
        let mut expected = expected_clone(&expected);
        write_more(&client, &mut expected);
        MOVES.iter().for_each(|kind| job(&client, kind));
        check(&client, &expected, &format!("own: {own}"));
        let left = objects(&copy).iter().filter(|name| before.contains(name)).count();
        match own {
            false => assert_eq!(left, before.len(), "nothing of another database is removed"),
            true => assert!(left < before.len(), "superseded files are removed"),
        }
        let described = |path: &String| path.ends_with(".json");
        let kept = objects(&copy).into_iter().filter(described).count();
        assert!(kept > 0);
        // The remaining files are intact: a new server that attaches them has the same data.
        assert!(server.terminate().status.success());
        let next = DataFolder::new();
        let server = next.start(&launch(&copy));
        attach(&server.client(), &json!({"target": "default"}));
        check(
            &server.client(),
            &expected,
            &format!("own: {own}, attached again"),
        );
    }
}

#[test]
fn what_cannot_be_attached_is_told_and_the_rest_is() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let client = server.client();
    let expected = tell_story(&client);
    archive_all(&client);
    // A server does not attach its own files.
    let own = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&own["segments"], &own["problem_count"]),
        (&json!(0), &json!(0)),
        "{own}"
    );
    assert!(server.terminate().status.success());
    let folder = DataFolder::new();
    let server = folder.start(&launch(&files));
    let client = server.client();
    for (body, status, says) in [
        (
            json!({"target": "file:///nowhere/else"}),
            403,
            "archive.allowed_targets",
        ),
        (json!({"target": "ftp://host/x"}), 400, "ftp://host/x"),
        (
            json!({"target": "default", "table": "none"}),
            404,
            "holds no archive of table none",
        ),
        (json!({"target": "default", "as": "other"}), 400, "set `table`"),
        (
            json!({"target": "default", "table": "No"}),
            400,
            "cannot name a table",
        ),
    ] {
        let answer = client
            .post_json("/v1/archive/attach", &body)
            .expect_status(status);
        assert!(answer.text().contains(says), "{body}: {}", answer.text());
    }
    // Writes and seals a point with a timestamp that the archive contains.
    let known = expected.0["devices"].iter().next().expect("it has timelines");
    let (measurement, tags) = known.0;
    let (time, fields) = known.1.points.iter().next().expect("it has points");
    client
        .post_json(
            "/v1/tables",
            &json!({"name": "devices", "source_tags": ["device"]}),
        )
        .expect_status(201);
    let point = tideline_tests::points::json_point(measurement, tags, *time, fields);
    client
        .post_json("/v1/tables/devices/points", &json!({"points": [point]}))
        .expect_status(200);
    seal(&client);
    let last = attach(&client, &json!({"target": "default", "table": "devices"}));
    assert!(
        last["problems"][0]
            .as_str()
            .is_some_and(|text| text.contains("as a separate table")),
        "{last}"
    );
    let last = attach(
        &client,
        &json!({"target": "default", "table": "devices", "as": "devices_before"}),
    );
    assert_eq!(
        (&last["done"], &last["problem_count"]),
        (&json!(true), &json!(0)),
        "{last}"
    );
    let rows = reading::rows(&client, "devices_before", json!({})).expect("a response");
    let wanted: usize = expected.0["devices"].values().map(|of| of.points.len()).sum();
    assert_eq!(rows.len(), wanted);
    // If one table owned the files, dropping it would delete them for the other.
    let answer = client.post_json(
        "/v1/archive/attach",
        &json!({"target": "default", "table": "devices", "as": "third", "own": true}),
    );
    assert_eq!(answer.status, 409, "{}", answer.text());
    drop(server);
    damaged(&files, &expected);
}

/// Damages one sidecar and one timelines file: both are reported, and everything else is attached.
fn damaged(files: &Path, expected: &Expected) {
    let folder = DataFolder::new();
    let copy = folder.beside("copy");
    copy_tree(files, &copy);
    let mut names = objects(&copy);
    names.retain(|name| name.starts_with("default/_segments/"));
    names.sort();
    let described: Vec<&String> = names.iter().filter(|name| name.ends_with(".json")).collect();
    assert!(described.len() > 2, "{names:?}");
    flip(&copy.join(described[0]));
    // The sidecar contains the name of its timelines file.
    let said: Json =
        serde_json::from_slice(&fs::read(copy.join(described[1])).expect("it is there")).expect("JSON");
    let timelines = said["archive"]["timelines"]["key"].as_str().expect("a name");
    flip(&copy.join(timelines));
    let server = folder.start(&launch(&copy));
    let client = server.client();
    let last = attach(&client, &json!({"target": "default", "own": true}));
    assert_eq!(
        (&last["done"], &last["problem_count"]),
        (&json!(true), &json!(2)),
        "{last}"
    );
    let problems = last["problems"].to_string();
    for name in [described[0].as_str(), timelines] {
        assert!(problems.contains(name), "{name}: {problems}");
    }
    assert_eq!(
        last["attached"].as_u64(),
        last["segments"].as_u64().map(|all| all - 1),
        "{last}"
    );
    let jobs = client.get("/v1/jobs?kind=attach_archive").json();
    assert_eq!(jobs["jobs"][0]["state"], "failed", "{jobs}");
    let rows = reading::rows(&client, "devices", json!({})).expect("a response");
    let wanted: usize = expected.0["devices"].values().map(|of| of.points.len()).sum();
    assert_eq!(rows.len(), wanted, "the other table is whole");
}

/// Changes a byte in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_store_with_an_archive_of_an_older_build_opens_and_answers_in_full() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    unpack(STORE, &folder.path());
    unpack(FILES, &files);
    let mut expected = answers();
    let server = folder.start(&launch(&files));
    let client = server.client();
    check(&client, &expected, "opened");
    check_all_archived(&client, &expected);
    write_more(&client, &mut expected);
    delete(&client, &mut expected);
    for kind in MOVES {
        job(&client, kind);
        check(&client, &expected, &format!("written to, then {kind}"));
    }
    check_all_archived(&client, &expected);
    assert!(server.terminate().status.success());
    let server = folder.start(&launch(&files));
    check(&server.client(), &expected, "opened again");
}

#[test]
fn an_archive_of_an_older_build_is_attached() {
    let folder = DataFolder::new();
    let files = folder.beside("files");
    unpack(FILES, &files);
    let mut expected = answers();
    let server = folder.start(&launch(&files));
    let client = server.client();
    // Sidecars of the older build do not contain table settings, and the ids of timelines depend on the source
    // tags of the table.
    client
        .post_json("/v1/tables", &json!({"name": "guessed", "source_tags": ["rack"]}))
        .expect_status(201);
    let last = attach(
        &client,
        &json!({"target": "default", "table": "devices", "as": "guessed"}),
    );
    assert!(
        last["problems"][0]
            .as_str()
            .is_some_and(|text| text.contains("source_tags")),
        "{last}"
    );
    assert_eq!(
        (&last["timelines"], &last["points"]),
        (&json!(0), &json!(0)),
        "{last}"
    );
    let answer = client
        .send("DELETE", "/v1/tables/guessed", &[], b"")
        .expect("a response");
    assert!(answer.is_success());
    let Some(Step::CreateTable(devices)) = story::steps().into_iter().next() else {
        panic!("the story begins with a table");
    };
    client.post_json("/v1/tables", &devices).expect_status(201);
    let last = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&last["done"], &last["problem_count"]),
        (&json!(true), &json!(0)),
        "{last}"
    );
    check(&client, &expected, "attached");
    write_more(&client, &mut expected);
    delete(&client, &mut expected);
    check(&client, &expected, "written to");
    set_archive(&client);
    for kind in MOVES {
        job(&client, kind);
        check(&client, &expected, &format!("written to, then {kind}"));
    }
}

/// Writes the fixture with the binary that `TIDELINE_BINARY` names; see `tests/fixtures/README.md`.
#[test]
#[ignore = "writes the fixture into the source tree"]
fn make_the_fixture_with_an_archive() {
    assert!(
        std::env::var_os("TIDELINE_BINARY").is_some(),
        "TIDELINE_BINARY names the old binary"
    );
    let folder = DataFolder::new();
    let files = folder.beside("files");
    let server = folder.start(&launch(&files));
    let client = server.client();
    let expected = tell_story(&client);
    archive_all(&client);
    check(&client, &expected, "the old binary");
    assert_eq!(expected, answers(), "the story of the other fixture");
    assert!(server.terminate().status.success());
    let is_skipped = |path: &str| path == "index" || path.ends_with("LOCK");
    for (name, path) in [(STORE, folder.path()), (FILES, files)] {
        let packed = archive::pack(&path, is_skipped).expect("the folder can be read");
        fs::write(fixture(name), packed).expect("the fixture can be written");
    }
}

fn launch(files: &Path) -> Launch {
    let target = format!("file://{}", files.display());
    Launch::default()
        .environment("TIDELINE__ARCHIVE__TARGET", &target)
        .environment("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s")
        .environment("TIDELINE__LIFECYCLE__INTERVAL", "1h")
}

fn unpack(name: &str, folder: &Path) {
    let packed = fs::read(fixture(name)).expect("the fixture is in the tree");
    archive::unpack(&packed, folder).expect("the fixture is whole");
}

/// Runs all steps of the story; returns the expected contents.
pub(super) fn tell_story(client: &Client) -> Expected {
    let steps = story::steps();
    for step in &steps {
        match step {
            Step::CreateTable(table) => {
                client.post_json("/v1/tables", table).expect_status(201);
            }
            Step::Write(table, points) => write(client, table, points),
            Step::Attributes(host, changes) => {
                let id = timeline_id(client, host);
                reading::set_attributes(client, "default", &id, changes);
            }
            Step::Seal => seal(client),
        }
    }
    Expected::of(&steps)
}

fn set_archive(client: &Client) {
    TABLES.iter().for_each(|table| set_archive_of(client, table));
}

fn set_archive_of(client: &Client, table: &str) {
    let policy = json!({"policy": {"hot_ttl": "7d", "archive": {"target": "default", "after": "8d"}}});
    let path = format!("/v1/tables/{table}");
    let headers = [("content-type", "application/json")];
    let answer = client.send("PATCH", &path, &headers, policy.to_string().as_bytes());
    answer.expect("a response").expect_status(200);
}

fn archive_all(client: &Client) {
    set_archive(client);
    MOVES.iter().for_each(|kind| job(client, kind));
    check_all_archived(client, &Expected::of(&story::steps()));
}

fn check_all_archived(client: &Client, expected: &Expected) {
    for (table, timelines) in &expected.0 {
        let archived = reading::rows(client, table, json!({"tier": "archive"})).expect("a response");
        let points: usize = timelines.values().map(|timeline| timeline.points.len()).sum();
        assert_eq!(archived.len(), points, "{table}");
    }
}

/// Attaches and waits for the end; returns the last line of the response.
fn attach(client: &Client, body: &Json) -> Json {
    let answer = client
        .post_json("/v1/archive/attach", body)
        .expect_status(200)
        .text();
    let last = answer.lines().last().expect("at least one line");
    serde_json::from_str(last).expect("a line is JSON")
}

/// Deletes the points of one machine in half a day.
fn delete(client: &Client, expected: &mut Expected) {
    const FROM: i64 = 1_709_251_200_000_000_000;
    let range = FROM..FROM + 43_200_000_000_000;
    let body = json!({
        "timelines": {"where": {"tag": "host", "equals": "web-1"}},
        "range": {"start": range.start, "end": range.end}
    });
    client
        .post_json("/v1/tables/default/points/delete", &body)
        .expect_status(200);
    let timelines = expected.0.get_mut("default").expect("it is there");
    let mut gone = 0;
    for ((_, tags), timeline) in timelines {
        if tags.get("host").is_some_and(|host| host == "web-1") {
            let before = timeline.points.len();
            timeline.points.retain(|time, _| !range.contains(time));
            gone += before - timeline.points.len();
        }
    }
    assert!(gone > 0, "there was something to delete");
}

/// Returns results that `check` does not cover: names, fields, attributes, searches with several conditions,
/// aggregates.
fn extra_answers(client: &Client) -> Vec<Json> {
    let get = |path: &str| client.get(path).expect_status(200).json();
    let post = |path: &str, body: Json| client.post_json(path, &body).expect_status(200).json();
    let all = json!({"start": "1960-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"});
    let everyone = json!({"where": {"and": []}});
    let mut answers = vec![
        get("/v1/tables/default/measurements"),
        get("/v1/tables/default/tags"),
        get("/v1/tables/default/tags/host/values"),
        get("/v1/tables/default/fields"),
        get("/v1/tables/devices/fields"),
        get("/v1/tables/default/attributes"),
        post(
            "/v1/tables/default/timelines/search",
            json!({"where": {"and": [{"attribute": "owner", "equals": "storage"}, {"attribute": "rack", "equals": 12}]}}),
        ),
        post(
            "/v1/tables/default/timelines/search",
            json!({"where": {"or": [{"tag": "host", "prefix": "web-"}, {"not": {"tag": "host", "exists": true}}]}, "limit": 500}),
        ),
        post(
            "/v1/tables/default/latest",
            json!({"timelines": everyone, "times": "nanos"}),
        ),
        post(
            "/v1/tables/devices/latest",
            json!({"timelines": everyone, "times": "nanos"}),
        ),
    ];
    for table in TABLES {
        for query in [
            json!({"aggregate": {"functions": ["count", "min", "max"], "window": "1d"}}),
            json!({"aggregate": {"functions": ["count", "first", "last"]}}),
        ] {
            let mut query = query;
            query["timelines"] = everyone.clone();
            query["range"] = all.clone();
            query["times"] = "nanos".into();
            answers.push(post(&format!("/v1/tables/{table}/query"), query));
        }
    }
    for answer in &mut answers {
        for own in ["request_id", "cost", "duration_ms", "took_ms", "statistics"] {
            answer.as_object_mut().expect("an object").remove(own);
        }
    }
    answers
}

fn expected_clone(expected: &Expected) -> Expected {
    Expected::parse(&expected.to_text())
}

/// Returns the names of all objects below a folder.
fn objects(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("the folder is there") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below");
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    names
}

fn copy_tree(from: &Path, to: &Path) {
    for name in objects(from) {
        let place = to.join(&name);
        fs::create_dir_all(place.parent().expect("it is below")).expect("the folder can be written");
        fs::copy(from.join(name), place).expect("the file can be copied");
    }
}
