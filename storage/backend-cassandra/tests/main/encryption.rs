//! Encrypted connections: the certificate of a node is checked. Without the feature `tls`, encrypted connections are
//! refused.

#[cfg(feature = "tls")]
mod connections;

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
