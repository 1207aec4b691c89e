//! What the store does when its backend leaves an outcome open.

use tideline_backend::memory::Character;
use tideline_backend::memory::{AppendFault, EditFault, MemoryDisk};
use tideline_model::{TimeRange, Value};
use tideline_series_store::{Order, Settings};

use crate::fixture::{Place, Point, Rows, read, timeline, write};

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
        let place = Place::Memory(disk.clone());
        let (store, _) = place.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        disk.fail_append(fault);
        let unknown = write(&store, &table, &[point(1, 10)], &[timeline(1)]).expect_err("an open outcome");
        assert!(unknown.is_retryable(), "{unknown}");
        write(&store, &table, &[point(1, 10), point(2, 20)], &[timeline(1)]).expect("the second try");
        disk.land_late();
        drop(store);

        let (store, names) = place.open(&Settings::default());
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
        let place = Place::Memory(disk.clone());
        let (store, _) = place.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        let points: Vec<Point> = (0..500).map(|at| point(at, at * 3)).collect();
        write(&store, &table, &points, &[timeline(1)]).expect("a write");
        disk.fail_edit(fault);
        // A lost edit is tried again by the sealer itself; the caller may be told of the first failure.
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

        let (store, _) = place.open(&Settings::default());
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
