//! Watches of feeds and inboxes, and requests that wait for messages. Each message is sent exactly once,
//! although clients reconnect or read slowly and memberships change.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_engine::model::Tier;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_http::HttpSettings;
use tideline_testkit::{Random, seed};

use crate::client::{Response, Server};
use crate::watches::{metric, until_stuck};

/// Longest time until an event.
const PATIENCE: Duration = Duration::from_secs(30);
const CHAT: &str = "/v1/tables/chat";
const LOBBY: &str = "/v1/tables/chat/feeds/room,name=lobby";

/// Server-sent event.
#[derive(Debug)]
struct Event {
    id: Option<String>,
    name: String,
    data: Value,
}

/// Open watch.
struct Watch {
    stream: BufReader<TcpStream>,
    /// Received text that is not parsed yet.
    text: String,
}

impl Watch {
    /// Opens a watch, and checks that its first event is `ready`. Returns its cursor too.
    fn open(server: &Server, path: &str, last_event: Option<&str>) -> (Self, String) {
        let mut watch = Self::connect(server, path, last_event);
        let ready = watch.next();
        assert_eq!(ready.name, "ready", "{ready:?}");
        let cursor = ready.data["cursor"].as_str().expect("a cursor").to_owned();
        assert_eq!(ready.id.as_deref(), Some(&*cursor));
        (watch, cursor)
    }

    fn connect(server: &Server, path: &str, last_event: Option<&str>) -> Self {
        let mut stream = server.connect();
        let last_event = last_event.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{last_event}\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).expect("a status");
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).expect("a header");
        }
        Self {
            stream,
            text: String::new(),
        }
    }

    /// Returns the next event; `None` at the end of the watch.
    fn next_if_any(&mut self) -> Option<Event> {
        let began = Instant::now();
        loop {
            // Comments arrive even if there are no events, so the timeout of the reads does not limit the wait.
            assert!(began.elapsed() < PATIENCE, "an event in time");
            let Some((event, rest)) = self.text.split_once("\n\n") else {
                let mut size = String::new();
                self.stream.read_line(&mut size).expect("a chunk in time");
                let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).expect("a chunk");
                if size == 0 {
                    return None;
                }
                self.text
                    .push_str(std::str::from_utf8(&chunk[..size]).expect("UTF-8"));
                continue;
            };
            let (mut id, mut name, mut data) = (None, String::new(), Value::Null);
            for line in event.lines() {
                match line.split_once(": ") {
                    Some(("id", value)) => id = Some(value.to_owned()),
                    Some(("event", value)) => value.clone_into(&mut name),
                    Some(("data", value)) => data = serde_json::from_str(value).expect("one line of JSON"),
                    _ => {}
                }
            }
            self.text = rest.to_owned();
            if !name.is_empty() {
                return Some(Event { id, name, data });
            }
        }
    }

    fn next(&mut self) -> Event {
        self.next_if_any().expect("the watch goes on")
    }

    /// Reads events until `count` messages have arrived. Returns the messages, and the id of the last event.
    fn messages(&mut self, count: usize) -> (Vec<Value>, String) {
        let (mut messages, mut id) = (Vec::new(), None);
        while messages.len() < count {
            let event = self.next();
            assert_eq!(event.name, "messages", "{event:?}");
            messages.extend(event.data["messages"].as_array().expect("a list").iter().cloned());
            id = event.id;
        }
        assert_eq!(messages.len(), count, "{messages:?}");
        (messages, id.expect("an id"))
    }
}

fn create(server: &Server, feed: &Value) {
    let body = json!({"name": "chat", "model": "feed", "feed": feed}).to_string();
    server.json("POST", "/v1/tables", &body).expect(201);
}

fn start() -> Server {
    let server = Server::start();
    create(&server, &json!({}));
    server
}

fn send_to(server: &Server, feed: &str, texts: &[&str]) -> Vec<String> {
    let messages: Vec<Value> = texts
        .iter()
        .map(|text| json!({"columns": {"text": text}}))
        .collect();
    let path = format!("{CHAT}/feeds/{feed}/messages");
    let body = json!({"messages": messages}).to_string();
    let sent = server.json("POST", &path, &body).expect(200);
    sequences(&sent["messages"])
}

fn send(server: &Server, texts: &[&str]) -> Vec<String> {
    send_to(server, "room,name=lobby", texts)
}

fn sequences(messages: &Value) -> Vec<String> {
    let messages = messages.as_array().expect("a list").iter();
    messages
        .map(|message| message["sequence"].as_str().expect("a number").to_owned())
        .collect()
}

fn texts(messages: &[Value]) -> Vec<&str> {
    let texts = messages.iter();
    texts
        .map(|message| message["columns"]["text"].as_str().expect("a text"))
        .collect()
}

/// Waits until this number of watches and waiting requests is open.
fn until_open(server: &Server, count: f64) {
    let open = || metric(server, "tideline_feed_watches");
    let began = Instant::now();
    // Each check is a request, so the loop does not need a pause.
    while open() != count && began.elapsed() < Duration::from_secs(20) {}
    assert_eq!(open(), count);
}

fn refused(response: &Response, status: u16, said: &str) {
    let body = response.expect(status);
    let message = body["message"].as_str().expect("a text");
    assert!(message.contains(said), "{message}");
}

#[test]
fn a_watch_sends_each_message_once_and_continues_after_its_id() {
    let server = start();
    let sent = send(&server, &["a", "b"]);
    let watch = format!("{LOBBY}/watch");
    // A watch without a cursor begins after the newest message.
    let (mut now, cursor) = Watch::open(&server, &watch, None);
    assert!(cursor > sent[1]);
    let (mut all, _) = Watch::open(&server, &format!("{watch}?after=0"), None);
    let (messages, id) = all.messages(2);
    assert_eq!((texts(&messages), id), (vec!["a", "b"], sent[1].clone()));
    send(&server, &["c"]);
    assert_eq!(texts(&now.messages(1).0), ["c"]);
    let (messages, id) = all.messages(1);
    assert_eq!(texts(&messages), ["c"]);
    drop(all);
    send(&server, &["d"]);
    let edit = json!({"columns": {"text": "B"}}).to_string();
    server
        .json("PATCH", &format!("{LOBBY}/messages/{}", sent[1]), &edit)
        .expect(200);
    // The header takes precedence over the parameter.
    let (mut again, cursor) = Watch::open(&server, &format!("{watch}?after=0"), Some(&id));
    assert_eq!(cursor, id);
    let (messages, _) = again.messages(2);
    assert_eq!(texts(&messages), ["d", "B"]);
    assert_eq!(
        (&messages[1]["event"], &messages[1]["target"]),
        (&json!("edit"), &json!(sent[1]))
    );
    // This watch has no events, returns some columns, and ends after the stored messages.
    let ended = server
        .get(&format!("{watch}?after=0&events=false&columns=x*&for=0s"))
        .text();
    assert_eq!(ended.matches("\"sequence\"").count(), 4, "{ended}");
    assert!(
        !ended.contains("\"text\"") && !ended.contains("\"edit\""),
        "{ended}"
    );
}

#[test]
fn a_watch_of_no_duration_sends_all_existing_messages() {
    let server = Server::start();
    create(&server, &json!({"inboxes": {}}));
    member(&server, "PUT", "room,name=lobby", "ann").expect(200);
    let text: Vec<String> = (0..250).map(|number| number.to_string()).collect();
    let text: Vec<&str> = text.iter().map(String::as_str).collect();
    let sent = send(&server, &text);
    let last = sent.last().expect("a message");
    for path in [
        format!("{LOBBY}/watch?after=0&for=0s"),
        format!("{LOBBY}/watch?after=0&for=0s&as=ann"),
        format!("{CHAT}/users/ann/inbox/watch?after=0&for=0s"),
    ] {
        let watched = server.get(&path).text();
        assert_eq!(watched.matches("\"sequence\"").count(), 250, "{path}");
        assert!(
            watched.contains(&format!("id: {last}\nevent: messages")),
            "{path}"
        );
    }
    // No message is left, and the watch ends nevertheless.
    let watched = server.get(&format!("{LOBBY}/watch?after={last}&for=0s")).text();
    assert_eq!(watched.matches("event:").count(), 1, "{watched}");
}

#[test]
fn an_empty_last_event_does_not_hide_the_cursor() {
    let server = start();
    let sent = send(&server, &["one", "two"]);
    let path = format!("{LOBBY}/watch?for=0s&after={}", sent[0]);
    let watched = server.send("GET", &path, &[("last-event-id", "")], b"").text();
    assert!(watched.contains("two") && !watched.contains("one"), "{watched}");
}

#[test]
fn watches_of_one_feed_share_their_pages() {
    const WATCHES: usize = 40;
    const ROUNDS: usize = 20;
    let server = start();
    send(&server, &["first"]);
    send_to(&server, "room,name=other", &["first"]);
    let open = |feed: &str| Watch::open(&server, &format!("{CHAT}/feeds/{feed}/watch"), None).0;
    let mut watches: Vec<Watch> = (0..WATCHES).map(|_| open("room,name=lobby")).collect();
    let mut other = open("room,name=other");
    assert_eq!(metric(&server, "tideline_feed_watches"), (WATCHES + 1) as f64);
    for round in 0..ROUNDS {
        let text = round.to_string();
        send(&server, &[&text, "."]);
        for watch in &mut watches {
            assert_eq!(texts(&watch.messages(2).0), [&text, "."]);
        }
    }
    let taken = metric(&server, "tideline_feed_watch_steps_total");
    let shared = metric(&server, "tideline_feed_watch_steps_shared_total");
    assert!(shared > 5.0 * taken, "{shared} shared, {taken} read");
    send_to(&server, "room,name=other", &["end"]);
    assert_eq!(texts(&other.messages(1).0), ["end"]);
    drop((watches, other));
    until_open(&server, 0.0);
}

#[test]
fn a_slow_watch_holds_little_and_misses_nothing() {
    let server = Server::with(HttpSettings {
        answer_timeout: Duration::from_secs(600),
        ..HttpSettings::default()
    });
    create(&server, &json!({}));
    send(&server, &["first"]);
    let (mut slow, _) = Watch::open(&server, &format!("{LOBBY}/watch"), None);
    let long = "x".repeat(60_000);
    const MESSAGES: usize = 500;
    // More than fits into the buffers of the socket.
    for number in 0..MESSAGES {
        send(&server, &[&format!("{number}-{long}")]);
    }
    let held = || metric(&server, "tideline_memory_requests_bytes");
    let began = Instant::now();
    while held() > 0.0 && began.elapsed() < Duration::from_secs(60) {}
    assert_eq!(held(), 0.0);
    let mut came = 0;
    while came < MESSAGES {
        let event = slow.next();
        assert_eq!(event.name, "messages");
        for message in event.data["messages"].as_array().expect("a list") {
            let text = message["columns"]["text"].as_str().expect("a text");
            assert!(text.starts_with(&format!("{came}-")), "{came}: {}", &text[..10]);
            came += 1;
        }
    }
}

#[test]
fn a_client_that_stops_reading_is_told_to_resume_from_its_cursor() {
    let server = Server::with(HttpSettings {
        answer_timeout: Duration::from_secs(16),
        ..HttpSettings::default()
    });
    create(&server, &json!({}));
    send(&server, &["first"]);
    let path = format!("{LOBBY}/watch");
    let (mut slow, _) = Watch::open(&server, &path, None);
    let (long, mut sent) = ("x".repeat(500_000), Vec::new());
    until_stuck(&server, "tideline_feed_watch_steps_total", || {
        sent.extend(send(&server, &[&long]));
    });
    // The watch ends although its client has not read the queued events.
    until_open(&server, 0.0);
    let mut read = Vec::new();
    let last = loop {
        let event = slow.next();
        match event.name.as_str() {
            "messages" => read.extend(sequences(&event.data["messages"])),
            _ => break event,
        }
    };
    assert_eq!(last.name, "resume");
    assert!(
        !read.is_empty() && read.len() < sent.len(),
        "{} messages",
        read.len()
    );
    let cursor = read.last().cloned();
    assert_eq!(last.id, cursor);
    assert_eq!(last.data, json!({"cursor": cursor, "reason": "slow"}));
    assert!(slow.next_if_any().is_none());
    let (mut again, _) = Watch::open(&server, &path, cursor.as_deref());
    let (messages, _) = again.messages(sent.len() - read.len());
    read.extend(sequences(&json!(messages)));
    assert_eq!(read, sent);
}

#[test]
fn watches_of_one_feed_that_are_idle_hold_no_pages() {
    let server = start();
    let text = "x".repeat(100_000);
    for _ in 0..10 {
        send(&server, &[&text]);
    }
    let path = format!("{LOBBY}/watch?after=0");
    let mut watches: Vec<Watch> = (0..3).map(|_| Watch::open(&server, &path, None).0).collect();
    for watch in &mut watches {
        watch.messages(10);
    }
    let held = || metric(&server, "tideline_memory_requests_bytes");
    let began = Instant::now();
    while held() > 0.0 && began.elapsed() < Duration::from_secs(20) {}
    assert_eq!(held(), 0.0);
    send(&server, &["y"]);
    for watch in &mut watches {
        assert_eq!(texts(&watch.messages(1).0), ["y"]);
    }
}

#[test]
fn json_with_line_breaks_is_one_line_of_data() {
    let server = Server::start();
    create(&server, &json!({"columns": [{"name": "card", "type": "json"}]}));
    let body =
        "{\"messages\": [{\"columns\": {\"card\": {\"a\":\n1,\r\n\"b\": [\n]}, \"text\": \"x\\ny\"}}]}";
    server
        .json("POST", &format!("{LOBBY}/messages"), body)
        .expect(200);
    let (mut watch, _) = Watch::open(&server, &format!("{LOBBY}/watch?after=0"), None);
    let (messages, _) = watch.messages(1);
    assert_eq!(
        messages[0]["columns"],
        json!({"card": {"a": 1, "b": []}, "text": "x\ny"})
    );
}

#[test]
fn a_watch_ends_with_its_feed_and_with_the_service() {
    let mut server = start();
    send(&server, &["a"]);
    send_to(&server, "room,name=other", &["a"]);
    let watch = format!("{LOBBY}/watch");
    let (mut deleted, _) = Watch::open(&server, &watch, None);
    let (mut stopped, _) = Watch::open(&server, &format!("{CHAT}/feeds/room,name=other/watch"), None);
    assert_eq!(server.send("DELETE", LOBBY, &[], b"").status, 204);
    let failed = deleted.next();
    assert_eq!((failed.name.as_str(), failed.id), ("failed", None));
    assert_eq!(failed.data["code"], "not_found", "{}", failed.data);
    assert!(deleted.next_if_any().is_none());
    refused(&server.get(&watch), 404, "has no feed");
    let mut waits = server.connect();
    let path = format!("{CHAT}/feeds/room,name=other/messages?wait=5m&after=9000000000000000000");
    waits
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())
        .expect("sent");
    until_open(&server, 2.0);
    server.request_stop();
    assert!(stopped.next_if_any().is_none());
    assert_eq!(Response::read(&mut waits).expect(200)["messages"], json!([]));
    server.wait_stopped();
}

#[test]
fn a_watch_begins_with_messages_in_the_cold_tier() {
    let server = Server::start();
    create(&server, &json!({"parts": {"every": "day"}, "inboxes": {}}));
    member(&server, "PUT", "room,name=lobby", "ann").expect(200);
    let old = send(&server, &["old", "older"]);
    server.clock.advance(2 * NANOS_PER_DAY);
    send(&server, &["new"]);
    server.engine.seal().expect("it is flushed");
    let table = server.engine.feed_table("chat").expect("it exists");
    let parts = table.settings().parts.clone().expect("parts");
    let part = parts.every.number_of(old[0].parse().expect("a number"));
    let mut step = |_: &MoveProgress| ControlFlow::Continue(());
    let id = table.table().points().id();
    let moved = server.engine.move_table_part(id, part, Tier::Cold, &mut step);
    assert_ne!(moved.expect("it is moved"), MoveEnd::Stopped);
    let paths = [format!("{LOBBY}/watch"), format!("{CHAT}/users/ann/inbox/watch")];
    let open = |path| Watch::open(&server, &format!("{path}?after=0"), None).0;
    let mut watches = paths.map(open);
    for watch in &mut watches {
        assert_eq!(texts(&watch.messages(3).0), ["old", "older", "new"]);
    }
    send(&server, &["live"]);
    for watch in &mut watches {
        assert_eq!(texts(&watch.messages(1).0), ["live"]);
    }
}

#[test]
fn watches_end_with_their_table() {
    let server = start();
    send(&server, &["a"]);
    let path = format!("{LOBBY}/watch");
    let (mut watch, _) = Watch::open(&server, &path, None);
    server
        .json("POST", "/v1/tables", r#"{"name": "series"}"#)
        .expect(201);
    // Watches with equal requests share what they read.
    let open = |_| Watch::open(&server, "/v1/tables/series/watch", None).0;
    let mut points: Vec<Watch> = (0..2).map(open).collect();
    let steps = || {
        metric(&server, "tideline_watch_steps_total") + metric(&server, "tideline_watch_steps_shared_total")
    };
    let drop_table = |table: &str| {
        let dropped = server.send("DELETE", &format!("/v1/tables/{table}"), &[], b"");
        assert!((200..300).contains(&dropped.status), "{}", dropped.text());
    };
    let before = steps();
    drop_table("chat");
    // Wait until both watches of points have read once, without finding events. Then drop their table while they
    // wait.
    let began = Instant::now();
    while steps() < before + 2.0 && began.elapsed() < Duration::from_secs(20) {}
    drop_table("series");
    for watch in points.iter_mut().chain([&mut watch]) {
        let failed = watch.next();
        assert_eq!(
            (failed.name.as_str(), &failed.data["code"]),
            ("failed", &json!("not_found"))
        );
        assert!(watch.next_if_any().is_none());
    }
}

#[test]
fn a_request_waits_for_the_first_message() {
    let server = start();
    let first = send(&server, &["a"]).remove(0);
    let read = |query: &str| server.get(&format!("{LOBBY}/messages?{query}"));
    // A request does not wait if there is a message.
    assert_eq!(
        sequences(&read("wait=5m").expect(200)["messages"]),
        std::slice::from_ref(&first)
    );
    let began = Instant::now();
    let none = read(&format!("wait=50ms&after={first}")).expect(200);
    assert_eq!((&none["messages"], &none["next"]), (&json!([]), &json!(first)));
    assert!(began.elapsed() >= Duration::from_millis(50));
    thread::scope(|scope| {
        let waits = scope.spawn(|| read(&format!("wait=5m&after={first}&events=false")).expect(200));
        until_open(&server, 1.0);
        // Neither other feeds nor events end the wait.
        send_to(&server, "room,name=other", &["x"]);
        let recall = format!("{LOBBY}/messages/{first}/recall");
        server.json("POST", &recall, "").expect(200);
        let sent = send(&server, &["b"]);
        let page = waits.join().expect("an answer");
        assert_eq!(sequences(&page["messages"]), sent);
        assert_eq!(page["next"], sent[0]);
    });
    for query in ["wait=1s&order=descending", "wait=1s&before=5", "wait=1s&to=now"] {
        refused(&read(query), 400, "new messages follow the others");
    }
    refused(&read("wait=301s"), 400, "from 0s to 5m");
    refused(&read("wait=-1s"), 400, "wait");
    refused(
        &server.get(&format!("{LOBBY}/messages/count?wait=1s")),
        400,
        "parameter wait",
    );
    refused(
        &server.get(&format!("{LOBBY}/watch?after=x")),
        400,
        "parameter after",
    );
    refused(
        &server.get(&format!("{LOBBY}/watch?for=8d")),
        400,
        "from 0s to 7d",
    );
    refused(
        &server.get(&format!("{LOBBY}/watch?order=descending")),
        400,
        "order",
    );
    refused(
        &server.get(&format!("{CHAT}/users/ann/inbox/watch")),
        422,
        "inboxes",
    );
    refused(&server.get("/v1/tables/default/feeds/a/watch"), 422, "model");
}

#[test]
fn the_number_of_watches_is_limited() {
    let server = Server::with(HttpSettings {
        feed_watches_max: 1,
        turn_timeout: Duration::from_millis(50),
        ..HttpSettings::default()
    });
    create(&server, &json!({}));
    send(&server, &["a"]);
    let (watch, _) = Watch::open(&server, &format!("{LOBBY}/watch"), None);
    for path in ["watch?for=0s", "messages?wait=1s"] {
        let body = server.get(&format!("{LOBBY}/{path}")).expect(503);
        assert_eq!(
            (&body["code"], &body["retryable"]),
            (&json!("overloaded"), &json!(true))
        );
    }
    server.get(&format!("{LOBBY}/messages")).expect(200);
    drop(watch);
    until_open(&server, 0.0);
    let ended = server.get(&format!("{LOBBY}/watch?after=0&for=0s")).text();
    assert!(ended.contains("\"a\""), "{ended}");
}

/// A watch of a table with manual numbers begins after the newest one.
#[test]
fn a_watch_follows_manual_numbers() {
    let server = Server::start();
    create(&server, &json!({"sequence": "manual"}));
    let send = |number: i64| {
        let body = json!({"messages": [{"sequence": number, "columns": {"text": "x"}}]}).to_string();
        server
            .json("POST", &format!("{LOBBY}/messages"), &body)
            .expect(200);
    };
    send(-7);
    let (mut watch, cursor) = Watch::open(&server, &format!("{LOBBY}/watch"), None);
    assert_eq!(cursor, "-7");
    send(-5);
    assert_eq!(watch.messages(1).1, "-5");
}

fn member(server: &Server, method: &str, feed: &str, user: &str) -> Response {
    server.json(method, &format!("{CHAT}/feeds/{feed}/members/{user}"), "{}")
}

#[test]
fn an_inbox_shows_new_memberships_and_pulled_feeds_at_once() {
    let server = Server::start();
    create(&server, &json!({"inboxes": {"push_max": 1}}));
    let inbox = format!("{CHAT}/users/ann/inbox");
    // The inbox of the user does not exist yet.
    let (mut watch, _) = Watch::open(&server, &format!("{inbox}/watch"), None);
    send(&server, &["before"]);
    member(&server, "PUT", "room,name=lobby", "ann").expect(200);
    send(&server, &["pushed"]);
    let (messages, _) = watch.messages(1);
    assert_eq!(texts(&messages), ["pushed"]);
    assert!(messages[0]["feed"].is_string());
    // The second member switches the feed to pulled messages.
    member(&server, "PUT", "room,name=lobby", "bea").expect(200);
    send(&server, &["pulled"]);
    assert_eq!(texts(&watch.messages(1).0), ["pulled"]);
    send_to(&server, "room,name=other", &["unseen"]);
    member(&server, "PUT", "room,name=other", "ann").expect(200);
    send_to(&server, "room,name=other", &["other"]);
    assert_eq!(texts(&watch.messages(1).0), ["other"]);
    assert_eq!(member(&server, "DELETE", "room,name=lobby", "ann").status, 204);
    send(&server, &["left"]);
    send_to(&server, "room,name=other", &["end"]);
    assert_eq!(texts(&watch.messages(1).0), ["end"]);
    // A request waits in the same way.
    let newest = server
        .get(&format!("{inbox}?order=descending&limit=1"))
        .expect(200);
    let newest = newest["messages"][0]["sequence"]
        .as_str()
        .expect("a number")
        .to_owned();
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.get(&format!("{inbox}?wait=5m&after={newest}")).expect(200));
        until_open(&server, 2.0);
        send_to(&server, "room,name=other", &["waited"]);
        let page = waits.join().expect("an answer");
        assert_eq!(texts(page["messages"].as_array().expect("a list")), ["waited"]);
    });
}

#[test]
fn a_blocked_sender_is_not_shown_until_the_block_ends() {
    let server = Server::start();
    create(&server, &json!({"inboxes": {}}));
    member(&server, "PUT", "room,name=lobby", "ann").expect(200);
    let send_as = |sender: &str, text: &str| {
        let body = json!({"messages": [{"columns": {"text": text}}]}).to_string();
        server
            .json("POST", &format!("{LOBBY}/messages?as={sender}"), &body)
            .expect(200);
    };
    let inbox = format!("{CHAT}/users/ann/inbox");
    let shown = || {
        let page = server.get(&inbox).expect(200);
        let messages = page["messages"].as_array().expect("a list").clone();
        texts(&messages)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let unread = || server.get(&format!("{CHAT}/users/ann/conversations")).expect(200)["unread"].clone();
    let (mut watch, _) = Watch::open(&server, &format!("{inbox}/watch"), None);
    send_as("bea", "one");
    send_as("cid", "two");
    watch.messages(2);
    let blocks = format!("{CHAT}/users/ann/blocks");
    let block = |method: &str, sender: &str| server.send(method, &format!("{blocks}/{sender}"), &[], b"");
    // Repeating a request is safe.
    for _ in 0..2 {
        assert_eq!(block("PUT", "bea").expect(200)["sender"], "bea");
    }
    block("PUT", "dan%2Fx").expect(200);
    assert_eq!(
        server.get(&blocks).expect(200)["senders"],
        json!(["bea", "dan/x"])
    );
    assert_eq!((shown(), unread()), (vec!["two".to_owned()], json!(1)));
    send_as("bea", "three");
    send_as("cid", "four");
    assert_eq!(texts(&watch.messages(1).0), ["four"]);
    for _ in 0..2 {
        assert_eq!(block("DELETE", "bea").status, 204);
    }
    assert_eq!(
        (shown(), unread()),
        (
            ["one", "two", "three", "four"].map(str::to_owned).to_vec(),
            json!(4)
        )
    );
    assert_eq!(server.get(&blocks).expect(200)["senders"], json!(["dan/x"]));
    refused(&block("PUT", &"x".repeat(256)), 400, "256 bytes");
    for number in 0..999 {
        block("PUT", &format!("sender-{number}")).expect(200);
    }
    let body = block("PUT", "one-more").expect(400);
    assert_eq!(
        (&body["code"], &body["limit"]),
        (&json!("over_limit"), &json!(1_000))
    );
    block("PUT", "dan%2Fx").expect(200);
    refused(
        &server.get("/v1/tables/chat-users/users/ann/blocks"),
        422,
        "model",
    );
}

/// Threads send to feeds and change memberships, so that feeds often switch between push and pull. A watch of an
/// inbox that reconnects at random must return the messages of the inbox, each once, and in their order.
#[test]
fn a_watch_misses_and_repeats_nothing_while_everything_changes() {
    const FEEDS: usize = 3;
    const MESSAGES: usize = 150;
    let seed = seed("feed watches");
    let server = Server::start();
    create(&server, &json!({"inboxes": {"push_max": 2}}));
    let feed = |number: usize| format!("room,name=r{number}");
    for number in 0..FEEDS {
        send_to(&server, &feed(number), &["first"]);
        member(&server, "PUT", &feed(number), "ann").expect(200);
    }
    let (_, begin) = Watch::open(&server, &format!("{CHAT}/users/ann/inbox/watch?for=0s"), None);
    let is_done = AtomicBool::new(false);
    let watched = thread::scope(|scope| {
        let (server, is_done, begin) = (&server, &is_done, &begin);
        let senders: Vec<_> = (0..FEEDS)
            .map(|number| {
                scope.spawn(move || {
                    for message in 0..MESSAGES {
                        send_to(server, &feed(number), &[&format!("{number}-{message}")]);
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut random = Random::new(seed);
            while !is_done.load(Ordering::SeqCst) {
                let feed = feed(random.below(FEEDS as u64) as usize);
                let user = ["bea", "cid", "dan"][random.below(3) as usize];
                let method = ["PUT", "DELETE"][random.below(2) as usize];
                // A repeated request to leave is refused.
                let _ = member(server, method, &feed, user);
            }
        });
        let watch = scope.spawn(move || {
            let mut random = Random::new(seed ^ 1);
            let (mut found, mut cursor) = (Vec::new(), begin.clone());
            while found.len() < FEEDS * MESSAGES {
                let path = format!("{CHAT}/users/ann/inbox/watch");
                let (mut watch, _) = Watch::open(server, &path, Some(&cursor));
                for _ in 0..=random.below(20) {
                    let event = watch.next();
                    assert_eq!(event.name, "messages", "{event:?}");
                    found.extend(sequences(&event.data["messages"]));
                    cursor = event.id.expect("an id");
                    if found.len() >= FEEDS * MESSAGES {
                        break;
                    }
                }
            }
            found
        });
        senders
            .into_iter()
            .for_each(|sender| sender.join().expect("no panic"));
        let watched = watch.join();
        is_done.store(true, Ordering::SeqCst);
        watched.expect("no panic")
    });
    let distinct: BTreeSet<&String> = watched.iter().collect();
    assert_eq!(distinct.len(), FEEDS * MESSAGES, "each message comes once");
    assert!(watched.is_sorted(), "in the order of their numbers");
}
