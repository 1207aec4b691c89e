//! Encodes Prometheus remote write requests from the JSON form that scenarios use.
//!
//! ```json
//! {"series": [{"labels": {"__name__": "up", "job": "node"},
//!              "samples": [[1700000000000, 1.5], [1700000015000, "stale"]]}],
//!  "metadata": [{"name": "up", "kind": 2, "help": "Whether it is.", "unit": ""}]}
//! ```
//!
//! A sample is a timestamp in milliseconds, a value and, in version 2.0, a start timestamp. Labels may also
//! be a list of pairs, so that a name can occur twice. A value is a number, `"stale"`, or a text that Rust
//! parses as a double. A series may have `exemplars` (`{"labels", "value", "time"}`), `histograms` (members
//! named like the fields of [`Histogram`](tideline_fleet::remote_write::Histogram)) and `metadata`.

use serde_json::Value;
use tideline_fleet::remote_write::{Exemplar, Histogram, Metadata, Sample, Series, WriteRequest};

/// Bits of the staleness marker.
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// Encodes a JSON text as the message with this full name.
///
/// # Panics
///
/// Panics if the message name or the text is invalid, which is an error in the test.
pub fn encode(message: &str, text: &str) -> Vec<u8> {
    let request = request(&serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")));
    match message {
        "prometheus.WriteRequest" => request.to_v1(),
        "io.prometheus.write.v2.Request" => request.to_v2(),
        _ => panic!("{message:?} is not a remote write message"),
    }
}

fn request(body: &Value) -> WriteRequest {
    WriteRequest {
        series: list(&body["series"], series),
        metadata: list(&body["metadata"], metadata),
    }
}

fn series(body: &Value) -> Series {
    Series {
        labels: labels(&body["labels"]),
        samples: list(&body["samples"], |sample| Sample {
            millis: sample[0].as_i64().expect("a time"),
            value: number(&sample[1]),
            start: sample[2].as_i64().unwrap_or(0),
        }),
        histograms: list(&body["histograms"], histogram),
        exemplars: list(&body["exemplars"], |exemplar| Exemplar {
            labels: labels(&exemplar["labels"]),
            value: number(&exemplar["value"]),
            millis: exemplar["time"].as_i64().unwrap_or(0),
        }),
        metadata: body.get("metadata").map(metadata),
    }
}

fn metadata(body: &Value) -> Metadata {
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    Metadata {
        kind: body["kind"].as_u64().unwrap_or(0),
        name: text("name"),
        help: text("help"),
        unit: text("unit"),
    }
}

fn histogram(body: &Value) -> Histogram {
    let spans = |name: &str| {
        list(&body[name], |span| {
            (
                span[0].as_i64().expect("an offset"),
                span[1].as_u64().expect("a length"),
            )
        })
    };
    Histogram {
        is_float: body["is_float"].as_bool().unwrap_or(false),
        count: number(&body["count"]),
        sum: number(&body["sum"]),
        schema: body["schema"].as_i64().unwrap_or(0),
        zero_threshold: number(&body["zero_threshold"]),
        zero_count: number(&body["zero_count"]),
        negative_spans: spans("negative_spans"),
        negative: list(&body["negative"], number),
        positive_spans: spans("positive_spans"),
        positive: list(&body["positive"], number),
        reset_hint: body["reset_hint"].as_u64().unwrap_or(0),
        millis: body["millis"].as_i64().unwrap_or(0),
        custom_values: list(&body["custom_values"], number),
        start: body["start"].as_i64().unwrap_or(0),
    }
}

fn labels(body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    match body {
        Value::Object(labels) => labels
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        pairs => list(pairs, |pair| (text(&pair[0]), text(&pair[1]))),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::String(text) if text == "stale" => f64::from_bits(STALE),
        Value::String(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{text:?} is not a number")),
        value => value.as_f64().expect("a number"),
    }
}

fn list<T>(body: &Value, read: impl FnMut(&Value) -> T) -> Vec<T> {
    body.as_array().into_iter().flatten().map(read).collect()
}
