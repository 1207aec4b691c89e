//! Parts that follow from a generated key column, whose ids are times: reads by conditions on the id, and drops.
//!
//! The entries of an index and of a search index must follow the parts of their rows.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::indexes::BuildEnd;
use tideline_engine::model::{Tier, Timestamp};
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_openapi::row::{RowsBody, ScanRows};
use tideline_openapi::row_explain::ExplainRows;
use tideline_rows::explain::explain;
use tideline_rows::read::ScanTerms;
use tideline_rows::write::write;
use tideline_rows::{PageLimits, Scan, Selection, WriteSettings};

use crate::database::{Database, SECOND, START, TABLE, memory};

const DAY: i64 = 86_400 * SECOND;
const DAYS: i64 = 120;
const HOSTS: [&str; 2] = ["a", "b"];

/// Writes a row for each host. Returns their ids.
fn put(database: &Database, state: &str) -> Vec<i64> {
    let rows = HOSTS.map(|host| json!({"op": "put", "key": {"host": host}, "columns": {"state": state}}));
    let body: RowsBody = serde_json::from_str(&json!({"rows": rows}).to_string()).expect("rows");
    let (table, settings) = (database.table(), WriteSettings::default());
    let written = write(database.engine(), &table, &body.rows, b"", &settings).expect("a write");
    let shown = serde_json::to_value(&written.rows).expect("JSON");
    let ids = shown.as_array().expect("a list").iter();
    ids.map(|row| id_of(&row["key"])).collect()
}

fn id_of(key: &Value) -> i64 {
    let id = &key["id"];
    id.as_i64()
        .or_else(|| id.as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("no id: {key}"))
}

/// Returns the ids of the rows of a scan, and the number of rows that were read.
fn scan(database: &Database, request: &Value) -> (BTreeSet<i64>, u64) {
    let request: ScanRows = serde_json::from_str(&request.to_string()).expect("a request");
    let (engine, table, selection) = (database.engine(), database.table(), Selection::default());
    let terms = ScanTerms {
        index: request.index.as_deref(),
        prefix: &request.prefix,
        range: request.range.as_ref(),
        direction: request.direction,
        filter: request.filter.as_ref(),
        tier: request.tier,
        page_token: None,
        allow_scan: request.allow_scan,
    };
    let scan = Scan::new(engine, &table, &terms, &selection).expect("a scan");
    let limits = PageLimits {
        rows: None,
        scanned: None,
        bytes: None,
    };
    let mut ids = BTreeSet::new();
    let page = scan.page(engine, &table, &selection, limits, &|| false, &mut |row| {
        let row: Value = serde_json::from_slice(row).expect("JSON");
        assert!(ids.insert(id_of(&row["key"])), "{row} is returned twice");
        Ok(())
    });
    (ids, page.expect("a page").scanned)
}

#[test]
fn parts_by_generated_ids_are_read_by_conditions_and_dropped_with_their_index_entries() {
    let mut database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [{"name": "host", "type": "string"}, {"name": "id", "generated": {}}],
            "columns": [{"name": "state", "type": "string", "number": 1}],
            "parts": {"by": "id", "every": "day"},
        }),
    );
    let index = json!({"name": "by_state", "key": [{"name": "state", "type": "string"}]});
    let index = serde_json::from_value(index).expect("an index");
    let engine = database.engine();
    engine.create_index(TABLE, index).expect("it is created");
    for building in engine.building_indexes() {
        let built = engine.build_index(&building, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(built, Ok(BuildEnd::Ready(_))), "{built:?}");
    }
    database.create_index(&json!([{"column": "state", "as": "keyword"}]), false);
    let mut ids = BTreeSet::new();
    for day in 0..DAYS {
        ids.extend(put(&database, "new"));
        if day % 50 == 49 {
            database.engine().seal().expect("it is flushed");
        }
        database.clock.advance(DAY);
    }
    assert_eq!(ids.len() as i64, 2 * DAYS);
    let between = |from: i64, to: i64| ids.range(from..to).copied().collect::<BTreeSet<i64>>();
    for is_flushed in [false, true] {
        if is_flushed {
            database.engine().seal().expect("it is flushed");
        }
        let (from, to) = (START + 42 * DAY, START + 43 * DAY);
        let condition = json!({"and": [{"column": "id", "gte": from}, {"column": "id", "lt": to}]});
        let request = json!({"allow_scan": true, "where": condition});
        let (found, scanned) = scan(&database, &request);
        assert_eq!(found, between(from, to));
        assert_eq!(found.len(), 2);
        assert!(scanned <= 4, "{scanned} rows were read");
        let read: ExplainRows =
            serde_json::from_str(&json!({"scan": request}).to_string()).expect("a request");
        let explained = explain(database.engine(), &database.table(), &read, &|| false);
        let parts = explained.expect("an explanation").parts.expect("it is divided");
        assert_eq!(parts.of as i64, DAYS);
        assert!(parts.read <= 2, "{parts:?}");
        for request in [
            json!({"prefix": {"host": "a"}, "range": {"column": "id", "from": from, "to": to}}),
            json!({"index": "by_state", "prefix": {"state": "new"}, "where": condition}),
        ] {
            let (found, _) = scan(&database, &request);
            assert!(
                !found.is_empty() && found.is_subset(&between(from, to)),
                "{request}"
            );
        }
    }
    // All rows of a day are in the part of this day.
    let before = START + 70 * DAY;
    let before = before - before.rem_euclid(DAY);
    let dropped = database
        .engine()
        .drop_parts(TABLE, Timestamp::from_nanos_clamped(before), false)
        .expect("they are dropped");
    assert_eq!(dropped.len(), 70);
    let kept = between(before, i64::MAX);
    assert_eq!(kept.len(), 100);
    // A read of the cold tier finds a part in this tier.
    let cold = between(before + 10 * DAY, before + 11 * DAY);
    let table = database.table();
    let every = table.settings().parts.as_ref().expect("it is divided").every;
    let number = every.number_of(before + 10 * DAY);
    let id = table.table().points().id();
    let step = &mut |_: &MoveProgress| ControlFlow::Continue(());
    let moved = database.engine().move_table_part(id, number, Tier::Cold, step);
    assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
    for round in 0..2 {
        for request in [
            json!({"allow_scan": true}),
            json!({"index": "by_state", "prefix": {"state": "new"}}),
        ] {
            assert_eq!(scan(&database, &request).0, kept, "{request}, {round}");
            let mut request = request;
            request["tier"] = json!("cold");
            assert_eq!(scan(&database, &request).0, cold, "{request}, {round}");
        }
        database.settle();
        for (tier, expected) in [("all", &kept), ("cold", &cold)] {
            let search = json!({"where": {"column": "state", "equals": "new"}, "limit": 1_000, "tier": tier});
            let (found, total) = database.search(&search);
            assert_eq!(total, expected.len() as u64, "{tier}, {round}");
            let found: BTreeSet<i64> = found.iter().map(|row| id_of(&row["key"])).collect();
            assert_eq!(found, *expected);
        }
        database.close();
        database.check_stored();
        database.open();
    }
    // Ids also rise after the restart, and rows of dropped parts are refused.
    let new = put(&database, "new");
    assert!(new.iter().all(|id| kept.last().is_some_and(|last| id > last)));
    database.close();
}
