//! Tests of statistics, load, growth and advice of wide tables, and of the access paths of sample queries.
//!
//! Each test runs its surveys itself and sets the clock, so that a minute of load takes no time.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tideline_engine::WideTable;
use tideline_engine::backend::memory::Character;
use tideline_engine::model::Timestamp;
use tideline_openapi::index::CreateIndex;
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_advice::{AdviceCode, QueriesAdvised, QueryPath, TableAdvice};
use tideline_rows::advice::advice;
use tideline_rows::advise_queries::advise_queries;
use tideline_rows::read::{get, keys_of};
use tideline_rows::statistics::{growth, load, statistics};
use tideline_rows::{RowsError, Selection};

use crate::database::{Database, SECOND, memory};

const DAY: i64 = 86_400 * SECOND;

fn database(wide: &Value) -> Database {
    Database::new(memory(Character::Embedded), wide)
}

fn orders() -> Value {
    json!({
        "key": [{"name": "customer", "type": "string"}, {"name": "number", "type": "u64"}],
        "columns": [{"name": "state", "type": "string", "number": 1}, {"name": "total", "type": "f64", "number": 2}],
        "next_column": 3, "version_guard": null,
    })
}

fn put(customer: &str, number: u64) -> Value {
    json!({"op": "put", "key": {"customer": customer, "number": number}, "columns": {"state": "open", "total": 5.5}})
}

fn survey(database: &Database) {
    database.engine().seal().expect("it is flushed");
    let id = database.table().table().points().id();
    let done = database
        .engine()
        .survey_rows(id, &mut |_| ControlFlow::Continue(()));
    assert!(done.expect("it is read").is_some());
}

fn codes(advice: &TableAdvice) -> Vec<AdviceCode> {
    advice.advice.iter().map(|advice| advice.code).collect()
}

#[test]
fn statistics_are_those_of_the_last_survey() {
    let database = database(&orders());
    let none = statistics(database.engine(), &database.table());
    assert!(none.surveyed.is_none() && none.rows.is_none());
    for customer in ["a", "b"] {
        let count = if customer == "a" { 300 } else { 30 };
        let rows: Vec<Value> = (0..count).map(|number| put(customer, number)).collect();
        database.write(&json!(rows));
    }
    survey(&database);
    let found = statistics(database.engine(), &database.table());
    assert!(found.surveyed.is_some() && !found.changed);
    let rows = found.rows.expect("a survey");
    assert_eq!(
        (rows.rows, rows.partition_count, rows.columns_median),
        (330, 2, 2)
    );
    let largest = &rows.partitions[0];
    assert_eq!(
        (largest.partition.get(), largest.rows),
        (r#"{"customer":"a"}"#, 300)
    );
    assert!(largest.warning.is_none());
    assert_eq!(rows.ranges[0].from.get(), r#"{"customer":"a","number":0}"#);
    database.write(&json!([put("c", 1)]));
    assert!(statistics(database.engine(), &database.table()).changed);
}

#[test]
fn the_share_of_markers_falls_when_a_survey_has_packed_them() {
    let database = database(&orders());
    for start in 0..10_u64 {
        let rows: Vec<Value> = (start * 500..start * 500 + 500)
            .map(|number| put("a", number))
            .collect();
        database.write(&json!(rows));
    }
    survey(&database);
    // Each flush deletes a few rows of each block. These are too few for the flush to pack the block again.
    let mut deleted = 0_u64;
    for round in 0..4_u64 {
        for number in (round..5_000).step_by(40) {
            let key = json!({"customer": "a", "number": number});
            database.write(&json!([{"op": "delete", "key": key}]));
            deleted += 1;
        }
        database.engine().seal().expect("it is flushed");
    }
    let id = database.table().table().points().id();
    let progress = database
        .engine()
        .survey_rows(id, &mut |_| ControlFlow::Continue(()))
        .expect("it is read")
        .expect("it is not ended");
    let after = database.engine().row_survey(id).expect("a survey");
    assert!(
        progress.ranges_packed > 0 && progress.markers_packed > 300,
        "{progress:?}"
    );
    assert_eq!(after.markers_packed, progress.markers_packed);
    assert_eq!(after.rows.rows, 5_000 - deleted, "no hidden row is left");
    assert_eq!(after.rows.markers, 0);
    assert_eq!(database.naive(None).len() as u64, 5_000 - deleted);
}

#[test]
fn a_small_table_has_no_advice_unless_it_is_requested() {
    let database = database(&orders());
    database.write(&json!([put("a", 1)]));
    survey(&database);
    let quiet = advice(database.engine(), &database.table(), false);
    assert!(quiet.is_small && quiet.advice.is_empty());
    let all = advice(database.engine(), &database.table(), true);
    assert_eq!(all.withheld, 0);
    assert_eq!(all.advice.len() as u64, quiet.withheld);
    assert_eq!(codes(&all), [AdviceCode::FewPartitions, AdviceCode::FloatMoney]);
    assert_eq!(all.advice[1].subject.as_deref(), Some("total"));
}

#[test]
fn designs_that_cost_are_named_when_a_table_is_created() {
    let database = database(&json!({
        "key": [{"name": "at", "type": "timestamp"}, {"name": "paid", "type": "bool"}],
        "columns": [{"name": "unit_price", "type": "f64"}, {"name": "level", "type": "f64"}],
        "allow_rising_key": true, "ttl": {"after": 30 * DAY, "of": "row"},
    }));
    let all = advice(database.engine(), &database.table(), true);
    assert_eq!(
        codes(&all),
        [
            AdviceCode::RisingKey,
            AdviceCode::FloatMoney,
            AdviceCode::TtlWithoutParts
        ]
    );
    assert!(
        all.advice
            .iter()
            .all(|advice| !advice.measured.is_empty() && !advice.advice.is_empty())
    );
    let boolean = Database::new(
        memory(Character::Embedded),
        &json!({"key": [{"name": "spread", "bucket": {"of": ["id"], "count": 100}}, {"name": "paid", "type": "bool"},
            {"name": "id", "type": "u64"}], "columns": []}),
    );
    let all = advice(boolean.engine(), &boolean.table(), true);
    assert!(codes(&all).contains(&AdviceCode::ManyBuckets), "{all:?}");
}

#[test]
fn a_row_of_more_than_ten_thousand_columns_is_named() {
    let database = database(&orders());
    let columns: serde_json::Map<String, Value> = (0..10_100)
        .map(|number| (format!("seen_{number:05}"), json!(number)))
        .collect();
    database.write(&json!([{"op": "put", "key": {"customer": "a", "number": 1}, "columns": columns}]));
    survey(&database);
    let all = advice(database.engine(), &database.table(), true);
    assert!(codes(&all).contains(&AdviceCode::WideRows), "{all:?}");
}

#[test]
fn a_skewed_load_is_reported_within_a_minute() {
    let database = database(&orders());
    for second in 0..50_u64 {
        let mut rows: Vec<Value> = (0..20).map(|number| put("hot", second * 20 + number)).collect();
        rows.extend((0..20).map(|number| put(&format!("c{:02}", (second * 20 + number) % 40), second)));
        database.write(&json!(rows));
        database.clock.advance(SECOND);
    }
    let found = load(database.engine(), &database.table());
    assert_eq!(found.rows_written, 2_000);
    assert_eq!(found.hot_ranges.len(), 1, "{found:?}");
    let hot = &found.hot_ranges[0];
    assert_eq!(
        (hot.from.get(), &*hot.kind),
        (r#"{"customer":"hot"}"#, "partition")
    );
    assert!((0.4..0.6).contains(&hot.share_of_writes), "{hot:?}");
    let all = advice(database.engine(), &database.table(), true);
    assert!(codes(&all).contains(&AdviceCode::HotPartition));
    database.clock.advance(61 * SECOND);
    assert!(load(database.engine(), &database.table()).hot_ranges.is_empty());
}

#[test]
fn unused_indexes_and_columns_are_named() {
    let mut database = database(&orders());
    let index = json!({"id": 0, "name": "by_state", "key": [{"name": "state", "type": "string"}], "covers": {"columns": []}});
    let index = serde_json::from_value(index).expect("an index");
    database
        .engine()
        .create_index(crate::database::TABLE, index)
        .expect("it is created");
    let building = database.engine().building_indexes().remove(0);
    database
        .engine()
        .build_index(&building, &mut |_| ControlFlow::Continue(()))
        .expect("it is built");
    database.create_index(
        &json!([{"column": "state", "as": "keyword"}, {"column": "total", "as": "number"}]),
        false,
    );
    database.settle();
    database.write(&json!([put("a", 1)]));
    database.settle();
    let named = |database: &Database| codes(&advice(database.engine(), &database.table(), true));
    assert!(
        !named(&database).contains(&AdviceCode::UnusedIndex),
        "the server has just been started"
    );
    database.clock.advance(3_601 * SECOND);
    assert!(named(&database).contains(&AdviceCode::UnusedIndex));
    for _ in 0..1_000 {
        database.search(&json!({"where": {"column": "state", "equals": "open"}}));
    }
    let all = advice(database.engine(), &database.table(), true);
    let unsearched: Vec<_> = all
        .advice
        .iter()
        .filter(|advice| advice.code == AdviceCode::UnsearchedColumn)
        .map(|advice| advice.subject.clone())
        .collect();
    assert_eq!(unsearched, [Some("all/total".to_owned())]);
    database.close();
}

#[test]
fn growth_is_forecast_from_the_samples_of_surveys() {
    let mut database = database(&orders());
    for day in 0..10_u64 {
        let rows: Vec<Value> = (day * 100..day * 100 + 100)
            .map(|number| put("a", number))
            .collect();
        database.write(&json!(rows));
        survey(&database);
        database.clock.advance(DAY);
    }
    let read = |database: &Database| growth(database.engine(), &database.table(), Some(11_000), None).growth;
    let found = read(&database);
    let table = &found[0];
    assert_eq!(
        (table.rows, table.samples, table.rows_per_day),
        (Some(1_000), 10, Some(100.0))
    );
    // The last sample was taken 9 days after the first one, with 1,000 rows. At 100 rows per day, the mark of 11,000
    // rows is reached 100 days later.
    let reached = table.rows_mark_reached.as_deref().expect("a date");
    let expected = tideline_engine::model::Timestamp::from_nanos_clamped(crate::database::START + 109 * DAY);
    assert_eq!(reached[..10], expected.to_rfc3339()[..10]);
    database.close();
    database.open();
    assert_eq!(read(&database)[0].samples, 10, "samples survive a restart");
}

fn advised(database: &Database, queries: &Value) -> QueriesAdvised {
    let request = serde_json::from_value(json!({"queries": queries})).expect("queries");
    let table: Arc<WideTable> = database.table();
    advise_queries(database.engine(), &table, &request, &|| false).expect("they are advised")
}

fn paths(advised: &QueriesAdvised) -> Vec<(QueryPath, bool)> {
    advised
        .queries
        .iter()
        .map(|query| (query.path, query.exists))
        .collect()
}

#[test]
fn files_are_found_by_their_path_and_by_two_hashes() {
    let database = database(&json!({
        "key": [{"name": "spread", "hash_prefix": {"of": ["path"], "hex": 4}}, {"name": "path", "type": "string"}],
        "columns": [{"name": "md5", "type": "string"}, {"name": "sha1", "type": "string"}],
    }));
    let found = advised(
        &database,
        &json!([
            {"where": {"column": "path", "equals": "/a"}},
            {"where": {"column": "md5", "equals": "x"}},
            {"where": {"column": "sha1", "equals": "y"}},
        ]),
    );
    use QueryPath::{Key, SecondaryIndex};
    assert_eq!(
        paths(&found),
        [(Key, true), (SecondaryIndex, false), (SecondaryIndex, false)]
    );
    assert_eq!(
        found.create_indexes,
        [
            json!({"name": "by_md5", "key": [{"name": "md5"}]}),
            json!({"name": "by_sha1", "key": [{"name": "sha1"}]})
        ]
    );
    assert!(found.create_search_indexes.is_empty() && found.undeclared.is_empty());
}

#[test]
fn orders_that_are_searched_by_sixteen_fields_need_a_search_index() {
    let names: Vec<String> = (0..16).map(|number| format!("f{number:02}")).collect();
    let columns: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "type": "string"}))
        .collect();
    let database = database(&json!({"key": [{"name": "id", "type": "string"}], "columns": columns}));
    let queries: Vec<Value> = names
        .iter()
        .map(|name| json!({"where": {"column": name, "equals": "x"}}))
        .collect();
    let found = advised(&database, &json!(queries));
    assert!(
        paths(&found)
            .iter()
            .all(|path| *path == (QueryPath::SearchIndex, false))
    );
    assert!(found.create_indexes.is_empty());
    let columns = found.create_search_indexes[0]["columns"]
        .as_array()
        .expect("columns");
    assert_eq!(
        (columns.len(), &columns[0]),
        (16, &json!({"column": "f00", "as": "keyword"}))
    );
}

#[test]
fn paths_follow_the_key_the_size_of_ranges_and_the_tests() {
    let mut database = database(&orders());
    let rows: Vec<Value> = (0..50).map(|number| put("a", number)).collect();
    database.write(&json!(rows));
    let queries = json!([
        {"where": {"and": [{"column": "customer", "equals": "a"}, {"column": "number", "equals": 1}]}},
        {"where": {"and": [{"column": "customer", "equals": "a"}, {"column": "number", "gte": 10, "lt": 20}]}},
        {"where": {"and": [{"column": "customer", "equals": "a"}, {"column": "state", "equals": "open"}]}},
        {"where": {"column": "state", "equals": "open"}, "sort": ["number"]},
        {"where": {"or": [{"column": "state", "equals": "open"}, {"column": "total", "gt": 5}]}},
        {"where": {"column": "state", "text": "open"}},
        {"where": {"column": "note", "equals": "x"}},
    ]);
    let found = advised(&database, &queries);
    use QueryPath::{Key, KeyRange, SearchIndex, SecondaryIndex, SmallRange};
    assert_eq!(
        paths(&found),
        [
            (Key, true),
            (KeyRange, true),
            (SmallRange, true),
            (SecondaryIndex, false),
            (SearchIndex, false),
            (SearchIndex, false),
            (SecondaryIndex, false),
        ]
    );
    assert_eq!(found.queries[1].estimated_rows, Some(10));
    assert_eq!(
        found.create_indexes[0],
        json!({"name": "by_state_number", "key": [{"name": "state"}, {"name": "number"}]})
    );
    assert_eq!(found.undeclared, ["note"]);
    // Queries use the advised indexes once these exist.
    database.create_index(&found.create_search_indexes[0]["columns"].clone(), false);
    database.settle();
    let again = advised(&database, &queries);
    assert_eq!(paths(&again)[4..6], [(SearchIndex, true), (SearchIndex, true)]);
    let many: Vec<Value> = (0..101).map(|_| queries[0].clone()).collect();
    let request = serde_json::from_value(json!({"queries": many})).expect("queries");
    let refused = advise_queries(database.engine(), &database.table(), &request, &|| false);
    assert!(matches!(refused, Err(RowsError::OverLimit { limit: 100, .. })));
    database.close();
}

/// Creates the advised indexes, and waits until the search index is built.
fn create(database: &Database, advised: &QueriesAdvised) {
    for definition in &advised.create_indexes {
        let index: CreateIndex = serde_json::from_value(definition.clone()).expect("a definition");
        let table = database.table();
        let index = index.into_spec(|column| table.type_of(column)).expect("an index");
        let created = database.engine().create_index(crate::database::TABLE, index);
        created.expect("it is created");
    }
    for definition in &advised.create_search_indexes {
        let replaces = definition.get("replace").is_some();
        database.create_search_index(definition, replaces);
    }
    database.settle();
}

#[test]
fn advised_definitions_are_accepted_and_keep_the_columns_of_an_existing_index() {
    let mut database = database(&json!({
        "key": [{"name": "id", "type": "string"}],
        "columns": [
            {"name": "note", "type": "string", "number": 1},
            {"name": "labels", "type": "json", "number": 2},
            {"name": "seen", "type": "timestamp", "number": 3},
            {"name": "state", "type": "string", "number": 4},
        ],
        "next_column": 5, "version_guard": null,
    }));
    database.create_index(
        &json!([{"column": "note", "as": "text", "analyzer": {"language": "english"}}]),
        false,
    );
    // The name of an index that another query needs is taken.
    let taken = json!({"create_indexes": [{"name": "by_state", "key": [{"name": "note"}]}], "queries": [],
        "create_search_indexes": [], "undeclared": [], "request_id": ""});
    create(&database, &serde_json::from_value(taken).expect("advice"));
    let queries = json!([
        {"where": {"column": "note", "text": "late"}},
        {"where": {"column": "note", "text": "late"}, "sort": ["note"]},
        {"where": {"column": "labels", "near": {"lat": 1, "lon": 2, "meters": 5}}},
        {"where": {"and": [{"column": "labels", "gt": 5}, {"column": "labels", "equals": true}]}},
        {"where": {"and": [{"column": "note", "text": "late"}, {"column": "note", "prefix": "l"}]}},
        {"where": {"column": "state", "equals": "open"}},
        {"where": {"column": "seen", "equals": "2026-11-01T00:00:00Z"}},
    ]);
    let found = advised(&database, &queries);
    use QueryPath::{SearchIndex, SecondaryIndex};
    let mut expected = vec![(SearchIndex, true)];
    expected.extend([(SearchIndex, false); 4]);
    expected.extend([(SecondaryIndex, false); 2]);
    assert_eq!(paths(&found), expected, "{found:?}");
    assert_eq!(found.queries[5].index.as_deref(), Some("by_state_2"));
    let columns = json!([
        {"column": "note", "as": "text", "analyzer": {"language": "english"}},
        {"column": "labels", "as": "bool"},
        {"column": "labels", "as": "geo"},
        {"column": "labels", "as": "number"},
        {"column": "note", "as": "keyword"},
    ]);
    assert_eq!(
        found.create_search_indexes,
        [json!({"name": "all", "columns": columns, "replace": true})]
    );
    create(&database, &found);
    let again = advised(&database, &queries);
    assert!(
        paths(&again)[..5].iter().all(|path| *path == (SearchIndex, true)),
        "{again:?}"
    );
    // The secondary indexes are being built, so they are not advised again.
    assert_eq!(again.queries[5].index.as_deref(), Some("by_state_2"));
    assert!(again.create_indexes.is_empty() && again.create_search_indexes.is_empty());
    database.close();
}

#[test]
fn an_index_of_one_tier_is_not_advised_for_all_rows() {
    let mut database = database(&json!({
        "key": [{"name": "id", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "note", "type": "string", "number": 1}],
        "next_column": 2, "version_guard": null, "parts": {"by": "at", "every": "month"},
    }));
    database.create_search_index(
        &json!({"name": "all", "tier": "hot", "columns": [{"column": "note", "as": "text"}]}),
        false,
    );
    database.settle();
    let queries = json!([{"where": {"column": "note", "text": "late"}}]);
    let found = advised(&database, &queries);
    assert_eq!(paths(&found), [(QueryPath::SearchIndex, false)]);
    assert_eq!(
        found.create_search_indexes,
        [json!({"name": "all_2", "columns": [{"column": "note", "as": "text"}]})]
    );
    create(&database, &found);
    assert_eq!(
        paths(&advised(&database, &queries)),
        [(QueryPath::SearchIndex, true)]
    );
    database.close();
}

#[test]
fn no_index_is_advised_for_a_table_with_the_maximum_number_of_indexes() {
    let mut database = database(&json!({
        "key": [{"name": "id", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [
            {"name": "note", "type": "string", "number": 1},
            {"name": "state", "type": "string", "number": 2},
        ],
        "next_column": 3, "version_guard": null, "parts": {"by": "at", "every": "month"},
    }));
    let columns = json!([{"column": "note", "as": "text"}]);
    for number in 0..4 {
        database.create_search_index(
            &json!({"name": format!("hot_{number}"), "tier": "hot", "columns": columns}),
            false,
        );
    }
    let definitions: Vec<Value> = (0..16)
        .map(|number| json!({"name": format!("index_{number}"), "key": [{"name": "note"}]}))
        .collect();
    let existing = json!({"create_indexes": definitions, "queries": [], "create_search_indexes": [],
        "undeclared": [], "request_id": ""});
    create(&database, &serde_json::from_value(existing).expect("advice"));
    let queries = json!([
        {"where": {"column": "note", "text": "late"}},
        {"where": {"column": "state", "equals": "open"}},
    ]);
    let found = advised(&database, &queries);
    use QueryPath::{SearchIndex, SecondaryIndex};
    assert_eq!(paths(&found), [(SearchIndex, false), (SecondaryIndex, false)]);
    assert!(found.create_indexes.is_empty() && found.create_search_indexes.is_empty());
    for (query, kind) in found.queries.iter().zip(["search indexes", "indexes"]) {
        let said = format!("the table has the maximum number of {kind}, so drop another one first");
        assert!(query.index.is_none() && query.reason.contains(&said), "{query:?}");
    }
    database.close();
}

#[test]
fn columns_are_advised_into_groups_by_their_size_and_use() {
    let goods = |groups: &Value| {
        database(&json!({
            "key": [{"name": "sku", "type": "string"}],
            "columns": [
                {"name": "price", "type": "i64", "number": 1},
                {"name": "description", "type": "string", "number": 2},
            ],
            "version_guard": null,
            "groups": groups,
        }))
    };
    let key = |number: u64| json!({"sku": format!("s{number}")});
    let write = |database: &Database, op: &str, column: &str| {
        for from in [0, 300] {
            let row = |number: u64| {
                let value = match column {
                    "price" => json!(number),
                    _ => json!(format!("{number} ").repeat(60)),
                };
                json!({"op": op, "key": key(number), "columns": {column: value}})
            };
            let rows: Vec<Value> = (from..from + 300).map(row).collect();
            database.write(&json!(rows));
        }
    };
    let read = |database: &Database, columns: Option<&[String]>, count: usize| {
        let (engine, table) = (database.engine(), database.table());
        let selection = Selection::new(columns, None, None, RowIntegers::Number, Timestamp::default());
        let selection = selection.expect("a selection");
        let request = serde_json::from_value(json!({"keys": [key(1)]})).expect("a request");
        let keys = keys_of(&table, &request).expect("keys");
        for _ in 0..count {
            get(engine, &table, &keys, &selection, &|| false, &mut |_| Ok(())).expect("it is read");
        }
    };
    let has = |database: &Database, code| {
        let advice = advice(database.engine(), &database.table(), true).advice;
        advice.into_iter().find(|advice| advice.code == code)
    };
    let plain = goods(&json!([]));
    write(&plain, "put", "description");
    write(&plain, "update", "price");
    survey(&plain);
    let columns = statistics(plain.engine(), &plain.table())
        .rows
        .expect("a survey")
        .columns;
    assert_eq!(columns[0].name, "description");
    assert!(columns[0].share > 0.9, "{columns:?}");
    assert!(
        has(&plain, AdviceCode::ColumnGroup).is_none(),
        "there were too few uses"
    );
    read(&plain, Some(&["price".to_owned()]), 500);
    let advised = has(&plain, AdviceCode::ColumnGroup).expect("an advice");
    assert_eq!(advised.subject.as_deref(), Some("description"));
    // Reads of whole rows are now a fifth of all reads.
    read(&plain, None, 125);
    assert!(has(&plain, AdviceCode::ColumnGroup).is_none());

    let grouped = goods(&json!([{"name": "texts", "columns": ["description"]}]));
    write(&grouped, "put", "description");
    write(&grouped, "update", "price");
    survey(&grouped);
    let found = statistics(grouped.engine(), &grouped.table());
    assert_eq!(found.groups[0].columns[0].name, "description");
    read(&grouped, Some(&["price".to_owned()]), 500);
    assert!(has(&grouped, AdviceCode::GroupAlwaysRead).is_none());
    read(&grouped, None, 2_500);
    let advised = has(&grouped, AdviceCode::GroupAlwaysRead).expect("an advice");
    assert_eq!(advised.subject.as_deref(), Some("texts"));
    assert!(has(&grouped, AdviceCode::ColumnGroup).is_none());
}
