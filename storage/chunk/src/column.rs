//! Encodes and decodes one column of any type.
//!
//! Chooses the codec of the [`ValueType`]. Chunks and deltas use the same codecs.

use std::ops::Range;

use tideline_model::{ColumnData, ValueType};

use crate::floats::{FloatEncoder, Floats};
use crate::integers::{IntegerEncoder, Integers};
use crate::strings::{self, Strings};
use crate::timestamps::TimestampEncoder;
use crate::wire::{Damaged, Reader};

/// Encoders of all types with reusable buffers.
#[derive(Debug, Default)]
pub(crate) struct ColumnEncoder {
    pub(crate) integers: IntegerEncoder,
    pub(crate) timestamps: TimestampEncoder,
    floats: FloatEncoder,
}

impl ColumnEncoder {
    /// Appends `values`. Type and count are not stored here; the caller stores them.
    pub(crate) fn encode(&mut self, values: &ColumnData, out: &mut Vec<u8>) {
        match values {
            ColumnData::Float(values) => self.floats.encode(values, &mut self.integers, out),
            ColumnData::Signed(values) => self.integers.encode(values, out),
            ColumnData::Unsigned(values) => self.integers.encode(values, out),
            ColumnData::Boolean(values) => self.integers.encode(values, out),
            ColumnData::String(values) => strings::encode(values, &mut self.integers, out),
            ColumnData::Histogram(values) => strings::encode(values, &mut self.integers, out),
        }
    }
}

/// View of a stored column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ColumnView<'a> {
    Float(Floats<'a>),
    Signed(Integers<'a>),
    Unsigned(Integers<'a>),
    Boolean(Integers<'a>),
    String(Strings<'a>),
    Histogram(Strings<'a>),
}

impl<'a> ColumnView<'a> {
    /// Opens the next column, which has `count` values.
    pub(crate) fn open(
        reader: &mut Reader<'a>,
        value_type: ValueType,
        count: usize,
    ) -> Result<Self, Damaged> {
        Ok(match value_type {
            ValueType::Float => Self::Float(Floats::open(reader, count)?),
            ValueType::Signed => Self::Signed(Integers::open(reader, count)?),
            ValueType::Unsigned => Self::Unsigned(Integers::open(reader, count)?),
            ValueType::Boolean => Self::Boolean(Integers::open(reader, count)?),
            ValueType::String => Self::String(Strings::open(reader, count)?),
            ValueType::Histogram => Self::Histogram(Strings::open(reader, count)?),
        })
    }

    /// Replaces the content of `out` with the values of `rows`, which must be within the column.
    ///
    /// Reuses the buffer of `out` if it already has the type of the column.
    pub(crate) fn decode(&self, rows: Range<usize>, out: &mut ColumnData) -> Result<(), Damaged> {
        match (self, &mut *out) {
            (Self::Float(column), ColumnData::Float(values)) => {
                values.clear();
                column.decode(rows, values);
            }
            (Self::Signed(column), ColumnData::Signed(values)) => {
                values.clear();
                column.decode(rows, values);
            }
            (Self::Unsigned(column), ColumnData::Unsigned(values)) => {
                values.clear();
                column.decode(rows, values);
            }
            (Self::Boolean(column), ColumnData::Boolean(values)) => {
                values.clear();
                column.decode(rows, values);
            }
            (Self::String(column), ColumnData::String(values)) => {
                values.truncate(0);
                column.decode(rows, values)?;
            }
            (Self::Histogram(column), ColumnData::Histogram(values)) => {
                values.truncate(0);
                column.decode(rows, values)?;
            }
            _ => {
                *out = ColumnData::new(self.value_type());
                return self.decode(rows, out);
            }
        }
        Ok(())
    }

    fn value_type(&self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::Float,
            Self::Signed(_) => ValueType::Signed,
            Self::Unsigned(_) => ValueType::Unsigned,
            Self::Boolean(_) => ValueType::Boolean,
            Self::String(_) => ValueType::String,
            Self::Histogram(_) => ValueType::Histogram,
        }
    }
}

/// Returns the type of a stored code. The error names the type if the code is reserved.
pub(crate) fn value_type(code: u8) -> Result<ValueType, UnknownType> {
    ValueType::from_code(code).ok_or_else(|| {
        let reserved = tideline_model::value::RESERVED_TYPE_CODES;
        let name = reserved.iter().find(|(reserved, _)| *reserved == code);
        UnknownType(code, name.map_or("unassigned", |(_, name)| name))
    })
}

/// Error for a value type that this version does not support: its code, and its reserved name or "unassigned".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("values of type {0} ({1}) require a newer version")]
pub struct UnknownType(pub u8, pub &'static str);
