//! JSON form of attribute values.
//!
//! ```json
//! {"owner": "team-storage", "rack": 12, "retired": false, "bought": {"time": "2026-01-31T00:00:00Z"},
//!  "site": {"lat": 52.52, "lon": 13.405}, "labels": ["backup", "ssd"], "ports": [80, 443]}
//! ```

use serde::{Deserialize, Deserializer, Serialize};
use tideline_condition::Literal;
use tideline_condition::literal::{self as condition, AttributeForm};
use utoipa::ToSchema;

use crate::geo::LatLon;
use crate::time::TimeInput;

/// Value of an attribute: a string, number, boolean, time, geo point, or list of strings or numbers.
///
/// All values of an attribute key in a table have the same type.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Text of at most 4 KiB.
    Text(String),
    /// Boolean.
    Boolean(bool),
    /// Finite number.
    Number(f64),
    /// Time: an object with the member `time`.
    Time {
        /// Timestamp.
        time: TimeInput,
    },
    /// Geo point.
    Point(LatLon),
    /// List of 1 to 256 strings, at most 4 KiB in total.
    Texts(Vec<String>),
    /// List of 1 to 256 numbers.
    Numbers(Vec<f64>),
}

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let AttributeForm(literal) = AttributeForm::deserialize(deserializer)?;
        Ok(match literal {
            Literal::Text(text) => Self::Text(text),
            Literal::Boolean(boolean) => Self::Boolean(boolean),
            Literal::Float(number) => Self::Number(number),
            Literal::Signed(number) => Self::Number(number as f64),
            Literal::Unsigned(number) => Self::Number(number as f64),
            Literal::Digits(digits) => Self::Number(digits.parse().unwrap_or(f64::NAN)),
            Literal::Time { time } => Self::Time {
                time: TimeInput(time),
            },
            Literal::Point(condition::LatLon { lat, lon }) => Self::Point(LatLon { lat, lon }),
            Literal::Texts(texts) => Self::Texts(texts),
            Literal::Numbers(numbers) => Self::Numbers(numbers),
            // Attributes do not have these forms.
            Literal::Typed(_) | Literal::Forms(_) => {
                return Err(serde::de::Error::custom("not a value of an attribute"));
            }
        })
    }
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
}
