//! Tests of missing rows of the catalog or the schema.
//!
//! A start is refused if segments need the missing rows, until the operator accepts the loss.

use tideline_backend::{Backend, Direction, PageLimit, RowChange, Space, Stamp};
use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{Engine, EngineError};
use tideline_key_codec::{space, table_rows};
use tideline_model::{Durability, TableId, TimeRange};

use crate::support::{Fixture, START, host, hosts, instants, write};

const TIMELINES: usize = 50;

/// Removes the last row of a table in a key space.
fn lose_a_row(fixture: &Fixture, space: Space, table: TableId) {
    let backend = fixture.backend();
    let (partition, range) = table_rows(space, table);
    let limit = PageLimit {
        rows_max: 1,
        bytes_max: 1 << 20,
    };
    let page = backend
        .scan(partition, &range, Direction::Descending, limit)
        .expect("a page");
    let lost = RowChange {
        key: page.rows[0].key.clone(),
        value: None,
    };
    backend
        .write(partition, &[lost], Stamp(u64::MAX), Durability::Synced)
        .expect("a write");
}

/// Seals a table whose timelines have the field `temperature`, except one of another measurement with `humidity`.
fn sealed(fixture: &Fixture) -> TableId {
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    for number in 1..TIMELINES {
        let line = format!("air,host=h{number:02} temperature={number} {START}\n");
        write(&engine, &table, &line);
    }
    write(&engine, &table, &format!("water,host=h00 humidity=1 {START}\n"));
    engine.seal().expect("sealed");
    engine.close().expect("closed");
    table.points().id()
}

fn accepting(fixture: &Fixture) -> Engine {
    fixture.open_with(|settings| settings.store.accept_loss = true)
}

fn refusal(fixture: &Fixture) -> EngineError {
    fixture.try_open_with(|_| {}).expect_err("rows are lost")
}

#[test]
fn the_loss_of_a_catalog_row_is_refused_until_it_is_accepted() {
    let fixture = Fixture::new();
    let table = sealed(&fixture);
    lose_a_row(&fixture, space::CATALOG, table);
    for _ in 0..2 {
        let refused = refusal(&fixture).to_string();
        assert!(refused.contains("49 of at least 50 timelines"), "{refused}");
        assert!(refused.contains("storage.accept_loss"), "{refused}");
    }
    accepting(&fixture).close().expect("closed");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All).len(), TIMELINES - 1);
}

#[test]
fn a_field_number_that_segments_have_is_never_given_to_another_field() {
    let fixture = Fixture::new();
    let table = sealed(&fixture);
    // The last row belongs to the measurement whose field was registered last.
    lose_a_row(&fixture, space::SCHEMAS, table);
    let refused = refusal(&fixture).to_string();
    assert!(refused.contains("1 of at least 2 field numbers"), "{refused}");
    for start in 0..3 {
        let engine = if start == 0 {
            accepting(&fixture)
        } else {
            fixture.open()
        };
        let table = engine.default_table().expect("the default table");
        write(
            &engine,
            &table,
            &format!("gas,host=h00 co2_{start}=1 {}\n", START + 1),
        );
        let number = table
            .points()
            .schema()
            .field(&format!("co2_{start}"))
            .expect("registered");
        assert_eq!(number.0, 2 + start, "number 1 is in a segment");
        engine.seal().expect("sealed");
        engine.close().expect("closed");
    }
}

#[test]
fn timelines_that_were_removed_since_the_last_seal_are_not_missed() {
    let fixture = Fixture::new();
    sealed(&fixture);
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    for name in ["h01", "h02", "h03"] {
        engine
            .delete_points(&table, &host(name), TimeRange::ALL, NEVER)
            .expect("a delete");
    }
    let now = engine.store().trusted_now();
    let cleaned = engine.clean_catalog(&table, now).expect("a clean-up");
    assert_eq!(cleaned.removed, 3);
    engine.close().expect("closed");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    assert_eq!(hosts(&engine, &table, Condition::All).len(), TIMELINES - 3);
    write(&engine, &table, &format!("air,host=h01 temperature=7 {START}\n"));
    engine.seal().expect("sealed");
    engine.close().expect("closed");
    let engine = fixture.open();
    let table = engine.default_table().expect("the default table");
    let found = crate::support::found(&engine, &table, Condition::tag("host", "h01"));
    assert_eq!(instants(&engine, &table, found["h01"].id), [START]);
}
