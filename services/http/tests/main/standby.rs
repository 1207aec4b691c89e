//! A process that does not own the data: health checks, errors in the form of each protocol, and forwarded requests.
//!
//! The owner is a real server; the standby is served next to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tideline_http::HttpSettings;
use tideline_http::standby::{self, KnownOwner};
use tideline_model::SystemClock;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use crate::client::Server;

/// Running standby.
struct Standby {
    address: SocketAddr,
    known: watch::Sender<KnownOwner>,
    /// Ends the service when it is dropped.
    _stop: oneshot::Sender<()>,
    _runtime: Runtime,
}

impl Standby {
    fn start() -> Self {
        let runtime = Runtime::new().expect("threads");
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let (known, seen) = watch::channel(KnownOwner {
            address: None,
            reason: "the cluster does not respond".to_owned(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            let settings = HttpSettings::default();
            let stopped = async {
                let _dropped = stopped.await;
            };
            let clock = Arc::new(SystemClock);
            standby::serve(listener, seen, &settings, clock, Duration::from_secs(1), stopped).await
        });
        Self {
            address,
            known,
            _stop: stop,
            _runtime: runtime,
        }
    }

    /// Returns the status and the body of `GET path`.
    fn get(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = response.split_once("\r\n\r\n").expect("a head").1;
        let json = body.find('{').and_then(|start| {
            let end = body.rfind('}')?;
            serde_json::from_str(&body[start..=end]).ok()
        });
        (
            status.expect("a status"),
            json.unwrap_or_else(|| panic!("{response}")),
        )
    }
}

#[test]
fn a_standby_reports_its_role_and_errors_have_the_form_of_the_protocol() {
    let standby = Standby::start();
    let (status, ready) = standby.get("/ready");
    assert_eq!(
        (status, &ready["role"]),
        (503, &Value::from("standby")),
        "{ready}"
    );
    assert_eq!(ready["reasons"][0], "the cluster does not respond");
    assert_eq!(standby.get("/health").0, 200);

    let (status, native) = standby.get("/v1/tables");
    assert_eq!(
        (status, &native["retryable"]),
        (503, &Value::from(true)),
        "{native}"
    );
    assert_ne!(native["request_id"], "none");
    let (status, prometheus) = standby.get("/api/v1/query?query=up");
    assert_eq!(
        (status, &prometheus["status"]),
        (503, &Value::from("error")),
        "{prometheus}"
    );
}

#[test]
fn a_standby_forwards_to_the_known_owner() {
    let (standby, owner) = (Standby::start(), Server::start());
    let address = owner.address.to_string();
    standby.known.send_replace(KnownOwner {
        address: Some(address.clone()),
        reason: String::new(),
    });
    let (status, ready) = standby.get("/ready");
    assert_eq!((status, &ready["owner"]), (200, &Value::from(address)), "{ready}");
    let (status, tables) = standby.get("/v1/tables");
    assert_eq!(status, 200, "{tables}");
    assert_eq!(tables["tables"][0]["name"], "default");
}
