//! The columns of a batch while it is filled.

use std::io;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_schema::{DataType, TimeUnit};
use tideline_model::ValueType;
use tideline_query::{ValueRef, histogram_text};

/// The name of the zone of all times.
const UTC: &str = "UTC";

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

impl Cell<'_> {
    /// About what it takes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Value(ValueRef::String(text)) => 8 + text.len(),
            // As text it takes about three times the bytes.
            Self::Value(ValueRef::Histogram(stored)) => 8 + 3 * stored.len(),
            _ => 8,
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

    /// Takes the next cell.
    pub(crate) fn push(&mut self, cell: Cell<'_>) -> io::Result<()> {
        let value = match cell {
            Cell::Null => {
                self.push_null();
                return Ok(());
            }
            Cell::Time(time) => match self {
                Self::Time(times) => {
                    times.append_value(time);
                    return Ok(());
                }
                _ => ValueRef::Signed(time),
            },
            Cell::Value(value) => value,
        };
        match (self, value) {
            (Self::Float(values), ValueRef::Float(value)) => values.append_value(value),
            (Self::Float(values), ValueRef::Signed(value)) => values.append_value(value as f64),
            (Self::Float(values), ValueRef::Unsigned(value)) => values.append_value(value as f64),
            (Self::Signed(values), ValueRef::Signed(value)) => values.append_value(value),
            (Self::Unsigned(values), ValueRef::Unsigned(value)) => values.append_value(value),
            (Self::Boolean(values), ValueRef::Boolean(value)) => values.append_value(value),
            (Self::Text(values), ValueRef::String(value)) => values.append_value(value),
            (Self::Text(values), ValueRef::Histogram(stored)) => values.append_value(histogram_text(stored)),
            (Self::Text(values), ValueRef::Float(value)) => values.append_value(value.to_string()),
            (Self::Text(values), ValueRef::Signed(value)) => values.append_value(value.to_string()),
            (Self::Text(values), ValueRef::Unsigned(value)) => values.append_value(value.to_string()),
            (Self::Text(values), ValueRef::Boolean(value)) => values.append_value(value.to_string()),
            // A type was added while the answer was read.
            _ => {
                return Err(io::Error::other(
                    "a column got values of another type while it was read",
                ));
            }
        }
        Ok(())
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
