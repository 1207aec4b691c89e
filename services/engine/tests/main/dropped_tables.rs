//! Tests of rows that a process leaves if it ends while it drops a table.

use std::collections::BTreeSet;

use tideline_backend::{Backend, RowChange, Stamp};
use tideline_condition::Condition;
use tideline_engine::Engine;
use tideline_key_codec::{named_key, space, table_rows};
use tideline_model::{Durability, Policy, TableId};
use tideline_timeline_catalog::Catalog;

use crate::support::{Fixture, START, hosts, table_with, write};

fn stored_tables(backend: &dyn Backend) -> BTreeSet<TableId> {
    Catalog::stored_tables(backend).expect("sound keys")
}

fn table_with_host(engine: &Engine, name: &str, host: &str) -> TableId {
    let table = table_with(engine, name, Policy::default());
    write(
        engine,
        &table,
        &format!("air,host={host} temperature=1 {START}\n"),
    );
    table.points().id()
}

/// Stores a saved search and the metadata of a metric. Their contents do not matter.
fn store_other_rows(backend: &dyn Backend, table: TableId) {
    for space in [space::SEARCHES, space::METADATA] {
        let (partition, _) = table_rows(space, table);
        let row = RowChange {
            key: named_key(table, b"name").into(),
            value: Some(vec![1_u8, 2, 3].into()),
        };
        backend
            .write(partition, &[row], Stamp(1), Durability::Synced)
            .expect("a write");
    }
}

#[test]
fn rows_of_a_table_whose_drop_was_interrupted_are_removed_after_the_next_start() {
    for fixture in [Fixture::new(), Fixture::distributed()] {
        let engine = fixture.open();
        let kept = table_with_host(&engine, "kept", "h1");
        let dropped = table_with_host(&engine, "x", "h2");
        engine.seal().expect("sealed");
        // A drop without the removal of rows, which follows it.
        engine.store().drop_table("x").expect("dropped");
        engine.close().expect("closed");
        let backend = fixture.backend();
        store_other_rows(&backend, dropped);
        assert_eq!(stored_tables(&backend), BTreeSet::from([kept, dropped]));

        let engine = fixture.open();
        engine.forget_dropped_tables().expect("removed");
        assert_eq!(
            stored_tables(engine.store().backend().as_ref()),
            BTreeSet::from([kept])
        );
        let new = table_with_host(&engine, "x", "h3");
        assert!(new > dropped, "the id of a table is not used again");
        engine.seal().expect("sealed");
        engine.forget_dropped_tables().expect("nothing to remove");
        assert_eq!(
            stored_tables(engine.store().backend().as_ref()),
            BTreeSet::from([kept, new])
        );
        engine.close().expect("closed");

        let engine = fixture.open();
        engine.forget_dropped_tables().expect("nothing to remove");
        for (name, host) in [("kept", "h1"), ("x", "h3")] {
            let table = engine.table(name).expect("it exists");
            assert_eq!(hosts(&engine, &table, Condition::All), [host]);
        }
    }
}

#[test]
fn a_drop_removes_all_rows_of_the_table() {
    for fixture in [Fixture::new(), Fixture::distributed()] {
        let engine = fixture.open();
        let kept = table_with_host(&engine, "kept", "h1");
        let dropped = table_with_host(&engine, "x", "h2");
        engine.seal().expect("sealed");
        store_other_rows(engine.store().backend().as_ref(), dropped);
        engine.drop_table("x").expect("dropped");
        assert_eq!(
            stored_tables(engine.store().backend().as_ref()),
            BTreeSet::from([kept])
        );
    }
}
