//! Tests of a new owner that has read timelines before it took the data over.
//!
//! Most tests delete the stored rows in between, which shows that the new owner does not read them again.

use tideline_backend::{Backend, Direction, PageLimit, RowChange, Stamp};
use tideline_condition::Condition;
use tideline_engine::{Engine, Table};
use tideline_key_codec::{space, table_rows};
use tideline_model::{Durability, Policy};
use tideline_timeline_catalog::TimelinesAhead;

use crate::support::{Fixture, START, found, hosts, owned, set_owner, table_with, write};

fn write_host(engine: &Engine, table: &Table, host: &str) {
    write(engine, table, &format!("air,host={host} temperature=1 {START}\n"));
}

/// Reads the timelines as a standby of this owner does.
fn read_ahead(fixture: &Fixture, owner: &Engine) -> TimelinesAhead {
    let epoch = owner.store().log().epoch();
    let ahead = TimelinesAhead::read(&fixture.backend(), epoch, &|_| true);
    ahead.expect("sound rows").expect("it is wanted")
}

/// Removes all stored timelines of a table, so that a read of all rows would find none.
fn lose_timelines(fixture: &Fixture, table: &Table) {
    let backend = fixture.backend();
    let (partition, range) = table_rows(space::CATALOG, table.points().id());
    let limit = PageLimit {
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    let page = backend.scan(partition, &range, Direction::Ascending, limit);
    let lost = page.expect("a page").rows.into_iter().map(|row| RowChange {
        key: row.key,
        value: None,
    });
    let lost: Vec<RowChange> = lost.collect();
    assert!(!lost.is_empty());
    backend
        .write(partition, &lost, Stamp(u64::MAX), Durability::Synced)
        .expect("a write");
}

#[test]
fn a_new_owner_reads_only_what_changed_after_it_read_ahead() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    for host in ["h1", "h2", "h3"] {
        write_host(&engine, &table, host);
    }
    engine.seal().expect("sealed");
    let mut ahead = read_ahead(&fixture, &engine);
    assert_eq!(ahead.timelines(), 3);
    write_host(&engine, &table, "h4");
    let h1 = found(&engine, &table, Condition::tag("host", "h1"))["h1"].id;
    set_owner(&engine, &table, h1, "ops");
    engine.seal().expect("sealed");
    assert!(ahead.catch_up(&fixture.backend()).expect("sound records"));
    assert_eq!(ahead.timelines(), 4);
    write_host(&engine, &table, "h5");
    engine.seal().expect("sealed");
    // Only the journal has this timeline.
    write_host(&engine, &table, "h6");
    engine.close().expect("closed");

    let engine = fixture.open_ahead(ahead);
    let table = engine.default_table().expect("the default table");
    let all = ["h1", "h2", "h3", "h4", "h5", "h6"];
    assert_eq!(hosts(&engine, &table, Condition::All), all);
    assert_eq!(hosts(&engine, &table, owned("ops")), ["h1"]);
    write_host(&engine, &table, "h7");
    engine.seal().expect("sealed");
    engine.close().expect("closed");

    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All).len(), 7);
    assert_eq!(hosts(&engine, &table, owned("ops")), ["h1"]);
}

#[test]
fn a_new_owner_does_not_read_timelines_again() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write_host(&engine, &table, "h1");
    engine.seal().expect("sealed");
    let ahead = read_ahead(&fixture, &engine);
    engine.close().expect("closed");
    lose_timelines(&fixture, &table);
    let engine = fixture.open_ahead(ahead);
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h1"]);
}

#[test]
fn timelines_read_ahead_are_read_again_after_another_owner() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write_host(&engine, &table, "h1");
    engine.seal().expect("sealed");
    let ahead = read_ahead(&fixture, &engine);
    engine.close().expect("closed");
    let other = fixture.open();
    let table = other.default_table().expect("the default table");
    write_host(&other, &table, "h2");
    other.seal().expect("sealed");
    other.close().expect("closed");
    let engine = fixture.open_ahead(ahead);
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h1", "h2"]);
}

#[test]
fn timelines_of_a_dropped_table_are_not_kept_ahead() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write_host(&engine, &table, "h1");
    let dropped = table_with(&engine, "x", Policy::default());
    for host in ["h2", "h3"] {
        write_host(&engine, &dropped, host);
    }
    engine.seal().expect("sealed");
    let mut ahead = read_ahead(&fixture, &engine);
    assert_eq!(ahead.timelines(), 3);
    engine.drop_table("x").expect("dropped");
    assert!(ahead.catch_up(&fixture.backend()).expect("sound records"));
    assert_eq!(ahead.timelines(), 1);
    let dropped = table_with(&engine, "x", Policy::default());
    write_host(&engine, &dropped, "h4");
    engine.seal().expect("sealed");
    engine.close().expect("closed");

    let engine = fixture.open_ahead(ahead);
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h1"]);
    let table = engine.table("x").expect("the new table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h4"]);
}

#[test]
fn an_owner_without_changes_announces_its_log() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write_host(&engine, &table, "h1");
    engine.seal().expect("sealed");
    engine.close().expect("closed");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    engine.announce_changes().expect("announced");
    let ahead = read_ahead(&fixture, &engine);
    engine.close().expect("closed");
    lose_timelines(&fixture, &table);
    let engine = fixture.open_ahead(ahead);
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["h1"]);
}
