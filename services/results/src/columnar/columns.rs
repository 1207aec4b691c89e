//! The columns of a batch while it is filled.

use std::io;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_schema::{DataType, TimeUnit};
use tideline_engine::model::ValueType;
use tideline_query::{ValueRef, histogram_text};

/// The name of the zone of all times.
const UTC: &str = "UTC";

/// What a cell takes in a batch, beside the bytes of a text.
const CELL_BYTES: usize = 8;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Instants, nanoseconds since the epoch.
    Time,
    /// Values of one type; integers become doubles in a column of floats, histograms texts.
    Value(ValueType),
    /// Values of any kind, as texts.
    Text,
}

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// None.
    Null,
    /// An instant.
    Time(i64),
    /// A value.
    Value(ValueRef<'a>),
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
        }
    }
}

/// A column of the batch that is filled.
pub(crate) enum ColumnBuilder {
    Time(TimestampNanosecondBuilder),
    Float(Float64Builder),
    Signed(Int64Builder),
    Unsigned(UInt64Builder),
    Boolean(BooleanBuilder),
    Text(StringBuilder),
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
        }
    }

    /// Takes the next cell; about the bytes that it takes in the batch.
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
            // A type was added while the answer was read.
            _ => {
                return Err(io::Error::other(
                    "a column got values of another type while it was read",
                ));
            }
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
        }
    }

    /// What was gathered; the next batch begins.
    pub(crate) fn take(&mut self) -> ArrayRef {
        match self {
            Self::Time(times) => Arc::new(times.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Signed(values) => Arc::new(values.finish()),
            Self::Unsigned(values) => Arc::new(values.finish()),
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
        }
    }
}

/// Appends any value as text; how long that is, which of a histogram only the text itself says.
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
