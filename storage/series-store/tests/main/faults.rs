//! Behavior of the store after backend operations with an unknown outcome.
//!
//! Each test runs for every kind of fault: the operation was lost, or it was applied without a reply. An append may
//! also be applied late.

use tideline_backend::memory::Character;
use tideline_backend::memory::{AppendFault, EditFault, MemoryDisk};
use tideline_model::{TableName, TableSpec, TimeRange, Value};
use tideline_series_store::{Order, SeriesStore, Settings, StoreError};

use crate::fixture::{Point, Rows, TestBackend, read, timeline, write};

fn point(at: i64, value: i64) -> Point {
    (timeline(1), at, vec![("value", Value::Signed(value))])
}

fn rows(points: &[(i64, i64)], field: tideline_model::FieldId) -> Rows {
    points
        .iter()
        .map(|(at, value)| (*at, vec![(field, Value::Signed(*value))]))
        .collect()
}

#[test]
fn a_write_of_unknown_outcome_can_be_sent_again_and_is_there_once() {
    for fault in [AppendFault::Lost, AppendFault::Landed, AppendFault::Late] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        disk.fail_append(fault);
        let unknown = write(&store, &table, &[point(1, 10)], &[timeline(1)]).expect_err("an open outcome");
        assert!(unknown.is_retryable(), "{unknown}");
        write(&store, &table, &[point(1, 10), point(2, 20)], &[timeline(1)]).expect("the second try");
        disk.land_late();
        drop(store);

        let (store, names) = test_backend.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        let field = table.schema().field("value").expect("the field");
        let found = read(
            &store,
            &table,
            &[timeline(1)],
            TimeRange::ALL,
            None,
            Order::Ascending,
        );
        assert_eq!(found[0], rows(&[(1, 10), (2, 20)], field), "{fault:?}");
        assert!(
            names.0.lock().expect("not poisoned").contains(&timeline(1)),
            "{fault:?}"
        );
    }
}

#[test]
fn a_seal_whose_edit_has_an_unknown_outcome_loses_and_doubles_nothing() {
    for fault in [EditFault::Lost, EditFault::Applied] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        let points: Vec<Point> = (0..500).map(|at| point(at, at * 3)).collect();
        write(&store, &table, &points, &[timeline(1)]).expect("a write");
        disk.fail_edit(fault);
        // The sealer retries a lost edit automatically; the caller may get the first error.
        while store.seal().is_err() {}
        let field = table.schema().field("value").expect("the field");
        let expected = rows(&(0..500).map(|at| (at, at * 3)).collect::<Vec<_>>(), field);
        let found = read(
            &store,
            &table,
            &[timeline(1)],
            TimeRange::ALL,
            None,
            Order::Ascending,
        );
        assert_eq!(found[0], expected, "{fault:?}");
        assert_eq!(store.stats().segment_points, 500, "{fault:?}");
        drop(store);

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
        assert_eq!(found[0], expected, "{fault:?} after a restart");
    }
}

/// Returns all rows of the first timeline of a table.
fn stored(store: &SeriesStore, table: &str) -> Rows {
    let table = store.table(table).expect("the table");
    let mut found = read(
        store,
        &table,
        &[timeline(1)],
        TimeRange::ALL,
        None,
        Order::Ascending,
    );
    found.remove(0)
}

fn name(name: &str) -> TableName {
    TableName::new(name).expect("valid")
}

#[test]
fn no_write_is_acknowledged_by_a_table_that_may_be_dropped() {
    for fault in [EditFault::Lost, EditFault::Applied] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        let table = store
            .create_table(name("doomed"), TableSpec::default())
            .expect("a table");
        let field = {
            write(&store, &table, &[point(1, 10)], &[timeline(1)]).expect("a write");
            store.seal().expect("a seal");
            write(&store, &table, &[point(2, 20)], &[timeline(1)]).expect("a write");
            table.schema().field("value").expect("the field")
        };
        disk.fail_edit(fault);
        disk.hide_manifest(true);
        let unknown = store.drop_table("doomed").expect_err("an open outcome");
        assert!(unknown.is_retryable(), "{fault:?}: {unknown}");
        for _ in 0..3 {
            let refused = write(&store, &table, &[point(3, 30)], &[timeline(1)]);
            let refused = refused.expect_err("the table may be gone");
            assert!(refused.is_retryable(), "{fault:?}: {refused}");
        }
        // Other tables accept writes, and no edit is made while the outcome is unknown.
        let other = store.table("default").expect("the default table");
        write(&store, &other, &[point(1, 1)], &[timeline(1)]).expect("a write");
        let refused = store.create_table(name("later"), TableSpec::default());
        assert!(refused.expect_err("unknown still").is_retryable());
        disk.hide_manifest(false);
        let written = write(&store, &table, &[point(3, 30)], &[timeline(1)]);
        let expected = rows(&[(1, 10), (2, 20), (3, 30)], field);
        match fault {
            EditFault::Applied => {
                assert!(matches!(written, Err(StoreError::TableDropped(_))), "{written:?}");
                assert!(matches!(store.table("doomed"), Err(StoreError::NoSuchTable(_))));
                assert_eq!(store.stats().segments, 0, "its segment is out of the manifest");
                // The name is available again.
                store
                    .create_table(name("doomed"), TableSpec::default())
                    .expect("a table");
                assert!(stored(&store, "doomed").is_empty());
            }
            EditFault::Lost | EditFault::Late => {
                written.expect("the table is there");
                assert_eq!(stored(&store, "doomed"), expected);
            }
        }
        drop((table, other, store));

        let (store, _) = test_backend.open(&Settings::default());
        let expected = match fault {
            EditFault::Applied => Rows::new(),
            EditFault::Lost | EditFault::Late => expected,
        };
        assert_eq!(stored(&store, "doomed"), expected, "{fault:?} after a restart");
        assert_eq!(stored(&store, "default").len(), 1, "{fault:?}");
    }
}

#[test]
fn a_table_that_may_have_been_made_is_usable_once_that_is_known() {
    for fault in [EditFault::Lost, EditFault::Applied] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        disk.fail_edit(fault);
        disk.hide_manifest(true);
        let unknown = store.create_table(name("new"), TableSpec::default());
        assert!(unknown.expect_err("an open outcome").is_retryable(), "{fault:?}");
        let unknown = store.table("new").expect_err("it may be there");
        assert!(unknown.is_retryable(), "{fault:?}: {unknown}");
        assert!(matches!(store.table("newer"), Err(StoreError::NoSuchTable(_))));
        disk.hide_manifest(false);
        if fault == EditFault::Lost {
            assert!(matches!(store.table("new"), Err(StoreError::NoSuchTable(_))));
            store
                .create_table(name("new"), TableSpec::default())
                .expect("a table");
        }
        let table = store.table("new").expect("the table");
        let repeated = store.create_table(name("new"), TableSpec::default());
        assert!(
            matches!(repeated, Err(StoreError::TableExists(_))),
            "{repeated:?}"
        );
        write(&store, &table, &[point(1, 10)], &[timeline(1)]).expect("a write");
        let field = table.schema().field("value").expect("the field");
        assert_eq!(stored(&store, "new"), rows(&[(1, 10)], field));
        drop((table, store));

        let (store, _) = test_backend.open(&Settings::default());
        assert_eq!(stored(&store, "new"), rows(&[(1, 10)], field), "{fault:?}");
    }
}

#[test]
fn a_seal_goes_on_once_it_is_known_whether_its_edit_was_made() {
    for fault in [EditFault::Lost, EditFault::Applied] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        let points: Vec<Point> = (0..500).map(|at| point(at, at * 3)).collect();
        write(&store, &table, &points, &[timeline(1)]).expect("a write");
        disk.fail_edit(fault);
        disk.hide_manifest(true);
        store.seal().expect_err("an open outcome");
        write(&store, &table, &[point(500, 1_500)], &[timeline(1)]).expect("writes go on");
        disk.hide_manifest(false);
        while store.seal().is_err() {}
        assert_eq!(stored(&store, "default").len(), 501, "{fault:?}");
        let stats = store.stats();
        assert_eq!((stats.segment_points, stats.head_points), (501, 0), "{fault:?}");
        assert_eq!(stats.seal_error, None);
        drop((table, store));

        let (store, _) = test_backend.open(&Settings::default());
        assert_eq!(stored(&store, "default").len(), 501, "{fault:?} after a restart");
    }
}

#[test]
fn settings_of_unknown_outcome_are_those_that_are_durable() {
    for fault in [EditFault::Lost, EditFault::Applied] {
        let disk = MemoryDisk::new(Character::Distributed);
        let test_backend = TestBackend::Memory(disk.clone());
        let (store, _) = test_backend.open(&Settings::default());
        let spec = TableSpec {
            write_past: Some(77),
            ..TableSpec::default()
        };
        disk.fail_edit(fault);
        disk.hide_manifest(true);
        store.alter_table("default", spec).expect_err("an open outcome");
        disk.hide_manifest(false);
        // A later edit resolves the outcome first.
        let later = store.create_table(name("later"), TableSpec::default());
        later.expect("a table");
        let durable = (fault == EditFault::Applied).then_some(77);
        let now = |store: &SeriesStore| store.table("default").expect("the table").spec().write_past;
        assert_eq!(now(&store), durable, "{fault:?}");
        drop(store);
        let (store, _) = test_backend.open(&Settings::default());
        assert_eq!(now(&store), durable, "{fault:?} after a restart");
    }
}
