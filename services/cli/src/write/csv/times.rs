//! Timestamps in CSV cells, in the format of `--time-format` or in one of the common forms.
//!
//! Ambiguous dates such as `03/04/2024` are refused instead of guessed.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, Utc};
use tideline_openapi::model::Precision;

/// Common forms with an offset from UTC.
const WITH_OFFSET: [&str; 3] = [
    "%Y-%m-%dT%H:%M:%S%.f%z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%Y-%m-%d %H:%M:%S%.f %z",
];
/// Common forms without an offset, which are read as UTC.
const IN_UTC: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];
/// Smallest number whose magnitude indicates a unit. As seconds it is a time in March 1973.
const SECONDS_MIN: u64 = 100_000_000;

/// Format of the times of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TimeForm {
    /// RFC 3339, or integers in the unit of the request; the server parses them.
    Plain,
    /// A strftime pattern.
    Pattern(String),
    /// Any common form, or numbers in this unit.
    Common(&'static str),
}

impl TimeForm {
    /// Converts a time to a form that the server parses.
    ///
    /// # Errors
    ///
    /// Returns a message with the reason and a proposal if the cell is not a time of this form.
    pub(super) fn read(&self, cell: &str) -> Result<String, String> {
        match self {
            Self::Plain => Ok(cell.to_owned()),
            Self::Pattern(pattern) => by_pattern(cell, pattern),
            Self::Common(_) if cell.parse::<i64>().is_ok() => Ok(cell.to_owned()),
            Self::Common(unit) => match decimal(cell) {
                Some(parts) => fraction(cell, parts, unit),
                None => common(cell),
            },
        }
    }
}

fn shown(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn by_pattern(cell: &str, pattern: &str) -> Result<String, String> {
    let with_zone = DateTime::parse_from_str(cell, pattern).map(|time| time.to_utc());
    let time = with_zone
        .or_else(|_| NaiveDateTime::parse_from_str(cell, pattern).map(|time| time.and_utc()))
        .or_else(|error| match NaiveDate::parse_from_str(cell, pattern) {
            Ok(date) => Ok(date.and_time(NaiveTime::MIN).and_utc()),
            Err(_) => Err(error),
        });
    let time = time.map_err(|error| format!("time {cell:?} does not match {pattern:?}: {error}"))?;
    Ok(shown(time))
}

/// Splits a decimal number into its integer part and the digits after its point; `None` if the cell is not a
/// decimal number with a point.
pub(super) fn decimal(cell: &str) -> Option<(i64, &str)> {
    let (whole, digits) = cell.split_once('.')?;
    let is_fraction = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((whole.parse().ok().filter(|_| is_fraction)?, digits))
}

fn fraction(cell: &str, (whole, digits): (i64, &str), unit: &str) -> Result<String, String> {
    let nanos_of_unit = i128::from(Precision::parse(unit).unwrap_or_default().nanos());
    // 18 digits are more precise than a nanosecond for any unit.
    let digits = &digits[..digits.len().min(18)];
    let scale = 10i128.pow(u32::try_from(digits.len()).unwrap_or(0));
    let part = digits.parse::<i128>().unwrap_or(0) * nanos_of_unit / scale;
    let whole = i128::from(whole) * nanos_of_unit;
    let nanos = if cell.starts_with('-') {
        whole - part
    } else {
        whole + part
    };
    match i64::try_from(nanos) {
        Ok(nanos) => Ok(shown(DateTime::from_timestamp_nanos(nanos))),
        Err(_) => Err(format!(
            "time {cell:?} in {unit} is outside the years 1677 to 2262"
        )),
    }
}

/// Parses a common form: RFC 3339, a date, or a date with a time. On error, returns a message that proposes
/// `--time-format`.
fn common(cell: &str) -> Result<String, String> {
    let mut text = cell.replacen('/', "-", 2);
    if !year_is_first(&text) {
        return Err(match is_ambiguous(cell) {
            true => format!(
                "time {cell:?} may begin with the day or with the month; set --time-format, such as \
                 '%d/%m/%Y %H:%M' or '%m/%d/%Y %H:%M'"
            ),
            false => format!(
                "time {cell:?} has an unknown form; set --time-format, such as '%d %b %Y %H:%M:%S', s or ms"
            ),
        });
    }
    if let Some(without) = text
        .strip_suffix(['Z', 'z'])
        .or_else(|| text.strip_suffix(" UTC"))
    {
        text = without.trim_end().to_owned();
    }
    let with_offset = WITH_OFFSET
        .iter()
        .find_map(|form| DateTime::parse_from_str(&text, form).ok());
    let in_utc = || {
        IN_UTC
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(&text, form).ok())
    };
    let date = || NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok();
    let time = with_offset.map(|time| time.to_utc());
    let time = time.or_else(|| in_utc().map(|time| time.and_utc()));
    let time = time.or_else(|| date().map(|date| date.and_time(NaiveTime::MIN).and_utc()));
    time.map(shown)
        .ok_or_else(|| format!("time {cell:?} does not exist, or has an unknown form; set --time-format"))
}

fn year_is_first(text: &str) -> bool {
    text.split_once('-')
        .is_some_and(|(year, _)| year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if a text begins with three numbers, such as `03/04/2024` or `3.4.24`. The order of day, month and year
/// is unknown, because the caller has excluded dates that begin with a year of four digits.
fn is_ambiguous(cell: &str) -> bool {
    let date = cell.split([' ', 'T']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split(['/', '.', '-']).collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == 3 && parts.iter().all(is_number)
}

/// Range of the absolute values of the numbers in a time column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TimeNumbers {
    count: u64,
    smallest: u64,
    largest: u64,
}

impl TimeNumbers {
    pub(super) fn add(&mut self, number: i64) {
        let size = number.unsigned_abs();
        self.smallest = if self.count == 0 {
            size
        } else {
            self.smallest.min(size)
        };
        self.largest = self.largest.max(size);
        self.count += 1;
    }

    /// Returns the largest absolute number; `None` without numbers.
    pub(super) fn largest(&self) -> Option<u64> {
        (self.count > 0).then_some(self.largest)
    }

    /// Returns the unit in which the numbers are timestamps near the present; nanoseconds if there are no numbers.
    ///
    /// # Errors
    ///
    /// Returns a message if the numbers suggest several units.
    pub(super) fn unit(&self) -> Result<&'static str, String> {
        if self.count == 0 {
            return Ok("ns");
        }
        let unit = likely_unit(self.largest);
        if self.smallest >= SECONDS_MIN && likely_unit(self.smallest) != unit {
            return Err(format!(
                "its times are numbers from {} to {}, which suggest {} and {unit}; \
                 use --time-format s, ms, us or ns",
                self.smallest,
                self.largest,
                likely_unit(self.smallest),
            ));
        }
        Ok(unit)
    }
}

/// Returns the unit in which a number is most likely a timestamp near the present; seconds for small numbers.
pub(in crate::write) const fn likely_unit(number: u64) -> &'static str {
    match number {
        0..100_000_000_000 => "s",
        100_000_000_000..100_000_000_000_000 => "ms",
        100_000_000_000_000..100_000_000_000_000_000 => "us",
        _ => "ns",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_forms_are_read() {
        let seconds = TimeForm::Common("s");
        for (cell, time) in [
            ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z"),
            ("2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20Z"),
            ("2023-11-14 23:13:20.5 +0100", "2023-11-14T22:13:20.500Z"),
            ("2023-11-14 22:13:20", "2023-11-14T22:13:20Z"),
            ("2023-11-14 22:13:20.123456 UTC", "2023-11-14T22:13:20.123456Z"),
            ("2023/11/14 22:13", "2023-11-14T22:13:00Z"),
            ("2023-11-14", "2023-11-14T00:00:00Z"),
            ("1700000000", "1700000000"),
            ("1700000000.25", "2023-11-14T22:13:20.250Z"),
            ("-0.5", "1969-12-31T23:59:59.500Z"),
        ] {
            assert_eq!(seconds.read(cell).as_deref(), Ok(time), "{cell}");
        }
        assert_eq!(
            TimeForm::Common("ms").read("1700000000000.5").as_deref(),
            Ok("2023-11-14T22:13:20.000500Z")
        );
        for ambiguous in ["03/04/2024", "14.11.2023 22:13", "3-4-24"] {
            let refused = seconds.read(ambiguous).expect_err(ambiguous);
            assert!(refused.contains("the day or with the month"), "{refused}");
        }
        for wrong in ["yesterday", "2023-13-14", "", "now-1h"] {
            assert!(seconds.read(wrong).is_err(), "{wrong}");
        }
        let european = TimeForm::Pattern("%d/%m/%Y".into());
        assert_eq!(european.read("03/04/2024").as_deref(), Ok("2024-04-03T00:00:00Z"));
    }

    #[test]
    fn units_follow_the_size_of_numbers() {
        let unit = |numbers: &[i64]| {
            let mut all = TimeNumbers::default();
            numbers.iter().for_each(|number| all.add(*number));
            all.unit()
        };
        assert_eq!(unit(&[]), Ok("ns"));
        assert_eq!(unit(&[0, 1_700_000_000]), Ok("s"));
        assert_eq!(unit(&[1_700_000_000_000]), Ok("ms"));
        assert_eq!(unit(&[1_700_000_000_000_000]), Ok("us"));
        assert_eq!(unit(&[1_700_000_000_000_000_000]), Ok("ns"));
        assert!(unit(&[1_700_000_000, 1_700_000_000_000]).is_err());
    }
}
