//! One column of any type: chooses the codec of its [`ValueType`], for chunks and deltas alike.

use std::ops::Range;

use tideline_model::{ColumnData, ValueType};

use crate::floats::{FloatEncoder, Floats};
use crate::integers::{IntegerEncoder, Integers};
use crate::strings::{self, Strings};
use crate::timestamps::TimestampEncoder;
use crate::wire::{Damaged, Reader};

/// The codecs of all types, with buffers that serve column after column.
#[derive(Debug, Default)]
pub(crate) struct ColumnEncoder {
    pub(crate) integers: IntegerEncoder,
    pub(crate) timestamps: TimestampEncoder,
    floats: FloatEncoder,
}

impl ColumnEncoder {
    /// Appends `values`; their type and count are stored elsewhere.
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

/// A view of a stored column.
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
    /// Reads the column of `count` values that stands next.
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

    /// Replaces the content of `out` by the values of `rows`, which must lie inside the column.
    ///
    /// Keeps the buffer of `out` where it has the column's type already.
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

/// The type of a stored code; refuses reserved codes by name.
pub(crate) fn value_type(code: u8) -> Result<ValueType, UnknownType> {
    ValueType::from_code(code).ok_or_else(|| {
        let reserved = tideline_model::value::RESERVED_TYPE_CODES;
        let name = reserved.iter().find(|(reserved, _)| *reserved == code);
        UnknownType(code, name.map_or("unassigned", |(_, name)| name))
    })
}

/// A value type that this version cannot hold: its code and the name it is set aside for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("values of type {0} ({1}) need a newer version")]
pub struct UnknownType(pub u8, pub &'static str);
