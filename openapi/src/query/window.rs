//! Window widths: fixed durations or calendar units.
//!
//! A width is written as one text, such as `5m` or `1mo`; the offset and time zone of windows are separate members.

use std::fmt;

use serde::{Deserialize, Serialize};
use tideline_model::time::{format_duration, parse_duration};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// Width of windows: a duration such as `90s` or `1h30m`, or a number of calendar days, weeks, months or years: `1d`,
/// `2w`, `3mo`, `1y`. Days start at midnight, weeks on Monday, months and years on their first day. Multiples are
/// counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum WindowWidth {
    /// Number of nanoseconds.
    Fixed(i64),
    /// Number of calendar units.
    Calendar(u32, CalendarUnit),
}

/// Calendar unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarUnit {
    /// Day, written `d`.
    Day,
    /// Week from Monday, written `w`.
    Week,
    /// Month, written `mo`.
    Month,
    /// Year, written `y`.
    Year,
}

/// Error: the text is not a window width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowWidthError;

impl CalendarUnit {
    const ALL: [(&str, Self); 4] = [
        ("mo", Self::Month),
        ("d", Self::Day),
        ("w", Self::Week),
        ("y", Self::Year),
    ];
}

impl PartialSchema for WindowWidth {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some(
                "Width of windows: a duration such as `90s` or `1h30m`, or a number of calendar days, weeks, months or \
                 years: `1d`, `2w`, `3mo`, `1y`. Days start at midnight, weeks on Monday, months and years on their first \
                 day. Multiples are counted from 1970-01-01.",
            ))
            .examples(["1h", "1d", "1mo"])
            .into()
    }
}

impl ToSchema for WindowWidth {}

impl fmt::Display for WindowWidthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a window width: a duration of less than 292 years such as 90s or 1h30m, or calendar days, \
             weeks, months or years such as 1d, 2w, 3mo or 1y",
        )
    }
}

impl std::error::Error for WindowWidthError {}

impl TryFrom<String> for WindowWidth {
    type Error = WindowWidthError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        for (name, unit) in CalendarUnit::ALL {
            let count = text.strip_suffix(name).map(str::as_bytes);
            if let Some(count) = count.filter(|count| count.iter().all(u8::is_ascii_digit)) {
                let count = std::str::from_utf8(count)
                    .ok()
                    .and_then(|count| count.parse().ok());
                return count
                    .map(|count| Self::Calendar(count, unit))
                    .ok_or(WindowWidthError);
            }
        }
        parse_duration(&text).map(Self::Fixed).ok_or(WindowWidthError)
    }
}

impl From<WindowWidth> for String {
    fn from(width: WindowWidth) -> Self {
        match width {
            WindowWidth::Fixed(nanos) => format_duration(nanos),
            WindowWidth::Calendar(count, unit) => {
                let name = CalendarUnit::ALL.iter().find(|(_, have)| *have == unit);
                format!("{count}{}", name.map_or("", |(name, _)| *name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_calendar_stand_alone() {
        let read = |text: &str| WindowWidth::try_from(text.to_owned());
        for (text, width) in [
            ("1d", WindowWidth::Calendar(1, CalendarUnit::Day)),
            ("2w", WindowWidth::Calendar(2, CalendarUnit::Week)),
            ("3mo", WindowWidth::Calendar(3, CalendarUnit::Month)),
            ("10y", WindowWidth::Calendar(10, CalendarUnit::Year)),
            ("90s", WindowWidth::Fixed(90_000_000_000)),
            ("1d12h", WindowWidth::Fixed(36 * 3_600_000_000_000)),
        ] {
            assert_eq!(read(text), Ok(width), "{text}");
            assert_eq!(read(&String::from(width)), Ok(width), "{text}");
        }
        for wrong in [
            "",
            "d",
            "mo",
            "1mo2d",
            "-1d",
            "1 d",
            "99999999999d",
            "month",
            "1M",
        ] {
            assert_eq!(read(wrong), Err(WindowWidthError), "{wrong}");
        }
    }
}
