//! Values that operators compare with, and their JSON forms.
//!
//! The JSON forms of numbers differ: numbers of attributes are doubles, integers of fields stay exact, and numbers for
//! columns keep all digits.

use serde::de::{self, Deserializer, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tideline_model::{ColumnType, GeoPoint, TimeExpression, TimeRange, Timestamp};

use crate::error::ConditionError;

/// Value that an operator compares with.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Literal {
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// Signed 64-bit integer.
    Signed(i64),
    /// Integer above the range of `Signed`.
    Unsigned(u64),
    /// Double.
    Float(f64),
    /// Number with more digits than a double keeps, in JSON syntax. Only conditions on rows contain such numbers,
    /// because columns can be decimals. In all other comparisons, it is the nearest double.
    #[serde(serialize_with = "as_number")]
    Digits(Box<str>),
    /// Time.
    Time {
        /// Absolute or relative time.
        time: TimeExpression,
    },
    /// Geo point.
    Point(LatLon),
    /// List of texts; no operator supports it.
    Texts(Vec<String>),
    /// List of numbers; no operator supports it.
    Numbers(Vec<f64>),
    /// Value of a given type. Only conditions on rows contain such values, until their literals are converted to the
    /// types of the columns.
    Typed(Box<TypedLiteral>),
    /// Forms of a value for a column without a declared type. Converted conditions on rows contain it; it has no JSON
    /// form.
    #[serde(skip_serializing)]
    Forms(Box<LiteralForms>),
}

/// Value with its type, as in writes of rows: `{"type": "decimal", "value": "1.5"}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypedLiteral {
    /// Type of the value.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// The value: a text, a boolean or a number.
    pub value: Literal,
}

/// Forms of a literal for a column without a declared type: one per kind of stored values. A stored value is compared
/// with the form of its kind; without this form, it is not equal, and in no range.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiteralForms {
    /// Text, boolean or number, for values of these kinds.
    pub plain: Option<Literal>,
    /// Number of nanoseconds since 1970-01-01T00:00:00Z, for timestamps.
    pub nanos: Option<Literal>,
    /// Text that sorts among those of [`ValueRef::Decimal`](crate::ValueRef::Decimal), for decimals.
    pub decimal: Option<Literal>,
    /// Text that sorts among those of [`ValueRef::Bytes`](crate::ValueRef::Bytes), for bytes.
    pub bytes: Option<Literal>,
}

/// Position in degrees (WGS 84), not validated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Place")]
pub struct LatLon {
    /// Degrees north of the equator, -90 to 90.
    pub lat: f64,
    /// Degrees east of Greenwich, -180 to 180.
    pub lon: f64,
}

/// Time range: `start` is inclusive, `end` is exclusive, an absent bound is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSpan {
    /// First timestamp of the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<TimeExpression>,
    /// First timestamp after the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TimeExpression>,
}

/// Literal in the form of an attribute: numbers are doubles; times, geo points and lists are allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeForm(pub Literal);

/// Literal in the form of a field value: a text, a boolean or a number; integers stay exact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldForm(pub(crate) Literal);

/// Literal in the form of the value of a column: like a field value, but all numbers stay exact, and the value may have
/// a type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnForm(pub(crate) Literal);

impl Literal {
    /// Parses the value of a column: a text, a boolean, a number that stays exact, or one of these with its type.
    ///
    /// # Errors
    ///
    /// The error of the parser if the text is not JSON, or has another form.
    pub fn of_column(json: &str) -> serde_json::Result<Self> {
        if !json.trim_start().starts_with('{') {
            return column(json);
        }
        let TypedForm { column_type, value } = serde_json::from_str(json)?;
        let value = column(value.get())?;
        Ok(Self::Typed(Box::new(TypedLiteral { column_type, value })))
    }

    /// Creates the literal of a time in a column, in nanoseconds since 1970-01-01T00:00:00Z. Integers are compared with
    /// the nanoseconds.
    pub(crate) fn of_nanos(nanos: i64) -> Self {
        Self::Forms(Box::new(LiteralForms {
            plain: Some(Self::Signed(nanos)),
            nanos: Some(Self::Signed(nanos)),
            ..LiteralForms::default()
        }))
    }

    /// Returns the number as a double; `None` for other types.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Signed(number) => Some(*number as f64),
            Self::Unsigned(number) => Some(*number as f64),
            Self::Digits(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Returns the timestamp; `None` if the literal is not a time, or is relative to now.
    pub fn as_time(&self) -> Option<Timestamp> {
        match self {
            Self::Time { time } => absolute(*time).ok(),
            _ => None,
        }
    }

    /// Replaces a time relative to `now` with an absolute time.
    pub(crate) fn resolve(&mut self, now: Timestamp) {
        if let Self::Time { time } = self {
            *time = TimeExpression::At(time.resolve(now));
        }
    }
}

impl From<Timestamp> for Literal {
    fn from(timestamp: Timestamp) -> Self {
        let time = TimeExpression::At(timestamp);
        Self::Time { time }
    }
}

impl From<GeoPoint> for LatLon {
    fn from(point: GeoPoint) -> Self {
        Self {
            lat: point.latitude(),
            lon: point.longitude(),
        }
    }
}

impl LatLon {
    /// Returns the point; `None` if the degrees are out of range.
    pub fn point(self) -> Option<GeoPoint> {
        GeoPoint::new(self.lat, self.lon)
    }

    /// Returns the point.
    ///
    /// # Errors
    ///
    /// [`ConditionError::InvalidArea`] if the degrees are out of range.
    pub fn checked(self) -> crate::Result<GeoPoint> {
        let Self { lat, lon } = self;
        self.point().ok_or_else(|| {
            ConditionError::InvalidArea(format!(
                "a geo point needs a lat within ±90 and a lon within ±180 degrees; they were {lat} and {lon}"
            ))
        })
    }
}

impl TimeSpan {
    /// Returns the range.
    ///
    /// # Errors
    ///
    /// [`ConditionError::RelativeTime`] if a bound is relative to now.
    pub fn range(self) -> crate::Result<TimeRange> {
        let end = |time: Option<TimeExpression>, open| match time {
            Some(time) => absolute(time).map(Timestamp::nanos),
            None => Ok(open),
        };
        Ok(TimeRange {
            start: end(self.start, i64::MIN)?,
            end: end(self.end, i64::MAX)?,
        })
    }

    /// Replaces bounds relative to `now` with absolute times.
    pub(crate) fn resolve(&mut self, now: Timestamp) {
        let ends = [&mut self.start, &mut self.end];
        ends.into_iter()
            .flatten()
            .for_each(|time| *time = TimeExpression::At(time.resolve(now)));
    }
}

impl From<TimeRange> for TimeSpan {
    /// Converts a range. Bounds beyond the range of timestamps become open.
    fn from(range: TimeRange) -> Self {
        let end = |nanos| Timestamp::from_nanos(nanos).ok().map(TimeExpression::At);
        Self {
            start: end(range.start),
            end: end(range.end),
        }
    }
}

fn absolute(time: TimeExpression) -> crate::Result<Timestamp> {
    match time {
        TimeExpression::At(timestamp) => Ok(timestamp),
        TimeExpression::FromNow(_) => Err(ConditionError::RelativeTime),
    }
}

/// Error message for a value that is not a valid attribute.
const ATTRIBUTE_FORMS: &str = "the value of an attribute is a string, a number, true or false, a time such as \
    {\"time\": \"2026-11-20T12:00:00Z\"}, a geo point such as {\"lat\": 52.52, \"lon\": 13.405}, or a list of strings or of \
    numbers";

impl<'de> Deserialize<'de> for AttributeForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        attribute(Value::deserialize(deserializer)?)
            .map(Self)
            .map_err(de::Error::custom)
    }
}

fn attribute(value: Value) -> Result<Literal, String> {
    let forms = || ATTRIBUTE_FORMS.to_owned();
    Ok(match value {
        Value::String(text) => Literal::Text(text),
        Value::Bool(boolean) => Literal::Boolean(boolean),
        Value::Number(number) => Literal::Float(number.as_f64().ok_or_else(forms)?),
        Value::Object(mut members) if members.contains_key("time") => {
            let time = members.remove("time").unwrap_or_default();
            only_known(&members, "time").map_err(|error| format!("a time: {error}"))?;
            if !(time.is_string() || time.is_i64() || time.is_u64()) {
                return Err(
                    "a time: expected text such as 2026-11-20T12:00:00Z, or integer nanoseconds".into(),
                );
            }
            let time = serde_json::from_value(time).map_err(|error| format!("a time: {error}"))?;
            Literal::Time { time }
        }
        Value::Object(mut members) if members.contains_key("lat") || members.contains_key("lon") => {
            let mut degrees = |name: &str| match members.remove(name) {
                None => Err(format!("a geo point: the member {name:?} is missing")),
                Some(value) => value
                    .as_f64()
                    .ok_or_else(|| format!("a geo point: {name} is a number of degrees")),
            };
            let (lat, lon) = (degrees("lat")?, degrees("lon")?);
            only_known(&members, "lat, lon").map_err(|error| format!("a geo point: {error}"))?;
            Literal::Point(LatLon { lat, lon })
        }
        Value::Array(values) => list(values)?,
        Value::Object(_) | Value::Null => return Err(forms()),
    })
}

/// Rejects any member that is left after the known ones have been removed.
fn only_known(rest: &serde_json::Map<String, Value>, known: &str) -> Result<(), String> {
    match rest.keys().next() {
        Some(name) => Err(format!(
            "the member {name:?} is not known here; known are {known}"
        )),
        None => Ok(()),
    }
}

fn list(values: Vec<Value>) -> Result<Literal, String> {
    if values.is_empty() {
        return Err("a list needs at least one value; null removes the attribute".to_owned());
    }
    let all = Value::Array(values);
    if let Ok(texts) = serde_json::from_value(all.clone()) {
        return Ok(Literal::Texts(texts));
    }
    let numbers =
        serde_json::from_value(all).map_err(|_| "a list holds strings only, or numbers only".to_owned())?;
    Ok(Literal::Numbers(numbers))
}

impl<'de> Deserialize<'de> for FieldForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldFormVisitor)
    }
}

struct FieldFormVisitor;

impl Visitor<'_> for FieldFormVisitor {
    type Value = FieldForm;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text, true, false or a number")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<FieldForm, E> {
        Ok(FieldForm(Literal::Boolean(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<FieldForm, E> {
        Ok(FieldForm(Literal::Signed(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<FieldForm, E> {
        Ok(FieldForm(
            i64::try_from(value).map_or(Literal::Unsigned(value), Literal::Signed),
        ))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<FieldForm, E> {
        Ok(FieldForm(Literal::Float(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<FieldForm, E> {
        Ok(FieldForm(Literal::Text(value.to_owned())))
    }
}

impl<'de> Deserialize<'de> for ColumnForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Literal::of_column(json.get())
            .map(Self)
            .map_err(de::Error::custom)
    }
}

/// JSON form of [`TypedLiteral`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedForm<'a> {
    #[serde(rename = "type")]
    column_type: ColumnType,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// Parses the value of a column without a type.
pub(crate) fn column(json: &str) -> serde_json::Result<Literal> {
    let FieldForm(literal) = serde_json::from_str(json)?;
    Ok(match (literal, json.trim()) {
        (Literal::Float(_), number) if may_be_rounded(number) => Literal::Digits(number.into()),
        // For some exponents, the parser of JSON does not return the nearest double.
        (Literal::Float(near), number) => Literal::Float(number.parse().unwrap_or(near)),
        (literal, _) => literal,
    })
}

/// Returns true if a number in JSON syntax has more significant digits than every double keeps.
fn may_be_rounded(number: &str) -> bool {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    digits.skip_while(|digit| *digit == b'0').count() > f64::DIGITS as usize
}

/// Serializes digits as a number.
fn as_number<S: Serializer>(digits: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let number: &RawValue = serde_json::from_str(digits).map_err(S::Error::custom)?;
    number.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_columns_keep_their_digits() {
        for (json, literal) in [
            ("\"1.5\"", Literal::Text("1.5".into())),
            ("true", Literal::Boolean(true)),
            ("9007199254740993", Literal::Signed(9_007_199_254_740_993)),
            ("18446744073709551615", Literal::Unsigned(u64::MAX)),
            ("5.32", Literal::Float(5.32)),
            ("1e20", Literal::Float(1e20)),
            (
                "0.000000000000000123456789012345",
                Literal::Float(1.234_567_890_123_45e-16),
            ),
            (
                "18446744073709551616",
                Literal::Digits("18446744073709551616".into()),
            ),
            (
                "1234567890123456.76",
                Literal::Digits("1234567890123456.76".into()),
            ),
            (
                "-1.234567890123456789e3",
                Literal::Digits("-1.234567890123456789e3".into()),
            ),
            (
                r#"{"type":"decimal","value":1234567890123456.76}"#,
                Literal::Typed(Box::new(TypedLiteral {
                    column_type: ColumnType::Decimal,
                    value: Literal::Digits("1234567890123456.76".into()),
                })),
            ),
        ] {
            let ColumnForm(read) = serde_json::from_str(json).expect(json);
            assert_eq!(read, literal, "{json}");
            let written = serde_json::to_string(&read).expect("plain data");
            let ColumnForm(again) = serde_json::from_str(&written).expect(&written);
            assert_eq!(again, literal, "{written}");
        }
        for (json, said) in [
            (
                "null",
                "invalid type: null, expected a text, true, false or a number",
            ),
            (
                "[1]",
                "invalid type: sequence, expected a text, true, false or a number",
            ),
            ("{}", "missing field `type`"),
            (r#"{"type":"decimal"}"#, "missing field `value`"),
            (r#"{"type":"money","value":1}"#, "unknown variant `money`"),
            (
                r#"{"type":"decimal","value":1,"version":0}"#,
                "unknown field `version`",
            ),
            (
                r#"{"type":"decimal","value":{"type":"decimal","value":1}}"#,
                "invalid type: map, expected a text, true, false or a number",
            ),
            ("1e999", "number out of range"),
        ] {
            let error = serde_json::from_str::<ColumnForm>(json).expect_err(json);
            assert!(error.to_string().contains(said), "{json}: {error}");
        }
    }

    #[test]
    fn attributes_read_back() {
        for json in [
            r#""x""#,
            "true",
            "1.5",
            r#"{"time":"2026-11-20T12:00:00Z"}"#,
            r#"{"time":"now-1h"}"#,
            r#"{"lat":52.5,"lon":-13.0}"#,
            r#"["a","b"]"#,
            "[1.0,2.5]",
        ] {
            let AttributeForm(read) = serde_json::from_str(json).expect(json);
            assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
        }
    }

    #[test]
    fn invalid_attributes_are_refused_with_their_form() {
        for (json, said) in [
            ("{}", "the value of an attribute is"),
            (r#"{"time":"yesterday"}"#, "a time: expected a time"),
            (r#"{"time":true}"#, "a time: expected text"),
            (r#"{"time":0,"zone":"x"}"#, "the member \"zone\" is not known"),
            (r#"{"lat":1}"#, "a geo point: the member \"lon\" is missing"),
            (r#"{"lat":1,"lon":"x"}"#, "a geo point: lon is a number"),
            ("[]", "at least one value"),
            (r#"["a",1]"#, "strings only, or numbers only"),
            ("[[1]]", "strings only, or numbers only"),
        ] {
            let error = serde_json::from_str::<AttributeForm>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
