//! Tests of key traces: the layers that store data of a key, and the rule that hides each stored version.
//!
//! All random tests use [`Database::row`], which checks that the visible part of a trace equals the row.

use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::{KeyRange, ManualClock, TableSpec, Timestamp};
use tideline_wide_table::why::{EntryTrace, HidingRule, KeyTrace, LayerLocation};
use tideline_wide_table::{Action, Column, RowWrite, Settings, Update};

use super::database::*;

const START: i64 = 1_800_000_000_000_000_000;
const MINUTE: i64 = 60_000_000_000;

fn open(spec: TableSpec, clock: &ManualClock) -> Database {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend = Arc::new(MemoryBackend::open(&disk));
    Database::open_at(backend, Arc::new(clock.clone()), spec, settings())
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_nanos_clamped(START))
}

/// Returns the time, the location and the hiding rule of each version of a column, newest first.
fn versions(trace: &KeyTrace, column: &'static str) -> Vec<(i64, LayerLocation, Option<HidingRule>)> {
    let of_column = trace
        .versions
        .iter()
        .filter(|traced| traced.column == named(column));
    of_column
        .map(|traced| {
            let location = trace.layers[traced.layer].location;
            (
                traced.version.time,
                location,
                traced.hidden.map(|hidden| hidden.rule),
            )
        })
        .collect()
}

fn cleared(key: &str, time: i64, column: &'static str) -> RowWrite<'static> {
    let update = Update {
        columns: vec![Column::cleared(named(column))],
        ..Update::default()
    };
    write_of(key, time, Action::Update(update))
}

#[test]
fn a_key_that_was_never_written_has_no_layer() {
    let database = open(spec(1), &clock());
    let trace = database.trace(encoded("a").as_bytes());
    assert!(trace.layers.is_empty() && trace.versions.is_empty());
    assert_eq!((trace.time, trace.hidden), (None, None));
}

#[test]
fn a_write_with_an_old_clock_is_hidden_by_a_version_of_the_future() {
    let database = open(spec(1), &clock());
    let key = encoded("a");
    database.write_one(set(&key, START + 60 * MINUTE, "a", 1));
    database.write_one(set(&key, START, "a", 2));
    let buffer = LayerLocation::Buffer(0);
    let expected = [
        (START + 60 * MINUTE, buffer, None),
        (START, buffer, Some(HidingRule::MaxVersions)),
    ];
    assert_eq!(versions(&database.trace(key.as_bytes()), "a"), expected);
    assert_eq!(
        number(&database.row(key.as_bytes()).expect("a row"), "a"),
        Some(1)
    );
    // A flush drops hidden versions.
    database.flush();
    let trace = database.trace(key.as_bytes());
    assert_eq!(versions(&trace, "a").len(), 1);
    assert!(trace.versions[0].version.time > trace.now);
}

#[test]
fn every_kind_of_write_hides_by_its_rule() {
    let database = open(spec(2), &clock());
    let key = encoded("a");
    database.write_one(put(&key, START, &[("a", 1), ("b", 1)]));
    database.flush();
    database.write_one(set(&key, START + 1, "a", 2));
    database.write_one(set(&key, START + 1, "a", 3));
    database.write_one(set(&key, START + 2, "a", 4));
    database.write_one(cleared(&key, START + 3, "b"));
    let trace = database.trace(key.as_bytes());
    let buffer = LayerLocation::Buffer(0);
    let part = trace.layers.last().expect("a layer").location;
    assert_ne!(part, buffer);
    assert_eq!(
        versions(&trace, "a"),
        [
            (START + 2, buffer, None),
            (START + 1, buffer, None),
            (START + 1, buffer, Some(HidingRule::SameTime)),
            (START, part, Some(HidingRule::MaxVersions)),
        ]
    );
    assert_eq!(versions(&trace, "b"), [(START, part, Some(HidingRule::Cleared))]);
    database.row(key.as_bytes());

    database.write_one(put(&key, START + 4, &[("c", 1)]));
    let trace = database.trace(key.as_bytes());
    assert_eq!(
        versions(&trace, "a"),
        [(START, part, Some(HidingRule::Replaced))],
        "the buffer drops what a later write of the same generation replaces"
    );
    let hidden = trace.layers[1].changes[0].hidden.expect("it is replaced");
    assert_eq!((hidden.by, hidden.since), (Some(0), Some(START + 4)));

    database.write_one(write_of(&key, START + 5, Action::Delete));
    let trace = database.trace(key.as_bytes());
    let hidden = trace.hidden.expect("it is deleted");
    assert_eq!(
        (hidden.rule, hidden.since),
        (HidingRule::Deleted, Some(START + 5))
    );
    assert_eq!(database.row(key.as_bytes()), None);

    database.delete_rows(KeyRange::ALL);
    let hidden = database.trace(key.as_bytes()).hidden.expect("it is deleted");
    assert_eq!((hidden.rule, hidden.by), (HidingRule::RangeDeleted, Some(0)));
    database.write_one(set(&key, START + 6, "a", 9));
    let trace = database.trace(key.as_bytes());
    assert!(trace.layers[0].deletes_range && trace.is_visible());
    assert_eq!(
        trace.layers[1].changes[0].hidden.map(|hidden| hidden.rule),
        Some(HidingRule::RangeDeleted)
    );
    database.row(key.as_bytes());
}

#[test]
fn packed_rows_are_hidden_by_single_rows_and_markers() {
    let database = open(spec(1), &clock());
    let keys: Vec<String> = (0..200).map(|number| encoded(&format!("k{number:03}"))).collect();
    for key in &keys {
        database.write_one(put(key, START, &[("a", 1)]));
    }
    database.flush();
    let (changed, deleted) = (&keys[50], &keys[150]);
    assert_eq!(
        database.trace(changed.as_bytes()).layers[0].location,
        LayerLocation::Packed
    );
    database.write_one(set(changed, START + 1, "a", 2));
    database.write_one(write_of(deleted, START + 1, Action::Delete));
    // A flush rewrites a block only if about a quarter of it changed. In a small block, one row may be enough, so the
    // test accepts both results.
    database.flush();
    let trace = database.trace(changed.as_bytes());
    let locations: Vec<LayerLocation> = trace.layers.iter().map(|layer| layer.location).collect();
    if locations == [LayerLocation::Single, LayerLocation::Packed] {
        let hidden = trace.layers[1].changes[0].hidden.expect("it is hidden");
        assert_eq!((hidden.rule, hidden.by), (HidingRule::NewerCopy, Some(0)));
    } else {
        assert_eq!(locations, [LayerLocation::Packed], "the block was packed again");
    }
    let trace = database.trace(deleted.as_bytes());
    if let [marker, packed] = trace.layers.as_slice() {
        assert_eq!(marker.changes[0].time, None);
        assert_eq!(
            packed.changes[0].hidden.map(|hidden| hidden.rule),
            Some(HidingRule::Deleted)
        );
    } else {
        assert!(trace.layers.is_empty(), "the block was packed again");
    }
    database.row(changed.as_bytes());
    database.row(deleted.as_bytes());
}

#[test]
fn rows_and_cells_expire_at_a_moment_that_the_trace_names() {
    for of in ["row", "cell"] {
        let mut spec = spec(1);
        let wide = spec.wide.as_deref_mut().expect("a wide table");
        wide.ttl =
            serde_json::from_value(serde_json::json!({"after": 10 * MINUTE, "of": of})).expect("valid");
        let clock = clock();
        let database = open(spec, &clock);
        let key = encoded("a");
        database.write_one(set(&key, START, "a", 1));
        database.write_one(set(&key, START + 5 * MINUTE, "b", 1));
        clock.advance(12 * MINUTE);
        let trace = database.trace(key.as_bytes());
        assert_eq!(trace.expires(), Some(START + 15 * MINUTE));
        let hidden = trace
            .versions
            .iter()
            .find(|traced| traced.column == named("a"))
            .and_then(|a| a.hidden);
        let expected = (of == "cell").then_some((HidingRule::CellExpired, Some(START + 10 * MINUTE)));
        assert_eq!(hidden.map(|hidden| (hidden.rule, hidden.since)), expected);
        database.row(key.as_bytes());
        clock.advance(3 * MINUTE);
        let trace = database.trace(key.as_bytes());
        let hidden = trace.hidden.expect("it has expired");
        assert_eq!(
            (hidden.rule, hidden.since),
            (HidingRule::RowExpired, Some(START + 15 * MINUTE))
        );
        assert_eq!(database.row(key.as_bytes()), None);
    }
}

#[test]
fn the_fragments_of_a_large_row_are_counted() {
    let disk = MemoryDisk::new(Character::Embedded);
    let small = Settings {
        fragment_bytes: 200,
        ..settings()
    };
    let database = Database::open_with(Arc::new(MemoryBackend::open(&disk)), 1, small);
    let key = encoded("a");
    let columns: Vec<(&'static str, i64)> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
        .into_iter()
        .map(|name| (name, i64::MAX))
        .collect();
    for generation in 0..2 {
        database.write_one(put(&key, START + generation, &columns));
        database.flush();
    }
    let trace = database.trace(key.as_bytes());
    assert_eq!(trace.layers.len(), 1);
    assert_eq!(
        trace.layers[0].fragments > 0,
        trace.layers[0].location == LayerLocation::Single
    );
    assert_eq!(trace.versions.len(), columns.len());
    database.row(key.as_bytes());
}

#[test]
fn the_entry_of_a_row_in_an_index_is_found_or_explained() {
    let database = open(spec(1), &clock());
    database.set_indexes(&serde_json::json!([
        {"id": 7, "name": "by_a", "key": [{"name": "a", "type": "i64"}], "covers": {"columns": []}, "state": "ready"},
    ]));
    let key = encoded("k");
    let entry = |database: &Database| {
        let trace = database.trace(key.as_bytes());
        let row = trace.row();
        let traces = database.store.trace_indexes(TABLE, key.as_bytes(), row.as_ref());
        traces.expect("it is read").remove(0).entry
    };
    assert_eq!(entry(&database), EntryTrace::NoRow);
    database.write_one(set(&key, START, "b", 1));
    assert_eq!(entry(&database), EntryTrace::NoValue { column: "a".into() });
    database.write_one(set(&key, START + 1, "a", 5));
    assert_eq!(entry(&database), EntryTrace::Present);
    let text = Column::with(
        named("a"),
        START + 2,
        tideline_wide_table::CellValue::String("5".into()),
    );
    let update = Update {
        columns: vec![text],
        ..Update::default()
    };
    database.write_one(write_of(&key, START + 2, Action::Update(update)));
    let found = entry(&database);
    assert!(
        matches!(&found, EntryTrace::OtherType { column, .. } if column == "a"),
        "{found:?}"
    );
}
