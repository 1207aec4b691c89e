//! Versions that the server assigns, after restarts with versions of clients in the future.
//!
//! A database is closed and opened again; its clock is set by hand.

use std::cell::Cell;
use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::{Durability, ManualClock, Timestamp};
use tideline_wide_table::{Action, CellValue, Column, RowOutcome, RowWrite, WideError, WriteOptions};

use super::database::*;

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_800_000_000 * SECOND;

/// Returns a write of a row whose column `c` has a version of a client.
fn dated(key: &str, time: i64, version: i64) -> RowWrite<'static> {
    let column = Column::with(named("c"), version, CellValue::I64(1));
    write_of(key, time, Action::Put(vec![column]))
}

fn open(disk: &Arc<MemoryDisk>, clock: &ManualClock) -> Database {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(disk));
    Database::open_at(backend, Arc::new(clock.clone()), spec(1), settings())
}

#[test]
fn versions_of_clients_do_not_move_those_of_the_server() {
    let last = Timestamp::MAX.nanos();
    for character in [Character::Embedded, Character::Distributed] {
        for version in [START + 23 * 3_600 * SECOND, START + 100 * 86_400 * SECOND, last] {
            for is_flushed in [false, true] {
                let disk = MemoryDisk::new(character);
                let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
                let database = open(&disk, &clock);
                let mut newest = database.store.next_version();
                database.write_one(dated("a", newest, version));
                if is_flushed {
                    database.flush();
                }
                database.close();
                for _ in 0..2 {
                    let database = open(&disk, &clock);
                    for _ in 0..3 {
                        let next = database.store.next_version();
                        assert!(next > newest && next < START + SECOND, "{next}, {version}");
                        newest = next;
                        let outcome = database.write_one(set("b", newest, "a", 1));
                        assert_eq!(outcome, RowOutcome::Written(None));
                    }
                    database.close();
                }
            }
        }
    }
}

#[test]
fn versions_rise_after_a_restart_with_an_earlier_clock() {
    for is_flushed in [false, true] {
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let database = open(&disk, &clock);
        clock.advance(30 * SECOND);
        // The row does not show when the server wrote it.
        let newest = database.store.next_version();
        database.write_one(dated("a", newest, Timestamp::MAX.nanos()));
        if is_flushed {
            database.flush();
        }
        database.close();
        let earlier = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let database = open(&disk, &earlier);
        assert!(database.store.next_version() > newest);
        database.close();
    }
}

#[test]
fn generated_ids_rise_after_a_restart_even_if_they_are_far_above_the_time_of_their_write() {
    for is_flushed in [false, true] {
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let database = open(&disk, &clock);
        let last = Cell::new(0);
        let make = |next: &mut dyn FnMut() -> i64| -> Result<Vec<RowWrite<'static>>, WideError> {
            let time = next();
            // Another thread assigns a version while the rows are numbered.
            clock.advance(30 * SECOND);
            let newest = database.store.next_version();
            last.set(next());
            assert!(last.get() > newest && newest > time + SECOND);
            Ok(vec![write_of(
                &last.get().to_string(),
                time,
                Action::Create(Vec::new()),
            )])
        };
        let options = WriteOptions::default();
        let store = &database.store;
        let written = store.write_generated(&database.threads, TABLE, &make, &options, &|_, _| None);
        let (_, written) = written.expect("it is written");
        assert_eq!(written.rows, [RowOutcome::Written(None)]);
        if is_flushed {
            database.flush();
        }
        database.close();
        let earlier = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let database = open(&disk, &earlier);
        assert!(database.store.next_version() > last.get());
        database.close();
    }
}

#[test]
fn writes_are_refused_once_no_version_is_left() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(&disk, &ManualClock::new(Timestamp::MAX));
    let last = database.store.next_version();
    assert_eq!(
        database.write_one(set("a", last, "a", 1)),
        RowOutcome::Written(None)
    );
    let writes = [set("a", database.store.next_version(), "a", 2)];
    let options = WriteOptions {
        durability: Durability::Buffered,
        ..WriteOptions::default()
    };
    let refused = database
        .store
        .write(&database.threads, TABLE, &writes, &options, &|_| None);
    assert!(matches!(refused, Err(WideError::NoVersions)), "{refused:?}");
    database.close();
}
