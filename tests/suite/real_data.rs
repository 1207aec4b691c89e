//! Real series (the Numenta Anomaly Benchmark): written as points, they must be read back unchanged, and
//! aggregates must equal a scan of all values.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tideline_model::{Timestamp, Value};
use tideline_tests::corpora::corpus;
use tideline_tests::reading::{self, Row};
use tideline_tests::server::DataFolder;
use tideline_tests::subset::close;
use tideline_tests::{Client, Launch};

const HOUR: i64 = 3_600_000_000_000;

/// File of the corpus: its name, and its values by timestamp. If a timestamp occurs twice, the later line
/// wins, as in the service.
struct Series {
    name: String,
    values: BTreeMap<i64, f64>,
}

#[test]
fn real_series_read_back_and_aggregate_right() {
    let Some(folder) = corpus("nab") else { return };
    let all: Vec<Series> = csv_files(&folder.join("data"))
        .iter()
        .map(|path| Series::read(path))
        .collect();
    assert!(all.len() > 30, "the corpus has {} files", all.len());
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    for (index, series) in all.iter().enumerate() {
        series.write(&client, index);
    }
    check(&client, &all);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    check(&client, &all);
    server.kill();
    let server = folder.start(&Launch::default());
    check(&server.client(), &all);
    let points: usize = all.iter().map(|series| series.values.len()).sum();
    println!("{} real series, {points} points", all.len());
}

fn check(client: &Client, all: &[Series]) {
    let rows = reading::all(client, "default", "nab");
    let mut read: BTreeMap<&str, BTreeMap<i64, f64>> = BTreeMap::new();
    for row in &rows {
        let Some(Value::Float(value)) = row.fields.get("value") else {
            panic!("{row:?} has no float");
        };
        let twice = read
            .entry(&row.tags["file"])
            .or_default()
            .insert(row.time, *value);
        assert_eq!(twice, None, "{row:?} is duplicate");
    }
    for series in all {
        let bits = |values: &BTreeMap<i64, f64>| -> Vec<(i64, u64)> {
            values
                .iter()
                .map(|(time, value)| (*time, value.to_bits()))
                .collect()
        };
        let actual = read.get(series.name.as_str()).expect("the file was written");
        assert_eq!(bits(actual), bits(&series.values), "{}", series.name);
    }
    check_hours(client, all);
}

/// Checks hourly aggregates of all files with one query.
fn check_hours(client: &Client, all: &[Series]) {
    let query = json!({
        "timelines": {"where": {"property": "measurement", "equals": "nab"}},
        "range": {"start": "2011-01-01T00:00:00Z", "end": "2016-01-01T00:00:00Z"},
        "fields": ["value"],
        "aggregate": {
            "functions": ["count", "sum", "mean", "min", "max", "first", "last"],
            "window": "1h",
            "group_by": ["file"],
        },
    });
    let answer = client
        .post_json("/v1/tables/default/query", &query)
        .expect_status(200);
    let mut actual: BTreeMap<(String, i64), Row> = reading::rows_of(&answer)
        .into_iter()
        .map(|row| ((row.tags["file"].clone(), row.time), row))
        .collect();
    for series in all {
        for (hour, values) in series.hours() {
            let Some(row) = actual.remove(&(series.name.clone(), hour)) else {
                panic!("{}: no hour at {hour}", series.name);
            };
            let count = values.len() as f64;
            let sum: f64 = values.iter().sum();
            let expected = [
                ("count", count),
                ("sum", sum),
                ("mean", sum / count),
                ("min", values.iter().copied().fold(f64::INFINITY, f64::min)),
                ("max", values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
                ("first", values[0]),
                ("last", values[values.len() - 1]),
            ];
            for (function, wanted) in expected {
                let cell = row
                    .fields
                    .get(&reading::column(function, "value"))
                    .and_then(Value::as_f64);
                let same = close(cell, Some(wanted));
                assert!(
                    same,
                    "{} at {hour}: {function} is {cell:?}, expected {wanted}",
                    series.name
                );
            }
        }
    }
}

impl Series {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a corpus file can be read");
        let values = text
            .lines()
            .skip(1)
            .map(|line| {
                let (time, value) = line.split_once(',').expect("two columns");
                let time = Timestamp::parse_rfc3339(&format!("{}Z", time.replace(' ', "T"))).expect("a time");
                (time.nanos(), value.parse().expect("a number"))
            })
            .collect();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self { name, values }
    }

    /// Writes the series in one of the three native formats, chosen by `index`.
    fn write(&self, client: &Client, index: usize) {
        let tags = json!({"file": self.name, "host": "nab"});
        let points = self.values.iter().map(|(time, value)| {
            json!({"measurement": "nab", "tags": tags, "time": time, "fields": {"value": {"float": value}}})
        });
        let (content_type, body) = match index % 3 {
            0 => ("application/json", json!(points.collect::<Vec<_>>()).to_string()),
            1 => {
                let lines: Vec<String> = points.map(|point| point.to_string()).collect();
                ("application/x-ndjson", lines.join("\n"))
            }
            _ => {
                let lines: Vec<String> = self
                    .values
                    .iter()
                    .map(|(time, value)| format!("nab,file={},host=nab value={value:?} {time}", self.name))
                    .collect();
                ("text/plain", lines.join("\n"))
            }
        };
        let answer = client
            .send(
                "POST",
                "/v1/tables/default/points",
                &[("content-type", content_type)],
                body.as_bytes(),
            )
            .expect("a response")
            .expect_status(200);
        assert_eq!(
            answer.json()["points"],
            self.values.len(),
            "{}: {answer:?}",
            self.name
        );
    }

    fn hours(&self) -> BTreeMap<i64, Vec<f64>> {
        let mut hours: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for (time, value) in &self.values {
            hours
                .entry(time.div_euclid(HOUR) * HOUR)
                .or_default()
                .push(*value);
        }
        hours
    }
}

fn csv_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus has folders")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .flat_map(|path| match path.is_dir() {
            true => csv_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "csv"))
        .collect();
    files.sort();
    files
}
