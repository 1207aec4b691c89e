//! Tests of writes: conditions, increments, images, partitions, concurrency, removed versions, limits, and pages of the
//! columns of a row.
//!
//! Most tests run on both in-memory backends and on fjall.

use tideline_backend::Direction;
use tideline_model::KeyRange;
use tideline_wide_table::{Action, Image, Mutation, Refused, RowOutcome, RowWrite, Update, WriteOptions};

use super::database::*;

#[test]
fn a_condition_is_decided_with_the_write() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let missing = |row: Option<&Mutation<'_>>| row.is_none();
        let first = database.write_one(when(put("a", 1, &[("c", 1)]), Box::new(missing)));
        assert_eq!(first, RowOutcome::Written(None));
        let again = RowWrite {
            image: Image::Before,
            ..when(put("a", 2, &[("c", 2)]), Box::new(missing))
        };
        let RowOutcome::ConditionFailed(Some(current)) = database.write_one(again) else {
            panic!("the row exists");
        };
        assert_eq!(number(&current, "c"), Some(1));
        database.close();
    });
}

#[test]
fn rows_of_one_partition_are_written_all_or_not_at_all() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let written = database.write(&[
            put("a1", 1, &[]),
            when(put("a2", 1, &[]), Box::new(|row| row.is_some())),
            put("b1", 1, &[]),
        ]);
        assert_eq!(
            written.rows,
            [
                RowOutcome::NotApplied,
                RowOutcome::ConditionFailed(None),
                RowOutcome::Written(None)
            ]
        );
        let rows = database.rows(KeyRange::ALL, Direction::Ascending, 10);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].0.as_ref(), b"b1");
        database.close();
    });
}

#[test]
fn a_whole_write_of_several_partitions_is_written_or_not() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let whole = WriteOptions {
            is_whole: true,
            ..WriteOptions::default()
        };
        let refused = database.write_with(
            &[
                put("a1", 1, &[]),
                when(put("b1", 1, &[]), Box::new(|row| row.is_some())),
                put("c1", 1, &[]),
            ],
            &whole,
        );
        assert_eq!(
            refused.rows,
            [
                RowOutcome::NotApplied,
                RowOutcome::ConditionFailed(None),
                RowOutcome::NotApplied
            ]
        );
        assert!(database.rows(KeyRange::ALL, Direction::Ascending, 10).is_empty());
        let written = database.write_with(&[put("a1", 2, &[]), put("b1", 2, &[])], &whole);
        assert_eq!(
            written.rows,
            [RowOutcome::Written(None), RowOutcome::Written(None)]
        );
        assert_eq!(database.rows(KeyRange::ALL, Direction::Ascending, 10).len(), 2);
        database.close();
    });
}

#[test]
fn writes_of_one_request_see_those_before_them() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 1);
    let written = database.write(&[
        put("a", 1, &[("n", 5)]),
        increment("a", 2, "n", 2),
        write_of("a", 3, Action::Delete),
        increment("a", 4, "n", 7),
    ]);
    let numbers = written.rows.iter().map(|outcome| match outcome {
        RowOutcome::Written(Some(row)) => number(row, "n"),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [None, Some(7), None, Some(7)]);
    database.close();
}

#[test]
fn an_update_is_seen_by_later_writes_of_its_request() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let written = database.write(&[
            set("a", 1, "n", 5),
            increment("a", 2, "n", 2),
            set("a", 3, "n", 20),
            increment("a", 4, "n", 1),
        ]);
        let numbers = written.rows.iter().map(|outcome| match outcome {
            RowOutcome::Written(Some(row)) => number(row, "n"),
            _ => None,
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [None, Some(7), None, Some(21)]);
        let row = database.row(b"a").expect("it exists");
        assert_eq!(number(&row, "n"), Some(21));
        database.close();
    });
}

#[test]
fn small_updates_of_one_request_cannot_exceed_the_limit_of_a_row() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let updates = |request: u32| -> Vec<RowWrite<'static>> {
            let columns = request * 220..(request + 1) * 220;
            let update = |column| {
                let value = tideline_wide_table::CellValue::Binary(vec![7; 15 << 10].into());
                let name = tideline_wide_table::ColumnName::Declared(column);
                let columns = vec![tideline_wide_table::Column::with(name, 1, value)];
                let update = Update {
                    columns,
                    ..Update::default()
                };
                write_of("a", 1, Action::Update(update))
            };
            columns.map(update).collect()
        };
        let is_too_large =
            |outcome: &RowOutcome| matches!(outcome, RowOutcome::Refused(Refused::TooLarge(_)));
        for request in 0..2 {
            let written = database.write(&updates(request));
            assert!(!written.rows.iter().any(is_too_large));
        }
        let written = database.write(&updates(2));
        assert!(written.rows.iter().any(is_too_large));
        database.flush();
        assert_eq!(database.row(b"a").map(|row| row.columns.len()), Some(440));
        database.close();
    });
}

#[test]
fn increments_of_many_threads_are_all_counted() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let database = &database;
                scope.spawn(move || {
                    for at in 0..25 {
                        database.write_one(increment("a", thread * 100 + at, "n", 1));
                        // These flushes make increments run while the row moves from the buffer into its part.
                        if thread == 0 && at % 10 == 0 {
                            database.flush();
                        }
                    }
                });
            }
        });
        let row = database.row(b"a").expect("it exists");
        assert_eq!(number(&row, "n"), Some(200));
        database.close();
    });
}

#[test]
fn an_impossible_increment_is_refused() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 1);
    database.write_one(put("a", 1, &[("n", i64::MAX)]));
    assert_eq!(
        database.write_one(increment("a", 2, "n", 1)),
        RowOutcome::Refused(Refused::Overflow(named("n")))
    );
    database.close();
}

#[test]
fn a_missing_column_counts_as_zero_of_the_given_type() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 1);
    let unsigned = |time, by| {
        let update = Update {
            increments: vec![tideline_wide_table::Increment {
                column: named("n"),
                by,
                is_unsigned: true,
            }],
            ..Update::default()
        };
        write_of("a", time, Action::Update(update))
    };
    assert_eq!(
        database.write_one(unsigned(1, -1)),
        RowOutcome::Refused(Refused::Overflow(named("n")))
    );
    database.write_one(unsigned(2, 3));
    let row = database.row(b"a").expect("it exists");
    let newest = row.column(&named("n")).and_then(|column| column.newest());
    assert_eq!(
        newest.map(|version| &version.value),
        Some(&tideline_wide_table::CellValue::U64(3))
    );
    database.close();
}

#[test]
fn an_update_whose_condition_passed_is_visible_whatever_the_times() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        database.write_one(put("a", 9, &[("n", 1)]));
        // The update has an earlier time than the row.
        let is_one = |row: Option<&Mutation<'_>>| row.and_then(|row| number(row, "n")) == Some(1);
        let mut update = when(set("a", 5, "n", 2), Box::new(is_one));
        if let Action::Update(update) = &mut update.action {
            update.follows_current = true;
        }
        assert_eq!(database.write_one(update), RowOutcome::Written(None));
        let row = database.row(b"a").expect("it exists");
        assert_eq!(number(&row, "n"), Some(2));
        database.close();
    });
}

#[test]
fn a_removed_version_uncovers_the_one_before() {
    every_backend(|backend| {
        let database = Database::open(backend(), 3);
        for time in 1..=4 {
            database.write_one(set("a", time, "c", time * 10));
        }
        let removal = Update {
            removed: vec![(named("c"), 4)],
            ..Update::default()
        };
        database.write_one(write_of("a", 5, Action::Update(removal)));
        database.flush();
        let row = database.row(b"a").expect("it exists");
        let column = row.column(&named("c")).expect("it has versions");
        let times: Vec<i64> = column.versions.iter().map(|version| version.time).collect();
        assert_eq!(times, [3, 2]);
        database.close();
    });
}

#[test]
fn one_update_removes_several_versions_of_a_column() {
    every_backend(|backend| {
        let database = Database::open(backend(), 4);
        for time in 1..=4 {
            database.write_one(set("a", time, "c", time * 10));
        }
        let removal = Update {
            removed: vec![(named("c"), 4), (named("c"), 2), (named("c"), 3)],
            ..Update::default()
        };
        database.write_one(write_of("a", 5, Action::Update(removal)));
        for is_flushed in [false, true] {
            if is_flushed {
                database.flush();
            }
            let row = database.row(b"a").expect("it exists");
            let column = row.column(&named("c")).expect("it has a version");
            let times: Vec<i64> = column.versions.iter().map(|version| version.time).collect();
            assert_eq!(times, [1], "flushed: {is_flushed}");
        }
        database.close();
    });
}

#[test]
fn a_row_over_the_limit_is_refused_and_stays_as_it_was() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 1);
    let big = |name: &'static str| {
        let value = tideline_wide_table::CellValue::Binary(vec![7; 1_900 << 10].into());
        let columns = vec![tideline_wide_table::Column::with(named(name), 1, value)];
        write_of(
            "a",
            1,
            Action::Update(Update {
                columns,
                ..Update::default()
            }),
        )
    };
    for name in ["c", "d", "e", "f"] {
        assert_eq!(database.write_one(big(name)), RowOutcome::Written(None));
    }
    let refused = database.write_one(big("g"));
    assert!(
        matches!(refused, RowOutcome::Refused(Refused::TooLarge(_))),
        "{refused:?}"
    );
    database.flush();
    assert_eq!(database.row(b"a").expect("it exists").columns.len(), 4);
    database.close();
}

#[test]
fn a_column_over_its_limit_is_refused() {
    let disk = tideline_backend::memory::MemoryDisk::new(tideline_backend::memory::Character::Embedded);
    let backend = std::sync::Arc::new(tideline_backend::memory::MemoryBackend::open(&disk));
    let database = Database::open(backend, 3);
    let version = |time| {
        let value = tideline_wide_table::CellValue::Binary(vec![7; 900 << 10].into());
        let columns = vec![tideline_wide_table::Column::with(named("c"), time, value)];
        write_of(
            "a",
            time,
            Action::Update(Update {
                columns,
                ..Update::default()
            }),
        )
    };
    for time in 1..=2 {
        assert_eq!(database.write_one(version(time)), RowOutcome::Written(None));
        database.flush();
    }
    let refused = database.write_one(version(3));
    assert!(
        matches!(&refused, RowOutcome::Refused(Refused::ColumnTooLarge(name, _)) if *name == named("c")),
        "{refused:?}"
    );
    database.close();
}

#[test]
fn a_row_of_many_columns_is_read_in_pages() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        let names: Vec<&'static str> = (0..200_000)
            .map(|number| &*Box::leak(format!("c{number:06}").into_boxed_str()))
            .collect();
        for chunk in names.chunks(2_000) {
            let columns: Vec<_> = chunk.iter().map(|name| (*name, 7)).collect();
            let Action::Put(columns) = put("wide", 1, &columns).action else {
                unreachable!("it is a put")
            };
            let update = Update {
                columns,
                ..Update::default()
            };
            let written = database.write_one(write_of("wide", 1, Action::Update(update)));
            assert_eq!(written, RowOutcome::Written(None));
        }
        database.flush();
        database.write_one(set("wide", 2, "c000000", 8));
        let page = |from: &str, to, limit| {
            let span = tideline_wide_table::ColumnSpan {
                declared: &[],
                from,
                to,
                limit,
            };
            let page = database.store.columns(TABLE, b"wide", &span).expect("it is read");
            let page = page.expect("it exists");
            let row = page.row.columns().expect("it is intact").into_owned();
            (row, page.has_more)
        };
        let (first, has_more) = page("", None, 3);
        assert_eq!((first.columns.len(), has_more), (3, true));
        assert_eq!(number(&first, "c000000"), Some(8));
        let (middle, has_more) = page("c150000", Some("c150002"), 10);
        assert_eq!((middle.columns.len(), has_more), (2, false));
        let (last, has_more) = page("c199999", None, 10);
        assert_eq!((last.columns.len(), has_more), (1, false));
        // A small row replaces the large row. The columns in the old fragments must no longer be returned.
        database.write_one(put("wide", 3, &[("n", 1)]));
        database.flush();
        assert_eq!(page("", None, 10).0.columns.len(), 1);
        database.close();
    });
}
