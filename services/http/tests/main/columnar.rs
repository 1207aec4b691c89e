//! Columnar results, decoded with the crates of the formats.
//!
//! Arrow and Parquet results must have the same columns and values, and errors must still be JSON.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampNanosecondType};
use arrow_ipc::reader::StreamReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::client::Server;

const POINTS: &str = "/v1/tables/default/points?precision=s";
const QUERY: &str = "/v1/tables/default/query";

fn filled() -> Server {
    let server = Server::start();
    let lines = "cpu,host=a,dc=x usage=1.5,n=1i,id=7i 1700000000\ncpu,host=a,dc=x usage=2i,s=\"one\" 1700000010\n\
                 mem,host=b n=18i,s=\"two\" 1700000000\n";
    server.post(POINTS, "text/plain", lines).expect(200);
    server
}

fn fetch(server: &Server, accept: &str, body: &str) -> Vec<u8> {
    let headers = [("content-type", "application/json"), ("accept", accept)];
    let response = server.send("POST", QUERY, &headers, body.as_bytes());
    assert_eq!((response.status, response.header("content-type")), (200, accept));
    response.body
}

/// Returns the columns of the only batch as `name: type`, and the rows. A missing value is `-`; a value that is
/// not a string, timestamp or double is `?`.
fn shown(batches: &[RecordBatch]) -> (Vec<String>, Vec<String>) {
    let [batch] = batches else {
        panic!("{} batches", batches.len())
    };
    let fields = batch.schema();
    let names = fields
        .fields()
        .iter()
        .map(|field| format!("{}: {}", field.name(), field.data_type()));
    let cell = |column: usize, row: usize| {
        let array = batch.column(column);
        if array.is_null(row) {
            return "-".to_owned();
        }
        if let Some(texts) = array.as_string_opt::<i32>() {
            return texts.value(row).to_owned();
        }
        if let Some(times) = array.as_primitive_opt::<TimestampNanosecondType>() {
            return (times.value(row) / 1_000_000_000).to_string();
        }
        let numbers = array.as_primitive_opt::<Float64Type>();
        numbers.map_or("?".into(), |numbers| numbers.value(row).to_string())
    };
    let row = |row: usize| {
        let cells: Vec<String> = (0..batch.num_columns()).map(|column| cell(column, row)).collect();
        cells.join(" ")
    };
    (names.collect(), (0..batch.num_rows()).map(row).collect())
}

fn of_stream(bytes: &[u8]) -> Vec<RecordBatch> {
    let reader = StreamReader::try_new(bytes, None).expect("a stream");
    reader.map(|batch| batch.expect("whole")).collect()
}

#[test]
fn aggregates_and_rows_read_back_from_both_forms() {
    let server = filled();
    let groups = r#"{"fields": ["usage", "n"], "range": {"start": 1700000000000000000, "end": 1700000060000000000},
        "aggregate": {"functions": ["mean"], "group_by": ["host"], "compute": [{"name": "twice", "expression": "sum(n) * 2"}]}}"#;
    let stream = of_stream(&fetch(&server, "application/vnd.apache.arrow.stream", groups));
    let file = fetch(&server, "application/vnd.apache.parquet", groups);
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).expect("a file");
    let notes = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .cloned()
        .unwrap_or_default();
    let summary = notes
        .iter()
        .find(|note| note.key == "tideline.summary")
        .expect("a note");
    let summary: serde_json::Value =
        serde_json::from_str(summary.value.as_deref().unwrap_or_default()).expect("JSON");
    assert_eq!(
        (&summary["more"], &summary["cost"]["timelines"]),
        (&false.into(), &2.into())
    );
    let file: Vec<RecordBatch> = reader
        .build()
        .expect("readable")
        .map(|batch| batch.expect("whole"))
        .collect();
    let (names, rows) = shown(&stream);
    assert_eq!(shown(&file), (names.clone(), rows.clone()));
    assert_eq!(
        names,
        [
            "measurement: Utf8",
            "host: Utf8",
            "time: Timestamp(ns, \"UTC\")",
            "mean(usage): Float64",
            "mean(n): Float64",
            "twice: Float64"
        ]
    );
    assert_eq!(rows, ["cpu a 1700000000 1.75 1 2", "mem b 1700000000 - 18 36"]);

    let rows = r#"{"timelines": {"where": {"property": "measurement", "equals": "cpu"}}}"#;
    let (names, rows) = shown(&of_stream(&fetch(
        &server,
        "application/vnd.apache.arrow.stream",
        rows,
    )));
    assert_eq!(
        names[1..],
        [
            "measurement: Utf8",
            "dc: Utf8",
            "host: Utf8",
            "time: Timestamp(ns, \"UTC\")",
            // The field was written both as a double and as an integer.
            "usage: Float64",
            "n: Int64",
            "field:id: Int64",
            "s: Utf8"
        ]
    );
    assert!(rows[0].ends_with("cpu x a 1700000000 1.5 ? ? -"), "{rows:?}");
    assert!(rows[1].ends_with("cpu x a 1700000010 2 - - one"), "{rows:?}");
}

#[test]
fn what_is_refused_is_refused_in_json() {
    let server = filled();
    let headers = [("accept", "application/vnd.apache.parquet")];
    let response = server.send("POST", QUERY, &headers, br#"{"fields": ["nothing"]}"#);
    assert_eq!(response.expect(400)["code"], "invalid");
}
