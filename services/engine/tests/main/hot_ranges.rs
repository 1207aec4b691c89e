//! Tests of the reports of busy key ranges and large machines.
//!
//! Even load is not reported.

use tideline_condition::Condition;
use tideline_engine::{Engine, Table};
use tideline_model::TimelineId;

use crate::support::{Fixture, SECOND, START, found, write};

fn fleet(machines: u32, points: i64) -> String {
    let line = |host: u32, at: i64| format!("m,host=h{host} f=1 {}\n", START + at);
    let all = (0..machines).flat_map(|host| (0..points).map(move |at| line(host, at)));
    all.collect()
}

fn busy(points: i64) -> String {
    let all = (0..points).map(|at| format!("m,host=busy f=1 {}\n", START + at));
    all.collect()
}

fn id_of(engine: &Engine, table: &Table, host: &str) -> TimelineId {
    found(engine, table, Condition::tag("host", host))[host].id
}

#[test]
fn a_machine_that_writes_far_more_than_others_is_named_within_a_minute() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, &fleet(1_000, 4));
    assert_eq!(engine.hot_ranges(&table), [], "even load is not hot");
    for _ in 0..4 {
        fixture.pass(&engine, 5 * SECOND);
        write(&engine, &table, &busy(2_000));
        write(&engine, &table, &fleet(1_000, 1));
    }
    let ranges = engine.hot_ranges(&table);
    assert_eq!(ranges.len(), 1, "{ranges:?}");
    let prefix = id_of(&engine, &table, "busy").to_string();
    assert_eq!(ranges[0].from, format!("{}00", &prefix[..2]));
    assert_eq!(ranges[0].to, format!("{}ff", &prefix[..2]));
    assert!(
        (0.4..0.6).contains(&ranges[0].share_of_writes),
        "8,000 of 16,000: {}",
        ranges[0].share_of_writes
    );
    assert_eq!(ranges[0].sources.first().map(String::as_str), Some("busy"));
    fixture.pass(&engine, 61 * SECOND);
    assert_eq!(engine.hot_ranges(&table), [], "a minute later it is forgotten");
}

#[test]
fn timelines_that_are_read_far_more_than_others_are_reported() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, &fleet(1_000, 1));
    fixture.pass(&engine, 120 * SECOND);
    let all: Vec<TimelineId> = found(&engine, &table, Condition::All)
        .into_values()
        .map(|timeline| timeline.id)
        .collect();
    engine.note_read(&table, &all);
    assert_eq!(engine.hot_ranges(&table), []);
    let favourite = id_of(&engine, &table, "h7");
    for _ in 0..1_000 {
        engine.note_read(&table, &[favourite]);
    }
    let ranges = engine.hot_ranges(&table);
    assert_eq!(ranges.len(), 1, "{ranges:?}");
    assert!(ranges[0].share_of_reads > 0.49 && ranges[0].share_of_writes == 0.0);
}

#[test]
fn a_few_machines_that_share_the_load_are_not_hot() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, &fleet(5, 1_000));
    assert_eq!(engine.hot_ranges(&table), []);
    write(&engine, &table, &busy(20_000));
    assert_eq!(engine.hot_ranges(&table).len(), 1);
}

#[test]
fn the_largest_machines_are_listed_by_name() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    write(&engine, &table, &fleet(3, 10));
    write(&engine, &table, &busy(5_000));
    engine.seal().expect("a seal");
    write(&engine, &table, &busy(5_000));
    engine.seal().expect("a seal");
    let partitions = engine.largest_partitions(&table);
    assert_eq!(partitions.len(), 4, "{partitions:?}");
    assert_eq!(partitions[0].source.as_deref(), Some("busy"));
    assert!(partitions[0].bytes > partitions[1].bytes);
    assert_eq!(partitions[0].warning, None);
    let id = id_of(&engine, &table, "busy").to_string();
    assert_eq!(partitions[0].prefix, id[..16]);
    let stored = engine.table_stats(&table).sealed_bytes;
    let listed: u64 = partitions.iter().map(|partition| partition.bytes).sum();
    assert!(listed <= stored, "{listed} of {stored}");
}
