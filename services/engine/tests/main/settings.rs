//! Tests of policies and statistics.
//!
//! A policy takes effect immediately or is refused. A table reports the statistics of its tiers.

use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{ErrorKind, TimelineSelector};
use tideline_model::{Policy, TableName, TableSpec, TimeRange};

use crate::support::{DAY, Fixture, START, found, host, instants, table_with, write};

fn spec(policy: Policy) -> TableSpec {
    TableSpec {
        policy,
        ..TableSpec::default()
    }
}

#[test]
fn a_policy_that_cannot_be_meant_is_refused_by_field() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let default = Policy::default;
    let cases = [
        (
            Policy {
                hot_ttl: Some(0),
                ..default()
            },
            "hot_ttl must be longer than 0s; omit it for no limit",
        ),
        (
            Policy {
                retention: Some(-1),
                ..default()
            },
            "retention must be longer than 0s; omit it for no limit",
        ),
        (
            Policy {
                timeline_ttl: Some(0),
                ..default()
            },
            "timeline_ttl must be longer than 0s; omit it for no limit",
        ),
        (
            Policy {
                cold_ttl: Some(7 * DAY),
                ..default()
            },
            "cold_ttl of 7d is not longer than hot_ttl of 7d",
        ),
        (
            Policy {
                hot_ttl: None,
                cold_ttl: Some(DAY),
                ..default()
            },
            "cold_ttl requires hot_ttl: without hot_ttl, no point ever reaches the cold tier",
        ),
        (
            Policy {
                move_bytes_per_second: Some(0),
                ..default()
            },
            "move_bytes_per_second must be at least 1; omit it for no limit",
        ),
        (
            Policy {
                timelines_per_minute: Some(0),
                ..default()
            },
            "timelines_per_minute must be at least 1; omit it for the limit of the server",
        ),
    ];
    for (policy, said) in cases {
        let name = TableName::new("bad").expect("valid");
        for refused in [
            engine.create_table(name, spec(policy.clone())),
            engine.alter_table("default", spec(policy)),
        ] {
            let error = refused.expect_err(said);
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (ErrorKind::Invalid, said)
            );
        }
    }
    assert_eq!(engine.tables().len(), 1);
    let short = Policy {
        retention: Some(DAY),
        ..default()
    };
    engine
        .alter_table("default", spec(short))
        .expect("a retention may be shorter than hot_ttl");
}

#[test]
fn lines_past_the_retention_are_refused_and_points_past_it_hidden() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table_with(&engine, "short", Policy::default());
    let line = |host: &str, at: i64| format!("m,host={host} f=1 {at}\n");
    let lines = [
        line("a", START - 40 * DAY),
        line("a", START),
        line("b", START - 31 * DAY),
    ];
    assert_eq!(write(&engine, &table, &lines.concat()).rejected, 0);
    let policy = Policy {
        retention: Some(30 * DAY),
        ..Policy::default()
    };
    engine.alter_table("short", spec(policy)).expect("altered");
    let outcome = write(
        &engine,
        &table,
        &[line("a", START - 30 * DAY - 1), line("a", START - 30 * DAY)].concat(),
    );
    assert_eq!((outcome.points, outcome.rejected, outcome.retryable), (1, 1, 0));
    assert_eq!(
        outcome.rejects[0].reason.to_string(),
        "time 2026-12-16T07:59:59.999999999Z is past the table's retention of 30d"
    );
    let timelines = found(&engine, &table, Condition::All);
    let seen = timelines["a"].seen.expect("visible");
    assert!(seen.first.nanos() >= START - 30 * DAY);
    assert_eq!(timelines["b"].seen, None);
    assert!(instants(&engine, &table, timelines["b"].id).is_empty());
    engine
        .alter_table("short", spec(Policy::default()))
        .expect("altered");
    let timelines = found(&engine, &table, Condition::All);
    assert_eq!(
        timelines["a"].seen.map(|seen| seen.first.nanos()),
        Some(START - 40 * DAY)
    );
    assert_eq!(instants(&engine, &table, timelines["b"].id).len(), 1);
}

#[test]
fn a_table_reports_its_tiers() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = table_with(&engine, "aging", Policy::default());
    let line = |at: i64| format!("m,host=a f=1,g=2 {at}\n");
    let lines: String = [0, 1, 2, 100, 101].map(|days| line(START - days * DAY)).concat();
    write(&engine, &table, &lines);
    let stats = engine.table_stats(&table);
    assert_eq!((stats.head.points, stats.sealed_points), (5, 0));
    assert_eq!(stats.head.span, Some((START - 101 * DAY, START)));
    engine.seal().expect("a seal");
    let stats = engine.table_stats(&table);
    assert_eq!((stats.head.points, stats.loaded_bytes), (0, stats.sealed_bytes));
    assert_eq!((stats.sealed_points, stats.sealed_values), (5, 10));
    assert_eq!((stats.hot.points, stats.cold.points), (3, 2));
    assert_eq!(stats.hot.bytes + stats.cold.bytes, stats.sealed_bytes);
    assert_eq!(stats.cold.span, Some((START - 101 * DAY, START - 100 * DAY)));
    assert_eq!(stats.sealed_span, Some((START - 101 * DAY, START)));
    assert!(stats.hot.windows >= 1 && stats.cold.windows >= 1);
    assert_eq!(
        (
            stats.deletes_waiting,
            stats.bytes_with_deletes,
            stats.expired_bytes
        ),
        (0, 0, 0)
    );
    let range = TimeRange::new(START - 200 * DAY, START - 50 * DAY);
    engine
        .delete_points(&table, &host("a"), range, NEVER)
        .expect("a delete");
    let stats = engine.table_stats(&table);
    assert_eq!(
        (stats.deletes_waiting, stats.bytes_with_deletes),
        (1, stats.cold.bytes)
    );
    let policy = Policy {
        retention: Some(60 * DAY),
        ..Policy::default()
    };
    engine.alter_table("aging", spec(policy)).expect("altered");
    let all = engine.all_table_stats();
    let names: Vec<&str> = all.iter().map(|(table, _)| table.name().as_str()).collect();
    assert_eq!(names, ["aging", "default"]);
    assert_eq!(all[0].1.expired_bytes, stats.cold.bytes);
    let everything = TimelineSelector::Condition(Condition::All);
    engine
        .delete_timelines(&table, &everything, NEVER)
        .expect("a delete");
    assert_eq!(engine.table_stats(&table).timelines, 0);
}
