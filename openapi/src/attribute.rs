//! Values of attributes as people write them in JSON.
//!
//! ```json
//! {"owner": "team-storage", "rack": 12, "retired": false, "bought": {"time": "2026-01-31T00:00:00Z"},
//!  "site": {"lat": 52.52, "lon": 13.405}, "labels": ["backup", "ssd"], "ports": [80, 443]}
//! ```

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::geo::Place;
use crate::plain;
use crate::time::TimeInput;

/// The value of an attribute: a string, a number, a boolean, a time, a geo point, or a list of strings or of numbers.
///
/// All timelines of a table give an attribute key the same type.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Text of at most 4 KiB.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// A finite number.
    Number(f64),
    /// A time.
    Time {
        /// The instant.
        time: TimeInput,
    },
    /// A geo point.
    Point(Place),
    /// A list of 1 to 256 strings, 4 KiB together.
    Texts(Vec<String>),
    /// A list of 1 to 256 numbers.
    Numbers(Vec<f64>),
}

/// What is said of what is none of the forms.
const FORMS: &str = "the value of an attribute is a string, a number, true or false, a time such as \
    {\"time\": \"2026-11-20T12:00:00Z\"}, a geo point such as {\"lat\": 52.52, \"lon\": 13.405}, or a list of strings or of \
    numbers";

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The member of a time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeForm {
    time: TimeInput,
}

fn read(value: Value) -> Result<AttributeValue, String> {
    let forms = || FORMS.to_owned();
    Ok(match value {
        Value::String(text) => AttributeValue::Text(text),
        Value::Bool(boolean) => AttributeValue::Boolean(boolean),
        Value::Number(number) => AttributeValue::Number(number.as_f64().ok_or_else(forms)?),
        Value::Object(members) if members.contains_key("time") => {
            let TimeForm { time } =
                serde_json::from_value(Value::Object(members)).map_err(of_form("a time"))?;
            AttributeValue::Time { time }
        }
        Value::Object(members) if members.contains_key("lat") || members.contains_key("lon") => {
            let point = serde_json::from_value(Value::Object(members)).map_err(of_form("a geo point"))?;
            AttributeValue::Point(point)
        }
        Value::Array(values) => list(values)?,
        Value::Object(_) | Value::Null => return Err(forms()),
    })
}

fn of_form(what: &'static str) -> impl Fn(serde_json::Error) -> String {
    move |error| format!("{what}: {}", plain::message(&error.to_string()))
}

fn list(values: Vec<Value>) -> Result<AttributeValue, String> {
    if values.is_empty() {
        return Err("a list has at least one value; null removes the attribute".to_owned());
    }
    let all = Value::Array(values);
    if let Ok(texts) = serde_json::from_value(all.clone()) {
        return Ok(AttributeValue::Texts(texts));
    }
    let numbers =
        serde_json::from_value(all).map_err(|_| "a list holds strings only, or numbers only".to_owned())?;
    Ok(AttributeValue::Numbers(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back() {
        for json in [
            r#""x""#,
            "true",
            "1.5",
            r#"{"time":"2026-11-20T12:00:00Z"}"#,
            r#"{"lat":52.5,"lon":-13.0}"#,
            r#"["a","b"]"#,
            "[1.0,2.5]",
        ] {
            let read: AttributeValue = serde_json::from_str(json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_the_form() {
        for (json, said) in [
            ("{}", "the value of an attribute is"),
            (r#"{"time":"yesterday"}"#, "a time: expected a time"),
            (r#"{"time":0,"zone":"x"}"#, "the member \"zone\" is not known"),
            (r#"{"lat":1}"#, "a geo point: the member \"lon\" is missing"),
            ("[]", "at least one value"),
            (r#"["a",1]"#, "strings only, or numbers only"),
            ("[[1]]", "strings only, or numbers only"),
        ] {
            let error = serde_json::from_str::<AttributeValue>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
