//! Tests of the server's own TLS: handshakes of clients, wrong clients, and the replacement of the certificate while
//! requests arrive.
//!
//! The certificates are those of `tideline tls self-signed`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use rustix::process::Signal;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use tempfile::TempDir;
use tideline_model::{Clock as _, SystemClock};
use time::OffsetDateTime;

use crate::process::{Running, output, text, tideline};

/// Longest wait for an expected event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Server with a self-signed certificate.
struct Secured {
    server: Running,
    address: SocketAddr,
    folder: TempDir,
}

/// Makes a certificate and its key in a new folder, and returns the folder.
fn certificate(folder: &Path, name: &str) -> PathBuf {
    certificate_for(folder, name, "30")
}

/// Makes a certificate that is valid for a number of days.
fn certificate_for(folder: &Path, name: &str, days: &str) -> PathBuf {
    let out = folder.join(name);
    let made = output({
        let mut command = tideline(&["tls", "self-signed", "--days", days, "--out"]);
        command.arg(&out);
        command
    });
    assert!(made.status.success(), "{}", text(&made.stderr));
    out
}

/// Replaces a certificate with one for the same key that began 80 days ago and ends in ten days.
fn replace_with_an_old_one(folder: &Path) {
    let key = fs::read_to_string(folder.join("tideline.key")).expect("a key");
    let key = KeyPair::from_pem(&key).expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let seconds = SystemClock.now().nanos() / 1_000_000_000;
    let now = OffsetDateTime::from_unix_timestamp(seconds).expect("a time");
    params.not_before = now - time::Duration::days(80);
    params.not_after = now + time::Duration::days(10);
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(folder.join("tideline.crt"), certificate.pem()).expect("a file");
}

fn serve(folder: &Path, certificate: &Path, key: &Path) -> Running {
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command
        .arg(folder.join("data"))
        .env("TIDELINE__HTTP__TLS_CERTIFICATE_FILE", certificate)
        .env("TIDELINE__HTTP__TLS_KEY_FILE", key)
        .env("TIDELINE__HTTP__HEADER_TIMEOUT", "1s");
    Running::start(command)
}

impl Secured {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let made = certificate(folder.path(), "tls");
        let (certificate, key) = (made.join("tideline.crt"), made.join("tideline.key"));
        let mut server = serve(folder.path(), &certificate, &key);
        let line = server.wait_for(|line| line.starts_with("listening on "));
        let address = line.trim_start_matches("listening on https://").split(',').next();
        let address = address.expect("an address").parse().expect("an address");
        Self {
            server,
            address,
            folder,
        }
    }

    fn certificate_file(&self) -> PathBuf {
        self.folder.path().join("tls/tideline.crt")
    }

    fn connect(&self) -> TcpStream {
        connect(self.address)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Returns a client that trusts these certificates.
fn client(
    trusted: &[CertificateDer<'static>],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.clone()).expect("a certificate");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Sends a request on a new connection. Returns the response and the certificate of the server.
fn get(
    address: SocketAddr,
    client: &Arc<ClientConfig>,
    path: &str,
) -> std::io::Result<(String, CertificateDer<'static>)> {
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::clone(client), name).expect("a client");
    let mut stream = StreamOwned::new(connection, connect(address));
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let chain = stream.conn.peer_certificates().expect("a certificate");
    Ok((response, chain[0].clone().into_owned()))
}

fn read_certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}

#[test]
fn a_server_with_a_certificate_speaks_tls_only() {
    let secured = Secured::start();
    let trusted = [read_certificate(&secured.certificate_file())];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = client(&trusted, &[version]);
        let (response, shown) = get(secured.address, &client, "/health").expect("a response");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(shown, trusted[0]);
    }
    // The command line uses the certificate itself as the certificate of a trusted authority.
    let points = secured.folder.path().join("points.lp");
    fs::write(&points, "room,host=a temperature=20\n").expect("a file");
    let run = |arguments: &[&str], trusted: Option<&Path>| {
        let server = format!("https://localhost:{}", secured.address.port());
        let mut command = tideline(arguments);
        command.args(["--server", &server]);
        if let Some(path) = trusted {
            command.arg("--ca").arg(path);
        }
        output(command)
    };
    let certificate = secured.certificate_file();
    let written = run(&["write", points.to_str().expect("a path")], Some(&certificate));
    assert!(written.status.success(), "{}", text(&written.stderr));
    let latest = run(&["latest", "--json"], Some(&certificate));
    assert!(
        text(&latest.stdout).contains("temperature"),
        "{}",
        text(&latest.stderr)
    );
    let refused = run(&["latest"], None);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("--ca"),
        "{}",
        text(&refused.stderr)
    );
    // The response to a request in clear text describes the error.
    let mut clear = secured.connect();
    clear
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .expect("sent");
    let mut response = String::new();
    clear.read_to_string(&mut response).expect("a response");
    assert!(
        response.starts_with("HTTP/1.1 400") && response.ends_with("Use an address of https://.\n"),
        "{response}"
    );
    // Silent clients, and those with an invalid handshake, are disconnected.
    for sent in [
        &b""[..],
        b"\x16",
        b"\x16\x03\x01\x00\x05hello and more",
        b"\x16\x03\x01\xff\xff\0\0",
    ] {
        let mut stream = secured.connect();
        stream.write_all(sent).expect("sent");
        let mut rest = Vec::new();
        let began = Instant::now();
        // The connection may be reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(began.elapsed() < PATIENCE, "{sent:?} was not disconnected");
        assert!(rest.len() < 100, "{sent:?} was answered");
    }
    let (response, _) =
        get(secured.address, &client(&trusted, rustls::ALL_VERSIONS), "/ready").expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // A handshake that does not end does not delay the shutdown.
    let _silent = [secured.connect(), secured.connect()];
    secured.server.signal(Signal::TERM);
    let (status, took, said) = secured.server.end();
    assert!(
        status.success() && took < Duration::from_secs(20),
        "{took:?} {said}"
    );
}

#[test]
fn damaged_handshakes_are_refused_and_others_go_on() {
    let secured = Secured::start();
    let trusted = [read_certificate(&secured.certificate_file())];
    let client = client(&trusted, rustls::ALL_VERSIONS);
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(Arc::clone(&client), name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("a first message");
    let mut tried = 0;
    let mut send = |bytes: &[u8]| {
        let mut stream = secured.connect();
        // The server may disconnect before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        tried += 1;
    };
    for at in 0..hello.len() {
        send(&hello[..at]);
        for bits in [0x01, 0x80, 0xff] {
            let mut damaged = hello.clone();
            damaged[at] ^= bits;
            send(&damaged);
        }
    }
    // The length of the first record is far too large; the second message consists of many records.
    send(&[&[0x16, 3, 1, 0xff, 0xff], &[0; 70_000][..]].concat());
    send(&[0x16, 3, 1, 0, 1, 1].repeat(20_000));
    assert!(tried > 700, "{tried}");
    let (response, _) = get(secured.address, &client, "/ready").expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn a_certificate_is_replaced_without_a_failed_request() {
    let mut secured = Secured::start();
    let next = certificate(secured.folder.path(), "next");
    let other = certificate(secured.folder.path(), "other");
    let old = read_certificate(&secured.certificate_file());
    let new = read_certificate(&next.join("tideline.crt"));
    let client = client(&[old.clone(), new.clone()], rustls::ALL_VERSIONS);
    let (is_done, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let (address, folder) = (secured.address, secured.folder.path().to_owned());
    let replace = |from: &Path, name: &str| {
        let staged = folder.join(format!("staged-{name}"));
        fs::copy(from.join(name), &staged).expect("a copy");
        fs::rename(&staged, folder.join("tls").join(name)).expect("a new file");
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let (response, shown) = get(address, &client, "/health").expect("no request fails");
                    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                    assert!(shown == old || shown == new);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A key that does not belong to the certificate is refused, and the old certificate stays in use.
        replace(&other, "tideline.key");
        secured
            .server
            .wait_for(|line| line.contains("the changed certificate is refused"));
        assert_eq!(get(address, &client, "/health").expect("a response").1, old);
        replace(&next, "tideline.key");
        replace(&next, "tideline.crt");
        secured
            .server
            .wait_for(|line| line.contains("the changed certificate is in use"));
        let before = served.load(Ordering::Relaxed);
        while served.load(Ordering::Relaxed) < before + 20 {
            assert_eq!(get(address, &client, "/health").expect("a response").1, new);
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_certificate_near_its_end_is_reported_until_it_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = certificate_for(folder.path(), "tls", "10");
    let next = certificate_for(folder.path(), "next", "90");
    replace_with_an_old_one(&made);
    let (crt, key) = (made.join("tideline.crt"), made.join("tideline.key"));
    let trusted = [&crt, &next.join("tideline.crt")].map(|path| read_certificate(path));
    let client = client(&trusted, rustls::ALL_VERSIONS);
    let mut server = serve(folder.path(), &crt, &key);
    let line = server.wait_for(|line| line.starts_with("listening on "));
    let address = line.trim_start_matches("listening on https://").split(',').next();
    let address = address.expect("an address").parse().expect("an address");
    let get = |path: &str| get(address, &client, path).expect("a response").0;
    let ready = get("/ready");
    assert!(
        ready.starts_with("HTTP/1.1 200")
            && ready.contains("http.tls_certificate_file: the certificate ends at "),
        "{ready}"
    );
    let end = |metrics: &str| {
        let name = "tideline_tls_certificate_not_after_timestamp_seconds ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the metric").trim().parse::<f64>().expect("a number")
    };
    let before = end(&get("/metrics"));
    for name in ["tideline.key", "tideline.crt"] {
        let staged = folder.path().join("staged");
        fs::copy(next.join(name), &staged).expect("a copy");
        fs::rename(&staged, made.join(name)).expect("a new file");
    }
    server.wait_for(|line| line.contains("the changed certificate is in use"));
    let ready = get("/ready");
    assert!(!ready.contains("http.tls_certificate_file"), "{ready}");
    let days = (end(&get("/metrics")) - before) / 86_400.0;
    assert!((79.0..81.0).contains(&days), "{days}");
    server.signal(Signal::TERM);
    let (_, _, said) = server.end();
    assert!(said.contains("a certificate of the file ends soon"), "{said}");
}

#[test]
fn certificates_that_cannot_be_used_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = certificate(folder.path(), "tls");
    let (crt, key) = (made.join("tideline.crt"), made.join("tideline.key"));
    let refused = |certificate: &Path, key: &Path| {
        let (status, _, said) = serve(folder.path(), certificate, key).end();
        assert!(!status.success(), "{said}");
        said
    };
    let other = certificate(folder.path(), "other");
    let said = refused(&crt, &other.join("tideline.key"));
    assert!(said.contains("cannot be used together"), "{said}");
    let said = refused(&key, &key);
    assert!(said.contains("there is no certificate"), "{said}");
    let no_key = folder.path().join("no-key");
    fs::copy(&crt, &no_key).expect("a copy");
    fs::set_permissions(&no_key, fs::Permissions::from_mode(0o600)).expect("a mode");
    let said = refused(&crt, &no_key);
    assert!(said.contains("no valid private key"), "{said}");
    let said = refused(&crt, &folder.path().join("missing"));
    assert!(said.contains("missing"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("a mode");
    let said = refused(&crt, &key);
    assert!(said.contains("every user can read this file"), "{said}");
    // A certificate without a key is refused.
    let mut command = tideline(&["config", "check"]);
    command.env("TIDELINE__HTTP__TLS_CERTIFICATE_FILE", &crt);
    let checked = output(command);
    assert_eq!(checked.status.code(), Some(2));
    assert!(
        text(&checked.stderr).contains("needs http.tls_key_file"),
        "{}",
        text(&checked.stderr)
    );
    // Files are not replaced, and invalid names are refused.
    let mut again = tideline(&["tls", "self-signed", "--out"]);
    again.arg(&made);
    assert!(!output(again).status.success());
    for name in [
        "ü",
        "",
        "a b",
        "a..b",
        "a.",
        "-a.b",
        "10.1.2",
        "300.1.2.3",
        "[::1]",
        "a:8490",
        "*",
        "a.*",
    ] {
        let mut wrong = tideline(&["tls", "self-signed", &format!("--name={name}"), "--out"]);
        wrong.arg(folder.path().join("wrong"));
        assert_eq!(output(wrong).status.code(), Some(2), "{name:?}");
        assert!(!folder.path().join("wrong").exists());
    }
    let names = ["*.db.internal", "db_1", "10.1.2.3", "::1"].map(|name| format!("--name={name}"));
    let mut good = tideline(&["tls", "self-signed", "--out"]);
    good.arg(folder.path().join("good")).args(names);
    assert!(output(good).status.success());
}
