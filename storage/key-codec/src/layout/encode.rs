//! Encoding of stored keys from logical values.
//!
//! A column is appended in its ascending form; the bytes of a descending column are then inverted.

use super::columns::Form;
use super::spread::{bucket_of, push_hash_digits};
use super::text::{reversed, spliced_text, text_of};
use super::{KeyLayout, LayoutError, StoredKeyColumn};
use crate::tuple::{KeyValue, TUPLE_BYTES_MAX, complement, push_escaped, push_value};

impl KeyLayout {
    /// Appends the stored key of a row to `out`. `logical` has one value per column of [`Self::logical`], including a
    /// generated column. On an error, `out` is unchanged.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::ValueCount`] and [`LayoutError::WrongKind`] if the values do not fit the logical columns;
    /// - [`LayoutError::NegativeNumber`], [`LayoutError::NumberTooLong`] and [`LayoutError::SplicedCharacter`] for
    ///   values that a reversed or spliced column cannot hold;
    /// - [`LayoutError::TooLong`] if the key has more than [`TUPLE_BYTES_MAX`] bytes.
    pub fn encode(&self, logical: &[KeyValue<'_>], out: &mut Vec<u8>) -> Result<(), LayoutError> {
        if logical.len() != self.logical.len() {
            return Err(LayoutError::ValueCount {
                expected: self.logical.len(),
                actual: logical.len(),
            });
        }
        self.check_kinds(0, logical)?;
        let start = out.len();
        let mut columns = self.stored.iter();
        let result = columns
            .try_for_each(|column| self.push_column(column, logical, out))
            .and_then(|()| check_length(&out[start..]));
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Appends the part of a stored key that identifies its partition to `out`; see [`Self::partition_len`]. `logical`
    /// has one value per column of [`Self::logical`]. Only the values of [`Self::partition_columns`] are used; the others
    /// can have any type. The part can be longer than a valid key. On an error, `out` is unchanged.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::encode`] for the used values, except [`LayoutError::TooLong`].
    pub fn encode_partition(&self, logical: &[KeyValue<'_>], out: &mut Vec<u8>) -> Result<(), LayoutError> {
        if logical.len() != self.logical.len() {
            return Err(LayoutError::ValueCount {
                expected: self.logical.len(),
                actual: logical.len(),
            });
        }
        for number in self.partition.iter().copied() {
            self.check_kinds(number, &logical[number..=number])?;
        }
        let start = out.len();
        for column in &self.stored {
            if let Err(error) = self.push_column(column, logical, out) {
                out.truncate(start);
                return Err(error);
            }
            if column.hashed().is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Checks the types of values of the logical columns from `first` on.
    pub(super) fn check_kinds(&self, first: usize, values: &[KeyValue<'_>]) -> Result<(), LayoutError> {
        for (column, value) in self.logical[first..].iter().zip(values) {
            if column.kind != value.kind() {
                return Err(LayoutError::WrongKind {
                    column: column.name.clone(),
                    expected: column.kind,
                    actual: value.kind(),
                });
            }
        }
        Ok(())
    }

    /// Appends one stored column. `values` are the first logical values; they include all values that the column is
    /// computed from.
    pub(super) fn push_column(
        &self,
        column: &StoredKeyColumn,
        values: &[KeyValue<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), LayoutError> {
        let start = out.len();
        match &column.form {
            Form::Value { logical, .. } => push_value(&values[*logical], out),
            Form::HashPrefix { of, digits } => {
                push_hash_digits(of.iter().map(|number| &values[*number]), *digits, out);
            }
            Form::Bucket { of, count } => {
                out.push(bucket_of(of.iter().map(|number| &values[*number]), *count));
            }
            Form::Reverse { logical, digits } => {
                let name = &self.logical[*logical].name;
                let text = text_of(name, &values[*logical], *digits)?;
                push_escaped(reversed(&text).as_bytes(), out);
            }
            Form::Splice { first, splice } => {
                let values = &values[*first..first + splice.pads.len()];
                push_escaped(self.joined(column, values)?.as_bytes(), out);
            }
        }
        if column.order.mask() != 0 {
            complement(&mut out[start..]);
        }
        Ok(())
    }

    /// Joins the values of the first columns of a splice. Returns an empty text if `column` is not a splice.
    pub(super) fn joined(
        &self,
        column: &StoredKeyColumn,
        values: &[KeyValue<'_>],
    ) -> Result<String, LayoutError> {
        let mut text = String::new();
        if let Form::Splice { first, splice } = &column.form {
            for (number, (value, pad)) in values.iter().zip(&splice.pads).enumerate() {
                if number > 0 {
                    text.push(splice.delimiter);
                }
                let name = &self.logical[first + number].name;
                text.push_str(&spliced_text(name, value, *pad, splice.delimiter)?);
            }
        }
        Ok(text)
    }
}

/// Checks the length of an encoded key, or of a part of one.
pub(super) fn check_length(key: &[u8]) -> Result<(), LayoutError> {
    match key.len() {
        ..=TUPLE_BYTES_MAX => Ok(()),
        actual => Err(LayoutError::TooLong { actual }),
    }
}
