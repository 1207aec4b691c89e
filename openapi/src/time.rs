//! Instants and durations as requests state them.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use tideline_model::time::{format_duration, parse_duration};
use tideline_model::{Precision, Timestamp};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// A timestamp in a request, in one of these forms:
///
/// - RFC 3339 text: `2026-11-20T12:00:00Z`, with any offset;
/// - a date, or a date with a time and no zone, in UTC: `2026-11-20`, `2026-11-20 12:00`, `2026-11-20T12:00:00.5`;
/// - integer nanoseconds since the epoch, or as text an integer with a unit: `1795392000s`; units `s`, `ms`, `us`, `ns`;
/// - relative to the arrival of the request: `now`, `now-1h`, `now+30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeInput {
    /// This instant.
    At(Timestamp),
    /// So many nanoseconds after now; negative before it.
    FromNow(i64),
}

/// The text has none of the forms of [`TimeInput`], or is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeInputError;

impl fmt::Display for TimeInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a time between 1677-09-21 and 2262-04-11: RFC 3339 text such as 2026-11-20T12:00:00Z, a date such as \
             2026-11-20, integer nanoseconds, an integer with a unit such as 1795392000s, or a time such as now or now-1h",
        )
    }
}

impl std::error::Error for TimeInputError {}

impl TimeInput {
    /// Reads any of the forms; an integer may also come as text, as it does in a query string.
    pub fn parse(text: &str) -> Result<Self, TimeInputError> {
        if let Some(offset) = text.strip_prefix("now") {
            return match offset.as_bytes().first() {
                None => Some(0),
                Some(b'-') => parse_duration(&offset[1..]).map(|nanos| -nanos),
                Some(b'+') => parse_duration(&offset[1..]),
                Some(_) => None,
            }
            .map(Self::FromNow)
            .ok_or(TimeInputError);
        }
        if let Ok(nanos) = text.parse::<i64>() {
            return Self::from_nanos(nanos);
        }
        if let Some((count, precision)) = with_unit(text) {
            let timestamp = Timestamp::from_units(count, precision);
            return timestamp.map(Self::At).map_err(|_| TimeInputError);
        }
        let timestamp = Timestamp::parse_rfc3339(text).or_else(|| in_utc(text));
        timestamp.map(Self::At).ok_or(TimeInputError)
    }

    /// The instant when now is `now`; beyond the range of time it is moved to its nearest end.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::FromNow(nanos) => now.saturating_add(nanos),
        }
    }

    fn from_nanos(nanos: i64) -> Result<Self, TimeInputError> {
        Timestamp::from_nanos(nanos)
            .map(Self::At)
            .map_err(|_| TimeInputError)
    }
}

/// Splits an integer from its unit.
fn with_unit(text: &str) -> Option<(i64, Precision)> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let precision = match &text[digits.len()..] {
        "s" => Precision::Second,
        "ms" => Precision::Millisecond,
        "us" => Precision::Microsecond,
        "ns" => Precision::Nanosecond,
        _ => return None,
    };
    Some((digits.parse().ok()?, precision))
}

/// Reads a date, or a date with a time of hours, minutes and perhaps seconds, as UTC.
fn in_utc(text: &str) -> Option<Timestamp> {
    const DATE_CHARS: usize = "2026-11-20".len();
    const MINUTE_CHARS: usize = "12:00".len();
    let (date, time) = text.split_at_checked(DATE_CHARS)?;
    let time = match time.strip_prefix(['T', ' ']) {
        None if time.is_empty() => "00:00:00".to_owned(),
        None => return None,
        Some(time) if time.len() == MINUTE_CHARS => format!("{time}:00"),
        Some(time) => time.to_owned(),
    };
    Timestamp::parse_rfc3339(&format!("{date}T{time}Z"))
}

impl fmt::Display for TimeInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(instant) => instant.fmt(f),
            Self::FromNow(0) => f.write_str("now"),
            Self::FromNow(nanos) if *nanos < 0 => {
                write!(f, "now-{}", format_duration(nanos.saturating_neg()))
            }
            Self::FromNow(nanos) => write!(f, "now+{}", format_duration(*nanos)),
        }
    }
}

impl Serialize for TimeInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeInputVisitor)
    }
}

struct TimeInputVisitor;

impl Visitor<'_> for TimeInputVisitor {
    type Value = TimeInput;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RFC 3339 text, a date, integer nanoseconds, or a time such as 1795392000s or now-1h")
    }

    fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<TimeInput, E> {
        TimeInput::from_nanos(nanos).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<TimeInput, E> {
        let nanos = i64::try_from(nanos).map_err(|_| E::custom(TimeInputError))?;
        self.visit_i64(nanos)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeInput, E> {
        TimeInput::parse(text).map_err(E::custom)
    }
}

impl PartialSchema for TimeInput {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .examples(["now-1h", "2026-11-20T12:00:00Z"])
            .build();
        let nanos = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .format(Some(SchemaFormat::Custom("int64".into())))
            .build();
        OneOfBuilder::new()
            .item(text)
            .item(nanos)
            .description(Some(
                "A timestamp: RFC 3339 text; a date or a date with a time, in UTC (`2026-11-20`, `2026-11-20 12:00`); integer \
                 nanoseconds since 1970-01-01T00:00:00Z; an integer with a unit (`1795392000s`, `ms`, `us`, `ns`); or a time \
                 relative to the arrival of the request (`now`, `now-1h`, `now+30m`).",
            ))
            .into()
    }
}

impl ToSchema for TimeInput {}

/// A span of time as text: whole numbers with a unit, such as `90s`, `1h30m`, `30d`. Units: `ns us ms s m h d w y`;
/// a day has 24 hours, a year 365 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "30d")]
pub struct DurationText(
    /// Nanoseconds.
    pub i64,
);

/// The text is no duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationTextError;

impl fmt::Display for DurationTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a duration of less than 292 years such as 90s, 1h30m or 30d")
    }
}

impl std::error::Error for DurationTextError {}

impl TryFrom<String> for DurationText {
    type Error = DurationTextError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse_duration(&text).map(Self).ok_or(DurationTextError)
    }
}

impl From<DurationText> for String {
    fn from(duration: DurationText) -> Self {
        format_duration(duration.0)
    }
}

#[cfg(test)]
mod tests {
    use tideline_model::time::NANOS_PER_SECOND;

    use super::*;

    #[test]
    fn instants_are_absolute_or_relative() {
        let now = Timestamp::from_nanos_clamped(10_000 * NANOS_PER_SECOND);
        for (json, seconds) in [
            ("\"now\"", 10_000),
            ("\"now-1h\"", 6_400),
            ("\"now+90s\"", 10_090),
            ("1000000000", 1),
            ("\"1000000000\"", 1),
            ("\"1970-01-01T00:01:00Z\"", 60),
            ("\"1970-01-02\"", 86_400),
            ("\"1970-01-01 00:01\"", 60),
            ("\"1970-01-01T00:01:07\"", 67),
            ("\"90s\"", 90),
            ("\"-90s\"", -90),
            ("\"90000ms\"", 90),
            ("\"90000000us\"", 90),
            ("\"90000000000ns\"", 90),
        ] {
            let read: TimeInput = serde_json::from_str(json).expect(json);
            assert_eq!(read.resolve(now).nanos(), seconds * NANOS_PER_SECOND, "{json}");
            let shown = serde_json::to_string(&read).expect("plain text");
            assert_eq!(
                serde_json::from_str::<TimeInput>(&shown).expect("reads back"),
                read
            );
        }
        for wrong in [
            "\"nowish\"",
            "\"now-\"",
            "\"yesterday\"",
            "\"2026-11\"",
            "\"2026-13-01\"",
            "\"2026-11-20 25:00\"",
            "\"2026-11-20x\"",
            "\"17h\"",
            "\"9223372036854775807s\"",
            "\"é\"",
            "1.5",
            "9223372036854775807",
            "null",
        ] {
            assert!(serde_json::from_str::<TimeInput>(wrong).is_err(), "{wrong}");
        }
    }
}
