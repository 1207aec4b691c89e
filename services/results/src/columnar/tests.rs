//! Tests of the writer: standard readers must decode its output. The tests also cover nulls, metadata, empty results,
//! refused values and the limits of batches and row groups.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tideline_engine::model::ValueType;
use tideline_query::ValueRef;

use super::*;

/// More rows than one batch and one row group hold.
const ROWS: i64 = 70_000;

fn columns() -> Vec<(String, ColumnType)> {
    let types = [
        ValueType::Float,
        ValueType::Signed,
        ValueType::Unsigned,
        ValueType::Boolean,
        ValueType::String,
    ];
    let values = types.iter().zip("fiubs".chars());
    let values = values.map(|(of, name)| (name.to_string(), ColumnType::Value(*of)));
    [("time".to_owned(), ColumnType::Time)]
        .into_iter()
        .chain(values)
        .chain([("any".to_owned(), ColumnType::Text)])
        .collect()
}

fn written(form: ColumnarForm) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ColumnarWriter::new(&mut out, form, &columns()).expect("memory");
    for row in 0..ROWS {
        let text = format!("t{}", row % 7);
        let values = [
            if row % 2 == 0 {
                ValueRef::Float(row as f64 / 3.0)
            } else {
                ValueRef::Signed(row)
            },
            ValueRef::Signed(i64::MIN + row),
            ValueRef::Unsigned(u64::MAX - row as u64),
            ValueRef::Boolean(row % 3 == 0),
            ValueRef::String(&text),
            if row % 2 == 0 {
                ValueRef::Boolean(true)
            } else {
                ValueRef::Float(0.5)
            },
        ];
        let cells = values.into_iter().map(|value| {
            if row % 5 == 4 {
                Cell::Null
            } else {
                Cell::Value(value)
            }
        });
        let time = if row == 0 { Cell::Null } else { Cell::Time(row - 9) };
        writer.row([time].into_iter().chain(cells)).expect("memory");
    }
    writer.end(&[("more", "false".into())]).expect("memory");
    out
}

fn check(batches: impl Iterator<Item = RecordBatch>) {
    let mut row = 0;
    for batch in batches {
        let column = |at: usize| batch.column(at);
        let times = column(0).as_primitive::<TimestampNanosecondType>();
        assert_eq!(times.timezone(), Some("UTC"));
        let floats = column(1).as_primitive::<Float64Type>();
        let signed = column(2).as_primitive::<Int64Type>();
        let unsigned = column(3).as_primitive::<UInt64Type>();
        let (booleans, texts, any) = (
            column(4).as_boolean(),
            column(5).as_string::<i32>(),
            column(6).as_string::<i32>(),
        );
        for at in 0..batch.num_rows() {
            assert_eq!(times.is_null(at), row == 0);
            assert!(row == 0 || times.value(at) == row - 9);
            let is_null = row % 5 == 4;
            assert!((1..7).all(|of| batch.column(of).is_null(at) == is_null));
            if !is_null {
                let float = if row % 2 == 0 {
                    row as f64 / 3.0
                } else {
                    row as f64
                };
                assert_eq!((floats.value(at), signed.value(at)), (float, i64::MIN + row));
                assert_eq!(
                    (unsigned.value(at), booleans.value(at)),
                    (u64::MAX - row as u64, row % 3 == 0)
                );
                assert_eq!(texts.value(at), format!("t{}", row % 7));
                assert_eq!(any.value(at), if row % 2 == 0 { "true" } else { "0.5" });
            }
            row += 1;
        }
    }
    assert_eq!(row, ROWS);
}

#[test]
fn a_stream_reads_back() {
    let out = written(ColumnarForm::ArrowStream);
    let reader = StreamReader::try_new(&out[..], None).expect("a stream");
    check(reader.map(|batch| batch.expect("whole")));
}

#[test]
fn a_file_reads_back_with_its_notes() {
    let out = bytes::Bytes::from(written(ColumnarForm::Parquet));
    let reader = ParquetRecordBatchReaderBuilder::try_new(out).expect("a file");
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let notes = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .cloned()
        .unwrap_or_default();
    assert!(
        notes
            .iter()
            .any(|note| note.key == "more" && note.value.as_deref() == Some("false"))
    );
    check(
        reader
            .build()
            .expect("readable")
            .map(|batch| batch.expect("whole")),
    );
}

#[test]
fn nothing_is_a_whole_answer_too() {
    for form in [ColumnarForm::ArrowStream, ColumnarForm::Parquet] {
        let mut out = Vec::new();
        let writer = ColumnarWriter::new(&mut out, form, &columns()).expect("memory");
        writer.end(&[]).expect("memory");
        let rows = match form {
            ColumnarForm::ArrowStream => StreamReader::try_new(&out[..], None).expect("a stream").count(),
            ColumnarForm::Parquet => {
                let reader =
                    ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(out)).expect("a file");
                reader.build().expect("readable").count()
            }
        };
        assert_eq!(rows, 0);
    }
}

#[test]
fn a_value_of_another_type_is_refused() {
    let mut out = Vec::new();
    let columns = [("i".to_owned(), ColumnType::Value(ValueType::Signed))];
    let mut writer = ColumnarWriter::new(&mut out, ColumnarForm::ArrowStream, &columns).expect("memory");
    let cell = Cell::Value(ValueRef::Float(0.5));
    let error = writer.row([cell].into_iter()).expect_err("no integer");
    assert!(error.to_string().contains("another type"), "{error}");
}

#[test]
fn long_texts_make_small_batches() {
    let columns = [("s".to_owned(), ColumnType::Value(ValueType::String))];
    let long = "x".repeat(1 << 20);
    let mut out = Vec::new();
    let mut writer = ColumnarWriter::new(&mut out, ColumnarForm::ArrowStream, &columns).expect("memory");
    for _ in 0..20 {
        let cell = Cell::Value(ValueRef::String(&long));
        writer.row([cell].into_iter()).expect("memory");
    }
    writer.end(&[]).expect("memory");
    let reader = StreamReader::try_new(out.as_slice(), None).expect("a stream");
    let rows: Vec<usize> = reader.map(|batch| batch.expect("whole").num_rows()).collect();
    assert_eq!(rows, [8, 8, 4]);
}

#[test]
fn histograms_count_as_the_texts_that_are_made_of_them() {
    let columns = [("h".to_owned(), ColumnType::Value(ValueType::Histogram))];
    let unreadable = vec![0xff; 1 << 20];
    let mut out = Vec::new();
    let mut writer = ColumnarWriter::new(&mut out, ColumnarForm::ArrowStream, &columns).expect("memory");
    for _ in 0..20 {
        let cell = Cell::Value(ValueRef::Histogram(&unreadable));
        writer.row([cell].into_iter()).expect("memory");
    }
    writer.end(&[]).expect("memory");
    let reader = StreamReader::try_new(out.as_slice(), None).expect("a stream");
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("whole")).collect();
    assert_eq!(batches[0].num_rows(), 20, "twenty short texts are one batch");
    let texts = batches[0].column(0).as_string::<i32>();
    assert!(texts.value(0).starts_with("{{unreadable"), "{}", texts.value(0));
}
