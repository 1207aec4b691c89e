//! Tests of changes through the log: attributes, saved searches and metric metadata.
//!
//! A change takes one append; its row is written by the next flush.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_backend::memory::AppendFault;
use tideline_engine::{Engine, ErrorKind, Table};
use tideline_model::{Policy, Tier, TimelineId};
use tideline_timeline_catalog::{AttributeChanges, AttributeValue, MetricKind, MetricMetadata};

use crate::support::{Fixture, found, host, hosts, owned, set_owner, table_with, write};
use tideline_condition::Condition;

fn owner(owner: &str) -> AttributeChanges {
    BTreeMap::from([("owner".to_owned(), Some(AttributeValue::Text(owner.to_owned())))])
}

fn metric(help: &str) -> MetricMetadata {
    MetricMetadata {
        name: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: help.to_owned(),
        unit: String::new(),
    }
}

fn filled(engine: &Engine) -> (Table, TimelineId) {
    let table = engine.default_table().expect("a table");
    write(engine, &table, "cpu,host=a v=1\ncpu,host=b v=1");
    let id = found(engine, &table, Condition::tag("host", "a"))["a"].id;
    (table, id)
}

/// Checks all changes of [`change_all`], with `by` as the expected owner.
fn check(engine: &Engine, by: &str) {
    let table = engine.default_table().expect("a table");
    assert_eq!(hosts(engine, &table, owned(by)), ["a"]);
    let searches = table.searches().all();
    assert_eq!(searches.len(), 1, "{searches:?}");
    assert_eq!((searches[0].0.as_str(), &*searches[0].1), ("mine", "{}"));
    assert_eq!(engine.metadata(&table), [metric("Is it up?")]);
}

fn change_all(engine: &Engine, table: &Table, id: TimelineId) {
    set_owner(engine, table, id, "ops");
    engine.save_search(table, "mine", "{}").expect("committed");
    engine.save_search(table, "other", "{}").expect("committed");
    assert!(engine.delete_search(table, "other").expect("committed"));
    let left_out = engine.put_metadata(table, &[metric("Is it up?")]);
    assert_eq!(left_out.expect("committed"), 0);
}

#[test]
fn changes_survive_a_power_cut_before_and_after_their_rows_are_written() {
    for seals in [false, true] {
        for fixture in [Fixture::new(), Fixture::distributed()] {
            let engine = fixture.open();
            let (table, id) = filled(&engine);
            change_all(&engine, &table, id);
            if seals {
                engine.seal().expect("flushed");
            }
            check(&engine, "ops");
            fixture.disk.cut_power();
            drop(engine);
            for _ in 0..2 {
                let engine = fixture.open();
                check(&engine, "ops");
                fixture.disk.cut_power();
            }
            // Replayed changes are flushed like new ones.
            let engine = fixture.open();
            engine.seal().expect("flushed");
            let end = engine.store().log().manifest().cursor.sealed_to;
            assert_eq!(end, engine.store().recent_end());
            engine.close().expect("closed");
            drop(engine);
            check(&fixture.open(), "ops");
        }
    }
}

#[test]
fn a_change_is_one_request_to_the_backend() {
    let fixture = Fixture::distributed();
    let engine = fixture.open();
    let (table, id) = filled(&engine);
    set_owner(&engine, &table, id, "dev");
    let before = fixture.disk.round_trips();
    set_owner(&engine, &table, id, "ops");
    engine.save_search(&table, "mine", "{}").expect("committed");
    engine
        .put_metadata(&table, &[metric("Is it up?")])
        .expect("committed");
    engine
        .put_metadata(&table, &[metric("Is it up?")])
        .expect("known");
    assert_eq!(fixture.disk.round_trips() - before, 3);
    check(&engine, "ops");
}

#[test]
fn attributes_searches_and_metadata_count_as_hot_bytes() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let (table, id) = filled(&engine);
    let hot_bytes = || engine.stored_data()[0].data.tier_bytes[Tier::Hot as usize];
    let mut before = hot_bytes();
    let mut has_grown = |what: &str| {
        let now = hot_bytes();
        assert!(now >= before + 1_000, "{what}: {before} {now}");
        before = now;
    };
    let long = "x".repeat(1_000);
    set_owner(&engine, &table, id, &long);
    has_grown("an attribute");
    engine.save_search(&table, "mine", &long).expect("committed");
    has_grown("a search");
    engine.put_metadata(&table, &[metric(&long)]).expect("committed");
    has_grown("metadata");
    assert!(engine.delete_search(&table, "mine").expect("committed"));
    assert!(hot_bytes() + 1_000 <= before, "{before} {}", hot_bytes());
}

#[test]
fn the_bytes_of_all_saved_searches_are_limited() {
    let fixture = Fixture::new();
    let open = |bytes| fixture.open_with(|settings| settings.tables.saved_search_bytes_max = bytes);
    let engine = open(1_000);
    let one = engine.default_table().expect("a table");
    let other = table_with(&engine, "other", Policy::default());
    let save = |table: &Table, name: &str, bytes: usize| engine.save_search(table, name, &"x".repeat(bytes));
    save(&one, "a", 499).expect("there is room");
    save(&other, "b", 399).expect("there is room");
    let full = save(&other, "c", 100).expect_err("there is no room");
    assert_eq!(
        (full.kind(), full.limit()),
        (ErrorKind::OverLimit, Some((1_000, 1_001)))
    );
    let message = full.to_string();
    assert!(message.contains("the saved searches of the server"), "{message}");
    save(&other, "c", 99).expect("there is room");
    save(&one, "a", 500).expect_err("it is larger than before");
    save(&one, "a", 498).expect("it is smaller than before");
    assert!(engine.delete_search(&one, "a").expect("committed"));
    save(&one, "d", 499).expect("there is room again");
    drop(engine);
    // Stored searches stay if the limit is lower after a start.
    let engine = open(10);
    let one = engine.default_table().expect("a table");
    assert_eq!(one.searches().bytes(), 500);
    engine.save_search(&one, "d", "{}").expect("smaller than before");
    assert!(engine.save_search(&one, "e", "{}").is_err());
}

#[test]
fn an_edit_of_unknown_outcome_is_there_or_not_and_may_be_sent_again() {
    for fault in [AppendFault::Lost, AppendFault::Landed, AppendFault::Late] {
        let fixture = Fixture::distributed();
        let engine = fixture.open();
        let (table, id) = filled(&engine);
        change_all(&engine, &table, id);
        fixture.disk.fail_append(fault);
        let failed = engine
            .set_attributes(&table, id, &owner("dev"))
            .expect_err("the outcome is unknown");
        assert!(failed.is_retryable(), "{failed}");
        check(&engine, "ops");
        drop(engine);
        let by = match fault {
            AppendFault::Landed => "dev",
            AppendFault::Lost | AppendFault::Late => "ops",
        };
        let engine = fixture.open();
        check(&engine, by);
        let table = engine.default_table().expect("a table");
        set_owner(&engine, &table, id, "dev");
        check(&engine, "dev");
        drop(engine);
        check(&fixture.open(), "dev");
    }
}

#[test]
fn without_a_lease_nothing_is_changed() {
    let fixture = Fixture::distributed();
    fixture
        .disk
        .limit_leases(Duration::from_secs(3_600), 1_000_000_000);
    let engine = fixture.open();
    let (table, id) = filled(&engine);
    change_all(&engine, &table, id);
    let newer = fixture.open();
    let refused = engine.set_attributes(&table, id, &owner("dev"));
    let refused = refused.expect_err("another process owns the shard");
    assert_ne!(refused.kind(), ErrorKind::Internal, "{refused}");
    assert!(engine.save_search(&table, "late", "{}").is_err());
    assert!(engine.put_metadata(&table, &[metric("Late?")]).is_err());
    check(&newer, "ops");
    drop(engine);
    check(&newer, "ops");
}

#[test]
fn attributes_of_removed_timelines_do_not_come_back_with_the_journal() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let (table, id) = filled(&engine);
    set_owner(&engine, &table, id, "ops");
    engine
        .delete_timelines(&table, &host("a"), tideline_engine::find::NEVER)
        .expect("removed");
    write(&engine, &table, "cpu,host=a v=2");
    let again = found(&engine, &table, Condition::tag("host", "a"))["a"].id;
    assert_eq!(again, id);
    for _ in 0..2 {
        fixture.disk.cut_power();
        let engine = fixture.open();
        let table = engine.default_table().expect("a table");
        assert_eq!(hosts(&engine, &table, owned("ops")), [""; 0]);
        assert_eq!(hosts(&engine, &table, Condition::tag("host", "a")), ["a"]);
    }
    drop(engine);
}
