//! Webhooks: deliveries in order, over restarts, repeated and given up; replays; refused addresses.
//!
//! The receivers are real HTTP servers on loopback, which the settings allow as a listed network.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tideline_http::{ChangeSettings, HttpSettings, WebhookSettings};

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
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                if stream.read_exact(&mut byte).is_err() {
                    return;
                }
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
            let status = statuses.get(number).copied().unwrap_or(200);
            let response =
                format!("HTTP/1.1 {status} status\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(response.as_bytes()).expect("a response");
            let received = Received {
                id: header("webhook-id"),
                has_signature: header("webhook-signature").starts_with("v1,"),
                body: serde_json::from_slice(&body).expect("JSON"),
            };
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
    let server = Server::with(settings());
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
    for (url, said) in [
        ("http://localhost:1/", "host"),
        ("https://example.com/", "example.com"),
        ("ftp://127.0.0.1/", "http"),
        ("https://user@127.0.0.1/", "user"),
    ] {
        let refused = put(&server, HOOK, &json!({"url": url, "secret": SECRET})).expect(403);
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains(said), "{url}: {message}");
    }
    let short = json!({"url": "http://127.0.0.1:9/", "secret": "short"});
    assert_eq!(put(&server, HOOK, &short).expect(400)["code"], "invalid");
    let missing = json!({"url": "http://127.0.0.1:9/"});
    assert_eq!(put(&server, HOOK, &missing).expect(400)["code"], "invalid");
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
