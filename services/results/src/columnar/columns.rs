//! Column types of a columnar result, and the builders that collect the current batch.
//!
//! In a column of doubles, a builder converts integers to doubles. In a text column, it converts every value to
//! text.

use std::io;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_schema::{DataType, TimeUnit};
use tideline_engine::model::ValueType;
use tideline_query::{ValueRef, histogram_text};

/// Time zone of all time columns.
const UTC: &str = "UTC";

/// Estimated bytes of a cell in a batch, in addition to the bytes of a text.
const CELL_BYTES: usize = 8;

/// Number of digits of decimal columns: the most that 128 bits hold.
const DECIMAL_DIGITS: u8 = 38;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Timestamps in nanoseconds since the Unix epoch.
    Time,
    /// Values of one type. A float column converts integers to doubles; a histogram column holds text.
    Value(ValueType),
    /// Values of any type, converted to text.
    Text,
    /// Bytes.
    Binary,
    /// Decimal numbers of 38 digits, with this number of digits after the point: 0 to 38.
    Decimal(i8),
}

/// Content of one cell of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Null,
    /// Timestamp in nanoseconds since the Unix epoch.
    Time(i64),
    /// Field value.
    Value(ValueRef<'a>),
    /// Bytes, for a column of bytes.
    Binary(&'a [u8]),
    /// Unscaled value of a decimal number: its digits without the decimal point. The column defines the number of
    /// digits after the point. At most 38 digits.
    Decimal(i128),
}

impl ColumnType {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
            Self::Value(ValueType::Float) => DataType::Float64,
            Self::Value(ValueType::Signed) => DataType::Int64,
            Self::Value(ValueType::Unsigned) => DataType::UInt64,
            Self::Value(ValueType::Boolean) => DataType::Boolean,
            Self::Value(ValueType::String | ValueType::Histogram) | Self::Text => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Decimal(scale) => DataType::Decimal128(DECIMAL_DIGITS, scale),
        }
    }
}

/// Builder of one column of the current batch.
pub(crate) enum ColumnBuilder {
    Time(TimestampNanosecondBuilder),
    Float(Float64Builder),
    Signed(Int64Builder),
    Unsigned(UInt64Builder),
    Boolean(BooleanBuilder),
    Text(StringBuilder),
    Binary(BinaryBuilder),
    Decimal(Decimal128Builder),
}

impl ColumnBuilder {
    pub(crate) fn new(of: ColumnType) -> Self {
        match of {
            ColumnType::Time => Self::Time(TimestampNanosecondBuilder::new().with_timezone(UTC)),
            ColumnType::Value(ValueType::Float) => Self::Float(Float64Builder::new()),
            ColumnType::Value(ValueType::Signed) => Self::Signed(Int64Builder::new()),
            ColumnType::Value(ValueType::Unsigned) => Self::Unsigned(UInt64Builder::new()),
            ColumnType::Value(ValueType::Boolean) => Self::Boolean(BooleanBuilder::new()),
            ColumnType::Value(ValueType::String | ValueType::Histogram) | ColumnType::Text => {
                Self::Text(StringBuilder::new())
            }
            ColumnType::Binary => Self::Binary(BinaryBuilder::new()),
            ColumnType::Decimal(_) => Self::Decimal(Decimal128Builder::new().with_data_type(of.data_type())),
        }
    }

    /// Appends a cell and returns its estimated size in the batch, in bytes.
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> io::Result<usize> {
        let value = match cell {
            Cell::Null => {
                self.push_null();
                return Ok(CELL_BYTES);
            }
            Cell::Time(time) => match self {
                Self::Time(times) => {
                    times.append_value(time);
                    return Ok(CELL_BYTES);
                }
                _ => ValueRef::Signed(time),
            },
            Cell::Binary(bytes) => match self {
                Self::Binary(values) => {
                    values.append_value(bytes);
                    return Ok(CELL_BYTES + bytes.len());
                }
                _ => return Err(other_type()),
            },
            Cell::Decimal(digits) => match self {
                Self::Decimal(values) => {
                    values.append_value(digits);
                    return Ok(2 * CELL_BYTES);
                }
                _ => return Err(other_type()),
            },
            Cell::Value(value) => value,
        };
        if let Self::Text(values) = self {
            return Ok(CELL_BYTES + push_text(values, value));
        }
        match (self, value) {
            (Self::Float(values), ValueRef::Float(value)) => values.append_value(value),
            (Self::Float(values), ValueRef::Signed(value)) => values.append_value(value as f64),
            (Self::Float(values), ValueRef::Unsigned(value)) => values.append_value(value as f64),
            (Self::Signed(values), ValueRef::Signed(value)) => values.append_value(value),
            (Self::Unsigned(values), ValueRef::Unsigned(value)) => values.append_value(value),
            (Self::Boolean(values), ValueRef::Boolean(value)) => values.append_value(value),
            // The schema of the field received a further type while the query ran.
            _ => return Err(other_type()),
        }
        Ok(CELL_BYTES)
    }

    fn push_null(&mut self) {
        match self {
            Self::Time(times) => times.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Signed(values) => values.append_null(),
            Self::Unsigned(values) => values.append_null(),
            Self::Boolean(values) => values.append_null(),
            Self::Text(values) => values.append_null(),
            Self::Binary(values) => values.append_null(),
            Self::Decimal(values) => values.append_null(),
        }
    }

    /// Returns the collected cells and starts the next batch.
    pub(crate) fn take(&mut self) -> ArrayRef {
        match self {
            Self::Time(times) => Arc::new(times.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Signed(values) => Arc::new(values.finish()),
            Self::Unsigned(values) => Arc::new(values.finish()),
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
            Self::Binary(values) => Arc::new(values.finish()),
            Self::Decimal(values) => Arc::new(values.finish()),
        }
    }
}

/// Returns the error of a value that does not fit its column.
fn other_type() -> io::Error {
    io::Error::other("a value of another type appeared in a column during the query; repeat the query")
}

/// Appends a value as text and returns the length of the text in bytes.
fn push_text(texts: &mut StringBuilder, value: ValueRef<'_>) -> usize {
    let mut push = |text: &str| {
        texts.append_value(text);
        text.len()
    };
    match value {
        ValueRef::Float(value) => push(&value.to_string()),
        ValueRef::Signed(value) => push(&value.to_string()),
        ValueRef::Unsigned(value) => push(&value.to_string()),
        ValueRef::Boolean(value) => push(&value.to_string()),
        ValueRef::String(text) => push(text),
        ValueRef::Histogram(stored) => push(&histogram_text(stored)),
    }
}
