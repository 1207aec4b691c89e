//! Points at which an empty table is split.
//!
//! Only keys that begin with a hash prefix or a bucket have a known distribution.

use super::KeyLayout;
use super::columns::Form;
use super::spread::hex_digit;
use crate::tuple::complement;

impl KeyLayout {
    /// Returns `n` − 1 points, ascending, that split the keys into `n` ranges of about equal size. A range holds the
    /// keys from one point (inclusive) to the next (exclusive). Returns fewer points if the first column has fewer than
    /// `n` values. Returns no points unless the key begins with a hash prefix or a bucket.
    ///
    /// The points are first columns of keys, not whole keys.
    pub fn split_points(&self, n: usize) -> Vec<Vec<u8>> {
        let Some(first) = self.stored.first() else {
            return Vec::new();
        };
        let values = match first.form {
            Form::HashPrefix { digits, .. } => 1_u64 << (4 * u32::from(digits)),
            Form::Bucket { count, .. } => u64::from(count),
            Form::Value { .. } | Form::Reverse { .. } | Form::Splice { .. } => return Vec::new(),
        };
        let is_descending = first.order.mask() != 0;
        let ranges = u64::try_from(n).map_or(values, |n| n.min(values));
        let point = |number: u64| {
            // Position of the point among all values of the column, in stored order.
            let position = (u128::from(values) * u128::from(number) / u128::from(ranges)) as u64;
            let value = if is_descending {
                values - 1 - position
            } else {
                position
            };
            let mut bytes = match first.form {
                Form::HashPrefix { digits, .. } => hex_digits(value, digits),
                _ => vec![value as u8],
            };
            if is_descending {
                complement(&mut bytes);
            }
            bytes
        };
        (1..ranges).map(point).collect()
    }
}

/// Returns the last `digits` hexadecimal digits of a number.
fn hex_digits(value: u64, digits: u8) -> Vec<u8> {
    let shifts = (0..u32::from(digits)).rev().map(|digit| 4 * digit);
    shifts.map(|shift| hex_digit((value >> shift) as u8)).collect()
}
