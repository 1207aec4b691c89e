//! Buffered writes, which are acknowledged before their sync: a power cut loses at most the writes of the last second,
//! even under steady load.

use std::time::{Duration, Instant};

use tideline_backend::memory::{Character, MemoryDisk};
use tideline_model::{Durability, TimeRange, Value};
use tideline_series_store::{Order, Settings};

use crate::fixture::{Point, TestBackend, read, timeline, write_as};

/// Maximum loss according to the guide.
const PROMISE: Duration = Duration::from_secs(1);
/// Duration of the load. It is longer than [`PROMISE`], so that some writes must survive.
const LOAD: Duration = Duration::from_millis(2_500);

fn point(at: i64) -> Point {
    (timeline(1), at, vec![("value", Value::Signed(at))])
}

/// Writes one point after another without a pause. If write B is sent at least a second after write A was acknowledged,
/// A must be on stable storage when B is acknowledged, because the committer has checked the deadline of the sync in
/// between.
#[test]
fn steady_load_does_not_delay_the_sync_of_buffered_writes() {
    let disk = MemoryDisk::new(Character::Embedded);
    let test_backend = TestBackend::Memory(disk.clone());
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    let began = Instant::now();
    // Times at which each write was sent and acknowledged.
    let mut writes: Vec<(Instant, Instant)> = Vec::new();
    while began.elapsed() < LOAD {
        let sent = Instant::now();
        let new = if writes.is_empty() {
            vec![timeline(1)]
        } else {
            Vec::new()
        };
        let points = [point(writes.len() as i64)];
        write_as(&store, &table, &points, &new, Durability::Buffered).expect("a write");
        writes.push((sent, Instant::now()));
    }
    disk.cut_power();
    drop(store);

    let (sent_before_last, _) = writes[writes.len() - 2];
    let promised = writes
        .iter()
        .take_while(|(_, acknowledged)| *acknowledged + PROMISE <= sent_before_last);
    let promised = promised.count();
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    let found = read(
        &store,
        &table,
        &[timeline(1)],
        TimeRange::ALL,
        None,
        Order::Ascending,
    );
    let there = found[0].len();
    println!(
        "{} writes, {promised} older than a second, {there} survived",
        writes.len()
    );
    assert!(promised > 0, "the load was too short");
    assert!(
        there >= promised,
        "only {there} of {promised} writes older than a second survived"
    );
}

#[test]
fn buffered_writes_are_synced_when_nothing_follows() {
    let disk = MemoryDisk::new(Character::Embedded);
    let test_backend = TestBackend::Memory(disk.clone());
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    write_as(&store, &table, &[point(1)], &[timeline(1)], Durability::Buffered).expect("a write");
    // A synced write is acknowledged after the sync, and a sync covers all writes before it.
    write_as(&store, &table, &[point(2)], &[], Durability::Synced).expect("a write");
    write_as(&store, &table, &[point(3)], &[], Durability::Buffered).expect("a write");
    store.close().expect("closing syncs");
    disk.cut_power();
    let (store, _) = test_backend.open(&Settings::default());
    let table = store.table("default").expect("the default table");
    let found = read(
        &store,
        &table,
        &[timeline(1)],
        TimeRange::ALL,
        None,
        Order::Ascending,
    );
    assert_eq!(found[0].len(), 3);
}
