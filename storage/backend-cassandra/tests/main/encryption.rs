//! Encrypted connections: the certificate of a node is checked. Without the feature `tls`, encrypted connections are
//! refused.

#[cfg(not(feature = "tls"))]
#[test]
fn a_build_without_encryption_refuses_it() {
    use tideline_backend::ErrorKind;
    use tideline_backend_cassandra::{CassandraBackend, CassandraOptions};

    let options = CassandraOptions {
        contact: vec!["127.0.0.1:1".to_owned()],
        is_tls: true,
        ..CassandraOptions::default()
    };
    let error = CassandraBackend::open(options).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("--features cassandra-tls"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn connections_are_encrypted_and_certificates_are_checked() {
    use std::fs;

    use tideline_backend::{Acknowledged, Backend, ErrorKind};
    use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
    use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings};

    use crate::keyspace::SHARD;

    let settings = NodeSettings {
        commit_log: CommitLog::Group,
        has_tls: true,
        ..NodeSettings::default()
    };
    let (Some(node), Some(other)) = (CassandraNode::start(&settings), CassandraNode::start(&settings)) else {
        return;
    };
    let options = |ca_file| CassandraOptions {
        contact: vec![node.address().to_owned()],
        acknowledged: Acknowledged::Synced,
        is_tls: true,
        ca_file,
        ..CassandraOptions::default()
    };
    let encrypted = options(Some(node.certificate()));
    schema::create(&encrypted, &Replication::Simple(1)).expect("the certificate is known");
    let backend = CassandraBackend::open(encrypted).expect("the certificate is known");
    backend.take(SHARD).expect("the shard is free");
    let without = other.certificate().with_extension("empty");
    fs::write(&without, "no certificate").expect("written");
    for (wrong, part) in [
        (Some(other.certificate()), "cassandra.ca_file"),
        (None, "cassandra.ca_file"),
        (Some(without.clone()), "it holds no certificate"),
        (Some(without.with_extension("missing")), "No such file"),
    ] {
        let error = CassandraBackend::open(options(wrong.clone())).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{wrong:?}: {error}");
        assert!(error.to_string().contains(part), "{wrong:?}: {error}");
    }
}
