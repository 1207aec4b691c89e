//! Values of rows in the form in which conditions compare them.
//!
//! Timestamps are compared as nanoseconds, decimals and bytes as texts that sort like the values. In undeclared columns,
//! these values have separate forms, because the literal of a condition may be of several types. A JSON document is
//! compared by its scalar values: the document itself, or each element of a list. An object with the members `lat` and
//! `lon` is a geo point.

use serde_json::Value;
use tideline_condition::ValueRef;
use tideline_key_codec::tuple::{ColumnOrder, Decimal, KeyColumn, KeyKind, KeySchema, KeyValue};
use tideline_model::{ColumnType, GeoPoint};
use tideline_wide_table::CellValue;

/// Passes the compared forms of a value to `take` until it returns true. Returns true if a call returned true. A value
/// of another type than the declared one is opaque.
pub fn each_compared(
    value: &CellValue<'_>,
    declared: Option<ColumnType>,
    take: &mut dyn FnMut(ValueRef<'_>) -> bool,
) -> bool {
    if declared.is_some_and(|declared| declared != value.column_type()) {
        return take(ValueRef::Opaque);
    }
    match value {
        CellValue::String(text) => take(ValueRef::Text(text)),
        CellValue::I64(number) => take(ValueRef::Signed(*number)),
        CellValue::U64(number) => take(ValueRef::Unsigned(*number)),
        CellValue::F64(number) => take(ValueRef::Float(*number)),
        CellValue::Bool(value) => take(ValueRef::Boolean(*value)),
        CellValue::Json(document) => match serde_json::from_str(document) {
            Ok(document) => each_scalar(&document, take),
            Err(_) => take(ValueRef::Opaque),
        },
        CellValue::Timestamp(time) if declared.is_some() => take(ValueRef::Signed(time.nanos())),
        CellValue::Decimal(number) if declared.is_some() => take(ValueRef::Text(&decimal_text(*number))),
        CellValue::Binary(bytes) if declared.is_some() => take(ValueRef::Text(&hex(bytes))),
        CellValue::Timestamp(time) => take(ValueRef::Time(*time)),
        CellValue::Decimal(number) => take(ValueRef::Decimal(&decimal_text(*number))),
        CellValue::Binary(bytes) => take(ValueRef::Bytes(&hex(bytes))),
        // Large values are read only by separate requests, so they are not compared.
        CellValue::Large(_) => take(ValueRef::Opaque),
    }
}

fn each_scalar(document: &Value, take: &mut dyn FnMut(ValueRef<'_>) -> bool) -> bool {
    match document {
        Value::Array(elements) => elements.iter().any(|element| take(scalar(element))),
        document => take(scalar(document)),
    }
}

fn scalar(value: &Value) -> ValueRef<'_> {
    match value {
        Value::String(text) => ValueRef::Text(text),
        Value::Bool(value) => ValueRef::Boolean(*value),
        Value::Number(number) => number.as_f64().map_or(ValueRef::Opaque, ValueRef::Float),
        Value::Object(members) => {
            let degrees = |name: &str| members.get(name)?.as_f64();
            let point = degrees("lat").zip(degrees("lon"));
            let point = point.and_then(|(lat, lon)| GeoPoint::new(lat, lon));
            point.map_or(ValueRef::Opaque, ValueRef::Point)
        }
        Value::Null | Value::Array(_) => ValueRef::Opaque,
    }
}

/// Returns bytes as hexadecimal digits, which sort like the bytes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Returns the bytes of hexadecimal digits; `None` if the text has other characters.
pub fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len().is_multiple_of(2).then(|| pairs.map(byte).collect())?
}

/// Returns the decimal of a text that [`decimal_text`] has returned; `None` for other texts.
pub fn decimal_of_text(text: &str) -> Option<Decimal> {
    let key = bytes_of_hex(text)?;
    let schema = KeySchema::new([DECIMAL]).ok()?;
    match schema.decode(&key).ok()?.first()? {
        KeyValue::Decimal(number) => Some(*number),
        _ => None,
    }
}

/// Key column of a key that consists of one decimal.
const DECIMAL: KeyColumn = KeyColumn {
    kind: KeyKind::Decimal,
    order: ColumnOrder::Ascending,
};

/// Returns the encoded key of a decimal in hexadecimal. These texts sort like the decimals, and no text is a prefix of
/// another one.
pub fn decimal_text(number: Decimal) -> String {
    let mut key = Vec::new();
    let encoded = KeySchema::new([DECIMAL]).and_then(|schema| schema.encode(&[number.into()], &mut key));
    debug_assert!(encoded.is_ok(), "a decimal is a key");
    hex(&key)
}
