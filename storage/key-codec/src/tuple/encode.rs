//! Encoding of tuples and of tuple prefixes.
//!
//! Values are appended in their ascending form. The bytes of descending columns are then inverted, which reverses their
//! order.

use tideline_model::KEY_BYTES_MAX;

use super::digits::push_decimal;
use super::escape::push_escaped;
use super::{KeyError, KeySchema, KeyValue};
use crate::ordered_i64;

/// Maximum length of the encoded columns of a key, in bytes. The other 32 bytes of a backend's key are reserved for a
/// prefix such as the table id.
pub const TUPLE_BYTES_MAX: usize = KEY_BYTES_MAX - 32;

impl KeySchema {
    /// Appends the key of a tuple to `out`. On an error, `out` is unchanged.
    ///
    /// # Errors
    ///
    /// [`KeyError::ValueCount`] if there is not one value per column, and the errors of [`Self::encode_prefix`].
    pub fn encode(&self, values: &[KeyValue<'_>], out: &mut Vec<u8>) -> Result<(), KeyError> {
        if values.len() != self.columns().len() {
            return Err(KeyError::ValueCount {
                expected: self.columns().len(),
                actual: values.len(),
            });
        }
        self.encode_prefix(values, out)
    }

    /// Appends the values of the first columns to `out`: the common prefix of all keys with these values. On an error,
    /// `out` is unchanged.
    ///
    /// # Errors
    ///
    /// - [`KeyError::PrefixCount`] if there are more values than columns;
    /// - [`KeyError::WrongKind`] if the type of a value is not the type of its column;
    /// - [`KeyError::TooLong`] if the encoded values have more than [`TUPLE_BYTES_MAX`] bytes.
    pub fn encode_prefix(&self, values: &[KeyValue<'_>], out: &mut Vec<u8>) -> Result<(), KeyError> {
        self.encode_from(0, values, out.len(), out)
    }

    /// Appends the values of the columns from `first` on. The columns of the key start at offset `start` of `out`; the
    /// length limit counts from there. On an error, `out` is unchanged.
    pub(super) fn encode_from(
        &self,
        first: usize,
        values: &[KeyValue<'_>],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        self.check_values(first, values)?;
        let before = out.len();
        for (column, value) in self.columns()[first..].iter().zip(values) {
            let value_start = out.len();
            push_value(value, out);
            if column.order.mask() != 0 {
                complement(&mut out[value_start..]);
            }
        }
        let actual = out.len() - start;
        if actual > TUPLE_BYTES_MAX {
            out.truncate(before);
            return Err(KeyError::TooLong { actual });
        }
        Ok(())
    }

    /// Checks that the number of values and their types fit the columns from `first` on.
    fn check_values(&self, first: usize, values: &[KeyValue<'_>]) -> Result<(), KeyError> {
        let limit = self.columns().len();
        let actual = first + values.len();
        if actual > limit {
            return Err(KeyError::PrefixCount { limit, actual });
        }
        for (column, value) in (first..).zip(values) {
            let (expected, actual) = (self.columns()[column].kind, value.kind());
            if expected != actual {
                return Err(KeyError::WrongKind {
                    column,
                    expected,
                    actual,
                });
            }
        }
        Ok(())
    }
}

/// Inverts all bits, which reverses the sort order of the bytes.
pub(crate) fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// Appends the ascending form of a value.
pub(crate) fn push_value(value: &KeyValue<'_>, out: &mut Vec<u8>) {
    match value {
        KeyValue::String(text) => push_escaped(text.as_bytes(), out),
        KeyValue::Signed(number) => out.extend_from_slice(&ordered_i64(*number)),
        KeyValue::Unsigned(number) => out.extend_from_slice(&number.to_be_bytes()),
        KeyValue::Binary(bytes) => push_escaped(bytes, out),
        KeyValue::Timestamp(time) => out.extend_from_slice(&ordered_i64(time.nanos())),
        KeyValue::Decimal(number) => push_decimal(*number, out),
        KeyValue::Boolean(value) => out.push(u8::from(*value)),
    }
}
