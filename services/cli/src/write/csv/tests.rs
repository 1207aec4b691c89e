//! Rows of CSV as points.

use clap::Parser;

use super::*;

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

fn converted(line: &[&str], header: &str, rows: &str) -> (Vec<Value>, Converted) {
    let plan = arguments(line).plan(Some(header.as_bytes())).expect("a plan");
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
            json!({"measurement": "cpu", "time": "6", "tags": {}, "fields": {"load": {"signed": "3"}}}),
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
        (&["--tag", "a", "--field", "a"], "measurement,a", "named twice"),
    ] {
        let error = arguments(line).plan(Some(header.as_bytes())).expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.exit_status(), 2);
    }
    assert!(arguments(&["--field", "a:double"]).check(true).is_err());
    assert!(arguments(&["--time-format", "yesterday"]).check(true).is_err());
    assert!(arguments(&["--tag", "a"]).check(false).is_err());
}
