//! Rows as Arrow streams and Parquet files, decoded with the crates of the formats: types, exact values, pages.
//!
//! CSV and refusals are tested by `tests/scenarios/36-rows-formats.txt`.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, TimestampNanosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::client::{Response, Server};

const ARROW: &str = "application/vnd.apache.arrow.stream";
const PARQUET: &str = "application/vnd.apache.parquet";

fn create(server: &Server) {
    let body = json!({"name": "t", "model": "wide", "wide": {
        "key": [
            {"name": "spread", "bucket": {"of": ["n"], "count": 4}},
            {"name": "n", "type": "u64"}
        ],
        "columns": [
            {"name": "total", "type": "decimal"}, {"name": "at", "type": "timestamp"}, {"name": "raw", "type": "binary"},
            {"name": "paid", "type": "bool"}, {"name": "rate", "type": "f64"}, {"name": "doc", "type": "json"}
        ]
    }});
    server.json("POST", "/v1/tables", &body.to_string()).expect(201);
}

fn put(server: &Server, rows: &[Value]) {
    let body = json!({"rows": rows}).to_string();
    server.json("POST", "/v1/tables/t/rows", &body).expect(200);
}

fn scan(server: &Server, accept: &str, query: &str, body: &Value) -> Response {
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let path = format!("/v1/tables/t/rows/scan{query}");
    server.send("POST", &path, &headers, body.to_string().as_bytes())
}

fn of_stream(bytes: &[u8]) -> Vec<RecordBatch> {
    let reader = StreamReader::try_new(bytes, None).expect("a stream");
    reader.map(|batch| batch.expect("whole")).collect()
}

fn names(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    let fields = schema.fields().iter();
    fields
        .map(|field| format!("{}: {}", field.name(), field.data_type()))
        .collect()
}

#[test]
fn values_keep_their_types_and_digits_in_both_formats() {
    let server = Server::start();
    create(&server);
    put(
        &server,
        &[
            json!({"op": "put", "key": {"n": u64::MAX}, "columns": {"total": "12345678901234567890123456789.01",
                "at": "1969-12-31T23:59:59.999999999Z", "raw": "AAE=", "paid": false, "rate": 0.1,
                "doc": {"deep": [1.50]}, "color": "red"}}),
            json!({"op": "put", "key": {"n": 1}}),
        ],
    );
    let all = json!({"allow_scan": true});
    let file = scan(&server, PARQUET, "", &all);
    assert_eq!((file.status, file.header("content-type")), (200, PARQUET));
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file.body)).expect("a file");
    let notes = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .cloned()
        .unwrap_or_default();
    let summary = notes.iter().find(|note| note.key == "tideline.summary");
    let summary = summary.and_then(|note| note.value.clone()).expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary, json!({"scanned": 2, "returned": 2, "next": null}));
    let of_file: Vec<RecordBatch> = reader
        .build()
        .expect("a reader")
        .map(|batch| batch.expect("whole"))
        .collect();
    let of_stream = of_stream(&scan(&server, ARROW, "", &all).body);
    for batches in [of_file, of_stream] {
        let [batch] = batches.as_slice() else {
            panic!("{} batches", batches.len())
        };
        let times = "Timestamp(ns, \"UTC\")";
        assert_eq!(
            names(batch),
            [
                "n: UInt64",
                "total: Utf8",
                &format!("at: {times}"),
                "raw: Binary",
                "paid: Boolean",
                "rate: Float64",
                "doc: Utf8",
                "*: Utf8"
            ]
        );
        assert_eq!(batch.num_rows(), 2);
        assert_eq!(
            batch.column(0).as_primitive::<UInt64Type>().values(),
            &[1, u64::MAX]
        );
        assert!(
            (1..8).all(|column| batch.column(column).is_null(0)),
            "a row of its key alone"
        );
        let text = |column: usize| batch.column(column).as_string::<i32>().value(1);
        assert_eq!(text(1), "12345678901234567890123456789.01");
        let at = batch.column(2).as_primitive::<TimestampNanosecondType>();
        assert_eq!(at.value(1), -1);
        assert_eq!(batch.column(3).as_binary::<i32>().value(1), [0, 1]);
        assert!(!batch.column(4).as_boolean().value(1));
        assert_eq!(batch.column(5).as_primitive::<Float64Type>().value(1), 0.1);
        assert_eq!(text(6), r#"{"deep":[1.5]}"#);
        assert_eq!(text(7), r#"{"color":"red"}"#);
    }
}

#[test]
fn decimals_of_a_scale_are_exact_numbers() {
    let server = Server::start();
    create(&server);
    let put_total = |n: u64, total: &str| {
        put(
            &server,
            &[json!({"op": "put", "key": {"n": n}, "columns": {"total": total}})],
        );
    };
    put_total(1, "5.32");
    put_total(2, "-7");
    let scan = |query: &str| {
        scan(
            &server,
            ARROW,
            query,
            &json!({"allow_scan": true, "columns": ["total"]}),
        )
    };
    let batches = of_stream(&scan("?decimal_scale=4").body);
    let totals = batches[0].column(1);
    assert_eq!(totals.data_type().to_string(), "Decimal128(38, 4)");
    assert_eq!(
        totals.as_primitive::<Decimal128Type>().values(),
        &[53_200, -70_000]
    );
    put_total(3, "0.00001");
    let refused = scan("?decimal_scale=4");
    assert_eq!(refused.status, 400);
    assert_eq!(scan("?decimal_scale=39").status, 400);
}

#[test]
fn pages_of_a_columnar_scan_continue_by_their_headers() {
    let server = Server::start();
    create(&server);
    let rows: Vec<Value> = (0..25_u64)
        .map(|n| json!({"op": "put", "key": {"n": n}}))
        .collect();
    put(&server, &rows);
    let mut request = json!({"allow_scan": true, "direction": "backward", "limit": 10});
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let response = scan(&server, ARROW, "", &request);
        assert_eq!(response.status, 200);
        let (next, returned) = (
            response.header("tideline-next").to_owned(),
            response.header("tideline-returned").to_owned(),
        );
        let before = found.len();
        for batch in of_stream(&response.body) {
            found.extend(
                batch
                    .column(0)
                    .as_primitive::<UInt64Type>()
                    .values()
                    .iter()
                    .copied(),
            );
        }
        assert_eq!(returned, (found.len() - before).to_string());
        pages += 1;
        if next.is_empty() {
            break;
        }
        request["page_token"] = next.into();
    }
    assert_eq!((pages, found), (3, (0..25).rev().collect()));
}

#[test]
fn a_value_from_before_its_declaration_is_never_lost() {
    let server = Server::start();
    create(&server);
    put(
        &server,
        &[json!({"op": "put", "key": {"n": 1}, "columns": {"size": "large"}})],
    );
    let declare = r#"{"wide": {"add_columns": [{"name": "size", "type": "u64"}]}}"#;
    server.json("PATCH", "/v1/tables/t", declare).expect(200);
    let all = of_stream(&scan(&server, ARROW, "", &json!({"allow_scan": true})).body);
    let last = all[0].num_columns() - 1;
    assert!(all[0].column(last - 1).is_null(0));
    let others = all[0].column(last).as_string::<i32>().value(0);
    assert_eq!(others, r#"{"size":{"type":"string","value":"large"}}"#);
    let chosen = |columns: Value| {
        scan(
            &server,
            ARROW,
            "",
            &json!({"allow_scan": true, "columns": columns}),
        )
    };
    let refused = chosen(json!(["size"]));
    assert_eq!(refused.status, 400);
    assert!(
        String::from_utf8_lossy(&refused.body).contains("size*"),
        "it names the remedy"
    );
    assert_eq!(chosen(json!(["size", "size*"])).status, 200);
}
