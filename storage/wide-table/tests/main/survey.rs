//! Tests of surveys of stored rows, and of packing ranges with delete markers.
//!
//! The counts of a survey must equal those of the written and flushed rows. Packing must not change the result of any
//! read.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_key_codec::layout::KeyLayout;
use tideline_model::KeyRange;
use tideline_testkit::{Random, seed, seeds};
use tideline_wide_table::survey::RowSurvey;
use tideline_wide_table::{Action, CellValue, Column, Settings};

use super::database::*;

fn layout() -> KeyLayout {
    let spec = spec(1).wide.expect("a wide table");
    KeyLayout::new(&spec.key, false).expect("a valid key")
}

fn survey(database: &Database) -> RowSurvey {
    let mut survey = database.store.begin_survey(TABLE, layout()).expect("it begins");
    while !database
        .store
        .survey_step(&mut survey)
        .expect("it is read")
        .is_done
    {}
    survey.finish()
}

/// Packs all rows. Returns the number of packed rows and the number of removed markers.
fn pack(database: &Database) -> (u64, u64) {
    let (mut rows, mut markers, mut rest) = (0, 0, Some(KeyRange::ALL));
    while let Some(range) = rest {
        let step = database.store.pack_range(TABLE, 0, &range).expect("it is packed");
        rows += step.rows;
        markers += step.markers;
        rest = step.next.map(|start| KeyRange { start, end: None });
    }
    (rows, markers)
}

fn open(settings: Settings) -> Database {
    let disk = MemoryDisk::new(Character::Embedded);
    Database::open_with(Arc::new(MemoryBackend::open(&disk)), 1, settings)
}

#[test]
fn a_survey_counts_rows_widths_and_partitions() {
    let database = open(settings());
    assert_eq!(survey(&database), RowSurvey::default());
    let columns: [&'static str; 5] = ["a", "b", "c", "d", "e"];
    for number in 0..500 {
        let listed: Vec<_> = columns[..1 + number % 5].iter().map(|name| (*name, 7)).collect();
        database.write_one(put(&key(number), 1, &listed));
    }
    database.flush();
    let found = survey(&database);
    assert_eq!((found.rows, found.markers), (500, 0));
    assert_eq!((found.columns_max, found.columns_median), (5, 3));
    assert_eq!(found.partition_count, 500, "each key is a partition");
    assert_eq!(found.ranges.iter().map(|range| range.rows).sum::<u64>(), 500);
    assert!(found.ranges.windows(2).all(|pair| pair[0].start < pair[1].start));
    assert!(found.bytes > 0 && found.stored_bytes > 0);
    assert_eq!(found.key_bytes_max, key(1).len() as u64);
}

#[test]
fn large_rows_count_with_their_fragments() {
    let database = open(Settings {
        fragment_bytes: 500,
        ..settings()
    });
    let names: Vec<&'static str> = (0..200).map(|number| &*format!("c{number:03}").leak()).collect();
    let columns: Vec<(&'static str, i64)> = names.iter().map(|name| (*name, i64::MAX)).collect();
    database.write_one(put(&key(1), 1, &columns));
    database.flush();
    let found = survey(&database);
    assert_eq!((found.rows, found.large_rows), (1, 1));
    assert!((150..260).contains(&found.columns_max), "{}", found.columns_max);
    assert!(found.bytes > 2_000);
}

#[test]
fn packing_removes_the_markers_of_deletes_that_are_spread_over_all_blocks() {
    let large_blocks = Settings {
        block_bytes: 4 << 10,
        ..settings()
    };
    let database = open(large_blocks);
    for chunk in (0..4_000).collect::<Vec<usize>>().chunks(500) {
        let writes: Vec<_> = chunk
            .iter()
            .map(|number| put(&key(*number), 1, &[("a", 1)]))
            .collect();
        database.write(&writes);
    }
    database.flush();
    // Each flush deletes only a few rows of each block.
    for round in 0..3 {
        for number in (round..4_000).step_by(20) {
            database.write_one(write_of(&key(number), 2, Action::Delete));
        }
        database.flush();
    }
    let before = survey(&database);
    assert!(before.markers > 100, "{} markers", before.markers);
    let rows = database.rows(KeyRange::ALL, tideline_backend::Direction::Ascending, 100);
    let (_, markers) = pack(&database);
    assert_eq!(markers, before.markers);
    let after = survey(&database);
    assert_eq!((after.markers, after.rows), (0, 3_400));
    assert_eq!(
        rows,
        database.rows(KeyRange::ALL, tideline_backend::Direction::Ascending, 100)
    );
    assert!(after.stored_bytes < before.stored_bytes);
}

#[test]
fn packing_keeps_the_markers_of_rows_in_blocks_that_a_step_has_not_read() {
    let database = open(Settings {
        block_bytes: 4 << 10,
        buffer_bytes: 64 << 20,
        ..settings()
    });
    // Every 51st row is so large that few blocks exceed the bytes that a step reads.
    let is_large = |number: usize| number % 51 == 50;
    let mut random = Random::new(seed(
        "packing_keeps_the_markers_of_rows_in_blocks_that_a_step_has_not_read",
    ));
    let mut row = |number: usize| match is_large(number) {
        false => put(&key(number), 1, &[("a", 1)]),
        true => {
            let content: Vec<u8> = (0..5_000).flat_map(|_| random.next().to_le_bytes()).collect();
            let content = CellValue::Binary(content.into());
            let columns = vec![Column::with(named("a"), 1, content)];
            write_of(&key(number), 1, Action::Put(columns))
        }
    };
    for first in (0..5_100).step_by(51) {
        let writes: Vec<_> = (first..first + 51).map(&mut row).collect();
        database.write(&writes);
    }
    database.flush();
    for round in 0..3 {
        for number in (round..5_100).step_by(20).filter(|number| !is_large(*number)) {
            database.write_one(write_of(&key(number), 2, Action::Delete));
        }
        database.flush();
    }
    let before = survey(&database);
    assert!(before.markers > 100, "{} markers", before.markers);
    let rows = database.rows(KeyRange::ALL, tideline_backend::Direction::Ascending, 100);
    pack(&database);
    assert_eq!(survey(&database).markers, 0);
    assert!(rows == database.rows(KeyRange::ALL, tideline_backend::Direction::Ascending, 100));
}

fn random_run(backend: &dyn Fn() -> Arc<dyn Backend>, random: &mut Random) {
    let settings = Settings {
        block_bytes: 400,
        fragment_bytes: 300,
        ..settings()
    };
    let mut database = Database::open_with(backend(), 1, settings);
    let mut model: BTreeMap<String, i64> = BTreeMap::new();
    let long: &'static str = "x".repeat(400).leak();
    for step in 0..400_i64 {
        let number = random.below(300) as usize;
        match random.below(100) {
            ..55 => {
                for number in number..number + 5 {
                    database.write_one(set(&key(number), step, "a", step));
                    model.insert(key(number), step);
                }
            }
            55..75 => {
                for number in number..number + 3 {
                    database.write_one(write_of(&key(number), step, Action::Delete));
                    model.remove(&key(number));
                }
            }
            // A long column name makes the row large enough for fragments. Later steps may replace it with a small row.
            75..78 => {
                database.write_one(put(&key(number), step, &[("a", step), (long, step)]));
                model.insert(key(number), step);
            }
            78..92 => database.flush(),
            92..97 => {
                pack(&database);
            }
            _ => {
                drop(database);
                database = Database::open_with(backend(), 1, settings);
            }
        }
        if random.is(10) {
            let rows = database.rows(KeyRange::ALL, tideline_backend::Direction::Ascending, 7);
            let found: BTreeMap<String, i64> = rows
                .iter()
                .map(|(key, row)| {
                    let key = String::from_utf8(key.to_vec()).expect("text");
                    (key, number_of(row))
                })
                .collect();
            assert_eq!(found, model, "step {step}");
            let key = key(random.below(300) as usize);
            assert_eq!(
                database.row(key.as_bytes()).map(|row| number_of(&row)),
                model.get(&key).copied()
            );
        }
    }
    database.flush();
    pack(&database);
    let found = survey(&database);
    assert_eq!(found.markers, 0);
    // A packed row that the head of a large row hides is also counted.
    let rows = model.len() as u64;
    assert!((rows..=rows + found.large_rows).contains(&found.rows));
}

fn number_of(row: &tideline_wide_table::Mutation<'_>) -> i64 {
    number(row, "a").expect("a number")
}

#[test]
fn random_writes_with_packing_equal_a_naive_model() {
    for seed in seeds("packing", 6) {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(if seed % 2 == 0 {
            Character::Embedded
        } else {
            Character::Distributed
        });
        random_run(&|| Arc::new(MemoryBackend::open(&disk)), &mut random);
    }
}

#[test]
fn scans_miss_no_change_while_single_rows_are_packed() {
    const ROWS: usize = 2_000;
    let database = open(Settings {
        block_bytes: 2 << 10,
        ..settings()
    });
    let all: Vec<_> = (0..ROWS)
        .map(|number| put(&key(number), 1, &[("a", -1)]))
        .collect();
    database.write(&all);
    database.flush();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for direction in [
            tideline_backend::Direction::Ascending,
            tideline_backend::Direction::Descending,
        ] {
            let (database, is_done) = (&database, &is_done);
            scope.spawn(move || {
                let mut last: BTreeMap<bytes::Bytes, i64> = BTreeMap::new();
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let rows = database.rows(KeyRange::ALL, direction, ROWS - 1);
                    assert_eq!(rows.len(), ROWS, "{direction:?}");
                    for (key, row) in rows {
                        let value = number_of(&row);
                        let before = last.insert(key, value);
                        assert!(
                            before <= Some(value),
                            "{direction:?}: an older row was read again"
                        );
                    }
                }
            });
        }
        for round in 0..60_i64 {
            for number in (round as usize % 40..ROWS).step_by(40) {
                database.write_one(set(&key(number), 2 + round, "a", round));
            }
            database.flush();
            pack(&database);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(survey(&database).single_rows, 0);
}
