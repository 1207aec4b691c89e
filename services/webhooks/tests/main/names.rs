//! Names that resolve to addresses which are not allowed: no connection, and no hint about the address.
//!
//! A receiver runs at the refused address where loopback allows it, and counts connections.

use std::sync::Arc;

use tideline_webhooks::{SendErrorKind, WebhookSender, WebhookSettings};

use crate::receiver::{Behaviour, FixedResolver, HOST, Receiver, deliver};

#[tokio::test]
async fn a_name_with_a_private_address_is_refused_without_a_connection() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    for address in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00::1",
    ] {
        let settings = WebhookSettings {
            networks: Vec::new(),
            ..receiver.settings()
        };
        let resolver = FixedResolver::new(&[&[address]]);
        let sender = WebhookSender::with_resolver(settings, resolver).expect("a sender");
        let error = deliver(&sender, &receiver.url()).await.expect_err(address);
        assert_eq!(
            (error.kind, error.retryable),
            (SendErrorKind::AddressRefused, false),
            "{error}"
        );
        assert!(!error.message.contains(address) || address == "::", "{error}");
        assert!(error.message.contains("webhooks.networks"), "{error}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn localhost_is_refused_if_loopback_is_not_listed() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let settings = WebhookSettings {
        hosts: vec!["localhost".parse().expect("a host")],
        networks: Vec::new(),
        ..receiver.settings()
    };
    let sender = WebhookSender::new(settings).expect("a sender");
    let url = format!("https://localhost:{}/", receiver.address.port());
    let error = deliver(&sender, &url).await.expect_err("it is refused");
    assert_eq!(error.kind, SendErrorKind::AddressRefused, "{error}");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_connection_uses_only_the_allowed_addresses_of_a_name() {
    let allowed = Receiver::https(Behaviour::status(200, "")).await;
    // The same port of another loopback address, which is not listed.
    let address = format!("127.0.0.2:{}", allowed.address.port());
    let refused = Receiver::start(&address, true, Behaviour::status(200, "")).await;
    let resolver = FixedResolver::new(&[&["127.0.0.2", "::1", "127.0.0.1"]]);
    let sender = WebhookSender::with_resolver(allowed.settings(), resolver).expect("a sender");
    deliver(&sender, &allowed.url()).await.expect("it arrives");
    assert_eq!((allowed.connections(), refused.connections()), (1, 0));
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_by_each_connection() {
    // The receiver closes each connection, so every delivery connects again.
    let receiver = Receiver::https(Behaviour::status(200, "connection: close\r\n")).await;
    let address = format!("127.0.0.2:{}", receiver.address.port());
    let inner = Receiver::start(&address, true, Behaviour::status(200, "")).await;
    let resolver = FixedResolver::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let sender = WebhookSender::with_resolver(receiver.settings(), Arc::clone(&resolver)).expect("a sender");
    deliver(&sender, &receiver.url()).await.expect("it arrives");
    let error = deliver(&sender, &receiver.url())
        .await
        .expect_err("it is refused");
    assert_eq!(error.kind, SendErrorKind::AddressRefused, "{error}");
    assert_eq!(resolver.lookups(), 2, "one lookup per connection");
    assert_eq!((receiver.connections(), inner.connections()), (1, 0));
}

#[tokio::test]
async fn plain_http_is_refused_outside_of_listed_networks() {
    let receiver = Receiver::http(Behaviour::status(200, "")).await;
    let url = format!("http://{HOST}:{}/", receiver.address.port());
    // A public address is not enough. 127.0.0.2 is neither public nor listed.
    for address in ["192.0.2.1", "8.8.8.8", "127.0.0.2"] {
        let resolver = FixedResolver::new(&[&[address]]);
        let sender = WebhookSender::with_resolver(receiver.settings(), resolver).expect("a sender");
        let error = deliver(&sender, &url).await.expect_err(address);
        assert_eq!(error.kind, SendErrorKind::AddressRefused, "{error}");
        assert!(error.message.contains("use https"), "{error}");
    }
}

#[tokio::test]
async fn settings_of_the_sender_apply_to_targets_that_others_have_allowed() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let strict = WebhookSettings {
        hosts: vec!["other.example.com".parse().expect("a host")],
        ..receiver.settings()
    };
    let sender = crate::receiver::sender(strict);
    let target = tideline_webhooks::Target::parse(&receiver.url(), &receiver.settings()).expect("a target");
    let secret = tideline_webhooks::WebhookSecret::parse(crate::receiver::SECRET).expect("a secret");
    let delivery = tideline_webhooks::Delivery {
        id: "a",
        timestamp_seconds: 1,
        content_type: "text/plain",
        body: bytes::Bytes::new(),
    };
    let error = sender
        .send(&target, &secret, delivery)
        .await
        .expect_err("it is refused");
    assert_eq!(
        (error.kind, error.retryable),
        (SendErrorKind::TargetRefused, false)
    );
    assert_eq!(receiver.connections(), 0);
}
