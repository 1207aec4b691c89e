//! Tests of reads of rows that do not exist: they stay correct, and read little, while rows are written, flushed,
//! packed and moved.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use tideline_backend::Direction;
use tideline_model::{KeyRange, SystemClock, Tier};
use tideline_testkit::{Random, seed};
use tideline_wide_table::{MoveEnd, Settings};

use super::database::*;
use super::paused::{Call, paused_backend};

/// Returns true if a row exists. Unlike [`Database::row`], reads only the row.
fn exists(database: &Database, key: &str) -> bool {
    let row = database.store.row(TABLE, key.as_bytes()).expect("it is read");
    row.is_some()
}

/// Writes rows with even numbers below `end`, and flushes them into blocks.
fn put_even(database: &Database, end: usize) {
    let numbers: Vec<usize> = (0..end).step_by(2).collect();
    for numbers in numbers.chunks(500) {
        let writes = numbers
            .iter()
            .map(|number| put(&key(*number), 1, &[("a", 1), ("b", 2)]));
        database.write(&writes.collect::<Vec<_>>());
    }
    database.flush();
}

/// Packs all single rows of a part.
fn pack_all(database: &Database, part: i32) {
    let mut range = KeyRange::ALL;
    loop {
        let step = database.store.pack_range(TABLE, part, &range);
        match step.expect("it is packed").next {
            Some(next) => range.start = next,
            None => return,
        }
    }
}

#[test]
fn an_absent_row_is_searched_once_per_block_and_flush() {
    let (backend, opened) = paused_backend();
    let database = Database::open_with(opened, 1, large_blocks());
    put_even(&database, 1_000);
    let (singles, blocks) = (bucket(&*backend, SINGLES), bucket(&*backend, BLOCKS));
    let absent = || (91..131).step_by(2).map(key);
    let searched = backend.reads_of(singles);
    assert!(absent().all(|key| !exists(&database, &key)));
    let read = backend.reads_of(blocks);
    for _ in 0..3 {
        assert!(absent().all(|key| !exists(&database, &key)));
    }
    // The filters of the blocks do not recognize every absent key.
    let again = backend.reads_of(blocks) - read;
    assert!(again <= 6, "{again} reads for 60 absent rows");
    assert!(!exists(&database, &encoded("z")), "above all blocks");
    let read = backend.reads_of(blocks);
    assert!(!exists(&database, &encoded("zz")), "above all blocks");
    assert_eq!(backend.reads_of(blocks), read);
    let rows = database.rows(KeyRange::ALL, Direction::Ascending, 100);
    assert_eq!(rows.len(), 500);
    assert_eq!(backend.reads_of(singles), searched, "the part has no single rows");

    // The row that is written next becomes a single row, so later reads also search the single rows.
    database.write_one(put(&key(101), 1, &[("a", 1)]));
    assert!(exists(&database, &key(101)));
    database.flush();
    assert_eq!(stored_rows(&*backend, singles).len(), 1);
    let searched = backend.reads_of(singles);
    assert!(exists(&database, &key(101)));
    assert!(!exists(&database, &key(103)));
    assert_eq!(backend.reads_of(singles), searched + 2);
    for (direction, page) in [(Direction::Ascending, 7), (Direction::Descending, 300)] {
        assert_eq!(database.rows(KeyRange::ALL, direction, page).len(), 501);
    }
    database.close();
}

#[test]
fn single_rows_are_found_after_a_restart() {
    every_backend(|backend| {
        let database = Database::open_with(backend(), 1, large_blocks());
        put_even(&database, 1_000);
        database.write_one(put(&key(101), 1, &[("a", 1)]));
        database.flush();
        database.close();
        let database = Database::open_with(backend(), 1, large_blocks());
        assert!(exists(&database, &key(101)));
        assert!(!exists(&database, &key(103)));
        assert_eq!(database.rows(KeyRange::ALL, Direction::Ascending, 100).len(), 501);
        database.close();
    });
}

#[test]
fn a_row_that_is_packed_after_its_neighbor_was_absent_is_found() {
    every_backend(|backend| {
        let database = Database::open_with(backend(), 1, large_blocks());
        put_even(&database, 1_000);
        database.write_one(put(&key(101), 1, &[("a", 1)]));
        database.flush();
        // The block of these keys does not contain the row 101 when it is read for the absent rows.
        assert!(
            (91..111)
                .step_by(2)
                .all(|number| exists(&database, &key(number)) == (number == 101))
        );
        let part = database.store.parts_in_tiers(TABLE)[0].number;
        let step = database.store.pack_range(TABLE, part, &KeyRange::ALL);
        assert_eq!(step.expect("it is packed").rows, 1);
        assert!(
            (91..111)
                .step_by(2)
                .all(|number| exists(&database, &key(number)) == (number == 101))
        );
        database.close();
    });
}

#[test]
fn a_row_that_is_written_while_it_is_read_as_absent_is_found_afterwards() {
    let (backend, opened) = paused_backend();
    let database = Database::open_with(opened, 1, large_blocks());
    put_even(&database, 1_000);
    let blocks = bucket(&*backend, BLOCKS);
    let nearby: Vec<usize> = (91..131).step_by(2).collect();
    let read = backend.pause(move |call| call == Call::Read(blocks));
    thread::scope(|scope| {
        let reader = scope.spawn(|| exists(&database, &key(101)));
        read.wait();
        // All rows are packed and published before the read goes on.
        let writes = nearby.iter().map(|number| put(&key(*number), 1, &[("a", 1)]));
        database.write(&writes.collect::<Vec<_>>());
        database.flush();
        read.end();
        assert!(reader.join().expect("it ends"), "the read is repeated");
    });
    assert!(nearby.iter().all(|number| exists(&database, &key(*number))));
    database.close();
}

#[test]
fn reads_during_an_unpublished_flush_do_not_hide_rows_later() {
    let (backend, opened) = paused_backend();
    let database = Database::open_with(opened, 1, large_blocks());
    put_even(&database, 1_000);
    let changed = (91..131)
        .step_by(4)
        .map(|number| put(&key(number), 1, &[("a", 1)]));
    let mut changed: Vec<_> = changed.collect();
    changed.extend(deletes((92..132).step_by(4), 2));
    let is_there = |number: usize| match number {
        91..131 if number % 4 == 3 => true,
        92..132 if number.is_multiple_of(4) => false,
        _ => number.is_multiple_of(2),
    };
    let check = || {
        for number in 85..135 {
            assert_eq!(exists(&database, &key(number)), is_there(number), "row {number}");
        }
    };
    assert!(!exists(&database, &key(91)));
    database.write(&changed);
    check();
    let publication = backend.pause(|call| call == Call::Edit);
    thread::scope(|scope| {
        scope.spawn(|| database.flush());
        publication.wait();
        // The blocks have changed, but their rows are not published yet.
        check();
        check();
        publication.end();
    });
    check();
    // Absent rows of the last reads are written and flushed.
    let absent: Vec<usize> = (85..135).filter(|number| !is_there(*number)).collect();
    let writes = absent.iter().map(|number| put(&key(*number), 3, &[("a", 1)]));
    database.write(&writes.collect::<Vec<_>>());
    assert!((85..135).all(|number| exists(&database, &key(number))));
    database.flush();
    assert!((85..135).all(|number| exists(&database, &key(number))));
    database.close();
}

#[test]
fn absent_rows_stay_correct_while_a_part_is_moved() {
    every_backend(|backend| {
        let database = Database::open_at(backend(), Arc::new(SystemClock), divided_by_day(), large_blocks());
        let row = |number: usize| put_on_day(&format!("k{number:05}"), 20_000, &[("a", 1), ("b", 2)]);
        let found = |number: usize| {
            let row = database.store.row(TABLE, &row(number).key).expect("it is read");
            row.is_some()
        };
        let evens: Vec<_> = (0..400).step_by(2).map(row).collect();
        database.write(&evens);
        database.flush();
        let number = database.store.parts_in_tiers(TABLE)[0].number;
        for (round, tier) in [Tier::Cold, Tier::Hot, Tier::Cold].into_iter().enumerate() {
            let added = 101 + 2 * round;
            assert!(!found(added));
            if round == 1 {
                // This round moves a single row.
                database.write_one(row(added));
                database.flush();
            }
            let moved = database.store.move_table_part(
                &database.threads,
                (TABLE, number),
                tier,
                &mut |_, _| Ok(None),
                &mut |_| ControlFlow::Continue(()),
            );
            assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
            assert_eq!(found(added), round == 1);
            database.write_one(row(added));
            assert!(found(added));
            database.flush();
            assert!(found(added) && !found(added + 2));
            let rows = database.rows(KeyRange::ALL, Direction::Descending, 30);
            assert_eq!(rows.len(), 200 + round + 1);
        }
        database.close();
    });
}

#[test]
fn random_reads_of_absent_rows_match_a_naive_model() {
    every_backend(|backend| {
        let mut random = Random::new(seed("random_reads_of_absent_rows_match_a_naive_model"));
        let settings = || Settings {
            block_bytes: 400,
            buffer_bytes: 1 << 20,
            ..settings()
        };
        let mut database = Database::open_with(backend(), 1, settings());
        let mut model: BTreeMap<Bytes, i64> = BTreeMap::new();
        for step in 0..600_i64 {
            let first = random.below(400) as usize;
            let count = 1 + random.below(20) as usize;
            match random.below(10) {
                // Neighboring rows are packed, scattered rows stay single.
                0..4 => {
                    let distance = random.of(&[1, 1, 7]);
                    let numbers = (first..).step_by(distance).take(count);
                    let writes = numbers.map(|number| put(&key(number), step, &[("a", step)]));
                    let writes: Vec<_> = writes.collect();
                    model.extend(writes.iter().map(|write| (write.key.clone(), step)));
                    database.write(&writes);
                }
                4 => {
                    let deletes = deletes(first..first + count, step);
                    for delete in &deletes {
                        model.remove(&delete.key);
                    }
                    database.write(&deletes);
                }
                5 => database.flush(),
                6 => {
                    if let Some(part) = database.store.parts_in_tiers(TABLE).first() {
                        pack_all(&database, part.number);
                    }
                }
                7 if random.is(10) => {
                    database.close();
                    database = Database::open_with(backend(), 1, settings());
                }
                _ => {}
            }
            for _ in 0..10 {
                let key = key(random.below(450) as usize);
                let row = database.store.row(TABLE, key.as_bytes()).expect("it is read");
                let row = row.map(|row| row.columns().expect("it is intact").into_owned());
                let found = row.as_ref().and_then(|row| number(row, "a"));
                assert_eq!(
                    found,
                    model.get(key.as_bytes()).copied(),
                    "step {step}, row {key}"
                );
            }
        }
        let rows = database.rows(KeyRange::ALL, Direction::Ascending, 50);
        let rows: Vec<(Bytes, i64)> = rows
            .into_iter()
            .map(|(key, row)| (key, number(&row, "a").expect("it is set")))
            .collect();
        assert_eq!(rows, model.into_iter().collect::<Vec<_>>());
        database.close();
    });
}

#[test]
fn rows_are_found_at_once_by_readers_that_have_seen_them_absent() {
    every_backend(|backend| {
        const END: usize = 600;
        let database = Database::open_with(backend(), 1, large_blocks());
        put_even(&database, END);
        // Number of the last odd row that was acknowledged.
        let (written, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for start in [1, 3] {
                let (database, written, is_over) = (&database, &written, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        for number in (start..END).step_by(4) {
                            let must_exist = number <= written.load(Ordering::Acquire);
                            let found = exists(database, &key(number));
                            assert!(found || !must_exist, "row {number}");
                        }
                    }
                });
            }
            scope.spawn(|| {
                let part = database.store.parts_in_tiers(TABLE)[0].number;
                while !is_over.load(Ordering::Acquire) {
                    pack_all(&database, part);
                    thread::yield_now();
                }
            });
            for number in (1..END).step_by(2) {
                database.write_one(put(&key(number), 1, &[("a", 1)]));
                written.store(number, Ordering::Release);
                if number % 50 == 1 {
                    database.flush();
                }
            }
            is_over.store(true, Ordering::Release);
        });
        let rows = database.rows(KeyRange::ALL, Direction::Descending, 300);
        assert_eq!(rows.len(), END);
        database.close();
    });
}
