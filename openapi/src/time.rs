//! Timestamps and durations in requests.
//!
//! Timestamps accept several text forms and integers, durations only text. Each type serializes to a single
//! form.

use std::fmt;

use serde::{Deserialize, Serialize};
use tideline_model::time::{format_duration, parse_duration};
use tideline_model::{TimeExpression, TimeExpressionError, Timestamp};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// Timestamp in a request: a [`TimeExpression`] with an OpenAPI schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimeInput(
    /// Time expression.
    pub TimeExpression,
);

impl TimeInput {
    /// Parses a timestamp in any of the supported forms.
    ///
    /// # Errors
    ///
    /// Returns [`TimeExpressionError`] if the text has none of these forms or the timestamp is out of range.
    pub fn parse(text: &str) -> Result<Self, TimeExpressionError> {
        TimeExpression::parse(text).map(Self)
    }

    /// Returns the timestamp. A relative time is resolved against `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        self.0.resolve(now)
    }
}

impl From<Timestamp> for TimeInput {
    fn from(timestamp: Timestamp) -> Self {
        Self(TimeExpression::At(timestamp))
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

/// Duration as text: whole numbers with units, such as `90s`, `1h30m`, `30d`. Units: `ns us ms s m h d w y`; a day
/// has 24 hours, a year 365 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "30d")]
pub struct DurationText(
    /// Nanoseconds.
    pub i64,
);

/// Error: the text is not a duration.
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
