//! Test of the scheduler over the whole database: store, catalogs and index.

use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{Engine, Settings, Table, TimelineSelector, WriteOptions};
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{JobKind, ManualClock, TimeRange, Timestamp};
use tideline_scheduler::{Models, Scheduler};
use tideline_search_index::FindRequest;

use crate::fake::{DAY, HOUR, START};

fn write(engine: &Engine, table: &Table, lines: &str) {
    let options = DecodeOptions::new(engine.clock().now());
    let batch = line_protocol::decode(lines.as_bytes(), options, &mut engine.resolver(table));
    let outcome = engine
        .write(table, batch, &WriteOptions::default())
        .expect("a write");
    assert_eq!(outcome.rejected, 0);
}

fn hosts(engine: &Engine, table: &Table) -> Vec<String> {
    let request = FindRequest {
        condition: Condition::All,
        limit: 100,
        ..FindRequest::default()
    };
    let page = engine.find(table, &request, NEVER).expect("a page");
    page.found
        .into_iter()
        .filter_map(|found| found.timeline.source)
        .collect()
}

#[test]
fn days_become_cold_deletes_are_applied_and_empty_timelines_go() {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let index = tempfile::tempdir().expect("a temporary folder");
    let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
    let settings = Settings::new(index.path().join("index"));
    let engine =
        Arc::new(Engine::open(backend, Arc::new(clock.clone()), settings).expect("the engine opens"));
    let scheduler = Scheduler::without_thread(
        engine.clone() as _,
        Models::of_engine(&engine),
        tideline_scheduler::Settings::default(),
    );
    let table = engine.default_table().expect("the default table");
    for hour in 0..12 * 24 {
        let now = START + hour * HOUR;
        write(
            &engine,
            &table,
            &format!("m,host=a f={hour} {now}\nm,host=b f={hour} {now}\n"),
        );
        clock.advance(HOUR);
        if hour % 2 == 1 {
            engine.seal().expect("a seal");
            scheduler.run_due();
        }
    }
    let stats = engine.table_stats(&table);
    assert_eq!(
        (stats.cold.segments, stats.cold.points, stats.sealed_points),
        (5, 2 * 5 * 24, 2 * 12 * 24)
    );

    let b = TimelineSelector::Condition(Condition::tag("host", "b"));
    engine
        .delete_points(&table, &b, TimeRange::ALL, NEVER)
        .expect("a delete");
    assert_eq!(
        hosts(&engine, &table).len(),
        2,
        "the timeline is there until it is cleaned up"
    );
    clock.advance(DAY / 24);
    scheduler.run_due();
    clock.advance(DAY / 24);
    scheduler.run_due();
    assert_eq!(hosts(&engine, &table), ["a"]);
    let stats = engine.table_stats(&table);
    assert_eq!((stats.sealed_points, stats.deletes_waiting), (12 * 24, 0));
    let moved = scheduler.metrics().moved;
    assert!(moved[&JobKind::Migrate].points_written >= 2 * 5 * 24);
    assert!(moved.contains_key(&JobKind::Purge));
}
