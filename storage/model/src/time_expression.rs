//! Times in user input: absolute, or relative to the arrival of a request.
//!
//! A relative [`TimeExpression`] stays relative until [`TimeExpression::resolve`] is called, so that all times of a
//! request are resolved against the same current time.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::time::{Precision, Timestamp, format_duration, parse_duration};

/// Time in one of these forms:
///
/// - RFC 3339 text: `2026-11-20T12:00:00Z`, with any offset;
/// - a date, or a date with a time and no zone, in UTC: `2026-11-20`, `2026-11-20 12:00`, `2026-11-20T12:00:00.5`;
/// - integer nanoseconds since the epoch, or an integer with a unit as text: `1795392000s`; units `s`, `ms`, `us`,
///   `ns`;
/// - relative to the arrival of the request: `now`, `now-1h`, `now+30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeExpression {
    /// Absolute timestamp.
    At(Timestamp),
    /// Offset from the current time in nanoseconds; negative for earlier times.
    FromNow(i64),
}

/// Error of a text that has none of the forms of [`TimeExpression`] or is out of range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeExpressionError;

impl fmt::Display for TimeExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a time between 1677-09-21 and 2262-04-11: RFC 3339 text such as 2026-11-20T12:00:00Z, a date such as \
             2026-11-20, integer nanoseconds, an integer with a unit such as 1795392000s, or a time such as now or now-1h",
        )
    }
}

impl std::error::Error for TimeExpressionError {}

impl TimeExpression {
    /// Parses any of the forms, including integer nanoseconds as text, as in a query string.
    ///
    /// # Errors
    ///
    /// Returns [`TimeExpressionError`] if the text has none of the forms or is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_model::{TimeExpression, Timestamp};
    ///
    /// let now = Timestamp::parse_rfc3339("2026-11-20T12:00:00Z").ok_or("not a timestamp")?;
    /// let resolved = |text| TimeExpression::parse(text).map(|time| time.resolve(now).to_rfc3339());
    /// assert_eq!(resolved("now-1h")?, "2026-11-20T11:00:00Z");
    /// assert_eq!(resolved("2026-11-20 08:30")?, "2026-11-20T08:30:00Z");
    /// assert!(resolved("yesterday").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, TimeExpressionError> {
        if let Some(offset) = text.strip_prefix("now") {
            return match offset.as_bytes().first() {
                None => Some(0),
                Some(b'-') => parse_duration(&offset[1..]).map(|nanos| -nanos),
                Some(b'+') => parse_duration(&offset[1..]),
                Some(_) => None,
            }
            .map(Self::FromNow)
            .ok_or(TimeExpressionError);
        }
        if let Ok(nanos) = text.parse::<i64>() {
            return Self::from_nanos(nanos);
        }
        if let Some((count, precision)) = with_unit(text) {
            let timestamp = Timestamp::from_units(count, precision);
            return timestamp.map(Self::At).map_err(|_| TimeExpressionError);
        }
        let timestamp = Timestamp::parse_rfc3339(text).or_else(|| in_utc(text));
        timestamp.map(Self::At).ok_or(TimeExpressionError)
    }

    /// Returns the timestamp, resolved relative to `now` and clamped to the range of timestamps.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::FromNow(nanos) => now.saturating_add(nanos),
        }
    }

    fn from_nanos(nanos: i64) -> Result<Self, TimeExpressionError> {
        Timestamp::from_nanos(nanos)
            .map(Self::At)
            .map_err(|_| TimeExpressionError)
    }
}

/// Splits a text into an integer and its unit.
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

/// Parses a date, or a date with hours, minutes and optional seconds, as UTC.
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

impl fmt::Display for TimeExpression {
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

impl Serialize for TimeExpression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeExpression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeExpressionVisitor)
    }
}

struct TimeExpressionVisitor;

impl Visitor<'_> for TimeExpressionVisitor {
    type Value = TimeExpression;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RFC 3339 text, a date, integer nanoseconds, or a time such as 1795392000s or now-1h")
    }

    fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<TimeExpression, E> {
        TimeExpression::from_nanos(nanos).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<TimeExpression, E> {
        let nanos = i64::try_from(nanos).map_err(|_| E::custom(TimeExpressionError))?;
        self.visit_i64(nanos)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeExpression, E> {
        TimeExpression::parse(text).map_err(E::custom)
    }
}
