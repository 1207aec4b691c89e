//! Columns of a compiled key.
//!
//! A stored column has a [`Form`], which refers to logical columns by their numbers in `KeyLayout::logical`.

use std::ops::Range;

use crate::tuple::{ColumnOrder, KeyKind};

/// Logical column of a key: users write and read its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalKeyColumn {
    /// Name, unique within the key.
    pub name: String,
    /// Type of the values.
    pub kind: KeyKind,
    /// True if the server assigns the value when a writer omits it.
    pub is_generated: bool,
    /// Number of the stored column that holds the value.
    pub stored: usize,
}

/// Stored column of a key: rows are sorted by its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKeyColumn {
    pub(super) name: String,
    pub(super) order: ColumnOrder,
    pub(super) form: Form,
}

/// Origin of the values of a stored column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnOrigin {
    /// Value of a logical column.
    Logical,
    /// First hexadecimal digits of an MD5.
    HashPrefix,
    /// Hash modulo the number of buckets.
    Bucket,
    /// Text of a logical column, with its characters in reverse order.
    Reverse,
    /// Texts of several logical columns, joined by a delimiter.
    Splice,
}

/// Computation of a stored column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// The value of a logical column.
    Value { logical: usize, kind: KeyKind },
    /// The first `digits` hexadecimal digits of the MD5 of the columns `of`.
    HashPrefix { of: Box<[usize]>, digits: u8 },
    /// The hash of the columns `of` modulo `count`.
    Bucket { of: Box<[usize]>, count: u16 },
    /// The text of a logical column, with its characters in reverse order. An integer has `digits` digits; `None` for a
    /// string.
    Reverse { logical: usize, digits: Option<u8> },
    /// The texts of consecutive logical columns, the first of which is `first`.
    Splice { first: usize, splice: Splice },
}

/// Text format of a splice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    /// ASCII character between the texts.
    pub(super) delimiter: char,
    /// Number of digits of each column; `None` for a string.
    pub(super) pads: Box<[Option<u8>]>,
}

impl StoredKeyColumn {
    /// Returns the name. The name of a computed column is shown to users only in explanations and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the values: `u64` for a bucket, `string` for other computed columns. Buckets and hash
    /// prefixes have fewer stored bytes than a logical column of the same type.
    pub fn kind(&self) -> KeyKind {
        match self.form {
            Form::Value { kind, .. } => kind,
            Form::Bucket { .. } => KeyKind::Unsigned,
            Form::HashPrefix { .. } | Form::Reverse { .. } | Form::Splice { .. } => KeyKind::String,
        }
    }

    /// Returns the order of the values in a forward scan.
    pub fn order(&self) -> ColumnOrder {
        self.order
    }

    /// Returns the origin of the values.
    pub fn origin(&self) -> ColumnOrigin {
        match self.form {
            Form::Value { .. } => ColumnOrigin::Logical,
            Form::HashPrefix { .. } => ColumnOrigin::HashPrefix,
            Form::Bucket { .. } => ColumnOrigin::Bucket,
            Form::Reverse { .. } => ColumnOrigin::Reverse,
            Form::Splice { .. } => ColumnOrigin::Splice,
        }
    }

    /// Returns true if the column is computed from logical columns.
    pub fn is_computed(&self) -> bool {
        self.origin() != ColumnOrigin::Logical
    }

    /// Returns the numbers of the logical columns whose values the column holds; empty for a hash.
    pub fn logical(&self) -> Range<usize> {
        match &self.form {
            Form::Value { logical, .. } | Form::Reverse { logical, .. } => *logical..logical + 1,
            Form::Splice { first, splice } => *first..first + splice.pads.len(),
            Form::HashPrefix { .. } | Form::Bucket { .. } => 0..0,
        }
    }

    /// Returns the numbers of the logical columns that a hash prefix or bucket is computed from; `None` for a column
    /// that holds logical values.
    pub fn hashed(&self) -> Option<&[usize]> {
        match &self.form {
            Form::HashPrefix { of, .. } | Form::Bucket { of, .. } => Some(of),
            Form::Value { .. } | Form::Reverse { .. } | Form::Splice { .. } => None,
        }
    }
}
