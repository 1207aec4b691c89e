//! Decoding of keys. No input causes a panic, and only bytes that the encoder writes are accepted.
//!
//! Each column is read in its ascending form; the bytes of descending columns are inverted first.

use std::borrow::Cow;

use tideline_model::Timestamp;

use super::digits::read_decimal;
use super::escape::split_escaped;
use super::{KeyColumn, KeyDamage, KeyError, KeyKind, KeySchema, KeyValue, TUPLE_BYTES_MAX};
use crate::from_ordered_i64;

impl KeySchema {
    /// Decodes the encoded columns of a key: one value per column. Strings and binary values of ascending columns are
    /// borrowed from `key` unless they contain zero bytes.
    ///
    /// # Errors
    ///
    /// - [`KeyError::Damaged`] if the encoder never writes the bytes of a column for its type;
    /// - [`KeyError::TrailingBytes`] if bytes follow the last column;
    /// - [`KeyError::StoredTooLong`] if `key` has more than [`TUPLE_BYTES_MAX`] bytes.
    pub fn decode<'k>(&self, key: &'k [u8]) -> Result<Vec<KeyValue<'k>>, KeyError> {
        if key.len() > TUPLE_BYTES_MAX {
            return Err(KeyError::StoredTooLong { actual: key.len() });
        }
        let mut values = Vec::with_capacity(self.columns().len());
        let mut rest = key;
        for (index, column) in self.columns().iter().enumerate() {
            let (value, after) = split_column(*column, rest).map_err(|damage| KeyError::Damaged {
                column: index,
                damage,
            })?;
            values.push(value);
            rest = after;
        }
        match rest.len() {
            0 => Ok(values),
            bytes => Err(KeyError::TrailingBytes { bytes }),
        }
    }
}

/// Splits the first column off `key`. Returns its value and the bytes after it.
pub(crate) fn split_column(column: KeyColumn, key: &[u8]) -> Result<(KeyValue<'_>, &[u8]), KeyDamage> {
    let mut reader = ColumnReader {
        rest: key,
        mask: column.order.mask(),
    };
    let value = reader.value(column.kind)?;
    Ok((value, reader.rest))
}

/// Reads the bytes of one column in their ascending form.
pub(super) struct ColumnReader<'k> {
    /// Unread bytes of the key.
    rest: &'k [u8],
    /// Bits that differ between the stored bytes and the ascending form.
    mask: u8,
}

impl<'k> ColumnReader<'k> {
    /// Reads one byte.
    pub(super) fn byte(&mut self) -> Result<u8, KeyDamage> {
        let [byte] = self.bytes()?;
        Ok(byte)
    }

    fn value(&mut self, kind: KeyKind) -> Result<KeyValue<'k>, KeyDamage> {
        Ok(match kind {
            KeyKind::String => KeyValue::String(text(self.escaped()?)?),
            KeyKind::Signed => KeyValue::Signed(from_ordered_i64(self.bytes()?)),
            KeyKind::Unsigned => KeyValue::Unsigned(u64::from_be_bytes(self.bytes()?)),
            KeyKind::Binary => KeyValue::Binary(self.escaped()?),
            KeyKind::Timestamp => KeyValue::Timestamp(timestamp(from_ordered_i64(self.bytes()?))?),
            KeyKind::Decimal => KeyValue::Decimal(read_decimal(self)?),
            KeyKind::Boolean => KeyValue::Boolean(boolean(self.byte()?)?),
        })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], KeyDamage> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(KeyDamage::Truncated)?;
        self.rest = rest;
        Ok(bytes.map(|byte| byte ^ self.mask))
    }

    fn escaped(&mut self) -> Result<Cow<'k, [u8]>, KeyDamage> {
        let (value, rest) = split_escaped(self.rest, self.mask)?;
        self.rest = rest;
        Ok(value)
    }
}

fn text(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, KeyDamage> {
    let text = match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.ok_or(KeyDamage::Utf8)
}

fn timestamp(nanos: i64) -> Result<Timestamp, KeyDamage> {
    Timestamp::from_nanos(nanos).map_err(|_| KeyDamage::Timestamp { nanos })
}

fn boolean(found: u8) -> Result<bool, KeyDamage> {
    match found {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(KeyDamage::Boolean { found }),
    }
}
