//! Tests of secondary indexes: online build with restarts, removal during a build, limits.
//!
//! Reads and writes through an index are covered by the model-based tests of `tideline-wide-table` and `tideline-sql`.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::Direction;
use tideline_engine::indexes::BuildEnd;
use tideline_engine::rows::{Action, CellValue, Column, Image, RowPath, RowWrite, RowWriteOptions};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};
use tideline_key_codec::tuple::KeyValue;
use tideline_model::{IndexSpec, TableModel, TableName, TableSpec};

use crate::support::Fixture;

const ROWS: u64 = 2_000;

fn create_table(engine: &Engine) -> Arc<WideTable> {
    let wide = serde_json::json!({
        "key": [{"name": "id", "type": "u64"}],
        "columns": [{"name": "n", "type": "i64"}],
    });
    let spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(serde_json::from_value(wide).expect("valid settings")),
        ..TableSpec::default()
    };
    let name = TableName::new("rows").expect("a name");
    engine.create_table(name, spec).expect("it is created");
    engine.wide_table("rows").expect("it exists")
}

fn by_n(name: &str) -> IndexSpec {
    let index = serde_json::json!({"name": name, "key": [{"name": "n", "type": "i64"}]});
    serde_json::from_value(index).expect("a valid index")
}

/// Writes rows whose column `n` counts down.
fn write(engine: &Engine, table: &WideTable, ids: std::ops::Range<u64>) {
    let (column, _) = table.column("n");
    let write = |id: u64| {
        let mut key = Vec::new();
        table
            .layout()
            .encode(&[KeyValue::from(id)], &mut key)
            .expect("a valid key");
        let time = engine.next_version();
        RowWrite {
            partition: key.len(),
            key: Bytes::from(key),
            time,
            action: Action::Put(vec![Column::with(
                column.clone(),
                time,
                CellValue::I64(-(id as i64)),
            )]),
            condition: None,
            image: Image::None,
        }
    };
    let make = |_: &mut dyn FnMut() -> i64| Ok(ids.clone().map(write).collect());
    engine
        .write_rows(table, &make, &RowWriteOptions::default())
        .expect("they are written");
}

/// Returns the ids of all rows in the order of an index.
fn ids(engine: &Engine, index: &str) -> Vec<u64> {
    let table = engine.wide_table("rows").expect("it exists");
    let path = RowPath::Index {
        index: Arc::clone(table.index(index).expect("it is ready")),
        is_covered: false,
    };
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let ranges = path.layout(&table).ranges(&[], all).expect("valid bounds");
    let mut scan = engine.scan_rows(
        Arc::clone(&table),
        path,
        ranges,
        Direction::Ascending,
        None,
        10_000,
    );
    let mut ids = Vec::new();
    while let Some(found) = scan.next_row().expect("it is read") {
        match table
            .layout()
            .decode(&found.row.key)
            .expect("it is intact")
            .as_slice()
        {
            [KeyValue::Unsigned(id)] => ids.push(*id),
            other => panic!("{other:?}"),
        }
    }
    ids
}

#[test]
fn a_build_that_was_stopped_continues_after_a_restart() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = create_table(&engine);
    write(&engine, &table, 0..ROWS);
    engine.create_index("rows", by_n("by_n")).expect("it is created");
    let refused = engine
        .wide_table("rows")
        .expect("it exists")
        .index("by_n")
        .map(drop);
    let refused = refused.expect_err("it is being built");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.is_retryable());
    let building = engine.building_indexes().remove(0);
    let stopped = engine.build_index(&building, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Ok(BuildEnd::Stopped)), "{stopped:?}");
    write(&engine, &table, ROWS..ROWS + 10);
    drop(table);
    engine.close().expect("it closes");

    let engine = fixture.open();
    let building = engine.building_indexes().remove(0);
    let built = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
    let Ok(BuildEnd::Ready(progress)) = built else {
        panic!("{built:?}")
    };
    assert!(progress.rows < ROWS, "{progress:?} begins after the first page");
    assert!(engine.building_indexes().is_empty());
    let again = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(again, Ok(BuildEnd::Gone)), "{again:?}");
    let expected: Vec<u64> = (0..ROWS + 10).rev().collect();
    assert_eq!(ids(&engine, "by_n"), expected);
    let used = engine.index_use(building.index);
    assert_eq!((used.scans, used.entries_read), (1, ROWS + 10));
    engine.close().expect("it closes");
}

#[test]
fn an_index_that_is_dropped_ends_its_build_and_leaves_nothing() {
    let fixture = Fixture::new();
    let engine = fixture.open();
    let table = create_table(&engine);
    write(&engine, &table, 0..ROWS);
    engine.create_index("rows", by_n("by_n")).expect("it is created");
    let building = engine.building_indexes().remove(0);
    let ended = engine.build_index(&building, &mut |_| {
        engine.drop_index("rows", "by_n").expect("it is dropped");
        ControlFlow::Continue(())
    });
    assert!(matches!(ended, Ok(BuildEnd::Gone)), "{ended:?}");
    let missing = engine.drop_index("rows", "by_n").expect_err("it is gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    // An index of the same name has another id, and none of the old entries.
    engine
        .create_index("rows", by_n("by_n"))
        .expect("it is created again");
    let building = engine.building_indexes().remove(0);
    let built = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(built, Ok(BuildEnd::Ready(_))), "{built:?}");
    assert_eq!(ids(&engine, "by_n").len() as u64, ROWS);
    engine.close().expect("it closes");
}

#[test]
fn more_indexes_than_allowed_are_refused() {
    let fixture = Fixture::new();
    let engine = fixture.open_with(|settings| settings.tables.indexes_max = 1);
    create_table(&engine);
    engine.create_index("rows", by_n("one")).expect("it is created");
    let refused = engine.create_index("rows", by_n("two")).map(drop);
    assert!(
        matches!(
            refused,
            Err(EngineError::OverLimit {
                limit: 1,
                actual: 2,
                ..
            })
        ),
        "{refused:?}"
    );
    let exists = engine.create_index("rows", by_n("one")).map(drop);
    assert!(
        matches!(exists, Err(EngineError::IndexExists { .. })),
        "{exists:?}"
    );
    engine.close().expect("it closes");
}
