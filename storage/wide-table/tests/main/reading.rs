//! Tests of reads of rows in the buffer and in a part, also while rows are flushed and packed, and of freeing the parts
//! of a dropped table.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tideline_backend::{Backend, Direction, EditOutcome, PageLimit, Partition};
use tideline_log::SHARD;
use tideline_log::manifest::remove_table;
use tideline_model::{KeyRange, SystemClock};
use tideline_wide_table::{Action, Settings};

use super::database::*;
use super::paused::{Call, paused_backend};

#[test]
fn pages_join_buffer_and_part_in_both_directions() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        for number in (0..100).step_by(2) {
            database.write_one(put(&format!("k{number:03}"), 1, &[("n", number)]));
        }
        database.flush();
        for number in (0..100).step_by(3) {
            database.write_one(set(&format!("k{number:03}"), 2, "m", number));
        }
        database.write_one(write_of("k010", 3, Action::Delete));
        database.delete_rows(KeyRange::new(*b"k050", *b"k060"));
        let expected: Vec<String> = (0..100)
            .filter(|number| number % 2 == 0 || number % 3 == 0)
            .filter(|number| *number != 10 && !(50..60).contains(number))
            .map(|number| format!("k{number:03}"))
            .collect();
        for rows_max in [1, 7, 1_000] {
            let keys = |direction| -> Vec<String> {
                let rows = database.rows(KeyRange::ALL, direction, rows_max);
                let text = |(key, _): &(bytes::Bytes, _)| String::from_utf8_lossy(key).into_owned();
                rows.iter().map(text).collect()
            };
            assert_eq!(keys(Direction::Ascending), expected);
            let mut descending = keys(Direction::Descending);
            descending.reverse();
            assert_eq!(descending, expected);
        }
        database.close();
    });
}

#[test]
fn a_read_finds_nothing_of_a_row_whose_deletion_is_flushed_meanwhile() {
    let (backend, opened) = paused_backend();
    let database = Database::open(opened, 1);
    database.write_one(put("a", 1, &[("a", 1)]));
    database.flush();
    database.write_one(set("a", 2, "b", 2));
    let part = backend.parts(SHARD).expect("the parts").remove(0);
    let read = backend.pause(move |call| call.reads(part));
    thread::scope(|scope| {
        // The reader has read the update in the buffer, and then waits before it reads the part.
        let reader = scope.spawn(|| database.store.row(TABLE, b"a"));
        read.wait();
        database.write_one(write_of("a", 3, Action::Delete));
        let write = backend.pause(move |call| call.writes(part));
        scope.spawn(|| database.flush());
        write.wait();
        let publication = backend.pause(|call| call == Call::Edit);
        write.end();
        publication.wait();
        read.end();
        let row = reader.join().expect("it ends").expect("it is read");
        assert_eq!(row, None);
        publication.end();
    });
    database.close();
}

#[test]
fn a_page_of_several_parts_has_the_rows_that_are_packed_while_it_is_read() {
    let (backend, opened) = paused_backend();
    let settings = Settings {
        block_bytes: 16 << 10,
        buffer_bytes: 1 << 20,
        ..settings()
    };
    let database = Database::open_at(opened, Arc::new(SystemClock), divided_by_day(), settings);
    let (day, next_day) = (20_000, 20_001);
    let packed = (0..400).map(|number| put_on_day(&format!("k{number:03}"), day, &[("a", 1), ("b", number)]));
    database.write(&packed.collect::<Vec<_>>());
    database.flush();
    let part = backend.parts(SHARD).expect("the parts").remove(0);
    let part_number = database.store.parts_in_tiers(TABLE)[0].number;
    // All single rows are in the span of the first block. A page first reads 16 of them.
    let singles = (0..18).map(|number| put_on_day(&format!("k000-{number:02}"), day, &[("a", 1)]));
    database.write(&singles.collect::<Vec<_>>());
    database.write_one(put_on_day("k000", next_day, &[("a", 1)]));
    database.flush();
    let singles = Partition::part(part, SINGLES);
    assert_eq!(stored_rows(&*backend, singles).len(), 18);

    let limit = PageLimit {
        rows_max: 1_000,
        bytes_max: 1 << 20,
    };
    let first = backend.pause(move |call| call == Call::Read(singles));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            database
                .store
                .page(TABLE, &KeyRange::ALL, Direction::Ascending, limit)
        });
        first.wait();
        let second = backend.pause(move |call| call == Call::Read(singles));
        first.end();
        second.wait();
        let step = database.store.pack_range(TABLE, part_number, &KeyRange::ALL);
        assert_eq!(step.expect("it is packed").rows, 18);
        second.end();
        let page = reader.join().expect("it ends").expect("it is read");
        assert_eq!(page.rows.len(), 419);
    });
    database.close();
}

/// Waits until no part of the shard is stored.
fn wait_until_freed(backend: &dyn Backend) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !backend.parts(SHARD).expect("parts").is_empty() {
        assert!(Instant::now() < deadline, "the part is still there");
        thread::yield_now();
    }
}

#[test]
fn rows_of_a_dropped_table_are_freed() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        database.write_one(put("a", 1, &[]));
        database.flush();
        let log = database.threads.log();
        assert_eq!(log.backend().parts(SHARD).expect("parts").len(), 1);
        log.edit_shared(|manifest| {
            manifest.tables.remove(&TABLE);
            vec![remove_table(TABLE)]
        })
        .expect("it is dropped");
        wait_until_freed(&**log.backend());
        assert!(database.store.row(TABLE, b"a").is_err());
        database.close();
    });
}

#[test]
fn rows_of_a_table_that_was_dropped_before_a_restart_are_freed() {
    every_backend(|open| {
        let database = Database::open(open(), 1);
        database.write_one(put("a", 1, &[]));
        database.flush();
        database.close();

        // The process ended after the drop, and before the store has freed the parts of the table.
        let backend = open();
        let lease = backend.take(SHARD).expect("it is owned");
        let version = backend.manifest(SHARD).expect("it is read").version;
        let edited = backend.edit(SHARD, lease.epoch, version, &[remove_table(TABLE)]);
        assert!(matches!(edited, Ok(EditOutcome::Applied { .. })), "{edited:?}");
        assert_eq!(backend.parts(SHARD).expect("parts").len(), 1);
        backend.close().expect("it closes");
        drop(backend);

        let backend = open();
        let database = Database::start(Arc::clone(&backend), Arc::new(SystemClock), settings(), None);
        assert!(database.store.row(TABLE, b"a").is_err());
        wait_until_freed(&*backend);
        database.close();
    });
}
