//! Random searches and counts over random rows must equal a naive filter: a scan of all rows with the same condition,
//! sorted and counted in memory.
//!
//! Between the searches, rows are written and deleted, time passes, the row buffer is flushed, the database is
//! reopened, the files of the index are deleted, and the index is replaced, also by one with another number of shards.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use tideline_engine::EngineError;
use tideline_engine::backend::memory::Character;
use tideline_engine::model::{RowTtl, TableId, TableSpec, TtlScope};
use tideline_openapi::row::DeleteRows;
use tideline_openapi::row_explain::{
    AccessPath, ColumnPurpose, ExplainRows, ExplainedColumn, RowsExplained, TestAccess,
};
use tideline_openapi::row_search::{CreateSearchIndex, FacetRows, RowFacetGroup, SearchColumnForm};
use tideline_openapi::timeline::SortOrder;
use tideline_rows::explain::explain;
use tideline_rows::facets::Facets;
use tideline_rows::read::delete;
use tideline_testkit::{Random, rounds, seeds};

use crate::database::{Database, OpenBackend, SECOND, TABLE, cluster, fjall, memory};

/// Time-to-live of the rows, in seconds.
const TTL: i64 = 1_000;

const WORDS: [&str; 7] = ["red", "wine", "dry", "Spain", "übermut", "web-1", "web-10"];
const TITLES: [&str; 6] = [
    "red wine",
    "dry red wine",
    "wine, red",
    "Spain",
    "",
    "übermut red wine red",
];

/// Creates a database with a table of orders whose rows expire.
fn orders(open_backend: OpenBackend) -> Database {
    orders_with(open_backend, "row")
}

/// Creates a database with a table of orders. `ttl_of` is the scope of the time-to-live: `row` or `cell`.
fn orders_with(open_backend: OpenBackend, ttl_of: &str) -> Database {
    Database::new(
        open_backend,
        &json!({
            "key": [
                {"name": "bucket", "bucket": {"of": ["customer"], "count": 2}},
                {"name": "customer", "type": "string"},
                {"name": "number", "type": "i64", "order": "desc"},
            ],
            "columns": [
                {"name": "title", "type": "string", "number": 1},
                {"name": "state", "type": "string", "number": 2},
                {"name": "total", "type": "decimal", "number": 3},
                {"name": "items", "type": "i64", "number": 4},
                {"name": "size", "type": "f64", "number": 5},
                {"name": "open", "type": "bool", "number": 6},
                {"name": "seen", "type": "timestamp", "number": 7},
                {"name": "labels", "type": "json", "number": 8},
                {"name": "place", "type": "json", "number": 9},
            ],
            "version_guard": null,
            "ttl": {"after": TTL * SECOND, "of": ttl_of},
        }),
    )
}

fn columns() -> Value {
    json!([
        {"column": "title", "as": "text"},
        {"column": "title", "as": "keyword"},
        {"column": "state", "as": "keyword"},
        {"column": "total", "as": "keyword"},
        {"column": "items", "as": "number"},
        {"column": "size", "as": "number"},
        {"column": "open", "as": "bool"},
        {"column": "seen", "as": "time"},
        {"column": "labels", "as": "keyword"},
        {"column": "labels", "as": "number"},
        {"column": "place", "as": "geo"},
        {"column": "customer", "as": "keyword"},
        {"column": "number", "as": "number"},
    ])
}

/// Returns the definition of an index with these columns and a random number of shards.
fn definition(random: &mut Random, columns: &Value) -> Value {
    let shards = random.of(&[1, 1, 2, 4]);
    let routing = match shards {
        1 => json!([]),
        _ => random
            .of(&[&[][..], &["customer"], &["number"], &["number", "customer"]])
            .into(),
    };
    json!({"name": "all", "columns": columns, "shards": shards, "routing": routing})
}

fn time(random: &mut Random) -> String {
    format!("2026-11-2{}T12:00:00Z", random.below(9))
}

fn total(random: &mut Random) -> String {
    random.of(&["5.32", "-1", "0", "100.5", "5.3"]).to_owned()
}

fn place(random: &mut Random) -> Value {
    json!({"lat": random.below(5) as f64 * 10.0, "lon": random.below(5) as f64 * 10.0 - 20.0})
}

fn value(random: &mut Random, column: &str) -> Value {
    match column {
        "title" => json!(random.of(&TITLES)),
        "state" => json!(random.of(&WORDS)),
        "total" => json!(total(random)),
        "items" => json!(random.below(5) as i64 - 2),
        "size" => json!(random.of(&[-1.5, 0.0, 2.25, 1e9])),
        "open" => json!(random.is(50)),
        "seen" => json!(time(random)),
        "labels" => match random.below(4) {
            0 => json!([random.of(&WORDS), random.of(&WORDS), random.below(3)]),
            1 => json!([]),
            2 => json!(random.of(&WORDS)),
            _ => json!({"other": true}),
        },
        _ => match random.below(2) {
            0 => place(random),
            _ => json!([place(random), place(random)]),
        },
    }
}

const COLUMNS: [&str; 9] = [
    "title", "state", "total", "items", "size", "open", "seen", "labels", "place",
];

fn key(random: &mut Random) -> Value {
    json!({"customer": random.of(&["acme", "bolt", "cid"]), "number": random.below(30) as i64 - 10})
}

fn row_write(random: &mut Random) -> Value {
    let op = random.of(&["put", "put", "update", "delete"]);
    let mut row = json!({"op": op, "key": key(random)});
    if op != "delete" {
        let mut columns = serde_json::Map::new();
        for column in COLUMNS {
            if random.is(60) {
                columns.insert(column.to_owned(), value(random, column));
            }
        }
        if op == "update" && random.is(50) {
            let cleared = random.of(&COLUMNS);
            columns.remove(cleared);
            row["clear"] = json!([cleared]);
        }
        row["columns"] = Value::Object(columns);
    }
    row
}

fn bound(random: &mut Random) -> &'static str {
    random.of(&["gt", "gte", "lt", "lte"])
}

fn leaf(random: &mut Random) -> Value {
    let column = random.of(&[
        "title", "title", "state", "total", "items", "size", "open", "seen", "labels", "place", "customer",
        "number",
    ]);
    if random.is(10) {
        return json!({"column": column, "exists": random.is(50)});
    }
    let text = match column {
        // The name of a customer chooses a shard.
        "customer" => random.of(&["acme", "bolt", "cid", "red"]),
        _ => random.of(&WORDS),
    };
    match column {
        "title" => match random.below(4) {
            0 => json!({"column": column, "text": text}),
            1 => json!({"column": column, "text": "wnie", "distance": 1 + random.below(2)}),
            2 => json!({"column": column, "phrase": random.of(&["red wine", "wine red", "dry red wine"])}),
            _ => json!({"column": column, "equals": random.of(&TITLES)}),
        },
        "state" | "labels" | "customer" => match random.below(8) {
            0 => json!({"column": column, "equals": text}),
            1 => json!({"column": column, "not_equals": text}),
            2 => json!({"column": column, "in": [text, random.of(&WORDS), "acme"]}),
            3 => json!({"column": column, "prefix": random.of(&["w", "web-1", ""])}),
            4 => json!({"column": column, "wildcard": "*e*"}),
            5 => json!({"column": column, "regex": "web-[0-9]+|a.*"}),
            6 if column == "labels" => json!({"column": column, "equals": random.below(3)}),
            _ => json!({"column": column, bound(random): text}),
        },
        "total" => match random.below(2) {
            0 => json!({"column": column, "equals": total(random)}),
            _ => json!({"column": column, bound(random): total(random)}),
        },
        "seen" => json!({"column": column, bound(random): time(random)}),
        "open" => json!({"column": column, "equals": random.is(50)}),
        "place" => {
            let Value::Object(mut circle) = place(random) else {
                unreachable!("a point is an object");
            };
            circle.insert("meters".to_owned(), json!(random.of(&[1.0, 1.2e6, 4e6])));
            json!({"column": column, "near": circle})
        }
        _ => match random.below(4) {
            0 => json!({"column": column, "equals": random.below(5) as i64 - 2}),
            1 => json!({"column": column, "not_equals": 0}),
            2 => json!({"column": column, "between": [-1.5, random.below(4)]}),
            _ => json!({"column": column, bound(random): random.below(5) as f64 - 2.5}),
        },
    }
}

fn condition(random: &mut Random, depth: u64) -> Value {
    if depth == 0 || random.is(40) {
        return leaf(random);
    }
    let count = random.below(3);
    match random.below(3) {
        0 => json!({"and": (0..count).map(|_| condition(random, depth - 1)).collect::<Vec<_>>()}),
        1 => json!({"or": (0..count).map(|_| condition(random, depth - 1)).collect::<Vec<_>>()}),
        _ => json!({"not": condition(random, depth - 1)}),
    }
}

fn sort(random: &mut Random) -> Vec<Value> {
    let count = random.below(3);
    let key = |random: &mut Random| {
        let column = random.of(&["state", "items", "size", "open", "seen", "number", "customer"]);
        json!({"column": column, "order": random.of(&["ascending", "descending"])})
    };
    (0..count).map(|_| key(random)).collect()
}

/// Compares two rows by a sort key. Missing values come last.
fn compare(key: &Value, one: &Value, other: &Value) -> Ordering {
    let column = key["column"].as_str().expect("a name");
    let of = |row: &Value| match &row["columns"][column] {
        Value::Null => row["key"][column].clone(),
        value => value.clone(),
    };
    let ordering = match (of(one), of(other)) {
        (Value::Null, Value::Null) => return Ordering::Equal,
        (Value::Null, _) => return Ordering::Greater,
        (_, Value::Null) => return Ordering::Less,
        (Value::String(one), Value::String(other)) => one.cmp(&other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(&other),
        (one, other) => {
            let [one, other] = [one, other].map(|value| value.as_f64().expect("a number"));
            one.total_cmp(&other)
        }
    };
    match key["order"] == "descending" {
        true => ordering.reverse(),
        false => ordering,
    }
}

fn check(database: &Database, random: &mut Random) {
    database.settle();
    for _ in 0..30 {
        let filter = random.is(95).then(|| condition(random, 3));
        let sort = sort(random);
        let mut request = json!({"sort": sort, "limit": 1 + random.below(40)});
        if let Some(filter) = &filter {
            request["where"] = filter.clone();
        }
        let mut expected = database.naive(filter.as_ref());
        // A scan merges buckets. A search orders rows with equal sort values by their stored keys, which begin with the
        // bucket. The order of such rows is therefore not compared.
        let (found, total) = database.search(&request);
        assert_eq!(total as usize, expected.len(), "{request}");
        let order = |one: &Value, other: &Value| {
            let keys = sort.iter().map(|key| compare(key, one, other));
            keys.fold(Ordering::Equal, Ordering::then)
        };
        assert!(
            found.is_sorted_by(|one, other| order(one, other).is_le()),
            "{request}: {found:?}"
        );
        let text = |row: &Value| row.to_string();
        let mut found: Vec<String> = found.iter().map(text).collect();
        let mut expected: Vec<String> = expected.drain(..).map(|row| text(&row)).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{request}");
    }
    for _ in 0..10 {
        check_facets(database, random);
    }
    for _ in 0..5 {
        check_explanation(database, random);
    }
}

/// Explains a read.
fn explained(database: &Database, read: &Value) -> RowsExplained {
    let request: ExplainRows = serde_json::from_value(read.clone()).expect("a request");
    let (engine, table) = (database.engine(), database.table());
    let explained = database.when_ready(|| explain(engine, &table, &request, &|| false));
    explained.expect("an explanation")
}

/// Compares the numbers of rows in the explanation of a search with scans: of the condition, and of each test alone.
fn check_explanation(database: &Database, random: &mut Random) {
    let filter = condition(random, 2);
    let explained = explained(database, &json!({"search": {"where": filter, "limit": 7}}));
    let expected = database.naive(Some(&filter)).len() as u64;
    assert_eq!(
        (explained.estimated_rows, explained.interval),
        (expected, None),
        "{filter}"
    );
    let search = explained.search.expect("a search index is used");
    assert_eq!(search.row_reads, expected.min(7), "{filter}");
    // The whole condition decides which shards are read. The rows of each test are counted in these shards.
    let reads_all = search.shards.is_none_or(|shards| shards.read == shards.total);
    for test in &search.tests {
        let alone: Value = serde_json::from_str(&test.test).expect("a condition");
        let expected = database.naive(Some(&alone)).len() as u64;
        match reads_all {
            true => assert_eq!(test.rows, Some(expected), "{alone} of {filter}"),
            false => assert!(
                test.rows <= Some(expected),
                "{alone} of {filter}: {:?}",
                test.rows
            ),
        }
        assert!(test.access != TestAccess::Nothing || expected == 0, "{alone}");
    }
}

/// Returns the values of a column of a row as facets show them, without duplicates; `[null]` if there are no values.
fn facet_values(row: &Value, key: &Value) -> Vec<Value> {
    let column = key["column"].as_str().expect("a name");
    let value = match &row["columns"][column] {
        Value::Null => row["key"][column].clone(),
        value => value.clone(),
    };
    let list = match value {
        Value::Array(list) => list,
        value => vec![value],
    };
    let mut values: Vec<Value> = list
        .into_iter()
        .filter_map(|value| match (column, value) {
            ("labels", Value::String(text)) => Some(json!(text)),
            ("labels", _) | (_, Value::Null) => None,
            ("items" | "number", value) if key["interval"].is_number() => {
                let width = key["interval"].as_i64().expect("an integer");
                Some(json!(
                    value.as_i64().expect("an integer").div_euclid(width) * width
                ))
            }
            ("seen", value) => Some(json!(format!(
                "{}T00:00:00Z",
                &value.as_str().expect("a time")[..10]
            ))),
            ("size", value) => Some(json!((value.as_f64().expect("a number") / 2.5).floor() * 2.5)),
            ("total", value) => Some(json!(value.as_str().expect("a decimal"))),
            (_, value) => Some(value),
        })
        .collect();
    values.sort_by_key(Value::to_string);
    values.dedup();
    match values.is_empty() {
        true => vec![Value::Null],
        false => values,
    }
}

/// Counts rows by up to two keys. Returns the number of rows and the sum of `items` for each combination of the values
/// of the first keys.
fn naive_facets(rows: &[Value], by: &[Value]) -> BTreeMap<Vec<String>, (u64, i64)> {
    let mut counts = BTreeMap::new();
    for row in rows {
        let items = row["columns"]["items"].as_i64().unwrap_or_default();
        let mut groups: Vec<Vec<String>> = vec![Vec::new()];
        for depth in 0..=by.len() {
            for group in &groups {
                let counted: &mut (u64, i64) = counts.entry(group.clone()).or_default();
                *counted = (counted.0 + 1, counted.1 + items);
            }
            let Some(key) = by.get(depth) else { break };
            let values = facet_values(row, key);
            let inner = groups.iter().flat_map(|group| {
                values.iter().map(|value| {
                    let mut group = group.clone();
                    group.push(value.to_string());
                    group
                })
            });
            groups = inner.collect();
        }
    }
    counts
}

/// Adds the groups of a result to `counts`. `above` are the values of the outer groups.
fn collect_groups(
    groups: &[RowFacetGroup],
    above: &[String],
    counts: &mut BTreeMap<Vec<String>, (u64, i64)>,
) {
    for group in groups {
        let mut key = above.to_vec();
        key.push(group.value.to_string());
        let sum = group.metrics["items"]["sum"].as_f64().expect("a number");
        counts.insert(key.clone(), (group.rows, sum as i64));
        let inner = group.groups.as_deref().unwrap_or_default();
        assert_eq!(group.distinct.unwrap_or_default() as usize, inner.len());
        collect_groups(inner, &key, counts);
    }
}

fn check_facets(database: &Database, random: &mut Random) {
    let keys = [
        json!({"column": "state"}),
        json!({"column": "labels"}),
        json!({"column": "items"}),
        json!({"column": "items", "interval": 2}),
        json!({"column": "size", "interval": 2.5}),
        json!({"column": "open"}),
        json!({"column": "seen", "interval": "1d"}),
        json!({"column": "customer"}),
        json!({"column": "total"}),
    ];
    let by: Vec<Value> = (0..random.below(3))
        .map(|_| keys[random.below(9) as usize].clone())
        .collect();
    let filter = condition(random, 2);
    let request = json!({
        "where": filter, "by": by, "limit": 1000, "order": random.of(&["count", "value"]),
        "metrics": [{"column": "items", "functions": ["sum", "min", "max", "count", "mean", {"percentile": 50}]}],
    });
    let parsed: FacetRows = serde_json::from_value(request.clone()).expect("a request");
    let (engine, table) = (database.engine(), database.table());
    let count = || Facets::new(engine, &table, &parsed)?.count(engine, &table, &|| false);
    let found = database.when_ready(count).expect("counts");
    let rows = database.naive(Some(&filter));
    let mut counts = BTreeMap::new();
    if found.rows > 0 {
        let sum = found.metrics["items"]["sum"].as_f64().expect("a number");
        counts.insert(Vec::new(), (found.rows, sum as i64));
    }
    collect_groups(&found.groups, &[], &mut counts);
    assert_eq!(counts, naive_facets(&rows, &by), "{request}");
    let items: Vec<i64> = rows
        .iter()
        .filter_map(|row| row["columns"]["items"].as_i64())
        .collect();
    let of = &found.metrics["items"];
    assert_eq!(of["count"], json!(items.len()), "{request}");
    assert_eq!(of["min"], json!(items.iter().min()), "{request}");
    assert_eq!(of["max"], json!(items.iter().max()), "{request}");
}

fn step(database: &mut Database, random: &mut Random) {
    match random.below(24) {
        0 => {
            let from = random.below(30) as i64 - 10;
            let request: DeleteRows = serde_json::from_value(json!({
                "prefix": {"customer": random.of(&["acme", "bolt", "cid"])},
                "range": {"column": "number", "from": from, "to": from + random.below(12) as i64},
            }))
            .expect("a request");
            let deleted = delete(database.engine(), &database.table(), &request, None, &|| false);
            deleted.expect("they are deleted");
        }
        1 | 2 => database.engine().seal().expect("it is flushed"),
        3 => database.clock.advance(TTL * SECOND / 3),
        4 => {
            database.close();
            database.open();
        }
        5 => {
            database.close();
            database.remove_index();
            database.open();
        }
        6 => {
            database.remove_index();
        }
        7 => {
            let mut columns = columns();
            // The replacement has the same columns in another order.
            columns.as_array_mut().expect("a list").reverse();
            database.create_search_index(&definition(random, &columns), true);
        }
        _ => {
            let mut rows: Vec<Value> = (0..1 + random.below(8)).map(|_| row_write(random)).collect();
            rows.dedup_by_key(|row| row["key"].clone());
            database.write(&json!(rows));
        }
    }
}

fn run(backend: OpenBackend, ttl_of: &str, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut database = orders_with(backend, ttl_of);
    let is_created_first = random.is(50);
    let index = definition(&mut random, &columns());
    if is_created_first {
        database.create_search_index(&index, false);
    }
    for _ in 0..10 {
        let rows: Vec<Value> = (0..5).map(|_| row_write(&mut random)).collect();
        database.write(&json!(rows));
    }
    if !is_created_first {
        database.create_search_index(&index, false);
    }
    for number in 0..steps {
        step(&mut database, &mut random);
        if number % 8 == 7 {
            check(&database, &mut random);
        }
    }
    database.close();
}

#[test]
fn random_searches_equal_a_naive_filter_in_memory() {
    for seed in seeds("random_searches_equal_a_naive_filter_in_memory", 2) {
        for character in [Character::Embedded, Character::Distributed] {
            let steps = rounds("TIDELINE_SEARCH_STEPS", 48, 400);
            run(memory(character), "row", seed, steps);
        }
    }
}

#[test]
fn random_searches_equal_a_naive_filter_while_cells_expire_one_by_one() {
    for seed in seeds(
        "random_searches_equal_a_naive_filter_while_cells_expire_one_by_one",
        2,
    ) {
        let steps = rounds("TIDELINE_SEARCH_STEPS", 64, 400);
        run(memory(Character::Embedded), "cell", seed, steps);
    }
}

#[test]
fn random_searches_equal_a_naive_filter_on_a_cluster() {
    for seed in seeds("random_searches_equal_a_naive_filter_on_a_cluster", 1) {
        let Some(open) = cluster() else { return };
        run(
            open,
            random_scope(seed),
            seed,
            rounds("TIDELINE_CLUSTER_STEPS", 24, 400),
        );
    }
}

#[test]
fn random_searches_equal_a_naive_filter_on_fjall() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in seeds("random_searches_equal_a_naive_filter_on_fjall", 1) {
        let data = folder.path().join(seed.to_string());
        run(
            Box::new(move || fjall(&data)),
            random_scope(seed),
            seed,
            rounds("TIDELINE_SEARCH_STEPS", 48, 400),
        );
    }
}

/// Returns the scope of the time-to-live in the database of this seed.
fn random_scope(seed: u64) -> &'static str {
    match seed.is_multiple_of(2) {
        true => "row",
        false => "cell",
    }
}

#[test]
fn what_expires_together_is_fixed_while_a_table_has_a_search_index() {
    let database = orders_with(memory(Character::Embedded), "cell");
    database.create_index(&json!([{"column": "items", "as": "number"}]), false);
    let altered = |of: TtlScope| {
        let mut spec = TableSpec::clone(&database.table().table().spec());
        let wide = spec.wide.as_mut().expect("a wide table");
        wide.ttl = Some(RowTtl {
            after: TTL * SECOND * 2,
            of,
        });
        database.engine().alter_table(TABLE, spec)
    };
    let error = altered(TtlScope::Row).expect_err("it is refused").to_string();
    assert!(error.contains("while the table has indexes"), "{error}");
    altered(TtlScope::Cell).expect("a longer time is possible");
}

#[test]
fn searches_are_refused_with_the_reason() {
    let database = orders(memory(Character::Embedded));
    let refused = |request: &Value| database.page(request).expect_err("it is refused").to_string();
    assert!(refused(&json!({})).contains("has no search index; create one first"));
    database.create_index(
        &json!([{"column": "title", "as": "text"}, {"column": "items", "as": "number"}]),
        false,
    );
    database.settle();
    for (request, said) in [
        (json!({"limit": 0}), "at least 1"),
        (json!({"limit": 1001}), "over the limit of 1000"),
        (json!({"index": "other"}), "other"),
        (
            json!({"where": {"column": "state", "equals": "x"}}),
            "is not in the search index; it has the columns title, items",
        ),
        (
            json!({"where": {"column": "title", "equals": "x"}}),
            "index it as keyword",
        ),
        (
            json!({"where": {"column": "items", "text": "x"}}),
            "`text` tests texts",
        ),
        (
            json!({"sort": [{"column": "title"}]}),
            "not in the search index as keyword, number, time or bool",
        ),
        (
            json!({"sort": [{"column": "items", "near": {"lat": 1, "lon": 1}}]}),
            "as geo",
        ),
        (
            json!({"sort": vec![json!({"column": "items"}); 9]}),
            "number of sort keys of 9",
        ),
        (json!({"page_token": "AAAA"}), "page_token"),
        (json!({"at_least": "soon"}), "at_least"),
        (json!({"at_least": "999999"}), "no write has the position 999999"),
    ] {
        let error = refused(&request);
        assert!(error.contains(said), "{request}: {error}");
    }
}

#[test]
fn pages_totals_and_facets_agree_for_texts_that_are_too_long_for_a_keyword() {
    let mut database = orders(memory(Character::Embedded));
    database.create_index(&columns(), false);
    let (long, short) = ("y".repeat(40_000), "y y");
    let long = format!("red {long} wine");
    let row = |number: u64, title: &str| {
        let key = json!({"customer": "acme", "number": number});
        json!({"op": "put", "key": key, "columns": {"title": title}})
    };
    database.write(&json!([row(1, &long), row(2, short)]));
    database.settle();
    for (filter, expected) in [
        (json!({"column": "title", "prefix": "red"}), vec![]),
        (json!({"not": {"column": "title", "prefix": "red"}}), vec![1, 2]),
        (json!({"not": {"column": "title", "gte": "a"}}), vec![1]),
        (json!({"column": "title", "not_equals": long}), vec![1, 2]),
        (json!({"not": {"column": "title", "equals": long}}), vec![1, 2]),
        (json!({"column": "title", "exists": true}), vec![1, 2]),
        (json!({"column": "title", "text": "wine red"}), vec![1]),
        // A word that is too long separates the words around it.
        (json!({"column": "title", "phrase": "red wine"}), vec![]),
        (
            json!({"not": {"column": "title", "phrase": "red wine"}}),
            vec![1, 2],
        ),
    ] {
        let (rows, total) = database.search(&json!({"where": filter}));
        let mut numbers: Vec<u64> = rows
            .iter()
            .filter_map(|row| row["key"]["number"].as_u64())
            .collect();
        numbers.sort_unstable();
        assert_eq!(
            (numbers, total),
            (expected.clone(), expected.len() as u64),
            "{filter}"
        );
        let request: FacetRows = serde_json::from_value(json!({"where": filter})).expect("a request");
        let (engine, table) = (database.engine(), database.table());
        let facets = Facets::new(engine, &table, &request).expect("facets");
        let counted = facets.count(engine, &table, &|| false).expect("counts");
        assert_eq!(counted.rows, total, "{filter}");
    }
    database.close();
}

#[test]
fn a_page_token_stays_valid_over_a_restart() {
    let mut database = orders(memory(Character::Embedded));
    database.create_index(&columns(), false);
    let mut random = Random::new(1);
    for _ in 0..30 {
        database
            .write(&json!([{"op": "put", "key": key(&mut random), "columns": {"items": random.below(3)}}]));
    }
    database.settle();
    let mut request = json!({"sort": [{"column": "items"}], "limit": 3});
    let (all, total) = database.search(&request);
    assert_eq!(all.len() as u64, total);
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        if let Some(next) = next {
            request["page_token"] = json!(next);
        }
        // The search comes immediately after the start. It waits until the index is open.
        let (mut page, end) = database.page(&request).expect("a page");
        found.append(&mut page);
        next = end.next;
        if next.is_none() {
            break;
        }
        database.close();
        database.open();
    }
    assert_eq!(found, all);
}

#[test]
fn a_wait_for_a_replaced_index_continues_with_its_replacement() {
    let mut database = orders(memory(Character::Embedded));
    let columns = json!([{"column": "title", "as": "keyword"}]);
    database.create_index(&columns, false);
    database.settle();
    let old = database.table().settings().search_indexes[0].id;
    let key = json!({"customer": "a", "number": 1});
    database.write(&json!([{"op": "put", "key": key, "columns": {"title": "red wine"}}]));
    let (write, build) = {
        let (engine, table) = (database.engine(), database.table());
        (engine.await_writes(&table), engine.await_builds(&table))
    };
    database.create_index(&columns, true);
    database.settle();
    let specs = database.table().settings().search_indexes.clone();
    assert!(specs.len() == 1 && specs[0].id != old, "{specs:?}");
    assert!(database.are_ready(write) && database.are_ready(build));
    let (_, total) = database.search(&json!({"where": {"column": "title", "equals": "red wine"}}));
    assert_eq!(total, 1);
    let dropped = database.engine().await_writes(&database.table());
    database
        .engine()
        .drop_search_index(TABLE, "all")
        .expect("it is dropped");
    assert!(!database.are_ready(dropped));
    database.close();
}

#[test]
fn definitions_that_do_not_fit_the_table_are_refused() {
    let database = orders(memory(Character::Embedded));
    for (columns, said) in [
        (json!([]), "has no columns"),
        (
            json!([{"column": "missing", "as": "text"}]),
            "neither declared nor part of the key",
        ),
        (
            json!([{"column": "bucket", "as": "number"}]),
            "index the columns from which it is computed: customer",
        ),
        (
            json!([{"column": "items", "as": "text"}]),
            "has the type i64, which cannot be indexed as text; possible are number",
        ),
        (
            json!([{"column": "items", "as": "number"}, {"column": "items", "as": "number"}]),
            "twice as number",
        ),
        (
            json!([{"column": "seen_*", "as": "time"}]),
            "\"seen_*\" is a pattern; name one column",
        ),
    ] {
        let index = json!({"name": "all", "columns": columns});
        let index: CreateSearchIndex = serde_json::from_value(index).expect("a definition");
        let error = database.engine().create_search_index(TABLE, index.into(), false);
        let error = error.expect_err("it is refused").to_string();
        assert!(error.contains(said), "{error}");
    }
    database.create_index(&json!([{"column": "title", "as": "text"}]), false);
    let again = CreateSearchIndex {
        name: "all".to_owned(),
        columns: Vec::new(),
        tier: Default::default(),
        shards: 1,
        routing: Vec::new(),
        replace: false,
    };
    let error = database.engine().create_search_index(TABLE, again.into(), false);
    assert!(matches!(error, Err(EngineError::IndexExists { .. })));
    assert!(matches!(
        database.engine().drop_search_index(TABLE, "other"),
        Err(EngineError::NoSuchIndex { .. })
    ));
    database
        .engine()
        .drop_search_index(TABLE, "all")
        .expect("it is dropped");
    let left = std::fs::read_dir(database.index_folder().join("rows")).expect("a folder");
    assert_eq!(left.count(), 0, "the files are deleted");
}

#[test]
fn facets_of_times_follow_the_calendar_of_a_zone() {
    let database = orders(memory(Character::Embedded));
    database.create_index(&columns(), false);
    let times = [
        "2026-10-31T23:30:00Z",
        "2026-11-01T12:00:00Z",
        "2026-11-02T00:00:00Z",
        "2026-11-30T23:30:00Z",
    ];
    let mut rows = Vec::new();
    for (number, time) in times.iter().enumerate() {
        let key = json!({"customer": "acme", "number": number});
        rows.push(json!({"op": "put", "key": key, "columns": {"seen": time}}));
    }
    database.write(&json!(rows));
    database.settle();
    let count = |key: &Value| {
        let request = json!({"by": [key], "order": "value"});
        let request: FacetRows = serde_json::from_value(request).expect("a request");
        let (engine, table) = (database.engine(), database.table());
        database.when_ready(|| Facets::new(engine, &table, &request)?.count(engine, &table, &|| false))
    };
    let berlin = "Europe/Berlin";
    for (key, expected) in [
        (
            // 2026-11-01 is a Sunday.
            json!({"column": "seen", "interval": "1w"}),
            json!([
                ["2026-10-26T00:00:00Z", 2],
                ["2026-11-02T00:00:00Z", 1],
                ["2026-11-30T00:00:00Z", 1],
            ]),
        ),
        (
            json!({"column": "seen", "interval": "1mo"}),
            json!([["2026-10-01T00:00:00Z", 1], ["2026-11-01T00:00:00Z", 3]]),
        ),
        (
            json!({"column": "seen", "interval": "1mo", "zone": berlin}),
            json!([["2026-10-31T23:00:00Z", 3], ["2026-11-30T23:00:00Z", 1]]),
        ),
        (
            json!({"column": "seen", "interval": "1d", "zone": berlin}),
            json!([
                ["2026-10-31T23:00:00Z", 2],
                ["2026-11-01T23:00:00Z", 1],
                ["2026-11-30T23:00:00Z", 1],
            ]),
        ),
    ] {
        let groups = count(&key).expect("counts").groups.into_iter();
        let groups: Vec<Value> = groups.map(|group| json!([group.value, group.rows])).collect();
        assert_eq!(json!(groups), expected, "{key}");
    }
    for (key, said) in [
        (
            json!({"column": "seen", "interval": "1h", "zone": berlin}),
            "only to intervals of days, weeks, months or years",
        ),
        (
            json!({"column": "seen", "zone": berlin}),
            "applies only to intervals of times",
        ),
        (
            json!({"column": "items", "interval": 2, "zone": berlin}),
            "applies only to intervals of times",
        ),
        (
            json!({"column": "seen", "interval": "1d", "zone": "Mars"}),
            "not a valid time zone",
        ),
        (
            json!({"column": "seen", "interval": "0mo"}),
            "a duration above zero such as \"15m\"",
        ),
    ] {
        let error = count(&key).expect_err("it is refused").to_string();
        assert!(error.contains(said), "{key}: {error}");
    }
}

#[test]
fn an_explanation_describes_the_tests_and_the_reads_of_a_search() {
    let database = orders(memory(Character::Embedded));
    database.create_index(&columns(), false);
    let mut rows = Vec::new();
    for (number, title) in ["Red wine", "dry red wine", "Glasses"].iter().enumerate() {
        rows.push(json!({"op": "put", "key": {"customer": "acme", "number": number},
            "columns": {"title": title, "state": format!("state-{number}"), "items": number}}));
    }
    database.write(&json!(rows));
    database.settle();
    let words = json!({"column": "title", "text": "WINE, red"});
    let explained_search = |filter: &Value| {
        let sort = json!([{"column": "seen", "order": "descending"}]);
        explained(
            &database,
            &json!({"search": {"where": filter, "sort": sort, "limit": 1}}),
        )
    };
    let all = json!({"and": [words, {"column": "items", "gte": 1}, {"column": "state", "suffix": "1"}]});
    let explained_all = explained_search(&all);
    assert_eq!(explained_all.access, AccessPath::Search);
    assert_eq!(explained_all.index.as_deref(), Some("all"));
    assert_eq!(explained_all.estimated_rows, 1);
    assert!(!explained_all.is_ordered && explained_all.parts.is_none());
    assert!(
        explained_all
            .advice
            .iter()
            .any(|advice| advice.contains("every text of \"state\"")),
        "{:?}",
        explained_all.advice
    );
    let search = explained_all.search.expect("a search index is used");
    assert_eq!((search.documents, search.waiting, search.row_reads), (3, 0, 1));
    assert!(search.position.is_some(), "the index holds writes");
    let column = ExplainedColumn {
        column: "seen".to_owned(),
        form: SearchColumnForm::Time,
        purpose: ColumnPurpose::Sort,
        order: Some(SortOrder::Descending),
    };
    assert_eq!(search.columns, [column]);
    let [title, items, state] = &search.tests[..] else {
        panic!("three tests: {:?}", search.tests)
    };
    assert_eq!(
        title.words.as_deref(),
        Some(&["wine".to_owned(), "red".to_owned()][..])
    );
    assert_eq!(
        (title.access, title.form),
        (TestAccess::Terms, Some(SearchColumnForm::Text))
    );
    assert_eq!((title.rows, items.rows, state.rows), (Some(2), Some(2), Some(1)));
    assert_eq!((items.access, items.terms), (TestAccess::Values, 0));
    assert_eq!((state.access, state.terms), (TestAccess::TermScan, 1));
    assert!(
        state.entries >= 1,
        "posting lists also contain replaced documents"
    );
    for (test, access) in [
        (json!({"column": "state", "equals": "state-1"}), TestAccess::Terms),
        (
            json!({"column": "state", "prefix": "state"}),
            TestAccess::TermRange,
        ),
        (
            json!({"column": "state", "gte": "state-1"}),
            TestAccess::TermRange,
        ),
        (
            json!({"column": "state", "fuzzy": "stat-1"}),
            TestAccess::FuzzyTerms,
        ),
        (json!({"column": "state", "exists": true}), TestAccess::Presence),
        (
            json!({"column": "place", "near": {"lat": 1, "lon": 2, "meters": 3}}),
            TestAccess::Area,
        ),
        (json!({"column": "state", "in": []}), TestAccess::Nothing),
    ] {
        let search = explained_search(&test).search.expect("a search index is used");
        assert_eq!(search.tests[0].access, access, "{test}");
    }
    // Facets read no rows, aggregates all that match.
    let metrics = json!([{"column": "items", "functions": ["sum"]}]);
    let read = json!({"where": words, "by": [{"column": "state"}], "metrics": metrics});
    let facets = explained(&database, &json!({"facets": read}));
    let search = facets.search.expect("a search index is used");
    let purposes: Vec<ColumnPurpose> = search.columns.iter().map(|column| column.purpose).collect();
    assert_eq!(purposes, [ColumnPurpose::Group, ColumnPurpose::Metric]);
    assert_eq!((facets.estimated_rows, search.row_reads), (2, 0));
    let read = json!({"search": {}, "where": words, "by": [{"column": "state"}], "metrics": metrics});
    let search = explained(&database, &json!({"aggregate": read})).search;
    assert_eq!(search.expect("a search index is used").row_reads, 2);
    // An explanation does not count as a use of the index.
    let index = database.table().settings().search_indexes[0].id;
    let used = || {
        let used = database.engine().search_use(TableId(index));
        used.expect("it is open")
    };
    assert_eq!((used().searches, used().columns.len()), (0, 0));
    database.search(&json!({"where": words, "sort": [{"column": "seen"}]}));
    let columns: Vec<String> = used().columns.into_keys().collect();
    assert_eq!(
        (used().searches, columns),
        (1, vec!["seen".to_owned(), "title".to_owned()])
    );
    // An aggregate of a range is explained like a scan.
    let read = json!({"prefix": {"customer": "acme"}, "metrics": metrics});
    let range = explained(&database, &json!({"aggregate": read}));
    assert_eq!((range.access, range.estimated_rows), (AccessPath::Prefix, 3));
    assert!(range.search.is_none());
}
