//! Scans that merge the buckets of a key: each page continues the one before, in the order of the key without the bucket.

use std::collections::BTreeSet;

use proptest::collection::btree_set;
use proptest::prelude::*;
use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_openapi::row::ScanDirection;
use tideline_rows::read::ScanTerms;
use tideline_rows::{PageLimits, Scan, Selection};

use crate::database::{Database, memory};

/// Returns the ids of all rows, read in pages.
fn scanned(database: &Database, direction: ScanDirection, page_rows: u64) -> Vec<i64> {
    let (engine, table, selection) = (database.engine(), database.table(), Selection::default());
    let (mut ids, mut token) = (Vec::new(), None::<String>);
    loop {
        let terms = ScanTerms {
            index: None,
            prefix: &Default::default(),
            range: None,
            direction,
            filter: None,
            tier: Default::default(),
            page_token: token.as_deref(),
            allow_scan: true,
        };
        let scan = Scan::new(engine, &table, &terms, &selection).expect("a scan");
        let limits = PageLimits {
            rows: Some(page_rows),
            scanned: None,
            bytes: None,
        };
        let page = scan.page(engine, &table, &selection, limits, &|| false, &mut |row| {
            let row: Value = serde_json::from_slice(row).expect("JSON");
            ids.push(row["key"]["id"].as_i64().expect("an id"));
            Ok(())
        });
        token = page.expect("a page").next;
        if token.is_none() {
            return ids;
        }
    }
}

fn write(database: &Database, op: &str, ids: &BTreeSet<i64>) {
    if ids.is_empty() {
        return;
    }
    let rows = ids.iter().map(|id| json!({"op": op, "key": {"id": id}}));
    database.write(&rows.collect::<Vec<Value>>().into());
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(24))]

    #[test]
    fn a_merged_scan_returns_each_row_once_and_in_order(
        ids in btree_set(-2_000_i64..2_000, 0..500),
        deleted in btree_set(-2_000_i64..2_000, 0..500),
        buckets in prop::sample::select(vec![2, 3, 16, 200]),
        page_rows in 1_u64..120,
    ) {
        let mut database = Database::new(memory(Character::Embedded), &json!({
            "key": [{"name": "spread", "bucket": {"of": ["id"], "count": buckets}}, {"name": "id", "type": "i64"}],
            "columns": [], "next_column": 1, "allow_rising_key": true,
        }));
        let deleted: BTreeSet<i64> = ids.intersection(&deleted).copied().collect();
        write(&database, "put", &ids);
        write(&database, "delete", &deleted);
        let mut expected: Vec<i64> = ids.difference(&deleted).copied().collect();
        prop_assert_eq!(scanned(&database, ScanDirection::Forward, page_rows), expected.clone());
        expected.reverse();
        prop_assert_eq!(scanned(&database, ScanDirection::Backward, page_rows), expected);
        database.close();
    }
}
