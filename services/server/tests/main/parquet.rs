//! Tests of `tideline write` with Parquet: columns become timestamps, tags and fields, and the type of a column
//! determines the value type of its field. Batches are bounded, runs can be resumed, and histograms are skipped. The
//! last test covers the output formats that endings of files select.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{Int64Type, Int96, Int96Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::lab::{Lab, Pretender, at_home, ended};

fn write(path: &Path, columns: Vec<(&str, ArrayRef)>, compression: Compression, group_rows: usize) {
    write_noted(path, columns, compression, group_rows, None);
}

/// Writes a file, with `notes` as the column metadata that exports and archives contain.
fn write_noted(
    path: &Path,
    columns: Vec<(&str, ArrayRef)>,
    compression: Compression,
    group_rows: usize,
    notes: Option<&str>,
) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.expect("columns of one length");
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(group_rows))
        .set_key_value_metadata(notes.map(|notes| {
            vec![
                KeyValue::new("tideline.columns".to_owned(), notes.to_owned()),
                KeyValue::new("tideline.measurement".to_owned(), "m".to_owned()),
            ]
        }))
        .build();
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a whole file");
}

#[test]
fn columns_become_points_by_their_types() {
    let lab = Lab::start();
    let start = 1_700_000_000_000_000_i64;
    let file = lab.path("a.parquet");
    write(
        &file,
        vec![
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from(vec![
                    Some(start),
                    Some(start + 1),
                    None,
                    Some(-5),
                ])),
            ),
            ("host", Arc::new(StringArray::from(vec!["a b", "ü\"", "c", "d"]))),
            (
                "rack",
                Arc::new(Int32Array::from(vec![Some(7), None, None, Some(-1)])),
            ),
            (
                "f",
                Arc::new(Float64Array::from(vec![
                    Some(0.1),
                    Some(f64::NAN),
                    None,
                    Some(-0.0),
                ])),
            ),
            (
                "n",
                Arc::new(Int64Array::from(vec![
                    Some(i64::MIN),
                    None,
                    Some(1),
                    Some(i64::MAX),
                ])),
            ),
            (
                "u",
                Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None, None])),
            ),
            (
                "ok",
                Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, None])),
            ),
            (
                "note",
                Arc::new(LargeStringArray::from(vec![
                    Some("two\nlines"),
                    None,
                    None,
                    Some(""),
                ])),
            ),
            (
                "day",
                Arc::new(Date32Array::from(vec![Some(1), None, None, None])),
            ),
            (
                "price",
                Arc::new(
                    Decimal128Array::from(vec![Some(12_345), None, None, None])
                        .with_precision_and_scale(10, 2)
                        .expect("it fits"),
                ),
            ),
        ],
        Compression::SNAPPY,
        1_000,
    );
    let shown = file.display().to_string();
    let mapping = [
        "--measurement",
        "m",
        "--tag",
        "host",
        "--tag",
        "rack",
        "--time",
        "ts",
    ];
    let ended = lab.run(&[&["write", &*shown][..], &mapping].concat());
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.err.contains(&format!("{shown}:3: bad timestamp")) && ended.err.contains("1 of 4 rows"),
        "rows are counted from 1: {ended:?}"
    );
    let mut lines: Vec<serde_json::Value> = lab
        .ok(&["export", "--format", "ndjson"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    lines.sort_by_key(|line| line["time"].as_i64());
    let wanted = serde_json::json!([
        {"measurement": "m", "tags": {"host": "d", "rack": "-1"}, "time": -5_000,
         "fields": {"f": {"float": -0.0}, "n": i64::MAX, "note": ""}},
        {"measurement": "m", "tags": {"host": "a b", "rack": "7"}, "time": start * 1_000,
         "fields": {"f": {"float": 0.1}, "n": i64::MIN, "u": {"unsigned": u64::MAX}, "ok": true, "note": "two\nlines",
                    "day": 86_400_000_000_000_i64, "price": {"float": 123.45}}},
        {"measurement": "m", "tags": {"host": "ü\""}, "time": start * 1_000 + 1_000,
         "fields": {"f": {"float": "NaN"}, "u": {"unsigned": 0}, "ok": false}},
    ]);
    assert_eq!(serde_json::Value::from(lines), wanted);

    for (line, said) in [
        (&["--tag", "f"][..], "column f: its type Float64 is not supported"),
        (&["--time", "ok"], "column ok: its type Boolean is not a time"),
        (&["--tag", "hosst"], "there is no column \"hosst\""),
        (&["--columns", "a,b"], "apply to CSV only; Parquet has names"),
    ] {
        let ended = lab.run(&[&["write", &*shown, "--measurement", "m"], line].concat());
        assert!(ended.code == 2 && ended.err.contains(said), "{line:?}: {ended:?}");
    }
    let broken = lab.file("broken.parquet", "PAR1 and no more");
    let ended = lab.run(&["write", &broken, "--measurement", "m"]);
    assert!(
        ended.code == 1 && ended.err.contains("broken.parquet: "),
        "{ended:?}"
    );
    assert_eq!(lab.feed(&["write", "-", "--format", "parquet"], b"").code, 2);
}

#[test]
fn many_row_groups_are_sent_in_batches_and_resumed_by_rows() {
    const ROWS: usize = 25_000;
    let home = tempfile::tempdir().expect("a folder");
    let rows = 0..ROWS as i64;
    write(
        &home.path().join("many.parquet"),
        vec![
            (
                "time",
                Arc::new(Int64Array::from_iter_values(
                    rows.clone().map(|row| 1_700_000_000 + row),
                )),
            ),
            (
                "measurement",
                Arc::new(StringArray::from_iter_values(
                    rows.clone().map(|row| format!("m{}", row % 3)),
                )),
            ),
            (
                "host",
                Arc::new(StringArray::from_iter_values(
                    rows.clone().map(|row| format!("h{}", row % 40)),
                )),
            ),
            ("v", Arc::new(Int64Array::from_iter_values(rows))),
        ],
        Compression::ZSTD(ZstdLevel::default()),
        3_000,
    );
    let server = Pretender::start(|number, request| {
        let lines = request.body.iter().filter(|byte| **byte == b'\n').count();
        let refused = r#"{"code":"unauthenticated","message":"no token"}"#;
        let stored =
            format!(r#"{{"points":{lines},"values":{lines},"rejected":0,"rejects":[],"retryable":0}}"#);
        match number {
            5 => (401, "", refused.to_owned()),
            _ => (200, "", stored),
        }
    });
    let line = [
        "write",
        "many.parquet",
        "--tag",
        "host",
        "--time-format",
        "s",
        "--resume",
        "r",
        "--parallel",
        "1",
        "--batch-rows",
        "1700",
        "--server",
        &server.url,
    ];
    let first = ended(at_home(&line, home.path()));
    assert_eq!((first.code, server.requests().len()), (1, 6), "{first:?}");
    let second = ended(at_home(&line, home.path()));
    assert_eq!(second.code, 0, "{second:?}");
    assert!(second.out.contains("were acknowledged before"), "{second:?}");
    let mut requests = server.requests();
    requests.remove(5);
    let sent: String = requests
        .iter()
        .map(|request| crate::process::text(&request.body))
        .collect();
    let lines: Vec<&str> = sent.lines().collect();
    assert_eq!(lines.len(), ROWS, "each row once");
    assert_eq!(
        lines[7],
        r#"{"measurement":"m1","time":1700000007000000000,"tags":{"host":"h7"},"fields":{"v":7}}"#
    );
    assert!(lines[ROWS - 1].contains(&format!("\"v\":{}", ROWS - 1)));
    assert!(
        requests
            .iter()
            .all(|request| request.body.iter().filter(|byte| **byte == b'\n').count() <= 1_700)
    );
}

#[test]
fn times_of_the_old_type_beyond_nanoseconds_are_refused_and_not_turned_into_others() {
    const UNIX_DAY: i64 = 2_440_588;
    const DAY: i128 = 86_400_000_000_000;
    let lab = Lab::start();
    let file = lab.path("old.parquet");
    // `beyond` has timestamps just outside the range that can be stored, and timestamps that would wrap around to a
    // current time. `within` has valid timestamps.
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let now = 1_700_000_000_123_456_789_i128;
    let around = 1_i128 << 64;
    let beyond = [least - 1, most + 1, now + around, now - around, now + 3 * around];
    let within = [now, -1, most];
    let int96 = |nanos: i128| {
        let day = UNIX_DAY + i64::try_from(nanos.div_euclid(DAY)).expect("a day");
        let of_day = nanos.rem_euclid(DAY) as u64;
        Int96::from(vec![of_day as u32, (of_day >> 32) as u32, day as u32])
    };
    let schema = "message m { optional int96 t; optional int96 seen; required int64 v; }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut writer =
        SerializedFileWriter::new(File::create(&file).expect("a file"), schema, Default::default())
            .expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let times: Vec<Int96> = beyond.into_iter().chain(within).map(int96).collect();
    let present = vec![1_i16; times.len()];
    let mut column = group.next_column().expect("times").expect("times");
    let values = column.typed::<Int96Type>();
    values.write_batch(&times, Some(&present), None).expect("times");
    column.close().expect("times");
    let mut column = group.next_column().expect("fields").expect("fields");
    // Only the last row has a value, which is also out of range.
    let mut is_there = vec![0_i16; times.len()];
    is_there[times.len() - 1] = 1;
    let values = column.typed::<Int96Type>();
    values
        .write_batch(&[int96(now + around)], Some(&is_there), None)
        .expect("fields");
    column.close().expect("fields");
    let mut column = group.next_column().expect("values").expect("values");
    let numbers: Vec<i64> = (0..times.len() as i64).collect();
    let values = column.typed::<Int64Type>();
    values.write_batch(&numbers, None, None).expect("values");
    column.close().expect("values");
    group.close().expect("a row group");
    writer.close().expect("a whole file");

    let shown = file.display().to_string();
    let rejects = lab.path("rejects");
    let ended = lab.run(&[
        "write",
        &shown,
        "--measurement",
        "m",
        "--time",
        "t",
        "--rejects",
        &rejects.display().to_string(),
    ]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let text = std::fs::read_to_string(&rejects).expect("rejects");
    for row in 1..=beyond.len() {
        let named = format!("{shown}:{row}: ");
        let line = text.lines().find(|line| line.contains(&named));
        assert!(
            line.is_some_and(|line| line.contains("bad timestamp")),
            "row {row} in {text}"
        );
    }
    let last = format!("{shown}:{}: ", times.len());
    assert!(
        text.contains(&last) && ended.err.contains("6 of 8 rows"),
        "{text}{ended:?}"
    );
    let response = lab.run(&["query", "--field", "v", "--output", "csv"]);
    let stored: Vec<&str> = response.out.lines().skip(1).collect();
    assert_eq!(stored.len(), 2, "{response:?}");
    assert!(
        stored[0].contains("1969-12-31T23:59:59.999999999Z") && stored[0].ends_with(",6"),
        "{stored:?}"
    );
    assert!(
        stored[1].contains("2023-11-14T22:13:20.123456789Z") && stored[1].ends_with(",5"),
        "{stored:?}"
    );
}

#[test]
fn columns_of_histograms_are_passed_over_and_counted() {
    let lab = Lab::start();
    let texts = vec![Some("{{count:1 sum:1}}"), Some("{{count:2 sum:2}}"), None];
    // The column in the form of an export (text) and in the form of an archive (bytes).
    let stored = texts.iter().map(|text| text.map(str::as_bytes)).collect();
    let forms: [(&str, ArrayRef); 2] = [
        ("exported", Arc::new(StringArray::from(texts.clone()))),
        ("archived", Arc::new(BinaryArray::from_opt_vec(stored))),
    ];
    let notes = r#"[{"column":"time"},{"column":"h","field":"h","type":"histogram"},
        {"column":"v","field":"v","type":"float"}]"#;
    for (table, histograms) in forms {
        let file = lab.path(&format!("{table}.parquet"));
        let times = TimestampMicrosecondArray::from(vec![1, 2, 3]).with_timezone("UTC");
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("time", Arc::new(times)),
            ("h", histograms),
            (
                "v",
                Arc::new(Float64Array::from(vec![Some(0.5), None, Some(2.5)])),
            ),
        ];
        write_noted(&file, columns, Compression::SNAPPY, 2, Some(notes));
        lab.ok(&["tables", "create", table]);
        let ended = lab.run(&["write", &file.display().to_string(), "--table", table]);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(
            ended.err.contains("2 native histograms are skipped")
                && ended.err.contains("2 native histograms were not stored"),
            "{ended:?}"
        );
        assert_eq!(
            lab.ok(&["export", "--table", table]),
            "m v=0.5 1000\nm v=2.5 3000\n",
            "the second row has nothing else"
        );
        assert!(!lab.ok(&["fields", "--table", table]).contains("string"));
    }
}

#[test]
fn the_ending_of_a_file_chooses_its_format() {
    let lab = Lab::start();
    let points = lab.file("in.lp", "m,host=a v=1 1700000000000000000\n");
    lab.ok(&["write", &points]);
    let written = |command: &str, name: &str| {
        let path = lab.path(name);
        lab.ok(&[command, "--out", &path.display().to_string()]);
        std::fs::read(path).expect("a file")
    };
    for command in ["export", "query"] {
        assert!(written(command, "x.parquet").starts_with(b"PAR1"), "{command}");
        let csv = String::from_utf8(written(command, "x.CSV")).expect("text");
        assert!(csv.lines().next().is_some_and(|head| head.contains(',')), "{csv}");
        let ndjson = written(command, "x.ndjson");
        assert!(ndjson.starts_with(b"{"), "{command}");
        let path = lab.path("x.xlsx");
        let refused = lab.run(&[command, "--out", &path.display().to_string()]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.err.contains(".parquet") && refused.err.contains("x.xlsx"),
            "{refused:?}"
        );
        assert!(!path.exists(), "{command} leaves no file");
    }
    assert_eq!(written("export", "x.lp"), b"m,host=a v=1 1700000000000000000\n");
    assert!(written("query", "x.json").starts_with(b"{"));
    let chosen = lab.path("named.xlsx");
    lab.ok(&[
        "export",
        "--format",
        "csv",
        "--out",
        &chosen.display().to_string(),
    ]);
    assert!(chosen.exists(), "a format that is named needs no ending");
}
