//! Wrong settings and missing rights: each is refused with a reason and the required change.
//!
//! The reasons are part of the interface: an operator reads them at the start of a server.

use tideline_backend::{Acknowledged, Backend, BackendError, ErrorKind};
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings, shared_node};
use tideline_testkit::wait;

use crate::keyspace::{Keyspace, PATIENCE, SHARD, run};

/// Returns options for a keyspace that does not exist.
fn options(contact: &str) -> CassandraOptions {
    CassandraOptions {
        contact: vec![contact.to_owned()],
        ..CassandraOptions::default()
    }
}

/// Opens a keyspace, and checks that this is refused for a reason with these parts.
fn refused(options: &CassandraOptions, parts: &[&str]) {
    let error = CassandraBackend::open(options.clone()).expect_err("it is refused");
    is_misconfigured(&error, parts);
}

fn is_misconfigured(error: &BackendError, parts: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
    }
}

#[test]
fn tables_are_created_once_and_have_a_version() {
    let Some(contact) = shared_node() else { return };
    let mut missing = options(contact);
    missing.keyspace = "missing".to_owned();
    refused(&missing, &[&missing.keyspace, "tideline backend schema"]);

    let keyspace = Keyspace::new(contact);
    let created = schema::create(&keyspace.0.options, &Replication::Simple(1));
    assert_eq!(created.expect("again"), schema::SCHEMA_VERSION);
    keyspace.open();

    let newer = schema::SCHEMA_VERSION + 1;
    keyspace.run(&format!(
        "INSERT INTO schema_version (name, version) VALUES ('tideline', {newer})"
    ));
    let version = format!("version {newer}");
    refused(&keyspace.0.options, &[&version, &keyspace.0.options.keyspace]);
    let created = schema::create(&keyspace.0.options, &Replication::Simple(1));
    is_misconfigured(&created.expect_err("another version"), &[&version]);

    keyspace.run("DROP TABLE schema_version");
    refused(&keyspace.0.options, &["no tables", "tideline backend schema"]);
}

#[test]
fn synced_writes_need_a_synced_commit_log() {
    let Some(contact) = shared_node() else { return };
    let mut keyspace = Keyspace::new(contact);
    keyspace.0.options.acknowledged = Acknowledged::Synced;
    refused(
        &keyspace.0.options,
        &["commitlog_sync", "periodic", "cassandra.acknowledged"],
    );
}

#[test]
fn a_node_with_users_and_a_synced_commit_log() {
    let settings = NodeSettings {
        commit_log: CommitLog::Group,
        has_users: true,
        ..NodeSettings::default()
    };
    let Some(node) = CassandraNode::start(&settings) else {
        return;
    };
    let administrator = CassandraOptions {
        user: Some("cassandra".to_owned()),
        password: Some("cassandra".to_owned()),
        acknowledged: Acknowledged::Synced,
        ..options(node.address())
    };
    // The node creates its first user some time after it answers.
    let created = wait::until(PATIENCE, || {
        schema::create(&administrator, &Replication::Simple(1)).ok()
    });
    assert_eq!(created, Some(schema::SCHEMA_VERSION));
    let backend = CassandraBackend::open(administrator.clone()).expect("a synced commit log is accepted");
    assert_eq!(backend.capabilities().acknowledged, Acknowledged::Synced);
    backend.take(SHARD).expect("the shard is free");
    drop(backend);

    let wrong = CassandraOptions {
        password: Some("wrong".to_owned()),
        ..administrator.clone()
    };
    refused(&wrong, &["cassandra.password_file"]);
    let without = CassandraOptions {
        user: None,
        ..administrator.clone()
    };
    refused(&without, &["cassandra.user"]);

    // A user with all rights in the keyspace, but in no other.
    let statement = |text: &str| {
        let login = ("cassandra".to_owned(), "cassandra".to_owned());
        run(node.address(), None, Some(login), text);
    };
    let keyspace = &administrator.keyspace;
    statement("CREATE ROLE server WITH PASSWORD = 'secret' AND LOGIN = true");
    let server = CassandraOptions {
        user: Some("server".to_owned()),
        password: Some("secret".to_owned()),
        ..administrator.clone()
    };
    let error = CassandraBackend::open(server.clone()).expect_err("without rights");
    is_misconfigured(&error, &[]);
    statement(&format!("GRANT ALL PERMISSIONS ON KEYSPACE {keyspace} TO server"));
    let grant = "GRANT SELECT ON TABLE system_views.settings TO server";
    let named = wait::until(PATIENCE, || {
        let error = CassandraBackend::open(server.clone()).expect_err("without a right");
        error.to_string().contains(grant).then_some(error)
    });
    is_misconfigured(&named.expect("the missing right is named"), &[grant]);
    let created = schema::create(&server, &Replication::Simple(1));
    assert_eq!(created.expect("the keyspace exists"), schema::SCHEMA_VERSION);
    statement(grant);
    let opened = wait::until(PATIENCE, || CassandraBackend::open(server.clone()).ok());
    let backend = opened.expect("the user has all rights");
    backend.take(SHARD).expect("the shard is free");
}
