//! Tests of the diagnosis of keys: each documented cause of an unexpected result is reproduced and explained.
//!
//! The tests of the store check, with random writes, that the visible part of a trace equals the result of a read.

use serde_json::{Value, json};
use tideline_engine::backend::memory::Character;
use tideline_engine::indexes::BuildEnd;
use tideline_engine::model::{TableSpec, Timestamp};
use tideline_openapi::row::DeleteRows;
use tideline_rows::RowsError;
use tideline_rows::read::delete;
use tideline_rows::why::{WHY_COLUMNS_MAX, WHY_VERSIONS_MAX, why};

use crate::database::{Database, SECOND, START, TABLE, memory};

const DAY: i64 = 86_400 * SECOND;

fn database(wide: &Value) -> Database {
    Database::new(memory(Character::Embedded), wide)
}

fn plain() -> Value {
    json!({
        "key": [{"name": "id", "type": "string"}],
        "columns": [
            {"name": "total", "type": "i64", "number": 1},
            {"name": "note", "type": "string", "number": 2},
        ],
        "next_column": 3,
        "version_guard": null,
    })
}

fn with(mut wide: Value, members: &Value) -> Value {
    for (name, value) in members.as_object().expect("an object") {
        wide[name] = value.clone();
    }
    wide
}

fn time(at: i64) -> String {
    Timestamp::from_nanos_clamped(at).to_rfc3339()
}

fn try_why(database: &Database, request: &Value) -> Result<Value, RowsError> {
    let request = serde_json::from_value(request.clone()).expect("a request");
    let explained = why(database.engine(), &database.table(), &request, &|| false)?;
    Ok(serde_json::to_value(explained).expect("JSON"))
}

fn explain(database: &Database, request: &Value) -> Value {
    try_why(database, request).expect("it is explained")
}

fn of_key(database: &Database, id: &str) -> Value {
    explain(database, &json!({"key": {"id": id}}))
}

fn put(id: &str, columns: &Value) -> Value {
    json!([{"op": "put", "key": {"id": id}, "columns": columns}])
}

fn update(id: &str, columns: &Value) -> Value {
    json!([{"op": "update", "key": {"id": id}, "columns": columns}])
}

/// Returns the codes of the versions of a column, newest first; `null` for a version that reads return.
fn codes(explained: &Value, column: &str) -> Vec<Value> {
    let columns = explained["columns"].as_array().expect("columns");
    let found = columns.iter().find(|found| found["name"] == column);
    let versions = found.expect("the column")["versions"]
        .as_array()
        .expect("versions");
    versions
        .iter()
        .map(|version| version["hidden"]["code"].clone())
        .collect()
}

/// Changes the settings of the wide table.
fn alter(database: &Database, change: impl FnOnce(&mut tideline_engine::model::WideSpec)) {
    let table = database.table();
    let mut spec = TableSpec::clone(&table.table().spec());
    change(spec.wide.as_deref_mut().expect("a wide table"));
    database.engine().alter_table(TABLE, spec).expect("it is altered");
}

fn assert_says(hidden: &Value, code: &str, said: &str) {
    assert_eq!(hidden["code"], code, "{hidden}");
    let reason = hidden["reason"].as_str().expect("a reason");
    assert!(reason.contains(said), "{reason}");
}

#[test]
fn a_visible_row_and_a_key_that_was_never_written() {
    let database = database(&plain());
    database.write(&put("a", &json!({"total": 5, "extra": "x"})));
    let explained = of_key(&database, "a");
    assert_eq!(explained["visible"], true);
    assert_eq!(explained["hidden"], Value::Null);
    assert_eq!(explained["key"], json!({"id": "a"}));
    let columns = explained["columns"].as_array().expect("columns");
    let shown: Vec<_> = columns
        .iter()
        .map(|column| {
            (
                &column["name"],
                &column["declared"],
                &column["versions"][0]["value"],
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("extra"), &Value::Null, &json!("x")),
            (&json!("total"), &json!("i64"), &json!(5))
        ]
    );
    assert_eq!(explained["layers"][0]["place"], "buffer");
    let missing = of_key(&database, "b");
    assert_eq!(missing["visible"], false);
    assert_says(&missing["hidden"], "not_stored", "never written");
}

#[test]
fn data_that_has_expired_names_the_moment() {
    let database = database(&with(plain(), &json!({"ttl": {"after": DAY, "of": "cell"}})));
    let old = json!({"value": "old", "version": time(START - 2 * DAY)});
    database.write(&put("a", &json!({"total": 1, "note": old})));
    let explained = of_key(&database, "a");
    assert_eq!(explained["visible"], true);
    assert_eq!(codes(&explained, "note"), ["expired"]);
    assert_eq!(
        explained["columns"][0]["versions"][0]["hidden"]["since"],
        time(START - DAY)
    );
    assert_eq!(codes(&explained, "total"), [Value::Null]);
    database.clock.advance(DAY);
    let explained = of_key(&database, "a");
    assert_eq!(explained["visible"], false);
    assert_says(&explained["hidden"], "expired", "1d after its last write");
    // With a longer time-to-live, the row is visible again, because its bytes are not freed yet.
    alter(&database, |wide| {
        wide.ttl.as_mut().expect("a ttl").after = 3 * DAY;
    });
    assert_eq!(of_key(&database, "a")["visible"], true);
}

#[test]
fn a_client_with_a_wrong_clock_hides_later_writes() {
    let database = database(&plain());
    let future = json!({"value": 1, "version": time(START + 400 * DAY)});
    database.write(&put("a", &json!({"total": future})));
    database.write(&update("a", &json!({"total": 2})));
    let explained = of_key(&database, "a");
    assert_eq!(codes(&explained, "total"), [Value::Null, json!("max_versions")]);
    let versions = &explained["columns"][0]["versions"];
    assert_eq!(versions[0]["is_in_future"], true);
    assert_says(&versions[1]["hidden"], "max_versions", "is in the future");
}

#[test]
fn fewer_versions_hide_old_ones_at_once() {
    let database = database(&with(plain(), &json!({"max_versions": 3})));
    for total in 0..4 {
        database.write(&update("a", &json!({"total": total})));
    }
    let explained = of_key(&database, "a");
    assert_eq!(
        codes(&explained, "total"),
        [Value::Null, Value::Null, Value::Null, json!("max_versions")]
    );
    alter(&database, |wide| wide.max_versions = 1);
    let explained = of_key(&database, "a");
    assert_eq!(
        codes(&explained, "total")[1..],
        [
            json!("max_versions"),
            json!("max_versions"),
            json!("max_versions")
        ]
    );
    assert_eq!(explained["max_versions"], 1);
}

#[test]
fn deletes_puts_and_cleared_columns_are_named() {
    let database = database(&plain());
    let flush = || database.engine().seal().expect("it is flushed");
    database.write(&put("a", &json!({"total": 1, "note": "n"})));
    flush();
    database.write(&json!([{"op": "update", "key": {"id": "a"}, "clear": ["note"]}]));
    let explained = of_key(&database, "a");
    assert_eq!(codes(&explained, "note"), ["cleared"]);
    assert_eq!(codes(&explained, "total"), [Value::Null]);
    database.write(&put("a", &json!({"other": 1})));
    let explained = of_key(&database, "a");
    assert_eq!(codes(&explained, "total"), ["replaced"]);
    assert_says(
        &explained["layers"][1]["changes"][0]["hidden"],
        "replaced",
        "an update keeps",
    );
    database.write(&json!([{"op": "delete", "key": {"id": "a"}}]));
    let explained = of_key(&database, "a");
    assert_says(&explained["hidden"], "deleted", "a delete of the row at");
    assert_eq!(explained["hidden"]["by"], 0);

    database.write(&put("b", &json!({"total": 1})));
    flush();
    let range = DeleteRows {
        allow_all: true,
        ..DeleteRows::default()
    };
    delete(database.engine(), &database.table(), &range, None, &|| false).expect("it is deleted");
    let explained = of_key(&database, "b");
    assert_says(&explained["hidden"], "range_deleted", "range of keys");
    assert_eq!(explained["layers"][0]["deletes_range"], true);
    flush();
    assert_eq!(of_key(&database, "b")["hidden"]["code"], "not_stored");
}

#[test]
fn rows_of_hidden_and_dropped_parts_are_explained() {
    let database = database(&json!({
        "key": [{"name": "id", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [], "version_guard": null,
        "parts": {"by": "at", "every": "month", "keep": null, "first": i32::MIN},
    }));
    let key = |at: i64| json!({"id": "a", "at": time(at)});
    for at in [START, START - 60 * DAY, START - 400 * DAY] {
        database.write(&json!([{"op": "put", "key": key(at), "columns": {"x": 1}}]));
    }
    alter(&database, |wide| {
        wide.parts.as_mut().expect("parts").keep = Some(100 * DAY);
    });
    let state = |at: i64| {
        let explained = explain(&database, &json!({"key": key(at)}));
        (
            explained["part"]["state"].clone(),
            explained["hidden"]["code"].clone(),
        )
    };
    assert_eq!(state(START), (json!("visible"), Value::Null));
    assert_eq!(state(START - 400 * DAY), (json!("hidden"), json!("part_hidden")));
    let before = Timestamp::from_nanos_clamped(START - 20 * DAY);
    database
        .engine()
        .drop_parts(TABLE, before, false)
        .expect("they are dropped");
    assert_eq!(state(START - 60 * DAY), (json!("dropped"), json!("part_dropped")));
    assert_eq!(state(START - 90 * DAY), (json!("dropped"), json!("part_dropped")));
    assert_eq!(state(START), (json!("visible"), Value::Null));
}

#[test]
fn a_removed_declaration_hides_the_values_of_its_column() {
    let database = database(&plain());
    database.write(&put("a", &json!({"total": 5, "note": "n"})));
    alter(&database, |wide| {
        wide.columns.retain(|column| column.name != "total");
    });
    let explained = of_key(&database, "a");
    assert_eq!(codes(&explained, "#1"), ["column_removed"]);
    assert_eq!(codes(&explained, "note"), [Value::Null]);
}

#[test]
fn a_condition_names_the_test_that_does_not_pass_and_its_type() {
    let database = database(&plain());
    let at = json!({"type": "timestamp", "value": "2026-11-20T12:00:00Z"});
    database.write(&put(
        "a",
        &json!({"total": 5, "size": "7", "seen": at, "late": "soon"}),
    ));
    alter(&database, |wide| {
        let late = serde_json::from_value(json!({"name": "late", "type": "i64"}));
        wide.columns.push(late.expect("a column"));
    });
    let tested = |test: &Value| {
        let explained = explain(&database, &json!({"key": {"id": "a"}, "where": test}));
        let filter = explained["where"].clone();
        let tests = filter["tests"].as_array().expect("tests");
        assert_eq!(filter["matches"], tests.iter().all(|test| test["passes"] == true));
        tests[0].clone()
    };
    for (test, code, said) in [
        (json!({"column": "total", "gt": 7}), "no_match", "the number 5"),
        (json!({"column": "gone", "equals": 1}), "no_value", "no value"),
        (
            json!({"column": "size", "gt": 5}),
            "other_type",
            "value of another type",
        ),
        (
            json!({"column": "seen", "exists": false}),
            "no_match",
            "does not pass",
        ),
        (
            json!({"column": "seen", "gt": 1.5}),
            "other_type",
            "value of another type",
        ),
        (
            json!({"column": "seen", "lt": "2026-11-20T12:00:00Z"}),
            "no_match",
            "2026-11-20T12:00:00Z",
        ),
        (
            json!({"column": "late", "equals": 3}),
            "other_type",
            "declared as i64",
        ),
        (json!({"column": "id", "equals": "b"}), "no_match", "\"a\""),
    ] {
        let result = tested(&test);
        assert_eq!(result["passes"], false, "{test}");
        if test["column"] != "seen" || test["exists"].is_null() {
            assert_says(&result["hidden"], code, said);
        }
    }
    assert_eq!(tested(&json!({"column": "total", "lt": 7}))["passes"], true);
    assert_eq!(tested(&json!({"column": "seen", "gt": 0}))["passes"], true);
    let both = json!({"key": {"id": "a"}, "where": {"or": [{"column": "total", "lt": 7}, {"column": "gone", "exists": true}]}});
    let explained = explain(&database, &both);
    assert_eq!(explained["where"]["matches"], true);
    assert_eq!(explained["where"]["tests"][1]["hidden"]["code"], "no_value");
    let columns = explained["columns"].as_array().expect("columns");
    let remark = |name: &str| {
        let column = columns.iter().find(|column| column["name"] == name);
        column.expect("the column")["remark"]["code"].clone()
    };
    assert_eq!(remark("late"), "other_type");
    assert_eq!(remark("seen"), Value::Null);
    assert_eq!(remark("total"), Value::Null);

    let many: Vec<Value> = (0..101)
        .map(|n| json!({"column": "total", "equals": n}))
        .collect();
    let refused = try_why(&database, &json!({"key": {"id": "a"}, "where": {"or": many}}));
    assert!(matches!(
        refused,
        Err(RowsError::OverLimit {
            limit: 100,
            actual: 101,
            ..
        })
    ));
}

#[test]
fn indexes_hold_the_row_or_say_why_not() {
    let mut database = database(&plain());
    database.write(&put("a", &json!({"total": 5})));
    let index = json!({"id": 0, "name": "by_note", "key": [{"name": "note", "type": "string"}], "covers": {"columns": []}});
    let index = serde_json::from_value(index).expect("an index");
    database
        .engine()
        .create_index(TABLE, index)
        .expect("it is created");
    let hidden = |database: &Database, id: &str, number: usize| {
        let explained = of_key(database, id);
        let index = &explained["indexes"][number];
        assert_eq!(index["holds_row"], index["hidden"].is_null(), "{index}");
        index["hidden"]["code"].clone()
    };
    assert_eq!(hidden(&database, "a", 0), "no_value");
    database.write(&put("b", &json!({"note": "n"})));
    assert_eq!(hidden(&database, "b", 0), "index_not_ready");
    let building = database.engine().building_indexes().remove(0);
    let built = database
        .engine()
        .build_index(&building, &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(built, Ok(BuildEnd::Ready(_))));
    assert_eq!(hidden(&database, "b", 0), Value::Null);
    assert_eq!(hidden(&database, "c", 0), "not_stored");
    database.write(&json!([{"op": "delete", "key": {"id": "b"}}]));
    assert_eq!(hidden(&database, "b", 0), "deleted");

    database
        .engine()
        .drop_index(TABLE, "by_note")
        .expect("it is dropped");
    database.create_index(
        &json!([{"column": "note", "as": "keyword"}, {"column": "total", "as": "number"}]),
        false,
    );
    database.settle();
    let long = "x".repeat(40_000);
    database.write(&put("d", &json!({"note": long, "total": 1})));
    database.settle();
    assert_eq!(hidden(&database, "a", 0), Value::Null);
    let explained = of_key(&database, "d");
    assert_eq!(explained["indexes"][0]["kind"], "search");
    assert_says(
        &explained["indexes"][0]["columns"][0]["hidden"],
        "too_long",
        "32 KiB",
    );
    assert_eq!(hidden(&database, "c", 0), "not_stored");
    database.close();
}

#[test]
fn wide_rows_are_listed_up_to_the_limits_and_counted_whole() {
    let database = database(&with(plain(), &json!({"max_versions": 20})));
    let names: Vec<String> = (0..WHY_COLUMNS_MAX + 5)
        .map(|number| format!("c{number:05}"))
        .collect();
    for round in 0..12 {
        let columns: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!(round))).collect();
        database.write(&update("a", &Value::Object(columns)));
    }
    let explained = of_key(&database, "a");
    let columns = explained["columns"].as_array().expect("columns");
    let versions: usize = columns
        .iter()
        .map(|column| column["versions"].as_array().expect("versions").len())
        .sum();
    assert!(columns.len() <= WHY_COLUMNS_MAX);
    assert_eq!(versions, WHY_VERSIONS_MAX);
    assert_eq!(explained["columns_total"], names.len());
    assert_eq!(explained["versions_total"], 12 * names.len());
    let some = explain(
        &database,
        &json!({"key": {"id": "a"}, "columns": ["c00100*", "c00007"]}),
    );
    assert_eq!(some["columns"].as_array().expect("columns").len(), 2);
    assert_eq!(some["columns_total"], 2);
}
