//! Optimistic transactions: a write is applied only if the rows and ranges that were read are unchanged.
//!
//! Digests stay valid over flushes and restarts, the size of a required range is limited, and concurrent transactions
//! are serializable.

use std::sync::atomic::{AtomicUsize, Ordering};

use tideline_backend::{Direction, PageLimit};
use tideline_log::RequestRecord;
use tideline_model::KeyRange;
use tideline_wide_table::{
    RangeDigest, RowDigest, RowOutcome, RowWrite, StoredRow, UNCHANGED_ROWS_MAX, Unchanged, WideError,
    WriteOptions, Written,
};

use super::database::*;

fn no_request(_: &[RowOutcome]) -> Option<RequestRecord> {
    None
}

impl Database {
    fn try_write_unchanged(
        &self,
        writes: &[RowWrite<'_>],
        unchanged: Vec<Unchanged>,
    ) -> Result<Written, WideError> {
        let options = WriteOptions {
            unchanged,
            ..WriteOptions::default()
        };
        self.store
            .write(&self.threads, TABLE, writes, &options, &no_request)
    }

    fn write_unchanged(&self, writes: &[RowWrite<'_>], unchanged: Vec<Unchanged>) -> Written {
        self.try_write_unchanged(writes, unchanged)
            .expect("it is decided")
    }

    fn digest(&self, key: &str) -> Option<RowDigest> {
        let row = self.store.row(TABLE, key.as_bytes()).expect("it is read");
        row.map(|row| row.digest())
    }

    /// Reads all rows of the partition whose keys begin with `letter`. Also returns the requirement that the partition
    /// is unchanged when a write is committed.
    fn partition(&self, letter: &str) -> (Vec<StoredRow>, Unchanged) {
        let range = KeyRange::prefix(letter.as_bytes());
        let limit = PageLimit {
            rows_max: 3,
            bytes_max: 1 << 20,
        };
        let (mut rows, mut digest, mut rest) = (Vec::new(), RangeDigest::default(), Some(range.clone()));
        while let Some(range) = rest {
            let page = self.store.page(TABLE, &range, Direction::Ascending, limit);
            let page = page.expect("it is read");
            page.rows.iter().for_each(|row| digest.add(row));
            rows.extend(page.rows);
            rest = page.next;
        }
        let unchanged = Unchanged::Range {
            range,
            partition: 1,
            digest: digest.finish(),
        };
        (rows, unchanged)
    }
}

fn row(key: &str, digest: Option<RowDigest>) -> Unchanged {
    Unchanged::Row {
        key: key.into(),
        digest,
    }
}

#[test]
fn rows_that_a_write_with_generated_ids_needs_are_read_before_its_ids_are_assigned() {
    every_backend(|backend| {
        let database = Database::open(backend(), 2);
        database.write(&[put("a1", 1, &[("n", 1)])]);
        let options = WriteOptions {
            unchanged: vec![row("a1", database.digest("a1"))],
            ..WriteOptions::default()
        };
        // The first attempt has read the row when it assigns ids, so only the committer can find the change.
        let attempts = std::cell::Cell::new(0);
        let make = |next: &mut dyn FnMut() -> i64| -> Result<Vec<RowWrite<'static>>, WideError> {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 1 {
                database.write(&[put("a1", 2, &[("n", 2)])]);
            }
            Ok(vec![put("a2", next(), &[("n", 1)])])
        };
        let store = &database.store;
        let written = store.write_generated(&database.threads, TABLE, &make, &options, &|_, _| None);
        let (_, written) = written.expect("it is decided");
        assert_eq!((written.changed, attempts.get()), (Some(0), 2));
        assert!(database.row(b"a2").is_none());
        database.close();
    });
}

#[test]
fn a_write_needs_the_rows_as_they_were_read() {
    every_backend(|backend| {
        let database = Database::open(backend(), 2);
        database.write(&[put("a1", 1, &[("n", 1)]), put("a2", 1, &[("n", 1)])]);
        let read = vec![
            row("a1", database.digest("a1")),
            row("a2", database.digest("a2")),
            row("a3", None),
        ];
        // A flush and a restart do not change the digest.
        database.flush();
        database.close();
        let database = Database::open(backend(), 2);
        let written = database.write_unchanged(&[set("a1", 2, "n", 2)], read.clone());
        assert_eq!(
            (written.changed, written.rows),
            (None, vec![RowOutcome::Written(None)])
        );
        let again = database.write_unchanged(&[set("a2", 3, "n", 3)], read.clone());
        assert_eq!(
            (again.changed, again.rows),
            (Some(0), vec![RowOutcome::NotApplied])
        );
        assert_eq!(database.row(b"a2").and_then(|row| number(&row, "n")), Some(1));
        database.write(&[put("a3", 4, &[])]);
        let third = database.write_unchanged(&[set("a2", 5, "n", 3)], read[1..].to_vec());
        assert_eq!(third.changed, Some(1));
        database.close();
    });
}

#[test]
fn a_range_is_changed_by_new_and_removed_rows() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        database.write(&[put("a1", 1, &[]), put("a5", 1, &[]), put("b1", 1, &[])]);
        let (rows, read) = database.partition("a");
        assert_eq!(rows.len(), 2);
        database.write(&[put("b2", 2, &[])]);
        let same = database.write_unchanged(&[put("b3", 3, &[])], vec![read.clone()]);
        assert_eq!(same.changed, None, "another partition has changed");
        database.write(&[put("a3", 4, &[])]);
        let added = database.write_unchanged(&[put("a4", 5, &[])], vec![read.clone()]);
        assert_eq!(added.changed, Some(0));
        database.delete_rows(KeyRange::new(*b"a3", *b"a4"));
        let restored = database.write_unchanged(&[set("a1", 6, "n", 1)], vec![read.clone()]);
        assert_eq!(restored.changed, None, "the range has its old content again");
        let updated = database.write_unchanged(&[put("a4", 7, &[])], vec![read]);
        assert_eq!(updated.changed, Some(0));
        database.close();
    });
}

#[test]
fn a_range_with_too_many_rows_is_refused() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 1);
    let keys: Vec<String> = (0..=UNCHANGED_ROWS_MAX).map(|n| format!("a{n:06}")).collect();
    let rows: Vec<RowWrite<'_>> = keys.iter().map(|key| put(key, 1, &[])).collect();
    rows.chunks(1_000).for_each(|rows| {
        database.write(rows);
    });
    let (_, read) = database.partition("a");
    let refused = database.try_write_unchanged(&[put("a", 2, &[])], vec![read]);
    assert!(
        matches!(
            refused,
            Err(WideError::TooLarge {
                limit: UNCHANGED_ROWS_MAX,
                ..
            })
        ),
        "{refused:?}"
    );
    database.close();
}

/// Four threads move amounts between the rows of a partition, and add rows, while the main thread flushes. No conflict
/// may change the sum of all amounts.
#[test]
fn concurrent_transactions_keep_a_sum() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        database.write(&[put("a1", 1, &[("n", 100)]), put("a2", 1, &[("n", 100)])]);
        let conflicts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let mut writers = Vec::new();
            for writer in 0..4 {
                let (database, conflicts) = (&database, &conflicts);
                writers.push(scope.spawn(move || {
                    for round in 0..20 {
                        loop {
                            let (rows, read) = database.partition("a");
                            let amount = |row: &StoredRow| number(&row.columns().expect("intact"), "n");
                            let total: i64 = rows.iter().filter_map(amount).sum();
                            let from = &rows[(writer + round) % rows.len()];
                            let to = format!("a{}", (writer * 7 + round) % 9 + 1);
                            let to_has = rows.iter().find(|row| row.key == to.as_bytes());
                            let to_has = to_has.and_then(amount).unwrap_or(0);
                            if from.key == to.as_bytes() {
                                break;
                            }
                            let time = database.store.next_version();
                            let name = String::from_utf8(from.key.to_vec()).expect("it is text");
                            let has = amount(from).unwrap_or(0);
                            let writes = [
                                put(&name, time, &[("n", has - 1)]),
                                put(&to, time, &[("n", to_has + 1)]),
                            ];
                            if database.write_unchanged(&writes, vec![read]).changed.is_none() {
                                // Pages are not a snapshot, but if a transaction is committed, all rows that it read
                                // were valid at the same point in time.
                                assert_eq!(total, 200, "a transaction was applied in part");
                                break;
                            }
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }));
            }
            while writers.iter().any(|writer| !writer.is_finished()) {
                database.flush();
            }
        });
        let (rows, _) = database.partition("a");
        let amounts = rows
            .iter()
            .filter_map(|row| number(&row.columns().expect("intact"), "n"));
        assert_eq!(amounts.sum::<i64>(), 200, "{} conflicts", conflicts.into_inner());
        database.close();
    });
}
