//! Text forms of names, times and values.
//!
//! A result may have millions of rows, so times and numbers are formatted without `std::fmt`.

use std::borrow::Cow;
use std::io::Write;

use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_query::{SinkClosed, ValueRef, histogram_text};

/// 2⁵³: clients that parse numbers as doubles read every integer up to this magnitude exactly.
const EXACT_INTEGER_MAX: u64 = 1 << 53;
/// Names of the members that a flat row may have in addition to its tags and columns.
const RESERVED_NAMES: [&str; 3] = ["id", "measurement", "time"];

/// Writes the buffer to the output and clears it for reuse.
pub(crate) fn pass_on(
    out: &mut (dyn Write + Send),
    buffer: &mut Vec<u8>,
) -> std::result::Result<(), SinkClosed> {
    let written = out.write_all(buffer);
    buffer.clear();
    written.map_err(|_| SinkClosed)
}

/// Returns the name of a column in a flat row. A reserved name gets the prefix `field:`.
pub(crate) fn flat_column(name: &str) -> Cow<'_, str> {
    if RESERVED_NAMES.contains(&name) {
        return format!("field:{name}").into();
    }
    name.into()
}

/// Returns the name of a tag in a flat row. A reserved name or the name of a column gets the prefix `tag:`.
pub(crate) fn flat_tag<'a>(key: &'a str, columns: &[String]) -> Cow<'a, str> {
    if RESERVED_NAMES.contains(&key) || columns.iter().any(|column| column == key) {
        return format!("tag:{key}").into();
    }
    key.into()
}

/// Appends a text as a cell of CSV. It is quoted if it is empty or contains a comma, a quote or a line break.
pub fn put_csv_text(text: &str, out: &mut Vec<u8>) {
    let needs_quotes = text.is_empty() || text.contains([',', '"', '\r', '\n']);
    if !needs_quotes {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Appends a text as a JSON string.
pub fn put_json_text(text: &str, out: &mut Vec<u8>) {
    // Writing a text to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Appends a value as JSON.
///
/// Non-finite floats and histograms become strings, and so do integers beyond ±2⁵³ if `integers` requests it.
pub fn put_json_value(value: ValueRef<'_>, integers: IntegerForm, out: &mut Vec<u8>) {
    let is_quoted = match value {
        ValueRef::Float(value) => !value.is_finite(),
        ValueRef::Signed(value) => {
            integers == IntegerForm::String && value.unsigned_abs() > EXACT_INTEGER_MAX
        }
        ValueRef::Unsigned(value) => integers == IntegerForm::String && value > EXACT_INTEGER_MAX,
        ValueRef::Boolean(_) => false,
        ValueRef::String(text) => return put_json_text(text, out),
        ValueRef::Histogram(stored) => return put_json_text(&histogram_text(stored), out),
    };
    if is_quoted {
        out.push(b'"');
        put_plain_value(value, out);
        out.push(b'"');
    } else {
        put_plain_value(value, out);
    }
}

/// Appends a value as unquoted text. Finite floats have a point or an exponent, so that they are parsed as
/// floats again.
pub(crate) fn put_plain_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Float(value) if value.is_nan() => out.extend_from_slice(b"NaN"),
        ValueRef::Float(f64::INFINITY) => out.extend_from_slice(b"Inf"),
        ValueRef::Float(f64::NEG_INFINITY) => out.extend_from_slice(b"-Inf"),
        ValueRef::Float(value) => out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes()),
        ValueRef::Signed(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        ValueRef::Unsigned(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        ValueRef::Boolean(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        ValueRef::String(text) => out.extend_from_slice(text.as_bytes()),
        ValueRef::Histogram(stored) => out.extend_from_slice(histogram_text(stored).as_bytes()),
    }
}

/// Appends a timestamp as a JSON value. `i64::MIN` marks a range without a start and becomes `null`.
pub fn put_json_time(nanos: i64, form: TimeForm, out: &mut Vec<u8>) {
    match form {
        _ if nanos == i64::MIN => out.extend_from_slice(b"null"),
        TimeForm::Nanos => out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes()),
        TimeForm::Rfc3339 => {
            out.push(b'"');
            put_rfc3339(nanos, out);
            out.push(b'"');
        }
    }
}

/// Appends a timestamp as unquoted text. `i64::MIN` marks a range without a start and appends nothing.
pub(crate) fn put_plain_time(nanos: i64, form: TimeForm, out: &mut Vec<u8>) {
    match form {
        _ if nanos == i64::MIN => {}
        TimeForm::Nanos => out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes()),
        TimeForm::Rfc3339 => put_rfc3339(nanos, out),
    }
}

/// Appends a timestamp in the format of `Timestamp::to_rfc3339`, in a tenth of the time that function takes.
///
/// The date is computed by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html#civil_from_days>): years begin in March, so that the leap
/// day is the last day of a year.
fn put_rfc3339(nanos: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    put_digits(year, 4, out);
    out.push(b'-');
    put_digits(month, 2, out);
    out.push(b'-');
    put_digits(day, 2, out);
    out.push(b'T');
    put_digits(second_of_day / 3_600, 2, out);
    out.push(b':');
    put_digits(second_of_day / 60 % 60, 2, out);
    out.push(b':');
    put_digits(second_of_day % 60, 2, out);
    let (digits, shown) = match fraction {
        0 => (0, 0),
        fraction if fraction % 1_000_000 == 0 => (3, fraction / 1_000_000),
        fraction if fraction % 1_000 == 0 => (6, fraction / 1_000),
        fraction => (9, fraction),
    };
    if digits > 0 {
        out.push(b'.');
        put_digits(shown, digits, out);
    }
    out.push(b'Z');
}

/// Appends the last `count` decimal digits of a non-negative number.
fn put_digits(number: i64, count: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + count, b'0');
    let mut rest = number;
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use tideline_engine::model::Timestamp;

    use super::*;

    #[test]
    fn times_are_written_as_the_model_writes_them() {
        let mut nanos = Timestamp::MIN.nanos();
        let mut step = 1;
        while nanos < Timestamp::MAX.nanos() - step {
            for near in [
                nanos,
                nanos / 1_000 * 1_000,
                nanos / 1_000_000 * 1_000_000,
                nanos / 1_000_000_000 * 1_000_000_000,
            ] {
                let mut text = Vec::new();
                put_rfc3339(near, &mut text);
                let wanted = Timestamp::from_nanos_clamped(near).to_rfc3339();
                assert_eq!(String::from_utf8_lossy(&text), wanted, "{near}");
            }
            step = (step % 4_000_000_000_000_000).wrapping_mul(3) + 86_399_999_999_937;
            nanos += step;
        }
    }

    #[test]
    fn values_keep_their_type() {
        let shown = |value| {
            let mut out = Vec::new();
            put_json_value(value, IntegerForm::String, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(shown(ValueRef::Float(1.0)), "1.0");
        assert_eq!(shown(ValueRef::Float(f64::NEG_INFINITY)), "\"-Inf\"");
        assert_eq!(shown(ValueRef::Signed(-(1 << 53))), "-9007199254740992");
        assert_eq!(shown(ValueRef::Signed(i64::MIN)), "\"-9223372036854775808\"");
        assert_eq!(shown(ValueRef::Unsigned(u64::MAX)), "\"18446744073709551615\"");
        assert_eq!(shown(ValueRef::String("a\"\n")), r#""a\"\n""#);
    }
}
