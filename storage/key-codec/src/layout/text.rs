//! Texts of reversed and spliced columns.
//!
//! The text of a string is the string itself. The text of an integer is its decimal digits, padded with zeros to a
//! fixed width. So the order of the texts is the order of the numbers, and each number has one text.

use std::borrow::Cow;

use super::LayoutError;
use super::columns::Splice;
use crate::tuple::{KeyKind, KeyValue};

/// Returns the text of a value. `digits` is the width of an integer; `None` for a string. Fails if an integer is
/// negative or has more digits.
pub(super) fn text_of<'v>(
    column: &str,
    value: &'v KeyValue<'_>,
    digits: Option<u8>,
) -> Result<Cow<'v, str>, LayoutError> {
    let number = match value {
        KeyValue::String(text) => return Ok(Cow::Borrowed(text)),
        KeyValue::Signed(number) => u64::try_from(*number).map_err(|_| LayoutError::NegativeNumber {
            column: column.to_owned(),
            actual: *number,
        })?,
        KeyValue::Unsigned(number) => *number,
        // Other types are refused when the key is declared, and the types of values are checked before.
        KeyValue::Binary(_) | KeyValue::Timestamp(_) | KeyValue::Decimal(_) | KeyValue::Boolean(_) => 0,
    };
    let limit = digits.unwrap_or_default();
    if number > largest_of(limit) {
        return Err(LayoutError::NumberTooLong {
            column: column.to_owned(),
            limit,
            actual: number,
        });
    }
    Ok(Cow::Owned(format!(
        "{number:0width$}",
        width = usize::from(limit)
    )))
}

/// Returns the largest number with `digits` digits, or `u64::MAX` if that is smaller.
pub(super) fn largest_of(digits: u8) -> u64 {
    10_u64
        .checked_pow(digits.into())
        .map_or(u64::MAX, |power| power - 1)
}

/// Returns the text of a spliced value. Fails as [`text_of`] does, and if the text contains the delimiter or a
/// character that sorts before it.
pub(super) fn spliced_text<'v>(
    column: &str,
    value: &'v KeyValue<'_>,
    digits: Option<u8>,
    delimiter: char,
) -> Result<Cow<'v, str>, LayoutError> {
    let text = text_of(column, value, digits)?;
    match text.chars().find(|character| *character <= delimiter) {
        Some(found) => Err(LayoutError::SplicedCharacter {
            column: column.to_owned(),
            delimiter,
            found,
        }),
        None => Ok(text),
    }
}

/// Returns the characters of a text in reverse order.
pub(super) fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// Parses the text of a value; `None` if it is not the text that [`text_of`] returns.
pub(super) fn parse(text: Cow<'_, str>, kind: KeyKind, digits: Option<u8>) -> Option<KeyValue<'_>> {
    let Some(digits) = digits else {
        return Some(KeyValue::String(text));
    };
    let is_padded = text.len() == usize::from(digits) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_padded {
        return None;
    }
    match kind {
        KeyKind::Signed => text.parse().ok().map(KeyValue::Signed),
        _ => text.parse().ok().map(KeyValue::Unsigned),
    }
}

impl Splice {
    /// Splits a spliced text into the values of its columns, which have the types `kinds`. Returns `None` if the text
    /// cannot be split into values of these types.
    pub(super) fn split<'k>(
        &self,
        text: &Cow<'k, str>,
        kinds: impl Iterator<Item = KeyKind>,
    ) -> Option<Vec<KeyValue<'k>>> {
        let parts: Vec<Cow<'k, str>> = match text {
            Cow::Borrowed(text) => text.split(self.delimiter).map(Cow::Borrowed).collect(),
            Cow::Owned(text) => text
                .split(self.delimiter)
                .map(|part| Cow::Owned(part.to_owned()))
                .collect(),
        };
        let has_low = |part: &Cow<'_, str>| part.chars().any(|character| character < self.delimiter);
        if parts.len() != self.pads.len() || parts.iter().any(has_low) {
            return None;
        }
        let columns = kinds.zip(&self.pads);
        parts
            .into_iter()
            .zip(columns)
            .map(|(part, (kind, pad))| parse(part, kind, *pad))
            .collect()
    }
}
