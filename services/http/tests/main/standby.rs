//! A process that does not own the data: health checks, errors in the form of each protocol, and forwarded requests,
//! also between processes with TLS.
//!
//! The owner is a real server; the standby is served next to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::standby::{self, KnownOwner};
use tideline_http::{HttpSettings, TlsSettings};
use tideline_model::SystemClock;
use tideline_testkit::wait::until;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use crate::client::{ANSWER_TIMEOUT, Server};

/// Address at which no process listens.
const CLOSED: &str = "127.0.0.1:1";
/// Part of the reason of a standby whose owner has not sent its readiness in time.
const LATE: &str = "it did not answer within";

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
        Self::with(HttpSettings::default())
    }

    fn with(settings: HttpSettings) -> Self {
        let runtime = Runtime::new().expect("threads");
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let (known, seen) = watch::channel(KnownOwner {
            address: None,
            reason: "the cluster does not respond".to_owned(),
            is_starting: false,
        });
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
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
        Self::get_on(self.connect(), path)
    }

    /// Returns the status and the body of `GET /ready`, when the owner was not late.
    fn ready(&self) -> (u16, Value) {
        in_time(|| self.get("/ready"))
    }

    /// Returns the status and the body of `GET path` over TLS, by a client that trusts `certificate`.
    fn get_encrypted(&self, path: &str, certificate: &Path) -> (u16, Value) {
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_file(certificate).expect("a certificate");
        roots.add(trusted).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        Self::get_on(StreamOwned::new(connection, self.connect()), path)
    }

    /// Returns the head and the body of `GET path`.
    fn get_text(&self, path: &str) -> (String, String) {
        self.ask_text("GET", path)
    }

    /// Returns the head and the body of a response to a request without a body.
    fn ask_text(&self, method: &str, path: &str) -> (String, String) {
        let mut stream = self.connect();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("it listens")
    }

    fn get_on(mut stream: impl Read + Write, path: &str) -> (u16, Value) {
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

/// Asks for the readiness of a standby until its owner was not late: a standby waits only for a short time, and the
/// machine of the tests may be busy.
fn in_time(ask: impl Fn() -> (u16, Value)) -> (u16, Value) {
    let answered = until(ANSWER_TIMEOUT, || {
        let answer = ask();
        let is_late = answer.1["reasons"].to_string().contains(LATE);
        (!is_late).then_some(answer)
    });
    answered.expect("the owner answers in time")
}

/// Returns the state of a standby that forwards to `address`.
fn known(address: String) -> KnownOwner {
    KnownOwner {
        address: Some(address),
        ..KnownOwner::default()
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
fn the_body_of_a_refused_request_is_read() {
    /// More than the service reads at once.
    const BODY_BYTES: usize = 512 << 10;
    let standby = Standby::start();
    let head = format!(
        "POST /v1/tables/default/points HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    let body = vec![b'x'; BODY_BYTES];
    let first = [head.as_bytes(), body.as_slice()].concat();
    let second = b"GET /v1/tables HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // A body is read only for a short time, and the machine of the tests may be busy.
    let answered = until(ANSWER_TIMEOUT, || {
        let mut stream = standby.connect();
        let mut responses = String::new();
        let exchanged = stream
            .write_all(&first)
            .and_then(|()| stream.write_all(second))
            .and_then(|()| stream.read_to_string(&mut responses));
        exchanged.ok()?;
        (responses.matches("HTTP/1.1 503 ").count() == 2).then_some(())
    });
    assert!(answered.is_some(), "a connection serves the next request");
}

#[test]
fn a_standby_forwards_to_the_known_owner() {
    let (standby, owner) = (Standby::start(), Server::start());
    let address = owner.address.to_string();
    standby.known.send_replace(known(address.clone()));
    let (status, ready) = standby.ready();
    assert_eq!((status, &ready["owner"]), (200, &Value::from(address)), "{ready}");
    let (status, tables) = standby.get("/v1/tables");
    assert_eq!(status, 200, "{tables}");
    assert_eq!(tables["tables"][0]["name"], "default");
}

#[test]
fn a_standby_returns_the_metrics_of_its_own_process() {
    let (standby, owner) = (Standby::start(), Server::start());
    let has = |expected: &[&str]| {
        let (head, metrics) = standby.get_text("/metrics");
        assert!(
            head.contains("200 OK") && head.contains("version=0.0.4"),
            "{head}"
        );
        for line in expected {
            assert!(
                metrics.lines().any(|written| written == *line),
                "{line}: {metrics}"
            );
        }
        assert!(
            metrics.contains("tideline_process_cpu_seconds_total "),
            "{metrics}"
        );
        assert!(!metrics.contains("tideline_timelines "), "{metrics}");
    };
    assert_eq!(standby.get("/v1/tables").0, 503);
    has(&[
        "tideline_cluster_owner 0.0",
        "tideline_ready_writes 0.0",
        "tideline_cluster_forwarded_requests_total{outcome=\"no_owner\"} 1",
        "tideline_cluster_forwarded_requests_total{outcome=\"answered\"} 0",
    ]);
    standby.known.send_replace(known(owner.address.to_string()));
    assert_eq!(standby.get("/v1/tables").0, 200);
    has(&[
        "tideline_ready_writes 1.0",
        "tideline_cluster_forwarded_requests_total{outcome=\"answered\"} 1",
    ]);
    let (_, of_owner) = standby.get_text("/metrics?of=owner");
    assert!(of_owner.contains("tideline_timelines "), "{of_owner}");
    let (head, _) = standby.ask_text("HEAD", "/metrics");
    assert!(head.contains("200 OK"), "{head}");
    // The owner refuses other methods.
    let (head, _) = standby.ask_text("POST", "/metrics");
    assert!(head.starts_with("HTTP/1.1 405"), "{head}");
    standby.known.send_replace(known(CLOSED.to_owned()));
    assert_eq!(standby.get("/v1/tables").0, 503);
    has(&["tideline_cluster_forwarded_requests_total{outcome=\"failed\"} 1"]);
}

#[test]
fn a_standby_is_ready_only_while_its_owner_serves() {
    let standby = Standby::start();
    let not_ready = |(status, ready): (u16, Value), expected: &str| {
        assert_eq!(
            (status, &ready["role"]),
            (503, &Value::from("standby")),
            "{ready}"
        );
        assert_eq!(
            (&ready["reads"], &ready["writes"]),
            (&Value::from(false), &Value::from(false))
        );
        let reason = ready["reasons"][0].as_str().expect("a reason");
        assert!(reason.contains(expected), "{reason}");
    };
    standby.known.send_replace(known(CLOSED.to_owned()));
    let expected = format!("the process at {CLOSED} owns the data, but cannot be reached");
    not_ready(standby.ready(), &expected);
    // Connections to this owner are accepted, but no request is answered.
    let paused = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = paused.local_addr().expect("an address").to_string();
    standby.known.send_replace(known(address));
    not_ready(standby.get("/ready"), LATE);
    // Two standbys that name each other do not forward in a circle.
    let other = Standby::start();
    other.known.send_replace(known(standby.address.to_string()));
    standby.known.send_replace(known(other.address.to_string()));
    not_ready(standby.ready(), "its role is \"standby\"");

    let disk = MemoryDisk::new(Character::Distributed);
    let lease = Duration::from_secs(3_600);
    disk.limit_leases(lease, 1_000_000);
    let owner = Server::on(disk, HttpSettings::default());
    standby.known.send_replace(known(owner.address.to_string()));
    let (status, ready) = standby.ready();
    assert_eq!(
        (status, &ready["reasons"]),
        (200, &serde_json::json!([])),
        "{ready}"
    );
    owner.clock.advance(lease.as_nanos() as i64);
    not_ready(standby.ready(), "the lease of the data has expired");
}

#[test]
fn a_process_that_takes_the_data_over_answers_health_checks() {
    let starting = Standby::start();
    starting.known.send_replace(KnownOwner {
        address: None,
        reason: "this process opens the data".to_owned(),
        is_starting: true,
    });
    let (status, health) = starting.get("/health");
    assert_eq!(
        (status, &health["status"]),
        (200, &Value::from("pass")),
        "{health}"
    );
    let (status, ready) = starting.get("/ready");
    assert_eq!(
        (status, &ready["role"]),
        (503, &Value::from("starting")),
        "{ready}"
    );
    assert_eq!(ready["reasons"][0], "this process opens the data");
    let (status, refused) = starting.get("/v1/tables");
    assert_eq!(
        (status, &refused["message"], &refused["retryable"]),
        (
            503,
            &Value::from("this process opens the data"),
            &Value::from(true)
        )
    );
    // Another standby already knows the new owner, which does not serve yet.
    let standby = Standby::start();
    standby.known.send_replace(known(starting.address.to_string()));
    let (status, ready) = standby.ready();
    let reason = ready["reasons"][0].as_str().expect("a reason");
    assert_eq!((status, reason.contains("\"starting\"")), (503, true), "{ready}");
}

/// Makes a certificate for these names, with its key.
fn make_certificate(folder: &Path, file: &str, names: &[&str]) -> TlsSettings {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let settings = TlsSettings {
        certificate_file: folder.join(format!("{file}.crt")),
        key_file: folder.join(format!("{file}.key")),
    };
    replace(&settings.certificate_file, &made.cert.pem());
    replace(&settings.key_file, &made.signing_key.serialize_pem());
    settings
}

/// Replaces a file that only its owner can read.
fn replace(path: &Path, text: &str) {
    let staged = path.with_extension("staged");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&staged)
        .expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    std::fs::rename(staged, path).expect("renamed");
}

#[test]
fn a_standby_with_tls_forwards_to_owners_that_it_trusts() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = make_certificate(folder.path(), "shared", &["localhost"]);
    let own = make_certificate(folder.path(), "own", &["localhost"]);
    let of_tls = |tls: &TlsSettings| HttpSettings {
        tls: Some(tls.clone()),
        ..HttpSettings::default()
    };
    let owner = Server::with(of_tls(&shared));
    let at = |name: &str| known(format!("https://{name}:{}", owner.address.port()));

    // All servers use the same certificate.
    let standby = Standby::with(of_tls(&shared));
    standby.known.send_replace(at("localhost"));
    let (status, tables) = standby.get_encrypted("/v1/tables", &shared.certificate_file);
    assert_eq!(
        (status, &tables["tables"][0]["name"]),
        (200, &Value::from("default"))
    );
    let (_, ready) = in_time(|| standby.get_encrypted("/ready", &shared.certificate_file));
    assert_eq!(ready["reasons"], serde_json::json!([]));
    standby.known.send_replace(known("localhost:1".to_owned()));
    let (_, ready) = standby.get_encrypted("/ready", &shared.certificate_file);
    let reasons = ready["reasons"].to_string();
    assert!(reasons.contains("in clear text"), "{reasons}");
    // The certificate does not name this address.
    standby.known.send_replace(at("127.0.0.1"));
    let (status, refused) = standby.get_encrypted("/v1/tables", &shared.certificate_file);
    assert_eq!(
        (status, &refused["retryable"]),
        (503, &Value::from(true)),
        "{refused}"
    );

    // This standby has a different certificate. It trusts the certificate of the owner only if it is in the file
    // of authorities.
    let authorities = folder.path().join("authorities.pem");
    std::fs::copy(&own.certificate_file, &authorities).expect("a copy");
    let standby = Standby::with(HttpSettings {
        servers_ca_file: Some(authorities.clone()),
        ..of_tls(&own)
    });
    standby.known.send_replace(at("localhost"));
    let get = || standby.get_encrypted("/v1/tables", &own.certificate_file);
    let (status, refused) = get();
    assert_eq!(
        (status, &refused["retryable"]),
        (503, &Value::from(true)),
        "{refused}"
    );
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("certificate"), "{message}");
    let both = [&own, &shared].map(|tls| std::fs::read_to_string(&tls.certificate_file).expect("a file"));
    replace(&authorities, &both.concat());
    let deadline = Instant::now() + Duration::from_secs(60);
    while get().0 != 200 {
        assert!(Instant::now() < deadline, "the changed file was not read");
        std::thread::yield_now();
    }
}
