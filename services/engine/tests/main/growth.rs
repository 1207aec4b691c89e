//! Tests of three limits: new timelines per minute, memory of timeline identities, and number of tables.
//!
//! A refusal by the first limit names the tag with the most new values, if any tag has new values.

use tideline_engine::{ErrorKind, IdempotentRequest, Table, TableLimits};
use tideline_model::{Policy, RejectReason, TableName, TableSpec, WaitsFor};

use crate::support::{Fixture, SECOND, table_with, write, write_once};

fn limited(engine: &tideline_engine::Engine, limit: u64) -> Table {
    let policy = Policy {
        timelines_per_minute: Some(limit),
        ..Policy::default()
    };
    table_with(engine, "limited", policy)
}

fn pods(numbers: std::ops::Range<u32>) -> String {
    let lines = numbers.map(|pod| format!("m,host=a,pod=p{pod} f=1 1\n"));
    lines.collect()
}

#[test]
fn lines_of_too_many_new_timelines_are_refused_for_a_while() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 10);
    assert_eq!(write(&engine, &table, &pods(0..4)).rejected, 0);
    let outcome = write(&engine, &table, &pods(0..20));
    assert_eq!(
        (outcome.points, outcome.rejected, outcome.retryable),
        (10, 10, 10)
    );
    let said = &outcome.rejects[0];
    assert_eq!(said.line, 11);
    assert_eq!(
        said.reason.to_string(),
        "table limited takes at most 10 new timelines a minute; tag `pod` grows fastest (11 new values in the last \
         minute); retry later or raise timelines_per_minute"
    );
    assert_eq!(said.reason.waits_for(), Some(WaitsFor::Room));
    assert_eq!(engine.stats().timelines_refused, 10);
    assert_eq!(
        write(&engine, &table, &pods(0..10)).rejected,
        0,
        "known ones are always taken"
    );
    fixture.pass(&engine, 71 * SECOND);
    let outcome = write(&engine, &table, &pods(5..20));
    assert_eq!((outcome.points, outcome.rejected), (15, 0));
    let other = engine.default_table().expect("the default table");
    assert_eq!(write(&engine, &other, &pods(0..1_000)).rejected, 0);
}

#[test]
fn new_combinations_of_old_values_have_no_tag_to_blame() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 2);
    write(&engine, &table, "m,host=a,pod=x f=1 1\nm,host=b,pod=y f=1 1");
    let outcome = write(&engine, &table, "n,host=a,pod=y f=1 1");
    assert!(
        outcome.rejects[0].reason.to_string().contains("tag `"),
        "their values came in this minute: {}",
        outcome.rejects[0].reason
    );
    fixture.pass(&engine, 71 * SECOND);
    write(&engine, &table, "n,host=a,pod=x f=1 1\nn,host=b,pod=y f=1 1");
    let outcome = write(&engine, &table, "n,host=b,pod=x f=1 1");
    let reason = outcome.rejects[0].reason.to_string();
    assert!(
        reason.contains("new combinations of known tag values"),
        "{reason}"
    );
}

#[test]
fn a_request_that_stored_nothing_for_now_may_be_repeated_under_its_key() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = limited(&engine, 1);
    write(&engine, &table, &pods(0..1));
    let request = IdempotentRequest::new("order-7".into(), b"body", &[]);
    let send = || {
        let outcome = write_once(&engine, &table, &pods(1..2), &request).expect("an outcome");
        fixture.pass(&engine, 71 * SECOND);
        (outcome.points, outcome.retryable, outcome.repeated)
    };
    assert_eq!(send(), (0, 1, false));
    assert_eq!(send(), (1, 0, false));
    assert_eq!(send(), (1, 0, true));
}

#[test]
fn tables_without_a_limit_follow_that_of_the_server() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.tables.timelines_per_minute = 10);
    let table = engine.default_table().expect("the default table");
    assert_eq!(write(&engine, &table, &pods(0..10)).rejected, 0);
    let outcome = write(&engine, &table, &pods(5..15));
    assert_eq!((outcome.points, outcome.rejected, outcome.retryable), (5, 5, 5));
    let RejectReason::TooManyTimelines(growth) = &outcome.rejects[0].reason else {
        panic!("{:?}", outcome.rejects[0])
    };
    assert_eq!((growth.table.as_str(), growth.limit), ("default", 10));
    let own = limited(&engine, 12);
    assert_eq!(write(&engine, &own, &pods(0..12)).rejected, 0, "its own limit");
    fixture.pass(&engine, 71 * SECOND);
    assert_eq!(write(&engine, &table, &pods(10..20)).rejected, 0);
}

#[test]
fn the_first_start_of_a_large_fleet_is_within_the_defaults() {
    let limits = TableLimits::default();
    // 100,000 machines with 100 series each, all within a minute.
    assert!(limits.timelines_per_minute >= 100_000 * 100);
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    for start in (0..100_000).step_by(20_000) {
        let outcome = write(&engine, &table, &pods(start..start + 20_000));
        assert_eq!((outcome.points, outcome.rejected), (20_000, 0));
    }
    let (timelines, bytes) = table.identity_bytes();
    assert_eq!(timelines, 100_000);
    // At this size, the identities of the ten million timelines of such a fleet take less than 4 GB.
    assert!(bytes / timelines < 400, "{bytes} bytes");
}

#[test]
fn an_oversized_table_takes_points_of_known_timelines_only() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.tables.identity_bytes_max = 1 << 20);
    let table = engine.default_table().expect("the default table");
    let mut stored = 0;
    let refused = loop {
        let outcome = write(&engine, &table, &pods(stored..stored + 500));
        if outcome.rejected > 0 {
            break outcome;
        }
        stored += 500;
        assert!(stored < 100_000, "the limit holds");
    };
    assert!(stored >= 1_000, "{stored} timelines fit into a MiB");
    let (_, bytes) = table.identity_bytes();
    assert!(bytes < 2 << 20, "{bytes} bytes");
    let reason = refused.rejects[0].reason.to_string();
    assert!(
        reason.contains("tables.identity_bytes_max allows 1048576"),
        "{reason}"
    );
    assert_eq!(refused.retryable, 0, "time does not heal it");
    assert_eq!(write(&engine, &table, &pods(0..stored)).rejected, 0);
    assert_eq!(engine.stats().timelines_oversized, refused.rejected);
    // Other tables are not affected. A restart measures the identities again, and the limit still applies.
    let other = limited(&engine, 1_000);
    assert_eq!(write(&engine, &other, &pods(0..100)).rejected, 0);
    drop((table, other));
    engine.close().expect("closes");
    drop(engine);
    let engine = fixture.open_with(|settings| settings.tables.identity_bytes_max = 1 << 20);
    let table = engine.default_table().expect("the default table");
    assert_eq!(write(&engine, &table, &pods(0..stored)).rejected, 0);
    assert!(write(&engine, &table, &pods(200_000..200_500)).rejected > 0);
}

#[test]
fn tables_are_bounded_in_number() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.tables.tables_max = 3);
    let make = |name: &str| {
        let name = TableName::new(name).expect("valid");
        engine.create_table(name, TableSpec::default())
    };
    make("a").expect("the second one");
    make("b").expect("the third one");
    let refused = make("c").expect_err("a fourth one");
    assert_eq!(
        (refused.kind(), refused.limit(), refused.is_retryable()),
        (ErrorKind::OverLimit, Some((3, 4)), false)
    );
    assert!(refused.to_string().contains("tables.count_max"), "{refused}");
    assert_eq!(make("a").expect_err("taken").kind(), ErrorKind::Conflict);
    engine.drop_table("a").expect("dropped");
    make("c").expect("there is room again");
}
