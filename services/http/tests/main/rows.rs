//! Rows of wide tables: pages over buckets, conditions under contention, idempotency keys, NDJSON, restarts.
//!
//! The forms of requests and responses, and refusals, are tested by `tests/scenarios/34-rows.txt`.

use std::io::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_http::HttpSettings;
use tideline_query::QuerySettings;

use crate::access;
use crate::client::{Response, Server};

fn create(server: &Server, name: &str, wide: &Value) {
    let body = json!({"name": name, "model": "wide", "wide": wide}).to_string();
    server.json("POST", "/v1/tables", &body).expect(201);
}

fn post(server: &Server, path: &str, body: &Value) -> Response {
    server.json("POST", &format!("/v1/tables/{path}"), &body.to_string())
}

fn put(key: &Value, columns: &Value) -> Value {
    json!({"op": "put", "key": key, "columns": columns})
}

fn plain(server: &Server) {
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [{"name": "n", "type": "i64"}]});
    create(server, "t", &wide);
}

/// Reads all pages of a scan; returns the values of a key column.
fn pages(server: &Server, table: &str, scan: &Value, column: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut scan = scan.clone();
    loop {
        let page = post(server, &format!("{table}/rows/scan"), &scan).expect(200);
        let rows = page["rows"].as_array().expect("a list");
        assert_eq!(page["returned"], rows.len());
        assert!(rows.len() as u64 <= scan["limit"].as_u64().unwrap_or(100));
        found.extend(rows.iter().map(|row| row["key"][column].clone()));
        if page["next"].is_null() {
            assert!(page["reason"].is_null(), "{page}");
            return found;
        }
        assert_eq!(page["reason"], "limit");
        scan["page_token"] = page["next"].clone();
    }
}

#[test]
fn pages_over_buckets_equal_one_sorted_table_in_both_directions() {
    let server = Server::start();
    let wide = json!({"key": [
        {"name": "spread", "bucket": {"of": ["n"], "count": 16}},
        {"name": "n", "type": "u64"}
    ]});
    create(&server, "t", &wide);
    let numbers: Vec<u64> = (0..300).map(|n| n * 7 % 1_000).collect();
    let rows: Vec<Value> = numbers
        .iter()
        .map(|n| put(&json!({"n": n}), &json!({"even": n % 2 == 0})))
        .collect();
    let written = post(&server, "t/rows", &json!({"rows": rows})).expect(200);
    assert_eq!(written["written"], 300);
    let mut sorted = numbers;
    sorted.sort_unstable();
    for limit in [1, 7, 100, 300, 301] {
        for direction in ["forward", "backward"] {
            let in_order = |is_wanted: &dyn Fn(u64) -> bool| -> Vec<Value> {
                let wanted = sorted.iter().filter(|n| is_wanted(**n)).map(|n| json!(n));
                match direction {
                    "forward" => wanted.collect(),
                    _ => wanted.rev().collect(),
                }
            };
            let all = json!({"allow_scan": true, "direction": direction, "limit": limit});
            assert_eq!(
                pages(&server, "t", &all, "n"),
                in_order(&|_| true),
                "{limit} {direction}"
            );
            let some = json!({
                "range": {"column": "n", "from": 100, "to": 500}, "direction": direction, "limit": limit,
                "where": {"column": "even", "equals": true}
            });
            let is_wanted = |n: u64| (100..500).contains(&n) && n.is_multiple_of(2);
            assert_eq!(
                pages(&server, "t", &some, "n"),
                in_order(&is_wanted),
                "{limit} {direction}"
            );
        }
    }
    let counted = post(
        &server,
        "t/rows/count",
        &json!({"range": {"column": "n", "from": 500}}),
    )
    .expect(200);
    assert_eq!(counted["count"], sorted.iter().filter(|n| **n >= 500).count());
}

#[test]
fn rows_and_page_tokens_survive_a_restart() {
    let disk = MemoryDisk::new(Character::Embedded);
    let mut server = Server::on(Arc::clone(&disk), HttpSettings::default());
    plain(&server);
    let rows: Vec<Value> = ["a", "b", "c"]
        .iter()
        .map(|id| put(&json!({"id": id}), &json!({"n": 1})))
        .collect();
    post(&server, "t/rows", &json!({"rows": rows})).expect(200);
    let scan = json!({"allow_scan": true, "limit": 2});
    let page = post(&server, "t/rows/scan", &scan).expect(200);
    server.wait_stopped();
    server.engine.close().expect("closes");
    drop(server);

    let server = Server::on(disk, HttpSettings::default());
    let mut next = scan.clone();
    next["page_token"] = page["next"].clone();
    let rest = post(&server, "t/rows/scan", &next).expect(200);
    assert_eq!(rest["rows"], json!([{"key": {"id": "c"}, "columns": {"n": 1}}]));
    for other in [
        json!({"allow_scan": true, "direction": "backward"}),
        json!({"range": {"column": "id", "from": "a"}}),
        json!({"allow_scan": true, "where": {"field": "n", "equals": 1}}),
        json!({"allow_scan": true, "columns": ["n"]}),
    ] {
        let mut other = other;
        other["page_token"] = page["next"].clone();
        let refused = post(&server, "t/rows/scan", &other).expect(400);
        assert!(refused["message"].to_string().contains("page_token"), "{refused}");
    }
}

#[test]
fn conditions_test_texts_and_times_of_columns() {
    let server = Server::start();
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [
        {"name": "note", "type": "string"}, {"name": "n", "type": "i64"}, {"name": "placed", "type": "timestamp"}
    ]});
    create(&server, "t", &wide);
    let rows = json!({"rows": [
        put(&json!({"id": "a-1"}), &json!({"note": "The backup store", "n": 1, "placed": "2026-01-01T00:00:00Z"})),
        put(&json!({"id": "a-2"}), &json!({"note": "", "n": 2, "free": "web-1"})),
        put(&json!({"id": "b-1"}), &json!({"n": 3, "placed": "2026-02-01T00:00:00Z", "free": 5})),
    ]});
    post(&server, "t/rows", &rows).expect(200);
    let found = |test: &Value| {
        let scan = json!({"allow_scan": true, "where": test});
        pages(&server, "t", &scan, "id")
    };
    for (test, ids) in [
        (json!({"column": "note", "text": "store BACKUP"}), json!(["a-1"])),
        (
            json!({"column": "note", "phrase": "backup stroe", "distance": 1}),
            json!(["a-1"]),
        ),
        (json!({"column": "note", "prefix": ""}), json!(["a-1", "a-2"])),
        (
            json!({"not": {"column": "note", "wildcard": "*"}}),
            json!(["b-1"]),
        ),
        (json!({"column": "id", "suffix": "-1"}), json!(["a-1", "b-1"])),
        (json!({"field": "id", "regex": "a-[0-9]"}), json!(["a-1", "a-2"])),
        (json!({"column": "free", "fuzzy": "wbe-1"}), json!(["a-2"])),
        (json!({"column": "n", "gt": 1, "lt": 3}), json!(["a-2"])),
        (json!({"column": "n", "not_equals": 2}), json!(["a-1", "b-1"])),
        (
            json!({"column": "placed", "range": {"end": "2026-02-01T00:00:00Z"}}),
            json!(["a-1"]),
        ),
        (
            json!({"column": "placed", "range": {"start": "now-100d"}}),
            json!([]),
        ),
        (
            json!({"column": "free", "near": {"lat": 0, "lon": 0, "meters": 1}}),
            json!([]),
        ),
    ] {
        assert_eq!(json!(found(&test)), ids, "{test}");
    }
    let near = json!({"column": "note", "near": {"lat": 0, "lon": 0, "meters": 1}});
    for (test, reason) in [
        (
            json!({"column": "n", "text": "a"}),
            r#"condition: column \"n\" has the type i64; `text` tests texts"#,
        ),
        (
            json!({"column": "placed", "prefix": "2026"}),
            "has the type timestamp; `prefix` tests texts",
        ),
        (near, "has the type string; `near` tests geo points"),
        (
            json!({"column": "n", "range": {}}),
            "has the type i64; `range` tests timestamps",
        ),
    ] {
        let scan = json!({"allow_scan": true, "where": test});
        let refused = post(&server, "t/rows/scan", &scan).expect(400);
        assert!(refused["message"].to_string().contains(reason), "{refused}");
    }
}

#[test]
fn schedules_of_parts_that_are_invalid_are_refused_by_name() {
    let server = Server::start();
    let key = json!([{"name": "id", "type": "i64"}, {"name": "at", "type": "timestamp"}]);
    let wide = json!({"key": key, "allow_rising_key": true, "parts": {"by": "at", "every": "day"}});
    create(&server, "t", &wide);
    let parts = json!({"parts": {"migrate": {"cron": "every night"}}});
    let preview = post(&server, "t/parts/preview", &parts).expect(400);
    let change = json!({"wide": parts}).to_string();
    let changed = server.json("PATCH", "/v1/tables/t", &change).expect(400);
    let created = json!({"name": "u", "model": "wide", "wide": {"key": key, "allow_rising_key": true, "parts":
        {"by": "at", "every": "day", "migrate": {"cron": "every night"}}}});
    let created = server
        .json("POST", "/v1/tables", &created.to_string())
        .expect(400);
    for refused in [preview, changed, created] {
        let message = refused["message"].as_str().expect("a text");
        assert!(message.starts_with("parts.migrate: "), "{message}");
    }
}

#[test]
fn decimals_in_conditions_and_keys_keep_all_their_digits() {
    let server = Server::start();
    let decimal = |name: &str| json!({"name": name, "type": "decimal"});
    create(
        &server,
        "pay",
        &json!({"key": [decimal("amount")], "columns": [decimal("total")]}),
    );
    let amounts: Vec<String> = (5..10).map(|n| format!("1234567890123456.7{n}")).collect();
    let rows: Vec<Value> = amounts
        .iter()
        .map(|amount| put(&json!({"amount": amount}), &json!({"total": amount})))
        .collect();
    post(&server, "pay/rows", &json!({"rows": rows})).expect(200);
    let send = |path: &str, body: &str| server.json("POST", &format!("/v1/tables/pay/{path}"), body);
    let counted = |filter: &str| {
        let body = format!(r#"{{"allow_scan":true,"where":{{"column":{filter}}}}}"#);
        send("rows/count", &body).expect(200)["count"].clone()
    };
    for column in ["total", "amount"] {
        for (test, count) in [
            (r#""equals":1234567890123456.76"#, 1),
            (r#""equals":1234567890123456.8"#, 0),
            (r#""not_equals":1234567890123456.76"#, 4),
            (
                r#""in":[1234567890123456.76,1234567890123456.79,1234567890123456.80]"#,
                2,
            ),
            (r#""lte":1234567890123456.76"#, 2),
            (r#""gt":1234567890123456.76,"lt":1234567890123456.79"#, 2),
            (r#""between":[1234567890123456.76,1234567890123456.78]"#, 3),
        ] {
            let filter = format!(r#""{column}",{test}"#);
            assert_eq!(counted(&filter), count, "{filter}");
        }
    }
    let scan = r#""allow_scan":true,"limit":1,"where":{"column":"total","lte":1234567890123456.76}"#;
    let page = send("rows/scan", &format!("{{{scan}}}")).expect(200);
    let next = format!(r#"{{{scan},"page_token":{}}}"#, page["next"]);
    assert_eq!(
        send("rows/scan", &next).expect(200)["rows"][0]["key"]["amount"],
        amounts[1]
    );
    let other = next.replace(".76", ".77");
    assert!(
        send("rows/scan", &other).expect(400)["message"]
            .to_string()
            .contains("page_token")
    );
    let prefix = send("rows/scan", r#"{"prefix":{"amount":1234567890123456.76}}"#).expect(200);
    assert_eq!(prefix["rows"][0]["key"]["amount"], amounts[1]);
    let update = |number: &str| {
        let body = format!(
            r#"{{"rows":[{{"op":"update","key":{{"amount":1234567890123456.76}},"columns":{{"paid":true}},
                "condition":{{"where":{{"column":"total","equals":{number}}}}}}}]}}"#
        );
        send("rows", &body).status
    };
    assert_eq!(
        (update("1234567890123456.77"), update("1234567890123456.76")),
        (409, 200)
    );
    send(
        "rows/delete",
        r#"{"range":{"column":"amount","to":1234567890123456.76,"to_inclusive":true}}"#,
    )
    .expect(200);
    let left = send("rows/scan", r#"{"allow_scan":true}"#).expect(200);
    let left = left["rows"].as_array().expect("a list").iter();
    assert_eq!(
        left.map(|row| row["key"]["amount"].clone()).collect::<Vec<_>>(),
        amounts[2..]
    );
}

#[test]
fn a_compare_and_set_is_never_lost() {
    let server = Server::start();
    plain(&server);
    post(
        &server,
        "t/rows",
        &json!({"rows": [put(&json!({"id": "a"}), &json!({"n": 0}))]}),
    )
    .expect(200);
    let rounds = 20;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut done = 0;
                while done < rounds {
                    let read = post(&server, "t/rows/get", &json!({"keys": [{"id": "a"}]})).expect(200);
                    let n = read["rows"][0]["columns"]["n"].as_i64().expect("a number");
                    let set = json!({"rows": [{
                        "op": "update", "key": {"id": "a"}, "columns": {"n": n + 1},
                        "condition": {"where": {"field": "n", "equals": n}}
                    }]});
                    let written = post(&server, "t/rows", &set);
                    match written.status {
                        200 => done += 1,
                        409 => assert_eq!(written.expect(409)["code"], "condition_failed"),
                        status => panic!("{status}"),
                    }
                }
            });
        }
    });
    let read = post(&server, "t/rows/get", &json!({"keys": [{"id": "a"}]})).expect(200);
    assert_eq!(read["rows"][0]["columns"]["n"], 4 * rounds);
}

#[test]
fn a_request_with_a_key_is_done_once() {
    let server = Server::start();
    plain(&server);
    let send = |body: &Value, key: &str| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        server.send("POST", "/v1/tables/t/rows", &headers, body.to_string().as_bytes())
    };
    let add = json!({"rows": [
        {"op": "update", "key": {"id": "a"}, "increment": {"n": 5}, "return": "after"}
    ]});
    let first = send(&add, "k1").expect(200);
    assert_eq!(first["repeated"], false);
    let again = send(&add, "k1").expect(200);
    assert_eq!(
        (&again["repeated"], &again["rows"]),
        (&json!(true), &first["rows"])
    );
    assert_eq!(again["rows"][0]["row"]["columns"]["n"], 5);
    let position = |report: &Value| {
        report["position"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok())
    };
    assert!(position(&first).is_some() && position(&again) >= position(&first));
    let other = json!({"rows": [{"op": "delete", "key": {"id": "a"}}]});
    assert_eq!(send(&other, "k1").expect(422)["code"], "idempotency_key_reused");
    // The outcome of a condition that was not met is stored as well.
    let create = json!({"rows": [{"op": "put", "key": {"id": "a"}, "condition": {"exists": false}}]});
    assert_eq!(send(&create, "k2").expect(409)["repeated"], false);
    post(&server, "t/rows", &other).expect(200);
    assert_eq!(send(&create, "k2").expect(409)["repeated"], true);
}

#[test]
fn returned_rows_of_an_earlier_request_are_only_for_tokens_that_may_read() {
    let server = access::start();
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": [{"name": "n", "type": "i64"}]});
    let table = json!({"name": "t", "model": "wide", "wide": wide}).to_string();
    access::ask(&server, access::ROOT, "POST", "/v1/tables", &table).expect(201);
    let writer = access::token(&server, "writer", &[]);
    let both = access::create(&server, &json!({"name": "both", "roles": ["reader", "writer"]}));
    let reader_and_writer = both["token"].as_str().expect("a token");
    let send = |token: &str| {
        let authorization = access::bearer(token);
        let headers = [
            ("authorization", &*authorization),
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ];
        let add = json!({"rows": [
            {"op": "update", "key": {"id": "a"}, "increment": {"n": 5}, "return": "after"}
        ]});
        server.send("POST", "/v1/tables/t/rows", &headers, add.to_string().as_bytes())
    };
    assert_eq!(
        send(access::ROOT).expect(200)["rows"][0]["row"]["columns"]["n"],
        5
    );
    let refused = send(&writer);
    assert_eq!(refused.status, 403, "{}", refused.text());
    let again = send(reader_and_writer).expect(200);
    assert_eq!(
        (&again["repeated"], &again["rows"][0]["row"]["columns"]["n"]),
        (&json!(true), &json!(5))
    );
}

#[test]
fn a_statement_with_several_writes_refuses_a_long_key_before_the_first_one() {
    let server = Server::start();
    let wide = json!({"key": [{"name": "p", "type": "string"}, {"name": "q", "type": "i64"}],
        "columns": [{"name": "n", "type": "i64"}]});
    create(&server, "t", &wide);
    let row = |p: &str, q: i64, n: i64| put(&json!({"p": p, "q": q}), &json!({"n": n}));
    let rows = json!({"rows": [row("a", 1, 1), row("a", 2, 20), row("b", 1, 5), row("b", 2, 5)]});
    let first = post(&server, "t/rows", &rows).expect(200);
    let send = |statement: &str, key_bytes: usize| {
        let key = "k".repeat(key_bytes);
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", key.as_str()),
        ];
        let body = json!({"statement": statement}).to_string();
        server.send("POST", "/v1/sql", &headers, body.as_bytes())
    };
    let stored = || pages(&server, "t", &json!({"allow_scan": true}), "q").len();
    for statement in [
        "UPDATE t SET n = n + 1 WHERE p IN ('a', 'b') AND q IN (1, 2) AND n < 15",
        "DELETE FROM t WHERE p IN ('a', 'b') AND q IN (1, 2) AND n < 15",
        "INSERT INTO t (p, q, n) VALUES ('a', 1, 0), ('a', 3, 0) ON DUPLICATE KEY IGNORE",
    ] {
        let refused = send(statement, 253).expect(400);
        assert_eq!(
            (&refused["code"], &refused["limit"]),
            (&json!("over_limit"), &json!(252)),
            "{refused}"
        );
    }
    let read = post(&server, "t/rows/get", &json!({"keys": [{"p": "b", "q": 1}]})).expect(200);
    assert_eq!((stored(), &read["rows"][0]["columns"]["n"]), (4, &json!(5)));
    let update = "UPDATE t SET n = n + 1 WHERE p IN ('a', 'b') AND q IN (1, 2) AND n < 15";
    let updated = send(update, 252).expect(200);
    assert_eq!(
        (&updated["written"], &updated["condition_failed"]),
        (&json!(3), &json!(1))
    );
    // The row a/1 is written after the other ones, and the position is that of its entry.
    let position = |response: &Value| -> u64 {
        let position = response["position"].as_str().expect("a position");
        position.parse().expect("a number")
    };
    assert!(position(&updated) >= position(&first) + 2, "{updated}");
    let one = send("UPDATE t SET n = 0 WHERE p = 'a' AND q = 1", 255).expect(200);
    assert_eq!(one["written"], 1);
}

#[test]
fn lines_are_cut_into_entries_with_an_outcome_each() {
    let server = Server::start();
    plain(&server);
    let mut body = String::new();
    for n in 0..2_500 {
        let line = match n {
            7 => "{\"op\": \"put\"".to_owned(),
            1_700 => json!({"op": "put", "key": {"id": 5}}).to_string(),
            n => put(&json!({"id": format!("{n:05}")}), &json!({"n": n})).to_string(),
        };
        body.push_str(&line);
        body.push('\n');
    }
    let answer = server.post("/v1/tables/t/rows", "application/x-ndjson", &body);
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2_501);
    for (index, line) in lines[..2_500].iter().enumerate() {
        // The partitions of the refused lines are not known. They do not stop the other lines of their entries.
        let status = match index {
            7 | 1_700 => "refused",
            _ => "written",
        };
        assert_eq!(
            (&line["index"], &line["status"]),
            (&json!(index), &json!(status)),
            "{line}"
        );
    }
    assert!(
        lines[1_700]["reason"]
            .to_string()
            .contains("has the type string; found the number 5")
    );
    assert_eq!(
        (&lines[2_500]["written"], &lines[2_500]["refused"]),
        (&json!(2_498), &json!(2))
    );

    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/x-ndjson"),
    ];
    let scan = server.send(
        "POST",
        "/v1/tables/t/rows/scan",
        &headers,
        br#"{"allow_scan": true}"#,
    );
    let text = scan.text();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 2_499);
    assert_eq!(
        rows[2_498],
        json!({"scanned": 2_498, "returned": 2_498, "next": null})
    );
}

#[test]
fn a_key_without_room_for_the_numbers_of_entries_is_refused_before_the_first_entry() {
    let server = Server::start();
    plain(&server);
    let send = |lines: usize, key_bytes: usize| {
        let row = |n: usize| put(&json!({"id": format!("{n:05}")}), &json!({"n": n})).to_string() + "\n";
        let body: String = (0..lines).map(row).collect();
        let key = "k".repeat(key_bytes);
        let headers = [
            ("content-type", "application/x-ndjson"),
            ("idempotency-key", key.as_str()),
        ];
        server.send("POST", "/v1/tables/t/rows", &headers, body.as_bytes())
    };
    for key_bytes in [254, 255] {
        let refused = send(1_001, key_bytes).expect(400);
        assert_eq!(
            (&refused["code"], &refused["limit"]),
            (&json!("over_limit"), &json!(253)),
            "{refused}"
        );
    }
    let scan = post(&server, "t/rows/scan", &json!({"allow_scan": true})).expect(200);
    assert_eq!(scan["rows"], json!([]), "no entry is written");
    for (lines, key_bytes) in [(1_000, 255), (1_001, 253)] {
        let response = send(lines, key_bytes);
        let text = response.text();
        let end: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!((response.status, &end["written"]), (200, &json!(lines)), "{end}");
    }
}

#[test]
fn generated_ids_rise_and_are_returned() {
    let server = Server::start();
    let wide = json!({"key": [{"name": "room", "type": "string"}, {"name": "id", "generated": {}}]});
    create(&server, "t", &wide);
    let mut last = 0;
    for _ in 0..3 {
        let rows =
            json!({"rows": [put(&json!({"room": "a"}), &json!({})), put(&json!({"room": "a"}), &json!({}))]});
        let written = post(&server, "t/rows", &rows).expect(200);
        for row in written["rows"].as_array().expect("a list") {
            let id = row["key"]["id"].as_i64().expect("an id");
            assert!(id > last);
            last = id;
        }
    }
    let text = server.json(
        "POST",
        "/v1/tables/t/rows/scan?integers=text",
        r#"{"prefix": {"room": "a"}, "direction": "backward", "limit": 1}"#,
    );
    assert_eq!(text.expect(200)["rows"][0]["key"]["id"], last.to_string());
}

#[test]
fn lists_that_select_too_many_keys_are_refused_with_their_product() {
    let server = Server::start();
    let wide = json!({"key": [{"name": "a", "type": "u64"}, {"name": "b", "type": "u64"}]});
    create(&server, "t", &wide);
    let list = |count: u64| (0..count).collect::<Vec<u64>>();
    let refused = post(
        &server,
        "t/rows/get",
        &json!({"in": {"a": list(69), "b": list(29)}}),
    )
    .expect(400);
    assert_eq!(
        (&refused["code"], &refused["limit"], &refused["actual"]),
        (&json!("over_limit"), &json!(2_000), &json!(2_001))
    );
    assert!(refused["message"].to_string().contains("69 × 29"), "{refused}");
    let read = post(&server, "t/rows/get", &json!({"in": {"a": [1, 1, 2], "b": [3]}})).expect(200);
    assert_eq!(read["rows"], json!([null, null]));
}

#[test]
fn writes_that_wait_for_searches_delay_no_other_table() {
    let server = Server::with(HttpSettings {
        writes_in_flight_max: 1,
        ..HttpSettings::default()
    });
    let columns = json!([{"name": "text", "type": "string"}]);
    let wide = json!({"key": [{"name": "id", "type": "string"}], "columns": columns});
    create(&server, "t", &wide);
    create(&server, "other", &wide);
    for part in 0..2 {
        let lines = (0..20_000).map(|n| {
            let text = format!(
                "red wine number {n} of many bottles in the cellar of house {}",
                n % 97
            );
            let row = put(&json!({"id": format!("{part}-{n:05}")}), &json!({"text": text}));
            format!("{row}\n")
        });
        let lines: String = lines.collect();
        let written = server.post("/v1/tables/t/rows", "application/x-ndjson", lines);
        assert_eq!(written.status, 200, "{}", written.text());
    }
    let begin = |content_type: &str, body: &str| {
        let mut stream = server.connect();
        let head = format!(
            "POST /v1/tables/t/rows?refresh=wait HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    // The waiting writes end when the index is built. On a slow machine, this can be before the other table is written;
    // then a further index is built.
    let was_building = (0..3).any(|attempt| {
        let forms = json!([{"column": "text", "as": "text"}, {"column": "text", "as": "keyword"}]);
        let index = json!({"name": format!("index{attempt}"), "columns": forms});
        post(&server, "t/search-indexes", &index).expect(201);
        let keys = ["json", "lines"].map(|name| json!({"id": format!("{name}{attempt}")}));
        let [one, line] = [&keys[0], &keys[1]].map(|key| put(key, &json!({"text": "new"})));
        let waiting = [
            begin("application/json", &json!({"rows": [one]}).to_string()),
            begin("application/x-ndjson", &line.to_string()),
        ];
        let are_written = || {
            let found = post(&server, "t/rows/get", &json!({"keys": keys})).expect(200);
            found["found"] == 2
        };
        while !are_written() {}
        post(&server, "other/rows", &json!({"rows": [one]})).expect(200);
        let path = format!("/v1/tables/t/search-indexes/index{attempt}");
        let is_building = server.get(&path).expect(200)["status"] == "building";
        for mut stream in waiting {
            let response = Response::read(&mut stream);
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(response.text().contains("\"searchable\":"), "{}", response.text());
        }
        is_building
    });
    assert!(
        was_building,
        "another table is written while writes wait for an index"
    );
}

#[test]
fn a_flood_of_requests_for_old_rows_leaves_room_for_new_ones() {
    let query = QuerySettings {
        cold_queries_max: Some(1),
        cold_waiting_max: 1,
        // The clock of the tests does not advance, so the first request waits after its first page until its client
        // disconnects.
        cold_read_bytes_per_second: Some(1),
        ..QuerySettings::default()
    };
    let server = Server::with(HttpSettings {
        queries_in_flight_max: 1,
        query,
        ..HttpSettings::default()
    });
    let wide = json!({
        "key": [{"name": "host", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": [{"name": "n", "type": "i64"}],
        "parts": {"by": "at", "every": "day", "hot": "3d"},
    });
    create(&server, "t", &wide);
    for tier in ["all", "cold"] {
        let index = json!({"name": tier, "columns": [{"column": "n", "as": "number"}], "tier": tier});
        post(&server, "t/search-indexes?refresh=wait", &index).expect(201);
    }
    let key = |at: &str| json!({"host": "a", "at": at});
    let (old, new) = (key("2026-11-10T12:00:00Z"), key("2026-11-20T11:00:00Z"));
    let rows = [&old, &new].map(|key| put(key, &json!({"n": 1})));
    post(&server, "t/rows?refresh=wait", &json!({"rows": rows})).expect(200);
    server.json("POST", "/v1/jobs", r#"{"kind": "seal"}"#).expect(200);
    let migrate = r#"{"kind": "migrate", "table": "t", "wait": true}"#;
    server.json("POST", "/v1/jobs", migrate).expect(200);
    let tiers = server.get("/v1/tables/t/parts").expect(200)["parts"].clone();
    assert_eq!(
        (&tiers[0]["tier"], &tiers[1]["tier"]),
        (&json!("cold"), &json!("hot")),
        "{tiers}"
    );
    let scan =
        |from: &str| json!({"prefix": {"host": "a"}, "range": {"column": "at", "from": from}}).to_string();
    let (all, newer) = (scan("2026-11-01T00:00:00Z"), scan("2026-11-19T00:00:00Z"));
    let begin = |path: &str, body: &str| {
        let mut stream = server.connect();
        let head = format!(
            "POST /v1/tables/t/rows/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    let wait_for = |line: &str| {
        let has = |text: &str| text.lines().any(|have| have.starts_with(line));
        while !has(&server.get("/metrics").text()) {}
    };
    let running = begin("scan", &all);
    wait_for("tideline_cold_queries_running 1");
    let waiting = begin(
        "aggregate",
        r#"{"allow_scan": true, "metrics": [{"column": "n", "functions": ["sum"]}]}"#,
    );
    wait_for("tideline_cold_queries_waiting 1");
    let listed = || {
        let listed = server.get("/v1/queries").expect(200)["queries"].clone();
        listed.as_array().expect("a list").clone()
    };
    let resources = || -> Vec<Value> { listed().iter().map(|query| query["resource"].clone()).collect() };
    assert_eq!(resources(), ["scan", "aggregate"], "a waiting request is listed");
    let path = format!("/v1/queries/{}", listed()[1]["id"]);
    server.send("DELETE", &path, &[], b"").expect(200);
    wait_for("tideline_cold_queries_waiting 0");
    drop(waiting);
    let get = |key: &Value| json!({"keys": [key]}).to_string();
    let waiting = begin("get", &get(&old));
    wait_for("tideline_cold_queries_waiting 1");
    assert_eq!(resources(), ["scan", "get"]);
    for (path, body) in [("scan", &all), ("get", &get(&old)), ("count", &all)] {
        let path = format!("/v1/tables/t/rows/{path}");
        let refused = server.json("POST", &path, body).expect(503);
        assert_eq!(
            (&refused["code"], &refused["retryable"]),
            (&json!("overloaded"), &json!(true)),
            "{path}: {refused}"
        );
    }
    // A search reads old rows only, by its tier or by the tier of its index.
    let of_index = |index: &str, tier: &str| json!({"index": index, "tier": tier}).to_string();
    for body in [of_index("all", "cold"), of_index("cold", "all")] {
        for path in ["search", "facets"] {
            let path = format!("/v1/tables/t/rows/{path}");
            server.json("POST", &path, &body).expect(503);
        }
    }
    let sum = json!({
        "search": {"index": "all"}, "tier": "cold", "metrics": [{"column": "n", "functions": ["sum"]}],
    });
    post(&server, "t/rows/aggregate", &sum).expect(503);
    let sql = |columns: &str, condition: &str| {
        let sql = format!("SELECT {columns} FROM t WHERE host = 'a' AND {condition}");
        server.json("POST", "/v1/sql", &json!({"statement": sql}).to_string())
    };
    for columns in ["*", "COUNT(*)", "SUM(n)"] {
        for condition in ["at > '2026-11-01'", "at = '2026-11-10 12:00:00'"] {
            let refused = sql(columns, condition).expect(503);
            assert_eq!(refused["code"], "overloaded", "{columns} {condition}: {refused}");
        }
        for condition in ["at > '2026-11-19'", "at = '2026-11-20 11:00:00'"] {
            sql(columns, condition).expect(200);
        }
    }
    for tier in ["all", "hot"] {
        let found = server
            .json("POST", "/v1/tables/t/rows/search", &of_index("all", tier))
            .expect(200);
        assert!(found["total"].as_u64() > Some(0), "{tier}: {found}");
    }
    for (path, body) in [("scan", &newer), ("get", &get(&new))] {
        let found = server
            .json("POST", &format!("/v1/tables/t/rows/{path}"), body)
            .expect(200);
        assert_eq!(
            found["rows"],
            json!([{"key": new, "columns": {"n": 1}}]),
            "{path}"
        );
    }
    let counted = server.json("POST", "/v1/tables/t/rows/count", &newer).expect(200);
    assert_eq!(counted["count"], 1);
    drop((running, waiting));
    wait_for("tideline_cold_queries_running 0");
    wait_for("tideline_cold_queries_waiting 0");
}
