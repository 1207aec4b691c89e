//! Values of columns, and their stored form.
//!
//! A stored value consists of a type byte and a payload, which `FORMAT.md` lists by type. Texts and bytes are borrowed
//! from the stored row, so a scan copies only the values that it returns.

use std::borrow::Cow;

use tideline_key_codec::tuple::{Decimal, KeyValue};
use tideline_model::{ColumnType, Timestamp};
use tideline_wire::varint::{self, unzigzag, zigzag};

use crate::error::Damage;
use crate::large::{LargeKind, LargeValue};

/// Value of one version of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum CellValue<'a> {
    /// UTF-8 text.
    String(Cow<'a, str>),
    /// Signed 64-bit integer.
    I64(i64),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// IEEE 754 double; stored bit for bit.
    F64(f64),
    /// Boolean.
    Bool(bool),
    /// Bytes.
    Binary(Cow<'a, [u8]>),
    /// Exact decimal number.
    Decimal(Decimal),
    /// Text of a JSON document. The writer has validated it.
    Json(Cow<'a, str>),
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp(Timestamp),
    /// Text or bytes that are stored apart from the row, in pieces.
    Large(LargeValue),
}

/// Type bytes of stored values. A type byte is never reused for another type.
pub(crate) mod tag {
    pub(crate) const STRING: u8 = 1;
    pub(crate) const I64: u8 = 2;
    pub(crate) const U64: u8 = 3;
    pub(crate) const F64: u8 = 4;
    pub(crate) const FALSE: u8 = 5;
    pub(crate) const TRUE: u8 = 6;
    pub(crate) const BINARY: u8 = 7;
    pub(crate) const DECIMAL: u8 = 8;
    pub(crate) const JSON: u8 = 9;
    pub(crate) const TIMESTAMP: u8 = 10;
    pub(crate) const LARGE: u8 = 11;
}

impl CellValue<'_> {
    /// Returns the type of the value.
    pub const fn column_type(&self) -> ColumnType {
        match self {
            Self::String(_) => ColumnType::String,
            Self::I64(_) => ColumnType::I64,
            Self::U64(_) => ColumnType::U64,
            Self::F64(_) => ColumnType::F64,
            Self::Bool(_) => ColumnType::Bool,
            Self::Binary(_) => ColumnType::Binary,
            Self::Decimal(_) => ColumnType::Decimal,
            Self::Json(_) => ColumnType::Json,
            Self::Timestamp(_) => ColumnType::Timestamp,
            Self::Large(large) => match large.kind {
                LargeKind::Text => ColumnType::String,
                LargeKind::Binary => ColumnType::Binary,
                LargeKind::Json => ColumnType::Json,
            },
        }
    }

    /// Returns the same value with borrowed texts and bytes.
    pub fn borrowed(&self) -> CellValue<'_> {
        match self {
            Self::String(text) => CellValue::String(Cow::Borrowed(text)),
            Self::I64(number) => CellValue::I64(*number),
            Self::U64(number) => CellValue::U64(*number),
            Self::F64(number) => CellValue::F64(*number),
            Self::Bool(value) => CellValue::Bool(*value),
            Self::Binary(bytes) => CellValue::Binary(Cow::Borrowed(bytes)),
            Self::Decimal(number) => CellValue::Decimal(*number),
            Self::Json(text) => CellValue::Json(Cow::Borrowed(text)),
            Self::Timestamp(time) => CellValue::Timestamp(*time),
            Self::Large(large) => CellValue::Large(*large),
        }
    }

    /// Returns the value with owned texts and bytes.
    pub fn into_owned(self) -> CellValue<'static> {
        match self {
            Self::String(text) => CellValue::String(Cow::Owned(text.into_owned())),
            Self::I64(number) => CellValue::I64(number),
            Self::U64(number) => CellValue::U64(number),
            Self::F64(number) => CellValue::F64(number),
            Self::Bool(value) => CellValue::Bool(value),
            Self::Binary(bytes) => CellValue::Binary(Cow::Owned(bytes.into_owned())),
            Self::Decimal(number) => CellValue::Decimal(number),
            Self::Json(text) => CellValue::Json(Cow::Owned(text.into_owned())),
            Self::Timestamp(time) => CellValue::Timestamp(time),
            Self::Large(large) => CellValue::Large(large),
        }
    }

    /// Converts the value to a key value; `None` for types that keys cannot hold.
    pub fn key_value(&self) -> Option<KeyValue<'_>> {
        Some(match self {
            Self::String(text) => KeyValue::String(Cow::Borrowed(text)),
            Self::I64(number) => KeyValue::Signed(*number),
            Self::U64(number) => KeyValue::Unsigned(*number),
            Self::Bool(value) => KeyValue::Boolean(*value),
            Self::Binary(bytes) => KeyValue::Binary(Cow::Borrowed(bytes)),
            Self::Decimal(number) => KeyValue::Decimal(*number),
            Self::Timestamp(time) => KeyValue::Timestamp(*time),
            Self::F64(_) | Self::Json(_) | Self::Large(_) => return None,
        })
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let sized = |of: u8, bytes: &[u8], out: &mut Vec<u8>| {
            out.push(of);
            varint::put(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        };
        match self {
            Self::String(text) => sized(tag::STRING, text.as_bytes(), out),
            Self::I64(number) => {
                out.push(tag::I64);
                varint::put(zigzag(*number), out);
            }
            Self::U64(number) => {
                out.push(tag::U64);
                varint::put(*number, out);
            }
            Self::F64(number) => {
                out.push(tag::F64);
                out.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Self::Bool(value) => out.push(if *value { tag::TRUE } else { tag::FALSE }),
            Self::Binary(bytes) => sized(tag::BINARY, bytes, out),
            Self::Decimal(number) => {
                let mantissa = number.mantissa();
                let folded = ((mantissa << 1) ^ (mantissa >> 127)) as u128;
                let bytes = folded.to_le_bytes();
                let length = bytes.len() - folded.leading_zeros() as usize / 8;
                out.extend_from_slice(&[tag::DECIMAL, number.scale(), length as u8]);
                out.extend_from_slice(&bytes[..length]);
            }
            Self::Json(text) => sized(tag::JSON, text.as_bytes(), out),
            Self::Timestamp(time) => {
                out.push(tag::TIMESTAMP);
                varint::put(zigzag(time.nanos()), out);
            }
            Self::Large(large) => sized(tag::LARGE, &large.encode(), out),
        }
    }
}

impl<'a> CellValue<'a> {
    /// Returns the value of a key column. Texts and bytes are borrowed.
    pub fn of_key(value: &'a KeyValue<'_>) -> Self {
        match value {
            KeyValue::String(text) => Self::String(Cow::Borrowed(text)),
            KeyValue::Signed(number) => Self::I64(*number),
            KeyValue::Unsigned(number) => Self::U64(*number),
            KeyValue::Binary(bytes) => Self::Binary(Cow::Borrowed(bytes)),
            KeyValue::Timestamp(time) => Self::Timestamp(*time),
            KeyValue::Decimal(number) => Self::Decimal(*number),
            KeyValue::Boolean(value) => Self::Bool(*value),
        }
    }

    /// Decodes the value at the front of `bytes` and removes its bytes.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Result<Self, Damage> {
        let (&of, rest) = bytes.split_first().ok_or(Damage("a value is cut off"))?;
        *bytes = rest;
        Ok(match of {
            tag::STRING => Self::String(text(bytes)?.into()),
            tag::I64 => Self::I64(unzigzag(number(bytes)?)),
            tag::U64 => Self::U64(number(bytes)?),
            tag::F64 => {
                let (bits, rest) = bytes.split_first_chunk().ok_or(Damage("a double is cut off"))?;
                *bytes = rest;
                Self::F64(f64::from_bits(u64::from_le_bytes(*bits)))
            }
            tag::FALSE => Self::Bool(false),
            tag::TRUE => Self::Bool(true),
            tag::BINARY => Self::Binary(sized(bytes)?.into()),
            tag::DECIMAL => Self::Decimal(decimal_at(bytes)?),
            tag::JSON => Self::Json(text(bytes)?.into()),
            tag::TIMESTAMP => {
                let time = Timestamp::from_nanos(unzigzag(number(bytes)?));
                Self::Timestamp(time.map_err(|_| Damage("a timestamp is out of range"))?)
            }
            tag::LARGE => Self::Large(LargeValue::decode(sized(bytes)?)?),
            _ => return Err(Damage("a value has an unknown type")),
        })
    }
}

/// Decodes the varint at the front of `bytes` and removes its bytes.
pub(crate) fn number(bytes: &mut &[u8]) -> Result<u64, Damage> {
    varint::take(bytes).map_err(|_| Damage("a number is cut off or too long"))
}

/// Decodes a length at the front of `bytes`, and returns that many of the following bytes. Removes all of them from
/// `bytes`.
pub(crate) fn sized<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Damage> {
    let length = number(bytes)?;
    let length = usize::try_from(length).map_err(|_| Damage("a length is too large"))?;
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or(Damage("a length exceeds the remaining bytes"))?;
    *bytes = rest;
    Ok(taken)
}

/// Decodes a text and the length before it at the front of `bytes`, and removes their bytes.
pub(crate) fn text<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, Damage> {
    std::str::from_utf8(sized(bytes)?).map_err(|_| Damage("a text is not UTF-8"))
}

fn decimal_at(bytes: &mut &[u8]) -> Result<Decimal, Damage> {
    let (head, rest) = bytes.split_first_chunk().ok_or(Damage("a decimal is cut off"))?;
    let digits = rest.split_at_checked(usize::from(head[1]));
    let (digits, rest) = digits.ok_or(Damage("a decimal is cut off or too long"))?;
    *bytes = rest;
    decimal(*head, digits)
}

/// Decodes a decimal from its head (scale, number of digit bytes) and its digit bytes. Only the scale of the head is
/// used.
pub(crate) fn decimal([scale, _]: [u8; 2], digits: &[u8]) -> Result<Decimal, Damage> {
    let mut padded = [0; 16];
    let tail = padded.get_mut(..digits.len());
    tail.ok_or(Damage("a decimal is cut off or too long"))?
        .copy_from_slice(digits);
    let folded = u128::from_le_bytes(padded);
    let mantissa = (folded >> 1) as i128 ^ -((folded & 1) as i128);
    Decimal::new(mantissa, scale).map_err(|_| Damage("a decimal has an impossible scale"))
}
