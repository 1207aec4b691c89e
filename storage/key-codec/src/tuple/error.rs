//! Errors of tuple keys: invalid schemas and values, damaged bytes.
//!
//! [`KeyError`] describes a failed call; [`KeyDamage`] describes the damage in one column of a stored key.

use thiserror::Error;

use super::{DECIMAL_SCALE_MAX, KEY_COLUMNS_MAX, KeyKind, TUPLE_BYTES_MAX};

/// Failed operation on a tuple key. Columns are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The schema has no column, or more than [`KEY_COLUMNS_MAX`].
    #[error("the key has {actual} columns; declare 1 to {KEY_COLUMNS_MAX}")]
    ColumnCount {
        /// Number of declared columns.
        actual: usize,
    },
    /// The number of values of the tuple is not the number of columns of the schema.
    #[error("the key has {actual} values, the table has {expected} key columns; give one value per column")]
    ValueCount {
        /// Number of columns.
        expected: usize,
        /// Number of values.
        actual: usize,
    },
    /// The prefix has more values than the schema has columns.
    #[error("the key prefix has {actual} values, the table has {limit} key columns; omit the others")]
    PrefixCount {
        /// Number of columns.
        limit: usize,
        /// Number of values.
        actual: usize,
    },
    /// The prefix holds all columns, so no column is left for the bounds.
    #[error(
        "bounds apply to the column after the key prefix, and the prefix holds all {columns} key columns"
    )]
    BoundsAfterLastColumn {
        /// Number of columns.
        columns: usize,
    },
    /// The type of a value is not the type of its column.
    #[error("key column {column} has type {expected}; the value has type {actual}")]
    WrongKind {
        /// Number of the column.
        column: usize,
        /// Type of the column.
        expected: KeyKind,
        /// Type of the value.
        actual: KeyKind,
    },
    /// The encoded columns exceed [`TUPLE_BYTES_MAX`].
    #[error(
        "the key columns have {actual} encoded bytes, over the limit of {TUPLE_BYTES_MAX}; shorten the values"
    )]
    TooLong {
        /// Number of encoded bytes.
        actual: usize,
    },
    /// The scale of a decimal exceeds [`DECIMAL_SCALE_MAX`].
    #[error("decimal scale {actual} is over the limit of {DECIMAL_SCALE_MAX}; round the value")]
    DecimalScale {
        /// Scale of the refused decimal.
        actual: u8,
    },
    /// The stored bytes of a column are not a value of its type.
    #[error("a stored key is damaged in column {column}: {damage}")]
    Damaged {
        /// Number of the column.
        column: usize,
        /// Kind of damage.
        damage: KeyDamage,
    },
    /// A stored key exceeds [`TUPLE_BYTES_MAX`].
    #[error("a stored key is damaged: its columns have {actual} bytes, over the limit of {TUPLE_BYTES_MAX}")]
    StoredTooLong {
        /// Number of bytes.
        actual: usize,
    },
    /// A stored key has bytes after its last column.
    #[error("a stored key is damaged: {bytes} bytes follow its last column")]
    TrailingBytes {
        /// Number of bytes after the last column.
        bytes: usize,
    },
}

/// Damage in one column of a stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyDamage {
    /// The key ends inside the column.
    #[error("the key ends inside it")]
    Truncated,
    /// The escape byte `00` of a string or binary value is followed by a byte that the encoder never writes there.
    #[error("byte {found:#04x} follows an escape byte")]
    Escape {
        /// The byte, in the ascending form.
        found: u8,
    },
    /// The string is not UTF-8.
    #[error("the string is not valid UTF-8")]
    Utf8,
    /// The byte of a boolean is neither 0 nor 1.
    #[error("byte {found:#04x} is not a boolean")]
    Boolean {
        /// The byte, in the ascending form.
        found: u8,
    },
    /// The number is outside the range of a timestamp.
    #[error("{nanos} ns is not a valid timestamp")]
    Timestamp {
        /// Nanoseconds since 1970.
        nanos: i64,
    },
    /// The decimal is out of range, or not in its canonical form.
    #[error("not the stored form of a decimal")]
    Decimal,
}
