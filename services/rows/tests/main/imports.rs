//! Tests of imports: damaged files and values that no column can hold are refused, and never cause a panic.
//!
//! The files are written by the Arrow and Parquet libraries, and then damaged at random places.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use serde_json::json;
use tideline_engine::backend::memory::Character;
use tideline_rows::import::{ImportSettings, ImportSource, Imported, import};
use tideline_rows::{RowsError, WriteSettings};

use crate::database::{Database, memory};

fn database() -> Database {
    let wide =
        json!({"key": [{"name": "id", "type": "string"}], "columns": [{"name": "at", "type": "timestamp"}]});
    Database::new(memory(Character::Embedded), &wide)
}

/// Imports a file. Returns the result, and the reasons of the refused records.
fn run(database: &Database, source: ImportSource) -> (Result<Imported, RowsError>, Vec<String>) {
    let mut reasons = Vec::new();
    let imported = import(
        database.engine(),
        &database.table(),
        source,
        &ImportSettings::default(),
        &|| false,
        &mut |outcome| {
            reasons.extend(outcome.reason.clone());
            Ok(())
        },
    );
    (imported, reasons)
}

fn stream(bytes: Vec<u8>) -> ImportSource {
    ImportSource::Arrow(Box::new(Cursor::new(bytes)))
}

fn batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        ("n", Arc::new(Int64Array::from(vec![Some(7), None, Some(-7)]))),
        (
            "at",
            Arc::new(TimestampNanosecondArray::from(vec![Some(0), None, Some(1)])),
        ),
        (
            "paid",
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ),
        (
            "raw",
            Arc::new(BinaryArray::from(vec![b"bytes".as_slice(), b"", b"x"])),
        ),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn arrow(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer
        .write(batch)
        .and_then(|()| writer.finish())
        .expect("a stream");
    bytes
}

fn parquet_file() -> Vec<u8> {
    let batch = batch();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a file");
    bytes
}

/// Changes of bytes: a position, which is taken modulo the size of the file, and a mask.
fn flips() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((any::<usize>(), 1_u8..), 1..4)
}

fn flipped(mut bytes: Vec<u8>, flips: &[(usize, u8)]) -> Vec<u8> {
    let size = bytes.len();
    for (position, mask) in flips {
        bytes[position % size] ^= mask;
    }
    bytes
}

/// Returns true if an import has ended, or was refused because of its file.
fn is_expected(imported: &Result<Imported, RowsError>) -> bool {
    matches!(
        imported,
        Ok(_) | Err(RowsError::Invalid(_) | RowsError::OverLimit { .. } | RowsError::Input(_))
    )
}

#[test]
fn a_damaged_buffer_of_an_arrow_stream_is_refused() {
    let database = database();
    let valid = arrow(&batch());
    let mut outside = 0;
    for position in 0..valid.len() {
        for mask in [0x80, 0xff] {
            let (imported, _) = run(&database, stream(flipped(valid.clone(), &[(position, mask)])));
            assert!(is_expected(&imported), "{position} {mask}: {imported:?}");
            let error = imported.err().map(|error| error.to_string());
            outside += usize::from(error.is_some_and(|error| error.contains("is outside of its batch")));
        }
    }
    assert!(outside > 0, "a damaged buffer is found before it is read");
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(200))]

    #[test]
    fn damaged_arrow_streams_are_imported_or_refused(changes in flips()) {
        let (imported, _) = run(&database(), stream(flipped(arrow(&batch()), &changes)));
        prop_assert!(is_expected(&imported), "{:?}", imported);
    }

    #[test]
    fn damaged_parquet_files_are_imported_or_refused(changes in flips()) {
        let file = Bytes::from(flipped(parquet_file(), &changes));
        let (imported, _) = run(&database(), ImportSource::Parquet(file));
        prop_assert!(is_expected(&imported), "{:?}", imported);
    }
}

#[test]
fn a_time_out_of_range_is_refused_with_its_record() {
    let database = database();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        (
            "at",
            Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, 0, i64::MAX])),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let (imported, reasons) = run(&database, stream(arrow(&batch)));
    let counts = imported.expect("it ends").counts;
    assert_eq!((counts.written, counts.refused), (1, 2));
    assert!(
        reasons
            .iter()
            .all(|reason| reason.contains("column \"at\"") && reason.contains("is out of range")),
        "{reasons:?}"
    );
}

fn csv(text: &'static str) -> ImportSource {
    ImportSource::Csv(Box::new(Cursor::new(text)))
}

#[test]
fn csv_whose_lines_end_with_carriage_returns_is_refused() {
    for text in ["id,n\rx,1\ry,2\r", "id,n\rx,1\r", "id,n\rx,1\n"] {
        let (imported, _) = run(&database(), csv(text));
        assert!(
            matches!(&imported, Err(RowsError::Invalid(reason)) if reason.contains("line feed")),
            "{text:?}: {imported:?}"
        );
    }
    let (imported, _) = run(&database(), csv("id,n\r\nx,1\r\n"));
    assert_eq!(imported.expect("it ends").counts.written, 1);
}

#[test]
fn an_idempotency_key_of_another_file_is_named_as_the_client_sent_it() {
    let database = database();
    let settings = ImportSettings {
        write: WriteSettings {
            key: Some("k1".to_owned()),
            ..WriteSettings::default()
        },
        ..ImportSettings::default()
    };
    let send = |text: &'static str| {
        import(
            database.engine(),
            &database.table(),
            csv(text),
            &settings,
            &|| false,
            &mut |_| Ok(()),
        )
    };
    let first = send("id,n\nx,1\n").expect("it is imported");
    let again = send("id,n\nx,1\n").expect("it is repeated");
    assert!(first.position.is_some() && again.position >= first.position);
    let reused = send("id,n\nx,2\n").expect_err("the key is used").to_string();
    assert!(reused.contains("\"k1\""), "{reused}");
}
