//! Comparison and canonical bytes of values of one type.
//!
//! Equal values have equal canonical bytes. Groups and distinct values can therefore be looked up by bytes, without an
//! allocation per row.

use std::borrow::Cow;
use std::cmp::Ordering;

use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::rows::CellValue;

/// Appends the canonical bytes of a value. Positive and negative zero have the same bytes, and all NaN have the same
/// bytes.
pub(super) fn encode(value: &CellValue<'_>, out: &mut Vec<u8>) {
    match value {
        CellValue::String(text) | CellValue::Json(text) => out.extend_from_slice(text.as_bytes()),
        CellValue::Binary(bytes) => out.extend_from_slice(bytes),
        CellValue::I64(number) => out.extend_from_slice(&number.to_le_bytes()),
        CellValue::U64(number) => out.extend_from_slice(&number.to_le_bytes()),
        CellValue::F64(number) if number.is_nan() => out.extend_from_slice(&f64::NAN.to_le_bytes()),
        CellValue::F64(number) => out.extend_from_slice(&(number + 0.0).to_le_bytes()),
        CellValue::Bool(value) => out.push(u8::from(*value)),
        CellValue::Decimal(number) => {
            out.extend_from_slice(&number.mantissa().to_le_bytes());
            out.push(number.scale());
        }
        CellValue::Timestamp(time) => out.extend_from_slice(&time.nanos().to_le_bytes()),
        // Aggregates do not read large values.
        CellValue::Large(_) => {}
    }
}

/// Decodes a value from its canonical bytes; `None` if they are not the bytes of a value of the type.
pub(super) fn decode(bytes: &[u8], column_type: ColumnType) -> Option<CellValue<'static>> {
    let text = || Some(Cow::Owned(String::from_utf8(bytes.to_vec()).ok()?));
    Some(match column_type {
        ColumnType::String => CellValue::String(text()?),
        ColumnType::Json => CellValue::Json(text()?),
        ColumnType::Binary => CellValue::Binary(Cow::Owned(bytes.to_vec())),
        ColumnType::I64 => CellValue::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
        ColumnType::U64 => CellValue::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
        ColumnType::F64 => CellValue::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
        ColumnType::Bool => CellValue::Bool(*bytes.first()? != 0),
        ColumnType::Decimal => {
            let (mantissa, scale) = bytes.split_first_chunk::<16>()?;
            CellValue::Decimal(Decimal::new(i128::from_le_bytes(*mantissa), *scale.first()?).ok()?)
        }
        ColumnType::Timestamp => {
            let nanos = i64::from_le_bytes(bytes.try_into().ok()?);
            CellValue::Timestamp(Timestamp::from_nanos_clamped(nanos))
        }
    })
}

/// Compares two values of one type: numbers and times by value, with NaN last; texts and bytes byte by byte.
pub(super) fn compare(one: &CellValue<'_>, other: &CellValue<'_>) -> Ordering {
    match (one, other) {
        (CellValue::String(one), CellValue::String(other))
        | (CellValue::Json(one), CellValue::Json(other)) => one.cmp(other),
        (CellValue::Binary(one), CellValue::Binary(other)) => one.cmp(other),
        (CellValue::I64(one), CellValue::I64(other)) => one.cmp(other),
        (CellValue::U64(one), CellValue::U64(other)) => one.cmp(other),
        (CellValue::F64(one), CellValue::F64(other)) => one
            .partial_cmp(other)
            .unwrap_or_else(|| one.is_nan().cmp(&other.is_nan())),
        (CellValue::Bool(one), CellValue::Bool(other)) => one.cmp(other),
        (CellValue::Decimal(one), CellValue::Decimal(other)) => one.cmp(other),
        (CellValue::Timestamp(one), CellValue::Timestamp(other)) => one.nanos().cmp(&other.nanos()),
        // All values of a column have the same type, so this case does not occur.
        _ => Ordering::Equal,
    }
}

/// Returns the bytes that an owned copy of a value takes in addition to the value itself.
pub(super) fn heap_bytes(value: &CellValue<'_>) -> u64 {
    match value {
        CellValue::String(text) | CellValue::Json(text) => text.len() as u64,
        CellValue::Binary(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_bytes_read_back_and_equal_values_have_equal_ones() {
        let decimal = |text: &str| CellValue::Decimal(Decimal::parse(text).expect("a decimal"));
        for value in [
            CellValue::String("über".into()),
            CellValue::Binary(vec![0, 255].into()),
            CellValue::I64(i64::MIN),
            CellValue::U64(u64::MAX),
            CellValue::F64(-1.5),
            CellValue::Bool(true),
            decimal("-12.345"),
            CellValue::Timestamp(Timestamp::from_nanos_clamped(-7)),
            CellValue::Json("[1]".into()),
        ] {
            let mut bytes = Vec::new();
            encode(&value, &mut bytes);
            assert_eq!(decode(&bytes, value.column_type()), Some(value));
        }
        let bytes = |value: CellValue<'_>| {
            let mut bytes = Vec::new();
            encode(&value, &mut bytes);
            bytes
        };
        assert_eq!(bytes(CellValue::F64(0.0)), bytes(CellValue::F64(-0.0)));
        assert_eq!(bytes(CellValue::F64(f64::NAN)), bytes(CellValue::F64(-f64::NAN)));
        assert_eq!(bytes(decimal("1.50")), bytes(decimal("1.5")));
        assert_eq!(
            compare(&CellValue::F64(f64::NAN), &CellValue::F64(f64::INFINITY)),
            Ordering::Greater
        );
        assert_eq!(compare(&decimal("0.5"), &decimal("-3")), Ordering::Greater);
    }
}
