//! Webhooks: deliveries in order, over restarts, repeated and given up; replays; refused addresses.
//!
//! The receivers are real HTTP servers on loopback, which the settings allow as a listed network.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_change_stream::Position;
use tideline_http::{Backoff, ChangeSettings, HttpSettings, WebhookSettings};

use crate::client::{Response, Server};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const HOOK: &str = "/v1/changes/all/webhooks/shop";
const PATIENCE: Duration = Duration::from_secs(30);

/// Request that a receiver got.
struct Received {
    id: String,
    has_signature: bool,
    body: Value,
}

/// Reads a request; `None` if it is incomplete.
fn read_request(stream: &mut TcpStream) -> Option<Received> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("ASCII").to_ascii_lowercase();
    let header = |name: &str| {
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    let mut body = vec![0; header("content-length").parse().expect("a length")];
    stream.read_exact(&mut body).expect("a body");
    Some(Received {
        id: header("webhook-id"),
        has_signature: header("webhook-signature").starts_with("v1,"),
        body: serde_json::from_slice(&body).expect("JSON"),
    })
}

/// Sends a response. A response with status 429 asks for two minutes without requests.
fn respond(stream: &mut TcpStream, status: u16) {
    let wait = if status == 429 { "retry-after: 120\r\n" } else { "" };
    let response =
        format!("HTTP/1.1 {status} status\r\n{wait}content-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).expect("a response");
}

/// Starts a receiver that responds with these statuses, then with 200. It ends after `count` requests.
fn receiver(statuses: &'static [u16], count: usize) -> (u16, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for number in 0..count {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let Some(received) = read_request(&mut stream) else {
                return;
            };
            respond(&mut stream, statuses.get(number).copied().unwrap_or(200));
            if sender.send(received).is_err() {
                return;
            }
        }
    });
    (port, received)
}

fn settings() -> HttpSettings {
    HttpSettings {
        changes: ChangeSettings {
            webhooks: WebhookSettings {
                hosts: vec!["127.0.0.1".parse().expect("a host")],
                networks: vec!["127.0.0.1/32".parse().expect("a network")],
                ..WebhookSettings::default()
            },
            ..ChangeSettings::default()
        },
        ..HttpSettings::default()
    }
}

fn put(server: &Server, path: &str, body: &Value) -> Response {
    server.json("PUT", path, &body.to_string())
}

fn post(server: &Server, path: &str, body: &Value) -> Response {
    server.json("POST", path, &body.to_string())
}

fn start() -> Server {
    start_with(settings())
}

fn start_with(settings: HttpSettings) -> Server {
    let server = Server::with(settings);
    let wide = json!({"key": [{"name": "id", "type": "string"}]});
    post(
        &server,
        "/v1/tables",
        &json!({"name": "orders", "model": "wide", "wide": wide}),
    )
    .expect(201);
    put(&server, "/v1/changes/all", &json!({})).expect(200);
    server
}

fn create_hook(server: &Server, port: u16, batch: usize) {
    let hook = json!({"url": format!("http://127.0.0.1:{port}/in"), "secret": SECRET, "batch": batch});
    put(server, HOOK, &hook).expect(200);
}

fn write_row(server: &Server, id: &str) {
    let row = json!({"rows": [{"op": "put", "key": {"id": id}, "columns": {"n": 1}}]});
    post(server, "/v1/tables/orders/rows", &row).expect(200);
}

fn ids(received: &Received) -> Vec<&str> {
    let records = received.body["records"].as_array().expect("a list").iter();
    records
        .map(|record| record["key"]["id"].as_str().expect("an id"))
        .collect()
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = server.get("/metrics").text();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).expect("a metric")
}

/// Waits until a member of the webhook has a value.
fn await_state(server: &Server, member: &str, value: &Value) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let hook = server.get(HOOK).expect(200);
        if hook[member] == *value {
            return;
        }
        assert!(Instant::now() < deadline, "{hook}");
    }
}

#[test]
fn deliveries_are_signed_in_order_and_continue_after_a_restart() {
    let mut server = start();
    let (port, received) = receiver(&[], 3);
    create_hook(&server, port, 100);
    write_row(&server, "a");
    let first = received.recv_timeout(PATIENCE).expect("a delivery");
    assert_eq!((ids(&first), first.has_signature), (vec!["a"], true));
    assert_eq!(
        (&first.body["stream"], &first.body["webhook"]),
        (&json!("all"), &json!("shop"))
    );
    await_state(&server, "cursor", &first.body["next"]);
    let hook = server.get(HOOK).expect(200);
    assert_eq!((&hook["state"], &hook["failed"]), (&json!("active"), &json!(0)));
    assert!(
        !hook.to_string().contains("whsec") && !hook.to_string().contains("/in"),
        "{hook}"
    );
    server.wait_stopped();

    let server = Server::on(Arc::clone(&server.disk), settings());
    write_row(&server, "b");
    let second = received.recv_timeout(PATIENCE).expect("a delivery");
    assert_eq!(ids(&second), ["b"]);
    write_row(&server, "c");
    assert_eq!(ids(&received.recv_timeout(PATIENCE).expect("a delivery")), ["c"]);
}

#[test]
fn what_fails_for_a_while_is_repeated_before_anything_else() {
    let server = start();
    let (port, received) = receiver(&[503], 3);
    create_hook(&server, port, 1);
    write_row(&server, "a");
    write_row(&server, "b");
    let deliveries: Vec<Received> = (0..3)
        .map(|_| received.recv_timeout(PATIENCE).expect("a delivery"))
        .collect();
    let order: Vec<Vec<&str>> = deliveries.iter().map(ids).collect();
    assert_eq!(order, [["a"], ["a"], ["b"]]);
    assert_eq!(deliveries[0].id, deliveries[1].id);
    assert_ne!(deliveries[1].id, deliveries[2].id);
}

#[test]
fn what_is_refused_for_good_is_kept_replayed_or_discarded() {
    let server = start();
    let (port, received) = receiver(&[400, 400], 4);
    create_hook(&server, port, 1);
    for id in ["a", "b", "c"] {
        write_row(&server, id);
    }
    let order: Vec<String> = (0..3)
        .map(|_| ids(&received.recv_timeout(PATIENCE).expect("a delivery"))[0].to_owned())
        .collect();
    assert_eq!(order, ["a", "b", "c"], "the others follow");
    await_state(&server, "failed", &json!(2));
    await_state(&server, "state", &json!("active"));
    let failed = server.get(&format!("{HOOK}/failed")).expect(200);
    let failed = failed["failed"].as_array().expect("a list").clone();
    assert!(
        failed[0]["error"].as_str().expect("a text").contains("400"),
        "{failed:?}"
    );

    let id = failed[0]["id"].as_str().expect("an id");
    let replayed = post(&server, &format!("{HOOK}/replay"), &json!({"ids": [id]})).expect(200);
    assert_eq!(replayed["delivered"], 1);
    assert_eq!(ids(&received.recv_timeout(PATIENCE).expect("a delivery")), ["a"]);
    let id = failed[1]["id"].as_str().expect("an id");
    let discard = server.json("DELETE", &format!("{HOOK}/failed/{id}"), "");
    assert_eq!(discard.status, 204);
    await_state(&server, "failed", &json!(0));
    let again = post(&server, &format!("{HOOK}/replay"), &json!({"ids": [id]}));
    assert_eq!(again.expect(404)["code"], "not_found");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tideline_webhook_failed_total 2"), "{metrics}");
}

/// The ids of the deliveries have numbers of different lengths, so their order as texts is another one.
#[test]
fn a_replay_has_the_order_of_the_changes_and_ends_the_error() {
    let server = start();
    let (port, received) = receiver(&[400; 40], 80);
    create_hook(&server, port, 1);
    let keys: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    let rows: Vec<Value> = keys
        .iter()
        .map(|id| json!({"op": "put", "key": {"id": id}, "columns": {"n": 1}}))
        .collect();
    post(&server, "/v1/tables/orders/rows", &json!({"rows": rows})).expect(200);
    await_state(&server, "failed", &json!(40));
    let order = || -> Vec<String> {
        (0..40)
            .map(|_| ids(&received.recv_timeout(PATIENCE).expect("a delivery"))[0].to_owned())
            .collect()
    };
    assert_eq!(order(), keys);
    assert!(server.get(HOOK).expect(200)["error"].is_string());

    let replayed = post(&server, &format!("{HOOK}/replay"), &json!({})).expect(200);
    assert_eq!(replayed["delivered"], 40);
    assert_eq!(order(), keys);
    let hook = server.get(HOOK).expect(200);
    assert_eq!(
        (&hook["failed"], &hook["error"]),
        (&json!(0), &Value::Null),
        "{hook}"
    );
}

#[test]
fn a_webhook_that_has_stopped_is_reported() {
    let server = start();
    let (port, received) = receiver(&[400; 100], 102);
    create_hook(&server, port, 1);
    let rows: Vec<Value> = (0..102)
        .map(|id| json!({"op": "put", "key": {"id": format!("{id:03}")}, "columns": {"n": 1}}))
        .collect();
    post(&server, "/v1/tables/orders/rows", &json!({"rows": rows})).expect(200);
    await_state(&server, "state", &json!("stopped"));
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tideline_webhooks_stopped 1"), "{metrics}");
    let reasons = || server.get("/ready").expect(200)["reasons"].to_string();
    let stopped = reasons();
    assert!(
        stopped.contains("shop") && stopped.contains("has stopped"),
        "{stopped}"
    );

    let failed = server.get(&format!("{HOOK}/failed")).expect(200);
    let id = failed["failed"][0]["id"].as_str().expect("an id");
    let discard = server.json("DELETE", &format!("{HOOK}/failed/{id}"), "");
    assert_eq!(discard.status, 204);
    await_state(&server, "state", &json!("active"));
    assert!(!reasons().contains("has stopped"));
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tideline_webhooks_stopped 0"), "{metrics}");
    for _ in 0..102 {
        received
            .recv_timeout(PATIENCE)
            .expect("the other deliveries follow");
    }
}

/// The receiver asks for more time than the delivery has left.
#[test]
fn the_last_attempt_of_a_delivery_is_at_the_end_of_its_time() {
    let mut settings = settings();
    settings.changes.backoff = Backoff {
        give_up_after: Duration::from_secs(2),
        ..Backoff::default()
    };
    let server = start_with(settings);
    let (port, received) = receiver(&[429], 2);
    create_hook(&server, port, 1);
    write_row(&server, "a");
    for _ in 0..2 {
        assert_eq!(ids(&received.recv_timeout(PATIENCE).expect("a delivery")), ["a"]);
    }
    await_state(&server, "state", &json!("active"));
    assert_eq!(server.get(HOOK).expect(200)["failed"], 0);

    let (port, received) = receiver(&[429, 429], 2);
    create_hook(&server, port, 1);
    write_row(&server, "b");
    await_state(&server, "failed", &json!(1));
    let failed = server.get(&format!("{HOOK}/failed")).expect(200);
    assert_eq!(failed["failed"][0]["attempts"], 2, "{failed}");
    assert_eq!(received.iter().count(), 2);
}

#[test]
fn a_receiver_that_is_gone_ends_a_replay_and_pauses_its_webhook() {
    let server = start();
    let (port, received) = receiver(&[400, 400, 410], 5);
    let next = || received.recv_timeout(PATIENCE).expect("a delivery");
    create_hook(&server, port, 1);
    for id in ["a", "b"] {
        write_row(&server, id);
        assert_eq!(ids(&next()), [id]);
    }
    await_state(&server, "failed", &json!(2));
    let replayed = post(&server, &format!("{HOOK}/replay"), &json!({})).expect(200);
    assert_eq!(replayed["delivered"], 0, "{replayed}");
    assert_eq!(
        replayed["failed"].as_array().map(Vec::len),
        Some(1),
        "the other is not sent: {replayed}"
    );
    assert_eq!(ids(&next()), ["a"]);
    let hook = server.get(HOOK).expect(200);
    assert_eq!((&hook["state"], &hook["failed"]), (&json!("paused"), &json!(2)));
    let reason = hook["pause"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("410"), "{reason}");
    assert!(received.try_recv().is_err(), "nothing more is sent");

    post(&server, &format!("{HOOK}/resume"), &json!({})).expect(200);
    let replayed = post(&server, &format!("{HOOK}/replay"), &json!({})).expect(200);
    assert_eq!(replayed["delivered"], 2, "{replayed}");
    assert_eq!((ids(&next()), ids(&next())), (vec!["a"], vec!["b"]));
    await_state(&server, "state", &json!("active"));
}

#[test]
fn a_webhook_has_one_replay_at_a_time() {
    let server = start();
    let (port, received) = receiver(&[400], 1);
    create_hook(&server, port, 1);
    write_row(&server, "a");
    received.recv_timeout(PATIENCE).expect("a delivery");
    await_state(&server, "failed", &json!(1));
    let slow = TcpListener::bind("127.0.0.1:0").expect("a port");
    create_hook(&server, slow.local_addr().expect("an address").port(), 1);
    let replay = || post(&server, &format!("{HOOK}/replay"), &json!({}));
    std::thread::scope(|threads| {
        let first = threads.spawn(|| replay().expect(200));
        let (mut stream, _) = slow.accept().expect("a connection");
        let received = read_request(&mut stream).expect("a delivery");
        assert_eq!(ids(&received), ["a"]);
        let refused = replay().expect(409);
        assert_eq!(refused["code"], "conflict", "{refused}");
        respond(&mut stream, 200);
        assert_eq!(first.join().expect("no panic")["delivered"], 1);
    });
    assert_eq!(replay().expect(200)["delivered"], 0, "another replay can begin");
}

/// The webhook has read the changes of the other table, so nothing that it needs is freed.
#[test]
fn a_webhook_of_a_quiet_table_gets_no_gap_and_keeps_no_changes() {
    let mut settings = settings();
    settings.changes.bytes_max = 100_000;
    for hold in [false, true] {
        let mut server = start_with(settings.clone());
        let wide = json!({"key": [{"name": "id", "type": "string"}]});
        let table = json!({"name": "quiet", "model": "wide", "wide": wide});
        post(&server, "/v1/tables", &table).expect(201);
        put(&server, "/v1/changes/all", &json!({"tables": ["quiet"]})).expect(200);
        let (port, received) = receiver(&[], 2);
        let hook = json!({"url": format!("http://127.0.0.1:{port}/in"), "secret": SECRET, "hold": hold});
        put(&server, HOOK, &hook).expect(200);
        let write_quiet = |server: &Server, id: &str| {
            let row = json!({"rows": [{"op": "put", "key": {"id": id}}]});
            post(server, "/v1/tables/quiet/rows", &row).expect(200);
        };
        write_quiet(&server, "a");
        assert_eq!(ids(&received.recv_timeout(PATIENCE).expect("a delivery")), ["a"]);
        let position = |text: &Value| -> Position {
            let text = text.as_str().expect("a cursor");
            text.parse().expect("a cursor")
        };
        let oldest = || position(&server.get("/v1/changes/all").expect(200)["oldest"]);
        let busy: Vec<Value> = (0..60)
            .map(|id| json!({"op": "put", "key": {"id": format!("{id}")}, "columns": {"text": "x".repeat(2_000)}}))
            .collect();
        let deadline = Instant::now() + PATIENCE;
        let begin = oldest();
        while oldest() == begin {
            post(&server, "/v1/tables/orders/rows", &json!({"rows": busy})).expect(200);
            while metric(&server, "tideline_change_lag_max") > 0.0 {
                assert!(Instant::now() < deadline, "the webhook reads to the end");
            }
            server.engine.seal().expect("flushed");
            assert!(
                Instant::now() < deadline,
                "the changes are freed beyond the limit"
            );
        }
        let kept = oldest();
        let cursor = position(&server.get(HOOK).expect(200)["cursor"]);
        assert!(cursor >= kept, "hold {hold}: the read position is stored");
        assert!(
            metric(&server, "tideline_change_overruns_total") < 1.0,
            "hold {hold}"
        );
        let reasons = server.get("/ready").expect(200)["reasons"].to_string();
        assert!(!reasons.contains("shop"), "hold {hold}: {reasons}");
        server.wait_stopped();

        let server = Server::on(Arc::clone(&server.disk), settings.clone());
        write_quiet(&server, "b");
        let next = received.recv_timeout(PATIENCE).expect("a delivery");
        assert_eq!(ids(&next), ["b"], "hold {hold}: no gap");
    }
}

#[test]
fn a_large_delivery_that_is_refused_is_kept_and_replayed() {
    let server = start();
    let (port, received) = receiver(&[400], 3);
    create_hook(&server, port, 1);
    // The body is larger than a value of a state row can be, and no piece may end inside a character.
    let text = "x\u{e4}".repeat(400_000);
    let row = json!({"rows": [{"op": "put", "key": {"id": "a"}, "columns": {"one": text, "two": text}}]});
    post(&server, "/v1/tables/orders/rows", &row).expect(200);
    write_row(&server, "b");
    let first = received.recv_timeout(PATIENCE).expect("a delivery");
    assert_eq!(ids(&first), ["a"]);
    assert_eq!(first.body["records"][0]["columns"]["two"], text.as_str());
    assert_eq!(
        ids(&received.recv_timeout(PATIENCE).expect("a delivery")),
        ["b"],
        "the others follow"
    );
    await_state(&server, "failed", &json!(1));
    let owner = format!("changes/failed/all/shop/{}", first.id);
    let pieces = || server.engine.state_count(&owner).expect("readable");
    assert!(pieces() > 1, "the body is divided");

    let replayed = post(&server, &format!("{HOOK}/replay"), &json!({"ids": [first.id]})).expect(200);
    assert_eq!(replayed["delivered"], 1, "{replayed}");
    let again = received.recv_timeout(PATIENCE).expect("a delivery");
    assert!(
        again.id == first.id && again.body == first.body,
        "the same delivery"
    );
    await_state(&server, "failed", &json!(0));
    assert_eq!(pieces(), 0, "the body is removed with its delivery");
}

#[test]
fn a_receiver_that_is_gone_pauses_its_webhook_until_a_request_resumes_it() {
    let mut server = start();
    let (port, received) = receiver(&[410, 410], 5);
    let next = || received.recv_timeout(PATIENCE).expect("a delivery");
    create_hook(&server, port, 1);
    write_row(&server, "a");
    assert_eq!(ids(&next()), ["a"]);
    await_state(&server, "state", &json!("paused"));
    write_row(&server, "b");
    // The pause continues after a restart, and after a change of other settings.
    server.wait_stopped();
    let server = Server::on(Arc::clone(&server.disk), settings());
    create_hook(&server, port, 1);
    let hook = server.get(HOOK).expect(200);
    assert_eq!(hook["state"], "paused", "{hook}");
    let reason = hook["pause"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("410"), "{reason}");
    assert!(hook["pause"]["time"].is_string(), "{hook}");
    assert_eq!(hook["failed"], 0, "the delivery is still due");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tideline_webhooks_paused 1"), "{metrics}");
    let ready = server.get("/ready").expect(200);
    let reasons = ready["reasons"].to_string();
    assert!(
        reasons.contains("shop") && reasons.contains("is paused"),
        "{reasons}"
    );
    assert!(received.try_recv().is_err(), "nothing is sent during the pause");

    // The same delivery is sent again; the receiver still responds with 410.
    let resumed = post(&server, &format!("{HOOK}/resume"), &json!({})).expect(200);
    assert_ne!(resumed["state"], "paused", "{resumed}");
    let second = next();
    assert_eq!(ids(&second), ["a"]);
    await_state(&server, "state", &json!("paused"));
    post(&server, &format!("{HOOK}/resume"), &json!({})).expect(200);
    let again = next();
    assert_eq!((again.id.as_str(), ids(&again)), (second.id.as_str(), vec!["a"]));
    assert_eq!(ids(&next()), ["b"]);
    await_state(&server, "state", &json!("active"));
    assert_eq!(server.get(HOOK).expect(200).get("pause"), None);
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tideline_webhooks_paused 0"), "{metrics}");
    let missing = post(&server, "/v1/changes/all/webhooks/other/resume", &json!({}));
    assert_eq!(missing.expect(404)["code"], "not_found");
}

#[test]
fn another_address_ends_the_pause_of_a_webhook() {
    let server = start();
    let (gone, refused) = receiver(&[410], 1);
    create_hook(&server, gone, 1);
    write_row(&server, "a");
    refused.recv_timeout(PATIENCE).expect("a delivery");
    await_state(&server, "state", &json!("paused"));
    let (port, received) = receiver(&[], 1);
    create_hook(&server, port, 1);
    assert_eq!(ids(&received.recv_timeout(PATIENCE).expect("a delivery")), ["a"]);
    await_state(&server, "state", &json!("active"));
}

#[test]
fn addresses_that_are_not_allowed_are_refused() {
    let server = start();
    let long = format!("http://127.0.0.1:9/{}", "x".repeat(3_000));
    for (url, status, code, said) in [
        ("http://localhost:1/", 403, "forbidden", "host"),
        ("https://example.com/", 403, "forbidden", "example.com"),
        // No settings allow these addresses.
        ("ftp://127.0.0.1/", 400, "invalid", "http"),
        ("https://user@127.0.0.1/", 400, "invalid", "user"),
        ("http://127.0.0.1:9/#part", 400, "invalid", "fragment"),
        ("127.0.0.1", 400, "invalid", "not a valid address"),
        ("", 400, "invalid", "not a valid address"),
        (long.as_str(), 400, "over_limit", "2048"),
    ] {
        let refused = put(&server, HOOK, &json!({"url": url, "secret": SECRET})).expect(status);
        assert_eq!(refused["code"], code, "{url}");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(said), "{url}: {message}");
    }
    let short = json!({"url": "http://127.0.0.1:9/", "secret": "short"});
    assert_eq!(put(&server, HOOK, &short).expect(400)["code"], "invalid");
    let missing = json!({"url": "http://127.0.0.1:9/"});
    assert_eq!(put(&server, HOOK, &missing).expect(400)["code"], "invalid");
    let none = json!({"url": "http://127.0.0.1:9/", "secret": SECRET, "batch": 0});
    let refused = put(&server, HOOK, &none).expect(400);
    assert!(refused["message"].to_string().contains("at least 1"), "{refused}");
    let many = json!({"url": "http://127.0.0.1:9/", "secret": SECRET, "batch": 1001});
    assert_eq!(put(&server, HOOK, &many).expect(400)["code"], "over_limit");

    // Webhooks are disabled until the operator allows hosts.
    let off = Server::start();
    put(&off, "/v1/changes/all", &json!({})).expect(200);
    let refused = put(
        &off,
        HOOK,
        &json!({"url": "https://example.com/", "secret": SECRET}),
    )
    .expect(403);
    assert!(
        refused["message"]
            .as_str()
            .expect("a message")
            .contains("webhooks.hosts"),
        "{refused}"
    );
}
