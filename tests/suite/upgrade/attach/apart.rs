//! Attach of archives with several segments or origins: attributes that change between segments, two servers with
//! one target, and a copied data folder next to its original.

use serde_json::{Value as Json, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, reading};

use super::super::{answers, check, job, seal, timeline_id, write_more};
use super::{
    MOVES, PATIENCE, archive_all, attach, copy_tree, delete, launch, objects, set_archive_of, tell_story,
};

/// Tests that a timeline gets exactly the attributes of its newest segment, and none if that segment has none. The
/// segments are attached in one run or in two runs.
#[test]
fn attributes_are_those_of_the_newest_segment() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let client = server.client();
    set_archive_of(&client, "default");
    for (day, owner) in [(0, json!("old")), (1, json!("new"))] {
        for host in ["kept", "bare"] {
            let time = 1_700_000_000 + day * 86_400;
            let lines = format!("m,host={host} v={day} {time}");
            client
                .post_lines("/v1/tables/default/points?precision=s", &lines)
                .expect_status(200);
        }
        for (host, owner) in [
            ("kept", owner.clone()),
            ("bare", if day == 0 { owner } else { Json::Null }),
        ] {
            let id = timeline_id(&client, host);
            reading::set_attributes(&client, "default", &id, &json!({"owner": owner}));
        }
        for kind in MOVES {
            let body = json!({"kind": kind, "table": "default", "wait": true});
            match kind {
                "seal" => seal(&client),
                _ => drop(client.post_json("/v1/jobs", &body).expect_status(200)),
            }
        }
    }
    server.kill();
    let owner = |client: &Client, host: &str| {
        let condition = json!({"where": {"tag": "host", "equals": host}});
        let found = reading::search(client, "default", &condition);
        found["timelines"][0]["attributes"]["owner"].clone()
    };
    // Without a kill, both segments are attached in one run; with the kill, the newest segment in one run and the
    // older one in the next.
    for kill in [None, Some("attach.edit.after:1")] {
        let folder = DataFolder::new();
        if let Some(step) = kill {
            let launch = launch(&files).environment("TIDELINE_KILL_AT", step);
            let server = folder.start(&launch);
            let body = json!({"target": "default"}).to_string();
            let headers = [("content-type", "application/json")];
            let _killed = server
                .client()
                .send("POST", "/v1/archive/attach", &headers, body.as_bytes());
            assert!(server.wait_gone(PATIENCE).is_ok());
        }
        let server = folder.start(&launch(&files));
        let client = server.client();
        let last = attach(&client, &json!({"target": "default"}));
        let known = u64::from(kill.is_some());
        assert_eq!(
            (&last["segments"], &last["known"]),
            (&json!(2 - known), &json!(known)),
            "{last}"
        );
        assert_eq!(last["problem_count"], 0, "{last}");
        assert_eq!(owner(&client, "kept"), "new", "{kill:?}");
        assert_eq!(owner(&client, "bare"), Json::Null, "{kill:?}");
        let rows = reading::rows(&client, "default", json!({})).expect("a response");
        assert_eq!(rows.len(), 4);
    }
}

/// Two independent servers archive tables of the same name to one target. Tests that an attach without an origin
/// reports a problem and attaches nothing, and that an attach with an origin attaches only the table of that server.
#[test]
fn archives_of_two_servers_are_told_apart() {
    let shared = DataFolder::new();
    let files = shared.beside("files");
    let mut origins = Vec::new();
    for (host, value) in [("one", 1), ("other", 2)] {
        let folder = DataFolder::new();
        let server = folder.start(&launch(&files));
        let client = server.client();
        set_archive_of(&client, "default");
        // Both servers write the same timeline, timestamp and write position, so neither point is newer.
        let lines = format!("m,host=same v={value}i 1700000000\nm,host={host} v={value}i 1700000000");
        client
            .post_lines("/v1/tables/default/points?precision=s", &lines)
            .expect_status(200);
        seal(&client);
        let body = json!({"kind": "archive", "table": "default", "wait": true});
        client.post_json("/v1/jobs", &body).expect_status(200);
        let mut names = objects(&files);
        names.retain(|name| name.ends_with(".json") && !origins.iter().any(|origin| name.contains(origin)));
        let name = names[0].rsplit('/').next().expect("a name");
        origins.push(name.split('-').next().expect("an origin").to_owned());
        assert!(server.terminate().status.success());
    }
    let folder = DataFolder::new();
    let server = folder.start(&launch(&files));
    let client = server.client();
    let last = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&last["attached"], &last["problem_count"]),
        (&json!(0), &json!(1)),
        "{last}"
    );
    let problem = last["problems"][0].as_str().expect("a text");
    assert!(origins.iter().all(|origin| problem.contains(origin)), "{problem}");
    let answer = client.post_json(
        "/v1/archive/attach",
        &json!({"target": "default", "origin": "unknown"}),
    );
    assert!(answer.expect_status(404).text().contains(&origins[0]));
    for (origin, value) in origins.iter().zip([1, 2]) {
        let name = format!("of_{value}");
        let body = json!({"target": "default", "table": "default", "as": name, "origin": origin});
        let last = attach(&client, &body);
        assert_eq!(
            (&last["attached"], &last["problem_count"]),
            (&json!(1), &json!(0)),
            "{last}"
        );
        let rows = reading::rows(&client, &name, json!({})).expect("a response");
        assert_eq!(rows.len(), 2, "{rows:?}");
        let is_its = |row: &reading::Row| row.fields["v"] == tideline_model::Value::Signed(value);
        assert!(rows.iter().all(is_its), "{rows:?}");
    }
}

/// Tests a copied data folder next to its original: the copy removes no file of the original.
#[test]
fn a_copy_with_an_origin_of_its_own_leaves_the_files_of_the_original() {
    let first = DataFolder::new();
    let files = first.beside("files");
    let server = first.start(&launch(&files));
    let mut expected = tell_story(&server.client());
    archive_all(&server.client());
    assert!(server.terminate().status.success());
    let second = DataFolder::new();
    copy_tree(&first.path(), &second.path());
    let before = objects(&files);
    let server = second.start(&launch(&files).arguments(["--new-origin"]));
    let client = server.client();
    write_more(&client, &mut expected);
    delete(&client, &mut expected);
    MOVES.iter().for_each(|kind| job(&client, kind));
    check(&client, &expected, "the copy");
    assert!(server.terminate().status.success());
    let after = objects(&files);
    assert!(
        before.iter().all(|name| after.contains(name)),
        "the copy has removed files"
    );
    assert!(after.len() > before.len(), "the copy has written its own");
    let server = first.start(&launch(&files));
    check(&server.client(), &answers(), "the original");
    drop(server);
    let server = second.start(&launch(&files));
    check(
        &server.client(),
        &expected,
        "the copy, restarted without the option",
    );
}
