//! A clock that goes wrong and right again: what it hides comes back, and nothing is lost by it meanwhile.

use tideline_engine::{Engine, Table};
use tideline_model::{Clock, Policy, Timestamp};
use tideline_search_index::Condition;

use crate::support::{DAY, Fixture, HOUR, START, found, hosts, instants, table_with, write};

fn line(host: &str, at: i64) -> String {
    format!("m,host={host} f={at}i {at}\n")
}

/// A table that keeps points for 30 days, with a sealed point of one machine.
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

/// The wall clock goes wrong by `jump`, and nobody sees it for longer than the guard waits.
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
    // Whoever leaves a clock wrong for two days means it.
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
