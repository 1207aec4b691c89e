//! JSON bodies of points, with every number in typed form.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tideline_model::Value;

use crate::reading::Fields;

/// Returns a point in the JSON form of the `points` route.
pub fn json_point(measurement: &str, tags: &BTreeMap<String, String>, time: i64, fields: &Fields) -> Json {
    let fields: Map<String, Json> = fields
        .iter()
        .map(|(name, value)| (name.clone(), json_value(value)))
        .collect();
    json!({"measurement": measurement, "tags": tags, "time": time, "fields": fields})
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::Float(value) if value.is_finite() => json!({"float": value}),
        Value::Float(value) if value.is_nan() => json!({"float": "NaN"}),
        Value::Float(value) => json!({"float": if *value > 0.0 { "Inf" } else { "-Inf" }}),
        Value::Signed(value) => json!({"signed": value}),
        Value::Unsigned(value) => json!({"unsigned": value.to_string()}),
        Value::Boolean(value) => json!(value),
        Value::String(value) => json!(value.as_ref()),
        Value::Histogram(_) => unreachable!("points of this route have none"),
    }
}
