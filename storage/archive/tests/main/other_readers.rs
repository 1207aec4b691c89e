//! Files of points and of rows are readable by foreign tools: DuckDB and pyarrow.
//!
//! DuckDB has timestamps with a time zone in microseconds only; pyarrow preserves nanoseconds.
//!
//! Both tools are installed from PyPI into a directory under the target directory. If the installation fails, the test
//! is skipped with a message; with `CI=true` the test fails.

use std::path::Path;

use tideline_archive::rows::{RowColumnKind, RowGroup};
use tideline_model::ValueType;
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_testkit::python::Environment;

use crate::kit::{Known, Points, archive, floats, in_directory, write};

const SCRIPT: &str = r#"
import sys, math, duckdb, pyarrow.parquet as pq, pyarrow.dataset as ds
root = sys.argv[1]
con = duckdb.connect()
wide = f"read_parquet('{root}/default/measurement=*/day=*/*.parquet', hive_partitioning=true)"
print(con.sql(f"""select measurement, cast(day as varchar), host, count(*), sum(n), min(epoch_ns(time)), max(epoch_ns(time)),
    count("n:float") from {wide} group by all order by all""").fetchall())
print(con.sql(f"select count(distinct timeline), count(*) filter (isnan(value)) from {wide}").fetchall())
shared = f"read_parquet('{root}/default/_shared/day=*/*.parquet')"
print(con.sql(f"select measurement, tags['host'], field, float, string, epoch_ns(time) from {shared} order by time, field").fetchall())
who = f"read_parquet('{root}/default/_segments/*.timelines.parquet')"
print(con.sql(f"select w.measurement, w.tags['host'], count(*) from {wide} d join {who} w using (timeline) group by all order by all").fetchall())
table = ds.dataset(f"{root}/default/measurement=cpu", format="parquet", partitioning="hive").to_table()
print(table.schema.field("time").type, table.schema.field("n").type, table.schema.field("ok").type, table.num_rows)
values = [v for v in table.column("value").to_pylist() if v is not None]
print(len(values), sum(1 for v in values if math.isnan(v)))
"#;

/// Returns an environment with both tools; `None` if the test is to be skipped.
fn readers() -> Option<Environment> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-readers");
    Environment::with(&home, &["duckdb==1.4.1", "pyarrow==21.0.0"])
}

#[test]
fn duckdb_and_pyarrow_read_the_same() {
    let Some(readers) = readers() else {
        return;
    };
    let mut known = Known::default();
    for (field, name, of) in [
        (1, "value", ValueType::Float),
        (2, "n", ValueType::Unsigned),
        (2, "n", ValueType::Float),
        (3, "ok", ValueType::Boolean),
    ] {
        known.field("cpu", field, name, of);
    }
    known.field("rare", 1, "value", ValueType::Float);
    known.field("rare", 4, "note", ValueType::String);
    let mut points = Points::new();
    for number in 0..4 {
        let id = known.timeline(number, "cpu", &[("host", ["a", "b"][number as usize % 2])]);
        let start = NANOS_PER_DAY - 5_000 * NANOS_PER_SECOND;
        let nan = |row: usize| {
            if row.is_multiple_of(1_000) {
                f64::NAN
            } else {
                row as f64
            }
        };
        let mut run = floats(start, NANOS_PER_SECOND, 10_000, 1, nan);
        let unsigned = tideline_model::ColumnData::Unsigned((0..10_000).map(|row| row % 10).collect());
        let truths = tideline_model::ColumnData::Boolean((0..10_000).map(|row| row % 2 == 0).collect());
        for (field, values) in [(2, unsigned), (3, truths)] {
            run.columns.push(tideline_chunk::RunColumn {
                field: tideline_model::FieldId(field),
                presence: tideline_chunk::Presence::All,
                values,
            });
        }
        points.insert(id, vec![run]);
    }
    let id = known.timeline(9, "rare", &[("host", "c")]);
    let mut run = floats(-1_000, 1_000, 2, 1, |row| row as f64 + 0.5);
    run.columns.push(tideline_chunk::RunColumn {
        field: tideline_model::FieldId(4),
        presence: tideline_chunk::Presence::Some([false, true].into_iter().collect()),
        values: tideline_model::ColumnData::String(["ünique"].into_iter().collect()),
    });
    points.insert(id, vec![run]);
    let directory = tempfile::tempdir().expect("made");
    let address = in_directory(directory.path());
    write(&archive(directory.path()), &address, &known, &points);
    let root = address.strip_prefix("file://").expect("it begins so");
    let printed = readers
        .run("python", &["-c", SCRIPT, root])
        .unwrap_or_else(|error| panic!("{error}"));
    let lines: Vec<&str> = printed.lines().collect();
    let day = NANOS_PER_DAY;
    let second = NANOS_PER_SECOND;
    let row = |date: &str, host: &str, first: i64, last: i64| {
        format!("('cpu', '{date}', '{host}', 10000, 45000, {first}, {last}, 0)")
    };
    let expected = [
        row("1970-01-01", "a", day - 5_000 * second, day - second),
        row("1970-01-01", "b", day - 5_000 * second, day - second),
        row("1970-01-02", "a", day, day + 4_999 * second),
        row("1970-01-02", "b", day, day + 4_999 * second),
    ];
    assert_eq!(lines[0], format!("[{}]", expected.join(", ")));
    assert_eq!(lines[1], "[(4, 40)]");
    assert_eq!(
        lines[2],
        "[('rare', 'c', 'value', 0.5, None, -1000), ('rare', 'c', 'note', None, 'ünique', 0), \
         ('rare', 'c', 'value', 1.5, None, 0)]"
    );
    assert_eq!(lines[3], "[('cpu', 'a', 40000), ('cpu', 'b', 40000)]");
    assert_eq!(lines[4], "timestamp[ns, tz=UTC] uint64 bool 40000");
    assert_eq!(lines[5], "40000 40");
}

const ROWS_SCRIPT: &str = r#"
import sys, duckdb, pyarrow.parquet as pq
path = sys.argv[1]
table = pq.read_table(path, partitioning=None)
print([f"{field.name}:{field.type}" for field in table.schema])
columns = ["_key", "text", "text_or_null", "bytes", "float", "signed", "unsigned_or_null", "boolean_or_null"]
rows = table.select(columns).to_pylist()
print(rows[0], rows[1], rows[-1])
names = ", ".join(f'"{name}"' for name in columns)
with_duckdb = duckdb.sql(f"select {names} from read_parquet('{path}') order by _key").fetchall()
assert with_duckdb == [tuple(row.values()) for row in rows]
print(duckdb.sql(f"select count(*), sum(signed), max(epoch_ns(time)) from read_parquet('{path}') where unsigned > 8000").fetchall())
"#;

#[test]
fn duckdb_and_pyarrow_read_rows_of_wide_tables() {
    let Some(readers) = readers() else {
        return;
    };
    let directory = tempfile::tempdir().expect("made");
    let (archive, schema) = (archive(directory.path()), crate::rows::schema());
    let part_target = crate::rows::part_target(directory.path());
    let mut writer = archive
        .rows_writer(part_target.clone(), schema.clone())
        .expect("a writer");
    for from in [0, 5_000] {
        let mut group = RowGroup::new(&schema);
        for row in from..from + 5_000_i64 {
            for (column, of) in group.columns.iter_mut().zip(schema.columns()) {
                if !of.required && row % 3 == 0 {
                    column.push_absent();
                    continue;
                }
                match of.kind {
                    RowColumnKind::Sorted => column.push_bytes(format!("{row:06}").as_bytes()),
                    RowColumnKind::Text => column.push_bytes(["ünique", "b"][row as usize % 2].as_bytes()),
                    RowColumnKind::Json => column.push_bytes(format!("{{\"n\":{row}}}").as_bytes()),
                    RowColumnKind::Bytes => column.push_bytes(&row.to_be_bytes()),
                    RowColumnKind::Float => column.push_float(row as f64 / 8.0),
                    RowColumnKind::Signed => column.push_integer(-row * row),
                    RowColumnKind::Unsigned | RowColumnKind::Time => column.push_integer(row),
                    RowColumnKind::Boolean => column.push_boolean(row % 2 == 0),
                }
            }
            group.rows += 1;
        }
        writer.add(&group).expect("it is added");
    }
    let written = writer.finish().expect("they are written");
    let root = part_target.target.strip_prefix("file://").expect("it begins so");
    let path = Path::new(root).join(&written.files[0].key);
    let printed = readers
        .run("python", &["-c", ROWS_SCRIPT, path.to_str().expect("a path")])
        .unwrap_or_else(|error| panic!("{error}"));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[0],
        "['_key:binary', 'text:string', 'text_or_null:string', 'json:extension<arrow.json>', 'json_or_null:extension<arrow.json>', \
         'bytes:binary', 'bytes_or_null:binary', 'float:double', 'float_or_null:double', 'signed:int64', \
         'signed_or_null:int64', 'unsigned:uint64', 'unsigned_or_null:uint64', 'boolean:bool', \
         'boolean_or_null:bool', 'time:timestamp[ns, tz=UTC]', 'time_or_null:timestamp[ns, tz=UTC]']"
    );
    let first = r"{'_key': b'000000', 'text': 'ünique', 'text_or_null': None, 'bytes': b'\x00\x00\x00\x00\x00\x00\x00\x00', 'float': 0.0, 'signed': 0, 'unsigned_or_null': None, 'boolean_or_null': None}";
    let second = r"{'_key': b'000001', 'text': 'b', 'text_or_null': 'b', 'bytes': b'\x00\x00\x00\x00\x00\x00\x00\x01', 'float': 0.125, 'signed': -1, 'unsigned_or_null': 1, 'boolean_or_null': False}";
    assert!(
        lines[1].starts_with(&format!("{first} {second} ")),
        "{}",
        lines[1]
    );
    assert_eq!(lines[2], "[(1999, -162584667000, 9000)]");
}
