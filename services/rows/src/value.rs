//! JSON forms of values.
//!
//! A value is parsed according to the declared type of its column. In an undeclared column, the JSON form determines
//! the type. The *typed form* `{"type": …, "value": …, "version": …}` specifies the type and the version explicitly. A
//! list of typed forms contains several versions. Every written form is parsed back to the same value.

use std::borrow::Cow;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};
use tideline_engine::key_codec::tuple::{Decimal, KeyKind, KeyValue};
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::row_values::bytes_of_hex;
use tideline_engine::rows::CellValue;
use tideline_openapi::TimeInput;
use tideline_openapi::row::RowIntegers;

use crate::large::write_large;

/// Largest magnitude up to which a double represents every integer exactly.
const EXACT_MAX: u64 = 1 << 53;
/// Maximum number of characters of a value that a message quotes.
const QUOTED_CHARS_MAX: usize = 40;

/// Value of a column in a request.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenValue {
    /// The value, or the reference to its pieces.
    pub value: CellValue<'static>,
    /// Time of its version; `None` if the server assigns it.
    pub version: Option<Timestamp>,
}

/// Values of a column; most columns have one.
pub type GivenValues = SmallVec<[GivenValue; 1]>;

/// Typed form of a value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedForm<'a> {
    #[serde(rename = "type", default)]
    column_type: Option<ColumnType>,
    #[serde(borrow)]
    value: &'a RawValue,
    #[serde(default)]
    version: Option<TimeInput>,
}

/// Parses the values of a column: one value, or one per version. `declared` is the type of the column. Relative times
/// of versions are resolved against `now`.
///
/// # Errors
///
/// A message that contains the actual value. The caller adds the column and its type.
pub fn parse_column(json: &str, declared: Option<ColumnType>, now: Timestamp) -> Result<GivenValues, String> {
    let one = |value| smallvec![GivenValue { value, version: None }];
    if declared == Some(ColumnType::Json) && !is_typed_json(json) {
        return parse(json, ColumnType::Json).map(one);
    }
    match json.as_bytes().first() {
        Some(b'{') => Ok(smallvec![parse_typed_form(json, declared, now)?]),
        Some(b'[') => {
            let forms: Vec<&RawValue> = serde_json::from_str(json).map_err(|error| error.to_string())?;
            if forms.is_empty() {
                return Err("found an empty list; give one value, or a list of values with versions".into());
            }
            let values = forms.iter().map(|form| match form.get().starts_with('{') {
                true => parse_typed_form(form.get(), declared, now),
                false => Err(format!(
                    "found a list with {}; each element of a list is an object with value and version",
                    shown(form.get())
                )),
            });
            values.collect()
        }
        _ => match declared {
            Some(declared) => parse(json, declared).map(one),
            None => infer(json).map(one),
        },
    }
}

fn parse_typed_form(json: &str, declared: Option<ColumnType>, now: Timestamp) -> Result<GivenValue, String> {
    let form: TypedForm<'_> = serde_json::from_str(json).map_err(|error| {
        let reason = tideline_openapi::plain::message(&error.to_string());
        format!("found an object that does not have the form {{\"type\", \"value\", \"version\"}}: {reason}")
    })?;
    let value = form.value.get();
    let value = match (form.column_type, declared) {
        (Some(given), Some(declared)) if given != declared => {
            return Err(format!("found a value of type {given}"));
        }
        (Some(column_type), _) | (None, Some(column_type)) => parse(value, column_type)?,
        (None, None) => infer(value)?,
    };
    let version = form.version.map(|version| version.resolve(now));
    Ok(GivenValue { value, version })
}

/// Returns true if a JSON text is a typed form of the type `json`, or a list of such forms.
fn is_typed_json(json: &str) -> bool {
    let is_typed = |json: &str| {
        serde_json::from_str::<TypedForm<'_>>(json)
            .is_ok_and(|form| form.column_type == Some(ColumnType::Json))
    };
    match json.as_bytes().first() {
        Some(b'{') => is_typed(json),
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(json)
            .is_ok_and(|list| !list.is_empty() && list.iter().all(|element| is_typed(element.get()))),
        _ => false,
    }
}

/// Parses a value as the given type.
///
/// # Errors
///
/// A message that contains the actual value.
pub fn parse(json: &str, column_type: ColumnType) -> Result<CellValue<'static>, String> {
    if column_type == ColumnType::Json {
        return Ok(CellValue::Json(compact(json).into()));
    }
    let found = || match column_type {
        ColumnType::Timestamp => found_instead_of_time(json, text_of(json).as_deref()),
        _ => format!("found {}", shown(json)),
    };
    let text = text_of(json);
    let number = is_number(json).then_some(json);
    let is_integer = |json: &&str| !json.contains(['.', 'e', 'E']);
    let digits = number.filter(is_integer).or(text.as_deref());
    let value = match column_type {
        ColumnType::String => text.map(|text| CellValue::String(Cow::Owned(text.into_owned()))),
        ColumnType::I64 => digits.and_then(|digits| digits.parse().ok()).map(CellValue::I64),
        ColumnType::U64 => digits.and_then(|digits| digits.parse().ok()).map(CellValue::U64),
        ColumnType::F64 => match (number, text.as_deref()) {
            (Some(number), _) => number.parse::<f64>().ok().filter(|number| number.is_finite()),
            (None, Some("NaN")) => Some(f64::NAN),
            (None, Some("Infinity")) => Some(f64::INFINITY),
            (None, Some("-Infinity")) => Some(f64::NEG_INFINITY),
            _ => None,
        }
        .map(CellValue::F64),
        ColumnType::Bool => match json {
            "true" => Some(CellValue::Bool(true)),
            "false" => Some(CellValue::Bool(false)),
            _ => None,
        },
        ColumnType::Binary => {
            let bytes = text.and_then(|text| STANDARD.decode(text.as_bytes()).ok());
            bytes.map(|bytes| CellValue::Binary(bytes.into()))
        }
        ColumnType::Decimal => {
            let digits = number.or(text.as_deref());
            digits.and_then(Decimal::parse).map(CellValue::Decimal)
        }
        ColumnType::Timestamp => match number.filter(is_integer) {
            Some(nanos) => nanos
                .parse()
                .ok()
                .and_then(|nanos| Timestamp::from_nanos(nanos).ok()),
            None => text.as_deref().and_then(Timestamp::parse_rfc3339),
        }
        .map(CellValue::Timestamp),
        ColumnType::Json => None,
    };
    value.ok_or_else(found)
}

/// Returns the description of a value that is no timestamp. `text` is its text.
pub(crate) fn found_instead_of_time(json: &str, text: Option<&str>) -> String {
    let found = format!("found {}", shown(json));
    match text.is_some_and(Timestamp::is_outside_rfc3339) {
        true => format!(
            "{found}, which is outside of the range {} to {}",
            Timestamp::MIN.to_rfc3339(),
            Timestamp::MAX.to_rfc3339()
        ),
        false => found,
    }
}

/// Parses a value of an undeclared column.
fn infer(json: &str) -> Result<CellValue<'static>, String> {
    let column_type = match json.as_bytes().first() {
        Some(b'"') => ColumnType::String,
        Some(b't' | b'f') => ColumnType::Bool,
        _ if !is_number(json) => return Err(format!("found {}", shown(json))),
        _ if json.contains(['.', 'e', 'E']) => ColumnType::F64,
        _ if json.parse::<i64>().is_ok() => ColumnType::I64,
        _ => ColumnType::U64,
    };
    parse(json, column_type)
}

/// Parses the value of a key column.
///
/// # Errors
///
/// A message that contains the actual value. The caller adds the column and its type.
pub fn parse_key(json: &str, kind: KeyKind) -> Result<KeyValue<'static>, String> {
    match parse(json, type_of(kind))? {
        CellValue::String(text) => Ok(KeyValue::String(text)),
        CellValue::I64(number) => Ok(KeyValue::Signed(number)),
        CellValue::U64(number) => Ok(KeyValue::Unsigned(number)),
        CellValue::Bool(value) => Ok(KeyValue::Boolean(value)),
        CellValue::Binary(bytes) => Ok(KeyValue::Binary(bytes)),
        CellValue::Decimal(number) => Ok(KeyValue::Decimal(number)),
        CellValue::Timestamp(time) => Ok(KeyValue::Timestamp(time)),
        CellValue::F64(_) | CellValue::Json(_) | CellValue::Large(_) => {
            Err("found a value that keys cannot hold".into())
        }
    }
}

/// Returns the column type of the values of a key column.
pub fn type_of(kind: KeyKind) -> ColumnType {
    match kind {
        KeyKind::String => ColumnType::String,
        KeyKind::Signed => ColumnType::I64,
        KeyKind::Unsigned => ColumnType::U64,
        KeyKind::Binary => ColumnType::Binary,
        KeyKind::Timestamp => ColumnType::Timestamp,
        KeyKind::Decimal => ColumnType::Decimal,
        KeyKind::Boolean => ColumnType::Bool,
    }
}

/// Converts the value of a key column to a [`CellValue`].
pub fn cell_of<'v>(value: &'v KeyValue<'_>) -> CellValue<'v> {
    match value {
        KeyValue::String(text) => CellValue::String(Cow::Borrowed(text)),
        KeyValue::Signed(number) => CellValue::I64(*number),
        KeyValue::Unsigned(number) => CellValue::U64(*number),
        KeyValue::Binary(bytes) => CellValue::Binary(Cow::Borrowed(bytes)),
        KeyValue::Timestamp(time) => CellValue::Timestamp(*time),
        KeyValue::Decimal(number) => CellValue::Decimal(*number),
        KeyValue::Boolean(value) => CellValue::Bool(*value),
    }
}

/// Appends a value in the plain form of its column if this form is parsed back to the same value, and in the typed form
/// otherwise.
pub fn write_value(
    value: &CellValue<'_>,
    declared: Option<ColumnType>,
    integers: RowIntegers,
    out: &mut Vec<u8>,
) {
    match is_plain(value, declared, integers) {
        true => write_plain(value, integers, out),
        false => write_typed(value, None, integers, out),
    }
}

/// Appends a value in the typed form, with its version if one is given.
pub fn write_typed(value: &CellValue<'_>, version: Option<i64>, integers: RowIntegers, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(value.column_type().name().as_bytes());
    out.extend_from_slice(b"\",\"value\":");
    write_plain(value, integers, out);
    if let Some(version) = version {
        out.extend_from_slice(b",\"version\":");
        write_time(Timestamp::from_nanos_clamped(version), out);
    }
    out.push(b'}');
}

/// Returns true if the plain form of a value, parsed as a value of a column with the declared type, results in the same
/// value. Also returns true for large values: they have only one form, which is never parsed.
fn is_plain(value: &CellValue<'_>, declared: Option<ColumnType>, integers: RowIntegers) -> bool {
    match (declared, value) {
        (_, CellValue::Large(_)) => true,
        (Some(ColumnType::Json), CellValue::Json(text)) => !is_typed_json(text),
        (Some(declared), value) => value.column_type() == declared,
        (None, CellValue::String(_) | CellValue::Bool(_)) => true,
        (None, CellValue::I64(number)) => !is_text(number.unsigned_abs(), integers),
        (None, CellValue::U64(number)) => i64::try_from(*number).is_err() && !is_text(*number, integers),
        (None, CellValue::F64(number)) => number.is_finite(),
        (None, _) => false,
    }
}

/// Returns true if an integer with this magnitude is written as text.
fn is_text(magnitude: u64, integers: RowIntegers) -> bool {
    integers == RowIntegers::Text && magnitude > EXACT_MAX
}

/// Appends the plain form of a value.
pub fn write_plain(value: &CellValue<'_>, integers: RowIntegers, out: &mut Vec<u8>) {
    let mut put = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("a vector takes all bytes");
    };
    match value {
        CellValue::String(text) => write_text(text, out),
        CellValue::I64(number) if is_text(number.unsigned_abs(), integers) => {
            put(format_args!("\"{number}\""));
        }
        CellValue::U64(number) if is_text(*number, integers) => put(format_args!("\"{number}\"")),
        CellValue::I64(number) => write_number(number, out),
        CellValue::U64(number) => write_number(number, out),
        CellValue::F64(number) if number.is_finite() => write_number(number, out),
        CellValue::F64(number) if number.is_nan() => put(format_args!("\"NaN\"")),
        CellValue::F64(number) => {
            let sign = if *number < 0.0 { "-" } else { "" };
            put(format_args!("\"{sign}Infinity\""));
        }
        CellValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        CellValue::Binary(bytes) => put(format_args!("\"{}\"", STANDARD.encode(bytes))),
        CellValue::Decimal(number) => put(format_args!("\"{number}\"")),
        CellValue::Json(text) => out.extend_from_slice(text.as_bytes()),
        CellValue::Timestamp(time) => write_time(*time, out),
        CellValue::Large(large) => write_large(large, None, out),
    }
}

/// Appends a text as a JSON string.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a vector takes all bytes");
}

/// Appends a number. Formatting it through [`std::fmt`] takes twice as long.
pub fn write_number(number: impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &number).expect("a vector takes all bytes");
}

/// Appends a timestamp as a JSON string.
pub fn write_time(time: Timestamp, out: &mut Vec<u8>) {
    out.push(b'"');
    time.write_rfc3339(out);
    out.push(b'"');
}

/// Returns the content of a JSON string; `None` for other values.
fn text_of(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    match inner.contains('\\') {
        false => Some(Cow::Borrowed(inner)),
        true => serde_json::from_str(json).ok().map(Cow::Owned),
    }
}

fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Removes white space outside of JSON strings, so that the document has one line.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut is_inside, mut is_escaped) = (false, false);
    for character in json.chars() {
        if is_inside || !character.is_ascii_whitespace() {
            out.push(character);
        }
        is_inside ^= character == '"' && !is_escaped;
        is_escaped = is_inside && character == '\\' && !is_escaped;
    }
    out
}

/// Returns a description of a JSON value for messages.
pub(crate) fn shown(json: &str) -> String {
    let short = |text: &str| match text.chars().count() > QUOTED_CHARS_MAX {
        true => format!("{}…", text.chars().take(QUOTED_CHARS_MAX).collect::<String>()),
        false => text.to_owned(),
    };
    match json.as_bytes().first() {
        Some(b'"') => format!("the text {:?}", short(&text_of(json).unwrap_or_default())),
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "a list".to_owned(),
        _ if is_number(json) => format!("the number {}", short(json)),
        _ => short(json),
    }
}

/// Converts a date, or a date with a time, to RFC 3339. A text without a zone is in UTC. Returns `None` for other
/// texts.
pub fn utc(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_date = bytes.len() >= 10
        && bytes[..10]
            .iter()
            .enumerate()
            .all(|(position, byte)| match position {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
    if !is_date {
        return None;
    }
    if bytes.len() == 10 {
        return Some(format!("{text}T00:00:00Z"));
    }
    let (date, time) = text.split_at(10);
    let time = time.strip_prefix([' ', 'T'])?;
    let has_zone = time.contains(['Z', 'z', '+', '-']);
    Some(match has_zone {
        true => format!("{date}T{time}"),
        false => format!("{date}T{time}Z"),
    })
}

/// Converts hexadecimal digits to base64; `None` if the text is not valid hexadecimal.
pub(crate) fn base64_of_hex(digits: &str) -> Option<String> {
    bytes_of_hex(digits).map(|bytes| STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_zone_are_in_utc() {
        for (sql, rfc_3339) in [
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("2026-11-20 12:00:00", "2026-11-20T12:00:00Z"),
            ("2026-11-20 12:00:00.5", "2026-11-20T12:00:00.5Z"),
            ("2026-11-20T12:00:00+01:00", "2026-11-20T12:00:00+01:00"),
        ] {
            assert_eq!(utc(sql).as_deref(), Some(rfc_3339), "{sql}");
        }
        assert_eq!(utc("soon"), None);
        assert_eq!(utc("2026-11-20é"), None);
    }
}
