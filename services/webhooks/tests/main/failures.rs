//! Deliveries that fail: kinds, retries and messages for each status and each broken connection.
//!
//! Every message names the host, and none contains the address, the path or the secret.

use std::time::Duration;

use tideline_webhooks::{SendError, SendErrorKind, WebhookSender, WebhookSettings};
use tokio::net::TcpListener;

use crate::receiver::{Behaviour, FixedResolver, HOST, Receiver, deliver, deliver_to, sender};

const LONG: Duration = Duration::from_secs(20);

async fn failed(behaviour: Behaviour, timeout: Duration) -> SendError {
    let (_receiver, outcome) = deliver_to(behaviour, timeout).await;
    let error = outcome.expect_err("it fails");
    assert!(error.message.contains(HOST), "{error}");
    for private in ["quiet", "inbox", "127.0.0.1", "whsec"] {
        assert!(!error.message.contains(private), "{private} in {error}");
    }
    error
}

#[tokio::test]
async fn a_status_decides_about_retries() {
    for (status, kind, retryable) in [
        (302, SendErrorKind::Redirected(302), false),
        (304, SendErrorKind::Redirected(304), false),
        (400, SendErrorKind::Status(400), false),
        (401, SendErrorKind::Status(401), false),
        (404, SendErrorKind::Status(404), false),
        (408, SendErrorKind::Status(408), true),
        (410, SendErrorKind::Gone, false),
        (425, SendErrorKind::Status(425), true),
        (429, SendErrorKind::Status(429), true),
        (500, SendErrorKind::Status(500), true),
        (503, SendErrorKind::Status(503), true),
        (599, SendErrorKind::Status(599), true),
        (600, SendErrorKind::Status(600), false),
    ] {
        let error = failed(Behaviour::status(status, ""), LONG).await;
        assert_eq!((error.kind, error.retryable), (kind, retryable), "{error}");
        assert_eq!(error.retry_after, None);
        assert!(error.message.contains(&status.to_string()), "{error}");
    }
}

#[tokio::test]
async fn retry_after_counts_only_where_a_retry_can_help() {
    for (status, header, seconds) in [
        (429, "7", Some(7)),
        (503, "86400", Some(3600)),
        // 30 s after the time of the delivery.
        (500, "Tue, 14 Nov 2023 22:13:50 GMT", Some(30)),
        (429, "soon", None),
        (404, "7", None),
        (410, "7", None),
    ] {
        let error = failed(
            Behaviour::status(status, &format!("retry-after: {header}\r\n")),
            LONG,
        )
        .await;
        assert_eq!(
            error.retry_after,
            seconds.map(Duration::from_secs),
            "{status} {header}"
        );
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let inner = Receiver::start("127.0.0.1:0", false, Behaviour::status(200, "")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("location: http://{}/\r\n", inner.address);
        let error = failed(Behaviour::status(status, &location), LONG).await;
        assert_eq!(error.kind, SendErrorKind::Redirected(status));
        assert!(error.message.contains("redirects are not followed"), "{error}");
    }
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn a_connection_that_ends_early_can_be_retried() {
    for (behaviour, kind) in [
        (Behaviour::Close, SendErrorKind::BrokenResponse),
        (Behaviour::NoHandshake, SendErrorKind::ConnectFailed),
        (
            Behaviour::Respond("HTTP/9 what\r\n\r\n".into()),
            SendErrorKind::BrokenResponse,
        ),
        (
            Behaviour::Respond("\0\0\0\0\r\n\r\n".into()),
            SendErrorKind::BrokenResponse,
        ),
        // A response head without end.
        (
            Behaviour::Endless(
                "HTTP/1.1 200 x\r\n".into(),
                "a: bbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n".repeat(20),
            ),
            SendErrorKind::BrokenResponse,
        ),
    ] {
        let error = failed(behaviour, LONG).await;
        assert_eq!((error.kind, error.retryable), (kind, true), "{error}");
    }
}

#[tokio::test]
async fn a_port_without_receiver_can_be_retried() {
    let receiver = Receiver::https(Behaviour::Close).await;
    let settings = receiver.settings();
    let unused = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = unused.local_addr().expect("it listens").port();
    drop(unused);
    let url = format!("https://{HOST}:{port}/");
    let error = deliver(&sender(settings), &url).await.expect_err("it fails");
    assert_eq!(
        (error.kind, error.retryable),
        (SendErrorKind::ConnectFailed, true)
    );
    assert!(error.message.contains("refused"), "{error}");
    assert!(!error.message.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn the_certificate_must_be_valid_for_the_name() {
    let receiver = Receiver::https(Behaviour::status(200, "")).await;
    let other = Receiver::https(Behaviour::status(200, "")).await;
    let unknown_authority = WebhookSettings {
        extra_roots_pem: other.settings().extra_roots_pem,
        ..receiver.settings()
    };
    let other_name = WebhookSettings {
        hosts: vec!["other.example.com".parse().expect("a host")],
        ..receiver.settings()
    };
    for (settings, host) in [(unknown_authority, HOST), (other_name, "other.example.com")] {
        let url = format!("https://{host}:{}/", receiver.address.port());
        let error = deliver(&sender(settings), &url).await.expect_err("it fails");
        assert_eq!(
            (error.kind, error.retryable),
            (SendErrorKind::ConnectFailed, true),
            "{error}"
        );
        assert!(error.message.contains("certificate"), "{error}");
        assert!(
            !error.message.contains("localhost"),
            "no names of the certificate: {error}"
        );
    }
    assert_eq!(receiver.requests().len(), 0);
}

#[tokio::test]
async fn a_name_without_address_can_be_retried() {
    let receiver = Receiver::https(Behaviour::Close).await;
    let sender =
        WebhookSender::with_resolver(receiver.settings(), FixedResolver::new(&[&[]])).expect("a sender");
    let error = deliver(&sender, &receiver.url()).await.expect_err("it fails");
    assert_eq!(
        (error.kind, error.retryable),
        (SendErrorKind::NameNotResolved, true),
        "{error}"
    );
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let new = |settings| WebhookSender::new(settings).expect_err("an error").to_string();
    let no_time = WebhookSettings {
        timeout: Duration::ZERO,
        ..WebhookSettings::default()
    };
    assert!(new(no_time).contains("webhooks.timeout"));
    for pem in [
        "text",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        let bad_roots = WebhookSettings {
            extra_roots_pem: pem.into(),
            ..WebhookSettings::default()
        };
        let message = new(bad_roots);
        assert!(message.contains("webhooks.ca_file"), "{message}");
    }
}
