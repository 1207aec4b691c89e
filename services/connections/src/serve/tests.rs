//! Requests that arrive while a service ends get their responses.
//!
//! Service and client share one thread, so what a test has sent is in the socket before the service continues.

use std::net::SocketAddr;

use axum::body::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Longest wait for a response, and for the end of a service.
const PATIENCE: Duration = Duration::from_secs(20);

/// Service whose responses have the body `done`.
#[derive(Clone)]
struct Trivial;

impl Service for Trivial {
    type Guard = ();

    async fn handle(self, _request: Request<Incoming>) -> Response {
        Response::new(Body::from("done"))
    }

    fn overloaded(&self, message: String) -> Response {
        Response::new(Body::from(message))
    }

    fn is_operation(&self, _path: &str) -> bool {
        false
    }

    fn connected(&self) {}

    fn drain(&self) {}
}

async fn listen() -> (Listeners, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener.into(), address)
}

/// Serves requests until `stopped` completes.
async fn serve_until(stopped: impl Future<Output = ()>, listeners: Listeners) {
    let settings = ConnectionSettings {
        connections_max: 100,
        header_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        answer_timeout: PATIENCE,
        answer_bytes_per_second_min: 1,
        drain_timeout: PATIENCE,
        trusted_proxies: Vec::new(),
        tls: None,
    };
    let served = serve(listeners, Trivial, Shares::new(100), settings, || {}, stopped);
    let served = timeout(PATIENCE, served).await.expect("it ends in time");
    served.expect("it has an address");
}

/// Connects and sends a request.
async fn send(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(REQUEST).await.expect("sent");
    stream
}

/// Reads up to the end of a connection, and checks that this is the response to one request, which ends the connection.
async fn read_last(mut stream: TcpStream) {
    let mut response = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut response)).await;
    read.expect("it ends in time").expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response:?}");
    assert!(response.contains("connection: close\r\n"), "{response:?}");
    assert!(response.ends_with("\r\n\r\ndone"), "{response:?}");
}

#[tokio::test]
async fn connections_in_the_queue_of_a_socket_are_served_before_the_end() {
    let (listeners, address) = listen().await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(send(address).await);
    }
    serve_until(std::future::ready(()), listeners).await;
    for client in clients {
        read_last(client).await;
    }
    let refused = TcpStream::connect(address).await;
    refused.expect_err("the socket is closed");
}

#[tokio::test]
async fn a_request_that_arrives_with_the_stop_is_answered() {
    let (listeners, address) = listen().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        let _ = stopped.await;
    };
    let serving = tokio::spawn(serve_until(stopped, listeners));
    let mut used = send(address).await;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\ndone") {
        let read = timeout(PATIENCE, used.read_buf(&mut response)).await;
        assert_ne!(read.expect("it answers in time").expect("a response"), 0);
    }
    let response = String::from_utf8(response).expect("text");
    assert!(!response.contains("connection: close"), "{response:?}");
    let mut new = TcpStream::connect(address).await.expect("it listens");
    let mut idle = TcpStream::connect(address).await.expect("it listens");
    for stream in [&mut used, &mut new] {
        stream.write_all(REQUEST).await.expect("sent");
    }
    stop.send(()).expect("it serves");
    read_last(used).await;
    read_last(new).await;
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, idle.read_to_end(&mut rest)).await;
    assert_eq!(read.expect("it ends in time").expect("an end"), 0);
    serving.await.expect("no panic");
}
