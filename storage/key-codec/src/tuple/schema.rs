//! Declaration of a tuple key: types and orders of its columns.
//!
//! A schema has 1 to [`KEY_COLUMNS_MAX`] columns. It is not stored in keys, so a reader needs the schema of the writer.

use std::fmt;

use tideline_model::{ColumnType, KeyOrder};

use super::KeyError;

/// Maximum number of columns of a key.
pub const KEY_COLUMNS_MAX: usize = 8;

/// Columns of a key, in the order in which they are compared: 1 to [`KEY_COLUMNS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeySchema {
    columns: Box<[KeyColumn]>,
}

/// One column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyColumn {
    /// Type of the values.
    pub kind: KeyKind,
    /// Order of the values in a forward scan.
    pub order: ColumnOrder,
}

/// Type of a key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// UTF-8 text, ordered by its bytes, which is the order of its code points.
    String,
    /// Signed 64-bit integer.
    Signed,
    /// Unsigned 64-bit integer.
    Unsigned,
    /// Bytes, compared one by one as unsigned numbers.
    Binary,
    /// Timestamp, in nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// Exact decimal number.
    Decimal,
    /// Boolean; `false` sorts before `true`.
    Boolean,
}

/// Order of the values of a key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnOrder {
    /// Smallest value first.
    Ascending,
    /// Largest value first.
    Descending,
}

impl KeySchema {
    /// Declares a key.
    ///
    /// # Errors
    ///
    /// [`KeyError::ColumnCount`] if there is no column, or more than [`KEY_COLUMNS_MAX`].
    pub fn new(columns: impl Into<Box<[KeyColumn]>>) -> Result<Self, KeyError> {
        let columns = columns.into();
        if (1..=KEY_COLUMNS_MAX).contains(&columns.len()) {
            Ok(Self { columns })
        } else {
            Err(KeyError::ColumnCount {
                actual: columns.len(),
            })
        }
    }

    /// Returns the columns in the order in which they are compared.
    pub fn columns(&self) -> &[KeyColumn] {
        &self.columns
    }
}

impl KeyKind {
    /// All types.
    pub const ALL: [Self; 7] = [
        Self::String,
        Self::Signed,
        Self::Unsigned,
        Self::Binary,
        Self::Timestamp,
        Self::Decimal,
        Self::Boolean,
    ];

    /// Returns the type of a key column that holds values of a column type; `None` for types that keys cannot hold:
    /// `f64` and `json`.
    pub const fn of(column_type: ColumnType) -> Option<Self> {
        Some(match column_type {
            ColumnType::String => Self::String,
            ColumnType::I64 => Self::Signed,
            ColumnType::U64 => Self::Unsigned,
            ColumnType::Bool => Self::Boolean,
            ColumnType::Binary => Self::Binary,
            ColumnType::Decimal => Self::Decimal,
            ColumnType::Timestamp => Self::Timestamp,
            ColumnType::F64 | ColumnType::Json => return None,
        })
    }

    /// Returns the column type whose values a key column of this type holds.
    pub const fn column_type(self) -> ColumnType {
        match self {
            Self::String => ColumnType::String,
            Self::Signed => ColumnType::I64,
            Self::Unsigned => ColumnType::U64,
            Self::Boolean => ColumnType::Bool,
            Self::Binary => ColumnType::Binary,
            Self::Decimal => ColumnType::Decimal,
            Self::Timestamp => ColumnType::Timestamp,
        }
    }

    /// Returns the name of the type in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Signed => "i64",
            Self::Unsigned => "u64",
            Self::Binary => "binary",
            Self::Timestamp => "timestamp",
            Self::Decimal => "decimal",
            Self::Boolean => "bool",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<KeyOrder> for ColumnOrder {
    fn from(order: KeyOrder) -> Self {
        match order {
            KeyOrder::Ascending => Self::Ascending,
            KeyOrder::Descending => Self::Descending,
        }
    }
}

impl ColumnOrder {
    /// Returns the byte that is XORed with each byte of a column's ascending form to get its stored bytes.
    pub(crate) const fn mask(self) -> u8 {
        match self {
            Self::Ascending => 0,
            Self::Descending => u8::MAX,
        }
    }
}
