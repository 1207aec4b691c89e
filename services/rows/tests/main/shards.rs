//! Search indexes with several shards: a search whose condition fixes the routing columns reads only their shards, and
//! finds the same rows as with one shard.
//!
//! The random tests of `search` also run with several shards.

use serde_json::{Value, json};
use tideline_engine::EngineError;
use tideline_engine::backend::memory::Character;
use tideline_openapi::row_aggregate::AggregateRows;
use tideline_openapi::row_search::{CreateSearchIndex, FacetRows, ShardsRead};
use tideline_rows::aggregate::Aggregation;
use tideline_rows::facets::Facets;

use crate::database::{Database, TABLE, memory};

const CUSTOMERS: u64 = 40;

/// Creates a database with two orders for each customer.
fn orders() -> Database {
    let database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [
                {"name": "bucket", "bucket": {"of": ["customer"], "count": 4}},
                {"name": "customer", "type": "string"},
                {"name": "number", "type": "u64"},
            ],
            "columns": [{"name": "state", "type": "string", "number": 1}],
        }),
    );
    let row = |number: u64| {
        let state = if number.is_multiple_of(2) { "open" } else { "paid" };
        json!({"op": "put", "key": {"customer": format!("c-{}", number / 2), "number": number},
            "columns": {"state": state}})
    };
    let rows: Vec<Value> = (0..2 * CUSTOMERS).map(row).collect();
    database.write(&json!(rows));
    database
}

/// Creates an index of the orders, or replaces it. Waits until it is built.
fn create(database: &Database, shards: u64, routing: &[&str]) {
    let columns = json!([
        {"column": "customer", "as": "keyword"},
        {"column": "number", "as": "number"},
        {"column": "state", "as": "keyword"},
    ]);
    let index = json!({"name": "all", "columns": columns, "shards": shards, "routing": routing});
    database.create_search_index(&index, true);
    database.settle();
}

/// Searches with a condition. Returns the number of rows, and the numbers of read shards and of all shards.
fn found(database: &Database, filter: &Value) -> (u64, Option<(u64, u64)>) {
    let request = json!({"where": filter, "sort": [{"column": "number"}], "limit": 7});
    let (rows, total) = database.search(&request);
    assert_eq!(rows.len() as u64, total, "{filter}");
    assert_eq!(rows.len(), database.naive(Some(filter)).len(), "{filter}");
    let (_, end) = database.page(&request).expect("a page");
    (total, end.shards.map(|ShardsRead { read, total }| (read, total)))
}

fn is(customer: &str) -> Value {
    json!({"column": "customer", "equals": customer})
}

#[test]
fn a_search_with_the_routing_value_reads_only_its_shard() {
    let mut database = orders();
    create(&database, 4, &[]);
    let open = json!({"column": "state", "equals": "open"});
    for round in 0..2 {
        for customer in 0..CUSTOMERS {
            let customer = format!("c-{customer}");
            assert_eq!(found(&database, &is(&customer)), (2, Some((1, 4))), "{customer}");
            let both = json!({"and": [open, {"and": [is(&customer)]}]});
            assert_eq!(found(&database, &both), (1, Some((1, 4))), "{customer}");
        }
        let either = [is("c-1"), json!({"and": [is("c-1"), open]})];
        for (filter, rows, read) in [
            (json!({"or": either}), 2, 1),
            (json!({"column": "customer", "in": ["c-3", "c-3"]}), 2, 1),
            (json!({"column": "customer", "in": []}), 0, 0),
            (json!({"or": []}), 0, 0),
            // The alternatives of a disjunction are in one shard, whatever the rest of the conjunction allows.
            (
                json!({"and": [{"column": "customer", "prefix": "c-"}, {"or": either}]}),
                2,
                1,
            ),
            (open.clone(), CUSTOMERS, 4),
            (json!({"not": is("c-1")}), 2 * CUSTOMERS - 2, 4),
            (
                json!({"column": "customer", "not_equals": "c-1"}),
                2 * CUSTOMERS - 2,
                4,
            ),
            (json!({"column": "customer", "prefix": "c-1"}), 22, 4),
            (json!({"or": [is("c-1"), open]}), CUSTOMERS + 1, 4),
            (json!({"and": []}), 2 * CUSTOMERS, 4),
        ] {
            assert_eq!(found(&database, &filter), (rows, Some((read, 4))), "{filter}");
        }
        if round == 0 {
            database.close();
            database.open();
            database.settle();
        }
    }
}

#[test]
fn facets_and_aggregates_of_a_search_with_the_routing_value_read_only_its_shard() {
    let database = orders();
    create(&database, 4, &["customer"]);
    let (engine, table) = (database.engine(), database.table());
    for (filter, rows, read) in [
        (is("c-7"), 2, 1),
        (json!({"column": "state", "equals": "open"}), CUSTOMERS, 4),
    ] {
        let expected = Some(ShardsRead { read, total: 4 });
        let request = json!({"where": filter, "by": [{"column": "state"}]});
        let request: FacetRows = serde_json::from_value(request).expect("a request");
        let facets = Facets::new(engine, &table, &request).expect("a plan");
        let counted = facets.count(engine, &table, &|| false).expect("counts");
        assert_eq!((counted.rows, counted.shards), (rows, expected));
        let request = json!({"search": {}, "where": filter, "by": [{"column": "state"}], "metrics": []});
        let request: AggregateRows = serde_json::from_value(request).expect("a request");
        let aggregation = Aggregation::new(engine, &table, &request).expect("a plan");
        let (_, groups) = aggregation.run(engine, &table, &|| false).expect("groups");
        assert_eq!((groups.end.rows, groups.end.shards), (rows, expected));
    }
}

#[test]
fn an_index_is_rebuilt_with_another_number_of_shards_while_it_serves_searches() {
    let database = orders();
    create(&database, 1, &[]);
    assert_eq!(found(&database, &is("c-3")), (2, None));
    for (shards, routing, filter, read) in [
        (3, &["customer"][..], is("c-3"), 1),
        (5, &["number", "customer"], is("c-3"), 5),
        (
            5,
            &["number", "customer"],
            json!({"and": [is("c-3"), {"column": "number", "equals": 6}]}),
            1,
        ),
        (2, &["number"], json!({"column": "number", "equals": 6.0}), 1),
        (2, &["number"], json!({"column": "number", "equals": 6.5}), 2),
    ] {
        let expected = database.naive(Some(&filter)).len() as u64;
        create(&database, shards, routing);
        assert_eq!(
            found(&database, &filter),
            (expected, Some((read, shards))),
            "{filter}"
        );
    }
    create(&database, 1, &[]);
    assert_eq!(found(&database, &is("c-3")), (2, None));
    database
        .engine()
        .drop_search_index(TABLE, "all")
        .expect("it is dropped");
    let left = std::fs::read_dir(database.index_folder().join("rows")).expect("a folder");
    assert_eq!(left.count(), 0, "the files of all shards are deleted");
}

#[test]
fn values_of_every_type_of_key_column_choose_the_shard_of_their_rows() {
    let database = Database::new(
        memory(Character::Embedded),
        &json!({
            "key": [
                {"name": "text", "type": "string"},
                {"name": "signed", "type": "i64", "order": "desc"},
                {"name": "number", "type": "u64"},
                {"name": "bytes", "type": "binary"},
                {"name": "at", "type": "timestamp"},
                {"name": "price", "type": "decimal"},
                {"name": "gift", "type": "bool"},
            ],
            "columns": [],
        }),
    );
    let largest = 18_446_744_073_709_551_615_u64;
    let rows = [
        json!({"text": "", "signed": -1, "number": 0, "bytes": "", "at": "1970-01-01T00:00:00Z", "price": "0", "gift": false}),
        json!({"text": "ü\u{0}", "signed": i64::MIN, "number": largest, "bytes": "AP8=", "at": "2026-11-20T12:00:00Z",
            "price": "5.32", "gift": true}),
    ];
    let puts = rows
        .iter()
        .map(|key| json!({"op": "put", "key": key, "columns": {}}));
    database.write(&json!(puts.collect::<Vec<_>>()));
    let forms = [
        ("text", "keyword", [json!(""), json!("ü\u{0}")]),
        ("signed", "number", [json!(-1.0), json!(i64::MIN)]),
        ("number", "number", [json!(-0.0), json!(largest)]),
        ("bytes", "keyword", [json!(""), json!("AP8=")]),
        ("at", "time", [json!(0), json!("2026-11-20T13:00:00+01:00")]),
        ("price", "keyword", [json!("0.00"), json!(5.320)]),
        ("gift", "bool", [json!(false), json!(true)]),
    ];
    let columns: Vec<Value> = forms
        .iter()
        .map(|(column, form, _)| json!({"column": column, "as": form}))
        .collect();
    let all: Vec<&str> = forms.iter().map(|(column, ..)| *column).collect();
    let each = all.iter().map(|column| vec![*column]);
    for routing in each.chain([all.clone()]) {
        let index =
            json!({"name": "all", "columns": columns, "shards": 16, "routing": routing, "replace": true});
        database.create_search_index(&index, true);
        database.settle();
        for number in 0..2 {
            let fixed = forms.iter().filter(|(column, ..)| routing.contains(column));
            let tests: Vec<Value> = fixed
                .map(|(column, _, values)| json!({"column": column, "equals": values[number]}))
                .collect();
            let (_, end) = database.page(&json!({"where": {"and": tests}})).expect("a page");
            let shards = end.shards.map(|shards| (shards.read, shards.total));
            assert_eq!((end.total, shards), (1, Some((1, 16))), "{routing:?} {number}");
        }
    }
}

#[test]
fn an_index_with_more_shards_than_the_memory_allows_is_refused() {
    let database = orders();
    let engine = database.engine();
    let before = engine.memory().used_bytes();
    engine.memory().set_limit(before + 100_000_000);
    let index = |shards: u16| {
        let index =
            json!({"name": "all", "columns": [{"column": "customer", "as": "keyword"}], "shards": shards});
        let index: CreateSearchIndex = serde_json::from_value(index).expect("a definition");
        engine.create_search_index(TABLE, index.into(), false)
    };
    let refused = index(7);
    assert!(matches!(refused, Err(EngineError::Memory(_))), "{refused:?}");
    assert!(database.table().settings().search_indexes.is_empty());
    index(6).expect("it is created");
    database.settle();
    assert_eq!(engine.memory().used_bytes() - before, 90_000_000);
}

#[test]
fn shards_that_do_not_fit_the_table_are_refused() {
    let database = orders();
    for (shards, routing, said) in [
        (json!(0), json!([]), "shards is 0; it must be at least 1"),
        (
            json!(17),
            json!(["customer"]),
            "number of shards of a search index of 17 is over the limit of 16",
        ),
        (
            json!(1),
            json!(["customer"]),
            "set `shards` to at least 2, or omit `routing`",
        ),
        (
            json!(2),
            json!(["state"]),
            "\"state\" is not a column of the key, so a row could change its shard; the key has customer, number",
        ),
        (
            json!(2),
            json!(["customer", "customer"]),
            "lists the column \"customer\" twice",
        ),
        (json!(2), json!(["number"]), "\"number\" is not indexed"),
    ] {
        let columns = json!([{"column": "customer", "as": "keyword"}, {"column": "state", "as": "keyword"}]);
        let index = json!({"name": "all", "columns": columns, "shards": shards, "routing": routing});
        let index: CreateSearchIndex = serde_json::from_value(index).expect("a definition");
        let refused = database.engine().create_search_index(TABLE, index.into(), false);
        let error = refused.expect_err("it is refused");
        assert!(
            matches!(error, EngineError::Invalid(_) | EngineError::OverLimit { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(said), "{error}");
    }
}
