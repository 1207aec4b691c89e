//! Wrong settings and missing rights: each is refused with a reason and the required change.
//!
//! The reasons are part of the interface: an operator reads them at the start of a server.

use tideline_backend::{Acknowledged, Backend, BackendError, ErrorKind};
use tideline_backend_cassandra::check::{self, Check, Outcome};
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};
use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings, shared_node};
use tideline_testkit::wait;

use crate::keyspace::{Keyspace, PATIENCE, SHARD, run, take_when_free};

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

    keyspace.run(&format!(
        "INSERT INTO schema_version (name, version) VALUES ('tideline', {})",
        schema::SCHEMA_VERSION
    ));
    keyspace.run("DROP TABLE unit");
    refused(
        &keyspace.0.options,
        &["lacks a table", "unit", "tideline backend schema"],
    );
    schema::create(&keyspace.0.options, &Replication::Simple(1)).expect("it creates missing tables");
    keyspace.open();

    keyspace.run("DROP TABLE schema_version");
    refused(&keyspace.0.options, &["no tables", "tideline backend schema"]);
}

#[test]
fn a_keyspace_has_one_replication() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let created = schema::create(&keyspace.0.options, &Replication::Simple(3));
    let error = created.expect_err("the keyspace has one copy");
    is_misconfigured(
        &error,
        &[
            "'replication_factor': 1",
            "ALTER KEYSPACE",
            "'replication_factor': 3",
        ],
    );

    // The shared node may be one of a cluster, but not of as many.
    let mut new = options(contact);
    new.keyspace = format!("{}_new", keyspace.0.options.keyspace);
    let created = schema::create(&new, &Replication::Simple(255));
    is_misconfigured(
        &created.expect_err("no quorum"),
        &["needs 128 nodes", "--replication"],
    );
    refused(&new, &["there is no keyspace"]);

    let name = &keyspace.0.options.keyspace;
    keyspace.run(&format!(
        "ALTER KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 255}}"
    ));
    let error = CassandraBackend::open(keyspace.0.options.clone()).expect_err("no quorum");
    assert!(error.kind().is_retryable(), "{error}");
    for part in ["ALTER KEYSPACE", "DROP KEYSPACE"] {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
    }
}

#[test]
fn a_keyspace_belongs_to_one_data_center() {
    let Some(contact) = shared_node() else { return };
    let keyspace = Keyspace::new(contact);
    let rows = keyspace.run("SELECT data_center FROM schema_version WHERE name = 'tideline'");
    let stored = rows
        .expect("rows")
        .first_row::<(String,)>()
        .expect("the stored name")
        .0;
    let mut own = keyspace.0.options.clone();
    own.data_center = Some(stored.clone());
    CassandraBackend::open(own.clone()).expect("the data center of the nodes");
    own.data_center = Some("nope".to_owned());
    refused(&own, &["cassandra.data_center is \"nope\"", &stored]);

    let store = |name: &str| {
        keyspace.run(&format!(
            "UPDATE schema_version SET data_center = {name} WHERE name = 'tideline' IF EXISTS"
        ))
    };
    store("'elsewhere'");
    let other = ["in data center \"elsewhere\"", "cassandra.data_center"];
    refused(&keyspace.0.options, &other);
    let created = schema::create(&keyspace.0.options, &Replication::Simple(1));
    is_misconfigured(&created.expect_err("another data center"), &other);

    // Two processes find no name; the first one that takes the data stores its own.
    store("null");
    let [first, second] = [(); 2].map(|()| keyspace.open());
    first.take(SHARD).expect("the shard is free");
    drop(first);
    take_when_free(&second);
    let rows = keyspace.run("SELECT data_center FROM schema_version WHERE name = 'tideline'");
    let again = rows
        .expect("rows")
        .first_row::<(String,)>()
        .expect("the stored name")
        .0;
    assert_eq!(again, stored);
    drop(second);
    store("null");
    let late = keyspace.open();
    store("'elsewhere'");
    is_misconfigured(&late.take(SHARD).expect_err("another data center"), &other);

    // A keyspace of an earlier build has no column for the name.
    keyspace.run("ALTER TABLE schema_version DROP data_center");
    let late = keyspace.open();
    late.take(SHARD).expect("the keyspace names no data center");
    let reported = |outcome: Outcome| {
        let checks = check::run(&keyspace.0.options);
        let found = checks.iter().find(|check| check.name == "data center");
        assert_eq!(found.map(|check| check.outcome), Some(outcome), "{checks:?}");
    };
    reported(Outcome::Warning);
    schema::create(&keyspace.0.options, &Replication::Simple(1)).expect("it adds the column");
    reported(Outcome::Passed);
    // A process that was opened before the keyspace had the column takes the name into account.
    store("'elsewhere'");
    is_misconfigured(&late.take(SHARD).expect_err("another data center"), &other);
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
    drop(backend);
    let failed = |options: &CassandraOptions| -> Vec<Check> {
        let mut checks = check::run(options);
        checks.retain(|check| check.outcome == Outcome::Failed);
        checks
    };
    let found = failed(&server);
    assert!(found.is_empty(), "{found:?}");

    // A user who may not change single tables.
    statement("CREATE ROLE reader WITH PASSWORD = 'secret' AND LOGIN = true");
    statement(&format!("GRANT SELECT ON KEYSPACE {keyspace} TO reader"));
    statement("GRANT SELECT ON TABLE system_views.settings TO reader");
    for table in [
        "space_row",
        "journal",
        "journal_slot",
        "unit",
        "part_row",
        "shard",
    ] {
        statement(&format!("GRANT MODIFY ON {keyspace}.{table} TO reader"));
    }
    let reader = CassandraOptions {
        user: Some("reader".to_owned()),
        ..server.clone()
    };
    // The node caches rights.
    let found = wait::until(PATIENCE, || {
        let failed = failed(&reader);
        let names: Vec<&str> = failed.iter().map(|check| check.name).collect();
        (names == ["conditional requests", "tables"]).then_some(failed)
    });
    let found = found.unwrap_or_else(|| panic!("{:?}", failed(&reader)));
    let grant = format!("GRANT MODIFY ON KEYSPACE {keyspace} TO reader");
    for (check, table, other) in [(&found[0], "member", "shard"), (&found[1], "chunk", "unit")] {
        assert!(check.detail.contains(&format!("table {table}: ")), "{check}");
        assert!(!check.detail.contains(&format!("table {other}: ")), "{check}");
        assert!(check.detail.contains(&grant), "{check}");
    }
}
