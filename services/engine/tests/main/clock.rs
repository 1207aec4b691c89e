//! Tests of a clock that becomes wrong and is corrected later.
//!
//! Points hidden by a wrong clock become visible again, and no point is lost meanwhile. Further tests cover a first
//! start with a wrong clock, a long stop, and idempotency keys.

use tideline_condition::Condition;
use tideline_engine::{Engine, IdempotentRequest, Table, WriteOptions};
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{Clock, Policy, Timestamp};

use crate::support::{DAY, Fixture, HOUR, START, found, hosts, instants, table_with, write, write_once};

fn line(host: &str, at: i64) -> String {
    format!("m,host={host} f={at}i {at}\n")
}

/// Creates a table with a retention of 30 days and one sealed point of one machine.
fn with_one_point(engine: &Engine) -> Table {
    let policy = Policy {
        retention: Some(30 * DAY),
        ..Policy::default()
    };
    let table = table_with(engine, "month", policy);
    write(engine, &table, &line("a", START));
    engine.seal().expect("a seal");
    table
}

/// Shifts the wall clock by `jump` and lets 25 hours pass, after which the wrong time is trusted.
fn believe(fixture: &Fixture, engine: &Engine, jump: i64) {
    let wrong = fixture.clock.now().saturating_add(jump);
    fixture.clock.set(wrong);
    engine.store().trusted_now();
    fixture.pass(engine, 25 * HOUR);
    let trusted = engine.store().trusted_now();
    assert!(trusted.doubt.is_none() && trusted.settled.is_some());
    assert_eq!(trusted.now, fixture.clock.now());
}

fn mend(fixture: &Fixture, jump: i64) -> i64 {
    let right = fixture.now() - jump;
    fixture.clock.set(Timestamp::from_nanos_clamped(right));
    right
}

#[test]
fn nothing_is_refused_for_its_age_until_the_clock_is_sure() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = with_one_point(&engine);
    let jump = 100 * DAY;
    let id = found(&engine, &table, Condition::All)["a"].id;
    believe(&fixture, &engine, jump);
    let hidden = fixture.now() - jump;
    assert_eq!(write(&engine, &table, &line("a", hidden)).rejected, 0);
    assert!(instants(&engine, &table, id).is_empty());
    mend(&fixture, jump);
    assert!(engine.store().trusted_now().doubt.is_some());
    assert_eq!(write(&engine, &table, &line("a", hidden + 1)).rejected, 0);
    engine.store().confirm_clock();
    assert_eq!(instants(&engine, &table, id), [START, hidden, hidden + 1]);
    let old = line("a", fixture.now() - 31 * DAY);
    assert_eq!(write(&engine, &table, &old).rejected, 1);
    // After a clock has stayed wrong for two days, points are refused according to its time.
    believe(&fixture, &engine, jump);
    fixture.pass(&engine, 25 * HOUR);
    assert_eq!(write(&engine, &table, &line("a", hidden)).rejected, 1);
}

#[test]
fn what_a_clock_was_believed_for_is_known_after_a_restart() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = with_one_point(&engine);
    let jump = 100 * DAY;
    believe(&fixture, &engine, jump);
    write(&engine, &table, &line("a", fixture.now()));
    engine.seal().expect("a seal");
    let settled = engine.store().trusted_now().settled;
    drop((table, engine));
    let engine = fixture.open();
    let trusted = engine.store().trusted_now();
    assert_eq!((trusted.doubt, trusted.settled), (None, settled));
    mend(&fixture, jump);
    engine.store().confirm_clock();
    drop(engine);
    let engine = fixture.open();
    let trusted = engine.store().trusted_now();
    assert_eq!((trusted.doubt, trusted.settled), (None, None));
    assert_eq!(trusted.now, fixture.clock.now());
}

/// Weeks may pass between two flushes of an idle table. A clean stop stores the trusted time, so that a restart does
/// not show expired points again.
#[test]
fn a_clean_stop_stores_the_trusted_time() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    fixture.pass(&engine, 40 * HOUR);
    let before = engine.store().trusted_now();
    assert_eq!(before.now, fixture.clock.now());
    drop(engine);
    let engine = fixture.open();
    let after = engine.store().trusted_now();
    assert_eq!((after.now, after.doubt), (before.now, None));
}

#[test]
fn timelines_that_a_wrong_clock_hid_are_there_again() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = with_one_point(&engine);
    let jump = 100 * DAY;
    believe(&fixture, &engine, jump);
    write(&engine, &table, &line("c", fixture.now()));
    engine.seal().expect("a seal");
    drop((table, engine));
    let engine = fixture.open();
    let table = engine.table("month").expect("the table");
    let ask = |expected: Option<i64>| {
        let timeline = &found(&engine, &table, Condition::All)["a"];
        assert_eq!(timeline.seen.map(|seen| seen.last.nanos()), expected);
        let field = table.points().schema().field("f").expect("a field");
        let row = engine
            .store()
            .latest(table.points(), timeline.id, &[field])
            .expect("a row");
        assert_eq!(row.first().map(|field| field.timestamp), expected);
    };
    ask(None);
    let now = mend(&fixture, jump);
    engine.store().confirm_clock();
    ask(Some(START));
    write(&engine, &table, &line("b", now));
    let cleaned = engine.clean_catalog(&table, engine.store().trusted_now());
    assert_eq!(cleaned.expect("a clean-up").removed, 0);
    assert_eq!(hosts(&engine, &table, Condition::All), ["a", "b", "c"]);
}

/// Stores the trusted time, as each manifest edit does.
fn store_time(fixture: &Fixture, engine: &Engine) {
    let table = engine.default_table().expect("the default table");
    write(engine, &table, &line("a", fixture.now()));
    engine.seal().expect("a seal");
}

/// A machine whose clock has no battery starts in 1971. At its first start, there is no earlier time for a
/// comparison.
#[test]
fn a_first_start_in_1971_takes_points_with_a_time_and_no_others() {
    let fixture = Fixture::new();
    let truth = fixture.now();
    let year_1971 = Timestamp::from_nanos_clamped(365 * DAY);
    let floor = Timestamp::from_nanos_clamped(truth - 100 * DAY);
    let open = || fixture.open_with(|settings| settings.store.log.clock_floor = floor);
    fixture.clock.set(year_1971);
    for _ in 0..2 {
        let engine = open();
        let table = engine.default_table().expect("the default table");
        assert_eq!(engine.arrival_time(), None);
        assert!(engine.now() >= floor);
        assert_eq!(write(&engine, &table, &line("a", truth)).points, 1);
        let options = DecodeOptions::new(engine.arrival_time());
        let batch = line_protocol::decode(b"m,host=b f=1\n", options, &mut engine.resolver(&table));
        let outcome = engine
            .write(&table, batch, &WriteOptions::default())
            .expect("an outcome");
        assert_eq!((outcome.points, outcome.rejected, outcome.retryable), (0, 1, 1));
        engine.seal().expect("a seal, which stores the clock");
        fixture.clock.advance(HOUR);
    }
    // The time server responds: the clock is not in doubt, neither now nor after a restart.
    let engine = open();
    fixture.clock.set(Timestamp::from_nanos_clamped(truth));
    assert_eq!(engine.arrival_time(), Some(Timestamp::from_nanos_clamped(truth)));
    assert_eq!(engine.store().trusted_now().doubt, None);
    store_time(&fixture, &engine);
    drop(engine);
    let engine = open();
    assert_eq!(engine.store().trusted_now().doubt, None);
    assert!(engine.arrival_time().is_some());
}

#[test]
fn a_machine_that_was_off_over_a_weekend_stamps_points_at_once() {
    let fixture = Fixture::new();
    store_time(&fixture, &fixture.open());
    fixture.clock.advance(3 * DAY);
    let engine = fixture.open();
    assert!(
        engine.store().trusted_now().doubt.is_some(),
        "nothing expires yet"
    );
    assert_eq!(engine.arrival_time(), Some(fixture.clock.now()));
    engine.store().confirm_clock();
    drop(engine);
    // A clock that was set back stays in doubt: an outage of the machine explains only a clock that is ahead.
    fixture
        .clock
        .set(Timestamp::from_nanos_clamped(fixture.now() - 6 * DAY));
    let engine = fixture.open();
    assert_eq!(engine.arrival_time(), None);
}

#[test]
fn a_wrong_clock_removes_no_idempotency_key() {
    let fixture = Fixture::new();
    let [once, other] = ["once", "other"].map(|key| IdempotentRequest::new(key.into(), b"body", &[]));
    let right = fixture.clock.now();
    let send = |engine: &Engine, lines: &str, request: &IdempotentRequest| {
        let table = engine.default_table().expect("the default table");
        write_once(engine, &table, lines, request)
            .expect("an outcome")
            .repeated
    };
    let engine = fixture.open();
    assert!(!send(&engine, "m f=1 1800000000000000000\n", &once));
    fixture.clock.set(right.saturating_add(20_000 * DAY));
    // Outcomes are removed by their age when another outcome is stored.
    assert!(!send(&engine, "m f=2 1800000000000000000\n", &other));
    assert!(send(&engine, "m f=1 1800000000000000000\n", &once));
    engine.seal().expect("a seal");
    drop(engine);
    let engine = fixture.open();
    assert!(send(&engine, "m f=1 1800000000000000000\n", &once));
    assert!(send(&engine, "m f=2 1800000000000000000\n", &other));
}
