//! Tests that kill the server while clients send to feeds and follow them.
//!
//! After each restart, the clients send everything again with the same message ids. Every id must be one message with
//! one sequence number, and a follower that keeps its cursor must see every message once, in rising order. A follower
//! that applies the events of edits, recalls and deletions must have the same messages as a reader of the whole feed.
//!
//! With `TIDELINE_SUITE_BACKEND=cassandra`, the data is in a cluster.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_testkit::{Random, seed};
use tideline_tests::program::free_address;
use tideline_tests::server::{DataFolder, Server};
use tideline_tests::{Client, Launch, Response, wait};

use crate::row_archive::check_of;

const FEED: &str = "/v1/tables/chat/feeds/room,name=lobby";
/// Number of threads that send messages.
const WRITERS: u64 = 4;
/// Number of messages of a request.
const BATCH: usize = 10;
/// Number of requests of each of these threads.
const BATCHES: u64 = 80;
/// Number of kills while messages are sent.
const KILLS: u64 = 4;
/// Number of changes of each thread that changes messages.
const CHANGES: u64 = 150;
/// Time limit for a state that is awaited.
const PATIENCE: Duration = Duration::from_secs(60);

fn create(client: &Client) {
    let table = json!({"name": "chat", "model": "feed", "feed": {
        "columns": [{"name": "text", "type": "string"}], "parts": {"every": "day"}
    }});
    client.post_json("/v1/tables", &table).expect_status(201);
}

/// Sends a request with a JSON body. Returns the response; `None` if the server was killed before it responded.
fn try_send(client: &Client, method: &str, path: &str, body: &Value) -> Option<Value> {
    let headers = [("content-type", "application/json")];
    let sent = client.send(method, path, &headers, body.to_string().as_bytes());
    // A server that starts or ends may refuse the request.
    let response = sent.ok().filter(|response| response.status != 503)?;
    Some(response.expect_status(200).json())
}

pub(super) fn sequence_of(message: &Value) -> i64 {
    let sequence = message["sequence"].as_str().and_then(|text| text.parse().ok());
    sequence.unwrap_or_else(|| panic!("no sequence number: {message}"))
}

/// Sets a flag when the value is dropped, even by a panic, so that a follower ends.
pub(super) struct Done<'a>(pub(super) &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reads the messages and events of a feed by a cursor, over restarts of the server, until `is_done` is true and no
/// message is left. Passes each message and event to `take`.
fn follow(address: SocketAddr, is_done: &AtomicBool, take: &mut dyn FnMut(Value)) {
    let client = Client::new(address);
    let mut cursor = String::new();
    loop {
        let is_last = is_done.load(Ordering::SeqCst);
        let path = format!("{FEED}/messages?limit=100{cursor}");
        let page = wait::until(PATIENCE, || {
            let response = client.send("GET", &path, &[], b"").ok()?;
            response.is_success().then(|| response.json())
        });
        let page = page.expect("the server answers in time");
        if let Some(next) = page["next"].as_str() {
            cursor = format!("&after={next}");
        }
        let messages = page["messages"].as_array().expect("a list");
        if messages.is_empty() && is_last {
            return;
        }
        messages.iter().cloned().for_each(&mut *take);
    }
}

/// Watches a feed over restarts of the server, from the id of the last event on, until `is_done` is true and no further
/// message arrives. Passes each message to `take`.
fn watch(address: SocketAddr, is_done: &AtomicBool, take: &mut dyn FnMut(Value)) {
    let mut cursor = "0".to_owned();
    loop {
        let is_last = is_done.load(Ordering::SeqCst);
        let head = format!(
            "GET {FEED}/watch?after={cursor}&for=2s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        );
        let stream = wait::until(PATIENCE, || {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(head.as_bytes()).ok()?;
            Some(stream)
        });
        let mut id = None;
        let mut is_empty = true;
        // Each event is a chunk of the response, so no line of it is divided. A killed server ends the lines.
        for line in BufReader::new(stream.expect("the server accepts in time")).lines() {
            let Ok(line) = line else { break };
            if let Some(event) = line.strip_prefix("id: ") {
                id = Some(event.to_owned());
            }
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            let Ok(data) = serde_json::from_str::<Value>(data) else {
                break;
            };
            if let Some(messages) = data["messages"].as_array() {
                is_empty = false;
                messages.iter().cloned().for_each(&mut *take);
                cursor = id.take().expect("an event of messages has an id");
            }
        }
        if is_last && is_empty {
            return;
        }
    }
}

/// Reads all messages and events of a feed.
fn all(client: &Client) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{FEED}/messages?limit=1000{cursor}"));
        let page = page.expect_status(200).json();
        found.extend(page["messages"].as_array().expect("a list").clone());
        if page["more"] == false {
            return found;
        }
        cursor = format!("&after={}", page["next"].as_str().expect("a cursor"));
    }
}

/// Ends a server, and checks that its data is sound and opens again.
fn check_folder(folder: &DataFolder, server: Server, launch: &Launch) {
    let before = all(&server.client());
    assert!(server.terminate().status.success());
    if folder.has_data() {
        let report = check_of(folder);
        assert_eq!(report["is_sound"], true, "{report}");
    }
    let server = folder.start(launch);
    assert_eq!(all(&server.client()), before);
    assert!(server.terminate().status.success());
}

/// Waits until `count` requests are acknowledged.
pub(super) fn wait_acknowledged(acknowledged: &Receiver<()>, count: u64) {
    for _ in 0..count {
        let received = acknowledged.recv_timeout(PATIENCE);
        assert!(received.is_ok(), "requests are acknowledged in time");
    }
}

/// Writer with its acknowledged messages.
struct Writer {
    number: u64,
    /// Sequence numbers of acknowledged messages, by id.
    acknowledged: BTreeMap<String, i64>,
    /// Tags of acknowledged feeds.
    feeds: Vec<String>,
}

impl Writer {
    /// Sends all messages, beginning with the first, until `batches` requests are acknowledged or the server is killed.
    /// Each request also creates a feed, which must be found at once.
    fn send(&mut self, client: &Client, batches: u64, acknowledged: &Sender<()>) {
        for batch in 0..batches {
            let ids = (0..BATCH).map(|part| format!("{}-{batch}-{part}", self.number));
            let messages: Vec<Value> = ids
                .map(|id| json!({"id": id, "columns": {"text": format!("message {id}")}}))
                .collect();
            let path = format!("{FEED}/messages?as=writer-{}", self.number);
            let sent = try_send(client, "POST", &path, &json!({"messages": messages}));
            let Some(sent) = sent else { return };
            let outcomes = sent["messages"].as_array().expect("a list");
            for (message, outcome) in messages.iter().zip(outcomes) {
                let id = message["id"].as_str().expect("a text").to_owned();
                let sequence = sequence_of(outcome);
                let known = *self.acknowledged.entry(id.clone()).or_insert(sequence);
                assert_eq!(known, sequence, "the number of {id} changed");
            }
            let tag = format!("{}-{batch}", self.number);
            if !self.feeds.contains(&tag) {
                let path = format!("/v1/tables/chat/feeds/inbox,of={tag}/messages");
                let one = json!({"messages": [{"id": "first"}]});
                if try_send(client, "POST", &path, &one).is_none() {
                    return;
                }
                self.feeds.push(tag.clone());
                let search = json!({"where": {"tag": "of", "equals": tag}});
                let found = try_send(client, "POST", "/v1/tables/chat/feeds/search", &search);
                let Some(found) = found else { return };
                assert_eq!(
                    found["timelines"].as_array().map(Vec::len),
                    Some(1),
                    "{tag}: {found}"
                );
            }
            // After the last kill, no thread receives these signals.
            let _ = acknowledged.send(());
        }
    }
}

#[test]
fn each_message_id_is_one_message_and_followers_miss_nothing_over_kills() {
    let mut random = Random::new(seed(
        "each_message_id_is_one_message_and_followers_miss_nothing_over_kills",
    ));
    let folder = DataFolder::of_suite();
    // Each start listens on the same address, and flushes often.
    let address = free_address();
    let launch = Launch::default()
        .listen(address)
        .environment("TIDELINE__STORAGE__ROW_BUFFER_BYTES", "1MiB");
    let mut server = Some(folder.start(&launch));
    let client = Client::new(address);
    create(&client);
    let put = client.send("PUT", FEED, &[("content-type", "application/json")], b"{}");
    put.expect("an answer").expect_status(200);
    let is_done = AtomicBool::new(false);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer {
            number,
            acknowledged: BTreeMap::new(),
            feeds: Vec::new(),
        })
        .collect();
    let (followed, watched) = thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut followed = Vec::new();
            follow(address, &is_done, &mut |message| followed.push(message));
            followed
        });
        let watcher = scope.spawn(|| {
            let mut watched = Vec::new();
            watch(address, &is_done, &mut |message| watched.push(message));
            watched
        });
        let done = Done(&is_done);
        for round in 0..=KILLS {
            let (sender, acknowledged) = channel();
            let known = writers.iter().map(|writer| writer.acknowledged.len());
            let repeated = known.sum::<usize>() as u64 / BATCH as u64;
            thread::scope(|scope| {
                for writer in &mut writers {
                    let (client, sender) = (Client::new(address), sender.clone());
                    scope.spawn(move || writer.send(&client, BATCHES, &sender));
                }
                drop(sender);
                if round < KILLS {
                    wait_acknowledged(&acknowledged, repeated + 10 + random.below(40));
                    server.take().expect("it runs").kill();
                }
            });
            if round < KILLS {
                server = Some(folder.start(&launch));
            }
        }
        drop(done);
        (
            follower.join().expect("no panic"),
            watcher.join().expect("no panic"),
        )
    });
    let mut expected: BTreeMap<i64, String> = BTreeMap::new();
    for writer in &writers {
        assert_eq!(writer.acknowledged.len() as u64, BATCHES * BATCH as u64);
        for (id, sequence) in &writer.acknowledged {
            assert_eq!(
                expected.insert(*sequence, id.clone()),
                None,
                "{sequence} is used twice"
            );
        }
    }
    // Each feed that the writers created is found, and has its first message once.
    let search = json!({"where": {"property": "measurement", "equals": "inbox"}, "limit": 1_000});
    let found = client.post_json("/v1/tables/chat/feeds/search", &search);
    let found = found.expect_status(200).json();
    let inboxes = found["timelines"].as_array().expect("a list");
    assert_eq!(inboxes.len() as u64, WRITERS * BATCHES);
    for inbox in inboxes {
        let id = inbox["id"].as_str().expect("a text");
        let counted = client.get(&format!("/v1/tables/chat/feeds/{id}/messages/count"));
        assert_eq!(counted.expect_status(200).json()["count"], 1);
    }
    let shown = |messages: &[Value]| -> Vec<(i64, String)> {
        let shown = messages.iter().map(|message| {
            let id = message["id"].as_str().expect("an id").to_owned();
            assert_eq!(message["columns"]["text"], format!("message {id}"));
            (sequence_of(message), id)
        });
        shown.collect()
    };
    let expected: Vec<(i64, String)> = expected.into_iter().collect();
    assert_eq!(shown(&all(&client)), expected);
    assert_eq!(shown(&followed), expected, "the follower");
    assert_eq!(shown(&watched), expected, "the watcher");
    check_folder(&folder, server.expect("it runs"), &launch);
}

/// Sends a request until the server answers. `null` is an empty body.
pub(super) fn send_over_restarts(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let headers = [("content-type", "application/json")];
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let sent = wait::until(PATIENCE, || {
        let response = client.send(method, path, &headers, body.as_bytes()).ok()?;
        (response.status != 503).then_some(response)
    });
    sent.expect("the server answers in time")
}

/// Sends, edits, recalls and deletes messages at random, over restarts of the server.
fn change_at_random(address: SocketAddr, writer: u64, random: &mut Random, acknowledged: &Sender<()>) {
    let client = Client::new(address);
    let mut sequences: Vec<String> = Vec::new();
    for number in 0..CHANGES {
        let target = match sequences.is_empty() || random.is(40) {
            true => None,
            false => Some(random.below(sequences.len() as u64) as usize),
        };
        let Some(at) = target else {
            let id = format!("{writer}-{number}");
            let message = json!({"id": id, "columns": {"text": format!("new {number}"), "note": "x"}});
            let path = format!("{FEED}/messages");
            let sent = send_over_restarts(&client, "POST", &path, &json!({"messages": [message]}));
            let sent = sent.expect_status(200).json();
            sequences.push(sequence_of(&sent["messages"][0]).to_string());
            let _ = acknowledged.send(());
            continue;
        };
        let path = format!("{FEED}/messages/{}", sequences[at]);
        let edit = json!({"columns": {"text": format!("edit {number}")}, "clear": ["note"]});
        let (response, statuses) = match random.below(4) {
            // A repeated deletion finds no message.
            0 => {
                sequences.remove(at);
                let deleted = send_over_restarts(&client, "DELETE", &path, &Value::Null);
                (deleted, [200, 404])
            }
            1 => {
                let recalled = send_over_restarts(&client, "POST", &format!("{path}/recall"), &Value::Null);
                (recalled, [200, 200])
            }
            // Recalled messages cannot be edited.
            _ => (send_over_restarts(&client, "PATCH", &path, &edit), [200, 409]),
        };
        assert!(statuses.contains(&response.status), "{}", response.text());
        let _ = acknowledged.send(());
    }
}

/// Applies a message or event to the copy of a follower.
pub(super) fn apply(copy: &mut BTreeMap<i64, Value>, message: &Value) {
    let target = message["target"]
        .as_str()
        .and_then(|text| text.parse::<i64>().ok());
    let Some(kind) = message["event"].as_str() else {
        copy.insert(sequence_of(message), message["columns"].clone());
        return;
    };
    let target = target.expect("an event has a target");
    match kind {
        "delete" => drop(copy.remove(&target)),
        "recall" => drop(copy.get_mut(&target).map(|columns| *columns = json!({}))),
        "edit" => {
            // The message was deleted before its page was read, so the copy does not have it.
            let Some(columns) = copy.get_mut(&target).and_then(Value::as_object_mut) else {
                return;
            };
            for (name, value) in message["columns"].as_object().expect("columns") {
                match value {
                    Value::Null => drop(columns.remove(name)),
                    value => drop(columns.insert(name.clone(), value.clone())),
                }
            }
        }
        kind => panic!("unknown event {kind}"),
    }
}

#[test]
fn a_follower_that_applies_events_has_all_messages_over_kills() {
    let seed = seed("a_follower_that_applies_events_has_all_messages_over_kills");
    let folder = DataFolder::of_suite();
    let address = free_address();
    let launch = Launch::default().listen(address);
    let mut server = Some(folder.start(&launch));
    let client = Client::new(address);
    create(&client);
    let put = client.send("PUT", FEED, &[("content-type", "application/json")], b"{}");
    put.expect("an answer").expect_status(200);
    let is_done = AtomicBool::new(false);
    let copy = thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut copy = BTreeMap::new();
            follow(address, &is_done, &mut |message| apply(&mut copy, &message));
            copy
        });
        let done = Done(&is_done);
        let (sender, acknowledged) = channel();
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let (sender, mut random) = (sender.clone(), Random::new(seed.wrapping_add(number)));
                // Each writer changes only messages that it has sent.
                scope.spawn(move || change_at_random(address, number, &mut random, &sender))
            })
            .collect();
        for _ in 0..2 {
            wait_acknowledged(&acknowledged, CHANGES / 2);
            server.take().expect("it runs").kill();
            server = Some(folder.start(&launch));
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
        drop(done);
        follower.join().expect("no panic")
    });
    let stored = all(&client);
    let kinds = |kind: &str| stored.iter().filter(|message| message["event"] == kind).count();
    for kind in ["edit", "recall", "delete"] {
        assert!(kinds(kind) > 0, "no {kind}");
    }
    let messages = stored.iter().filter(|message| message["event"].is_null());
    let messages: BTreeMap<i64, Value> = messages
        .map(|message| (sequence_of(message), message["columns"].clone()))
        .collect();
    assert_eq!(copy, messages);
    check_folder(&folder, server.expect("it runs"), &launch);
}
