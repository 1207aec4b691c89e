//! Kills before and after every step of the job that writes messages to inboxes, and in the middle of a join with history.
//! Afterwards every inbox shows every message once, and the next run of the job continues.
//!
//! The binary needs the fail points of a build with debug assertions; see `tests/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_tests::corpora::workspace;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

use crate::row_archive::check_of;

/// Steps of the job. Each is the name of a fail point, and is tested in a run that passes it.
const STEPS: [&str; 5] = ["begin", "write", "done", "end", "leave"];
/// Number of members of the feed, and of messages. They need several writes.
const MEMBERS: usize = 25;
const MESSAGES: usize = 110;
const FEED: &str = "/v1/tables/chat/feeds/room,name=lobby";

fn join(client: &Client, users: std::ops::Range<usize>) {
    let headers = [("content-type", "application/json")];
    for user in users {
        let joined = client.send("PUT", &format!("{FEED}/members/u{user}"), &headers, b"{}");
        joined.expect("a response").expect_status(200);
    }
}

fn send(client: &Client, count: usize) -> Vec<String> {
    let messages = json!({"messages": vec![json!({"columns": {"text": "hello"}}); count]});
    let sent = client.post_json(&format!("{FEED}/messages"), &messages);
    sequences(&sent.expect_status(200).json())
}

fn sequences(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().expect("a list").iter();
    messages
        .map(|message| message["sequence"].as_str().expect("a text").to_owned())
        .collect()
}

/// Checks that the inboxes of three members show exactly these messages.
fn check(client: &Client, sent: &[String], context: &str) {
    for user in [0, MEMBERS / 2, MEMBERS - 1] {
        let page = client.get(&format!("/v1/tables/chat/users/u{user}/inbox?limit=1000"));
        assert_eq!(
            sequences(&page.expect_status(200).json()),
            sent,
            "{context}, user {user}"
        );
    }
}

/// Runs the job. Returns false if the server was killed.
fn fan_out(client: &Client) -> bool {
    let headers = [("content-type", "application/json")];
    let body = json!({"kind": "fan_out", "wait": true}).to_string();
    let sent = client.send("POST", "/v1/jobs", &headers, body.as_bytes());
    sent.is_ok_and(|response| response.expect_status(200).json()["state"] == "done")
}

/// Returns the number of entries of the inbox of a member.
fn entries(client: &Client, user: usize) -> u64 {
    let inbox = client.get(&format!("/v1/tables/chat/feeds/inbox,user=u{user}"));
    let entries = json!({"prefix": {"feed": inbox.expect_status(200).json()["id"]}});
    let counted = client.post_json("/v1/tables/chat/rows/count", &entries);
    counted.expect_status(200).json()["count"]
        .as_u64()
        .expect("a number")
}

#[test]
fn every_inbox_shows_every_message_once_whatever_step_of_a_fan_out_is_cut() {
    for step in STEPS {
        for side in ["before", "after"] {
            let point = format!("fan_out.{step}.{side}");
            let folder = DataFolder::new();
            let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", &point));
            let client = server.client();
            let inboxes = json!({"push_max": 2, "fan_out_max": MEMBERS});
            let table = json!({"name": "chat", "model": "feed", "feed": {"inboxes": inboxes}});
            client.post_json("/v1/tables", &table).expect_status(201);
            join(&client, 0..MEMBERS);
            let mut sent = send(&client, MESSAGES);
            // The job does not write the messages of a feed with more members than the limit; readers read them from
            // the feed.
            let grown = usize::from(step == "leave");
            join(&client, MEMBERS..MEMBERS + grown);
            check(&client, &sent, &format!("{point}, before"));
            assert!(!fan_out(&client), "{point}: never reached");
            server.expect_killed(&point);

            let server = folder.start(&Launch::default());
            let client = server.client();
            check(&client, &sent, &format!("{point}, after the kill"));
            sent.extend(send(&client, 1));
            assert!(fan_out(&client), "{point}");
            check(&client, &sent, &format!("{point}, written"));
            let expected = match grown {
                0 => MESSAGES as u64 + 1,
                _ => 0,
            };
            assert_eq!(entries(&client, MEMBERS - 1), expected, "{point}");
            assert!(server.terminate().status.success());
            let report = check_of(&folder);
            assert_eq!(report["is_sound"], true, "{point}: {report}");
        }
    }
}

#[test]
fn a_join_that_is_cut_is_completed_by_the_job() {
    let point = "feed_join.write.after";
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default().environment("TIDELINE_KILL_AT", point));
    let client = server.client();
    let table = json!({"name": "chat", "model": "feed", "feed": {"inboxes": {"push_max": 2}}});
    client.post_json("/v1/tables", &table).expect_status(201);
    // A write has up to 1,000 entries, so the kill comes after a part of the history.
    let sent = [send(&client, 1_000), send(&client, 500)].concat();
    let headers = [("content-type", "application/json")];
    let joined = client.send(
        "PUT",
        &format!("{FEED}/members/u0"),
        &headers,
        br#"{"history": "all"}"#,
    );
    assert!(joined.is_err(), "it was not cut");
    server.expect_killed(point);

    let server = folder.start(&Launch::default());
    let client = server.client();
    let shown = || {
        let inbox = "/v1/tables/chat/users/u0/inbox?limit=1000";
        let first = client.get(inbox).expect_status(200).json();
        let next = first["next"].as_str().expect("a cursor");
        let second = client
            .get(&format!("{inbox}&after={next}"))
            .expect_status(200)
            .json();
        [sequences(&first), sequences(&second)].concat()
    };
    assert_eq!(shown(), sent);
    let ended = || {
        let metrics = client.get("/metrics").expect_status(200).text();
        metrics.contains("tideline_feed_interrupted_joins_ended_total 1.0\n")
    };
    let since = Instant::now();
    while !ended() {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "the job has not completed the join"
        );
        fan_out(&client);
    }
    assert_eq!((shown(), entries(&client, 0)), (sent.clone(), sent.len() as u64));
    let rows = client.post_json(
        "/v1/tables/chat-users/rows/scan",
        &json!({"prefix": {"user": "u0"}}),
    );
    let rows = rows.expect_status(200).text();
    assert!(rows.contains("joined") && !rows.contains("filling"), "{rows}");
    assert!(server.terminate().status.success());
    let report = check_of(&folder);
    assert_eq!(report["is_sound"], true, "{report}");
}

#[test]
fn every_step_of_a_fan_out_is_tested() {
    let source = workspace().join("services/message-feed/src/fan_out.rs");
    let text = fs::read_to_string(source).expect("a source can be read");
    let mut found = BTreeSet::new();
    for call in ["at(\"", "self.store(feed, \""] {
        let steps = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(steps);
    }
    assert_eq!(found, BTreeSet::from(STEPS));
}
