//! Requests that produced the store of the fixture, in a fixed order. Tests derive the expected results of the store
//! from these requests.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::Value;
use tideline_tests::reading::Fields;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 86_400 * SECOND;
/// Start of the regular series: 2024-03-01T00:00:00Z.
const START: i64 = 1_709_251_200 * SECOND;

/// One step.
#[derive(Debug)]
pub(super) enum Step {
    /// Creation of a table in addition to the default one.
    CreateTable(Json),
    /// Points of one request, in order.
    Write(&'static str, Vec<Point>),
    /// Attributes of the timeline with this host in the default table.
    Attributes(&'static str, Json),
    /// Seal of all points.
    Seal,
}

/// Point of a request.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) measurement: &'static str,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) time: i64,
    pub(super) fields: Fields,
}

/// Returns all steps: four seals, and points that stay in the journal. The points are three days of regular series with
/// gaps, irregular series, fields of several types, five years in steps of 30 days, late points after the first seal,
/// overwrites after each later seal, and times around the epoch.
pub(super) fn steps() -> Vec<Step> {
    let mut random = Random::new(0x7469_6465_6c69_6e65);
    let mut steps = vec![Step::CreateTable(json!({
        "name": "devices", "source_tags": ["device"], "durability": "buffered", "write_future": "1h"
    }))];
    steps.extend(write("default", &regular(0..48 * 4, &mut random)));
    steps.extend(write("devices", &temperatures(0..240, &mut random)));
    steps.push(Step::Attributes(
        "web-1",
        json!({"owner": "storage", "rack": 12.0, "retired": false, "load": 0.75}),
    ));
    steps.push(Step::Seal);
    steps.extend(write("default", &regular(48 * 4..72 * 4, &mut random)));
    steps.extend(write("default", &late(&mut random)));
    steps.extend(write("default", &years(&mut random)));
    steps.push(Step::Attributes(
        "web-2",
        json!({"owner": "network", "note": "ünïcode ☃"}),
    ));
    steps.push(Step::Seal);
    steps.extend(write("default", &overwrites(&mut random)));
    steps.extend(write("devices", &temperatures(200..300, &mut random)));
    steps.push(Step::Attributes("web-1", json!({"retired": true, "load": null})));
    steps.push(Step::Seal);
    steps.extend(write("default", &overwrites(&mut random)));
    steps.extend(write("default", &odd_names()));
    steps.push(Step::Seal);
    steps.extend(write("default", &overwrites(&mut random)));
    steps.extend(write("default", &unsealed(&mut random)));
    steps.extend(write("devices", &temperatures(290..330, &mut random)));
    steps.push(Step::Attributes("web-9", json!({"owner": "nobody yet"})));
    steps
}

/// Returns writes of the points in requests of 100.
fn write(table: &'static str, points: &[Point]) -> Vec<Step> {
    points
        .chunks(100)
        .map(|points| Step::Write(table, points.to_vec()))
        .collect()
}

/// Returns one point per machine and quarter of an hour. `web-2` has no points on the second day; `web-3` has points
/// in about a third of the quarters, up to 10 minutes late.
fn regular(quarters: std::ops::Range<i64>, random: &mut Random) -> Vec<Point> {
    let mut points = Vec::new();
    for quarter in quarters {
        for host in ["web-1", "web-2", "web-3", "web-4"] {
            let is_silent = host == "web-2" && (96..192).contains(&quarter);
            let is_absent = host == "web-3" && random.index(3) > 0;
            if is_silent || is_absent {
                continue;
            }
            let wander = match host {
                "web-3" => random.index(600) as i64 * SECOND + random.index(1_000) as i64,
                _ => 0,
            };
            points.push(cpu(host, START + quarter * 15 * MINUTE + wander, random));
        }
    }
    points
}

/// Returns a point with every type except histograms. `n` is signed on the first day, a float on the second and
/// unsigned later; `state` is missing in three of four points.
fn cpu(host: &str, time: i64, random: &mut Random) -> Point {
    let mut fields = Fields::from([
        (
            "usage".to_owned(),
            Value::Float((random.unit() * 10_000.0).round() / 100.0),
        ),
        (
            "requests".to_owned(),
            Value::Signed((time - START) / SECOND * 3 + random.index(500) as i64),
        ),
        (
            "serial".to_owned(),
            Value::Unsigned(u64::MAX - random.bits() % 1_000),
        ),
        ("busy".to_owned(), Value::Boolean(random.index(3) == 0)),
    ]);
    if random.index(4) == 0 {
        let states = ["up", "draining", "", "quote \" and \\ slash", "ünïcode ☃"];
        let state = states[random.index(states.len())];
        fields.insert("state".to_owned(), Value::String(state.into()));
    }
    let number = match (time - START).div_euclid(DAY) {
        0 => Value::Signed(random.index(100) as i64),
        1 => Value::Float(random.unit() - 0.5),
        _ => Value::Unsigned(1 << 63 | random.bits() >> 50),
    };
    fields.insert("n".to_owned(), number);
    point(
        "cpu",
        &[("host", host), ("dc", if host < "web-3" { "fra" } else { "ams" })],
        time,
        fields,
    )
}

/// Returns one point per device and minute, for a separate table.
fn temperatures(minutes: std::ops::Range<i64>, random: &mut Random) -> Vec<Point> {
    let mut points = Vec::new();
    for minute in minutes {
        for device in ["t1", "t2"] {
            let celsius = 20.0 + (random.unit() * 100.0).round() / 10.0;
            let fields = Fields::from([("celsius".to_owned(), Value::Float(celsius))]);
            points.push(point(
                "temperature",
                &[("device", device)],
                START + minute * MINUTE,
                fields,
            ));
        }
    }
    points
}

/// Returns points between sealed timestamps.
fn late(random: &mut Random) -> Vec<Point> {
    (0..60)
        .map(|_| {
            let minute = random.index(48 * 60) as i64;
            cpu("web-1", START + minute * MINUTE + 7 * SECOND, random)
        })
        .collect()
}

/// Returns one point every 30 days since March 2019, so that one seal spans years, and points around the epoch.
fn years(random: &mut Random) -> Vec<Point> {
    let months = (1..=60).map(|month| START - month * 30 * DAY);
    let epoch = [-DAY, -1, 0, 1];
    months
        .chain(epoch)
        .map(|time| {
            let fields = Fields::from([(
                "kilometres".to_owned(),
                Value::Float(random.index(90_000) as f64 / 4.0),
            )]);
            point("journey", &[("car", "a b,c=d")], time, fields)
        })
        .collect()
}

/// Returns points of three machines at random quarters of an hour; most of them overwrite regular points. One in four
/// is complete, three in four have a single field. A point may occur twice in one request.
fn overwrites(random: &mut Random) -> Vec<Point> {
    (0..60)
        .map(|_| {
            let host = ["web-1", "web-2", "web-4"][random.index(3)];
            let mut point = cpu(host, START + random.index(72 * 4) as i64 * 15 * MINUTE, random);
            if random.index(4) > 0 {
                let kept = ["usage", "busy", "requests"][random.index(3)];
                point.fields.retain(|name, _| name == kept);
            }
            point
        })
        .collect()
}

/// Returns a point without a source, with names that need escapes in at least one format.
fn odd_names() -> Vec<Point> {
    let tags = [("Größe", "5 m"), ("k=v", "a,b"), ("path", "C:\\dir")];
    let fields = Fields::from([
        ("a field, with=all".to_owned(), Value::Float(0.1)),
        ("tiny".to_owned(), Value::Float(5e-324)),
        ("huge".to_owned(), Value::Float(f64::MAX)),
        ("least".to_owned(), Value::Signed(i64::MIN)),
    ]);
    vec![point("odd name", &tags, START + 5 * SECOND, fields)]
}

/// Returns points of a known and of a new timeline, which only the journal holds.
fn unsealed(random: &mut Random) -> Vec<Point> {
    (0..20)
        .flat_map(|minute| {
            let time = START + 3 * DAY + minute * MINUTE;
            [cpu("web-1", time, random), cpu("web-9", time, random)]
        })
        .collect()
}

fn point(measurement: &'static str, tags: &[(&str, &str)], time: i64, fields: Fields) -> Point {
    let tags = tags
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Point {
        measurement,
        tags: tags.collect(),
        time,
        fields,
    }
}
