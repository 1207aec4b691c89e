//! Limits of time and size against receivers that hang, drip or never stop sending.
//!
//! Lower bounds of times are exact; upper bounds allow for a busy machine.

use std::time::{Duration, Instant};

use tideline_webhooks::{Resolver, Resolving, SendErrorKind, WebhookSender, WebhookSettings};
use tokio::net::TcpListener;

use crate::receiver::{Behaviour, HOST, Receiver, deliver, deliver_to, sender};

const SHORT: Duration = Duration::from_millis(400);
/// Upper bound of the time of a request with the limit [`SHORT`] on a busy machine.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_receiver_that_does_not_respond_in_time_can_be_retried() {
    let head = "HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n".to_owned();
    for behaviour in [
        Behaviour::Hang,
        Behaviour::Slow(head, Duration::from_millis(200)),
        // Interim responses without end.
        Behaviour::Endless(String::new(), "HTTP/1.1 102 x\r\n\r\n".to_owned()),
    ] {
        let start = Instant::now();
        let (_receiver, outcome) = deliver_to(behaviour, SHORT).await;
        let error = outcome.expect_err("it fails");
        assert_eq!(
            (error.kind, error.retryable),
            (SendErrorKind::TimedOut, true),
            "{error}"
        );
        assert!(error.message.contains("400ms"), "{error}");
        assert!(start.elapsed() < SOON);
    }
}

#[tokio::test]
async fn a_handshake_that_hangs_can_be_retried() {
    // The kernel accepts the connection, and no TLS follows.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it listens").port();
    let receiver = Receiver::https(Behaviour::Hang).await;
    let settings = WebhookSettings {
        timeout: SHORT,
        ..receiver.settings()
    };
    let url = format!("https://{HOST}:{port}/");
    let error = deliver(&sender(settings), &url).await.expect_err("it fails");
    assert_eq!(
        (error.kind, error.retryable),
        (SendErrorKind::TimedOut, true),
        "{error}"
    );
}

/// Resolver that never answers.
struct Silent;

impl Resolver for Silent {
    fn resolve(&self, _name: &str) -> Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_lookup_that_hangs_can_be_retried() {
    let receiver = Receiver::https(Behaviour::Hang).await;
    let settings = WebhookSettings {
        timeout: SHORT,
        ..receiver.settings()
    };
    let sender = WebhookSender::with_resolver(settings, Silent).expect("a sender");
    let error = deliver(&sender, &receiver.url()).await.expect_err("it fails");
    assert_eq!(
        (error.kind, error.retryable),
        (SendErrorKind::TimedOut, true),
        "{error}"
    );
}

#[tokio::test]
async fn the_status_counts_when_the_body_is_slow_or_endless() {
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let long = "content-length: 9000000000\r\n\r\n";
    for (status, is_ok) in [(200, true), (500, false)] {
        for (head, repeated) in [
            (chunked, chunk.as_str()),
            (long, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        ] {
            let head = format!("HTTP/1.1 {status} x\r\n{head}");
            let start = Instant::now();
            let (receiver, outcome) = deliver_to(
                Behaviour::Endless(head.clone(), repeated.to_owned()),
                Duration::from_secs(20),
            )
            .await;
            assert_eq!(outcome.is_ok(), is_ok, "{outcome:?}");
            assert!(start.elapsed() < SOON);
            assert_eq!(receiver.requests().len(), 1);
        }
    }
    let head = "HTTP/1.1 200 x\r\ncontent-length: 2000\r\n\r\n";
    let start = Instant::now();
    // The head is fast, the body takes 1000 s.
    let receiver = Receiver::https(Behaviour::Respond(head.to_owned())).await;
    let outcome = deliver(&sender(receiver.settings()), &receiver.url()).await;
    assert_eq!(outcome, Ok(()));
    let elapsed = start.elapsed();
    assert!(
        elapsed >= Duration::from_millis(900) && elapsed < SOON,
        "{elapsed:?}"
    );
}

#[tokio::test]
async fn a_body_that_is_cut_off_closes_its_connection() {
    let body = "x".repeat(1 << 20);
    let response = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    for (bytes_max, connections) in [(1 << 20, 1), (64 << 10, 3)] {
        let receiver = Receiver::https(Behaviour::Respond(response.clone())).await;
        let settings = WebhookSettings {
            response_bytes_max: bytes_max,
            ..receiver.settings()
        };
        let sender = sender(settings);
        for _ in 0..3 {
            deliver(&sender, &receiver.url()).await.expect("it arrives");
        }
        assert_eq!(receiver.connections(), connections, "at most {bytes_max} bytes");
    }
}

#[tokio::test]
async fn compressed_bodies_are_not_decompressed() {
    // The body is not valid gzip; decompression would fail and close the connection.
    let response = "HTTP/1.1 200 x\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd";
    let receiver = Receiver::https(Behaviour::Respond(response.to_owned())).await;
    let sender = sender(receiver.settings());
    for _ in 0..2 {
        deliver(&sender, &receiver.url()).await.expect("it arrives");
    }
    assert_eq!(receiver.connections(), 1);
}
