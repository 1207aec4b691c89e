//! Large values in ordinary writes: they are stored in pieces, and every read returns them like values that are
//! stored in the row.
//!
//! Each test compares with the values that were written. `tideline-wide-table` tests the storage of the pieces; the
//! suite `large_values` tests kills of the process.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::HttpSettings;

use crate::client::Server;

fn create(server: &Server, name: &str, wide: &Value) {
    let mut of = json!({
        "key": [{"name": "id", "type": "string"}],
        "columns": [
            {"name": "photo", "type": "binary"}, {"name": "text", "type": "string"}, {"name": "n", "type": "i64"},
            {"name": "document", "type": "json"}, {"name": "short", "type": "string"}
        ]
    });
    let members = of.as_object_mut().expect("an object");
    members.extend(wide.as_object().expect("an object").clone());
    let body = json!({"name": name, "model": "wide", "wide": of});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    server.json("POST", path, &body.to_string()).expect(200)
}

/// Returns a text of about `bytes` bytes, in which the last word differs for each seed.
fn text(seed: u64, bytes: usize) -> String {
    format!("{} ende{seed}", "größer ".repeat(bytes / 9))
}

fn columns(seed: u64) -> Value {
    json!({
        "photo": "QUJD".repeat(30_000), "text": text(seed, 100_000), "n": seed,
        "document": {"list": [seed, "x".repeat(200_000)]}, "short": "s",
        "free": text(seed, 70_000)
    })
}

fn put(server: &Server, id: &str, columns: &Value) {
    let rows = json!({"rows": [{"op": "put", "key": {"id": id}, "columns": columns}]});
    let written = post(server, "/v1/tables/t/rows", &rows);
    assert_eq!(written["written"], 1, "{written}");
}

fn get(server: &Server, body: &Value) -> Value {
    post(server, "/v1/tables/t/rows/get", body)["rows"][0].clone()
}

/// Removes the values that no row references. Returns the number of remaining values and of removed values.
fn remove(server: &Server, table: &str) -> (u64, u64) {
    let table = server.engine.wide_table(table).expect("a table");
    let id = table.table().points().id();
    let removed = server
        .engine
        .remove_unnamed_values(id, &mut |_| ControlFlow::Continue(()));
    let removed = removed.expect("a removal").expect("it ends");
    (removed.values, removed.removed)
}

#[test]
fn every_read_returns_large_values_like_other_values() {
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(Arc::clone(&disk), HttpSettings::default());
    create(&server, "t", &json!({"max_versions": 2}));
    for seed in 1..=3 {
        put(&server, &format!("k{seed}"), &columns(seed));
    }
    // Every long value is stored in pieces, and every short value in its row.
    assert_eq!(remove(&server, "t").0, 12);
    for restarted in [false, true] {
        if restarted {
            drop(std::mem::replace(
                &mut server,
                Server::on(Arc::clone(&disk), HttpSettings::default()),
            ));
        }
        let rows = post(&server, "/v1/tables/t/rows/scan", &json!({"allow_scan": true}));
        for seed in 1..=3 {
            let key = json!({"id": format!("k{seed}")});
            let row = get(&server, &json!({"keys": [key]}));
            assert!(row["columns"] == columns(seed), "get {seed}");
            assert!(rows["rows"][seed as usize - 1] == row, "scan {seed}");
            let some = get(&server, &json!({"keys": [key], "columns": ["text", "n"]}));
            assert!(some["columns"] == json!({"text": text(seed, 100_000), "n": seed}));
            let page = get(
                &server,
                &json!({"keys": [key], "column_range": {"from": "d", "to": "g"}}),
            );
            assert!(page["columns"]["free"] == text(seed, 70_000) && page["columns"]["n"].is_null());
        }
        for (filter, expected) in [
            (json!({"column": "text", "suffix": "ende2"}), 2),
            (json!({"column": "document", "equals": 3}), 0),
            (json!({"column": "free", "suffix": "ende3"}), 3),
        ] {
            let scan = json!({"allow_scan": true, "where": filter, "columns": ["n"]});
            let found = post(&server, "/v1/tables/t/rows/scan", &scan);
            let expected = match expected {
                0 => json!([]),
                n => json!([{"key": {"id": format!("k{n}")}, "columns": {"n": n}}]),
            };
            assert_eq!(found["rows"], expected, "{filter}");
        }
        let statement = json!({"statement": "SELECT text, n FROM t WHERE id = 'k2'"});
        let selected = post(&server, "/v1/sql", &statement);
        assert!(selected["rows"] == json!([{"text": text(2, 100_000), "n": 2}]));
        let headers = [("content-type", "application/json"), ("accept", "text/csv")];
        let scan = json!({"allow_scan": true}).to_string();
        let csv = server.send("POST", "/v1/tables/t/rows/scan", &headers, scan.as_bytes());
        let csv = String::from_utf8(csv.body).expect("text");
        assert!((1..=3).all(|seed| csv.contains(&text(seed, 100_000)) && csv.contains(&text(seed, 70_000))));
        let blob = server.get("/v1/tables/t/blobs/document?key=%7B%22id%22%3A%22k1%22%7D");
        assert_eq!(
            (blob.status, blob.header("content-type")),
            (200, "application/json")
        );
        let document: Value = serde_json::from_slice(&blob.body).expect("JSON");
        assert!(document == columns(1)["document"]);
        let part = server.send(
            "GET",
            "/v1/tables/t/blobs/text?key=%7B%22id%22%3A%22k1%22%7D",
            &[("range", "bytes=-5")],
            b"",
        );
        assert_eq!((part.status, &part.body[..]), (206, &b"ende1"[..]));
    }
}

#[test]
fn updates_conditions_versions_and_transactions_apply_to_large_values() {
    let server = Server::start();
    create(&server, "t", &json!({"max_versions": 2}));
    put(&server, "k", &columns(1));
    let revision = get(&server, &json!({"keys": [{"id": "k"}], "revisions": true}))["revision"].clone();
    let update = |with: &Value, columns: &Value| {
        let mut row = json!({"op": "update", "key": {"id": "k"}, "columns": columns});
        let members = row.as_object_mut().expect("an object");
        members.extend(with.as_object().expect("an object").clone());
        json!({"rows": [row]})
    };
    let send = |body: &Value| server.json("POST", "/v1/tables/t/rows", &body.to_string());
    // A condition that is not met changes nothing, returns the whole row, and leaves no pieces.
    let unmet = json!({"condition": {"where": {"column": "text", "suffix": "ende2"}}, "return": "before"});
    let refused = send(&update(&unmet, &json!({"text": text(2, 100_000)})));
    assert_eq!(refused.status, 409);
    let refused: Value = serde_json::from_slice(&refused.body).expect("JSON");
    let found = refused.to_string();
    assert!(found.contains("ende1"), "the row is returned");
    assert_eq!(remove(&server, "t"), (4, 0));
    // A condition that is met.
    let met = json!({"condition": {"where": {"column": "text", "suffix": "ende1"}}, "return": "after"});
    let written = send(&update(&met, &json!({"text": text(2, 100_000)}))).expect(200);
    assert!(written["rows"][0]["row"]["columns"]["text"] == text(2, 100_000));
    assert!(written["rows"][0]["row"]["columns"]["document"] == columns(1)["document"]);
    // A change of another column keeps the values, and both versions.
    send(&update(&json!({}), &json!({"n": 7}))).expect(200);
    let versions = get(
        &server,
        &json!({"keys": [{"id": "k"}], "columns": ["text"], "versions": 2}),
    );
    let versions: Vec<&str> = versions["columns"]["text"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|version| version["value"].as_str().expect("a text"))
        .collect();
    assert!(versions == [text(2, 100_000), text(1, 100_000)]);
    // The revision of the row before its changes.
    let transaction = |revision: &Value| {
        let mut body = update(&json!({}), &json!({"text": text(3, 100_000)}));
        body["unchanged"] = json!([{"key": {"id": "k"}, "revision": revision}]);
        send(&body)
    };
    assert_eq!(transaction(&revision).status, 409);
    let row = get(&server, &json!({"keys": [{"id": "k"}], "revisions": true}));
    assert!(row["columns"]["text"] == text(2, 100_000));
    transaction(&row["revision"]).expect(200);
    // After a flush, the first version is gone, and so are the values of the refused writes.
    server.engine.seal().expect("flushed");
    assert_eq!(remove(&server, "t"), (5, 1));
    let delete = json!({"rows": [{"op": "delete", "key": {"id": "k"}}]});
    send(&delete).expect(200);
    assert_eq!(remove(&server, "t"), (0, 5));
}

#[test]
fn one_write_can_have_more_large_values_than_a_journal_entry_holds() {
    let server = Server::start();
    create(&server, "t", &json!({}));
    let large = text(1, 1_000_000);
    let row = |id: usize| json!({"op": "put", "key": {"id": format!("k{id}")}, "columns": {"text": large, "free": large}});
    let rows: Vec<Value> = (0..5).map(row).collect();
    let written = post(&server, "/v1/tables/t/rows", &json!({"rows": rows}));
    assert_eq!(written["written"], 5);
    assert!(get(&server, &json!({"keys": [{"id": "k4"}]}))["columns"]["free"] == large);
    let lines: String = (5..9).map(|id| format!("{}\n", row(id))).collect();
    let sent = server.post("/v1/tables/t/rows", "application/x-ndjson", lines);
    assert_eq!(sent.status, 200);
    let csv = format!("id,text\nk9,{large}\n");
    let headers = [("content-type", "text/csv")];
    let imported = server.send("POST", "/v1/tables/t/rows/import", &headers, csv.as_bytes());
    assert_eq!(
        imported.status,
        200,
        "{}",
        String::from_utf8_lossy(&imported.body)
    );
    let upsert = json!({"statement": "UPSERT INTO t (id, text) VALUES ('l', ?)", "params": [large]});
    post(&server, "/v1/sql", &upsert);
    for id in ["k7", "k9", "l"] {
        assert!(
            get(&server, &json!({"keys": [{"id": id}]}))["columns"]["text"] == large,
            "{id}"
        );
    }
    assert_eq!(remove(&server, "t"), (20, 0));
    // The limits of a column and of a row include the large values.
    let put = |columns: Value| {
        let rows = json!({"rows": [{"op": "put", "key": {"id": "m"}, "columns": columns}]});
        let refused = server.json("POST", "/v1/tables/t/rows", &rows.to_string());
        (refused.status, String::from_utf8(refused.body).expect("text"))
    };
    let (status, message) = put(json!({"text": text(1, 2_200_000)}));
    assert!(
        status != 200 && message.contains("over the limit of 2097152"),
        "{message}"
    );
    let nine: serde_json::Map<String, Value> = (0..9)
        .map(|number| (format!("c{number}"), json!(large)))
        .collect();
    let (status, message) = put(Value::Object(nine));
    assert!(
        status != 200 && message.contains("over the limit of 8388608"),
        "{message}"
    );
    assert_eq!(remove(&server, "t"), (20, 0));
    // A copy has separate pieces.
    let copy = json!({"name": "u", "model": "wide", "wide": {"key": [{"name": "id", "type": "string"}]}});
    server.json("POST", "/v1/tables", &copy.to_string()).expect(201);
    let copied = post(
        &server,
        "/v1/tables/t/rows/rekey",
        &json!({"into": "u", "wait": true}),
    );
    assert_eq!(copied["state"], "done", "{copied}");
    assert_eq!(remove(&server, "u"), (20, 0));
    let delete = json!({"prefix": {}, "allow_all": true});
    post(&server, "/v1/tables/t/rows/delete", &delete);
    assert_eq!(remove(&server, "t"), (0, 20));
    let read = post(&server, "/v1/tables/u/rows/get", &json!({"keys": [{"id": "k0"}]}));
    assert!(read["rows"][0]["columns"]["text"] == large);
}

#[test]
fn indexes_and_generated_keys_accept_large_values_as_before() {
    let server = Server::start();
    create(&server, "t", &json!({}));
    let all = json!({"name": "by_n", "key": [{"name": "n"}], "covers": "all"});
    server
        .json("POST", "/v1/tables/t/indexes?refresh=wait", &all.to_string())
        .expect(201);
    let search = json!({"name": "all", "columns": [{"column": "text", "as": "text"}]});
    server
        .json(
            "POST",
            "/v1/tables/t/search-indexes?refresh=wait",
            &search.to_string(),
        )
        .expect(201);
    for seed in 1..=3 {
        put(&server, &format!("k{seed}"), &columns(seed));
    }
    let scan = json!({"index": "by_n", "prefix": {"n": 2}});
    let found = post(&server, "/v1/tables/t/rows/scan", &scan);
    assert!(
        found["rows"][0]["columns"] == columns(2),
        "{}",
        found.to_string().len()
    );
    put(&server, "k2", &json!({"n": 2, "text": "short"}));
    remove(&server, "t");
    let found = post(&server, "/v1/tables/t/rows/scan", &scan);
    assert_eq!(found["rows"][0]["columns"], json!({"n": 2, "text": "short"}));
    let rows =
        json!({"rows": [{"op": "update", "key": {"id": "k3"}, "columns": {"text": text(4, 100_000)}}]});
    post(&server, "/v1/tables/t/rows?refresh=wait", &rows);
    let search = json!({"where": {"column": "text", "text": "ende4"}, "columns": ["n", "text"]});
    let found = post(&server, "/v1/tables/t/rows/search", &search);
    assert_eq!(found["total"], 1);
    assert!(found["rows"][0]["columns"] == json!({"n": 3, "text": text(4, 100_000)}));
    // An index over a column refuses values that are too long for a key.
    let of_text = json!({"name": "by_text", "key": [{"name": "text"}]});
    server
        .json("POST", "/v1/tables/t/indexes", &of_text.to_string())
        .expect(201);
    let rows = json!({"rows": [{"op": "put", "key": {"id": "k4"}, "columns": {"text": text(5, 100_000)}}]});
    let refused = server.json("POST", "/v1/tables/t/rows", &rows.to_string());
    let reason = String::from_utf8(refused.body).expect("text");
    assert!(
        reason.contains("the row cannot be stored in the index") && reason.contains("100005 bytes"),
        "{reason}"
    );
    let (values, _) = remove(&server, "t");
    assert_eq!(
        remove(&server, "t"),
        (values, 0),
        "the pieces of the refused row are gone"
    );
    // In a table with generated ids, large values stay in the rows.
    let generated = json!({"name": "g", "model": "wide", "wide": {
        "key": [{"name": "group", "type": "string"}, {"name": "id", "generated": {}}],
        "columns": [{"name": "text", "type": "string"}]
    }});
    server
        .json("POST", "/v1/tables", &generated.to_string())
        .expect(201);
    let rows = json!({"rows": [{"op": "put", "key": {"group": "a"}, "columns": {"text": text(1, 100_000)}}]});
    post(&server, "/v1/tables/g/rows", &rows);
    let found = post(
        &server,
        "/v1/tables/g/rows/scan",
        &json!({"prefix": {"group": "a"}}),
    );
    assert!(found["rows"][0]["columns"]["text"] == text(1, 100_000));
    assert_eq!(remove(&server, "g"), (0, 0));
}

/// A record of a change contains large values, also when a later change has replaced them, until they are freed.
#[test]
fn records_of_changes_name_the_columns_of_freed_values() {
    let server = Server::start();
    create(&server, "t", &json!({}));
    create(&server, "copy", &json!({}));
    server
        .json("PUT", "/v1/changes/t", r#"{"tables": ["t"]}"#)
        .expect(200);
    put(&server, "a", &columns(1));
    put(&server, "a", &json!({"n": 2}));
    let read = || server.get("/v1/changes/t/records").expect(200)["records"].clone();
    let before = read();
    assert_eq!(before[0]["columns"], columns(1));
    assert!(before[0].get("missing").is_none(), "{before}");

    server.engine.seal().expect("flushed");
    assert_eq!(remove(&server, "t"), (0, 4));
    let after = read();
    assert_eq!(after[0]["columns"], json!({"n": 1, "short": "s"}));
    let mut missing: Vec<String> = serde_json::from_value(after[0]["missing"].clone()).expect("names");
    missing.sort_unstable();
    assert_eq!(missing, ["document", "free", "photo", "text"]);
    assert_eq!(after[1], before[1]);
    // The remaining members can be written to a copy.
    let row = json!({"op": after[0]["op"], "key": after[0]["key"], "columns": after[0]["columns"]});
    let written = post(&server, "/v1/tables/copy/rows", &json!({"rows": [row]}));
    assert_eq!(written["written"], 1, "{written}");
}
