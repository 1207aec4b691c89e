//! Random writes to the points route as line protocol, JSON or NDJSON, plain or compressed with gzip or zstd.
//!
//! Timestamps are few, so that many points are overwritten; some are late, before the epoch, or expired.

use crate::points::json_point;
use crate::reading::Fields;
use crate::{Client, compress};
use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::Value;

use super::naive::Model;

/// Measurements that are written.
pub(super) const MEASUREMENTS: [&str; 2] = ["alpha", "beta"];
/// Number of machines.
const HOSTS: usize = 8;
/// Number of regular timestamps; few, so that many points are overwritten.
const INSTANTS: usize = 300;
pub(super) const FIRST_INSTANT: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

/// Point before it is written.
struct Draft {
    measurement: &'static str,
    host: String,
    time: i64,
    fields: Fields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Json,
    Ndjson,
}

/// Writes random points to the service with one request, and to the model.
pub(super) fn write(client: &Client, model: &mut Model, random: &mut Random, context: &str) {
    let form = [Form::Lines, Form::Json, Form::Ndjson][random.index(3)];
    let count = 1 + random.index(60);
    let drafts: Vec<Draft> = (0..count).map(|_| draft(form, random)).collect();
    let (content_type, body) = match form {
        Form::Lines => ("text/plain", text(&drafts, line)),
        Form::Ndjson => (
            "application/x-ndjson",
            text(&drafts, |draft| object(draft).to_string()),
        ),
        Form::Json => {
            let points: Vec<Json> = drafts.iter().map(object).collect();
            ("application/json", json!({"points": points}).to_string())
        }
    };
    let (encoding, body) = match random.index(4) {
        0 => ("gzip", compress::gzip(body.as_bytes())),
        1 => ("zstd", compress::zstd(body.as_bytes())),
        _ => ("identity", body.into_bytes()),
    };
    let headers = [("content-type", content_type), ("content-encoding", encoding)];
    let response = client
        .send("POST", "/v1/tables/default/points", &headers, &body)
        .expect("a response");
    // Only the expired points of a request are rejected.
    let taken: Vec<Draft> = drafts
        .into_iter()
        .filter(|draft| model.takes(draft.time))
        .collect();
    if taken.is_empty() {
        assert_eq!(response.status, 422, "{context}: {response:?}");
        return;
    }
    let response = response.expect_status(200).json();
    assert_eq!(response["points"], taken.len(), "{context}: {response}");
    assert_eq!(response["rejected"], count - taken.len(), "{context}: {response}");
    for draft in taken {
        model.write(draft.measurement, &draft.host, draft.time, draft.fields);
    }
}

fn draft(form: Form, random: &mut Random) -> Draft {
    let instant = FIRST_INSTANT + random.index(INSTANTS) as i64 * SECOND;
    let time = match random.index(20) {
        0 => instant - random.index(40) as i64 * DAY,
        1 => -instant,
        2 => instant + 1 + random.index(999) as i64,
        _ => instant,
    };
    let mut fields = Fields::new();
    while fields.is_empty() {
        for name in ["b", "f", "n", "s", "x"] {
            if random.index(3) == 0 {
                fields.insert(name.to_owned(), value(name, form, random));
            }
        }
    }
    Draft {
        measurement: MEASUREMENTS[random.index(MEASUREMENTS.len())],
        host: format!("host-{}", random.index(HOSTS)),
        time,
        fields,
    }
}

/// Returns a random value: `f` has plain floats, `n` numbers of all types, `x` extreme floats.
fn value(name: &str, form: Form, random: &mut Random) -> Value {
    match name {
        "b" => Value::Boolean(random.index(2) == 0),
        "f" => Value::Float((random.unit() - 0.5) * 1e6),
        "n" => match random.index(3) {
            0 => Value::Signed(random.bits().cast_signed() >> 24),
            1 => Value::Unsigned(random.bits() >> 24),
            _ => Value::Float((random.index(2_000) as f64 - 1_000.0) / 8.0),
        },
        "s" => {
            let texts = [
                "",
                "plain",
                "with space",
                "quote \" and \\ slash",
                "ünïcode ☃",
                "a,b=c",
            ];
            Value::String(texts[random.index(texts.len())].into())
        }
        _ => {
            let finite = [
                0.0,
                -0.0,
                f64::MIN_POSITIVE,
                5e-324,
                f64::MAX,
                f64::MIN,
                0.1,
                1.0,
                1e300,
            ];
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            match form != Form::Lines && random.index(4) == 0 {
                true => Value::Float(special[random.index(special.len())]),
                false => Value::Float(finite[random.index(finite.len())]),
            }
        }
    }
}

fn text(drafts: &[Draft], write: impl Fn(&Draft) -> String) -> String {
    drafts.iter().map(write).collect::<Vec<_>>().join("\n")
}

fn line(draft: &Draft) -> String {
    let fields: Vec<String> = draft
        .fields
        .iter()
        .map(|(name, value)| match value {
            Value::Float(value) => format!("{name}={value:?}"),
            Value::Signed(value) => format!("{name}={value}i"),
            Value::Unsigned(value) => format!("{name}={value}u"),
            Value::Boolean(value) => format!("{name}={value}"),
            Value::String(value) => {
                format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Value::Histogram(_) => unreachable!("no line has one"),
        })
        .collect();
    format!(
        "{},host={} {} {}",
        draft.measurement,
        draft.host,
        fields.join(","),
        draft.time
    )
}

fn object(draft: &Draft) -> Json {
    let tags = [("host".to_owned(), draft.host.clone())].into();
    json_point(draft.measurement, &tags, draft.time, &draft.fields)
}
