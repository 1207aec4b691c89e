//! Encrypted connections to the shared node, which serves clients with and without encryption on one port.
//!
//! Wrong certificates are refused with a reason that names the contact point and the required change.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use tideline_backend::{Backend, ErrorKind};
use tideline_backend_cassandra::check::{self, Outcome};
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
use tideline_testkit::cassandra::shared_node_with_certificate;

use crate::conformance::conforms;
use crate::keyspace::{Keyspace, SHARD, take_when_free};

/// Start of the error with which a node without encryption responds to an unknown version of its protocol: version,
/// flags, stream, and `ERROR`.
const CLEAR_TEXT: [u8; 9] = [0x84, 0, 0, 0, 0, 0, 0, 0, 0];
/// Number of rules of the suite that open the storage again, and of the rule of the largest requests. Some rules run once
/// per tier.
const RULES_MIN: usize = 9;

/// Returns options for encrypted connections.
fn encrypted(contact: &str, ca_file: Option<PathBuf>) -> CassandraOptions {
    CassandraOptions {
        contact: vec![contact.to_owned()],
        is_tls: true,
        ca_file,
        ..CassandraOptions::default()
    }
}

/// Checks that options are refused for a reason with these parts, by an open and by the checks of a cluster.
#[track_caller]
fn refused(options: &CassandraOptions, parts: &[&str]) {
    let error = CassandraBackend::open(options.clone()).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let checks = check::run(options);
    assert_eq!(checks.len(), 1, "{checks:?}");
    assert_eq!(checks[0].outcome, Outcome::Failed, "{}", checks[0]);
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
        assert!(
            checks[0].detail.contains(part),
            "{part:?} is missing: {}",
            checks[0]
        );
    }
}

#[test]
fn encrypted_connections_keep_the_contract() {
    let Some((contact, certificate)) = shared_node_with_certificate() else {
        return;
    };
    let mut keyspace = Keyspace::new(contact);
    keyspace.0.options.is_tls = true;
    keyspace.0.options.ca_file = Some(certificate);
    let options = keyspace.0.options.clone();
    let created = schema::create(&options, &Replication::Simple(1));
    assert_eq!(created.expect("the tables exist"), schema::SCHEMA_VERSION);
    let keyspace = Arc::new(keyspace);
    let is_selected = |name: &str| name.contains("restart") || name == "limits are kept";
    let count = conforms(&keyspace, &is_selected);
    assert!(count >= RULES_MIN, "{count} rules");

    keyspace.empty();
    let backend = keyspace.open();
    backend.take(SHARD).expect("the shard is free");
    backend.close().expect("close");
    let checks = check::run(&options);
    let is_sound = checks.iter().all(|check| check.outcome != Outcome::Failed);
    assert!(is_sound && checks.len() > 1, "{checks:?}");

    // The same node also serves clients without encryption.
    let mut plain = options;
    (plain.is_tls, plain.ca_file) = (false, None);
    let backend = CassandraBackend::open(plain).expect("it opens without encryption");
    take_when_free(&backend);
    backend.close().expect("close");
}

#[test]
fn an_unknown_authority_is_refused() {
    let Some((contact, certificate)) = shared_node_with_certificate() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let other = rcgen::generate_simple_self_signed(vec![host(contact)]).expect("a certificate");
    let other = file("other.pem", &other.cert.pem());
    let advice = "set cassandra.ca_file to a PEM file";
    refused(
        &encrypted(contact, Some(other.clone())),
        &[contact, "UnknownIssuer", &other.display().to_string(), advice],
    );
    refused(
        &encrypted(contact, None),
        &[contact, "UnknownIssuer", "the list of the system", advice],
    );
    let none = file("none.pem", "no certificate");
    let reason = format!("{}: it holds no certificate", none.display());
    refused(&encrypted(contact, Some(none)), &[&reason]);
    let missing = folder.path().join("missing.pem");
    let reason = format!("{}: No such file", missing.display());
    refused(&encrypted(contact, Some(missing)), &[&reason]);

    // A file can contain several authorities.
    let texts = [&other, &certificate].map(|path| fs::read_to_string(path).expect("a file"));
    let both = file("both.pem", &texts.concat());
    let error = CassandraBackend::open(CassandraOptions {
        keyspace: "missing".to_owned(),
        ..encrypted(contact, Some(both))
    });
    let error = error.expect_err("there is no such keyspace").to_string();
    assert!(error.contains("tideline backend schema"), "{error}");
}

#[test]
fn a_certificate_names_the_address_of_its_node() {
    let Some((contact, certificate)) = shared_node_with_certificate() else {
        return;
    };
    let relay = relay(contact.to_owned()).expect("a relay").to_string();
    refused(
        &encrypted(&relay, Some(certificate)),
        &[&relay, &host(contact), "must name the IP address"],
    );
}

#[test]
fn a_node_without_encryption_is_refused() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let contact = listener.local_addr().expect("an address");
    // The thread ends with the process.
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 5];
            // Fails only if the client has disconnected.
            let _ = stream
                .read_exact(&mut request)
                .and_then(|()| stream.write_all(&CLEAR_TEXT));
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let authority = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let file = folder.path().join("authority.pem");
    fs::write(&file, authority.cert.pem()).expect("written");
    let contact = contact.to_string();
    refused(
        &encrypted(&contact, Some(file)),
        &[&contact, "does not encrypt", "cassandra.tls"],
    );
}

/// Returns the host of a contact point.
fn host(contact: &str) -> String {
    let host = contact.rsplit_once(':').map_or(contact, |(host, _)| host);
    host.to_owned()
}

/// Listens on another address than the node, and forwards connections to the node. The threads end with the process.
fn relay(node: String) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // The client reports a connection that is not forwarded.
            let _ = forward(client, &node);
        }
    });
    Ok(address)
}

/// Copies the bytes of a connection in both directions.
fn forward(client: TcpStream, node: &str) -> io::Result<()> {
    let node = TcpStream::connect(node)?;
    let (from_client, to_node) = (client.try_clone()?, node.try_clone()?);
    for (mut from, mut to) in [(from_client, to_node), (node, client)] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
