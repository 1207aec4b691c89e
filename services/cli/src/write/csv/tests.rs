//! Tests of the conversion of CSV rows to points.
//!
//! They cover roles, types, times, shared tags, replaced rows and usage errors.

use clap::Parser;

use super::*;
use crate::write::cutter::RecordBlock;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    csv: CsvArguments,
}

fn arguments(line: &[&str]) -> CsvArguments {
    let line = std::iter::once(&"x").chain(line);
    Line::try_parse_from(line)
        .unwrap_or_else(|error| panic!("{error}"))
        .csv
}

fn scanned(plan: &mut CsvPlan, rows: &str) -> Result<()> {
    let mut scan = ColumnScan::new(plan);
    let block = RecordBlock {
        start: 0,
        end: 0,
        first_line: 2,
        bytes: rows.into(),
    };
    scan.add(plan, &block);
    scan.decide(plan, "in.csv", None)
}

fn converted(line: &[&str], header: &str, rows: &str) -> (Vec<Value>, Converted) {
    let mut plan = arguments(line)
        .plan(Some(header.as_bytes()), "in/web-1.csv")
        .expect("a plan");
    scanned(&mut plan, rows).expect("one type a column");
    let converted = plan.convert(rows.as_bytes());
    let lines = converted
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    (
        lines
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect(),
        converted,
    )
}

#[test]
fn a_header_is_enough() {
    let (points, converted) = converted(
        &["--tag", "host"],
        "\u{feff}measurement,time,host,load,up,note",
        "cpu,5,a,1.5,true,\"two\nlines, \"\"quoted\"\"\"\r\ncpu,6,,3,,\nshort\ncpu,7,a,,,\n",
    );
    assert_eq!(
        points,
        [
            json!({"measurement": "cpu", "time": "5", "tags": {"host": "a"}, "fields":
                {"load": {"float": "1.5"}, "up": true, "note": "two\nlines, \"quoted\""}}),
            json!({"measurement": "cpu", "time": "6", "tags": {}, "fields": {"load": {"float": "3"}}}),
        ]
    );
    assert_eq!(converted.starts, [0, 42]);
    let refused: Vec<&str> = converted.refused.iter().map(|(_, reason)| &**reason).collect();
    assert_eq!(refused, ["1 cells for 6 columns", "no field has a value"]);
}

#[test]
fn a_mapping_names_types_and_times() {
    let (points, _) = converted(
        &[
            "--measurement",
            "room",
            "--tag",
            "h",
            "--field",
            "t:float",
            "--field",
            "n:uint",
            "--field",
            "b:bool",
            "--field",
            "s:string",
            "--time",
            "day",
            "--time-format",
            "%d.%m.%Y",
            "--delimiter",
            ";",
        ],
        "day;h;t;n;b;s;left_out",
        "02.01.2026;a;1;2;1;3;4\n",
    );
    assert_eq!(
        points,
        [
            json!({"measurement": "room", "time": "2026-01-02T00:00:00Z", "tags": {"h": "a"}, "fields":
            {"t": {"float": "1"}, "n": {"unsigned": "2"}, "b": true, "s": "3"}})
        ]
    );
}

#[test]
fn what_does_not_fit_is_a_usage_error() {
    for (line, header, said) in [
        (
            &["--tag", "x"][..],
            "measurement,a",
            "there is no column \"x\"; the columns are: measurement, a",
        ),
        (&[], "a,b", "no column \"measurement\""),
        (&["--tag", "a", "--field", "a"], "measurement,a", "given twice"),
        (&["--tag", "a", "--tag", "a=1"], "measurement,a,b", "given twice"),
        (&["--tag-from-file", "host"], "measurement,a", "has no name"),
    ] {
        let error = arguments(line)
            .plan(Some(header.as_bytes()), "-")
            .expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.exit_status(), 2);
    }
    assert!(arguments(&["--field", "a:double"]).check(true).is_err());
    assert!(arguments(&["--time-format", "yesterday"]).check(true).is_err());
    assert!(arguments(&["--tag", "a"]).check(false).is_err());
}

#[test]
fn a_column_has_one_type() {
    let (points, _) = converted(
        &["--measurement", "m", "--time", "t"],
        "t,mixed,whole,large,truth,words,rooms",
        "1,1,1,1,true,a,12\n2,1.5,2,18446744073709551615,false,b,12a\n",
    );
    let fields: Vec<&Value> = points.iter().map(|point| &point["fields"]).collect();
    assert_eq!(
        fields[0],
        &json!({"mixed": {"float": "1"}, "whole": {"signed": "1"}, "large": {"unsigned": "1"}, "truth": true,
            "words": "a", "rooms": "12"})
    );
    assert_eq!(fields[1]["mixed"], json!({"float": "1.5"}));
    let mut plan = arguments(&["--measurement", "m"])
        .plan(Some(b"a,load"), "-")
        .expect("a plan");
    let error = scanned(&mut plan, "1,1\n2,2\n3,oops\n").expect_err("a text among numbers");
    assert_eq!(error.exit_status(), 2);
    let said = error.to_string();
    assert!(
        said.contains("in.csv:4: column load: \"oops\"") && said.contains("--field load:string"),
        "{said}"
    );
}

#[test]
fn rows_share_tags_and_replace_each_other() {
    let (points, converted) = converted(
        &[
            "--measurement",
            "m",
            "--tag",
            "host",
            "--tag",
            "dc=fra",
            "--tag-from-file",
            "file",
        ],
        "time,host,v",
        "2023-11-14 22:13:20,a,1\n2023-11-14 22:13:20,b,1\n2023-11-14T22:13:20Z,a,2\n",
    );
    assert_eq!(
        points[0]["tags"],
        json!({"dc": "fra", "file": "web-1", "host": "a"})
    );
    assert_eq!(points[0]["time"], "2023-11-14T22:13:20Z");
    assert_eq!(
        converted.compared,
        Compared {
            replaced: 1,
            unknown: 0
        }
    );
}

#[test]
fn unreadable_times_are_a_usage_error() {
    let plan = || {
        arguments(&["--measurement", "m"])
            .plan(Some(b"time,v"), "-")
            .expect("a plan")
    };
    let error = scanned(&mut plan(), "03/04/2024,1\n").expect_err("day or month");
    assert!(
        error.to_string().contains("in.csv:2: ") && error.to_string().contains("%d/%m/%Y"),
        "{error}"
    );
    let mut milliseconds = plan();
    scanned(&mut milliseconds, "1700000000000,1\n").expect("numbers");
    assert_eq!(milliseconds.unit(), Some("ms"));
}
