//! Deliveries that succeed: what the receiver gets, and which connections are used.
//!
//! Each test reads the requests that a real receiver has recorded.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tideline_webhooks::{Delivery, SendErrorKind, Target, WebhookSecret, WebhookSender, WebhookSettings};

use crate::receiver::{Behaviour, FixedResolver, HOST, Receiver, SECRET, deliver, sender};

#[tokio::test]
async fn a_delivery_arrives_once_and_signed() {
    let receiver = Receiver::https(Behaviour::status(204, "set-cookie: a=b\r\n")).await;
    let sender = sender(receiver.settings());
    deliver(&sender, &receiver.url()).await.expect("it arrives");

    let requests = receiver.requests();
    let [request] = requests.as_slice() else {
        panic!("one request, not {requests:?}");
    };
    assert_eq!(request.line, "POST /inbox?key=quiet HTTP/1.1");
    assert_eq!(request.body, b"{\"n\":1}");
    let secret = WebhookSecret::parse(SECRET).expect("a secret");
    let signature = secret.signature("msg_1", 1_700_000_000, &request.body);
    let version = format!("tideline/{}", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", signature.as_str()),
        ("content-type", "application/json"),
        ("content-length", "7"),
        ("user-agent", version.as_str()),
        ("host", receiver.url()[8..].split('/').next().expect("a host")),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    for name in ["referer", "cookie", "accept-encoding", "authorization"] {
        assert_eq!(request.header(name), None, "{name}");
    }

    deliver(&sender, &receiver.url()).await.expect("it arrives again");
    let second = &receiver.requests()[1];
    assert_eq!(second.header("cookie"), None, "cookies are not stored");
}

#[tokio::test]
async fn deliveries_share_a_connection_and_its_lookup() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    // The second lookup would return an address that is refused.
    let resolver = FixedResolver::new(&[&["127.0.0.1"], &["10.0.0.1"]]);
    let sender = WebhookSender::with_resolver(receiver.settings(), Arc::clone(&resolver)).expect("a sender");
    for _ in 0..3 {
        deliver(&sender, &receiver.url()).await.expect("it arrives");
    }
    assert_eq!((receiver.connections(), resolver.lookups()), (1, 1));
}

#[tokio::test]
async fn every_status_of_2xx_is_a_success() {
    for status in [200, 201, 202, 204, 299] {
        let receiver = Receiver::https(Behaviour::status(status, "")).await;
        let outcome = deliver(&sender(receiver.settings()), &receiver.url()).await;
        assert_eq!(outcome, Ok(()), "{status}");
    }
}

#[tokio::test]
async fn the_system_resolver_finds_a_receiver_on_localhost() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let settings = WebhookSettings {
        hosts: vec!["localhost".parse().expect("a host")],
        ..receiver.settings()
    };
    let sender = WebhookSender::new(settings).expect("a sender");
    let url = format!("https://localhost:{}/", receiver.address.port());
    deliver(&sender, &url).await.expect("it arrives");
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn plain_http_reaches_a_listed_network() {
    let receiver = Receiver::http(Behaviour::status(200, "")).await;
    let sender = sender(receiver.settings());
    let url = format!("http://{HOST}:{}/", receiver.address.port());
    deliver(&sender, &url).await.expect("it arrives");
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn an_ip_address_is_a_target_if_it_is_listed() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let settings = WebhookSettings {
        hosts: vec!["127.0.0.1".parse().expect("a host")],
        ..receiver.settings()
    };
    let url = format!("https://127.0.0.1:{}/", receiver.address.port());
    deliver(&sender(settings), &url).await.expect("it arrives");
}

#[tokio::test]
async fn at_most_64_requests_are_open_at_a_time() {
    let slow = Behaviour::Slow(
        "HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n".to_owned(),
        Duration::from_millis(1),
    );
    let receiver = Receiver::http(slow).await;
    let sender = Arc::new(sender(receiver.settings()));
    let url = format!("http://{HOST}:{}/", receiver.address.port());
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (sender, url) = (Arc::clone(&sender), url.clone());
        sends.spawn(async move { deliver(&sender, &url).await });
    }
    let outcomes = sends.join_all().await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(receiver.requests().len(), 200);
    let open_max = receiver.open_max();
    assert!((8..=64).contains(&open_max), "{open_max}");
}

#[tokio::test]
async fn a_delivery_whose_headers_are_invalid_is_not_sent() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let sender = sender(receiver.settings());
    let target = Target::parse(&receiver.url(), sender.settings()).expect("a target");
    let secret = WebhookSecret::parse(SECRET).expect("a secret");
    let long = "x".repeat(257);
    for (id, content_type) in [
        ("", "text/plain"),
        ("a.b", "text/plain"),
        ("a b", "text/plain"),
        ("a\r\nx: y", "text/plain"),
        (long.as_str(), "text/plain"),
        ("a", "text/plain\r\nx: y"),
    ] {
        let delivery = Delivery {
            id,
            timestamp_seconds: 1,
            content_type,
            body: Bytes::new(),
        };
        let error = sender.send(&target, &secret, delivery).await.expect_err(id);
        assert_eq!(error.kind, SendErrorKind::InvalidDelivery, "{id:?}");
        assert!(!error.retryable);
    }
    assert_eq!(receiver.connections(), 0);
}

/// Runs a test again in a process whose environment names a proxy that does not exist.
#[test]
fn proxies_of_the_environment_are_not_used() {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", "sending::a_delivery_arrives_once_and_signed"]);
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env(name, "http://127.0.0.1:1");
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
