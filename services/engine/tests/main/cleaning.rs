//! Tests of the clean-up of the catalog.
//!
//! The clean-up removes timelines that have neither visible points nor attributes, and timelines that are silent for
//! too long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{Engine, Table};
use tideline_model::{Policy, TimeRange, Timestamp};

use crate::support::{
    DAY, Fixture, HOUR, SECOND, START, found, host, hosts, instants, set_owner, table_with, write,
};

fn clean(engine: &Engine, table: &Table) -> u64 {
    let now = engine.store().trusted_now();
    engine.clean_catalog(table, now).expect("a clean-up").removed
}

fn line(host: &str, at: i64) -> String {
    format!("m,host={host} f=1 {at}\n")
}

#[test]
fn a_timeline_without_points_goes_unless_it_has_attributes() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    for name in ["empty", "described", "full"] {
        write(&engine, &table, &line(name, START));
    }
    let described = found(&engine, &table, Condition::tag("host", "described"));
    set_owner(&engine, &table, described["described"].id, "ops");
    assert_eq!(clean(&engine, &table), 0);
    for name in ["empty", "described"] {
        engine
            .delete_points(&table, &host(name), TimeRange::ALL, NEVER)
            .expect("a delete");
    }
    assert_eq!(clean(&engine, &table), 1);
    assert_eq!(hosts(&engine, &table, Condition::All), ["described", "full"]);
    assert_eq!(clean(&engine, &table), 0);
    drop((table, engine));
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All), ["described", "full"]);
    write(&engine, &table, &line("empty", START));
    assert_eq!(hosts(&engine, &table, Condition::All).len(), 3);
}

#[test]
fn expired_timelines_go_when_a_mistake_could_have_been_taken_back() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let policy = Policy {
        retention: Some(10 * DAY),
        ..Policy::default()
    };
    let table = table_with(&engine, "short", policy.clone());
    write(&engine, &table, &line("old", START));
    fixture.pass(&engine, 11 * DAY);
    assert_eq!(
        found(&engine, &table, Condition::All)["old"].seen,
        None,
        "it has expired"
    );
    assert_eq!(
        clean(&engine, &table),
        0,
        "no recent write confirms that the clock is right"
    );
    write(&engine, &table, &line("young", fixture.now()));
    let altered = Policy {
        retention: Some(9 * DAY),
        ..policy
    };
    let spec = tideline_model::TableSpec {
        policy: altered,
        ..(*table.spec()).clone()
    };
    engine.alter_table("short", spec).expect("altered");
    assert_eq!(clean(&engine, &table), 0, "the policy has just been changed");
    fixture.pass(&engine, 25 * HOUR);
    assert_eq!(hosts(&engine, &table, Condition::All).len(), 2);
    write(&engine, &table, &line("young", fixture.now()));
    assert_eq!(clean(&engine, &table), 1);
    assert_eq!(hosts(&engine, &table, Condition::All), ["young"]);
}

#[test]
fn a_timeline_hidden_by_a_clock_that_is_ahead_stays_while_the_clock_can_be_corrected() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let policy = Policy {
        retention: Some(10 * DAY),
        ..Policy::default()
    };
    let table = table_with(&engine, "short", policy);
    write(&engine, &table, &line("edge", START));
    fixture.pass(&engine, 10 * DAY - HOUR / 3);
    write(&engine, &table, &line("young", fixture.now()));
    engine.seal().expect("a seal");
    engine.close().expect("it closes");
    drop((table, engine));
    // A start accepts a clock that is ahead by less than an hour.
    let right = fixture.now();
    let clock = |nanos| fixture.clock.set(Timestamp::from_nanos_clamped(nanos));
    clock(right + HOUR / 3 * 2);
    let engine = fixture.open();
    let table = engine.table("short").expect("the table");
    write(&engine, &table, &line("young", fixture.now()));
    assert_eq!(found(&engine, &table, Condition::All)["edge"].seen, None);
    assert_eq!(clean(&engine, &table), 0);
    clock(right);
    engine.store().confirm_clock();
    let seen = found(&engine, &table, Condition::All)["edge"].seen;
    assert_eq!(seen.map(|seen| seen.last.nanos()), Some(START));
    fixture.pass(&engine, 26 * HOUR);
    write(&engine, &table, &line("young", fixture.now()));
    assert_eq!(clean(&engine, &table), 1);
}

#[test]
fn silent_timelines_go_with_their_points_and_attributes() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let policy = Policy {
        timeline_ttl: Some(5 * DAY),
        ..Policy::default()
    };
    let table = table_with(&engine, "churn", policy);
    write(
        &engine,
        &table,
        &[line("silent", START), line("loud", START)].concat(),
    );
    let silent = found(&engine, &table, Condition::All)["silent"].id;
    set_owner(&engine, &table, silent, "ops");
    fixture.pass(&engine, 4 * DAY);
    write(&engine, &table, &line("loud", fixture.now()));
    assert_eq!(clean(&engine, &table), 0, "not yet");
    fixture.pass(&engine, 2 * DAY);
    write(&engine, &table, &line("other", fixture.now()));
    engine.seal().expect("a seal");
    assert_eq!(clean(&engine, &table), 1);
    assert_eq!(hosts(&engine, &table, Condition::All), ["loud", "other"]);
    assert!(instants(&engine, &table, silent).is_empty());
}

#[test]
fn nothing_goes_by_a_clock_in_doubt() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let policy = Policy {
        timeline_ttl: Some(5 * DAY),
        ..Policy::default()
    };
    let table = table_with(&engine, "churn", policy);
    fixture.pass(&engine, 2 * DAY);
    let start = fixture.now();
    write(&engine, &table, &line("a", start));
    fixture
        .clock
        .set(Timestamp::from_nanos_clamped(start + 300 * DAY));
    write(&engine, &table, &line("b", start + 300 * DAY));
    assert_eq!(clean(&engine, &table), 0);
    let reasons = engine.readiness().reasons;
    assert!(
        reasons.iter().any(|reason| reason.contains("clock is in doubt")),
        "{reasons:?}"
    );
    assert!(engine.readiness().writes, "writes go on");
    fixture.pass(&engine, 25 * HOUR);
    write(&engine, &table, &line("b", fixture.now()));
    assert_eq!(
        clean(&engine, &table),
        0,
        "a clock that was believed only for being steady is given a day more"
    );
    fixture.pass(&engine, 25 * HOUR);
    write(&engine, &table, &line("b", fixture.now()));
    assert_eq!(clean(&engine, &table), 1);
    assert_eq!(hosts(&engine, &table, Condition::All), ["b"]);
}

/// Timelines are emptied, written and cleaned concurrently. The last write is never lost.
/// The writers continue until a clean-up has removed a timeline: on a busy machine the first
/// clean-up may run late.
#[test]
fn a_timeline_that_is_written_at_that_moment_stays() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let done = AtomicBool::new(false);
    let cleaned = AtomicU64::new(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (engine, table, cleaned) = (&engine, &table, &cleaned);
                scope.spawn(move || {
                    for step in 0.. {
                        let met_empty = cleaned.load(Ordering::Relaxed) > 0;
                        if step >= 100 && (met_empty || Instant::now() >= deadline) {
                            break;
                        }
                        let name = format!("w{writer}h{}", step % 5);
                        engine
                            .delete_points(table, &host(&name), TimeRange::ALL, NEVER)
                            .expect("a delete");
                        let at = START + step * SECOND;
                        write(engine, table, &line(&name, at));
                        let stored = &found(engine, table, Condition::tag("host", &name))[&name];
                        assert_eq!(instants(engine, table, stored.id), [at]);
                    }
                })
            })
            .collect();
        let cleaner = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cleaned.fetch_add(clean(&engine, &table), Ordering::Relaxed);
            }
        });
        let joined: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        cleaner.join().expect("clean-ups succeed");
        assert!(joined.iter().all(Result::is_ok));
    });
    assert!(cleaned.into_inner() > 0, "some were met empty");
    assert_eq!(hosts(&engine, &table, Condition::All).len(), 10);
}
