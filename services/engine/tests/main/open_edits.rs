//! Tests of tables that were created or dropped by a manifest edit with an initially unknown outcome.

use tideline_backend::memory::{AppendFault, EditFault};
use tideline_condition::Condition;
use tideline_engine::{ErrorKind, WriteOptions};
use tideline_model::{Policy, TableName, TableSpec};

use crate::support::{Fixture, decode, hosts, table_with, write};

#[test]
fn a_table_that_was_made_after_all_takes_writes_and_is_searched() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    fixture.disk.fail_edit(EditFault::Applied);
    fixture.disk.hide_manifest(true);
    let name = TableName::new("x").expect("valid");
    let unknown = engine.create_table(name, TableSpec::default());
    assert_eq!(unknown.expect_err("open").kind(), ErrorKind::Unavailable);
    let unknown = engine.table("x").expect_err("it may be there");
    assert!(unknown.is_retryable() && unknown.kind() == ErrorKind::Unavailable);
    assert_eq!(
        engine.table("y").expect_err("never made").kind(),
        ErrorKind::NotFound
    );
    fixture.disk.hide_manifest(false);
    let table = engine.table("x").expect("it was made");
    write(&engine, &table, "m,host=a f=1 1\n");
    engine.seal().expect("a seal");
    assert_eq!(hosts(&engine, &table, Condition::tag("host", "a")), ["a"]);
}

#[test]
fn a_table_that_was_dropped_after_all_leaves_nothing_behind() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = table_with(&engine, "x", Policy::default());
    write(&engine, &table, "m,host=a f=1 1\n");
    engine.seal().expect("a seal");
    fixture.disk.fail_edit(EditFault::Applied);
    fixture.disk.hide_manifest(true);
    let unknown = engine.drop_table("x").expect_err("open");
    assert!(unknown.is_retryable());
    let batch = decode(&engine, &table, "m,host=b f=1 1\n");
    let refused = engine.write(&table, batch, &WriteOptions::default());
    assert_eq!(refused.expect_err("in doubt").kind(), ErrorKind::Unavailable);
    fixture.disk.hide_manifest(false);
    let batch = decode(&engine, &table, "m,host=b f=1 1\n");
    let refused = engine.write(&table, batch, &WriteOptions::default());
    assert_eq!(refused.expect_err("dropped").kind(), ErrorKind::NotFound);
    assert_eq!(
        engine.table("x").expect_err("dropped").kind(),
        ErrorKind::NotFound
    );
    engine.forget_dropped_tables().expect("a clean-up");
    let stats = engine.stats();
    assert_eq!((stats.tables, stats.timelines), (1, 0));
    let table = table_with(&engine, "x", Policy::default());
    assert!(hosts(&engine, &table, Condition::All).is_empty());
}

/// A full disk can prevent the note, and the drop frees space on it.
#[test]
fn a_table_that_cannot_be_noted_is_dropped() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    // This table is not noted, because changes are kept only later.
    table_with(&engine, "x", Policy::default());
    engine
        .put_state("test", &[])
        .expect("the table of the state exists");
    engine
        .keep_changes(Some(engine.changes_end()))
        .expect("changes are kept");
    assert!(engine.kept_changes().expect("a history").from.is_some());
    fixture.disk.fail_append(AppendFault::Lost);
    engine.drop_table("x").expect("dropped");
    assert_eq!(
        engine.table("x").expect_err("dropped").kind(),
        ErrorKind::NotFound
    );
}
