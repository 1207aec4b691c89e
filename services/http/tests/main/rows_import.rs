//! Imports of rows: an imported export has equal rows, entries are written once, and inputs are bounded.
//!
//! Mapping, conversion of cells and refusals are tested by `tests/scenarios/36-rows-formats.txt`.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow_ipc::writer::StreamWriter;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tideline_http::HttpSettings;

use crate::client::{Response, Server, compressed};

const FORMATS: [&str; 4] = [
    "text/csv",
    "application/x-ndjson",
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
];

fn create(server: &Server, name: &str) {
    let body = json!({"name": name, "model": "wide", "wide": {
        "key": [
            {"name": "spread", "bucket": {"of": ["id"], "count": 4}},
            {"name": "id", "type": "string"},
            {"name": "at", "type": "timestamp", "order": "desc"}
        ],
        "columns": [
            {"name": "total", "type": "decimal"}, {"name": "n", "type": "u64"}, {"name": "raw", "type": "binary"},
            {"name": "paid", "type": "bool"}, {"name": "rate", "type": "f64"}, {"name": "doc", "type": "json"},
            {"name": "note", "type": "string"}, {"name": "when", "type": "timestamp"}
        ]
    }});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
}

fn scan(server: &Server, table: &str, accept: &str) -> Vec<u8> {
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let path = format!("/v1/tables/{table}/rows/scan");
    let response = server.send("POST", &path, &headers, br#"{"allow_scan": true}"#);
    assert_eq!(response.status, 200, "{}", response.text());
    response.body
}

fn import(server: &Server, table: &str, content_type: &str, key: Option<&str>, body: &[u8]) -> Response {
    let mut headers = vec![("content-type", content_type)];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    server.send("POST", &format!("/v1/tables/{table}/rows/import"), &headers, body)
}

/// Returns the last line of the response to an import.
fn end(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let last = text.trim_end().lines().last().unwrap_or_default();
    serde_json::from_str(last).expect("JSON")
}

/// Returns the lines of an export without its end.
fn rows(server: &Server, table: &str) -> Vec<String> {
    let text = String::from_utf8(scan(server, table, "application/x-ndjson")).expect("text");
    let lines = text.lines().filter(|line| line.starts_with("{\"key\""));
    lines.map(str::to_owned).collect()
}

fn fill(server: &Server, table: &str) {
    let rows: Vec<Value> = (0..2_500_u64)
        .map(|n| {
            let mut columns = json!({"total": format!("{}.{:02}", n * 1_000_000_007, n % 100), "n": u64::MAX - n,
                "raw": "AP8=", "paid": n % 2 == 0, "rate": n as f64 / 3.0, "doc": {"n": [n, "a,\"b\"\n"]},
                "note": if n % 3 == 0 { "" } else { "a,\"b\"\r\nc" }, "when": "1900-01-01T00:00:00.000000001Z",
                "big": u64::MAX, "typed": {"type": "timestamp", "value": "2026-11-20T12:00:00Z"}, "text": "5"});
            if n % 5 == 0 {
                columns = json!({});
            }
            json!({"op": "put", "key": {"id": format!("id,{n}"), "at": n}, "columns": columns})
        })
        .collect();
    let body = json!({"rows": rows}).to_string();
    server
        .json("POST", &format!("/v1/tables/{table}/rows"), &body)
        .expect(200);
}

#[test]
fn a_search_honors_the_positions_of_imports_and_deletes() {
    let server = Server::start();
    create(&server, "t");
    let index = json!({"name": "all", "columns": [{"column": "n", "as": "number"}]}).to_string();
    let route = "/v1/tables/t/search-indexes?refresh=wait";
    server.json("POST", route, &index).expect(201);
    let total = |position: &Value| {
        let search = json!({"at_least": position, "columns": []}).to_string();
        let found = server.json("POST", "/v1/tables/t/rows/search", &search);
        found.expect(200)["total"].clone()
    };
    let imported = end(&import(
        &server,
        "t",
        "text/csv",
        None,
        b"id,at,n\r\na,1,5\r\nb,2,6\r\n",
    ));
    assert_eq!(imported["written"], 2, "{imported}");
    assert_eq!(total(&imported["position"]), 2);
    let delete = json!({"prefix": {"id": "a"}}).to_string();
    let deleted = server.json("POST", "/v1/tables/t/rows/delete", &delete);
    let position = deleted.expect(200)["position"].clone();
    assert_eq!(total(&position), 1);
    let later = json!({"at_least": u64::MAX.to_string()}).to_string();
    let refused = server.json("POST", "/v1/tables/t/rows/search", &later);
    let refused = refused.expect(400);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("no write has the position"), "{refused}");
}

#[test]
fn every_export_is_imported_without_a_difference() {
    let server = Server::start();
    create(&server, "source");
    fill(&server, "source");
    let expected = rows(&server, "source");
    assert_eq!(expected.len(), 2_500);
    for (number, format) in FORMATS.into_iter().enumerate() {
        let table = format!("copy{number}");
        create(&server, &table);
        let mut exported = scan(&server, "source", format);
        if format == "application/x-ndjson" {
            // The last line describes the end of the scan.
            let text = String::from_utf8(exported).expect("text");
            let (all, _) = text.trim_end().rsplit_once('\n').expect("lines");
            exported = all.as_bytes().to_vec();
        }
        let imported = end(&import(&server, &table, format, None, &exported));
        assert_eq!(
            (&imported["written"], &imported["refused"]),
            (&json!(2_500), &json!(0)),
            "{format}"
        );
        assert!(rows(&server, &table) == expected, "{format}");
    }
}

#[test]
fn files_of_other_tools_are_imported_by_the_declared_types() {
    let server = Server::start();
    create(&server, "t");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![1_000, -1]))),
        ("n", Arc::new(Int64Array::from(vec![Some(7), Some(-7)]))),
        ("total", Arc::new(StringArray::from(vec![Some("1.50"), None]))),
        (
            "note",
            Arc::new(BinaryArray::from(vec![b"bytes".as_slice(), b""])),
        ),
        (
            "extra",
            Arc::new(TimestampMillisecondArray::from(vec![Some(0), None])),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).expect("a writer");
    writer
        .write(&batch)
        .and_then(|()| writer.finish())
        .expect("a stream");
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a file");
    for (format, body) in [(FORMATS[2], stream), (FORMATS[3], file)] {
        let response = import(&server, "t", format, None, &body);
        assert_eq!(end(&response)["written"], 1, "{format}: {}", response.text());
        let refused: Value =
            serde_json::from_str(response.text().lines().next().unwrap_or_default()).expect("JSON");
        assert_eq!(refused["index"], 1);
        let reason = refused["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("\"n\" has the type u64"), "{reason}");
        assert_eq!(
            rows(&server, "t"),
            [
                r#"{"key":{"id":"a","at":"1970-01-01T00:00:01Z"},"columns":{"total":"1.5","n":7,"note":"bytes","extra":{"type":"timestamp","value":"1970-01-01T00:00:00Z"}}}"#
            ]
        );
    }
}

#[test]
fn a_slow_body_is_refused_as_retryable_before_and_after_the_first_entry() {
    let server = Server::with(HttpSettings {
        body_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    });
    create(&server, "t");
    let send = |format: &str, begin: &[u8]| {
        let mut slow = server.connect();
        let head = format!(
            "POST /v1/tables/t/rows/import HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {format}\r\n\
             content-length: 10000000\r\n\r\n"
        );
        slow.write_all(head.as_bytes()).expect("sent");
        slow.write_all(begin).expect("sent");
        Response::read(&mut slow)
    };
    for format in FORMATS {
        let refused = send(format, b"").expect(408);
        assert_eq!(
            (&refused["code"], &refused["retryable"]),
            (&json!("body_too_slow"), &json!(true)),
            "{format}"
        );
    }
    let records: String = (0..1_100).map(|n| format!("a,{n},{n}\n")).collect();
    let stopped = end(&send("text/csv", format!("id,at,n\n{records}").as_bytes()));
    assert_eq!(
        (&stopped["written"], &stopped["retryable"]),
        (&json!(1_000), &json!(true)),
        "{stopped}"
    );
    assert!(
        stopped["stopped"].to_string().contains("body too slow"),
        "{stopped}"
    );
}

#[test]
fn times_of_csv_have_the_forms_of_sql() {
    let server = Server::start();
    create(&server, "t");
    let csv = "id,at,when\n\
        a,2026-11-20 12:00:00,2026-11-20\n\
        b,2026-11-20T12:00:00,2026-11-20 12:00:00.5+01:00\n\
        c,2026-11-20,1700000000000000000\n\
        d,2026-11-20,soon\n\
        e,2026-13-20,\n";
    let imported = end(&import(&server, "t", "text/csv", None, csv.as_bytes()));
    assert_eq!(
        (&imported["written"], &imported["refused"]),
        (&json!(3), &json!(2))
    );
    let mut found = rows(&server, "t");
    found.sort();
    let expected = [
        ("a", "2026-11-20T12:00:00Z", "2026-11-20T00:00:00Z"),
        ("b", "2026-11-20T12:00:00Z", "2026-11-20T11:00:00.500Z"),
        ("c", "2026-11-20T00:00:00Z", "2023-11-14T22:13:20Z"),
    ];
    for (row, (id, at, when)) in found.iter().zip(expected) {
        let row: Value = serde_json::from_str(row).expect("JSON");
        assert_eq!(
            row,
            json!({"key": {"id": id, "at": at}, "columns": {"when": when}})
        );
    }
}

#[test]
fn a_repeated_import_with_a_key_writes_nothing() {
    let server = Server::start();
    create(&server, "t");
    let body: String = (0..1_500)
        .map(|n| format!("{{\"id\":\"{n}\",\"at\":{n},\"note\":\"first\"}}\n"))
        .collect();
    let first = end(&import(&server, "t", FORMATS[1], Some("k"), body.as_bytes()));
    assert_eq!(first["written"], 1_500);
    let change = json!({"rows": [{"op": "put", "key": {"id": "7", "at": 7}, "columns": {"note": "later"}}]});
    server
        .json("POST", "/v1/tables/t/rows", &change.to_string())
        .expect(200);
    let again = end(&import(&server, "t", FORMATS[1], Some("k"), body.as_bytes()));
    assert_eq!(again["written"], 1_500);
    let later = rows(&server, "t").into_iter().filter(|row| row.contains("later"));
    assert_eq!(later.count(), 1, "the row was not written again");
    let other = import(&server, "t", FORMATS[1], Some("k"), b"{\"id\":\"x\",\"at\":1}");
    assert_eq!(other.status, 422);
}

#[test]
fn a_key_without_room_for_the_numbers_of_entries_is_refused_before_the_first_one() {
    let server = Server::start();
    create(&server, "t");
    let line = b"{\"id\":\"x\",\"at\":1}";
    let refused = import(&server, "t", FORMATS[1], Some(&"k".repeat(240)), line);
    assert!(refused.text().contains("\"over_limit\""), "{}", refused.text());
    assert!(rows(&server, "t").is_empty());
    let fits = end(&import(&server, "t", FORMATS[1], Some(&"k".repeat(230)), line));
    assert_eq!(fits["written"], 1);
}

#[test]
fn an_import_may_be_compressed() {
    let server = Server::start();
    create(&server, "t");
    let lines: String = (0..1_500)
        .map(|n| format!("{{\"id\":\"i\",\"at\":{n}}}\n"))
        .collect();
    for (encoding, packed) in compressed(lines.as_bytes()) {
        let headers = [("content-type", FORMATS[1]), ("content-encoding", encoding)];
        let imported = server.send("POST", "/v1/tables/t/rows/import", &headers, &packed);
        assert_eq!(end(&imported)["written"], 1_500, "{encoding}");
    }
}

#[test]
fn a_damaged_end_keeps_the_rows_before_and_names_the_reason() {
    let server = Server::start();
    create(&server, "t");
    let mut body: String = std::iter::once("id,at\n".to_owned())
        .chain((0..1_200).map(|n| format!("{n},{n}\n")))
        .collect();
    body.push_str("\"open");
    let imported = end(&import(&server, "t", FORMATS[0], None, body.as_bytes()));
    assert_eq!(imported["written"], 1_000, "the entries that were complete");
    assert!(
        imported["stopped"]
            .as_str()
            .is_some_and(|it| it.contains("quote")),
        "{imported}"
    );
    let nothing = import(&server, "t", FORMATS[0], None, b"id,at\n\"open");
    assert_eq!(nothing.status, 400, "nothing was written");
}

#[test]
fn announced_sizes_are_checked_before_memory_is_allocated() {
    let server = Server::start();
    create(&server, "t");
    let mut stream = Vec::new();
    let batch = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]);
    let batch = batch.expect("a batch");
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).expect("a writer");
    writer.write(&batch).expect("a batch");
    drop(writer);
    // Overwrites the size of the metadata of the first message with one over the limit.
    let mut huge = stream.clone();
    huge[4..8].copy_from_slice(&0x7fff_ff00_u32.to_le_bytes());
    for (body, what) in [
        (huge, "over the limit"),
        (stream[..stream.len() - 9].to_vec(), "cut off"),
    ] {
        let refused = import(&server, "t", FORMATS[2], None, &body);
        assert_eq!(refused.status, 400);
        assert!(refused.text().contains(what), "{}", refused.text());
    }
    let mut line = Vec::new();
    line.write_all(b"id,at\n\"").expect("memory");
    line.resize(17 << 20, b'x');
    let refused = import(&server, "t", FORMATS[0], None, &line);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("over the limit"), "{}", refused.text());
}
